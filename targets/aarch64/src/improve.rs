//! Better machine programs, before registers are allocated.

mod constants;
mod copies;
mod interleave;
mod liveness;
mod memory;
mod merge;
mod pairs;
mod place;
mod post;
mod schedule;
mod share;

use mcc_kernel::Cpu;
use mcc_kernel::mach::{Block, Kind, Operand, PRegSet, Program, Reg};

use crate::facts;
use crate::inst::Inst;

/// An instruction with its operands.
#[derive(Clone, Debug)]
pub struct Item {
    pub kind: Kind<Inst>,
    pub operands: Vec<Operand>,
    pub clobbers: PRegSet,
}

impl Item {
    pub fn inst(&self) -> Option<&Inst> {
        match &self.kind {
            Kind::Plain(inst) | Kind::Branch(inst) => Some(inst),
            Kind::Jump | Kind::Return => None,
        }
    }

    pub fn set_inst(&mut self, inst: Inst) {
        match &mut self.kind {
            Kind::Plain(old) | Kind::Branch(old) => *old = inst,
            Kind::Jump | Kind::Return => {}
        }
    }
}

/// A program whose blocks are lists that can be changed.
#[derive(Debug)]
pub struct Body {
    pub program: Program<Inst>,
    pub blocks: Vec<Vec<Item>>,
}

impl Body {
    fn new(program: Program<Inst>) -> Self {
        let item = |index: u32| {
            let inst = &program.insts[index as usize];
            let operands = program.operands(index as usize).to_vec();
            Item { kind: inst.kind.clone(), operands, clobbers: inst.clobbers }
        };
        let blocks = program.blocks.iter().map(|block| block.insts.clone().map(item).collect()).collect();
        Self { program, blocks }
    }

    fn finish(self) -> Program<Inst> {
        let mut program = self.program;
        program.insts.clear();
        program.operands.clear();
        for (block, items) in program.blocks.iter_mut().zip(self.blocks) {
            let start = program.insts.len() as u32;
            for item in items {
                let first = program.operands.len() as u32;
                program.operands.extend(item.operands);
                let operands = first..program.operands.len() as u32;
                program.insts.push(mcc_kernel::mach::Inst { kind: item.kind, operands, clobbers: item.clobbers });
            }
            block.insts = start..program.insts.len() as u32;
        }
        program
    }

    pub fn fresh(&mut self, like: Reg) -> Reg {
        self.program.reg_count += 1;
        Reg::new(self.program.reg_count - 1, like.class())
    }
}

/// The block as an index.
pub fn index(block: Block) -> usize {
    block.0 as usize
}

pub fn improve(program: Program<Inst>, cpu: &Cpu) -> Program<Inst> {
    let mut body = Body::new(program);
    copies::remove_copies(&mut body);
    share::share_loads(&mut body);
    merge::merge_loads(&mut body, cpu.strict_alignment);
    interleave::interleave(&mut body);
    pairs::pair_accesses(&mut body, cpu.strict_alignment);
    post::move_bases(&mut body);
    place::place_accesses(&mut body);
    constants::sink_constants(&mut body);
    if facts::core(cpu).is_scheduled {
        schedule::schedule(&mut body);
    }
    body.finish()
}
