//! Softmax and its relatives.

use mcc_support::{DType, Result};

use super::activation::widened;
use super::{NodeContext, OpDef};
use crate::graph::{Op, ReduceFn, UnaryFn, Wire};

pub static ALL: &[&OpDef] = &[&HARDMAX, &LOG_SOFTMAX, &SOFTMAX];

/// The axes over which the results sum to 1: from opset 13 on the one named, before that it and all behind it.
fn axes(node: &NodeContext<'_, '_>, rank: usize) -> Result<Vec<usize>> {
    if rank == 0 {
        node.attributes().ignore("axis");
        return Ok(vec![]);
    }
    if node.version() < 13 {
        let axis = node.attributes().int_or("axis", 1)?;
        // With the default axis a vector is one row.
        let first = if axis == rank as i64 { rank } else { node.axis(axis, rank)? };
        return Ok((first..rank).collect());
    }
    Ok(vec![node.axis_attribute(-1, rank)?])
}

/// The maximum is subtracted first, so that no exponential overflows; of NaN it need not be NaN, as the sum is. One division for all
/// that are summed: quotients err by 1.5 ulp, too much in 16 bits. Beside the sum, which is 2^64 at least, what is below −105 rounds to 0.
pub(super) fn softmax<'b>(x: Wire<'b>, axes: &[usize]) -> Wire<'b> {
    let shifted = x - x.reduce_keep(ReduceFn::MaxNumber, axes);
    let exp = if x.dtype().size_bits() < 32 { shifted.exp() } else { shifted.unary(UnaryFn::ExpOfNegative) };
    let sum = exp.reduce_keep(ReduceFn::Sum, axes);
    if x.dtype().size_bits() < 32 { exp / sum } else { exp * (1.0 / sum) }
}

pub static SOFTMAX: OpDef = OpDef {
    domain: "",
    name: "Softmax",
    since: &[1, 11, 13],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let axes = axes(node, x.rank())?;
        Ok(vec![widened(x, |x| softmax(x, &axes))])
    },
};

pub static LOG_SOFTMAX: OpDef = OpDef {
    domain: "",
    name: "LogSoftmax",
    since: &[1, 11, 13],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let axes = axes(node, x.rank())?;
        Ok(vec![widened(x, |x| log_softmax(x, &axes))])
    },
};

pub(super) fn log_softmax<'b>(x: Wire<'b>, axes: &[usize]) -> Wire<'b> {
    let shifted = x - x.reduce_keep(ReduceFn::MaxNumber, axes);
    shifted - shifted.exp().reduce_keep(ReduceFn::Sum, axes).log()
}

/// 1 at the first maximum, 0 elsewhere.
pub static HARDMAX: OpDef = OpDef {
    domain: "",
    name: "Hardmax",
    since: &[1, 11, 13],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let shape = x.shape();
        let axes = axes(node, x.rank())?;
        let Some((&first, &last)) = axes.first().zip(axes.last()) else { return Ok(vec![x.like(1.0)]) };
        let (outer, inner) = (shape[..first].iter().product::<usize>(), shape[last + 1..].iter().product::<usize>());
        let row = shape[first..=last].iter().product::<usize>();
        let rows = x.reshape([outer, row, inner]);
        let best = node.builder().add(Op::ArgReduce { max: true, axis: 1, last: false }, &[rows]).reshape([outer, 1, inner]);
        let places = node.builder().iota(DType::I64, [1, row, 1], 1);
        Ok(vec![places.eq(best).cast(x.dtype()).reshape(shape)])
    },
};
