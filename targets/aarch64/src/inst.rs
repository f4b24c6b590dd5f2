//! Instructions whose registers are not chosen yet.

use mcc_kernel::mach::{Context, Operand, Reg};

use crate::encode::{Access, PairMode, RA, RD, RM, RN};

/// A word with empty register fields, and what else there is to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inst {
    pub word: u32,
    /// The bit at which each operand's register number goes; see [`IMPLIED`].
    pub fields: Vec<u8>,
    pub what: What,
}

/// The field of an operand that the word does not name: it is that of another operand, or fixed.
pub const IMPLIED: u8 = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Computes its result from its operands, nothing else.
    Pure,
    /// Makes no code: defines parameters.
    Nothing,
    /// Its result is its operand: a copy, which the rest need not see.
    Copy,
    SetsFlags,
    /// Pure but for the flags that it reads.
    ReadsFlags,
    /// At the base, the last operand, plus a displacement.
    Memory(Memory),
    /// Loads or stores elsewhere: by index, single lanes.
    Loads,
    Stores,
    Prefetch,
    /// Loads a constant: the index of a literal.
    Literal(usize),
    /// The address of a slot.
    Slot(u32),
    /// Loads an argument that the caller put on the stack: its number there.
    Incoming(u32),
    /// Stores an argument of a call on the stack.
    Outgoing,
    /// The page of a symbol, and the rest of its address.
    Page(String),
    PageOffset(String),
    Call(String),
    CallPtr,
}

/// A load or store of a base and a displacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub access: Access,
    pub displacement: i64,
    /// Known alignment of the address, in bytes.
    pub align: u32,
    /// The registers of data: two of a pair.
    pub count: u8,
    /// What is added to the base afterwards, which is then a result; 0 for none.
    pub step: i64,
}

impl Memory {
    /// The word, where an instruction holds the displacement or step.
    pub fn word(self) -> Option<u32> {
        match (self.count, self.step) {
            (2, 0) => self.access.pair(self.displacement, PairMode::Offset),
            (2, step) => self.access.pair(step, PairMode::PostIndex),
            (_, 0) => self.access.at(self.displacement),
            (_, step) => self.access.post_index(step),
        }
    }

    /// Whether the displacement is held or can be seen to later.
    pub fn can_be_placed(self) -> bool {
        self.count == 1 || self.word().is_some()
    }
}

/// An instruction with its operands while it is put together.
#[derive(Debug)]
pub struct Make {
    pub inst: Inst,
    pub operands: Vec<Operand>,
}

impl Make {
    pub fn new(word: u32) -> Self {
        Self { inst: Inst { word, fields: Vec::new(), what: What::Pure }, operands: Vec::new() }
    }

    pub fn what(mut self, what: What) -> Self {
        self.inst.what = what;
        self
    }

    pub fn operand(mut self, operand: Operand, field: u8) -> Self {
        self.operands.push(operand);
        self.inst.fields.push(field);
        self
    }

    pub fn def(self, reg: Reg) -> Self {
        self.operand(Operand::reg_def(reg), RD)
    }

    /// A use of a register at this field.
    pub fn with(self, reg: Reg, field: u8) -> Self {
        self.operand(Operand::reg_use(reg), field)
    }

    pub fn n(self, reg: Reg) -> Self {
        self.with(reg, RN)
    }

    pub fn m(self, reg: Reg) -> Self {
        self.with(reg, RM)
    }

    pub fn a(self, reg: Reg) -> Self {
        self.with(reg, RA)
    }

    /// The result takes the place of `old`; to be called first.
    pub fn tied(self, def: Reg, old: Reg) -> Self {
        let index = self.operands.len();
        self.operand(Operand::reg_use(old), IMPLIED).operand(Operand::reg_reuse_def(def, index), RD)
    }

    pub fn push(self, cx: &mut Context<Inst>) {
        cx.push(self.inst, &self.operands);
    }

    pub fn push_branch(self, cx: &mut Context<Inst>) {
        cx.push_branch(self.inst, &self.operands);
    }
}
