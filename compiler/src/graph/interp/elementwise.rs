//! Elementwise ops. Floats narrower than f32 are computed in f32 and rounded once for each op.

use half::{bf16, f16};
use mcc_support::tensor::{Element, Number};
use mcc_support::{DType, Shape, Tensor, TensorType};

use super::elements::{Num, cells, from_cells};
use super::movement::broadcast;
use crate::graph::op::{BinaryFn, UnaryFn};

pub fn unary(function: UnaryFn, x: &Tensor) -> Tensor {
    let shape = x.shape().clone();
    match (function, x.dtype()) {
        (UnaryFn::IsNan | UnaryFn::IsInf, _) => {
            let is = |x: f64| if function == UnaryFn::IsNan { x.is_nan() } else { x.is_infinite() };
            Tensor::from_elements(shape, &f64::load(x).into_iter().map(is).collect::<Vec<bool>>())
        }
        (_, DType::Bool) => map(x, |x: bool| !x),
        (_, DType::F64) => map(x, |x: f64| unary_f64(function, x)),
        (_, dtype) if dtype.is_float() => {
            let numbers = f64::load(x).into_iter().map(|x| f64::from(unary_f32(function, x as f32))).collect();
            f64::store(x.ty().clone(), numbers)
        }
        _ => i128::store(x.ty().clone(), i128::load(x).into_iter().map(|x| unary_int(function, x)).collect()),
    }
}

fn map<T: Element, R: Element>(x: &Tensor, function: impl Fn(T) -> R) -> Tensor {
    Tensor::from_elements(x.shape().clone(), &x.elements::<T>().into_iter().map(function).collect::<Vec<R>>())
}

fn unary_int(function: UnaryFn, x: i128) -> i128 {
    match function {
        UnaryFn::Neg => -x,
        UnaryFn::Abs => x.abs(),
        UnaryFn::Sign => x.signum(),
        UnaryFn::Not => !x,
        other => unreachable!("{other:?} of an integer"),
    }
}

macro_rules! unary_float {
    ($name:ident, $ty:ty, $($function:ident => $libm:path),*) => {
        fn $name(function: UnaryFn, x: $ty) -> $ty {
            match function {
                UnaryFn::Neg => -x,
                UnaryFn::Abs => x.abs(),
                UnaryFn::Sign => if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x },
                UnaryFn::Not | UnaryFn::IsNan | UnaryFn::IsInf => unreachable!("{function:?} of a float"),
                $(UnaryFn::$function => $libm(x),)*
            }
        }
    };
}
unary_float!(unary_f32, f32, Sqrt => libm::sqrtf, Exp => libm::expf, Log => libm::logf, Sin => libm::sinf, Cos => libm::cosf,
    Tan => libm::tanf, Asin => libm::asinf, Acos => libm::acosf, Atan => libm::atanf, Sinh => libm::sinhf, Cosh => libm::coshf,
    Tanh => libm::tanhf, Asinh => libm::asinhf, Acosh => libm::acoshf, Atanh => libm::atanhf, Erf => libm::erff,
    Floor => libm::floorf, Ceil => libm::ceilf, Trunc => libm::truncf, Round => libm::rintf);
unary_float!(unary_f64, f64, Sqrt => libm::sqrt, Exp => libm::exp, Log => libm::log, Sin => libm::sin, Cos => libm::cos,
    Tan => libm::tan, Asin => libm::asin, Acos => libm::acos, Atan => libm::atan, Sinh => libm::sinh, Cosh => libm::cosh,
    Tanh => libm::tanh, Asinh => libm::asinh, Acosh => libm::acosh, Atanh => libm::atanh, Erf => libm::erf,
    Floor => libm::floor, Ceil => libm::ceil, Trunc => libm::trunc, Round => libm::rint);

pub fn binary(function: BinaryFn, a: &Tensor, b: &Tensor, shape: &Shape) -> Tensor {
    let (a, b) = (broadcast(a, shape), broadcast(b, shape));
    let dtype = a.dtype();
    let zip = |a: Vec<f64>, b: Vec<f64>, function: &dyn Fn(f64, f64) -> f64| {
        a.into_iter().zip(b).map(|(a, b)| function(a, b)).collect::<Vec<_>>()
    };
    if matches!(function, BinaryFn::Eq | BinaryFn::Lt | BinaryFn::Le) {
        let holds = if dtype.is_float() {
            compare(function, &f64::load(&a), &f64::load(&b))
        } else {
            compare(function, &i128::load(&a), &i128::load(&b))
        };
        return Tensor::from_elements(shape.clone(), &holds);
    }
    let ty = TensorType::new(dtype, shape.clone());
    match dtype {
        DType::F64 => f64::store(ty, zip(f64::load(&a), f64::load(&b), &|a, b| binary_f64(function, a, b))),
        _ if dtype.is_float() => {
            let rounded = |a, b| f64::from(binary_f32(function, a as f32, b as f32));
            f64::store(ty, zip(f64::load(&a), f64::load(&b), &rounded))
        }
        _ => {
            let numbers = i128::load(&a).into_iter().zip(i128::load(&b)).map(|(a, b)| binary_int(function, a, b, dtype));
            i128::store(ty, numbers.collect())
        }
    }
}

fn compare<N: PartialOrd>(function: BinaryFn, a: &[N], b: &[N]) -> Vec<bool> {
    let holds = |a: &N, b: &N| match function {
        BinaryFn::Eq => a == b,
        BinaryFn::Lt => a < b,
        _ => a <= b,
    };
    a.iter().zip(b).map(|(a, b)| holds(a, b)).collect()
}

fn binary_int(function: BinaryFn, a: i128, b: i128, dtype: DType) -> i128 {
    match function {
        BinaryFn::Add => a + b,
        BinaryFn::Sub => a - b,
        BinaryFn::Mul => a.wrapping_mul(b),
        BinaryFn::Div => a.checked_div(b).unwrap_or(0),
        BinaryFn::Rem => a.checked_rem(b).unwrap_or(0),
        BinaryFn::Mod => if b == 0 { 0 } else { (a % b + b) % b },
        BinaryFn::Pow => integer_power(a, b),
        BinaryFn::Min => a.min(b),
        BinaryFn::Max => a.max(b),
        BinaryFn::And => a & b,
        BinaryFn::Or => a | b,
        BinaryFn::Xor => a ^ b,
        BinaryFn::Shl => if b < dtype.size_bits() as i128 { a << b } else { 0 },
        BinaryFn::Shr => if b < dtype.size_bits() as i128 { a >> b } else { 0 },
        BinaryFn::Eq | BinaryFn::Lt | BinaryFn::Le => unreachable!("a comparison"),
    }
}

fn integer_power(base: i128, mut exponent: i128) -> i128 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 => if exponent % 2 == 0 { 1 } else { -1 },
            _ => 0,
        };
    }
    let (mut result, mut square) = (1i128, base);
    while exponent > 0 {
        if exponent % 2 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        exponent /= 2;
    }
    result
}

macro_rules! binary_float {
    ($name:ident, $ty:ty, $pow:path, $fmod:path) => {
        fn $name(function: BinaryFn, a: $ty, b: $ty) -> $ty {
            match function {
                BinaryFn::Add => a + b,
                BinaryFn::Sub => a - b,
                BinaryFn::Mul => a * b,
                BinaryFn::Div => a / b,
                BinaryFn::Rem => $fmod(a, b),
                BinaryFn::Mod => {
                    let remainder = $fmod(a, b);
                    if remainder != 0.0 && (remainder < 0.0) != (b < 0.0) { remainder + b } else { remainder }
                }
                BinaryFn::Pow => $pow(a, b),
                BinaryFn::Min => if a.is_nan() || a < b { a } else { b },
                BinaryFn::Max => if a.is_nan() || a > b { a } else { b },
                other => unreachable!("{other:?} of floats"),
            }
        }
    };
}
binary_float!(binary_f32, f32, libm::powf, libm::fmodf);
binary_float!(binary_f64, f64, libm::pow, libm::fmod);

pub fn select(condition: &Tensor, then: &Tensor, otherwise: &Tensor, shape: &Shape) -> Tensor {
    let condition: Vec<bool> = broadcast(condition, shape).elements();
    let ty = TensorType::new(then.dtype(), shape.clone());
    let ((then, size), (otherwise, _)) = (cells(&broadcast(then, shape)), cells(&broadcast(otherwise, shape)));
    let mut chosen = Vec::with_capacity(then.len());
    for (at, holds) in condition.into_iter().enumerate() {
        chosen.extend_from_slice(&(if holds { &then } else { &otherwise })[at * size..][..size]);
    }
    from_cells(ty, chosen)
}

pub fn cast(dtype: DType, x: &Tensor) -> Tensor {
    let (low, high) = if dtype.is_integer() { dtype.integer_range() } else { (0, 0) };
    let convert = |number: Number| match number {
        Number::Float(value) if dtype.is_integer() => Number::UInt((value as i128).clamp(low, high) as u64),
        number if dtype == DType::Bool => Number::Int(i64::from(number.as_f64() != 0.0)),
        Number::Float(value) => Number::Float(value),
        // Rounded once: not by way of f64.
        Number::Int(value) if dtype == DType::F32 => Number::Float(f64::from(value as f32)),
        Number::UInt(value) if dtype == DType::F32 => Number::Float(f64::from(value as f32)),
        number if dtype == DType::F16 => Number::Float(f64::from(f16::from_f64(number.as_f64()))),
        number if dtype == DType::BF16 => Number::Float(f64::from(bf16::from_f64(number.as_f64()))),
        number => number,
    };
    Tensor::from_numbers(TensorType::new(dtype, x.shape().clone()), x.numbers().map(convert))
}
