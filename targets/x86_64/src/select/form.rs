//! Builds an instruction with its operands.

use mcc_kernel::mach::{Operand as Constraint, Reg};

use super::Context;
use crate::encode::Imm;
use crate::inst::{Base, Inst, Mem, Op, Rm, Slot};
use crate::rows::Row;

/// Where an address begins.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    Reg(Reg),
    Slot(u32),
    Scratch,
    Pool(u32),
    Symbol(u32),
}

/// An operand in memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub origin: Origin,
    pub index: Option<(Reg, u8)>,
    pub displacement: i32,
    pub is_broadcast: bool,
}

impl Memory {
    pub fn at(origin: Origin, displacement: i32) -> Memory {
        Memory { origin, index: None, displacement, is_broadcast: false }
    }

    pub fn broadcast(self) -> Memory {
        Memory { is_broadcast: true, ..self }
    }
}

/// An operand that may be in memory.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    Reg(Reg),
    Memory(Memory),
}

impl From<Reg> for Source {
    fn from(reg: Reg) -> Source {
        Source::Reg(reg)
    }
}

impl From<Memory> for Source {
    fn from(memory: Memory) -> Source {
        Source::Memory(memory)
    }
}

#[derive(Debug)]
pub struct Form {
    op: Op,
    operands: Vec<Constraint>,
}

impl Form {
    pub fn new(row: Row, bits: u32) -> Form {
        let op = Op {
            row,
            bits,
            reg: Slot::None,
            vvvv: Slot::None,
            rm: Rm::Slot(Slot::None),
            mask: Slot::None,
            zeroes: false,
            fourth: Slot::None,
            imm: Imm::None,
        };
        Form { op, operands: Vec::new() }
    }

    fn operand(&mut self, operand: Constraint) -> u8 {
        self.operands.push(operand);
        self.operands.len() as u8 - 1
    }

    /// The register field is written.
    pub fn def(mut self, reg: Reg) -> Form {
        self.op.reg = Slot::Operand(self.operand(Constraint::reg_def(reg)));
        self
    }

    /// The register is written, and reading it first makes no difference: `xor to, to, to`.
    pub fn def_only(mut self, reg: Reg) -> Form {
        let slot = Slot::Operand(self.operand(Constraint::reg_def(reg)));
        self.op.reg = slot;
        self.op.vvvv = slot;
        self.op.rm = Rm::Slot(slot);
        self
    }

    /// The register field is read.
    pub fn reg(mut self, reg: Reg) -> Form {
        self.op.reg = Slot::Operand(self.operand(Constraint::reg_use(reg)));
        self
    }

    /// The register field is a part of the opcode.
    pub fn ext(mut self, value: u8) -> Form {
        self.op.reg = Slot::Fixed(value);
        self
    }

    /// The register field is read as `from` and written as `to`.
    pub fn reuse(mut self, from: Reg, to: Reg) -> Form {
        let from = self.operand(Constraint::reg_use(from));
        self.operand(Constraint::reg_reuse_def(to, usize::from(from)));
        self.op.reg = Slot::Operand(from);
        self
    }

    pub fn vvvv(mut self, reg: Reg) -> Form {
        self.op.vvvv = Slot::Operand(self.operand(Constraint::reg_use(reg)));
        self
    }

    pub fn def_vvvv(mut self, reg: Reg) -> Form {
        self.op.vvvv = Slot::Operand(self.operand(Constraint::reg_def(reg)));
        self
    }

    /// The mask register that decides.
    pub fn mask(mut self, reg: Reg) -> Form {
        self.op.mask = Slot::Operand(self.operand(Constraint::reg_use(reg)));
        self
    }

    /// What the mask leaves out becomes 0.
    pub fn zeroing(mut self) -> Form {
        self.op.zeroes = true;
        self
    }

    pub fn fourth(mut self, reg: Reg) -> Form {
        self.op.fourth = Slot::Operand(self.operand(Constraint::reg_use(reg)));
        self
    }

    pub fn rm(mut self, source: Source) -> Form {
        match source {
            Source::Reg(reg) => {
                let slot = Slot::Operand(self.operand(Constraint::reg_use(reg)));
                self.op.rm = Rm::Slot(slot);
            }
            Source::Memory(memory) => {
                let base = match memory.origin {
                    Origin::Reg(reg) => Base::Operand(self.operand(Constraint::reg_use(reg))),
                    Origin::Slot(slot) => Base::Slot(slot),
                    Origin::Scratch => Base::Scratch,
                    Origin::Pool(entry) => Base::Pool(entry),
                    Origin::Symbol(symbol) => Base::Symbol(symbol),
                };
                let index = memory.index.map(|(reg, _)| self.operand(Constraint::reg_use(reg)));
                let scale = memory.index.map_or(1, |(_, scale)| scale);
                let Memory { displacement, is_broadcast, .. } = memory;
                self.op.rm = Rm::Mem(Mem { base, index, scale, displacement, is_broadcast });
            }
        }
        self
    }

    pub fn def_rm(mut self, reg: Reg) -> Form {
        self.op.rm = Rm::Slot(Slot::Operand(self.operand(Constraint::reg_def(reg))));
        self
    }

    pub fn reuse_rm(mut self, from: Reg, to: Reg) -> Form {
        let from = self.operand(Constraint::reg_use(from));
        self.operand(Constraint::reg_reuse_def(to, usize::from(from)));
        self.op.rm = Rm::Slot(Slot::Operand(from));
        self
    }

    /// With lanes or registers of 64 bits.
    pub fn wide(mut self) -> Form {
        self.op.row = self.op.row.w1();
        self
    }

    pub fn imm(mut self, imm: Imm) -> Form {
        self.op.imm = imm;
        self
    }

    pub fn push(self, cx: &mut Context) {
        cx.push(Inst::Op(self.op), &self.operands);
    }

    /// With other operands beside, and registers that are destroyed.
    pub fn push_with(mut self, cx: &mut Context, more: &[Constraint]) {
        self.operands.extend(more);
        cx.push(Inst::Op(self.op), &self.operands);
    }
}
