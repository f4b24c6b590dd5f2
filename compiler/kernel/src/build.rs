//! Builds a kernel: appends instructions to the block that is open.

use mcc_support::EntityMap;

use crate::ir::{Address, Block, Carried, Cond, If, Kernel, Lane, Loop, Node, Op, Operand, Slot, Type, VReg, While};

/// Regions (loop bodies, branches) are opened and closed in pairs; between the two, instructions go to the region.
#[derive(Debug)]
pub struct Builder {
    kernel: Kernel,
    /// The open blocks, outermost first.
    blocks: Vec<Block>,
}

impl Builder {
    /// A function with parameters of these types; see [`param`](Self::param).
    pub fn new(name: impl Into<String>, params: &[Type]) -> Self {
        let mut types = EntityMap::new();
        let params = params.iter().map(|&ty| types.push(ty)).collect();
        let kernel = Kernel { name: name.into(), params, types, slots: Vec::new(), body: Vec::new(), result: None };
        Self { kernel, blocks: vec![Vec::new()] }
    }

    pub fn param(&self, index: usize) -> VReg {
        self.kernel.params[index]
    }

    pub fn ty(&self, reg: VReg) -> Type {
        self.kernel.types[reg]
    }

    /// A fresh register, to be defined by a region.
    pub fn fresh(&mut self, ty: Type) -> VReg {
        self.kernel.types.push(ty)
    }

    pub fn slot(&mut self, size_bytes: u32, align_bytes: u32) -> u32 {
        self.kernel.slots.push(Slot { size_bytes, align_bytes });
        self.kernel.slots.len() as u32 - 1
    }

    /// Appends a node whose registers were made by [`fresh`](Self::fresh).
    pub fn push(&mut self, node: Node) {
        self.blocks.last_mut().expect("a block is open").push(node);
    }

    /// An instruction at the present end of the `depth`-th open block (0 the outermost), that is, before the region that is open
    /// inside it: how what does not change in a loop is kept out of it.
    pub fn inst_at(&mut self, depth: usize, ty: Type, op: Op, args: &[VReg]) -> VReg {
        let result = self.fresh(ty);
        self.blocks[depth].push(Node::Inst { result: Some(result), op, args: args.to_vec() });
        result
    }

    /// An instruction with a result of type `ty`.
    pub fn inst(&mut self, ty: Type, op: Op, args: &[VReg]) -> VReg {
        let result = self.fresh(ty);
        self.push(Node::Inst { result: Some(result), op, args: args.to_vec() });
        result
    }

    /// An instruction without a result.
    pub fn effect(&mut self, op: Op, args: &[VReg]) {
        self.push(Node::Inst { result: None, op, args: args.to_vec() });
    }

    /// A constant by its bits, in every lane.
    pub fn constant(&mut self, ty: Type, bits: u64) -> VReg {
        self.inst(ty, Op::Const(bits), &[])
    }

    pub fn int(&mut self, value: i64) -> VReg {
        self.constant(Type::I64, value as u64)
    }

    /// An operation whose result has the type of its first operand.
    pub fn unary(&mut self, op: Op, a: VReg) -> VReg {
        self.inst(self.ty(a), op, &[a])
    }

    pub fn binary(&mut self, op: Op, a: VReg, b: VReg) -> VReg {
        self.inst(self.ty(a), op, &[a, b])
    }

    pub fn fma(&mut self, a: VReg, b: VReg, c: VReg) -> VReg {
        self.inst(self.ty(a), Op::Fma, &[a, b, c])
    }

    pub fn cmp(&mut self, cond: Cond, a: VReg, b: VReg) -> VReg {
        self.inst(self.ty(a).mask(), Op::Cmp(cond), &[a, b])
    }

    pub fn select(&mut self, mask: VReg, a: VReg, b: VReg) -> VReg {
        self.inst(self.ty(a), Op::Select, &[mask, a, b])
    }

    pub fn splat(&mut self, scalar: VReg, lanes: u8) -> VReg {
        if lanes == 1 { scalar } else { self.inst(self.ty(scalar).with_lanes(lanes), Op::Splat, &[scalar]) }
    }

    pub fn extract(&mut self, vector: VReg, lane: u8) -> VReg {
        self.inst(self.ty(vector).with_lanes(1), Op::Extract(lane), &[vector])
    }

    pub fn lea(&mut self, address: Address) -> VReg {
        self.inst(Type::Ptr, Op::Lea(address), &[])
    }

    pub fn load(&mut self, ty: Type, address: Address, align: u32) -> VReg {
        self.inst(ty, Op::Load { address, align }, &[])
    }

    pub fn store(&mut self, value: VReg, address: Address, align: u32) {
        self.effect(Op::Store { address, align }, &[value]);
    }

    /// The first `lanes` lanes of a vector; the others are 0.
    pub fn load_first(&mut self, ty: Type, lanes: u8, address: Address, align: u32) -> VReg {
        self.inst(ty, Op::LoadFirst { lanes, address, align }, &[])
    }

    pub fn store_first(&mut self, value: VReg, lanes: u8, address: Address, align: u32) {
        self.effect(Op::StoreFirst { lanes, address, align }, &[value]);
    }

    pub fn load_ptr(&mut self, address: Address) -> VReg {
        self.inst(Type::Ptr, Op::LoadPtr(address), &[])
    }

    pub fn scalar_const(&mut self, lane: Lane, bits: u64) -> VReg {
        self.constant(Type::scalar(lane), bits)
    }

    /// Opens a region; close it with [`close`](Self::close).
    pub fn open(&mut self) {
        self.blocks.push(Block::new());
    }

    pub fn close(&mut self) -> Block {
        assert!(self.blocks.len() > 1, "no region is open");
        self.blocks.pop().expect("a region is open")
    }

    /// A counted loop: `body` is given the index and the carried parameters, and returns the next values of the latter.
    /// Returns their values after the loop.
    pub fn for_loop(
        &mut self,
        begin: Operand,
        end: Operand,
        step: i64,
        init: &[VReg],
        body: impl FnOnce(&mut Self, VReg, &[VReg]) -> Vec<VReg>,
    ) -> Vec<VReg> {
        assert!(step > 0, "a loop's step is positive");
        let index = self.fresh(Type::I64);
        let params: Vec<VReg> = init.iter().map(|&reg| self.fresh(self.ty(reg))).collect();
        self.open();
        let next = body(self, index, &params);
        let body = self.close();
        let carried = self.carried(init, &params, &next);
        let results = carried.iter().map(|carried| carried.result).collect();
        self.push(Node::Loop(Loop { index, begin, end, step, carried, body }));
        results
    }

    /// `loop { if !test { break }; body }`; both are given the carried parameters.
    pub fn while_loop(
        &mut self,
        init: &[VReg],
        test: impl FnOnce(&mut Self, &[VReg]) -> VReg,
        body: impl FnOnce(&mut Self, &[VReg]) -> Vec<VReg>,
    ) -> Vec<VReg> {
        let params: Vec<VReg> = init.iter().map(|&reg| self.fresh(self.ty(reg))).collect();
        self.open();
        let cond = test(self, &params);
        let test = self.close();
        self.open();
        let next = body(self, &params);
        let body = self.close();
        let carried = self.carried(init, &params, &next);
        let results = carried.iter().map(|carried| carried.result).collect();
        self.push(Node::While(While { carried, test, cond, body }));
        results
    }

    /// Both branches return values of the same types.
    pub fn if_else(
        &mut self,
        cond: VReg,
        then: impl FnOnce(&mut Self) -> Vec<VReg>,
        otherwise: impl FnOnce(&mut Self) -> Vec<VReg>,
    ) -> Vec<VReg> {
        self.open();
        let then_values = then(self);
        let then = self.close();
        self.open();
        let else_values = otherwise(self);
        let otherwise = self.close();
        assert_eq!(then_values.len(), else_values.len(), "branches give the same number of values");
        let results: Vec<_> = then_values.into_iter().zip(else_values).map(|(a, b)| (self.fresh(self.ty(a)), a, b)).collect();
        let values = results.iter().map(|&(result, ..)| result).collect();
        self.push(Node::If(If { cond, then, otherwise, results }));
        values
    }

    fn carried(&mut self, init: &[VReg], params: &[VReg], next: &[VReg]) -> Vec<Carried> {
        assert_eq!(init.len(), next.len(), "a loop carries as many values as it was given");
        (0..init.len())
            .map(|i| Carried { param: params[i], init: init[i], next: next[i], result: self.fresh(self.ty(init[i])) })
            .collect()
    }

    pub fn finish(mut self, result: Option<VReg>) -> Kernel {
        assert_eq!(self.blocks.len(), 1, "every region is closed");
        self.kernel.body = self.blocks.pop().expect("the outermost block");
        self.kernel.result = result;
        self.kernel
    }
}
