//! Operators that write elements at indices. They are turned around: each element of the result looks for the updates that were
//! meant for it. Where the indices are known the search is made at compile time, and what remains is a gather.

use mcc_support::{DType, Result, Shape, Tensor};

use super::gather::{check_indices, linear_index};
use super::{NodeContext, OpDef};
use crate::graph::{Op, ReduceFn, Wire};

pub static ALL: &[&OpDef] = &[&SCATTER, &SCATTER_ELEMENTS, &SCATTER_ND, &TENSOR_SCATTER];

/// What becomes of an element and the updates for it.
#[derive(Clone, Copy)]
pub(super) enum Reduction {
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
pub(super) fn scatter<'b>(
    node: &NodeContext<'_, 'b>,
    data: Wire<'b>,
    places: Wire<'b>,
    updates: Wire<'b>,
    axis: usize,
    reduction: Reduction,
) -> Wire<'b> {
    // What could not be made has no axes; the builder tells why.
    if data.rank() <= axis || places.rank() <= axis {
        return data;
    }
    let (n, m) = (data.shape()[axis], places.shape()[axis]);
    if m == 0 {
        return data;
    }
    let shape: Vec<usize> = updates.shape().iter().enumerate().map(|(at, &dim)| if at == axis { n } else { dim }).collect();
    let take = Take { updates, axis, shape, trailing: data.rank() - 1 - axis };
    let known = places.constant().and_then(|places| scatter_known(data, &take, &places, reduction));
    known.unwrap_or_else(|| scatter_unknown(node, data, &take, places, reduction))
}

/// Most updates of one element that are written one after the other.
const MAX_ROUNDS: usize = 32;

/// Updates to be taken for the elements of a result.
struct Take<'b> {
    updates: Wire<'b>,
    axis: usize,
    /// Of what is taken.
    shape: Vec<usize>,
    /// Axes of one update.
    trailing: usize,
}

impl<'b> Take<'b> {
    /// One update for each element, by indices `[rows…, n]`.
    fn at(&self, indices: Wire<'b>) -> Wire<'b> {
        if self.axis == 0 {
            return self.updates.gather(indices, 0);
        }
        let indices = self.widen(indices).broadcast(self.shape.clone());
        self.updates.builder().add(Op::GatherElements { axis: self.axis }, &[self.updates, indices])
    }

    /// With the axes of an update, of extent 1.
    fn widen(&self, wire: Wire<'b>) -> Wire<'b> {
        let mut shape = wire.shape().into_dims();
        shape.extend(std::iter::repeat_n(1, self.trailing));
        wire.reshape(shape)
    }
}

fn combine<'b>(kind: ReduceFn, a: Wire<'b>, b: Wire<'b>) -> Wire<'b> {
    match kind {
        ReduceFn::Sum => a + b,
        ReduceFn::Prod => a * b,
        ReduceFn::Max | ReduceFn::MaxNumber => a.max(b),
        ReduceFn::Min => a.min(b),
    }
}

/// With known places it is known which update, or which updates one after the other, each element takes. `None` if too many.
fn scatter_known<'b>(data: Wire<'b>, take: &Take<'b>, places: &Tensor, reduction: Reduction) -> Option<Wire<'b>> {
    let axis = take.axis;
    let (n, m) = (data.shape()[axis], places.shape()[axis]);
    let rows = data.shape()[..axis].iter().product::<usize>();
    let mut meant: Vec<Vec<i64>> = vec![Vec::new(); rows * n];
    for (update, place) in places.numbers().enumerate() {
        if let Some(place) = usize::try_from(place.as_i64()).ok().filter(|&place| place < n) {
            let list = &mut meant[update / m * n + place];
            if matches!(reduction, Reduction::Replace) {
                list.clear();
            }
            list.push((update % m) as i64);
        }
    }
    let builder = data.builder();
    let rounds = meant.iter().map(Vec::len).max().unwrap_or(0);
    if rounds > MAX_ROUNDS {
        return None;
    }
    let mut result = data;
    for round in 0..rounds {
        let shape = &data.shape()[..=axis];
        let indices: Vec<i64> = meant.iter().map(|list| list.get(round).copied().unwrap_or(0)).collect();
        let any: Vec<bool> = meant.iter().map(|list| round < list.len()).collect();
        let taken = take.at(builder.constant(Tensor::from_elements(shape, &indices)));
        let changed = match reduction {
            Reduction::Replace => taken,
            Reduction::Combine(kind) => combine(kind, result, taken),
        };
        let all = any.iter().all(|&any| any);
        result =
            if all { changed } else { take.widen(builder.constant(Tensor::from_elements(shape, &any))).select(changed, result) };
    }
    Some(result)
}

/// Each element is compared with every place.
fn scatter_unknown<'b>(
    node: &NodeContext<'_, 'b>,
    data: Wire<'b>,
    take: &Take<'b>,
    places: Wire<'b>,
    reduction: Reduction,
) -> Wire<'b> {
    let (builder, axis) = (node.builder(), take.axis);
    let own = builder.iota(DType::I64, [data.shape()[axis], 1], 0);
    // The updates stand along axis + 1 of what follows, and trailing axes of one update behind that.
    let meant = own.eq(places.insert_axis(axis));
    match reduction {
        Reduction::Replace => {
            let meant = meant.cast(DType::I32);
            let last = builder.add(Op::ArgReduce { max: true, axis: axis + 1, last: true }, &[meant]);
            let any = meant.any(&[axis + 1]);
            take.widen(any).select(take.at(last), data)
        }
        Reduction::Combine(kind) => {
            let identity = match kind {
                ReduceFn::Sum => data.like(0.0),
                ReduceFn::Prod => data.like(1.0),
                ReduceFn::Max | ReduceFn::Min | ReduceFn::MaxNumber => data.insert_axis(axis + 1),
            };
            let updates = take.widen(meant).select(take.updates.insert_axis(axis), identity).reduce(kind, &[axis + 1]);
            combine(kind, data, updates)
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
        return Err(node.error(format!(
            "the data {}, indices {} and updates {} do not match",
            data.ty(),
            indices.ty(),
            updates.ty()
        )));
    }
    check_indices(node, indices, shape[axis])?;
    let extent = shape[axis] as f64;
    let places = indices.lt(indices.like(0.0)).select(indices + extent, indices);
    let missing: Vec<(usize, usize)> =
        (0..rank).map(|other| (0, if other == axis { 0 } else { shape[other] - part[other] })).collect();
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
        let mismatch =
            || node.error(format!("the data {}, indices {} and updates {} do not match", data.ty(), indices.ty(), updates.ty()));
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
        let along = |axis: usize| {
            Shape::new((0..shape.rank()).map(|other| if other == axis { shape[axis] } else { 1 }).collect::<Vec<_>>())
        };
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
        let taken = node.builder().add(Op::GatherElements { axis }, &[update, index]);
        if !cache.dtype().is_packed() {
            return Ok(vec![inside.select(taken, cache)]);
        }
        // Each has all values of the narrower ones.
        let wide = if cache.dtype().is_float() { DType::F32 } else { DType::I8 };
        Ok(vec![inside.select(taken.cast(wide), cache.cast(wide)).cast(cache.dtype())])
    },
};
