//! The producer stores into the interior of the padded buffer itself, and the consumer only fills the border:
//!
//! ```text
//! for i in 0..8 { t[i] = f(i) }   for j in 0..10 { y[j] = t[j - 1] or 0 }
//!     → for i in 0..8 { y[i + 1] = f(i) }   y[0] = 0; y[9] = 0
//! ```

use std::collections::BTreeSet;

use mcc_support::{Result, bail, ensure};

use super::epilogue::put_after;
use super::rewrite::{Copier, Load, Loops, fresh_axis, rebuild, shell, simplify};
use super::{Change, Fuser, ensure_sole_writer};
use crate::loops::linear::Linear;
use crate::loops::sites::{self, Site};
use crate::loops::{AxisId, Binary, BufferId, Expr, Kernel, Stmt};

/// What a padding kernel does.
struct Padding {
    from: BufferId,
    to: BufferId,
    /// For each dimension its loop, and elements before, inside and after; no loop where there is one element.
    dims: Vec<(Option<AxisId>, [usize; 3])>,
}

impl Fuser {
    /// Lets the producer store where a kernel that pads with a constant would copy to.
    pub fn interior(&self, producer: usize, consumer: usize) -> Result<Change> {
        let (from, to) = (&self.filled(producer).kernel, &self.filled(consumer).kernel);
        ensure!(producer != consumer, "'{}' cannot store for itself", to.name);
        let padding = self.padding(to)?;
        ensure_sole_writer(self, padding.from, producer)?;
        let site = self.store(from, padding.from)?;
        let mut kernel = rebuild(from, &mut |_, _| None, &mut |_, _| None);
        let Site { index, value, .. } = sites::only_store(&kernel, site.buffer).expect("a copy stores as the kernel does");
        let mut moved = Vec::with_capacity(index.len());
        for (index, &(_, [before, ..])) in index.into_iter().zip(&padding.dims) {
            let before = kernel.exprs.int(before as i64);
            let sum = kernel.exprs.binary(Binary::Add, index, before);
            moved.push(simplify(&mut kernel, sum));
        }
        let store = Stmt::Store { buffer: padding.to, index: moved, value, guard: None };
        let between = BTreeSet::from([padding.from]);
        let dead = if self.only_between(padding.from, producer, consumer) { between.clone() } else { BTreeSet::new() };
        put_after(&mut kernel.body, &between, &dead, &[store]);
        let kernels = vec![(producer, Some(kernel)), (consumer, Some(border(to, &padding)))];
        self.provable(Change { kernels, joined: None, buffers: Vec::new() })
    }

    fn padding(&self, kernel: &Kernel) -> Result<Padding> {
        let name = format!("'{}' does not just pad with a constant", kernel.name);
        let sites = sites::elementwise(kernel).unwrap_or_default();
        let [site] = &sites[..] else { bail!("{name}") };
        let Expr::Load { buffer, index, otherwise: Some(otherwise), .. } = kernel.exprs.get(site.value) else { bail!("{name}") };
        ensure!(matches!(kernel.exprs.get(*otherwise), Expr::Const(..)), "{name}");
        let (inner, outer) = (&self.buffer(*buffer).ty.shape, &self.buffer(site.buffer).ty.shape);
        ensure!(inner.rank() == outer.rank(), "{name}");
        let mut dims = Vec::with_capacity(index.len());
        for (dim, (&loaded, &stored)) in index.iter().zip(&site.index).enumerate() {
            let (loaded, at) = (Linear::of(&kernel.exprs, loaded), Linear::of(&kernel.exprs, stored));
            let before = at.plus(&loaded.times(-1)).as_constant().and_then(|before| usize::try_from(before).ok());
            let after = before.and_then(|before| outer[dim].checked_sub(before + inner[dim]));
            let (Some(before), Some(after)) = (before, after) else { bail!("{name}") };
            let axis = match *kernel.exprs.get(stored) {
                Expr::Axis(axis) if kernel.axes[axis].extent == outer[dim] => Some(axis),
                Expr::Const(..) if outer[dim] == 1 => None,
                _ => bail!("{name}"),
            };
            dims.push((axis, [before, inner[dim], after]));
        }
        ensure!(dims.iter().filter(|(axis, _)| axis.is_some()).count() == site.path.len(), "{name}");
        Ok(Padding { from: *buffer, to: site.buffer, dims })
    }
}

/// The padding kernel for the elements outside of the interior alone: for each dimension those before and those after, of the
/// interior in the dimensions before it and of all in those behind it.
fn border(kernel: &Kernel, padding: &Padding) -> Kernel {
    let mut copy = shell(kernel);
    for dim in 0..padding.dims.len() {
        let (_, [before, inside, after]) = padding.dims[dim];
        for (start, count) in [(0, before), (before + inside, after)] {
            if count == 0 {
                continue;
            }
            let mut outside = |_: &mut Kernel, load: &Load| load.otherwise.filter(|_| load.buffer == padding.from);
            let mut copier = Copier::new(kernel, &mut outside);
            for (other, &(axis, [before, inside, after])) in padding.dims.iter().enumerate() {
                let Some(axis) = axis else { continue };
                let (start, count) = match other.cmp(&dim) {
                    std::cmp::Ordering::Less => (before, inside),
                    std::cmp::Ordering::Equal => (start, count),
                    std::cmp::Ordering::Greater => (0, before + inside + after),
                };
                let loops = part(&mut copy, kernel, axis, start, count);
                copier.axes.insert(axis, loops);
            }
            let body = copier.stmts(&mut copy, &kernel.body, &mut |_, _| None);
            copy.body.extend(body);
        }
    }
    copy
}

/// Rounds `start..start + count` of an axis.
fn part(copy: &mut Kernel, kernel: &Kernel, axis: AxisId, start: usize, count: usize) -> Loops {
    let start = copy.exprs.int(start as i64);
    if count == 1 {
        return Loops { loops: Vec::new(), value: start };
    }
    let axis = fresh_axis(copy, crate::loops::Axis { extent: count, ..kernel.axes[axis].clone() });
    let round = copy.exprs.axis(axis);
    let value = copy.exprs.binary(Binary::Add, round, start);
    Loops { loops: vec![axis], value: simplify(copy, value) }
}
