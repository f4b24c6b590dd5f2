//! The consumer computes the producer's elements itself:
//!
//! ```text
//! for i { t[i] = a[i] + b[i] }   for i, j { y[i, j] = t[j] * c[i] }   →   for i, j { y[i, j] = (a[j] + b[j]) * c[i] }
//! ```

use std::collections::{BTreeMap, BTreeSet};

use mcc_support::{DType, Error, Result, bail, ensure};

use super::axes;
use super::rewrite::{Copier, Load, rebuild};
use super::{Change, Fuser, ensure_sole_writer};
use crate::loops::linear::{self, Linear};
use crate::loops::sites::{self, Site};
use crate::loops::{AxisId, Binary, BufferId, Expr, ExprId, Kernel, Role, Stmt, simplify};

impl Fuser {
    /// Replaces the consumer's loads of what an elementwise producer stores by the expressions stored.
    pub fn inline(&self, producer: usize, consumer: usize) -> Result<Change> {
        let (from, to) = (&self.filled(producer).kernel, &self.filled(consumer).kernel);
        let between = self.between(producer, consumer);
        ensure!(!between.is_empty() && producer != consumer, "'{}' does not read what '{}' writes", to.name, from.name);
        let local = self.reads(producer).iter().find(|&&buffer| self.buffer(buffer).role == Role::Local);
        ensure!(local.is_none(), "'{}' reads a buffer of its own", from.name);
        let Some(sites) = sites::elementwise(from) else { bail!("'{}' is not elementwise", from.name) };
        let mut site_of = BTreeMap::new();
        for &buffer in &between {
            ensure_sole_writer(self, buffer, producer)?;
            let mut of_buffer = sites.iter().filter(|site| site.buffer == buffer);
            let (Some(site), None) = (of_buffer.next(), of_buffer.next()) else {
                bail!("'{}' stores to '{}' more than once", from.name, self.buffer(buffer).name);
            };
            ensure!(
                is_renumbering(from, site, &self.buffer(buffer).ty.shape),
                "the index that '{}' stores at is not a plain renumbering of its axes",
                from.name
            );
            site_of.insert(buffer, site);
        }
        let mut failure = None;
        let mut kernel = rebuild(
            to,
            &mut |into, load| {
                let site = site_of.get(&load.buffer)?;
                match self.element(from, site, into, load) {
                    Ok(value) => Some(value),
                    Err(error) => {
                        failure.get_or_insert(error);
                        None
                    }
                }
            },
            &mut |_, _| None,
        );
        if let Some(error) = failure {
            return Err(error);
        }
        kernel.origins = joined(&from.origins, &to.origins);
        let dead: BTreeSet<BufferId> =
            between.into_iter().filter(|&buffer| self.only_between(buffer, producer, consumer)).collect();
        let producer_left = (dead != *self.writes(producer)).then(|| without_stores(from, &dead));
        self.provable(Change::fusion(producer, producer_left, consumer, kernel))
    }

    /// What stands for a load of the element that `site` stores.
    fn element(&self, from: &Kernel, site: &Site, into: &mut Kernel, load: &Load) -> Result<ExprId, Error> {
        let values = axes::solve(from, &site.path, &site.index, into, load.index)?;
        let shape = &self.buffer(site.buffer).ty.shape;
        let outside: Vec<usize> = (0..shape.rank())
            .filter(|&dim| {
                let (low, high) = simplify::range(into, load.index[dim]);
                load.otherwise.is_some() && (low < 0 || high >= shape[dim] as i64)
            })
            .collect();
        let otherwise = load.otherwise.filter(|_| !outside.is_empty());
        let moved = otherwise.and_then(|otherwise| self.moved_otherwise(from, site, &outside, into, otherwise));
        let mut safe = |into: &mut Kernel, inner: &Load| {
            let (None, Some(_)) = (inner.otherwise, otherwise) else { return None };
            // Loads of indices are outside as well: what they give there does not matter.
            let fill = moved.filter(|&fill| into.exprs.dtype(fill) == inner.dtype);
            let fill = fill.unwrap_or_else(|| into.exprs.add(Expr::Const(inner.dtype, 0)));
            let (buffer, index, dtype) = (inner.buffer, inner.index.to_vec(), inner.dtype);
            Some(into.exprs.add(Expr::Load { buffer, index, otherwise: Some(fill), dtype }))
        };
        let mut copier = Copier::new(from, &mut safe);
        for (axis, value) in values {
            copier.replace_axis(axis, value);
        }
        let value = copier.expr(into, site.value);
        let (Some(otherwise), None) = (otherwise, moved) else { return Ok(value) };
        let inside = in_range(into, &outside, load.index, shape);
        Ok(into.exprs.select(inside, value, otherwise))
    }

    /// Where the producer only moves elements, and a place outside its result in one of the dimensions `outside` is outside its
    /// operand, too: the value that a load of the operand itself has to have there.
    fn moved_otherwise(&self, from: &Kernel, site: &Site, outside: &[usize], into: &Kernel, otherwise: ExprId) -> Option<ExprId> {
        let Expr::Load { buffer, index, otherwise: inner, .. } = from.exprs.get(site.value) else { return None };
        let is_load = |id| matches!(from.exprs.get(id), Expr::Load { .. });
        if sites::reachable(from, index.clone()).into_iter().any(is_load) {
            return None;
        }
        let (shape, operand) = (&self.buffer(site.buffer).ty.shape, &self.buffer(*buffer).ty.shape);
        let same = match inner {
            None => true,
            Some(inner) => match (from.exprs.get(*inner), into.exprs.get(otherwise)) {
                (a @ Expr::Const(..), b) => a == b,
                _ => false,
            },
        };
        let leaves_operand = |&dim: &usize| {
            index.iter().enumerate().any(|(at, &index)| {
                let (to, stored) = (Linear::of(&from.exprs, index), Linear::of(&from.exprs, site.index[dim]));
                let offset = to.plus(&stored.times(-1)).as_constant();
                // A place that is stored at a constant index does not move the operand's.
                let moves = stored.as_constant().is_none();
                moves && offset.is_some_and(|offset| offset <= 0 && operand[at] as i64 - offset <= shape[dim] as i64)
            })
        };
        (same && outside.iter().all(leaves_operand)).then_some(otherwise)
    }
}

/// Whether each axis is one digit of one index, and the digits reach all of a tensor of this shape: then a store there is to each
/// element in one round.
pub fn is_renumbering(kernel: &Kernel, site: &Site, shape: &[usize]) -> bool {
    let mut seen: Vec<AxisId> = Vec::new();
    let full = site.index.iter().zip(shape).all(|(&index, &extent)| {
        let Some(digits) = axes::digits_of(kernel, index).filter(|_| linear::is_affine(&kernel.exprs, index)) else {
            return false;
        };
        seen.extend(digits.iter().map(|&(axis, _)| axis));
        let reached = digits.iter().map(|&(_, range)| range).product::<usize>();
        Linear::of(&kernel.exprs, index).constant == 0 && reached == extent
    });
    seen.sort();
    full && seen.windows(2).all(|pair| pair[0] != pair[1])
}

/// `0 ≤ index < extent` in these dimensions.
pub fn in_range(kernel: &mut Kernel, dims: &[usize], index: &[ExprId], shape: &[usize]) -> ExprId {
    let zero = kernel.exprs.int(0);
    let mut all: Option<ExprId> = None;
    for &dim in dims {
        let (low, high) = simplify::range(kernel, index[dim]);
        let extent = kernel.exprs.int(shape[dim] as i64);
        let mut conditions = Vec::new();
        if low < 0 {
            conditions.push(kernel.exprs.binary(Binary::Le, zero, index[dim]));
        }
        if high >= shape[dim] as i64 {
            conditions.push(kernel.exprs.binary(Binary::Lt, index[dim], extent));
        }
        for condition in conditions {
            all = Some(all.map_or(condition, |all| kernel.exprs.binary(Binary::And, all, condition)));
        }
    }
    all.unwrap_or_else(|| kernel.exprs.add(Expr::Const(DType::Bool, 1)))
}

/// The kernel without its stores to these buffers, nor the loops that are then empty.
pub fn without_stores(kernel: &Kernel, dead: &BTreeSet<BufferId>) -> Kernel {
    fn prune(body: &mut Vec<Stmt>) {
        body.retain_mut(|stmt| match stmt {
            Stmt::Loop { body, .. } => {
                prune(body);
                !body.is_empty()
            }
            _ => true,
        });
    }
    let mut left = rebuild(kernel, &mut |_, _| None, &mut |_, stored| dead.contains(&stored.buffer).then(Vec::new));
    prune(&mut left.body);
    rebuild(&left, &mut |_, _| None, &mut |_, _| None)
}

/// Two lists of node names as one, each name once.
pub fn joined(first: &[String], second: &[String]) -> Vec<String> {
    let mut names = first.to_vec();
    names.extend(second.iter().filter(|name| !first.contains(name)).cloned());
    names
}
