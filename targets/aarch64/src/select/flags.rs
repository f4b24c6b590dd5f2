//! Conditions of one lane.

use mcc_kernel::mach::{Reg, RegClass};
use mcc_kernel::{Cond, Op, Type, VReg};

use super::{Cx, Selector, is_double, is_float, lane_bits, low_bits, shape, signed, width};
use crate::encode::vector as v;
use crate::encode::*;
use crate::inst::{Make, What};

/// The flags on which a comparison of floats holds: for none but `Ne` where one is NaN.
fn float_flags(cond: Cond) -> Flags {
    match cond {
        Cond::Eq => Flags::Eq,
        Cond::Ne => Flags::Ne,
        Cond::Lt => Flags::Mi,
        Cond::Le => Flags::Ls,
        Cond::Gt => Flags::Gt,
        Cond::Ge => Flags::Ge,
    }
}

fn integer_flags(cond: Cond, is_signed: bool) -> Flags {
    match (cond, is_signed) {
        (Cond::Eq, _) => Flags::Eq,
        (Cond::Ne, _) => Flags::Ne,
        (Cond::Lt, true) => Flags::Lt,
        (Cond::Le, true) => Flags::Le,
        (Cond::Gt, true) => Flags::Gt,
        (Cond::Ge, true) => Flags::Ge,
        (Cond::Lt, false) => Flags::Lo,
        (Cond::Le, false) => Flags::Ls,
        (Cond::Gt, false) => Flags::Hi,
        (Cond::Ge, false) => Flags::Hs,
    }
}

impl Selector {
    /// Sets the flags where the condition is a comparison; on which it holds.
    pub fn flags(&mut self, cx: &mut Cx, cond: VReg) -> Option<Flags> {
        let (cond, is_signed, args) = match cx.def(cond)? {
            (Op::Cmp(cond), args) => (*cond, true, args),
            (Op::CmpU(cond), args) => (*cond, false, args),
            _ => return None,
        };
        let ty = cx.ty(args[0]);
        if ty.lanes() > 1 {
            return None;
        }
        if is_float(ty) {
            let [a, b] = [args[0], args[1]].map(|arg| cx.reg(arg));
            Make::new(v::float(v::S_FCMP, is_double(ty))).what(What::SetsFlags).n(a).m(b).push(cx);
            return Some(float_flags(cond));
        }
        let a = self.extended(cx, args[0], is_signed);
        let constant = cx.constant(args[1]).map(|bits| match is_signed {
            true => signed(bits, lane_bits(ty)),
            false => low_bits(bits, lane_bits(ty)) as i64,
        });
        let immediate = match constant {
            Some(value) if value >= 0 => add_imm(SUBS, width(ty), value as u64),
            Some(value) if is_signed && value > i64::MIN => add_imm(ADDS, width(ty), value.unsigned_abs()),
            _ => None,
        };
        match immediate {
            Some(word) => Make::new(word | ZERO_OR_SP).what(What::SetsFlags).n(a).push(cx),
            None => {
                let b = self.extended(cx, args[1], is_signed);
                Make::new(general(SUBS, width(ty)) | ZERO_OR_SP).what(What::SetsFlags).n(a).m(b).push(cx);
            }
        }
        Some(integer_flags(cond, is_signed))
    }

    /// Sets the flags by any condition; on which it holds.
    pub fn any_flags(&mut self, cx: &mut Cx, cond: VReg) -> Flags {
        self.flags(cx, cond).unwrap_or_else(|| {
            let reg = cx.reg(cond);
            let word = add_imm(SUBS, Width::W, 0).expect("0 is an immediate") | ZERO_OR_SP;
            Make::new(word).what(What::SetsFlags).n(reg).push(cx);
            Flags::Ne
        })
    }

    /// A comparison as 0 or 1.
    pub fn condition(&mut self, cx: &mut Cx, to: Reg, cond: VReg) {
        let flags = self.any_flags(cx, cond);
        Make::new(cset(flags)).what(What::ReadsFlags).def(to).push(cx);
    }

    /// A condition of one lane as a mask in every lane.
    pub fn spread(&mut self, cx: &mut Cx, to: Reg, ty: Type, cond: Reg) {
        let ones = cx.fresh(RegClass::Int);
        Make::new(general(SUB, Width::X) | ZERO_OR_SP << RN).def(ones).m(cond).push(cx);
        Make::new(v::dup_general(shape(ty))).def(to).n(ones).push(cx);
    }

    pub fn choose(&mut self, cx: &mut Cx, to: Reg, ty: Type, args: &[VReg]) {
        let mask = args[0];
        if cx.ty(mask).lanes() > 1 {
            return self.choose_lanes(cx, to, ty, args);
        }
        if ty.lanes() > 1 {
            let cond = cx.reg(mask);
            let lanes = cx.fresh(RegClass::Float);
            self.spread(cx, lanes, ty, cond);
            let [a, b] = [args[1], args[2]].map(|arg| cx.reg(arg));
            return Make::new(v::bits_vector(v::BSL, shape(ty).is_full)).tied(to, lanes).n(a).m(b).push(cx);
        }
        if is_float(ty) && self.clamp(cx, to, ty, args) {
            return;
        }
        let [a, b] = [args[1], args[2]].map(|arg| cx.reg(arg));
        let flags = self.any_flags(cx, mask);
        let word = if is_float(ty) { v::fcsel(is_double(ty), flags) } else { csel(width(ty), flags) };
        Make::new(word).what(What::ReadsFlags).def(to).n(a).m(b).push(cx);
    }
}
