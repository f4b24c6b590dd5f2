//! The walk through a kernel: structured loops and branches to blocks, each node to the target's instructions.
//!
//! The walk goes backwards. The open block collects instructions from its end; closing it gives it its parameters and puts it before
//! the blocks that were closed earlier. Loops get their test at the end; where they may run no round, also one before the first.

use std::fmt::Debug;

use mcc_support::bug;
use regalloc2::{PRegSet, RegClass, VReg as Reg};

use super::analysis::{self, contains_loop, trip_count};
use super::context::{Context, Held, NEAR_NODES, Pointer, Wanted};
use super::program::{Block, BlockData, Inst, Kind, Program};
use crate::ir::{self, Carried, If, Kernel, Loop, Node, Op, Operand, Type, VReg, While};

/// How a round of a loop ends: `next` is to be defined, and the branch goes on with the loop.
#[derive(Clone, Copy, Debug)]
pub enum Latch {
    /// `next` is `counter - 1`; goes on where that is not 0.
    Count { counter: Reg, next: Reg },
    /// `next` is `index + step`; goes on where that is less than `end`.
    Index { index: Reg, next: Reg, step: i64, end: Operand },
}

/// What a target says of each node. Each method pushes instructions to the context, in their order.
pub trait Select {
    type Inst: Debug;

    fn class(ty: Type) -> RegClass;

    /// Whether making a constant anew at each use is as good as keeping it in a register.
    fn is_cheap(ty: Type, bits: u64) -> bool;

    fn constant(&mut self, cx: &mut Context<Self::Inst>, to: Reg, ty: Type, bits: u64);

    /// An instruction of the kernel other than a constant. A result is asked for with [`Context::reg`].
    fn node<'k>(&mut self, cx: &mut Context<'k, Self::Inst>, result: Option<VReg>, op: &'k Op, args: &'k [VReg]);

    /// `to` is `base + Σ register · scale`; only for targets that ask for it by [`Context::pointer`].
    fn pointer(&mut self, cx: &mut Context<Self::Inst>, to: Reg, base: VReg, terms: &[(VReg, i64)]) {
        let _ = (to, terms);
        bug!("kernel {}: a pointer from {base} that nobody asked for", cx.kernel.name)
    }

    /// Ends in a branch where the condition holds.
    fn branch(&mut self, cx: &mut Context<Self::Inst>, cond: VReg);

    /// Ends in a branch where `begin < end`.
    fn guard(&mut self, cx: &mut Context<Self::Inst>, begin: Operand, end: Operand);

    /// Ends in a branch.
    fn latch(&mut self, cx: &mut Context<Self::Inst>, latch: Latch);

    /// Defines the parameters where the ABI puts them.
    fn entry(&mut self, cx: &mut Context<Self::Inst>, params: &[VReg]);

    /// Ends in a return.
    fn exit(&mut self, cx: &mut Context<Self::Inst>, result: Option<VReg>);
}

/// Selects instructions for a kernel that verifies.
pub fn lower<S: Select>(kernel: &Kernel, select: &mut S) -> Program<S::Inst> {
    let analysis = analysis::analyze(kernel);
    let cx = Context::new(kernel, analysis, S::class, S::is_cheap);
    let mut lower = Lower { cx, select, blocks: vec![Open::default()], closed: Vec::new(), open: 0 };
    lower.function();
    lower.flatten()
}

/// A block while it is made; its instructions are in reverse.
struct Open<I> {
    data: BlockData,
    insts: Vec<(Inst<I>, Vec<regalloc2::Operand>)>,
}

impl<I> Default for Open<I> {
    fn default() -> Self {
        Self { data: BlockData::default(), insts: Vec::new() }
    }
}

struct Lower<'k, 's, S: Select> {
    cx: Context<'k, S::Inst>,
    select: &'s mut S,
    blocks: Vec<Open<S::Inst>>,
    /// In the order in which they were closed, that is, the last block of the code first.
    closed: Vec<usize>,
    /// The block that instructions go to.
    open: usize,
}

/// What a block keeps is idle for so many nodes before others take its register.
const IDLE_NODES: u32 = 32;

impl<'k, S: Select> Lower<'k, '_, S> {
    fn function(&mut self) {
        let kernel = self.cx.kernel;
        self.group(|select, cx| select.exit(cx, kernel.result));
        self.block(&kernel.body);
        self.constants();
        self.group(|select, cx| select.entry(cx, &kernel.params));
        self.close(Vec::new());
    }

    /// Selects one group of instructions and puts it, with the constants that it wants, before what is in the open block.
    fn group(&mut self, select: impl FnOnce(&mut S, &mut Context<'k, S::Inst>)) {
        select(self.select, &mut self.cx);
        self.take_group();
        while let Some(wanted) = self.cx.wanted.pop() {
            self.constant(wanted);
        }
    }

    fn take_group(&mut self) {
        let block = &mut self.blocks[self.open];
        for pushed in self.cx.group.drain(..).rev() {
            let inst = Inst { kind: pushed.kind, operands: 0..0, clobbers: pushed.clobbers };
            block.insts.push((inst, pushed.operands));
        }
    }

    fn constant(&mut self, wanted: Wanted) {
        self.select.constant(&mut self.cx, wanted.reg, wanted.ty, wanted.bits);
        self.take_group();
    }

    /// Makes what the block keeps in registers here.
    fn constants(&mut self) {
        while let Some(wanted) = self.cx.near.pop() {
            self.constant(wanted);
        }
        while !self.cx.block_held.pointers.is_empty() || !self.cx.block_held.constants.is_empty() {
            let held = std::mem::take(&mut self.cx.block_held);
            self.held(held);
        }
    }

    fn held(&mut self, held: Held) {
        for Pointer { reg, base, terms, .. } in held.pointers {
            self.group(|select, cx| select.pointer(cx, reg, base, &terms));
        }
        for wanted in held.constants {
            self.constant(wanted);
        }
    }

    /// Makes what nobody asked for in a while.
    fn idle(&mut self) {
        // What was to use it was not needed, or keeps it in another register.
        let passed = self.cx.node.saturating_sub(NEAR_NODES as u32);
        while let Some(at) = self.cx.near.iter().position(|one| one.asked < passed) {
            let wanted = self.cx.near.swap_remove(at);
            self.constant(wanted);
        }
        let oldest = self.cx.node.saturating_sub(IDLE_NODES);
        let held = &mut self.cx.block_held;
        if held.pointers.iter().all(|one| one.asked >= oldest) && held.constants.iter().all(|one| one.asked >= oldest) {
            return;
        }
        let pointers = held.pointers.extract_if(.., |one| one.asked < oldest).collect();
        let constants = held.constants.extract_if(.., |one| one.asked < oldest).collect();
        self.held(Held { pointers, constants, ..Held::default() });
    }

    /// Makes the pointers that depend on a value which is about to be defined.
    fn pointers_of(&mut self, value: VReg) {
        let depends = |pointer: &Pointer| pointer.base == value || pointer.terms.iter().any(|term| term.0 == value);
        while let Some(position) = self.cx.block_held.pointers.iter().position(depends) {
            let Pointer { reg, base, terms, .. } = self.cx.block_held.pointers.swap_remove(position);
            self.group(|select, cx| select.pointer(cx, reg, base, &terms));
        }
    }

    /// Closes the open block, which has these parameters and begins here.
    fn close(&mut self, params: Vec<Reg>) -> Block {
        self.constants();
        self.blocks[self.open].data.params = params;
        self.closed.push(self.open);
        Block(self.open as u32)
    }

    /// Opens a block, which ends before the one that was closed last begins.
    fn start(&mut self) {
        self.blocks.push(Open::default());
        self.open = self.blocks.len() - 1;
    }

    /// Opens a block that ends in a jump.
    fn start_jump(&mut self, to: Block, args: &[VReg], last: Option<Reg>) {
        self.start();
        let args = args.iter().map(|&arg| self.cx.own_reg(arg)).chain(last).collect();
        self.jump(to, args);
    }

    fn jump(&mut self, to: Block, args: Vec<Reg>) {
        let inst = Inst { kind: Kind::Jump, operands: 0..0, clobbers: PRegSet::empty() };
        let block = &mut self.blocks[self.open];
        block.insts.push((inst, Vec::new()));
        block.data.args = args;
        block.data.succs = vec![to];
        // Arguments that are constants.
        self.group(|_, _| {});
    }

    /// Opens a block that ends in a branch.
    fn start_branch(&mut self, succs: [Block; 2], select: impl FnOnce(&mut S, &mut Context<'k, S::Inst>)) {
        self.start();
        self.blocks[self.open].data.succs = succs.to_vec();
        self.group(select);
    }

    fn block(&mut self, block: &'k ir::Block) {
        for (at, node) in block.iter().enumerate().rev() {
            self.cx.node += 1;
            self.cx.before = &block[..at];
            self.idle();
            match node {
                Node::Inst { result, op, args } => self.inst(*result, op, args),
                Node::Loop(node) => self.counted(node),
                Node::While(node) => self.repeat(node),
                Node::If(node) => self.branch(node),
            }
        }
    }

    fn inst(&mut self, result: Option<VReg>, op: &'k Op, args: &'k [VReg]) {
        self.cx.epoch -= u32::from(analysis::writes_memory(op));
        result.into_iter().for_each(|result| self.pointers_of(result));
        let is_asked = result.is_some_and(|result| self.cx.regs[result].is_some());
        if matches!(op, Op::Const(_)) || !is_asked && !analysis::has_effect(op) {
            return;
        }
        self.group(|select, cx| select.node(cx, result, op, args));
    }

    /// The registers of parameters that the block after a region takes, and the values that they get, of those that were asked for.
    fn results(&mut self, results: impl Iterator<Item = (VReg, [VReg; 2])>) -> (Vec<Reg>, Vec<VReg>, Vec<VReg>) {
        // What is kept for the block asks for some of them.
        self.constants();
        let (mut params, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
        for (result, values) in results {
            if let Some(reg) = self.cx.regs[result] {
                params.push(reg);
                first.push(values[0]);
                second.push(values[1]);
            }
        }
        (params, first, second)
    }

    fn counted(&mut self, node: &'k Loop) {
        let carried: Vec<&Carried> = node.carried.iter().filter(|carried| self.cx.analysis.is_carried(carried)).collect();
        let (params, inits, nexts) = self.results(carried.iter().map(|one| (one.result, [one.init, one.next])));
        let exit = self.close(params);
        let trips = trip_count(node.begin, node.end, node.step);
        if trips == Some(0) {
            self.start_jump(exit, &inits, None);
            self.cx.epoch -= count_epochs(&node.body) + 2;
            return;
        }
        let after: Vec<VReg> = carried.iter().map(|one| one.next).collect();
        let is_inner = trips != Some(1) && !contains_loop(&node.body) && self.cx.loop_held.is_none();
        let head = self.announce();
        let counts = trips.is_some() && self.cx.analysis.uses[node.index] == 0;
        let mut skip = None;
        if trips == Some(1) {
            self.enter(None);
            self.start_jump(exit, &nexts, None);
        } else {
            self.start_jump(exit, &nexts, None);
            let leave = self.close(Vec::new());
            if trips.is_none() {
                self.start_jump(exit, &inits, None);
                skip = Some(self.close(Vec::new()));
            }
            let live = is_inner.then(|| self.cx.most_live(&[&node.body], &carried, RegClass::Float));
            self.enter(live);
            let next = self.cx.fresh(S::class(Type::I64));
            self.start_jump(Block(head as u32), &after, Some(next));
            let back = self.close(Vec::new());
            let index = self.cx.reg(node.index);
            let latch = match counts {
                true => Latch::Count { counter: index, next },
                false => Latch::Index { index, next, step: node.step, end: node.end },
            };
            self.start_branch([back, leave], |select, cx| select.latch(cx, latch));
        }
        self.block(&node.body);
        // A single round counts nothing.
        let index = (trips != Some(1) || !counts).then_some(node.index);
        let params: Vec<Reg> = carried.iter().map(|one| one.param).chain(index).map(|reg| self.cx.reg(reg)).collect();
        self.close_as(head, params, is_inner);
        let held = self.leave(is_inner);
        self.start();
        let first = index.map(|_| match (node.begin, trips) {
            (_, Some(trips)) if counts => self.cx.constant_reg(Type::I64, trips),
            (Operand::Const(begin), _) => self.cx.constant_reg(Type::I64, begin as u64),
            (Operand::Reg(begin), _) => self.cx.reg(begin),
        });
        let args: Vec<Reg> = carried.iter().map(|one| self.cx.own_reg(one.init)).chain(first).collect();
        self.jump(Block(head as u32), args);
        if let Some(skip) = skip {
            let inside = self.close(Vec::new());
            self.start_branch([inside, skip], |select, cx| select.guard(cx, node.begin, node.end));
        }
        self.held(held);
    }

    /// The name of a block that is closed later.
    fn announce(&mut self) -> usize {
        self.blocks.push(Open::default());
        self.blocks.len() - 1
    }

    fn repeat(&mut self, node: &'k While) {
        let carried: Vec<&Carried> = node.carried.iter().filter(|carried| self.cx.analysis.is_carried(carried)).collect();
        let (params, values, _) = self.results(carried.iter().map(|one| (one.result, [one.param, one.param])));
        let exit = self.close(params);
        self.start_jump(exit, &values, None);
        let leave = self.close(Vec::new());
        let is_inner = !contains_loop(&node.test) && !contains_loop(&node.body) && self.cx.loop_held.is_none();
        let live = is_inner.then(|| self.cx.most_live(&[&node.test, &node.body], &carried, RegClass::Float));
        self.enter(live);
        let head = self.announce();
        let after: Vec<VReg> = carried.iter().map(|one| one.next).collect();
        self.start_jump(Block(head as u32), &after, None);
        self.block(&node.body);
        let body = self.close(Vec::new());
        self.cx.epoch -= 1;
        self.start_branch([body, leave], |select, cx| select.branch(cx, node.cond));
        self.block(&node.test);
        let params: Vec<Reg> = carried.iter().map(|one| self.cx.reg(one.param)).collect();
        self.close_as(head, params, is_inner);
        let held = self.leave(is_inner);
        let before: Vec<VReg> = carried.iter().map(|one| one.init).collect();
        self.start_jump(Block(head as u32), &before, None);
        self.held(held);
    }

    fn branch(&mut self, node: &'k If) {
        let results = node.results.iter().map(|&(result, then, otherwise)| (result, [then, otherwise]));
        let (params, then_values, else_values) = self.results(results);
        let exit = self.close(params);
        self.cx.epoch -= 1;
        self.start_jump(exit, &else_values, None);
        self.block(&node.otherwise);
        let otherwise = self.close(Vec::new());
        self.cx.epoch -= 1;
        self.start_jump(exit, &then_values, None);
        self.block(&node.then);
        let then = self.close(Vec::new());
        self.cx.epoch -= 1;
        self.start_branch([then, otherwise], |select, cx| select.branch(cx, node.cond));
    }

    /// Goes into a loop, from its end; into an inner one with the registers that its values take.
    fn enter(&mut self, inner: Option<usize>) {
        self.cx.depth += 1;
        self.cx.epoch -= 1;
        if let Some(live_floats) = inner {
            self.cx.loop_held = Some(Held { depth: self.cx.depth, live_floats, ..Held::default() });
        }
    }

    /// Comes out of a loop before it; what it keeps in registers is to be made there.
    fn leave(&mut self, is_inner: bool) -> Held {
        self.cx.depth -= 1;
        self.cx.epoch -= 1;
        if is_inner { self.cx.loop_held.take().unwrap_or_default() } else { Held::default() }
    }

    /// Closes the open block under the name of one that was announced.
    fn close_as(&mut self, name: usize, params: Vec<Reg>, is_inner_loop: bool) {
        self.constants();
        let mut block = std::mem::take(&mut self.blocks[self.open]);
        block.data.params = params;
        block.data.is_inner_loop = is_inner_loop;
        self.blocks[name] = block;
        self.closed.push(name);
    }

    /// The blocks in the order of the code, with one numbering.
    fn flatten(self) -> Program<S::Inst> {
        let mut number = vec![Block(0); self.blocks.len()];
        for (position, &block) in self.closed.iter().rev().enumerate() {
            number[block] = Block(position as u32);
        }
        let mut blocks: Vec<Option<Open<S::Inst>>> = self.blocks.into_iter().map(Some).collect();
        let mut program = Program { insts: Vec::new(), operands: Vec::new(), blocks: Vec::new(), reg_count: self.cx.reg_count };
        for &block in self.closed.iter().rev() {
            let Open { mut data, insts } = blocks[block].take().expect("a block is closed once");
            let start = program.insts.len() as u32;
            for (mut inst, operands) in insts.into_iter().rev() {
                let first = program.operands.len() as u32;
                program.operands.extend(operands);
                inst.operands = first..program.operands.len() as u32;
                program.insts.push(inst);
            }
            data.insts = start..program.insts.len() as u32;
            data.succs.iter_mut().for_each(|succ| *succ = number[succ.0 as usize]);
            program.blocks.push(data);
        }
        for block in 0..program.blocks.len() {
            for succ in program.blocks[block].succs.clone() {
                program.blocks[succ.0 as usize].preds.push(Block(block as u32));
            }
        }
        program
    }
}

/// How many epochs begin inside a block; see [`analysis::Analysis::epochs`].
fn count_epochs(block: &ir::Block) -> u32 {
    let count = |node: &Node| match node {
        Node::Inst { op, .. } => u32::from(analysis::writes_memory(op)),
        Node::Loop(node) => count_epochs(&node.body) + 2,
        Node::While(node) => count_epochs(&node.test) + count_epochs(&node.body) + 3,
        Node::If(node) => count_epochs(&node.then) + count_epochs(&node.otherwise) + 3,
    };
    block.iter().map(count).sum()
}
