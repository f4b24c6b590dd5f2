//! Register allocation: random kernels on a machine with few registers, and a checker that refuses what is wrong.

use std::collections::BTreeSet;

use mcc_kernel::mach::{
    Allocated, Context, Latch, MachineEnv, Operand as Place, PReg, PRegSet, Program, Reg, RegClass, Select, allocate, check,
    lower,
};
use mcc_kernel::{Facts, Kernel, Op, Operand, Type, VReg};
use mcc_support::random::Random;

/// A machine without meaning: every node is one instruction that reads its operands from anywhere and writes a register.
struct Plain;

impl Plain {
    fn operand(cx: &mut Context<'_, &'static str>, operand: Operand) -> Place {
        match operand {
            Operand::Const(value) => Place::any_use(cx.constant_reg(Type::I64, value as u64)),
            Operand::Reg(reg) => Place::reg_use(cx.reg(reg)),
        }
    }
}

impl Select for Plain {
    type Inst = &'static str;

    fn class(_: Type) -> RegClass {
        RegClass::Int
    }

    fn is_cheap(_: Type, bits: u64) -> bool {
        bits == 0
    }

    fn constant(&mut self, cx: &mut Context<'_, &'static str>, to: Reg, _: Type, _: u64) {
        cx.push("constant", &[Place::reg_def(to)]);
    }

    fn node<'k>(&mut self, cx: &mut Context<'k, &'static str>, result: Option<VReg>, op: &'k Op, args: &'k [VReg]) {
        let address = match op {
            Op::Load { address, .. } | Op::Store { address, .. } | Op::LoadPtr(address) | Op::Lea(address) => Some(address),
            _ => None,
        };
        let read = args.iter().copied().chain(address.map(|address| address.base));
        let mut operands: Vec<_> = read.map(|reg| Place::any_use(cx.reg(reg))).collect();
        if let Some(address) = address {
            operands.extend(address.terms.iter().map(|&(reg, _)| Place::reg_use(cx.reg(reg))));
        }
        if let Some(result) = result {
            let to = cx.reg(result);
            // As multiply-add instructions, which write over an operand.
            let reused = (*op == Op::Mul).then(|| Place::reg_use(operands[0].vreg()));
            operands.splice(0..reused.iter().len(), reused);
            operands.push(if *op == Op::Mul { Place::reg_reuse_def(to, 0) } else { Place::reg_def(to) });
        }
        cx.push("node", &operands);
    }

    fn branch(&mut self, cx: &mut Context<'_, &'static str>, cond: VReg) {
        let cond = cx.reg(cond);
        cx.push_branch("branch", &[Place::reg_use(cond)]);
    }

    fn guard(&mut self, cx: &mut Context<'_, &'static str>, begin: Operand, end: Operand) {
        let operands = [begin, end].map(|bound| Self::operand(cx, bound));
        cx.push_branch("guard", &operands);
    }

    fn latch(&mut self, cx: &mut Context<'_, &'static str>, latch: Latch) {
        match latch {
            Latch::Count { counter, next } => {
                cx.push_branch("count", &[Place::reg_use(counter), Place::reg_reuse_def(next, 0)]);
            }
            Latch::Index { index, next, end, .. } => {
                cx.push("step", &[Place::reg_use(index), Place::reg_reuse_def(next, 0)]);
                let end = Self::operand(cx, end);
                cx.push_branch("latch", &[Place::reg_use(next), end]);
            }
        }
    }

    fn entry(&mut self, cx: &mut Context<'_, &'static str>, params: &[VReg]) {
        let fixed = |(index, &param)| Place::reg_fixed_def(cx.reg(param), PReg::new(index, RegClass::Int));
        let operands: Vec<_> = params.iter().enumerate().map(fixed).collect();
        cx.push("entry", &operands);
    }

    fn exit(&mut self, cx: &mut Context<'_, &'static str>, result: Option<VReg>) {
        let operands: Vec<_> =
            result.map(|result| Place::reg_fixed_use(cx.reg(result), PReg::new(0, RegClass::Int))).into_iter().collect();
        cx.push_return(&operands);
    }
}

fn env(count: usize) -> MachineEnv {
    let regs: PRegSet = (0..count).map(|index| PReg::new(index, RegClass::Int)).collect();
    MachineEnv {
        preferred_regs_by_class: [regs, PRegSet::empty(), PRegSet::empty()],
        non_preferred_regs_by_class: [PRegSet::empty(); 3],
        scratch_by_class: [None; 3],
        fixed_stack_slots: Vec::new(),
    }
}

fn kernels() -> Vec<Kernel> {
    let facts = Facts { supported: BTreeSet::new(), fma: true, ..Facts::default() };
    let signatures = mcc_conformance::signatures(&facts);
    (0..60).map(|seed| mcc_conformance::random_kernel(&signatures, seed)).collect()
}

fn allocated(kernel: &Kernel, registers: usize) -> (Program<&'static str>, Allocated) {
    let program = lower(kernel, &mut Plain);
    // In debug builds this checks.
    let allocated = allocate(&program, &env(registers), [1, 1, 1]);
    (program, allocated)
}

#[test]
fn random_kernels_are_allocated_rightly_under_pressure() {
    let mut spilled = 0;
    for kernel in kernels() {
        let (program, allocated) = allocated(&kernel, 5);
        check::check(&program, &allocated.output, [1, 1, 1]).unwrap();
        spilled += usize::from(allocated.output.num_spillslots > 0);
    }
    assert!(spilled > 30, "only {spilled} kernels had too few registers");
}

#[test]
fn wrong_allocations_are_refused() {
    let mut random = Random::new(7);
    let (mut changed, mut refused) = (0, 0);
    for kernel in kernels() {
        let (program, Allocated { output, .. }) = allocated(&kernel, 6);
        for _ in 0..2 {
            let mut wrong = output.clone();
            let at = random.below(wrong.allocs.len());
            let other = wrong.allocs[random.below(wrong.allocs.len())];
            if wrong.allocs[at] != other {
                wrong.allocs[at] = other;
                changed += 1;
                refused += usize::from(check::check(&program, &wrong, [1, 1, 1]).is_err());
            }
            if !output.edits.is_empty() {
                let mut wrong = output.clone();
                wrong.edits.remove(random.below(wrong.edits.len()));
                changed += 1;
                refused += usize::from(check::check(&program, &wrong, [1, 1, 1]).is_err());
            }
        }
    }
    // What is changed may not matter: a result that nobody reads, a move to where the value is already.
    assert!(changed > 100 && refused * 10 > changed * 7, "{refused} of {changed} wrong allocations were refused");
}
