//! Proves a plan without knowing how it was made: kernels are followed in their order, and every byte of the arena belongs to one
//! buffer at a time.
//!
//! - Places are aligned and inside the arena or the weights, and large enough for the buffer in its layout.
//! - While a buffer is live (from the kernel that first writes it to the last that reads it) no other live buffer has its bytes. One
//!   exception: a kernel may write a buffer over one that it reads for the last time, where each read element is read only by the
//!   statements up to the store to the very same bytes, in the same loops, of which each round stores another element.
//!   In a loop, what kernels outside of it touch, too, is live in all its rounds.
//! - Nothing is read before it is written.
//! - Every index of every access is inside its buffer in every round, or is a load with a value for outside.

use std::collections::{BTreeMap, BTreeSet};

use super::{ALIGN_BYTES, MemoryPlan, Place, size_bytes};
use crate::loops::linear::Linear;
use crate::loops::{Buffer, BufferId, Expr, ExprId, Kernel, Program, Role, Stmt, simplify};

/// What is wrong with a plan; nothing where it holds.
pub fn check(program: &Program, plan: &MemoryPlan) -> Vec<String> {
    let mut problems = Vec::new();
    for (id, buffer) in program.buffers.iter() {
        if let Err(problem) = check_place(plan, id, buffer) {
            problems.push(format!("buffer '{}' {problem}", buffer.name));
        }
    }
    let touched: Vec<Touched> = program.kernels.iter().map(|kernel| touches(program, kernel)).collect();
    check_overlaps(program, plan, &touched, &mut problems);
    for kernel in &program.kernels {
        check_accesses(program, kernel, &mut problems);
    }
    problems
}

fn check_place(plan: &MemoryPlan, id: BufferId, buffer: &Buffer) -> Result<(), String> {
    let needed = size_bytes(buffer, &plan.layouts[id]);
    let inside = |offset: usize, size: usize, limit: usize| {
        if !offset.is_multiple_of(ALIGN_BYTES) {
            return Err(format!("is at {offset}, which is not aligned"));
        }
        if size < needed || offset + size > limit {
            return Err(format!("has {size} bytes at {offset} of {limit}, but takes {needed}"));
        }
        Ok(())
    };
    match (plan.places[id], &buffer.role) {
        (Place::Unused, _) => Ok(()),
        (Place::Input(at), Role::Input(input)) if at == *input => Ok(()),
        (Place::Output(at), Role::Output(output)) if at == *output => Ok(()),
        (Place::Weights { offset, size_bytes }, Role::Constant(_)) => inside(offset, size_bytes, plan.weights.len()),
        (Place::Arena { offset, size_bytes }, Role::Temporary | Role::Shared | Role::Local) => {
            inside(offset, size_bytes, plan.arena_bytes)?;
            match plan.status_offset {
                Some(status) if offset < status + ALIGN_BYTES => Err("lies over the status word".to_owned()),
                _ => Ok(()),
            }
        }
        (Place::Arena { offset, size_bytes }, Role::Status) if Some(offset) == plan.status_offset => {
            inside(offset, size_bytes, plan.arena_bytes)
        }
        (place, _) => Err(format!("cannot be at {place:?}")),
    }
}

/// What a kernel reads and writes.
#[derive(Default)]
struct Touched {
    reads: BTreeSet<BufferId>,
    writes: BTreeSet<BufferId>,
}

/// The conditions of its regions are read for it.
fn touches(program: &Program, kernel: &Kernel) -> Touched {
    let mut touched = Touched::default();
    let conditions = program.region_path(kernel.region).into_iter().map(|region| program.regions[region].kind.condition());
    touched.reads.extend(conditions);
    each_access(kernel, &mut |access| {
        match access {
            Access::Load { buffer, .. } => touched.reads.insert(buffer),
            Access::Store { buffer, .. } => touched.writes.insert(buffer),
        };
    });
    touched
}

/// One access of a kernel.
enum Access<'k> {
    Load { buffer: BufferId, index: &'k [ExprId], otherwise: bool },
    Store { buffer: BufferId, index: &'k [ExprId] },
}

/// Accesses in loops that run.
fn each_access<'k>(kernel: &'k Kernel, visit: &mut dyn FnMut(Access<'k>)) {
    fn within<'k>(kernel: &'k Kernel, body: &'k [Stmt], visit: &mut dyn FnMut(Access<'k>)) {
        for stmt in body {
            each_load(kernel, stmt, visit);
            match stmt {
                Stmt::Loop { axis, .. } if kernel.axes[*axis].extent == 0 => {}
                Stmt::Loop { body, .. } | Stmt::While { body, .. } => within(kernel, body, visit),
                Stmt::If { then, otherwise, .. } => {
                    within(kernel, then, visit);
                    within(kernel, otherwise, visit);
                }
                Stmt::Store { buffer, index, .. } => visit(Access::Store { buffer: *buffer, index }),
                Stmt::Set { .. } => {}
            }
        }
    }
    within(kernel, &kernel.body, visit);
}

/// Loads that a statement itself evaluates.
fn each_load<'k>(kernel: &'k Kernel, stmt: &Stmt, visit: &mut dyn FnMut(Access<'k>)) {
    let mut seen = BTreeSet::new();
    let mut pending = stmt.exprs();
    while let Some(id) = pending.pop() {
        if seen.insert(id) {
            pending.extend(kernel.exprs.operands(id));
            if let Expr::Load { buffer, index, otherwise, .. } = kernel.exprs.get(id) {
                visit(Access::Load { buffer: *buffer, index, otherwise: otherwise.is_some() });
            }
        }
    }
}

/// First and last kernel that needs each buffer, by place.
fn uses(program: &Program, touched: &[Touched]) -> BTreeMap<BufferId, (usize, usize)> {
    let mut uses: BTreeMap<BufferId, (usize, usize)> = BTreeMap::new();
    for (place, touched) in touched.iter().enumerate() {
        for &buffer in touched.reads.union(&touched.writes) {
            let (first, last) = uses.get(&buffer).copied().unwrap_or((place, place));
            uses.insert(buffer, (first.min(place), last.max(place)));
        }
    }
    for (_, first, last) in program.loop_spans() {
        for span in uses.values_mut().filter(|span| span.0 <= last && first <= span.1) {
            if span.0 < first || span.1 > last {
                *span = (span.0.min(first), span.1.max(last));
            }
        }
    }
    uses
}

fn check_overlaps(program: &Program, plan: &MemoryPlan, touched: &[Touched], problems: &mut Vec<String>) {
    let in_arena = |buffer: BufferId| match plan.places[buffer] {
        Place::Arena { offset, size_bytes } => Some(offset..offset + size_bytes),
        _ => None,
    };
    let uses = uses(program, touched);
    let name = |buffer: BufferId| &program.buffers[buffer].name;
    // Buffers whose contents are needed, and those that were written, by the kernels so far.
    let mut live: BTreeSet<BufferId> = BTreeSet::new();
    let mut written: BTreeSet<BufferId> = BTreeSet::new();
    for (place, touched) in touched.iter().enumerate() {
        let kernel = &program.kernels[place];
        let computed = |buffer: BufferId| matches!(program.buffers[buffer].role, Role::Temporary | Role::Shared);
        for &buffer in touched.reads.iter().filter(|&&buffer| computed(buffer)) {
            if !written.contains(&buffer) && !touched.writes.contains(&buffer) {
                problems.push(format!("kernel {} reads '{}' before it is written", kernel.name, name(buffer)));
            }
        }
        written.extend(&touched.writes);
        for (&born, _) in uses.iter().filter(|(_, span)| span.0 == place) {
            let Some(range) = in_arena(born) else {
                if computed(born) || program.buffers[born].role == Role::Local {
                    problems.push(format!("buffer '{}' has no place", name(born)));
                }
                continue;
            };
            for &other in &live {
                let Some(theirs) = in_arena(other) else { continue };
                if theirs.start >= range.end || range.start >= theirs.end {
                    continue;
                }
                let in_place = uses[&other].1 == place
                    && touched.writes.contains(&born)
                    && !touched.writes.contains(&other)
                    && range == theirs
                    && writes_over_in_step(program, plan, kernel, other, born);
                if !in_place {
                    problems.push(format!(
                        "kernel {} writes '{}' over '{}', which is live",
                        kernel.name,
                        name(born),
                        name(other)
                    ));
                }
            }
            live.insert(born);
        }
        live.retain(|buffer| uses[buffer].1 > place);
    }
}

/// Whether every load of `read` stands in or before the only store to `written`, in its loop body, at the same byte, and as many rounds
/// as there are elements do that store: all are stored, so each is in one round.
fn writes_over_in_step(program: &Program, plan: &MemoryPlan, kernel: &Kernel, read: BufferId, written: BufferId) -> bool {
    let strides = |buffer: BufferId| plan.layouts[buffer].strides(program.buffers[buffer].ty.shape.dims());
    let (r, w) = (&program.buffers[read], &program.buffers[written]);
    let same_addressing = plan.layouts[read] == plan.layouts[written]
        && strides(read) == strides(written)
        && r.ty.dtype.size_bits() == w.ty.dtype.size_bits();
    let bodies = bodies(kernel);
    let forms = |index: &[ExprId]| -> Vec<Linear> { index.iter().map(|&id| Linear::of(&kernel.exprs, id)).collect() };
    let is_store = |stmt: &&Stmt| matches!(stmt, Stmt::Store { buffer, .. } if *buffer == written);
    let stored: usize = bodies.iter().map(|(rounds, body)| rounds.unwrap_or(0) * body.iter().filter(is_store).count()).sum();
    same_addressing
        && stored == w.ty.shape.count()
        && bodies.into_iter().all(|(_, body)| {
            let stores: Vec<(usize, Vec<Linear>)> = body
                .iter()
                .enumerate()
                .filter_map(|(at, stmt)| match stmt {
                    Stmt::Store { buffer, index, guard: None, .. } if *buffer == written => Some((at, forms(index))),
                    _ => None,
                })
                .collect();
            body.iter().enumerate().all(|(at, stmt)| {
                let mut agrees = true;
                each_load(kernel, stmt, &mut |access| {
                    if let Access::Load { buffer, index, otherwise } = access
                        && buffer == read
                    {
                        agrees &= !otherwise && matches!(&stores[..], [(store, to)] if at <= *store && *to == forms(index));
                    }
                });
                agrees
            })
        })
}

/// All lists of statements in a kernel, with how often each runs; `None` where branches decide that.
fn bodies(kernel: &Kernel) -> Vec<(Option<usize>, &[Stmt])> {
    let mut bodies = Vec::new();
    let mut pending = vec![(Some(1), kernel.body.as_slice())];
    while let Some((rounds, body)) = pending.pop() {
        bodies.push((rounds, body));
        for stmt in body {
            match stmt {
                Stmt::Loop { axis, body } => {
                    let extent = kernel.axes[*axis].extent;
                    pending.push((rounds.map(|rounds: usize| rounds.saturating_mul(extent)), body.as_slice()));
                }
                Stmt::If { then, otherwise, .. } => pending.extend([(None, then.as_slice()), (None, otherwise.as_slice())]),
                Stmt::While { body, .. } => pending.push((None, body.as_slice())),
                Stmt::Set { .. } | Stmt::Store { .. } => {}
            }
        }
    }
    bodies
}

fn check_accesses(program: &Program, kernel: &Kernel, problems: &mut Vec<String>) {
    each_access(kernel, &mut |access| {
        let (buffer, index, verb) = match access {
            Access::Load { otherwise: true, .. } => return,
            Access::Load { buffer, index, .. } => (buffer, index, "loads"),
            Access::Store { buffer, index } => (buffer, index, "stores"),
        };
        let Buffer { name, ty, .. } = &program.buffers[buffer];
        if index.len() != ty.rank() {
            problems.push(format!("kernel {} {verb} '{name}', which is a {ty}, at {} indices", kernel.name, index.len()));
            return;
        }
        for (&index, &extent) in index.iter().zip(ty.shape.dims()) {
            let (low, high) = simplify::range(kernel, index);
            if low < 0 || high >= extent as i64 {
                problems.push(format!("kernel {} {verb} '{name}', which is a {ty}, at {low}..={high} of {extent}", kernel.name));
            }
        }
    });
}
