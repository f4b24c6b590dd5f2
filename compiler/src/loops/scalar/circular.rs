//! Circular functions and their inverses, in f64: polynomials of fdlibm (Sun Microsystems, freely granted), full range reduction.
#![allow(clippy::excessive_precision, reason = "constants as published, to the last digit")]
#![allow(clippy::approx_constant, reason = "high parts of tables whose low parts stand beside them")]

use mcc_support::DType;

use super::exponential::nearest_small;
use super::value::Value;

/// 64 zeros and then the first bits of 2/π, most significant first.
const TWO_OVER_PI: [u64; 21] = [
    0, 0xa2f9_836e_4e44_1529, 0xfc27_57d1_f534_ddc0, 0xdb62_9599_3c43_9041, 0xfe51_63ab_debb_c561, 0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c, 0xfe1d_eb1c_b129_a73e, 0xe882_35f5_2ebb_4484, 0xe99c_7026_b45f_7e41, 0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b, 0x1ff8_97ff_de05_980f, 0xef2f_118b_5a0a_6d1f, 0x6d36_7ecf_27cb_09b7, 0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b, 0x3d07_39f7_8a52_92ea, 0x6bfb_5fb1_1f8d_5d08, 0x5603_3046_fc7b_6bab, 0xf0cf_bc20_9af4_361d,
];

/// Up to here, the reduction by parts of π/2 is exact enough.
const MEDIUM: f64 = 1_000_000.0;

/// An angle less a multiple of π/2: the multiple modulo 4 (an integer of 64 bits), and what is left as a sum of two.
struct Reduced<'p> {
    quadrant: Value<'p>,
    high: Value<'p>,
    low: Value<'p>,
}

/// Of an f64 from 0 to [`MEDIUM`]: π/2 in three parts of 33 bits and a rest.
fn reduce_medium(a: Value<'_>) -> Reduced<'_> {
    let (n, k) = nearest_small(a * std::f64::consts::FRAC_2_PI);
    let r1 = a - n * 1.570_796_326_734_125_614_17;
    let w = n * 6.077_100_506_303_965_976_60e-11;
    let r2 = r1 - w;
    let lost = (r1 - r2) - w;
    let w = n * 2.022_266_248_711_166_455_80e-21;
    let r3 = r2 - w;
    let w = n * 8.478_427_660_368_899_569_97e-32 - ((r2 - r3) - w) - lost;
    let high = r3 - w;
    Reduced { quadrant: k, high, low: (r3 - high) - w }
}

/// `count` words of 2/π from bit `start` on. Selects by the bits of the word's number, from the highest.
fn window<'p>(start: Value<'p>, count: usize, most: u32) -> Vec<Value<'p>> {
    let mut words: Vec<Value<'p>> = TWO_OVER_PI.iter().map(|&word| start.bits_of(DType::U64, word)).collect();
    let number = start.shr(6);
    for bit in (0..most).rev() {
        let set = number.and(1 << bit).ne(0);
        let keep = (count + (1 << bit)).min(words.len());
        words = (0..keep).map(|at| words.get(at + (1 << bit)).map_or(words[at], |&there| set.then(there, words[at]))).collect();
    }
    let shift = start.and(63).cast(DType::U64);
    let back = shift.xor(63);
    (0..count).map(|at| words[at].shl(shift).or(words[at + 1].shr(1).shr(back))).collect()
}

/// Of an f64 of at least 2: multiplied by the bits of 2/π that matter (Payne and Hanek), in integers.
fn reduce_large<'p>(a: Value<'p>) -> Reduced<'p> {
    let bits = a.to_bits();
    let mantissa = bits.and((1 << 52) - 1).or(1 << 52).cast(DType::U64);
    // The product's first bit then has weight 2.
    let start = (bits.shr(52) - (1075 + 2 - 64)).at_least(0);
    let w = window(start, 3, 5);
    let (low1, high1) = (mantissa * w[1], multiply_high(mantissa, w[1]));
    let q1 = low1 + multiply_high(mantissa, w[2]);
    let carry = q1.lt(low1).then(q1.like(1), 0);
    let q0 = mantissa * w[0] + high1 + carry;
    let quadrant = (q0 + (1 << 61)).shr(62);
    let q0 = q0 - quadrant.shl(62);
    // To sign and magnitude of 128 bits.
    let negative = q0.shr(63).ne(0);
    let q1_negated = q1.like(0) - q1;
    let q0_negated = q0.not() + q1.eq(0).then(q0.like(1), 0);
    let q0 = negative.then(q0_negated, q0);
    let q1 = negative.then(q1_negated, q1);
    let float = |part: Value<'p>, exponent: i64| part.cast(DType::F64) * f64::from_bits(((exponent + 1023) as u64) << 52);
    let first = float(q0.shr(24), 24 - 62);
    let second = float(q0.and(0xff_ffff).shl(29).or(q1.shr(35)), 24 - 62 - 53);
    let third = float(q1.and((1 << 35) - 1), -126);
    let turn = first + second;
    let rest = (second - (turn - first)) + third;
    let (high, low) = times_half_pi(turn, rest);
    let sign = |value: Value<'p>| negative.then(-value, value);
    let (high, low) = (sign(high), sign(low));
    Reduced { quadrant: quadrant.cast(DType::I64), high, low }
}

/// The high word of the product of two `u64`.
fn multiply_high<'p>(a: Value<'p>, b: Value<'p>) -> Value<'p> {
    let (a1, a0, b1, b0) = (a.shr(32), a.and(0xffff_ffff), b.shr(32), b.and(0xffff_ffff));
    let middle = a1 * b0 + (a0 * b0).shr(32);
    let other = a0 * b1 + middle.and(0xffff_ffff);
    a1 * b1 + middle.shr(32) + other.shr(32)
}

/// The first 26 bits of a number and the others.
fn split(x: Value<'_>) -> (Value<'_>, Value<'_>) {
    let high = x.to_bits().and(!0x7ff_ffff_i64).bitcast(DType::F64);
    (high, x - high)
}

/// `(high + low) · π/2` as a sum of two.
fn times_half_pi<'p>(high: Value<'p>, low: Value<'p>) -> (Value<'p>, Value<'p>) {
    let half_pi = high.like(std::f64::consts::FRAC_PI_2);
    let (a1, a0) = split(high);
    let (b1, b0) = split(half_pi);
    let product = high * half_pi;
    let lost = ((a1 * b1 - product) + a1 * b0 + a0 * b1) + a0 * b0;
    let rest = lost + (high * 6.123_233_995_736_766_035_87e-17 + low * half_pi);
    let sum = product + rest;
    (sum, rest - (sum - product))
}

/// Of the magnitude of an f64.
fn reduce(a: Value<'_>) -> Reduced<'_> {
    let (medium, large) = (reduce_medium(a), reduce_large(a));
    let is_medium = a.le(MEDIUM);
    let choose = |m, l| is_medium.then(m, l);
    Reduced {
        quadrant: choose(medium.quadrant, large.quadrant),
        high: choose(medium.high, large.high),
        low: choose(medium.low, large.low),
    }
}

/// Of the magnitude of an f32, as an f64; the rest is accurate enough for a result in f32, and one f64 holds it.
fn reduce_single(a: Value<'_>) -> Reduced<'_> {
    let wide = a.cast(DType::F64);
    let (n, k) = nearest_small(wide * std::f64::consts::FRAC_2_PI);
    let medium = (wide - n * 1.570_796_326_734_125_614_17) - n * 6.077_100_506_506_192_249_32e-11;
    let bits = a.to_bits();
    let mantissa = bits.and((1 << 23) - 1).or(1 << 23).cast(DType::U64);
    let start = (bits.shr(23) - (150 + 2 - 64)).at_least(0).cast(DType::I64);
    let w = window(start, 2, 2);
    let q = mantissa * w[0] + (mantissa * w[1].shr(32)).shr(32);
    let quadrant = (q + (1 << 61)).shr(62);
    let turn = (q - quadrant.shl(62)).cast(DType::I64).cast(DType::F64);
    let large = turn * (std::f64::consts::FRAC_PI_2 / (1u64 << 62) as f64);
    let is_medium = wide.le(MEDIUM);
    let high = is_medium.then(medium, large);
    Reduced { quadrant: is_medium.then(k, quadrant.cast(DType::I64)), high, low: high.like(0.0) }
}

/// `sin(x + y)` for `|x| ≤ π/4` and a small `y`.
fn sin_reduced<'p>(x: Value<'p>, y: Value<'p>) -> Value<'p> {
    let z = x * x;
    let v = z * x;
    let r = z.polynomial(&[
        8.333_333_333_322_489_461_24e-3,
        -1.984_126_982_985_794_931_34e-4,
        2.755_731_370_707_006_767_89e-6,
        -2.505_076_025_340_686_341_95e-8,
        1.589_690_995_211_550_102_21e-10,
    ]);
    x - ((z * (0.5 * y - v * r) - y) - v * -1.666_666_666_666_663_243_48e-1)
}

/// `cos(x + y)`, likewise.
fn cos_reduced<'p>(x: Value<'p>, y: Value<'p>) -> Value<'p> {
    let z = x * x;
    let r = z * z.polynomial(&[
        4.166_666_666_666_660_190_37e-2,
        -1.388_888_888_887_410_957_49e-3,
        2.480_158_728_947_672_941_78e-5,
        -2.755_731_435_139_066_330_35e-7,
        2.087_572_321_298_174_827_90e-9,
        -1.135_964_755_778_819_482_65e-11,
    ]);
    let half = 0.5 * z;
    let w = 1.0 - half;
    w + (((1.0 - w) - half) + (z * r - x * y))
}

/// Sine and cosine of an angle's magnitude, in f64.
fn sin_cos<'p>(x: Value<'p>) -> (Value<'p>, Value<'p>) {
    let a = x.abs();
    let Reduced { quadrant, high, low } = if x.dtype() == DType::F32 { reduce_single(a) } else { reduce(a) };
    let (sin, cos) = (sin_reduced(high, low), cos_reduced(high, low));
    let swap = quadrant.and(1).ne(0);
    let (s, c) = (swap.then(cos, sin), swap.then(sin, cos));
    let negate = |flag: Value<'p>, value: Value<'p>| flag.then(-value, value);
    let s = negate(quadrant.and(2).ne(0), s);
    let c = negate((quadrant + 1).and(2).ne(0), c);
    (s, c)
}

/// NaN for the infinities.
fn finite<'p>(x: Value<'p>, y: Value<'p>) -> Value<'p> {
    x.abs().lt(f64::INFINITY).then(y, f64::NAN)
}

/// All of f32 (at most 1 ulp) and f64 (at most 1 ulp).
pub fn sin(x: Value<'_>) -> Value<'_> {
    let y = sin_cos(x).0.cast(x.dtype());
    finite(x, x.to_bits().lt(0).then(-y, y))
}

/// All of f32 (at most 1 ulp) and f64 (at most 1 ulp).
pub fn cos(x: Value<'_>) -> Value<'_> {
    finite(x, sin_cos(x).1.cast(x.dtype()))
}

/// All of f32 (at most 1 ulp) and f64 (at most 3 ulp).
pub fn tan(x: Value<'_>) -> Value<'_> {
    let (s, c) = sin_cos(x);
    let y = (s / c).cast(x.dtype());
    finite(x, x.to_bits().lt(0).then(-y, y))
}

const HALF_PI_LOW: f64 = 6.123_233_995_736_766_035_87e-17;

/// `(asin(√z) − √z) / √z` for `z` up to ¼.
fn arc_rational(z: Value<'_>) -> Value<'_> {
    let p = z.polynomial(&[
        1.666_666_666_666_666_574_15e-1,
        -3.255_658_186_224_009_154_05e-1,
        2.012_125_321_348_629_258_81e-1,
        -4.005_553_450_067_941_140_27e-2,
        7.915_349_942_898_145_321_76e-4,
        3.479_331_075_960_211_675_70e-5,
    ]);
    let q = z.polynomial(&[
        1.0,
        -2.403_394_911_734_414_218_78,
        2.020_945_760_233_505_694_71,
        -6.882_839_716_054_532_930_30e-1,
        7.703_815_055_590_193_527_91e-2,
    ]);
    z * p / q
}

/// The square root of `z` as one with its low half zero and what is left.
fn root_parts<'p>(z: Value<'p>, s: Value<'p>) -> (Value<'p>, Value<'p>) {
    let high = s.to_bits().and(!0xffff_ffff_i64).bitcast(DType::F64);
    let low = (z - high * high) / (s + high);
    (high, s.gt(0.0).then(low, 0.0))
}

/// f64; at most 1 ulp. NaN beyond ±1.
pub fn asin(x: Value<'_>) -> Value<'_> {
    let a = x.abs();
    let small = x + x * arc_rational(x * x);
    let z = (1.0 - a) * 0.5;
    let s = z.sqrt();
    let (high, low) = root_parts(z, s);
    let quarter = std::f64::consts::FRAC_PI_4;
    let p = 2.0 * s * arc_rational(z) - (HALF_PI_LOW - 2.0 * low);
    let y = quarter - (p - (quarter - 2.0 * high));
    a.lt(0.5).then(small, y.with_sign_of(x))
}

/// f64; at most 1 ulp. NaN beyond ±1.
pub fn acos(x: Value<'_>) -> Value<'_> {
    let half_pi = std::f64::consts::FRAC_PI_2;
    let small = half_pi - (x - (HALF_PI_LOW - x * arc_rational(x * x)));
    let z = (1.0 - x.abs()) * 0.5;
    let s = z.sqrt();
    let r = arc_rational(z) * s;
    let (high, low) = root_parts(z, s);
    let right = 2.0 * (high + (r + low));
    let left = 2.0 * (half_pi - (s + (r - HALF_PI_LOW)));
    x.abs().lt(0.5).then(small, x.lt(0.0).then(left, right))
}

/// f64; at most 1 ulp.
pub fn atan(x: Value<'_>) -> Value<'_> {
    let a = x.abs();
    // Breaks of the intervals, and about which point each is taken.
    let steps = [
        (0.4375, 2.0 * a - 1.0, a + 2.0, 4.636_476_090_008_060_935_15e-1, 2.269_877_745_296_168_709_24e-17),
        (0.6875, a - 1.0, a + 1.0, 7.853_981_633_974_482_789_99e-1, 3.061_616_997_868_383_017_93e-17),
        (1.1875, a - 1.5, a * 1.5 + 1.0, 9.827_937_232_473_290_540_82e-1, 1.390_331_103_123_099_845_16e-17),
        (2.4375, a.like(-1.0), a, 1.570_796_326_794_896_558_00, HALF_PI_LOW),
    ];
    let mut parts = (a, a.like(1.0), a.like(0.0), a.like(0.0));
    for (from, numerator, denominator, high, low) in steps {
        let here = a.ge(from);
        parts.0 = here.then(numerator, parts.0);
        parts.1 = here.then(denominator, parts.1);
        parts.2 = here.then(a.like(high), parts.2);
        parts.3 = here.then(a.like(low), parts.3);
    }
    let (numerator, denominator, high, low) = parts;
    let t = numerator / denominator;
    let z = t * t;
    let w = z * z;
    let odd = z * w.polynomial(&[
        3.333_333_333_333_293_180_27e-1,
        1.428_571_427_250_346_637_11e-1,
        9.090_887_133_436_506_561_96e-2,
        6.661_073_137_387_531_206_69e-2,
        4.976_877_994_615_932_360_17e-2,
        1.628_582_011_536_578_236_23e-2,
    ]);
    let even = w * w.polynomial(&[
        -1.999_999_999_987_648_324_76e-1,
        -1.111_111_040_546_235_578_80e-1,
        -7.691_876_205_044_829_994_95e-2,
        -5.833_570_133_790_573_486_45e-2,
        -3.653_157_274_421_691_552_70e-2,
    ]);
    let y = high - ((t * (odd + even) - low) - t);
    y.with_sign_of(x)
}
