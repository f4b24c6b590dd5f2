//! Resize and Upsample: along one axis after the other, by weighted sums of elements whose indices and weights are constants.

mod place;
mod taps;

use mcc_support::{DType, Result, Shape, Tensor};

use super::{NodeContext, OpDef};
use crate::graph::{SliceAxis, UnaryFn, Wire};
use place::{Place, Ratio, Transform};
use taps::{Filter, Taps};

pub static ALL: &[&OpDef] = &[&RESIZE, &UPSAMPLE];

/// Nearest and linear, by scales alone: an attribute before opset 9, then input 1.
pub static UPSAMPLE: OpDef = OpDef {
    domain: "",
    name: "Upsample",
    since: &[7, 9],
    shape_inputs: &[1],
    build: |node| {
        let x = node.input(0)?;
        let attributes = node.attributes();
        let scales = if node.version() < 9 {
            attributes.required("scales", attributes.floats("scales")?)?
        } else {
            floats(&node.constant(1)?)
        };
        simple(node, x, &scales)
    },
};

pub static RESIZE: OpDef = OpDef {
    domain: "",
    name: "Resize",
    since: &[10, 11, 13, 18, 19],
    shape_inputs: &[1, 2, 3],
    build: |node| {
        let x = node.input(0)?;
        if node.version() < 11 {
            return simple(node, x, &floats(&node.constant(1)?));
        }
        let filter = filter(node)?;
        let transform = transform(node)?;
        let axes = axes(node, x.rank())?;
        let regions = regions(node, transform, axes.len())?;
        let outside = f64::from(node.attributes().float_or("extrapolation_value", 0.0)?);
        let sizes = sizes(node, &x.shape(), &axes)?;
        let mut plans = Vec::with_capacity(axes.len());
        for (at, (&axis, &(count, scale))) in axes.iter().zip(&sizes).enumerate() {
            let extent = x.shape()[axis];
            let whole = scale == Ratio::ONE && count == extent && regions[at] == (0.0, 1.0);
            if !whole {
                plans.push((axis, places(node, transform, extent, count, scale, regions[at])?, scale));
            }
        }
        Ok(vec![resized(x, &plans, filter, outside)])
    },
};

/// As before opset 11: element `i` of the result lies at `i / scale`. What is nearest was not defined then; ONNX Runtime takes the element
/// before that place, and of axes that shrink the one behind it.
fn simple<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, scales: &[f32]) -> Result<Vec<Wire<'b>>> {
    let filter = match node.attributes().word("mode", &["nearest", "linear"])? {
        "linear" => Filter::linear(false),
        _ => Filter::Nearest(place::Nearest::Floor),
    };
    if scales.len() != x.rank() {
        return Err(node.error(format!("{} scales are given for {}", scales.len(), x.ty())));
    }
    let mut plans = Vec::new();
    for (axis, (&scale, &extent)) in scales.iter().zip(x.shape().iter()).enumerate() {
        let scale = checked_scale(node, scale)?;
        if scale != Ratio::ONE {
            let count = scaled(node, extent, scale)?;
            let mut places = places(node, Transform::Asymmetric, extent, count, scale, (0.0, 1.0))?;
            if matches!(filter, Filter::Nearest(_)) && scale < Ratio::ONE {
                places.iter_mut().for_each(|place| *place = place.ceil());
            }
            plans.push((axis, places, scale));
        }
    }
    Ok(vec![resized(x, &plans, filter, 0.0)])
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.numbers().map(|number| number.as_f64() as f32).collect()
}

fn checked_scale(node: &NodeContext<'_, '_>, scale: f32) -> Result<Ratio> {
    Ratio::from_f32(scale).ok_or_else(|| node.error(format!("the scale {scale} is not a positive number of reasonable size")))
}

/// The extent that a scale makes of another, by their product in f32.
fn scaled(node: &NodeContext<'_, '_>, extent: usize, scale: Ratio) -> Result<usize> {
    let count = (scale * Ratio::from(extent)).rounded().floor();
    usize::try_from(count)
        .ok()
        .filter(|&count| count <= i32::MAX as usize)
        .ok_or_else(|| node.error(format!("an extent of {extent} becomes too long")))
}

fn filter(node: &NodeContext<'_, '_>) -> Result<Filter> {
    let attributes = node.attributes();
    let nearest = match attributes.word("nearest_mode", &["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])? {
        "round_prefer_ceil" => place::Nearest::RoundPreferCeil,
        "floor" => place::Nearest::Floor,
        "ceil" => place::Nearest::Ceil,
        _ => place::Nearest::RoundPreferFloor,
    };
    let a = f64::from(attributes.float_or("cubic_coeff_a", -0.75)?);
    let exclude_outside = attributes.flag("exclude_outside", false)?;
    let antialias = node.version() >= 18 && attributes.flag("antialias", false)?;
    match attributes.word("mode", &["nearest", "linear", "cubic"])? {
        "linear" => Ok(Filter::Linear { antialias, exclude_outside }),
        "cubic" => Ok(Filter::Cubic { a, antialias, exclude_outside }),
        _ if antialias => Err(node.error("attribute 'antialias' is not defined for mode 'nearest'")),
        _ => Ok(Filter::Nearest(nearest)),
    }
}

fn transform(node: &NodeContext<'_, '_>) -> Result<Transform> {
    let mode = node.attributes().string_or("coordinate_transformation_mode", "half_pixel")?;
    Ok(match mode {
        "half_pixel" => Transform::HalfPixel,
        "half_pixel_symmetric" if node.version() >= 19 => Transform::HalfPixelSymmetric,
        "pytorch_half_pixel" => Transform::PytorchHalfPixel,
        "align_corners" => Transform::AlignCorners,
        "asymmetric" => Transform::Asymmetric,
        "tf_half_pixel_for_nn" if node.version() < 13 => Transform::HalfPixelForNearest,
        "tf_crop_and_resize" => Transform::CropAndResize,
        other => {
            return Err(
                node.error(format!("attribute 'coordinate_transformation_mode' is '{other}', which this opset does not have"))
            );
        }
    })
}

/// The axes to resize: all before opset 18, and by default.
fn axes(node: &NodeContext<'_, '_>, rank: usize) -> Result<Vec<usize>> {
    let axes = if node.version() < 18 { None } else { node.attributes().ints("axes")? };
    axes.map_or_else(|| Ok((0..rank).collect()), |axes| node.axes(&axes, rank))
}

/// Start and end along each axis, as parts of its length: the whole of it unless the transformation crops.
fn regions(node: &NodeContext<'_, '_>, transform: Transform, count: usize) -> Result<Vec<(f64, f64)>> {
    if transform != Transform::CropAndResize {
        node.optional(1);
        return Ok(vec![(0.0, 1.0); count]);
    }
    let roi = floats(&node.constant(1)?);
    if roi.len() != 2 * count || roi.iter().any(|bound| !bound.is_finite()) {
        return Err(node.error(format!("the region {roi:?} does not hold a start and an end for each of {count} axes")));
    }
    Ok((0..count).map(|axis| (f64::from(roi[axis]), f64::from(roi[axis + count]))).collect())
}

/// The extent and the scale of each axis that is resized.
fn sizes(node: &NodeContext<'_, '_>, shape: &Shape, axes: &[usize]) -> Result<Vec<(usize, Ratio)>> {
    let scales = node.optional_constant(2)?.filter(|scales| scales.count() > 0);
    let sizes = node.optional_ints(3)?.filter(|sizes| !sizes.is_empty());
    let policy = if node.version() < 18 {
        "stretch"
    } else {
        node.attributes().word("keep_aspect_ratio_policy", &["stretch", "not_larger", "not_smaller"])?
    };
    let counted = |count: usize| {
        if count == axes.len() {
            Ok(())
        } else {
            Err(node.error(format!("{count} sizes or scales are given for {} axes", axes.len())))
        }
    };
    match (scales, sizes) {
        (Some(scales), None) => {
            counted(scales.count())?;
            let of = |(&axis, &scale): (&usize, &f32)| {
                let scale = checked_scale(node, scale)?;
                Ok((scaled(node, shape[axis], scale)?, scale))
            };
            axes.iter().zip(&floats(&scales)).map(of).collect()
        }
        (None, Some(sizes)) => {
            counted(sizes.len())?;
            let mut result = Vec::with_capacity(axes.len());
            for (&axis, &size) in axes.iter().zip(&sizes) {
                let size = node.size("the size", size)?;
                if shape[axis] == 0 || size > i32::MAX as usize {
                    return Err(node.error(format!("axis {axis} of extent {} cannot be resized to {size}", shape[axis])));
                }
                result.push((size, Ratio::new(size as i128, shape[axis] as i128)));
            }
            let ratios = result.iter().map(|&(_, ratio)| ratio);
            let common = if policy == "not_larger" { ratios.min() } else { ratios.max() };
            let Some(common) = common.filter(|_| policy != "stretch") else { return Ok(result) };
            let rounded = |&axis: &usize| {
                let count = (common * Ratio::from(shape[axis]) + Ratio::new(1, 2)).floor();
                usize::try_from(count).map(|count| (count, common)).map_err(|_| node.error("a size is too large"))
            };
            axes.iter().map(rounded).collect()
        }
        _ => Err(node.error("exactly one of the scales and the sizes must be given")),
    }
}

/// Where each element of the result lies in the operand.
fn places(
    node: &NodeContext<'_, '_>,
    transform: Transform,
    extent: usize,
    count: usize,
    scale: Ratio,
    region: (f64, f64),
) -> Result<Vec<Place>> {
    if count > 0 && extent == 0 {
        return Err(node.error("an axis without elements cannot be resized to one that has some"));
    }
    Ok((0..count).map(|index| transform.place(index, extent, count, scale, region)).collect())
}

fn resized<'b>(x: Wire<'b>, plans: &[(usize, Vec<Place>, Ratio)], filter: Filter, outside: f64) -> Wire<'b> {
    let dtype = x.dtype();
    let exact = matches!(filter, Filter::Nearest(_)) || plans.is_empty();
    let mut y = match dtype {
        _ if exact => x,
        DType::F32 | DType::F64 => x,
        DType::I32 | DType::U32 | DType::I64 | DType::U64 => x.cast(DType::F64),
        _ => x.cast(DType::F32),
    };
    for (axis, places, scale) in plans {
        let extent = y.shape()[*axis];
        y = match filter {
            Filter::Nearest(nearest) => {
                take(y, *axis, &places.iter().map(|place| place.nearest(nearest, extent)).collect::<Vec<_>>())
            }
            _ => weighted(y, *axis, &filter.taps(places, extent, *scale)),
        };
    }
    // What lies outside of the operand is replaced at the end: nothing is added to it.
    for (axis, places, _) in plans.iter().filter(|(_, places, _)| places.iter().any(|place| place.outside)) {
        let mut shape = vec![1; y.rank()];
        shape[*axis] = places.len();
        let mask: Vec<bool> = places.iter().map(|place| place.outside).collect();
        let mask = y.builder().constant(Tensor::from_elements(shape, &mask));
        y = mask.select(y.like(outside), y);
    }
    if y.dtype() == dtype {
        return y;
    }
    if dtype.is_float() { y.cast(dtype) } else { y.unary(UnaryFn::Round).cast(dtype) }
}

/// `x` at these indices of an axis: a slice or a repetition where the indices allow.
pub(super) fn take<'b>(x: Wire<'b>, axis: usize, indices: &[usize]) -> Wire<'b> {
    let shape = x.shape();
    let count = indices.len();
    let step = if count > 1 { indices[1] as i64 - indices[0] as i64 } else { 1 };
    if step != 0 && indices.windows(2).all(|pair| pair[1] as i64 - pair[0] as i64 == step) {
        let mut axes: Vec<SliceAxis> = shape.iter().map(|&count| SliceAxis { start: 0, step: 1, count }).collect();
        axes[axis] = SliceAxis { start: indices.first().copied().unwrap_or(0), step, count };
        return x.slice(axes);
    }
    let repeats = count / shape[axis].max(1);
    if repeats > 0 && indices.iter().copied().eq((0..shape[axis]).flat_map(|index| std::iter::repeat_n(index, repeats))) {
        let (before, after) = (&shape[..axis], &shape[axis + 1..]);
        let single = [before, &[shape[axis], 1], after].concat();
        let repeated = [before, &[shape[axis], repeats], after].concat();
        return x.reshape(single).broadcast(repeated).reshape([before, &[count], after].concat());
    }
    let indices: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
    x.gather(x.builder().constant(Tensor::from_elements([count], &indices)), axis)
}

/// Sums of elements along an axis.
fn weighted<'b>(x: Wire<'b>, axis: usize, taps: &Taps) -> Wire<'b> {
    let shape = x.shape();
    let count = taps.count();
    let constant = |values: &[f64], shape: Vec<usize>| x.builder().constant(Tensor::from_elements(shape, values)).cast(x.dtype());
    if shape[axis] <= 2 * taps.columns.len() {
        let mut matrix = vec![0.0; count * shape[axis]];
        for (index, weight) in taps
            .columns
            .iter()
            .flat_map(|column| column.iter().enumerate())
            .map(|(row, tap)| (row * shape[axis] + tap.index, tap.weight))
        {
            matrix[index] += weight;
        }
        let matrix = constant(&matrix, vec![count, shape[axis]]);
        let (before, after) = (shape[..axis].iter().product::<usize>(), shape[axis + 1..].iter().product::<usize>());
        let product = x.reshape([before, shape[axis], after]).contract(matrix, "akb", "nk", "anb");
        return product.reshape([&shape[..axis], &[count], &shape[axis + 1..]].concat());
    }
    let mut weights_shape = vec![1; shape.rank() - axis];
    weights_shape[0] = count;
    let terms = taps.columns.iter().map(|column| {
        let indices: Vec<usize> = column.iter().map(|tap| tap.index).collect();
        let weights: Vec<f64> = column.iter().map(|tap| tap.weight).collect();
        let taken = take(x, axis, &indices);
        if weights.iter().all(|&weight| weight == 1.0) { taken } else { taken * constant(&weights, weights_shape.clone()) }
    });
    terms.reduce(|sum, term| sum + term).expect("an element is the sum of at least one")
}
