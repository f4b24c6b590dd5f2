//! Displacements that no instruction holds.
//!
//! In a loop the displacement is a constant in a register, made before the loop: `ldr q, [x, x']`. Elsewhere a base nearby is made,
//! which others may have too.

use std::collections::BTreeMap;

use mcc_kernel::mach::{Kind, Operand, PRegSet, Reg};

use super::memory::memory_of;
use super::{Body, Item, index};
use crate::encode::{ADD, Extend, MOVK, MOVN, MOVZ, RD, RM, RN, SUB, Width, add_imm, general, mov_wide};
use crate::inst::{IMPLIED, Inst, Memory, What};
use crate::select::one_move;

/// At most so many displacements are kept in registers in a loop.
const MAX_HELD: usize = 14;

fn item(inst: Inst, operands: Vec<Operand>) -> Item {
    Item { kind: Kind::Plain(inst), operands, clobbers: PRegSet::empty() }
}

fn pure(word: u32, fields: &[u8], operands: Vec<Operand>) -> Item {
    item(Inst { word, fields: fields.to_vec(), what: What::Pure }, operands)
}

/// Instructions that make a constant of 64 bits.
fn constant(body: &mut Body, to: Reg, value: i64) -> Vec<Item> {
    if let Some(word) = one_move(Width::X, value as u64) {
        return vec![pure(word, &[RD], vec![Operand::reg_def(to)])];
    }
    // Displacements are of 32 bits in all likelihood: two quarters, and others where they are not the sign.
    let quarter = |at: u32| (value as u64 >> (16 * at)) as u16;
    let filler = if value < 0 { 0xFFFF } else { 0 };
    let first = if value < 0 { mov_wide(MOVN, Width::X, !quarter(0), 0) } else { mov_wide(MOVZ, Width::X, quarter(0), 0) };
    let more: Vec<u32> = (1..4).filter(|&at| quarter(at) != filler).collect();
    let mut reg = if more.is_empty() { to } else { body.fresh(to) };
    let mut items = vec![pure(first, &[RD], vec![Operand::reg_def(reg)])];
    for (position, &at) in more.iter().enumerate() {
        let next = if position + 1 == more.len() { to } else { body.fresh(to) };
        let operands = vec![Operand::reg_use(reg), Operand::reg_reuse_def(next, 0)];
        items.push(pure(mov_wide(MOVK, Width::X, quarter(at), at), &[IMPLIED, RD], operands));
        reg = next;
    }
    items
}

/// The block that runs before a loop of one block, and jumps into it.
pub fn preheader(body: &Body, block: usize) -> Option<usize> {
    let data = &body.program.blocks[block];
    let outside: Vec<usize> = data.preds.iter().map(|&pred| index(pred)).filter(|&pred| pred < block).collect();
    match outside[..] {
        [pred] if data.is_inner_loop && data.preds.len() == 2 && body.program.blocks[pred].succs.len() == 1 => Some(pred),
        _ => None,
    }
}

pub fn place_accesses(body: &mut Body) {
    for block in 0..body.blocks.len() {
        let before = preheader(body, block);
        let mut held: BTreeMap<i64, Reg> = BTreeMap::new();
        let mut near: BTreeMap<(Reg, i64), Reg> = BTreeMap::new();
        let mut items = Vec::new();
        for access in std::mem::take(&mut body.blocks[block]) {
            match memory_of(&access) {
                Some(memory) if memory.word().is_none() => {
                    let base = access.operands[1].vreg();
                    let is_held = held.contains_key(&memory.displacement) || held.len() < MAX_HELD;
                    match before.filter(|_| is_held) {
                        Some(before) => items.push(indexed(body, before, access, memory, &mut held)),
                        None => items.extend(nearby(body, access, memory, base, &mut near)),
                    }
                }
                _ => items.push(access),
            }
        }
        body.blocks[block] = items;
    }
}

fn indexed(body: &mut Body, before: usize, access: Item, memory: Memory, held: &mut BTreeMap<i64, Reg>) -> Item {
    let base = access.operands[1];
    let displacement = match held.get(&memory.displacement) {
        Some(&reg) => reg,
        None => {
            let reg = body.fresh(base.vreg());
            let made = constant(body, reg, memory.displacement);
            let jump = body.blocks[before].len() - 1;
            body.blocks[before].splice(jump..jump, made);
            held.insert(memory.displacement, reg);
            reg
        }
    };
    let word = memory.access.indexed(Extend::Lsl, false);
    let what = if memory.access.is_load { What::Loads } else { What::Stores };
    let inst = Inst { word, fields: vec![RD, RN, RM], what };
    item(inst, vec![access.operands[0], base, Operand::reg_use(displacement)])
}

/// The access at a base nearby, with what makes the base if it is new.
fn nearby(body: &mut Body, access: Item, memory: Memory, base: Reg, near: &mut BTreeMap<(Reg, i64), Reg>) -> Vec<Item> {
    // Multiples of a page are one immediate up to 16 MiB.
    let high = memory.displacement & !0xFFF;
    let at_low = Memory { displacement: memory.displacement - high, ..memory };
    let (high, memory) =
        if at_low.word().is_some() { (high, at_low) } else { (memory.displacement, Memory { displacement: 0, ..memory }) };
    let mut items = Vec::new();
    let reg = match near.get(&(base, high)) {
        Some(&reg) => reg,
        None => {
            let reg = body.fresh(base);
            let op = if high < 0 { SUB } else { ADD };
            match add_imm(op, Width::X, high.unsigned_abs()) {
                Some(word) => items.push(pure(word, &[RD, RN], vec![Operand::reg_def(reg), Operand::reg_use(base)])),
                None => {
                    let offset = body.fresh(base);
                    items.extend(constant(body, offset, high));
                    let operands = vec![Operand::reg_def(reg), Operand::reg_use(base), Operand::reg_use(offset)];
                    items.push(pure(general(ADD, Width::X), &[RD, RN, RM], operands));
                }
            }
            near.insert((base, high), reg);
            reg
        }
    };
    let word = memory.word().expect("what is near fits");
    let inst = Inst { word, fields: vec![RD, RN], what: What::Memory(memory) };
    items.push(item(inst, vec![access.operands[0], Operand::reg_use(reg)]));
    items
}
