//! A kernel stores the same values to two buffers: whoever reads the one reads the other, which makes the first a view of it:
//!
//! ```text
//! for i { t[i] = f(i); y[i + 4] = f(i) }   for j { z[j] = t[j] * t[j] }
//!     → for i { y[i + 4] = f(i) }   for j { z[j] = y[j + 4] * y[j + 4] }
//! ```

use std::collections::BTreeSet;

use mcc_support::{Result, bail, ensure};

use super::inline::{is_renumbering, without_stores};
use super::rewrite::{Copier, Load, rebuild};
use super::{Change, Fuser, axes};
use crate::loops::sites::Site;
use crate::loops::{BufferId, Expr, ExprId, Kernel, Role};

impl Fuser {
    /// Lets the readers of `from` read the same elements in `to`.
    pub fn redirect(&self, from: BufferId, to: BufferId) -> Result<Change> {
        let (old, new) = (&self.buffer(from).name, &self.buffer(to).name);
        let writers: Vec<usize> = self.writers[from].iter().copied().collect();
        let [writer] = writers[..] else { bail!("'{old}' is written by several kernels") };
        ensure!(self.buffer(from).role == Role::Temporary && from != to, "'{old}' has to stay");
        ensure!(self.buffer(to).role != Role::Local, "'{new}' does not outlive its kernel");
        ensure!(self.buffer(to).role != Role::Shared, "'{new}' is stored to again elsewhere");
        let kernel = &self.filled(writer).kernel;
        let (site, other) = (self.store(kernel, from)?, self.store(kernel, to)?);
        ensure!(
            site.value == other.value && site.path == other.path && !self.readers[from].contains(&writer),
            "'{}' does not store the same values to '{old}' and '{new}'",
            kernel.name
        );
        ensure!(is_renumbering(kernel, &site, &self.buffer(from).ty.shape), "'{old}' is not stored in the order of the loops");
        for &reader in &self.readers[from] {
            let waits = self.writers[to].iter().any(|&other| other != writer && (other == reader || self.depends(reader, other)));
            ensure!(!waits, "parts of '{new}' are computed from '{old}'");
        }
        let mut kernels = vec![(writer, Some(without_stores(kernel, &BTreeSet::from([from]))))];
        for &reader in &self.readers[from] {
            kernels.push((reader, Some(redirected(kernel, &site, &other, &self.filled(reader).kernel)?)));
        }
        self.provable(Change { kernels, joined: None, buffers: Vec::new() })
    }
}

/// The reader, loading what `other` stores instead of what `site` does.
fn redirected(writer: &Kernel, site: &Site, other: &Site, reader: &Kernel) -> Result<Kernel> {
    let mut failure = None;
    let index = |into: &mut Kernel, load: &Load| -> Result<Vec<ExprId>> {
        ensure!(load.otherwise.is_none(), "'{}' also reads outside of the buffer", reader.name);
        let values = axes::solve(writer, &site.path, &site.index, into, load.index)?;
        let mut keep = |_: &mut Kernel, _: &Load| None;
        let mut copier = Copier::new(writer, &mut keep);
        values.into_iter().for_each(|(axis, value)| copier.replace_axis(axis, value));
        Ok(other.index.iter().map(|&index| copier.index(into, index)).collect())
    };
    let kernel = rebuild(
        reader,
        &mut |into, load| {
            if load.buffer != site.buffer {
                return None;
            }
            match index(into, load) {
                Ok(index) => Some(into.exprs.add(Expr::Load { buffer: other.buffer, index, otherwise: None, dtype: load.dtype })),
                Err(error) => {
                    failure.get_or_insert(error);
                    None
                }
            }
        },
        &mut |_, _| None,
    );
    failure.map_or(Ok(kernel), Err)
}
