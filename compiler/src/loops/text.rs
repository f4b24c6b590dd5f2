//! The text of programs.
//!
//! ```text
//! program "digits" {
//!   buffer @x : f32[1,64] input 0
//!   buffer @w : f32[64,10] constant hex "…"
//!   buffer @y : f32[1,10] output 0
//!   input "image" @x
//!   output "logits" @y
//!   kernel @k000_contract (m: spatial 1, n: spatial 10, k: reduce 64 unroll) from "gemm" {
//!     var %a0 : f32
//!     for m {
//!       for n {
//!         %a0 = 0.0
//!         for k {
//!           %a0 = %a0 + @x[m, k] * @w[k, n]
//!         }
//!         @y[m, n] = %a0
//!       }
//!     }
//!   }
//! }
//! ```
//!
//! Axes are named in expressions, variables are `%a0, %a1, …`. `let %t0 = …` names an expression that the next statement uses several
//! times. A plain integer is an index (`i64`), a plain decimal an `f32`; other constants say their dtype, `u8(3)`, and floats without
//! a decimal are given by their bits, `f32(0x7fc00000)`. `@x[i] or v` is `v` outside of the buffer. Parsing what was printed prints the
//! same; constants are as in the text of graphs, and [`std::fmt::Display`] shows large ones by their hash.

mod parse;
mod print;
#[cfg(test)]
mod tests;

pub use parse::{parse, parse_kernel};
pub use print::{expr_text, kernel_text, to_text};

use super::expr::{Binary, Unary};
use super::{AxisKind, AxisMode};

/// Operations that are written as calls.
const UNARY: [(&str, Unary); 8] = [
    ("neg", Unary::Neg),
    ("abs", Unary::Abs),
    ("not", Unary::Not),
    ("sqrt", Unary::Sqrt),
    ("floor", Unary::Floor),
    ("ceil", Unary::Ceil),
    ("trunc", Unary::Trunc),
    ("nearest", Unary::Nearest),
];

const BINARY: [(&str, Binary); 15] = [
    ("div", Binary::Div),
    ("rem", Binary::Rem),
    ("div_floor", Binary::DivFloor),
    ("mod", Binary::Mod),
    ("min", Binary::Min),
    ("max", Binary::Max),
    ("and", Binary::And),
    ("or", Binary::Or),
    ("xor", Binary::Xor),
    ("shl", Binary::Shl),
    ("shr", Binary::Shr),
    ("eq", Binary::Eq),
    ("ne", Binary::Ne),
    ("lt", Binary::Lt),
    ("le", Binary::Le),
];

const KINDS: [(&str, AxisKind); 3] =
    [("spatial", AxisKind::Spatial), ("reduce", AxisKind::Reduce), ("sequential", AxisKind::Sequential)];

/// Of a loop that is not serial.
const MODES: [(&str, AxisMode); 3] = [("unroll", AxisMode::Unroll), ("apart", AxisMode::Apart), ("vector", AxisMode::Vector)];

fn name_of<T: PartialEq>(table: &[(&'static str, T)], item: T) -> Option<&'static str> {
    table.iter().find(|(_, other)| *other == item).map(|(name, _)| *name)
}
