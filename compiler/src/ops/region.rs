//! Parts of images whose places are computed: regions of interest, and convolutions whose cells are moved.

use mcc_support::{DType, Result, Shape, Tensor};

use super::conv::{attributes, per_channel};
use super::sample::{Axis, Mode, Outside, Tap, sampled};
use super::{NodeContext, OpDef};
use crate::graph::{BinaryFn, ReduceFn, Round, UnaryFn, Wire};

pub static ALL: &[&OpDef] = &[&DEFORM_CONV, &MAX_ROI_POOL, &ROI_ALIGN];

/// The bins of regions along one axis of images.
struct Bins<'b> {
    /// Of each region, `[regions, 1]`: its first bin's place, the extent of one bin, and how many samples a bin has.
    start: Wire<'b>,
    size: Wire<'b>,
    samples: Wire<'b>,
    count: usize,
    extent: usize,
}

impl<'b> Bins<'b> {
    /// The most samples of a bin in any region, as `i64[]`.
    fn most(&self) -> Wire<'b> {
        // Of regions that are no numbers, or are far larger than any image.
        const LIMIT: f64 = 32768.0;
        self.samples.reduce(ReduceFn::Max, &[0, 1]).cast(DType::I64).clamp(0.0, LIMIT)
    }

    /// Whether the regions have a sample of this index: `[regions, 1]`.
    fn exists(&self, sample: Wire<'b>) -> Wire<'b> {
        sample.lt(self.samples)
    }

    /// The elements around the sample of this index in each bin, as `shape`, but for those that exist not or are far outside.
    fn taps(&self, sample: Wire<'b>, shape: [usize; 4]) -> Vec<Tap<'b>> {
        let bin = self.start.builder().iota(self.start.dtype(), [1, self.count], 1);
        let place = self.start + bin * self.size + (sample + 0.5) * self.size / self.samples;
        let inside = place.like(-1.0).le(place).and(place.le(place.like(self.extent as f64))).and(self.exists(sample));
        let last = self.extent as f64 - 1.0;
        let place = place.clamp(0.0, last);
        let low = place.unary(UnaryFn::Floor);
        let behind = place - low;
        let tap = |index: Wire<'b>, weight: Wire<'b>| Tap {
            index: index.cast(DType::I64).reshape(shape),
            weight: Some(weight.reshape(shape)),
            inside: Some(inside.reshape(shape)),
        };
        vec![tap(low, 1.0 - behind), tap((low + 1.0).min(low.like(last)), behind)]
    }
}

/// Regions divided into bins, each the mean or the maximum of samples between the elements.
pub static ROI_ALIGN: OpDef =
    OpDef { domain: "", name: "RoiAlign", since: &[10, 16, 22], shape_inputs: &[], build: |node| Ok(vec![roi_align(node)?]) };

fn roi_align<'b>(node: &NodeContext<'_, 'b>) -> Result<Wire<'b>> {
    let (x, regions, images) = (node.input(0)?, node.input(1)?, node.input(2)?.cast(DType::I64));
    let attributes = node.attributes();
    let max = attributes.word("mode", &["avg", "max"])? == "max";
    let half_pixel = node.version() >= 16
        && attributes.word("coordinate_transformation_mode", &["half_pixel", "output_half_pixel"])? == "half_pixel";
    let ratio = node.size("the sampling ratio", attributes.int_or("sampling_ratio", 0)?)?;
    let scale = f64::from(attributes.float_or("spatial_scale", 1.0)?);
    let count = |name: &str| node.size("the extent of the result", attributes.int_or(name, 1)?);
    let (height, width) = (count("output_height")?, count("output_width")?);
    let (shape, n) = (x.shape(), regions.shape().first().copied().unwrap_or(0));
    if shape.rank() != 4 || shape.contains(&0) || regions.shape().dims() != [n, 4] || images.shape().dims() != [n] {
        return Err(node.error(format!("regions {} of images {} do not fit an operand {}", regions.ty(), images.ty(), x.ty())));
    }
    let dtype = x.dtype().single_or_double();
    if node.count("the elements of the result", &[n, height, width])? == 0 {
        return Ok(x.like(0.0).broadcast([n, shape[1], height, width]));
    }
    let regions = regions.cast(dtype) * scale - if half_pixel { 0.5 } else { 0.0 };
    // A region is x and y of its first corner, then of its last.
    let bins = |axis: usize, count: usize| {
        let (start, end) = (regions.slice_axis(1, 1 - axis, 1), regions.slice_axis(1, 3 - axis, 1));
        let length = if half_pixel { end - start } else { (end - start).max(start.like(1.0)) };
        let size = length / count as f64;
        let samples =
            if ratio > 0 { size.like(ratio as f64).broadcast([n, 1]) } else { size.unary(UnaryFn::Ceil).max(size.like(0.0)) };
        Bins { start, size, samples, count, extent: shape[axis + 2] }
    };
    let bins = [bins(0, height), bins(1, width)];
    Ok(pooled(x.cast(dtype), images, &bins, max)?.cast(x.dtype()))
}

/// Sums up or compares the samples, in each round one of each bin.
fn pooled<'b>(x: Wire<'b>, images: Wire<'b>, [rows, columns]: &[Bins<'b>; 2], max: bool) -> Result<Wire<'b>> {
    let (n, dtype) = (images.shape()[0], x.dtype());
    let across = columns.most();
    let (rounds, across) = (rows.most() * across, across.max(across.like(1.0)));
    let none = x.like(if max { f64::NEG_INFINITY } else { 0.0 }).broadcast([n, x.shape()[1], rows.count, columns.count]);
    let builder = x.builder();
    let repeated = builder.repeat(1 << 30, Some(rounds), None, &[none], |round, carried| {
        let (row, column) = ((round / across).cast(dtype), round.binary(BinaryFn::Rem, across).cast(dtype));
        let taps = [rows.taps(row, [n, rows.count, 1, 1]), columns.taps(column, [n, 1, columns.count, 1])];
        let combine = if max { Wire::max } else { |sum: Wire<'b>, term: Wire<'b>| sum + term };
        let sample = sampled(x, images, &taps, &[rows.count, columns.count], combine);
        let next = if max {
            let exists = rows.exists(row).and(columns.exists(column)).reshape([n, 1, 1, 1]);
            exists.select(carried[0].max(sample), carried[0])
        } else {
            carried[0] + sample
        };
        Ok(Round { go: builder.constant(Tensor::scalar(true)), next: vec![next], elements: Vec::new() })
    })?;
    let result = repeated.carried[0];
    let total = (rows.samples * columns.samples).reshape([n, 1, 1, 1]);
    Ok(if max { total.like(0.0).lt(total).select(result, result.like(0.0)) } else { result / total.max(total.like(1.0)) })
}

/// Regions divided into bins of whole elements, each its maximum.
pub static MAX_ROI_POOL: OpDef = OpDef {
    domain: "",
    name: "MaxRoiPool",
    since: &[1, 22],
    shape_inputs: &[],
    build: |node| {
        let (x, regions) = (node.input(0)?, node.input(1)?);
        let attributes = node.attributes();
        let pooled = attributes.required("pooled_shape", attributes.ints("pooled_shape")?)?;
        let scale = f64::from(attributes.float_or("spatial_scale", 1.0)?);
        let (shape, n) = (x.shape(), regions.shape().first().copied().unwrap_or(0));
        let &[height, width] = &pooled[..] else { return Err(node.error("attribute 'pooled_shape' must have two entries")) };
        if shape.rank() != 4 || shape.contains(&0) || regions.shape().dims() != [n, 5] {
            return Err(node.error(format!("regions {} do not fit an operand {}", regions.ty(), x.ty())));
        }
        let (height, width) = (node.size("the extent of the result", height)?, node.size("the extent of the result", width)?);
        let images = regions.slice_axis(1, 0, 1).reshape([n]).cast(DType::I64);
        let rows = covered(regions, scale, 1, height, shape[2]);
        let columns = covered(regions, scale, 0, width, shape[3]);
        let images = x.gather(images, 0);
        let least = x.like(f64::NEG_INFINITY);
        let across =
            columns.reshape([n, 1, 1, width, shape[3]]).select(images.reshape([n, shape[1], shape[2], 1, shape[3]]), least);
        let across = across.reduce(ReduceFn::Max, &[4]).transpose(&[0, 1, 3, 2]);
        let down = rows.reshape([n, 1, height, 1, shape[2]]).select(across.reshape([n, shape[1], 1, width, shape[2]]), least);
        let result = down.reduce(ReduceFn::Max, &[4]);
        // A bin without an element is 0.
        let any = rows.any(&[2]).reshape([n, 1, height, 1]).and(columns.any(&[2]).reshape([n, 1, 1, width]));
        Ok(vec![any.select(result, x.like(0.0))])
    },
};

/// Whether each bin of each region covers each element of an axis: `[regions, bins, extent]`. The corners are those in column
/// `1 + axis` and `3 + axis`, rounded away from 0.
fn covered(regions: Wire<'_>, scale: f64, axis: usize, bins: usize, extent: usize) -> Wire<'_> {
    let builder = regions.builder();
    let n = regions.shape()[0];
    let dtype = regions.dtype().single_or_double();
    let corner = |at: usize| {
        let corner = regions.slice_axis(1, at, 1).reshape([n, 1, 1]).cast(dtype) * scale;
        corner.unary(UnaryFn::Sign) * (corner.abs() + 0.5).unary(UnaryFn::Floor)
    };
    let (start, end) = (corner(1 + axis), corner(3 + axis));
    let size = (end - start + 1.0).max(start.like(1.0)) / bins as f64;
    let bin = builder.iota(dtype, [1, bins, 1], 1);
    let first = (bin * size).unary(UnaryFn::Floor) + start;
    let behind = ((bin + 1.0) * size).unary(UnaryFn::Ceil) + start;
    let element = builder.iota(dtype, [1, 1, extent], 2);
    first.le(element).and(element.lt(behind))
}

/// A convolution each of whose cells is moved by an offset, between elements, and may be weakened by a mask.
pub static DEFORM_CONV: OpDef = OpDef {
    domain: "",
    name: "DeformConv",
    since: &[19, 22],
    shape_inputs: &[],
    build: |node| {
        let (x, weights, offset) = (node.input(0)?, node.input(1)?, node.input(2)?);
        let dtype = x.dtype().single_or_double();
        let y = deformed(node, x.cast(dtype), weights.cast(dtype), offset.cast(dtype), dtype)?;
        node.builder().check()?;
        let y = match node.optional(3) {
            Some(bias) => y + per_channel(node, "the bias", bias.cast(dtype), y, 1)?,
            None => y,
        };
        Ok(vec![y.cast(x.dtype())])
    },
};

fn deformed<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, weights: Wire<'b>, offset: Wire<'b>, dtype: DType) -> Result<Wire<'b>> {
    let (shape, filters) = (x.shape(), weights.shape());
    let conv = attributes(node, x, &filters)?;
    let groups = node.size("the group count", node.attributes().int_or("offset_group", 1)?)?;
    let (batch, channels, axes) = (shape[0], shape[1], shape.rank() - 2);
    let kernel = Shape::new(&filters[2..]);
    let cells = kernel.count();
    let out = offset.shape().get(2..).map(<[usize]>::to_vec).unwrap_or_default();
    let expected: Vec<i64> = (0..axes)
        .map(|axis| {
            let covered = (kernel[axis] as i64 - 1) * conv.dilations[axis] as i64 + 1;
            (shape[axis + 2] as i64 + conv.pads[axis].0 + conv.pads[axis].1 - covered).div_euclid(conv.strides[axis] as i64) + 1
        })
        .collect();
    let fits = groups > 0
        && channels.is_multiple_of(groups)
        && out.iter().map(|&extent| extent as i64).eq(expected.iter().copied())
        && offset.shape()[..2] == [batch, groups * cells * axes]
        && channels == filters[1] * conv.groups
        && filters[0].is_multiple_of(conv.groups)
        && !shape.contains(&0);
    if !fits {
        return Err(node.error(format!(
            "the operand {}, weights {} and offsets {} do not fit for {} groups and {groups} groups of offsets",
            x.ty(),
            weights.ty(),
            offset.ty(),
            conv.groups
        )));
    }
    let places = Shape::new(out.clone());
    let count = places.count();
    let offsets = offset.reshape([batch * groups, cells, axes, count]);
    let taps: Vec<Vec<Tap<'b>>> = (0..axes)
        .map(|at| {
            let mut bases = Vec::with_capacity(cells * count);
            kernel.for_each_index(|cell| {
                places.for_each_index(|place| {
                    let moved = place[at] * conv.strides[at] + cell[at] * conv.dilations[at];
                    bases.push(moved as f64 - conv.pads[at].0 as f64);
                });
            });
            let base = node.builder().constant(Tensor::from_elements([1, cells, count, 1], &bases)).cast(dtype);
            let place = base + offsets.slice_axis(2, at, 1).reshape([batch * groups, cells, count, 1]);
            Axis { extent: shape[at + 2], align_corners: true, outside: Outside::Zeros }.taps(place, Mode::Linear)
        })
        .collect();
    let images = node.builder().iota(DType::I64, [batch * groups], 0);
    let pixels = x.reshape([&[batch * groups, channels / groups], &shape[2..]].concat());
    let mut columns = sampled(pixels, images, &taps, &[cells, count], |sum, term| sum + term);
    if let Some(mask) = node.optional(4) {
        if mask.shape()[..] != [&[batch, groups * cells], &out[..]].concat() {
            return Err(node.error(format!("the mask {} does not fit offsets {}", mask.ty(), offset.ty())));
        }
        columns = columns * mask.cast(dtype).reshape([batch * groups, 1, cells, count]);
    }
    let columns = columns.reshape([batch, conv.groups, channels / conv.groups, cells, count]);
    let weights = weights.reshape([conv.groups, filters[0] / conv.groups, filters[1], cells]);
    let y = columns.contract(weights, "ngckp", "gmck", "ngmp");
    Ok(y.reshape([&[batch, filters[0]], &out[..]].concat()))
}
