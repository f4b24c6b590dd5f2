//! Operators whose result is as long as the data say: the data must be known when the model is compiled.

use mcc_support::{DType, Result, Shape, Tensor};

use super::OpDef;
use super::resize::take;
use crate::graph::{Op, ReduceFn, Wire};

pub static ALL: &[&OpDef] = &[&COMPRESS, &NON_ZERO];

/// The elements along an axis, or of all, for which a condition holds.
pub static COMPRESS: OpDef = OpDef {
    domain: "",
    name: "Compress",
    since: &[9, 11],
    shape_inputs: &[1],
    build: |node| {
        let x = node.input(0)?;
        let condition = node.constant(1)?;
        let (x, axis) = match node.attributes().int("axis")? {
            Some(axis) => (x, node.axis(axis, x.rank())?),
            None => (x.reshape([x.shape().count()]), 0),
        };
        let chosen: Vec<usize> = set_places(&condition);
        if condition.dtype() != DType::Bool || chosen.last().is_some_and(|&last| last >= x.shape()[axis]) {
            return Err(node.error(format!("the condition {} does not fit axis {axis} of {}", condition.ty(), x.ty())));
        }
        Ok(vec![take(x, axis, &chosen)])
    },
};

/// Flat indices of the elements that are not 0.
fn set_places(tensor: &Tensor) -> Vec<usize> {
    (0..tensor.count()).filter(|&index| tensor.number(index).as_f64() != 0.0).collect()
}

/// The indices of the elements that are not 0: one row for each axis.
pub static NON_ZERO: OpDef = OpDef {
    domain: "",
    name: "NonZero",
    since: &[9, 13],
    shape_inputs: &[0],
    build: |node| -> Result<_> {
        let x = node.constant(0)?;
        let places = set_places(&x);
        // A scalar counts as a vector of one element.
        let shape = if x.shape().rank() == 0 { Shape::new([1]) } else { x.shape().clone() };
        let rows = shape.strides().into_iter().zip(shape.iter());
        let indices: Vec<i64> =
            rows.flat_map(|(stride, extent)| places.iter().map(move |place| (place / stride % extent) as i64)).collect();
        Ok(vec![node.builder().constant(Tensor::from_elements([shape.rank(), places.len()], &indices))])
    },
};

/// The indices at which a condition `bool[n]` holds, in order, as `i64[n]` of which the first ones count, and how many there are, as
/// `i64[]`: by halving, in running counts.
pub(super) fn compacted(condition: Wire<'_>) -> (Wire<'_>, Wire<'_>) {
    let builder = condition.builder();
    let count = condition.shape()[0];
    let set = condition.cast(DType::I64);
    let total = set.reduce(ReduceFn::Sum, &[0]);
    let counts = builder.add(Op::Scan { kind: ReduceFn::Sum, axis: 0, exclusive: false, reverse: false }, &[set]);
    let wanted = builder.iota(DType::I64, [count], 0);
    // How many elements at the front have a running count that is too small.
    let mut place = wanted.like(0.0).broadcast([count]);
    for step in (0..usize::BITS - count.leading_zeros()).rev().map(|bit| 1usize << bit) {
        let further = place + step as f64;
        let last = (further - 1.0).min(place.like(count as f64 - 1.0));
        let too_small = further.le(further.like(count as f64)).and(counts.gather(last, 0).le(wanted));
        place = too_small.select(further, place);
    }
    (place.min(place.like((count as f64 - 1.0).max(0.0))), total)
}
