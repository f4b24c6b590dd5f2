//! Which kernels are fused: rules, tried on each kernel in the order of the program until none applies.
//!
//! Fusion saves memory traffic; it must not compute anything twice that costs more than reading it back.

use std::collections::BTreeSet;

use super::nest::{Access, Nest, accesses};
use super::schedule::{MAX_END, padded_rounds};
use crate::decisions::Fusion;
use crate::loops::linear::{self, Atom, Linear};
use crate::loops::sites;
use crate::loops::{AxisId, AxisKind, Binary, BufferId, Expr, ExprId, Kernel, Program, Role, Stmt, Unary};
use crate::realize::fuse::{Change, Fuser};

/// Work on one element that may be done twice rather than stored and loaded; see [`cost`].
const CHEAP: usize = 6;
/// Work on one element that is not done on a tile of accumulators, where multiply-adds are one instruction: it needs registers beside
/// them and is written out for each. A logistic function is done there: what it activates is then in memory once.
const CROWDED: usize = 40;
/// The same where multiply-adds of elementary functions take many instructions: no exponential.
const CROWDED_WITHOUT_FMA: usize = 16;
/// Padded maps of so many bytes are copied for the windows that slide over them, in almost no time.
const SMALL_MAP_BYTES: usize = 16 << 10;
/// Multiply-adds for each element of a map beside which copying it takes no time.
const MUCH_WORK: usize = 256;
/// Bytes that a buffer inside a merged kernel may take: it should stay in the first-level cache.
const LOCAL_BYTES: usize = 32 << 10;

/// The fusions chosen for a machine with fused multiply-adds or without, and the program with them carried out.
pub fn choose(program: &Program, fma: bool) -> (Vec<Fusion>, Program) {
    let crowded = if fma { CROWDED } else { CROWDED_WITHOUT_FMA };
    let mut chooser = Chooser { fuser: Fuser::new(program), fusions: Vec::new(), crowded };
    // Movement first, so that who reads a value is known; padding when what it pads is; rows last, for a tree of nests is harder to
    // fuse with than its parts.
    let phases: [&[Rule]; 5] = [
        &[Chooser::move_before_storing, Chooser::move_into_consumers],
        &[
            Chooser::move_into_consumers,
            Chooser::work_on_results_before_they_are_stored,
            Chooser::work_on_parts_before_they_are_stored,
            Chooser::compute_in_consumers,
            Chooser::join_elementwise,
        ],
        &[Chooser::store_inside_of_padding, Chooser::read_one_of_two_copies],
        &[Chooser::read_across_borders],
        &[Chooser::merge_rows],
    ];
    while phases.iter().any(|rules| chooser.sweep(rules)) {}
    (chooser.fusions, chooser.fuser.finish())
}

/// Does one fusion that the kernel in this slot takes part in; whether there was one to do.
type Rule = fn(&mut Chooser, usize) -> bool;

struct Chooser {
    fuser: Fuser,
    fusions: Vec<Fusion>,
    /// Work on an element beyond which it is not done on a tile.
    crowded: usize,
}

impl Chooser {
    /// Tries the rules on every kernel; whether anything changed.
    fn sweep(&mut self, rules: &[Rule]) -> bool {
        let before = self.fusions.len();
        for slot in self.fuser.order() {
            for rule in rules {
                while self.fuser.kernel(slot).is_some() && rule(self, slot) {}
            }
        }
        self.fusions.len() > before
    }

    /// A contraction's result that is only read after it was moved is moved as it is stored, where that makes neighbours of what
    /// its weights make neighbours (the channels of a convolution that become the last dimension).
    fn move_before_storing(&mut self, slot: usize) -> bool {
        let Some(moved) = self.movement(slot) else { return false };
        let taken = self.fuser.producers(slot).into_iter().find_map(|producer| {
            let kernel = self.kernel(producer);
            let axis = self.weights_axis(kernel)?;
            let is_innermost = |kernel: &Kernel, axis: &str, buffer| {
                let site = sites::only_store(kernel, buffer)?;
                let last = Linear::of(&kernel.exprs, *site.index.last()?);
                Some(
                    last.terms
                        .iter()
                        .any(|(&atom, &step)| step == 1 && matches!(atom, Atom::Axis(id) if kernel.axes[id].name == axis)),
                )
            };
            let change = self.fuser.epilogue(producer, slot).ok()?;
            let was = is_innermost(kernel, &axis, moved.from)?;
            let after = change.kernel(slot)?;
            let is = is_innermost(after, &axis, moved.to)?;
            let only_reader = sites::only_store(after, moved.from).is_none();
            (only_reader && is && !was).then_some((producer, change))
        });
        self.take_epilogue(slot, taken)
    }

    /// Movement becomes index arithmetic of its consumers where they can address with it.
    fn move_into_consumers(&mut self, slot: usize) -> bool {
        let Some(moved) = self.movement(slot) else { return false };
        let taken = self.fuser.consumers(slot).into_iter().find_map(|consumer| {
            let change = self.fuser.inline(slot, consumer).ok()?;
            let before = self.kernel(consumer);
            let once = self.evaluates_once(consumer, moved.to);
            // A load that may lie outside is tested each time: padding is written once where its elements are read again and again.
            (once || !moved.is_padding).then_some(())?;
            let addressable = awkward_loads(change.kernel(consumer)?) <= awkward_loads(before);
            let once = once && sites::elementwise(before).is_some();
            (addressable || once).then_some((consumer, change))
        });
        self.take_inline(slot, taken)
    }

    /// An elementwise kernel becomes the last step of a contraction or reduction that it reads: the latest that allows it. One that
    /// only another elementwise kernel reads first becomes a part of that, so that what does not fit beside the accumulators of a
    /// contraction stays whole.
    fn work_on_results_before_they_are_stored(&mut self, slot: usize) -> bool {
        let Some(sites) = sites::elementwise(self.kernel(slot)) else { return false };
        if self.joins_its_reader(slot) {
            return false;
        }
        let crowded = sites.iter().any(|site| cost(self.kernel(slot), site.value) > self.crowded);
        let taken = self.fuser.producers(slot).into_iter().find_map(|producer| {
            let kernel = self.kernel(producer);
            let heavy = self.reuses_operands(kernel);
            let fits = sites::elementwise(kernel).is_none() && !(heavy && (crowded || self.would_run_on(producer, slot)));
            fits.then(|| Some((producer, self.fuser.epilogue(producer, slot).ok()?)))?
        });
        self.take_epilogue(slot, taken)
    }

    /// Whether the producer can stop where its results are no longer needed, and with the consumer's work could not.
    fn would_run_on(&self, producer: usize, consumer: usize) -> bool {
        let stops = |slot: usize| self.fuser.writes(slot).iter().any(|&buffer| self.fuser.is_needed_in_part(buffer));
        stops(producer) && !stops(consumer)
    }

    /// Whether the only kernel that reads this one's results is elementwise and will compute them itself.
    fn joins_its_reader(&self, slot: usize) -> bool {
        let (Some(store), consumers) = (self.sole_store(slot), self.fuser.consumers(slot)) else { return false };
        matches!(self.fuser.buffer(store.buffer).role, Role::Temporary)
            && consumers.len() == 1
            && consumers.iter().all(|&consumer| {
                sites::elementwise(self.kernel(consumer)).is_some()
                    && self.evaluates_once(consumer, store.buffer)
                    && self.fuser.inline(slot, consumer).is_ok()
            })
    }

    /// The same where the results are stored in parts, as concatenations are.
    fn work_on_parts_before_they_are_stored(&mut self, slot: usize) -> bool {
        let parted = self.fuser.reads(slot).iter().copied().filter(|&buffer| self.fuser.writers(buffer).len() > 1);
        let taken = parted.into_iter().find_map(|buffer| Some((buffer, self.fuser.distribute(buffer, slot).ok()?)));
        let Some((from, change)) = taken else { return false };
        self.fusions.push(Fusion::Distribute { from: self.fuser.buffer(from).name.clone(), consumer: self.name(slot) });
        self.fuser.commit(change);
        true
    }

    /// Elementwise work moves into all its consumers where none computes an element twice, all together read no more than storing
    /// the result would cost, and what is done more than once is cheap.
    fn compute_in_consumers(&mut self, slot: usize) -> bool {
        let Some(store) = self.sole_store(slot) else { return false };
        let consumers = self.fuser.consumers(slot);
        if consumers.is_empty() || !matches!(self.fuser.buffer(store.buffer).role, Role::Temporary) {
            return false;
        }
        let kernel = self.kernel(slot);
        let elements = self.fuser.buffer(store.buffer).ty.shape.count();
        let reads = self.fuser.reads(slot);
        let large = reads.iter().filter(|&&buffer| self.fuser.buffer(buffer).ty.shape.count() * 2 > elements).count();
        let count = consumers.len();
        let cheap = cost(kernel, store.value) <= CHEAP;
        let computed_from_indices = reads.is_empty() && cheap;
        let once = consumers.iter().all(|&consumer| self.evaluates_once(consumer, store.buffer));
        let saves_traffic = count * large <= large + 1 + count;
        let worthwhile = computed_from_indices || once && (count == 1 || cheap && saves_traffic);
        if !worthwhile || !consumers.iter().all(|&consumer| self.fuser.inline(slot, consumer).is_ok()) {
            return false;
        }
        for consumer in consumers {
            let change = self.fuser.inline(slot, consumer).expect("inlining into one consumer leaves the others");
            self.take_inline(slot, Some((consumer, change)));
        }
        true
    }

    /// Elementwise kernels over the same elements become one that stores the results of both.
    fn join_elementwise(&mut self, slot: usize) -> bool {
        if sites::elementwise(self.kernel(slot)).is_none() {
            return false;
        }
        let taken = self.fuser.producers(slot).into_iter().find_map(|producer| {
            sites::elementwise(self.kernel(producer))?;
            Some((producer, self.fuser.epilogue(producer, slot).ok()?))
        });
        self.take_epilogue(slot, taken)
    }

    /// What is padded is stored in its place in the padded buffer.
    fn store_inside_of_padding(&mut self, slot: usize) -> bool {
        if !self.movement(slot).is_some_and(|moved| moved.is_padding) {
            return false;
        }
        let taken = self
            .fuser
            .producers(slot)
            .into_iter()
            .find_map(|producer| Some((producer, self.fuser.interior(producer, slot).ok()?)));
        let Some((producer, change)) = taken else { return false };
        self.fusions.push(Fusion::Interior { producer: self.name(producer), consumer: self.name(slot) });
        self.fuser.commit(change);
        true
    }

    /// What nobody can store into its place in a padded buffer is not copied there: windows read it where it lies, and those at its
    /// border leave out what is outside.
    fn read_across_borders(&mut self, slot: usize) -> bool {
        let Some(moved) = self.movement(slot).filter(|moved| moved.is_padding) else { return false };
        let consumers = self.fuser.consumers(slot);
        let buffer = self.fuser.buffer(moved.to);
        let small = buffer.ty.size_bytes() <= SMALL_MAP_BYTES || !matches!(buffer.role, Role::Temporary);
        if small || consumers.is_empty() || !consumers.iter().all(|&consumer| self.ends_at_border(slot, consumer, moved.to)) {
            return false;
        }
        for consumer in consumers {
            let change = self.fuser.inline(slot, consumer).expect("inlining into one consumer leaves the others");
            self.take_inline(slot, Some((consumer, change)));
        }
        true
    }

    /// Whether a kernel is windows over a padded map, few of which reach over its border, and would not take much longer than to copy
    /// the map.
    fn ends_at_border(&self, slot: usize, consumer: usize, padded: BufferId) -> bool {
        let before = self.kernel(consumer);
        let rounds = loads_in_loops(before).iter().filter(|load| load.buffer == padded).map(|load| load.rounds).sum::<usize>();
        let work = rounds / self.fuser.buffer(padded).ty.shape.count().max(1);
        let Ok(change) = self.fuser.inline(slot, consumer) else { return false };
        let Some(kernel) = change.kernel(consumer) else { return false };
        let nest = Nest::of(kernel, &kernel.body);
        let Some(reduction) = nest.reduction(kernel) else { return false };
        let operands = accesses(&kernel.exprs, reduction.updates);
        let Some(ends) = padded_rounds(self.fuser.buffers(), kernel, &nest, &operands) else { return false };
        // Each end, with each of another axis, has code of its own: of one round, but for windows on single channels, whose code is short.
        let taps = |axis: &AxisId| ends.iter().any(|end| shares_index(kernel, &operands, *axis, end.axis));
        let is_short = reduction.axes.iter().all(|axis| kernel.axes[*axis].extent == 1 || taps(axis));
        work <= MUCH_WORK
            && awkward_loads(kernel) <= awkward_loads(before)
            && ends.len() <= 2
            && ends.iter().all(|end| end.first.max(end.last) <= if is_short { MAX_END } else { 1 })
    }

    /// Of two buffers with the same values one is enough.
    fn read_one_of_two_copies(&mut self, slot: usize) -> bool {
        let writes = self.fuser.writes(slot);
        let pairs = writes.iter().flat_map(|&from| writes.iter().map(move |&to| (from, to))).filter(|(from, to)| from != to);
        let taken = pairs.into_iter().find_map(|(from, to)| Some((from, to, self.fuser.redirect(from, to).ok()?)));
        let Some((from, to, change)) = taken else { return false };
        let name = |buffer| self.fuser.buffer(buffer).name.clone();
        self.fusions.push(Fusion::Redirect { from: name(from), to: name(to) });
        self.fuser.commit(change);
        true
    }

    /// Reductions along rows, and what is done with their results on the same rows, become one tree (softmax, normalizations).
    fn merge_rows(&mut self, slot: usize) -> bool {
        let taken = self.fuser.producers(slot).into_iter().find_map(|producer| {
            let (from, to) = (self.kernel(producer), self.kernel(slot));
            (reduces(from) || reduces(to)).then_some(())?;
            [from, to].iter().all(|kernel| !self.reuses_operands(kernel) && reduces_along_rows(kernel)).then_some(())?;
            let depth = self.fuser.paired_axes(producer, slot).len();
            // The rows of both are the same; an elementwise kernel loops over the elements of a row, too.
            let rows = |kernel: &Kernel| sites::elementwise(kernel).map_or(sites::outer_loops(kernel).0.len(), |_| depth);
            (rows(from) == depth && rows(to) == depth).then_some(())?;
            let change = self.fuser.merge(producer, slot, depth).ok()?;
            change.buffers.iter().all(|(_, buffer)| buffer.ty.size_bytes() <= LOCAL_BYTES).then_some(())?;
            Some((producer, depth, change))
        });
        let Some((producer, depth, change)) = taken else { return false };
        self.fusions.push(Fusion::Merge { producer: self.name(producer), consumer: self.name(slot), depth });
        self.fuser.commit(change);
        true
    }

    fn take_inline(&mut self, producer: usize, taken: Option<(usize, Change)>) -> bool {
        let Some((consumer, change)) = taken else { return false };
        self.fusions.push(Fusion::Inline { producer: self.name(producer), consumer: self.name(consumer) });
        self.fuser.commit(change);
        true
    }

    fn take_epilogue(&mut self, consumer: usize, taken: Option<(usize, Change)>) -> bool {
        let Some((producer, change)) = taken else { return false };
        self.fusions.push(Fusion::Epilogue { producer: self.name(producer), consumer: self.name(consumer) });
        self.fuser.commit(change);
        true
    }

    fn kernel(&self, slot: usize) -> &Kernel {
        self.fuser.kernel(slot).expect("rules see kernels that exist")
    }

    fn name(&self, slot: usize) -> String {
        self.kernel(slot).name.clone()
    }

    /// The store of an elementwise kernel that has only one.
    fn sole_store(&self, slot: usize) -> Option<sites::Site> {
        let mut sites = sites::elementwise(self.kernel(slot))?;
        (sites.len() == 1).then(|| sites.remove(0))
    }

    /// A kernel that only moves elements: their buffers.
    fn movement(&self, slot: usize) -> Option<Moved> {
        let store = self.sole_store(slot)?;
        let kernel = self.kernel(slot);
        let Expr::Load { buffer, index, otherwise, .. } = kernel.exprs.get(store.value) else { return None };
        let is_load = |id| matches!(kernel.exprs.get(id), Expr::Load { .. });
        let gathers = sites::reachable(kernel, index.clone()).into_iter().any(is_load);
        (!gathers).then_some(Moved { from: *buffer, to: store.buffer, is_padding: otherwise.is_some() })
    }

    /// Name of the last axis of the result along which a reduction reads constants only.
    fn weights_axis(&self, kernel: &Kernel) -> Option<String> {
        let loads = loads_in_loops(kernel);
        let (outer, _) = sites::outer_loops(kernel);
        let is_constant = |load: &LoadInLoops| matches!(self.fuser.buffer(load.buffer).role, Role::Constant(_));
        let depends = |load: &LoadInLoops, axis| load.along_reduction && load.axes.contains(&axis);
        let of_weights = |&axis: &AxisId| {
            loads.iter().any(|load| is_constant(load) && depends(load, axis))
                && !loads.iter().any(|load| !is_constant(load) && depends(load, axis))
        };
        let axis = outer.into_iter().rev().find(of_weights)?;
        Some(kernel.axes[axis].name.clone())
    }

    /// Whether a kernel loads a buffer no more often than the buffer has elements.
    fn evaluates_once(&self, slot: usize, buffer: BufferId) -> bool {
        let loads: usize = loads_in_loops(self.kernel(slot))
            .iter()
            .filter(|load| load.buffer == buffer)
            .map(|load| load.rounds)
            .fold(0, usize::saturating_add);
        loads <= self.fuser.buffer(buffer).ty.shape.count()
    }

    /// Whether terms of a reduction load the same elements again and again, as in contractions and convolutions.
    fn reuses_operands(&self, kernel: &Kernel) -> bool {
        loads_in_loops(kernel)
            .iter()
            .any(|load| load.along_reduction && load.rounds > self.fuser.buffer(load.buffer).ty.shape.count().saturating_mul(2))
    }
}

/// From which buffer to which.
struct Moved {
    from: BufferId,
    to: BufferId,
    /// Whether it also stores what was not loaded.
    is_padding: bool,
}

/// A load with the loops that it stands in.
struct LoadInLoops {
    buffer: BufferId,
    rounds: usize,
    /// On which its index depends.
    axes: BTreeSet<AxisId>,
    /// Whether its index depends on a reduced axis.
    along_reduction: bool,
    /// Whether only its last index does, on one.
    row: bool,
}

fn loads_in_loops(kernel: &Kernel) -> Vec<LoadInLoops> {
    fn visit(kernel: &Kernel, body: &[Stmt], path: &mut Vec<AxisId>, found: &mut Vec<LoadInLoops>) {
        for stmt in body {
            for id in sites::reachable(kernel, stmt.exprs()) {
                let Expr::Load { buffer, index, .. } = kernel.exprs.get(id) else { continue };
                let axes = |index: &[ExprId]| -> BTreeSet<AxisId> {
                    sites::reachable(kernel, index.to_vec())
                        .into_iter()
                        .filter_map(|id| match kernel.exprs.get(id) {
                            Expr::Axis(axis) => Some(*axis),
                            _ => None,
                        })
                        .collect()
                };
                let is_reduced = |axis: &AxisId| kernel.axes[*axis].kind == AxisKind::Reduce;
                let reduced = |index: &[ExprId]| axes(index).iter().filter(|axis| is_reduced(axis)).count();
                let (outer, last) = index.split_at(index.len().saturating_sub(1));
                found.push(LoadInLoops {
                    buffer: *buffer,
                    rounds: sites::rounds(kernel, path),
                    axes: axes(index),
                    along_reduction: reduced(index) > 0,
                    row: reduced(last) == 1 && reduced(outer) == 0,
                });
            }
            match stmt {
                Stmt::Loop { axis, body } => {
                    path.push(*axis);
                    visit(kernel, body, path, found);
                    path.pop();
                }
                Stmt::While { body, .. } => visit(kernel, body, path, found),
                Stmt::If { then, otherwise, .. } => {
                    visit(kernel, then, path, found);
                    visit(kernel, otherwise, path, found);
                }
                Stmt::Set { .. } | Stmt::Store { .. } => {}
            }
        }
    }
    let mut found = Vec::new();
    visit(kernel, &kernel.body, &mut Vec::new(), &mut found);
    found
}

fn reduces(kernel: &Kernel) -> bool {
    kernel.axes.values().any(|axis| axis.kind == AxisKind::Reduce)
}

/// Whether an index moves along both axes.
fn shares_index(kernel: &Kernel, accesses: &[Access], a: AxisId, b: AxisId) -> bool {
    let moves = |index: ExprId, axis| kernel.exprs.uses_axis(index, axis);
    accesses.iter().flat_map(|access| &access.index).any(|&index| moves(index, a) && moves(index, b))
}

/// Whether reductions run along the last dimension of what they load, so that neighbours in memory are in one round of a tree.
fn reduces_along_rows(kernel: &Kernel) -> bool {
    loads_in_loops(kernel).iter().all(|load| !load.along_reduction || load.row)
}

/// Loads and stores at indices that are not sums of axes.
fn awkward_loads(kernel: &Kernel) -> usize {
    sites::loads(kernel)
        .into_iter()
        .filter(|&load| match kernel.exprs.get(load) {
            Expr::Load { index, .. } => !index.iter().all(|&index| linear::is_affine(&kernel.exprs, index)),
            _ => false,
        })
        .count()
}

/// About the number of instructions for one element; a division or root counts for eight, indices for nothing.
fn cost(kernel: &Kernel, value: ExprId) -> usize {
    let mut seen = BTreeSet::new();
    let mut pending = vec![value];
    let mut cost = 0;
    while let Some(id) = pending.pop() {
        if !seen.insert(id) {
            continue;
        }
        cost += match kernel.exprs.get(id) {
            Expr::Load { .. } | Expr::Const(..) | Expr::Axis(_) | Expr::Var(_) | Expr::Param(..) => continue,
            Expr::Binary(Binary::Div | Binary::Rem | Binary::DivFloor | Binary::Mod, ..) | Expr::Unary(Unary::Sqrt, _) => 8,
            Expr::Bitcast(..) => 0,
            _ => 1,
        };
        pending.extend(kernel.exprs.operands(id));
    }
    cost
}

#[cfg(test)]
mod tests;
