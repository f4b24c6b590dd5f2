//! Expressions written as formulas: a copyable handle with arithmetic operators.
#![allow(clippy::should_implement_trait, reason = "the methods beside the operators take constants as well")]

use std::cell::RefCell;
use std::mem;
use std::ops;

use mcc_support::DType;

use crate::loops::expr::{Binary, Expr, ExprId, Exprs, Unary};
use crate::loops::primitive;

/// An expression in a pool.
#[derive(Clone, Copy, Debug)]
pub struct Value<'p> {
    pool: &'p RefCell<Exprs>,
    pub id: ExprId,
}

/// Writes a formula over `operands`.
pub fn formula<const N: usize>(
    exprs: &mut Exprs,
    operands: [ExprId; N],
    write: impl for<'p> FnOnce([Value<'p>; N]) -> Value<'p>,
) -> ExprId {
    let pool = RefCell::new(mem::take(exprs));
    let id = write(operands.map(|id| Value { pool: &pool, id })).id;
    *exprs = pool.into_inner();
    id
}

/// A value, or a constant of the dtype of the value that it meets.
pub trait Operand<'p> {
    fn of(self, like: Value<'p>) -> Value<'p>;
}

impl<'p> Operand<'p> for Value<'p> {
    fn of(self, _: Value<'p>) -> Value<'p> {
        self
    }
}

impl<'p> Operand<'p> for f64 {
    fn of(self, like: Value<'p>) -> Value<'p> {
        match like.dtype() {
            DType::F32 => like.bits_of(DType::F32, u64::from((self as f32).to_bits())),
            DType::F64 => like.bits_of(DType::F64, self.to_bits()),
            other => panic!("a float beside {other}"),
        }
    }
}

impl<'p> Operand<'p> for i64 {
    fn of(self, like: Value<'p>) -> Value<'p> {
        let dtype = like.dtype();
        assert!(!dtype.is_float(), "an integer beside {dtype}");
        like.bits_of(dtype, self as u64 & primitive::mask(dtype))
    }
}

impl<'p> Value<'p> {
    fn add_expr(self, expr: Expr) -> Value<'p> {
        Value { pool: self.pool, id: self.pool.borrow_mut().add(expr) }
    }

    pub fn dtype(self) -> DType {
        self.pool.borrow().dtype(self.id)
    }

    /// The bits, where this is a constant.
    pub fn constant(self) -> Option<u64> {
        match self.pool.borrow().get(self.id) {
            Expr::Const(_, bits) => Some(*bits),
            _ => None,
        }
    }

    /// A constant in this value's pool, by its bits.
    pub fn bits_of(self, dtype: DType, bits: u64) -> Value<'p> {
        self.add_expr(Expr::Const(dtype, bits))
    }

    /// A constant of this value's dtype.
    pub fn like(self, constant: impl Operand<'p>) -> Value<'p> {
        constant.of(self)
    }

    pub fn binary(self, op: Binary, other: impl Operand<'p>) -> Value<'p> {
        self.add_expr(Expr::Binary(op, self.id, other.of(self).id))
    }

    fn unary(self, op: Unary) -> Value<'p> {
        self.add_expr(Expr::Unary(op, self.id))
    }

    pub fn abs(self) -> Self {
        self.unary(Unary::Abs)
    }

    pub fn not(self) -> Self {
        self.unary(Unary::Not)
    }

    pub fn sqrt(self) -> Self {
        self.unary(Unary::Sqrt)
    }

    pub fn floor(self) -> Self {
        self.unary(Unary::Floor)
    }

    pub fn trunc(self) -> Self {
        self.unary(Unary::Trunc)
    }

    pub fn round(self, op: Unary) -> Self {
        self.unary(op)
    }

    /// `self < other ? self : other`, the primitive.
    pub fn min(self, other: impl Operand<'p>) -> Self {
        self.binary(Binary::Min, other)
    }

    /// `self > other ? self : other`, the primitive.
    pub fn max(self, other: impl Operand<'p>) -> Self {
        self.binary(Binary::Max, other)
    }

    /// Not above a constant; NaN stays.
    pub fn at_most(self, limit: impl Operand<'p>) -> Self {
        limit.of(self).min(self)
    }

    /// Not below a constant; NaN stays.
    pub fn at_least(self, limit: impl Operand<'p>) -> Self {
        limit.of(self).max(self)
    }

    pub fn and(self, other: impl Operand<'p>) -> Self {
        self.binary(Binary::And, other)
    }

    pub fn or(self, other: impl Operand<'p>) -> Self {
        self.binary(Binary::Or, other)
    }

    pub fn xor(self, other: impl Operand<'p>) -> Self {
        self.binary(Binary::Xor, other)
    }

    pub fn shl(self, amount: impl Operand<'p>) -> Self {
        self.binary(Binary::Shl, amount)
    }

    pub fn shr(self, amount: impl Operand<'p>) -> Self {
        self.binary(Binary::Shr, amount)
    }

    pub fn eq(self, other: impl Operand<'p>) -> Self {
        self.binary(Binary::Eq, other)
    }

    pub fn ne(self, other: impl Operand<'p>) -> Self {
        self.binary(Binary::Ne, other)
    }

    pub fn lt(self, other: impl Operand<'p>) -> Self {
        self.binary(Binary::Lt, other)
    }

    pub fn le(self, other: impl Operand<'p>) -> Self {
        self.binary(Binary::Le, other)
    }

    pub fn gt(self, other: impl Operand<'p>) -> Self {
        other.of(self).lt(self)
    }

    pub fn ge(self, other: impl Operand<'p>) -> Self {
        other.of(self).le(self)
    }

    pub fn is_nan(self) -> Self {
        self.ne(self)
    }

    /// Of a `bool`: `then` where it holds.
    pub fn then(self, then: Value<'p>, otherwise: impl Operand<'p>) -> Self {
        self.add_expr(Expr::Select(self.id, then.id, otherwise.of(then).id))
    }

    /// One of the conversions of `primitive::is_cast`.
    pub fn cast(self, dtype: DType) -> Self {
        if self.dtype() == dtype { self } else { self.add_expr(Expr::Cast(dtype, self.id)) }
    }

    pub fn bitcast(self, dtype: DType) -> Self {
        match self.constant() {
            _ if self.dtype() == dtype => self,
            Some(bits) => self.bits_of(dtype, bits),
            None => self.add_expr(Expr::Bitcast(dtype, self.id)),
        }
    }

    /// The signed integer type of this value's width.
    pub fn signed(self) -> DType {
        match self.dtype().size_bits() {
            8 => DType::I8,
            16 => DType::I16,
            32 => DType::I32,
            _ => DType::I64,
        }
    }

    /// Of a float: its bits as a signed integer.
    pub fn to_bits(self) -> Self {
        self.bitcast(self.signed())
    }

    /// The magnitude of a number that is not negative, with the sign of `sign`.
    pub fn with_sign_of(self, sign: Value<'p>) -> Self {
        let low = if sign.dtype().size_bits() == 64 { i64::MIN } else { i64::from(i32::MIN) };
        self.to_bits().or(sign.to_bits().and(low)).bitcast(sign.dtype())
    }

    /// `self · factor + addend`, of `f32` rounded once.
    pub fn mul_add(self, factor: impl Operand<'p>, addend: impl Operand<'p>) -> Self {
        let (factor, addend) = (factor.of(self), addend.of(self));
        if self.dtype() == DType::F32 { self.add_expr(Expr::Fma(self.id, factor.id, addend.id)) } else { self * factor + addend }
    }

    /// `c[0] + x (c[1] + x (c[2] + …))`, by [`Value::mul_add`].
    pub fn polynomial(self, coefficients: &[f64]) -> Self {
        let (last, rest) = coefficients.split_last().expect("a polynomial has a coefficient");
        rest.iter().rev().fold(self.like(*last), |sum, &c| sum.mul_add(self, c))
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident),*) => {$(
        impl<'p, O: Operand<'p>> ops::$trait<O> for Value<'p> {
            type Output = Value<'p>;
            fn $method(self, other: O) -> Value<'p> { self.binary(Binary::$trait, other) }
        }
        impl<'p> ops::$trait<Value<'p>> for f64 {
            type Output = Value<'p>;
            fn $method(self, other: Value<'p>) -> Value<'p> { self.of(other).binary(Binary::$trait, other) }
        }
    )*};
}
operator!(Add add, Sub sub, Mul mul, Div div);

impl<'p> ops::Neg for Value<'p> {
    type Output = Value<'p>;
    fn neg(self) -> Value<'p> {
        self.unary(Unary::Neg)
    }
}
