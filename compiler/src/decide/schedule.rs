//! How each kernel runs: which axis becomes lanes, and which rounds share registers. Reads from top to bottom.

use std::collections::BTreeMap;

use mcc_kernel::Facts;

use super::nest::{Access, Nest, Reduction, Stride, accesses, is_constant, lanes, plain_dim, stride};
use crate::decisions::{Layout, Step};
use crate::loops::{AxisId, AxisKind, Kernel, Program, Role, Stmt};

/// Rounds of a short loop are unrolled up to this many.
const MAX_UNROLLED: usize = 8;
/// Statements with more expressions than this are long: repeating them makes the code larger, not faster.
const LONG: usize = 40;

/// The steps for one kernel of a fused program.
pub fn choose(program: &Program, kernel: &Kernel, layouts: &BTreeMap<String, Layout>, facts: &Facts) -> Vec<Step> {
    let mut chooser = Chooser { program, kernel, layouts, facts, steps: Vec::new() };
    chooser.nest(&kernel.body, true);
    chooser.steps
}

/// The axis that runs in lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vector {
    Spatial(AxisId),
    Reduce(AxisId),
}

/// The register tile of a reduction.
#[derive(Clone, Debug)]
pub struct Tile {
    pub vector: Vector,
    pub lanes: usize,
    /// Vectors along the vector axis, where it is spatial.
    pub vectors: usize,
    /// Another spatial axis, and how many of its rounds are jammed.
    pub rows: Option<(AxisId, usize)>,
    /// Where lanes reduce: a second spatial axis.
    pub columns: Option<(AxisId, usize)>,
}

impl Tile {
    /// Elements of a panel: what the tile spans along its vector axis.
    pub fn nr(&self) -> usize {
        self.vectors * self.lanes
    }

    /// The tile of a reduction; `None` where nothing in it can run in lanes.
    pub fn choose(
        program: &Program,
        kernel: &Kernel,
        nest: &Nest,
        reduction: &Reduction,
        layouts: &BTreeMap<String, Layout>,
        facts: &Facts,
    ) -> Option<Tile> {
        let stmts: Vec<&Stmt> = reduction.updates.iter().collect();
        let lanes = lanes(program, kernel, &stmts, facts.vector_bytes)?;
        let operands = accesses(&kernel.exprs, reduction.updates);
        let stores: Vec<Access> =
            accesses(&kernel.exprs, reduction.stores.iter().copied()).into_iter().filter(|access| access.is_store).collect();
        let strides = |accesses: &[Access], axis| -> Vec<Stride> {
            let known = |access: &Access| {
                let found = stride(program, layouts, kernel, access, axis);
                // Weights are laid out for the axis that is chosen.
                if found == Stride::Other && is_constant(program, access.buffer) { Stride::One } else { found }
            };
            accesses.iter().map(known).collect()
        };
        // Along an axis where operands are neighbours or the same, all lanes come with one instruction.
        let whole = |axis| strides(&operands, axis).iter().all(|&stride| stride != Stride::Other);
        let stored = |axis| strides(&stores, axis).iter().all(|&stride| stride == Stride::One);
        let long = |axis: &AxisId| kernel.axes[*axis].extent >= lanes;
        let spatial = spatial_in_lanes(kernel, nest, lanes, facts);
        let first =
            |fits: &dyn Fn(AxisId) -> bool| spatial.iter().copied().find(|&axis| long(&axis) && fits(axis)).map(Vector::Spatial);
        let vector = first(&|axis| whole(axis) && stored(axis))
            .or_else(|| {
                reduction.axes.iter().copied().find(|axis| !operands.is_empty() && long(axis) && whole(*axis)).map(Vector::Reduce)
            })
            .or_else(|| first(&|axis| whole(axis)))
            .or_else(|| first(&|axis| stored(axis)))?;
        let registers = facts.vector_registers as usize;
        let rows_beside = |vectors: usize| (registers - 1 - vectors) / (vectors + 1);
        // Rows reuse what varies along the lanes only.
        let reuses = |axis: AxisId| strides(&operands, axis).contains(&Stride::Zero) && kernel.axes[axis].extent > 1;
        let other = |taken: Option<AxisId>| {
            nest.spatial
                .iter()
                .rev()
                .copied()
                .find(|&axis| Some(axis) != taken && vector != Vector::Spatial(axis) && reuses(axis))
        };
        let extent = |axis: AxisId| kernel.axes[axis].extent;
        match vector {
            Vector::Spatial(axis) => {
                let possible = extent(axis).div_ceil(lanes);
                let rows = other(None);
                // A long epilogue is repeated for every accumulator.
                let most = if expression_count(kernel, reduction.stores.iter().copied()) > LONG { 8 } else { registers };
                let panel = operands.iter().find_map(|access| panel_of(program, kernel, layouts, access, axis));
                let panel = panel.filter(|panel| panel.is_multiple_of(lanes)).map(|panel| panel / lanes);
                let (count, vectors) = register_tile(rows.map_or(1, extent), possible, panel, registers, most);
                let rows = rows.map(|rows| (rows, count));
                Some(Tile { vector, lanes, vectors, rows, columns: None })
            }
            Vector::Reduce(_) => {
                let first = other(None);
                let second = first.and_then(|first| other(Some(first)));
                let side = if registers >= 32 { 4 } else { 2 };
                let columns = first.map(|axis| (axis, even(extent(axis), rows_beside(side))));
                let rows = second.map(|axis| (axis, even(extent(axis), side)));
                Some(Tile { vector, lanes, vectors: 1, rows, columns })
            }
        }
    }

    /// The reduction's axes, the one along which operands are neighbours innermost.
    pub fn reduce_order(&self, kernel: &Kernel, reduction: &Reduction) -> Vec<AxisId> {
        let mut order = reduction.axes.clone();
        // Channels, the first as lowered, are neighbours in feature maps and the longest.
        if order.len() > 1 && kernel.axes[order[0]].extent > 1 {
            order.rotate_left(1);
        }
        order
    }
}

/// The spatial axes that may run in so many lanes: none where a variable that is set beside the reduction has another width.
fn spatial_in_lanes(kernel: &Kernel, nest: &Nest, lanes: usize, facts: &Facts) -> Vec<AxisId> {
    let fills = |stmt: &Stmt| match stmt {
        Stmt::Set { var, .. } => kernel.vars[*var].size_bits() * lanes == facts.vector_bytes as usize * 8,
        _ => true,
    };
    if nest.body.iter().all(fills) { nest.spatial.clone() } else { Vec::new() }
}

/// Rows and vectors of the register tile that takes the fewest cycles for a block of this extent, with less code where that is close.
/// Two multiply-adds and two loads are issued each cycle, and a multiply-add takes four: fewer than eight accumulators wait.
///
/// `panel`: vectors of the panels in which the weights lie already, which a tile then has.
fn register_tile(rows: usize, vectors: usize, panel: Option<usize>, registers: usize, most: usize) -> (usize, usize) {
    let sizes = |extent: usize, tile: usize| [(tile, extent / tile), (extent % tile, usize::from(!extent.is_multiple_of(tile)))];
    let cost = |&(r, v): &(usize, usize)| {
        let (mut half_cycles, mut accumulators) = (0, 0);
        for (r, row_tiles) in sizes(rows, r) {
            for (v, vector_tiles) in sizes(vectors, v) {
                half_cycles += row_tiles * vector_tiles * ((r * v).max(r + v).max(8) + 1);
                accumulators += if row_tiles * vector_tiles > 0 { r * v } else { 0 };
            }
        }
        half_cycles * (200 + accumulators)
    };
    // Registers hold the accumulators, one operand for each row and each vector, and a scratch.
    let fits = |&(r, v): &(usize, usize)| r * v + r + v < registers && r * v <= most;
    let tiles = (1..=rows.min(registers)).flat_map(|r| (1..=vectors.min(8)).map(move |v| (r, v)));
    let tiles = tiles.filter(|&(_, v)| panel.is_none_or(|panel| v == panel));
    tiles.filter(fits).min_by_key(cost).unwrap_or((1, panel.unwrap_or(1)))
}

/// Elements of the panels of a constant that is packed for this axis.
fn panel_of(
    program: &Program,
    kernel: &Kernel,
    layouts: &BTreeMap<String, Layout>,
    access: &Access,
    axis: AxisId,
) -> Option<usize> {
    let buffer = &program.buffers[access.buffer];
    let innermost = layouts.get(&buffer.name)?.coordinates.last()?;
    let along = is_constant(program, access.buffer) && plain_dim(kernel, access, axis) == Some(innermost.dim);
    innermost.modulo.filter(|_| along && innermost.divide == 1)
}

/// The number of different expressions that statements evaluate.
fn expression_count<'s>(kernel: &Kernel, stmts: impl Iterator<Item = &'s Stmt>) -> usize {
    let mut seen = std::collections::BTreeSet::new();
    let mut open: Vec<_> = stmts.flat_map(Stmt::exprs).collect();
    while let Some(expr) = open.pop() {
        if seen.insert(expr) {
            open.extend(kernel.exprs.operands(expr));
        }
    }
    seen.len()
}

/// Size of tiles that cover `extent` with as few of at most `limit` as can be, as evenly as can be.
fn even(extent: usize, limit: usize) -> usize {
    extent.div_ceil(extent.div_ceil(limit.max(1)).max(1)).max(1)
}

struct Chooser<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    layouts: &'a BTreeMap<String, Layout>,
    facts: &'a Facts,
    steps: Vec<Step>,
}

impl Chooser<'_> {
    /// `outermost`: whether no loop stands around the nest.
    fn nest(&mut self, body: &[Stmt], outermost: bool) {
        let nest = Nest::of(self.kernel, body);
        if nest.is_elementwise() {
            return self.elementwise(&nest);
        }
        if let Some(reduction) = nest.reduction(self.kernel) {
            let together = nest.spatial.iter().all(|&axis| self.may_run_together(&nest, axis));
            let choose = || Tile::choose(self.program, self.kernel, &nest, &reduction, self.layouts, self.facts);
            return match together.then(choose).flatten() {
                Some(tile) => self.tile(&nest, &reduction, &tile, outermost),
                None => self.unroll_short(&reduction.axes),
            };
        }
        // A tree: each nest in it by itself.
        for stmt in nest.body {
            match stmt {
                Stmt::Loop { axis, .. } if self.kernel.axes[*axis].kind == AxisKind::Sequential => {}
                Stmt::Loop { .. } => self.nest(std::slice::from_ref(stmt), false),
                _ => {}
            }
        }
    }

    fn name(&self, axis: AxisId) -> String {
        self.kernel.axes[axis].name.clone()
    }

    fn extent(&self, axis: AxisId) -> usize {
        self.kernel.axes[axis].extent
    }

    fn split(&mut self, axis: &str, factor: usize) {
        self.steps.push(Step::Split { axis: axis.into(), factor });
    }

    fn unroll(&mut self, axis: String) {
        self.steps.push(Step::Unroll { axis });
    }

    fn move_inside(&mut self, axis: &str, inside: &str) {
        if axis != inside {
            self.steps.push(Step::Move { axis: axis.into(), inside: Some(inside.into()) });
        }
    }

    /// Turns an axis of this extent into vectors of `lanes` that are unrolled, and what is left over into single rounds.
    fn vectors(&mut self, axis: &str, extent: usize, lanes: usize) {
        self.split(axis, lanes);
        if extent >= lanes {
            self.unroll(format!("{axis}.o"));
            self.steps.push(Step::Vectorize { axis: format!("{axis}.i") });
        }
        if !extent.is_multiple_of(lanes) {
            self.unroll(format!("{axis}.t"));
        }
    }

    fn elementwise(&mut self, nest: &Nest) {
        let stmts: Vec<&Stmt> = nest.body.iter().collect();
        let Some(lanes) = lanes(self.program, self.kernel, &stmts, self.facts.vector_bytes) else { return };
        let all = accesses(&self.kernel.exprs, nest.body);
        // Elements that share a byte are stored in order.
        if all.iter().any(|access| access.is_store && self.program.buffers[access.buffer].ty.dtype.is_packed()) {
            return;
        }
        let cost = |axis: AxisId| {
            let cost = |access: &Access| match stride(self.program, self.layouts, self.kernel, access, axis) {
                Stride::Zero | Stride::One if !access.padded => 1,
                _ => {
                    if access.is_store {
                        8
                    } else {
                        4
                    }
                }
            };
            all.iter().map(cost).sum::<usize>()
        };
        let Some(&vector) = nest
            .spatial
            .iter()
            .rev()
            .filter(|&&axis| self.extent(axis) >= lanes && self.may_run_together(nest, axis))
            .min_by_key(|&&axis| cost(axis))
        else {
            return;
        };
        if cost(vector) >= 4 * all.len() {
            return;
        }
        let innermost = *nest.spatial.last().expect("the vector axis");
        let (name, extent) = (self.name(vector), self.extent(vector));
        self.move_inside(&name, &self.name(innermost));
        let block =
            (lanes * if expression_count(self.kernel, nest.body.iter()) > LONG { 1 } else { 2 }).min(extent / lanes * lanes);
        self.split(&name, block);
        self.vectors(&format!("{name}.i"), block, lanes);
        if extent % block > 0 {
            self.vectors(&format!("{name}.t"), extent % block, lanes);
        }
    }

    /// Whether rounds of an axis do not share a local buffer.
    fn may_run_together(&self, nest: &Nest, axis: AxisId) -> bool {
        accesses(&self.kernel.exprs, nest.body).iter().filter(|access| access.is_store).all(|access| {
            !matches!(self.program.buffers[access.buffer].role, Role::Local)
                || stride(self.program, self.layouts, self.kernel, access, axis) != Stride::Zero
        })
    }

    fn tile(&mut self, nest: &Nest, reduction: &Reduction, tile: &Tile, outermost: bool) {
        let order = tile.reduce_order(self.kernel, reduction);
        let last = *order.last().expect("an axis reduces");
        if order != reduction.axes {
            let innermost = *reduction.axes.last().expect("an axis reduces");
            self.move_inside(&self.name(last), &self.name(innermost));
        }
        match tile.vector {
            Vector::Spatial(vector) => {
                let (name, extent, nr) = (self.name(vector), self.extent(vector), tile.nr());
                // Panels of weights outermost: each comes once from memory and then from the cache for every tile.
                if outermost && nest.spatial.first() != Some(&vector) {
                    self.steps.push(Step::Move { axis: name.clone(), inside: None });
                }
                self.jam(tile.rows);
                self.split(&name, nr);
                if extent >= nr {
                    self.vectors(&format!("{name}.i"), nr, tile.lanes);
                }
                if extent % nr > 0 {
                    self.vectors(&format!("{name}.t"), extent % nr, tile.lanes);
                }
            }
            Vector::Reduce(vector) => {
                let name = self.name(vector);
                // The axis in lanes is the innermost.
                self.move_inside(&name, &self.name(last));
                self.jam(tile.columns);
                self.jam(tile.rows);
                self.split(&name, tile.lanes);
                self.steps.push(Step::Vectorize { axis: format!("{name}.i") });
            }
        }
    }

    /// Splits an axis into groups of rounds that are done together.
    fn jam(&mut self, rows: Option<(AxisId, usize)>) {
        let Some((axis, count)) = rows else { return };
        let (name, extent) = (self.name(axis), self.extent(axis));
        self.split(&name, count);
        self.unroll(format!("{name}.i"));
        if extent % count > 0 {
            self.unroll(format!("{name}.t"));
        }
    }

    /// Unrolls the innermost loops while their rounds together stay few.
    fn unroll_short(&mut self, axes: &[AxisId]) {
        let mut rounds = 1;
        for &axis in axes.iter().rev() {
            rounds *= self.extent(axis);
            if rounds > MAX_UNROLLED {
                return;
            }
            self.unroll(self.name(axis));
        }
    }
}
