//! Scalar functions as expressions of primitive operations. A function of one expression always has the same bits, whatever the
//! target: a product and a sum are rounded once where the expression says so ([`Expr::Fma`]) and nowhere else, and elementary functions
//! are polynomials and rational functions, with the largest measured error in their doc comments (`tests`).
//!
//! f16 and bf16 are converted to f32, computed there and rounded back. In f32, `exp`, `log`, `tanh`, `sigmoid` and `erf` use operations on
//! 32-bit lanes only; the other elementary functions go through f64.
//!
//! For whole tensors, see [`map`].

mod arithmetic;
mod circular;
mod convert;
mod error_function;
mod exponential;
mod map;
#[cfg(test)]
mod tests;
pub mod value;

use mcc_support::{DType, bug};

use super::expr::{Binary, Expr, ExprId, Exprs, Unary};
use super::{VarId, primitive};
use crate::graph::op::{BinaryFn, ReduceFn, UnaryFn};
pub use map::{Function, eval, map, read, write};
use value::{Value, formula};

fn is_short_float(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// The integer type that holds the bits of values that expressions move but do not compute with; of a packed type, a byte that
/// holds the number, or the bits of a float. Of other types, the type itself.
pub fn carrier(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::U16,
        DType::I2 | DType::I4 => DType::I8,
        DType::U2 | DType::U4 => DType::U8,
        other if other.small_float().is_some() => DType::U8,
        other => other,
    }
}

/// `f(x)`. `x` has a dtype for which the function makes sense, other than the packed ones.
pub fn unary(exprs: &mut Exprs, f: UnaryFn, x: ExprId) -> ExprId {
    formula(exprs, [x], |[x]| unary_value(f, x))
}

/// `f(a, b)` for operands of one dtype, other than the packed ones.
pub fn binary(exprs: &mut Exprs, f: BinaryFn, a: ExprId, b: ExprId) -> ExprId {
    formula(exprs, [a, b], |[a, b]| binary_value(f, a, b))
}

/// `cond ? a : b`.
pub fn select(exprs: &mut Exprs, cond: ExprId, a: ExprId, b: ExprId) -> ExprId {
    formula(exprs, [cond, a, b], |[cond, a, b]| match a.dtype() {
        DType::Bool => cond.and(a).or(cond.not().and(b)),
        dtype => cond.then(a.bitcast(carrier(dtype)), b.bitcast(carrier(dtype))).bitcast(dtype),
    })
}

/// As the op `Cast`.
pub fn cast(exprs: &mut Exprs, to: DType, x: ExprId) -> ExprId {
    formula(exprs, [x], |[x]| convert::convert(x, to))
}

/// As the op `Cast`, to a packed dtype; the value is held in its [`carrier`].
pub fn narrow(exprs: &mut Exprs, to: DType, x: ExprId) -> ExprId {
    formula(exprs, [x], |[x]| convert::narrow(x, to))
}

/// As the op `Cast`, from a packed dtype, of a value that is held in its [`carrier`].
pub fn widen(exprs: &mut Exprs, from: DType, to: DType, x: ExprId) -> ExprId {
    formula(exprs, [x], |[x]| convert::widen(x, from, to))
}

/// As the op `Bitcast`, between packed dtypes; both values are held in their [`carrier`]s.
pub fn reinterpret(exprs: &mut Exprs, to: DType, x: ExprId) -> ExprId {
    formula(exprs, [x], |[x]| convert::low_bits(x, to))
}

/// The dtype in which values of `dtype` are summed and multiplied up: f32 for the floats of 16 bits, otherwise itself.
pub fn accumulator(dtype: DType) -> DType {
    if is_short_float(dtype) { DType::F32 } else { dtype }
}

/// What a reduction starts from, in a dtype of [`accumulator`].
pub fn identity(exprs: &mut Exprs, kind: ReduceFn, dtype: DType) -> ExprId {
    let float = |value: f64| if dtype == DType::F32 { u64::from((value as f32).to_bits()) } else { value.to_bits() };
    let bits = match (kind, dtype) {
        (ReduceFn::Max | ReduceFn::MaxNumber | ReduceFn::Sum, DType::Bool) => 0,
        (ReduceFn::Min | ReduceFn::Prod, DType::Bool) => 1,
        (ReduceFn::Sum, _) => 0,
        (ReduceFn::Prod, DType::F32 | DType::F64) => float(1.0),
        (ReduceFn::Prod, _) => 1,
        (ReduceFn::Max | ReduceFn::MaxNumber, DType::F32 | DType::F64) => float(f64::NEG_INFINITY),
        (ReduceFn::Min, DType::F32 | DType::F64) => float(f64::INFINITY),
        (ReduceFn::Max | ReduceFn::MaxNumber, _) => dtype.integer_range().0 as u64 & primitive::mask(dtype),
        (ReduceFn::Min, _) => dtype.integer_range().1 as u64 & primitive::mask(dtype),
    };
    exprs.add(Expr::Const(dtype, bits))
}

/// One step of a reduction; [`as_combine`] knows it again. The maximum of floats is `isnan(term) ? term : max(term, acc)`, the
/// greatest number `max(term, acc)`: the primitive gives its second operand where the first is NaN.
pub fn combine(exprs: &mut Exprs, kind: ReduceFn, acc: ExprId, term: ExprId) -> ExprId {
    formula(exprs, [acc, term], |[acc, term]| match (kind, acc.dtype()) {
        (ReduceFn::Sum | ReduceFn::Max | ReduceFn::MaxNumber, DType::Bool) => acc.or(term),
        (ReduceFn::Prod | ReduceFn::Min, DType::Bool) => acc.and(term),
        (ReduceFn::Sum, _) => acc + term,
        (ReduceFn::Prod, _) => acc * term,
        (ReduceFn::Max, dtype) if dtype.is_float() => term.is_nan().then(term, term.max(acc)),
        (ReduceFn::Min, dtype) if dtype.is_float() => term.is_nan().then(term, term.min(acc)),
        (ReduceFn::Max | ReduceFn::MaxNumber, _) => term.max(acc),
        (ReduceFn::Min, _) => term.min(acc),
    })
}

/// Whether `value` is `var ∘ term` as [`combine`] builds it, and with which term. A maximum of floats without the test for NaN is
/// one too; the term must not read the variable, which is not looked into.
pub fn as_combine(exprs: &Exprs, var: VarId, value: ExprId) -> Option<(ReduceFn, ExprId)> {
    let is_var = |id: ExprId| *exprs.get(id) == Expr::Var(var);
    match *exprs.get(value) {
        Expr::Binary(op, a, b) => {
            let kind = match op {
                Binary::Add => ReduceFn::Sum,
                Binary::Mul => ReduceFn::Prod,
                Binary::Max | Binary::Or => ReduceFn::Max,
                Binary::Min | Binary::And => ReduceFn::Min,
                _ => return None,
            };
            match () {
                () if is_var(a) => Some((kind, b)),
                () if is_var(b) => Some((kind, a)),
                () => None,
            }
        }
        Expr::Select(cond, term, rest) if *exprs.get(cond) == Expr::Binary(Binary::Ne, term, term) => {
            match as_combine(exprs, var, rest)? {
                (kind @ (ReduceFn::Max | ReduceFn::Min), other) if other == term => Some((kind, term)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn unary_value<'p>(f: UnaryFn, x: Value<'p>) -> Value<'p> {
    let dtype = x.dtype();
    if is_short_float(dtype) {
        let y = unary_value(f, convert::convert(x, DType::F32));
        return if y.dtype() == DType::Bool { y } else { convert::convert(y, dtype) };
    }
    // Through f64, for the functions that have only that form.
    let wide = |g: fn(Value<'p>) -> Value<'p>| g(x.cast(DType::F64)).cast(dtype);
    match f {
        UnaryFn::Neg => -x,
        UnaryFn::Abs if !dtype.is_signed() => x,
        UnaryFn::Abs => x.abs(),
        UnaryFn::Sign => arithmetic::sign(x),
        UnaryFn::Not => x.not(),
        UnaryFn::IsNan if !dtype.is_float() => x.bits_of(DType::Bool, 0),
        UnaryFn::IsNan => x.is_nan(),
        UnaryFn::IsInf if !dtype.is_float() => x.bits_of(DType::Bool, 0),
        UnaryFn::IsInf => x.abs().eq(f64::INFINITY),
        UnaryFn::Floor | UnaryFn::Ceil | UnaryFn::Trunc | UnaryFn::Round if !dtype.is_float() => x,
        UnaryFn::Floor => x.floor(),
        UnaryFn::Ceil => x.round(Unary::Ceil),
        UnaryFn::Trunc => x.trunc(),
        UnaryFn::Round => x.round(Unary::Nearest),
        _ if !dtype.is_float() => bug!("{f:?} of {dtype}"),
        UnaryFn::Sqrt => x.sqrt(),
        UnaryFn::Exp => exponential::exp(x),
        UnaryFn::ExpOfNegative => exponential::exp_of_negative(x),
        UnaryFn::Log => exponential::log(x),
        UnaryFn::Tanh => exponential::tanh(x),
        UnaryFn::Sigmoid => exponential::sigmoid(x),
        UnaryFn::Erf => error_function::erf(x),
        UnaryFn::Sin => circular::sin(x),
        UnaryFn::Cos => circular::cos(x),
        UnaryFn::Tan => circular::tan(x),
        UnaryFn::Asin => wide(circular::asin),
        UnaryFn::Acos => wide(circular::acos),
        UnaryFn::Atan => wide(circular::atan),
        UnaryFn::Sinh => wide(exponential::sinh),
        UnaryFn::Cosh => wide(exponential::cosh),
        UnaryFn::Asinh => wide(exponential::asinh),
        UnaryFn::Acosh => wide(exponential::acosh),
        UnaryFn::Atanh => wide(exponential::atanh),
    }
}

fn binary_value<'p>(f: BinaryFn, a: Value<'p>, b: Value<'p>) -> Value<'p> {
    let dtype = a.dtype();
    if is_short_float(dtype) {
        let single = |x| convert::convert(x, DType::F32);
        let y = binary_value(f, single(a), single(b));
        return if y.dtype() == DType::Bool { y } else { convert::convert(y, dtype) };
    }
    if dtype == DType::Bool {
        return bool_value(f, a, b);
    }
    match f {
        BinaryFn::Add => a + b,
        BinaryFn::Sub => a - b,
        BinaryFn::Mul => a * b,
        BinaryFn::Div => a / b,
        BinaryFn::Rem => arithmetic::rem(a, b),
        BinaryFn::Mod => arithmetic::modulo(a, b),
        BinaryFn::Pow if dtype.is_float() => exponential::pow(a, b),
        BinaryFn::Pow => arithmetic::pow_integer(a, b),
        BinaryFn::Min => arithmetic::min(a, b),
        BinaryFn::Max => arithmetic::max(a, b),
        BinaryFn::And => a.and(b),
        BinaryFn::Or => a.or(b),
        BinaryFn::Xor => a.xor(b),
        BinaryFn::Shl => arithmetic::shift(a, b, true),
        BinaryFn::Shr => arithmetic::shift(a, b, false),
        BinaryFn::Eq => a.eq(b),
        BinaryFn::Lt => a.lt(b),
        BinaryFn::Le => a.le(b),
    }
}

/// Of truth values, false before true.
fn bool_value<'p>(f: BinaryFn, a: Value<'p>, b: Value<'p>) -> Value<'p> {
    match f {
        BinaryFn::And | BinaryFn::Mul | BinaryFn::Min => a.and(b),
        BinaryFn::Or | BinaryFn::Add | BinaryFn::Max => a.or(b),
        BinaryFn::Xor => a.xor(b),
        BinaryFn::Eq => a.xor(b).not(),
        BinaryFn::Lt => a.not().and(b),
        BinaryFn::Le => a.not().or(b),
        other => bug!("{other:?} of bool"),
    }
}
