//! Kernel operations to instructions.
//!
//! Integers and pointers are in general registers; above the bits of a lane of 8, 16 or 32 bits there may be anything. Floats and
//! vectors are in vector registers. A condition of one lane is 0 or 1 in a general register, and a comparison is done where it is
//! used; a vector mask has all bits of a lane set or none.

mod convert;
mod flags;
mod integer;
mod lanes;
mod memory;
mod vectors;

use mcc_kernel::mach::{Context, Latch, Operand as Place, Reg, RegClass, Select};
use mcc_kernel::{Lane, Op, Operand, Type, VReg};

use crate::encode::vector as v;
use crate::encode::vector::Shape;
use crate::encode::*;
use crate::inst::{IMPLIED, Inst, Make, What};
use crate::registers;

pub use integer::one_move;

/// What selection gathers beside instructions.
#[derive(Debug)]
pub struct Selector {
    /// Whether every access must be aligned to its size.
    pub strict_alignment: bool,
    /// Constants that are loaded, with log₂ of their bytes.
    pub literals: Vec<(u32, u128)>,
    /// Bytes of the frame that arguments of calls take.
    pub outgoing_bytes: u32,
    pub has_calls: bool,
}

pub type Cx<'k> = Context<'k, Inst>;

/// Whether values of this type are in vector registers.
pub fn is_vector(ty: Type) -> bool {
    match ty {
        Type::Ptr => false,
        Type::Data { lane, lanes } => lanes > 1 || lane.is_float(),
        Type::Mask { lanes, .. } => lanes > 1,
    }
}

/// The bits of a lane; of pointers all.
pub fn lane_bits(ty: Type) -> u32 {
    match ty {
        Type::Ptr => 64,
        Type::Data { lane, .. } => lane.bits(),
        Type::Mask { bits, .. } => u32::from(bits),
    }
}

pub fn width(ty: Type) -> Width {
    match ty {
        Type::Mask { .. } => Width::W,
        ty => Width::of_bits(lane_bits(ty)),
    }
}

/// How a vector's lanes lie; a scalar float as if it were the first of a full vector.
pub fn shape(ty: Type) -> Shape {
    let bits = lane_bits(ty);
    Shape { size: bits.trailing_zeros() - 3, is_full: ty.lanes() == 1 || bits * u32::from(ty.lanes()) == 128 }
}

pub fn is_float(ty: Type) -> bool {
    matches!(ty, Type::Data { lane, .. } if lane.is_float())
}

pub fn is_double(ty: Type) -> bool {
    lane_bits(ty) == 64
}

/// The low `bits` of a value.
pub fn low_bits(value: u64, bits: u32) -> u64 {
    value & (u64::MAX >> (64 - bits))
}

/// The low bits as a number with a sign.
pub fn signed(value: u64, bits: u32) -> i64 {
    ((value << (64 - bits)) as i64) >> (64 - bits)
}

impl Select for Selector {
    type Inst = Inst;

    fn class(ty: Type) -> RegClass {
        if is_vector(ty) { RegClass::Float } else { RegClass::Int }
    }

    fn is_cheap(ty: Type, bits: u64) -> bool {
        !is_vector(ty) && one_move(width(ty), low_bits(bits, width(ty).bits())).is_some()
    }

    fn constant(&mut self, cx: &mut Cx, to: Reg, ty: Type, bits: u64) {
        match (ty, is_vector(ty)) {
            (Type::Mask { .. }, true) => self.vector_constant(cx, to, Type::vector(Lane::I8, 16), bits.wrapping_neg()),
            (_, true) => self.vector_constant(cx, to, ty, bits),
            _ => integer::constant(cx, to, width(ty), low_bits(bits, lane_bits(ty))),
        }
    }

    fn node<'k>(&mut self, cx: &mut Cx<'k>, result: Option<VReg>, op: &'k Op, args: &'k [VReg]) {
        match (op, result) {
            (Op::Store { address, align }, _) => self.store(cx, args[0], address, *align),
            (Op::StorePtr(address), _) => self.store(cx, args[0], address, 8),
            (Op::Prefetch(address), _) => self.prefetch(cx, address),
            (Op::Call(name), _) => self.call(cx, result, Some(name), args),
            (Op::CallPtr, _) => self.call(cx, result, None, args),
            (_, Some(result)) => self.compute(cx, result, op, args),
            (_, None) => cx.unsupported(op),
        }
    }

    fn branch(&mut self, cx: &mut Cx, cond: VReg) {
        match self.flags(cx, cond) {
            Some(flags) => Make::new(b_cond(flags as u32)).what(What::ReadsFlags).push_branch(cx),
            None => {
                let cond = cx.reg(cond);
                Make::new(cbz(true, Width::W)).with(cond, RD).push_branch(cx);
            }
        }
    }

    fn guard(&mut self, cx: &mut Cx, begin: Operand, end: Operand) {
        let begin = self.operand(cx, begin);
        self.compare_with(cx, begin, end);
        Make::new(b_cond(Flags::Lt as u32)).what(What::ReadsFlags).push_branch(cx);
    }

    fn latch(&mut self, cx: &mut Cx, latch: Latch) {
        let condition = match latch {
            Latch::Count { counter, next } => {
                let word = add_imm(SUBS, Width::X, 1).expect("1 is an immediate");
                Make::new(word).what(What::SetsFlags).def(next).n(counter).push(cx);
                Flags::Ne
            }
            Latch::Index { index, next, step, end } => {
                integer::add_constant(cx, next, index, step);
                self.compare_with(cx, next, end);
                Flags::Lt
            }
        };
        Make::new(b_cond(condition as u32)).what(What::ReadsFlags).push_branch(cx);
    }

    fn entry(&mut self, cx: &mut Cx, params: &[VReg]) {
        let mut make = Make::new(0).what(What::Nothing);
        for (index, &param) in params.iter().enumerate().take(registers::ARGUMENTS) {
            let reg = cx.reg(param);
            make = make.operand(Place::reg_fixed_def(reg, registers::general(index)), IMPLIED);
        }
        make.push(cx);
        for (index, &param) in params.iter().enumerate().skip(registers::ARGUMENTS) {
            let reg = cx.reg(param);
            let ty = cx.ty(param);
            let access = Access { log2_bytes: width(ty).bits().trailing_zeros() - 3, is_vector: false, is_load: true };
            let word = access.at(0).expect("it is aligned") | ZERO_OR_SP << RN;
            Make::new(word).what(What::Incoming((index - registers::ARGUMENTS) as u32)).def(reg).push(cx);
        }
    }

    fn exit(&mut self, cx: &mut Cx, result: Option<VReg>) {
        let operands: Vec<_> = result.iter().map(|&result| Place::reg_fixed_use(cx.reg(result), registers::general(0))).collect();
        cx.push_return(&operands);
    }
}

impl Selector {
    pub fn new(strict_alignment: bool) -> Self {
        Self { strict_alignment, literals: Vec::new(), outgoing_bytes: 0, has_calls: false }
    }

    fn operand(&mut self, cx: &mut Cx, operand: Operand) -> Reg {
        match operand {
            Operand::Const(value) => cx.constant_reg(Type::I64, value as u64),
            Operand::Reg(reg) => cx.reg(reg),
        }
    }

    /// Sets the flags by a register of 64 bits and an operand.
    fn compare_with(&mut self, cx: &mut Cx, reg: Reg, with: Operand) {
        let constant = match with {
            Operand::Const(value) => Some(value as u64),
            Operand::Reg(reg) => cx.constant(reg),
        };
        if let Some(word) = constant.and_then(|value| add_imm(SUBS, Width::X, value)) {
            Make::new(word | ZERO_OR_SP).what(What::SetsFlags).n(reg).push(cx);
            return;
        }
        let with = self.operand(cx, with);
        Make::new(general(SUBS, Width::X) | ZERO_OR_SP).what(What::SetsFlags).n(reg).m(with).push(cx);
    }

    fn compute<'k>(&mut self, cx: &mut Cx<'k>, result: VReg, op: &'k Op, args: &'k [VReg]) {
        let ty = cx.ty(result);
        let to = cx.reg(result);
        match op {
            Op::Const(_) => {}
            Op::Lea(address) => self.lea(cx, to, address),
            Op::Load { address, align } => self.load(cx, to, ty, address, *align),
            Op::LoadPtr(address) => self.load(cx, to, ty, address, 8),
            Op::SlotAddr(slot) => Make::new(0).what(What::Slot(*slot)).def(to).push(cx),
            Op::SymbolAddr(name) => self.symbol(cx, to, name),
            Op::Add
            | Op::Sub
            | Op::Mul
            | Op::Div
            | Op::DivU
            | Op::Rem
            | Op::RemU
            | Op::Neg
            | Op::Abs
            | Op::Min
            | Op::Max
            | Op::MinU
            | Op::MaxU
            | Op::And
            | Op::Or
            | Op::Xor
            | Op::Not
            | Op::Shl
            | Op::ShrS
            | Op::ShrU
            | Op::Fma
            | Op::Sqrt
            | Op::Floor
            | Op::Ceil
            | Op::Trunc
            | Op::Nearest => match (ty.lanes() == 1, is_float(ty)) {
                (true, false) => self.integer(cx, to, ty, op, args),
                (true, true) => self.float(cx, to, ty, op, args),
                (false, true) => self.floats(cx, to, ty, op, args),
                (false, false) => self.integers(cx, to, ty, op, args),
            },
            Op::Cmp(_) | Op::CmpU(_) if ty.lanes() == 1 => self.condition(cx, to, result),
            Op::Cmp(cond) => self.compare(cx, to, *cond, true, args),
            Op::CmpU(cond) => self.compare(cx, to, *cond, false, args),
            Op::Select => self.choose(cx, to, ty, args),
            Op::MaskAnd | Op::MaskOr | Op::MaskXor | Op::MaskNot => self.mask(cx, to, ty, op, args),
            Op::MaskToInt
            | Op::IntToMask
            | Op::MaskResize
            | Op::ExtendS
            | Op::ExtendU
            | Op::Wrap
            | Op::IntToFloatS
            | Op::IntToFloatU
            | Op::FloatToIntS
            | Op::FloatToIntU
            | Op::Promote
            | Op::Demote
            | Op::Bitcast => {
                self.convert(cx, to, ty, op, args[0]);
            }
            Op::Splat => self.splat(cx, to, ty, args[0]),
            Op::Pack => self.pack(cx, to, ty, args),
            Op::Extract(lane) => self.extract(cx, to, ty, args[0], *lane),
            Op::Store { .. } | Op::StorePtr(_) | Op::Prefetch(_) | Op::Call(_) | Op::CallPtr => cx.unsupported(op),
            Op::LoadFirst { .. } | Op::StoreFirst { .. } | Op::Splice(_) => cx.unsupported(op),
        }
    }

    fn symbol(&mut self, cx: &mut Cx, to: Reg, name: &str) {
        let page = cx.fresh(RegClass::Int);
        Make::new(ADRP).what(What::Page(name.to_string())).def(page).push(cx);
        let word = add_imm(ADD, Width::X, 0).expect("0 is an immediate");
        Make::new(word).what(What::PageOffset(name.to_string())).def(to).n(page).push(cx);
    }

    /// A constant in every lane, or of one.
    pub fn vector_constant(&mut self, cx: &mut Cx, to: Reg, ty: Type, bits: u64) {
        let shape = shape(ty);
        let bits = low_bits(bits, shape.lane_bits());
        let scalar = if ty.lanes() == 1 { v::float_constant(is_double(ty), bits) } else { None };
        if let Some(word) = scalar.or_else(|| v::constant(true, shape.size, bits)) {
            Make::new(word).def(to).push(cx);
            return;
        }
        let (log2_bytes, value) = if ty.lanes() == 1 {
            (shape.size, u128::from(bits))
        } else {
            let lanes = 128 / shape.lane_bits();
            let value = (0..lanes).fold(0, |value, lane| value | u128::from(bits) << (lane * shape.lane_bits()));
            (4, value)
        };
        let known = self.literals.iter().position(|&literal| literal == (log2_bytes, value));
        let index = known.unwrap_or_else(|| {
            self.literals.push((log2_bytes, value));
            self.literals.len() - 1
        });
        let access = Access { log2_bytes, is_vector: true, is_load: true };
        Make::new(access.literal()).what(What::Literal(index)).def(to).push(cx);
    }

    fn call(&mut self, cx: &mut Cx, result: Option<VReg>, name: Option<&str>, args: &[VReg]) {
        self.has_calls = true;
        let callee = name.is_none().then(|| cx.reg(args[0]));
        let args = if name.is_none() { &args[1..] } else { args };
        for (index, &arg) in args.iter().enumerate().skip(registers::ARGUMENTS) {
            let offset = 8 * (index - registers::ARGUMENTS) as u32;
            self.outgoing_bytes = self.outgoing_bytes.max((offset + 8).next_multiple_of(16));
            let access = Access { log2_bytes: 3, is_vector: false, is_load: false };
            let word = access.at(i64::from(offset)).expect("it is aligned") | ZERO_OR_SP << RN;
            let arg = cx.reg(arg);
            Make::new(word).what(What::Outgoing).with(arg, RD).push(cx);
        }
        let mut make = match name {
            Some(name) => Make::new(BL).what(What::Call(name.to_string())),
            None => Make::new(BLR).what(What::CallPtr),
        };
        if let Some(callee) = callee {
            make = make.n(callee);
        }
        for (index, &arg) in args.iter().enumerate().take(registers::ARGUMENTS) {
            let arg = cx.reg(arg);
            make = make.operand(Place::reg_fixed_use(arg, registers::general(index)), IMPLIED);
        }
        if let Some(result) = result {
            let result = cx.reg(result);
            make = make.operand(Place::reg_fixed_def(result, registers::general(0)), IMPLIED);
        }
        cx.push_clobbering(make.inst, &make.operands, registers::destroyed_by_call(result.is_some()));
    }
}
