//! Operators that order elements.

use mcc_support::{DType, Result};

use super::{NodeContext, OpDef};
use crate::graph::{Extent, Op, ReduceFn, Wire};

pub static ALL: &[&OpDef] = &[&TOP_K];

/// Up to this many elements are found one after the other; more of them by their ranks.
const MAX_ROUNDS: usize = 64;

/// The `k` largest (or smallest) elements along an axis in order, and their indices: the lower index first among equals.
/// `k` is an attribute before opset 10, then input 1.
pub static TOP_K: OpDef = OpDef {
    domain: "",
    name: "TopK",
    since: &[1, 10, 11, 24],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let attributes = node.attributes();
        let axis = node.axis_attribute(-1, x.rank())?;
        let extent = x.extent(axis);
        let wanted = if node.version() < 10 {
            Extent::from(attributes.required("k", attributes.int("k")?)?)
        } else {
            wanted(node, node.most_elements(0, x.shape()[axis]))?
        };
        let (low, high) = node.builder().bounds(&(&extent - &wanted));
        if high < 0 || low < 0 && wanted.known().is_some() {
            let [wanted, extent] = [&wanted, &extent].map(|extent| node.builder().extent_text(extent));
            return Err(node.error(format!("{wanted} elements are wanted of an axis of extent {extent}")));
        }
        if low < 0 {
            let left = node.builder().extent_wire(&(&extent - &wanted));
            node.builder().require(node.output_name(0), left, (0, x.shape()[axis]));
        }
        let k = node.size("the number of elements", node.builder().bounds(&wanted).1)?;
        let largest = node.version() < 11 || attributes.flag("largest", true)?;
        if node.version() >= 11 {
            // Results that need not be sorted may be.
            attributes.ignore("sorted");
        }
        if k == 0 {
            let none = x.slice_axis(axis, 0, 0);
            return Ok(vec![none, none.cast(DType::I64)]);
        }
        let indices = if k <= MAX_ROUNDS { one_by_one(node, x, axis, k, largest) } else { by_rank(node, x, axis, k, largest)? };
        let indices = if wanted.known().is_some() { indices } else { indices.limited_along(axis, &wanted) };
        Ok(vec![node.builder().add(Op::GatherElements { axis }, &[x, indices]), indices])
    },
};

/// How many elements input 1 says; where it is not known, no more than `most`.
fn wanted(node: &NodeContext<'_, '_>, most: usize) -> Result<Extent> {
    let given = node.optional_scalar(1)?.ok_or_else(|| node.error("the number of elements is missing"))?;
    match given.elements() {
        Some(elements) => Ok(elements[0].clone()),
        None => Ok(node.builder().count(node.output_name(0), given.cast(DType::I64), most, false)),
    }
}

fn one_by_one<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, axis: usize, k: usize, largest: bool) -> Wire<'b> {
    let builder = node.builder();
    let (mut shape, mut place) = (x.shape().into_dims(), vec![1; x.rank()]);
    place[axis] = shape[axis];
    shape[axis] = 1;
    let place = builder.iota(DType::I64, place, axis);
    let kind = if largest { ReduceFn::Max } else { ReduceFn::Min };
    let mut found: Vec<Wire<'b>> = Vec::with_capacity(k);
    let mut taken: Option<Wire<'b>> = None;
    for _ in 0..k {
        // What is taken is hidden behind an element that is there anyway; which of the equals is left, `open` says.
        let candidates = match (taken, largest) {
            (None, _) => x,
            (Some(taken), true) => taken.select(x.reduce_keep(ReduceFn::Min, &[axis]), x),
            (Some(taken), false) => taken.select(x.reduce_keep(ReduceFn::Max, &[axis]), x),
        };
        let extreme = candidates.reduce_keep(kind, &[axis]);
        let worse = if largest { x.lt(extreme) } else { extreme.lt(x) };
        let open = taken.map_or(!worse, |taken| (!worse).and(!taken)).cast(DType::I32);
        let index = builder.add(Op::ArgReduce { max: true, axis, last: false }, &[open]).reshape(shape.clone());
        let own = place.eq(index);
        taken = Some(taken.map_or(own, |taken| taken.binary(crate::graph::BinaryFn::Or, own)));
        found.push(index);
    }
    builder.concat(&found, axis)
}

/// The rank of an element is the number of those before it.
fn by_rank<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, axis: usize, k: usize, largest: bool) -> Result<Wire<'b>> {
    let builder = node.builder();
    let shape = x.shape();
    let extent = shape[axis];
    // Axis `axis` is an element's own, axis `axis + 1` that of the other.
    let (own, other) = (x.insert_axis(axis + 1), x.insert_axis(axis));
    let along = |at: usize, count: usize| {
        let mut shape = vec![1; shape.rank() + 1];
        shape[at] = count;
        builder.iota(DType::I64, shape, at)
    };
    let better = if largest { own.lt(other) } else { other.lt(own) };
    let earlier = along(axis + 1, extent).lt(along(axis, extent));
    let before = better.binary(crate::graph::BinaryFn::Or, own.eq(other).and(earlier));
    let rank = before.cast(DType::I32).reduce(ReduceFn::Sum, &[axis + 1]);
    builder.check()?;
    let hit = rank.insert_axis(axis).eq(along(axis, k).cast(DType::I32)).cast(DType::I32);
    Ok(builder.add(Op::ArgReduce { max: true, axis: axis + 1, last: false }, &[hit]))
}
