//! Leaves out what windows do outside of the map that they slide over: rounds of a sum in which a padding zero is multiplied by a weight,
//! wherever the loops around are. Where a schedule keeps the first and last rounds of an axis apart, these are the taps beyond the border:
//!
//! ```text
//! for y.b in 0..1 { for k in 0..3 { a = a + (x[y.b + k - 1] or 0) * w[k] } }
//!     → for y.b in 0..1 { for k.1 in 0..2 { a = a + (x[y.b + k.1] or 0) * w[k.1 + 1] } }
//! ```

use std::collections::HashMap;

use mcc_support::EntityMap;

use super::schedule::Replace;
use crate::loops::linear::{Atom, KernelRanges, Linear};
use crate::loops::{Axis, AxisId, AxisKind, AxisMode, Binary, Buffer, BufferId, Expr, ExprId, Kernel, Role, Stmt, sites};

pub fn apply(kernel: &mut Kernel, buffers: &EntityMap<BufferId, Buffer>) {
    let pads = |id: u32| matches!(kernel.exprs.get(ExprId(id)), Expr::Load { otherwise: Some(_), .. });
    if (0..kernel.exprs.len() as u32).any(pads) {
        let body = std::mem::take(&mut kernel.body);
        kernel.body = Narrower { kernel, buffers, finite: HashMap::new() }.stmts(body);
    }
}

struct Narrower<'k> {
    kernel: &'k mut Kernel,
    buffers: &'k EntityMap<BufferId, Buffer>,
    /// Whether constants hold no infinity and no NaN.
    finite: HashMap<BufferId, bool>,
}

impl Narrower<'_> {
    fn stmts(&mut self, stmts: Vec<Stmt>) -> Vec<Stmt> {
        stmts.into_iter().flat_map(|stmt| self.stmt(stmt)).collect()
    }

    fn stmt(&mut self, stmt: Stmt) -> Option<Stmt> {
        let Stmt::Loop { axis, body } = stmt else { return Some(stmt) };
        let Some((first, end)) = self.live(axis, &body) else { return Some(Stmt::Loop { axis, body: self.stmts(body) }) };
        if first == end {
            return None;
        }
        let described = self.kernel.axes[axis].clone();
        let part = self.kernel.axes.push(Axis { name: self.name(&described.name), extent: end - first, ..described });
        let from = self.kernel.exprs.clone();
        let exprs = &mut self.kernel.exprs;
        let (start, round) = (exprs.int(first as i64), exprs.axis(part));
        let index = exprs.binary(Binary::Add, round, start);
        let body = Replace::new(&mut self.kernel.exprs, &from, axis, index).stmts(&body);
        Some(Stmt::Loop { axis: part, body: self.stmts(body) })
    }

    fn name(&self, whole: &str) -> String {
        let is_new = |name: &String| self.kernel.axes.values().all(|axis| axis.name != *name);
        (1..).map(|number| format!("{whole}.{number}")).find(is_new).expect("there are more numbers than axes")
    }

    /// The rounds of a sum between the first and the last that add something, where these are not all.
    fn live(&mut self, axis: AxisId, body: &[Stmt]) -> Option<(usize, usize)> {
        let Axis { extent, kind, mode, limit, .. } = self.kernel.axes[axis].clone();
        if kind != AxisKind::Reduce || mode == AxisMode::Vector || limit.is_some() {
            return None;
        }
        let (buffer, index) = self.padded_factor(body)?;
        let ranges = KernelRanges { exprs: &self.kernel.exprs, axes: &self.kernel.axes };
        let walks: Vec<(i64, i64, i64, i64)> = index
            .iter()
            .zip(self.buffers[buffer].ty.shape.iter())
            .map(|(&index, &extent)| {
                let form = Linear::of(&self.kernel.exprs, index);
                let (low, high) = form.replace(Atom::Axis(axis), &Linear::default()).range(&ranges);
                (form.coefficient(Atom::Axis(axis)), low, high, extent as i64)
            })
            .collect();
        let adds = |round: &usize| {
            walks.iter().all(|&(step, low, high, extent)| {
                let moved = step.saturating_mul(*round as i64);
                step == 0 || high.saturating_add(moved) >= 0 && low.saturating_add(moved) < extent
            })
        };
        let first = (0..extent).find(adds).unwrap_or(extent);
        let end = (first..extent).rfind(adds).map_or(first, |last| last + 1);
        (end - first < extent).then_some((first, end))
    }

    /// What the only update in a loop loads, where it adds the product of that, or zero outside, and a weight.
    fn padded_factor(&mut self, body: &[Stmt]) -> Option<(BufferId, Vec<ExprId>)> {
        let (var, value) = match body {
            [Stmt::Loop { body, .. }] => return self.padded_factor(body),
            [Stmt::Set { var, value }] => (*var, *value),
            _ => return None,
        };
        let exprs = &self.kernel.exprs;
        let [_, x, y] = sites::added_product(exprs, var, value)?;
        let padded = |expr| match exprs.get(expr) {
            Expr::Load { buffer, index, otherwise: Some(zero), .. } => {
                matches!(exprs.get(*zero), Expr::Const(_, 0)).then(|| (*buffer, index.clone()))
            }
            _ => None,
        };
        let (found, weight) = padded(x).map(|found| (found, y)).or_else(|| Some((padded(y)?, x)))?;
        let Expr::Load { buffer, otherwise: None, .. } = *exprs.get(weight) else { return None };
        let Role::Constant(tensor) = &self.buffers[buffer].role else { return None };
        let is_finite = || tensor.numbers().all(|number| number.as_f64().is_finite());
        self.finite.entry(buffer).or_insert_with(is_finite).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcc_support::{DType, Tensor, TensorType};

    /// Loops left of a sum over `taps` at `y + k - before` of a map of 4, for `y` from `first` on, `rounds` times.
    fn left(first: i64, rounds: usize, taps: usize, before: i64, weight: f32) -> String {
        let ty = |extent: usize| TensorType::new(DType::F32, [extent]);
        let mut buffers: EntityMap<BufferId, Buffer> = EntityMap::new();
        let x = buffers.push(Buffer { name: "x".into(), ty: ty(4), role: Role::Input(0) });
        let w = Role::Constant(Tensor::from_elements([taps], &vec![weight; taps]));
        let w = buffers.push(Buffer { name: "w".into(), ty: ty(taps), role: w });
        let mut kernel = Kernel::new("k");
        let y = kernel.axis("y", rounds, AxisKind::Spatial);
        let k = kernel.axis("k", taps, AxisKind::Reduce);
        let var = kernel.var(DType::F32);
        let e = &mut kernel.exprs;
        let (ye, ke, offset, zero, sum) = (e.axis(y), e.axis(k), e.int(first - before), e.f32(0.0), e.var(var, DType::F32));
        let at = e.binary(Binary::Add, ye, ke);
        let at = e.binary(Binary::Add, at, offset);
        let element = e.add(Expr::Load { buffer: x, index: vec![at], otherwise: Some(zero), dtype: DType::F32 });
        let weight = e.load(w, DType::F32, vec![ke]);
        let product = e.binary(Binary::Mul, element, weight);
        let value = e.binary(Binary::Add, sum, product);
        let inner = Stmt::Loop { axis: k, body: vec![Stmt::Set { var, value }] };
        kernel.body = vec![Stmt::Loop { axis: y, body: vec![Stmt::Set { var, value: zero }, inner] }];
        apply(&mut kernel, &buffers);
        let mut loops = Vec::new();
        kernel.body[0].walk(&mut |stmt| {
            if let Stmt::Loop { axis, .. } = stmt {
                loops.push(format!("{} {}", kernel.axes[*axis].name, kernel.axes[*axis].extent));
            }
        });
        loops.join(", ")
    }

    #[test]
    fn rounds_that_add_padding_go() {
        for (first, rounds, taps, before, expected) in [
            (0, 1, 3, 1, "y 1, k.1 2"),
            (1, 2, 3, 1, "y 2, k 3"),
            (3, 1, 3, 1, "y 1, k.1 2"),
            (0, 2, 5, 2, "y 2, k.1 4"),
            (0, 1, 9, 2, "y 1, k.1 4"),
            (0, 1, 2, 2, "y 1"),
        ] {
            assert_eq!(left(first, rounds, taps, before, 1.0), expected, "{taps} taps from {first} on");
        }
        assert_eq!(left(0, 1, 3, 1, f32::INFINITY), "y 1, k 3", "padding times infinity is NaN");
    }
}
