//! Loops stop where the rest of their rounds stores only what nobody needs.

use std::collections::BTreeMap;

use mcc_support::EntityMap;

use crate::decisions::Fusion;
use crate::loops::linear::{Atom, KernelRanges, Linear};
use crate::loops::sites;
use crate::loops::{AxisId, AxisKind, AxisMode, Buffer, BufferId, Expr, ExprId, Kernel, Limit, Needed, Program, Role, Stmt};

/// Gives axes of the scheduled program their limits. `fusions` were carried out on it.
pub fn apply(program: &mut Program, fusions: &[Fusion]) {
    let mut needed = program.needed.clone();
    for fusion in fusions {
        // Whoever needs the one buffer reads the other, where the same elements lie at other indices.
        if let Fusion::Redirect { to, .. } = fusion {
            needed.remove(to);
        }
    }
    if needed.is_empty() {
        return;
    }
    for kernel in &mut program.kernels {
        let mut limits: BTreeMap<AxisId, Limit> = BTreeMap::new();
        let finder = Finder { buffers: &program.buffers, needed: &needed, kernel };
        finder.stmts(&kernel.body, &mut limits);
        for (axis, limit) in limits {
            kernel.axes[axis].limit = Some(limit);
        }
    }
}

struct Finder<'k> {
    buffers: &'k EntityMap<BufferId, Buffer>,
    needed: &'k BTreeMap<String, Needed>,
    kernel: &'k Kernel,
}

impl Finder<'_> {
    fn stmts(&self, stmts: &[Stmt], limits: &mut BTreeMap<AxisId, Limit>) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop { axis, body } => {
                    let described = &self.kernel.axes[*axis];
                    let may_stop = described.kind == AxisKind::Spatial && described.mode == AxisMode::Serial;
                    if may_stop
                        && described.extent > 1
                        && let Some(limit) = self.limit(*axis, stmt)
                    {
                        limits.insert(*axis, limit);
                    }
                    self.stmts(body, limits);
                }
                Stmt::While { body, .. } => self.stmts(body, limits),
                Stmt::If { then, otherwise, .. } => {
                    self.stmts(then, limits);
                    self.stmts(otherwise, limits);
                }
                Stmt::Set { .. } | Stmt::Store { .. } => {}
            }
        }
    }

    /// From which round on nothing that a loop stores is needed.
    fn limit(&self, axis: AxisId, stmt: &Stmt) -> Option<Limit> {
        let mut found: Option<Limit> = None;
        let mut all = true;
        stmt.walk(&mut |inner| {
            let Stmt::Store { buffer, index, .. } = inner else { return };
            // What is used in one round only is not needed by others.
            if self.buffers[*buffer].role == Role::Local {
                all &= !is_used_outside(self.kernel, &self.kernel.body, stmt, *buffer);
                return;
            }
            let limit = self.store_limit(axis, *buffer, index);
            let wider = |a: Limit, b: Limit| {
                let same = (a.input, a.mul, a.div) == (b.input, b.mul, b.div);
                same.then_some(Limit { add: a.add.max(b.add), ..a })
            };
            match (found, limit) {
                (_, None) => all = false,
                (None, limit) => found = limit,
                (Some(a), Some(b)) => match wider(a, b) {
                    Some(limit) => found = Some(limit),
                    None => all = false,
                },
            }
        });
        found.filter(|_| all)
    }

    /// From which round of an axis on a store is to elements that nobody needs.
    fn store_limit(&self, axis: AxisId, buffer: BufferId, index: &[ExprId]) -> Option<Limit> {
        let buffer = &self.buffers[buffer];
        let needed = self.needed.get(&buffer.name).filter(|needed| needed.shape == buffer.ty.shape.dims())?;
        let ranges = KernelRanges { exprs: &self.kernel.exprs, axes: &self.kernel.axes };
        index.iter().zip(&needed.limits).find_map(|(&index, limit)| {
            let limit = (*limit)?;
            let form = Linear::of(&self.kernel.exprs, index);
            let step = form.coefficient(Atom::Axis(axis));
            let rest = form.replace(Atom::Axis(axis), &Linear::constant(0));
            let (low, _) = rest.range(&ranges);
            if step < 1 || low < 0 {
                return None;
            }
            // Round r stores at step · r + low and beyond.
            let add = limit.add.checked_sub(low.checked_mul(limit.div)?)?;
            Some(Limit { add, div: limit.div.checked_mul(step)?, ..limit })
        })
    }
}

/// Whether statements other than `inside` store to a buffer or load from it.
fn is_used_outside(kernel: &Kernel, stmts: &[Stmt], inside: &Stmt, buffer: BufferId) -> bool {
    let loads = |roots: Vec<ExprId>| {
        let is_load = |expr: ExprId| matches!(kernel.exprs.get(expr), Expr::Load { buffer: from, .. } if *from == buffer);
        sites::reachable(kernel, roots).into_iter().any(is_load)
    };
    stmts.iter().filter(|stmt| !std::ptr::eq(*stmt, inside)).any(|stmt| {
        let own = matches!(stmt, Stmt::Store { buffer: to, .. } if *to == buffer) || loads(stmt.exprs());
        own || match stmt {
            Stmt::Loop { body, .. } | Stmt::While { body, .. } => is_used_outside(kernel, body, inside, buffer),
            Stmt::If { then, otherwise, .. } => {
                is_used_outside(kernel, then, inside, buffer) || is_used_outside(kernel, otherwise, inside, buffer)
            }
            Stmt::Set { .. } | Stmt::Store { .. } => false,
        }
    })
}
