//! What is computed, and what is refused as undefined.

use mcc_support::Tensor;

use super::run_with_status;
use crate::loops::text::parse;

/// Runs the body of a kernel over `x = [1, 2, 3, 4]`; gives `y` and the status.
fn run(body: &str) -> Result<(Vec<f32>, u32), String> {
    let text = format!(
        r#"program "p" {{
          buffer @x : f32[4] input 0
          buffer @i : i64[4] constant [3, 0, -1, 7]
          buffer @t : f32[4] temporary
          buffer @row : f32[4] local
          buffer @status : i32[] status
          buffer @y : f32[4] output 0
          input "x" @x
          output "y" @y
          kernel @k (d: spatial 4, e: spatial 4, j: sequential 4, n: reduce 0) {{
            var %a0 : f32
            var %a1 : i64
            {body}
          }}
        }}"#
    );
    let program = parse(&text).unwrap();
    let x = Tensor::from_elements([4], &[1.0f32, 2.0, 3.0, 4.0]);
    let (outputs, status) = run_with_status(&program, &[x]).map_err(|error| error.to_string())?;
    Ok((outputs[0].elements(), status))
}

#[test]
fn statements_compute() {
    let cases: [(&str, [f32; 4]); 7] = [
        ("for d { @y[d] = @x[3 - d] * 2.0 }", [8.0, 6.0, 4.0, 2.0]),
        ("for d { @y[d] = (@x[d - 2] or -1.0) }", [-1.0, -1.0, 1.0, 2.0]),
        ("%a0 = 0.0 for j { %a0 = %a0 + @x[j] @y[j] = %a0 }", [1.0, 3.0, 6.0, 10.0]),
        ("for d { %a0 = 5.0 for n { %a0 = %a0 + 1.0 } @y[d] = %a0 }", [5.0; 4]),
        ("for d { if lt(d, 2) { @y[d] = 1.0 } else { @y[d] = 2.0 } }", [1.0, 1.0, 2.0, 2.0]),
        ("for d { %a1 = 0 while lt(%a1, d) { %a1 = %a1 + 2 } @y[d] = cast.f32(%a1) }", [0.0, 2.0, 2.0, 4.0]),
        // What is not chosen may be undefined, also where it was computed early.
        ("for d { @y[d] = select(lt(@i[d], 4), (@x[@i[d]] or 9.0), @x[@i[d]]) if ne(d, 3) } @y[3] = 0.0", [4.0, 1.0, 9.0, 0.0]),
    ];
    for (body, want) in cases {
        assert_eq!(run(body).unwrap().0, want, "{body}");
    }
    assert_eq!(run("for d { @y[d] = 0.0 } @status[] = i32(1) if eq(@i[0], 3)").unwrap().1, 1);
}

#[test]
fn undefined_values_are_refused() {
    let cases = [
        ("for d { @y[d] = @t[d] }", "a value is stored from a load of @t, whose element [0] was not written"),
        ("for d { @y[d] = @x[d + 1] }", "a value is stored from a load of @x, which has no element [4]"),
        ("for d { @y[d] = @x[@i[d]] }", "a value is stored from a load of @x, which has no element [-1]"),
        ("for d { @y[@i[d]] = 0.0 }", "a store at [-1] is outside of @y"),
        ("for d { @y[d] = %a0 }", "a value is stored from a variable that was not set"),
        ("for d { %a0 = @t[d] + 1.0 @y[d] = 0.0 }", "a variable is set from a load of @t"),
        ("for d { if lt(@t[d], 0.0) { @y[d] = 1.0 } }", "a condition is tested from a load of @t"),
        ("for d { @y[d] = 0.0 if lt(@t[d], 0.0) }", "a guard is tested from a load of @t"),
        ("for d { @x[d] = 0.0 }", "a store to @x, which is given"),
        ("for d { @y[min(d, 2)] = 0.0 }", "element 3 of output @y is never written"),
        // A local buffer is new in each round.
        ("for d { @row[d] = 1.0 for e { @y[e] = @row[e] if le(e, d) } }", "whose element [0] was not written"),
    ];
    for (body, message) in cases {
        let error = run(body).expect_err(body);
        assert!(error.contains(message), "{body}: {error}");
    }
}
