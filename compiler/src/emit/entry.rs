//! The entry function, `NAME_call`: checks what the caller passes, then calls the kernels in order, some of them in branches and loops.

use std::mem::offset_of;

use mcc_kernel::{Address, Builder, Cond, Kernel, Lane, Op, Type, VReg};
use mcc_runtime::abi::{ARENA_ALIGN, Call, Profile, status};

use super::run::{BufferPlace, Count, DimRange, Step};
use super::stage::{self, Direction, Staged};
use super::weights::HEAD_BYTES;

// Fields of `mcc_call` by their offsets: every target has this layout, and so must the host.
const _: () = assert!(size_of::<usize>() == 8, "the compiler runs on 64-bit hosts");
const INPUTS: i64 = offset_of!(Call, inputs) as i64;
const OUTPUTS: i64 = offset_of!(Call, outputs) as i64;
const DIMS: i64 = offset_of!(Call, dims) as i64;
const COUNTS: i64 = offset_of!(Call, counts) as i64;
const ARENA: i64 = offset_of!(Call, arena) as i64;
const WEIGHTS: i64 = offset_of!(Call, weights) as i64;
const PROFILE: i64 = offset_of!(Call, profile) as i64;

/// One call of a kernel: `symbol(args, 0, extent)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelCall {
    pub symbol: String,
    /// The kernel's table of buffers.
    pub args: Vec<BufferPlace>,
    /// Extent of the outermost axis.
    pub extent: i64,
    /// Its place in the manifest.
    pub number: u32,
}

/// Where the packed weights are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Weights {
    /// At this symbol.
    Symbol(String),
    /// Where the caller says, behind a head that starts with these words.
    Passed([u64; 6]),
}

/// What the entry function does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EntryPlan {
    /// At least one, the best first: that of the first whose features the caller's CPU has runs.
    pub levels: Vec<EntryLevel>,
    /// The most that a body takes.
    pub arena_bytes: u64,
    /// `None` where no kernel reads any.
    pub weights: Option<Weights>,
    /// Whether `mcc_call.profile` is told of each kernel.
    pub profile: bool,
}

/// What runs on a CPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EntryLevel {
    /// Features that the kernels use, as bits of `mcc.h`: all that the levels behind this one use, too.
    pub cpu_features: u32,
    /// At least one: the first whose extents fit runs, and the first where the caller passes no extents.
    pub bodies: Vec<EntryBody>,
}

/// A run for some extents.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EntryBody {
    /// Extents that it is for, one for each that the caller passes.
    pub dims: Vec<DimRange>,
    /// Extents that it answers.
    pub counts: Vec<Count>,
    /// What kernels find that must be within its bounds.
    pub checks: Vec<Count>,
    /// Tensors that lie in the arena, with room for their largest extents, while the kernels run.
    pub staged_inputs: Vec<Staged>,
    pub staged_outputs: Vec<Staged>,
    pub steps: Vec<Step<KernelCall>>,
    /// Place in the arena of the `i32` that kernels set when they had to clamp an index, where one does.
    pub status_offset: Option<u64>,
}

/// The function `symbol(const mcc_call *) -> i32`.
pub fn entry(symbol: &str, plan: &EntryPlan) -> Kernel {
    let mut builder = Builder::new(symbol, &[Type::Ptr]);
    let call = builder.param(0);
    let last = if plan.profile {
        PROFILE
    } else if matches!(plan.weights, Some(Weights::Passed(_))) {
        WEIGHTS
    } else {
        ARENA
    };
    let mut checks = vec![Check::Size(last as u64 + 8)];
    let least = plan.levels.last().expect("a model is for one CPU at least").cpu_features;
    if least != 0 {
        checks.push(Check::Cpu(least));
    }
    if plan.arena_bytes > 0 {
        checks.push(Check::Aligned(ARENA, status::ERROR_ARENA));
    }
    if let Some(Weights::Passed(head)) = plan.weights {
        checks.extend([Check::Aligned(WEIGHTS, status::ERROR_WEIGHTS), Check::Head(head)]);
    }
    let status = checked(&mut builder, plan, call, &checks);
    builder.finish(Some(status))
}

#[derive(Clone, Copy)]
enum Check {
    /// The caller's `mcc_call` has so many bytes at least.
    Size(u64),
    /// The caller's CPU has these features.
    Cpu(u32),
    /// This field points to memory that is aligned as the arena is; else the status.
    Aligned(i64, i32),
    /// The weights that are passed start with these words.
    Head([u64; 6]),
}

/// Tests the first of `checks` and, where it holds, goes on to the others and at last to the run; gives the status.
fn checked(builder: &mut Builder, plan: &EntryPlan, call: VReg, checks: &[Check]) -> VReg {
    let Some((&check, rest)) = checks.split_first() else { return best(builder, plan, call, &plan.levels) };
    let (failed, status) = match check {
        Check::Size(least) => {
            let size = load_field(builder, call, offset_of!(Call, size) as i64, Lane::I32);
            let known = builder.scalar_const(Lane::I32, least);
            let failed = builder.inst(Type::I32.mask(), Op::CmpU(Cond::Lt), &[size, known]);
            (failed, status::ERROR_CALL_SIZE)
        }
        Check::Cpu(required) => (lacks(builder, call, required), status::ERROR_CPU),
        Check::Aligned(field, status) => {
            let address = load_field(builder, call, field, Lane::I64);
            let zero = builder.int(0);
            let low = builder.int(ARENA_ALIGN as i64 - 1);
            let low = builder.binary(Op::And, address, low);
            let null = builder.cmp(Cond::Eq, address, zero);
            let unaligned = builder.cmp(Cond::Ne, low, zero);
            (builder.binary(Op::MaskOr, null, unaligned), status)
        }
        Check::Head(head) => {
            let weights = builder.load_ptr(Address::new(call, WEIGHTS));
            let mut differs = builder.int(0);
            for (index, &word) in head.iter().enumerate() {
                let is = load_field(builder, weights, 8 * index as i64, Lane::I64);
                let wanted = builder.int(word as i64);
                let difference = builder.binary(Op::Xor, is, wanted);
                differs = builder.binary(Op::Or, differs, difference);
            }
            let zero = builder.int(0);
            (builder.cmp(Cond::Ne, differs, zero), status::ERROR_WEIGHTS)
        }
    };
    let results = builder.if_else(
        failed,
        |builder| vec![builder.scalar_const(Lane::I32, status as u64)],
        |builder| vec![checked(builder, plan, call, rest)],
    );
    results[0]
}

fn load_field(builder: &mut Builder, call: VReg, offset: i64, lane: Lane) -> VReg {
    builder.load(Type::scalar(lane), Address::new(call, offset), lane.bytes())
}

/// Whether the caller's CPU is without one of these features.
fn lacks(builder: &mut Builder, call: VReg, required: u32) -> VReg {
    let has = load_field(builder, call, offset_of!(Call, cpu_features) as i64, Lane::I32);
    let required = builder.scalar_const(Lane::I32, u64::from(required));
    let common = builder.binary(Op::And, has, required);
    builder.cmp(Cond::Ne, common, required)
}

/// Runs the first of `levels` that the caller's CPU takes, which takes the last; gives the status.
fn best(builder: &mut Builder, plan: &EntryPlan, call: VReg, levels: &[EntryLevel]) -> VReg {
    let (level, weaker) = levels.split_first().expect("the last level is taken");
    if weaker.is_empty() {
        return chosen(builder, plan, &level.bodies, call);
    }
    let lacks = lacks(builder, call, level.cpu_features);
    builder.if_else(
        lacks,
        |builder| vec![best(builder, plan, call, weaker)],
        |builder| vec![chosen(builder, plan, &level.bodies, call)],
    )[0]
}

/// Runs the body that fits the caller's extents; gives the status.
fn chosen(builder: &mut Builder, plan: &EntryPlan, bodies: &[EntryBody], call: VReg) -> VReg {
    if bodies.iter().all(|body| body.dims.is_empty()) {
        return run(builder, plan, &bodies[0], call);
    }
    let address = load_field(builder, call, DIMS, Lane::I64);
    let zero = builder.int(0);
    let none = builder.cmp(Cond::Eq, address, zero);
    let which = builder.if_else(
        none,
        |builder| {
            // The first, where it is for these extents only.
            let one = bodies[0].dims.iter().all(|range| range.min == range.max);
            vec![builder.int(if one { 0 } else { bodies.len() as i64 })]
        },
        |builder| {
            let dims = builder.load_ptr(Address::new(call, DIMS));
            vec![fitting(builder, bodies, 0, dims)]
        },
    )[0];
    run_chosen(builder, plan, bodies, call, which, 0)
}

/// The place of the first body from `first` on that is for these extents, or the number of bodies.
fn fitting(builder: &mut Builder, bodies: &[EntryBody], first: usize, dims: VReg) -> VReg {
    let Some(body) = bodies.get(first) else { return builder.int(first as i64) };
    let mut differs = None;
    for (index, range) in body.dims.iter().enumerate() {
        let extent = builder.load(Type::I64, Address::new(dims, 8 * index as i64), 8);
        for (cond, end) in [(Cond::Lt, range.min), (Cond::Gt, range.max)] {
            let end = builder.int(end);
            let outside = builder.cmp(cond, extent, end);
            differs = Some(differs.map_or(outside, |differs| builder.binary(Op::MaskOr, differs, outside)));
        }
    }
    let Some(differs) = differs else { return builder.int(first as i64) };
    builder.if_else(differs, |builder| vec![fitting(builder, bodies, first + 1, dims)], |builder| vec![builder.int(first as i64)])
        [0]
}

/// Runs the body with number `which`, of those from `first` on; gives the status.
fn run_chosen(builder: &mut Builder, plan: &EntryPlan, bodies: &[EntryBody], call: VReg, which: VReg, first: usize) -> VReg {
    let Some(body) = bodies.get(first) else {
        return builder.scalar_const(Lane::I32, status::ERROR_DIMS as u64);
    };
    let number = builder.int(first as i64);
    let is_this = builder.cmp(Cond::Eq, which, number);
    builder.if_else(
        is_this,
        |builder| vec![run(builder, plan, body, call)],
        |builder| vec![run_chosen(builder, plan, bodies, call, which, first + 1)],
    )[0]
}

/// Stores the extents of outputs where the caller wants to know them.
fn store_counts(builder: &mut Builder, counts: &[VReg], call: VReg) {
    let address = load_field(builder, call, COUNTS, Lane::I64);
    let zero = builder.int(0);
    let wanted = builder.cmp(Cond::Ne, address, zero);
    builder.if_else(
        wanted,
        |builder| {
            let place = builder.load_ptr(Address::new(call, COUNTS));
            for (index, &count) in counts.iter().enumerate() {
                builder.store(count, Address::new(place, 8 * index as i64), 8);
            }
            Vec::new()
        },
        |_| Vec::new(),
    );
}

fn run(builder: &mut Builder, plan: &EntryPlan, body: &EntryBody, call: VReg) -> VReg {
    let mut most = 0;
    let mut places: Vec<BufferPlace> = Vec::new();
    let mut visit = |step: &Step<KernelCall>| match step {
        Step::Call(call) => {
            most = most.max(call.args.len());
            places.extend(&call.args);
        }
        Step::Loop { go: condition, .. } | Step::Branch { cond: condition, .. } => places.push(*condition),
    };
    body.steps.iter().for_each(|step| step.walk(&mut visit));
    let reads = |wanted: fn(&BufferPlace) -> bool| places.iter().any(wanted);
    let has_inputs = reads(|place| matches!(place, BufferPlace::Input(_))) || !body.staged_inputs.is_empty();
    let has_outputs = reads(|place| matches!(place, BufferPlace::Output(_))) || !body.staged_outputs.is_empty();
    let staged = body.staged_inputs.len() + body.staged_outputs.len();
    let has_dims = !body.dims.is_empty() && (staged > 0 || reads(|place| matches!(place, BufferPlace::Dim(_))));
    let mut pointer = |offset: i64, used: bool| used.then(|| builder.load_ptr(Address::new(call, offset)));
    let arena = pointer(ARENA, plan.arena_bytes > 0);
    let inputs = pointer(INPUTS, has_inputs);
    let outputs = pointer(OUTPUTS, has_outputs);
    let dims = pointer(DIMS, has_dims);
    let weights = plan.weights.as_ref().map(|weights| weights_base(builder, weights, call));
    let profile = plan.profile.then_some(call);
    let bases = Bases { arena, inputs, outputs, dims, weights, profile };
    let mut extents: Vec<VReg> = dims.map_or(Vec::new(), |dims| {
        (0..body.dims.len()).map(|index| load_field(builder, dims, 8 * index as i64, Lane::I64)).collect()
    });
    for tensor in &body.staged_inputs {
        let (dense, wide) = tensor.pointers(builder, inputs.expect("loaded"), arena.expect("staged tensors lie in the arena"));
        stage::copy(builder, tensor, &extents, dense, wide, Direction::In);
    }

    let ok = builder.scalar_const(Lane::I32, status::OK as u64);
    let status = body.status_offset.map(|offset| Address::new(arena.expect("the status lies in the arena"), offset as i64));
    if let Some(address) = &status {
        builder.store(ok, address.clone(), 4);
    }
    if most > 0 {
        let slot = builder.slot(8 * most as u32, 16);
        let table = builder.inst(Type::Ptr, Op::SlotAddr(slot), &[]);
        run_steps(builder, &body.steps, table, &bases);
    }
    let status = match status {
        Some(address) => builder.load(Type::I32, address, 4),
        None => ok,
    };
    let counts = load_counts(builder, &body.counts, arena);
    let checks = load_counts(builder, &body.checks, arena);
    extents.extend(&counts);
    let answer = |builder: &mut Builder| {
        if !counts.is_empty() {
            store_counts(builder, &counts, call);
        }
        for tensor in &body.staged_outputs {
            let (dense, wide) =
                tensor.pointers(builder, outputs.expect("loaded"), arena.expect("staged tensors lie in the arena"));
            stage::copy(builder, tensor, &extents, dense, wide, Direction::Out);
        }
        vec![status]
    };
    let bounds = body.counts.iter().chain(&body.checks);
    let outgrown = outgrown(builder, counts.iter().chain(&checks).copied().zip(bounds));
    let Some(outgrown) = outgrown else { return answer(builder)[0] };
    let error = |builder: &mut Builder| vec![builder.scalar_const(Lane::I32, status::ERROR_COUNT as u64)];
    builder.if_else(outgrown, error, answer)[0]
}

fn weights_base(builder: &mut Builder, weights: &Weights, call: VReg) -> VReg {
    match weights {
        Weights::Symbol(symbol) => builder.inst(Type::Ptr, Op::SymbolAddr(symbol.clone()), &[]),
        Weights::Passed(_) => {
            let file = builder.load_ptr(Address::new(call, WEIGHTS));
            builder.lea(Address::new(file, HEAD_BYTES as i64))
        }
    }
}

fn load_counts(builder: &mut Builder, counts: &[Count], arena: Option<VReg>) -> Vec<VReg> {
    let mut count = |count: &Count| match *count {
        Count::Known(count) => builder.int(count),
        Count::Found { arena_offset, .. } => {
            load_field(builder, arena.expect("counts lie in the arena"), arena_offset as i64, Lane::I64)
        }
    };
    counts.iter().map(&mut count).collect()
}

/// Whether an extent that kernels found is not within its bounds.
fn outgrown<'c>(builder: &mut Builder, counts: impl Iterator<Item = (VReg, &'c Count)>) -> Option<VReg> {
    let mut outgrown = None;
    for (count, bound) in counts {
        let Count::Found { min, max, .. } = *bound else { continue };
        let (mut count, most) = (count, builder.int(max - min));
        if min > 0 {
            let min = builder.int(min);
            count = builder.binary(Op::Sub, count, min);
        }
        // What is below the bounds is large without its sign.
        let beyond = builder.inst(Type::I64.mask(), Op::CmpU(Cond::Gt), &[count, most]);
        outgrown = Some(outgrown.map_or(beyond, |outgrown| builder.binary(Op::MaskOr, outgrown, beyond)));
    }
    outgrown
}

/// What offsets are relative to; those that no kernel needs are not loaded.
struct Bases {
    arena: Option<VReg>,
    inputs: Option<VReg>,
    outputs: Option<VReg>,
    dims: Option<VReg>,
    weights: Option<VReg>,
    /// The caller's `mcc_call`, where its `profile` is told of kernels.
    profile: Option<VReg>,
}

fn run_steps(builder: &mut Builder, steps: &[Step<KernelCall>], table: VReg, bases: &Bases) {
    for step in steps {
        match step {
            Step::Call(call) => call_kernel(builder, call, table, bases),
            Step::Loop { go, body } => {
                builder.while_loop(
                    &[],
                    |builder, _| is_not_zero(builder, *go, bases),
                    |builder, _| {
                        run_steps(builder, body, table, bases);
                        Vec::new()
                    },
                );
            }
            Step::Branch { cond, taken, body } => {
                let holds = is_not_zero(builder, *cond, bases);
                let run = |builder: &mut Builder| {
                    run_steps(builder, body, table, bases);
                    Vec::new()
                };
                let skip = |_: &mut Builder| Vec::new();
                if *taken {
                    builder.if_else(holds, run, skip)
                } else {
                    builder.if_else(holds, skip, run)
                };
            }
        }
    }
}

fn is_not_zero(builder: &mut Builder, place: BufferPlace, bases: &Bases) -> VReg {
    let address = pointer(builder, place, bases);
    let value = builder.load(Type::scalar(Lane::I8), Address::new(address, 0), 1);
    let zero = builder.scalar_const(Lane::I8, 0);
    builder.cmp(Cond::Ne, value, zero)
}

fn call_kernel(builder: &mut Builder, call: &KernelCall, table: VReg, bases: &Bases) {
    for (index, place) in call.args.iter().enumerate() {
        let pointer = pointer(builder, *place, bases);
        builder.effect(Op::StorePtr(Address::new(table, 8 * index as i64)), &[pointer]);
    }
    stamp(builder, call.number, 0, bases);
    let begin = builder.int(0);
    let end = builder.int(call.extent);
    builder.effect(Op::Call(call.symbol.clone()), &[table, begin, end]);
    stamp(builder, call.number, 1, bases);
}

/// Tells the caller's profile, where there is one, of the begin (0) or end (1) of a kernel.
fn stamp(builder: &mut Builder, kernel: u32, end: u64, bases: &Bases) {
    let Some(call) = bases.profile else { return };
    let address = load_field(builder, call, PROFILE, Lane::I64);
    let zero = builder.int(0);
    let wanted = builder.cmp(Cond::Ne, address, zero);
    builder.if_else(
        wanted,
        |builder| {
            let profile = builder.load_ptr(Address::new(call, PROFILE));
            let function = builder.load_ptr(Address::new(profile, offset_of!(Profile, stamp) as i64));
            let context = builder.load_ptr(Address::new(profile, offset_of!(Profile, context) as i64));
            let kernel = builder.scalar_const(Lane::I32, u64::from(kernel));
            let end = builder.scalar_const(Lane::I32, end);
            builder.effect(Op::CallPtr, &[function, context, kernel, end]);
            Vec::new()
        },
        |_| Vec::new(),
    );
}

/// The address of a buffer.
fn pointer(builder: &mut Builder, place: BufferPlace, bases: &Bases) -> VReg {
    match place {
        BufferPlace::Arena(offset) => {
            builder.lea(Address::new(bases.arena.expect("the arena has bytes where a buffer lies in it"), offset as i64))
        }
        BufferPlace::Weights(offset) => {
            builder.lea(Address::new(bases.weights.expect("there are weights where a kernel reads them"), offset as i64))
        }
        BufferPlace::Input(input) => builder.load_ptr(Address::new(bases.inputs.expect("loaded where used"), 8 * input as i64)),
        BufferPlace::Dim(dim) => builder.lea(Address::new(bases.dims.expect("loaded where used"), 8 * dim as i64)),
        BufferPlace::Output(output) => {
            builder.load_ptr(Address::new(bases.outputs.expect("loaded where used"), 8 * output as i64))
        }
    }
}
