//! Operators of two and more operands, element by element. From opset 7 on, operands broadcast as numpy's; in opset 6, the second
//! one does where an attribute allows it.

use mcc_support::{DType, Result, Shape};

use super::{NodeContext, OpDef};
use crate::graph::{BinaryFn, Wire};

pub static ALL: &[&OpDef] = &[
    &ADD, &AND, &BIT_SHIFT, &BITWISE_AND, &BITWISE_OR, &BITWISE_XOR, &CLIP, &DIV, &EQUAL, &GREATER, &GREATER_OR_EQUAL, &LESS,
    &LESS_OR_EQUAL, &MAX, &MEAN, &MIN, &MOD, &MUL, &OR, &POW, &SUB, &SUM, &WHERE, &XOR,
];

/// `binary!(LESS, "Less", [1, 7, 9, 13], any, |a, b| a.lt(b))`, where `any` names the types of the operands.
macro_rules! binary {
    ($ident:ident, $name:literal, $since:expr, $accepts:ident, |$a:ident, $b:ident| $formula:expr) => {
        pub static $ident: OpDef = OpDef {
            domain: "",
            name: $name,
            since: &$since,
            shape_inputs: &[],
            build: |node| {
                let ($a, $b) = $accepts(node)?;
                Ok(vec![$formula])
            },
        };
    };
}

fn any<'b>(node: &NodeContext<'_, 'b>) -> Result<(Wire<'b>, Wire<'b>)> {
    let (a, b) = (node.input(0)?, node.input(1)?);
    Ok((a, if node.version() < 7 { aligned(node, a.shape(), b)? } else { b }))
}

/// Before opset 7: the second operand has the shape of the first, or with `broadcast` that of some of its axes in a row: the last
/// ones, or those from `axis` on.
fn aligned<'b>(node: &NodeContext<'_, 'b>, shape: Shape, b: Wire<'b>) -> Result<Wire<'b>> {
    let attributes = node.attributes();
    let broadcast = attributes.flag("broadcast", false)?;
    let part = b.shape();
    let axis = match attributes.int("axis")? {
        Some(axis) if broadcast && part.rank() > 0 => node.axis(axis, shape.rank())?,
        _ => shape.rank().saturating_sub(part.rank()),
    };
    let mut dims = part.clone().into_dims();
    dims.extend(std::iter::repeat_n(1, shape.rank().saturating_sub(axis + part.rank())));
    let fits = Shape::new(dims.clone()).broadcast(&shape).as_ref() == Some(&shape);
    if fits && (broadcast || part == shape) {
        Ok(b.reshape(dims))
    } else {
        Err(node.error(format!("an operand of shape {part} does not fit one of shape {shape} in opset {}", node.version())))
    }
}

fn logical<'b>(node: &NodeContext<'_, 'b>) -> Result<(Wire<'b>, Wire<'b>)> {
    let (a, b) = any(node)?;
    node.expect_dtype(a, "bool", |dtype| dtype == DType::Bool)?;
    Ok((a, b))
}

fn bitwise<'b>(node: &NodeContext<'_, 'b>) -> Result<(Wire<'b>, Wire<'b>)> {
    let (a, b) = any(node)?;
    node.expect_dtype(a, "an integer", DType::is_integer)?;
    Ok((a, b))
}

binary!(ADD, "Add", [6, 7, 13, 14], any, |a, b| a + b);
binary!(SUB, "Sub", [6, 7, 13, 14], any, |a, b| a - b);
binary!(MUL, "Mul", [6, 7, 13, 14], any, |a, b| a * b);
binary!(DIV, "Div", [6, 7, 13, 14], any, |a, b| a / b);
binary!(EQUAL, "Equal", [1, 7, 11, 13, 19], any, |a, b| a.eq(b));
binary!(LESS, "Less", [1, 7, 9, 13], any, |a, b| a.lt(b));
binary!(LESS_OR_EQUAL, "LessOrEqual", [12, 16], any, |a, b| a.le(b));
binary!(GREATER, "Greater", [1, 7, 9, 13], any, |a, b| b.lt(a));
binary!(GREATER_OR_EQUAL, "GreaterOrEqual", [12, 16], any, |a, b| b.le(a));
binary!(AND, "And", [1, 7], logical, |a, b| a.and(b));
binary!(OR, "Or", [1, 7], logical, |a, b| a.binary(BinaryFn::Or, b));
binary!(XOR, "Xor", [1, 7], logical, |a, b| a.binary(BinaryFn::Xor, b));
binary!(BITWISE_AND, "BitwiseAnd", [18], bitwise, |a, b| a.and(b));
binary!(BITWISE_OR, "BitwiseOr", [18], bitwise, |a, b| a.binary(BinaryFn::Or, b));
binary!(BITWISE_XOR, "BitwiseXor", [18], bitwise, |a, b| a.binary(BinaryFn::Xor, b));

pub static BIT_SHIFT: OpDef = OpDef {
    domain: "",
    name: "BitShift",
    since: &[11],
    shape_inputs: &[],
    build: |node| {
        let (a, b) = any(node)?;
        let direction = node.attributes().required("direction", node.attributes().string("direction")?)?;
        let function = match direction {
            "LEFT" => BinaryFn::Shl,
            "RIGHT" => BinaryFn::Shr,
            other => return Err(node.error(format!("attribute 'direction' is '{other}', which is not one of LEFT, RIGHT"))),
        };
        Ok(vec![a.binary(function, b)])
    },
};

/// The sign is the divisor's, or with `fmod` the dividend's; floats need `fmod`.
pub static MOD: OpDef = OpDef {
    domain: "",
    name: "Mod",
    since: &[10, 13],
    shape_inputs: &[],
    build: |node| {
        let (a, b) = any(node)?;
        if node.attributes().flag("fmod", false)? {
            return Ok(vec![a.binary(BinaryFn::Rem, b)]);
        }
        node.expect_dtype(a, "an integer unless attribute 'fmod' is 1", DType::is_integer)?;
        Ok(vec![a.binary(BinaryFn::Mod, b)])
    },
};

/// From opset 12 on, the exponent may be of another type; the result is of the base's.
pub static POW: OpDef = OpDef {
    domain: "",
    name: "Pow",
    since: &[1, 7, 12, 13, 15],
    shape_inputs: &[],
    build: |node| {
        let (base, exponent) = any(node)?;
        let square = exponent.constant().is_some_and(|tensor| tensor.count() == 1 && tensor.number(0).as_f64() == 2.0);
        if square && exponent.rank() <= base.rank() {
            return Ok(vec![base * base]);
        }
        if exponent.dtype().is_float() && !base.dtype().is_float() {
            return Ok(vec![base.cast(exponent.dtype()).pow(exponent).cast(base.dtype())]);
        }
        Ok(vec![base.pow(exponent.cast(base.dtype()))])
    },
};

/// Declares an operator of any number of operands.
macro_rules! variadic {
    ($ident:ident, $name:literal, $since:expr, |$a:ident, $b:ident| $formula:expr) => {
        pub static $ident: OpDef = OpDef {
            domain: "",
            name: $name,
            since: &$since,
            shape_inputs: &[],
            build: |node| Ok(vec![reduce(node, |$a, $b| $formula)?]),
        };
    };
}

fn reduce<'b>(node: &NodeContext<'_, 'b>, function: fn(Wire<'b>, Wire<'b>) -> Wire<'b>) -> Result<Wire<'b>> {
    node.inputs_from(0)?.into_iter().reduce(function).ok_or_else(|| node.error("there is no operand"))
}

variadic!(MAX, "Max", [6, 8, 12, 13], |a, b| a.max(b));
variadic!(MIN, "Min", [6, 8, 12, 13], |a, b| a.min(b));
variadic!(SUM, "Sum", [6, 8, 13], |a, b| a + b);

pub static MEAN: OpDef = OpDef {
    domain: "",
    name: "Mean",
    since: &[6, 8, 13],
    shape_inputs: &[],
    build: |node| Ok(vec![reduce(node, |a, b| a + b)? / node.input_count() as f64]),
};

pub static WHERE: OpDef = OpDef {
    domain: "",
    name: "Where",
    since: &[9, 16],
    shape_inputs: &[],
    build: |node| Ok(vec![node.input(0)?.select(node.input(1)?, node.input(2)?)]),
};

/// The bounds are attributes before opset 11, then inputs. Where they cross, the result is the upper one.
pub static CLIP: OpDef = OpDef {
    domain: "",
    name: "Clip",
    since: &[6, 11, 12, 13],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let (low, high) = if node.version() < 11 {
            let attribute = |name| Ok(node.attributes().float(name)?.map(|bound| x.like(f64::from(bound))));
            (attribute("min")?, attribute("max")?)
        } else {
            (node.optional_scalar(1)?, node.optional_scalar(2)?)
        };
        let x = low.map_or(x, |low| x.max(low));
        Ok(vec![high.map_or(x, |high| x.min(high))])
    },
};
