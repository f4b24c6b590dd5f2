//! An order in which instructions wait for each other as little as may be, for cores that run them in the order of the code.
//!
//! A list schedule of each block: in each cycle, of the instructions whose operands are there, those go first from which the longest
//! way leads to the end. Only so many are looked at from the first that is left, and none makes more vectors needed at once than there
//! are registers: what is loaded early holds its register for long.

use std::collections::BTreeMap;

use mcc_kernel::mach::{Kind, OperandKind, Reg, RegClass};

use super::constants::VECTORS;
use super::liveness::{Live, live_at_ends, most_live, step_back};
use super::memory::{are_apart, memory_of, reads, writes};
use super::{Body, Item};
use crate::inst::What;

/// Instructions that begin in a cycle.
const ISSUE: u32 = 2;
/// How far an instruction may be moved up.
const WINDOW: usize = 24;
/// Longer blocks stay as they are: the time for them would grow with their square.
const MAX_ITEMS: usize = 1000;

/// What runs an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Memory,
    Float,
    Integer,
}

/// The unit, the cycles for which it is taken, and those until the result is there; of Cortex-A53 and A55.
fn timing(item: &Item) -> (Unit, u32, u32) {
    let is_vector = item.operands.iter().any(|operand| operand.class() == RegClass::Float);
    match item.inst().map(|inst| &inst.what) {
        Some(What::Memory(memory)) => {
            let quarters = memory.access.bytes() as u32 * u32::from(memory.count) / 16;
            (Unit::Memory, quarters.max(1), 3 + quarters.max(1))
        }
        Some(What::Loads | What::Literal(_)) => (Unit::Memory, 1, 4),
        Some(What::Stores | What::Prefetch) => (Unit::Memory, 1, 1),
        _ if is_vector => (Unit::Float, 1, 4),
        _ => (Unit::Integer, 1, 1),
    }
}

pub fn schedule(body: &mut Body) {
    let ends = live_at_ends(body);
    for (block, items) in body.blocks.iter_mut().enumerate() {
        let end = items.len() - 1;
        let is_fixed = |item: &Item| writes(item) && memory_of(item).is_none() && !is_store(item);
        if !(3..=MAX_ITEMS).contains(&end) || items[..end].iter().any(is_fixed) {
            continue;
        }
        let last = items.pop().expect("blocks end in a jump");
        let mut after = ends[block].clone();
        step_back(&last, &mut after);
        let most = most_live(items, &after);
        let through = pass_through(items, &after);
        after.retain(|reg| !through.contains(reg));
        // What only passes through has its registers where there are enough, else it is kept in memory meanwhile.
        let most = if most <= VECTORS { (VECTORS - 2).saturating_sub(through.len()) } else { VECTORS - 2 };
        let better = List::new(items, &after).run(most);
        let scheduled: Vec<Item> = better.into_iter().map(|index| items[index].clone()).collect();
        *items = scheduled;
        items.push(last);
    }
}

/// Vectors that are needed after a list of instructions, and not in it.
fn pass_through(items: &[Item], after: &Live) -> Live {
    let named: Live = items.iter().flat_map(|item| &item.operands).map(|operand| operand.vreg()).collect();
    after.difference(&named).copied().collect()
}

fn is_store(item: &Item) -> bool {
    item.inst().is_some_and(|inst| inst.what == What::Stores)
}

struct List<'a> {
    items: &'a [Item],
    /// For each instruction those that must follow it, with the cycles after which they may.
    next: Vec<Vec<(usize, u32)>>,
    /// How many must still come before it.
    waits_for: Vec<usize>,
    /// Cycles from its beginning to the end of the block.
    height: Vec<u32>,
    /// Uses that are left, of vectors that are not needed afterwards.
    uses_left: BTreeMap<Reg, usize>,
    after: &'a Live,
}

impl<'a> List<'a> {
    fn new(items: &'a [Item], after: &'a Live) -> Self {
        let count = items.len();
        let mut list = Self {
            items,
            next: vec![Vec::new(); count],
            waits_for: vec![0; count],
            height: vec![0; count],
            uses_left: BTreeMap::new(),
            after,
        };
        list.depend();
        for index in (0..count).rev() {
            let own = timing(&items[index]).2;
            list.height[index] =
                list.next[index].iter().map(|&(next, wait)| wait + list.height[next]).max().unwrap_or(own).max(own);
        }
        list
    }

    fn edge(&mut self, from: usize, to: usize, wait: u32) {
        self.next[from].push((to, wait));
        self.waits_for[to] += 1;
    }

    fn depend(&mut self) {
        let mut defs: BTreeMap<Reg, usize> = BTreeMap::new();
        let mut users: BTreeMap<Reg, Vec<usize>> = BTreeMap::new();
        let mut flags: Option<usize> = None;
        let mut accesses: Vec<usize> = Vec::new();
        for index in 0..self.items.len() {
            let item = &self.items[index];
            for operand in item.operands.iter().filter(|operand| operand.kind() == OperandKind::Use) {
                let reg = operand.vreg();
                if let Some(&def) = defs.get(&reg) {
                    self.edge(def, index, timing(&self.items[def]).2);
                }
                if reg.class() == RegClass::Float && !self.after.contains(&reg) {
                    *self.uses_left.entry(reg).or_default() += 1;
                }
            }
            for tied in tied_operands(item) {
                // Who else uses it goes first: afterwards it is gone.
                for &user in users.get(&tied).into_iter().flatten() {
                    self.edge(user, index, 0);
                }
            }
            for operand in &item.operands {
                match operand.kind() {
                    OperandKind::Use => users.entry(operand.vreg()).or_default().push(index),
                    OperandKind::Def => {
                        defs.insert(operand.vreg(), index);
                    }
                }
            }
            if matches!(item.inst().map(|inst| &inst.what), Some(What::SetsFlags | What::ReadsFlags)) {
                if let Some(before) = flags {
                    self.edge(before, index, 1);
                }
                flags = Some(index);
            }
            if reads(item) || writes(item) {
                let meets =
                    |&&other: &&usize| (writes(item) || writes(&self.items[other])) && !are_apart(item, &self.items[other]);
                let before: Vec<usize> = accesses.iter().filter(meets).copied().collect();
                before.into_iter().for_each(|other| self.edge(other, index, 0));
                accesses.push(index);
            }
        }
    }

    /// The new order, with at most so many vectors at once as far as that can be.
    fn run(mut self, most: usize) -> Vec<usize> {
        let count = self.items.len();
        let mut waits_for = self.waits_for.clone();
        let mut earliest = vec![0; count];
        let mut is_done = vec![false; count];
        let mut first = 0;
        let mut order = Vec::with_capacity(count);
        let mut live = self.live_before();
        let (mut cycle, mut issued) = (0, 0);
        let mut free = [0; 3];
        while order.len() < count {
            let window = first..count.min(first + WINDOW);
            let ready = window.filter(|&index| !is_done[index] && waits_for[index] == 0);
            let fits = |index: usize| {
                let growth = self.growth(index, &live);
                growth <= 0 || live.len() as i32 + growth <= most as i32
            };
            let can_go = |index: usize| {
                let (unit, ..) = timing(&self.items[index]);
                issued < ISSUE && earliest[index] <= cycle && free[unit as usize] <= cycle
            };
            // The first that is left may always go, or else nothing might.
            let allowed: Vec<usize> = ready.filter(|&index| index == first || fits(index)).collect();
            let key = |&index: &usize| (self.height[index], std::cmp::Reverse(index));
            let Some(index) = allowed.into_iter().filter(|&index| can_go(index)).max_by_key(key) else {
                (cycle, issued) = (cycle + 1, 0);
                continue;
            };
            is_done[index] = true;
            while is_done.get(first) == Some(&true) {
                first += 1;
            }
            order.push(index);
            issued += 1;
            let (unit, taken, _) = timing(&self.items[index]);
            free[unit as usize] = cycle + taken;
            self.account(index, &mut live);
            for &(next, wait) in &self.next[index] {
                earliest[next] = earliest[next].max(cycle + wait);
                waits_for[next] -= 1;
            }
        }
        order
    }

    fn live_before(&self) -> Live {
        let mut live = self.after.clone();
        self.items.iter().rev().for_each(|item| step_back(item, &mut live));
        live
    }

    /// How many more vectors are held after an instruction than before.
    fn growth(&self, index: usize, live: &Live) -> i32 {
        let mut growth = 0;
        for operand in self.items[index].operands.iter().filter(|operand| operand.class() == RegClass::Float) {
            let reg = operand.vreg();
            match operand.kind() {
                OperandKind::Def => growth += 1,
                OperandKind::Use => growth -= i32::from(live.contains(&reg) && self.uses_left.get(&reg) == Some(&1)),
            }
        }
        growth
    }

    fn account(&mut self, index: usize, live: &mut Live) {
        for operand in self.items[index].operands.iter().filter(|operand| operand.class() == RegClass::Float) {
            let reg = operand.vreg();
            match operand.kind() {
                OperandKind::Def => {
                    live.insert(reg);
                }
                OperandKind::Use => {
                    if let Some(left) = self.uses_left.get_mut(&reg) {
                        *left -= 1;
                        if *left == 0 {
                            live.remove(&reg);
                        }
                    }
                }
            }
        }
    }
}

/// Operands whose register becomes that of a result.
fn tied_operands(item: &Item) -> impl Iterator<Item = Reg> + '_ {
    use mcc_kernel::mach::OperandConstraint;
    let is_plain = matches!(item.kind, Kind::Plain(_));
    item.operands.iter().filter(move |_| is_plain).filter_map(|operand| match operand.constraint() {
        OperandConstraint::Reuse(other) => Some(item.operands[other].vreg()),
        _ => None,
    })
}
