//! Quantization: integers or small floats that stand for `(q − zero point) · scale`.

use mcc_support::{DType, Result};

use super::cast::cast_or_overflow;
use super::conv::{attributes as conv_attributes, per_channel};
use super::matmul::matmul;
use super::{NodeContext, OpDef};
use crate::graph::{ReduceFn, UnaryFn, Wire};

pub static ALL: &[&OpDef] = &[
    &CONV_INTEGER, &DEQUANTIZE_LINEAR, &DYNAMIC_QUANTIZE_LINEAR, &MAT_MUL_INTEGER, &Q_LINEAR_CONV, &Q_LINEAR_MAT_MUL,
    &QUANTIZE_LINEAR,
];

/// `saturate(round(x / scale) + zero point)`, rounded to nearest even; to floats, the sum is rounded.
pub static QUANTIZE_LINEAR: OpDef = OpDef {
    domain: "",
    name: "QuantizeLinear",
    since: &[10, 13, 19, 21, 23, 24, 25],
    shape_inputs: &[],
    build: |node| {
        let (x, scale, zero) = (node.input(0)?, node.input(1)?, node.optional(2));
        let attributes = node.attributes();
        // Of floats of 8 bits only.
        let saturate = if node.version() < 19 { true } else { attributes.flag("saturate", true)? };
        let wanted = if node.version() < 21 { None } else { output_type(node)? };
        let dtype = zero.map(|zero| zero.dtype()).or(wanted).unwrap_or(DType::U8);
        if !is_quantized(dtype) || wanted.is_some_and(|wanted| wanted != dtype) {
            return Err(
                node.error(format!("the zero point and the result must be of one integer or small float type, not {dtype}"))
            );
        }
        let precision = if node.version() < 23 { None } else { attributes.dtype("precision")? };
        let precision = precision.unwrap_or(if scale.dtype().is_computed_with() { scale.dtype() } else { x.dtype() });
        let granularity = Granularity::of(node, x)?;
        let scale = granularity.spread(node, "the scale", scale)?;
        let zero = zero.map(|zero| granularity.spread(node, "the zero point", zero)).transpose()?;
        let quotient = x.cast(precision) / scale.cast(precision);
        let wide = precision.single_or_double();
        let quotient = quotient.cast(wide);
        Ok(vec![if saturate || dtype.is_integer() {
            quantized(quotient, zero, dtype)
        } else {
            cast_or_overflow(shifted(quotient, zero, dtype), dtype)
        }])
    },
};

fn is_quantized(dtype: DType) -> bool {
    dtype.is_integer() || dtype.small_float().is_some_and(|format| !format.is_scale())
}

/// Rounds to an integer, where that is the type, and adds the zero point.
fn shifted<'b>(x: Wire<'b>, zero: Option<Wire<'b>>, dtype: DType) -> Wire<'b> {
    let rounded = if dtype.is_float() { x } else { x.unary(UnaryFn::Round) };
    // Zero is added to a float, whose negative zero it changes.
    let zero = zero.filter(|&zero| dtype.is_float() || !is_zero(zero));
    zero.map_or(rounded, |zero| rounded + zero.cast(x.dtype()))
}

/// Rounds, adds the zero point and saturates.
pub(super) fn quantized<'b>(x: Wire<'b>, zero: Option<Wire<'b>>, dtype: DType) -> Wire<'b> {
    let shifted = shifted(x, zero, dtype);
    if dtype.is_float() || !dtype.is_packed() {
        return shifted.cast(dtype);
    }
    // A conversion to these wraps.
    let (low, high) = dtype.integer_range();
    shifted.clamp(low as f64, high as f64).cast(dtype)
}

fn is_zero(wire: Wire<'_>) -> bool {
    wire.constant().is_some_and(|tensor| tensor.numbers().all(|number| number.as_f64() == 0.0))
}

/// The attribute `output_dtype`, which is 0 where the type follows from the inputs.
fn output_type(node: &NodeContext<'_, '_>) -> Result<Option<DType>> {
    let attributes = node.attributes();
    if attributes.int_or("output_dtype", 0)? == 0 { Ok(None) } else { attributes.dtype("output_dtype") }
}

/// `(x − zero point) · scale`
pub static DEQUANTIZE_LINEAR: OpDef = OpDef {
    domain: "",
    name: "DequantizeLinear",
    since: &[10, 13, 19, 21, 23, 24, 25],
    shape_inputs: &[],
    build: |node| {
        let (x, scale) = (node.input(0)?, node.input(1)?);
        let wanted = if node.version() < 23 { None } else { output_type(node)? };
        let dtype = wanted.unwrap_or(scale.dtype());
        node.expect_dtype(x, "an integer or a small float", is_quantized)?;
        if !dtype.is_computed_with() {
            return Err(
                node.error(format!("the result cannot be {dtype}: attribute 'output_dtype' must name a type to compute with"))
            );
        }
        let granularity = Granularity::of(node, x)?;
        let scale = granularity.spread(node, "the scale", scale)?;
        let zero = node.optional(2).map(|zero| granularity.spread(node, "the zero point", zero)).transpose()?;
        Ok(vec![without_zero(x, zero).cast(dtype) * scale.cast(dtype)])
    },
};

/// The distance from the zero point: of integers exact, of small floats in f32.
pub(super) fn without_zero<'b>(x: Wire<'b>, zero: Option<Wire<'b>>) -> Wire<'b> {
    let wide = x.cast(if x.dtype().is_float() { DType::F32 } else { DType::I32 });
    zero.filter(|&zero| !is_zero(zero)).map_or(wide, |zero| wide - zero.cast(wide.dtype()))
}

/// How many elements share a scale and a zero point: all, those of one index along an axis, or a block along an axis.
struct Granularity {
    shape: Vec<usize>,
    axis: Option<usize>,
    block: usize,
}

impl Granularity {
    fn of(node: &NodeContext<'_, '_>, x: Wire<'_>) -> Result<Self> {
        let (attributes, shape) = (node.attributes(), x.shape().into_dims());
        if node.version() < 13 {
            return Ok(Self { shape, axis: None, block: 0 });
        }
        let axis = attributes.int_or("axis", 1)?;
        let block = if node.version() < 21 { 0 } else { attributes.int_or("block_size", 0)? };
        // The axis of a scalar scale does not matter, not even whether it exists.
        let axis = node.axis(axis, shape.len()).ok();
        Ok(Self { shape, axis, block: node.size("the block", block)? })
    }

    /// A scale or a zero point in a shape that broadcasts to the operand's.
    fn spread<'b>(&self, node: &NodeContext<'_, 'b>, what: &str, x: Wire<'b>) -> Result<Wire<'b>> {
        let given = x.shape();
        if given.rank() == 0 || (given.dims() == [1] && self.block == 0) {
            return Ok(x.reshape([0; 0]));
        }
        let error = || node.error(format!("{what} has shape {given}, which does not fit an operand of shape {:?}", self.shape));
        let axis = self.axis.ok_or_else(error)?;
        node.expect_whole(node.input(0)?, [axis])?;
        if self.block == 0 {
            if given.dims() != [self.shape[axis]] {
                return Err(error());
            }
            let mut shape = vec![1; self.shape.len() - axis];
            shape[0] = given[0];
            return Ok(x.reshape(shape));
        }
        let mut blocks = self.shape.clone();
        blocks[axis] = blocks[axis].div_ceil(self.block);
        if given.dims() != blocks {
            return Err(error());
        }
        let (before, after) = (&blocks[..axis], &blocks[axis + 1..]);
        let single = [before, &[blocks[axis], 1], after].concat();
        let repeated = [before, &[blocks[axis], self.block], after].concat();
        let joined = [before, &[blocks[axis] * self.block], after].concat();
        Ok(x.reshape(single).broadcast(repeated).reshape(joined).slice_axis(axis, 0, self.shape[axis]))
    }
}

/// To `u8`, with the scale and the zero point that the range of the operand, extended to hold 0, asks for.
pub static DYNAMIC_QUANTIZE_LINEAR: OpDef = OpDef {
    domain: "",
    name: "DynamicQuantizeLinear",
    since: &[11],
    shape_inputs: &[],
    build: |node| Ok(dynamically_quantized(node.input(0)?).to_vec()),
};

/// A float tensor as `u8`, its scale and its zero point.
pub(super) fn dynamically_quantized(x: Wire<'_>) -> [Wire<'_>; 3] {
    let axes: Vec<usize> = (0..x.rank()).collect();
    let zero = x.like(0.0);
    let (low, high) = (x.reduce(ReduceFn::Min, &axes).min(zero), x.reduce(ReduceFn::Max, &axes).max(zero));
    let range = (high - low) / 255.0;
    let scale = range.eq(zero).select(x.like(1.0), range);
    let zero_point = quantized(-low / scale, None, DType::U8);
    [quantized(x / scale, Some(zero_point), DType::U8), scale, zero_point]
}

/// The product of `x [n, k]`, quantized by its range, with integers `w [k, m]` of some scale that stand without their zero point.
pub(super) fn dynamic_product<'b>(x: Wire<'b>, w: Wire<'b>, scale: Wire<'b>) -> Wire<'b> {
    let [q, x_scale, zero] = dynamically_quantized(x);
    without_zero(q, Some(zero)).contract(w, "nk", "km", "nm").cast(DType::F32) * (x_scale * scale)
}

/// One number, or one for each row (of the left side) or column of a matrix, in a shape that broadcasts to the operand's.
pub(super) fn per_line<'b>(
    node: &NodeContext<'_, 'b>,
    what: &str,
    x: Wire<'b>,
    operand: Wire<'b>,
    rows: bool,
) -> Result<Wire<'b>> {
    let (given, shape) = (x.shape(), operand.shape());
    if given.checked_count() == Some(1) {
        return Ok(x.reshape([0; 0]));
    }
    let result = match *given.dims() {
        [count] if rows && shape.rank() > 1 => vec![count, 1],
        [count] => vec![count],
        _ => given.to_vec(),
    };
    let line = if rows { result[result.len() - 1] } else { result[result.len().saturating_sub(2)] };
    let fits = shape.broadcast(&result.clone().into()).as_ref() == Some(&shape) && (result.len() == 1 || line == 1);
    if fits {
        Ok(x.reshape(result))
    } else {
        Err(node.error(format!("{what} has shape {given}, which does not fit an operand of shape {shape}")))
    }
}

/// Input `index` without its zero point, which may be left out, of a matrix product.
pub(super) fn matrix_without_zero<'b>(
    node: &NodeContext<'_, 'b>,
    x: Wire<'b>,
    zero: Option<Wire<'b>>,
    rows: bool,
) -> Result<Wire<'b>> {
    let zero = zero.map(|zero| per_line(node, "the zero point", zero, x, rows)).transpose()?;
    Ok(without_zero(x, zero))
}

pub(super) fn integer_product<'b>(node: &NodeContext<'_, 'b>, a: Wire<'b>, b: Wire<'b>) -> Result<Wire<'b>> {
    matmul(a, b)
        .ok_or_else(|| node.error(format!("operands of shapes {} and {} cannot be multiplied as matrices", a.shape(), b.shape())))
}

pub static MAT_MUL_INTEGER: OpDef = OpDef {
    domain: "",
    name: "MatMulInteger",
    since: &[10],
    shape_inputs: &[],
    build: |node| {
        let a = matrix_without_zero(node, node.input(0)?, node.optional(2), true)?;
        let b = matrix_without_zero(node, node.input(1)?, node.optional(3), false)?;
        Ok(vec![integer_product(node, a, b)?])
    },
};

pub static Q_LINEAR_MAT_MUL: OpDef = OpDef {
    domain: "",
    name: "QLinearMatMul",
    since: &[10, 21],
    shape_inputs: &[],
    build: |node| {
        let (a, b) = (node.input(0)?, node.input(3)?);
        let a_scale = per_line(node, "the scale of the left side", node.input(1)?, a, true)?;
        let b_scale = per_line(node, "the scale of the right side", node.input(4)?, b, false)?;
        let product = integer_product(
            node,
            matrix_without_zero(node, a, Some(node.input(2)?), true)?,
            matrix_without_zero(node, b, Some(node.input(5)?), false)?,
        )?;
        let y_scale = per_line(node, "the scale of the result", node.input(6)?, product, true)?;
        let y_zero = per_line(node, "the zero point of the result", node.input(7)?, product, true)?;
        Ok(vec![requantized(product, [a_scale, b_scale, y_scale], y_zero)])
    },
};

/// `saturate(round(sum · scale) + zero point)`, where the scale is computed in f64 and rounded once.
pub(super) fn requantized<'b>(sum: Wire<'b>, [x_scale, w_scale, y_scale]: [Wire<'b>; 3], zero: Wire<'b>) -> Wire<'b> {
    let scale = x_scale.cast(DType::F64) * w_scale.cast(DType::F64) / y_scale.cast(DType::F64);
    quantized(sum.cast(DType::F32) * scale.cast(DType::F32), Some(zero), zero.dtype())
}

/// The exact sums of a convolution of integers. What is padded stands for 0, so it is padded after the zero point is gone.
fn integer_conv<'b>(
    node: &NodeContext<'_, 'b>,
    x: Wire<'b>,
    x_zero: Option<Wire<'b>>,
    w: Wire<'b>,
    w_zero: Option<Wire<'b>>,
) -> Result<Wire<'b>> {
    let conv = conv_attributes(node, x, &w.shape())?;
    let x_zero = x_zero.map(|zero| one_or_channel(node, "the zero point of the input", zero, None)).transpose()?;
    let w_zero = w_zero.map(|zero| one_or_channel(node, "the zero point of the weights", zero, Some((w, 0)))).transpose()?;
    Ok(without_zero(x, x_zero).conv(without_zero(w, w_zero), conv))
}

/// One number, or one for each index of an axis.
fn one_or_channel<'b>(
    node: &NodeContext<'_, 'b>,
    what: &str,
    x: Wire<'b>,
    channel: Option<(Wire<'b>, usize)>,
) -> Result<Wire<'b>> {
    match channel {
        _ if x.shape().checked_count() == Some(1) => Ok(x.reshape([0; 0])),
        Some((of, axis)) => per_channel(node, what, x, of, axis),
        None => Err(node.error(format!("{what} must be one number, not {}", x.ty()))),
    }
}

pub static CONV_INTEGER: OpDef = OpDef {
    domain: "",
    name: "ConvInteger",
    since: &[10],
    shape_inputs: &[],
    build: |node| Ok(vec![integer_conv(node, node.input(0)?, node.optional(2), node.input(1)?, node.optional(3))?]),
};

pub static Q_LINEAR_CONV: OpDef = OpDef {
    domain: "",
    name: "QLinearConv",
    since: &[10],
    shape_inputs: &[],
    build: |node| {
        let (x, weights) = (node.input(0)?, node.input(3)?);
        let sum = integer_conv(node, x, Some(node.input(2)?), weights, Some(node.input(5)?))?;
        let sum = match node.optional(8) {
            Some(bias) => sum + per_channel(node, "the bias", bias, sum, 1)?,
            None => sum,
        };
        let x_scale = one_or_channel(node, "the scale of the input", node.input(1)?, None)?;
        let w_scale = one_or_channel(node, "the scale of the weights", node.input(4)?, Some((sum, 1)))?;
        let y_scale = one_or_channel(node, "the scale of the result", node.input(6)?, None)?;
        let y_zero = one_or_channel(node, "the zero point of the result", node.input(7)?, None)?;
        Ok(vec![requantized(sum, [x_scale, w_scale, y_scale], y_zero)])
    },
};
