//! Kernels as flat lists of steps: registers are places in a frame of lanes, control flow is jumps, functions of lanes are looked up.

use std::collections::BTreeMap;

use mcc_support::EntityId;

use super::lanes::{self, Binary, Ternary, Unary};
use crate::ir::{Address, Block, Carried, Kernel, Lane, Node, Op, Operand, Type, VReg};

/// Where a register's first lane lies in the frame.
pub(super) type Place = usize;

/// The lanes of an operand: one for each of the result, or the same for all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes {
    pub first: Place,
    /// 0 or 1.
    pub step: usize,
}

#[derive(Debug)]
pub(super) struct Access {
    pub base: Place,
    pub terms: Vec<(Place, i64)>,
    pub displacement: i64,
    pub align: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    Const(i64),
    Place(Place),
}

#[derive(Debug)]
pub(super) enum Step {
    Const {
        to: Place,
        lanes: usize,
        bits: u64,
    },
    /// Keeps the low bits of what the function gives.
    Unary {
        function: Unary,
        to: Place,
        lanes: usize,
        bits: u32,
        a: Lanes,
    },
    Binary {
        function: Binary,
        to: Place,
        lanes: usize,
        a: Lanes,
        b: Lanes,
    },
    Ternary {
        function: Ternary,
        to: Place,
        lanes: usize,
        a: Lanes,
        b: Lanes,
        c: Lanes,
    },
    /// `(to, from, lanes)`, all at once.
    Move(Vec<(Place, Place, usize)>),
    Lea {
        to: Place,
        access: Access,
    },
    Load {
        to: Place,
        lanes: usize,
        lane_bytes: usize,
        access: Access,
    },
    Store {
        from: Place,
        lanes: usize,
        lane_bytes: usize,
        access: Access,
    },
    SlotAddr {
        to: Place,
        slot: usize,
    },
    SymbolAddr {
        to: Place,
        symbol: usize,
    },
    Call {
        symbol: usize,
        args: Vec<Place>,
        to: Option<Place>,
    },
    CallPtr {
        function: Place,
        args: Vec<Place>,
        to: Option<Place>,
    },
    Jump(usize),
    JumpUnless {
        cond: Place,
        target: usize,
    },
    /// Leaves a loop where the index has reached the end.
    JumpFrom {
        index: Place,
        end: Bound,
        target: usize,
    },
    Advance {
        index: Place,
        step: i64,
    },
}

#[derive(Debug)]
pub(super) struct Prepared<'a> {
    pub kernel: &'a Kernel,
    pub steps: Vec<Step>,
    /// For each step, how many instructions precede the one that it is of.
    pub instructions: Vec<usize>,
    pub frame_lanes: usize,
    /// Places of the parameters.
    pub params: Vec<Place>,
    pub result: Option<Place>,
    pub symbols: Vec<String>,
}

pub(super) fn prepare(kernel: &Kernel) -> Prepared<'_> {
    let mut places = Vec::with_capacity(kernel.types.len());
    let mut frame_lanes = 0;
    for ty in kernel.types.values() {
        places.push(frame_lanes);
        frame_lanes += usize::from(ty.lanes());
    }
    let prepared = Prepared {
        kernel,
        steps: Vec::new(),
        instructions: Vec::new(),
        frame_lanes,
        params: kernel.params.iter().map(|param| places[param.index()]).collect(),
        result: kernel.result.map(|result| places[result.index()]),
        symbols: Vec::new(),
    };
    let mut preparer = Preparer { prepared, places, symbols: BTreeMap::new(), instruction: 0 };
    preparer.block(&kernel.body);
    preparer.prepared
}

struct Preparer<'a> {
    prepared: Prepared<'a>,
    places: Vec<Place>,
    symbols: BTreeMap<&'a str, usize>,
    instruction: usize,
}

impl<'a> Preparer<'a> {
    fn place(&self, reg: VReg) -> Place {
        self.places[reg.index()]
    }

    fn ty(&self, reg: VReg) -> Type {
        self.prepared.kernel.types[reg]
    }

    fn push(&mut self, step: Step) -> usize {
        self.prepared.steps.push(step);
        self.prepared.instructions.push(self.instruction);
        self.prepared.steps.len() - 1
    }

    fn here(&self) -> usize {
        self.prepared.steps.len()
    }

    /// Lets a jump that was pushed before lead here.
    fn land(&mut self, jump: usize) {
        let here = self.here();
        match &mut self.prepared.steps[jump] {
            Step::Jump(target) | Step::JumpUnless { target, .. } | Step::JumpFrom { target, .. } => *target = here,
            other => unreachable!("{other:?} does not jump"),
        }
    }

    fn moves(&mut self, pairs: impl Iterator<Item = (VReg, VReg)>) {
        let moves: Vec<_> = pairs
            .filter(|(to, from)| to != from)
            .map(|(to, from)| (self.place(to), self.place(from), usize::from(self.ty(to).lanes())))
            .collect();
        if !moves.is_empty() {
            self.push(Step::Move(moves));
        }
    }

    fn enter(&mut self, carried: &[Carried]) {
        self.moves(carried.iter().map(|carried| (carried.param, carried.init)));
    }

    fn repeat(&mut self, carried: &[Carried]) {
        self.moves(carried.iter().map(|carried| (carried.param, carried.next)));
    }

    fn leave(&mut self, carried: &[Carried]) {
        self.moves(carried.iter().map(|carried| (carried.result, carried.param)));
    }

    fn bound(&self, operand: Operand) -> Bound {
        match operand {
            Operand::Const(value) => Bound::Const(value),
            Operand::Reg(reg) => Bound::Place(self.place(reg)),
        }
    }

    fn block(&mut self, block: &'a Block) {
        for node in block {
            match node {
                Node::Inst { result, op, args } => {
                    self.inst(*result, op, args);
                    self.instruction += 1;
                }
                Node::Loop(node) => {
                    let index = self.place(node.index);
                    match self.bound(node.begin) {
                        Bound::Const(begin) => self.push(Step::Const { to: index, lanes: 1, bits: begin as u64 }),
                        Bound::Place(begin) => self.push(Step::Move(vec![(index, begin, 1)])),
                    };
                    self.enter(&node.carried);
                    let test = self.push(Step::JumpFrom { index, end: self.bound(node.end), target: 0 });
                    self.block(&node.body);
                    self.repeat(&node.carried);
                    self.push(Step::Advance { index, step: node.step });
                    self.push(Step::Jump(test));
                    self.land(test);
                    self.leave(&node.carried);
                }
                Node::While(node) => {
                    self.enter(&node.carried);
                    let start = self.here();
                    self.block(&node.test);
                    let test = self.push(Step::JumpUnless { cond: self.place(node.cond), target: 0 });
                    self.block(&node.body);
                    self.repeat(&node.carried);
                    self.push(Step::Jump(start));
                    self.land(test);
                    self.leave(&node.carried);
                }
                Node::If(node) => {
                    let test = self.push(Step::JumpUnless { cond: self.place(node.cond), target: 0 });
                    self.block(&node.then);
                    self.moves(node.results.iter().map(|&(result, value, _)| (result, value)));
                    let done = self.push(Step::Jump(0));
                    self.land(test);
                    self.block(&node.otherwise);
                    self.moves(node.results.iter().map(|&(result, _, value)| (result, value)));
                    self.land(done);
                }
            }
        }
    }

    fn symbol(&mut self, name: &'a str) -> usize {
        let next = self.prepared.symbols.len();
        let index = *self.symbols.entry(name).or_insert(next);
        if index == next {
            self.prepared.symbols.push(name.to_string());
        }
        index
    }

    fn access(&self, address: &Address, align: u32) -> Access {
        let terms = address.terms.iter().map(|&(reg, scale)| (self.place(reg), scale)).collect();
        Access { base: self.place(address.base), terms, displacement: address.displacement, align }
    }

    /// The lanes of an operand, the same for all lanes of the result where it has only one.
    fn lanes(&self, reg: VReg) -> Lanes {
        Lanes { first: self.place(reg), step: usize::from(self.ty(reg).lanes() > 1) }
    }

    fn inst(&mut self, result: Option<VReg>, op: &'a Op, args: &[VReg]) {
        let places = args.iter().map(|&arg| self.place(arg)).collect::<Vec<_>>();
        let to = result.map(|result| self.place(result));
        let step = match (op, to) {
            (Op::Prefetch(_), _) => return,
            (Op::Store { address, align }, _) => {
                let ty = self.ty(args[0]);
                let (lanes, lane_bytes) = (usize::from(ty.lanes()), ty.lane().bytes() as usize);
                Step::Store { from: places[0], lanes, lane_bytes, access: self.access(address, *align) }
            }
            (Op::StoreFirst { lanes, address, align }, _) => {
                let lane_bytes = self.ty(args[0]).lane().bytes() as usize;
                Step::Store { from: places[0], lanes: usize::from(*lanes), lane_bytes, access: self.access(address, *align) }
            }
            (Op::StorePtr(address), _) => {
                Step::Store { from: places[0], lanes: 1, lane_bytes: 8, access: self.access(address, 8) }
            }
            (Op::Call(name), to) => Step::Call { symbol: self.symbol(name), args: places, to },
            (Op::CallPtr, to) => Step::CallPtr { function: places[0], args: places[1..].to_vec(), to },
            (_, Some(to)) => self.compute(to, result.map(|result| self.ty(result)).unwrap_or(Type::Ptr), op, args, &places),
            (_, None) => unreachable!("a verified kernel has no {op:?} without a result"),
        };
        self.push(step);
    }

    fn compute(&mut self, to: Place, ty: Type, op: &'a Op, args: &[VReg], places: &[Place]) -> Step {
        let lanes = usize::from(ty.lanes());
        let arg = |index: usize| self.lanes(args[index]);
        match op {
            Op::Const(bits) => {
                let width = if let Type::Data { lane, .. } = ty { lane.bits() } else { 64 };
                Step::Const { to, lanes, bits: lanes::low_bits(*bits, width) }
            }
            Op::Lea(address) => Step::Lea { to, access: self.access(address, 1) },
            Op::Load { address, align } => {
                Step::Load { to, lanes, lane_bytes: ty.lane().bytes() as usize, access: self.access(address, *align) }
            }
            Op::LoadFirst { lanes: first, address, align } => {
                let first = usize::from(*first);
                self.push(Step::Const { to: to + first, lanes: lanes - first, bits: 0 });
                Step::Load { to, lanes: first, lane_bytes: ty.lane().bytes() as usize, access: self.access(address, *align) }
            }
            Op::LoadPtr(address) => Step::Load { to, lanes: 1, lane_bytes: 8, access: self.access(address, 8) },
            Op::SlotAddr(slot) => Step::SlotAddr { to, slot: *slot as usize },
            Op::SymbolAddr(name) => Step::SymbolAddr { to, symbol: self.symbol(name) },
            Op::Splat => Step::Unary { function: |a| a, to, lanes, bits: 64, a: arg(0) },
            Op::Pack => Step::Move(places.iter().enumerate().map(|(lane, &place)| (to + lane, place, 1)).collect()),
            Op::Extract(lane) => Step::Move(vec![(to, places[0] + usize::from(*lane), lanes)]),
            Op::Splice(first) => {
                let first = usize::from(*first);
                Step::Move(vec![(to, places[0], first), (to + first, places[1] + first, lanes - first)])
            }
            Op::MaskAnd | Op::MaskOr | Op::MaskXor => {
                Step::Binary { function: lanes::mask_binary(op), to, lanes, a: arg(0), b: arg(1) }
            }
            Op::MaskNot | Op::MaskToInt | Op::IntToMask | Op::MaskResize => {
                Step::Unary { function: lanes::mask_unary(op), to, lanes, bits: 64, a: arg(0) }
            }
            Op::Fma | Op::Select => {
                let lane: Option<Lane> = if let Type::Data { lane, .. } = ty { Some(lane) } else { None };
                Step::Ternary { function: lanes::ternary(op, lane), to, lanes, a: arg(0), b: arg(1), c: arg(2) }
            }
            _ if args.len() == 2 => {
                Step::Binary { function: lanes::binary(op, self.ty(args[0]).lane()), to, lanes, a: arg(0), b: arg(1) }
            }
            _ => {
                let function = lanes::unary(op, self.ty(args[0]).lane(), ty.lane());
                Step::Unary { function, to, lanes, bits: ty.lane().bits(), a: arg(0) }
            }
        }
    }
}
