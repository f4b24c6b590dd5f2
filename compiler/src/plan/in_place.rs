//! Which buffers share their bytes: a result takes the place of an operand that is read for the last time, element by element.

use mcc_support::EntityMap;

use super::live::Live;
use crate::decisions::Layout;
use crate::loops::sites;
use crate::loops::{AxisId, AxisKind, BufferId, Expr, ExprId, Kernel, Program, Role, Stmt};

/// Live buffers, those that share their bytes together; a group's buffers live one after the other.
pub fn groups(
    program: &Program,
    layouts: &EntityMap<BufferId, Layout>,
    lives: &EntityMap<BufferId, Option<Live>>,
) -> Vec<Vec<BufferId>> {
    let mut groups: Vec<Vec<BufferId>> = Vec::new();
    let mut group_of: EntityMap<BufferId, Option<usize>> = EntityMap::filled(program.buffers.len(), None);
    for (place, kernel) in program.kernels.iter().enumerate() {
        let (reads, writes) = sites::accesses(kernel);
        let mut dying: Vec<BufferId> = reads
            .into_iter()
            .filter(|&buffer| program.buffers[buffer].role == Role::Temporary && !writes.contains(&buffer))
            .filter(|&buffer| lives[buffer].is_some_and(|live| live.last == place))
            .collect();
        for result in writes {
            let Some(live) = lives[result] else { continue };
            if live.first != place || group_of[result].is_some() {
                continue;
            }
            let fits = |&operand: &BufferId| {
                let same = program.buffers[operand].ty == program.buffers[result].ty && layouts[operand] == layouts[result];
                same && program.buffers[result].role == Role::Temporary && overwrites_in_step(program, kernel, operand, result)
            };
            let group = match dying.iter().position(fits) {
                Some(at) => group_of[dying.remove(at)].expect("what is read was written before"),
                None => {
                    groups.push(Vec::new());
                    groups.len() - 1
                }
            };
            groups[group].push(result);
            group_of[result] = Some(group);
        }
    }
    // What loops carry is live before it is written.
    groups.extend(lives.iter().filter(|&(id, live)| live.is_some() && group_of[id].is_none()).map(|(id, _)| vec![id]));
    groups
}

/// Whether every round of the kernel that reads an element of `operand` is the one that stores the same element of `result`, and
/// reads it no later than it stores. Then the rounds may run in any order and in any number at once.
fn overwrites_in_step(program: &Program, kernel: &Kernel, operand: BufferId, result: BufferId) -> bool {
    let mut step = Step { kernel, operand, result, rounds: 0, holds: true };
    step.visit(&kernel.body, &mut Vec::new(), true);
    // Each element is stored in one round only where there are as many rounds as elements, for all are stored.
    step.holds && step.rounds == program.buffers[result].ty.shape.count()
}

struct Step<'k> {
    kernel: &'k Kernel,
    operand: BufferId,
    result: BufferId,
    /// In which `result` is stored.
    rounds: usize,
    holds: bool,
}

impl Step<'_> {
    fn visit(&mut self, body: &[Stmt], path: &mut Vec<AxisId>, plain: bool) {
        let stores: Vec<(usize, &[ExprId])> = body
            .iter()
            .enumerate()
            .filter_map(|(at, stmt)| match stmt {
                Stmt::Store { buffer, index, .. } if *buffer == self.result => Some((at, index.as_slice())),
                _ => None,
            })
            .collect();
        if !stores.is_empty() {
            let spatial = path.iter().all(|&axis| self.kernel.axes[axis].kind == AxisKind::Spatial);
            let guarded = |stmt: &Stmt| matches!(stmt, Stmt::Store { guard: Some(_), .. });
            self.holds &= plain && spatial && stores.len() == 1 && !guarded(&body[stores[0].0]);
            self.rounds += sites::rounds(self.kernel, path);
        }
        for (at, stmt) in body.iter().enumerate() {
            self.holds &= self.loads_agree(stmt, |index| stores.first().is_some_and(|&(store, to)| at <= store && index == to));
            match stmt {
                Stmt::Loop { axis, body } => {
                    path.push(*axis);
                    self.visit(body, path, plain);
                    path.pop();
                }
                Stmt::While { body, .. } => self.visit(body, path, false),
                Stmt::If { then, otherwise, .. } => {
                    self.visit(then, path, false);
                    self.visit(otherwise, path, false);
                }
                Stmt::Set { .. } | Stmt::Store { .. } => {}
            }
        }
    }

    /// Whether the operand is loaded by this statement itself only at indices that are right, and the result is not loaded.
    fn loads_agree(&self, stmt: &Stmt, right: impl Fn(&[ExprId]) -> bool) -> bool {
        sites::reachable(self.kernel, stmt.exprs()).into_iter().all(|id| match self.kernel.exprs.get(id) {
            Expr::Load { buffer, index, otherwise, .. } if *buffer == self.operand => otherwise.is_none() && right(index),
            Expr::Load { buffer, .. } => *buffer != self.result,
            _ => true,
        })
    }
}
