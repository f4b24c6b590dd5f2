//! Operations that give a value.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{self, InstBuilder, Value, types};
use mcc_kernel::{Cond, Op, Type, VReg};
use mcc_support::bug;

use crate::facts;
use crate::lower::{Lower, clif_type};

fn float_cond(cond: Cond) -> FloatCC {
    match cond {
        Cond::Eq => FloatCC::Equal,
        Cond::Ne => FloatCC::NotEqual,
        Cond::Lt => FloatCC::LessThan,
        Cond::Le => FloatCC::LessThanOrEqual,
        Cond::Gt => FloatCC::GreaterThan,
        Cond::Ge => FloatCC::GreaterThanOrEqual,
    }
}

fn int_cond(cond: Cond, is_signed: bool) -> IntCC {
    match (cond, is_signed) {
        (Cond::Eq, _) => IntCC::Equal,
        (Cond::Ne, _) => IntCC::NotEqual,
        (Cond::Lt, true) => IntCC::SignedLessThan,
        (Cond::Le, true) => IntCC::SignedLessThanOrEqual,
        (Cond::Gt, true) => IntCC::SignedGreaterThan,
        (Cond::Ge, true) => IntCC::SignedGreaterThanOrEqual,
        (Cond::Lt, false) => IntCC::UnsignedLessThan,
        (Cond::Le, false) => IntCC::UnsignedLessThanOrEqual,
        (Cond::Gt, false) => IntCC::UnsignedGreaterThan,
        (Cond::Ge, false) => IntCC::UnsignedGreaterThanOrEqual,
    }
}

/// The low `bits` of a value.
pub(crate) fn low_bits(value: u64, bits: u32) -> u64 {
    if bits == 64 { value } else { value & ((1 << bits) - 1) }
}

impl Lower<'_, '_> {
    /// The value of an operation with a result of type `ty`.
    pub fn compute(&mut self, ty: Type, op: &Op, args: &[VReg]) -> Value {
        match op {
            Op::Const(bits) => self.const_of(ty, *bits),
            Op::Lea(address) => self.address(address),
            Op::Load { address, align } => self.load(ty, address, *align),
            Op::LoadPtr(address) => self.load(Type::Ptr, address, 8),
            Op::SlotAddr(slot) => self.slot_address(*slot),
            Op::SymbolAddr(name) => self.symbol_address(name),
            Op::Store { .. } | Op::StoreFirst { .. } | Op::StorePtr(_) | Op::Prefetch(_) | Op::Call(_) | Op::CallPtr => {
                bug!("{op:?} is no operation that computes")
            }
            Op::LoadFirst { .. } | Op::Splice(_) => bug!("a part of a vector, which the facts lack"),
            _ => {
                let values: Vec<_> = args.iter().map(|&arg| self.value(arg)).collect();
                let source = self.ty(args[0]);
                match op {
                    Op::Add | Op::Sub | Op::Mul | Op::Neg | Op::Abs | Op::Sqrt | Op::Fma => self.arithmetic(ty, op, &values),
                    Op::Div if ty.lane().is_float() => self.builder.ins().fdiv(values[0], values[1]),
                    Op::Div | Op::DivU | Op::Rem | Op::RemU => self.divide(ty, op, args),
                    Op::Min | Op::Max | Op::MinU | Op::MaxU => self.extreme(ty, op, values[0], values[1]),
                    Op::Floor | Op::Ceil | Op::Trunc | Op::Nearest => self.round(ty, op, values[0]),
                    Op::And | Op::Or | Op::Xor | Op::Not | Op::Shl | Op::ShrS | Op::ShrU => self.bits(op, &values),
                    Op::Splat | Op::Pack | Op::Extract(_) => self.lanes(ty, op, source, &values),
                    Op::Cmp(_) | Op::CmpU(_) | Op::Select | Op::MaskAnd | Op::MaskOr | Op::MaskXor | Op::MaskNot => {
                        self.mask(op, source, &values)
                    }
                    _ => self.convert(ty, op, source, values[0]),
                }
            }
        }
    }

    fn const_of(&mut self, ty: Type, bits: u64) -> Value {
        match ty {
            Type::Mask { lanes, .. } if lanes > 1 => self.lane_const(clif_type(ty), if bits == 0 { 0 } else { u64::MAX }),
            _ => self.lane_const(clif_type(ty), bits),
        }
    }

    /// The constant with these low bits in every lane.
    pub fn lane_const(&mut self, ty: ir::Type, bits: u64) -> Value {
        let lane = ty.lane_type();
        if ty.is_vector() {
            let bytes = bits.to_le_bytes()[..lane.bytes() as usize].repeat(ty.lane_count() as usize);
            let data = self.builder.func.dfg.constants.insert(bytes.into());
            return self.builder.ins().vconst(ty, data);
        }
        match ty {
            types::F32 => self.builder.ins().f32const(ir::immediates::Ieee32::with_bits(bits as u32)),
            types::F64 => self.builder.ins().f64const(ir::immediates::Ieee64::with_bits(bits)),
            _ => self.builder.ins().iconst(ty, low_bits(bits, ty.bits()) as i64),
        }
    }

    fn arithmetic(&mut self, ty: Type, op: &Op, values: &[Value]) -> Value {
        if *op == Op::Fma && !facts::has_fma(self.cpu) {
            return self.multiply_add(ty, values);
        }
        let ins = self.builder.ins();
        match (op, ty.lane().is_float()) {
            (Op::Add, true) => ins.fadd(values[0], values[1]),
            (Op::Add, false) => ins.iadd(values[0], values[1]),
            (Op::Sub, true) => ins.fsub(values[0], values[1]),
            (Op::Sub, false) => ins.isub(values[0], values[1]),
            (Op::Mul, true) => ins.fmul(values[0], values[1]),
            (Op::Mul, false) => ins.imul(values[0], values[1]),
            (Op::Neg, true) => ins.fneg(values[0]),
            (Op::Neg, false) => ins.ineg(values[0]),
            (Op::Abs, true) => ins.fabs(values[0]),
            (Op::Abs, false) => ins.iabs(values[0]),
            (Op::Sqrt, _) => ins.sqrt(values[0]),
            (Op::Fma, _) => ins.fma(values[0], values[1], values[2]),
            _ => bug!("{op:?} is not arithmetic"),
        }
    }

    /// Integer division. Divisors that trap or overflow are replaced by 1 and the result by what is defined for them.
    fn divide(&mut self, ty: Type, op: &Op, args: &[VReg]) -> Value {
        let clif = clif_type(ty);
        let (a, b) = (self.value(args[0]), self.value(args[1]));
        let is_signed = matches!(op, Op::Div | Op::Rem);
        let minus_one = low_bits(u64::MAX, clif.bits());
        let constant = self.constant(args[1]).map(|bits| low_bits(bits, clif.bits()));
        if constant.is_some_and(|bits| bits != 0 && (!is_signed || bits != minus_one)) {
            return self.divide_by_safe(op, a, b);
        }
        let zero = self.lane_const(clif, 0);
        let one = self.lane_const(clif, 1);
        let is_zero = self.builder.ins().icmp(IntCC::Equal, b, zero);
        if !is_signed {
            let safe = self.builder.ins().select(is_zero, one, b);
            let quotient = self.divide_by_safe(op, a, safe);
            return self.builder.ins().select(is_zero, zero, quotient);
        }
        let minus_one = self.lane_const(clif, u64::MAX);
        let is_minus_one = self.builder.ins().icmp(IntCC::Equal, b, minus_one);
        let is_special = self.builder.ins().bor(is_zero, is_minus_one);
        let safe = self.builder.ins().select(is_special, one, b);
        let quotient = self.divide_by_safe(op, a, safe);
        if *op == Op::Rem {
            // By 1 it is 0 too.
            return quotient;
        }
        let negated = self.builder.ins().ineg(a);
        let special = self.builder.ins().select(is_zero, zero, negated);
        self.builder.ins().select(is_special, special, quotient)
    }

    fn divide_by_safe(&mut self, op: &Op, a: Value, b: Value) -> Value {
        match op {
            Op::Div => self.builder.ins().sdiv(a, b),
            Op::DivU => self.builder.ins().udiv(a, b),
            Op::Rem => self.builder.ins().srem(a, b),
            _ => self.builder.ins().urem(a, b),
        }
    }

    /// Floats as a comparison and a selection, which Cranelift recognizes as `minps` and its like.
    fn extreme(&mut self, ty: Type, op: &Op, a: Value, b: Value) -> Value {
        match op {
            Op::Min if ty.lane().is_float() => self.select_where(FloatCC::LessThan, a, b, a, b),
            Op::Max if ty.lane().is_float() => self.select_where(FloatCC::LessThan, b, a, a, b),
            Op::Min => self.builder.ins().smin(a, b),
            Op::Max => self.builder.ins().smax(a, b),
            Op::MinU => self.builder.ins().umin(a, b),
            _ => self.builder.ins().umax(a, b),
        }
    }

    /// `left cond right ? a : b` in each lane of floats.
    pub fn select_where(&mut self, cond: FloatCC, left: Value, right: Value, a: Value, b: Value) -> Value {
        let ty = self.builder.func.dfg.value_type(a);
        let mask = self.builder.ins().fcmp(cond, left, right);
        if !ty.is_vector() {
            return self.builder.ins().select(mask, a, b);
        }
        let mask = self.bits_as(ty, mask);
        self.builder.ins().bitselect(mask, a, b)
    }

    fn bits(&mut self, op: &Op, values: &[Value]) -> Value {
        let ins = self.builder.ins();
        match op {
            Op::And => ins.band(values[0], values[1]),
            Op::Or => ins.bor(values[0], values[1]),
            Op::Xor => ins.bxor(values[0], values[1]),
            Op::Not => ins.bnot(values[0]),
            Op::Shl => ins.ishl(values[0], values[1]),
            Op::ShrS => ins.sshr(values[0], values[1]),
            _ => ins.ushr(values[0], values[1]),
        }
    }

    /// Operations on masks; `source` is the type of the first operand.
    fn mask(&mut self, op: &Op, source: Type, values: &[Value]) -> Value {
        match op {
            Op::Cmp(cond) if source.lane().is_float() => self.builder.ins().fcmp(float_cond(*cond), values[0], values[1]),
            Op::Cmp(cond) => self.builder.ins().icmp(int_cond(*cond, true), values[0], values[1]),
            Op::CmpU(cond) => self.builder.ins().icmp(int_cond(*cond, false), values[0], values[1]),
            Op::Select if source.lanes() == 1 => self.builder.ins().select(values[0], values[1], values[2]),
            Op::Select => {
                let ty = self.builder.func.dfg.value_type(values[1]);
                let mask = self.bits_as(ty, values[0]);
                self.builder.ins().bitselect(mask, values[1], values[2])
            }
            Op::MaskAnd => self.builder.ins().band(values[0], values[1]),
            Op::MaskOr => self.builder.ins().bor(values[0], values[1]),
            Op::MaskXor => self.builder.ins().bxor(values[0], values[1]),
            _ if source.lanes() > 1 => self.builder.ins().bnot(values[0]),
            _ => {
                let one = self.builder.ins().iconst(types::I8, 1);
                self.builder.ins().bxor(values[0], one)
            }
        }
    }

    fn lanes(&mut self, ty: Type, op: &Op, source: Type, values: &[Value]) -> Value {
        let clif = clif_type(ty);
        if let Op::Extract(lane) = op {
            if source.lanes() == 1 {
                return values[0];
            }
            let value = self.builder.ins().extractlane(values[0], *lane);
            return if matches!(ty, Type::Mask { .. }) {
                self.builder.ins().icmp_imm_s(IntCC::NotEqual, value, 0)
            } else {
                value
            };
        }
        if ty.lanes() == 1 {
            return values[0];
        }
        let lanes: Vec<_> = values.iter().map(|&value| self.as_lane(ty, value)).collect();
        if *op == Op::Splat { self.builder.ins().splat(clif, lanes[0]) } else { self.pack(clif, &lanes) }
    }

    /// A scalar as a lane of a vector: conditions become all ones or all zeros.
    fn as_lane(&mut self, ty: Type, value: Value) -> Value {
        match ty {
            Type::Mask { bits, .. } => {
                let lane = ir::Type::int(u16::from(bits)).expect("masks have the width of a lane");
                let wide = if bits == 8 { value } else { self.builder.ins().uextend(lane, value) };
                self.builder.ins().ineg(wide)
            }
            _ => value,
        }
    }

    pub fn pack(&mut self, ty: ir::Type, lanes: &[Value]) -> Value {
        // Cranelift puts only wide lanes into a vector of zeros on x86.
        let is_wide = ty.lane_bits() >= 32;
        let first =
            if is_wide { self.builder.ins().scalar_to_vector(ty, lanes[0]) } else { self.builder.ins().splat(ty, lanes[0]) };
        lanes
            .iter()
            .enumerate()
            .skip(1)
            .fold(first, |vector, (index, &lane)| self.builder.ins().insertlane(vector, lane, index as u8))
    }
}
