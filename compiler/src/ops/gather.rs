//! Operators that choose elements by index, and those that run along an axis.

use mcc_support::tensor::Number;
use mcc_support::{DType, Result, Shape};

use super::shape::fill;
use super::{NodeContext, OpDef};
use crate::graph::{Op, ReduceFn, Wire};

pub static ALL: &[&OpDef] = &[&CUM_PROD, &CUM_SUM, &GATHER, &GATHER_ELEMENTS, &GATHER_ND, &ONE_HOT, &REVERSE_SEQUENCE, &TRILU];

/// Indices that are known must be inside; others are clamped when the model runs.
pub(super) fn check_indices<'b>(node: &NodeContext<'_, 'b>, indices: Wire<'b>, extent: usize) -> Result<()> {
    let Some(tensor) = indices.constant() else { return Ok(()) };
    let extent = extent as i64;
    match tensor.numbers().map(Number::as_i64).find(|index| !(-extent..extent).contains(index)) {
        Some(index) => Err(node.error(format!("the index {index} is outside of an axis of extent {extent}"))),
        None => Ok(()),
    }
}

fn indices<'b>(node: &NodeContext<'_, 'b>) -> Result<Wire<'b>> {
    let indices = node.input(1)?;
    node.expect_dtype(indices, "an integer", DType::is_integer)?;
    Ok(indices)
}

pub static GATHER: OpDef = OpDef {
    domain: "",
    name: "Gather",
    since: &[1, 11, 13],
    shape_inputs: &[],
    build: |node| {
        let (x, indices) = (node.input(0)?, indices(node)?);
        let axis = node.axis_attribute(0, x.rank())?;
        let extent = x.shape()[axis];
        check_indices(node, indices, extent)?;
        // One known index is a slice, which need not be copied.
        let is_whole = x.axes()[axis].is_whole();
        if let Some(tensor) = indices.constant().filter(|tensor| is_whole && tensor.count() == 1) {
            let index = tensor.number(0).as_i64();
            let start = if index < 0 { index + extent as i64 } else { index } as usize;
            let mut shape = x.shape().into_dims();
            shape.splice(axis..=axis, indices.shape().iter().copied());
            return Ok(vec![x.slice_axis(axis, start, 1).reshape(shape)]);
        }
        Ok(vec![x.gather(indices, axis)])
    },
};

pub static GATHER_ELEMENTS: OpDef = OpDef {
    domain: "",
    name: "GatherElements",
    since: &[11, 13],
    shape_inputs: &[],
    build: |node| {
        let (x, indices) = (node.input(0)?, indices(node)?);
        let axis = node.axis_attribute(0, x.rank())?;
        check_indices(node, indices, x.shape()[axis])?;
        Ok(vec![node.builder().add(Op::GatherElements { axis }, &[x, indices])])
    },
};

/// The last axis of the indices holds places in the axes of the data that follow the batch axes: they become one linear index.
pub static GATHER_ND: OpDef = OpDef {
    domain: "",
    name: "GatherND",
    since: &[11, 12, 13],
    shape_inputs: &[],
    build: |node| {
        let (x, indices) = (node.input(0)?, indices(node)?.cast(DType::I64));
        node.expect_whole(x, 0..x.rank())?;
        node.expect_whole(indices, indices.rank().checked_sub(1))?;
        let batch = if node.version() < 12 { 0 } else { node.attributes().int_or("batch_dims", 0)? };
        let batch = node.size("the number of batch axes", batch)?;
        let (data, places) = (x.shape(), indices.shape());
        let mismatch = || node.error(format!("the data {} and indices {} do not match", x.ty(), indices.ty()));
        let (&depth, outer) = places.split_last().ok_or_else(mismatch)?;
        if batch > outer.len() || batch.checked_add(depth).is_none_or(|end| end > data.rank()) || data[..batch] != outer[..batch]
        {
            return Err(mismatch());
        }
        let indexed = &data[batch..batch + depth];
        let linear = linear_index(node, indices, indexed, &data[..batch])?;
        let mut flat = vec![data[..batch + depth].iter().product::<usize>()];
        flat.extend(&data[batch + depth..]);
        Ok(vec![x.reshape(flat).gather(linear, 0)])
    },
};

/// Row-major index of the places that stand along the last axis, within all batches. A place outside of its axis gives an index
/// outside of them all, so that the gather sees it.
pub(super) fn linear_index<'b>(
    node: &NodeContext<'_, 'b>,
    places: Wire<'b>,
    extents: &[usize],
    batch: &[usize],
) -> Result<Wire<'b>> {
    let outer = Shape::new(places.shape()[..places.rank() - 1].to_vec());
    let last = outer.rank();
    let mut linear = fill(node, DType::I64, outer.clone(), Number::Int(0));
    for (axis, &extent) in batch.iter().enumerate() {
        linear = linear * extent as f64 + node.builder().iota(DType::I64, outer.clone(), axis);
    }
    let mut inside = None;
    for (position, &extent) in extents.iter().enumerate() {
        let place = places.slice_axis(last, position, 1).reshape(outer.clone());
        check_indices(node, place, extent)?;
        let negative = place.lt(place.like(0.0));
        let wrapped = negative.select(place + extent as f64, place);
        linear = linear * extent as f64 + wrapped;
        let valid = wrapped.like(0.0).le(wrapped).and(wrapped.lt(wrapped.like(extent as f64)));
        inside = Some(inside.map_or(valid, |inside: Wire<'b>| inside.and(valid)));
    }
    let outside = node.builder().constant(mcc_support::Tensor::scalar(i64::MAX));
    Ok(inside.map_or(linear, |inside| inside.select(linear, outside)))
}

/// The second of `values` where the index along the new axis is the operand's, which may count from the end; else the first.
pub static ONE_HOT: OpDef = OpDef {
    domain: "",
    name: "OneHot",
    since: &[9, 11],
    shape_inputs: &[1],
    build: |node| {
        let indices = node.input(0)?.cast(DType::I64);
        let depth = node.constant(1)?;
        let values = node.input(2)?;
        if depth.count() != 1 || values.shape().dims() != [2] {
            return Err(node.error(format!(
                "the depth must have one element and the values two, not {} and {}",
                depth.ty(),
                values.ty()
            )));
        }
        let depth = node.size("the depth", depth.number(0).as_i64())?;
        let axis = node.axis_attribute(-1, indices.rank() + 1)?;
        let negative = indices.lt(indices.like(0.0));
        let indices = negative.select(indices + depth as f64, indices).insert_axis(axis);
        let mut shape = vec![1; axis + 1];
        shape[axis] = depth;
        shape.resize(indices.rank(), 1);
        let hot = indices.eq(node.builder().iota(DType::I64, shape, axis));
        let value = |index| values.slice_axis(0, index, 1).reshape(Shape::scalar());
        Ok(vec![hot.select(value(1), value(0))])
    },
};

/// Keeps the triangle above (or below) the diagonal that is `k` above the main one; the rest is zero.
pub static TRILU: OpDef = OpDef { domain: "", name: "Trilu", since: &[14], shape_inputs: &[1], build: triangle };

pub(super) fn triangle<'b>(node: &NodeContext<'_, 'b>) -> Result<Vec<Wire<'b>>> {
    let x = node.input(0)?;
    let upper = node.attributes().flag("upper", true)?;
    let k = node.optional_int(1)?.unwrap_or(0);
    let &[.., rows, columns] = x.shape().dims() else {
        return Err(node.error(format!("the operand must have rank 2 or more, not {}", x.ty())));
    };
    let distance = diagonal_distance(node, rows, columns, k);
    let zero = distance.like(0.0);
    let kept = if upper { zero.le(distance) } else { distance.le(zero) };
    Ok(vec![kept.select(x, x.like(0.0))])
}

/// Of each element of a matrix, how far right of the diagonal it is that starts at column `k`.
pub(super) fn diagonal_distance<'b>(node: &NodeContext<'_, 'b>, rows: usize, columns: usize, k: i64) -> Wire<'b> {
    let k = k.clamp(-(rows as i64) - 1, columns as i64 + 1);
    let row = node.builder().iota(DType::I64, [rows, 1], 0);
    let column = node.builder().iota(DType::I64, [1, columns], 1);
    column - row - k as f64
}

/// Reverses the first elements of each sequence, as many as its length says.
pub static REVERSE_SEQUENCE: OpDef = OpDef {
    domain: "",
    name: "ReverseSequence",
    since: &[10],
    shape_inputs: &[],
    build: |node| {
        let (x, lengths) = (node.input(0)?, node.input(1)?.cast(DType::I64));
        let time = node.axis(node.attributes().int_or("time_axis", 0)?, x.rank())?;
        let batch = node.axis(node.attributes().int_or("batch_axis", 1)?, x.rank())?;
        let shape = x.shape();
        if time == batch || lengths.shape().dims() != [shape[batch]] {
            return Err(node.error(format!(
                "the lengths {} do not fit {} with time axis {time} and batch axis {batch}",
                lengths.ty(),
                x.ty()
            )));
        }
        let along = |axis: usize| {
            Shape::new((0..shape.rank()).map(|other| if other == axis { shape[axis] } else { 1 }).collect::<Vec<_>>())
        };
        let index = node.builder().iota(DType::I64, along(time), time);
        let lengths = lengths.reshape(along(batch));
        let index = index.lt(lengths).select(lengths - 1.0 - index, index);
        Ok(vec![node.builder().add(Op::GatherElements { axis: time }, &[x, index.broadcast(shape)])])
    },
};

pub static CUM_SUM: OpDef =
    OpDef { domain: "", name: "CumSum", since: &[11, 14], shape_inputs: &[1], build: |node| scan(node, ReduceFn::Sum) };

pub static CUM_PROD: OpDef =
    OpDef { domain: "", name: "CumProd", since: &[26], shape_inputs: &[1], build: |node| scan(node, ReduceFn::Prod) };

fn scan<'b>(node: &NodeContext<'_, 'b>, kind: ReduceFn) -> Result<Vec<Wire<'b>>> {
    let x = node.input(0)?;
    let axis = node.axis(node.constant_int(1)?, x.rank())?;
    let exclusive = node.attributes().flag("exclusive", false)?;
    let reverse = node.attributes().flag("reverse", false)?;
    Ok(vec![node.builder().add(Op::Scan { kind, axis, exclusive, reverse }, &[x])])
}
