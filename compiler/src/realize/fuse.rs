//! Fusion of kernels: three transformations of a program, each named by the kernels it joins.
//!
//! [`Fuser`] holds a program with an index of who reads and writes what. A transformation is first computed (`Err` says why it is
//! not legal, and nothing has changed) and then committed, so that a chooser looks at the result before taking it. Kernels of one
//! region are fused; for those around it a region is one kernel that cannot be fused. Loops of one round are dropped when a program is taken in: an axis of extent 1 relates to no other axis.

mod axes;
mod distribute;
mod epilogue;
mod inline;
mod interior;
mod merge;
mod redirect;
pub(super) mod rewrite;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use mcc_support::{DType, EntityMap, Error, Result, ensure};

use crate::decisions::Fusion;
use crate::loops::sites;
use crate::loops::{Buffer, BufferId, Expr, Kernel, Program, RegionId, Role, Stmt, simplify};

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
    /// For a region, its name and an empty loop.
    kernel: Kernel,
    /// What it stands for, where that is all kernels of a region inside of its own.
    inner: Option<RegionId>,
    /// Names of the ops in it, for the name that it gets in the end.
    words: Vec<String>,
    reads: BTreeSet<BufferId>,
    writes: BTreeSet<BufferId>,
}

/// A program under fusion. Kernels are known by their slot: the place in the program as it was taken in.
#[derive(Clone, Debug)]
pub struct Fuser {
    program: Program,
    /// Those of the kernels, then one for each region.
    slots: Vec<Option<Slot>>,
    /// They stay at the ends of their loops.
    latches: Vec<Kernel>,
    by_name: BTreeMap<String, usize>,
    readers: EntityMap<BufferId, BTreeSet<usize>>,
    writers: EntityMap<BufferId, BTreeSet<usize>>,
    /// Place of each slot in an order that respects what reads what.
    position: Vec<usize>,
}

impl Fuser {
    pub fn new(program: &Program) -> Self {
        let mut rest = program.clone();
        let (latches, kernels): (Vec<Kernel>, Vec<Kernel>) =
            std::mem::take(&mut rest.kernels).into_iter().partition(|kernel| kernel.latch);
        let count = rest.buffers.len();
        let regions: Vec<Slot> = program.regions.keys().map(|region| region_slot(program, region)).collect();
        let mut fuser = Self {
            program: rest,
            slots: vec![None; kernels.len() + regions.len()],
            latches,
            by_name: BTreeMap::new(),
            readers: EntityMap::filled(count, BTreeSet::new()),
            writers: EntityMap::filled(count, BTreeSet::new()),
            position: Vec::new(),
        };
        let first_region = kernels.len();
        for (slot, kernel) in kernels.into_iter().enumerate() {
            fuser.by_name.insert(kernel.name.clone(), slot);
            let word = kernel.name.split_once('_').map_or(kernel.name.as_str(), |(_, word)| word).to_owned();
            fuser.put_kernel(slot, rewrite::drop_unit_axes(&kernel), vec![word]);
        }
        for (at, slot) in regions.into_iter().enumerate() {
            fuser.put(first_region + at, slot);
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

    /// That these are kernels of one region.
    fn together(&self, slots: &[usize]) -> Result<()> {
        for &slot in slots {
            let together = self.filled(slot).inner.is_none() && self.region(slot) == self.region(slots[0]);
            ensure!(together, "'{}' is in another region", self.filled(slot).kernel.name);
        }
        Ok(())
    }

    /// A change, unless it reaches beyond a region or makes an index of which ranges do not tell that it is inside.
    fn provable(&self, change: Change) -> Result<Change> {
        self.together(&change.kernels.iter().map(|&(slot, _)| slot).collect::<Vec<_>>())?;
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
        let is_kernel = |&slot: &usize| self.slots[slot].as_ref().is_some_and(|slot| slot.inner.is_none());
        let mut slots: Vec<usize> = (0..self.slots.len()).filter(is_kernel).collect();
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

    pub fn buffers(&self) -> &EntityMap<BufferId, Buffer> {
        &self.program.buffers
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

    /// Kernels of its region whose results a kernel reads, the last to run first.
    pub fn producers(&self, slot: usize) -> Vec<usize> {
        let mut producers: Vec<usize> = self.producers_unordered(slot).into_iter().collect();
        producers.sort_by_key(|&producer| Reverse(self.position[producer]));
        producers
    }

    /// Kernels of its region that read what a kernel writes, in the order of their slots.
    pub fn consumers(&self, slot: usize) -> BTreeSet<usize> {
        self.others_of_region(slot, self.writes(slot).iter().flat_map(|&buffer| &self.readers[buffer]))
    }

    fn others_of_region<'s>(&self, slot: usize, slots: impl Iterator<Item = &'s usize>) -> BTreeSet<usize> {
        slots.copied().filter(|&other| other != slot && self.region(other) == self.region(slot)).collect()
    }

    fn region(&self, slot: usize) -> Option<RegionId> {
        self.filled(slot).kernel.region
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
                    self.put_kernel(slot, kernel, std::mem::take(&mut words));
                }
                Some(kernel) => self.put_kernel(slot, kernel, old.words),
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

    fn put_kernel(&mut self, slot: usize, kernel: Kernel, words: Vec<String>) {
        let (reads, writes) = sites::accesses(&kernel);
        self.put(slot, Slot { kernel, inner: None, words, reads, writes });
    }

    fn put(&mut self, at: usize, slot: Slot) {
        for &buffer in &slot.reads {
            self.readers[buffer].insert(at);
        }
        for &buffer in &slot.writes {
            self.writers[buffer].insert(at);
        }
        self.slots[at] = Some(slot);
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
        self.others_of_region(slot, self.reads(slot).iter().flat_map(|&buffer| &self.writers[buffer]))
    }

    /// The fused program: kernels in an order in which they can run, named after what they compute, without unused buffers.
    pub fn finish(mut self) -> Program {
        self.position = self.positions();
        let mut taken: BTreeSet<String> = self.order().iter().map(|&slot| self.filled(slot).kernel.name.clone()).collect();
        let mut kernels = Vec::with_capacity(self.slots.len());
        self.finish_region(None, &mut taken, &mut kernels);
        let mut program = self.program;
        program.kernels = kernels;
        rewrite::compact(&program)
    }

    /// Takes the kernels of a region, those of regions in it in their places.
    fn finish_region(&mut self, region: Option<RegionId>, taken: &mut BTreeSet<String>, kernels: &mut Vec<Kernel>) {
        let in_region = |&slot: &usize| self.slots[slot].as_ref().is_some_and(|filled| filled.kernel.region == region);
        let mut slots: Vec<usize> = (0..self.slots.len()).filter(in_region).collect();
        slots.sort_by_key(|&slot| self.position[slot]);
        for slot in slots {
            let Slot { mut kernel, inner, words, .. } = self.slots[slot].take().expect("slots in order are filled");
            if inner.is_some() {
                self.finish_region(inner, taken, kernels);
                continue;
            }
            let name = fused_name(&kernel.name, &words);
            if taken.insert(name.clone()) {
                kernel.name = name;
            }
            kernels.push(kernel);
        }
        if region.is_some() {
            kernels.extend(self.latches.iter().filter(|latch| latch.region == region).cloned());
        }
    }
}

/// A region as a kernel that touches what its kernels and those around it do.
fn region_slot(program: &Program, region: RegionId) -> Slot {
    let mut kernel = Kernel { region: program.regions[region].parent, ..Kernel::new(format!("region {region}")) };
    let never = kernel.exprs.add(Expr::Const(DType::Bool, 0));
    kernel.body = vec![Stmt::While { cond: never, body: Vec::new() }];
    let (mut reads, mut writes) = (BTreeSet::from([program.regions[region].kind.condition()]), BTreeSet::new());
    for inside in program.kernels.iter().filter(|kernel| program.region_path(kernel.region).contains(&region)) {
        let (read, written) = sites::accesses(inside);
        reads.extend(read);
        writes.extend(written);
    }
    // What it writes itself it does not wait for, as the other side of a branch writes it, too; but what it adds to must be there.
    // The status is stored to in any order.
    reads.retain(|buffer| !writes.contains(buffer));
    let ordered: BTreeSet<BufferId> =
        writes.iter().copied().filter(|&buffer| program.buffers[buffer].role != Role::Status).collect();
    for outside in program.kernels.iter().filter(|outside| outside.region == kernel.region && !outside.latch) {
        reads.extend(sites::accesses(outside).1.intersection(&ordered));
    }
    for touched in [&mut reads, &mut writes] {
        touched.retain(|&buffer| !matches!(program.buffers[buffer].role, Role::Temporary | Role::Local));
    }
    Slot { kernel, inner: Some(region), words: Vec::new(), reads, writes }
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
