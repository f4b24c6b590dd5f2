//! Rows of a tree that are worked on together: while the lanes of one row's sum are added up, which takes its time, the others' are too.

use super::{Chooser, Rows, Tile, Vector, WAITING, longest_chain};
use crate::decide::nest::{Nest, accesses};
use crate::loops::{AxisId, AxisKind, BufferId, Role, Stmt};

/// Registers for each of the rows that are worked on at once: each has a few values of its own.
const ROW_REGISTERS: usize = 4;
/// Rows at once, at most, where a part of the tree waits for its own results: several rows let it wait, more make it crowded.
const MAX_WAITING: usize = 4;

impl Chooser<'_> {
    /// The rounds of the innermost axis around a tree that are jammed.
    pub(super) fn rows_together(&self, nest: &Nest) -> Option<Rows> {
        let axis = nest.spatial.iter().rev().copied().find(|&axis| self.extent(axis) > 1)?;
        // Only sums are worth waiting for together.
        let fits = nest.body.iter().any(|stmt| self.sums(stmt)) && self.may_have_own_rows(nest, axis);
        let fits = fits && nest.body.iter().all(|stmt| self.may_be_jammed(stmt)) && self.kernel.axes[axis].limit.is_none();
        let waits = longest_chain(self.kernel, nest.body) >= WAITING;
        let registers = self.facts.vector_registers as usize / ROW_REGISTERS;
        let most = if waits { MAX_WAITING.min(registers) } else { registers };
        let most = (self.facts.l1_bytes / 2 / self.row_bytes(nest, axis).max(1)).min(most);
        let extent = self.extent(axis);
        // Without a rest where one less does that.
        let count = if extent.is_multiple_of(3) && !extent.is_multiple_of(most) { most.min(3) } else { most.min(extent) };
        (fits && count > 1).then_some(Rows { axis, merged: None, count })
    }

    fn sums(&self, stmt: &Stmt) -> bool {
        let nest = Nest::of(self.kernel, std::slice::from_ref(stmt));
        matches!(stmt, Stmt::Loop { .. }) && !nest.is_elementwise() && nest.reduction(self.kernel).is_some()
    }

    /// Whether each round of an axis keeps what it stores in a part of its own, or can be given one: nothing around them sees it.
    fn may_have_own_rows(&self, nest: &Nest, axis: AxisId) -> bool {
        let uses = |stmts: &[Stmt], buffer: BufferId| {
            let mut count = 0;
            let mut add = |stmt: &Stmt| {
                count += accesses(&self.kernel.exprs, [stmt]).iter().filter(|access| access.buffer == buffer).count();
            };
            stmts.iter().for_each(|stmt| stmt.walk(&mut add));
            count
        };
        let mut own = true;
        let mut stores = |stmt: &Stmt| {
            if let Stmt::Store { buffer, index, .. } = stmt {
                let moves = index.iter().any(|&index| self.kernel.exprs.uses_axis(index, axis));
                let local = self.program.buffers[*buffer].role == Role::Local;
                own &= moves || !local || uses(nest.body, *buffer) == uses(&self.kernel.body, *buffer);
            }
        };
        nest.body.iter().for_each(|stmt| stmt.walk(&mut stores));
        own
    }

    /// Whether a part of a tree has registers left: sums in lanes, and elements.
    fn may_be_jammed(&self, stmt: &Stmt) -> bool {
        let Stmt::Loop { axis, .. } = stmt else { return matches!(stmt, Stmt::Set { .. } | Stmt::Store { .. }) };
        if self.kernel.axes[*axis].kind == AxisKind::Sequential {
            return false;
        }
        let nest = Nest::of(self.kernel, std::slice::from_ref(stmt));
        if nest.is_elementwise() {
            return true;
        }
        let Some(reduction) = nest.reduction(self.kernel) else { return false };
        let tile = Tile::choose(self.program, self.kernel, &nest, &reduction, self.layouts, self.facts);
        nest.spatial.is_empty() && tile.is_none_or(|tile| matches!(tile.vector, Vector::Reduce(_)))
    }

    /// Bytes that one round of an axis goes through.
    fn row_bytes(&self, nest: &Nest, axis: AxisId) -> usize {
        let mut touched = std::collections::BTreeMap::new();
        for stmt in nest.body {
            stmt.walk(&mut |stmt| {
                for access in accesses(&self.kernel.exprs, [stmt]) {
                    let buffer = &self.program.buffers[access.buffer];
                    let along = |&index: &_| self.kernel.exprs.uses_axis(index, axis);
                    if buffer.role == Role::Local || access.index.iter().any(along) {
                        // The dimensions behind that of the rows.
                        let first = access.index.iter().rposition(along).map_or(0, |dim| dim + 1);
                        let bytes = buffer.ty.shape[first..].iter().product::<usize>() * buffer.ty.dtype.size_bits().div_ceil(8);
                        touched.insert(access.buffer, bytes);
                    }
                }
            });
        }
        touched.into_values().sum()
    }
}
