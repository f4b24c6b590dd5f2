//! Instructions over virtual registers: the fields of an encoding that name operands by their position.

use crate::encode::Imm;
use crate::rows::Row;

/// A register field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// Not there.
    None,
    /// The operand at this position.
    Operand(u8),
    /// This number: a part of the opcode.
    Fixed(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    Operand(u8),
    /// A slot of the kernel's frame.
    Slot(u32),
    /// Space in the frame for a value on its way.
    Scratch,
    /// A constant after the code.
    Pool(u32),
    /// The address of a symbol.
    Symbol(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mem {
    pub base: Base,
    pub index: Option<u8>,
    pub scale: u8,
    pub displacement: i32,
    pub is_broadcast: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rm {
    Slot(Slot),
    Mem(Mem),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    pub row: Row,
    pub bits: u32,
    pub reg: Slot,
    pub vvvv: Slot,
    pub rm: Rm,
    pub mask: Slot,
    /// Whether lanes that the mask leaves out become 0.
    pub zeroes: bool,
    pub fourth: Slot,
    pub imm: Imm,
}

/// Conditions by their number in `jcc`, `setcc` and `cmovcc`; the lowest bit inverts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags(pub u8);

impl Flags {
    pub const BELOW: Flags = Flags(2);
    pub const ABOVE_EQUAL: Flags = Flags(3);
    pub const EQUAL: Flags = Flags(4);
    pub const NOT_EQUAL: Flags = Flags(5);
    pub const BELOW_EQUAL: Flags = Flags(6);
    pub const ABOVE: Flags = Flags(7);
    pub const SIGN: Flags = Flags(8);
    pub const PARITY: Flags = Flags(10);
    pub const NO_PARITY: Flags = Flags(11);
    pub const LESS: Flags = Flags(12);
    pub const GREATER_EQUAL: Flags = Flags(13);
    pub const LESS_EQUAL: Flags = Flags(14);
    pub const GREATER: Flags = Flags(15);

    pub fn inverted(self) -> Flags {
        Flags(self.0 ^ 1)
    }
}

#[derive(Clone, Debug)]
pub enum Inst {
    Op(Op),
    /// `mov` of a constant of 64 bits.
    Wide(u64),
    /// Jumps where the flags say so; what sets them is the instruction before.
    Jump(Flags),
    /// No code: operands change their names.
    Nothing,
    /// Calls the function of the object that this symbol names.
    Call(u32),
    /// Calls what rax points to.
    CallRax,
}
