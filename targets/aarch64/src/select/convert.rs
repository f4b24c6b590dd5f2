//! Conversions.

use mcc_kernel::mach::{Reg, RegClass};
use mcc_kernel::{Op, Type, VReg};

use super::{Cx, Selector, is_double, is_float, is_vector, lane_bits, shape, width};
use crate::encode::vector as v;
use crate::encode::*;
use crate::inst::{Make, What};

/// The value of one register in another.
pub fn copy(cx: &mut Cx, to: Reg, from: Reg) {
    let make = match to.class() {
        RegClass::Int => Make::new(general(ORR, Width::X) | ZERO_OR_SP << RN).def(to).m(from),
        _ => Make::new(v::bits_vector(v::ORR, true)).def(to).n(from).m(from),
    };
    make.what(What::Copy).push(cx);
}

impl Selector {
    pub fn convert(&mut self, cx: &mut Cx, to: Reg, ty: Type, op: &Op, arg: VReg) {
        let source = cx.ty(arg);
        if ty.lanes() > 1 {
            return self.convert_lanes(cx, to, ty, op, arg);
        }
        let from = cx.reg(arg);
        let word = match op {
            // What is above a lane does not matter.
            Op::MaskToInt | Op::MaskResize | Op::Wrap => return copy(cx, to, from),
            Op::Bitcast => match (is_vector(source), is_vector(ty)) {
                (false, true) => v::convert(v::G_FROM_GENERAL, is_double(ty), is_double(ty)),
                (true, false) => v::convert(v::G_TO_GENERAL, is_double(ty), is_double(ty)),
                _ => return copy(cx, to, from),
            },
            Op::IntToMask => {
                let bits = lane_bits(source);
                let word = match bits {
                    8 | 16 => logical_imm(ANDS, Width::W, (1 << bits) - 1).expect("it is a run of ones"),
                    _ => add_imm(SUBS, width(source), 0).expect("0 is an immediate"),
                };
                Make::new(word | ZERO_OR_SP).what(What::SetsFlags).n(from).push(cx);
                return Make::new(cset(Flags::Ne)).what(What::ReadsFlags).def(to).push(cx);
            }
            Op::ExtendS => bits(true, width(ty), 0, lane_bits(source) - 1),
            Op::ExtendU => bits(false, width(ty), 0, lane_bits(source) - 1),
            Op::IntToFloatS => v::convert(v::G_SCVTF, is_double(source), is_double(ty)),
            Op::IntToFloatU => v::convert(v::G_UCVTF, is_double(source), is_double(ty)),
            Op::FloatToIntS => v::convert(v::G_FCVTZS, is_double(ty), is_double(source)),
            Op::FloatToIntU => v::convert(v::G_FCVTZU, is_double(ty), is_double(source)),
            Op::Promote => v::S_FCVT_UP,
            Op::Demote => v::S_FCVT_DOWN,
            _ => cx.unsupported(op),
        };
        Make::new(word).def(to).n(from).push(cx);
    }

    fn convert_lanes(&mut self, cx: &mut Cx, to: Reg, ty: Type, op: &Op, arg: VReg) {
        let from = cx.reg(arg);
        let shape = shape(ty);
        let word = match op {
            Op::Bitcast => return copy(cx, to, from),
            Op::MaskToInt => v::shift(v::USHR, shape, shape.lane_bits() - 1),
            Op::IntToMask => return Make::new(v::vector(v::CMTST, shape)).def(to).n(from).m(from).push(cx),
            Op::IntToFloatS => v::float_vector(v::SCVTF, shape),
            Op::IntToFloatU => v::float_vector(v::UCVTF, shape),
            Op::FloatToIntS => v::float_vector(v::FCVTZS, shape),
            Op::FloatToIntU => v::float_vector(v::FCVTZU, shape),
            _ => cx.unsupported(op),
        };
        debug_assert!(is_float(ty) || is_vector(ty));
        Make::new(word).def(to).n(from).push(cx);
    }
}
