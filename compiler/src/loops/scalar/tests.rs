//! Each function against an f64 computation: all exponents, special values, random bits.

use half::{bf16, f16};
use mcc_support::random::Random;
use mcc_support::tensor::{Element, Number};
use mcc_support::{DType, Tensor, TensorType};

use super::map::{Function, map};
use crate::graph::op::{BinaryFn, UnaryFn};

fn apply(function: Function, operands: &[&Tensor], dtype: DType) -> Tensor {
    map(function, operands, &TensorType::new(dtype, operands[0].shape().clone()))
}

fn tensor<T: Element>(values: &[T]) -> Tensor {
    Tensor::from_elements([values.len()], values)
}

/// Every exponent with several mantissas, both signs, and random numbers of everyday size.
fn singles() -> Vec<f32> {
    let mut random = Random::new(7);
    let mut values = vec![0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1.0, -1.0, 0.5, -0.5, f32::MAX, f32::MIN];
    for exponent in 0..=254u32 {
        for _ in 0..64 {
            let bits = exponent << 23 | random.next_u64() as u32 & 0x7f_ffff;
            values.extend([f32::from_bits(bits), -f32::from_bits(bits)]);
        }
    }
    values.extend((0..100_000).map(|_| random.between(-12.0, 12.0) as f32));
    values.extend((0..50_000).map(|_| random.between(-110.0, 110.0) as f32));
    values
}

fn doubles() -> Vec<f64> {
    let mut random = Random::new(8);
    let mut values = vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0, -1.0, 0.5, -0.5, f64::MAX, f64::MIN];
    for exponent in 0..=2046u64 {
        for _ in 0..4 {
            let bits = exponent << 52 | random.next_u64() & ((1 << 52) - 1);
            values.extend([f64::from_bits(bits), -f64::from_bits(bits)]);
        }
    }
    values.extend((0..30_000).map(|_| random.between(-12.0, 12.0)));
    values.extend((0..10_000).map(|_| random.between(-750.0, 750.0)));
    values
}

/// Distance of `got` from `want` in units of the last place of `want` in f32; infinite where one is special and the other not.
fn ulp_single(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if rounded.is_nan() || got.is_nan() {
        return if rounded.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if rounded.is_infinite() || got.is_infinite() || rounded == 0.0 {
        // An overflow may be missed by the last bit, a zero must have the sign.
        let limit = f64::from(f32::MAX) * (1.0 + 1e-7);
        let near = got == rounded && got.is_sign_negative() == rounded.is_sign_negative();
        return if near {
            0.0
        } else if want.abs() < limit && want.abs() > 1.0 {
            1.0
        } else {
            f64::INFINITY
        };
    }
    let exponent = (rounded.to_bits() >> 23 & 255).max(1);
    (f64::from(got) - want).abs() / f64::from(f32::from_bits(exponent << 23)) * f64::from(1u32 << 23)
}

fn ulp_double(got: f64, want: f64) -> f64 {
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if want.is_infinite() || want == 0.0 {
        return if got.to_bits() == want.to_bits() { 0.0 } else { f64::INFINITY };
    }
    let exponent = (want.to_bits() >> 52 & 2047).max(1);
    (got - want).abs() / f64::from_bits(exponent << 52) * (1u64 << 52) as f64
}

type Reference = fn(f64) -> f64;

/// Function, reference, largest error allowed in f32 and in f64 (where the reference itself is off by up to one).
const ELEMENTARY: [(UnaryFn, Reference, f64, f64); 18] = [
    (UnaryFn::Exp, libm::exp, 1.0, 2.0),
    (UnaryFn::Log, libm::log, 1.0, 2.0),
    (UnaryFn::Tanh, libm::tanh, 2.0, 4.0),
    (UnaryFn::Erf, libm::erf, 2.1, 3.0),
    (UnaryFn::Sin, libm::sin, 0.51, 2.0),
    (UnaryFn::Cos, libm::cos, 0.51, 2.0),
    (UnaryFn::Tan, libm::tan, 0.51, 4.0),
    (UnaryFn::Asin, libm::asin, 0.51, 2.0),
    (UnaryFn::Acos, libm::acos, 0.51, 2.0),
    (UnaryFn::Atan, libm::atan, 0.51, 2.0),
    (UnaryFn::Sinh, libm::sinh, 0.51, 3.0),
    (UnaryFn::Cosh, libm::cosh, 0.51, 3.0),
    (UnaryFn::Asinh, libm::asinh, 0.51, 5.0),
    (UnaryFn::Acosh, |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) }, 0.51, 5.0),
    (UnaryFn::Atanh, libm::atanh, 0.51, 5.0),
    (UnaryFn::Sqrt, libm::sqrt, 0.51, 0.0),
    (UnaryFn::Floor, libm::floor, 0.0, 0.0),
    (UnaryFn::Round, libm::rint, 0.0, 0.0),
];

#[test]
fn elementary_functions_are_accurate() {
    let (singles, doubles) = (singles(), doubles());
    let mut failures = Vec::new();
    for (f, reference, single_limit, double_limit) in ELEMENTARY {
        let got = apply(Function::Unary(f), &[&tensor(&singles)], DType::F32).elements::<f32>();
        let worst =
            singles.iter().zip(got).map(|(&x, got)| (ulp_single(got, reference(f64::from(x))), f64::from(x), f64::from(got)));
        let single = worst.max_by(|a, b| a.0.total_cmp(&b.0)).expect("values");
        let got = apply(Function::Unary(f), &[&tensor(&doubles)], DType::F64).elements::<f64>();
        let worst = doubles.iter().zip(got).map(|(&x, got)| (ulp_double(got, reference(x)), x, got));
        let double = worst.max_by(|a, b| a.0.total_cmp(&b.0)).expect("values");
        println!("{f:?}: {:.3} ulp in f32 (at {:e}), {:.3} in f64 (at {:e})", single.0, single.1, double.0, double.1);
        if single.0 > single_limit {
            failures.push(format!("{f:?} f32 {single:?}, want {:e}", reference(single.1)));
        }
        if double.0 > double_limit {
            failures.push(format!("{f:?} f64 {double:?}, want {:e}", reference(double.1)));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Of a sum that such numbers are divided by, one is of 0.
#[test]
fn exp_of_negative_is_accurate() {
    let f = Function::Unary(UnaryFn::ExpOfNegative);
    let power = f64::from(1u32 << 31) * f64::from(1u32 << 31) * 4.0;
    let singles: Vec<f32> = singles().into_iter().filter(|x| x.is_nan() || *x <= 0.0).collect();
    for (&x, got) in singles.iter().zip(apply(f, &[&tensor(&singles)], DType::F32).elements::<f32>()) {
        let want = power * libm::exp(f64::from(x));
        let holds = if x < -105.0 { got > 0.0 && got / power as f32 == 0.0 } else { ulp_single(got, want) <= 1.0 };
        assert!(holds, "{x:e}: {got:e}, want {want:e}");
    }
    let doubles: Vec<f64> = doubles().into_iter().filter(|x| x.is_nan() || *x <= 0.0).collect();
    for (&x, got) in doubles.iter().zip(apply(f, &[&tensor(&doubles)], DType::F64).elements::<f64>()) {
        let want = power * libm::exp(x);
        let holds = if x < -700.0 { got / power <= 1e-304 } else { ulp_double(got, want) <= 2.0 };
        assert!(holds, "{x:e}: {got:e}, want {want:e}");
    }
}

/// In f32 down to where its denominator overflows; in f64 down to where that of the reference does.
#[test]
fn sigmoid_is_accurate() {
    let sigmoid = |x: f64| 1.0 / (1.0 + libm::exp(-x));
    let (singles, doubles) = (singles(), doubles());
    let f = Function::Unary(UnaryFn::Sigmoid);
    for (&x, got) in singles.iter().zip(apply(f, &[&tensor(&singles)], DType::F32).elements::<f32>()) {
        let want = sigmoid(f64::from(x));
        let holds = if x < -88.7 { (0.0..f32::MIN_POSITIVE).contains(&got) } else { ulp_single(got, want) <= 2.5 };
        assert!(holds, "{x:e}: {got:e}, want {want:e}");
    }
    assert_eq!(apply(f, &[&tensor(&[f32::NEG_INFINITY, f32::INFINITY])], DType::F32).elements::<f32>(), [0.0, 1.0]);
    for (&x, got) in doubles.iter().zip(apply(f, &[&tensor(&doubles)], DType::F64).elements::<f64>()) {
        assert!(ulp_double(got, sigmoid(x)) <= 2.0, "{x:e}: {got:e}, want {:e}", sigmoid(x));
    }
}

/// Pairs of everyday numbers, of all exponents and of special values.
fn pairs() -> (Vec<f64>, Vec<f64>) {
    let mut random = Random::new(9);
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        3.0,
        -3.0,
        0.5,
        -0.5,
        1.5,
        1e30,
        -1e30,
        9e15 + 1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let mut pairs: Vec<(f64, f64)> = special.iter().flat_map(|&a| special.map(|b| (a, b))).collect();
    pairs.extend((0..12_000).map(|_| (random.between(0.0, 20.0), random.between(-40.0, 40.0))));
    pairs.extend((0..2_000).map(|_| (random.between(-9.0, 9.0), random.between(-9.0, 9.0).trunc())));
    pairs.extend(
        (0..4_000)
            .map(|_| (f64::from(f32::from_bits(random.next_u64() as u32)), f64::from(f32::from_bits(random.next_u64() as u32)))),
    );
    pairs.into_iter().unzip()
}

/// `fmod` by the host, which is exact.
fn reference_mod(a: f64, b: f64) -> f64 {
    let r = a % b;
    if r == 0.0 && !b.is_nan() {
        0f64.copysign(b)
    } else if (r < 0.0) != (b < 0.0) {
        r + b
    } else {
        r
    }
}

/// NaN where either is, as the ops say.
fn reference_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if b > a {
        b
    } else {
        a
    }
}

const BINARY: [(BinaryFn, fn(f64, f64) -> f64, f64, f64); 4] = [
    (BinaryFn::Pow, libm::pow, 0.51, 3.0),
    (BinaryFn::Rem, |a, b| a % b, 0.0, 0.0),
    (BinaryFn::Mod, reference_mod, 0.51, 0.0),
    (BinaryFn::Max, reference_max, 0.0, 0.0),
];

#[test]
fn binary_functions_are_accurate() {
    let (a, b) = pairs();
    let single = |values: &[f64]| values.iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let (a32, b32) = (single(&a), single(&b));
    let mut failures = Vec::new();
    for (f, reference, single_limit, double_limit) in BINARY {
        let got = apply(Function::Binary(f), &[&tensor(&a32), &tensor(&b32)], DType::F32).elements::<f32>();
        let mut worst = (0.0, 0.0, 0.0);
        for at in 0..a.len() {
            let (x, y) = (f64::from(a32[at]), f64::from(b32[at]));
            let ulp = ulp_single(got[at], reference(x, y));
            worst = if ulp > worst.0 { (ulp, x, y) } else { worst };
            if ulp > single_limit {
                failures.push(format!("{f:?}({x:e}, {y:e}) = {:e}, want {:e}", got[at], reference(x, y)));
            }
        }
        let got = apply(Function::Binary(f), &[&tensor(&a), &tensor(&b)], DType::F64).elements::<f64>();
        let mut worst64 = (0.0, 0.0, 0.0);
        for at in 0..a.len() {
            let ulp = ulp_double(got[at], reference(a[at], b[at]));
            worst64 = if ulp > worst64.0 { (ulp, a[at], b[at]) } else { worst64 };
            if ulp > double_limit {
                failures.push(format!(
                    "{f:?}({:e}, {:e}) = {:e}, want {:e} (f64)",
                    a[at],
                    b[at],
                    got[at],
                    reference(a[at], b[at])
                ));
            }
        }
        println!("{f:?}: {worst:?} in f32, {worst64:?} in f64");
    }
    assert!(failures.is_empty(), "{} failures: {:#?}", failures.len(), &failures[..failures.len().min(20)]);
}

/// A number as the op `Cast` converts it, by way of the widest types of the host.
fn reference_cast(dtype: DType, number: Number) -> Number {
    let Number::Float(value) = number else {
        if dtype == DType::Bool {
            return Number::Int(i64::from(number.as_i64() != 0));
        }
        if dtype.is_float() {
            let exact = match number {
                Number::UInt(value) => i128::from(value),
                other => i128::from(other.as_i64()),
            };
            if dtype == DType::F8E8M0 && exact != 0 {
                return Number::Float(exact.unsigned_abs().next_power_of_two() as f64);
            }
            if dtype.small_float().is_some() {
                return Number::Float(round_small(dtype, exact as f64));
            }
            return Number::Float(round_integer(dtype, exact));
        }
        let mask = if dtype.size_bits() == 64 { !0 } else { (1u64 << dtype.size_bits()) - 1 };
        return integer(dtype, i128::from(number.as_i64() as u64 & mask));
    };
    match dtype {
        DType::Bool => Number::Int(i64::from(value != 0.0)),
        DType::F64 => number,
        DType::F32 => Number::Float(f64::from(value as f32)),
        DType::F16 => Number::Float(round_float(value, 11, -14, f16::MAX.to_f64())),
        DType::BF16 => Number::Float(round_float(value, 8, -126, bf16::MAX.to_f64())),
        _ if dtype.is_float() => Number::Float(round_small(dtype, value)),
        _ if dtype.is_packed() => integer(dtype, i128::from(value as i32) & ((1 << dtype.size_bits()) - 1)),
        _ => {
            let (least, most) = dtype.integer_range();
            integer(dtype, (value as i128).clamp(least, most))
        }
    }
}

/// To the nearest number of so many digits, ties to even; `least` is the exponent of the smallest normal number.
fn round_float(value: f64, digits: i64, least: i64, most: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = (value.to_bits() >> 52 & 2047) as i64 - 1023;
    let quantum = f64::from_bits(((exponent.max(least) - digits + 1 + 1023) as u64) << 52);
    let rounded = (value / quantum).round_ties_even() * quantum;
    if rounded.abs() > most { f64::INFINITY.copysign(value) } else { rounded }
}

/// To a float of 4 or 8 bits, saturating.
fn round_small(dtype: DType, value: f64) -> f64 {
    let (digits, least, most) = match dtype {
        DType::F4E2M1 => (2, 0, 6.0),
        DType::F8E4M3FN => (4, -6, 448.0),
        DType::F8E4M3FNUZ => (4, -7, 240.0),
        DType::F8E5M2 => (3, -14, 57344.0),
        DType::F8E5M2FNUZ => (3, -15, 57344.0),
        _ => {
            // The least power of two that is not below the magnitude.
            let power = |exponent: i64| f64::from_bits(((1023 + exponent) as u64) << 52);
            let below = f64::from_bits(value.abs().to_bits() & !((1 << 52) - 1));
            let above = if below < value.abs() { below * 2.0 } else { below };
            return if value.is_nan() { value } else { above.clamp(power(-127), power(127)) };
        }
    };
    if value.is_nan() && dtype == DType::F4E2M1 {
        return -0.0;
    }
    let rounded = round_float(value, digits, least, most);
    let bounded = if rounded.abs() > most { most.copysign(value) } else { rounded };
    let unsigned = bounded == 0.0 && matches!(dtype, DType::F8E4M3FNUZ | DType::F8E5M2FNUZ);
    if unsigned { 0.0 } else { bounded }
}

fn integer(dtype: DType, value: i128) -> Number {
    if dtype == DType::U64 {
        return Number::UInt(value as u64);
    }
    let shift = 64 - dtype.size_bits() as u32;
    Number::Int(if dtype.is_signed() { (value as i64) << shift >> shift } else { value as i64 })
}

/// An integer to the nearest float of few bits, ties to even.
fn round_integer(dtype: DType, value: i128) -> f64 {
    let digits = match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        _ => 53,
    };
    let magnitude = value.unsigned_abs();
    let drop = (128 - magnitude.leading_zeros()).saturating_sub(digits);
    let (kept, rest) = (magnitude >> drop, magnitude & ((1 << drop) - 1));
    let half = if drop == 0 { u128::MAX } else { 1 << (drop - 1) };
    let up = rest > half || rest == half && kept & 1 == 1;
    let rounded = ((kept + u128::from(up)) << drop) as f64;
    let rounded = if dtype == DType::F16 && rounded > 65504.0 { f64::INFINITY } else { rounded };
    if value < 0 { -rounded } else { rounded }
}

/// Values of a dtype: all of the narrow ones, otherwise all exponents, borders and random bits.
fn samples(dtype: DType) -> Tensor {
    let numbers: Vec<Number> = match dtype {
        DType::Bool => vec![Number::Int(0), Number::Int(1)],
        DType::F32 => singles().into_iter().map(|x| Number::Float(x.into())).collect(),
        DType::F64 => {
            // Also numbers that only just differ from those of bf16.
            let near = (0..1 << 16).map(|bits| f64::from(f32::from_bits(bits << 16)) * (1.0 + 1e-12));
            doubles().into_iter().chain(near).map(Number::Float).collect()
        }
        DType::F16 => (0..=u16::MAX).map(|bits| Number::Float(f16::from_bits(bits).to_f64())).collect(),
        DType::BF16 => (0..=u16::MAX).map(|bits| Number::Float(bf16::from_bits(bits).to_f64())).collect(),
        _ if dtype.is_float() => {
            let format = dtype.small_float().expect("the other floats are above");
            (0..1 << dtype.size_bits()).map(|code| Number::Float(format.decode(code))).collect()
        }
        _ if dtype.size_bits() <= 16 => (0..1 << dtype.size_bits()).map(|bits| integer(dtype, bits)).collect(),
        _ => {
            let mut random = Random::new(10);
            let width = dtype.size_bits() as u32;
            let borders = (0..width).flat_map(|bit| [0, 1, -1].map(|d| (1i128 << bit) + d));
            let borders = borders.flat_map(|value| [value, -value]).collect::<Vec<_>>();
            let random = (0..20_000).map(|at| i128::from(random.next_u64() >> (at % width)));
            borders.into_iter().chain(random).map(|value| integer(dtype, value & (u64::MAX >> (64 - width)) as i128)).collect()
        }
    };
    Tensor::from_numbers(TensorType::new(dtype, [numbers.len()]), numbers)
}

#[test]
fn casts_are_exact() {
    for from in DType::ALL {
        let values = samples(from);
        for to in DType::ALL {
            let got = apply(Function::Cast(to), &[&values], to);
            for (x, got) in values.numbers().zip(got.numbers()) {
                let want = if from == to { x } else { reference_cast(to, x) };
                let nan = want.as_f64().is_nan() && got.as_f64().is_nan();
                let sign = want.as_f64().is_sign_negative() == got.as_f64().is_sign_negative();
                assert!(nan || got == want && sign, "{from} {x:?} to {to}: {got:?}, want {want:?}");
            }
        }
    }
}
