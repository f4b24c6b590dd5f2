//! One case for every operation on every combination of types that a target has.

use mcc_kernel::text::OPERATIONS;
use mcc_kernel::{Address, Builder, Facts, Kernel, Lane, Op, OpKind, Operand, Type, VReg, text, verify};
use mcc_support::multiply_add::hard_operands;
use mcc_support::random::Random;

use crate::case::{Buffer, Case};
use crate::values;

/// An operation with the types of its result and operands.
#[derive(Clone, PartialEq, Debug)]
pub struct Signature {
    pub op: Op,
    pub result: Type,
    pub args: Vec<Type>,
}

/// How often each is run, on other values.
const ROUNDS: i64 = 192;
/// Of multiply-adds, whose hard cases are many.
const FMA_ROUNDS: i64 = 8192;

/// The types of one lane and those of which the facts have vectors.
fn types(facts: &Facts) -> Vec<Type> {
    let lanes: Vec<u8> = std::iter::once(1).chain(2..=64).collect();
    let has =
        |lane: Lane, lanes: u8| lanes == 1 || facts.supported.iter().any(|&(_, found, count)| (found, count) == (lane, lanes));
    let data = lanes.iter().flat_map(|&lanes| Lane::ALL.map(|lane| (lane, lanes))).filter(|&(lane, lanes)| has(lane, lanes));
    let mut types: Vec<_> = data.map(|(lane, lanes)| Type::Data { lane, lanes }).collect();
    let masks: Vec<_> = types.iter().filter(|ty| !ty.lane().is_float()).map(|ty| ty.mask()).collect();
    types.extend(masks);
    types
}

/// The lists of operand types that some operation may have for a result of this type.
fn candidates(types: &[Type], result: Type) -> Vec<Vec<Type>> {
    let mut lists = vec![vec![result; 2], vec![result, Type::I32], vec![result; 3]];
    lists.extend(types.iter().map(|&ty| vec![ty]));
    let is_mask = |ty: &Type| matches!(ty, Type::Mask { .. });
    lists.extend(types.iter().filter(|ty| !is_mask(ty)).map(|&ty| vec![ty; 2]));
    lists.extend(types.iter().filter(|ty| is_mask(ty)).map(|&mask| vec![mask, result, result]));
    if result.lanes() > 3 {
        lists.push(vec![result.with_lanes(1); usize::from(result.lanes())]);
    }
    lists.sort();
    lists.dedup();
    lists
}

/// Everything that the target computes from registers; what that is, the verifier says.
pub fn signatures(facts: &Facts) -> Vec<Signature> {
    let types = types(facts);
    let ops: Vec<Op> = OPERATIONS
        .iter()
        .map(|(_, op)| op.clone())
        .chain([0, 1, 2, 4, 8, 15, 16, 32].map(Op::Extract))
        .chain((1..16).map(Op::Splice))
        .collect();
    let mut signatures = Vec::new();
    for &result in &types {
        for args in candidates(&types, result) {
            // The operation alone: each operand is a constant.
            for op in &ops {
                let mut builder = Builder::new("probe", &[]);
                let regs: Vec<_> = args.iter().map(|&ty| builder.constant(ty, 0)).collect();
                builder.inst(result, op.clone(), &regs);
                if verify::verify(&builder.finish(None), Some(facts)).is_ok() {
                    signatures.push(Signature { op: op.clone(), result, args: args.clone() });
                }
            }
        }
    }
    signatures
}

/// The data type whose lanes a mask is made from and seen as.
pub(crate) fn storage(ty: Type) -> Type {
    match ty {
        Type::Mask { bits, lanes } => {
            let lane = Lane::ALL.into_iter().find(|lane| lane.bits() == u32::from(bits)).expect("masks have the width of a lane");
            Type::Data { lane, lanes }
        }
        data => data,
    }
}

/// Bytes of a value in memory.
pub(crate) fn size_bytes(ty: Type) -> i64 {
    let ty = storage(ty);
    i64::from(ty.lane().bytes()) * i64::from(ty.lanes())
}

pub(crate) fn load(builder: &mut Builder, ty: Type, address: Address, align: u32) -> VReg {
    let data = builder.load(storage(ty), address, align);
    if matches!(ty, Type::Mask { .. }) { builder.inst(ty, Op::IntToMask, &[data]) } else { data }
}

pub(crate) fn store(builder: &mut Builder, value: VReg, address: Address, align: u32) {
    let ty = builder.ty(value);
    let data = if matches!(ty, Type::Mask { .. }) { builder.inst(storage(ty), Op::MaskToInt, &[value]) } else { value };
    builder.store(data, address, align);
}

/// `for i in begin..end { out[i] = op(in0[i], in1[i], …) }`; the last buffer is the output.
fn kernel(signature: &Signature) -> Kernel {
    let mut builder = Builder::new("instruction", &[Type::Ptr, Type::I64, Type::I64]);
    let (table, begin, end) = (builder.param(0), builder.param(1), builder.param(2));
    let count = signature.args.len();
    let buffers: Vec<_> = (0..=count).map(|index| builder.load_ptr(Address::new(table, 8 * index as i64))).collect();
    builder.for_loop(Operand::Reg(begin), Operand::Reg(end), 1, &[], |builder, index, _| {
        let at =
            |buffer: usize, ty: Type| Address { base: buffers[buffer], terms: vec![(index, size_bytes(ty))], displacement: 0 };
        let args: Vec<_> = (0..count)
            .map(|arg| {
                let ty = signature.args[arg];
                load(builder, ty, at(arg, ty), storage(ty).lane().bytes())
            })
            .collect();
        let result = builder.inst(signature.result, signature.op.clone(), &args);
        store(builder, result, at(count, signature.result), storage(signature.result).lane().bytes());
        Vec::new()
    });
    builder.finish(None)
}

/// One case for each signature.
pub fn instructions(facts: &Facts) -> Vec<Case> {
    signatures(facts)
        .iter()
        .enumerate()
        .map(|(index, signature)| {
            let mut random = Random::new(index as u64);
            let kernel = kernel(signature);
            let rounds = if signature.op == Op::Fma { FMA_ROUNDS } else { ROUNDS };
            let mut buffers: Vec<_> = signature
                .args
                .iter()
                .map(|&ty| {
                    let ty = storage(ty);
                    let count = usize::from(ty.lanes()) * rounds as usize;
                    Buffer {
                        bytes: values::lanes(&mut random, ty.lane(), count),
                        align_bytes: ty.lane().bytes() as usize,
                        lane: ty.lane(),
                    }
                })
                .collect();
            if signature.op == Op::Fma && signature.result.lane() == Lane::F32 {
                for at in (0..buffers[0].bytes.len()).step_by(4) {
                    let operands = hard_operands(&mut random);
                    buffers.iter_mut().zip(operands).for_each(|(buffer, operand)| {
                        buffer.bytes[at..at + 4].copy_from_slice(&operand.to_le_bytes());
                    });
                }
            }
            let result = storage(signature.result);
            let lane = if keeps_bits(&signature.op) { int_of(result.lane()) } else { result.lane() };
            let size = size_bytes(result) as usize * rounds as usize;
            buffers.push(Buffer { bytes: vec![0; size], align_bytes: result.lane().bytes() as usize, lane });
            let name = format!("{} of {:?}", text::operation_name(&signature.op), signature.args);
            Case { name, kernels: vec![kernel], data: Vec::new(), buffers, begin: 0, end: rounds, expected: None }
        })
        .collect()
}

/// Copies of the first lanes of vectors from the very end of one buffer to the very end of another, with a splice between them.
pub fn parts(facts: &Facts) -> Vec<Case> {
    let first = facts.supported.iter().filter(|(kind, ..)| *kind == OpKind::First);
    let counts = first.flat_map(|&(_, lane, lanes)| (1..lanes).map(move |count| (lane, lanes, count)));
    counts.map(|(lane, lanes, count)| part(lane, lanes, count)).collect()
}

fn part(lane: Lane, lanes: u8, count: u8) -> Case {
    let ty = Type::Data { lane, lanes };
    let mut builder = Builder::new("parts", &[Type::Ptr, Type::I64, Type::I64]);
    let (table, begin, end) = (builder.param(0), builder.param(1), builder.param(2));
    let [from, to, whole] = [0, 8, 16].map(|at| builder.load_ptr(Address::new(table, at)));
    let align = lane.bytes();
    let bytes = i64::from(count) * i64::from(align);
    builder.for_loop(Operand::Reg(begin), Operand::Reg(end), 1, &[], |builder, index, _| {
        let at = |base: VReg, scale: i64| Address { base, terms: vec![(index, scale)], displacement: 0 };
        let loaded = builder.load_first(ty, count, at(from, bytes), align);
        builder.store_first(loaded, count, at(to, bytes), align);
        builder.store(loaded, at(whole, size_bytes(ty)), align);
        Vec::new()
    });
    let kernel = builder.finish(None);
    let rounds = 5;
    let mut random = Random::new(u64::from(count));
    let lane = int_of(lane);
    let buffer = |bytes: Vec<u8>| Buffer { bytes, align_bytes: align as usize, lane };
    let from = values::lanes(&mut random, lane, rounds * usize::from(count));
    let to = vec![0; from.len()];
    let name = format!("the first {count} lanes of {ty}");
    let buffers = vec![buffer(from), buffer(to), buffer(vec![1; rounds * size_bytes(ty) as usize])];
    Case { name, kernels: vec![kernel], data: Vec::new(), buffers, begin: 0, end: rounds as i64, expected: None }
}

/// Whether an operation moves the bits of its operands, those of a NaN included.
fn keeps_bits(op: &Op) -> bool {
    matches!(
        op,
        Op::Select | Op::Splat | Op::Pack | Op::Extract(_) | Op::Splice(_) | Op::Bitcast | Op::Neg | Op::Abs | Op::Min | Op::Max
    )
}

fn int_of(lane: Lane) -> Lane {
    match lane {
        Lane::F32 => Lane::I32,
        Lane::F64 => Lane::I64,
        int => int,
    }
}
