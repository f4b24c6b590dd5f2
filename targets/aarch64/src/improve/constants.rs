//! Constants are made where they are used rather than kept through loops that need the registers.

use std::collections::{BTreeMap, BTreeSet};

use mcc_kernel::mach::{OperandKind, Reg, RegClass};

use super::copies::renamed;
use super::liveness::{live_at_ends, most_live};
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

/// Blocks of loops that need more registers than there are get the constants that they use least from the pool at each use; others
/// do not have constants live through them that they do not use.
pub fn sink_constants(body: &mut Body) {
    let constants = constants(body);
    if constants.is_empty() {
        return;
    }
    let passed: BTreeSet<Reg> = body.program.blocks.iter().flat_map(|block| block.args.iter().copied()).collect();
    let ends = live_at_ends(body);
    let mut sunk: BTreeSet<Reg> = BTreeSet::new();
    for block in 0..body.blocks.len() {
        let items = &body.blocks[block];
        if !body.program.blocks[block].is_inner_loop {
            continue;
        }
        let mut excess = most_live(items, &ends[block]).saturating_sub(VECTORS);
        let count = |reg: Reg| items.iter().map(|item| uses_of(item, reg)).sum::<usize>();
        let mut candidates: Vec<(usize, Reg)> = ends[block]
            .iter()
            .filter(|reg| constants.contains_key(reg) && !passed.contains(reg))
            .map(|&reg| (count(reg), reg))
            .collect();
        candidates.sort();
        for (_, reg) in candidates {
            if excess == 0 {
                break;
            }
            sunk.insert(reg);
            excess -= 1;
        }
    }
    for reg in sunk {
        sink(body, reg, &constants[&reg]);
    }
}

/// Makes the constant anew in each block that uses it, in loops at each use.
fn sink(body: &mut Body, reg: Reg, constant: &Item) {
    for block in 0..body.blocks.len() {
        let at_each_use = body.program.blocks[block].is_inner_loop;
        let mut own = None;
        let mut items = Vec::with_capacity(body.blocks[block].len());
        for mut item in std::mem::take(&mut body.blocks[block]) {
            let is_original =
                item.operands.first().is_some_and(|operand| operand.kind() == OperandKind::Def && operand.vreg() == reg);
            if is_original && item.operands.len() == 1 {
                continue;
            }
            if uses_of(&item, reg) > 0 {
                let known = own.filter(|_| !at_each_use);
                let copy = known.unwrap_or_else(|| {
                    let copy = body.fresh(reg);
                    let mut made = constant.clone();
                    made.operands[0] = renamed(made.operands[0], copy);
                    items.push(made);
                    copy
                });
                own = Some(copy);
                for operand in item.operands.iter_mut().filter(|operand| operand.vreg() == reg) {
                    *operand = renamed(*operand, copy);
                }
            }
            items.push(item);
        }
        body.blocks[block] = items;
    }
}
