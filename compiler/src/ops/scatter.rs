//! Operators that write elements at indices. They are turned around: each element of the result looks for the updates that were
//! meant for it. Where the indices are known that search is folded, and what remains is a gather.

use mcc_support::{DType, Result, Shape};

use super::gather::{check_indices, linear_index};
use super::{NodeContext, OpDef};
use crate::graph::{Op, ReduceFn, Wire};

pub static ALL: &[&OpDef] = &[&SCATTER, &SCATTER_ELEMENTS, &SCATTER_ND, &TENSOR_SCATTER];

/// What becomes of an element and the updates for it.
#[derive(Clone, Copy)]
enum Reduction {
    /// The last update replaces it.
    Replace,
    Combine(ReduceFn),
}

impl Reduction {
    fn of(node: &NodeContext<'_, '_>) -> Result<Self> {
        let words: &[&str] = match node.version() {
            ..16 => return Ok(Reduction::Replace),
            16..18 => &["none", "add", "mul"],
            _ => &["none", "add", "mul", "max", "min"],
        };
        Ok(match node.attributes().word("reduction", words)? {
            "add" => Reduction::Combine(ReduceFn::Sum),
            "mul" => Reduction::Combine(ReduceFn::Prod),
            "max" => Reduction::Combine(ReduceFn::Max),
            "min" => Reduction::Combine(ReduceFn::Min),
            _ => Reduction::Replace,
        })
    }
}

/// `data [rows…, n, s…]` changed by `updates [rows…, m, s…]` at `places [rows…, m]` of axis `axis`, which count up from 0; one that
/// is not below `n` changes nothing.
fn scatter<'b>(node: &NodeContext<'_, 'b>, data: Wire<'b>, places: Wire<'b>, updates: Wire<'b>, axis: usize, reduction: Reduction) -> Wire<'b> {
    let (n, m) = (data.shape()[axis], places.shape()[axis]);
    if m == 0 {
        return data;
    }
    let builder = node.builder();
    let mut one_place = places.shape().into_dims();
    one_place.insert(axis, 1);
    let own = builder.iota(DType::I64, [n, 1], 0);
    let meant = own.eq(places.reshape(one_place));
    // The updates stand along axis + 1 of what follows, and trailing axes of one update behind that.
    let trailing = data.rank() - 1 - axis;
    let widen = |wire: Wire<'b>, trailing: usize| {
        let mut shape = wire.shape().into_dims();
        shape.extend(std::iter::repeat_n(1, trailing));
        wire.reshape(shape)
    };
    match reduction {
        Reduction::Replace => {
            let meant = meant.cast(DType::I32);
            let last = builder.add(Op::ArgReduce { max: true, axis: axis + 1, last: true }, &[meant]);
            let any = meant.reduce(ReduceFn::Max, &[axis + 1]).cast(DType::Bool);
            let shape: Vec<usize> = updates.shape().iter().enumerate().map(|(at, &dim)| if at == axis { n } else { dim }).collect();
            let chosen = if axis == 0 {
                updates.gather(last, 0)
            } else {
                builder.add(Op::GatherElements { axis }, &[updates, widen(last, trailing).broadcast(shape)])
            };
            widen(any, trailing).select(chosen, data)
        }
        Reduction::Combine(kind) => {
            let mut shape = updates.shape().into_dims();
            shape.insert(axis, 1);
            let identity = match kind {
                ReduceFn::Sum => data.like(0.0),
                ReduceFn::Prod => data.like(1.0),
                ReduceFn::Max | ReduceFn::Min => {
                    let mut shape = data.shape().into_dims();
                    shape.insert(axis + 1, 1);
                    data.reshape(shape)
                }
            };
            let updates = widen(meant, trailing).select(updates.reshape(shape), identity).reduce(kind, &[axis + 1]);
            match kind {
                ReduceFn::Sum => data + updates,
                ReduceFn::Prod => data * updates,
                ReduceFn::Max => data.max(updates),
                ReduceFn::Min => data.min(updates),
            }
        }
    }
}

/// The indices may cover less than the data along the other axes.
fn elements<'b>(node: &NodeContext<'_, 'b>, reduction: Reduction) -> Result<Vec<Wire<'b>>> {
    let (data, indices, updates) = (node.input(0)?, node.input(1)?.cast(DType::I64), node.input(2)?);
    let rank = data.rank();
    let axis = node.axis_attribute(0, rank)?;
    let (shape, part) = (data.shape(), indices.shape());
    let fits = part.rank() == rank && (0..rank).all(|other| other == axis || part[other] <= shape[other]);
    if !fits || updates.shape() != part || updates.dtype() != data.dtype() {
        return Err(node.error(format!("the data {}, indices {} and updates {} do not match", data.ty(), indices.ty(), updates.ty())));
    }
    check_indices(node, indices, shape[axis])?;
    let extent = shape[axis] as f64;
    let places = indices.lt(indices.like(0.0)).select(indices + extent, indices);
    let missing: Vec<(usize, usize)> = (0..rank).map(|other| (0, if other == axis { 0 } else { shape[other] - part[other] })).collect();
    let places = places.pad(&missing, places.like(extent));
    let updates = updates.pad(&missing, updates.like(0.0));
    let mut last: Vec<usize> = (0..rank).filter(|&other| other != axis).collect();
    last.push(axis);
    let [data, places, updates] = [data, places, updates].map(|wire| wire.transpose(&last));
    node.builder().check()?;
    let result = scatter(node, data, places, updates, rank - 1, reduction);
    let back: Vec<usize> = (0..rank).map(|place| last.iter().position(|&other| other == place).expect("a permutation")).collect();
    // A mistake above leaves a value of another rank.
    node.builder().check()?;
    Ok(vec![result.transpose(&back)])
}

pub static SCATTER: OpDef =
    OpDef { domain: "", name: "Scatter", since: &[9, 11], shape_inputs: &[], build: |node| elements(node, Reduction::Replace) };

pub static SCATTER_ELEMENTS: OpDef = OpDef {
    domain: "",
    name: "ScatterElements",
    since: &[11, 13, 16, 18],
    shape_inputs: &[],
    build: |node| elements(node, Reduction::of(node)?),
};

/// The last axis of the indices holds places in the first axes of the data; an update has the shape of the other axes.
pub static SCATTER_ND: OpDef = OpDef {
    domain: "",
    name: "ScatterND",
    since: &[11, 13, 16, 18],
    shape_inputs: &[],
    build: |node| {
        let reduction = Reduction::of(node)?;
        let (data, indices, updates) = (node.input(0)?, node.input(1)?.cast(DType::I64), node.input(2)?);
        let (shape, places) = (data.shape(), indices.shape());
        let mismatch = || node.error(format!("the data {}, indices {} and updates {} do not match", data.ty(), indices.ty(), updates.ty()));
        let (&depth, outer) = places.split_last().ok_or_else(mismatch)?;
        if depth > shape.rank() || updates.dtype() != data.dtype() || updates.shape()[..] != [outer, &shape[depth..]].concat() {
            return Err(mismatch());
        }
        let linear = linear_index(node, indices, &shape[..depth], &[])?;
        node.builder().check()?;
        let count = |dims: &[usize]| dims.iter().product::<usize>();
        let (n, m, size) = (count(&shape[..depth]), count(outer), count(&shape[depth..]));
        let result = scatter(node, data.reshape([n, size]), linear.reshape([m]), updates.reshape([m, size]), 0, reduction);
        node.builder().check()?;
        Ok(vec![result.reshape(shape)])
    },
};

/// Writes a sequence into a cache, for each batch from its own place on; `circular` goes on at the beginning.
pub static TENSOR_SCATTER: OpDef = OpDef {
    domain: "",
    name: "TensorScatter",
    since: &[24],
    shape_inputs: &[],
    build: |node| {
        let (cache, update) = (node.input(0)?, node.input(1)?);
        let circular = node.attributes().word("mode", &["linear", "circular"])? == "circular";
        let shape = cache.shape();
        let axis = node.axis_attribute(-2, shape.rank())?;
        let mut part = shape.clone().into_dims();
        let written = update.shape().get(axis).copied().unwrap_or(0);
        part[axis] = written;
        if axis == 0 || update.shape()[..] != part[..] || written > shape[axis] {
            return Err(node.error(format!("the cache {} and update {} do not match", cache.ty(), update.ty())));
        }
        let along = |axis: usize| Shape::new((0..shape.rank()).map(|other| if other == axis { shape[axis] } else { 1 }).collect::<Vec<_>>());
        let mut place = node.builder().iota(DType::I64, along(axis), axis);
        if let Some(starts) = node.optional(2) {
            place = place - starts.cast(DType::I64).reshape(along(0));
        }
        if circular {
            place = place.binary(crate::graph::BinaryFn::Mod, place.like(shape[axis] as f64));
        }
        if written == 0 {
            return Ok(vec![cache]);
        }
        let inside = place.like(0.0).le(place).and(place.lt(place.like(written as f64)));
        let index = place.clamp(0.0, written as f64 - 1.0).broadcast(shape);
        Ok(vec![inside.select(node.builder().add(Op::GatherElements { axis }, &[update, index]), cache)])
    },
};
