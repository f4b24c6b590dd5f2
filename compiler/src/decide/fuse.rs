//! Which kernels are fused: rules, tried on each kernel in the order of the program until none applies.
//!
//! Fusion saves memory traffic; it must not compute anything twice that costs more than reading it back.

use std::collections::BTreeSet;

use crate::decide::Fusion;
use crate::loops::{AxisId, AxisKind, Binary, BufferId, Expr, ExprId, Kernel, Program, Role, Stmt, Unary};
use crate::realize::fuse::{Change, Fuser, nest};

/// Work on one element that may be done twice rather than stored and loaded; see [`cost`].
const CHEAP: usize = 6;
/// Bytes that a buffer inside a merged kernel may take: it should stay in the first-level cache.
const LOCAL_BYTES: usize = 32 << 10;

/// The fusions chosen, and the program with them carried out.
pub fn choose(program: &Program) -> (Vec<Fusion>, Program) {
    let mut chooser = Chooser { fuser: Fuser::new(program), fusions: Vec::new() };
    let rules: [fn(&mut Chooser, usize) -> bool; 5] = [
        Chooser::move_into_consumers,
        Chooser::work_on_results_before_they_are_stored,
        Chooser::compute_in_consumers,
        Chooser::join_elementwise,
        Chooser::merge_rows,
    ];
    // Rows are merged last: a tree of nests is harder to fuse with than its parts.
    let (early, late) = rules.split_at(4);
    while chooser.sweep(early) || chooser.sweep(late) {}
    (chooser.fusions, chooser.fuser.finish())
}

struct Chooser {
    fuser: Fuser,
    fusions: Vec<Fusion>,
}

impl Chooser {
    /// Tries the rules on every kernel; whether anything changed.
    fn sweep(&mut self, rules: &[fn(&mut Chooser, usize) -> bool]) -> bool {
        let before = self.fusions.len();
        for slot in self.fuser.order() {
            for rule in rules {
                while self.fuser.kernel(slot).is_some() && rule(self, slot) {}
            }
        }
        self.fusions.len() > before
    }

    /// Movement becomes index arithmetic of its consumers where they can address with it.
    fn move_into_consumers(&mut self, slot: usize) -> bool {
        let Some(store) = self.sole_store(slot) else { return false };
        let kernel = self.kernel(slot);
        let Expr::Load { index, .. } = kernel.exprs.get(store.value) else { return false };
        if nest::reachable(kernel, index.clone()).into_iter().any(|id| matches!(kernel.exprs.get(id), Expr::Load { .. })) {
            return false;
        }
        // A load that may lie outside is tested each time: padding is written once where its elements are read again and again.
        let pads = matches!(kernel.exprs.get(store.value), Expr::Load { otherwise: Some(_), .. });
        let taken = self.fuser.consumers(slot).into_iter().find_map(|consumer| {
            let change = self.fuser.inline(slot, consumer).ok()?;
            let before = self.kernel(consumer);
            (!pads || self.evaluates_once(consumer, store.buffer)).then_some(())?;
            let addressable = awkward_loads(&change.kernel) <= awkward_loads(before);
            let once = nest::elementwise(before).is_some() && self.evaluates_once(consumer, store.buffer);
            (addressable || once).then_some((consumer, change))
        });
        self.take_inline(slot, taken)
    }

    /// An elementwise kernel becomes the last step of a contraction or reduction that it reads: the latest that allows it.
    fn work_on_results_before_they_are_stored(&mut self, slot: usize) -> bool {
        if nest::elementwise(self.kernel(slot)).is_none() {
            return false;
        }
        let taken = self.fuser.producers(slot).into_iter().find_map(|producer| {
            nest::elementwise(self.kernel(producer)).is_none().then_some(())?;
            Some((producer, self.fuser.epilogue(producer, slot).ok()?))
        });
        self.take_epilogue(slot, taken)
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
        if nest::elementwise(self.kernel(slot)).is_none() {
            return false;
        }
        let taken = self.fuser.producers(slot).into_iter().find_map(|producer| {
            nest::elementwise(self.kernel(producer))?;
            Some((producer, self.fuser.epilogue(producer, slot).ok()?))
        });
        self.take_epilogue(slot, taken)
    }

    /// Reductions along rows, and what is done with their results on the same rows, become one tree (softmax, normalizations).
    fn merge_rows(&mut self, slot: usize) -> bool {
        let taken = self.fuser.producers(slot).into_iter().find_map(|producer| {
            let (from, to) = (self.kernel(producer), self.kernel(slot));
            (reduces(from) || reduces(to)).then_some(())?;
            [from, to].iter().all(|kernel| !self.reuses_operands(kernel) && reduces_along_rows(kernel)).then_some(())?;
            let depth = self.fuser.paired_axes(producer, slot).len();
            (depth == nest::outer_loops(from).0.len().min(nest::outer_loops(to).0.len())).then_some(())?;
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
    fn sole_store(&self, slot: usize) -> Option<nest::Site> {
        let mut sites = nest::elementwise(self.kernel(slot))?;
        (sites.len() == 1).then(|| sites.remove(0))
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

/// A load with the loops that it stands in.
struct LoadInLoops {
    buffer: BufferId,
    rounds: usize,
    /// Whether its index depends on a reduced axis.
    along_reduction: bool,
    /// Whether its last index does, or depends on no axis.
    row: bool,
}

fn loads_in_loops(kernel: &Kernel) -> Vec<LoadInLoops> {
    fn visit(kernel: &Kernel, body: &[Stmt], path: &mut Vec<AxisId>, found: &mut Vec<LoadInLoops>) {
        for stmt in body {
            for id in nest::reachable(kernel, stmt.exprs()) {
                let Expr::Load { buffer, index, .. } = kernel.exprs.get(id) else { continue };
                let axes = |index: &[ExprId]| -> BTreeSet<AxisId> {
                    nest::reachable(kernel, index.to_vec())
                        .into_iter()
                        .filter_map(|id| match kernel.exprs.get(id) {
                            Expr::Axis(axis) => Some(*axis),
                            _ => None,
                        })
                        .collect()
                };
                let is_reduced = |axis: &AxisId| kernel.axes[*axis].kind == AxisKind::Reduce;
                let last = index.last().map(|&last| axes(&[last])).unwrap_or_default();
                found.push(LoadInLoops {
                    buffer: *buffer,
                    rounds: nest::rounds(kernel, path),
                    along_reduction: axes(index).iter().any(is_reduced),
                    row: last.is_empty() || last.iter().any(is_reduced),
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

/// Whether reductions run along the last dimension of what they load, so that neighbours in memory are in one round of a tree.
fn reduces_along_rows(kernel: &Kernel) -> bool {
    loads_in_loops(kernel).iter().all(|load| !load.along_reduction || load.row)
}

/// Loads and stores at indices that are not sums of axes.
fn awkward_loads(kernel: &Kernel) -> usize {
    nest::loads(kernel)
        .into_iter()
        .filter(|&load| match kernel.exprs.get(load) {
            Expr::Load { index, .. } => !index.iter().all(|&index| nest::is_affine(&kernel.exprs, index)),
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
            _ => 1,
        };
        pending.extend(kernel.exprs.operands(id));
    }
    cost
}

#[cfg(test)]
mod tests;
