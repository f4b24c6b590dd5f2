//! Integers and pointers of one lane.

use mcc_kernel::mach::{Reg, RegClass};
use mcc_kernel::{Op, Type, VReg};

use super::convert::copy;
use super::{Cx, Selector, lane_bits, low_bits, signed, width};
use crate::encode::*;
use crate::inst::{Make, What};

/// The word of the one instruction that makes a constant, if one does.
pub fn one_move(width: Width, value: u64) -> Option<u32> {
    let mask = u64::MAX >> (64 - width.bits());
    let quarter = |value: u64| (0..width.bits() / 16).find(|quarter| value & !(0xFFFF << (16 * quarter)) == 0);
    let half = |value: u64, quarter: u32| (value >> (16 * quarter)) as u16;
    if let Some(at) = quarter(value) {
        return Some(mov_wide(MOVZ, width, half(value, at), at));
    }
    let inverted = !value & mask;
    if let Some(at) = quarter(inverted) {
        return Some(mov_wide(MOVN, width, half(inverted, at), at));
    }
    logical_imm(ORR, width, value).map(|word| word | ZERO_OR_SP << RN)
}

pub fn constant(cx: &mut Cx, to: Reg, width: Width, value: u64) {
    if let Some(word) = one_move(width, value) {
        return Make::new(word).def(to).push(cx);
    }
    // From zeros or from ones, whichever leaves fewer quarters to set.
    let quarters: Vec<u16> = (0..width.bits() / 16).map(|quarter| (value >> (16 * quarter)) as u16).collect();
    let count = |filler: u16| quarters.iter().filter(|&&quarter| quarter == filler).count();
    let filler = if count(0xFFFF) > count(0) { 0xFFFF } else { 0 };
    let set: Vec<u32> = (0..quarters.len() as u32).filter(|&at| quarters[at as usize] != filler).collect();
    let mut old = None;
    for (index, &at) in set.iter().enumerate() {
        let reg = if index + 1 == set.len() { to } else { cx.fresh(RegClass::Int) };
        let quarter = quarters[at as usize];
        match old {
            None if filler == 0 => Make::new(mov_wide(MOVZ, width, quarter, at)).def(reg).push(cx),
            None => Make::new(mov_wide(MOVN, width, !quarter, at)).def(reg).push(cx),
            Some(old) => Make::new(mov_wide(MOVK, width, quarter, at)).tied(reg, old).push(cx),
        }
        old = Some(reg);
    }
}

/// `to = from + value` in 64 bits.
pub fn add_constant(cx: &mut Cx, to: Reg, from: Reg, value: i64) {
    if value == 0 {
        return copy(cx, to, from);
    }
    let op = if value < 0 { SUB } else { ADD };
    let magnitude = value.unsigned_abs();
    if let Some(word) = add_imm(op, Width::X, magnitude) {
        return Make::new(word).def(to).n(from).push(cx);
    }
    let (high, low) = (add_imm(op, Width::X, magnitude & !0xFFF), add_imm(op, Width::X, magnitude & 0xFFF));
    if let (Some(high), Some(low)) = (high, low) {
        let middle = cx.fresh(RegClass::Int);
        Make::new(high).def(middle).n(from).push(cx);
        return Make::new(low).def(to).n(middle).push(cx);
    }
    let value = cx.constant_reg(Type::I64, value as u64);
    Make::new(general(ADD, Width::X)).def(to).n(from).m(value).push(cx);
}

impl Selector {
    /// A lane of less than 32 bits with its sign or zeros above, others as they are.
    pub fn extended(&mut self, cx: &mut Cx, value: VReg, is_signed: bool) -> Reg {
        let bits_count = lane_bits(cx.ty(value));
        let reg = cx.reg(value);
        if bits_count >= 32 {
            return reg;
        }
        let wide = cx.fresh(RegClass::Int);
        Make::new(bits(is_signed, Width::W, 0, bits_count - 1)).def(wide).n(reg).push(cx);
        wide
    }

    pub fn integer(&mut self, cx: &mut Cx, to: Reg, ty: Type, op: &Op, args: &[VReg]) {
        match op {
            Op::Add | Op::Sub => self.add(cx, to, ty, *op == Op::Sub, args[0], args[1]),
            Op::Mul => self.multiply(cx, to, ty, args[0], args[1]),
            Op::Div | Op::DivU | Op::Rem | Op::RemU => self.divide(cx, to, ty, op, args),
            Op::Neg => {
                let a = cx.reg(args[0]);
                Make::new(general(SUB, width(ty)) | ZERO_OR_SP << RN).def(to).m(a).push(cx);
            }
            Op::Abs => {
                let a = self.extended(cx, args[0], true);
                let word = add_imm(SUBS, width(ty), 0).expect("0 is an immediate");
                Make::new(word | ZERO_OR_SP).what(What::SetsFlags).n(a).push(cx);
                Make::new(csneg(width(ty), Flags::Ge)).what(What::ReadsFlags).def(to).n(a).m(a).push(cx);
            }
            Op::Min | Op::Max | Op::MinU | Op::MaxU => {
                let is_signed = matches!(op, Op::Min | Op::Max);
                let [a, b] = [args[0], args[1]].map(|arg| self.extended(cx, arg, is_signed));
                Make::new(general(SUBS, width(ty)) | ZERO_OR_SP).what(What::SetsFlags).n(a).m(b).push(cx);
                let flags = match op {
                    Op::Min => Flags::Lt,
                    Op::Max => Flags::Gt,
                    Op::MinU => Flags::Lo,
                    _ => Flags::Hi,
                };
                Make::new(csel(width(ty), flags)).what(What::ReadsFlags).def(to).n(a).m(b).push(cx);
            }
            Op::And | Op::Or | Op::Xor => self.logical(cx, to, ty, op, args[0], args[1]),
            Op::Not => {
                let a = cx.reg(args[0]);
                Make::new(general(ORN, width(ty)) | ZERO_OR_SP << RN).def(to).m(a).push(cx);
            }
            Op::Shl | Op::ShrS | Op::ShrU => self.shift(cx, to, ty, op, args),
            _ => cx.unsupported(op),
        }
    }

    fn add(&mut self, cx: &mut Cx, to: Reg, ty: Type, is_sub: bool, a: VReg, b: VReg) {
        let (a, b) = if !is_sub && cx.constant(a).is_some() { (b, a) } else { (a, b) };
        if let Some(value) = cx.constant(b).map(|bits| signed(bits, lane_bits(ty))) {
            let is_negative = (value < 0) != is_sub;
            let op = if is_negative { SUB } else { ADD };
            if let Some(word) = add_imm(op, width(ty), value.unsigned_abs()) {
                let a = cx.reg(a);
                return Make::new(word).def(to).n(a).push(cx);
            }
        }
        // A product is added in one instruction.
        let product = [b, a].into_iter().take(if is_sub { 1 } else { 2 }).find_map(|factor| match cx.sinkable(factor) {
            Some((Op::Mul, args)) if args.iter().all(|&arg| cx.constant(arg).is_none()) => Some((factor, args)),
            _ => None,
        });
        if let Some((factor, args)) = product {
            let other = cx.reg(if factor == b { a } else { b });
            let [n, m] = [args[0], args[1]].map(|arg| cx.reg(arg));
            let word = if is_sub { MSUB } else { MADD };
            return Make::new(general(word, width(ty))).def(to).n(n).m(m).a(other).push(cx);
        }
        let [n, m] = [a, b].map(|arg| cx.reg(arg));
        Make::new(general(if is_sub { SUB } else { ADD }, width(ty))).def(to).n(n).m(m).push(cx);
    }

    fn multiply(&mut self, cx: &mut Cx, to: Reg, ty: Type, a: VReg, b: VReg) {
        let (a, b) = if cx.constant(a).is_some() { (b, a) } else { (a, b) };
        if let Some(value) = cx.constant(b).map(|bits| low_bits(bits, lane_bits(ty)))
            && value.is_power_of_two()
        {
            let a = cx.reg(a);
            return Make::new(lsl_imm(width(ty), value.trailing_zeros())).def(to).n(a).push(cx);
        }
        let [n, m] = [a, b].map(|arg| cx.reg(arg));
        Make::new(general(MADD, width(ty)) | ZERO_OR_SP << RA).def(to).n(n).m(m).push(cx);
    }

    /// The hardware gives what the IR wants: by 0 it is 0, and the least value by -1 is itself.
    fn divide(&mut self, cx: &mut Cx, to: Reg, ty: Type, op: &Op, args: &[VReg]) {
        let is_signed = matches!(op, Op::Div | Op::Rem);
        let [a, b] = [args[0], args[1]].map(|arg| self.extended(cx, arg, is_signed));
        let divide = general(if is_signed { SDIV } else { UDIV }, width(ty));
        if matches!(op, Op::Div | Op::DivU) {
            return Make::new(divide).def(to).n(a).m(b).push(cx);
        }
        let quotient = cx.fresh(RegClass::Int);
        Make::new(divide).def(quotient).n(a).m(b).push(cx);
        let multiply = general(MSUB, width(ty));
        if cx.constant(args[1]).is_some_and(|bits| low_bits(bits, lane_bits(ty)) != 0) {
            return Make::new(multiply).def(to).n(quotient).m(b).a(a).push(cx);
        }
        // By 0 the remainder is 0.
        let remainder = cx.fresh(RegClass::Int);
        Make::new(multiply).def(remainder).n(quotient).m(b).a(a).push(cx);
        let compare = add_imm(SUBS, width(ty), 0).expect("0 is an immediate") | ZERO_OR_SP;
        Make::new(compare).what(What::SetsFlags).n(b).push(cx);
        let select = csel(width(ty), Flags::Ne) | ZERO_OR_SP << RM;
        Make::new(select).what(What::ReadsFlags).def(to).n(remainder).push(cx);
    }

    fn logical(&mut self, cx: &mut Cx, to: Reg, ty: Type, op: &Op, a: VReg, b: VReg) {
        let word = match op {
            Op::And => AND,
            Op::Or => ORR,
            _ => EOR,
        };
        let (a, b) = if cx.constant(a).is_some() { (b, a) } else { (a, b) };
        // What is above the lane does not matter, so its sign may be there, too.
        let value = cx.constant(b).map(|bits| low_bits(signed(bits, lane_bits(ty)) as u64, width(ty).bits()));
        if let Some(word) = value.and_then(|value| logical_imm(word, width(ty), value)) {
            let a = cx.reg(a);
            return Make::new(word).def(to).n(a).push(cx);
        }
        let [n, m] = [a, b].map(|arg| cx.reg(arg));
        Make::new(general(word, width(ty))).def(to).n(n).m(m).push(cx);
    }

    fn shift(&mut self, cx: &mut Cx, to: Reg, ty: Type, op: &Op, args: &[VReg]) {
        let bits_count = lane_bits(ty);
        if let Some(amount) = cx.constant(args[1]).map(|bits| bits as u32 & (bits_count - 1)) {
            let a = cx.reg(args[0]);
            let word = match op {
                Op::Shl => lsl_imm(width(ty), amount),
                _ => bits(*op == Op::ShrS, width(ty), amount, bits_count - 1),
            };
            return Make::new(word).def(to).n(a).push(cx);
        }
        let a = if *op == Op::Shl { cx.reg(args[0]) } else { self.extended(cx, args[0], *op == Op::ShrS) };
        let mut amount = cx.reg(args[1]);
        if bits_count < 32 {
            let masked = cx.fresh(RegClass::Int);
            let word = logical_imm(AND, Width::W, u64::from(bits_count - 1)).expect("it is a run of ones");
            Make::new(word).def(masked).n(amount).push(cx);
            amount = masked;
        }
        let word = match op {
            Op::Shl => LSLV,
            Op::ShrS => ASRV,
            _ => LSRV,
        };
        Make::new(general(word, width(ty))).def(to).n(a).m(amount).push(cx);
    }
}
