//! What each primitive operation of an expression does to bits: the one definition that constant folding, the evaluator of scalar
//! functions and the interpreter of loops share.
//!
//! A value of a dtype is the low bits of a `u64`, the rest zero; a `bool` is 0 or 1.

use mcc_support::{DType, bug, multiply_add};

use super::expr::{Binary, Unary};
use super::scalar::carrier;

pub type Function1 = fn(u64) -> u64;
pub type Function2 = fn(u64, u64) -> u64;

/// A type whose values are held in the low bits of a word.
trait Word: Copy {
    fn get(bits: u64) -> Self;
    fn put(self) -> u64;
}

macro_rules! integer_word {
    ($($ty:ty as $unsigned:ty),*) => {$(
        impl Word for $ty {
            #[inline]
            fn get(bits: u64) -> Self { bits as $ty }
            #[inline]
            fn put(self) -> u64 { u64::from(self as $unsigned) }
        }
    )*};
}
integer_word!(i8 as u8, u8 as u8, i16 as u16, u16 as u16, i32 as u32, u32 as u32, i64 as u64, u64 as u64);

impl Word for f32 {
    #[inline]
    fn get(bits: u64) -> Self {
        f32::from_bits(bits as u32)
    }
    #[inline]
    fn put(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Word for f64 {
    #[inline]
    fn get(bits: u64) -> Self {
        f64::from_bits(bits)
    }
    #[inline]
    fn put(self) -> u64 {
        self.to_bits()
    }
}

/// The bits that a value of this dtype may use.
pub fn mask(dtype: DType) -> u64 {
    match dtype {
        DType::Bool => 1,
        other => u64::MAX >> (64 - other.size_bits()),
    }
}

/// The bits as a signed or unsigned number, as the dtype says; not for floats.
pub fn integer(dtype: DType, bits: u64) -> i128 {
    if dtype.is_signed() {
        let shift = 64 - dtype.size_bits() as u32;
        i128::from(((bits << shift) as i64) >> shift)
    } else {
        i128::from(bits)
    }
}

macro_rules! integer_binary {
    ($op:expr, $ty:ty, $bits:literal) => {{
        fn value(bits: u64) -> $ty {
            <$ty>::get(bits)
        }
        match $op {
            Binary::Add => |a, b| value(a).wrapping_add(value(b)).put(),
            Binary::Sub => |a, b| value(a).wrapping_sub(value(b)).put(),
            Binary::Mul => |a, b| value(a).wrapping_mul(value(b)).put(),
            Binary::Div => |a, b| if value(b) == 0 { 0 } else { value(a).wrapping_div(value(b)).put() },
            Binary::Rem => |a, b| if value(b) == 0 { 0 } else { value(a).wrapping_rem(value(b)).put() },
            Binary::DivFloor => |a, b| if value(b) == 0 { 0 } else { value(a).wrapping_div_euclid(value(b)).put() },
            Binary::Mod => |a, b| if value(b) == 0 { 0 } else { value(a).wrapping_rem_euclid(value(b)).put() },
            Binary::Min => |a, b| if value(a) < value(b) { a } else { b },
            Binary::Max => |a, b| if value(a) > value(b) { a } else { b },
            Binary::And => |a, b| a & b,
            Binary::Or => |a, b| a | b,
            Binary::Xor => |a, b| a ^ b,
            Binary::Shl => |a, b| value(a).wrapping_shl(b as u32 & ($bits - 1)).put(),
            Binary::Shr => |a, b| value(a).wrapping_shr(b as u32 & ($bits - 1)).put(),
            Binary::Eq => |a, b| u64::from(a == b),
            Binary::Ne => |a, b| u64::from(a != b),
            Binary::Lt => |a, b| u64::from(value(a) < value(b)),
            Binary::Le => |a, b| u64::from(value(a) <= value(b)),
        }
    }};
}

macro_rules! float_binary {
    ($op:expr, $ty:ty) => {{
        fn value(bits: u64) -> $ty {
            <$ty>::get(bits)
        }
        match $op {
            Binary::Add => |a, b| (value(a) + value(b)).put(),
            Binary::Sub => |a, b| (value(a) - value(b)).put(),
            Binary::Mul => |a, b| (value(a) * value(b)).put(),
            Binary::Div => |a, b| (value(a) / value(b)).put(),
            Binary::Min => |a, b| if value(a) < value(b) { a } else { b },
            Binary::Max => |a, b| if value(a) > value(b) { a } else { b },
            Binary::Eq => |a, b| u64::from(value(a) == value(b)),
            Binary::Ne => |a, b| u64::from(value(a) != value(b)),
            Binary::Lt => |a, b| u64::from(value(a) < value(b)),
            Binary::Le => |a, b| u64::from(value(a) <= value(b)),
            other => bug!("{other:?} of floats"),
        }
    }};
}

/// What `op` does to operands of `dtype`.
pub fn binary(op: Binary, dtype: DType) -> Function2 {
    match dtype {
        DType::I8 => integer_binary!(op, i8, 8),
        DType::U8 => integer_binary!(op, u8, 8),
        DType::I16 => integer_binary!(op, i16, 16),
        DType::U16 => integer_binary!(op, u16, 16),
        DType::I32 => integer_binary!(op, i32, 32),
        DType::U32 => integer_binary!(op, u32, 32),
        DType::I64 => integer_binary!(op, i64, 64),
        DType::U64 => integer_binary!(op, u64, 64),
        DType::F32 => float_binary!(op, f32),
        DType::F64 => float_binary!(op, f64),
        DType::Bool => match op {
            Binary::And => |a, b| a & b,
            Binary::Or => |a, b| a | b,
            Binary::Xor => |a, b| a ^ b,
            other => bug!("{other:?} of bool"),
        },
        _ => bug!("{op:?} of {dtype}, which has no arithmetic"),
    }
}

macro_rules! integer_unary {
    ($op:expr, $ty:ty) => {
        match $op {
            Unary::Neg => |a| <$ty>::get(a).wrapping_neg().put(),
            Unary::Abs => |a| if (<$ty>::get(a) as i128) < 0 { <$ty>::get(a).wrapping_neg().put() } else { a },
            Unary::Not => |a| (!<$ty>::get(a)).put(),
            other => bug!("{other:?} of integers"),
        }
    };
}

macro_rules! float_unary {
    ($op:expr, $ty:ty) => {
        match $op {
            Unary::Neg => |a| (-<$ty>::get(a)).put(),
            Unary::Abs => |a| <$ty>::get(a).abs().put(),
            Unary::Sqrt => |a| <$ty>::get(a).sqrt().put(),
            Unary::Floor => |a| <$ty>::get(a).floor().put(),
            Unary::Ceil => |a| <$ty>::get(a).ceil().put(),
            Unary::Trunc => |a| <$ty>::get(a).trunc().put(),
            Unary::Nearest => |a| <$ty>::get(a).round_ties_even().put(),
            Unary::Not => bug!("bits of floats"),
        }
    };
}

/// What `op` does to an operand of `dtype`.
pub fn unary(op: Unary, dtype: DType) -> Function1 {
    match dtype {
        DType::I8 => integer_unary!(op, i8),
        DType::U8 => integer_unary!(op, u8),
        DType::I16 => integer_unary!(op, i16),
        DType::U16 => integer_unary!(op, u16),
        DType::I32 => integer_unary!(op, i32),
        DType::U32 => integer_unary!(op, u32),
        DType::I64 => integer_unary!(op, i64),
        DType::U64 => integer_unary!(op, u64),
        DType::F32 => float_unary!(op, f32),
        DType::F64 => float_unary!(op, f64),
        DType::Bool if op == Unary::Not => |a| a ^ 1,
        _ => bug!("{op:?} of {dtype}"),
    }
}

/// `a · b + c` of `f32`s, rounded once.
pub fn fma(a: u64, b: u64, c: u64) -> u64 {
    multiply_add(Word::get(a), Word::get(b), Word::get(c)).put()
}

/// Whether expressions may convert so in one operation: between integers of at least a byte; between a packed type and its
/// [`carrier`](super::scalar::carrier); integers of 32 or 64 bits and floats of 32 or 64 bits; and among those floats. [`super::scalar::cast`] composes the others.
pub fn is_cast(from: DType, to: DType) -> bool {
    let word = |dtype: DType| !dtype.is_packed() && dtype.is_integer();
    let wide = |dtype: DType| word(dtype) && dtype.size_bits() >= 32;
    let float = |dtype: DType| matches!(dtype, DType::F32 | DType::F64);
    match (from, to) {
        _ if from.is_packed() => carrier(from) == to,
        _ if to.is_packed() => carrier(to) == from,
        _ => word(from) && word(to) || wide(from) && float(to) || float(from) && (wide(to) || float(to)),
    }
}

macro_rules! cast_from {
    ($to:expr, $ty:ty) => {
        match $to {
            DType::I8 => |a| (<$ty>::get(a) as i8).put(),
            DType::U8 => |a| (<$ty>::get(a) as u8).put(),
            DType::I16 => |a| (<$ty>::get(a) as i16).put(),
            DType::U16 => |a| (<$ty>::get(a) as u16).put(),
            DType::I32 => |a| (<$ty>::get(a) as i32).put(),
            DType::U32 => |a| (<$ty>::get(a) as u32).put(),
            DType::I64 => |a| (<$ty>::get(a) as i64).put(),
            DType::U64 => |a| (<$ty>::get(a) as u64).put(),
            DType::F32 => |a| (<$ty>::get(a) as f32).put(),
            DType::F64 => |a| (<$ty>::get(a) as f64).put(),
            DType::I2 | DType::U2 => |a| a & 3,
            DType::I4 | DType::U4 | DType::F4E2M1 => |a| a & 15,
            other => bug!("a cast to {other}"),
        }
    };
}

/// The conversion between two dtypes of [`is_cast`].
pub fn cast(from: DType, to: DType) -> Function1 {
    assert!(is_cast(from, to), "a cast from {from} to {to} is composed");
    match from {
        DType::I2 => |a| ((a as i8) << 6 >> 6).put(),
        DType::I4 => |a| ((a as i8) << 4 >> 4).put(),
        DType::U2 | DType::U4 | DType::F4E2M1 => |a| a,
        DType::I8 => cast_from!(to, i8),
        DType::U8 => cast_from!(to, u8),
        DType::I16 => cast_from!(to, i16),
        DType::U16 => cast_from!(to, u16),
        DType::I32 => cast_from!(to, i32),
        DType::U32 => cast_from!(to, u32),
        DType::I64 => cast_from!(to, i64),
        DType::U64 => cast_from!(to, u64),
        DType::F32 => cast_from!(to, f32),
        DType::F64 => cast_from!(to, f64),
        _ => unreachable!("excluded above"),
    }
}
