//! Integers in general registers, comparisons of scalars, and choices between scalars.

use mcc_kernel::mach::{Operand as Constraint, Reg, RegClass};
use mcc_kernel::{Cond, Lane, Op, Operand, Type, VReg};

use super::form::{Form, Source};
use super::memory::sinkable_load;
use super::{Context, Selector, by_width, general_bits, vector_bits};
use crate::abi;
use crate::encode::Imm;
use crate::inst::Flags;
use crate::rows::{self, Row};

impl<const V4: bool> Selector<V4> {
    pub(super) fn integer(&mut self, cx: &mut Context, ty: Type, to: Reg, op: &Op, args: &[VReg]) {
        let bits = general_bits(ty);
        match op {
            Op::Add => self.arithmetic(cx, rows::ADD, ty, to, args, true),
            Op::Sub => self.arithmetic(cx, rows::SUB, ty, to, args, false),
            Op::And => self.arithmetic(cx, rows::AND, ty, to, args, true),
            Op::Or => self.arithmetic(cx, rows::OR, ty, to, args, true),
            Op::Xor => self.arithmetic(cx, rows::XOR, ty, to, args, true),
            Op::Mul => self.multiply(cx, ty, to, args),
            Op::Not => Self::one(cx, rows::NOT, 2, bits, to, args[0]),
            Op::Neg => Self::one(cx, rows::NEG, 3, bits, to, args[0]),
            Op::Abs => {
                let value = self.extended(cx, args[0], true);
                let negated = Self::general(cx);
                Form::new(rows::NEG, bits).ext(3).reuse_rm(value, negated).push(cx);
                // The flags are of the result: where that is negative, the operand was not.
                Self::general_conditional(cx, Flags::SIGN, bits, to, negated, value);
            }
            Op::Min | Op::Max | Op::MinU | Op::MaxU => {
                let is_signed = matches!(op, Op::Min | Op::Max);
                let [a, b] = [args[0], args[1]].map(|arg| self.extended(cx, arg, is_signed));
                Form::new(rows::CMP, bits).reg(a).rm(b.into()).push(cx);
                let takes_b = match op {
                    Op::Min => Flags::GREATER_EQUAL,
                    Op::Max => Flags::LESS_EQUAL,
                    Op::MinU => Flags::ABOVE_EQUAL,
                    _ => Flags::BELOW_EQUAL,
                };
                Self::general_conditional(cx, takes_b, bits, to, a, b);
            }
            Op::Shl | Op::ShrS | Op::ShrU => self.shift(cx, ty, to, op, args),
            Op::Div | Op::DivU | Op::Rem | Op::RemU => self.divide(cx, ty, to, op, args),
            _ => cx.unsupported(op),
        }
    }

    fn one(cx: &mut Context, row: Row, ext: u8, bits: u32, to: Reg, value: VReg) {
        let value = cx.reg(value);
        Form::new(row, bits).ext(ext).reuse_rm(value, to).push(cx);
    }

    fn arithmetic(&mut self, cx: &mut Context, row: Row, ty: Type, to: Reg, args: &[VReg], commutes: bool) {
        let bits = general_bits(ty);
        let (mut a, mut b) = (args[0], args[1]);
        let is_fixed = |cx: &Context, value| cx.constant(value).is_some();
        if commutes && (is_fixed(cx, a) && !is_fixed(cx, b) || !cx.is_last_use(a) && cx.is_last_use(b) && !is_fixed(cx, b)) {
            (a, b) = (b, a);
        }
        if let Some(value) = small_constant(cx, b, bits) {
            let a = cx.reg(a);
            return Self::general_imm(cx, row, bits, to, a, value);
        }
        let is_whole = matches!(ty.lane(), Lane::I32 | Lane::I64);
        let source: Source = match sinkable_load(cx, b) {
            Some(address) if is_whole => self.address(cx, address).into(),
            _ => cx.reg(b).into(),
        };
        let a = cx.reg(a);
        Self::general_binary(cx, row, bits, to, a, source);
    }

    fn multiply(&mut self, cx: &mut Context, ty: Type, to: Reg, args: &[VReg]) {
        let bits = general_bits(ty);
        let (mut a, mut b) = (args[0], args[1]);
        if cx.constant(a).is_some() {
            (a, b) = (b, a);
        }
        if let Some(value) = small_constant(cx, b, bits) {
            let a = cx.reg(a);
            return Form::new(rows::IMUL_IMM, bits).def(to).rm(a.into()).imm(Imm::Word(value)).push(cx);
        }
        let (a, b) = (cx.reg(a), cx.reg(b));
        Self::general_binary(cx, rows::IMUL, bits, to, a, b);
    }

    /// The value with its sign or zeros in the rest of 32 bits.
    pub(super) fn extended(&mut self, cx: &mut Context, value: VReg, is_signed: bool) -> Reg {
        let ty = cx.ty(value);
        let reg = cx.reg(value);
        let Type::Data { lane: lane @ (Lane::I8 | Lane::I16), .. } = ty else { return reg };
        let wide = Self::general(cx);
        Self::extend(cx, lane, is_signed, wide, reg, 32);
        wide
    }

    pub(super) fn extend(cx: &mut Context, from: Lane, is_signed: bool, to: Reg, value: impl Into<Source>, bits: u32) {
        let (row, bits) = match (from, is_signed) {
            (Lane::I8, true) => (rows::MOVSX_8, bits),
            (Lane::I8, false) => (rows::MOVZX_8, 32),
            (Lane::I16, true) => (rows::MOVSX_16, bits),
            (Lane::I16, false) => (rows::MOVZX_16, 32),
            (_, true) => (rows::MOVSXD, 64),
            (_, false) => (rows::MOV, 32),
        };
        Form::new(row, bits).def(to).rm(value.into()).push(cx);
    }

    fn shift(&mut self, cx: &mut Context, ty: Type, to: Reg, op: &Op, args: &[VReg]) {
        let row = match op {
            Op::Shl => rows::SHLX,
            Op::ShrS => rows::SARX,
            _ => rows::SHRX,
        };
        let value = if *op == Op::Shl { cx.reg(args[0]) } else { self.extended(cx, args[0], *op == Op::ShrS) };
        let mut amount = cx.reg(args[1]);
        // The instruction takes the amount modulo 32 or 64.
        if ty.lane().bits() < 32 {
            let small = Self::general(cx);
            Self::general_imm(cx, rows::AND, 32, small, amount, ty.lane().bits() as i32 - 1);
            amount = small;
        }
        let mut form = Form::new(row, 128).def(to).rm(value.into()).vvvv(amount);
        if general_bits(ty) == 64 {
            form = form.wide();
        }
        form.push(cx);
    }

    /// Divides by 1 instead of 0 and -1, and puts right what that gives. The instruction would fault.
    fn divide(&mut self, cx: &mut Context, ty: Type, to: Reg, op: &Op, args: &[VReg]) {
        let bits = general_bits(ty);
        let is_signed = matches!(op, Op::Div | Op::Rem);
        let [a, b] = [args[0], args[1]].map(|arg| self.extended(cx, arg, is_signed));
        let [one, zero] = [1, 0].map(|value| cx.constant_reg(Type::I64, value));
        let test = |cx: &mut Context| Form::new(rows::TEST, bits).reg(b).rm(b.into()).push(cx);
        let [not_zero, safe] = [(); 2].map(|()| Self::general(cx));
        test(cx);
        Self::general_conditional(cx, Flags::EQUAL, bits, not_zero, b, one);
        let compare = |cx: &mut Context| Form::new(rows::CMP, bits).ext(7).rm(b.into()).imm(Imm::Word(-1)).push(cx);
        if is_signed {
            compare(cx);
            Self::general_conditional(cx, Flags::EQUAL, bits, safe, not_zero, one);
        } else {
            Self::rename(cx, not_zero, safe);
        }
        let [quotient, rest] = [(); 2].map(|()| Self::general(cx));
        self.divide_safely(cx, bits, is_signed, [a, safe, quotient, rest]);
        match op {
            // By 1 it is 0, as it is by 0 and -1.
            Op::Rem | Op::RemU => Self::rename(cx, rest, to),
            Op::DivU => {
                test(cx);
                Self::general_conditional(cx, Flags::EQUAL, bits, to, quotient, zero);
            }
            _ => {
                let [negated, fixed] = [(); 2].map(|()| Self::general(cx));
                Form::new(rows::NEG, bits).ext(3).reuse_rm(a, negated).push(cx);
                compare(cx);
                Self::general_conditional(cx, Flags::EQUAL, bits, fixed, quotient, negated);
                test(cx);
                Self::general_conditional(cx, Flags::EQUAL, bits, to, fixed, zero);
            }
        }
    }

    fn divide_safely(&mut self, cx: &mut Context, bits: u32, is_signed: bool, [a, b, quotient, rest]: [Reg; 4]) {
        let (rax, rdx) = (abi::general(abi::RAX), abi::general(abi::RDX));
        let high = Self::general(cx);
        let low = if is_signed {
            // `cdq` copies the sign of eax to edx; eax stays.
            let low = Self::general(cx);
            let operands =
                [Constraint::reg_fixed_use(a, rax), Constraint::reg_fixed_def(low, rax), Constraint::reg_fixed_def(high, rdx)];
            Form::new(rows::CDQ, bits).push_with(cx, &operands);
            low
        } else {
            Self::load_constant(cx, high, 0);
            a
        };
        let (row, ext) = if is_signed { (rows::IDIV, 7) } else { (rows::DIV, 6) };
        let operands = [
            Constraint::reg_fixed_use(low, rax),
            Constraint::reg_fixed_use(high, rdx),
            Constraint::reg_fixed_def(quotient, rax),
            Constraint::reg_fixed_def(rest, rdx),
        ];
        Form::new(row, bits).ext(ext).rm(b.into()).push_with(cx, &operands);
    }

    /// `to = flags ? b : a`.
    pub(super) fn general_conditional(cx: &mut Context, flags: Flags, bits: u32, to: Reg, a: Reg, b: Reg) {
        Form::new(rows::CMOV[usize::from(flags.0)], bits).reuse(a, to).rm(b.into()).push(cx);
    }

    fn set(cx: &mut Context, flags: Flags, to: Reg) {
        Form::new(rows::SET[usize::from(flags.0)], 8).ext(0).def_rm(to).push(cx);
    }

    /// Compares, and says which flags mean that the condition holds; none do alone where floats are or are not equal.
    fn compare(&mut self, cx: &mut Context, op: &Op, args: &[VReg]) -> Option<Flags> {
        let ty = cx.ty(args[0]);
        let (cond, is_signed) = match op {
            Op::Cmp(cond) => (*cond, true),
            Op::CmpU(cond) => (*cond, false),
            _ => cx.unsupported(op),
        };
        if ty.lane().is_float() {
            return self.compare_floats(cx, cond, args);
        }
        let bits = general_bits(ty);
        let (a, b) = (args[0], args[1]);
        let constant = small_constant(cx, b, ty.lane().bits().max(32)).filter(|_| ty.lane().bits() >= 32);
        match constant {
            Some(0) if matches!(cond, Cond::Eq | Cond::Ne) => {
                let a = cx.reg(a);
                Form::new(rows::TEST, bits).reg(a).rm(a.into()).push(cx);
            }
            Some(value) => {
                let a = cx.reg(a);
                Form::new(rows::CMP, bits).ext(7).rm(a.into()).imm(Imm::Word(value)).push(cx);
            }
            None => {
                let [a, b] = [a, b].map(|arg| self.extended(cx, arg, is_signed));
                Form::new(rows::CMP, bits).reg(a).rm(b.into()).push(cx);
            }
        }
        Some(integer_flags(cond, is_signed))
    }

    /// Operands are swapped so that flags which NaN does not set are asked.
    fn compare_floats(&mut self, cx: &mut Context, cond: Cond, args: &[VReg]) -> Option<Flags> {
        let row = rows::VUCOMI[usize::from(cx.ty(args[0]).lane() == Lane::F64)];
        let (a, b) = if matches!(cond, Cond::Lt | Cond::Le) { (args[1], args[0]) } else { (args[0], args[1]) };
        let source = self.source(cx, b, false);
        let a = cx.reg(a);
        Form::new(row, 128).reg(a).rm(source).push(cx);
        match cond {
            Cond::Lt | Cond::Gt => Some(Flags::ABOVE),
            Cond::Le | Cond::Ge => Some(Flags::ABOVE_EQUAL),
            Cond::Eq | Cond::Ne => None,
        }
    }

    /// A comparison of scalars as 0 or 1.
    pub(super) fn compare_scalars(&mut self, cx: &mut Context, to: Reg, op: &Op, args: &[VReg]) {
        if let Some(flags) = self.compare(cx, op, args) {
            return Self::set(cx, flags, to);
        }
        let [first, second] = [(); 2].map(|()| Self::general(cx));
        let (parity, equal, row) = match op {
            Op::Cmp(Cond::Eq) => (Flags::NO_PARITY, Flags::EQUAL, rows::AND),
            _ => (Flags::PARITY, Flags::NOT_EQUAL, rows::OR),
        };
        Self::set(cx, parity, first);
        Self::set(cx, equal, second);
        Self::general_binary(cx, row, 32, to, first, second);
    }

    /// The flags that mean a scalar condition holds.
    pub(super) fn flags(&mut self, cx: &mut Context, cond: VReg) -> Flags {
        if let Some((op @ (Op::Cmp(_) | Op::CmpU(_)), args)) = cx.sinkable(cond) {
            let is_equality = matches!(op, Op::Cmp(Cond::Eq | Cond::Ne)) && cx.ty(args[0]).lane().is_float();
            if !is_equality && let Some(flags) = self.compare(cx, op, args) {
                return flags;
            }
        }
        let cond = cx.reg(cond);
        Form::new(rows::TEST_8, 8).reg(cond).rm(cond.into()).push(cx);
        Flags::NOT_EQUAL
    }

    /// By a scalar condition.
    pub(super) fn select(&mut self, cx: &mut Context, ty: Type, to: Reg, args: &[VReg]) {
        let (cond, a, b) = (args[0], args[1], args[2]);
        match cx.class_of(ty) {
            RegClass::Int => {
                let [a, b] = [a, b].map(|arg| cx.reg(arg));
                let flags = self.flags(cx, cond);
                Self::general_conditional(cx, flags, 64, to, b, a);
            }
            RegClass::Float => {
                if let (1, Some((compare @ Op::Cmp(_), operands))) = (ty.lanes(), cx.sinkable(cond))
                    && cx.ty(operands[0]).lane().is_float()
                    && cx.ty(operands[0]).lane().bits() == ty.lane().bits()
                {
                    let from = cx.ty(operands[0]);
                    return self.select_by_floats(cx, from, to, compare, [operands[0], operands[1], a, b]);
                }
                self.select_vector(cx, ty, to, [cond, a, b]);
            }
            RegClass::Vector => {
                // a where the condition holds, else b: b ^ ((a ^ b) & all).
                let [a, b] = [a, b].map(|arg| cx.reg(arg));
                let all = self.all_bits(cx, cond);
                let [mask, differ, chosen] = [(); 3].map(|()| cx.fresh(RegClass::Vector));
                Form::new(rows::KMOV_FROM, 128).def(mask).rm(all.into()).push(cx);
                Self::binary(cx, rows::KXOR, 128, differ, a, b);
                Self::binary(cx, rows::KAND, 128, chosen, differ, mask);
                Self::binary(cx, rows::KXOR, 128, to, b, chosen);
            }
        }
    }

    /// A scalar condition as all ones or all zeros of 64 bits.
    pub(super) fn all_bits(&mut self, cx: &mut Context, cond: VReg) -> Reg {
        let cond = cx.reg(cond);
        let [byte, all] = [(); 2].map(|()| Self::general(cx));
        Form::new(rows::MOVZX_8, 32).def(byte).rm(cond.into()).push(cx);
        Form::new(rows::NEG, 64).ext(3).reuse_rm(byte, all).push(cx);
        all
    }

    /// Vectors and floats by a scalar condition.
    fn select_vector(&mut self, cx: &mut Context, ty: Type, to: Reg, [cond, a, b]: [VReg; 3]) {
        let bits = vector_bits(ty);
        let [a, b] = [a, b].map(|arg| cx.reg(arg));
        let all = self.all_bits(cx, cond);
        if V4 {
            let mask = cx.fresh(RegClass::Vector);
            Form::new(rows::KMOV_FROM, 128).def(mask).rm(all.into()).push(cx);
            return Form::new(rows::VPBLENDM[by_width(64)], bits).def(to).mask(mask).vvvv(b).rm(a.into()).push(cx);
        }
        let [low, mask] = [(); 2].map(|()| Self::vector(cx));
        Form::new(rows::VMOVQ, 128).def(low).rm(all.into()).push(cx);
        Self::unary(cx, rows::VPBROADCAST[by_width(64)], bits, mask, low);
        Form::new(rows::VPBLENDVB, bits).def(to).vvvv(b).rm(a.into()).fourth(mask).push(cx);
    }

    pub(super) fn compare_bounds(&mut self, cx: &mut Context, begin: Operand, end: Operand) -> Flags {
        match (begin, end) {
            (Operand::Reg(begin), _) => {
                let begin = cx.reg(begin);
                self.compare_with_bound(cx, begin, end);
                Flags::LESS
            }
            (Operand::Const(_), Operand::Reg(end)) => {
                let end = cx.reg(end);
                self.compare_with_bound(cx, end, begin);
                Flags::GREATER
            }
            (Operand::Const(first), Operand::Const(_)) => {
                let first = cx.constant_reg(Type::I64, first as u64);
                self.compare_with_bound(cx, first, end);
                Flags::LESS
            }
        }
    }

    /// Compares an index with a bound.
    pub(super) fn compare_with_bound(&mut self, cx: &mut Context, index: Reg, bound: Operand) {
        let form = Form::new(rows::CMP, 64);
        match bound {
            Operand::Const(bound) => match i32::try_from(bound) {
                Ok(bound) => form.ext(7).rm(index.into()).imm(Imm::Word(bound)).push(cx),
                Err(_) => {
                    let bound = cx.constant_reg(Type::I64, bound as u64);
                    form.reg(index).rm(bound.into()).push(cx);
                }
            },
            Operand::Reg(bound) => {
                let bound = cx.reg(bound);
                form.reg(index).rm(bound.into()).push(cx);
            }
        }
    }
}

/// A constant that fits an instruction, as a signed number of `bits` bits.
fn small_constant(cx: &Context, value: VReg, bits: u32) -> Option<i32> {
    let constant = cx.constant(value)?;
    if bits == 32 { Some(constant as u32 as i32) } else { i32::try_from(constant as i64).ok() }
}

fn integer_flags(cond: Cond, is_signed: bool) -> Flags {
    match (cond, is_signed) {
        (Cond::Eq, _) => Flags::EQUAL,
        (Cond::Ne, _) => Flags::NOT_EQUAL,
        (Cond::Lt, true) => Flags::LESS,
        (Cond::Le, true) => Flags::LESS_EQUAL,
        (Cond::Gt, true) => Flags::GREATER,
        (Cond::Ge, true) => Flags::GREATER_EQUAL,
        (Cond::Lt, false) => Flags::BELOW,
        (Cond::Le, false) => Flags::BELOW_EQUAL,
        (Cond::Gt, false) => Flags::ABOVE,
        (Cond::Ge, false) => Flags::ABOVE_EQUAL,
    }
}
