//! Pointers that move through memory are moved by an access.
//!
//! Before: `ldr q, [x]; ldr q', [x, #16]; add x', x, #32`. After: `ldr q, [x], #32; ldr q', [x', #-16]`.

use std::collections::BTreeMap;

use mcc_kernel::mach::{Operand, OperandKind, Reg};

use super::copies::renamed;
use super::memory::{base_of, memory_of};
use super::{Body, Item};
use crate::encode::{ADD, RN, SUB, Width, add_imm};
use crate::inst::{IMPLIED, Inst, Memory, What};

/// How far an instruction moves its operand, if that is all it does.
fn step_of(item: &Item) -> Option<i64> {
    let inst = item.inst()?;
    let field = |word: u32| i64::from(word >> 10 & 0xFFF) << (12 * (word >> 22 & 1));
    let without = inst.word & !(0x1FFF << 10);
    let is = |op: u32| add_imm(op, Width::X, 0) == Some(without);
    match inst.what {
        What::Pure if is(ADD) => Some(field(inst.word)),
        What::Pure if is(SUB) => Some(-field(inst.word)),
        _ => None,
    }
}

pub fn move_bases(body: &mut Body) {
    for block in 0..body.blocks.len() {
        let moved: Vec<(usize, i64)> = body.blocks[block]
            .iter()
            .enumerate()
            .filter_map(|(index, item)| step_of(item).filter(|&step| step != 0).map(|step| (index, step)))
            .collect();
        // From the end, so that places before stay.
        for &(index, step) in moved.iter().rev() {
            move_base(body, block, index, step);
        }
    }
}

/// Gives the addition at `index` to an access.
fn move_base(body: &mut Body, block: usize, index: usize, step: i64) {
    let items = &body.blocks[block];
    let (to, from) = (items[index].operands[0].vreg(), items[index].operands[1].vreg());
    let is_param = body.program.blocks[block].params.contains(&from);
    let is_carried =
        body.program.blocks[block].succs.iter().any(|succ| body.program.blocks[super::index(*succ)].args.contains(&to));
    if !is_param || !is_carried || is_used_elsewhere(body, block, from) {
        return;
    }
    let items = &body.blocks[block];
    let Some((first, memory)) = items.iter().enumerate().find_map(|(at, item)| {
        let memory = memory_of(item)?;
        let fits = base_of(item, memory) == from && memory.displacement == 0 && memory.step == 0;
        let is_data = item.operands[..usize::from(memory.count)].iter().any(|operand| operand.vreg() == from);
        (fits && !is_data && Memory { step, ..memory }.word().is_some()).then_some((at, memory))
    }) else {
        return;
    };
    let Some(later) = later_uses(items, first, index, from, step) else { return };
    for (at, memory) in later {
        let item = &mut body.blocks[block][at];
        let inst = item.inst().expect("it accesses memory").clone();
        let word = memory.word().unwrap_or(0);
        item.set_inst(Inst { word, what: What::Memory(memory), ..inst });
        let position = item.operands.len() - 1;
        item.operands[position] = renamed(item.operands[position], to);
    }
    let item = &mut body.blocks[block][first];
    let mut inst = item.inst().expect("it accesses memory").clone();
    let memory = Memory { step, ..memory };
    inst.word = memory.word().expect("it was looked at");
    inst.what = What::Memory(memory);
    let position = item.operands.len() - 1;
    // The base field is written by the use; the result has the same register.
    inst.fields[position] = RN;
    inst.fields.push(IMPLIED);
    item.set_inst(inst);
    item.operands.push(Operand::reg_reuse_def(to, position));
    body.blocks[block].remove(index);
}

fn is_used_elsewhere(body: &Body, block: usize, reg: Reg) -> bool {
    body.blocks.iter().enumerate().any(|(other, items)| {
        let uses = |item: &Item| item.operands.iter().any(|operand| operand.kind() == OperandKind::Use && operand.vreg() == reg);
        other != block && (items.iter().any(uses) || body.program.blocks[other].args.contains(&reg))
    }) || body.program.blocks[block].args.contains(&reg)
}

/// The accesses after `first` with the moved base; `None` where one cannot have it.
fn later_uses(items: &[Item], first: usize, addition: usize, from: Reg, step: i64) -> Option<BTreeMap<usize, Memory>> {
    let mut later = BTreeMap::new();
    for (at, item) in items.iter().enumerate().skip(first + 1).filter(|&(at, _)| at != addition) {
        let count = item.operands.iter().filter(|operand| operand.vreg() == from).count();
        if count == 0 {
            continue;
        }
        let memory = memory_of(item)?;
        let moved = Memory { displacement: memory.displacement - step, ..memory };
        if count > 1 || memory.step != 0 || base_of(item, memory) != from || !moved.can_be_placed() {
            return None;
        }
        later.insert(at, moved);
    }
    // What uses the moved base before it is moved now stays after it.
    let is_early = |item: &Item| item.operands.iter().any(|operand| operand.vreg() == items[addition].operands[0].vreg());
    (!items[..addition].iter().any(is_early)).then_some(later)
}
