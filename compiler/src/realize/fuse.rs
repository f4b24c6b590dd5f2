//! Fusion of kernels: three transformations of a program, each named by the kernels it joins.
//!
//! [`Fuser`] holds a program with an index of who reads and writes what. A transformation is first computed (`Err` says why it is
//! not legal, and nothing has changed) and then committed, so that a chooser looks at the result before taking it. Loops of one
//! round are dropped when a program is taken in: an axis of extent 1 relates to no other axis.

mod axes;
mod distribute;
mod epilogue;
mod inline;
mod interior;
mod merge;
mod redirect;
mod rewrite;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use mcc_support::{EntityMap, Error, Result, ensure};

use crate::decisions::Fusion;
use crate::loops::sites;
use crate::loops::{Buffer, BufferId, Kernel, Program, Role, simplify};

/// Carries out fusions in their order.
pub fn fuse(program: &Program, fusions: &[Fusion]) -> Result<Program> {
    let mut fuser = Fuser::new(program);
    for fusion in fusions {
        fuser.apply(fusion)?;
    }
    Ok(fuser.finish())
}

/// What a transformation does to the program; see [`Fuser::commit`].
#[derive(Debug)]
pub struct Change {
    /// Kernels by slot, as they become; `None` for one that goes.
    kernels: Vec<(usize, Option<Kernel>)>,
    /// The second kernel does what the first does.
    joined: Option<(usize, usize)>,
    /// Buffers that change with it.
    pub buffers: Vec<(BufferId, Buffer)>,
}

impl Change {
    /// Of two kernels into one, in the place of the consumer.
    fn fusion(producer: usize, left: Option<Kernel>, consumer: usize, kernel: Kernel) -> Self {
        let kernels = vec![(producer, left), (consumer, Some(kernel))];
        Self { kernels, joined: Some((producer, consumer)), buffers: Vec::new() }
    }

    /// What the kernel in a slot becomes.
    pub fn kernel(&self, slot: usize) -> Option<&Kernel> {
        self.kernels.iter().find(|&&(changed, _)| changed == slot)?.1.as_ref()
    }
}

/// A kernel and what it touches.
#[derive(Clone, Debug)]
struct Slot {
    kernel: Kernel,
    /// Names of the ops in it, for the name that it gets in the end.
    words: Vec<String>,
    reads: BTreeSet<BufferId>,
    writes: BTreeSet<BufferId>,
}

/// A program under fusion. Kernels are known by their slot: the place in the program as it was taken in.
#[derive(Clone, Debug)]
pub struct Fuser {
    program: Program,
    slots: Vec<Option<Slot>>,
    by_name: BTreeMap<String, usize>,
    readers: EntityMap<BufferId, BTreeSet<usize>>,
    writers: EntityMap<BufferId, BTreeSet<usize>>,
    /// Place of each slot in an order that respects what reads what.
    position: Vec<usize>,
}

impl Fuser {
    pub fn new(program: &Program) -> Self {
        let mut rest = program.clone();
        let kernels = std::mem::take(&mut rest.kernels);
        let count = rest.buffers.len();
        let mut fuser = Self {
            program: rest,
            slots: vec![None; kernels.len()],
            by_name: BTreeMap::new(),
            readers: EntityMap::filled(count, BTreeSet::new()),
            writers: EntityMap::filled(count, BTreeSet::new()),
            position: Vec::new(),
        };
        for (slot, kernel) in kernels.into_iter().enumerate() {
            fuser.by_name.insert(kernel.name.clone(), slot);
            let word = kernel.name.split_once('_').map_or(kernel.name.as_str(), |(_, word)| word).to_owned();
            fuser.put(slot, rewrite::drop_unit_axes(&kernel), vec![word]);
        }
        fuser.position = fuser.positions();
        fuser
    }

    pub fn apply(&mut self, fusion: &Fusion) -> Result<()> {
        let change = self.change(fusion).map_err(|error| error.context(format!("in the decision to {fusion}")))?;
        self.commit(change);
        Ok(())
    }

    fn change(&self, fusion: &Fusion) -> Result<Change> {
        match fusion {
            Fusion::Inline { producer, consumer } => self.inline(self.slot(producer)?, self.slot(consumer)?),
            Fusion::Epilogue { producer, consumer } => self.epilogue(self.slot(producer)?, self.slot(consumer)?),
            Fusion::Merge { producer, consumer, depth } => self.merge(self.slot(producer)?, self.slot(consumer)?, *depth),
            Fusion::Interior { producer, consumer } => self.interior(self.slot(producer)?, self.slot(consumer)?),
            Fusion::Redirect { from, to } => self.redirect(self.named(from)?, self.named(to)?),
            Fusion::Distribute { from, consumer } => self.distribute(self.named(from)?, self.slot(consumer)?),
        }
    }

    fn slot(&self, name: &str) -> Result<usize> {
        self.by_name.get(name).copied().ok_or_else(|| {
            Error::new(format!("there is no kernel '{name}'"))
                .help("a fusion names kernels of the lowered program; its result has the consumer's name")
        })
    }

    fn named(&self, name: &str) -> Result<BufferId> {
        let found = self.program.buffers.iter().find(|(_, buffer)| buffer.name == name);
        found.map(|(id, _)| id).ok_or_else(|| Error::new(format!("there is no buffer '{name}'")))
    }

    /// A change, unless it makes an index of which ranges do not tell that it is inside.
    fn provable(&self, change: Change) -> Result<Change> {
        for kernel in change.kernels.iter().filter_map(|(_, kernel)| kernel.as_ref()) {
            for (buffer, index) in sites::sure_accesses(kernel) {
                let Buffer { name, ty, .. } = &self.program.buffers[buffer];
                for (&index, &extent) in index.iter().zip(ty.shape.dims()) {
                    let (low, high) = simplify::range(kernel, index);
                    ensure!(low >= 0 && high < extent as i64, "an index of '{name}' could not be proved to be inside");
                }
            }
        }
        Ok(change)
    }

    /// Slots in an order in which the kernels can run.
    pub fn order(&self) -> Vec<usize> {
        let mut slots: Vec<usize> = (0..self.slots.len()).filter(|&slot| self.slots[slot].is_some()).collect();
        slots.sort_by_key(|&slot| self.position[slot]);
        slots
    }

    /// The kernel in a slot, unless it was fused into another.
    pub fn kernel(&self, slot: usize) -> Option<&Kernel> {
        self.slots[slot].as_ref().map(|slot| &slot.kernel)
    }

    pub fn buffer(&self, buffer: BufferId) -> &Buffer {
        &self.program.buffers[buffer]
    }

    pub fn readers(&self, buffer: BufferId) -> &BTreeSet<usize> {
        &self.readers[buffer]
    }

    pub fn writers(&self, buffer: BufferId) -> &BTreeSet<usize> {
        &self.writers[buffer]
    }

    pub fn reads(&self, slot: usize) -> &BTreeSet<BufferId> {
        &self.filled(slot).reads
    }

    /// Whether nobody needs some elements of a buffer in some run.
    pub fn is_needed_in_part(&self, buffer: BufferId) -> bool {
        self.program.needed.contains_key(&self.program.buffers[buffer].name)
    }

    pub fn writes(&self, slot: usize) -> &BTreeSet<BufferId> {
        &self.filled(slot).writes
    }

    /// Kernels whose results a kernel reads, the last to run first.
    pub fn producers(&self, slot: usize) -> Vec<usize> {
        let producers: BTreeSet<usize> = self.reads(slot).iter().flat_map(|&buffer| &self.writers[buffer]).copied().collect();
        let mut producers: Vec<usize> = producers.into_iter().filter(|&producer| producer != slot).collect();
        producers.sort_by_key(|&producer| Reverse(self.position[producer]));
        producers
    }

    /// Kernels that read what a kernel writes, in the order of their slots.
    pub fn consumers(&self, slot: usize) -> BTreeSet<usize> {
        let mut consumers: BTreeSet<usize> =
            self.writes(slot).iter().flat_map(|&buffer| &self.readers[buffer]).copied().collect();
        consumers.remove(&slot);
        consumers
    }

    fn filled(&self, slot: usize) -> &Slot {
        self.slots[slot].as_ref().expect("the slot of a kernel that was fused into another")
    }

    /// Buffers that the consumer reads and the producer writes.
    fn between(&self, producer: usize, consumer: usize) -> Vec<BufferId> {
        self.writes(producer).intersection(self.reads(consumer)).copied().collect()
    }

    /// Whether someone other than these kernels needs the contents of a buffer.
    fn needed_beyond(&self, buffer: BufferId, kernels: &[usize]) -> bool {
        !matches!(self.program.buffers[buffer].role, Role::Temporary | Role::Local)
            || self.readers[buffer].iter().chain(&self.writers[buffer]).any(|slot| !kernels.contains(slot))
    }

    /// Whether the consumer alone needs what the producer writes.
    fn only_between(&self, buffer: BufferId, producer: usize, consumer: usize) -> bool {
        !self.needed_beyond(buffer, &[producer, consumer]) && !self.readers[buffer].contains(&producer)
    }

    /// Whether a kernel depends on another, directly or through others.
    fn depends(&self, from: usize, to: usize) -> bool {
        self.consumers(from).contains(&to) || self.depends_through_another(from, to)
    }

    /// Whether a third kernel depends on `from` and `to` depends on it.
    fn depends_through_another(&self, from: usize, to: usize) -> bool {
        let mut seen = BTreeSet::new();
        let mut pending: Vec<usize> = self.consumers(from).into_iter().filter(|&slot| slot != to).collect();
        while let Some(slot) = pending.pop() {
            if slot == to {
                return true;
            }
            if self.position[slot] < self.position[to] && seen.insert(slot) {
                pending.extend(self.consumers(slot));
            }
        }
        false
    }

    /// Puts a change into effect.
    pub fn commit(&mut self, change: Change) {
        for (id, buffer) in change.buffers {
            self.program.buffers[id] = buffer;
        }
        let mut words = change.joined.map(|(first, _)| self.filled(first).words.clone()).unwrap_or_default();
        let changed: Vec<usize> = change.kernels.iter().map(|&(slot, _)| slot).collect();
        for (slot, kernel) in change.kernels {
            let old = self.take(slot);
            match kernel {
                Some(kernel) if change.joined.is_some_and(|(_, second)| second == slot) => {
                    words.extend(old.words);
                    self.put(slot, kernel, std::mem::take(&mut words));
                }
                Some(kernel) => self.put(slot, kernel, old.words),
                None => drop(self.by_name.remove(&old.kernel.name)),
            }
        }
        if !changed.into_iter().all(|slot| self.is_in_place(slot)) {
            self.position = self.positions();
        }
    }

    /// Whether the order still runs a kernel after those that it reads from and before those that read from it.
    fn is_in_place(&self, slot: usize) -> bool {
        self.slots[slot].is_none()
            || self.producers_unordered(slot).into_iter().all(|producer| self.position[producer] < self.position[slot])
                && self.consumers(slot).into_iter().all(|consumer| self.position[slot] < self.position[consumer])
    }

    fn put(&mut self, slot: usize, kernel: Kernel, words: Vec<String>) {
        let (reads, writes) = sites::accesses(&kernel);
        for &buffer in &reads {
            self.readers[buffer].insert(slot);
        }
        for &buffer in &writes {
            self.writers[buffer].insert(slot);
        }
        self.slots[slot] = Some(Slot { kernel, words, reads, writes });
    }

    fn take(&mut self, slot: usize) -> Slot {
        let taken = self.slots[slot].take().expect("the slot of a kernel that was fused into another");
        for buffer in &taken.reads {
            self.readers[*buffer].remove(&slot);
        }
        for buffer in &taken.writes {
            self.writers[*buffer].remove(&slot);
        }
        taken
    }

    /// A topological order, the earliest slot first among those that are free to run.
    fn positions(&self) -> Vec<usize> {
        let mut waits_for = vec![0; self.slots.len()];
        let mut ready = BinaryHeap::new();
        for slot in (0..self.slots.len()).filter(|&slot| self.slots[slot].is_some()) {
            waits_for[slot] = self.producers_unordered(slot).len();
            if waits_for[slot] == 0 {
                ready.push(Reverse(slot));
            }
        }
        let mut position = vec![usize::MAX; self.slots.len()];
        let mut next = 0;
        while let Some(Reverse(slot)) = ready.pop() {
            position[slot] = next;
            next += 1;
            for consumer in self.consumers(slot) {
                waits_for[consumer] -= 1;
                if waits_for[consumer] == 0 {
                    ready.push(Reverse(consumer));
                }
            }
        }
        assert_eq!(next, self.slots.iter().flatten().count(), "kernels read each other's results in a circle");
        position
    }

    fn producers_unordered(&self, slot: usize) -> BTreeSet<usize> {
        let mut producers: BTreeSet<usize> = self.reads(slot).iter().flat_map(|&buffer| &self.writers[buffer]).copied().collect();
        producers.remove(&slot);
        producers
    }

    /// The fused program: kernels in an order in which they can run, named after what they compute, without unused buffers.
    pub fn finish(mut self) -> Program {
        self.position = self.positions();
        let order = self.order();
        let mut taken: BTreeSet<String> = order.iter().map(|&slot| self.filled(slot).kernel.name.clone()).collect();
        let mut kernels = Vec::with_capacity(order.len());
        for slot in order {
            let Slot { mut kernel, words, .. } = self.slots[slot].take().expect("slots in order are filled");
            let name = fused_name(&kernel.name, &words);
            if taken.insert(name.clone()) {
                kernel.name = name;
            }
            kernels.push(kernel);
        }
        let mut program = self.program;
        program.kernels = kernels;
        rewrite::compact(&program)
    }
}

/// `k07_relu` of a convolution, an addition and a relu is `k07_conv_add_relu`. Movement is named only where there is nothing else,
/// and long chains are cut.
fn fused_name(name: &str, words: &[String]) -> String {
    const LONGEST: usize = 40;
    const MOVEMENT: [&str; 4] = ["reshape", "transpose", "slice", "broadcast"];
    let Some((number, own)) = name.split_once('_') else { return name.to_owned() };
    let mut fused = number.to_owned();
    let mut last = "";
    for word in words.iter().filter(|word| !MOVEMENT.contains(&word.as_str())) {
        if word != last && fused.len() + word.len() < LONGEST {
            fused = format!("{fused}_{word}");
        }
        last = word;
    }
    if last.is_empty() { format!("{number}_{own}") } else { fused }
}

/// The one kernel that writes a buffer; it must be `producer`.
fn ensure_sole_writer(fuser: &Fuser, buffer: BufferId, producer: usize) -> Result<()> {
    ensure!(
        fuser.writers[buffer].len() == 1 && fuser.writers[buffer].contains(&producer),
        "buffer '{}' is written by several kernels",
        fuser.program.buffers[buffer].name
    );
    Ok(())
}
