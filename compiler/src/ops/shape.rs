//! Operators that give the elements of a tensor another shape or order.

use mcc_support::tensor::Number;
use mcc_support::{DType, Result, Shape, Tensor, TensorType};

use super::{NodeContext, OpDef};
use crate::graph::{Extent, Wire};

pub static ALL: &[&OpDef] =
    &[&DEPTH_TO_SPACE, &EXPAND, &FLATTEN, &IDENTITY, &RESHAPE, &SPACE_TO_DEPTH, &SQUEEZE, &TILE, &TRANSPOSE, &UNSQUEEZE];

pub static IDENTITY: OpDef = OpDef {
    domain: "",
    name: "Identity",
    since: &[1, 13, 14, 16, 19, 21, 23, 24, 25],
    shape_inputs: &[],
    build: |node| Ok(vec![node.input(0)?]),
};

/// A tensor of one number.
pub(super) fn fill<'b>(node: &NodeContext<'_, 'b>, dtype: DType, shape: impl Into<Shape>, number: Number) -> Wire<'b> {
    let scalar = Tensor::from_numbers(TensorType::new(dtype, Shape::scalar()), [number]);
    node.builder().constant(scalar).broadcast(shape)
}

/// 0 keeps the extent of the operand, unless `allowzero`; −1 is what remains.
pub static RESHAPE: OpDef = OpDef {
    domain: "",
    name: "Reshape",
    since: &[5, 13, 14, 19, 21, 23, 24, 25],
    shape_inputs: &[1],
    build: |node| {
        let x = node.input(0)?;
        let wanted = node.extents(1)?;
        let allow_zero = node.version() >= 14 && node.attributes().flag("allowzero", false)?;
        let known: Option<Vec<i64>> = wanted.iter().map(Extent::known).collect();
        match known {
            Some(wanted) if !x.is_bounded() => Ok(vec![x.reshape(reshaped(node, &x.shape(), &wanted, allow_zero)?)]),
            _ => Ok(vec![x.reshape_to(&bounded_shape(node, x, &wanted, allow_zero)?)]),
        }
    },
};

/// As [`reshaped`], with extents that are known only at run time.
fn bounded_shape<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, wanted: &[Extent], allow_zero: bool) -> Result<Vec<Extent>> {
    let builder = node.builder();
    let text = |extents: &[Extent]| extents.iter().map(|extent| builder.extent_text(extent)).collect::<Vec<_>>().join(",");
    let error = || node.error(format!("{} cannot be reshaped to [{}]", builder.type_text(x), text(wanted)));
    let (mut rest, mut dims) = (None, Vec::with_capacity(wanted.len()));
    for (axis, extent) in wanted.iter().enumerate() {
        dims.push(match extent.known() {
            Some(0) if !allow_zero => x.extents().get(axis).cloned().ok_or_else(error)?,
            Some(-1) if rest.is_none() => {
                rest = Some(axis);
                Extent::from(1i64)
            }
            _ if builder.bounds(extent).0 < 0 => return Err(error()),
            // A run where it is 0 has no result, rather than a wrong one.
            _ if builder.bounds(extent).0 == 0 && !allow_zero => {
                builder.require(node.output_name(0), builder.extent_wire(extent), (1, builder.most(extent)));
                extent.clone()
            }
            _ => extent.clone(),
        });
    }
    let product = |extents: &[Extent]| extents.iter().fold(Extent::from(1i64), |product, extent| &product * extent);
    let total = product(&x.extents());
    if let Some(axis) = rest {
        dims[axis] = builder.quotient(&total, &product(&dims))?;
    }
    let (low, high) = builder.bounds(&(&total - &product(&dims)));
    if low > 0 || high < 0 { Err(error()) } else { Ok(dims) }
}

fn reshaped(node: &NodeContext<'_, '_>, shape: &Shape, wanted: &[i64], allow_zero: bool) -> Result<Shape> {
    let error = || node.error(format!("the shape {shape} cannot be reshaped to {wanted:?}"));
    let mut rest = None;
    let mut dims = Vec::with_capacity(wanted.len());
    for (axis, &dim) in wanted.iter().enumerate() {
        dims.push(match dim {
            0 if !allow_zero => *shape.get(axis).ok_or_else(error)?,
            -1 if rest.is_none() => {
                rest = Some(axis);
                1
            }
            dim => usize::try_from(dim).map_err(|_| error())?,
        });
    }
    if let Some(axis) = rest {
        let count = Shape::new(dims.clone()).checked_count().filter(|&count| count > 0).ok_or_else(error)?;
        dims[axis] = shape.count() / count;
    }
    let result = Shape::new(dims);
    if result.checked_count() == Some(shape.count()) { Ok(result) } else { Err(error()) }
}

/// To rank 2: the axes before `axis`, and the others.
pub static FLATTEN: OpDef = OpDef {
    domain: "",
    name: "Flatten",
    since: &[1, 9, 11, 13, 21, 23, 24, 25],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        Ok(vec![flatten(node, x, 1)?])
    },
};

/// To rank 2 at the attribute `axis`, which may be the rank itself.
pub(super) fn flatten<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, default: i64) -> Result<Wire<'b>> {
    let rank = x.rank();
    let axis = node.attributes().int_or("axis", default)?;
    let axis = if axis == rank as i64 { rank } else { node.axis(axis, rank)? };
    let shape = x.shape();
    let count = |dims: &[usize]| dims.iter().product::<usize>();
    Ok(x.reshape([count(&shape[..axis]), count(&shape[axis..])]))
}

/// The axes: an attribute before opset 13, then input 1.
fn axes(node: &NodeContext<'_, '_>) -> Result<Option<Vec<i64>>> {
    if node.version() < 13 { node.attributes().ints("axes") } else { node.optional_ints(1) }
}

/// Without axes, all of extent 1.
pub static SQUEEZE: OpDef = OpDef {
    domain: "",
    name: "Squeeze",
    since: &[1, 11, 13, 21, 23, 24, 25],
    shape_inputs: &[1],
    build: |node| {
        let x = node.input(0)?;
        let shape = x.shape();
        let axes = match axes(node)? {
            Some(axes) => node.axes(&axes, shape.rank())?,
            None => (0..shape.rank()).filter(|&axis| shape[axis] == 1).collect(),
        };
        if let Some(&axis) = axes.iter().find(|&&axis| shape[axis] != 1) {
            return Err(node.error(format!("axis {axis} of {} cannot be squeezed: its extent is not 1", x.ty())));
        }
        let kept: Shape = (0..shape.rank()).filter(|axis| !axes.contains(axis)).map(|axis| shape[axis]).collect();
        Ok(vec![x.reshape(kept)])
    },
};

/// The axes are those of the result.
pub static UNSQUEEZE: OpDef = OpDef {
    domain: "",
    name: "Unsqueeze",
    since: &[1, 11, 13, 21, 23, 24, 25],
    shape_inputs: &[1],
    build: |node| {
        let x = node.input(0)?;
        let axes = axes(node)?.ok_or_else(|| node.error("the axes are missing"))?;
        let rank = x.rank() + axes.len();
        let axes = node.axes(&axes, rank)?;
        let mut dims = x.shape().into_dims().into_iter();
        let shape: Shape =
            (0..rank).map(|axis| if axes.contains(&axis) { 1 } else { dims.next().expect("one for each other axis") }).collect();
        Ok(vec![x.reshape(shape)])
    },
};

/// Broadcasts both ways: the result may be larger than the shape given.
pub static EXPAND: OpDef = OpDef {
    domain: "",
    name: "Expand",
    since: &[8, 13],
    shape_inputs: &[1],
    build: |node| {
        let x = node.input(0)?;
        let wanted = node.extents(1)?;
        let known: Option<Vec<i64>> = wanted.iter().map(Extent::known).collect();
        let Some(wanted) = known.filter(|_| !x.is_bounded()) else {
            return Ok(vec![x.broadcast_to(&expanded(&x.extents(), &wanted))]);
        };
        let wanted: Shape = wanted.iter().map(|&dim| node.size("the extent", dim)).collect::<Result<_>>()?;
        let shape = x.shape().broadcast(&wanted);
        let shape = shape.ok_or_else(|| node.error(format!("the shape {} cannot be broadcast with {wanted}", x.shape())))?;
        Ok(vec![x.broadcast(shape)])
    },
};

/// The extents of a result that is broadcast both ways, as far as they agree.
fn expanded(given: &[Extent], wanted: &[Extent]) -> Vec<Extent> {
    let rank = given.len().max(wanted.len());
    let at = |list: &[Extent], axis: usize| {
        (axis + list.len()).checked_sub(rank).map_or(Extent::from(1i64), |axis| list[axis].clone())
    };
    let wider = |axis: usize| {
        let (own, other) = (at(given, axis), at(wanted, axis));
        if other == Extent::from(1i64) { own } else { other }
    };
    (0..rank).map(wider).collect()
}

pub static TILE: OpDef = OpDef {
    domain: "",
    name: "Tile",
    since: &[6, 13],
    shape_inputs: &[1],
    build: |node| {
        let x = node.input(0)?;
        let repeats = node.extents(1)?;
        if repeats.len() != x.rank() {
            return Err(node.error(format!("{} repeats are given for a tensor of rank {}", repeats.len(), x.rank())));
        }
        let Some(repeats) = repeats.iter().map(Extent::known).collect::<Option<Vec<i64>>>() else {
            return Ok(vec![tile_to(x, &repeats)]);
        };
        let repeats = repeats.iter().map(|&repeat| node.size("the repeat", repeat)).collect::<Result<Vec<_>>>()?;
        tile(node, x, &repeats).map(|wire| vec![wire])
    },
};

/// As [`tile`], as often as is known only at run time.
fn tile_to<'b>(x: Wire<'b>, repeats: &[Extent]) -> Wire<'b> {
    let one = Extent::from(1i64);
    let (mut split, mut repeated, mut result) = (Vec::new(), Vec::new(), Vec::new());
    for (extent, repeat) in x.extents().iter().zip(repeats) {
        split.extend([one.clone(), extent.clone()]);
        repeated.extend([repeat.clone(), extent.clone()]);
        result.push(extent * repeat);
    }
    x.reshape_to(&split).broadcast_to(&repeated).reshape_to(&result)
}

fn tile<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, repeats: &[usize]) -> Result<Wire<'b>> {
    // Each repeated axis becomes two, of which the first is broadcast.
    let (mut split, mut repeated, mut result) = (Vec::new(), Vec::new(), Vec::new());
    for (&dim, &repeat) in x.shape().iter().zip(repeats) {
        if repeat != 1 && dim != 1 {
            split.push(1);
            repeated.push(repeat);
        }
        split.push(dim);
        repeated.push(if dim == 1 { repeat } else { dim });
        result.push(dim.checked_mul(repeat).ok_or_else(|| node.error("the result is too large"))?);
    }
    let wide = x.reshape(split).broadcast(repeated);
    // A result that is too large was refused here, and its shape need not be representable.
    node.builder().check()?;
    Ok(wide.reshape(result))
}

pub static TRANSPOSE: OpDef = OpDef {
    domain: "",
    name: "Transpose",
    since: &[1, 13, 21, 23, 24, 25],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let rank = x.rank();
        let permutation = match node.attributes().ints("perm")? {
            Some(permutation) => node.axes(&permutation, rank)?,
            None => (0..rank).rev().collect(),
        };
        if permutation.len() != rank {
            return Err(node.error(format!("a permutation of {} axes is given for a tensor of rank {rank}", permutation.len())));
        }
        Ok(vec![x.transpose(&permutation)])
    },
};

/// The extents of an image and the block size.
fn blocks<'b>(node: &NodeContext<'_, 'b>) -> Result<(Wire<'b>, [usize; 4], usize)> {
    let x = node.input(0)?;
    let block = node.attributes().required("blocksize", node.attributes().int("blocksize")?)?;
    let block = usize::try_from(block).ok().filter(|&block| block > 0 && block.checked_mul(block).is_some());
    let block = block.ok_or_else(|| node.error("attribute 'blocksize' is out of range"))?;
    match x.shape().dims() {
        &[n, c, h, w] => Ok((x, [n, c, h, w], block)),
        _ => Err(node.error(format!("the operand must have rank 4, not {}", x.ty()))),
    }
}

/// Moves channels into blocks of pixels: `DCR` takes the block's offsets from the outer part of the channel, `CRD` from the inner.
pub static DEPTH_TO_SPACE: OpDef = OpDef {
    domain: "",
    name: "DepthToSpace",
    since: &[1, 11, 13],
    shape_inputs: &[],
    build: |node| {
        let (x, [n, c, h, w], block) = blocks(node)?;
        let mode = if node.version() < 11 { "DCR" } else { node.attributes().word("mode", &["DCR", "CRD"])? };
        if c % (block * block) != 0 {
            return Err(node.error(format!("{c} channels cannot be divided into blocks of {block} × {block}")));
        }
        let depth = c / (block * block);
        let wide = if mode == "DCR" {
            x.reshape([n, block, block, depth, h, w]).transpose(&[0, 3, 4, 1, 5, 2])
        } else {
            x.reshape([n, depth, block, block, h, w]).transpose(&[0, 1, 4, 2, 5, 3])
        };
        Ok(vec![wide.reshape([n, depth, h * block, w * block])])
    },
};

/// Moves blocks of pixels into channels, the block's offsets outermost.
pub static SPACE_TO_DEPTH: OpDef = OpDef {
    domain: "",
    name: "SpaceToDepth",
    since: &[1, 13],
    shape_inputs: &[],
    build: |node| {
        let (x, [n, c, h, w], block) = blocks(node)?;
        if h % block != 0 || w % block != 0 {
            return Err(node.error(format!("an image of {h} × {w} cannot be divided into blocks of {block} × {block}")));
        }
        let (h, w) = (h / block, w / block);
        let wide = x.reshape([n, c, h, block, w, block]).transpose(&[0, 3, 5, 1, 2, 4]);
        Ok(vec![wide.reshape([n, c * block * block, h, w])])
    },
};
