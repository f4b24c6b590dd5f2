//! Operators on integers with a scale and a zero point for each operand and for the result.

use mcc_support::{DType, Result};

use super::DOMAIN;
use crate::graph::{ReduceFn, Wire};
use crate::ops::activation::sigmoid;
use crate::ops::conv::per_channel;
use crate::ops::pool::average_pool;
use crate::ops::quant::{quantized, requantized, without_zero};
use crate::ops::reduce::element_count;
use crate::ops::softmax::softmax;
use crate::ops::{NodeContext, OpDef};

pub static ALL: &[&OpDef] = &[
    &DEQUANTIZE_LINEAR, &Q_LINEAR_ADD, &Q_LINEAR_AVERAGE_POOL, &Q_LINEAR_CONCAT, &Q_LINEAR_GLOBAL_AVERAGE_POOL,
    &Q_LINEAR_LEAKY_RELU, &Q_LINEAR_MUL, &Q_LINEAR_REDUCE_MEAN, &Q_LINEAR_SIGMOID, &Q_LINEAR_SOFTMAX, &Q_LINEAR_WHERE,
    &QUANTIZE_LINEAR,
];

/// How the elements of a tensor stand for numbers: one scale and one zero point.
struct Scale<'b> {
    scale: Wire<'b>,
    zero: Wire<'b>,
}

impl<'b> Scale<'b> {
    /// From inputs `index` and `index + 1`; the zero point may be left out.
    fn of(node: &NodeContext<'_, 'b>, index: usize, dtype: DType) -> Result<Self> {
        let scale = node.optional_scalar(index)?.ok_or_else(|| node.error(format!("input {index} is missing")))?;
        let zero = node.optional_scalar(index + 1)?.unwrap_or_else(|| node.builder().scalar(dtype, 0.0));
        Ok(Self { scale, zero })
    }

    fn number(&self, x: Wire<'b>) -> Wire<'b> {
        without_zero(x, Some(self.zero)).cast(DType::F32) * self.scale
    }

    fn integer(&self, x: Wire<'b>) -> Wire<'b> {
        quantized(x / self.scale, Some(self.zero), self.zero.dtype())
    }
}

/// Quantizes what `formula` makes of the numbers for which input 0 stands: the usual order of inputs is `x`, its scale and zero point,
/// the result's scale and zero point.
fn of_numbers<'b>(node: &NodeContext<'_, 'b>, formula: impl FnOnce(Wire<'b>) -> Result<Wire<'b>>) -> Result<Vec<Wire<'b>>> {
    let x = node.input(0)?;
    let (from, to) = (Scale::of(node, 1, x.dtype())?, Scale::of(node, 3, x.dtype())?);
    Ok(vec![to.integer(formula(from.number(x))?)])
}

/// Operands `A` and `B`, each with scale and zero point, and those of the result.
fn two_operands<'b>(node: &NodeContext<'_, 'b>) -> Result<([Wire<'b>; 2], [Scale<'b>; 3])> {
    let (a, b) = (node.input(0)?, node.input(3)?);
    let scale = |index: usize| Scale::of(node, index, a.dtype());
    Ok(([a, b], [scale(1)?, scale(4)?, scale(6)?]))
}

pub static Q_LINEAR_ADD: OpDef = OpDef {
    domain: DOMAIN,
    name: "QLinearAdd",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let ([a, b], [of_a, of_b, of_c]) = two_operands(node)?;
        Ok(vec![of_c.integer(of_a.number(a) + of_b.number(b))])
    },
};

pub static Q_LINEAR_MUL: OpDef = OpDef {
    domain: DOMAIN,
    name: "QLinearMul",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let ([a, b], [of_a, of_b, of_c]) = two_operands(node)?;
        let product = without_zero(a, Some(of_a.zero)) * without_zero(b, Some(of_b.zero));
        Ok(vec![requantized(product, [of_a.scale, of_b.scale, of_c.scale], of_c.zero)])
    },
};

pub static Q_LINEAR_LEAKY_RELU: OpDef = OpDef {
    domain: DOMAIN,
    name: "QLinearLeakyRelu",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let alpha = f64::from(node.attributes().float_or("alpha", 0.01)?);
        of_numbers(node, |x| Ok(x.lt(x.like(0.0)).select(x * alpha, x)))
    },
};

pub static Q_LINEAR_SIGMOID: OpDef = OpDef {
    domain: DOMAIN,
    name: "QLinearSigmoid",
    since: &[1],
    shape_inputs: &[],
    build: |node| of_numbers(node, |x| Ok(sigmoid(x))),
};

/// Over the axis named; as before version 13 of the standard's Softmax, over it and all behind it.
pub static Q_LINEAR_SOFTMAX: OpDef = OpDef {
    domain: DOMAIN,
    name: "QLinearSoftmax",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let attributes = node.attributes();
        let opset = attributes.required("opset", attributes.int("opset")?)?;
        let rank = node.input(0)?.rank();
        let first = node.axis(attributes.int_or("axis", -1)?, rank)?;
        let axes: Vec<usize> = if opset < 13 { (first..rank).collect() } else { vec![first] };
        of_numbers(node, |x| Ok(softmax(x, &axes)))
    },
};

/// A value whose channels are its last axis as one whose channels are axis 1, and back.
fn channels_first(x: Wire<'_>) -> Wire<'_> {
    let rank = x.rank();
    let mut axes: Vec<usize> = (0..rank).collect();
    if rank > 2 {
        axes[1..].rotate_right(1);
    }
    x.transpose(&axes)
}

fn channels_last(x: Wire<'_>) -> Wire<'_> {
    let rank = x.rank();
    let mut axes: Vec<usize> = (0..rank).collect();
    if rank > 2 {
        axes[1..].rotate_left(1);
    }
    x.transpose(&axes)
}

/// Quantizes a pool of numbers, whose channels may be last.
fn pooled<'b>(node: &NodeContext<'_, 'b>, pool: impl FnOnce(Wire<'b>) -> Result<Wire<'b>>) -> Result<Vec<Wire<'b>>> {
    let last = node.attributes().flag("channels_last", false)?;
    of_numbers(node, |x| if last { Ok(channels_last(pool(channels_first(x))?)) } else { pool(x) })
}

pub static Q_LINEAR_AVERAGE_POOL: OpDef = OpDef {
    domain: DOMAIN,
    name: "QLinearAveragePool",
    since: &[1],
    shape_inputs: &[],
    build: |node| pooled(node, |x| average_pool(node, x)),
};

/// The mean over some axes, rounded once from the exact sum.
fn mean<'b>(node: &NodeContext<'_, 'b>, axes: &[usize], keep: bool) -> Result<Vec<Wire<'b>>> {
    let x = node.input(0)?;
    let (from, to) = (Scale::of(node, 1, x.dtype())?, Scale::of(node, 3, x.dtype())?);
    let wide = without_zero(x, Some(from.zero));
    let sum = if keep { wide.reduce_keep(ReduceFn::Sum, axes) } else { wide.reduce(ReduceFn::Sum, axes) };
    let of_one = to.scale * element_count(wide.cast(to.scale.dtype()), axes);
    Ok(vec![requantized(sum, [from.scale, from.scale.like(1.0), of_one], to.zero)])
}

pub static Q_LINEAR_GLOBAL_AVERAGE_POOL: OpDef = OpDef {
    domain: DOMAIN,
    name: "QLinearGlobalAveragePool",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let rank = node.input(0)?.rank();
        if rank < 3 {
            return Err(node.error(format!("the input of a pool has axes for batch, channels and space, not {rank} axes")));
        }
        let last = node.attributes().flag("channels_last", false)?;
        let axes: Vec<usize> = if last { (1..rank - 1).collect() } else { (2..rank).collect() };
        mean(node, &axes, true)
    },
};

pub static Q_LINEAR_REDUCE_MEAN: OpDef = OpDef {
    domain: DOMAIN,
    name: "QLinearReduceMean",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let rank = node.input(0)?.rank();
        let axes = node.attributes().ints("axes")?.filter(|axes| !axes.is_empty());
        let axes = axes.map_or_else(|| Ok((0..rank).collect()), |axes| node.axes(&axes, rank))?;
        mean(node, &axes, node.attributes().flag("keepdims", true)?)
    },
};

/// Inputs are the result's scale and zero point, then each operand with its own. One of the result's scale is taken as it is.
pub static Q_LINEAR_CONCAT: OpDef = OpDef {
    domain: DOMAIN,
    name: "QLinearConcat",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let dtype = node.input(1)?.dtype();
        let to = Scale::of(node, 0, dtype)?;
        let count = node.input_count();
        if count < 5 || !(count - 2).is_multiple_of(3) {
            return Err(node.error(format!("{count} inputs are not a scale, a zero point and three for each operand")));
        }
        let rank = node.input(2)?.rank();
        let axis = node.axis(node.attributes().required("axis", node.attributes().int("axis")?)?, rank)?;
        let operand = |index: usize| -> Result<Wire<'_>> {
            let (x, from) = (node.input(index)?, Scale::of(node, index + 1, dtype)?);
            let same = from.scale.constant().is_some_and(|scale| to.scale.constant() == Some(scale))
                && from.zero.constant().is_some_and(|zero| to.zero.constant() == Some(zero));
            Ok(if same { x } else { to.integer(from.number(x)) })
        };
        let mut operands = Vec::new();
        for index in (2..count).step_by(3) {
            operands.push(operand(index)?);
        }
        Ok(vec![node.builder().concat(&operands, axis)])
    },
};

pub static Q_LINEAR_WHERE: OpDef = OpDef {
    domain: DOMAIN,
    name: "QLinearWhere",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let (condition, x, y) = (node.input(0)?, node.input(1)?, node.input(4)?);
        let scale = |index: usize| Scale::of(node, index, x.dtype());
        let (of_x, of_y, of_z) = (scale(2)?, scale(5)?, scale(7)?);
        Ok(vec![condition.select(of_z.integer(of_x.number(x)), of_z.integer(of_y.number(y)))])
    },
};

/// One number, or one for each index of the attribute `axis`.
fn along_axis<'b>(node: &NodeContext<'_, 'b>, what: &str, x: Wire<'b>, operand: Wire<'b>) -> Result<Wire<'b>> {
    let axis = node.attributes().int_or("axis", 1)?;
    if x.shape().checked_count() == Some(1) {
        return Ok(x.reshape([0; 0]));
    }
    per_channel(node, what, x, operand, node.axis(axis, operand.rank())?)
}

pub static QUANTIZE_LINEAR: OpDef = OpDef {
    domain: DOMAIN,
    name: "QuantizeLinear",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let scale = along_axis(node, "the scale", node.input(1)?, x)?;
        let zero = node.optional(2).map(|zero| along_axis(node, "the zero point", zero, x)).transpose()?;
        let dtype = zero.map_or(DType::U8, Wire::dtype);
        node.expect_dtype(x, "a float", DType::is_float)?;
        let quotient = x.cast(DType::F32) / scale.cast(DType::F32);
        Ok(vec![quantized(quotient, zero, dtype)])
    },
};

pub static DEQUANTIZE_LINEAR: OpDef = OpDef {
    domain: DOMAIN,
    name: "DequantizeLinear",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        node.expect_dtype(x, "an integer", DType::is_integer)?;
        let scale = along_axis(node, "the scale", node.input(1)?, x)?;
        let zero = node.optional(2).map(|zero| along_axis(node, "the zero point", zero, x)).transpose()?;
        Ok(vec![without_zero(x, zero).cast(scale.dtype()) * scale])
    },
};
