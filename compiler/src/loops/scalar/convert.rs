//! Conversions between dtypes, by the primitive ones of `primitive::is_cast` and by bits. Floats of 16 bits are converted exactly, with one
//! rounding to nearest even, NaN, infinities and subnormals included.

use mcc_support::DType;

use super::value::Value;
use crate::loops::primitive::is_cast;

/// To another dtype, as the op `Cast` says.
pub fn convert(x: Value<'_>, to: DType) -> Value<'_> {
    let from = x.dtype();
    match (from, to) {
        _ if from == to => x,
        _ if is_cast(from, to) => x.cast(to),
        (DType::I4, _) => convert(x.cast(DType::I8), to),
        (DType::U4, _) => convert(x.cast(DType::U8), to),
        (DType::Bool, _) if !to.is_packed() => from_bool(x, to),
        (DType::F16, _) => convert(half_to_single(x), to),
        (DType::BF16, _) => convert(brain_to_single(x), to),
        (_, DType::I4 | DType::U4) => narrow(x, to).cast(to),
        (_, DType::Bool) if from.is_float() => x.ne(0.0),
        (_, DType::Bool) => x.ne(0),
        (_, DType::F16) => single_to_half(single_to_odd(x)),
        (_, DType::BF16) => single_to_brain(single_to_odd(x)),
        // Integers of 8 and 16 bits.
        _ if from.is_float() => saturate(x.cast(DType::I32), to),
        _ => x.cast(DType::I32).cast(to),
    }
}

fn from_bool(x: Value<'_>, to: DType) -> Value<'_> {
    let one = match to {
        DType::F16 => 0x3c00,
        DType::BF16 => 0x3f80,
        DType::F32 => u64::from(1f32.to_bits()),
        DType::F64 => 1f64.to_bits(),
        _ => 1,
    };
    if matches!(to, DType::F16 | DType::BF16) {
        let bits = x.then(x.bits_of(DType::U16, one), x.bits_of(DType::U16, 0));
        return bits.bitcast(to);
    }
    x.then(x.bits_of(to, one), x.bits_of(to, 0))
}

/// An `i32` to a narrower integer type, saturating.
fn saturate(x: Value<'_>, to: DType) -> Value<'_> {
    let (least, most) = to.integer_range();
    x.max(least as i64).min(most as i64).cast(to)
}

/// To four bits, held in a byte: saturating from floats, otherwise the low ones.
pub fn narrow(x: Value<'_>, to: DType) -> Value<'_> {
    let byte = if to == DType::I4 { DType::I8 } else { DType::U8 };
    if x.dtype() == DType::Bool {
        return from_bool(x, byte);
    }
    if x.dtype().is_float() {
        let (least, most) = to.integer_range();
        return convert(x, DType::I32).max(least as i64).min(most as i64).cast(byte);
    }
    let low = convert(x, byte);
    if to == DType::I4 { low.shl(4).shr(4) } else { low.and(15) }
}

/// A number to f32 such that a later rounding to 16 bits gives what one rounding of the number would: where f32 does not hold it,
/// the neighbour whose last bit is set ("rounding to odd").
fn single_to_odd(x: Value<'_>) -> Value<'_> {
    let from = x.dtype();
    match from {
        DType::F32 => return x,
        DType::I8 | DType::U8 | DType::I16 | DType::U16 => return x.cast(DType::I32).cast(DType::F32),
        _ => {}
    }
    let near = x.cast(DType::F32);
    let back = near.cast(from);
    let (beyond, inexact) = if from == DType::F64 {
        (back.abs().gt(x.abs()), back.ne(x).and(x.is_nan().not()))
    } else {
        let farther = if from.is_signed() { x.lt(0).and(back.lt(x)).or(x.ge(0).and(back.gt(x))) } else { back.gt(x) };
        (farther, back.ne(x))
    };
    let bits = near.bitcast(DType::U32);
    let toward_zero = bits - beyond.then(bits.like(1), 0);
    inexact.then(toward_zero.or(1), bits).bitcast(DType::F32)
}

fn half_to_single(x: Value<'_>) -> Value<'_> {
    let bits = x.bitcast(DType::U16).cast(DType::U32);
    let shifted = bits.and(0x7fff).shl(13);
    let exponent = shifted.and(0x7c00 << 13);
    let normal = shifted + ((127 - 15) << 23);
    let special = normal + ((128 - 16) << 23);
    let least = normal.like(113 << 23).bitcast(DType::F32);
    let subnormal = ((normal + (1 << 23)).bitcast(DType::F32) - least).bitcast(DType::U32);
    let magnitude = exponent.eq(0).then(subnormal, exponent.eq(0x7c00 << 13).then(special, normal));
    magnitude.or(bits.and(0x8000).shl(16)).bitcast(DType::F32)
}

fn single_to_half(x: Value<'_>) -> Value<'_> {
    let bits = x.bitcast(DType::U32);
    let magnitude = bits.and(0x7fff_ffff);
    let odd = magnitude.shr(13).and(1);
    let normal = (magnitude + 0xc800_0fff + odd).shr(13);
    let half = magnitude.like(0x3f00_0000);
    let subnormal = (magnitude.bitcast(DType::F32) + half.bitcast(DType::F32)).bitcast(DType::U32) - half;
    let nan = magnitude.shr(13).and(0x3ff).or(0x7e00);
    let large = magnitude.le(0x7f80_0000).then(magnitude.like(0x7c00), nan);
    let small = magnitude.lt(0x3880_0000).then(subnormal, normal);
    let rounded = magnitude.lt(0x4780_0000).then(small, large);
    rounded.or(bits.shr(16).and(0x8000)).cast(DType::U16).bitcast(DType::F16)
}

fn brain_to_single(x: Value<'_>) -> Value<'_> {
    x.bitcast(DType::U16).cast(DType::U32).shl(16).bitcast(DType::F32)
}

fn single_to_brain(x: Value<'_>) -> Value<'_> {
    let bits = x.bitcast(DType::U32);
    let rounded = (bits + 0x7fff + bits.shr(16).and(1)).shr(16);
    let nan = bits.shr(16).or(0x40);
    x.is_nan().then(nan, rounded).cast(DType::U16).bitcast(DType::BF16)
}
