//! The text of kernels: one instruction a line, its result's type behind the operation's name.
//!
//! ```text
//! kernel @add(v0: ptr, v1: i64, v2: i64) {
//!   v3 = load.ptr [v0 + 8]
//!   v4 = const.f32 0x0 ; 0
//!   loop v5 in v1..v2 step 4 carry (v6 = v4) {
//!     v7 = load.f32 [v3 + v5*4] align 4
//!     v8 = add.f32 v6, v7
//!     yield v8
//!   } -> (v9)
//!   store.f32 v9, [v3] align 4
//! }
//! ```
//!
//! A `while` has its test in the first block and names the condition behind it; an `if` that gives values yields them in both
//! branches. Parsing what was printed gives the same kernel, register numbers included.

mod parse;
mod print;

pub use parse::{parse, parse_all};
pub use print::{instruction, operation_name, print};

use std::fmt;

use crate::ir::{Cond, Lane, Op, Type};

/// Operations that are only a name and registers, with their names.
pub const OPERATIONS: [(&str, Op); 58] = [
    ("add", Op::Add),
    ("sub", Op::Sub),
    ("mul", Op::Mul),
    ("div", Op::Div),
    ("div_u", Op::DivU),
    ("rem", Op::Rem),
    ("rem_u", Op::RemU),
    ("neg", Op::Neg),
    ("abs", Op::Abs),
    ("min", Op::Min),
    ("max", Op::Max),
    ("min_u", Op::MinU),
    ("max_u", Op::MaxU),
    ("fma", Op::Fma),
    ("sqrt", Op::Sqrt),
    ("floor", Op::Floor),
    ("ceil", Op::Ceil),
    ("trunc", Op::Trunc),
    ("nearest", Op::Nearest),
    ("and", Op::And),
    ("or", Op::Or),
    ("xor", Op::Xor),
    ("not", Op::Not),
    ("shl", Op::Shl),
    ("shr_s", Op::ShrS),
    ("shr_u", Op::ShrU),
    ("cmp.eq", Op::Cmp(Cond::Eq)),
    ("cmp.ne", Op::Cmp(Cond::Ne)),
    ("cmp.lt", Op::Cmp(Cond::Lt)),
    ("cmp.le", Op::Cmp(Cond::Le)),
    ("cmp.gt", Op::Cmp(Cond::Gt)),
    ("cmp.ge", Op::Cmp(Cond::Ge)),
    ("cmp_u.eq", Op::CmpU(Cond::Eq)),
    ("cmp_u.ne", Op::CmpU(Cond::Ne)),
    ("cmp_u.lt", Op::CmpU(Cond::Lt)),
    ("cmp_u.le", Op::CmpU(Cond::Le)),
    ("cmp_u.gt", Op::CmpU(Cond::Gt)),
    ("cmp_u.ge", Op::CmpU(Cond::Ge)),
    ("select", Op::Select),
    ("mask_and", Op::MaskAnd),
    ("mask_or", Op::MaskOr),
    ("mask_xor", Op::MaskXor),
    ("mask_not", Op::MaskNot),
    ("mask_to_int", Op::MaskToInt),
    ("int_to_mask", Op::IntToMask),
    ("mask_resize", Op::MaskResize),
    ("extend_s", Op::ExtendS),
    ("extend_u", Op::ExtendU),
    ("wrap", Op::Wrap),
    ("int_to_float_s", Op::IntToFloatS),
    ("int_to_float_u", Op::IntToFloatU),
    ("float_to_int_s", Op::FloatToIntS),
    ("float_to_int_u", Op::FloatToIntU),
    ("promote", Op::Promote),
    ("demote", Op::Demote),
    ("bitcast", Op::Bitcast),
    ("splat", Op::Splat),
    ("pack", Op::Pack),
];

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Ptr => f.write_str("ptr")?,
            Type::Data { lane, .. } => f.write_str(lane.name())?,
            Type::Mask { bits, .. } => write!(f, "mask{bits}")?,
        }
        if self.lanes() == 1 { Ok(()) } else { write!(f, "x{}", self.lanes()) }
    }
}

/// A type as it is printed: `ptr`, `f32`, `i8x16`, `mask32x4`.
pub fn parse_type(text: &str) -> Option<Type> {
    if text == "ptr" {
        return Some(Type::Ptr);
    }
    let (element, lanes) = match text.split_once('x') {
        Some((element, lanes)) => (element, lanes.parse().ok().filter(|&lanes| lanes > 1)?),
        None => (text, 1),
    };
    if let Some(bits) = element.strip_prefix("mask") {
        return Some(Type::Mask { bits: bits.parse().ok()?, lanes });
    }
    Lane::ALL.into_iter().find(|lane| lane.name() == element).map(|lane| Type::Data { lane, lanes })
}
