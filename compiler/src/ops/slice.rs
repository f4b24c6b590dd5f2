//! Operators that cut tensors, put them together and pad them.

use mcc_support::{DType, Result, Shape};

use super::{NodeContext, OpDef};
use crate::graph::{Extent, Op, PadMode, SliceAxis, Wire};

pub static ALL: &[&OpDef] = &[&CENTER_CROP_PAD, &CONCAT, &PAD, &SLICE, &SPLIT];

pub static CONCAT: OpDef = OpDef {
    domain: "",
    name: "Concat",
    since: &[4, 11, 13],
    shape_inputs: &[],
    build: |node| {
        let parts = node.inputs_from(0)?;
        let first = parts.first().ok_or_else(|| node.error("there is no operand"))?;
        let axis = node.attributes().required("axis", node.attributes().int("axis")?)?;
        let axis = node.axis(axis, first.rank())?;
        Ok(vec![node.builder().concat(&parts, axis)])
    },
};

/// Sizes along `axis`: an attribute before opset 13, then input 1; else equal ones, of which the last is smaller from opset 18 on.
pub static SPLIT: OpDef = OpDef {
    domain: "",
    name: "Split",
    since: &[2, 11, 13, 18],
    shape_inputs: &[1],
    build: |node| {
        let x = node.input(0)?;
        let axis = node.axis_attribute(0, x.rank())?;
        let sizes = if node.version() < 13 { node.attributes().ints("split")? } else { node.optional_ints(1)? };
        let parts = if node.version() < 18 { None } else { node.attributes().int("num_outputs")? };
        if !x.axes()[axis].is_whole() && sizes.is_none() {
            let parts = parts.map_or(Ok(node.output_count()), |parts| node.size("the number of parts", parts))?;
            return bounded_parts(node, x, axis, parts);
        }
        node.expect_whole(x, [axis])?;
        let extent = x.shape()[axis];
        let sizes = match (sizes, parts) {
            (Some(_), Some(_)) => return Err(node.error("both sizes and attribute 'num_outputs' are given")),
            (Some(sizes), None) => sizes.iter().map(|&size| node.size("the size", size)).collect::<Result<Vec<_>>>()?,
            (None, parts) => equal_parts(node, extent, parts)?,
        };
        if sizes.len() < node.output_count() || sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size)) != Some(extent)
        {
            return Err(node.error(format!(
                "the sizes {sizes:?} do not split axis {axis} of {} into {} parts",
                x.ty(),
                node.output_count()
            )));
        }
        let mut start = 0;
        let part = |&size: &usize| {
            start += size;
            x.slice_axis(axis, start - size, size)
        };
        Ok(sizes.iter().map(part).collect())
    },
};

/// Equal parts of an axis whose extent is known only at run time, and divides into so many.
fn bounded_parts<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, axis: usize, parts: usize) -> Result<Vec<Wire<'b>>> {
    let extent = x.extent(axis);
    let size = extent.exact_quotient(&Extent::from(parts)).ok_or_else(|| {
        node.error(format!(
            "an extent of {} is not known to divide into {parts} equal parts",
            node.builder().extent_text(&extent)
        ))
    })?;
    let place = |part: usize| &size * &Extent::from(part);
    (0..parts).map(|part| bounded_slice(node, x, axis, &place(part), &place(part + 1), 1)).collect()
}

fn equal_parts(node: &NodeContext<'_, '_>, extent: usize, parts: Option<i64>) -> Result<Vec<usize>> {
    let parts = parts.map_or(Ok(node.output_count()), |parts| node.size("the number of parts", parts))?;
    if parts == 0 || parts > extent.max(node.output_count()) {
        return Err(node.error(format!("an extent of {extent} cannot be split into {parts} parts")));
    }
    let size = extent.div_ceil(parts);
    if !extent.is_multiple_of(parts) && node.version() < 18 {
        return Err(node.error(format!("an extent of {extent} cannot be split into {parts} equal parts")));
    }
    Ok((0..parts).map(|part| size.min(extent.saturating_sub(part * size))).collect())
}

/// Attributes before opset 10, then inputs.
pub static SLICE: OpDef = OpDef {
    domain: "",
    name: "Slice",
    since: &[1, 10, 11, 13],
    shape_inputs: &[1, 2, 3, 4],
    build: |node| {
        let x = node.input(0)?;
        let attributes = node.attributes();
        let (starts, ends, axes, steps) = if node.version() < 10 {
            let list = |ints: Vec<i64>| ints.into_iter().map(Extent::from).collect::<Vec<_>>();
            let starts = attributes.required("starts", attributes.ints("starts")?)?;
            let ends = attributes.required("ends", attributes.ints("ends")?)?;
            (list(starts), list(ends), attributes.ints("axes")?, None)
        } else {
            (node.extents(1)?, node.extents(2)?, node.optional_ints(3)?, node.optional_ints(4)?)
        };
        let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
        if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
            return Err(node.error(format!(
                "{} starts, {} ends, the axes {axes:?} and the steps {steps:?} do not match",
                starts.len(),
                ends.len()
            )));
        }
        let axes = node.axes(&axes, x.rank())?;
        let (mut ranges, of) = (whole(&x.shape()), x.axes());
        let mut bounded = Vec::new();
        for (index, &axis) in axes.iter().enumerate() {
            if steps[index] == 0 {
                return Err(node.error("a step is 0"));
            }
            match (starts[index].known(), ends[index].known()) {
                (Some(start), Some(end)) if of[axis].is_whole() => {
                    ranges[axis] = range(start, end, steps[index], ranges[axis].count);
                }
                _ => bounded.push((axis, &starts[index], &ends[index], steps[index])),
            }
        }
        bounded
            .into_iter()
            .try_fold(x.slice(ranges), |x, (axis, start, end, step)| bounded_slice(node, x, axis, start, end, step))
            .map(|wire| vec![wire])
    },
};

/// As [`range`] where the ends or the extent are known only at run time.
fn bounded_slice<'b>(
    node: &NodeContext<'_, 'b>,
    x: Wire<'b>,
    axis: usize,
    start: &Extent,
    end: &Extent,
    step: i64,
) -> Result<Wire<'b>> {
    let builder = node.builder();
    let (zero, extent) = (Extent::default(), x.extent(axis));
    // What is far outside is as good as the end.
    let place = |place: &Extent| {
        let limit = builder.most(&extent) as i64 + 1;
        let place = place.known().map_or_else(|| place.clone(), |known| Extent::from(known.clamp(-limit, limit)));
        match builder.bounds(&place) {
            (0.., _) => Ok(place),
            (_, ..0) => Ok(&place + &extent),
            _ => Err(node.error(format!("the place {} may be negative or not", builder.extent_text(&place)))),
        }
    };
    // A walk backwards starts at the last element at most, and ends before the first at least.
    let (low, high) =
        if step > 0 { (zero.clone(), extent.clone()) } else { (Extent::from(-1i64), &extent - &Extent::from(1i64)) };
    let within = |place: Extent, low: &Extent| builder.smaller(&builder.larger(&place, low), &high);
    let passed = end.known().is_some_and(|end| step < 0 && end < -(builder.most(&extent) as i64));
    let start = within(place(start)?, &zero);
    let end = if passed { low.clone() } else { within(place(end)?, &low) };
    let distance = if step > 0 { &end - &start } else { &start - &end };
    let size = step.checked_abs().ok_or_else(|| node.error("a step is too large"))?;
    let count = builder.larger(&builder.quotient(&(&distance + &Extent::from(size - 1)), &Extent::from(size))?, &zero);
    let capacity = builder.most(&count);
    let known = start.known_size().filter(|&first| {
        let last = capacity.saturating_sub(1).checked_mul(size as usize).and_then(|reach| reach.checked_add(first));
        step > 0 && x.axes()[axis].is_prefix() && last.is_some_and(|last| last < x.shape()[axis])
    });
    if let Some(first) = known {
        let mut ranges = whole(&x.shape());
        ranges[axis] = SliceAxis { start: first, step, count: capacity };
        return Ok(x.slice(ranges).limited_along(axis, &count));
    }
    let place = builder.iota(DType::I64, [capacity], 0) * step as f64 + builder.extent_wire(&start);
    Ok(x.gather(place.limited(&[count]), axis))
}

fn whole(shape: &Shape) -> Vec<SliceAxis> {
    shape.iter().map(|&dim| SliceAxis { start: 0, step: 1, count: dim }).collect()
}

/// The elements of an axis from `start` up to `end`, both clamped to it; negative ones count from its end.
fn range(start: i64, end: i64, step: i64, extent: usize) -> SliceAxis {
    let extent = extent as i128;
    let from_end = |place: i64| if place < 0 { i128::from(place) + extent } else { i128::from(place) };
    // A walk backwards starts at the last element at most, and ends before the first at least.
    let (low, high) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
    let start = from_end(start).clamp(if step > 0 { 0 } else { 0.min(high) }, high);
    let end = from_end(end).clamp(low, high);
    let distance = if step > 0 { end - start } else { start - end };
    let count = if distance <= 0 { 0 } else { (distance - 1) / i128::from(step).abs() + 1 };
    SliceAxis {
        start: if count == 0 { 0 } else { start as usize },
        step: if count == 0 { 1 } else { step },
        count: count as usize,
    }
}

pub static PAD: OpDef =
    OpDef { domain: "", name: "Pad", since: &[2, 11, 13, 18, 19, 21, 23, 24, 25], shape_inputs: &[1, 3], build: padded };

/// The version in the domain of ONNX Runtime is as version 11 of the standard's.
pub(super) fn padded<'b>(node: &NodeContext<'_, 'b>) -> Result<Vec<Wire<'b>>> {
    let version = if node.domain().is_empty() { node.version() } else { 11 };
    let x = node.input(0)?;
    let attributes = node.attributes();
    let words: &[&str] = if version < 19 { &["constant", "reflect", "edge"] } else { &["constant", "reflect", "edge", "wrap"] };
    let mode = match attributes.word("mode", words)? {
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Edge,
        "wrap" => PadMode::Wrap,
        _ => PadMode::Constant,
    };
    let (pads, value) = if version < 11 {
        (attributes.required("pads", attributes.ints("pads")?)?, x.like(f64::from(attributes.float_or("value", 0.0)?)))
    } else {
        (node.constant_ints(1)?, node.optional_scalar(2)?.unwrap_or_else(|| x.like(0.0)))
    };
    let axes = if version < 18 { None } else { node.optional_ints(3)? };
    let axes = axes.map_or_else(|| Ok((0..x.rank()).collect()), |axes| node.axes(&axes, x.rank()))?;
    if axes.len().checked_mul(2) != Some(pads.len()) {
        return Err(node.error(format!("{} pads are given for {} axes", pads.len(), axes.len())));
    }
    let mut amounts = vec![(0, 0); x.rank()];
    for (index, &axis) in axes.iter().enumerate() {
        amounts[axis] = (pads[index], pads[index + axes.len()]);
    }
    Ok(vec![pad(node, x, &amounts, mode, value)?])
}

/// Pads each axis; negative amounts crop.
fn pad<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, amounts: &[(i64, i64)], mode: PadMode, value: Wire<'b>) -> Result<Wire<'b>> {
    let mut ranges = whole(&x.shape());
    let mut added = Vec::with_capacity(amounts.len());
    for (axis, &(before, after)) in amounts.iter().enumerate() {
        let crop = |amount: i64| usize::try_from(amount.min(0).unsigned_abs()).unwrap_or(usize::MAX);
        let cropped = crop(before).checked_add(crop(after)).and_then(|crop| ranges[axis].count.checked_sub(crop));
        let count = cropped
            .ok_or_else(|| node.error(format!("the pads ({before}, {after}) crop more than axis {axis} of {} has", x.ty())))?;
        ranges[axis] = SliceAxis { start: if count == 0 { 0 } else { crop(before) }, step: 1, count };
        added.push((before.max(0) as usize, after.max(0) as usize));
    }
    let x = x.slice(ranges);
    if added.iter().all(|&amount| amount == (0, 0)) {
        return Ok(x);
    }
    let operands = [x, value];
    let operands = if mode == PadMode::Constant { &operands[..] } else { &operands[..1] };
    Ok(node.builder().add(Op::Pad { mode, amounts: added }, operands))
}

/// Crops or pads with zeros around the middle; what is odd goes to the end when padding, and when cropping too.
pub static CENTER_CROP_PAD: OpDef = OpDef {
    domain: "",
    name: "CenterCropPad",
    since: &[18],
    shape_inputs: &[1],
    build: |node| {
        let x = node.input(0)?;
        let wanted = node.constant_ints(1)?;
        let axes = node.attributes().ints("axes")?;
        let axes = axes.map_or_else(|| Ok((0..x.rank()).collect()), |axes| node.axes(&axes, x.rank()))?;
        if axes.len() != wanted.len() {
            return Err(node.error(format!("{} extents are given for {} axes", wanted.len(), axes.len())));
        }
        let shape = x.shape();
        let mut amounts = vec![(0, 0); shape.rank()];
        for (&axis, &extent) in axes.iter().zip(&wanted) {
            let difference = node.size("the extent", extent)? as i64 - shape[axis] as i64;
            let before = if difference < 0 { -(-difference / 2) } else { difference / 2 };
            amounts[axis] = (before, difference - before);
        }
        let zero = x.like(0.0);
        Ok(vec![pad(node, x, &amounts, PadMode::Constant, zero)?])
    },
};
