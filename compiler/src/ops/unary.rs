//! Operators of one operand, element by element, except activation functions.

use mcc_support::{DType, Result};

use super::{NodeContext, OpDef};
use crate::graph::{UnaryFn, Wire};

pub static ALL: &[&OpDef] = &[
    &ABS, &ACOS, &ACOSH, &ASIN, &ASINH, &ATAN, &ATANH, &BITWISE_NOT, &CEIL, &COS, &COSH, &ERF, &EXP, &FLOOR, &IS_INF, &IS_NAN,
    &LOG, &NEG, &NOT, &RECIPROCAL, &ROUND, &SIGN, &SIN, &SINH, &SQRT, &TAN,
];

/// `unary!(EXP, "Exp", [6, 13], |x| x.exp())`
macro_rules! unary {
    ($(#[$attr:meta])* $ident:ident, $name:literal, $since:expr, |$x:ident| $formula:expr) => {
        $(#[$attr])*
        pub static $ident: OpDef = OpDef {
            domain: "",
            name: $name,
            since: &$since,
            shape_inputs: &[],
            build: |node| {
                let $x = node.input(0)?;
                Ok(vec![$formula])
            },
        };
    };
}
pub(super) use unary;

unary!(ABS, "Abs", [6, 13], |x| x.abs());
unary!(ACOS, "Acos", [7, 22], |x| x.unary(UnaryFn::Acos));
unary!(ACOSH, "Acosh", [9, 22], |x| x.unary(UnaryFn::Acosh));
unary!(ASIN, "Asin", [7, 22], |x| x.unary(UnaryFn::Asin));
unary!(ASINH, "Asinh", [9, 22], |x| x.unary(UnaryFn::Asinh));
unary!(ATAN, "Atan", [7, 22], |x| x.unary(UnaryFn::Atan));
unary!(ATANH, "Atanh", [9, 22], |x| x.unary(UnaryFn::Atanh));
unary!(CEIL, "Ceil", [6, 13], |x| x.unary(UnaryFn::Ceil));
unary!(COS, "Cos", [7, 22], |x| x.unary(UnaryFn::Cos));
unary!(COSH, "Cosh", [9, 22], |x| x.unary(UnaryFn::Cosh));
unary!(ERF, "Erf", [9, 13], |x| x.unary(UnaryFn::Erf));
unary!(EXP, "Exp", [6, 13], |x| x.exp());
unary!(FLOOR, "Floor", [6, 13], |x| x.unary(UnaryFn::Floor));
unary!(IS_NAN, "IsNaN", [9, 13, 20], |x| computed(x).unary(UnaryFn::IsNan));
unary!(LOG, "Log", [6, 13], |x| x.log());
unary!(NEG, "Neg", [6, 13], |x| -x);
unary!(RECIPROCAL, "Reciprocal", [6, 13], |x| 1.0 / x);
unary!(
    /// Ties to even.
    ROUND, "Round", [11, 22], |x| x.unary(UnaryFn::Round));
unary!(SIGN, "Sign", [9, 13], |x| x.unary(UnaryFn::Sign));
unary!(SIN, "Sin", [7, 22], |x| x.unary(UnaryFn::Sin));
unary!(SINH, "Sinh", [9, 22], |x| x.unary(UnaryFn::Sinh));
unary!(SQRT, "Sqrt", [6, 13], |x| x.sqrt());
unary!(TAN, "Tan", [7, 22], |x| x.unary(UnaryFn::Tan));

/// A small float as an f32, which there are tests of.
fn computed(x: Wire<'_>) -> Wire<'_> {
    if x.dtype().small_float().is_some() { x.cast(DType::F32) } else { x }
}

pub static NOT: OpDef = OpDef {
    domain: "",
    name: "Not",
    since: &[1],
    shape_inputs: &[],
    build: |node| not(node, "bool", |dtype| dtype == DType::Bool),
};

pub static BITWISE_NOT: OpDef = OpDef {
    domain: "",
    name: "BitwiseNot",
    since: &[18],
    shape_inputs: &[],
    build: |node| not(node, "an integer", DType::is_integer),
};

fn not<'b>(node: &NodeContext<'_, 'b>, what: &str, accepts: fn(DType) -> bool) -> Result<Vec<Wire<'b>>> {
    let x = node.input(0)?;
    node.expect_dtype(x, what, accepts)?;
    Ok(vec![!x])
}

/// Of one sign only, where the attributes say so.
pub static IS_INF: OpDef = OpDef {
    domain: "",
    name: "IsInf",
    since: &[10, 20],
    shape_inputs: &[],
    build: |node| {
        let x = computed(node.input(0)?);
        let negative = node.attributes().flag("detect_negative", true)?;
        let positive = node.attributes().flag("detect_positive", true)?;
        let infinite = x.unary(UnaryFn::IsInf);
        let zero = x.like(0.0);
        Ok(vec![match (negative, positive) {
            (true, true) => infinite,
            (true, false) => infinite.and(x.lt(zero)),
            (false, true) => infinite.and(zero.lt(x)),
            (false, false) => infinite.and(!infinite),
        }])
    },
};
