//! Operators whose result is as long as the data say. Where the data are not known when the model is compiled, the result has room
//! for the most that there can be, and the run finds its length.

use mcc_support::{DType, Result, Shape, Tensor, TensorType};

use super::resize::take;
use super::{NodeContext, OpDef};
use crate::graph::{BinaryFn, Extent, Op, ReduceFn, Wire};

pub static ALL: &[&OpDef] = &[&COMPRESS, &NON_ZERO];

/// The elements along an axis, or of all, for which a condition holds.
pub static COMPRESS: OpDef = OpDef {
    domain: "",
    name: "Compress",
    since: &[9, 11],
    shape_inputs: &[],
    build: |node| {
        let (x, condition) = (node.input(0)?, node.input(1)?);
        let (x, axis) = match node.attributes().int("axis")? {
            Some(axis) => (x, node.axis(axis, x.rank())?),
            None if x.is_bounded() => {
                (x.reshape_to(&[x.extents().iter().fold(Extent::from(1i64), |all, extent| &all * extent)]), 0)
            }
            None => (x.reshape([x.shape().count()]), 0),
        };
        let fits = condition.dtype() == DType::Bool && condition.rank() == 1;
        let misfit = || node.error(format!("the condition {} does not fit axis {axis} of {}", condition.ty(), x.ty()));
        if let Some(condition) = condition.constant().filter(|_| fits && x.axes()[axis].is_whole()) {
            let chosen: Vec<usize> = set_places(&condition);
            let outside = chosen.last().is_some_and(|&last| last >= x.shape()[axis]);
            return if outside { Err(misfit()) } else { Ok(vec![take(x, axis, &chosen)]) };
        }
        if !fits || condition.shape()[0] > x.shape()[axis] {
            return Err(misfit());
        }
        let most = node.most_elements(0, condition.shape()[0]);
        Ok(vec![x.gather(places_of(node, condition, most), axis)])
    },
};

/// Flat indices of the elements that are not 0.
fn set_places(tensor: &Tensor) -> Vec<usize> {
    (0..tensor.count()).filter(|&index| tensor.number(index).as_f64() != 0.0).collect()
}

/// The indices at which a vector of `bool`s holds, of which there are at most `most` or the run has no result: an `i64` vector, as
/// long as the run finds.
pub(super) fn places_of<'b>(node: &NodeContext<'_, 'b>, flags: Wire<'b>, most: usize) -> Wire<'b> {
    let (builder, all) = (node.builder(), flags.shape()[0]);
    if all == 0 {
        return builder.constant(Tensor::zeros(TensorType::new(DType::I64, [0])));
    }
    let flags = flags.cast(DType::I64);
    let count = builder.count(node.output_name(0), flags.reduce(ReduceFn::Sum, &[0]), most, most >= all);
    // How many hold up to each index; elements that do not exist add nothing.
    let scan = Op::Scan { kind: ReduceFn::Sum, axis: 0, exclusive: false, reverse: false };
    let up_to = builder.add(scan, &[flags]);
    // The first index with more than `rank` of them, by halving: `place` indices are known to have no more.
    let rank = builder.iota(DType::I64, [most], 0);
    let mut place = rank.like(0.0).broadcast([most]);
    let mut step = all.next_power_of_two();
    while step > 0 {
        let next = place + step as f64;
        let inside = next.le(next.like(all as f64));
        let reached = up_to.gather((next - 1.0).min(next.like(all as f64 - 1.0)), 0);
        place = inside.and(reached.le(rank)).select(next, place);
        step /= 2;
    }
    place.min(place.like(all as f64 - 1.0)).limited(&[count])
}

/// The indices of the elements that are not 0: one row for each axis.
pub static NON_ZERO: OpDef = OpDef {
    domain: "",
    name: "NonZero",
    since: &[9, 13],
    shape_inputs: &[],
    build: |node| -> Result<_> {
        let x = node.input(0)?.compacted();
        // A scalar counts as a vector of one element.
        let shape = if x.rank() == 0 { Shape::new([1]) } else { x.shape() };
        let strides = shape.strides().into_iter().zip(shape.iter());
        if let Some(x) = x.constant() {
            let places = set_places(&x);
            let indices: Vec<i64> =
                strides.flat_map(|(stride, extent)| places.iter().map(move |place| (place / stride % extent) as i64)).collect();
            return Ok(vec![node.builder().constant(Tensor::from_elements([shape.rank(), places.len()], &indices))]);
        }
        let set = if x.dtype() == DType::Bool { x } else { !x.eq(x.like(0.0)) };
        // What does not exist is not set; where it is, is counted with the capacities.
        let along: Vec<_> = x.axes().into_iter().enumerate().collect();
        let set = node.builder().exists(x.rank(), &along).map_or(set, |exists| exists.and(set)).unlimited();
        let flat = set.reshape([shape.count()]);
        let places = places_of(node, flat, node.most_elements(0, shape.count()));
        let count = places.shape()[0];
        let row = |(stride, &extent): (usize, &usize)| {
            let place = if stride > 1 { places / stride as f64 } else { places };
            place.binary(BinaryFn::Rem, place.like(extent.max(1) as f64)).reshape([1, count])
        };
        Ok(vec![node.builder().concat(&strides.map(row).collect::<Vec<_>>(), 0)])
    },
};
