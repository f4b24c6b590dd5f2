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
    // What decides whether kernels run is there while they do.
    for (id, region) in program.regions.iter() {
        let inside = |&place: &usize| program.region_path(program.kernels[place].region).contains(&id);
        let mut places = (0..program.kernels.len()).filter(inside);
        let condition = region.kind.condition();
        if let (Some(live), Some(first)) = (lives[condition], places.next()) {
            lives[condition] = Some(live.hull(Live { first, last: places.next_back().unwrap_or(first) }));
        }
    }
    for (_, first, last) in program.loop_spans() {
        let round = Live { first, last };
        for id in program.buffers.keys() {
            let crosses = |live: &Live| live.overlaps(round) && (live.first < first || live.last > last);
            lives[id] = lives[id].map(|live| if crosses(&live) { live.hull(round) } else { live });
        }
    }
    lives
}
