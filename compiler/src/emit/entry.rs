//! The entry function, `NAME_call`: checks what the caller passes, then calls the kernels in order.

use std::mem::offset_of;

use mcc_kernel::{Address, Builder, Cond, Kernel, Lane, Op, Type, VReg};
use mcc_runtime::abi::{ARENA_ALIGN, Call, status};

use super::stage::{self, Direction, Staged};

// Fields of `mcc_call` by their offsets: every target has this layout, and so must the host.
const _: () = assert!(size_of::<usize>() == 8, "the compiler runs on 64-bit hosts");
const INPUTS: i64 = offset_of!(Call, inputs) as i64;
const OUTPUTS: i64 = offset_of!(Call, outputs) as i64;
const DIMS: i64 = offset_of!(Call, dims) as i64;
const COUNTS: i64 = offset_of!(Call, counts) as i64;
const ARENA: i64 = offset_of!(Call, arena) as i64;
/// The size of an `mcc_call` that ends in the last field that models read.
const USED_BYTES: u64 = ARENA as u64 + 8;

/// Where a kernel finds one of its buffers. Offsets are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BufferPlace {
    Arena(u64),
    Weights(u64),
    /// The caller's, by its place in the model's inputs.
    Input(usize),
    Output(usize),
    /// An extent that the run is told, by its place in `mcc_call.dims`.
    Dim(usize),
    /// An extent that the run finds, by its place in `mcc_call.counts`.
    Count(usize),
}

/// One call of a kernel: `symbol(args, 0, extent)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelCall {
    pub symbol: String,
    /// The kernel's table of buffers.
    pub args: Vec<BufferPlace>,
    /// Extent of the outermost axis.
    pub extent: i64,
}

/// What the entry function does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EntryPlan {
    pub calls: Vec<KernelCall>,
    pub arena_bytes: u64,
    /// Symbol of the packed weights; `None` where no kernel reads any.
    pub weights: Option<String>,
    /// CPU features that the kernels use, as bits of `mcc.h`.
    pub cpu_features: u32,
    /// Place in the arena of the `i32` that kernels set when they had to clamp an index, where one does.
    pub status_offset: Option<u64>,
    /// Least and greatest of each extent that a run is told.
    pub dims: Vec<(usize, usize)>,
    /// Greatest of each extent that a run finds.
    pub counts: Vec<usize>,
    /// Tensors that lie in the arena with room for their greatest extents while the kernels run.
    pub staged_inputs: Vec<Staged>,
    pub staged_outputs: Vec<Staged>,
}

/// The function `symbol(const mcc_call *) -> i32`.
pub fn entry(symbol: &str, plan: &EntryPlan) -> Kernel {
    let mut builder = Builder::new(symbol, &[Type::Ptr]);
    let call = builder.param(0);
    let mut checks = vec![Check::Size];
    if plan.cpu_features != 0 {
        checks.push(Check::Cpu);
    }
    if plan.arena_bytes > 0 {
        checks.push(Check::Arena);
    }
    if !plan.dims.is_empty() {
        checks.push(Check::Dims);
    }
    let status = checked(&mut builder, plan, call, &checks);
    builder.finish(Some(status))
}

#[derive(Clone, Copy)]
enum Check {
    Size,
    Cpu,
    Arena,
    Dims,
}

/// Tests the first of `checks` and, where it holds, goes on to the others and at last to the run; gives the status.
fn checked(builder: &mut Builder, plan: &EntryPlan, call: VReg, checks: &[Check]) -> VReg {
    let Some((&check, rest)) = checks.split_first() else { return run(builder, plan, call) };
    let (failed, status) = match check {
        Check::Size => {
            let size = load_field(builder, call, offset_of!(Call, size) as i64, Lane::I32);
            let known = builder.scalar_const(Lane::I32, USED_BYTES);
            let failed = builder.inst(Type::I32.mask(), Op::CmpU(Cond::Lt), &[size, known]);
            (failed, status::ERROR_CALL_SIZE)
        }
        Check::Cpu => {
            let has = load_field(builder, call, offset_of!(Call, cpu_features) as i64, Lane::I32);
            let required = builder.scalar_const(Lane::I32, u64::from(plan.cpu_features));
            let common = builder.binary(Op::And, has, required);
            (builder.cmp(Cond::Ne, common, required), status::ERROR_CPU)
        }
        Check::Arena => {
            let address = load_field(builder, call, ARENA, Lane::I64);
            let zero = builder.int(0);
            let low = builder.int(ARENA_ALIGN as i64 - 1);
            let low = builder.binary(Op::And, address, low);
            let null = builder.cmp(Cond::Eq, address, zero);
            let unaligned = builder.cmp(Cond::Ne, low, zero);
            (builder.binary(Op::MaskOr, null, unaligned), status::ERROR_ARENA)
        }
        Check::Dims => {
            let dims = builder.load_ptr(Address::new(call, DIMS));
            let mut outside = None;
            for (index, &(least, most)) in plan.dims.iter().enumerate() {
                let dim = load_field(builder, dims, 8 * index as i64, Lane::I64);
                for (cond, bound) in [(Cond::Lt, least), (Cond::Gt, most)] {
                    let bound = builder.int(bound as i64);
                    let beyond = builder.cmp(cond, dim, bound);
                    outside = Some(outside.map_or(beyond, |outside| builder.binary(Op::MaskOr, outside, beyond)));
                }
            }
            (outside.expect("there are dims"), status::ERROR_DIMS)
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

fn run(builder: &mut Builder, plan: &EntryPlan, call: VReg) -> VReg {
    let reads = |wanted: fn(&BufferPlace) -> bool| plan.calls.iter().flat_map(|call| &call.args).any(wanted);
    let has_inputs = reads(|place| matches!(place, BufferPlace::Input(_))) || !plan.staged_inputs.is_empty();
    let has_outputs = reads(|place| matches!(place, BufferPlace::Output(_))) || !plan.staged_outputs.is_empty();
    let mut pointer = |offset: i64, used: bool| used.then(|| builder.load_ptr(Address::new(call, offset)));
    let arena = pointer(ARENA, plan.arena_bytes > 0);
    let inputs = pointer(INPUTS, has_inputs);
    let outputs = pointer(OUTPUTS, has_outputs);
    let dims = pointer(DIMS, !plan.dims.is_empty());
    let counts = pointer(COUNTS, !plan.counts.is_empty());
    let weights = plan.weights.as_ref().map(|symbol| builder.inst(Type::Ptr, Op::SymbolAddr(symbol.clone()), &[]));
    let bases = Bases { arena, inputs, outputs, dims, counts, weights };
    let told: Vec<VReg> =
        (0..plan.dims.len()).map(|at| load_field(builder, dims.expect("loaded"), 8 * at as i64, Lane::I64)).collect();
    for staged in &plan.staged_inputs {
        let (outer, inner) = staged.pointers(builder, inputs.expect("loaded"), arena.expect("it holds staged tensors"));
        stage::copy(builder, staged, &told, outer, inner, Direction::In);
    }

    let ok = builder.scalar_const(Lane::I32, status::OK as u64);
    let status_place = plan.status_offset.map(|offset| Address::new(arena.expect("the status lies in the arena"), offset as i64));
    if let Some(address) = &status_place {
        builder.store(ok, address.clone(), 4);
    }
    let most = plan.calls.iter().map(|call| call.args.len()).max().unwrap_or(0);
    if most > 0 {
        let slot = builder.slot(8 * most as u32, 16);
        let table = builder.inst(Type::Ptr, Op::SlotAddr(slot), &[]);
        for call in &plan.calls {
            call_kernel(builder, call, table, &bases);
        }
    }
    let status = match status_place {
        Some(address) => builder.load(Type::I32, address, 4),
        None => ok,
    };
    let found: Vec<VReg> =
        (0..plan.counts.len()).map(|at| load_field(builder, counts.expect("loaded"), 8 * at as i64, Lane::I64)).collect();
    let copy_out = |builder: &mut Builder| {
        let lengths = [told, found.clone()].concat();
        for staged in &plan.staged_outputs {
            let (outer, inner) = staged.pointers(builder, outputs.expect("loaded"), arena.expect("it holds staged tensors"));
            stage::copy(builder, staged, &lengths, outer, inner, Direction::Out);
        }
        vec![status]
    };
    let mut outgrown = None;
    for (&count, &most) in found.iter().zip(&plan.counts) {
        // A negative one is large without its sign.
        let most = builder.int(most as i64);
        let beyond = builder.inst(Type::I64.mask(), Op::CmpU(Cond::Gt), &[count, most]);
        outgrown = Some(outgrown.map_or(beyond, |outgrown| builder.binary(Op::MaskOr, outgrown, beyond)));
    }
    match outgrown {
        None => copy_out(builder)[0],
        Some(outgrown) => {
            let error = |builder: &mut Builder| vec![builder.scalar_const(Lane::I32, status::ERROR_COUNT as u64)];
            builder.if_else(outgrown, error, copy_out)[0]
        }
    }
}

/// What offsets are relative to; those that no kernel needs are not loaded.
struct Bases {
    arena: Option<VReg>,
    inputs: Option<VReg>,
    outputs: Option<VReg>,
    dims: Option<VReg>,
    counts: Option<VReg>,
    weights: Option<VReg>,
}

fn call_kernel(builder: &mut Builder, call: &KernelCall, table: VReg, bases: &Bases) {
    for (index, place) in call.args.iter().enumerate() {
        let pointer = match *place {
            BufferPlace::Arena(offset) => {
                builder.lea(Address::new(bases.arena.expect("the arena has bytes where a buffer lies in it"), offset as i64))
            }
            BufferPlace::Weights(offset) => {
                builder.lea(Address::new(bases.weights.expect("there are weights where a kernel reads them"), offset as i64))
            }
            BufferPlace::Input(input) => {
                builder.load_ptr(Address::new(bases.inputs.expect("loaded where used"), 8 * input as i64))
            }
            BufferPlace::Dim(dim) => builder.lea(Address::new(bases.dims.expect("loaded where used"), 8 * dim as i64)),
            BufferPlace::Count(count) => builder.lea(Address::new(bases.counts.expect("loaded where used"), 8 * count as i64)),
            BufferPlace::Output(output) => {
                builder.load_ptr(Address::new(bases.outputs.expect("loaded where used"), 8 * output as i64))
            }
        };
        builder.effect(Op::StorePtr(Address::new(table, 8 * index as i64)), &[pointer]);
    }
    let begin = builder.int(0);
    let end = builder.int(call.extent);
    builder.effect(Op::Call(call.symbol.clone()), &[table, begin, end]);
}
