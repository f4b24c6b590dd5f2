//! How buffers lie in memory: feature maps with their channels innermost, weights in the panels in which kernels read them.

use std::collections::BTreeMap;

use mcc_kernel::Facts;

use super::nest::{Access, Nest, Reduction, accesses, distance, is_constant, nests, plain_dim, product};
use super::schedule::{Tile, Vector};
use crate::decisions::{Coordinate, Layout};
use crate::loops::linear::{Atom, Linear};
use crate::loops::{AxisId, AxisKind, BufferId, Expr, ExprId, Kernel, Program, Role, Stmt};

/// Maps with no more channels stay as planes.
const FEW_CHANNELS: usize = 4;

/// Layouts of the values of a fused program; buffers that are not named are row-major.
pub fn values(program: &Program) -> BTreeMap<String, Layout> {
    let mut layouts = BTreeMap::new();
    for buffer in channels_last(program) {
        let buffer = &program.buffers[buffer];
        let rank = buffer.ty.rank();
        let order: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
        layouts.insert(buffer.name.clone(), Layout::permuted(&order));
    }
    for kernel in &program.kernels {
        if let Some((buffer, layout)) = turned_operand(program, kernel, &layouts) {
            layouts.insert(program.buffers[buffer].name.clone(), layout);
        }
    }
    layouts
}

/// Adds layouts of the constants to those of values; some constants are packed already.
pub fn add_weights(
    program: &Program,
    facts: &Facts,
    mut layouts: BTreeMap<String, Layout>,
    mut packed: BTreeMap<String, Layout>,
) -> BTreeMap<String, Layout> {
    for kernel in &program.kernels {
        for (nest, outermost) in nests(kernel) {
            if let Some(reduction) = nest.reduction(kernel) {
                pack_weights(program, kernel, (&nest, outermost), &reduction, &layouts, facts, &mut packed);
            }
        }
    }
    // The first use of a weight decides; others read it as it lies.
    layouts.extend(packed);
    layouts
}

/// The feature maps that convolutions read or write, and those that elementwise kernels and windows make of them.
fn channels_last(program: &Program) -> std::collections::BTreeSet<BufferId> {
    let is_map = |buffer: BufferId| {
        let buffer = &program.buffers[buffer];
        // Channels as few as those of an image are broadcast from wherever they lie, and planes are copied in whole rows.
        buffer.ty.rank() >= 3 && buffer.ty.shape.dims()[1] > FEW_CHANNELS && matches!(buffer.role, Role::Temporary | Role::Local)
    };
    let mut chosen = std::collections::BTreeSet::new();
    for kernel in &program.kernels {
        if slides(kernel) && !multiplies_values(program, kernel) {
            chosen.extend(feature_maps(program, kernel).into_iter().filter(|&buffer| is_map(buffer)));
        }
    }
    loop {
        let before = chosen.len();
        for kernel in &program.kernels {
            let maps = feature_maps(program, kernel);
            if maps.iter().any(|buffer| chosen.contains(buffer)) {
                chosen.extend(maps.into_iter().filter(|&buffer| is_map(buffer)));
            }
        }
        if chosen.len() == before {
            return chosen;
        }
    }
}

/// Whether a kernel is a convolution or a sliding window: an index adds a reducing axis to a spatial one.
fn slides(kernel: &Kernel) -> bool {
    all_accesses(kernel).iter().any(|access| {
        access.index.iter().any(|&index| {
            let form = Linear::of(&kernel.exprs, index);
            let has = |kind| form.terms.keys().any(|atom| matches!(atom, Atom::Axis(axis) if kernel.axes[*axis].kind == kind));
            has(AxisKind::Spatial) && has(AxisKind::Reduce)
        })
    }) || is_pointwise(kernel)
}

/// Whether a kernel is a product of two values neither of which is a weight, as in attention: heads that are split and joined in its
/// indices look like windows.
fn multiplies_values(program: &Program, kernel: &Kernel) -> bool {
    let nest = Nest::of(kernel, &kernel.body);
    let Some(reduction) = nest.reduction(kernel) else { return false };
    let [update] = reduction.updates else { return false };
    product(kernel, update).is_some_and(|operands| operands.iter().all(|operand| !is_constant(program, operand.buffer)))
}

/// Whether a convolution already stores its channels as the last dimension, as an embedding of patches does: what its weights have
/// and the map that it reads has not.
fn has_channels_last(program: &Program, kernel: &Kernel) -> bool {
    let nest = Nest::of(kernel, &kernel.body);
    let Some(reduction) = nest.reduction(kernel) else { return false };
    let [update] = reduction.updates else { return false };
    let Some(operands) = product(kernel, update) else { return false };
    let uses = |access: &Access, axis| access.index.iter().any(|&index| kernel.exprs.uses_axis(index, axis));
    let is_channel = |axis: &AxisId| operands.iter().all(|access| uses(access, *axis) == is_constant(program, access.buffer));
    let last = |access: &Access, axis| access.index.last().is_some_and(|&index| kernel.exprs.uses_axis(index, axis));
    let results = accesses(&kernel.exprs, reduction.stores.iter().copied());
    nest.spatial
        .iter()
        .filter(|axis| is_channel(axis))
        .any(|&axis| results.iter().any(|access| access.is_store && last(access, axis)))
}

/// A convolution with a kernel of one: a product over the second dimension of a map of rank 3 or more, into a map.
fn is_pointwise(kernel: &Kernel) -> bool {
    let nest = Nest::of(kernel, &kernel.body);
    let Some(reduction) = nest.reduction(kernel) else { return false };
    let [update] = reduction.updates else { return false };
    let Some(operands) = product(kernel, update) else { return false };
    let is_input = |access: &Access| {
        access.index.len() >= 3 && reduction.axes.iter().any(|&axis| plain_dim(kernel, access, axis) == Some(1))
    };
    // Loops of one round are gone: the index of such a dimension is a constant.
    let is_axis = |&index: &ExprId| matches!(kernel.exprs.get(index), Expr::Axis(_));
    let axes = |index: &[ExprId]| index.iter().filter(|index| is_axis(index)).count();
    let is_output =
        |stmt: &&Stmt| matches!(stmt, Stmt::Store { index, .. } if index.len() >= 3 && nest.spatial.len() == axes(index));
    operands.iter().any(is_input) && reduction.stores.iter().any(is_output)
}

fn all_accesses(kernel: &Kernel) -> Vec<Access> {
    let mut all = Vec::new();
    for stmt in &kernel.body {
        stmt.walk(&mut |stmt| all.extend(accesses(&kernel.exprs, [stmt])));
    }
    all
}

/// The buffers of a kernel with as many dimensions as what it stores, if it stores maps of one rank, and weights aside.
fn feature_maps(program: &Program, kernel: &Kernel) -> Vec<BufferId> {
    let accesses = all_accesses(kernel);
    let ranks: Vec<usize> = accesses.iter().filter(|access| access.is_store).map(|access| access.index.len()).collect();
    let Some(&rank) = ranks.first() else { return Vec::new() };
    if rank < 3 || ranks.iter().any(|&other| other != rank) {
        return Vec::new();
    }
    // An elementwise kernel that moves data between dimensions does not say how its operand should lie.
    let store = accesses.iter().find(|access| access.is_store).expect("it stores");
    let [second, last] = [store.index[1], store.index[rank - 1]].map(|index| Linear::of(&kernel.exprs, index));
    let follows = |channel: &Linear| {
        let is = |access: &Access| Linear::of(&kernel.exprs, access.index[1]).terms == channel.terms;
        accesses.iter().any(|access| !access.is_store && access.index.len() == rank && is(access))
    };
    // A window whose channels come in the second dimension may store them in the last.
    let turned = !follows(&second) && follows(&last) && slides(kernel);
    let channel = if turned { last } else { second };
    let stored = !turned && !has_channels_last(program, kernel);
    let same_channel = |access: &&Access| {
        access.index.len() == rank && if access.is_store { stored } else { slides_or_follows(kernel, access, &channel) }
    };
    accesses.iter().filter(same_channel).map(|access| access.buffer).filter(|&buffer| !is_constant(program, buffer)).collect()
}

fn slides_or_follows(kernel: &Kernel, access: &Access, channel: &Linear) -> bool {
    let form = Linear::of(&kernel.exprs, access.index[1]);
    let reduces = |form: &Linear| {
        form.terms.keys().any(|atom| matches!(atom, Atom::Axis(axis) if kernel.axes[*axis].kind == AxisKind::Reduce))
    };
    form.terms == channel.terms || reduces(&form)
}

/// An operand of a product of two values whose neighbours are terms of one sum, as keys of attention are: with neighbours that go to
/// neighbouring results instead, which run in lanes. Only where nobody else reads it.
fn turned_operand(program: &Program, kernel: &Kernel, layouts: &BTreeMap<String, Layout>) -> Option<(BufferId, Layout)> {
    let nest = Nest::of(kernel, &kernel.body);
    let reduction = nest.reduction(kernel)?;
    let [update] = reduction.updates else { return None };
    let operands = product(kernel, update)?;
    let results = accesses(&kernel.exprs, reduction.stores.iter().copied());
    let walk = |access: &Access, axis| distance(program, layouts, kernel, access, axis);
    let one = |axes: &[AxisId], access: &Access| axes.iter().any(|&axis| walk(access, axis) == Some(1));
    if operands.iter().any(|access| is_constant(program, access.buffer) || !one(&reduction.axes, access)) {
        return None;
    }
    let column = |axis: &AxisId| results.iter().filter(|access| access.is_store).all(|access| walk(access, *axis) == Some(1));
    let column = nest.spatial.iter().copied().find(column)?;
    let same = operands.iter().position(|access| walk(access, column) == Some(0))?;
    let operand = &operands[1 - same];
    let buffer = &program.buffers[operand.buffer];
    let dim = plain_dim(kernel, operand, column)?;
    let readers = program
        .kernels
        .iter()
        .filter(|kernel| all_accesses(kernel).iter().any(|access| !access.is_store && access.buffer == operand.buffer));
    let free = matches!(buffer.role, Role::Temporary) && !layouts.contains_key(&buffer.name) && readers.count() == 1;
    let order: Vec<usize> = (0..buffer.ty.rank()).filter(|&other| other != dim).chain([dim]).collect();
    free.then(|| (operand.buffer, Layout::permuted(&order)))
}

/// Lays a constant operand of a product out as `[n / nr][reduction][nr]` along the vector axis of its kernel.
fn pack_weights(
    program: &Program,
    kernel: &Kernel,
    (nest, outermost): (&Nest, bool),
    reduction: &Reduction,
    layouts: &BTreeMap<String, Layout>,
    facts: &Facts,
    packed: &mut BTreeMap<String, Layout>,
) {
    let Some(tile) = Tile::choose(program, kernel, nest, reduction, layouts, facts) else { return };
    let Vector::Spatial(vector) = tile.vector else { return };
    let [update] = reduction.updates else { return };
    let Some(operands) = product(kernel, update) else { return };
    // In a tree the axis in lanes stays in its place.
    let around = if outermost { None } else { nest.spatial.iter().position(|&axis| axis == vector) };
    let around = &nest.spatial[..around.unwrap_or(0)];
    for access in operands {
        let buffer = &program.buffers[access.buffer];
        if !is_constant(program, access.buffer) || packed.contains_key(&buffer.name) {
            continue;
        }
        // Along a dimension that is the vector axis alone, panels; where groups precede it in one dimension, whole rows.
        let panel = match plain_dim(kernel, &access, vector) {
            Some(dim) => (dim, Some(tile.columns)),
            None => {
                match access.index.iter().position(|&index| Linear::of(&kernel.exprs, index).coefficient(Atom::Axis(vector)) == 1)
                {
                    Some(dim) => (dim, None),
                    None => continue,
                }
            }
        };
        packed.insert(buffer.name.clone(), panels(kernel, &access, panel, around, &tile.reduce_order(kernel, reduction)));
    }
}

fn panels(kernel: &Kernel, access: &Access, (panel, nr): (usize, Option<usize>), around: &[AxisId], reduce: &[AxisId]) -> Layout {
    // Dimensions in the order in which the loops walk them: those of axes around the panels, those of other spatial axes, then the
    // reduction's.
    let rank = |dim: usize| {
        let form = Linear::of(&kernel.exprs, access.index[dim]);
        let moves = |&axis: &AxisId| form.coefficient(Atom::Axis(axis)) != 0;
        if around.iter().any(moves) { 0 } else { reduce.iter().rposition(moves).map_or(1, |at| at + 2) }
    };
    let mut others: Vec<usize> = (0..access.index.len()).filter(|&dim| dim != panel).collect();
    others.sort_by_key(|&dim| rank(dim));
    let outer = others.iter().filter(|&&dim| rank(dim) == 0).count();
    let whole = |dim| Coordinate { dim, divide: 1, modulo: None };
    let mut coordinates: Vec<Coordinate> = others.into_iter().map(whole).collect();
    match nr {
        Some(nr) => {
            coordinates.insert(outer, Coordinate { dim: panel, divide: nr, modulo: None });
            coordinates.push(Coordinate { dim: panel, divide: 1, modulo: Some(nr) });
        }
        None => coordinates.push(whole(panel)),
    }
    Layout { coordinates }
}
