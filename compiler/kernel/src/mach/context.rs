//! What a target sees of the kernel while it selects instructions.

use mcc_support::{EntityMap, bug};
use regalloc2::{Operand, PRegSet, RegClass, VReg as Reg};

use super::analysis::{Analysis, Def, has_effect, writes_memory};
use super::program::Kind;
use crate::ir::{Kernel, Node, Op, Type, VReg};

/// An instruction of the group that is being selected.
#[derive(Debug)]
pub(super) struct Pushed<I> {
    pub kind: Kind<I>,
    pub operands: Vec<Operand>,
    pub clobbers: PRegSet,
}

/// A constant that a register is to hold from somewhere before the present instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub reg: Reg,
    pub ty: Type,
    pub bits: u64,
    /// The node that asked for it last.
    pub asked: u32,
}

/// Instructions that use a constant are in a row where they are so many nodes apart, at most.
pub(super) const NEAR_NODES: usize = 8;

/// What is kept in registers in a stretch of code: a loop, or some instructions in a row.
#[derive(Default, Debug)]
pub(super) struct Held {
    pub constants: Vec<Wanted>,
    pub pointers: Vec<Pointer>,
    /// How many loops are around what is in the loop.
    pub depth: u32,
    /// Registers of the vectors' and floats' class that the loop's values take.
    pub live_floats: usize,
}

/// A pointer that a register is to hold from somewhere before the present instruction: base and terms.
#[derive(Clone, Debug)]
pub(super) struct Pointer {
    pub reg: Reg,
    pub base: VReg,
    pub terms: Vec<(VReg, i64)>,
    /// The node that asked for it last.
    pub asked: u32,
}

/// Kernels are gone through from their end to their beginning, so that a register is asked for before it is defined: what nobody
/// asks for is not computed, and an instruction may take over what only it needs ([`sinkable`](Self::sinkable)).
#[derive(Debug)]
pub struct Context<'k, I> {
    pub kernel: &'k Kernel,
    pub(super) analysis: Analysis<'k>,
    class: fn(Type) -> RegClass,
    is_cheap: fn(Type, u64) -> bool,
    pub(super) regs: EntityMap<VReg, Option<Reg>>,
    pub(super) reg_count: usize,
    pub(super) group: Vec<Pushed<I>>,
    /// Constants to be made directly before the present group.
    pub(super) wanted: Vec<Wanted>,
    /// For the block that is open, and for the inner loop that is open if one is.
    pub(super) block_held: Held,
    pub(super) loop_held: Option<Held>,
    pub(super) depth: u32,
    pub(super) epoch: u32,
    /// How many nodes have been gone through.
    pub(super) node: u32,
    /// The nodes before the present one in its block.
    pub(super) before: &'k [Node],
    /// Constants that instructions in a row use, each to be made before the first of them.
    pub(super) near: Vec<Wanted>,
}

impl<'k, I> Context<'k, I> {
    pub(super) fn new(
        kernel: &'k Kernel,
        analysis: Analysis<'k>,
        class: fn(Type) -> RegClass,
        is_cheap: fn(Type, u64) -> bool,
    ) -> Self {
        let epoch = analysis.epochs;
        Self {
            kernel,
            analysis,
            class,
            is_cheap,
            regs: EntityMap::filled(kernel.types.len(), None),
            reg_count: 0,
            group: Vec::new(),
            wanted: Vec::new(),
            block_held: Held::default(),
            loop_held: None,
            depth: 0,
            epoch,
            node: 0,
            before: &[],
            near: Vec::new(),
        }
    }

    pub fn ty(&self, reg: VReg) -> Type {
        self.kernel.types[reg]
    }

    /// A machine register that nothing else has.
    pub fn fresh(&mut self, class: RegClass) -> Reg {
        self.reg_count += 1;
        Reg::new(self.reg_count - 1, class)
    }

    pub fn class_of(&self, ty: Type) -> RegClass {
        (self.class)(ty)
    }

    /// The machine register in which the value will be at the present instruction.
    pub fn reg(&mut self, value: VReg) -> Reg {
        if let Some(bits) = self.constant(value) {
            return self.constant_reg(self.ty(value), bits);
        }
        if let Some(reg) = self.regs[value] {
            return reg;
        }
        let reg = self.fresh((self.class)(self.ty(value)));
        self.regs[value] = Some(reg);
        reg
    }

    /// The machine register of what is written over, as a parameter of a block is: of a constant one of its own, since it would be a
    /// copy anyway.
    pub fn own_reg(&mut self, value: VReg) -> Reg {
        let Some(bits) = self.constant(value) else { return self.reg(value) };
        let ty = self.ty(value);
        let reg = self.fresh((self.class)(ty));
        self.wanted.push(Wanted { reg, ty, bits, asked: self.node });
        reg
    }

    /// A machine register that holds a constant at the present instruction.
    pub fn constant_reg(&mut self, ty: Type, bits: u64) -> Reg {
        if (self.is_cheap)(ty, bits) {
            let reg = self.fresh((self.class)(ty));
            self.wanted.push(Wanted { reg, ty, bits, asked: self.node });
            return reg;
        }
        let held = self.loop_held.as_mut().unwrap_or(&mut self.block_held);
        if let Some(known) = held.constants.iter_mut().find(|known| known.ty == ty && known.bits == bits) {
            known.asked = self.node;
            return known.reg;
        }
        let reg = Reg::new(self.reg_count, (self.class)(ty));
        self.reg_count += 1;
        held.constants.push(Wanted { reg, ty, bits, asked: self.node });
        reg
    }

    /// A machine register that holds a constant at the present instruction and at the others in a row with it that use it; `None` where
    /// these are fewer than `least`.
    pub fn near_constant(&mut self, ty: Type, bits: u64, least: usize) -> Option<Reg> {
        let is_it = |value: &VReg| self.ty(*value) == ty && self.constant(*value) == Some(bits);
        let uses = |node: &&Node| matches!(node, Node::Inst { args, .. } if args.iter().any(is_it));
        let earlier = self.before.iter().rev().take(NEAR_NODES).filter(uses).count();
        let known = self.near.iter().position(|known| known.ty == ty && known.bits == bits);
        match known {
            Some(known) if earlier == 0 => {
                let wanted = self.near.swap_remove(known);
                self.wanted.push(wanted);
                Some(wanted.reg)
            }
            Some(known) => {
                self.near[known].asked = self.node;
                Some(self.near[known].reg)
            }
            None if earlier + 1 < least => None,
            None => {
                let reg = self.fresh((self.class)(ty));
                self.near.push(Wanted { reg, ty, bits, asked: self.node });
                Some(reg)
            }
        }
    }

    /// A register that holds `base + Σ register · scale`, shared by all that ask for the same nearby; [`Select::pointer`] makes it.
    ///
    /// [`Select::pointer`]: super::Select::pointer
    pub fn pointer(&mut self, base: VReg, terms: &[(VReg, i64)]) -> Reg {
        let reg = Reg::new(self.reg_count, (self.class)(Type::Ptr));
        let depths = &self.analysis.depths;
        let depth = terms.iter().map(|term| depths[term.0]).chain([depths[base]]).max().unwrap_or(0);
        let held = match &mut self.loop_held {
            Some(held) if depth < held.depth => held,
            _ => &mut self.block_held,
        };
        if let Some(known) = held.pointers.iter_mut().find(|known| known.base == base && known.terms == terms) {
            known.asked = self.node;
            return known.reg;
        }
        self.reg_count += 1;
        held.pointers.push(Pointer { reg, base, terms: terms.to_vec(), asked: self.node });
        reg
    }

    /// Registers of floats and vectors that the inner loop that is open takes: for its values, and for constants so far.
    pub fn held_floats(&self) -> [usize; 2] {
        let held = self.loop_held.as_ref().unwrap_or(&self.block_held);
        [held.live_floats, held.constants.iter().filter(|wanted| wanted.reg.class() == RegClass::Float).count()]
    }

    /// Whether an inner loop is open.
    pub fn in_inner_loop(&self) -> bool {
        self.loop_held.is_some()
    }

    /// The bits in every lane of a constant, which may be splat.
    pub fn constant(&self, value: VReg) -> Option<u64> {
        match self.analysis.defs[value] {
            Def::Inst { op: Op::Const(bits), .. } => Some(*bits),
            Def::Inst { op: Op::Splat, args, .. } => self.constant(args[0]),
            _ => None,
        }
    }

    /// The instruction that defines a value, if one does.
    pub fn def(&self, value: VReg) -> Option<(&'k Op, &'k [VReg])> {
        match self.analysis.defs[value] {
            Def::Inst { op, args, .. } => Some((op, args)),
            _ => None,
        }
    }

    /// How often a value is used by what is needed; what regions carry and give counts.
    pub fn uses(&self, value: VReg) -> u32 {
        self.analysis.uses[value]
    }

    /// The instruction that defines a value which nothing but the present instruction uses, if it may as well be computed here: it
    /// is in the same loop, and, if it loads, memory is the same. Who takes it must not ask for the value's register.
    pub fn sinkable(&self, value: VReg) -> Option<(&'k Op, &'k [VReg])> {
        let Def::Inst { op, args, epoch } = self.analysis.defs[value] else { return None };
        let is_load = matches!(op, Op::Load { .. } | Op::LoadFirst { .. } | Op::LoadPtr(_));
        let stays = has_effect(op) || writes_memory(op) || is_load && epoch != self.epoch;
        let fits = self.analysis.uses[value] == 1 && self.regs[value].is_none() && self.is_here(value) && !stays;
        fits.then_some((op, args))
    }

    /// Whether nothing after the present instruction reads the value, so that its register may be written over.
    pub fn is_last_use(&self, value: VReg) -> bool {
        self.regs[value].is_none() && self.is_here(value) && self.constant(value).is_none()
    }

    /// Whether something after the present instruction reads the value from its register.
    pub fn is_asked(&self, value: VReg) -> bool {
        self.regs[value].is_some()
    }

    /// Whether a value is defined in the loop that the present instruction is in, not around it.
    pub fn is_here(&self, value: VReg) -> bool {
        self.analysis.depths[value] == self.depth
    }

    /// Appends to the instructions of the present node.
    pub fn push(&mut self, inst: I, operands: &[Operand]) {
        self.push_clobbering(inst, operands, PRegSet::empty());
    }

    /// Likewise, with physical registers that the instruction destroys beside its operands.
    pub fn push_clobbering(&mut self, inst: I, operands: &[Operand], clobbers: PRegSet) {
        self.group.push(Pushed { kind: Kind::Plain(inst), operands: operands.to_vec(), clobbers });
    }

    /// Ends the block: a jump to the first of the two successors where the instruction says so.
    pub fn push_branch(&mut self, inst: I, operands: &[Operand]) {
        self.group.push(Pushed { kind: Kind::Branch(inst), operands: operands.to_vec(), clobbers: PRegSet::empty() });
    }

    /// Ends the function; the operands are what it returns.
    pub fn push_return(&mut self, operands: &[Operand]) {
        self.group.push(Pushed { kind: Kind::Return, operands: operands.to_vec(), clobbers: PRegSet::empty() });
    }

    /// A fault of the target or of what gave it this kernel.
    pub fn unsupported(&self, op: &Op) -> ! {
        bug!("kernel {}: the target was given {op:?}, which it lacks", self.kernel.name)
    }
}
