//! Between integers and floats.
//!
//! Instructions give the least integer for what does not fit and for NaN; conversions of the kernel IR saturate, with 0 for NaN.

use mcc_kernel::mach::{Reg, RegClass};
use mcc_kernel::{Lane, Op, Type, VReg};

use super::form::Form;
use super::{Context, Selector, by_float, general_bits, is_vector, vector_bits};
use crate::encode::Imm;
use crate::inst::Flags;
use crate::rows;

/// Comparisons of floats, as `vcmp` numbers them.
const LESS_EQUAL: u8 = 18;
const ORDERED: u8 = 7;
const GREATER_EQUAL: u8 = 29;

/// 2^power as the bits of a float lane.
fn power_of_two(lane: Lane, power: u64) -> u64 {
    match lane {
        Lane::F32 => (power + 127) << 23,
        _ => (power + 1023) << 52,
    }
}

impl<const V4: bool> Selector<V4> {
    pub(super) fn int_to_float(&mut self, cx: &mut Context, from: Type, ty: Type, to: Reg, op: &Op, value: VReg) {
        let is_signed = *op == Op::IntToFloatS;
        let value = cx.reg(value);
        if is_vector(ty) {
            return self.integers_to_floats(cx, from, is_signed, to, value);
        }
        let wide = usize::from(from.lane() == Lane::I64);
        let rows = rows::VCVTSI2S[usize::from(ty.lane() == Lane::F64)];
        let convert = |cx: &mut Context, row, to, value: Reg| {
            // The lanes above come from a register: from one that is not waited for.
            let zero = Self::vector(cx);
            Self::zero(cx, zero);
            Form::new(row, 128).def(to).vvvv(zero).rm(value.into()).push(cx);
        };
        match (is_signed, wide) {
            (true, _) => convert(cx, rows[wide], to, value),
            (false, 0) => {
                let extended = Self::general(cx);
                Self::extend(cx, Lane::I32, false, extended, value, 64);
                convert(cx, rows[1], to, extended);
            }
            // Halved, with the last bit kept so that rounding goes the same way, then doubled.
            (false, _) => {
                let [half, last, odd, whole] = [(); 4].map(|()| Self::general(cx));
                let [direct, halved, doubled] = [(); 3].map(|()| Self::vector(cx));
                let one = cx.constant_reg(Type::I32, 1);
                Form::new(rows::SHRX, 128).def(half).rm(value.into()).vvvv(one).wide().push(cx);
                Self::general_imm(cx, rows::AND, 32, last, value, 1);
                Self::general_binary(cx, rows::OR, 64, odd, half, last);
                convert(cx, rows[1], direct, value);
                convert(cx, rows[1], halved, odd);
                Self::binary(cx, rows::VADD[by_float(ty)], 128, doubled, halved, halved);
                // All ones where the sign bit is set.
                let places = cx.constant_reg(Type::I32, 63);
                Form::new(rows::SARX, 128).def(whole).rm(value.into()).vvvv(places).wide().push(cx);
                let mask = Self::vector(cx);
                Form::new(rows::VMOVQ, 128).def(mask).rm(whole.into()).push(cx);
                self.blend_by_sign(cx, to, mask, doubled, direct);
            }
        }
    }

    /// `to = mask ? a : b` of 64 bits, for a vector of all ones or zeros.
    fn blend_by_sign(&mut self, cx: &mut Context, to: Reg, mask: Reg, a: Reg, b: Reg) {
        // b ^ ((a ^ b) & mask), which reaches every register.
        let [differ, chosen] = [(); 2].map(|()| Self::vector(cx));
        Self::binary(cx, rows::VXORPS, 128, differ, a, b);
        Self::binary(cx, rows::VANDPS, 128, chosen, differ, mask);
        Self::binary(cx, rows::VXORPS, 128, to, b, chosen);
    }

    fn integers_to_floats(&mut self, cx: &mut Context, from: Type, is_signed: bool, to: Reg, value: Reg) {
        let bits = vector_bits(from);
        let row = match (from.lane(), is_signed) {
            (Lane::I32, true) => rows::VCVTDQ2PS,
            (Lane::I32, false) if V4 => rows::VCVTUDQ2PS,
            (Lane::I64, true) => rows::VCVTQQ2PD,
            (Lane::I64, false) => rows::VCVTUQQ2PD,
            _ => {
                // High and low halves are exact; their sum is rounded once.
                let [high, low, high_float, low_float, scaled] = [(); 5].map(|()| Self::vector(cx));
                let mask = cx.constant_reg(from, 0xffff);
                let factor = cx.constant_reg(Type::Data { lane: Lane::F32, lanes: from.lanes() }, power_of_two(Lane::F32, 16));
                Self::shift_by(cx, 32, 2, bits, high, value, 16);
                Self::binary(cx, rows::VPAND[0], bits, low, value, mask);
                Self::unary(cx, rows::VCVTDQ2PS, bits, high_float, high);
                Self::unary(cx, rows::VCVTDQ2PS, bits, low_float, low);
                Self::binary(cx, rows::VMUL[0], bits, scaled, high_float, factor);
                return Self::binary(cx, rows::VADD[0], bits, to, scaled, low_float);
            }
        };
        Self::unary(cx, row, bits, to, value);
    }

    pub(super) fn float_to_int(&mut self, cx: &mut Context, from: Type, ty: Type, to: Reg, op: &Op, value: VReg) {
        let value = cx.reg(value);
        let is_signed = *op == Op::FloatToIntS;
        if is_vector(ty) {
            return match (is_signed, V4) {
                (true, _) => self.floats_to_signed(cx, from, to, value),
                (false, true) => self.floats_to_unsigned_v4(cx, from, to, value),
                (false, false) => self.floats_to_unsigned(cx, from, to, value),
            };
        }
        match (is_signed, ty.lane()) {
            (true, _) => self.float_to_signed(cx, from, ty, to, value),
            // Every u32 is an i64, which the conversion reaches; what is outside is cut off before.
            (false, Lane::I32) => {
                let [low, high] = [0, power_of_two(from.lane(), 32)];
                let clamped = self.clamp(cx, from, value, low, high);
                let row = rows::VCVTTS2SI[usize::from(from.lane() == Lane::F64)][1];
                let [wide, limit] = [(); 2].map(|()| Self::general(cx));
                Form::new(row, 128).def(wide).rm(clamped.into()).push(cx);
                Self::load_constant(cx, limit, u64::from(u32::MAX));
                Form::new(rows::CMP, 64).reg(wide).rm(limit.into()).push(cx);
                Self::general_conditional(cx, Flags::GREATER, 64, to, wide, limit);
            }
            (false, _) => self.float_to_u64(cx, from, to, value),
        }
    }

    /// At least `low`, which NaN becomes, and at most `high`.
    fn clamp(&mut self, cx: &mut Context, from: Type, value: Reg, low: u64, high: u64) -> Reg {
        let bits = vector_bits(from);
        let [low, high] = [low, high].map(|limit| cx.constant_reg(from, limit));
        let [above, clamped] = [(); 2].map(|()| Self::vector(cx));
        Self::binary(cx, rows::VMAX[by_float(from)], bits, above, value, low);
        Self::binary(cx, rows::VMIN[by_float(from)], bits, clamped, above, high);
        clamped
    }

    fn float_to_signed(&mut self, cx: &mut Context, from: Type, ty: Type, to: Reg, value: Reg) {
        let bits = general_bits(ty);
        let is_f64 = usize::from(from.lane() == Lane::F64);
        let row = rows::VCVTTS2SI[is_f64][usize::from(bits == 64)];
        let limit = cx.constant_reg(from, power_of_two(from.lane(), u64::from(bits) - 1));
        let most = cx.constant_reg(Type::I64, (1 << (bits - 1)) - 1);
        let nothing = cx.constant_reg(Type::I64, 0);
        let [converted, cut] = [(); 2].map(|()| Self::general(cx));
        Form::new(row, 128).def(converted).rm(value.into()).push(cx);
        Form::new(rows::VUCOMI[is_f64], 128).reg(value).rm(limit.into()).push(cx);
        Self::general_conditional(cx, Flags::ABOVE_EQUAL, 64, cut, converted, most);
        Form::new(rows::VUCOMI[is_f64], 128).reg(value).rm(value.into()).push(cx);
        Self::general_conditional(cx, Flags::PARITY, 64, to, cut, nothing);
    }

    /// From 2^63 on, what is above it is converted and the high bit put back.
    fn float_to_u64(&mut self, cx: &mut Context, from: Type, to: Reg, value: Reg) {
        let is_f64 = usize::from(from.lane() == Lane::F64);
        let row = rows::VCVTTS2SI[is_f64][1];
        let zero = cx.constant_reg(from, 0);
        let half = cx.constant_reg(from, power_of_two(from.lane(), 63));
        let whole = cx.constant_reg(from, power_of_two(from.lane(), 64));
        let sign = cx.constant_reg(Type::I64, 1 << 63);
        let all = cx.constant_reg(Type::I64, u64::MAX);
        let [positive, rest] = [(); 2].map(|()| Self::vector(cx));
        let [low, high, flipped, chosen] = [(); 4].map(|()| Self::general(cx));
        Self::binary(cx, rows::VMAX[by_float(from)], 128, positive, value, zero);
        Self::binary(cx, rows::VSUB[by_float(from)], 128, rest, positive, half);
        Form::new(row, 128).def(low).rm(positive.into()).push(cx);
        Form::new(row, 128).def(high).rm(rest.into()).push(cx);
        Self::general_binary(cx, rows::XOR, 64, flipped, high, sign);
        Form::new(rows::VUCOMI[is_f64], 128).reg(positive).rm(half.into()).push(cx);
        Self::general_conditional(cx, Flags::ABOVE_EQUAL, 64, chosen, low, flipped);
        Form::new(rows::VUCOMI[is_f64], 128).reg(positive).rm(whole.into()).push(cx);
        Self::general_conditional(cx, Flags::ABOVE_EQUAL, 64, to, chosen, all);
    }

    fn convert_row(from: Type, is_signed: bool) -> rows::Row {
        match (from.lane(), is_signed) {
            (Lane::F32, true) => rows::VCVTTPS2DQ,
            (Lane::F32, false) => rows::VCVTTPS2UDQ,
            (_, true) => rows::VCVTTPD2QQ,
            (_, false) => rows::VCVTTPD2UQQ,
        }
    }

    /// A comparison of floats as a vector of all ones and zeros.
    fn comparison(&mut self, cx: &mut Context, from: Type, predicate: u8, a: Reg, b: Reg) -> Reg {
        let bits = vector_bits(from);
        let row = rows::VCMP[by_float(from)];
        let vector = Self::vector(cx);
        if V4 {
            let mask = cx.fresh(RegClass::Vector);
            Form::new(row.evex(), bits).def(mask).vvvv(a).rm(b.into()).imm(Imm::Byte(predicate)).push(cx);
            Self::unary(cx, rows::VPMOVM2[super::by_width(from.lane().bits())], bits, vector, mask);
        } else {
            Form::new(row.vex(), bits).def(vector).vvvv(a).rm(b.into()).imm(Imm::Byte(predicate)).push(cx);
        }
        vector
    }

    fn floats_to_signed(&mut self, cx: &mut Context, from: Type, to: Reg, value: Reg) {
        let bits = vector_bits(from);
        let limit = cx.constant_reg(from, power_of_two(from.lane(), u64::from(from.lane().bits()) - 1));
        let [converted, cut] = [(); 2].map(|()| Self::vector(cx));
        Self::unary(cx, Self::convert_row(from, true), bits, converted, value);
        // The least integer becomes the greatest where the float is too great.
        let too_great = self.comparison(cx, from, GREATER_EQUAL, value, limit);
        Self::binary(cx, rows::VPXOR[0], bits, cut, converted, too_great);
        let is_number = self.comparison(cx, from, ORDERED, value, value);
        Self::binary(cx, rows::VPAND[0], bits, to, cut, is_number);
    }

    /// The conversion gives all ones for what is too great; what is negative or NaN is made 0 before.
    fn floats_to_unsigned_v4(&mut self, cx: &mut Context, from: Type, to: Reg, value: Reg) {
        let bits = vector_bits(from);
        let zero = cx.constant_reg(from, 0);
        let positive = Self::vector(cx);
        Self::binary(cx, rows::VMAX[by_float(from)], bits, positive, value, zero);
        Self::unary(cx, Self::convert_row(from, false), bits, to, positive);
    }

    /// Of f32: below 2^31 the signed conversion; from there on it gives the high bit, and the rest is converted apart.
    fn floats_to_unsigned(&mut self, cx: &mut Context, from: Type, to: Reg, value: Reg) {
        let bits = vector_bits(from);
        let zero = cx.constant_reg(from, 0);
        let half = cx.constant_reg(from, power_of_two(Lane::F32, 31));
        let whole = cx.constant_reg(from, power_of_two(Lane::F32, 32));
        let [positive, rest, low, high, is_high, masked, sum] = [(); 7].map(|()| Self::vector(cx));
        Self::binary(cx, rows::VMAX[0], bits, positive, value, zero);
        Self::binary(cx, rows::VSUB[0], bits, rest, positive, half);
        Self::unary(cx, rows::VCVTTPS2DQ, bits, low, positive);
        Self::unary(cx, rows::VCVTTPS2DQ, bits, high, rest);
        Self::shift_by(cx, 32, 4, bits, is_high, low, 31);
        Self::binary(cx, rows::VPAND[0], bits, masked, high, is_high);
        Self::binary(cx, rows::VPOR[0], bits, sum, low, masked);
        let too_great = self.comparison(cx, from, LESS_EQUAL, whole, positive);
        Self::binary(cx, rows::VPOR[0], bits, to, sum, too_great);
    }
}
