//! Comparisons of vectors, masks, and choices by them.

use mcc_kernel::mach::Reg;
use mcc_kernel::{Cond, Lane, Op, Type, VReg};

use super::form::{Form, Memory, Origin};
use super::{Context, Selector, by_float, by_width, is_vector, vector_bits};
use crate::encode::Imm;
use crate::rows::{self, Row};

/// The vector of integers with the lanes of a mask.
fn integers_of(ty: Type) -> Type {
    let Type::Mask { bits, lanes } = ty else { return ty };
    let lane = [Lane::I8, Lane::I16, Lane::I32, Lane::I64][by_width(u32::from(bits))];
    Type::Data { lane, lanes }
}

impl<const V4: bool> Selector<V4> {
    pub(super) fn compare_vectors(&mut self, cx: &mut Context, ty: Type, to: Reg, op: &Op, args: &[VReg]) {
        let bits = vector_bits(ty);
        let lane_bits = ty.lane().bits();
        if ty.lane().is_float() {
            let predicate = Self::float_predicate(op).unwrap_or_else(|| cx.unsupported(op));
            let source = self.source(cx, args[1], true);
            let a = cx.reg(args[0]);
            let row = rows::VCMP[by_float(ty)];
            let row = if V4 { row.evex() } else { row.vex() };
            return Form::new(row, bits).def(to).vvvv(a).rm(source).imm(Imm::Byte(predicate)).push(cx);
        }
        let (cond, is_signed) = match op {
            Op::Cmp(cond) => (*cond, true),
            Op::CmpU(cond) => (*cond, false),
            _ => cx.unsupported(op),
        };
        if !V4 {
            return self.compare_integers(cx, ty, cond, is_signed, to, args);
        }
        let rows = if is_signed { rows::VPCMP_MASK } else { rows::VPCMPU_MASK };
        let predicate = match cond {
            Cond::Eq => 0,
            Cond::Lt => 1,
            Cond::Le => 2,
            Cond::Ne => 4,
            Cond::Ge => 5,
            Cond::Gt => 6,
        };
        let source = self.source(cx, args[1], lane_bits >= 32);
        let a = cx.reg(args[0]);
        Form::new(rows[by_width(lane_bits)], bits).def(to).vvvv(a).rm(source).imm(Imm::Byte(predicate)).push(cx);
    }

    /// There are only "equal" and "greater".
    fn compare_integers(&mut self, cx: &mut Context, ty: Type, cond: Cond, is_signed: bool, to: Reg, args: &[VReg]) {
        let bits = vector_bits(ty);
        let [a, b] = [args[0], args[1]].map(|arg| cx.reg(arg));
        let is_inverted = matches!(cond, Cond::Ne | Cond::Le | Cond::Ge);
        let found = if is_inverted { Self::vector(cx) } else { to };
        match cond {
            Cond::Eq | Cond::Ne => Self::binary(cx, rows::VPCMPEQ[by_width(ty.lane().bits())], bits, found, a, b),
            Cond::Gt | Cond::Le => self.greater(cx, ty, is_signed, found, a, b),
            Cond::Lt | Cond::Ge => self.greater(cx, ty, is_signed, found, b, a),
        }
        if is_inverted {
            self.invert(cx, bits, to, found);
        }
    }

    fn invert(&mut self, cx: &mut Context, bits: u32, to: Reg, value: Reg) {
        let ones = Self::vector(cx);
        Self::ones(cx, bits, ones);
        Self::binary(cx, rows::VPXOR[0], bits, to, value, ones);
    }

    /// Lanes of the first value where the mask is set, else of the second.
    pub(super) fn blend(&mut self, cx: &mut Context, ty: Type, to: Reg, args: &[VReg]) {
        let bits = vector_bits(ty);
        let lane_bits = ty.lane().bits();
        let source = self.source(cx, args[1], lane_bits >= 32);
        let [mask, otherwise] = [args[0], args[2]].map(|arg| cx.reg(arg));
        if V4 {
            let row = rows::VPBLENDM[by_width(lane_bits)];
            return Form::new(row, bits).def(to).mask(mask).vvvv(otherwise).rm(source).push(cx);
        }
        Form::new(rows::VPBLENDVB, bits).def(to).vvvv(otherwise).rm(source).fourth(mask).push(cx);
    }

    pub(super) fn mask_logic(&mut self, cx: &mut Context, ty: Type, to: Reg, op: &Op, args: &[VReg]) {
        let value = cx.reg(args[0]);
        if *op == Op::MaskNot {
            return match (is_vector(ty), V4) {
                (false, _) => Self::general_imm(cx, rows::XOR, 32, to, value, 1),
                (true, true) => Self::unary(cx, rows::KNOT, 128, to, value),
                (true, false) => self.invert(cx, vector_bits(ty), to, value),
            };
        }
        let other = cx.reg(args[1]);
        let pick = |rows: [Row; 3]| match op {
            Op::MaskAnd => rows[0],
            Op::MaskOr => rows[1],
            _ => rows[2],
        };
        match (is_vector(ty), V4) {
            (false, _) => Self::general_binary(cx, pick([rows::AND, rows::OR, rows::XOR]), 32, to, value, other),
            (true, true) => Self::binary(cx, pick([rows::KAND, rows::KOR, rows::KXOR]), 128, to, value, other),
            (true, false) => {
                let row = pick([rows::VPAND[0], rows::VPOR[0], rows::VPXOR[0]]);
                Self::binary(cx, row, vector_bits(ty), to, value, other);
            }
        }
    }

    pub(super) fn mask_change(&mut self, cx: &mut Context, ty: Type, from: Type, to: Reg, op: &Op, value: VReg) {
        if is_vector(ty) {
            let value = cx.reg(value);
            return match op {
                Op::MaskToInt => self.vector_mask_to_integers(cx, ty, to, value),
                _ => self.integers_to_vector_mask(cx, from, to, value),
            };
        }
        match op {
            Op::MaskToInt => {
                let value = cx.reg(value);
                Form::new(rows::MOVZX_8, 32).def(to).rm(value.into()).push(cx);
            }
            Op::IntToMask => {
                let bits = super::general_bits(from);
                let value = self.extended(cx, value, false);
                Form::new(rows::TEST, bits).reg(value).rm(value.into()).push(cx);
                Form::new(rows::SET[5], 8).ext(0).def_rm(to).push(cx);
            }
            _ => {
                let value = cx.reg(value);
                Self::rename(cx, value, to);
            }
        }
    }

    fn vector_mask_to_integers(&mut self, cx: &mut Context, ty: Type, to: Reg, value: Reg) {
        let bits = vector_bits(ty);
        let lane_bits = ty.lane().bits();
        let ones = if V4 { Self::vector(cx) } else { value };
        if V4 {
            Self::unary(cx, rows::VPMOVM2[by_width(lane_bits)], bits, ones, value);
        }
        // 1 is the absolute value of all ones, and what remains of them when all others are shifted out.
        match lane_bits {
            8 => Self::unary(cx, rows::VPABS[0], bits, to, ones),
            _ => Self::shift_by(cx, lane_bits, 2, bits, to, ones, lane_bits as u8 - 1),
        }
    }

    fn integers_to_vector_mask(&mut self, cx: &mut Context, from: Type, to: Reg, value: Reg) {
        let bits = vector_bits(from);
        let lane = by_width(from.lane().bits());
        if V4 {
            return Self::binary(cx, rows::VPTESTM[lane], bits, to, value, value);
        }
        let [zero, is_zero] = [(); 2].map(|()| Self::vector(cx));
        Self::zero(cx, zero);
        Self::binary(cx, rows::VPCMPEQ[lane], bits, is_zero, value, zero);
        self.invert(cx, bits, to, is_zero);
    }

    /// One scalar condition in every lane.
    pub(super) fn splat_mask(&mut self, cx: &mut Context, ty: Type, to: Reg, cond: VReg) {
        let all = self.all_bits(cx, cond);
        if V4 {
            return Form::new(rows::KMOV_FROM, 128).def(to).rm(all.into()).push(cx);
        }
        self.splat_general(cx, 64, vector_bits(ty), to, all);
    }

    /// A mask from a condition for each lane.
    pub(super) fn pack_mask(&mut self, cx: &mut Context, ty: Type, to: Reg, conds: &[VReg]) {
        if !V4 {
            let lanes = integers_of(ty);
            let bits = vector_bits(ty);
            let lane_bytes = lanes.lane().bytes() as i32;
            for (lane, &cond) in conds.iter().enumerate() {
                let all = self.all_bits(cx, cond);
                let place = self.scratch(lane as i32 * lane_bytes);
                Self::store_to(cx, lanes.with_lanes(1), place, all);
            }
            let place = self.scratch(0);
            return Form::new(rows::VMOVUPS, bits).def(to).rm(place.into()).push(cx);
        }
        // From the last lane to the first: each is shifted up by those after it.
        let mut packed: Option<Reg> = None;
        for &cond in conds.iter().rev() {
            let cond = cx.reg(cond);
            let bit = Self::general(cx);
            Form::new(rows::MOVZX_8, 32).def(bit).rm(cond.into()).push(cx);
            packed = Some(match packed {
                None => bit,
                Some(above) => {
                    let sum = Self::general(cx);
                    let memory =
                        Memory { origin: Origin::Reg(bit), index: Some((above, 2)), displacement: 0, is_broadcast: false };
                    Form::new(rows::LEA, 64).def(sum).rm(memory.into()).push(cx);
                    sum
                }
            });
        }
        if let Some(packed) = packed {
            Form::new(rows::KMOV_FROM, 128).def(to).rm(packed.into()).push(cx);
        }
    }

    /// One lane of a mask.
    pub(super) fn extract_mask(&mut self, cx: &mut Context, from: Type, to: Reg, mask: VReg, lane: u8) {
        let mask = cx.reg(mask);
        if !V4 {
            let lanes = integers_of(from);
            let word = Self::general(cx);
            self.extract_integer(cx, lanes, word, mask, lane);
            return Self::general_imm(cx, rows::AND, 32, to, word, 1);
        }
        let [all, shifted] = [(); 2].map(|()| Self::general(cx));
        Form::new(rows::KMOV_TO, 128).def(all).rm(mask.into()).push(cx);
        let amount = cx.constant_reg(Type::I32, u64::from(lane));
        Form::new(rows::SHRX, 128).def(shifted).rm(all.into()).vvvv(amount).wide().push(cx);
        Self::general_imm(cx, rows::AND, 32, to, shifted, 1);
    }
}
