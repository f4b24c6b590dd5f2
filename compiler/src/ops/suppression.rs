//! The best of boxes that overlap.

use mcc_support::{DType, Result, Shape};

use super::selected::places_of;
use super::{NodeContext, OpDef};
use crate::graph::{BinaryFn, Extent, Op, ReduceFn, Round, Wire};

pub static ALL: &[&OpDef] = &[&NON_MAX_SUPPRESSION];

/// For each image and class, boxes in the order of their scores, each dropped if it overlaps one before it: rows of image, class and
/// box, as many as the run finds.
pub static NON_MAX_SUPPRESSION: OpDef = OpDef {
    domain: "",
    name: "NonMaxSuppression",
    since: &[10, 11],
    shape_inputs: &[],
    build: |node| {
        let (boxes, scores) = (node.input(0)?, node.input(1)?);
        let centred = node.attributes().flag("center_point_box", false)?;
        let (given, shape) = (boxes.shape(), scores.shape());
        let fits = matches!(*shape.dims(), [images, _, n] if given.dims() == [images, n, 4]);
        if !fits || boxes.dtype() != DType::F32 || scores.dtype() != DType::F32 {
            return Err(node.error(format!("boxes {} do not fit scores {}", boxes.ty(), scores.ty())));
        }
        let zero = || node.builder().scalar(DType::F32, 0.0);
        let most = node.optional_scalar(2)?.map_or_else(|| zero().cast(DType::I64), |most| most.cast(DType::I64));
        let overlap = node.optional_scalar(3)?.unwrap_or_else(zero);
        let limits = Limits { most, overlap, score: node.optional_scalar(4)? };
        Ok(vec![suppressed(node, corners(boxes, centred), scores, limits)?])
    },
};

/// What boxes and scores are compared with.
struct Limits<'b> {
    /// `i64[]`: most boxes of a class in an image.
    most: Wire<'b>,
    /// Boxes whose intersection over union is above it overlap.
    overlap: Wire<'b>,
    /// Boxes whose score is not above it are left out.
    score: Option<Wire<'b>>,
}

/// Of `corners [images, n, 4]`, y before x, and `scores [images, classes, n]`. All images and classes go at once: in each round one box
/// of each is taken, and those that it overlaps are closed.
fn suppressed<'b>(node: &NodeContext<'_, 'b>, corners: Wire<'b>, scores: Wire<'b>, limits: Limits<'b>) -> Result<Wire<'b>> {
    let builder = node.builder();
    let [images, classes, n] = *scores.shape().dims() else { unreachable!("scores have three axes") };
    let known = limits.most.constant().map(|most| usize::try_from(most.number(0).as_i64()).unwrap_or(0));
    let rounds = known.map_or(n, |most| most.min(n));
    if images * classes * rounds == 0 {
        return Ok(builder.scalar(DType::I64, 0.0).broadcast([0, 3]));
    }
    let row = builder.iota(DType::I64, [images, 1], 0) * n as f64;
    let own = builder.iota(DType::I64, [1, 1, n], 2);
    // A NaN is never the best.
    let open = scores.eq(scores);
    let open = limits.score.map_or(open, |least| open.and(least.lt(scores)));
    let repeated = builder.repeat(rounds, Some(limits.most), Some(open.any(&[0, 1, 2])), &[open], |_, carried| {
        let open = carried[0];
        let best = open.select(scores, scores.like(f64::NEG_INFINITY)).reduce_keep(ReduceFn::Max, &[2]);
        let hit = open.and(scores.eq(best));
        let place = builder.add(Op::ArgReduce { max: true, axis: 2, last: false }, &[hit.cast(DType::I32)]);
        let taken = corners.reshape([images * n, 4]).gather(place + row, 0).reshape([images, classes, 1, 4]);
        let overlap = overlaps(corners.reshape([images, 1, n, 4]), taken, limits.overlap);
        let place = place.reshape([images, classes, 1]);
        let next = open.and(!overlap).and(!own.eq(place));
        Ok(Round { go: next.any(&[0, 1, 2]), next: vec![next], elements: vec![place, open.any(&[2])] })
    })?;
    builder.check()?;
    let run = repeated.stacks[0].shape()[0];
    let capacity = images * classes * run;
    // By image, class and round.
    let sorted = |stack: Wire<'b>| stack.reshape([run, images * classes]).transpose(&[1, 0]).reshape([capacity]);
    let [places, there] = [repeated.stacks[0], repeated.stacks[1]].map(sorted);
    if capacity == 0 {
        return Ok(places.reshape([0, 1]).broadcast([0, 3]));
    }
    let chosen = places_of(node, there, node.most_elements(0, capacity));
    let class = chosen / run as f64;
    let columns = [class / classes as f64, class.binary(BinaryFn::Rem, class.like(classes as f64)), places.gather(chosen, 0)];
    let shape = [chosen.extent(0), Extent::from(1i64)];
    Ok(builder.concat(&columns.map(|column| column.reshape_to(&shape)), 1))
}

/// The least y and x, then the greatest, of boxes in either form.
fn corners(boxes: Wire<'_>, centred: bool) -> Wire<'_> {
    let part = |at: usize| boxes.slice_axis(2, at, 1);
    let [a, b, c, d] = [part(0), part(1), part(2), part(3)];
    let [low_y, low_x, high_y, high_x] = if centred {
        let (width, height) = (c / 2.0, d / 2.0);
        [b - height, a - width, b + height, a + width]
    } else {
        [a.min(c), b.min(d), a.max(c), b.max(d)]
    };
    boxes.builder().concat(&[low_y, low_x, high_y, high_x], 2)
}

/// Whether the intersection over union of boxes in the last axis is above a threshold; boxes without an area overlap nothing.
fn overlaps<'b>(a: Wire<'b>, b: Wire<'b>, threshold: Wire<'b>) -> Wire<'b> {
    let low = |x: Wire<'b>| x.slice_axis(3, 0, 2);
    let high = |x: Wire<'b>| x.slice_axis(3, 2, 2);
    let area = |extents: Wire<'b>| {
        let shape = Shape::new(&extents.shape()[..3]);
        extents.slice_axis(3, 0, 1).reshape(shape.clone()) * extents.slice_axis(3, 1, 1).reshape(shape)
    };
    let common = high(a).min(high(b)) - low(a).max(low(b));
    let common = area(common.max(common.like(0.0)));
    let (own, other) = (area(high(a) - low(a)), area(high(b) - low(b)));
    let union = own + other - common;
    let positive = |x: Wire<'b>| x.like(0.0).lt(x);
    let there = positive(common).and(positive(own)).and(positive(other)).and(positive(union));
    there.and(threshold.lt(common / there.select(union, union.like(1.0))))
}
