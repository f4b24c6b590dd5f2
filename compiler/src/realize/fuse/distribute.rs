//! Kernels that store parts of one buffer each do a consumer's elementwise work on their part:
//!
//! ```text
//! for i { t[i] = f(i) }   for i { t[i + 4] = g(i) }   for j { y[j] = max(t[j], 0) }
//!     → for i { y[i] = max(f(i), 0) }   for i { y[i + 4] = max(g(i), 0) }
//! ```

use std::collections::BTreeSet;

use mcc_support::{Result, bail, ensure};

use super::epilogue::{load_indices, put_after, split_for, stores_in_terms};
use super::inline::joined;
use super::{Change, Fuser};
use crate::loops::sites;
use crate::loops::{BufferId, Kernel};

impl Fuser {
    /// Lets the kernels that write `from` store what the consumer makes of it; the consumer goes, and `from`, too.
    pub fn distribute(&self, from: BufferId, consumer: usize) -> Result<Change> {
        let to = &self.filled(consumer).kernel;
        let name = &self.buffer(from).name;
        let Some(uses) = sites::elementwise(to) else { bail!("'{}' is not elementwise", to.name) };
        ensure!(!uses.is_empty() && self.reads(consumer).contains(&from), "'{}' does not read '{name}'", to.name);
        let writers: Vec<usize> = self.writers[from].iter().copied().collect();
        let mut ours = writers.clone();
        ours.push(consumer);
        let is_private = !self.needed_beyond(from, &ours) && self.readers[from].iter().eq([&consumer]);
        ensure!(is_private && !writers.contains(&consumer), "'{name}' has other readers");
        // The parts must be able to wait for all else that the consumer reads.
        for &other in self.reads(consumer).iter().filter(|&&other| other != from) {
            for &needed in &self.writers[other] {
                let late = writers.iter().any(|&writer| writer == needed || self.depends(writer, needed));
                ensure!(!late, "'{}' also reads what is computed from parts of '{name}'", to.name);
            }
        }
        let mut rounds = 0;
        let mut kernels = Vec::with_capacity(ours.len());
        for &writer in &writers {
            let kernel = &self.filled(writer).kernel;
            rounds += sites::rounds(kernel, &self.store(kernel, from)?.path);
            kernels.push((writer, Some(self.part(kernel, to, &uses, from)?)));
        }
        let elements = self.buffer(from).ty.shape.count();
        ensure!(
            rounds == elements && sites::rounds(to, &uses[0].path) == elements,
            "'{}' does not read each element of '{name}' once",
            to.name
        );
        kernels.push((consumer, None));
        self.provable(Change { kernels, joined: None, buffers: Vec::new() })
    }

    /// A writer of a part, doing the consumer's work on it.
    fn part(&self, writer: &Kernel, to: &Kernel, uses: &[sites::Site], from: BufferId) -> Result<Kernel> {
        let index_of = load_indices(to, &[from])?;
        let mut kernel = split_for(writer, to, &self.sites(writer, &[from])?, &index_of);
        let sites = self.sites(&kernel, &[from])?;
        let stores = stores_in_terms(&mut kernel, to, uses, &sites, &index_of)?;
        let only = BTreeSet::from([from]);
        ensure!(put_after(&mut kernel.body, &only, &only, &stores), "'{}' does not store its part in one place", writer.name);
        kernel.origins = joined(&writer.origins, &to.origins);
        Ok(kernel)
    }
}
