//! Parsing what was printed prints the same.

use super::{kernel_text, parse, parse_kernel, to_text};

const PROGRAM: &str = r#"program "p" {
  buffer @x : f32[4,8] input 0
  buffer @w : i8[2] constant [-1, 3]
  buffer @t : f32[4] temporary
  buffer @row : f16[8] local
  buffer @y : f32[4,8] output 0
  input "image" @x
  output "logits" @y
  kernel @k000_max (m: spatial 4, k.o: reduce 2, k.i: reduce 4 vector) from "a", "b \"c\"" {
    var %a0 : f32
    var %a1 : i64
    for m {
      %a0 = f32(0xff800000)
      for k.o {
        for k.i {
          let %t0 = (@x[m - 1, k.o * 4 + k.i] or -0.5)
          %a0 = select(ne(%t0, %t0), %t0, max(%t0, %a0))
        }
      }
      %a1 = 0
      while lt(%a1, 3) {
        %a1 = %a1 + 1 * (%a1 - -2)
        if le(%a1, mod(m, 2)) {
          @t[m] = %a0 * (1.5 + cast.f32(cast.i32(@w[1]))) if not(true)
        } else {
          @t[m] = bitcast.f32(shl(u32(7), u32(3)))
        }
      }
      @y[m, 0] = 1e-10 - (fma(%a0, 2.0, @x[m, 1]) - 3.0)
    }
  }
  kernel @k001_fill () {
    @y[0, 0] = cast.f32(f64(0.1))
  }
}
"#;

#[test]
fn text_reads_back() {
    let program = parse(PROGRAM).unwrap();
    assert_eq!(to_text(&program), PROGRAM);
    for kernel in &program.kernels {
        let text = kernel_text(&program.buffers, kernel);
        assert_eq!(kernel_text(&program.buffers, &parse_kernel(&text, &program.buffers).unwrap()), text);
    }
}

#[test]
fn what_is_wrong_is_said() {
    let cases = [
        ("for m", "for q", "there is no axis q"),
        ("@t[m] = %a0 *", "@u[m] = %a0 *", "there is no buffer @u"),
        ("lt(%a1, 3)", "lt(%a1, 3.0)", "Lt of i64 and f32"),
        ("%a1 = 0", "%a7 = 0", "there is no variable %a7"),
        ("max(%t0, %a0)", "most(%t0, %a0)", "there is no operation 'most'"),
        ("i8[2]", "i8[2000000000000]", "is too large"),
        ("or -0.5", "or 3", "a load of f32 or i64"),
        ("u32(7)", "u32(-7)", "-7 is not a u32"),
    ];
    for (from, to, message) in cases {
        assert!(PROGRAM.contains(from));
        let error = parse(&PROGRAM.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(message) && error.starts_with("line "), "{error}");
    }
}
