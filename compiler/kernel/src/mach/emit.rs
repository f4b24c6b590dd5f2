//! Allocated programs to code, in order: instructions, moves, and no more jumps than needed.

use regalloc2::{Allocation, Edit, Inst as InstIndex, ProgPoint};

use super::alloc::Allocated;
use super::program::{Block, Kind, Program};

/// Encodes for a target.
pub trait Emit {
    type Inst;

    /// The next instruction is the first of this block.
    fn label(&mut self, block: Block, is_inner_loop: bool);

    fn inst(&mut self, inst: &Self::Inst, places: &[Allocation]);

    /// Copies a whole register; one of the two is in a register, and the flags stay as they are.
    fn copy(&mut self, from: Allocation, to: Allocation);

    /// Jumps to `to` where the instruction says so, or, `inverted`, where it does not; else what follows is run.
    fn branch(&mut self, inst: &Self::Inst, places: &[Allocation], to: Block, inverted: bool);

    fn jump(&mut self, to: Block);

    fn ret(&mut self);
}

/// Hands a program to `emitter` in the order of its blocks. Blocks that do nothing get no code.
pub fn emit<E: Emit>(program: &Program<E::Inst>, allocated: &Allocated, emitter: &mut E) {
    let walk = Walk { program, allocated };
    let count = program.blocks.len();
    // Where a jump to a block ends up; blocks that do nothing lead on to later or earlier ones, never in circles.
    let forward: Vec<usize> = (0..count).map(|block| walk.destination(block)).collect();
    let emitted: Vec<usize> = (0..count).filter(|&block| forward[block] == block).collect();
    for (position, &block) in emitted.iter().enumerate() {
        let following = emitted.get(position + 1).copied();
        walk.block(block, following, &forward, emitter);
    }
}

struct Walk<'a, I> {
    program: &'a Program<I>,
    allocated: &'a Allocated,
}

impl<I> Walk<'_, I> {
    /// The moves directly before an instruction.
    fn moves(&self, inst: usize) -> impl Iterator<Item = (Allocation, Allocation)> {
        let edits = &self.allocated.output.edits;
        // Those after the instruction before are here, too.
        let previous = if inst == 0 { ProgPoint::before(InstIndex::new(0)) } else { ProgPoint::after(InstIndex::new(inst - 1)) };
        let here = ProgPoint::before(InstIndex::new(inst));
        let from = edits.partition_point(|(point, _)| *point < previous);
        let until = edits.partition_point(|(point, _)| *point <= here);
        edits[from..until].iter().map(|(_, Edit::Move { from, to })| (*from, *to)).filter(|(from, to)| from != to)
    }

    fn destination(&self, mut block: usize) -> usize {
        // The entry keeps its place: the prologue runs into it.
        for _ in 0..self.program.blocks.len() {
            let data = &self.program.blocks[block];
            let only_jumps = data.insts.len() == 1
                && matches!(self.program.insts[data.insts.start as usize].kind, Kind::Jump)
                && self.moves(data.insts.start as usize).next().is_none();
            if !only_jumps || block == 0 {
                break;
            }
            block = data.succs[0].0 as usize;
        }
        block
    }

    fn block<E: Emit<Inst = I>>(&self, block: usize, following: Option<usize>, forward: &[usize], emitter: &mut E) {
        let data = &self.program.blocks[block];
        emitter.label(Block(block as u32), data.is_inner_loop);
        let succs: Vec<usize> = data.succs.iter().map(|succ| forward[succ.0 as usize]).collect();
        for index in data.insts.start as usize..data.insts.end as usize {
            for (from, to) in self.moves(index) {
                emitter.copy(from, to);
            }
            let places = self.allocated.output.inst_allocs(InstIndex::new(index));
            match &self.program.insts[index].kind {
                Kind::Plain(inst) => emitter.inst(inst, places),
                Kind::Jump if following == Some(succs[0]) => {}
                Kind::Jump => emitter.jump(Block(succs[0] as u32)),
                Kind::Branch(inst) => {
                    let [then, otherwise] = [Block(succs[0] as u32), Block(succs[1] as u32)];
                    if following == Some(succs[0]) {
                        emitter.branch(inst, places, otherwise, true);
                    } else {
                        emitter.branch(inst, places, then, false);
                        if following != Some(succs[1]) {
                            emitter.jump(otherwise);
                        }
                    }
                }
                Kind::Return => emitter.ret(),
            }
        }
    }
}
