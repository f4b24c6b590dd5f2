//! When the contents of buffers are needed.

use mcc_support::EntityMap;

use crate::loops::sites;
use crate::loops::{BufferId, Program, Role};

/// From the first kernel that touches a buffer to the last, by place in the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Live {
    pub first: usize,
    pub last: usize,
}

impl Live {
    /// The shortest span that holds both.
    pub fn hull(self, other: Live) -> Live {
        Live { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    pub fn overlaps(self, other: Live) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Of every buffer that lives in the arena and is touched. What a loop and kernels outside of it touch is needed in every round.
pub fn lives(program: &Program) -> EntityMap<BufferId, Option<Live>> {
    let mut lives: EntityMap<BufferId, Option<Live>> = EntityMap::filled(program.buffers.len(), None);
    for (place, kernel) in program.kernels.iter().enumerate() {
        let (reads, writes) = sites::accesses(kernel);
        for &buffer in reads.union(&writes) {
            if matches!(program.buffers[buffer].role, Role::Temporary | Role::Shared | Role::Local) {
                let here = Live { first: place, last: place };
                lives[buffer] = Some(lives[buffer].map_or(here, |live| live.hull(here)));
            }
        }
    }
    // Tested before the kernels of the region, and of a loop before each round.
    let conditions = program.regions.keys().map(|region| (program.regions[region].kind.condition(), region));
    for (condition, region) in conditions.collect::<Vec<_>>() {
        let inside = |&place: &usize| program.region_path(program.kernels[place].region).contains(&region);
        let first = (0..program.kernels.len()).find(inside);
        if let (Some(live), Some(first)) = (lives[condition], first) {
            lives[condition] = Some(live.hull(Live { first, last: first }));
        }
    }
    for (region, first, last) in program.loop_spans() {
        let round = Live { first, last };
        let condition = program.regions[region].kind.condition();
        for id in program.buffers.keys() {
            if let Some(live) = lives[id].filter(|live| live.overlaps(round)) {
                // Latches alone write what the next round reads.
                let carried = live.first < first || live.last > last || id == condition;
                if carried {
                    lives[id] = Some(live.hull(round));
                }
            }
        }
    }
    lives
}
