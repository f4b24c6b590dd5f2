//! What windows that overlap load is loaded once.
//!
//! Neighbouring results of a convolution read the same inputs at different steps. If each input is loaded once, it must stay until
//! its last use; so the multiply-adds are put in the order of the inputs instead of that of the steps. Each result's own order stays.

use std::collections::{BTreeMap, BTreeSet};

use mcc_kernel::mach::{OperandKind, Reg, RegClass};

use super::constants::{VECTORS, constants};
use super::copies::renamed;
use super::liveness::{Live, live_at_ends, most_live, step_back};
use super::memory::{memory_of, writes};
use super::{Body, Item};
use crate::inst::What;

/// Fewer loads saved are not worth another order.
const LEAST_SAVED: usize = 4;
/// So many vectors that only pass through may be kept in memory for it.
const MAX_SPILLED: usize = 2;

pub fn share_loads(body: &mut Body) {
    let ends = live_at_ends(body);
    let constants: BTreeSet<Reg> = constants(body).into_keys().collect();
    for block in 0..body.blocks.len() {
        // Up to the first thing whose place matters.
        let stays = |item: &Item| {
            let what = item.inst().map(|inst| &inst.what);
            writes(item) || !matches!(what, Some(What::Pure | What::Memory(_) | What::Loads | What::Literal(_)))
        };
        let mut start = 0;
        while start < body.blocks[block].len() {
            let items = &body.blocks[block];
            let count = items[start..].iter().position(stays).unwrap_or(items.len() - start);
            if count > 2 * LEAST_SAVED {
                let mut end = ends[block].clone();
                items[start + count..].iter().rev().for_each(|item| step_back(item, &mut end));
                // Constants need not be kept through it.
                end.retain(|reg| !constants.contains(reg));
                if let Some(better) = shared(&items[start..start + count], &end) {
                    let renames = better.renames;
                    body.blocks[block].splice(start..start + count, better.items);
                    rename_all(body, &renames);
                    break;
                }
            }
            start += count + 1;
        }
    }
}

struct Better {
    items: Vec<Item>,
    renames: BTreeMap<Reg, Reg>,
}

fn rename_all(body: &mut Body, renames: &BTreeMap<Reg, Reg>) {
    let renamed_reg = |reg: Reg| renames.get(&reg).copied().unwrap_or(reg);
    for operand in body.blocks.iter_mut().flatten().flat_map(|item| &mut item.operands) {
        *operand = renamed(*operand, renamed_reg(operand.vreg()));
    }
    for arg in body.program.blocks.iter_mut().flat_map(|block| &mut block.args) {
        *arg = renamed_reg(*arg);
    }
}

/// The instructions with equal loads done once, in the order of the addresses; `None` where little is saved, or it would take more
/// registers than there are.
fn shared(items: &[Item], end: &Live) -> Option<Better> {
    let mut first: BTreeMap<(Reg, i64, u32), Reg> = BTreeMap::new();
    let mut renames = BTreeMap::new();
    let mut kept = Vec::new();
    for item in items {
        if let Some(memory) = memory_of(item)
            && (memory.count, memory.step) == (1, 0)
            && item.operands[0].class() == RegClass::Float
        {
            let place = (item.operands[1].vreg(), memory.displacement, memory.access.log2_bytes);
            let reg = item.operands[0].vreg();
            if let Some(&known) = first.get(&place) {
                renames.insert(reg, known);
                continue;
            }
            first.insert(place, reg);
        }
        kept.push(item.clone());
    }
    if renames.len() < LEAST_SAVED {
        return None;
    }
    for operand in kept.iter_mut().flat_map(|item| &mut item.operands) {
        let reg = renames.get(&operand.vreg()).copied();
        *operand = reg.map_or(*operand, |reg| renamed(*operand, reg));
    }
    let end = end.iter().map(|reg| renames.get(reg).copied().unwrap_or(*reg)).collect();
    let items = Order::new(&kept).by_address();
    (most_live(&items, &end) <= VECTORS + MAX_SPILLED).then_some(Better { items, renames })
}

/// The instructions of a list in a new order.
struct Order<'a> {
    items: &'a [Item],
    /// Where each register is defined.
    defs: BTreeMap<Reg, usize>,
    /// The instructions that use the result of each.
    users: Vec<Vec<usize>>,
    is_done: Vec<bool>,
    order: Vec<usize>,
}

impl<'a> Order<'a> {
    fn new(items: &'a [Item]) -> Self {
        let mut defs = BTreeMap::new();
        let mut users = vec![Vec::new(); items.len()];
        for (index, item) in items.iter().enumerate() {
            for operand in &item.operands {
                match operand.kind() {
                    OperandKind::Def => {
                        defs.insert(operand.vreg(), index);
                    }
                    OperandKind::Use => {
                        if let Some(&def) = defs.get(&operand.vreg()) {
                            users[def].push(index);
                        }
                    }
                }
            }
        }
        Self { items, defs, users, is_done: vec![false; items.len()], order: Vec::new() }
    }

    fn sources(&self, index: usize) -> Vec<usize> {
        let uses = self.items[index].operands.iter().filter(|operand| operand.kind() == OperandKind::Use);
        uses.filter_map(|operand| self.defs.get(&operand.vreg()).copied()).filter(|&def| def != index).collect()
    }

    /// Loads of the base from which the most is loaded, in the order of addresses.
    fn drivers(&self) -> Vec<usize> {
        let mut by_base: BTreeMap<Reg, Vec<(i64, usize)>> = BTreeMap::new();
        for (index, item) in self.items.iter().enumerate() {
            if let Some(memory) = memory_of(item).filter(|memory| memory.access.is_vector) {
                by_base.entry(item.operands[1].vreg()).or_default().push((memory.displacement, index));
            }
        }
        let mut most = by_base.into_values().max_by_key(Vec::len).unwrap_or_default();
        most.sort();
        most.into_iter().map(|(_, index)| index).collect()
    }

    fn by_address(mut self) -> Vec<Item> {
        let drivers = self.drivers();
        let all: BTreeSet<usize> = drivers.iter().copied().collect();
        for driver in drivers {
            let mut waiting: Vec<usize> = self.users[driver].clone();
            while let Some(user) = waiting.pop() {
                if !self.is_done[user] && self.is_reachable(user, &all, driver) {
                    self.emit(user);
                    // What only waited for this.
                    waiting.extend(self.users[user].iter().copied());
                }
            }
        }
        for index in 0..self.items.len() {
            self.emit(index);
        }
        self.order.iter().map(|&index| self.items[index].clone()).collect()
    }

    fn sources_done(&self, index: usize) -> bool {
        self.sources(index).iter().all(|&source| self.is_done[source])
    }

    /// Whether an instruction can be done with this driver and loads that are no drivers.
    fn is_reachable(&self, index: usize, drivers: &BTreeSet<usize>, driver: usize) -> bool {
        self.sources(index).iter().all(|&source| {
            let is_load = memory_of(&self.items[source]).is_some();
            self.is_done[source] || source == driver || is_load && !drivers.contains(&source) && self.sources_done(source)
        })
    }

    /// The instruction after everything that it needs.
    fn emit(&mut self, index: usize) {
        if self.is_done[index] {
            return;
        }
        self.is_done[index] = true;
        for source in self.sources(index) {
            self.emit(source);
        }
        self.order.push(index);
    }
}
