//! Constants are made where they are used rather than kept through loops that need the registers.

use std::collections::{BTreeMap, BTreeSet};

use mcc_kernel::mach::{OperandKind, Reg, RegClass};

use super::copies::renamed;
use super::liveness::{Live, live_at_ends, most_live, step_back};
use super::place::preheader;
use super::{Body, Item};
use crate::inst::What;

/// The vector registers there are.
pub const VECTORS: usize = 32;

/// Vector constants: instructions of no operands.
pub fn constants(body: &Body) -> BTreeMap<Reg, Item> {
    let is_constant = |item: &&Item| {
        let makes = item.inst().is_some_and(|inst| matches!(inst.what, What::Pure | What::Literal(_)));
        makes && item.operands.len() == 1 && item.operands[0].class() == RegClass::Float
    };
    body.blocks.iter().flatten().filter(is_constant).map(|item| (item.operands[0].vreg(), item.clone())).collect()
}

fn uses_of(item: &Item, reg: Reg) -> usize {
    item.operands.iter().filter(|operand| operand.kind() == OperandKind::Use && operand.vreg() == reg).count()
}

/// Where more vectors are needed at once than there are registers, constants are made where they are used; so they are not kept
/// through loops, either. Between two uses they stay where there are registers for it.
pub fn sink_constants(body: &mut Body) {
    let constants = constants(body);
    let ends = live_at_ends(body);
    let is_short: Vec<bool> = (0..ends.len()).map(|block| most_live(&body.blocks[block], &ends[block]) > VECTORS).collect();
    if constants.is_empty() || !is_short.contains(&true) {
        return;
    }
    let passed: BTreeSet<Reg> = body.program.blocks.iter().flat_map(|block| block.args.iter().copied()).collect();
    let in_short = |reg: &Reg| {
        (0..ends.len())
            .filter(|&block| is_short[block])
            .any(|block| ends[block].contains(reg) || body.blocks[block].iter().any(|item| uses_of(item, *reg) > 0))
    };
    let sunk: Vec<Reg> = constants.keys().copied().filter(|reg| !passed.contains(reg) && in_short(reg)).collect();
    let is_def = |item: &Item| item.operands.len() == 1 && sunk.contains(&item.operands[0].vreg());
    for block in 0..body.blocks.len() {
        body.blocks[block].retain(|item| !is_def(item));
        let uses = |reg: Reg| -> Vec<usize> {
            let items = body.blocks[block].iter().enumerate();
            items.filter(|(_, item)| uses_of(item, reg) > 0).map(|(index, _)| index).collect()
        };
        let uses: Vec<(Reg, Vec<usize>)> =
            sunk.iter().map(|&reg| (reg, uses(reg))).filter(|(_, uses)| !uses.is_empty()).collect();
        let mut end = ends[block].clone();
        end.retain(|reg| !sunk.contains(reg));
        let kept = Kept::choose(&body.blocks[block], &end, &uses, body.program.blocks[block].is_inner_loop);
        let before = preheader(body, block);
        place(body, block, before, &uses, &kept, &constants);
    }
}

/// Which constants stay in registers from one use to the next.
struct Kept {
    /// Constant and use from which on.
    gaps: BTreeSet<(Reg, usize)>,
    /// Those that stay in all rounds of a loop.
    always: BTreeSet<Reg>,
}

impl Kept {
    /// The shortest ways from use to use first, while there are registers; in a loop, also those to the next round.
    fn choose(items: &[Item], end: &Live, uses: &[(Reg, Vec<usize>)], is_loop: bool) -> Self {
        let mut needed = needed(items, end, uses);
        let mut kept = Self { gaps: BTreeSet::new(), always: BTreeSet::new() };
        let mut keep = |ranges: &[std::ops::Range<usize>]| {
            let fits = ranges.iter().all(|range| needed[range.clone()].iter().all(|&count| count < VECTORS));
            if fits {
                ranges.iter().for_each(|range| needed[range.clone()].iter_mut().for_each(|count| *count += 1));
            }
            fits
        };
        let pairs = uses.iter().flat_map(|(reg, uses)| uses.windows(2).map(|pair| (pair[1] - pair[0], pair[0], pair[1], *reg)));
        let mut gaps: Vec<_> = pairs.collect();
        gaps.sort();
        for (_, from, to, reg) in gaps {
            if keep(std::slice::from_ref(&(from + 1..to))) {
                kept.gaps.insert((reg, from));
            }
        }
        for (reg, uses) in uses.iter().filter(|_| is_loop) {
            let is_whole = uses[..uses.len() - 1].iter().all(|&at| kept.gaps.contains(&(*reg, at)));
            if is_whole && keep(&[0..uses[0], uses[uses.len() - 1] + 1..items.len()]) {
                kept.always.insert(*reg);
            }
        }
        kept
    }
}

/// How many vectors are needed at each instruction, without these constants but where they are used.
fn needed(items: &[Item], end: &Live, uses: &[(Reg, Vec<usize>)]) -> Vec<usize> {
    let mut live = end.clone();
    let mut needed = vec![0; items.len()];
    for (index, item) in items.iter().enumerate().rev() {
        let after = live.len();
        step_back(item, &mut live);
        needed[index] = after.max(live.len());
        live.retain(|reg| uses.iter().all(|(constant, _)| constant != reg));
    }
    needed
}

/// Makes the constants of a block where they are first used and where they were not kept, or before the loop.
fn place(
    body: &mut Body,
    block: usize,
    before: Option<usize>,
    uses: &[(Reg, Vec<usize>)],
    kept: &Kept,
    constants: &BTreeMap<Reg, Item>,
) {
    let mut made_at: BTreeMap<usize, Vec<Item>> = BTreeMap::new();
    for (reg, uses) in uses {
        let mut copy = *reg;
        for (position, &at) in uses.iter().enumerate() {
            if position == 0 || !kept.gaps.contains(&(*reg, uses[position - 1])) {
                copy = body.fresh(*reg);
                let mut made = constants[reg].clone();
                made.operands[0] = renamed(made.operands[0], copy);
                match before.filter(|_| kept.always.contains(reg)) {
                    Some(before) => {
                        let jump = body.blocks[before].len() - 1;
                        body.blocks[before].insert(jump, made);
                    }
                    None => made_at.entry(at).or_default().push(made),
                }
            }
            for operand in body.blocks[block][at].operands.iter_mut().filter(|operand| operand.vreg() == *reg) {
                *operand = renamed(*operand, copy);
            }
        }
    }
    let items = std::mem::take(&mut body.blocks[block]);
    let with_constants = items.into_iter().enumerate().flat_map(|(at, item)| {
        let mut list = made_at.remove(&at).unwrap_or_default();
        list.push(item);
        list
    });
    body.blocks[block] = with_constants.collect();
}
