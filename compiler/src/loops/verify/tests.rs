//! What the verifier refuses, by damage to a program that it accepts.

use super::verify;
use crate::loops::text::parse;

const PROGRAM: &str = r#"program "p" {
  buffer @x : f32[4,8] input 0
  buffer @i : i32[4] input 1
  buffer @t : f32[4] temporary
  buffer @row : f32[8] local
  buffer @p : i4[4] temporary
  buffer @y : f32[4,8] output 0
  input "x" @x
  input "i" @i
  output "y" @y
  kernel @k000_sum (m: spatial 4, k: reduce 8) {
    var %a0 : f32
    for m {
      %a0 = 0.0
      for k {
        %a0 = %a0 + (@x[m, k - 1] or 0.0)
      }
      @t[m] = %a0
    }
  }
  kernel @k001_div (m: spatial 4, n: spatial 8, j: sequential 8) {
    var %a0 : f32
    for m {
      %a0 = 1.0
      for j {
        @row[j] = @x[m, j] * %a0
        %a0 = %a0 + %a0
      }
      for n {
        @y[m, n] = div(@row[n], @t[min(3, max(0, cast.i64(@i[m])))])
      }
    }
  }
}
"#;

#[test]
fn a_right_program_passes() {
    verify(&parse(PROGRAM).unwrap()).unwrap();
}

#[test]
fn damage_is_found() {
    let cases = [
        ("@x[m, k - 1] or 0.0", "@x[m, k - 1]", "index k - 1 of dimension 1 of @x may be outside of 0..8: its range is -1..=6"),
        ("min(3, max(0, cast.i64(@i[m])))", "cast.i64(@i[m])", "may be outside of 0..4"),
        ("@x[m, j] * %a0", "@x[m] * %a0", "@x of rank 2 is accessed by 1 indices"),
        ("cast.i64(@i[m])", "cast.i64(eq(m, 1))", "a cast from bool to i64 is composed"),
        ("@t[m] = %a0", "@x[m, 0] = %a0", "a store to @x, which is given"),
        ("@t[m] = %a0", "@t[0] = %a0", "all rounds of the spatial axis m store to the same elements of @t"),
        ("@t[m] = %a0", "@t[m] = 1", "a i64 is stored to @t, which is of f32"),
        ("@t[m] = %a0", "@t[k] = %a0", "axis k is used outside of its loop"),
        ("@t[m] = %a0", "@t[m] = f16(0x3c00) * f16(0x3c00)", "Mul is not defined for these operands of f16"),
        ("@t[m] = %a0", "@t[m] = sqrt(1)", "Sqrt is not defined for i64"),
        ("@t[m] = %a0", "@t[m] = fma(%a0, 1.0, f64(1.0))", "a multiply-add of f32, f32 and f64"),
        ("@t[m] = %a0", "@t[div_floor(m, 0)] = %a0", "DivFloor is not defined for these operands of i64"),
        ("%a0 = 0.0\n      for k", "for k", "%a0 is read before it is set"),
        ("%a0 = %a0 + (@", "%a0 = %a0 + %a0 * (@", "the term combined into %a0 reads %a0"),
        ("%a0 = %a0 + (@", "%a0 = %a0 - (@", "rounds of the reduce axis k do not combine into %a0"),
        ("for m {\n      %a0 = 1.0", "%a0 = 1.0\n    for m {", "rounds of the spatial axis m carry %a0"),
        ("@t[m] = %a0\n", "", "kernel k001_div reads @t, which no kernel before it stores"),
        ("@y[m, n] = div(@row[n]", "@row[n] = div(@row[n]", "output 'y' is never stored"),
        ("%a0 = 0.0", "%a0 = 0.0 @row[m] = %a0", "local @row is used by k000_sum and k001_div"),
        ("@k001_div", "@k000_sum", "kernel k000_sum exists twice"),
        ("(m: spatial 4, n", "(n: spatial 4, m: spatial 4, n", "axis n exists twice"),
        ("input \"i\" @i", "input \"i\" @x", "@i is not input 1 of the list"),
        ("@t[m] = %a0", "@p[m] = cast.i4(i8(3))", "@p is packed, but axis m around a store to it does not run in order"),
        ("f32[4,8] output", "f64[4,8] output", "a f32 is stored to @y, which is of f64"),
    ];
    for (from, to, message) in cases {
        assert!(PROGRAM.contains(from), "{from}");
        let program = parse(&PROGRAM.replacen(from, to, 1)).unwrap();
        let error = verify(&program).expect_err(to).to_string();
        assert!(error.contains(message), "{to}: {error}");
    }
}
