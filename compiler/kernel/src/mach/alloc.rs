//! Register allocation by regalloc2.

use mcc_support::bug;
use regalloc2::{
    Algorithm, Block as Index, Edit, Function, Inst as InstIndex, InstRange, MachineEnv, Operand, OperandKind, Output, PRegSet,
    RegAllocError, RegClass, RegallocOptions, VReg as Reg,
};

use super::check;
use super::program::{BlockData, Kind, Program};

/// A program with a place for every operand, and moves between its instructions.
#[derive(Debug)]
pub struct Allocated {
    pub output: Output,
    /// Every physical register that is written.
    pub written: PRegSet,
}

impl Allocated {
    /// Moves that change something: how often values are not where they are needed.
    pub fn moves(&self) -> usize {
        self.output.edits.iter().filter(|(_, Edit::Move { from, to })| from != to).count()
    }
}

struct View<'a, I> {
    program: &'a Program<I>,
    succs: Vec<Vec<Index>>,
    preds: Vec<Vec<Index>>,
    /// In units of 8 bytes, by class.
    spill_units: [usize; 3],
}

impl<I> View<'_, I> {
    fn block(&self, block: Index) -> &BlockData {
        &self.program.blocks[block.index()]
    }
}

impl<I> Function for View<'_, I> {
    fn num_insts(&self) -> usize {
        self.program.insts.len()
    }

    fn num_blocks(&self) -> usize {
        self.program.blocks.len()
    }

    fn entry_block(&self) -> Index {
        Index::new(0)
    }

    fn block_insns(&self, block: Index) -> InstRange {
        let range = &self.block(block).insts;
        InstRange::new(InstIndex::new(range.start as usize), InstIndex::new(range.end as usize))
    }

    fn block_succs(&self, block: Index) -> &[Index] {
        &self.succs[block.index()]
    }

    fn block_preds(&self, block: Index) -> &[Index] {
        &self.preds[block.index()]
    }

    fn block_params(&self, block: Index) -> &[Reg] {
        &self.block(block).params
    }

    fn is_ret(&self, inst: InstIndex) -> bool {
        matches!(self.program.insts[inst.index()].kind, Kind::Return)
    }

    fn is_branch(&self, inst: InstIndex) -> bool {
        matches!(self.program.insts[inst.index()].kind, Kind::Jump | Kind::Branch(_))
    }

    fn branch_blockparams(&self, block: Index, _: InstIndex, _: usize) -> &[Reg] {
        &self.block(block).args
    }

    fn inst_operands(&self, inst: InstIndex) -> &[Operand] {
        self.program.operands(inst.index())
    }

    fn inst_clobbers(&self, inst: InstIndex) -> PRegSet {
        self.program.insts[inst.index()].clobbers
    }

    fn num_vregs(&self) -> usize {
        self.program.reg_count
    }

    fn spillslot_size(&self, class: RegClass) -> usize {
        self.spill_units[class as usize]
    }
}

/// Allocates registers; `spill_units` is how many times 8 bytes a register of each class takes in the frame.
///
/// In debug builds the result is proved by [`check::check`].
pub fn allocate<I>(program: &Program<I>, env: &MachineEnv, spill_units: [usize; 3]) -> Allocated {
    let indices = |blocks: &[super::Block]| blocks.iter().map(|block| Index::new(block.0 as usize)).collect();
    let view = View {
        program,
        succs: program.blocks.iter().map(|block| indices(&block.succs)).collect(),
        preds: program.blocks.iter().map(|block| indices(&block.preds)).collect(),
        spill_units,
    };
    let options = RegallocOptions { validate_ssa: cfg!(debug_assertions), algorithm: Algorithm::Ion, ..Default::default() };
    let output = match regalloc2::run(&view, env, &options) {
        Ok(output) => output,
        Err(RegAllocError::TooManyLiveRegs) => bug!("an instruction needs more registers than there are"),
        Err(error) => bug!("the machine program is malformed: {error}"),
    };
    let written = written(program, &output);
    if cfg!(debug_assertions)
        && let Err(error) = check::check(program, &output, spill_units)
    {
        bug!("the allocation is wrong: {error}");
    }
    Allocated { output, written }
}

fn written<I>(program: &Program<I>, output: &Output) -> PRegSet {
    let mut written = PRegSet::empty();
    for (index, inst) in program.insts.iter().enumerate() {
        written.union_from(inst.clobbers);
        let places = output.inst_allocs(InstIndex::new(index));
        for (operand, place) in program.operands(index).iter().zip(places) {
            if let (OperandKind::Def, Some(reg)) = (operand.kind(), place.as_reg()) {
                written.add(reg);
            }
        }
    }
    let moved = output.edits.iter().filter_map(|(_, Edit::Move { to, .. })| to.as_reg());
    moved.for_each(|reg| written.add(reg));
    written
}
