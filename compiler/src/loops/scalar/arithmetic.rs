//! Arithmetic that is not one primitive operation.

use mcc_support::DType;

use super::value::Value;

/// −1, 0 or 1; NaN stays.
pub fn sign(x: Value<'_>) -> Value<'_> {
    if x.dtype().is_float() {
        let rest = x.lt(0.0).then(x.like(-1.0), x + 0.0);
        x.gt(0.0).then(x.like(1.0), rest)
    } else if x.dtype().is_signed() {
        let rest = x.lt(0).then(x.like(-1), 0);
        x.gt(0).then(x.like(1), rest)
    } else {
        x.min(1)
    }
}

/// NaN where either is NaN. The first operand decides between zeros.
pub fn min<'p>(a: Value<'p>, b: Value<'p>) -> Value<'p> {
    extreme(a, b, Value::min)
}

/// NaN where either is NaN. The first operand decides between zeros.
pub fn max<'p>(a: Value<'p>, b: Value<'p>) -> Value<'p> {
    extreme(a, b, Value::max)
}

/// The primitives give their second operand where one is NaN, so the other is tested apart, unless it is known to be a number, as the
/// bounds of activations are. Which comes first shows only in the sign of a zero.
fn extreme<'p>(a: Value<'p>, b: Value<'p>, primitive: fn(Value<'p>, Value<'p>) -> Value<'p>) -> Value<'p> {
    match a.dtype() {
        DType::Bool | DType::F16 | DType::BF16 => unreachable!("converted before"),
        dtype if !dtype.is_float() => primitive(a, b),
        _ => {
            let known = |x: Value<'p>, zero: bool| x.constant().is_some_and(|bits| is_number(x.dtype(), bits, zero));
            if known(b, true) {
                primitive(b, a)
            } else if known(a, false) {
                primitive(a, b)
            } else {
                b.is_nan().then(b, primitive(b, a))
            }
        }
    }
}

/// Whether these bits are not NaN and, unless `zero`, not a zero.
fn is_number(dtype: DType, bits: u64, zero: bool) -> bool {
    let value = if dtype == DType::F32 { f64::from(f32::from_bits(bits as u32)) } else { f64::from_bits(bits) };
    !value.is_nan() && (zero || value != 0.0)
}

/// The remainder with the sign of the dividend; of floats exact.
pub fn rem<'p>(a: Value<'p>, b: Value<'p>) -> Value<'p> {
    match a.dtype() {
        DType::F32 => rem_single(a, b),
        DType::F64 => rem_double(a, b),
        _ => a.binary(crate::loops::Binary::Rem, b),
    }
}

/// The remainder with the sign of the divisor.
pub fn modulo<'p>(a: Value<'p>, b: Value<'p>) -> Value<'p> {
    let r = rem(a, b);
    if !a.dtype().is_signed() {
        return r;
    }
    if a.dtype().is_float() {
        let zero = a.like(0.0).with_sign_of(b);
        let apart = r.lt(0.0).xor(b.lt(0.0));
        return r.eq(0.0).then(zero, apart.then(r + b, r));
    }
    let apart = r.ne(0).and(r.xor(b).lt(0));
    apart.then(r + b, r)
}

/// In f64, where a quotient below 2^28 and its product with an f32 are exact: multiples of the divisor by powers of 2 are taken
/// off from the largest down.
fn rem_single<'p>(a: Value<'p>, b: Value<'p>) -> Value<'p> {
    let (x, y) = (a.cast(DType::F64), b.cast(DType::F64).abs());
    let mut r = x.abs();
    for step in (0..=10).rev() {
        let divisor = y * f64::from_bits((1023 + 28 * step) << 52);
        r = r - (r / divisor).trunc() * divisor;
    }
    let valid = x.abs().lt(f64::INFINITY).and(y.gt(0.0));
    let whole = y.eq(f64::INFINITY).then(x.abs(), r);
    let whole = valid.then(whole, f64::NAN);
    let whole = b.is_nan().then(b.cast(DType::F64), whole);
    whole.cast(DType::F32).with_sign_of(a)
}

/// An f64 as `m · 2^e` with an integer `m` below 2^53 (a `u64`), and `e` (an `i64`) at least 0 where 2^-1074 has exponent 0.
fn decompose(a: Value<'_>) -> (Value<'_>, Value<'_>) {
    let bits = a.to_bits();
    let exponent = bits.shr(52);
    let fraction = bits.and((1 << 52) - 1);
    let normal = exponent.ne(0);
    let mantissa = normal.then(fraction.or(1 << 52), fraction).cast(DType::U64);
    (mantissa, exponent.max(1) - 1)
}

/// `a · b mod m` for `a, b < m`, `m` from 1 to 2^53: the quotient is estimated in floats to within a few, the rest is exact.
fn multiply_modulo<'p>(a: Value<'p>, b: Value<'p>, m: Value<'p>) -> Value<'p> {
    let float = |x: Value<'p>| x.cast(DType::F64);
    let quotient = (float(a) * float(b) / float(m)).cast(DType::U64);
    let r = (a * b - quotient * m).cast(DType::I64);
    let modulus = m.cast(DType::I64);
    let r = r.binary(crate::loops::Binary::Rem, modulus);
    r.lt(0).then(r + modulus, r).cast(DType::U64)
}

/// `(m · 2^d) mod n` on integers, where `d` is the difference of the exponents.
fn rem_double<'p>(a: Value<'p>, b: Value<'p>) -> Value<'p> {
    use crate::loops::Binary::Rem;
    let (x, y) = (a.abs(), b.abs());
    let ((m, e), (n, f)) = (decompose(x), decompose(y));
    let n = n.max(1);
    let d = (e - f).at_least(0);
    // 2^d mod n, by the bits of d from the highest.
    let mut power = n.like(1).binary(Rem, n);
    for bit in (0..11).rev() {
        power = multiply_modulo(power, power, n);
        let double = (power + power).binary(Rem, n);
        power = d.and(1 << bit).ne(0).then(double, power);
    }
    let r = multiply_modulo(m.binary(Rem, n), power, n);
    let value = compose(r, f);
    let value = x.lt(y).then(x, value);
    let valid = x.lt(f64::INFINITY).and(y.gt(0.0));
    let value = valid.then(value, x.like(f64::NAN));
    let value = b.is_nan().then(b, value);
    value.with_sign_of(a)
}

/// `m · 2^e · 2^-1074` for `m < 2^53`, exact: by two factors, since one may be out of range.
fn compose<'p>(m: Value<'p>, e: Value<'p>) -> Value<'p> {
    let power = |exponent: Value<'p>| (exponent + 1023).shl(52).bitcast(DType::F64);
    // A product that is subnormal is a multiple of 2^-1074, hence exact.
    let exponent = e - 1074;
    let half = exponent.shr(1);
    m.cast(DType::F64) * power(half) * power(exponent - half)
}

/// Integers to a power by repeated squaring; a negative exponent gives the truncated real result, 0 for the base 0.
pub fn pow_integer<'p>(x: Value<'p>, y: Value<'p>) -> Value<'p> {
    let bits = x.dtype().size_bits() as i64;
    let signed = x.dtype().is_signed();
    let one = x.like(1);
    let (mut result, mut square) = (one, x);
    let used = if signed { bits - 1 } else { bits };
    for bit in 0..used {
        let set = y.and(1i64 << bit).ne(0);
        result = set.then(result * square, result);
        square = square * square;
    }
    if !signed {
        return result;
    }
    let odd = y.and(1).ne(0);
    let minus_one = odd.then(x, 1);
    let negative = x.eq(1).then(one, x.eq(-1).then(minus_one, 0));
    y.lt(0).then(negative, result)
}

/// Left or right shift of unsigned integers; an amount of the width or more gives 0.
pub fn shift<'p>(x: Value<'p>, amount: Value<'p>, left: bool) -> Value<'p> {
    let bits = x.dtype().size_bits() as i64;
    let within = amount.and(bits - 1);
    let shifted = if left { x.shl(within) } else { x.shr(within) };
    amount.lt(bits).then(shifted, 0)
}
