//! Arithmetic on floats, scalars and vectors alike.

use mcc_kernel::mach::{Reg, RegClass};
use mcc_kernel::{Cond, Lane, Op, Type, VReg};

use super::form::{Form, Source};
use super::{Context, Selector, by_float, is_vector, vector_bits};
use crate::encode::Imm;
use crate::rows::{self, Row};

impl<const V4: bool> Selector<V4> {
    pub(super) fn float(&mut self, cx: &mut Context, ty: Type, to: Reg, op: &Op, args: &[VReg]) {
        let pick = |rows: [Row; 4]| rows[by_float(ty)];
        match op {
            Op::Add => self.commutative(cx, pick(rows::VADD), ty, to, args),
            Op::Mul => self.commutative(cx, pick(rows::VMUL), ty, to, args),
            Op::Sub => self.ordered(cx, pick(rows::VSUB), ty, to, args),
            Op::Div => self.ordered(cx, pick(rows::VDIV), ty, to, args),
            Op::Min => self.ordered(cx, pick(rows::VMIN), ty, to, args),
            Op::Max => self.ordered(cx, pick(rows::VMAX), ty, to, args),
            Op::Fma => self.fma(cx, ty, to, args),
            Op::Neg | Op::Abs => self.sign(cx, ty, to, op, args[0]),
            Op::Sqrt => {
                let source = self.source(cx, args[0], true);
                self.one_operand(cx, pick(rows::VSQRT), ty, to, source, Imm::None);
            }
            Op::Floor | Op::Ceil | Op::Trunc | Op::Nearest => {
                // Without the exception for inexact results.
                let mode = match op {
                    Op::Floor => 9,
                    Op::Ceil => 10,
                    Op::Trunc => 11,
                    _ => 8,
                };
                let source = self.source(cx, args[0], true);
                self.one_operand(cx, pick(rows::VROUND), ty, to, source, Imm::Byte(mode));
            }
            _ => cx.unsupported(op),
        }
    }

    /// Scalars take the lanes above from another register, which does not matter but has to be named.
    fn one_operand(&mut self, cx: &mut Context, row: Row, ty: Type, to: Reg, source: Source, imm: Imm) {
        let form = Form::new(row, vector_bits(ty)).def(to);
        let form = match source {
            _ if is_vector(ty) => form,
            Source::Reg(reg) => form.vvvv(reg),
            Source::Memory(_) => {
                // A register of zeros: what a register held before would have to be waited for.
                let zero = Self::vector(cx);
                Self::zero(cx, zero);
                form.vvvv(zero)
            }
        };
        form.rm(source).imm(imm).push(cx);
    }

    pub(super) fn ordered(&mut self, cx: &mut Context, row: Row, ty: Type, to: Reg, args: &[VReg]) {
        let source = self.source(cx, args[1], ty.lane().bits() >= 32);
        let a = cx.reg(args[0]);
        Self::binary(cx, row, vector_bits(ty), to, a, source);
    }

    /// The operand that can be in memory goes there.
    pub(super) fn commutative(&mut self, cx: &mut Context, row: Row, ty: Type, to: Reg, args: &[VReg]) {
        let may_broadcast = ty.lane().bits() >= 32;
        let swaps = cx.constant(args[0]).is_some() && cx.constant(args[1]).is_none()
            || self.is_in_memory(cx, args[0], may_broadcast) && !self.is_in_memory(cx, args[1], may_broadcast);
        let args = if swaps { [args[1], args[0]] } else { [args[0], args[1]] };
        self.ordered(cx, row, ty, to, &args);
    }

    /// Writes over the operand that is needed no more; the accumulator before a factor.
    fn fma(&mut self, cx: &mut Context, ty: Type, to: Reg, args: &[VReg]) {
        let (mut a, mut b, c) = (args[0], args[1], args[2]);
        let bits = vector_bits(ty);
        let may_move =
            |selector: &Self, cx: &Context, value| selector.is_in_memory(cx, value, true) || cx.constant(value).is_some();
        if may_move(self, cx, a) && !may_move(self, cx, b) {
            (a, b) = (b, a);
        }
        let accumulates = cx.is_last_use(c) && !self.is_in_memory(cx, c, true);
        let is_free = |value: VReg| cx.is_last_use(value) && value != c && !self.is_in_memory(cx, value, true);
        if !accumulates && a != b && (is_free(a) || is_free(b)) {
            if !is_free(a) || may_move(self, cx, c) && is_free(b) && !is_free(a) {
                (a, b) = (b, a);
            }
            // a = a · b + c
            if self.is_in_memory(cx, b, true) && !self.is_in_memory(cx, c, true) {
                let factor = self.source(cx, b, true);
                let (a, c) = (cx.reg(a), cx.reg(c));
                return Form::new(rows::VFMADD132[by_float(ty)], bits).reuse(a, to).vvvv(c).rm(factor).push(cx);
            }
            let addend = self.source(cx, c, true);
            let (a, b) = (cx.reg(a), cx.reg(b));
            return Form::new(rows::VFMADD213[by_float(ty)], bits).reuse(a, to).vvvv(b).rm(addend).push(cx);
        }
        // c = a · b + c
        let factor = self.source(cx, b, true);
        // A constant that is written over can as well be loaded for that as copied, where it is not at hand.
        let constant = cx.constant(c).filter(|&bits| bits != 0 && Self::is_crowded(cx));
        let near = constant.and_then(|bits| cx.near_constant(ty, bits, 2));
        let (a, c) = (cx.reg(a), near.unwrap_or_else(|| if Self::is_crowded(cx) { cx.own_reg(c) } else { cx.reg(c) }));
        Form::new(rows::VFMADD231[by_float(ty)], bits).reuse(c, to).vvvv(a).rm(factor).push(cx);
    }

    fn sign(&mut self, cx: &mut Context, ty: Type, to: Reg, op: &Op, value: VReg) {
        let is_f64 = ty.lane() == Lane::F64;
        let sign = 1 << (ty.lane().bits() - 1);
        let (row, bits) = match op {
            Op::Neg => ([rows::VXORPS, rows::VXORPD][usize::from(is_f64)], sign),
            _ => ([rows::VANDPS, rows::VANDPD][usize::from(is_f64)], sign - 1),
        };
        // The constant is as wide as the register: that is what the instruction reads.
        let width = vector_bits(ty);
        let ty = Type::vector(ty.lane(), (width / ty.lane().bits()) as u8);
        let mask = self.constant_source(cx, ty, bits, true);
        let value = cx.reg(value);
        Self::binary(cx, row, width, to, value, mask);
    }

    /// The number of a comparison in `vcmp`.
    pub(super) fn float_predicate(op: &Op) -> Option<u8> {
        let Op::Cmp(cond) = op else { return None };
        // Ordered and quiet, but for "not equal", which holds for NaN.
        Some(match cond {
            Cond::Eq => 0,
            Cond::Ne => 4,
            Cond::Lt => 17,
            Cond::Le => 18,
            Cond::Gt => 30,
            Cond::Ge => 29,
        })
    }

    /// Where a comparison of scalar floats decides between two others, nothing has to leave the vector registers.
    pub(super) fn select_by_floats(&mut self, cx: &mut Context, from: Type, to: Reg, compare: &Op, args: [VReg; 4]) {
        let [left, right, a, b] = args.map(|arg| cx.reg(arg));
        let predicate = Self::float_predicate(compare).unwrap_or_else(|| cx.unsupported(compare));
        let row = rows::VCMP[by_float(from)];
        if V4 {
            let mask = cx.fresh(RegClass::Vector);
            Form::new(row.evex(), 128).def(mask).vvvv(left).rm(right.into()).imm(Imm::Byte(predicate)).push(cx);
            let blend = rows::VPBLENDM[super::by_width(from.lane().bits())];
            Form::new(blend, 128).def(to).mask(mask).vvvv(b).rm(a.into()).push(cx);
        } else {
            let mask = Self::vector(cx);
            Form::new(row.vex(), 128).def(mask).vvvv(left).rm(right.into()).imm(Imm::Byte(predicate)).push(cx);
            Form::new(rows::VPBLENDVB, 128).def(to).vvvv(b).rm(a.into()).fourth(mask).push(cx);
        }
    }
}
