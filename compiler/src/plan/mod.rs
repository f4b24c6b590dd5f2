//! Where buffers live: offsets in the caller's arena for what is computed, and in the packed weights for constants.
//!
//! A plan is made for a program as realized: kernels in their order, with their schedules. [`check`] proves it without knowing how
//! it was found.

pub mod check;
mod in_place;
pub mod live;
pub mod pack;
mod place;
pub mod text;

use bytes::Bytes;
use mcc_support::EntityMap;

use crate::decisions::Layout;
use crate::loops::{Buffer, BufferId, Program, Role};
use live::Live;
use pack::Weights;

/// Alignment of every offset: that of the arena and of the weights.
pub const ALIGN_BYTES: usize = 64;

/// Where a buffer lies. Offsets and sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// No kernel reads or writes it.
    Unused,
    /// The caller's, by its place in the model's inputs.
    Input(usize),
    Output(usize),
    Weights {
        offset: usize,
        size_bytes: usize,
    },
    Arena {
        offset: usize,
        size_bytes: usize,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub struct MemoryPlan {
    pub layouts: EntityMap<BufferId, Layout>,
    pub places: EntityMap<BufferId, Place>,
    /// First and last kernel, by place in the program, that needs the contents of a buffer in the arena.
    pub lives: EntityMap<BufferId, Option<Live>>,
    pub arena_bytes: usize,
    /// The most that is live at once: no plan for these kernels in this order takes less, unless more of them work in place.
    pub lower_bound_bytes: usize,
    /// Offset of the `i32` that a run sets when it had to clamp an index, where a kernel has such indices.
    pub status_offset: Option<usize>,
    /// Constants as their layouts say, in the order in which kernels first read them; those of all programs that were planned
    /// together.
    pub weights: Bytes,
}

/// Plans the buffers of a program, which lie as `layouts` say.
pub fn plan(program: &Program, layouts: &EntityMap<BufferId, Layout>) -> MemoryPlan {
    let mut weights = Weights::default();
    let plan = plan_with(program, layouts, false, &mut weights);
    MemoryPlan { weights: weights.finish(), ..plan }
}

/// As [`plan`], with constants beside those of other programs: `weights` is to be put into the plan when all are planned. With
/// `keep`, buffers keep their contents to the end.
pub fn plan_with(program: &Program, layouts: &EntityMap<BufferId, Layout>, keep: bool, weights: &mut Weights) -> MemoryPlan {
    let mut lives = live::lives(program);
    if keep {
        let last = program.kernels.len();
        lives = lives.values().map(|live| live.map(|live| Live { last, ..live })).collect();
    }
    let mut places = EntityMap::filled(program.buffers.len(), Place::Unused);
    pack::pack_constants(program, layouts, &mut places, weights);
    let status_offset = program.buffers.values().any(|buffer| buffer.role == Role::Status).then_some(0);
    let header_bytes = if status_offset.is_some() { ALIGN_BYTES } else { 0 };

    let sizes: EntityMap<BufferId, usize> =
        program.buffers.iter().map(|(id, buffer)| size_bytes(buffer, &layouts[id]).next_multiple_of(ALIGN_BYTES)).collect();
    let groups = in_place::groups(program, layouts, &lives);
    let blocks: Vec<place::Block> = groups
        .iter()
        .map(|group| {
            let live = group.iter().filter_map(|&id| lives[id]).reduce(Live::hull).expect("groups are of live buffers");
            place::Block { size_bytes: group.iter().map(|&id| sizes[id]).max().unwrap_or(0), live }
        })
        .collect();
    let placed = place::place(&blocks);
    for (group, &offset) in groups.iter().zip(&placed.offsets) {
        for &id in group {
            places[id] =
                Place::Arena { offset: header_bytes + offset, size_bytes: size_bytes(&program.buffers[id], &layouts[id]) };
        }
    }
    for (id, buffer) in program.buffers.iter() {
        match buffer.role {
            Role::Input(at) => places[id] = Place::Input(at),
            Role::Output(at) => places[id] = Place::Output(at),
            Role::Status => places[id] = Place::Arena { offset: 0, size_bytes: sizes[id] },
            Role::Constant(_) | Role::Temporary | Role::Shared | Role::Local => {}
        }
    }
    MemoryPlan {
        layouts: layouts.clone(),
        places,
        lives,
        arena_bytes: header_bytes + placed.size_bytes,
        lower_bound_bytes: header_bytes + place::largest_live_set(&blocks),
        status_offset,
        weights: Bytes::new(),
    }
}

/// Bytes of a buffer with the padding of its layout.
pub fn size_bytes(buffer: &Buffer, layout: &Layout) -> usize {
    (layout.count(buffer.ty.shape.dims()) * buffer.ty.dtype.size_bits()).div_ceil(8)
}

#[cfg(test)]
mod tests;
