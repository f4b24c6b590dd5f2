//! The best of boxes that overlap.

use mcc_support::{DType, Result, Shape};

use super::selected::compacted;
use crate::graph::{Op, ReduceFn, Round, Wire};

/// What boxes and scores are compared with.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'b> {
    /// `i64[]`: most boxes of a class in an image.
    pub most: Wire<'b>,
    /// Boxes whose intersection over union is above it overlap.
    pub overlap: Wire<'b>,
    /// Boxes whose score is not above it are left out.
    pub score: Option<Wire<'b>>,
}

/// For each image and class, boxes in the order of their scores, each dropped if it overlaps one before it: rows of image, class and
/// box as `i64[capacity, 3]`, of which the first ones count, and how many there are, as `i64[]`. All images and classes go at once:
/// in each round one box of each is taken, and those that it overlaps are closed.
///
/// `boxes [images, n, 4]` are two corners, y before x, or with `centred` the centre, x before y, width and height;
/// `scores [images, classes, n]`.
pub fn suppressed<'b>(boxes: Wire<'b>, scores: Wire<'b>, limits: Limits<'b>, centred: bool) -> Result<(Wire<'b>, Wire<'b>)> {
    let builder = boxes.builder();
    let [images, classes, n] = *scores.shape().dims() else { unreachable!("scores have three axes") };
    let known = limits.most.constant().map(|most| usize::try_from(most.number(0).as_i64()).unwrap_or(0));
    let rounds = known.map_or(n, |most| most.min(n));
    if images * classes * rounds == 0 {
        let none = builder.scalar(DType::I64, 0.0);
        return Ok((none.broadcast([0, 3]), none));
    }
    // y and x of the first corner, then of the last.
    let corners = corners(boxes, centred);
    let row = builder.iota(DType::I64, [images, 1], 0) * n as f64;
    let own = builder.iota(DType::I64, [1, 1, n], 2);
    // A NaN is never the best.
    let open = scores.eq(scores);
    let open = limits.score.map_or(open, |least| open.and(least.lt(scores)));
    let repeated = builder.repeat(rounds, Some(limits.most), Some(any(open, &[0, 1, 2])), &[open], |_, carried| {
        let open = carried[0];
        let best = open.select(scores, scores.like(f64::NEG_INFINITY)).reduce_keep(ReduceFn::Max, &[2]);
        let hit = open.and(scores.eq(best));
        let place = builder.add(Op::ArgReduce { max: true, axis: 2, last: false }, &[hit.cast(DType::I32)]);
        let taken = corners.reshape([images * n, 4]).gather(place + row, 0).reshape([images, classes, 1, 4]);
        let overlap = overlaps(corners.reshape([images, 1, n, 4]), taken, limits.overlap);
        let place = place.reshape([images, classes, 1]);
        let next = open.and(!overlap).and(!own.eq(place));
        let there = any(open, &[2]);
        Ok(Round { go: any(next, &[0, 1, 2]), next: vec![next], elements: vec![place, there] })
    })?;
    builder.check()?;
    let [places, there] = [repeated.stacks[0], repeated.stacks[1]];
    let run = places.shape()[0];
    // By image, class and round.
    let places = places.reshape([run, images * classes]).transpose(&[1, 0]).reshape([images * classes * run]);
    let there = there.reshape([run, images * classes]).transpose(&[1, 0]).reshape([images * classes * run]);
    if run == 0 {
        return Ok((places.reshape([0, 1]).broadcast([0, 3]), builder.scalar(DType::I64, 0.0)));
    }
    let (chosen, count) = compacted(there);
    let class = chosen / run as f64;
    let columns =
        [class / classes as f64, class.binary(crate::graph::BinaryFn::Rem, class.like(classes as f64)), places.gather(chosen, 0)];
    let capacity = images * classes * run;
    Ok((builder.concat(&columns.map(|column| column.reshape([capacity, 1])), 1), count))
}

fn any<'b>(x: Wire<'b>, axes: &[usize]) -> Wire<'b> {
    x.cast(DType::I32).reduce(ReduceFn::Max, axes).cast(DType::Bool)
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

#[cfg(test)]
mod tests {
    use mcc_support::{Tensor, TensorType};

    use super::*;
    use crate::graph::{Builder, interp};

    const SCORES: [f32; 6] = [0.9, 0.75, 0.6, 0.95, 0.5, 0.3];

    /// Boxes of the specification's example: two at 0, two at 0.1 … 1.1, one at 10, one at 100.
    fn boxes(centred: bool) -> Vec<f32> {
        let places = [0.0f32, 0.1, -0.1, 10.0, 10.1, 100.0];
        let corners = |y: f32| if centred { [0.5, y + 0.5, 1.0, 1.0] } else { [y + 1.0, 0.0, y, 1.0] };
        places.iter().flat_map(|&y| corners(y)).collect()
    }

    #[test]
    fn boxes_that_overlap_better_ones_are_dropped() {
        let cases: [(i64, f32, Option<f32>, &[i64]); 6] = [
            (6, 0.5, None, &[3, 0, 5]),
            (6, 0.5, Some(0.4), &[3, 0]),
            (2, 0.5, Some(0.0), &[3, 0]),
            (6, 1.0, Some(0.55), &[3, 0, 1, 2]),
            (0, 0.5, None, &[]),
            (-1, 0.5, None, &[]),
        ];
        for centred in [false, true] {
            for (most, overlap, score, want) in cases {
                for known in [false, true] {
                    let builder = Builder::new("boxes");
                    let input = |name: &str, tensor: &Tensor| builder.input(name, tensor.ty().clone());
                    let values = [
                        Tensor::from_elements([1, 6, 4], &boxes(centred)),
                        Tensor::from_elements([1, 2, 6], &[SCORES, [f32::NAN; 6]].concat()),
                        Tensor::scalar(most),
                    ];
                    let number = |value: f32| builder.constant(Tensor::scalar(value));
                    let (given, scores) = (input("boxes", &values[0]), input("scores", &values[1]));
                    let most = if known { builder.constant(values[2].clone()) } else { input("most", &values[2]) };
                    let limits = Limits { most, overlap: number(overlap), score: score.map(number) };
                    let (found, count) = suppressed(given, scores, limits, centred).expect("a graph");
                    builder.output("found", found);
                    builder.output("count", count);
                    let graph = builder.finish();
                    let outputs = interp::run(&graph, &values[..graph.inputs.len()]).expect("runs");
                    let count = outputs[1].number(0).as_i64() as usize;
                    let rows = outputs[0].elements::<i64>();
                    let want: Vec<i64> = want.iter().flat_map(|&place| [0, 0, place]).collect();
                    assert_eq!(rows[..3 * count], want, "{} {overlap} {score:?} {centred} {known}", values[2].number(0).as_i64());
                    assert_eq!(outputs[0].ty(), &TensorType::new(DType::I64, [rows.len() / 3, 3]));
                }
            }
        }
    }
}
