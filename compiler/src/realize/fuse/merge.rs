//! Two kernels under the same outer loops, one after the other in each round; what is between them shrinks to one round's part:
//!
//! ```text
//! for i { a = -inf; for j { a = max(a, x[i, j]) }; m[i] = a }   for i, j { y[i, j] = x[i, j] - m[i] }
//!     → for i { a = -inf; for j { a = max(a, x[i, j]) }; m = a; for j { y[i, j] = x[i, j] - m } }
//! ```

use std::collections::BTreeMap;

use mcc_support::{Result, TensorType, bail, ensure};

use super::inline::{in_range, joined};
use super::rewrite::{Copier, Load, Stored, fresh_axis, shell};
use super::{Change, Fuser, ensure_sole_writer};
use crate::loops::sites;
use crate::loops::{AxisId, Buffer, BufferId, Expr, ExprId, Kernel, Role, Stmt, VarId, scalar, simplify};

/// What becomes of a buffer between the two kernels.
#[derive(Clone, Debug)]
enum Between {
    /// As before; another kernel reads it.
    Kept,
    /// Only these dimensions are left.
    Local(Vec<usize>),
    /// One element is left: the index in these dimensions can only be 0, unless a load is outside of the buffer.
    Var(VarId, Vec<usize>),
}

impl Fuser {
    /// Puts both kernels under `depth` common spatial loops.
    pub fn merge(&self, producer: usize, consumer: usize, depth: usize) -> Result<Change> {
        let (from, to) = (&self.filled(producer).kernel, &self.filled(consumer).kernel);
        ensure!(producer != consumer, "'{}' cannot be merged with itself", to.name);
        self.together(&[producer, consumer])?;
        ensure!(
            !self.depends_through_another(producer, consumer)
                && !self.depends_through_another(consumer, producer)
                && self.between(consumer, producer).is_empty(),
            "another kernel has to run between '{}' and '{}'",
            from.name,
            to.name
        );
        let between = self.between(producer, consumer);
        for &buffer in &between {
            ensure_sole_writer(self, buffer, producer)?;
        }
        let pairs = self.paired_axes(producer, consumer);
        ensure!(pairs.len() >= depth, "'{}' and '{}' have {} outer loops in common", from.name, to.name, pairs.len());
        self.merged(producer, consumer, &pairs[..depth], &between)
    }

    /// Outer axes of both kernels that can be one: the producer stores along the one what the consumer loads along the other, or,
    /// where nothing is between them, they stand at the same depth. In the order of the producer's loops.
    pub fn paired_axes(&self, producer: usize, consumer: usize) -> Vec<(AxisId, AxisId)> {
        let (from, to) = (&self.filled(producer).kernel, &self.filled(consumer).kernel);
        let (outer, inner) = (sites::outer_loops(from).0, sites::outer_loops(to).0);
        let extents_agree = |a: AxisId, b: AxisId| from.axes[a].extent == to.axes[b].extent;
        let between = self.between(producer, consumer);
        if between.is_empty() {
            return outer.into_iter().zip(inner).take_while(|&(a, b)| extents_agree(a, b)).collect();
        }
        let mut pairs: Option<Vec<(AxisId, AxisId)>> = None;
        for load in sites::loads(to) {
            let Expr::Load { buffer, index, .. } = to.exprs.get(load) else { continue };
            if !between.contains(buffer) {
                continue;
            }
            let Some(site) = sites::only_store(from, *buffer) else { return Vec::new() };
            let here: Vec<(AxisId, AxisId)> = site
                .index
                .iter()
                .zip(index)
                .filter_map(|(&stored, &loaded)| match (from.exprs.get(stored), to.exprs.get(loaded)) {
                    (&Expr::Axis(a), &Expr::Axis(b)) => Some((a, b)),
                    _ => None,
                })
                .filter(|&(a, b)| outer.contains(&a) && inner.contains(&b) && extents_agree(a, b))
                .collect();
            pairs = Some(match pairs {
                None => here,
                Some(pairs) => pairs.into_iter().filter(|pair| here.contains(pair)).collect(),
            });
        }
        let mut pairs = pairs.unwrap_or_default();
        pairs.sort_by_key(|(axis, _)| outer.iter().position(|other| other == axis));
        pairs
    }

    fn merged(&self, producer: usize, consumer: usize, pairs: &[(AxisId, AxisId)], between: &[BufferId]) -> Result<Change> {
        let (from, to) = (&self.filled(producer).kernel, &self.filled(consumer).kernel);
        let mut kernel = shell(to);
        kernel.origins = joined(&from.origins, &to.origins);
        let loops: Vec<AxisId> = pairs.iter().map(|&(axis, _)| fresh_axis(&mut kernel, from.axes[axis].clone())).collect();
        let rounds: Vec<ExprId> = loops.iter().map(|&axis| kernel.exprs.axis(axis)).collect();

        let mut fates = BTreeMap::new();
        let mut buffers = Vec::new();
        for &buffer in between {
            let shrunk = self.shrunk(producer, consumer, buffer, pairs, &mut kernel, &mut buffers)?;
            fates.insert(buffer, shrunk);
        }
        let mut on_load = |into: &mut Kernel, load: &Load| fates.get(&load.buffer).and_then(|fate| fate.load(into, load));
        let mut copier = Copier::new(from, &mut on_load);
        pairs.iter().zip(&rounds).for_each(|(&(axis, _), &round)| copier.replace_axis(axis, round));
        let mut body = copier.stmts(&mut kernel, &from.body, &mut |_, stored| fates.get(&stored.buffer)?.store(stored));

        let mut on_load = |into: &mut Kernel, load: &Load| fates.get(&load.buffer).and_then(|fate| fate.load(into, load));
        let mut copier = Copier::new(to, &mut on_load);
        pairs.iter().zip(&rounds).for_each(|(&(_, axis), &round)| copier.replace_axis(axis, round));
        body.extend(copier.stmts(&mut kernel, &to.body, &mut |_, _| None));
        kernel.body = Stmt::loops(&loops, body);
        Ok(Change { buffers, ..Change::fusion(producer, None, consumer, kernel) })
    }

    /// What a buffer between the kernels becomes under the common loops `pairs`. Each round must read what it wrote itself.
    fn shrunk(
        &self,
        producer: usize,
        consumer: usize,
        buffer: BufferId,
        pairs: &[(AxisId, AxisId)],
        kernel: &mut Kernel,
        buffers: &mut Vec<(BufferId, Buffer)>,
    ) -> Result<Between> {
        let (from, to) = (&self.filled(producer).kernel, &self.filled(consumer).kernel);
        let old = self.buffer(buffer);
        let Some(site) = sites::only_store(from, buffer) else {
            bail!("'{}' does not store to '{}' in one place under loops alone", from.name, old.name);
        };
        let mut outer = Vec::new();
        for &(axis, axis_to) in pairs {
            let dim = site.index.iter().position(|&index| *from.exprs.get(index) == Expr::Axis(axis));
            let Some(dim) = dim.filter(|&dim| loads_along(to, buffer, dim, axis_to)) else {
                bail!("a round of '{}' reads what other rounds of '{}' write", to.name, from.name);
            };
            outer.push((dim, axis));
        }
        let own_loads_agree = outer.iter().all(|&(dim, axis)| loads_along(from, buffer, dim, axis));
        if self.needed_beyond(buffer, &[producer, consumer]) || !own_loads_agree {
            return Ok(Between::Kept);
        }
        let left: Vec<usize> = (0..old.ty.rank()).filter(|dim| outer.iter().all(|(other, _)| other != dim)).collect();
        let inside = |kernel: &Kernel| sites::loads(kernel).into_iter().all(|load| is_inside(kernel, load, buffer));
        let single = left.iter().all(|&dim| old.ty.shape[dim] == 1) && inside(from) && inside(to);
        // A variable holds what operations take.
        if single && scalar::carrier(old.ty.dtype) == old.ty.dtype {
            return Ok(Between::Var(kernel.var(old.ty.dtype), left));
        }
        let shape: Vec<usize> = left.iter().map(|&dim| old.ty.shape[dim]).collect();
        buffers.push((buffer, Buffer { name: old.name.clone(), ty: TensorType::new(old.ty.dtype, shape), role: Role::Local }));
        Ok(Between::Local(left))
    }
}

/// Whether every load of a buffer has this axis as its index of a dimension.
fn loads_along(kernel: &Kernel, buffer: BufferId, dim: usize, axis: AxisId) -> bool {
    sites::loads(kernel).into_iter().all(|load| match kernel.exprs.get(load) {
        Expr::Load { buffer: other, index, .. } if *other == buffer => *kernel.exprs.get(index[dim]) == Expr::Axis(axis),
        _ => true,
    })
}

/// Whether this load, if it is of the buffer, has no value for outside.
fn is_inside(kernel: &Kernel, load: ExprId, buffer: BufferId) -> bool {
    !matches!(kernel.exprs.get(load), Expr::Load { buffer: other, otherwise: Some(_), .. } if *other == buffer)
}

impl Between {
    fn load(&self, kernel: &mut Kernel, load: &Load) -> Option<ExprId> {
        match self {
            Between::Kept => None,
            Between::Local(dims) => {
                let index = dims.iter().map(|&dim| load.index[dim]).collect();
                let (buffer, otherwise, dtype) = (load.buffer, load.otherwise, load.dtype);
                Some(kernel.exprs.add(Expr::Load { buffer, index, otherwise, dtype }))
            }
            Between::Var(var, dims) => {
                let value = kernel.exprs.var(*var, load.dtype);
                let may_be_outside = |&&dim: &&usize| simplify::range(kernel, load.index[dim]) != (0, 0);
                let outside: Vec<usize> = dims.iter().filter(may_be_outside).copied().collect();
                match load.otherwise {
                    Some(otherwise) if !outside.is_empty() => {
                        let inside = in_range(kernel, &outside, load.index, &vec![1; load.index.len()]);
                        Some(scalar::select(&mut kernel.exprs, inside, value, otherwise))
                    }
                    _ => Some(value),
                }
            }
        }
    }

    fn store(&self, stored: &Stored) -> Option<Vec<Stmt>> {
        match self {
            Between::Kept => None,
            Between::Local(dims) => {
                let index = dims.iter().map(|&dim| stored.index[dim]).collect();
                Some(vec![Stmt::Store { buffer: stored.buffer, index, value: stored.value, guard: stored.guard }])
            }
            Between::Var(var, _) => Some(vec![Stmt::Set { var: *var, value: stored.value }]),
        }
    }
}
