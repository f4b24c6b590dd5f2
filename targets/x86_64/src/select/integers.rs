//! Arithmetic on vectors of integers.

use mcc_kernel::mach::Reg;
use mcc_kernel::{Lane, Op, Type, VReg};

use super::form::{Form, Memory, Origin};
use super::{Context, Selector, by_width, vector_bits};
use crate::encode::Imm;
use crate::rows;

/// `/2`, `/4` and `/6` of shifts by a constant.
const RIGHT: u8 = 2;
const RIGHT_SIGNED: u8 = 4;
const LEFT: u8 = 6;

impl<const V4: bool> Selector<V4> {
    pub(super) fn integers(&mut self, cx: &mut Context, ty: Type, to: Reg, op: &Op, args: &[VReg]) {
        let lane = by_width(ty.lane().bits());
        let logic = usize::from(ty.lane() == Lane::I64);
        match op {
            Op::Add => self.commutative(cx, rows::VPADD[lane], ty, to, args),
            Op::Sub => self.ordered(cx, rows::VPSUB[lane], ty, to, args),
            Op::And => self.commutative(cx, rows::VPAND[logic], ty, to, args),
            Op::Or => self.commutative(cx, rows::VPOR[logic], ty, to, args),
            Op::Xor => self.commutative(cx, rows::VPXOR[logic], ty, to, args),
            Op::Not => {
                let ones = Self::vector(cx);
                let value = cx.reg(args[0]);
                Self::ones(cx, vector_bits(ty), ones);
                Self::binary(cx, rows::VPXOR[logic], vector_bits(ty), to, value, ones);
            }
            Op::Neg => {
                let zero = Self::vector(cx);
                let value = cx.reg(args[0]);
                Self::zero(cx, zero);
                Self::binary(cx, rows::VPSUB[lane], vector_bits(ty), to, zero, value);
            }
            Op::Mul => self.multiply_vectors(cx, ty, to, args),
            Op::Abs | Op::Min | Op::Max | Op::MinU | Op::MaxU => self.extreme(cx, ty, to, op, args),
            Op::Shl | Op::ShrS | Op::ShrU => self.shift_vectors(cx, ty, to, op, args),
            _ => cx.unsupported(op),
        }
    }

    fn multiply_vectors(&mut self, cx: &mut Context, ty: Type, to: Reg, args: &[VReg]) {
        match ty.lane() {
            Lane::I16 => self.commutative(cx, rows::VPMULLW, ty, to, args),
            Lane::I32 => self.commutative(cx, rows::VPMULLD, ty, to, args),
            Lane::I64 if V4 => self.commutative(cx, rows::VPMULLQ, ty, to, args),
            _ => self.multiply_halves(cx, ty, to, args),
        }
    }

    /// 64 bits from products of 32: `low · low + ((high · low + low · high) << 32)`.
    fn multiply_halves(&mut self, cx: &mut Context, ty: Type, to: Reg, args: &[VReg]) {
        let bits = vector_bits(ty);
        let [a, b] = [args[0], args[1]].map(|arg| cx.reg(arg));
        let [a_high, b_high, first, second, sum, high, low] = [(); 7].map(|()| Self::vector(cx));
        Self::shift_by(cx, 64, RIGHT, bits, a_high, a, 32);
        Self::shift_by(cx, 64, RIGHT, bits, b_high, b, 32);
        Self::binary(cx, rows::VPMULUDQ, bits, first, a_high, b);
        Self::binary(cx, rows::VPMULUDQ, bits, second, b_high, a);
        Self::binary(cx, rows::VPADD[3], bits, sum, first, second);
        Self::shift_by(cx, 64, LEFT, bits, high, sum, 32);
        Self::binary(cx, rows::VPMULUDQ, bits, low, a, b);
        Self::binary(cx, rows::VPADD[3], bits, to, low, high);
    }

    /// A shift by a constant of lanes of 16, 32 or 64 bits.
    pub(super) fn shift_by(cx: &mut Context, lane_bits: u32, direction: u8, bits: u32, to: Reg, value: Reg, amount: u8) {
        let row = rows::VPSHIFT_IMM[by_width(lane_bits) - 1];
        Form::new(row, bits).def_vvvv(to).ext(direction).rm(value.into()).imm(Imm::Byte(amount)).push(cx);
    }

    fn extreme(&mut self, cx: &mut Context, ty: Type, to: Reg, op: &Op, args: &[VReg]) {
        let lane = by_width(ty.lane().bits());
        let bits = vector_bits(ty);
        if V4 || ty.lane() != Lane::I64 {
            return match op {
                Op::Abs => {
                    let source = self.source(cx, args[0], lane >= 2);
                    Self::unary(cx, rows::VPABS[lane], bits, to, source);
                }
                Op::Min => self.commutative(cx, rows::VPMINS[lane], ty, to, args),
                Op::Max => self.commutative(cx, rows::VPMAXS[lane], ty, to, args),
                Op::MinU => self.commutative(cx, rows::VPMINU[lane], ty, to, args),
                _ => self.commutative(cx, rows::VPMAXU[lane], ty, to, args),
            };
        }
        let value = cx.reg(args[0]);
        if *op == Op::Abs {
            // (x ^ sign) - sign, where sign is 0 or all ones.
            let [zero, sign, flipped] = [(); 3].map(|()| Self::vector(cx));
            Self::zero(cx, zero);
            Self::binary(cx, rows::VPCMPGT[3], bits, sign, zero, value);
            Self::binary(cx, rows::VPXOR[1], bits, flipped, value, sign);
            return Self::binary(cx, rows::VPSUB[3], bits, to, flipped, sign);
        }
        let other = cx.reg(args[1]);
        let is_signed = matches!(op, Op::Min | Op::Max);
        let greater = Self::vector(cx);
        self.greater(cx, ty, is_signed, greater, value, other);
        let (otherwise, then) = if matches!(op, Op::Min | Op::MinU) { (value, other) } else { (other, value) };
        Form::new(rows::VPBLENDVB, bits).def(to).vvvv(otherwise).rm(then.into()).fourth(greater).push(cx);
    }

    /// `to = a > b` as a vector of all ones and zeros. There is no unsigned comparison: the sign bits of both are flipped for it.
    pub(super) fn greater(&mut self, cx: &mut Context, ty: Type, is_signed: bool, to: Reg, a: Reg, b: Reg) {
        let bits = vector_bits(ty);
        let lane_bits = ty.lane().bits();
        let row = rows::VPCMPGT[by_width(lane_bits)];
        if is_signed {
            return Self::binary(cx, row, bits, to, a, b);
        }
        let signs = cx.constant_reg(ty, 1 << (lane_bits - 1));
        let [a_flipped, b_flipped] = [(); 2].map(|()| Self::vector(cx));
        Self::binary(cx, rows::VPXOR[0], bits, a_flipped, a, signs);
        Self::binary(cx, rows::VPXOR[0], bits, b_flipped, b, signs);
        Self::binary(cx, row, bits, to, a_flipped, b_flipped);
    }

    fn shift_vectors(&mut self, cx: &mut Context, ty: Type, to: Reg, op: &Op, args: &[VReg]) {
        let lane_bits = ty.lane().bits();
        let bits = vector_bits(ty);
        let has_constant_form = lane_bits > 8 && (V4 || *op != Op::ShrS || lane_bits < 64);
        if let (Some(amount), true) = (cx.constant(args[1]), has_constant_form) {
            let amount = amount as u8 & (lane_bits as u8 - 1);
            let value = cx.reg(args[0]);
            let direction = match op {
                Op::Shl => LEFT,
                Op::ShrS => RIGHT_SIGNED,
                _ => RIGHT,
            };
            // With the sign, lanes of 64 bits have the opcode of 32 and W.
            if *op == Op::ShrS && lane_bits == 64 {
                let row = rows::VPSHIFT_IMM[1].evex().wide();
                return Form::new(row, bits).def_vvvv(to).ext(direction).rm(value.into()).imm(Imm::Byte(amount)).push(cx);
            }
            return Self::shift_by(cx, lane_bits, direction, bits, to, value, amount);
        }
        let value = cx.reg(args[0]);
        let amount = cx.reg(args[1]);
        let [count, counts] = [Self::general(cx), Self::vector(cx)];
        Self::general_imm(cx, rows::AND, 32, count, amount, lane_bits as i32 - 1);
        Form::new(rows::VMOVD, 128).def(counts).rm(count.into()).push(cx);
        match (op, lane_bits) {
            (_, 8) => self.shift_bytes(cx, ty, to, op, value, [count, counts]),
            (Op::Shl, _) => Self::binary(cx, rows::VPSLL[by_width(lane_bits) - 1], bits, to, value, counts),
            (Op::ShrU, _) => Self::binary(cx, rows::VPSRL[by_width(lane_bits) - 1], bits, to, value, counts),
            (_, 64) if !V4 => {
                let sign = cx.constant_reg(ty, 1 << 63);
                self.signed_from_unsigned(cx, ty, to, value, counts, sign);
            }
            _ => Self::binary(cx, rows::VPSRA[by_width(lane_bits) - 1], bits, to, value, counts),
        }
    }

    /// `x >> n` with the sign is `((x >> n) ^ m) - m` with `m` the shifted sign bit.
    fn signed_from_unsigned(&mut self, cx: &mut Context, ty: Type, to: Reg, value: Reg, counts: Reg, sign: Reg) {
        let bits = vector_bits(ty);
        let [shifted, moved, flipped] = [(); 3].map(|()| Self::vector(cx));
        Self::binary(cx, rows::VPSRL[2], bits, shifted, value, counts);
        Self::binary(cx, rows::VPSRL[2], bits, moved, sign, counts);
        Self::binary(cx, rows::VPXOR[1], bits, flipped, shifted, moved);
        Self::binary(cx, rows::VPSUB[3], bits, to, flipped, moved);
    }

    /// Bytes are shifted in lanes of 16 bits, and what came from the neighbour is cleared.
    fn shift_bytes(&mut self, cx: &mut Context, ty: Type, to: Reg, op: &Op, value: Reg, [count, counts]: [Reg; 2]) {
        let bits = vector_bits(ty);
        let ones = cx.constant_reg(Type::I32, 0xff);
        let mask = Self::general(cx);
        let row = if *op == Op::Shl { rows::SHLX } else { rows::SHRX };
        Form::new(row, 128).def(mask).rm(ones.into()).vvvv(count).push(cx);
        let [masks, shifted] = [(); 2].map(|()| Self::vector(cx));
        self.splat_general(cx, 8, bits, masks, mask);
        let row = if *op == Op::Shl { rows::VPSLL[0] } else { rows::VPSRL[0] };
        Self::binary(cx, row, bits, shifted, value, counts);
        if *op != Op::ShrS {
            return Self::binary(cx, rows::VPAND[0], bits, to, shifted, masks);
        }
        let high = cx.constant_reg(Type::I32, 0x80);
        let sign = Self::general(cx);
        Form::new(rows::SHRX, 128).def(sign).rm(high.into()).vvvv(count).push(cx);
        let [signs, clean, flipped] = [(); 3].map(|()| Self::vector(cx));
        self.splat_general(cx, 8, bits, signs, sign);
        Self::binary(cx, rows::VPAND[0], bits, clean, shifted, masks);
        Self::binary(cx, rows::VPXOR[0], bits, flipped, clean, signs);
        Self::binary(cx, rows::VPSUB[0], bits, to, flipped, signs);
    }

    /// Every lane from a general register.
    pub(super) fn splat_general(&mut self, cx: &mut Context, lane_bits: u32, bits: u32, to: Reg, value: Reg) {
        let lane = by_width(lane_bits);
        if V4 {
            return Form::new(rows::VPBROADCAST_GENERAL[lane], bits).def(to).rm(value.into()).push(cx);
        }
        let low = Self::vector(cx);
        let row = if lane_bits == 64 { rows::VMOVQ } else { rows::VMOVD };
        Form::new(row, 128).def(low).rm(value.into()).push(cx);
        Self::unary(cx, rows::VPBROADCAST[lane], bits, to, low);
    }

    pub(super) fn scratch(&mut self, displacement: i32) -> Memory {
        self.uses_scratch = true;
        Memory::at(Origin::Scratch, displacement)
    }
}
