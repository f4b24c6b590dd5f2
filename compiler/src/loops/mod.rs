//! The loop IR: kernels as trees of loops around scalar statements, over logical tensors. It says everything a model does.
//!
//! A kernel of one op is a few loops around a store. Fusion makes trees of several nests in shared loops (softmax: a maximum, a
//! sum, a division, under the loop over rows); a schedule splits axes and marks them to be unrolled or vectorized. All of these
//! are the same IR, and each has the same meaning for [`interp`], which ignores the marks.

pub mod expr;
pub mod interp;
pub mod linear;
pub mod lower;
pub mod primitive;
pub mod regions;
pub mod scalar;
pub mod simplify;
pub mod sites;
pub mod text;
pub mod verify;

use std::collections::BTreeMap;

use mcc_support::{DType, EntityMap, Tensor, TensorType, entity_id};

pub use expr::{Binary, Expr, ExprId, Exprs, Unary};

entity_id!(BufferId, "b");
entity_id!(KernelId, "k");
entity_id!(RegionId, "r");
entity_id!(/// A loop axis of one kernel.
    AxisId, "i");
entity_id!(/// A scalar variable of one kernel: an accumulator or a carried value.
    VarId, "a");

/// A loaded index was outside and was clamped: the runtime's `MCC_CLAMPED`.
pub const STATUS_CLAMPED: u32 = 1;

/// What a buffer is.
#[derive(Clone, PartialEq, Debug)]
pub enum Role {
    /// The caller's, by its place in the model's inputs.
    Input(usize),
    /// The caller's, by its place in the model's outputs.
    Output(usize),
    Constant(Tensor),
    /// Written by one kernel or several, read by others: lives in the arena.
    Temporary,
    /// As a temporary, but kernels of several regions touch it: it carries values into a region, out of it or from round to round.
    /// Fusion leaves it where it is.
    Shared,
    /// The run's status, an `i32[]` that is 0 at first: a kernel that finds an index out of range stores
    /// [`STATUS_CLAMPED`]. At most one in a program.
    Status,
    /// Lives within one round of the loops around it in one kernel: rows and tiles.
    Local,
}

/// A logical tensor that kernels read and write; where its elements lie is decided apart from it.
#[derive(Clone, PartialEq, Debug)]
pub struct Buffer {
    /// Unique in the program; made from the name of the value.
    pub name: String,
    pub ty: TensorType,
    pub role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AxisKind {
    /// Rounds do not depend on one another.
    Spatial,
    /// Rounds only combine into variables by `v = v ∘ term` with ∘ one of add, mul, min, max: in any order, in parts.
    Reduce,
    /// In order.
    Sequential,
}

/// How a loop runs; changes speed only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AxisMode {
    Serial,
    /// All rounds in one body: for a spatial axis jammed (statement by statement over all rounds), for others one after the other.
    Unroll,
    /// As unrolled, of an axis that reduces: each round combines into parts of its own of the variables, which become one after all rounds.
    Apart,
    /// One lane for each round.
    Vector,
}

/// `⌈(input · mul + add) / div⌉`, of an `i64[]` that is an input of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Place among the inputs.
    pub input: usize,
    pub mul: i64,
    pub add: i64,
    /// At least 1.
    pub div: i64,
}

/// Per dimension of a buffer of this shape, from which index on nobody needs the elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Needed {
    pub shape: Vec<usize>,
    pub limits: Vec<Option<Limit>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Axis {
    /// Unique in the kernel; a split of `x` gives `x.o` and `x.i`.
    pub name: String,
    pub extent: usize,
    pub kind: AxisKind,
    pub mode: AxisMode,
    /// Rounds from here on store only what nobody needs: they may be left out. Of spatial axes that run round by round.
    pub limit: Option<Limit>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stmt {
    /// `for axis in 0..extent`.
    Loop {
        axis: AxisId,
        body: Vec<Stmt>,
    },
    Set {
        var: VarId,
        value: ExprId,
    },
    /// Not done where `guard` (a `bool`) does not hold. The value has the buffer's dtype, the index is inside the buffer.
    Store {
        buffer: BufferId,
        index: Vec<ExprId>,
        value: ExprId,
        guard: Option<ExprId>,
    },
    If {
        cond: ExprId,
        then: Vec<Stmt>,
        otherwise: Vec<Stmt>,
    },
    /// The condition is evaluated before each round.
    While {
        cond: ExprId,
        body: Vec<Stmt>,
    },
}

/// One future function.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// Unique in the program: `k03_conv_relu`.
    pub name: String,
    /// `None` for a kernel that always runs, once.
    pub region: Option<RegionId>,
    /// Ends a round of its loop: it writes what the next round reads. Nothing is fused with it.
    pub latch: bool,
    /// Names of the model's nodes that it computes.
    pub origins: Vec<String>,
    pub axes: EntityMap<AxisId, Axis>,
    pub vars: EntityMap<VarId, DType>,
    pub exprs: Exprs,
    pub body: Vec<Stmt>,
}

/// Kernels that run together, under a condition or again and again; they stand side by side in the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// The region around this one.
    pub parent: Option<RegionId>,
    pub kind: RegionKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionKind {
    /// Rounds run while `go` (`bool[]`) holds, tested before each. Its latches come last.
    Loop { go: BufferId },
    /// Runs where `cond` (`bool[]`) is `taken`.
    Branch { cond: BufferId, taken: bool },
}

/// Kernels in the order in which they run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Program {
    pub name: String,
    pub buffers: EntityMap<BufferId, Buffer>,
    pub regions: EntityMap<RegionId, Region>,
    pub kernels: Vec<Kernel>,
    /// Names of the model, in its order, with the buffer of each (its role tells the place).
    pub inputs: Vec<(String, BufferId)>,
    pub outputs: Vec<(String, BufferId)>,
    /// By name of a buffer; those of which all elements are needed are left out.
    pub needed: BTreeMap<String, Needed>,
}

impl Kernel {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            region: None,
            latch: false,
            origins: Vec::new(),
            axes: EntityMap::new(),
            vars: EntityMap::new(),
            exprs: Exprs::default(),
            body: Vec::new(),
        }
    }

    pub fn axis(&mut self, name: impl Into<String>, extent: usize, kind: AxisKind) -> AxisId {
        self.axes.push(Axis { name: name.into(), extent, kind, mode: AxisMode::Serial, limit: None })
    }

    pub fn var(&mut self, dtype: DType) -> VarId {
        self.vars.push(dtype)
    }
}

impl Stmt {
    /// Nests loops over `axes`, the first outermost, around `body`.
    pub fn loops(axes: &[AxisId], body: Vec<Stmt>) -> Vec<Stmt> {
        axes.iter().rev().fold(body, |body, &axis| vec![Stmt::Loop { axis, body }])
    }

    /// Visits this statement and all inside it, outer before inner.
    pub fn walk<'s>(&'s self, visit: &mut dyn FnMut(&'s Stmt)) {
        visit(self);
        match self {
            Stmt::Loop { body, .. } | Stmt::While { body, .. } => body.iter().for_each(|stmt| stmt.walk(visit)),
            Stmt::If { then, otherwise, .. } => then.iter().chain(otherwise).for_each(|stmt| stmt.walk(visit)),
            Stmt::Set { .. } | Stmt::Store { .. } => {}
        }
    }

    /// The expressions that this statement itself evaluates.
    pub fn exprs(&self) -> Vec<ExprId> {
        match self {
            Stmt::Loop { .. } => Vec::new(),
            Stmt::Set { value, .. } => vec![*value],
            Stmt::Store { index, value, guard, .. } => index.iter().copied().chain([*value]).chain(*guard).collect(),
            Stmt::If { cond, .. } | Stmt::While { cond, .. } => vec![*cond],
        }
    }
}
