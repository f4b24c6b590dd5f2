//! Pools: reductions over sliding windows, and over whole images.

use mcc_support::{DType, Result, Shape, Tensor};

use super::activation::widened;
use super::reduce::element_count;
use super::scatter::{Reduction, scatter};
use super::spatial::{AutoPad, Slide, auto_pad, pads, positive, slides};
use super::{NodeContext, OpDef};
use crate::graph::{BinaryFn, Op, ReduceFn, Window, Wire};

pub static ALL: &[&OpDef] =
    &[&AVERAGE_POOL, &GLOBAL_AVERAGE_POOL, &GLOBAL_LP_POOL, &GLOBAL_MAX_POOL, &LP_POOL, &MAX_POOL, &MAX_UNPOOL];

/// The windows of a pool along one axis.
struct Pool {
    /// With the pads that the model gives: cells there may count, those behind them never do.
    slide: Slide,
    /// Cells behind the input, as far as the last window reaches.
    after: usize,
    extent: usize,
    count: usize,
}

impl Pool {
    /// For each window, how many of its cells lie in the input, or in the input and its pads.
    fn cell_counts(&self, include_pad: bool) -> Vec<f64> {
        let (before, after) = self.slide.pads;
        let inside = if include_pad { -before..self.extent as i64 + after } else { 0..self.extent as i64 };
        let cells = |window: usize| {
            let start = (window * self.slide.stride) as i64 - before;
            let place = |cell: usize| start + (cell * self.slide.dilation) as i64;
            (0..self.slide.kernel).filter(|&cell| inside.contains(&place(cell))).count() as f64
        };
        (0..self.count).map(cells).collect()
    }
}

/// Reads the attributes that all pools have. `dilated` and `ceil` say whether there are attributes `dilations` and `ceil_mode`.
fn pools<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, dilated: bool, ceil: bool) -> Result<Vec<Pool>> {
    let shape = x.shape();
    if shape.rank() < 3 {
        return Err(node.error(format!("the input of a pool has axes for batch, channels and space, which {shape} has not")));
    }
    let attributes = node.attributes();
    if !attributes.has("kernel_shape") {
        return Err(node.error("attribute 'kernel_shape' is missing"));
    }
    let extents = &shape[2..];
    let kernel = positive(node, "kernel_shape", extents.len())?;
    let slides = slides(node, x, &kernel, dilated)?;
    let ceil = ceil && attributes.flag("ceil_mode", false)?;
    let ceil = ceil && matches!(auto_pad(node)?, AutoPad::NotSet | AutoPad::Valid);
    node.expect_whole(x, if ceil { 2..shape.rank() } else { 0..0 })?;
    extents.iter().zip(slides).map(|(&extent, slide)| pool(node, extent, slide, ceil)).collect()
}

/// With `ceil`, a window may reach behind the padded input, but starts neither there nor in the padding at the end.
fn pool(node: &NodeContext<'_, '_>, extent: usize, slide: Slide, ceil: bool) -> Result<Pool> {
    let (before, after) = slide.pads;
    if before < 0 || after < 0 {
        return Err(node.error(format!("the pads ({before}, {after}) of a pool are negative")));
    }
    let (stride, length) = (slide.stride as i64, extent as i64);
    let free = length.saturating_add(before).saturating_add(after).saturating_sub(slide.covered());
    if free < 0 {
        return Err(node.error(format!(
            "the window covers {} elements of an axis that has {length}, padded by {before} and {after}",
            slide.covered()
        )));
    }
    if !ceil {
        return Ok(Pool { slide, after: after as usize, extent, count: (free / stride) as usize + 1 });
    }
    let mut count = (free + stride - 1) / stride + 1;
    if (count - 1) * stride >= length + before {
        count -= 1;
    }
    let reach = (count - 1) * stride + slide.covered() - length - before;
    Ok(Pool { slide, after: reach.max(0) as usize, extent, count: count as usize })
}

fn window(pools: &[Pool]) -> Window {
    Window {
        kernel: pools.iter().map(|pool| pool.slide.kernel).collect(),
        strides: pools.iter().map(|pool| pool.slide.stride).collect(),
        dilations: pools.iter().map(|pool| pool.slide.dilation).collect(),
        pads: pools.iter().map(|pool| (pool.slide.pads.0 as usize, pool.after)).collect(),
    }
}

/// Where the operand is padded more than the input is, cells are left out of the mean.
pub static AVERAGE_POOL: OpDef = OpDef {
    domain: "",
    name: "AveragePool",
    since: &[1, 7, 10, 11, 19, 22],
    shape_inputs: &[],
    build: |node| {
        let (x, version) = (node.input(0)?, node.version());
        let pools = pools(node, x, version >= 19, version >= 10)?;
        let include_pad = version >= 7 && node.attributes().flag("count_include_pad", false)?;
        Ok(vec![means(x, &pools, include_pad)])
    },
};

/// AveragePool of version 10 of a value that need not be an input.
pub(super) fn average_pool<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>) -> Result<Wire<'b>> {
    let pools = pools(node, x, false, true)?;
    Ok(means(x, &pools, node.attributes().flag("count_include_pad", false)?))
}

fn means<'b>(x: Wire<'b>, pools: &[Pool], include_pad: bool) -> Wire<'b> {
    let bounded = (2..x.rank()).any(|axis| !x.axes()[axis].is_whole());
    widened(x, |x| {
        let cells = if bounded && !include_pad { existing_cells(x, &window(pools)) } else { cell_counts(x, pools, include_pad) };
        x.window(ReduceFn::Sum, window(pools)) / cells
    })
}

/// How many cells of each window are elements of an image whose extents are known only at run time.
fn existing_cells<'b>(x: Wire<'b>, window: &Window) -> Wire<'b> {
    let extents = x.extents();
    x.like(1.0).broadcast_to(&extents[2..]).window(ReduceFn::Sum, window.clone())
}

/// How many cells of each window count: a scalar where it is the same for all, else one number for each place in an image.
fn cell_counts<'b>(x: Wire<'b>, pools: &[Pool], include_pad: bool) -> Wire<'b> {
    let mut counts = vec![1.0];
    for pool in pools {
        let along = pool.cell_counts(include_pad);
        counts = counts.iter().flat_map(|count| along.iter().map(move |cells| count * cells)).collect();
    }
    if counts.iter().all(|&count| count == counts[0]) && !counts.is_empty() {
        return x.like(counts[0]);
    }
    let shape: Shape = pools.iter().map(|pool| pool.count).collect();
    x.builder().constant(Tensor::from_elements(shape, &counts)).cast(x.dtype())
}

/// NaN counts as less than all numbers. The second result is the place of each maximum, counted over the whole input.
pub static MAX_POOL: OpDef = OpDef {
    domain: "",
    name: "MaxPool",
    since: &[1, 8, 10, 11, 12, 22],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let window = window(&pools(node, x, node.version() >= 10, node.version() >= 10)?);
        let column_major = node.version() >= 8 && node.attributes().flag("storage_order", false)?;
        let y = x.window(ReduceFn::MaxNumber, window.clone());
        if !node.wants_output(1) {
            return Ok(vec![y]);
        }
        let places = node.builder().add(Op::WindowArgMax(window), &[x]);
        Ok(vec![y, whole_places(x, places, column_major)])
    },
};

/// Places within an image as places within the whole tensor, whose images may be stored column by column.
fn whole_places<'b>(x: Wire<'b>, places: Wire<'b>, column_major: bool) -> Wire<'b> {
    let shape = x.shape();
    let (outer, image) = (&shape[..2], &shape[2..]);
    let builder = x.builder();
    let places = if column_major {
        let mut result = builder.scalar(DType::I64, 0.0);
        let (mut rest, mut stride) = (places, image.iter().product::<usize>());
        for &extent in image.iter().rev() {
            stride /= extent.max(1);
            let size = rest.like(extent as f64);
            result = result + rest.binary(BinaryFn::Rem, size) * stride as f64;
            rest = rest / size;
        }
        result
    } else {
        places
    };
    let mut first = vec![1; shape.rank()];
    first[..2].copy_from_slice(outer);
    let images = builder.iota(DType::I64, [outer[0] * outer[1]], 0) * image.iter().product::<usize>() as f64;
    places + images.reshape(first)
}

/// Puts the maxima of a pool back to where they came from, among zeros. The indices are places in an input of the least extents that
/// the pool could have had, whatever extents are wanted.
pub static MAX_UNPOOL: OpDef = OpDef {
    domain: "",
    name: "MaxUnpool",
    since: &[9, 11, 22],
    shape_inputs: &[2],
    build: |node| {
        let (x, places) = (node.input(0)?, node.input(1)?.cast(DType::I64));
        let shape = x.shape();
        if shape.rank() < 3 || places.shape() != shape || !node.attributes().has("kernel_shape") {
            return Err(node.error(format!("maxima {} and places {} of a pool are unlike", x.ty(), places.ty())));
        }
        let rank = shape.rank() - 2;
        let (kernel, strides) = (positive(node, "kernel_shape", rank)?, positive(node, "strides", rank)?);
        let mut least = shape.to_vec();
        for (axis, pads) in pads(node, rank)?.into_iter().enumerate() {
            let reach = (shape[axis + 2] as i64 - 1) * strides[axis] as i64 + kernel[axis] as i64;
            least[axis + 2] = node.size("an extent of the result", reach - pads.0 - pads.1)?;
        }
        let wanted = match node.optional_ints(2)? {
            Some(wanted) => {
                wanted.into_iter().map(|extent| node.size("an extent of the result", extent)).collect::<Result<_>>()?
            }
            None => least.clone(),
        };
        if wanted.len() != least.len() || least.iter().zip(&wanted).any(|(least, wanted)| least > wanted) {
            return Err(node.error(format!("the pool had an input of at least {least:?}, which does not fit into {wanted:?}")));
        }
        let count = Shape::new(least.clone()).checked_count().unwrap_or(usize::MAX);
        let zeros = x.like(0.0).broadcast([count]);
        node.builder().check()?;
        let result = scatter(node, zeros, places.reshape([shape.count()]), x.reshape([shape.count()]), 0, Reduction::Replace);
        let missing: Vec<_> = least.iter().zip(&wanted).map(|(least, wanted)| (0, wanted - least)).collect();
        Ok(vec![result.reshape(least).pad(&missing, x.like(0.0))])
    },
};

/// `(Σ |x|^p)^(1/p)`
fn norm<'b>(x: Wire<'b>, p: i64, sum: impl FnOnce(Wire<'b>) -> Wire<'b>) -> Wire<'b> {
    match p {
        1 => sum(x.abs()),
        2 => sum(x * x).sqrt(),
        _ => sum(x.abs().pow(x.like(p as f64))).pow(x.like(1.0 / p as f64)),
    }
}

fn power(node: &NodeContext<'_, '_>) -> Result<i64> {
    let p = node.attributes().int_or("p", 2)?;
    if p > 0 { Ok(p) } else { Err(node.error(format!("attribute 'p' is {p}, which is not positive"))) }
}

pub static LP_POOL: OpDef = OpDef {
    domain: "",
    name: "LpPool",
    since: &[2, 11, 18, 22],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let window = window(&pools(node, x, node.version() >= 18, node.version() >= 18)?);
        let p = power(node)?;
        Ok(vec![widened(x, |x| norm(x, p, |x| x.window(ReduceFn::Sum, window)))])
    },
};

/// The spatial axes.
fn image_axes(node: &NodeContext<'_, '_>, x: Wire<'_>) -> Result<Vec<usize>> {
    if x.rank() < 2 {
        return Err(node.error(format!("the input of a pool has axes for batch and channels, which {} has not", x.ty())));
    }
    Ok((2..x.rank()).collect())
}

pub static GLOBAL_AVERAGE_POOL: OpDef = OpDef {
    domain: "",
    name: "GlobalAveragePool",
    since: &[1, 22],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let axes = image_axes(node, x)?;
        Ok(vec![widened(x, |x| x.reduce_keep(ReduceFn::Sum, &axes) / element_count(x, &axes))])
    },
};

pub static GLOBAL_MAX_POOL: OpDef = OpDef {
    domain: "",
    name: "GlobalMaxPool",
    since: &[1, 22],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        Ok(vec![x.reduce_keep(ReduceFn::Max, &image_axes(node, x)?)])
    },
};

pub static GLOBAL_LP_POOL: OpDef = OpDef {
    domain: "",
    name: "GlobalLpPool",
    since: &[2, 22],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let (axes, p) = (image_axes(node, x)?, power(node)?);
        Ok(vec![widened(x, |x| norm(x, p, |x| x.reduce_keep(ReduceFn::Sum, &axes)))])
    },
};
