//! Exponential, logarithm, hyperbolic functions and powers. The reductions and polynomials are those of fdlibm (Sun Microsystems,
//! freely granted) unless said otherwise. Rounding to integers is done by adding a large constant, so that no target needs an
//! instruction for it. In f32, `exp`, `tanh` and `sigmoid` have polynomials of their own: those whose largest relative error is the
//! least (by Remez's algorithm), with their first coefficients fixed where that saves an operation.
#![allow(clippy::excessive_precision, reason = "constants as published, to the last digit")]

use mcc_support::DType;

use super::value::Value;

const LN_2: f64 = std::f64::consts::LN_2;
const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// 1.5 · 2^23: a small f32 added to it is rounded to an integer, which its low bits then hold; its own low bits are zero.
pub const ROUND_F32: f64 = 12_582_912.0;
/// The f32 nearest to log 2, and what is left.
const LN_2_HIGH: f64 = 0.693_147_182_464_599_61;
const LN_2_LOW: f64 = -1.904_654_299_957_767_9e-9;
/// 1.5 · 2^52, likewise for f64.
const ROUND_F64: f64 = 6_755_399_441_055_744.0;

/// The nearest integer of a small number, as a float and as a signed integer of the same width.
pub fn nearest_small(x: Value<'_>) -> (Value<'_>, Value<'_>) {
    let magic = x.like(if x.dtype() == DType::F32 { ROUND_F32 } else { ROUND_F64 });
    let sum = x + magic;
    (sum - magic, sum.to_bits() - magic.to_bits())
}

/// `y · 2^k` of an f64 in two steps, so that results may be subnormal or overflow; `y` is about 1.
fn scale<'p>(y: Value<'p>, k: Value<'p>) -> Value<'p> {
    let power = |k: Value<'p>| (k + 1023).shl(52).bitcast(DType::F64);
    let half = k.shr(1);
    y * power(half) * power(k - half)
}

/// `2^k` in f32, of an `i32` whose low nine bits are `k + 127`.
pub fn power_of_two(biased: Value<'_>) -> Value<'_> {
    biased.shl(23).bitcast(DType::F32)
}

/// Of `e^r` with `|r| ≤ log 2 / 2`: 1, 1, and the others so that the relative error is below 2^-28.
const EXP: [f64; 7] = [1.0, 1.0, 0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_745, 0.001_381_455_2];
/// Of `(e^r − 1 − r) / r²`, likewise of `e^r − 1`, to 2^-26.
const EXP_LESS_1: [f64; 5] = [0.499_999_97, 0.166_665_43, 0.041_667_2, 0.008_366_547_5, 0.001_388_251_8];

fn exp_single(x: Value<'_>) -> Value<'_> {
    // Twice the bias, as the power is made of two, so that results may be subnormal or overflow.
    let (y, biased) = exp_single_parts(x.at_most(89.0).at_least(-105.0), 254.0);
    let half = biased.shr(1);
    y * power_of_two(half) * power_of_two(biased - half)
}

/// `(y, k)` with `e^x = y · 2^k`, `y` about 1, of an f32 between −105 and 89; the low bits of the second are `k + bias`.
fn exp_single_parts(x: Value<'_>, bias: f64) -> (Value<'_>, Value<'_>) {
    let magic = ROUND_F32 + bias;
    let biased = x.mul_add(LOG2_E, magic);
    let n = biased - magic;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    (r.polynomial(&EXP), biased.to_bits())
}

/// `(y, k)` with `e^x = y · 2^k`, `y` about 1, of an f64. Where the result would be far out of range, `x` is taken to be nearer.
fn exp_parts(x: Value<'_>) -> (Value<'_>, Value<'_>) {
    let x = x.at_most(711.0).at_least(-747.0);
    let (n, k) = nearest_small(x * LOG2_E);
    let high = x - n * 6.931_471_803_691_238_164_90e-1;
    let low = n * 1.908_214_929_270_587_700_02e-10;
    let r = high - low;
    let square = r * r;
    let c = r - square * exp_polynomial(square);
    (((r * c / (2.0 - c) - low) + high) + 1.0, k)
}

fn exp_polynomial(square: Value<'_>) -> Value<'_> {
    square.polynomial(&[
        1.666_666_666_666_660_190_37e-1,
        -2.777_777_777_701_559_338_42e-3,
        6.613_756_321_437_934_361_17e-5,
        -1.653_390_220_546_525_153_90e-6,
        4.138_136_797_057_238_460_39e-8,
    ])
}

/// All of f32 and f64; at most 1 ulp.
pub fn exp(x: Value<'_>) -> Value<'_> {
    if x.dtype() == DType::F32 {
        return exp_single(x);
    }
    let (y, k) = exp_parts(x);
    scale(y, k)
}

/// `2^64 · e^x` up to 0; at most 1 ulp from −105 on.
pub fn exp_of_negative(x: Value<'_>) -> Value<'_> {
    if x.dtype() == DType::F32 {
        let (y, biased) = exp_single_parts(x.at_least(-105.0), 127.0 + 64.0);
        return y * power_of_two(biased);
    }
    let (y, k) = exp_parts(x);
    scale(y, k + 64)
}

/// All of f32 and f64; at most 1 ulp. Below 0 it is NaN, at 0 minus infinity.
pub fn log(x: Value<'_>) -> Value<'_> {
    let f32 = x.dtype() == DType::F32;
    let (least, up) = if f32 { (f64::from(f32::MIN_POSITIVE), 25) } else { (f64::MIN_POSITIVE, 54) };
    let (digits, root_half) = if f32 { (23, 0x3f35_04f3) } else { (52, 0x3fe6_a09e_667f_3bcd) };
    let tiny = x.lt(least);
    let normal = tiny.then(x * (1i64 << up) as f64, x);
    let bits = normal.to_bits();
    let k = (bits - root_half).shr(digits);
    let mantissa = (bits - k.shl(digits)).bitcast(x.dtype());
    let n = tiny.then(k - up, k).cast(x.dtype());
    let y = log_reduced(mantissa - 1.0, n);
    let special = x.eq(0.0).then(x.like(f64::NEG_INFINITY), f64::NAN);
    x.lt(f64::INFINITY).then(x.gt(0.0).then(y, special), x)
}

/// `log(1 + f) + n · log 2` for `1 + f` between √½ and √2.
fn log_reduced<'p>(f: Value<'p>, n: Value<'p>) -> Value<'p> {
    let s = f / (f + 2.0);
    let z = s * s;
    let w = z * z;
    let half = 0.5 * f * f;
    let (r, high, low) = if f.dtype() == DType::F32 {
        let odd = w * w.polynomial(&[0.400_009_721_52, 0.242_790_788_41]);
        let even = z * w.polynomial(&[0.666_666_626_93, 0.284_987_866_88]);
        (even + odd, 6.931_381_225_6e-1, 9.058_000_614_5e-6)
    } else {
        let odd = w * w.polynomial(&[3.999_999_999_940_941_908e-1, 2.222_219_843_214_978_396e-1, 1.531_383_769_920_937_332e-1]);
        let even = z * w.polynomial(&[
            6.666_666_666_666_735_130e-1, 2.857_142_874_366_239_149e-1, 1.818_357_216_161_805_012e-1,
            1.479_819_860_511_658_591e-1,
        ]);
        (even + odd, 6.931_471_803_691_238_164_90e-1, 1.908_214_929_270_587_700_02e-10)
    };
    s * (half + r) + n * low - half + f + n * high
}

/// `log(1 + u)` of an f64, also where `1 + u` rounds; at most 2 ulp.
fn log_1p(u: Value<'_>) -> Value<'_> {
    let w = u + 1.0;
    let lost = (u - (w - 1.0)) / w;
    let finite = w.gt(0.0).and(w.lt(f64::INFINITY));
    log(w) + finite.then(lost, 0.0)
}

/// `sinh` of an f64 of magnitude up to 1, by its series.
fn sinh_small(x: Value<'_>) -> Value<'_> {
    let factorial = |n: u32| (2..=n).map(f64::from).product::<f64>();
    let coefficients: Vec<f64> = (1..=9).map(|i| 1.0 / factorial(2 * i + 1)).collect();
    let square = x * x;
    x + x * (square * square.polynomial(&coefficients))
}

/// f64; at most 2 ulp.
pub fn sinh(x: Value<'_>) -> Value<'_> {
    let a = x.abs();
    let (y, k) = exp_parts(a);
    let half = scale(y, k - 1);
    a.lt(1.0).then(sinh_small(x), (half - 0.25 / half).with_sign_of(x))
}

/// f64; at most 2 ulp.
pub fn cosh(x: Value<'_>) -> Value<'_> {
    let (y, k) = exp_parts(x.abs());
    let half = scale(y, k - 1);
    half + 0.25 / half
}

/// Of the magnitude of an f32: `s / (1 − s)` with `s = (1 − e^-2a) / 2`. That is also `s + s · tanh a`, where the error of the
/// quotient counts half.
fn tanh_single(a: Value<'_>) -> Value<'_> {
    let a = a.at_most(9.02);
    let magic = ROUND_F32 + 127.0;
    let biased = a.mul_add(-2.0 * LOG2_E, magic);
    let n = biased - magic;
    // e^-2a = 2^n e^-2r, and one less the second is 2 (r − r² (…)).
    let r = n.mul_add(LN_2_HIGH / 2.0, a);
    let coefficients: Vec<f64> = EXP_LESS_1.iter().zip([-2.0, 4.0, -8.0, 16.0, -32.0]).map(|(c, scale)| c * scale).collect();
    let q = (r.polynomial(&coefficients) * r).mul_add(r, r);
    let power = power_of_two(biased.to_bits());
    let s = q.mul_add(power, power.mul_add(-0.5, 0.5));
    s.mul_add(s / (1.0 - s), s)
}

/// `1 / (1 + e^-x)`; at most 2.5 ulp for f32, 2 for f64; 0 where `e^-x` overflows.
pub fn sigmoid(x: Value<'_>) -> Value<'_> {
    if x.dtype() != DType::F32 {
        return 1.0 / (exp(-x) + 1.0);
    }
    let x = x.at_most(64.0).at_least(-89.0);
    // Half of the power and twice the rest: the power alone would overflow first.
    let magic = ROUND_F32 + 126.0;
    let biased = x.mul_add(-LOG2_E, magic);
    let n = biased - magic;
    let r = n.mul_add(LN_2_LOW, n.mul_add(LN_2_HIGH, x));
    let coefficients: Vec<f64> = EXP.iter().zip([2.0, -2.0].into_iter().cycle()).map(|(c, scale)| c * scale).collect();
    1.0 / r.polynomial(&coefficients).mul_add(power_of_two(biased.to_bits()), 1.0)
}

/// All of f32 and f64; at most 2 ulp for f32, 3 for f64.
pub fn tanh(x: Value<'_>) -> Value<'_> {
    let a = x.abs();
    if x.dtype() == DType::F32 {
        tanh_single(a).with_sign_of(x)
    } else {
        let s = sinh_small(x);
        let large = 1.0 - 2.0 / (exp(a.at_most(25.0) * 2.0) + 1.0);
        a.lt(0.55).then(s / (s * s + 1.0).sqrt(), large.with_sign_of(x))
    }
}

/// 2^55: above this, `x + 1` and `√(x² + 1)` are `x` for all that a result shows.
const LARGE: f64 = 36_028_797_018_963_968.0;

/// f64; at most 3 ulp.
pub fn asinh(x: Value<'_>) -> Value<'_> {
    let a = x.abs();
    let large = a.gt(LARGE);
    let square = a * a;
    let u = large.then(a, a + square / ((square + 1.0).sqrt() + 1.0));
    (log_1p(u) + large.then(a.like(LN_2), 0.0)).with_sign_of(x)
}

/// f64; at most 3 ulp. NaN below 1.
pub fn acosh(x: Value<'_>) -> Value<'_> {
    let large = x.gt(LARGE);
    let t = x - 1.0;
    let u = large.then(x, t + (t * t + 2.0 * t).sqrt());
    let y = log_1p(u) + large.then(x.like(LN_2), 0.0);
    x.lt(1.0).then(x.like(f64::NAN), y)
}

/// f64; at most 3 ulp. Infinite at ±1, NaN beyond.
pub fn atanh(x: Value<'_>) -> Value<'_> {
    let a = x.abs();
    let double = a + a;
    let u = a.lt(0.5).then(double + double * a / (1.0 - a), double / (1.0 - a));
    let y = 0.5 * log_1p(u);
    a.gt(1.0).then(x.like(f64::NAN), y.with_sign_of(x))
}

/// Powers as in C99. f64: at most 2 ulp; f32 goes through f64 and is off by half an ulp and a little.
pub fn pow<'p>(x: Value<'p>, y: Value<'p>) -> Value<'p> {
    if x.dtype() == DType::F32 {
        let (x, y) = (x.cast(DType::F64), y.cast(DType::F64));
        let magnitude = exp(y * log(x.abs()));
        return pow_special(x, y, magnitude).cast(DType::F32);
    }
    let a = x.abs();
    let extreme = a.eq(0.0).or(a.eq(f64::INFINITY)).or(y.abs().eq(f64::INFINITY));
    let grows = a.gt(1.0).xor(y.lt(0.0));
    let limit = grows.then(a.like(f64::INFINITY), 0.0);
    let nan = x.is_nan().or(y.is_nan());
    let magnitude = nan.then(x + y, extreme.then(limit, pow_positive(a, y)));
    pow_special(x, y, magnitude)
}

/// The sign of a power whose magnitude is given, and the cases that the magnitude does not tell.
fn pow_special<'p>(x: Value<'p>, y: Value<'p>, magnitude: Value<'p>) -> Value<'p> {
    let whole = y.floor().eq(y);
    let half = y * 0.5;
    let odd = whole.and(half.floor().ne(half));
    let negative = x.to_bits().lt(0);
    let signed = negative.and(odd).then(-magnitude, magnitude);
    let complex = x.lt(0.0).and(whole.not()).and(x.gt(f64::NEG_INFINITY));
    let one = x.eq(1.0).or(y.eq(0.0)).or(x.eq(-1.0).and(y.abs().eq(f64::INFINITY)));
    one.then(x.like(1.0), complex.then(x.like(f64::NAN), signed))
}

/// The value without the low 32 bits.
fn high_half(x: Value<'_>) -> Value<'_> {
    x.to_bits().and(!0xffff_ffff_i64).bitcast(DType::F64)
}

/// The base-2 logarithm of a positive finite f64 as a sum of two, the first with its low half zero.
fn log2_parts(a: Value<'_>) -> (Value<'_>, Value<'_>) {
    let tiny = a.lt(f64::MIN_POSITIVE);
    let normal = tiny.then(a * (1i64 << 53) as f64, a).to_bits();
    let exponent = normal.shr(52);
    let fraction = normal.and((1 << 52) - 1);
    // The interval around 1, around 1.5, or around 1 after halving.
    let first = fraction.le(0x3_988e_ffff_ffff);
    let last = fraction.ge(0xb_b67a_0000_0000);
    let middle = first.or(last).not();
    let n = exponent - 1023 + last.then(exponent.like(1), 0) - tiny.then(exponent.like(53), 0);
    let n = n.cast(DType::F64);
    let top = last.then(fraction.like(0x3fe0_0000_0000_0000), 0x3ff0_0000_0000_0000);
    let m = fraction.or(top);
    let ax = m.bitcast(DType::F64);
    let center = middle.then(ax.like(1.5), 1.0);
    let u = ax - center;
    let v = 1.0 / (ax + center);
    let ss = u * v;
    let s_high = high_half(ss);
    let t_bits = m.shr(33).or(0x2000_0000) + 0x0008_0000 + middle.then(m.like(0x4_0000), 0);
    let t_high = t_bits.shl(32).bitcast(DType::F64);
    let t_low = ax - (t_high - center);
    let s_low = v * ((u - s_high * t_high) - s_high * t_low);
    let s2 = ss * ss;
    let r = s2
        * s2
        * s2.polynomial(&[
            5.999_999_999_999_946_487_25e-1,
            4.285_714_285_785_501_842_52e-1,
            3.333_333_298_183_774_329_18e-1,
            2.727_281_238_085_340_064_89e-1,
            2.306_607_457_755_617_540_67e-1,
            2.069_750_178_003_384_177_84e-1,
        ])
        + s_low * (s_high + ss);
    let s2 = s_high * s_high;
    let t_high = high_half(s2 + 3.0 + r);
    let t_low = r - ((t_high - 3.0) - s2);
    let (u, v) = (s_high * t_high, s_low * t_high + t_low * ss);
    let p_high = high_half(u + v);
    let p_low = v - (p_high - u);
    let z_high = p_high * 9.617_967_009_544_372_558_59e-1;
    let offset_low = middle.then(ax.like(1.350_039_202_129_748_971_28e-8), 0.0);
    let z_low = p_high * -7.028_461_650_952_758_265_16e-9 + p_low * 9.617_966_939_259_755_543_29e-1 + offset_low;
    let offset_high = middle.then(ax.like(5.849_624_872_207_641_601_56e-1), 0.0);
    let high = high_half(((z_high + z_low) + offset_high) + n);
    let low = z_low - (((high - n) - offset_high) - z_high);
    (high, low)
}

/// `a^y` for `a` positive and finite and `y` finite.
fn pow_positive<'p>(a: Value<'p>, y: Value<'p>) -> Value<'p> {
    let (t1, t2) = log2_parts(a);
    let y1 = high_half(y);
    let p_low = (y - y1) * t1 + y * t2;
    let p_high = y1 * t1;
    let far = p_high.abs().gt(1100.0);
    let p_low = far.then(p_low.like(0.0), p_low);
    let p_high = p_high.at_most(1100.0).at_least(-1100.0);
    let (n, k) = nearest_small(p_low + p_high);
    let p_high = p_high - n;
    let t = high_half(p_low + p_high);
    let u = t * 6.931_471_824_645_996_093_75e-1;
    let v = (p_low - (t - p_high)) * LN_2 + t * -1.904_654_299_957_768_045_25e-9;
    let z = u + v;
    let w = v - (z - u);
    let square = z * z;
    let t1 = z - square * exp_polynomial(square);
    let r = (z * t1) / (t1 - 2.0) - (w + z * w);
    scale(1.0 - (r - z), k)
}
