//! Which vector registers are needed where, and how many at once.

use std::collections::BTreeSet;

use mcc_kernel::mach::{Operand, OperandKind, Reg, RegClass};

use super::{Body, Item, index};

/// Registers that hold a vector at a point.
pub type Live = BTreeSet<Reg>;

fn is_vector(reg: Reg) -> bool {
    reg.class() == RegClass::Float
}

fn regs(item: &Item, kind: OperandKind) -> impl Iterator<Item = Reg> + '_ {
    let fits = move |operand: &&Operand| operand.kind() == kind && is_vector(operand.vreg());
    item.operands.iter().filter(fits).map(|operand| operand.vreg())
}

/// What is needed before an instruction, from what is needed after it.
pub fn step_back(item: &Item, live: &mut Live) {
    for reg in regs(item, OperandKind::Def) {
        live.remove(&reg);
    }
    live.extend(regs(item, OperandKind::Use));
}

/// What is needed at the end of each block.
pub fn live_at_ends(body: &Body) -> Vec<Live> {
    let count = body.blocks.len();
    let mut starts: Vec<Live> = vec![Live::new(); count];
    let mut ends: Vec<Live> = vec![Live::new(); count];
    loop {
        let mut is_changed = false;
        for block in (0..count).rev() {
            let data = &body.program.blocks[block];
            let mut live: Live = data.args.iter().copied().filter(|&arg| is_vector(arg)).collect();
            for succ in &data.succs {
                live.extend(starts[index(*succ)].iter().copied());
            }
            if live != ends[block] {
                ends[block].clone_from(&live);
                is_changed = true;
            }
            body.blocks[block].iter().rev().for_each(|item| step_back(item, &mut live));
            data.params.iter().for_each(|param| {
                live.remove(param);
            });
            if live != starts[block] {
                starts[block] = live;
                is_changed = true;
            }
        }
        if !is_changed {
            return ends;
        }
    }
}

/// The most vectors that are needed at once in a list of instructions.
pub fn most_live(items: &[Item], end: &Live) -> usize {
    let mut live = end.clone();
    let mut most = live.len();
    for item in items.iter().rev() {
        // A result has a register even where nobody needs it.
        let made = regs(item, OperandKind::Def).filter(|reg| !live.contains(reg)).count();
        most = most.max(live.len() + made);
        step_back(item, &mut live);
        most = most.max(live.len());
    }
    most
}
