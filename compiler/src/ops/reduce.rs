//! Reductions.

use mcc_support::{DType, Result};

use super::activation::widened;
use super::{NodeContext, OpDef};
use crate::graph::{Extent, Op, ReduceFn, UnaryFn, Wire};

pub static ALL: &[&OpDef] = &[
    &ARG_MAX, &ARG_MIN, &REDUCE_L1, &REDUCE_L2, &REDUCE_LOG_SUM, &REDUCE_LOG_SUM_EXP, &REDUCE_MAX, &REDUCE_MEAN, &REDUCE_MIN,
    &REDUCE_PROD, &REDUCE_SUM, &REDUCE_SUM_SQUARE,
];

/// Which axes go, and whether they stay with extent 1.
struct Reduction {
    axes: Vec<usize>,
    keep: bool,
}

impl Reduction {
    /// The axes are an attribute before opset `input_since`, then input 1. Without any, all go, or none `noop_with_empty_axes`.
    fn of(node: &NodeContext<'_, '_>, rank: usize, input_since: i64) -> Result<Self> {
        let attributes = node.attributes();
        let keep = attributes.flag("keepdims", true)?;
        let (axes, none) = if node.version() < input_since {
            (attributes.ints("axes")?, false)
        } else {
            (node.optional_ints(1)?, attributes.flag("noop_with_empty_axes", false)?)
        };
        let axes = match axes {
            Some(axes) if !axes.is_empty() => node.axes(&axes, rank)?,
            _ if none => vec![],
            _ => (0..rank).collect(),
        };
        Ok(Self { axes, keep })
    }

    fn apply<'b>(&self, kind: ReduceFn, x: Wire<'b>) -> Wire<'b> {
        if self.keep { x.reduce_keep(kind, &self.axes) } else { x.reduce(kind, &self.axes) }
    }

    fn sum<'b>(&self, x: Wire<'b>) -> Wire<'b> {
        self.apply(ReduceFn::Sum, x)
    }
}

/// How many elements there are along some axes, as a scalar of the dtype of `x`.
pub(super) fn element_count<'b>(x: Wire<'b>, axes: &[usize]) -> Wire<'b> {
    let extents = x.extents();
    // A mistake before this one made a scalar of `x`: it is what will be told.
    let along = axes.iter().filter_map(|&axis| extents.get(axis));
    let count = along.fold(Extent::from(1i64), |product, extent| &product * extent);
    match count.known() {
        Some(count) => x.like(count as f64),
        None => x.builder().extent_wire(&count).cast(x.dtype()),
    }
}

/// `reduction!(REDUCE_L1, "ReduceL1", [1, 11, 13, 18], 18, |x, over| over.sum(x.abs()))`: the axes are an input from opset 18 on.
macro_rules! reduction {
    ($(#[$attr:meta])* $ident:ident, $name:literal, $since:expr, $input_since:literal, |$x:ident, $over:ident| $formula:expr) => {
        $(#[$attr])*
        pub static $ident: OpDef = OpDef {
            domain: "",
            name: $name,
            since: &$since,
            shape_inputs: &[1],
            build: |node| {
                let $x = node.input(0)?;
                let $over = Reduction::of(node, $x.rank(), $input_since)?;
                Ok(vec![$formula])
            },
        };
    };
}

reduction!(REDUCE_SUM, "ReduceSum", [1, 11, 13], 13, |x, over| over.sum(x));
reduction!(REDUCE_PROD, "ReduceProd", [1, 11, 13, 18], 18, |x, over| over.apply(ReduceFn::Prod, x));
reduction!(REDUCE_MAX, "ReduceMax", [1, 11, 12, 13, 18, 20], 18, |x, over| extreme(x, |x| over.apply(ReduceFn::Max, x)));
reduction!(REDUCE_MIN, "ReduceMin", [1, 11, 12, 13, 18, 20], 18, |x, over| extreme(x, |x| over.apply(ReduceFn::Min, x)));
reduction!(REDUCE_MEAN, "ReduceMean", [1, 11, 13, 18], 18, |x, over| {
    if over.axes.is_empty() { x } else { widened_float(x, |x| over.sum(x) / element_count(x, &over.axes)) }
});
reduction!(REDUCE_L1, "ReduceL1", [1, 11, 13, 18], 18, |x, over| over.sum(x.abs()));
reduction!(REDUCE_L2, "ReduceL2", [1, 11, 13, 18], 18, |x, over| widened(x, |x| over.sum(x * x).sqrt()));
reduction!(REDUCE_SUM_SQUARE, "ReduceSumSquare", [1, 11, 13, 18], 18, |x, over| widened_float(x, |x| over.sum(x * x)));
reduction!(REDUCE_LOG_SUM, "ReduceLogSum", [1, 11, 13, 18], 18, |x, over| widened(x, |x| over.sum(x).log()));
reduction!(
/// The maximum is taken out of the exponentials, so that none overflows; an infinite one would leave `∞ − ∞`.
REDUCE_LOG_SUM_EXP, "ReduceLogSumExp", [1, 11, 13, 18], 18, |x, over| widened(x, |x| {
    let max = x.reduce_keep(ReduceFn::MaxNumber, &over.axes);
    let max = max.unary(UnaryFn::IsInf).select(max.like(0.0), max);
    let sum = over.sum((x - max).exp());
    sum.log() + max.reshape(sum.shape())
}));

/// In f32 for narrower floats; integers are left as they are.
fn widened_float<'b>(x: Wire<'b>, formula: impl FnOnce(Wire<'b>) -> Wire<'b>) -> Wire<'b> {
    if x.dtype().is_float() { widened(x, formula) } else { formula(x) }
}

/// Of `bool`s too: false is less than true.
fn extreme<'b>(x: Wire<'b>, formula: impl FnOnce(Wire<'b>) -> Wire<'b>) -> Wire<'b> {
    if x.dtype() == DType::Bool { formula(x.cast(DType::U8)).cast(DType::Bool) } else { formula(x) }
}

pub static ARG_MAX: OpDef =
    OpDef { domain: "", name: "ArgMax", since: &[1, 11, 12, 13], shape_inputs: &[], build: |node| arg_reduce(node, true) };

pub static ARG_MIN: OpDef =
    OpDef { domain: "", name: "ArgMin", since: &[1, 11, 12, 13], shape_inputs: &[], build: |node| arg_reduce(node, false) };

fn arg_reduce<'b>(node: &NodeContext<'_, 'b>, max: bool) -> Result<Vec<Wire<'b>>> {
    let x = node.input(0)?;
    let axis = node.axis_attribute(0, x.rank())?;
    let last = node.version() >= 12 && node.attributes().flag("select_last_index", false)?;
    let best = node.builder().add(Op::ArgReduce { max, axis, last }, &[x]);
    if !node.attributes().flag("keepdims", true)? {
        return Ok(vec![best]);
    }
    let mut shape = x.shape().into_dims();
    shape[axis] = 1;
    Ok(vec![best.reshape(shape)])
}
