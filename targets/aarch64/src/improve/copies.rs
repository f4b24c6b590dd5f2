//! Copies disappear: what uses the copy uses the original.

use mcc_kernel::mach::{Operand, Reg};

use super::{Body, Item};
use crate::inst::What;

/// The same operand of another register.
pub fn renamed(operand: Operand, reg: Reg) -> Operand {
    Operand::new(reg, operand.constraint(), operand.kind(), operand.pos())
}

/// Before: `b = copy a; c = add b, b`. After: `c = add a, a`.
pub fn remove_copies(body: &mut Body) {
    let mut originals: Vec<Option<Reg>> = vec![None; body.program.reg_count];
    let is_copy = |item: &Item| item.inst().is_some_and(|inst| inst.what == What::Copy);
    for item in body.blocks.iter().flatten().filter(|item| is_copy(item)) {
        originals[item.operands[0].vreg().vreg()] = Some(item.operands[1].vreg());
    }
    let original = |mut reg: Reg| {
        while let Some(other) = originals[reg.vreg()] {
            reg = other;
        }
        reg
    };
    for (items, block) in body.blocks.iter_mut().zip(&mut body.program.blocks) {
        items.retain(|item| !is_copy(item));
        for operand in items.iter_mut().flat_map(|item| &mut item.operands) {
            *operand = renamed(*operand, original(operand.vreg()));
        }
        block.args.iter_mut().for_each(|arg| *arg = original(*arg));
    }
}
