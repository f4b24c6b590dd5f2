//! What operations do to one lane. A lane is held as its bits in a `u64`, zeros above them; a mask's lane is 0 or 1.

use mcc_support::bug;

use crate::ir::{Cond, Lane, Op};

pub(super) type Unary = fn(u64) -> u64;
pub(super) type Binary = fn(u64, u64) -> u64;
pub(super) type Ternary = fn(u64, u64, u64) -> u64;

/// The low bits of a value, as many as a lane has.
pub(super) fn low_bits(value: u64, bits: u32) -> u64 {
    value & (u64::MAX >> (64 - bits))
}

fn low<const BITS: u32>(value: u64) -> u64 {
    low_bits(value, BITS)
}

fn signed<const BITS: u32>(bits: u64) -> i64 {
    ((bits << (64 - BITS)) as i64) >> (64 - BITS)
}

trait Float: Copy + PartialOrd {
    const SIGN: u64;
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
    fn binary(op: Arithmetic, a: Self, b: Self) -> Self;
    fn fused(a: Self, b: Self, c: Self) -> Self;
    fn root(self) -> Self;
    fn round(self, to: Rounding) -> Self;
    fn of_signed(value: i64) -> Self;
    fn of_unsigned(value: u64) -> Self;
    fn to_f64(self) -> f64;
}

#[derive(Clone, Copy)]
enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
}

#[derive(Clone, Copy)]
enum Rounding {
    Floor,
    Ceil,
    Trunc,
    Nearest,
}

macro_rules! float {
    ($float:ty, $bits:ty, $fma:path) => {
        impl Float for $float {
            const SIGN: u64 = 1 << (<$bits>::BITS - 1);
            fn of(bits: u64) -> Self {
                <$float>::from_bits(bits as $bits)
            }
            fn bits(self) -> u64 {
                u64::from(self.to_bits())
            }
            fn binary(op: Arithmetic, a: Self, b: Self) -> Self {
                match op {
                    Arithmetic::Add => a + b,
                    Arithmetic::Sub => a - b,
                    Arithmetic::Mul => a * b,
                    Arithmetic::Div => a / b,
                }
            }
            fn fused(a: Self, b: Self, c: Self) -> Self {
                $fma(a, b, c)
            }
            fn root(self) -> Self {
                self.sqrt()
            }
            fn round(self, to: Rounding) -> Self {
                match to {
                    Rounding::Floor => self.floor(),
                    Rounding::Ceil => self.ceil(),
                    Rounding::Trunc => self.trunc(),
                    Rounding::Nearest => self.round_ties_even(),
                }
            }
            fn of_signed(value: i64) -> Self {
                value as $float
            }
            fn of_unsigned(value: u64) -> Self {
                value as $float
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
        }
    };
}

float!(f32, u32, mcc_support::multiply_add);
float!(f64, u64, libm::fma);

/// The function for the width of an integer lane.
macro_rules! by_width {
    ($lane:expr, $function:ident) => {
        match $lane {
            Lane::I8 => $function::<8>,
            Lane::I16 => $function::<16>,
            Lane::I32 => $function::<32>,
            Lane::I64 => $function::<64>,
            float => bug!("{float:?} is not an integer"),
        }
    };
}

/// The function for a float lane.
macro_rules! by_float {
    ($lane:expr, $function:ident) => {
        match $lane {
            Lane::F32 => $function::<f32>,
            Lane::F64 => $function::<f64>,
            int => bug!("{int:?} is not a float"),
        }
    };
}

/// Declares functions of two integers of `BITS` bits by an expression.
macro_rules! int_binary {
    ($($name:ident($a:ident, $b:ident) = $value:expr;)*) => {
        $(fn $name<const BITS: u32>($a: u64, $b: u64) -> u64 { low::<BITS>($value) })*
    };
}

int_binary! {
    int_add(a, b) = a.wrapping_add(b);
    int_sub(a, b) = a.wrapping_sub(b);
    int_mul(a, b) = a.wrapping_mul(b);
    int_div(a, b) = signed::<BITS>(a).checked_div(signed::<BITS>(b)).unwrap_or(if b == 0 { 0 } else { signed::<BITS>(a) }) as u64;
    int_div_u(a, b) = a.checked_div(b).unwrap_or(0);
    int_rem(a, b) = signed::<BITS>(a).checked_rem(signed::<BITS>(b)).unwrap_or(0) as u64;
    int_rem_u(a, b) = a.checked_rem(b).unwrap_or(0);
    int_min(a, b) = if signed::<BITS>(a) < signed::<BITS>(b) { a } else { b };
    int_max(a, b) = if signed::<BITS>(a) > signed::<BITS>(b) { a } else { b };
    int_min_u(a, b) = a.min(b);
    int_max_u(a, b) = a.max(b);
    int_and(a, b) = a & b;
    int_or(a, b) = a | b;
    int_xor(a, b) = a ^ b;
    shl(a, amount) = a << (amount & u64::from(BITS - 1));
    shr_s(a, amount) = (signed::<BITS>(a) >> (amount & u64::from(BITS - 1))) as u64;
    shr_u(a, amount) = a >> (amount & u64::from(BITS - 1));
    eq(a, b) = u64::from(a == b);
    ne(a, b) = u64::from(a != b);
    lt(a, b) = u64::from(signed::<BITS>(a) < signed::<BITS>(b));
    le(a, b) = u64::from(signed::<BITS>(a) <= signed::<BITS>(b));
    gt(a, b) = u64::from(signed::<BITS>(a) > signed::<BITS>(b));
    ge(a, b) = u64::from(signed::<BITS>(a) >= signed::<BITS>(b));
    lt_u(a, b) = u64::from(a < b);
    le_u(a, b) = u64::from(a <= b);
    gt_u(a, b) = u64::from(a > b);
    ge_u(a, b) = u64::from(a >= b);
}

/// Declares functions of two floats by an expression of their bits `a`, `b` and values `x`, `y`.
macro_rules! float_binary {
    ($($name:ident($a:ident, $b:ident, $x:ident, $y:ident) = $value:expr;)*) => {
        $(fn $name<F: Float>($a: u64, $b: u64) -> u64 {
            let ($x, $y) = (F::of($a), F::of($b));
            $value
        })*
    };
}

float_binary! {
    float_add(a, b, x, y) = F::binary(Arithmetic::Add, x, y).bits();
    float_sub(a, b, x, y) = F::binary(Arithmetic::Sub, x, y).bits();
    float_mul(a, b, x, y) = F::binary(Arithmetic::Mul, x, y).bits();
    float_div(a, b, x, y) = F::binary(Arithmetic::Div, x, y).bits();
    float_min(a, b, x, y) = if x < y { a } else { b };
    float_max(a, b, x, y) = if x > y { a } else { b };
    float_eq(a, b, x, y) = u64::from(x == y);
    float_ne(a, b, x, y) = u64::from(x != y);
    float_lt(a, b, x, y) = u64::from(x < y);
    float_le(a, b, x, y) = u64::from(x <= y);
    float_gt(a, b, x, y) = u64::from(x > y);
    float_ge(a, b, x, y) = u64::from(x >= y);
}

pub(super) fn binary(op: &Op, lane: Lane) -> Binary {
    match (op, lane.is_float()) {
        (Op::Add, true) => by_float!(lane, float_add),
        (Op::Add, false) => by_width!(lane, int_add),
        (Op::Sub, true) => by_float!(lane, float_sub),
        (Op::Sub, false) => by_width!(lane, int_sub),
        (Op::Mul, true) => by_float!(lane, float_mul),
        (Op::Mul, false) => by_width!(lane, int_mul),
        (Op::Div, true) => by_float!(lane, float_div),
        (Op::Div, false) => by_width!(lane, int_div),
        (Op::DivU, _) => by_width!(lane, int_div_u),
        (Op::Rem, _) => by_width!(lane, int_rem),
        (Op::RemU, _) => by_width!(lane, int_rem_u),
        (Op::Min, true) => by_float!(lane, float_min),
        (Op::Min, false) => by_width!(lane, int_min),
        (Op::Max, true) => by_float!(lane, float_max),
        (Op::Max, false) => by_width!(lane, int_max),
        (Op::MinU, _) => by_width!(lane, int_min_u),
        (Op::MaxU, _) => by_width!(lane, int_max_u),
        (Op::And, _) => by_width!(lane, int_and),
        (Op::Or, _) => by_width!(lane, int_or),
        (Op::Xor, _) => by_width!(lane, int_xor),
        (Op::Shl, _) => by_width!(lane, shl),
        (Op::ShrS, _) => by_width!(lane, shr_s),
        (Op::ShrU, _) => by_width!(lane, shr_u),
        (Op::Cmp(cond), is_float) => compare(*cond, lane, is_float),
        (Op::CmpU(cond), _) => compare_unsigned(*cond, lane),
        _ => bug!("{op:?} of {lane:?} has not two operands"),
    }
}

fn compare(cond: Cond, lane: Lane, is_float: bool) -> Binary {
    match (cond, is_float) {
        (Cond::Eq, true) => by_float!(lane, float_eq),
        (Cond::Ne, true) => by_float!(lane, float_ne),
        (Cond::Lt, true) => by_float!(lane, float_lt),
        (Cond::Le, true) => by_float!(lane, float_le),
        (Cond::Gt, true) => by_float!(lane, float_gt),
        (Cond::Ge, true) => by_float!(lane, float_ge),
        (Cond::Eq, false) => by_width!(lane, eq),
        (Cond::Ne, false) => by_width!(lane, ne),
        (Cond::Lt, false) => by_width!(lane, lt),
        (Cond::Le, false) => by_width!(lane, le),
        (Cond::Gt, false) => by_width!(lane, gt),
        (Cond::Ge, false) => by_width!(lane, ge),
    }
}

fn compare_unsigned(cond: Cond, lane: Lane) -> Binary {
    match cond {
        Cond::Eq => by_width!(lane, eq),
        Cond::Ne => by_width!(lane, ne),
        Cond::Lt => by_width!(lane, lt_u),
        Cond::Le => by_width!(lane, le_u),
        Cond::Gt => by_width!(lane, gt_u),
        Cond::Ge => by_width!(lane, ge_u),
    }
}

fn same(a: u64) -> u64 {
    a
}

fn mask_not(a: u64) -> u64 {
    a ^ 1
}

fn int_to_mask(a: u64) -> u64 {
    u64::from(a != 0)
}

fn int_not<const BITS: u32>(a: u64) -> u64 {
    low::<BITS>(!a)
}

fn int_neg<const BITS: u32>(a: u64) -> u64 {
    low::<BITS>(a.wrapping_neg())
}

fn int_abs<const BITS: u32>(a: u64) -> u64 {
    low::<BITS>(signed::<BITS>(a).unsigned_abs())
}

fn float_neg<F: Float>(a: u64) -> u64 {
    a ^ F::SIGN
}

fn float_abs<F: Float>(a: u64) -> u64 {
    a & !F::SIGN
}

fn float_sqrt<F: Float>(a: u64) -> u64 {
    F::of(a).root().bits()
}

fn float_floor<F: Float>(a: u64) -> u64 {
    F::of(a).round(Rounding::Floor).bits()
}

fn float_ceil<F: Float>(a: u64) -> u64 {
    F::of(a).round(Rounding::Ceil).bits()
}

fn float_trunc<F: Float>(a: u64) -> u64 {
    F::of(a).round(Rounding::Trunc).bits()
}

fn float_nearest<F: Float>(a: u64) -> u64 {
    F::of(a).round(Rounding::Nearest).bits()
}

fn sign_extend<const BITS: u32>(a: u64) -> u64 {
    signed::<BITS>(a) as u64
}

fn from_signed<const BITS: u32, F: Float>(a: u64) -> u64 {
    F::of_signed(signed::<BITS>(a)).bits()
}

fn from_unsigned<F: Float>(a: u64) -> u64 {
    F::of_unsigned(a).bits()
}

/// Every f32 is an f64, and Rust's casts truncate, saturate and make 0 of NaN.
fn to_i32<F: Float>(a: u64) -> u64 {
    u64::from(F::of(a).to_f64() as i32 as u32)
}

fn to_i64<F: Float>(a: u64) -> u64 {
    F::of(a).to_f64() as i64 as u64
}

fn to_u32<F: Float>(a: u64) -> u64 {
    u64::from(F::of(a).to_f64() as u32)
}

fn to_u64<F: Float>(a: u64) -> u64 {
    F::of(a).to_f64() as u64
}

/// Operations on one operand of data with lanes `from`, with a result of lanes `to`.
pub(super) fn unary(op: &Op, from: Lane, to: Lane) -> Unary {
    match (op, from.is_float()) {
        (Op::Neg, true) => by_float!(from, float_neg),
        (Op::Neg, false) => by_width!(from, int_neg),
        (Op::Abs, true) => by_float!(from, float_abs),
        (Op::Abs, false) => by_width!(from, int_abs),
        (Op::Sqrt, _) => by_float!(from, float_sqrt),
        (Op::Floor, _) => by_float!(from, float_floor),
        (Op::Ceil, _) => by_float!(from, float_ceil),
        (Op::Trunc, _) => by_float!(from, float_trunc),
        (Op::Nearest, _) => by_float!(from, float_nearest),
        (Op::Not, _) => by_width!(from, int_not),
        // The caller keeps the low bits.
        (Op::ExtendS, _) => by_width!(from, sign_extend),
        (Op::ExtendU | Op::Wrap | Op::Bitcast, _) => same,
        (Op::IntToFloatS, _) => match (from, to) {
            (Lane::I32, Lane::F32) => from_signed::<32, f32>,
            (Lane::I32, _) => from_signed::<32, f64>,
            (_, Lane::F32) => from_signed::<64, f32>,
            _ => from_signed::<64, f64>,
        },
        (Op::IntToFloatU, _) => by_float!(to, from_unsigned),
        (Op::FloatToIntS, _) if to == Lane::I32 => by_float!(from, to_i32),
        (Op::FloatToIntS, _) => by_float!(from, to_i64),
        (Op::FloatToIntU, _) if to == Lane::I32 => by_float!(from, to_u32),
        (Op::FloatToIntU, _) => by_float!(from, to_u64),
        (Op::Promote, _) => |a| f64::from(f32::from_bits(a as u32)).to_bits(),
        (Op::Demote, _) => |a| u64::from((f64::from_bits(a) as f32).to_bits()),
        _ => bug!("{op:?} of {from:?} has not one operand"),
    }
}

/// Operations on masks.
pub(super) fn mask_unary(op: &Op) -> Unary {
    match op {
        Op::MaskNot => mask_not,
        Op::MaskToInt | Op::MaskResize => same,
        Op::IntToMask => int_to_mask,
        _ => bug!("{op:?} has not one mask as its operand"),
    }
}

pub(super) fn mask_binary(op: &Op) -> Binary {
    match op {
        Op::MaskAnd => |a, b| a & b,
        Op::MaskOr => |a, b| a | b,
        Op::MaskXor => |a, b| a ^ b,
        _ => bug!("{op:?} has not two masks as its operands"),
    }
}

fn fma<F: Float>(a: u64, b: u64, c: u64) -> u64 {
    F::fused(F::of(a), F::of(b), F::of(c)).bits()
}

fn select(mask: u64, a: u64, b: u64) -> u64 {
    if mask == 1 { a } else { b }
}

pub(super) fn ternary(op: &Op, lane: Option<Lane>) -> Ternary {
    match (op, lane) {
        (Op::Fma, Some(lane)) => by_float!(lane, fma),
        (Op::Select, _) => select,
        _ => bug!("{op:?} has not three operands"),
    }
}
