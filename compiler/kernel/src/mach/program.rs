//! Machine programs: basic blocks in the order of their code, instructions with operands over virtual registers.

use std::ops::Range;

use mcc_support::entity_id;
use regalloc2::{Operand, PRegSet, VReg as Reg};

entity_id!(/// A basic block; also the label of its code.
    Block, "b");

#[derive(Clone, Debug)]
pub enum Kind<I> {
    Plain(I),
    /// Ends a block with two successors: to the first where the instruction says so, else to the second.
    Branch(I),
    /// Ends a block with one successor and passes it arguments.
    Jump,
    /// Ends a block without successors.
    Return,
}

#[derive(Clone, Debug)]
pub struct Inst<I> {
    pub kind: Kind<I>,
    /// Of [`Program::operands`].
    pub operands: Range<u32>,
    /// Registers that hold nothing afterwards.
    pub clobbers: PRegSet,
}

#[derive(Clone, Debug, Default)]
pub struct BlockData {
    pub insts: Range<u32>,
    pub params: Vec<Reg>,
    /// What its jump passes to the parameters of its only successor.
    pub args: Vec<Reg>,
    pub succs: Vec<Block>,
    pub preds: Vec<Block>,
    /// Whether it is the first block of a loop without loops inside.
    pub is_inner_loop: bool,
}

/// The first block is the entry. No edge leads from a block with several successors to one with several predecessors, and only
/// jumps pass arguments.
#[derive(Clone, Debug)]
pub struct Program<I> {
    pub insts: Vec<Inst<I>>,
    pub operands: Vec<Operand>,
    pub blocks: Vec<BlockData>,
    pub reg_count: usize,
}

impl<I> Program<I> {
    pub fn operands(&self, inst: usize) -> &[Operand] {
        let Range { start, end } = self.insts[inst].operands;
        &self.operands[start as usize..end as usize]
    }
}
