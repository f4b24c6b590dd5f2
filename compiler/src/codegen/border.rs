//! Windows that reach over the border of what they slide over: which taps lie outside is known when code is made, where the schedule
//! keeps the rounds at the ends of an axis apart.

use mcc_kernel::VReg;

use super::{Binding, Codegen};
use crate::loops::linear::{Atom, Linear};
use crate::loops::{AxisId, BufferId, Expr, ExprId, Role, Stmt, VarId, sites};

/// Loops are not unrolled to tell which rounds lie outside where these are more, with all rounds that are jammed around them.
const MOST_TAPS: usize = 96;

impl Codegen<'_> {
    /// Whether each round of a reducing loop knows of its padded loads on which side of the border they lie, and the loop as a whole
    /// does not: unrolled, it tests nothing.
    pub(super) fn tells_at_border(&mut self, axis: AxisId, body: &[Stmt]) -> bool {
        let rounds = |axis: &AxisId| self.kernel.axes[*axis].extent;
        if !self.pads || self.jam.iter().map(rounds).product::<usize>() * rounds(&axis) > MOST_TAPS {
            return false;
        }
        // The rounds of jammed axes are known wherever a load is done.
        let jam = self.jam.clone();
        let bindings: Vec<Binding> = jam.iter().map(|&axis| self.bindings[axis]).collect();
        jam.iter().for_each(|&axis| self.bindings[axis] = Binding::Unbound);
        let (mut some, mut all) = (false, true);
        for (buffer, index) in self.padded_loads(body) {
            let shape = &self.program.buffers[buffer].ty.shape;
            for (&index, &extent) in index.iter().zip(shape.iter()) {
                let form = self.linear(index);
                let (low, high) = form.range(&self.ranges());
                if form.coefficient(Atom::Axis(axis)) == 0 || low >= 0 && high < extent as i64 {
                    continue;
                }
                let known = |form: Linear, &axis: &AxisId| form.replace(Atom::Axis(axis), &Linear::default());
                let rest = jam.iter().chain([&axis]).fold(form, known);
                (some, all) = (true, all && rest.as_constant().is_some());
            }
        }
        jam.iter().zip(bindings).for_each(|(&axis, binding)| self.bindings[axis] = binding);
        some && all
    }

    fn padded_loads(&self, body: &[Stmt]) -> Vec<(BufferId, Vec<ExprId>)> {
        let mut roots = Vec::new();
        body.iter().for_each(|stmt| stmt.walk(&mut |stmt| roots.extend(stmt.exprs())));
        let padded = |id| match self.kernel.exprs.get(id) {
            Expr::Load { buffer, index, otherwise: Some(_), .. } => Some((*buffer, index.clone())),
            _ => None,
        };
        sites::reachable(&self.kernel, roots).into_iter().filter_map(padded).collect()
    }

    /// Whether an index lies outside of a buffer in all rounds that are open.
    pub(super) fn is_outside(&self, buffer: BufferId, index: &[ExprId]) -> bool {
        let shape = &self.program.buffers[buffer].ty.shape;
        let leaves = |(&index, &extent): (&ExprId, &usize)| {
            let (low, high) = self.linear(index).range(&self.ranges());
            high < 0 || low >= extent as i64
        };
        shape.count() == 0 || index.iter().zip(shape.iter()).any(leaves)
    }

    /// The sum as it was, where an update adds the product of a padding zero and a weight.
    pub(super) fn unchanged(&mut self, var: VarId, value: ExprId) -> Option<VReg> {
        if !self.pads || self.reduce_depth == 0 {
            return None;
        }
        let [_, x, y] = sites::added_product(&self.kernel.exprs, var, value)?;
        let adds_nothing = self.is_zero(x) && self.is_finite(y) || self.is_zero(y) && self.is_finite(x);
        adds_nothing.then(|| self.var(var).0)
    }

    /// Whether a value is the zero that stands for an element outside.
    fn is_zero(&self, expr: ExprId) -> bool {
        match self.kernel.exprs.get(expr) {
            Expr::Load { buffer, index, otherwise: Some(otherwise), .. } => {
                matches!(self.kernel.exprs.get(*otherwise), Expr::Const(_, 0)) && self.is_outside(*buffer, index)
            }
            _ => false,
        }
    }

    /// Whether a value is a weight that gives zero with zero.
    fn is_finite(&mut self, expr: ExprId) -> bool {
        let Expr::Load { buffer, otherwise: None, .. } = *self.kernel.exprs.get(expr) else { return false };
        let Role::Constant(tensor) = &self.program.buffers[buffer].role else { return false };
        *self.finite.entry(buffer).or_insert_with(|| tensor.numbers().all(|number| number.as_f64().is_finite()))
    }
}
