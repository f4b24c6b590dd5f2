//! What of a kernel is needed, how often, and where it was defined.

use mcc_support::EntityMap;

use crate::ir::{Address, Block, Carried, Kernel, Node, Op, Operand, VReg};

/// How a register is defined.
#[derive(Clone, Copy, Debug)]
pub enum Def<'k> {
    /// Parameters of the function, indices of loops, or nothing at all.
    Given,
    Inst {
        op: &'k Op,
        args: &'k [VReg],
        /// See [`Analysis::epochs`].
        epoch: u32,
    },
    /// By a region, from these values.
    Region([VReg; 2]),
}

#[derive(Debug)]
pub struct Analysis<'k> {
    pub defs: EntityMap<VReg, Def<'k>>,
    /// How many loops are around the definition.
    pub depths: EntityMap<VReg, u32>,
    /// Uses by what is needed; 0 for what is not.
    pub uses: EntityMap<VReg, u32>,
    /// Epochs divide a kernel at everything that may write memory or runs another number of times; there are so many.
    pub epochs: u32,
}

pub fn address_of(op: &Op) -> Option<&Address> {
    match op {
        Op::Lea(address) | Op::LoadPtr(address) | Op::StorePtr(address) | Op::Prefetch(address) => Some(address),
        Op::Load { address, .. } | Op::Store { address, .. } => Some(address),
        Op::LoadFirst { address, .. } | Op::StoreFirst { address, .. } => Some(address),
        _ => None,
    }
}

/// Everything that an instruction reads.
pub fn reads<'k>(op: &'k Op, args: &'k [VReg]) -> impl Iterator<Item = VReg> + 'k {
    let address = address_of(op);
    let regs =
        address.into_iter().flat_map(|address| std::iter::once(address.base).chain(address.terms.iter().map(|term| term.0)));
    args.iter().copied().chain(regs)
}

pub fn writes_memory(op: &Op) -> bool {
    matches!(op, Op::Store { .. } | Op::StoreFirst { .. } | Op::StorePtr(_) | Op::Call(_) | Op::CallPtr)
}

pub fn has_effect(op: &Op) -> bool {
    writes_memory(op) || matches!(op, Op::Prefetch(_))
}

pub fn analyze(kernel: &Kernel) -> Analysis<'_> {
    let count = kernel.types.len();
    let mut analysis = Analysis {
        defs: EntityMap::filled(count, Def::Given),
        depths: EntityMap::filled(count, 0),
        uses: EntityMap::filled(count, 0),
        epochs: 0,
    };
    let mut walk = Walk { analysis: &mut analysis, roots: Vec::new(), depth: 0 };
    walk.block(&kernel.body);
    let mut work = std::mem::take(&mut walk.roots);
    work.extend(kernel.result);
    while let Some(reg) = work.pop() {
        analysis.uses[reg] += 1;
        if analysis.uses[reg] == 1 {
            match analysis.defs[reg] {
                Def::Given => {}
                Def::Inst { op, args, .. } if !has_effect(op) => work.extend(reads(op, args)),
                Def::Inst { .. } => {}
                Def::Region(values) => work.extend(values),
            }
        }
    }
    analysis
}

struct Walk<'a, 'k> {
    analysis: &'a mut Analysis<'k>,
    /// Read by what is needed in any case.
    roots: Vec<VReg>,
    depth: u32,
}

impl<'k> Walk<'_, 'k> {
    fn block(&mut self, block: &'k Block) {
        for node in block {
            match node {
                Node::Inst { result, op, args } => {
                    if has_effect(op) {
                        self.roots.extend(reads(op, args));
                    }
                    if let Some(result) = *result {
                        self.define(result, Def::Inst { op, args, epoch: self.analysis.epochs });
                    }
                    self.analysis.epochs += u32::from(writes_memory(op));
                }
                Node::Loop(node) => {
                    self.roots.extend([node.begin, node.end].iter().filter_map(|bound| bound_reg(*bound)));
                    self.carried(&node.carried);
                    self.analysis.depths[node.index] = self.depth + 1;
                    self.repeated(|walk| walk.block(&node.body));
                }
                Node::While(node) => {
                    self.roots.push(node.cond);
                    self.carried(&node.carried);
                    self.repeated(|walk| {
                        walk.block(&node.test);
                        walk.analysis.epochs += 1;
                        walk.block(&node.body);
                    });
                }
                Node::If(node) => {
                    self.roots.push(node.cond);
                    for &(result, then, otherwise) in &node.results {
                        self.define(result, Def::Region([then, otherwise]));
                    }
                    self.analysis.epochs += 1;
                    self.block(&node.then);
                    self.analysis.epochs += 1;
                    self.block(&node.otherwise);
                    self.analysis.epochs += 1;
                }
            }
        }
    }

    fn repeated(&mut self, body: impl FnOnce(&mut Self)) {
        self.depth += 1;
        self.analysis.epochs += 1;
        body(self);
        self.analysis.epochs += 1;
        self.depth -= 1;
    }

    fn carried(&mut self, carried: &[Carried]) {
        for one in carried {
            self.define(one.result, Def::Region([one.init, one.next]));
            self.define(one.param, Def::Region([one.init, one.next]));
            self.analysis.depths[one.param] += 1;
        }
    }

    fn define(&mut self, reg: VReg, def: Def<'k>) {
        self.analysis.defs[reg] = def;
        self.analysis.depths[reg] = self.depth;
    }
}

fn bound_reg(bound: Operand) -> Option<VReg> {
    match bound {
        Operand::Const(_) => None,
        Operand::Reg(reg) => Some(reg),
    }
}

impl Analysis<'_> {
    /// Whether a carried value is read in the loop or after it.
    pub fn is_carried(&self, carried: &Carried) -> bool {
        self.uses[carried.param] > 0 || self.uses[carried.result] > 0
    }
}

/// How many rounds a loop with constant bounds runs.
pub fn trip_count(begin: Operand, end: Operand, step: i64) -> Option<u64> {
    match (begin, end) {
        (Operand::Const(begin), Operand::Const(end)) if begin >= end => Some(0),
        (Operand::Const(begin), Operand::Const(end)) => Some(end.abs_diff(begin).div_ceil(step.unsigned_abs())),
        _ => None,
    }
}

/// Whether something in the block is repeated.
pub fn contains_loop(block: &Block) -> bool {
    block.iter().any(|node| match node {
        Node::Inst { .. } => false,
        Node::Loop(node) => {
            trip_count(node.begin, node.end, node.step).is_none_or(|count| count > 1) || contains_loop(&node.body)
        }
        Node::While(_) => true,
        Node::If(node) => contains_loop(&node.then) || contains_loop(&node.otherwise),
    })
}
