//! Conversions between dtypes, by the primitive ones of `primitive::is_cast` and by bits. Floats of 16 bits and less are converted
//! exactly, with one rounding to nearest even, NaN, infinities and subnormals included.

use mcc_support::{DType, SmallFloat, Specials};

use super::carrier;
use super::value::Value;
use crate::loops::primitive::is_cast;

/// To another dtype, as the op `Cast` says.
pub fn convert(x: Value<'_>, to: DType) -> Value<'_> {
    let from = x.dtype();
    match (from, to) {
        _ if from == to => x,
        _ if from.is_packed() => widen(x.cast(carrier(from)), from, to),
        _ if to.is_packed() => narrow(x, to).cast(to),
        _ if is_cast(from, to) => x.cast(to),
        (DType::Bool, _) => from_bool(x, to),
        (_, DType::Bool) if from.is_integer() => x.ne(0),
        (DType::F16, _) => convert(half_to_single(x), to),
        (DType::BF16, _) => convert(brain_to_single(x), to),
        (_, DType::Bool) if from.small_float().is_none() => x.ne(0.0),
        (_, DType::F16) if from.small_float().is_none() => single_to_half(single_to_odd(x)),
        (_, DType::BF16) if from.small_float().is_none() => single_to_brain(single_to_odd(x)),
        _ => match (from.small_float(), to.small_float()) {
            (Some(format), _) => convert(small_to_single(x.bitcast(DType::U8), format), to),
            (None, Some(format)) => single_to_small(single_to_odd(x), format).bitcast(to),
            // Integers of 8 and 16 bits.
            _ if from.is_float() => saturate(x.cast(DType::I32), to),
            _ => x.cast(DType::I32).cast(to),
        },
    }
}

fn from_bool(x: Value<'_>, to: DType) -> Value<'_> {
    let one = match to {
        DType::F16 => 0x3c00,
        DType::BF16 => 0x3f80,
        DType::F32 => u64::from(1f32.to_bits()),
        DType::F64 => 1f64.to_bits(),
        _ => to.small_float().map_or(1, |format| format.encode(1.0).into()),
    };
    let held = carrier(to);
    let bits = x.then(x.bits_of(held, one), x.bits_of(held, 0));
    if held == to { bits } else { bits.bitcast(to) }
}

/// An `i32` to a narrower integer type, saturating.
fn saturate(x: Value<'_>, to: DType) -> Value<'_> {
    let (least, most) = to.integer_range();
    x.max(least as i64).min(most as i64).cast(to)
}

/// To a packed dtype, held in a byte: integers keep their low bits, also those that floats are truncated to.
pub fn narrow(x: Value<'_>, to: DType) -> Value<'_> {
    let (from, byte) = (x.dtype(), carrier(to));
    if let Some(format) = to.small_float() {
        let single = if is_cast(from, DType::F32) { single_to_odd(x) } else { convert(x, DType::F32) };
        return single_to_small(single, format);
    }
    match from {
        DType::Bool => from_bool(x, byte),
        _ if from.is_float() => low_bits(convert(x, DType::I32), to),
        _ => low_bits(x, to),
    }
}

/// The low bits of an integer as those of a packed dtype, held in a byte.
pub fn low_bits(x: Value<'_>, to: DType) -> Value<'_> {
    let (byte, rest) = (x.cast(carrier(to)), 8 - to.size_bits() as i64);
    if carrier(to).is_signed() { byte.shl(rest).shr(rest) } else { byte.and(0xff >> rest) }
}

/// From a packed dtype, held in a byte.
pub fn widen(x: Value<'_>, from: DType, to: DType) -> Value<'_> {
    match from.small_float() {
        Some(format) => convert(small_to_single(x, format), to),
        None => convert(x, to),
    }
}

/// The code of a small float, in a byte, as the number.
fn small_to_single(code: Value<'_>, format: SmallFloat) -> Value<'_> {
    let bits = code.cast(DType::U32);
    let magnitude = bits.and(i64::from(format.magnitude_mask()));
    let mut number = magnitude.shl(23 - i64::from(format.mantissa_bits));
    let nan = bits.like(0x7fc0_0000);
    if format.is_scale() {
        // The first one is no normal f32.
        number = magnitude.eq(0).then(bits.like(0x40_0000), number);
        return magnitude.gt(i64::from(format.greatest_code())).then(nan, number).bitcast(DType::F32);
    }
    let normal = number + i64::from((127 - format.bias) << 23);
    let least = normal.like(i64::from((128 - format.bias) << 23)).bitcast(DType::F32);
    let subnormal = ((normal + (1 << 23)).bitcast(DType::F32) - least).bitcast(DType::U32);
    let finite = number.lt(1 << 23).then(subnormal, normal);
    let signed = finite.or(bits.and(i64::from(format.sign_mask())).shl(31 - i64::from(format.magnitude_bits())));
    let is_finite = magnitude.le(i64::from(format.greatest_code()));
    let result = match format.specials {
        Specials::LastExponent => {
            let infinity = magnitude.eq(i64::from(format.greatest_code()) + 1);
            is_finite.then(signed, infinity.then(signed.or(0x7f80_0000), nan))
        }
        Specials::LastCode => is_finite.then(signed, signed.or(0x7fc0_0000)),
        Specials::NegativeZero => bits.eq(i64::from(format.sign_mask())).then(nan, signed),
        Specials::None => signed,
    };
    result.bitcast(DType::F32)
}

/// The code, in a byte, that a small float rounds to, as [`SmallFloat::encode`] says, except that infinity becomes the greatest
/// finite number always.
fn single_to_small(x: Value<'_>, format: SmallFloat) -> Value<'_> {
    let bits = x.bitcast(DType::U32);
    let magnitude = bits.and(0x7fff_ffff);
    let (nan, nan_is_signed) = format.nan_code();
    let is_nan = magnitude.gt(0x7f80_0000);
    if format.is_scale() {
        // Up to the next power of two; an f32 has one subnormal that is in range.
        let up = magnitude.le(0x40_0000).then(bits.like(0), (magnitude + 0x7f_ffff).shr(23));
        let code = up.min(i64::from(format.greatest_code()));
        return is_nan.then(bits.like(i64::from(nan)), code).cast(DType::U8);
    }
    let dropped = 23 - i64::from(format.mantissa_bits);
    let bounded = magnitude.min(i64::from((format.greatest() as f32).to_bits()));
    let odd = bounded.shr(dropped).and(1);
    let rounding = (1 << (dropped - 1)) - 1;
    let normal = (bounded + (rounding - i64::from((127 - format.bias) << 23)) + odd).shr(dropped);
    // A number that has the least subnormal as its last digit, so that adding it rounds to that.
    let digit = bits.like((i64::from(128 - format.bias) + dropped) << 23);
    let subnormal = (bounded.bitcast(DType::F32) + digit.bitcast(DType::F32)).bitcast(DType::U32) - digit;
    let code = bounded.lt(i64::from((128 - format.bias) << 23)).then(subnormal, normal);
    let sign = bits.shr(31 - i64::from(format.magnitude_bits())).and(i64::from(format.sign_mask()));
    let signed = code.or(sign);
    let signed = if format.specials == Specials::NegativeZero { code.eq(0).then(code, signed) } else { signed };
    let nan = if nan_is_signed { sign.or(i64::from(nan)) } else { bits.like(i64::from(nan)) };
    is_nan.then(nan, signed).cast(DType::U8)
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
