//! Convolutions and transposed convolutions, of any rank.

use mcc_support::{Result, Shape};

use super::spatial::{AutoPad, auto_pad, pads, positive, slides, split_pads};
use super::{NodeContext, OpDef};
use crate::graph::{Conv, SliceAxis, Wire};

pub static ALL: &[&OpDef] = &[&CONV, &CONV_TRANSPOSE];

pub static CONV: OpDef =
    OpDef { domain: "", name: "Conv", since: &[1, 11, 22], shape_inputs: &[], build: |node| Ok(vec![conv(node)?]) };

/// Of input 0 with the weights of input 1 and the bias of input 2, which may be left out.
pub(super) fn conv<'b>(node: &NodeContext<'_, 'b>) -> Result<Wire<'b>> {
    let (x, weights) = (node.input(0)?, node.input(1)?);
    let y = x.conv(weights, attributes(node, x, &weights.shape())?);
    with_bias(node, y)
}

/// What the attributes of a convolution say of an input, and weights of this shape.
pub(super) fn attributes<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, weights: &Shape) -> Result<Conv> {
    let kernel = kernel(node, &x.shape(), weights)?;
    let slides = slides(node, x, &kernel, true)?;
    Ok(Conv {
        strides: slides.iter().map(|slide| slide.stride).collect(),
        dilations: slides.iter().map(|slide| slide.dilation).collect(),
        pads: slides.iter().map(|slide| slide.pads).collect(),
        input_dilations: vec![1; slides.len()],
        groups: groups(node)?,
    })
}

fn groups(node: &NodeContext<'_, '_>) -> Result<usize> {
    let groups = node.size("the group count", node.attributes().int_or("group", 1)?)?;
    if groups == 0 { Err(node.error("the group count is 0")) } else { Ok(groups) }
}

/// The spatial extents of the weights, which the attribute may repeat.
fn kernel(node: &NodeContext<'_, '_>, x: &Shape, weights: &Shape) -> Result<Vec<usize>> {
    if x.rank() < 3 || weights.rank() != x.rank() {
        return Err(node.error(format!(
            "the input {x} and the weights {weights} must have the same rank, of at least 3: batch, channels and space"
        )));
    }
    let kernel = weights[2..].to_vec();
    let declared = node.attributes().ints("kernel_shape")?;
    if let Some(declared) = declared.filter(|declared| !declared.iter().map(|&dim| dim as usize).eq(kernel.iter().copied())) {
        return Err(node.error(format!("attribute 'kernel_shape' is {declared:?}, but the weights have shape {weights}")));
    }
    Ok(kernel)
}

/// Adds the optional input 2, one number for each channel.
fn with_bias<'b>(node: &NodeContext<'_, 'b>, y: Wire<'b>) -> Result<Wire<'b>> {
    let Some(bias) = node.optional(2) else { return Ok(y) };
    Ok(y + per_channel(node, "the bias", bias, y, 1)?)
}

/// One number for each index along `axis` of `y`, in a shape that broadcasts to it.
pub(super) fn per_channel<'b>(node: &NodeContext<'_, 'b>, what: &str, x: Wire<'b>, y: Wire<'b>, axis: usize) -> Result<Wire<'b>> {
    let ty = y.ty();
    // A mistake before this one made a scalar of `y`: it is what will be told.
    let Some(&extent) = ty.shape.get(axis) else { return Ok(x) };
    if x.shape().dims() != [extent] {
        return Err(node.error(format!("{what} must have shape [{extent}], not {}", x.shape())));
    }
    let mut shape = vec![1; ty.rank() - axis];
    shape[0] = extent;
    Ok(x.reshape(shape))
}

/// The adjoint of a convolution: one over the input with zeros between its elements, with the weights turned around.
pub static CONV_TRANSPOSE: OpDef = OpDef {
    domain: "",
    name: "ConvTranspose",
    since: &[1, 11, 22],
    shape_inputs: &[],
    build: |node| {
        let (x, weights) = (node.input(0)?, node.input(1)?);
        let (shape, filters) = (x.shape(), weights.shape());
        let kernel = kernel(node, &shape, &filters)?;
        let rank = kernel.len();
        let groups = groups(node)?;
        if filters[0] != shape[1] || !shape[1].is_multiple_of(groups) {
            return Err(node.error(format!("the weights {filters} do not fit the input {shape} in {groups} groups")));
        }
        let strides = positive(node, "strides", rank)?;
        let dilations = positive(node, "dilations", rank)?;
        let borders = borders(node, &shape[2..], &kernel, &strides, &dilations)?;
        let conv = Conv { strides: vec![1; rank], dilations, pads: borders, input_dilations: strides, groups };
        let y = x.conv(turned(weights, groups), conv);
        Ok(vec![with_bias(node, y)?])
    },
};

/// The pads of the convolution that stands for a transposed one.
fn borders(
    node: &NodeContext<'_, '_>,
    extents: &[usize],
    kernel: &[usize],
    strides: &[usize],
    dilations: &[usize],
) -> Result<Vec<(i64, i64)>> {
    let rank = extents.len();
    let attributes = node.attributes();
    let pads = pads(node, rank)?;
    let auto_pad = auto_pad(node)?;
    let added = attributes.ints("output_padding")?.unwrap_or_else(|| vec![0; rank]);
    let wanted = attributes.ints("output_shape")?;
    if added.len() != rank || wanted.as_ref().is_some_and(|wanted| wanted.len() != rank) {
        return Err(node.error(format!(
            "attributes 'output_padding' and 'output_shape' must have {rank} entries, one for each spatial axis"
        )));
    }
    if wanted.is_some() || matches!(auto_pad, AutoPad::SameUpper | AutoPad::SameLower) {
        node.expect_whole(node.input(0)?, 2..rank + 2)?;
    }
    let mut borders = Vec::with_capacity(rank);
    for axis in 0..rank {
        let added = node.size("the output padding", added[axis])? as i64;
        let covered = (kernel[axis] as i64 - 1).saturating_mul(dilations[axis] as i64).saturating_add(1);
        let full = (extents[axis] as i64 - 1).saturating_mul(strides[axis] as i64).saturating_add(covered).saturating_add(added);
        let wanted = match (&wanted, auto_pad) {
            (Some(wanted), _) => Some(wanted[axis]),
            // As engines and shape inference have it, nothing is appended.
            (None, AutoPad::SameUpper | AutoPad::SameLower) => {
                Some((extents[axis] as i64).saturating_mul(strides[axis] as i64).min(full))
            }
            (None, AutoPad::Valid | AutoPad::NotSet) => None,
        };
        let (cut, added) = match wanted {
            // What the whole result lacks is appended to it.
            Some(wanted) if wanted > full => ((0, 0), added.saturating_add(wanted.saturating_sub(full))),
            Some(wanted) => (split_pads(full.saturating_sub(wanted), auto_pad == AutoPad::SameUpper), added),
            None if auto_pad == AutoPad::Valid => ((0, 0), added),
            None => (pads[axis], added),
        };
        borders.push((covered - 1 - cut.0, (covered - 1).saturating_sub(cut.1).saturating_add(added)));
    }
    Ok(borders)
}

/// Weights `[C, M / groups, kernel…]` of a transposed convolution as `[M, C / groups, kernel…]`, backwards along the kernel.
fn turned(weights: Wire<'_>, groups: usize) -> Wire<'_> {
    let shape = weights.shape();
    let (channels, filters, kernel) = (shape[0], shape[1], &shape[2..]);
    let backwards = |&count: &usize| SliceAxis { start: count.saturating_sub(1), step: if count == 0 { 1 } else { -1 }, count };
    let whole = |count: usize| SliceAxis { start: 0, step: 1, count };
    let axes = [whole(channels), whole(filters)].into_iter().chain(kernel.iter().map(backwards)).collect();
    let split = [&[groups, channels / groups, filters], kernel].concat();
    let order: Vec<usize> = [0, 2, 1].into_iter().chain(3..split.len()).collect();
    let joined = [&[groups * filters, channels / groups], kernel].concat();
    weights.slice(axes).reshape(split).transpose(&order).reshape(joined)
}
