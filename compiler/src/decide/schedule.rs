//! How each kernel runs: which axis becomes lanes, and which rounds share registers. Reads from top to bottom.

mod rows;
mod sums;
mod walk;
mod windows;

use std::collections::BTreeMap;

use mcc_kernel::Facts;
use mcc_support::EntityMap;

use super::cost;
use super::nest::{
    Access, Nest, Reduction, Stride, accesses, distance, is_constant, lane_bits, lane_counts, loads, nests, plain_dim, stride,
};
use crate::decisions::{Layout, Step};
use crate::loops::linear::{Atom, KernelRanges, Linear};
use crate::loops::{AxisId, Buffer, BufferId, Expr, ExprId, Kernel, Program, Role, Stmt};
use walk::Walk;

/// Sums in lanes that are under way at once: of one row, and of several.
const SUMS: usize = 4;
const SUMS_OF_ROWS: usize = 8;
/// Rounds of a short loop are unrolled up to this many.
const MAX_UNROLLED: usize = 8;
/// Rounds at the end of an axis that are done together, at most.
pub const MAX_END: usize = 4;
/// Statements with more expressions than this are long: repeating them makes the code much larger.
const LONG: usize = 40;
/// Where so many operations wait for each other, several vectors are done side by side.
const WAITING: usize = 10;

/// The steps for one kernel of a fused program.
pub fn choose(program: &Program, kernel: &Kernel, layouts: &BTreeMap<String, Layout>, facts: &Facts) -> Vec<Step> {
    let mut chooser = Chooser { program, kernel, layouts, facts, together: 1, steps: Vec::new() };
    nests(kernel).iter().for_each(|(nest, outermost)| chooser.nest(nest, *outermost));
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
    /// Lane counts of the vectors that are used, the widest first.
    pub lane_counts: Vec<usize>,
    /// Elements along the vector axis, where it is spatial; else those of one vector.
    pub columns: usize,
    /// Elements of the panels in which a weight lies already, of which the columns are an even part.
    pub panel: Option<usize>,
    /// Other spatial axes whose rounds are jammed, the innermost first.
    pub rows: Vec<Rows>,
    /// Whether one factor is the same in all lanes.
    pub broadcasts: bool,
    /// What its size was chosen for; `None` where the lanes are summed.
    pub problem: Option<cost::Problem>,
    /// Rounds at the ends of axes that have tiles of their own, the innermost axis first.
    pub ends: Vec<Peel>,
    /// The axes whose rounds at the ends are done one by one.
    pub apart: Vec<AxisId>,
    /// Columns whose rows are done before those of the next ones.
    pub block: Option<usize>,
    /// Factors of a step that stay in registers, in vectors.
    pub factors: usize,
    /// Sums in which each accumulator is kept: as many in rests, so that all results are summed up in the same order.
    pub sums: usize,
}

/// Rounds that are jammed.
#[derive(Clone, Debug)]
pub struct Rows {
    pub axis: AxisId,
    /// The axis just inside of `axis`, with which it becomes one before it is split.
    pub merged: Option<AxisId>,
    pub count: usize,
}

/// A kernel's one reduction, and what its tile is chosen from.
struct Tiler<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    nest: &'a Nest<'a>,
    layouts: &'a BTreeMap<String, Layout>,
    facts: &'a Facts,
    reduction: &'a Reduction<'a>,
    /// What the reduction loads.
    operands: Vec<Access>,
    /// What is stored after it, and what is loaded for that.
    results: Vec<Access>,
    padded: Vec<Peel>,
}

impl Tile {
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
        let bits = lane_bits(program, kernel, &stmts)?;
        let operands = accesses(&kernel.exprs, reduction.updates);
        let results = accesses(&kernel.exprs, reduction.stores.iter().copied());
        let padded = padded_rounds(&program.buffers, kernel, nest, &operands).unwrap_or_default();
        let tiler = Tiler { program, kernel, nest, layouts, facts, reduction, operands, results, padded };
        let all = lane_counts(facts, bits);
        // The widest lanes in which an axis runs well, narrower ones where all are short.
        (0..all.len()).find_map(|widest| tiler.tile(bits, &all[widest..]))
    }

    /// The reduction's axes, the one along which operands are neighbours innermost.
    pub fn reduce_order(&self, kernel: &Kernel, reduction: &Reduction) -> Vec<AxisId> {
        reduce_order(kernel, reduction, self.broadcasts)
    }
}

fn reduce_order(kernel: &Kernel, reduction: &Reduction, broadcasts: bool) -> Vec<AxisId> {
    let mut order = reduction.axes.clone();
    // Channels, the first as lowered, are neighbours in feature maps and the longest. Where each has its own kernel there are none,
    // and the steps along rows of the map come last: neighbouring results share what they load.
    if broadcasts && order.len() > 1 && kernel.axes[order[0]].extent > 1 {
        order.rotate_left(1);
    }
    order
}

impl Tiler<'_> {
    fn extent(&self, axis: AxisId) -> usize {
        self.kernel.axes[axis].extent
    }

    /// Rounds between those at the ends in which loads may lie outside.
    fn between(&self, axis: AxisId) -> usize {
        let ends = |peel: &Peel| peel.first + peel.last;
        self.extent(axis) - self.padded.iter().find(|peel| peel.axis == axis).map_or(0, ends)
    }

    fn distance(&self, access: &Access, axis: AxisId) -> Option<i64> {
        distance(self.program, self.layouts, self.kernel, access, axis)
    }

    fn stride(&self, access: &Access, axis: AxisId) -> Stride {
        let found = stride(self.program, self.layouts, self.kernel, access, axis);
        // Weights are laid out for the axis that is chosen.
        if found == Stride::Other && is_constant(self.program, access.buffer) { Stride::One } else { found }
    }

    fn tile(&self, bits: usize, lane_counts: &[usize]) -> Option<Tile> {
        let lanes = lane_counts[0];
        let long = |axis: AxisId| self.extent(axis) >= fewest(self.facts, lanes);
        // Along an axis where operands are neighbours or the same, all lanes come with one instruction.
        let whole = |axis| self.operands.iter().all(|access| self.stride(access, axis) != Stride::Other);
        let stored = |axis| !self.is_scattered(axis);
        let spatial = spatial_in_lanes(self.kernel, self.nest, bits);
        let first =
            |fits: &dyn Fn(AxisId) -> bool| spatial.iter().copied().find(|&axis| long(axis) && fits(axis)).map(Vector::Spatial);
        let sums = |&axis: &AxisId| !self.operands.is_empty() && self.extent(axis) >= lanes && whole(axis);
        let reduced = || self.reduction.axes.iter().copied().find(sums);
        // Lanes that are stored apart cost less than lanes that are summed.
        let vector = first(&|axis| whole(axis) && stored(axis))
            .or_else(|| first(&|axis| whole(axis)))
            .or_else(|| reduced().map(Vector::Reduce))
            .or_else(|| first(&|axis| stored(axis)))?;
        Some(match vector {
            Vector::Spatial(axis) => self.spatial(axis, lane_counts, bits),
            Vector::Reduce(_) => self.reducing(vector, lane_counts),
        })
    }

    /// Whether lanes along an axis are stored one by one.
    fn is_scattered(&self, axis: AxisId) -> bool {
        self.results.iter().any(|access| access.is_store && self.stride(access, axis) != Stride::One)
    }

    /// Loads for a vector along an axis of what varies along it, and stores for one of results.
    fn vector_accesses(&self, axis: AxisId, lanes: usize) -> [usize; 2] {
        let is_gathered = self.operands.iter().any(|access| self.stride(access, axis) == Stride::Other);
        [is_gathered, self.is_scattered(axis)].map(|is_apart| if is_apart { lanes } else { 1 })
    }

    /// Rows reuse what varies along the lanes only.
    fn reuses(&self, axis: AxisId) -> bool {
        self.operands.iter().any(|access| self.stride(access, axis) == Stride::Zero) && self.extent(axis) > 1
    }

    /// A long epilogue is repeated for every accumulator.
    fn most_accumulators(&self) -> usize {
        let registers = self.facts.vector_registers as usize;
        let long = expression_count(self.kernel, self.reduction.stores.iter().copied()) > LONG;
        if long { registers / 2 } else { registers }
    }

    fn spatial(&self, vector: AxisId, lane_counts: &[usize], bits: usize) -> Tile {
        let others: Vec<AxisId> = self.nest.spatial.iter().rev().copied().filter(|&axis| axis != vector).collect();
        let broadcasts = self.operands.iter().any(|access| self.stride(access, vector) == Stride::Zero);
        let jams = |axis: AxisId| self.reuses(axis) || !broadcasts && self.overlaps(axis);
        let inner = others.iter().position(|&axis| jams(axis));
        let outer = inner.and_then(|at| others.get(at + 1).copied()).filter(|&axis| jams(axis));
        let inner = inner.map(|at| others[at]);
        let merged = outer.zip(inner).filter(|&(outer, inner)| self.may_merge(outer, inner));
        // Windows at the ends have tiles like the others.
        let rounds = |axis| if broadcasts { self.between(axis) } else { self.extent(axis) };
        let extent = |axis: Option<AxisId>| axis.map_or(1, rounds);
        let rows = if merged.is_some() { [extent(outer) * extent(inner), 1] } else { [extent(inner), extent(outer)] };
        let panel = |access| panel_of(self.program, self.kernel, self.layouts, access, vector);
        let problem = cost::Problem {
            columns: self.extent(vector),
            panel: self.operands.iter().find_map(panel),
            lane_counts: lane_counts.to_vec(),
            lane_bytes: bits / 8,
            parts: self.facts.has_parts(),
            rows,
            depth: self.reduction.axes.iter().map(|&axis| self.extent(axis)).product(),
            broadcasts,
            ends: [inner, outer].map(|axis| axis.map_or(0, |axis| self.extent(axis) - rounds(axis))),
            windows: [inner, outer].map(|axis| axis.map_or(cost::Window::NONE, |axis| self.window(axis))),
            weighted: self.operands.len() > 1,
            vector_accesses: self.vector_accesses(vector, lane_counts[0]),
            map: self.map(vector, lane_counts[0], [inner, outer]),
            most: self.most_accumulators(),
            sums: self.sums(broadcasts),
            has_rest: self.has_rest(broadcasts),
            row_bytes: inner.map_or(0, |axis| self.row_bytes(axis, vector, bits)),
            has_panels: self.operands.iter().any(|access| is_constant(self.program, access.buffer)),
        };
        let (size, sums) = problem.best(self.facts);
        let (mut ends, mut apart) = (self.padded.clone(), Vec::new());
        let cuts = (!broadcasts).then(|| problem.cuts(size, self.facts));
        for (cut, axis) in cuts.into_iter().flatten().zip([inner, outer]) {
            if let Some(end) = ends.iter_mut().find(|end| Some(end.axis) == axis) {
                [end.first, end.last] = cut.ends;
                apart.extend(axis.filter(|_| !cut.together));
            }
        }
        ends.retain(|end| end.first + end.last > 0);
        let rows = match (merged, inner) {
            (Some((outer, inner)), _) => vec![Rows { axis: outer, merged: Some(inner), count: size.rows[0] }],
            (None, Some(inner)) => {
                let inner = Rows { axis: inner, merged: None, count: size.rows[0] };
                let outer = outer.filter(|_| size.rows[1] > 1).map(|axis| Rows { axis, merged: None, count: size.rows[1] });
                [inner].into_iter().chain(outer).collect()
            }
            (None, None) => Vec::new(),
        };
        let panel = problem.panel.filter(|&panel| panel > size.columns);
        Tile {
            vector: Vector::Spatial(vector),
            lane_counts: lane_counts.to_vec(),
            columns: size.columns,
            panel,
            rows,
            broadcasts,
            ends,
            apart,
            block: problem.block(size, self.facts),
            factors: problem.factors(problem.vectors(size.columns)),
            sums,
            problem: Some(problem),
        }
    }

    /// Whether two axes, one just inside of the other, can be walked as one: the end of a round of the inner one is where the next
    /// round of the outer one begins, in all buffers.
    fn may_merge(&self, outer: AxisId, inner: AxisId) -> bool {
        let joins = |access: &Access| {
            let (Some(outer), Some(step)) = (self.distance(access, outer), self.distance(access, inner)) else { return false };
            !access.padded && outer == step * self.extent(inner) as i64
        };
        let free = |axis: AxisId| self.kernel.axes[axis].limit.is_none();
        let sets = |stmt: &Stmt| !matches!(stmt, Stmt::Set { value, .. } if !loads(&self.kernel.exprs, [*value]).is_empty());
        free(outer) && free(inner) && self.nest.body.iter().all(sets) && self.operands.iter().chain(&self.results).all(joins)
    }

    fn reducing(&self, vector: Vector, lane_counts: &[usize]) -> Tile {
        let other = |taken: Option<AxisId>| {
            self.nest.spatial.iter().rev().copied().find(|&axis| Some(axis) != taken && self.reuses(axis))
        };
        let first = other(None);
        let second = first.and_then(|first| other(Some(first)));
        let registers = self.facts.vector_registers as usize;
        let side = if registers >= 32 { 4 } else { 2 };
        let rows = |axis: AxisId, most| Rows { axis, merged: None, count: even(self.extent(axis), most) };
        let columns = first.map(|axis| rows(axis, (registers - 1 - side) / (side + 1)));
        let rows = second.map(|axis| rows(axis, side));
        Tile {
            vector,
            lane_counts: lane_counts.to_vec(),
            columns: lane_counts[0],
            panel: None,
            rows: columns.into_iter().chain(rows).collect(),
            broadcasts: true,
            problem: None,
            ends: Vec::new(),
            apart: Vec::new(),
            block: None,
            factors: 0,
            sums: 1,
        }
    }
}

/// Rounds at the ends of an axis in which loads may lie outside of their buffer.
#[derive(Clone, Copy, Debug)]
pub struct Peel {
    pub axis: AxisId,
    pub first: usize,
    pub last: usize,
}

/// For each axis where there are some, the innermost first, the rounds in which padded loads may lie outside: between them all lie
/// inside. `None` where no load is padded, or where it is not such rounds that tell.
pub fn padded_rounds(buffers: &EntityMap<BufferId, Buffer>, kernel: &Kernel, nest: &Nest, all: &[Access]) -> Option<Vec<Peel>> {
    let ranges = KernelRanges { exprs: &kernel.exprs, axes: &kernel.axes };
    let mut peels: BTreeMap<AxisId, Peel> = BTreeMap::new();
    for access in all.iter().filter(|access| access.padded) {
        let shape = buffers[access.buffer].ty.shape.dims();
        for (&index, &extent) in access.index.iter().zip(shape) {
            let form = Linear::of(&kernel.exprs, index);
            let (low, high) = form.range(&ranges);
            if low >= 0 && high < extent as i64 {
                continue;
            }
            let uses = |form: &Linear, axis: AxisId| {
                form.terms.keys().any(|&atom| match atom {
                    Atom::Axis(found) => found == axis,
                    Atom::Expr(expr) => kernel.exprs.uses_axis(expr, axis),
                })
            };
            let spatial: Vec<AxisId> = nest.spatial.iter().copied().filter(|&axis| uses(&form, axis)).collect();
            let &[axis] = &spatial[..] else { return None };
            let (step, rounds) = (form.coefficient(Atom::Axis(axis)), kernel.axes[axis].extent as i64);
            let rest = form.replace(Atom::Axis(axis), &Linear::default());
            let (low, high) = rest.range(&ranges);
            // Inside where `low + step · round >= 0` and `high + step · round < extent`.
            if step <= 0 || uses(&rest, axis) || low < -(1 << 40) || high > 1 << 40 {
                return None;
            }
            let rounded_up = |distance: i64| (distance + step - 1).div_euclid(step).clamp(0, rounds);
            let (begin, end) = (rounded_up(-low), rounded_up(extent as i64 - high));
            if begin >= end {
                return None;
            }
            let peel = peels.entry(axis).or_insert(Peel { axis, first: 0, last: 0 });
            peel.first = peel.first.max(begin as usize);
            peel.last = peel.last.max((rounds - end) as usize);
        }
    }
    let left = |peel: &Peel| peel.first + peel.last < kernel.axes[peel.axis].extent && kernel.axes[peel.axis].limit.is_none();
    let peels: Vec<Peel> = nest.spatial.iter().rev().filter_map(|axis| peels.get(axis).copied()).collect();
    (!peels.is_empty() && peels.iter().all(left)).then_some(peels)
}

/// The spatial axes that may run in lanes of so many bits: none where a variable that is set beside the reduction has another width.
fn spatial_in_lanes(kernel: &Kernel, nest: &Nest, bits: usize) -> Vec<AxisId> {
    let fills = |stmt: &Stmt| match stmt {
        Stmt::Set { var, .. } => kernel.vars[*var].size_bits() == bits,
        _ => true,
    };
    if nest.body.iter().all(fills) { nest.spatial.clone() } else { Vec::new() }
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

/// The operations that wait for each other from what is loaded to what is stored, at most.
fn longest_chain(kernel: &Kernel, stmts: &[Stmt]) -> usize {
    fn length(kernel: &Kernel, expr: ExprId, known: &mut BTreeMap<ExprId, usize>) -> usize {
        if let Some(&length) = known.get(&expr) {
            return length;
        }
        let operands = match kernel.exprs.get(expr) {
            Expr::Load { .. } => Vec::new(),
            _ => kernel.exprs.operands(expr),
        };
        let longest = operands.into_iter().map(|operand| length(kernel, operand, known) + 1).max().unwrap_or(0);
        known.insert(expr, longest);
        longest
    }
    let (mut known, mut longest) = (BTreeMap::new(), 0);
    let mut add = |stmt: &Stmt| {
        if let Stmt::Store { value, .. } = stmt {
            longest = longest.max(length(kernel, *value, &mut known));
        }
    };
    stmts.iter().for_each(|stmt| stmt.walk(&mut add));
    longest
}

/// Rounds for which a vector of so many lanes is worth it: all of them or, where it may be used in part, more than the half.
fn fewest(facts: &Facts, lanes: usize) -> usize {
    if facts.has_parts() { lanes / 2 + 1 } else { lanes }
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
    /// Rows of the tree around a nest that are jammed.
    together: usize,
    steps: Vec<Step>,
}

impl Chooser<'_> {
    /// `outermost`: whether no loop stands around the nest.
    fn nest(&mut self, nest: &Nest, outermost: bool) {
        if nest.is_elementwise() {
            return self.elementwise(nest, outermost);
        }
        if let Some(reduction) = nest.reduction(self.kernel) {
            let together = nest.spatial.iter().all(|&axis| self.may_run_together(nest, axis));
            let choose = || Tile::choose(self.program, self.kernel, nest, &reduction, self.layouts, self.facts);
            return match together.then(choose).flatten() {
                Some(tile) => self.tile(nest, &reduction, &tile, outermost),
                None => self.unroll_short(&reduction.axes),
            };
        }
        // A tree: each nest in it comes by itself.
        if let Some(rows) = self.rows_together(nest) {
            self.together = rows.count;
            self.jam(&rows, &[], false);
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

    /// Turns an axis of this extent into vectors that are unrolled, the widest first, and what is left over into a part of one, or
    /// into narrower ones and single rounds.
    fn vectors(&mut self, axis: &str, extent: usize, lane_counts: &[usize]) {
        let Some((&lanes, narrower)) = lane_counts.split_first() else { return self.unroll(axis.into()) };
        if extent < lanes {
            if extent > 1 && self.facts.has_parts() {
                self.steps.push(Step::Vectorize { axis: axis.into() });
                return;
            }
            return self.vectors(axis, extent, narrower);
        }
        self.split(axis, lanes);
        self.unroll(format!("{axis}.o"));
        self.steps.push(Step::Vectorize { axis: format!("{axis}.i") });
        if !extent.is_multiple_of(lanes) {
            self.vectors(&format!("{axis}.t"), extent % lanes, narrower);
        }
    }

    fn elementwise(&mut self, nest: &Nest, outermost: bool) {
        let stmts: Vec<&Stmt> = nest.body.iter().collect();
        let Some(bits) = lane_bits(self.program, self.kernel, &stmts) else { return };
        let lane_counts = lane_counts(self.facts, bits);
        let Some(&narrowest) = lane_counts.last() else { return };
        let all = accesses(&self.kernel.exprs, nest.body);
        // Elements that share a byte are stored in order.
        if all.iter().any(|access| access.is_store && self.program.buffers[access.buffer].ty.dtype.is_packed()) {
            return;
        }
        let padded = padded_rounds(&self.program.buffers, self.kernel, nest, &all);
        let cost = |axis: AxisId| {
            let cost = |access: &Access| match stride(self.program, self.layouts, self.kernel, access, axis) {
                Stride::Zero | Stride::One if !access.padded || padded.is_some() => 1,
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
            .filter(|&&axis| self.extent(axis) >= fewest(self.facts, narrowest) && self.may_run_together(nest, axis))
            .min_by_key(|&&axis| cost(axis))
        else {
            return;
        };
        if cost(vector) >= 4 * all.len() {
            return;
        }
        let innermost = *nest.spatial.last().expect("the vector axis");
        self.move_inside(&self.name(vector), &self.name(innermost));
        let padded = padded.unwrap_or_default();
        self.peel(&padded);
        let (name, extent) = self.between(&padded, vector);
        let Some(&lanes) = lane_counts.iter().find(|&&lanes| extent >= fewest(self.facts, lanes)) else { return };
        let (count, chain) = (expression_count(self.kernel, nest.body.iter()), longest_chain(self.kernel, nest.body));
        let vectors = match chain {
            _ if self.together > 1 && chain >= WAITING => 1,
            // Few of the operations can be done at once, but where each multiply-add is many of them. Without a loop left, what is loaded for
            // them would be kept over others.
            _ if chain >= WAITING && count <= 4 * chain && self.facts.fma => {
                if outermost {
                    4
                } else {
                    (extent / lanes / 2).clamp(1, 4)
                }
            }
            _ if count > LONG => 1,
            _ => 2,
        };
        let block = (lanes * vectors).min((extent / lanes).max(1) * lanes).min(extent);
        self.split(&name, block);
        self.vectors(&format!("{name}.i"), block, &lane_counts);
        if extent % block > 0 {
            self.vectors(&format!("{name}.t"), extent % block, &lane_counts);
        }
    }

    /// Takes the rounds in which loads may lie outside off the ends of axes.
    fn peel(&mut self, padded: &[Peel]) {
        for peel in padded {
            self.steps.push(Step::Peel { axis: self.name(peel.axis), first: peel.first, last: peel.last });
        }
    }

    /// Rounds at the ends are done together or one by one, so that each knows what lies outside.
    fn ends(&mut self, tile: &Tile) {
        for end in &tile.ends {
            let is_tile = !tile.broadcasts && tile.rows.iter().any(|rows| rows.axis == end.axis);
            for (suffix, rounds) in [("b", end.first), ("e", end.last)] {
                let name = format!("{}.{suffix}", self.name(end.axis));
                match rounds {
                    0 | 1 => {}
                    2 | 3 if tile.apart.contains(&end.axis) => self.steps.push(Step::Peel { axis: name, first: 1, last: 1 }),
                    _ if is_tile || rounds <= MAX_END => self.unroll(name),
                    _ => {}
                }
            }
        }
    }

    /// What is left of an axis, with its extent.
    fn between(&self, padded: &[Peel], axis: AxisId) -> (String, usize) {
        let peel = padded.iter().find(|peel| peel.axis == axis);
        let whole = (self.name(axis), self.extent(axis));
        peel.map_or(whole.clone(), |peel| (format!("{}.m", whole.0), whole.1 - peel.first - peel.last))
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
                let walked = self.place_columns(nest, reduction, vector, tile, outermost);
                self.peel(&tile.ends);
                self.ends(tile);
                let evenly = tile.problem.as_ref().is_some_and(|problem| !problem.is_windows());
                tile.rows.iter().for_each(|rows| self.jam(rows, &tile.ends, evenly));
                let (name, extent) = match tile.block {
                    Some(block) if walked != self.name(vector) => (walked, block),
                    _ => self.between(&tile.ends, vector),
                };
                match tile.panel {
                    None => self.columns(&name, extent, tile),
                    Some(panel) => {
                        self.split(&name, panel);
                        if extent >= panel {
                            self.columns(&format!("{name}.i"), panel, tile);
                        }
                        if extent % panel > 0 {
                            self.columns(&format!("{name}.t"), extent % panel, tile);
                        }
                    }
                }
                self.unroll_steps(&order, tile);
            }
            Vector::Reduce(vector) => {
                let name = self.name(vector);
                // The axis in lanes is the innermost.
                self.move_inside(&name, &self.name(last));
                tile.rows.iter().for_each(|rows| self.jam(rows, &[], true));
                let rows = tile.rows.iter().map(|rows| rows.count).product::<usize>() * self.together;
                self.sum_in_lanes(&name, self.extent(vector), tile.columns, rows);
            }
        }
    }

    /// Splits an axis of this extent into the columns of tiles, in vectors.
    fn columns(&mut self, name: &str, extent: usize, tile: &Tile) {
        self.split(name, tile.columns);
        if extent >= tile.columns {
            self.vectors(&format!("{name}.i"), tile.columns, &tile.lane_counts);
        }
        if !extent.is_multiple_of(tile.columns) {
            self.vectors(&format!("{name}.t"), extent % tile.columns, &tile.lane_counts);
        }
    }

    /// Runs a reduction of this extent in lanes, with so many accumulators that they do not wait for each other.
    fn sum_in_lanes(&mut self, name: &str, extent: usize, lanes: usize, rows: usize) {
        let sums = if self.together > 1 { SUMS_OF_ROWS } else { SUMS };
        let apart = (sums / rows.max(1)).min(extent / lanes);
        if apart > 1 {
            self.split(name, lanes * apart);
            self.split(&format!("{name}.i"), lanes);
            self.steps.push(Step::Apart { axis: format!("{name}.i.o") });
            self.steps.push(Step::Vectorize { axis: format!("{name}.i.i") });
            let rest = extent % (lanes * apart);
            if rest >= lanes {
                self.sum_in_lanes(&format!("{name}.t"), rest, lanes, SUMS_OF_ROWS);
            } else {
                self.sum_rest(name, rest);
            }
        } else {
            self.split(name, lanes);
            self.steps.push(Step::Vectorize { axis: format!("{name}.i") });
            self.sum_rest(name, extent % lanes);
        }
    }

    /// Runs the rest of a reduction that was split in a part of a vector, where that is possible.
    fn sum_rest(&mut self, name: &str, rest: usize) {
        if rest > 1 && self.facts.has_parts() {
            self.steps.push(Step::Vectorize { axis: format!("{name}.t") });
        }
    }

    /// Puts the axis in lanes outermost, so that each panel of weights comes once from memory and then from the cache for every tile.
    /// Where it is the rows that are too large for the cache, and all panels fit, innermost: then each row comes once. A block of columns
    /// is done inside of a row; returns the axis of its columns.
    fn place_columns(&mut self, nest: &Nest, reduction: &Reduction, vector: AxisId, tile: &Tile, outermost: bool) -> String {
        let name = self.name(vector);
        if !outermost {
            return name;
        }
        let operands = accesses(&self.kernel.exprs, reduction.updates);
        let results = accesses(&self.kernel.exprs, reduction.stores.iter().copied());
        let walk = Walk {
            program: self.program,
            kernel: self.kernel,
            layouts: self.layouts,
            operands: &operands,
            results: &results,
            vector,
        };
        let streams = walk.streams(tile.columns, self.facts);
        let rows_come_once = streams || walk.bytes(false) > self.facts.l2_bytes && walk.bytes(true) <= self.facts.l2_bytes / 2;
        let others: Vec<AxisId> = nest.spatial.iter().rev().copied().filter(|&axis| axis != vector).collect();
        if let (true, Some(&last)) = (rows_come_once, others.first()) {
            if nest.spatial.last() != Some(&vector) {
                self.move_inside(&name, &self.name(last));
            }
            return name;
        }
        if nest.spatial.first() != Some(&vector) {
            self.steps.push(Step::Move { axis: name.clone(), inside: None });
        }
        let row = tile.rows.first().and_then(|rows| others.iter().position(|&axis| axis == rows.axis));
        let around = row.and_then(|at| others.get(at + 1)).filter(|&&axis| self.extent(axis) > 1);
        let (Some(block), Some(&around)) = (tile.block, around) else { return name };
        self.split(&name, block);
        self.move_inside(&format!("{name}.i"), &self.name(around));
        format!("{name}.i")
    }

    /// Splits an axis into groups of rounds that are done together, as even as can be or full ones and a rest.
    fn jam(&mut self, rows: &Rows, padded: &[Peel], evenly: bool) {
        let (mut name, mut extent) = self.between(padded, rows.axis);
        if let Some(inner) = rows.merged {
            self.steps.push(Step::Merge { outer: name.clone(), inner: self.name(inner) });
            name = format!("{name}.{}", self.name(inner));
            extent *= self.extent(inner);
        }
        if extent == 0 {
            return;
        }
        let [(size, count), (rest, rests)] = cost::parts(extent, rows.count, evenly);
        if rests <= 1 {
            self.split(&name, size);
            if count > 0 {
                self.unroll(format!("{name}.i"));
            }
            if rests > 0 {
                self.unroll(format!("{name}.t"));
            }
        } else {
            self.steps.push(Step::Peel { axis: name.clone(), first: 0, last: rest * rests });
            for (part, size) in [("m", size), ("e", rest)] {
                self.split(&format!("{name}.{part}"), size);
                self.unroll(format!("{name}.{part}.i"));
            }
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
