//! Which instructions a node becomes. At level v4 (`V4`) masks are in mask registers, else vectors of all ones and all zeros.
//!
//! Values: integers and pointers are in general registers, above their own bits undefined; a scalar mask is the low byte of one, 0 or
//! 1. Floats and vectors are in vector registers, above their own bits undefined.

mod call;
mod convert;
mod float;
mod form;
mod integers;
mod lanes;
mod masks;
mod memory;
mod parts;
mod scalar;

use mcc_kernel::mach::{self, Latch, Operand as Constraint, Reg, RegClass};
use mcc_kernel::{Lane, Op, Operand, Type, VReg};

use crate::abi::Abi;
use crate::encode::Imm;
use crate::inst::{Flags, Inst};
use crate::pool::Pool;
use crate::rows::{self, Row};
use form::{Form, Source};

pub type Context<'k> = mach::Context<'k, Inst>;

#[derive(Debug)]
pub struct Selector<const V4: bool> {
    pub abi: &'static Abi,
    pub pool: Pool,
    /// Symbols that the code refers to, by index.
    pub symbols: Vec<String>,
    pub has_calls: bool,
    /// Whether values go through the scratch space of the frame.
    pub uses_scratch: bool,
}

/// The bits of the vector register that holds a value.
pub fn vector_bits(ty: Type) -> u32 {
    match ty {
        Type::Data { lane, lanes } => (lane.bits() * u32::from(lanes)).max(128),
        Type::Mask { bits, lanes } => (u32::from(bits) * u32::from(lanes)).max(128),
        Type::Ptr => 128,
    }
}

/// The position of a lane of this width in tables of integers.
fn by_width(bits: u32) -> usize {
    bits.trailing_zeros() as usize - 3
}

/// The position of an operation on floats in its table.
fn by_float(ty: Type) -> usize {
    usize::from(ty.lane() == Lane::F64) + if ty.lanes() == 1 { 2 } else { 0 }
}

/// The bits of the general register operations on a scalar.
fn general_bits(ty: Type) -> u32 {
    match ty {
        Type::Ptr | Type::Data { lane: Lane::I64, .. } => 64,
        _ => 32,
    }
}

fn is_vector(ty: Type) -> bool {
    ty.lanes() > 1
}

/// The bits of one lane in every 64.
fn repeated(lane_bits: u32, bits: u64) -> u64 {
    match lane_bits {
        8 => (bits & 0xff) * 0x0101_0101_0101_0101,
        16 => (bits & 0xffff) * 0x0001_0001_0001_0001,
        32 => (bits & 0xffff_ffff) * 0x0000_0001_0000_0001,
        _ => bits,
    }
}

impl<const V4: bool> Selector<V4> {
    pub fn new(abi: &'static Abi) -> Self {
        Self { abi, pool: Pool::default(), symbols: Vec::new(), has_calls: false, uses_scratch: false }
    }

    fn symbol(&mut self, name: &str) -> u32 {
        let known = self.symbols.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.symbols.push(name.to_string());
            self.symbols.len() - 1
        }) as u32
    }

    /// A fresh general register.
    fn general(cx: &mut Context) -> Reg {
        cx.fresh(RegClass::Int)
    }

    /// A fresh vector register.
    fn vector(cx: &mut Context) -> Reg {
        cx.fresh(RegClass::Float)
    }

    /// `to = row a` in vector registers.
    fn unary(cx: &mut Context, row: Row, bits: u32, to: Reg, a: impl Into<Source>) {
        Form::new(row, bits).def(to).rm(a.into()).push(cx);
    }

    /// `to = row a, b`.
    fn binary(cx: &mut Context, row: Row, bits: u32, to: Reg, a: Reg, b: impl Into<Source>) {
        Form::new(row, bits).def(to).vvvv(a).rm(b.into()).push(cx);
    }

    /// `to = row a, b` in general registers, which writes over `a`.
    fn general_binary(cx: &mut Context, row: Row, bits: u32, to: Reg, a: Reg, b: impl Into<Source>) {
        Form::new(row, bits).reuse(a, to).rm(b.into()).push(cx);
    }

    fn general_imm(cx: &mut Context, row: Row, bits: u32, to: Reg, a: Reg, value: i32) {
        Form::new(row, bits).reuse_rm(a, to).imm(Imm::Word(value)).push(cx);
    }

    /// A general register with a constant.
    fn load_constant(cx: &mut Context, to: Reg, bits: u64) {
        if let Ok(value) = i32::try_from(bits as i64) {
            // Zeros above 32 bits come for nothing.
            let width = if value >= 0 { 32 } else { 64 };
            Form::new(rows::MOV_IMM, width).ext(0).def_rm(to).imm(Imm::Word(value)).push(cx);
        } else if let Ok(value) = u32::try_from(bits) {
            Form::new(rows::MOV_IMM, 32).ext(0).def_rm(to).imm(Imm::Word(value as i32)).push(cx);
        } else {
            cx.push(Inst::Wide(bits), &[Constraint::reg_def(to)]);
        }
    }

    /// `to` is another name of `from`.
    fn rename(cx: &mut Context, from: Reg, to: Reg) {
        cx.push(Inst::Nothing, &[Constraint::reg_use(from), Constraint::reg_reuse_def(to, 0)]);
    }

    fn zero(cx: &mut Context, to: Reg) {
        // Whatever the register held: it is read but does not matter.
        Form::new(rows::VXORPS, 128).def_only(to).push(cx);
    }

    /// A vector of ones.
    fn ones(cx: &mut Context, bits: u32, to: Reg) {
        if V4 {
            Form::new(rows::VPTERNLOGD, bits).def_only(to).imm(Imm::Byte(0xff)).push(cx);
        } else {
            Form::new(rows::VPCMPEQ[2], bits).def_only(to).push(cx);
        }
    }
}

impl<const V4: bool> mach::Select for Selector<V4> {
    type Inst = Inst;

    fn class(ty: Type) -> RegClass {
        match ty {
            Type::Data { lanes: 1, lane } if !lane.is_float() => RegClass::Int,
            Type::Ptr | Type::Mask { lanes: 1, .. } => RegClass::Int,
            Type::Mask { .. } if V4 => RegClass::Vector,
            _ => RegClass::Float,
        }
    }

    fn is_cheap(ty: Type, _: u64) -> bool {
        Self::class(ty) == RegClass::Int
    }

    fn constant(&mut self, cx: &mut Context, to: Reg, ty: Type, bits: u64) {
        if let Some(lane_bits) = parts::of_first_lanes(ty) {
            return self.first_lanes(cx, to, lane_bits, bits as u8);
        }
        let width = vector_bits(ty);
        match (ty, Self::class(ty)) {
            (_, RegClass::Int) => {
                let bits = if let Type::Data { lane, .. } = ty { bits & (u64::MAX >> (64 - lane.bits())) } else { bits };
                Self::load_constant(cx, to, bits);
            }
            (_, RegClass::Vector) => {
                let all = Self::general(cx);
                Self::load_constant(cx, all, bits.wrapping_neg());
                Form::new(rows::KMOV_FROM, 128).def(to).rm(all.into()).push(cx);
            }
            (_, RegClass::Float) if bits == 0 => Self::zero(cx, to),
            (Type::Mask { .. }, _) => Self::ones(cx, width, to),
            _ if ty.lanes() > 1 && repeated(ty.lane().bits(), bits) == u64::MAX => Self::ones(cx, width, to),
            _ => {
                let lane = ty.lane();
                let source = self.pool.scalar(lane.bits(), bits);
                self.splat_from_memory(cx, ty, to, source);
            }
        }
    }

    fn pointer(&mut self, cx: &mut Context, to: Reg, base: VReg, terms: &[(VReg, i64)]) {
        self.sum(cx, to, base, terms);
    }

    fn node<'k>(&mut self, cx: &mut Context<'k>, result: Option<VReg>, op: &'k Op, args: &'k [VReg]) {
        let to = result.map(|result| cx.reg(result));
        let ty = result.map(|result| cx.ty(result));
        match (op, to, ty) {
            (Op::Store { address, .. } | Op::StorePtr(address), ..) => self.store(cx, address, args[0]),
            (Op::StoreFirst { lanes, address, .. }, ..) => self.store_first(cx, *lanes, address, args[0]),
            (Op::LoadFirst { lanes, address, .. }, Some(to), Some(ty)) => self.load_first(cx, ty, to, *lanes, address),
            (Op::Prefetch(address), ..) => self.prefetch(cx, address),
            (Op::Call(name), ..) => self.call(cx, Some(name), args, to),
            (Op::CallPtr, ..) => self.call(cx, None, args, to),
            (Op::Load { address, .. } | Op::LoadPtr(address), Some(to), Some(ty)) => self.load(cx, ty, to, address),
            (Op::Lea(address), Some(to), _) => self.lea(cx, to, address),
            (Op::SlotAddr(slot), Some(to), _) => self.slot_address(cx, to, *slot),
            (Op::SymbolAddr(name), Some(to), _) => self.symbol_address(cx, to, name),
            (_, Some(to), Some(ty)) => self.compute(cx, ty, to, op, args),
            _ => cx.unsupported(op),
        }
    }

    fn branch(&mut self, cx: &mut Context, cond: VReg) {
        let flags = self.flags(cx, cond);
        cx.push_branch(Inst::Jump(flags), &[]);
    }

    fn guard(&mut self, cx: &mut Context, begin: Operand, end: Operand) {
        let flags = self.compare_bounds(cx, begin, end);
        cx.push_branch(Inst::Jump(flags), &[]);
    }

    fn latch(&mut self, cx: &mut Context, latch: Latch) {
        match latch {
            Latch::Count { counter, next } => {
                Self::general_imm(cx, rows::SUB, 64, next, counter, 1);
                cx.push_branch(Inst::Jump(Flags::NOT_EQUAL), &[]);
            }
            Latch::Index { index, next, step, end } => {
                match i32::try_from(step) {
                    Ok(step) => Self::general_imm(cx, rows::ADD, 64, next, index, step),
                    Err(_) => {
                        let step = cx.constant_reg(Type::I64, step as u64);
                        Self::general_binary(cx, rows::ADD, 64, next, index, step);
                    }
                }
                self.compare_with_bound(cx, next, end);
                cx.push_branch(Inst::Jump(Flags::LESS), &[]);
            }
        }
    }

    fn entry(&mut self, cx: &mut Context, params: &[VReg]) {
        self.define_params(cx, params);
    }

    fn exit(&mut self, cx: &mut Context, result: Option<VReg>) {
        let operands: Vec<_> =
            result.map(|result| Constraint::reg_fixed_use(cx.reg(result), crate::abi::general(0))).into_iter().collect();
        cx.push_return(&operands);
    }
}

impl<const V4: bool> Selector<V4> {
    /// Operations on registers.
    fn compute<'k>(&mut self, cx: &mut Context<'k>, ty: Type, to: Reg, op: &'k Op, args: &'k [VReg]) {
        let from = args.first().map_or(ty, |&arg| cx.ty(arg));
        match op {
            Op::Cmp(_) | Op::CmpU(_) if is_vector(ty) => self.compare_vectors(cx, from, to, op, args),
            Op::Cmp(_) | Op::CmpU(_) => self.compare_scalars(cx, to, op, args),
            Op::Select if is_vector(from) => self.blend(cx, ty, to, args),
            Op::Select => self.select(cx, ty, to, args),
            Op::MaskAnd | Op::MaskOr | Op::MaskXor | Op::MaskNot => self.mask_logic(cx, ty, to, op, args),
            Op::MaskToInt | Op::IntToMask | Op::MaskResize => self.mask_change(cx, ty, from, to, op, args[0]),
            Op::Splice(lanes) => self.splice(cx, ty, to, *lanes, args),
            Op::Splat => self.splat(cx, ty, to, args[0]),
            Op::Pack => self.pack(cx, ty, to, args),
            Op::Extract(lane) => self.extract(cx, from, ty, to, args[0], *lane),
            Op::ExtendS | Op::ExtendU | Op::Wrap | Op::Promote | Op::Demote | Op::Bitcast => {
                self.convert_bits(cx, from, ty, to, op, args[0]);
            }
            Op::IntToFloatS | Op::IntToFloatU => self.int_to_float(cx, from, ty, to, op, args[0]),
            Op::FloatToIntS | Op::FloatToIntU => self.float_to_int(cx, from, ty, to, op, args[0]),
            _ if ty.lane().is_float() => self.float(cx, ty, to, op, args),
            _ if is_vector(ty) => self.integers(cx, ty, to, op, args),
            _ => self.integer(cx, ty, to, op, args),
        }
    }
}
