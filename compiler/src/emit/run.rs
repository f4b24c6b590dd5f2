//! What a run does, and with which memory: what the entry function is made from and a compiled model holds.

/// Where a kernel finds one of its buffers. Offsets are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BufferPlace {
    Arena(u64),
    Weights(u64),
    /// The caller's, by its place in the model's inputs.
    Input(usize),
    Output(usize),
    /// An extent that the caller passes, by its place in `mcc_call.dims`.
    Dim(usize),
}

/// What a run does at one place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step<C> {
    Call(C),
    /// Rounds run while the byte at `go` is not 0, tested before each.
    Loop {
        go: BufferPlace,
        body: Vec<Step<C>>,
    },
    /// Runs where the byte at `cond` is 1 (`taken`) or 0.
    Branch {
        cond: BufferPlace,
        taken: bool,
        body: Vec<Step<C>>,
    },
}

impl<C> Step<C> {
    /// The same with other calls.
    pub fn map<D>(&self, call: &impl Fn(&C) -> D) -> Step<D> {
        let inside = |body: &[Step<C>]| body.iter().map(|step| step.map(call)).collect();
        match self {
            Step::Call(one) => Step::Call(call(one)),
            Step::Loop { go, body } => Step::Loop { go: *go, body: inside(body) },
            Step::Branch { cond, taken, body } => Step::Branch { cond: *cond, taken: *taken, body: inside(body) },
        }
    }

    /// This step and those in it, in order.
    pub fn walk<'s>(&'s self, visit: &mut dyn FnMut(&'s Step<C>)) {
        visit(self);
        if let Step::Loop { body, .. } | Step::Branch { body, .. } = self {
            body.iter().for_each(|step| step.walk(visit));
        }
    }
}

/// The extents for which something was compiled, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DimRange {
    pub min: i64,
    pub max: i64,
}

/// An extent that a run answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    Known(i64),
    /// An `i64` that kernels put into the arena, from `min` to `max` where all is well; neither is negative.
    Found {
        arena_offset: u64,
        min: i64,
        max: i64,
    },
}
