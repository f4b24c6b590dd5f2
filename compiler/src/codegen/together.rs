//! The rounds of an unrolled loop that each compute a long expression are evaluated side by side: what one of them waits for, the
//! machine could find in the next only if that were not so far behind.
//!
//! ```text
//! a₀ b₀ c₀ store₀ a₁ b₁ c₁ store₁   →   a₀ a₁ b₀ b₁ c₀ c₁ store₀ store₁
//! ```

use std::collections::{BTreeSet, HashMap};

use super::Codegen;
use crate::loops::{AxisId, BufferId, Expr, ExprId};

/// Where fewer operations wait for each other, rounds overlap by themselves.
const LEAST_LENGTH: usize = 10;
/// Rounds at once, at most.
const MOST: usize = 4;

impl Codegen<'_> {
    /// Calls `visit` for every combination of rounds of the jammed axes, where these parts of an expression are evaluated already.
    pub(super) fn side_by_side(&mut self, parts: &[ExprId], mut visit: impl FnMut(&mut Self)) {
        let axes = self.jam.clone();
        let mut rounds = Vec::new();
        self.each_instance(&axes, |codegen| rounds.push(codegen.rounds(&axes)));
        let count = self.rounds_together(parts, rounds.len());
        for rounds in rounds.chunks(count) {
            for &part in parts {
                for round in rounds {
                    self.bind(&axes, round);
                    self.value(part);
                }
            }
            for round in rounds {
                self.bind(&axes, round);
                visit(self);
            }
        }
    }

    fn rounds(&self, axes: &[AxisId]) -> Vec<i64> {
        axes.iter().map(|&axis| self.round(axis)).collect()
    }

    /// What is computed in lanes for a value that is stored, operands first, where much of it waits for the rest.
    pub(super) fn parts(&mut self, buffer: BufferId, value: ExprId, guard: Option<ExprId>) -> Option<Vec<ExprId>> {
        if self.jam.is_empty() || self.vector.is_none() || self.lane.is_some() || guard.is_some() {
            return None;
        }
        // What is stored changes what is loaded.
        let changes = self.deps(value).buffers.contains(&buffer);
        let mut parts = Vec::new();
        let length = self.add_parts(value, &mut parts, &mut HashMap::new()).filter(|_| !changes)?;
        (length >= LEAST_LENGTH).then_some(parts)
    }

    /// The number of parts that wait for each other in a row; `None` where one does not exist in lanes.
    fn add_parts(&mut self, value: ExprId, parts: &mut Vec<ExprId>, lengths: &mut HashMap<ExprId, usize>) -> Option<usize> {
        if !self.varying(value) {
            return Some(0);
        }
        if let Some(&known) = lengths.get(&value) {
            return Some(known);
        }
        if !self.has_lanes(value) {
            return None;
        }
        let mut length = 0;
        if !matches!(self.kernel.exprs.get(value), Expr::Load { .. }) {
            for operand in self.kernel.exprs.operands(value) {
                length = length.max(self.add_parts(operand, parts, lengths)?);
            }
        }
        parts.push(value);
        lengths.insert(value, length + 1);
        Some(length + 1)
    }

    /// As many as have their values in registers, beside what is the same in all lanes but no constant; all of them in groups that are
    /// as even as can be.
    fn rounds_together(&mut self, parts: &[ExprId], rounds: usize) -> usize {
        let places: HashMap<ExprId, usize> = parts.iter().copied().zip(0..).collect();
        let mut last = vec![0; parts.len()];
        let mut around = BTreeSet::new();
        for (at, &part) in parts.iter().enumerate() {
            for operand in self.kernel.exprs.operands(part) {
                match places.get(&operand) {
                    Some(&place) => last[place] = at,
                    None => around.extend([operand]),
                }
            }
        }
        let live = |at: usize| (0..=at).filter(|&place| last[place] > at || place == at).count();
        let most = (0..parts.len()).map(live).max().unwrap_or(1);
        let sums: Vec<ExprId> =
            parts.iter().copied().filter(|&part| matches!(self.kernel.exprs.get(part), Expr::Var(_))).collect();
        let registers = self.facts.vector_registers as usize;
        // Where nothing else needs them, it is worth it to put some of the values aside: that takes less time than to wait.
        let registers = if sums.is_empty() { registers + registers / 2 } else { registers };
        let taken: usize = around.into_iter().chain(sums).map(|expr| self.registers_of(expr)).sum();
        let limit = (registers.saturating_sub(taken) / most).clamp(1, MOST);
        rounds.div_ceil(rounds.div_ceil(limit))
    }

    /// How many values an expression has in the rounds of the jammed axes.
    fn registers_of(&mut self, expr: ExprId) -> usize {
        if matches!(self.kernel.exprs.get(expr), Expr::Const(..)) || !self.kernel.exprs.dtype(expr).is_float() {
            return 0;
        }
        let deps = self.deps(expr);
        let vars = deps.vars.iter().flat_map(|&var| &self.vars[var].axes);
        let axes: BTreeSet<AxisId> = deps.axes.iter().chain(vars).copied().filter(|axis| self.jam.contains(axis)).collect();
        axes.iter().map(|&axis| self.kernel.axes[axis].extent).product()
    }
}
