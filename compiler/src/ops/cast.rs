//! Conversions between element types.

use mcc_support::{DType, Result, SmallFloat, Specials, Tensor};

use super::{NodeContext, OpDef};
use crate::graph::{BinaryFn, Op, UnaryFn, Wire};

pub static ALL: &[&OpDef] = &[&BIT_CAST, &CAST, &CAST_LIKE];

/// As the attributes of the operator say, which speak of floats of 8 bits only.
fn cast<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, to: DType) -> Result<Wire<'b>> {
    let attributes = node.attributes();
    let saturate = if node.version() < 19 { true } else { attributes.flag("saturate", true)? };
    let round_mode = if node.version() < 24 { "up" } else { attributes.word("round_mode", &["up", "down", "nearest"])? };
    let x = match round_mode {
        "up" => x,
        _ if to != DType::F8E8M0 => x,
        mode => to_power_of_two(x, mode == "nearest"),
    };
    Ok(if saturate { x.cast(to) } else { cast_or_overflow(x, to) })
}

/// Of a magnitude: the next power of two towards zero, or the nearest, of two the greater.
fn to_power_of_two(x: Wire<'_>, nearest: bool) -> Wire<'_> {
    let x = x.cast(DType::F64);
    let constant = |bits: u64| x.builder().constant(Tensor::scalar(bits));
    let bits = x.builder().add(Op::Bitcast(DType::U64), &[x]);
    let rounded = if nearest { bits + constant(1 << 51) } else { bits }.and(constant(!((1 << 52) - 1)));
    let power = x.builder().add(Op::Bitcast(DType::F64), &[rounded]);
    x.unary(UnaryFn::IsNan).select(x, power)
}

/// A conversion in which what is too large for a float of 8 bits becomes infinity where that has one, otherwise NaN.
pub fn cast_or_overflow(x: Wire<'_>, to: DType) -> Wire<'_> {
    let Some(format) = to.small_float().filter(|format| format.specials != Specials::None) else { return x.cast(to) };
    let x = match x.dtype() {
        float if float.is_float() && float.is_computed_with() => x,
        float if float.is_float() => x.cast(DType::F32),
        _ => x.cast(DType::F64),
    };
    let code = |code: u32| x.builder().constant(Tensor::scalar(code as u8));
    let (overflow, signed) = match format.specials {
        Specials::LastExponent => (format.greatest_code() + 1, true),
        _ => format.nan_code(),
    };
    let special = if signed && format.sign_mask() != 0 {
        x.lt(x.like(0.0)).select(code(overflow | format.sign_mask()), code(overflow))
    } else {
        code(overflow)
    };
    let bits = x.builder().add(Op::Bitcast(DType::U8), &[x.cast(to)]);
    x.builder().add(Op::Bitcast(to), &[overflows(x, format).select(special, bits)])
}

/// Whether the rounded magnitude is none of the format's.
fn overflows(x: Wire<'_>, format: SmallFloat) -> Wire<'_> {
    let (magnitude, greatest) = (x.abs(), format.greatest());
    if format.is_scale() {
        let above = magnitude.like(greatest).lt(magnitude);
        let below = magnitude.le(magnitude.like(format.decode(0) / 2.0));
        return above.binary(BinaryFn::Or, below);
    }
    // The middle to the next number, if there were one, goes to the even code.
    let middle = magnitude.like(greatest + (greatest - format.decode(format.greatest_code() - 1)) / 2.0);
    if format.greatest_code().is_multiple_of(2) { middle.lt(magnitude) } else { middle.le(magnitude) }
}

pub static CAST: OpDef = OpDef {
    domain: "",
    name: "Cast",
    since: &[6, 9, 13, 19, 21, 23, 24, 25],
    shape_inputs: &[],
    build: |node| {
        let to = node.attributes().required("to", node.attributes().dtype("to")?)?;
        Ok(vec![cast(node, node.input(0)?, to)?])
    },
};

pub static CAST_LIKE: OpDef = OpDef {
    domain: "",
    name: "CastLike",
    since: &[15, 19, 21, 23, 24, 25],
    shape_inputs: &[],
    build: |node| {
        let (x, like) = (node.input(0)?, node.input(1)?);
        Ok(vec![cast(node, x, like.dtype())?])
    },
};

pub static BIT_CAST: OpDef = OpDef {
    domain: "",
    name: "BitCast",
    since: &[26],
    shape_inputs: &[],
    build: |node| -> Result<_> {
        let to = node.attributes().required("to", node.attributes().dtype("to")?)?;
        Ok(vec![node.builder().add(Op::Bitcast(to), &[node.input(0)?])])
    },
};
