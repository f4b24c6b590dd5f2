//! The order in which kernels run: the one that keeps least alive at once, of a few.

use std::collections::BTreeSet;

use mcc_support::EntityMap;

use crate::loops::regions::Item;
use crate::loops::sites;
use crate::loops::{BufferId, Program, Role};

/// Names of the kernels in the order chosen: that of the program, or one found by always running the kernel after which least is
/// live, where that lowers the peak. What needs nothing that is computed (the borders of padded buffers) runs when it is needed. A
/// region runs as a whole; the latches of a loop end it, as they stand.
pub fn choose(program: &Program) -> Vec<String> {
    let mut order = Vec::with_capacity(program.kernels.len());
    choose_items(program, &program.items(), &mut order);
    order.into_iter().map(|kernel| program.kernels[kernel].name.clone()).collect()
}

fn choose_items(program: &Program, items: &[Item], order: &mut Vec<usize>) {
    let is_latch = |item: &&Item| matches!(item, Item::Kernel(kernel) if program.kernels[*kernel].latch);
    let latches = items.iter().filter(is_latch).count();
    let (units, latches) = items.split_at(items.len() - latches);
    let graph = Dependences::of(program, units);
    let candidates = [graph.greedy(Greed::First), graph.greedy(Greed::Live), graph.greedy(Greed::Peak)];
    // The first of equals: where nothing is won, the order of the model.
    let best = candidates.iter().min_by_key(|order| graph.peak(order)).expect("there are candidates");
    for item in best.iter().map(|&unit| &units[unit]).chain(latches) {
        match item {
            Item::Kernel(kernel) => order.push(*kernel),
            Item::Region(_, items) => choose_items(program, items, order),
        }
    }
}

/// Buffers that kernels at a place read and write, with the conditions of their regions.
fn accesses(program: &Program, item: &Item) -> (BTreeSet<BufferId>, BTreeSet<BufferId>) {
    match item {
        Item::Kernel(kernel) => sites::accesses(&program.kernels[*kernel]),
        Item::Region(region, items) => {
            let mut all = (BTreeSet::from([program.regions[*region].kind.condition()]), BTreeSet::new());
            for (reads, writes) in items.iter().map(|item| accesses(program, item)) {
                all.0.extend(reads);
                all.1.extend(writes);
            }
            all
        }
    }
}

/// What counts for the next kernel to run.
#[derive(Clone, Copy)]
enum Greed {
    /// Its place in the program.
    First,
    /// What is live after it.
    Live,
    /// What is live while it runs, then after it.
    Peak,
}

/// Of the kernels and regions of one region.
struct Dependences {
    /// Buffers in the arena that each touches.
    touches: Vec<BTreeSet<BufferId>>,
    /// Kernels that must run before each.
    before: Vec<BTreeSet<usize>>,
    after: Vec<BTreeSet<usize>>,
    sizes: EntityMap<BufferId, usize>,
}

impl Dependences {
    fn of(program: &Program, units: &[Item]) -> Self {
        let accesses: Vec<_> = units.iter().map(|unit| accesses(program, unit)).collect();
        let count = accesses.len();
        let mut graph = Dependences {
            touches: vec![BTreeSet::new(); count],
            before: vec![BTreeSet::new(); count],
            after: vec![BTreeSet::new(); count],
            sizes: program.buffers.iter().map(|(_, buffer)| buffer.ty.size_bytes()).collect(),
        };
        let mut touched_by: EntityMap<BufferId, Vec<(usize, bool)>> = EntityMap::filled(program.buffers.len(), Vec::new());
        for (kernel, (reads, writes)) in accesses.iter().enumerate() {
            for &buffer in reads.union(writes) {
                let is_write = writes.contains(&buffer);
                // Reads stay behind the writes before them, and before those after them; so do writes to what other regions touch.
                let ordered = reads.contains(&buffer) || program.buffers[buffer].role == Role::Shared;
                for &(other, _) in touched_by[buffer].iter().filter(|&&(_, wrote)| wrote != is_write || (wrote && ordered)) {
                    graph.before[kernel].insert(other);
                    graph.after[other].insert(kernel);
                }
                touched_by[buffer].push((kernel, is_write));
                if matches!(program.buffers[buffer].role, Role::Temporary | Role::Shared | Role::Local) {
                    graph.touches[kernel].insert(buffer);
                }
            }
        }
        graph
    }

    /// Bytes live while the most are.
    fn peak(&self, order: &[usize]) -> usize {
        let mut state = State::new(self);
        order.iter().map(|&kernel| state.run(self, kernel)).max().unwrap_or(0)
    }

    fn greedy(&self, greed: Greed) -> Vec<usize> {
        let count = self.before.len();
        let is_source = |kernel: usize| self.before[kernel].is_empty();
        let mut waits_for: Vec<usize> =
            self.before.iter().map(|before| before.iter().filter(|&&kernel| !is_source(kernel)).count()).collect();
        let mut ready: BTreeSet<usize> = (0..count).filter(|&kernel| waits_for[kernel] == 0 && !is_source(kernel)).collect();
        let mut state = State::new(self);
        let mut order = Vec::with_capacity(count);
        let mut done = vec![false; count];
        // A kernel behind the sources that it is the first to need.
        let with_sources = |kernel: usize, done: &[bool]| -> Vec<usize> {
            let missing = self.before[kernel].iter().copied().filter(|&source| is_source(source) && !done[source]);
            missing.chain([kernel]).collect()
        };
        while let Some(kernel) = ready.iter().copied().min_by_key(|&kernel| {
            let (during, after) = state.cost(self, &with_sources(kernel, &done));
            match greed {
                Greed::First => (kernel, 0, 0),
                Greed::Live => (after, during, kernel),
                Greed::Peak => (during, after, kernel),
            }
        }) {
            ready.remove(&kernel);
            for next in with_sources(kernel, &done) {
                state.run(self, next);
                done[next] = true;
                order.push(next);
            }
            for &next in &self.after[kernel] {
                waits_for[next] -= 1;
                if waits_for[next] == 0 {
                    ready.insert(next);
                }
            }
        }
        // Sources that no kernel needs.
        order.extend((0..count).filter(|&kernel| is_source(kernel) && !done[kernel]));
        assert_eq!(order.len(), count, "kernels wait for each other in a circle");
        order
    }
}

/// After some kernels have run.
struct State {
    /// Kernels still to run that touch each buffer.
    uses: EntityMap<BufferId, usize>,
    born: BTreeSet<BufferId>,
    live_bytes: usize,
}

impl State {
    fn new(graph: &Dependences) -> Self {
        let mut uses = EntityMap::filled(graph.sizes.len(), 0);
        graph.touches.iter().flatten().for_each(|&buffer| uses[buffer] += 1);
        Self { uses, born: BTreeSet::new(), live_bytes: 0 }
    }

    /// Bytes live while some kernels run, and after them.
    fn cost(&self, graph: &Dependences, kernels: &[usize]) -> (usize, usize) {
        let touched: BTreeSet<BufferId> = kernels.iter().flat_map(|&kernel| &graph.touches[kernel]).copied().collect();
        let uses = |buffer: BufferId| kernels.iter().filter(|&&kernel| graph.touches[kernel].contains(&buffer)).count();
        let born: usize = touched.iter().filter(|buffer| !self.born.contains(buffer)).map(|&buffer| graph.sizes[buffer]).sum();
        let dying: usize =
            touched.iter().filter(|&&buffer| self.uses[buffer] == uses(buffer)).map(|&buffer| graph.sizes[buffer]).sum();
        (self.live_bytes + born, self.live_bytes + born - dying)
    }

    /// Bytes live while it runs.
    fn run(&mut self, graph: &Dependences, kernel: usize) -> usize {
        let (during, after) = self.cost(graph, &[kernel]);
        for &buffer in &graph.touches[kernel] {
            self.born.insert(buffer);
            self.uses[buffer] -= 1;
        }
        self.live_bytes = after;
        during
    }
}
