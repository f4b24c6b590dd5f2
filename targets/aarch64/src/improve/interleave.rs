//! The same work on several values is done side by side, so that they share constants and wait together.
//!
//! Before: `a₀ b₀ c₀ store₀ a₁ b₁ c₁ store₁`. After: `a₀ a₁ b₀ b₁ c₀ c₁ store₀ store₁`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use mcc_kernel::mach::{OperandKind, Reg};

use super::constants::{VECTORS, constants};
use super::liveness::{Live, live_at_ends, most_live, step_back};
use super::memory::{are_apart, memory_of, reads, writes};
use super::{Body, Item};
use crate::inst::What;

/// Work on one value that is shorter is left.
const LEAST_WORK: usize = 10;
/// Values that are worked on at once, at most.
const MOST: usize = 6;

pub fn interleave(body: &mut Body) {
    let ends = live_at_ends(body);
    let constants: BTreeSet<Reg> = constants(body).into_keys().collect();
    for (block, end) in ends.iter().enumerate() {
        let end: Live = end.iter().copied().filter(|reg| !constants.contains(reg)).collect();
        let mut done = 0;
        while let Some(run) = next_run(&body.blocks[block], done) {
            let (length, start, count) = (run.length, run.start, run.count);
            let items = &body.blocks[block];
            let works = |size: &usize| can_interleave(items, &run, *size) && fits(items, &run, *size, &end, &constants);
            let size = (2..=MOST.min(count)).rev().find(works).unwrap_or(1);
            if size > 1 {
                let merged = merged(&items[start..start + size * length], length);
                body.blocks[block].splice(start..start + size * length, merged);
            }
            done = start + size * length;
        }
    }
}

/// Chunks of equal length that do the same to different values, the first of them at `start`.
struct Run {
    start: usize,
    length: usize,
    count: usize,
}

impl Run {
    fn chunk(&self, index: usize) -> Range<usize> {
        self.start + index * self.length..self.start + (index + 1) * self.length
    }
}

/// What an instruction does, whatever its registers are and wherever its memory is.
fn work(item: &Item) -> Option<(u32, usize)> {
    let inst = item.inst()?;
    match &inst.what {
        What::Pure | What::Literal(_) => Some((inst.word, item.operands.len())),
        What::Memory(memory) if memory.count == 1 && memory.step == 0 => {
            Some((u32::from(memory.access.is_load) | memory.access.log2_bytes << 1, item.operands.len() + 100))
        }
        _ => None,
    }
}

fn is_store(item: &Item) -> bool {
    memory_of(item).is_some_and(|memory| !memory.access.is_load)
}

fn next_run(items: &[Item], from: usize) -> Option<Run> {
    let stores: Vec<usize> = (from..items.len()).filter(|&index| is_store(&items[index])).collect();
    for (position, pair) in stores.windows(2).enumerate() {
        let length = pair[1] - pair[0];
        let Some(start) = (pair[0] + 1).checked_sub(length).filter(|&start| start >= from) else { continue };
        if length < LEAST_WORK {
            continue;
        }
        let same = |index: usize| {
            let next = start + index * length..(start + (index + 1) * length).min(items.len());
            let first = &items[start..start + length];
            next.len() == length && first.iter().zip(&items[next]).all(|(a, b)| work(a).is_some() && work(a) == work(b))
        };
        let count = 1 + (1..).take_while(|&index| position + index < stores.len() && same(index)).count();
        if count > 1 {
            return Some(Run { start, length, count });
        }
    }
    None
}

fn can_interleave(items: &[Item], run: &Run, size: usize) -> bool {
    let chunks: Vec<&[Item]> = (0..size).map(|index| &items[run.chunk(index)]).collect();
    let mut made: BTreeMap<Reg, usize> = BTreeMap::new();
    for (index, chunk) in chunks.iter().enumerate() {
        for operand in chunk.iter().flat_map(|item| &item.operands) {
            match operand.kind() {
                OperandKind::Def => {
                    made.insert(operand.vreg(), index);
                }
                OperandKind::Use if made.get(&operand.vreg()).is_some_and(|&chunk| chunk != index) => return false,
                OperandKind::Use => {}
            }
        }
    }
    // Loads of later chunks go before stores of earlier ones.
    (1..size).all(|later| {
        chunks[later].iter().filter(|item| reads(item)).all(|load| {
            chunks[..later].iter().flat_map(|chunk| chunk.iter()).filter(|item| writes(item)).all(|store| are_apart(load, store))
        })
    })
}

fn merged(items: &[Item], length: usize) -> Vec<Item> {
    (0..length).flat_map(|at| items.iter().skip(at).step_by(length).cloned()).collect()
}

/// Whether there are registers for it, but for those of constants.
fn fits(items: &[Item], run: &Run, size: usize, end: &Live, constants: &BTreeSet<Reg>) -> bool {
    let whole = run.start..run.start + size * run.length;
    let mut after = end.clone();
    items[whole.end..].iter().rev().for_each(|item| step_back(item, &mut after));
    let mut merged = merged(&items[whole], run.length);
    for item in &mut merged {
        item.operands.retain(|operand| !constants.contains(&operand.vreg()));
    }
    after.retain(|reg| !constants.contains(reg));
    // One for a constant that is used next.
    most_live(&merged, &after) < VECTORS
}
