//! The consumer's elementwise work is done on the producer's result before it is stored:
//!
//! ```text
//! for i { a = 0; for k { a = a + x[i, k] * w[k] }; t[i] = a }   for j { y[j] = max(t[j], 0) }
//!     → for i { a = 0; for k { a = a + x[i, k] * w[k] }; y[i] = max(a, 0) }
//! ```

use std::collections::{BTreeMap, BTreeSet};

use mcc_support::{Result, bail, ensure};

use super::inline::joined;
use super::rewrite::{Copier, Load, Loops, fresh_axis, shell};
use super::{Change, Fuser, axes, ensure_sole_writer};
use crate::loops::linear;
use crate::loops::sites::{self, Site};
use crate::loops::{Axis, AxisId, AxisKind, Binary, BufferId, Expr, ExprId, Kernel, Stmt, simplify};

impl Fuser {
    /// Joins an elementwise consumer, each of whose rounds reads one element of the producer's, to the store of that element.
    pub fn epilogue(&self, producer: usize, consumer: usize) -> Result<Change> {
        let (from, to) = (&self.filled(producer).kernel, &self.filled(consumer).kernel);
        let between = self.between(producer, consumer);
        ensure!(!between.is_empty() && producer != consumer, "'{}' does not read what '{}' writes", to.name, from.name);
        let Some(uses) = sites::elementwise(to) else { bail!("'{}' is not elementwise", to.name) };
        ensure!(!uses.is_empty(), "'{}' stores nothing", to.name);
        ensure!(
            !self.depends_through_another(producer, consumer),
            "'{}' also reads what is computed from the result of '{}' elsewhere",
            to.name,
            from.name
        );
        let index_of = load_indices(to, &between)?;
        for &buffer in &between {
            ensure_sole_writer(self, buffer, producer)?;
            let site = self.store(from, buffer)?;
            let elements = self.buffer(buffer).ty.shape.count();
            let rounds = (sites::rounds(from, &site.path), sites::rounds(to, &uses[0].path));
            ensure!(rounds == (elements, elements), "'{}' does not read each element of '{}' once", to.name, from.name);
        }
        let mut kernel = split_for(from, to, &self.sites(from, &between)?, &index_of);
        let sites = self.sites(&kernel, &between)?;
        let stores = stores_in_terms(&mut kernel, to, &uses, &sites, &index_of)?;
        let dead: BTreeSet<BufferId> =
            between.iter().copied().filter(|&buffer| self.only_between(buffer, producer, consumer)).collect();
        let between: BTreeSet<BufferId> = between.into_iter().collect();
        ensure!(
            put_after(&mut kernel.body, &between, &dead, &stores),
            "'{}' does not store the elements that '{}' reads together",
            from.name,
            to.name
        );
        kernel.origins = joined(&from.origins, &to.origins);
        kernel.name = to.name.clone();
        self.provable(Change::fusion(producer, None, consumer, kernel))
    }

    pub(super) fn store(&self, kernel: &Kernel, buffer: BufferId) -> Result<Site> {
        let name = &self.buffer(buffer).name;
        let Some(site) = sites::only_store(kernel, buffer) else {
            bail!("'{}' does not store to '{name}' in one place under loops alone", kernel.name);
        };
        let spatial = site.path.iter().all(|&axis| kernel.axes[axis].kind == AxisKind::Spatial);
        ensure!(spatial, "'{}' stores to '{name}' inside a reduction", kernel.name);
        Ok(site)
    }

    pub(super) fn sites(&self, kernel: &Kernel, buffers: &[BufferId]) -> Result<BTreeMap<BufferId, Site>> {
        buffers.iter().map(|&buffer| Ok((buffer, self.store(kernel, buffer)?))).collect()
    }
}

/// The index at which a kernel loads each of these buffers.
pub fn load_indices(kernel: &Kernel, buffers: &[BufferId]) -> Result<BTreeMap<BufferId, Vec<ExprId>>> {
    let mut indices: BTreeMap<BufferId, Vec<ExprId>> = BTreeMap::new();
    for load in sites::loads(kernel) {
        if let Expr::Load { buffer, index, .. } = kernel.exprs.get(load)
            && buffers.contains(buffer)
        {
            let first = indices.entry(*buffer).or_insert_with(|| index.clone());
            ensure!(first == index, "'{}' reads several elements in one round", kernel.name);
        }
    }
    Ok(indices)
}

/// A copy of `from` in which an axis is split where the consumer splits the dimension that it stores along: `t[c]` read as
/// `t[h * 64 + d]`. Names of the parts are the consumer's.
pub fn split_for(
    from: &Kernel,
    to: &Kernel,
    sites: &BTreeMap<BufferId, Site>,
    index_of: &BTreeMap<BufferId, Vec<ExprId>>,
) -> Kernel {
    let mut copy = shell(from);
    let mut keep = |_: &mut Kernel, _: &Load| None;
    let mut copier = Copier::new(from, &mut keep);
    for (buffer, site) in sites {
        for (&stored, &loaded) in site.index.iter().zip(&index_of[buffer]) {
            let Expr::Axis(axis) = *from.exprs.get(stored) else { continue };
            let Some(parts) = axes::digits_of(to, loaded) else { continue };
            let extents = parts.iter().map(|&(_, extent)| extent);
            if parts.len() > 1 && extents.product::<usize>() == from.axes[axis].extent && !copier.axes.contains_key(&axis) {
                let loops = split(&mut copy, from, axis, to, &parts);
                copier.axes.insert(axis, loops);
            }
        }
    }
    copy.body = copier.stmts(&mut copy, &from.body, &mut |_, _| None);
    copy
}

fn split(copy: &mut Kernel, from: &Kernel, axis: AxisId, to: &Kernel, parts: &[(AxisId, usize)]) -> Loops {
    let (mut loops, mut value) = (Vec::new(), copy.exprs.int(0));
    for &(named, extent) in parts {
        let name = to.axes[named].name.clone();
        let part = fresh_axis(copy, Axis { name, extent, ..from.axes[axis].clone() });
        let (extent, round) = (copy.exprs.int(extent as i64), copy.exprs.axis(part));
        value = copy.exprs.binary(Binary::Mul, value, extent);
        value = copy.exprs.binary(Binary::Add, value, round);
        loops.push(part);
    }
    Loops { loops, value }
}

/// The consumer's stores in terms of the producer's axes, with loads of the producer's elements replaced by what it stores.
pub fn stores_in_terms(
    kernel: &mut Kernel,
    to: &Kernel,
    uses: &[Site],
    sites: &BTreeMap<BufferId, Site>,
    index_of: &BTreeMap<BufferId, Vec<ExprId>>,
) -> Result<Vec<Stmt>> {
    let (first, indices) = index_of.first_key_value().expect("the consumer loads what is between");
    let values = axes::solve(to, &uses[0].path, indices, kernel, &sites[first].index)?;
    for (&axis, &value) in &values {
        let (low, high) = simplify::range(kernel, value);
        ensure!(
            low >= 0 && high < to.axes[axis].extent as i64,
            "the elements that '{}' reads are not told by its axis '{}'",
            to.name,
            to.axes[axis].name
        );
    }
    let mut same = true;
    let mut stored = |_: &mut Kernel, load: &Load| {
        let site = sites.get(&load.buffer)?;
        same &= site.index == load.index;
        Some(site.value)
    };
    let mut copier = Copier::new(to, &mut stored);
    for (axis, value) in values {
        copier.replace_axis(axis, value);
    }
    let mut stores = Vec::with_capacity(uses.len());
    for site in uses {
        let index: Vec<ExprId> = site.index.iter().map(|&index| copier.index(kernel, index)).collect();
        let affine = index.iter().all(|&index| linear::is_affine(&kernel.exprs, index));
        ensure!(affine, "'{}' would store at an index that is not a sum of axes", to.name);
        let value = copier.expr(kernel, site.value);
        stores.push(Stmt::Store { buffer: site.buffer, index, value, guard: None });
    }
    ensure!(same, "'{}' does not read the elements in one order", to.name);
    Ok(stores)
}

/// Puts statements behind the last of the stores to buffers `between`, and takes away those to `dead` ones. False where these
/// stores do not follow one another.
pub fn put_after(body: &mut Vec<Stmt>, between: &BTreeSet<BufferId>, dead: &BTreeSet<BufferId>, stores: &[Stmt]) -> bool {
    let is_between = |stmt: &Stmt| matches!(stmt, Stmt::Store { buffer, .. } if between.contains(buffer));
    let places: Vec<usize> = (0..body.len()).filter(|&at| is_between(&body[at])).collect();
    let (Some(&first), Some(&last)) = (places.first(), places.last()) else {
        return body.iter_mut().any(|stmt| match stmt {
            Stmt::Loop { body, .. } => put_after(body, between, dead, stores),
            _ => false,
        });
    };
    if places.len() != between.len() || !body[first..=last].iter().all(|stmt| matches!(stmt, Stmt::Store { .. })) {
        return false;
    }
    body.splice(last + 1..last + 1, stores.iter().cloned());
    body.retain(|stmt| !matches!(stmt, Stmt::Store { buffer, .. } if dead.contains(buffer)));
    true
}
