//! Carries out the schedule of a kernel: splits, moves and marks loops. Results stay as they were; a step that would change them,
//! or that names what is not there, is refused.

mod local;

use std::collections::HashMap;

use mcc_support::{EntityMap, Result, bail, ensure};

use crate::decisions::Step;
use crate::loops::{Axis, AxisId, AxisKind, AxisMode, Binary, Buffer, BufferId, Expr, ExprId, Exprs, Kernel, Role, Stmt};

/// Applies `steps` in order to a kernel over these buffers, of which local ones may grow.
pub fn apply(kernel: &mut Kernel, buffers: &mut EntityMap<BufferId, Buffer>, steps: &[Step]) -> Result<()> {
    for step in steps {
        let result = match step {
            Step::Split { axis, factor } => split(kernel, axis, *factor),
            Step::Move { axis, inside } => move_axis(kernel, axis, inside.as_deref()),
            Step::Peel { axis, first, last } => peel(kernel, axis, *first, *last),
            Step::Merge { outer, inner } => merge(kernel, outer, inner),
            Step::Unroll { axis } => mark(kernel, buffers, axis, AxisMode::Unroll),
            Step::Apart { axis } => mark(kernel, buffers, axis, AxisMode::Apart),
            Step::Vectorize { axis } => mark(kernel, buffers, axis, AxisMode::Vector),
        };
        result.map_err(|error| error.context(format!("in step {step:?} of kernel {}", kernel.name)))?;
    }
    Ok(())
}

fn find(kernel: &Kernel, name: &str) -> Result<AxisId> {
    // An axis that was split has no loop any more.
    let has_loop = |id: AxisId| {
        let mut found = false;
        let mut visit = |stmt: &Stmt| found |= matches!(stmt, Stmt::Loop { axis, .. } if *axis == id);
        kernel.body.iter().for_each(|stmt| stmt.walk(&mut visit));
        found
    };
    let found = kernel.axes.iter().find(|(id, axis)| axis.name == name && has_loop(*id)).map(|(id, _)| id);
    found.ok_or_else(|| mcc_support::Error::new(format!("kernel {} has no axis {name}", kernel.name)))
}

fn mark(kernel: &mut Kernel, buffers: &mut EntityMap<BufferId, Buffer>, name: &str, mode: AxisMode) -> Result<()> {
    let axis = find(kernel, name)?;
    let Axis { kind, extent, .. } = kernel.axes[axis];
    ensure!(mode != AxisMode::Vector || kind != AxisKind::Sequential, "axis {name} is sequential and cannot run in lanes");
    ensure!(mode != AxisMode::Apart || kind == AxisKind::Reduce, "axis {name} does not sum up");
    if extent > 1 && mode == AxisMode::Unroll && kind == AxisKind::Spatial {
        local::divide(kernel, buffers, axis)?;
    }
    if extent > 1 && (mode == AxisMode::Vector || kind == AxisKind::Spatial) {
        let mut result = Ok(());
        let mut inside = |stmt: &Stmt| {
            if result.is_ok() {
                result = may_run_together(kernel, buffers, axis, stmt);
            }
        };
        each_loop(kernel, axis, &mut |body| body.iter().for_each(|stmt| stmt.walk(&mut inside)));
        result?;
    }
    kernel.axes[axis].mode = mode;
    let lanes = |axis: AxisId| kernel.axes[axis].mode == AxisMode::Vector;
    let mut nested = false;
    for outer in kernel.axes.keys().filter(|&axis| lanes(axis)) {
        let mut inside = |stmt: &Stmt| nested |= matches!(stmt, Stmt::Loop { axis, .. } if lanes(*axis));
        each_loop(kernel, outer, &mut |body| body.iter().for_each(|stmt| stmt.walk(&mut inside)));
    }
    ensure!(!nested, "axis {name} and another, one inside the other, cannot both run in lanes");
    Ok(())
}

/// The bodies of the loops over an axis.
fn each_loop(kernel: &Kernel, axis: AxisId, visit: &mut dyn FnMut(&[Stmt])) {
    for stmt in &kernel.body {
        stmt.walk(&mut |stmt| match stmt {
            Stmt::Loop { axis: found, body } if *found == axis => visit(body),
            _ => {}
        });
    }
}

/// Whether all rounds of an axis can do a statement before any does the next: none of them may go another way, or write over what
/// another round keeps in a buffer of its own.
fn may_run_together(kernel: &Kernel, buffers: &EntityMap<BufferId, Buffer>, axis: AxisId, stmt: &Stmt) -> Result<()> {
    let name = &kernel.axes[axis].name;
    match stmt {
        Stmt::If { .. } | Stmt::While { .. } => bail!("rounds of axis {name} branch and cannot run together"),
        Stmt::Store { buffer, index, .. } if buffers[*buffer].role == Role::Local => {
            let apart = index.iter().any(|&index| kernel.exprs.uses_axis(index, axis));
            ensure!(apart, "rounds of axis {name} share @{} and cannot run together", buffers[*buffer].name);
        }
        _ => {}
    }
    Ok(())
}

fn split(kernel: &mut Kernel, name: &str, factor: usize) -> Result<()> {
    let axis = find(kernel, name)?;
    ensure!(factor > 0, "a split by 0");
    let Axis { extent, kind, .. } = kernel.axes[axis].clone();
    let (rounds, rest) = (extent / factor, extent % factor);
    let mut part = |suffix: &str, extent: usize| kernel.axis(format!("{name}.{suffix}"), extent, kind);
    let main = (rounds > 0).then(|| (part("o", rounds), part("i", factor)));
    let tail = (rest > 0).then(|| part("t", rest));

    let from = kernel.exprs.clone();
    let exprs = &mut kernel.exprs;
    let main = main.map(|(outer, inner)| {
        let (o, i, f) = (exprs.axis(outer), exprs.axis(inner), exprs.int(factor as i64));
        let scaled = exprs.binary(Binary::Mul, o, f);
        (outer, inner, exprs.binary(Binary::Add, scaled, i))
    });
    let tail = tail.map(|tail| {
        let (start, t) = (exprs.int((rounds * factor) as i64), exprs.axis(tail));
        (tail, if rounds == 0 { t } else { exprs.binary(Binary::Add, start, t) })
    });
    let body = std::mem::take(&mut kernel.body);
    kernel.body = rewrite_loops(body, axis, &mut |inner_body| {
        let mut parts = Vec::new();
        if let Some((outer, inner, index)) = main {
            let body = Replace::new(&mut kernel.exprs, &from, axis, index).stmts(&inner_body);
            parts.push(Stmt::Loop { axis: outer, body: vec![Stmt::Loop { axis: inner, body }] });
        }
        if let Some((tail, index)) = tail {
            let body = Replace::new(&mut kernel.exprs, &from, axis, index).stmts(&inner_body);
            parts.push(Stmt::Loop { axis: tail, body });
        }
        parts
    });
    Ok(())
}

/// Takes rounds off both ends of a loop.
fn peel(kernel: &mut Kernel, name: &str, first: usize, last: usize) -> Result<()> {
    let axis = find(kernel, name)?;
    let Axis { extent, kind, limit, .. } = kernel.axes[axis].clone();
    let ends = first.checked_add(last).filter(|&ends| ends <= extent);
    let Some(ends) = ends.filter(|_| limit.is_none()) else { bail!("axis {name} does not have rounds to take off") };
    let sizes = [("b", 0, first), ("m", first, extent - ends), ("e", extent - last, last)];
    let from = kernel.exprs.clone();
    let mut parts = Vec::new();
    for (suffix, start, count) in sizes.into_iter().filter(|&(_, _, count)| count > 0) {
        let part = kernel.axis(format!("{name}.{suffix}"), count, kind);
        let exprs = &mut kernel.exprs;
        let (start, round) = (exprs.int(start as i64), exprs.axis(part));
        parts.push((part, exprs.binary(Binary::Add, round, start)));
    }
    let body = std::mem::take(&mut kernel.body);
    kernel.body = rewrite_loops(body, axis, &mut |body| {
        let part = |&(part, index): &(AxisId, ExprId)| Stmt::Loop {
            axis: part,
            body: Replace::new(&mut kernel.exprs, &from, axis, index).stmts(&body),
        };
        parts.iter().map(part).collect()
    });
    Ok(())
}

/// Makes one loop of two, one of which is all that the other does.
fn merge(kernel: &mut Kernel, outer_name: &str, inner_name: &str) -> Result<()> {
    let (outer, inner) = (find(kernel, outer_name)?, find(kernel, inner_name)?);
    let [
        Axis { extent: rows, kind, limit: None, mode: AxisMode::Serial, .. },
        Axis { extent, limit: None, mode: AxisMode::Serial, .. },
    ] = [outer, inner].map(|axis| kernel.axes[axis].clone())
    else {
        bail!("axes {outer_name} and {inner_name} do not run from end to end");
    };
    may_swap(&kernel.axes, outer, inner)?;
    ensure!(kind == kernel.axes[inner].kind, "axes {outer_name} and {inner_name} are of different kinds");
    let count = rows.checked_mul(extent).filter(|&count| count > 0);
    let Some(count) = count else { bail!("axes {outer_name} and {inner_name} have no rounds, or too many") };
    let merged = kernel.axis(format!("{outer_name}.{inner_name}"), count, kind);
    let from = kernel.exprs.clone();
    let exprs = &mut kernel.exprs;
    let (index, width) = (exprs.axis(merged), exprs.int(extent as i64));
    let (row, column) = (exprs.binary(Binary::DivFloor, index, width), exprs.binary(Binary::Mod, index, width));
    let mut apart = false;
    let body = std::mem::take(&mut kernel.body);
    kernel.body = rewrite_loops(body, outer, &mut |body| match &body[..] {
        [Stmt::Loop { axis, body }] if *axis == inner => {
            let body = Replace::new(&mut kernel.exprs, &from, outer, row).stmts(body);
            let from = kernel.exprs.clone();
            vec![Stmt::Loop { axis: merged, body: Replace::new(&mut kernel.exprs, &from, inner, column).stmts(&body) }]
        }
        _ => {
            apart = true;
            vec![Stmt::Loop { axis: outer, body }]
        }
    });
    ensure!(!apart, "the loop over {inner_name} is not all that the loop over {outer_name} does");
    Ok(())
}

/// Replaces every loop over `axis` by what `make` gives for its body.
fn rewrite_loops(stmts: Vec<Stmt>, axis: AxisId, make: &mut dyn FnMut(Vec<Stmt>) -> Vec<Stmt>) -> Vec<Stmt> {
    let mut result = Vec::new();
    for stmt in stmts {
        match stmt {
            Stmt::Loop { axis: found, body } if found == axis => result.extend(make(body)),
            Stmt::Loop { axis: other, body } => {
                result.push(Stmt::Loop { axis: other, body: rewrite_loops(body, axis, make) });
            }
            Stmt::If { cond, then, otherwise } => result.push(Stmt::If {
                cond,
                then: rewrite_loops(then, axis, make),
                otherwise: rewrite_loops(otherwise, axis, make),
            }),
            Stmt::While { cond, body } => result.push(Stmt::While { cond, body: rewrite_loops(body, axis, make) }),
            leaf => result.push(leaf),
        }
    }
    result
}

/// Copies statements with one axis replaced by an index expression.
pub(super) struct Replace<'a> {
    exprs: &'a mut Exprs,
    from: &'a Exprs,
    axis: AxisId,
    index: ExprId,
    memo: HashMap<ExprId, ExprId>,
}

impl<'a> Replace<'a> {
    pub(super) fn new(exprs: &'a mut Exprs, from: &'a Exprs, axis: AxisId, index: ExprId) -> Self {
        Self { exprs, from, axis, index, memo: HashMap::new() }
    }

    fn expr(&mut self, expr: ExprId) -> ExprId {
        let (axis, index) = (self.axis, self.index);
        self.exprs.copy(self.from, expr, &mut self.memo, &mut |_, expr| match expr {
            Expr::Axis(found) if *found == axis => Some(index),
            _ => None,
        })
    }

    pub(super) fn stmts(&mut self, stmts: &[Stmt]) -> Vec<Stmt> {
        stmts
            .iter()
            .map(|stmt| match stmt {
                Stmt::Loop { axis, body } => Stmt::Loop { axis: *axis, body: self.stmts(body) },
                Stmt::Set { var, value } => Stmt::Set { var: *var, value: self.expr(*value) },
                Stmt::Store { buffer, index, value, guard } => Stmt::Store {
                    buffer: *buffer,
                    index: index.iter().map(|&index| self.expr(index)).collect(),
                    value: self.expr(*value),
                    guard: guard.map(|guard| self.expr(guard)),
                },
                Stmt::If { cond, then, otherwise } => {
                    Stmt::If { cond: self.expr(*cond), then: self.stmts(then), otherwise: self.stmts(otherwise) }
                }
                Stmt::While { cond, body } => Stmt::While { cond: self.expr(*cond), body: self.stmts(body) },
            })
            .collect()
    }
}

/// Takes a loop out of its place and puts it just inside another that is nested in it perfectly, or outermost.
fn move_axis(kernel: &mut Kernel, name: &str, inside: Option<&str>) -> Result<()> {
    let axis = find(kernel, name)?;
    let inside = inside.map(|inside| find(kernel, inside)).transpose()?;
    let body = std::mem::take(&mut kernel.body);
    let mut moved = 0;
    let mut refused = None;
    kernel.body = match inside {
        Some(inside) => rewrite_loops(body, axis, &mut |body| match sink(&body, axis, inside, &kernel.axes) {
            Ok(body) => {
                moved += 1;
                body
            }
            Err(error) => {
                refused = Some(error);
                vec![Stmt::Loop { axis, body }]
            }
        }),
        None => match hoist(&body, axis, &kernel.axes) {
            Ok(body) => {
                moved += 1;
                body
            }
            Err(error) => {
                refused = Some(error);
                body
            }
        },
    };
    match refused {
        Some(error) => Err(error),
        None => {
            ensure!(moved > 0, "there is no loop over {name}");
            Ok(())
        }
    }
}

/// Whether two loops nested perfectly may change places: not where either must keep its order.
fn may_swap(axes: &EntityMap<AxisId, Axis>, outer: AxisId, inner: AxisId) -> Result<()> {
    for axis in [outer, inner] {
        ensure!(axes[axis].kind != AxisKind::Sequential, "axis {} is sequential", axes[axis].name);
    }
    Ok(())
}

fn sink(body: &[Stmt], axis: AxisId, inside: AxisId, axes: &EntityMap<AxisId, Axis>) -> Result<Vec<Stmt>> {
    match body {
        [Stmt::Loop { axis: inner, body }] => {
            may_swap(axes, axis, *inner)?;
            let body =
                if *inner == inside { vec![Stmt::Loop { axis, body: body.clone() }] } else { sink(body, axis, inside, axes)? };
            Ok(vec![Stmt::Loop { axis: *inner, body }])
        }
        _ => bail!("axis {} is not nested perfectly around {}", axes[axis].name, axes[inside].name),
    }
}

fn hoist(body: &[Stmt], axis: AxisId, axes: &EntityMap<AxisId, Axis>) -> Result<Vec<Stmt>> {
    fn without(body: &[Stmt], axis: AxisId, axes: &EntityMap<AxisId, Axis>) -> Result<Vec<Stmt>> {
        match body {
            [Stmt::Loop { axis: found, body }] if *found == axis => Ok(body.clone()),
            [Stmt::Loop { axis: outer, body }] => {
                may_swap(axes, *outer, axis)?;
                Ok(vec![Stmt::Loop { axis: *outer, body: without(body, axis, axes)? }])
            }
            _ => bail!("axis {} is not nested perfectly", axes[axis].name),
        }
    }
    Ok(vec![Stmt::Loop { axis, body: without(body, axis, axes)? }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::VarId;
    use mcc_support::{DType, TensorType};

    /// `for y in 0..7 { for x in 0..5 { a = 0; for k in 0..3 { a = a + b0[y, k] }; b1[y, x] = a } }`.
    fn sample() -> Kernel {
        let mut kernel = Kernel::new("k");
        let y = kernel.axis("y", 7, AxisKind::Spatial);
        let x = kernel.axis("x", 5, AxisKind::Spatial);
        let k = kernel.axis("k", 3, AxisKind::Reduce);
        let a: VarId = kernel.var(DType::F32);
        let e = &mut kernel.exprs;
        let (ye, xe, ke) = (e.axis(y), e.axis(x), e.axis(k));
        let load = e.load(BufferId(0), DType::F32, vec![ye, ke]);
        let var = e.var(a, DType::F32);
        let sum = e.binary(Binary::Add, var, load);
        let zero = e.f32(0.0);
        let inner = vec![
            Stmt::Set { var: a, value: zero },
            Stmt::Loop { axis: k, body: vec![Stmt::Set { var: a, value: sum }] },
            Stmt::Store { buffer: BufferId(1), index: vec![ye, xe], value: var, guard: None },
        ];
        kernel.body = Stmt::loops(&[y, x], inner);
        kernel
    }

    /// What `sample` loads and stores; the latter in this role.
    fn buffers(role: Role) -> EntityMap<BufferId, Buffer> {
        let buffer = |name: &str, shape: [usize; 2], role| Buffer {
            name: name.into(),
            ty: TensorType::new(DType::F32, shape.to_vec()),
            role,
        };
        [buffer("b0", [7, 3], Role::Input(0)), buffer("b1", [7, 5], role)].into_iter().collect()
    }

    /// The loops of a kernel as `y.o(x(k))`.
    fn shape(kernel: &Kernel, stmts: &[Stmt]) -> String {
        let parts: Vec<String> = stmts
            .iter()
            .filter_map(|stmt| match stmt {
                Stmt::Loop { axis, body } => Some(format!("{}({})", kernel.axes[*axis].name, shape(kernel, body))),
                _ => None,
            })
            .collect();
        parts.join(" ")
    }

    fn check(steps: &[Step], expected: &str) {
        let mut kernel = sample();
        apply(&mut kernel, &mut buffers(Role::Output(0)), steps).unwrap();
        assert_eq!(shape(&kernel, &kernel.body), expected);
    }

    fn split_step(axis: &str, factor: usize) -> Step {
        Step::Split { axis: axis.into(), factor }
    }

    fn move_step(axis: &str, inside: &str) -> Step {
        Step::Move { axis: axis.into(), inside: Some(inside.into()) }
    }

    #[test]
    fn splits_with_a_rest_and_moves_both_parts() {
        check(&[split_step("y", 4)], "y.o(y.i(x(k()))) y.t(x(k()))");
        check(&[split_step("y", 7)], "y.o(y.i(x(k())))");
        check(&[split_step("y", 9)], "y.t(x(k()))");
        let steps = [split_step("y", 4), move_step("y.i", "x"), move_step("y.t", "x"), split_step("x", 2)];
        check(&steps, "y.o(x.o(x.i(y.i(k()))) x.t(y.i(k()))) x.o(x.i(y.t(k()))) x.t(y.t(k()))");
        check(&[Step::Move { axis: "x".into(), inside: None }], "x(y(k()))");
    }

    #[test]
    fn merges_loops_and_takes_rounds_off_their_ends() {
        let merge = |outer: &str, inner: &str| Step::Merge { outer: outer.into(), inner: inner.into() };
        let peel = |first, last| Step::Peel { axis: "y".into(), first, last };
        check(&[merge("y", "x"), split_step("y.x", 10)], "y.x.o(y.x.i(k())) y.x.t(k())");
        check(&[peel(1, 2)], "y.b(x(k())) y.m(x(k())) y.e(x(k()))");
        check(&[peel(0, 7)], "y.e(x(k()))");
        // Element 13 of rows of 5 is at 2, 3; the second round after one that was taken off is the third.
        let index = |steps: &[Step], axis: &str, round: i64| {
            let mut kernel = sample();
            apply(&mut kernel, &mut buffers(Role::Output(0)), steps).unwrap();
            let mut found = Vec::new();
            let mut visit = |stmt: &Stmt| {
                if let Stmt::Loop { axis: id, body } = stmt
                    && kernel.axes[*id].name == axis
                {
                    body.iter().for_each(|stmt| {
                        stmt.walk(&mut |stmt| {
                            if let Stmt::Store { index, .. } = stmt {
                                found = index.iter().map(|&index| at_round(&kernel.exprs, index, *id, round)).collect();
                            }
                        })
                    });
                }
            };
            kernel.body.iter().for_each(|stmt| stmt.walk(&mut visit));
            found
        };
        assert_eq!(index(&[merge("y", "x")], "y.x", 13), [Some(2), Some(3)]);
        assert_eq!(index(&[peel(1, 2)], "y.m", 1), [Some(2), None]);
        assert_eq!(index(&[peel(1, 2)], "y.e", 1), [Some(6), None]);
        for (steps, why) in [
            (vec![peel(5, 3)], "does not have rounds"),
            (vec![merge("x", "y")], "is not all"),
            (vec![merge("x", "k")], "of different kinds"),
            (vec![merge("y", "z")], "no axis z"),
        ] {
            let error = apply(&mut sample(), &mut buffers(Role::Output(0)), &steps).unwrap_err().to_string();
            assert!(error.contains(why), "{steps:?}: {error}");
        }
    }

    /// An index of numbers and one axis, in a round of that; `None` where it depends on others.
    fn at_round(exprs: &Exprs, index: ExprId, axis: AxisId, round: i64) -> Option<i64> {
        match *exprs.get(index) {
            Expr::Axis(found) => (found == axis).then_some(round),
            Expr::Binary(op, a, b) => {
                let (a, b) = (at_round(exprs, a, axis, round)?, at_round(exprs, b, axis, round)?);
                match op {
                    Binary::Add => Some(a + b),
                    Binary::Mul => Some(a * b),
                    Binary::DivFloor => Some(a.div_euclid(b)),
                    Binary::Mod => Some(a.rem_euclid(b)),
                    _ => None,
                }
            }
            _ => exprs.as_int(index),
        }
    }

    #[test]
    fn refuses_what_is_not_nested_perfectly() {
        let mut kernel = sample();
        assert!(apply(&mut kernel, &mut buffers(Role::Output(0)), &[move_step("x", "k")]).is_err());
        assert!(apply(&mut kernel, &mut buffers(Role::Output(0)), &[move_step("z", "k")]).is_err());
    }

    #[test]
    fn refuses_to_run_rounds_together_that_share_a_buffer_or_branch() {
        let unroll = |axis: &str| Step::Unroll { axis: axis.into() };
        let lanes = |axis: &str| Step::Vectorize { axis: axis.into() };
        // One row that all rounds of `y` write in turn.
        let mut rows = sample();
        let x = rows.axes.iter().find(|(_, axis)| axis.name == "x").unwrap().0;
        let index = rows.exprs.axis(x);
        rows.body = rewrite_loops(std::mem::take(&mut rows.body), x, &mut |mut body| {
            let Some(Stmt::Store { index: stored, .. }) = body.last_mut() else { panic!("a store") };
            stored.remove(0);
            stored[0] = index;
            vec![Stmt::Loop { axis: x, body }]
        });
        let mut branching = sample();
        let yes = branching.exprs.add(Expr::Const(DType::Bool, 1));
        branching.body = rewrite_loops(std::mem::take(&mut branching.body), x, &mut |body| {
            vec![Stmt::Loop { axis: x, body: vec![Stmt::If { cond: yes, then: body, otherwise: Vec::new() }] }]
        });
        for (kernel, role, steps, expected) in [
            (&rows, Role::Local, vec![unroll("y")], None),
            (&rows, Role::Local, vec![split_step("y", 2), lanes("y.i")], Some("share @b1")),
            (&rows, Role::Local, vec![unroll("x"), unroll("k")], None),
            (&branching, Role::Output(0), vec![unroll("x")], Some("branch")),
            (&branching, Role::Output(0), vec![unroll("k")], None),
            (&sample(), Role::Output(0), vec![lanes("x"), lanes("k")], Some("one inside the other")),
            (&sample(), Role::Output(0), vec![lanes("k"), lanes("y")], Some("one inside the other")),
            (&sample(), Role::Local, vec![unroll("y"), lanes("x")], None),
        ] {
            match (apply(&mut kernel.clone(), &mut buffers(role), &steps), expected) {
                (Ok(()), None) => {}
                (Err(error), Some(expected)) if error.to_string().contains(expected) => {}
                (result, _) => panic!("{steps:?}: {result:?}, expected {expected:?}"),
            }
        }
    }
}
