//! What instructions do to memory.

use mcc_kernel::mach::{Kind, Reg};

use super::Item;
use crate::inst::{Memory, What};

/// A load or store of a base and a displacement.
pub fn memory_of(item: &Item) -> Option<Memory> {
    match item.inst()?.what {
        What::Memory(memory) => Some(memory),
        _ => None,
    }
}

/// The base of such an access: its last operand, or, where that is moved, the one before its definition.
pub fn base_of(item: &Item, memory: Memory) -> Reg {
    let position = if memory.step == 0 { item.operands.len() - 1 } else { item.operands.len() - 2 };
    item.operands[position].vreg()
}

pub fn reads(item: &Item) -> bool {
    match item.inst().map(|inst| &inst.what) {
        Some(What::Memory(memory)) => memory.access.is_load,
        Some(What::Loads | What::Incoming(_)) => true,
        _ => false,
    }
}

/// Also whatever else nothing may be moved over.
pub fn writes(item: &Item) -> bool {
    match item.inst().map(|inst| &inst.what) {
        Some(What::Memory(memory)) => !memory.access.is_load,
        Some(What::Stores | What::Outgoing | What::Call(_) | What::CallPtr | What::Nothing) => true,
        _ => !matches!(item.kind, Kind::Plain(_)),
    }
}

/// Whether memory may be written after the first and before the last of these.
pub fn barrier_between(items: &[Item], first: usize, last: usize) -> bool {
    items[first..=last].iter().any(writes)
}

/// Whether two accesses are certain not to meet: of the same base, at other places.
pub fn are_apart(a: &Item, b: &Item) -> bool {
    let (Some(first), Some(second)) = (memory_of(a), memory_of(b)) else { return false };
    let end = |memory: Memory| memory.displacement + memory.access.bytes() * i64::from(memory.count);
    let same_base = base_of(a, first) == base_of(b, second) && first.step == 0 && second.step == 0;
    same_base && (end(first) <= second.displacement || end(second) <= first.displacement)
}
