//! Neighbours in memory are loaded and stored two at a time.

use std::collections::BTreeMap;

use mcc_kernel::mach::{Kind, Operand, PRegSet, Reg};

use super::memory::{are_apart, barrier_between, memory_of, reads, writes};
use super::{Body, Item};
use crate::encode::{ADD, PairMode, RA, RD, RN, Width, add_imm};
use crate::inst::{Inst, Memory, What};

/// Accesses that lie further apart in the code are left: what is loaded early or stored late holds its register for long.
const MAX_DISTANCE: usize = 48;

fn is_candidate(item: &Item, strict_alignment: bool) -> Option<Memory> {
    let memory = memory_of(item)?;
    let access = memory.access;
    let is_aligned = !strict_alignment || i64::from(memory.align) >= access.bytes();
    let fits = memory.count == 1 && memory.step == 0 && access.log2_bytes >= 2 && is_aligned;
    // Single floats are as often needed as lanes of their own; they stay.
    (fits && !(access.is_vector && access.log2_bytes < 3)).then_some(memory)
}

/// A pair at a displacement that no instruction holds is given a base nearby, which others may have too.
#[derive(Default)]
struct Anchors {
    /// Bases with a displacement from another, by the latter.
    known: BTreeMap<Reg, Vec<(i64, Reg)>>,
}

impl Anchors {
    /// The base and displacement of a pair, with what makes the base if it is new.
    fn place(&mut self, body: &mut Body, base: Reg, memory: Memory) -> Option<(Reg, i64, Option<Item>)> {
        let fits = |displacement: i64| memory.access.pair(displacement, PairMode::Offset).is_some();
        if fits(memory.displacement) {
            return Some((base, memory.displacement, None));
        }
        let known = self.known.entry(base).or_default();
        if let Some(&(at, anchor)) = known.iter().find(|(at, _)| fits(memory.displacement - at)) {
            return Some((anchor, memory.displacement - at, None));
        }
        // As far up as a pair reaches down.
        let reach = 64 * memory.access.bytes();
        let at = match memory.displacement + reach {
            at if at < 4096 => at & !15,
            at => at & !0xFFF,
        };
        let word = add_imm(ADD, Width::X, at.try_into().ok()?)?;
        if !fits(memory.displacement - at) {
            return None;
        }
        let anchor = body.fresh(base);
        known.push((at, anchor));
        let inst = Inst { word, fields: vec![RD, RN], what: What::Pure };
        let operands = vec![Operand::reg_def(anchor), Operand::reg_use(base)];
        let item = Item { kind: Kind::Plain(inst), operands, clobbers: PRegSet::empty() };
        Some((anchor, memory.displacement - at, Some(item)))
    }
}

/// Before: `ldr q0, [x]; ldr q1, [x, #16]`. After: `ldp q0, q1, [x]`. A pair of loads is where the first was, one of stores where
/// the second was.
pub fn pair_accesses(body: &mut Body, strict_alignment: bool) {
    for block in 0..body.blocks.len() {
        let mut anchors = Anchors::default();
        let mut at = 0;
        while at < body.blocks[block].len() {
            at += pair_at(body, block, at, &mut anchors, strict_alignment);
        }
    }
}

/// Makes a pair of the access at `at` and a later one, if there is one. How far to go on.
fn pair_at(body: &mut Body, block: usize, at: usize, anchors: &mut Anchors, strict_alignment: bool) -> usize {
    let items = &body.blocks[block];
    let Some(memory) = is_candidate(&items[at], strict_alignment) else { return 1 };
    let base = items[at].operands[1].vreg();
    let bytes = memory.access.bytes();
    let last = (at + MAX_DISTANCE).min(items.len() - 1);
    let partner = (at + 1..=last).find(|&other| {
        is_candidate(&items[other], strict_alignment).is_some_and(|found| {
            let is_next = (found.displacement - memory.displacement).abs() == bytes;
            is_next
                && found.access == memory.access
                && items[other].operands[1].vreg() == base
                && can_join(items, at, other, memory)
        })
    });
    let Some(other) = partner else { return 1 };
    let other_memory = memory_of(&items[other]).expect("it was looked at");
    let (low, high) = if memory.displacement < other_memory.displacement { (at, other) } else { (other, at) };
    let lower = memory_of(&items[low]).expect("it was looked at");
    let data = [low, high].map(|index| items[index].operands[0].vreg());
    if memory.access.is_load && data[0] == data[1] {
        return 1;
    }
    let Some((base, displacement, anchor)) = anchors.place(body, base, lower) else { return 1 };
    let memory = Memory { displacement, align: lower.align.min(memory.align), count: 2, ..memory };
    let word = memory.access.pair(displacement, PairMode::Offset).expect("the place fits");
    let inst = Inst { word, fields: vec![RD, RA, RN], what: What::Memory(memory) };
    let data = data.map(|reg| if memory.access.is_load { Operand::reg_def(reg) } else { Operand::reg_use(reg) });
    let operands = vec![data[0], data[1], Operand::reg_use(base)];
    let item = Item { kind: Kind::Plain(inst), operands, clobbers: PRegSet::empty() };
    let items = &mut body.blocks[block];
    let (place, gone) = if memory.access.is_load { (at, other) } else { (other, at) };
    items[place] = item;
    let added = usize::from(anchor.is_some());
    if let Some(anchor) = anchor {
        items.insert(at, anchor);
    }
    items.remove(gone + added);
    if memory.access.is_load { 1 + added } else { added }
}

/// Whether the second of two accesses may be done with the first or, of stores, the first with the second.
fn can_join(items: &[Item], first: usize, second: usize, memory: Memory) -> bool {
    if memory.access.is_load {
        return !barrier_between(items, first, second);
    }
    items[first + 1..second].iter().all(|item| !(reads(item) || writes(item)) || are_apart(item, &items[first]))
}
