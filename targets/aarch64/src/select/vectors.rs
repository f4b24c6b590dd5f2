//! Arithmetic on floats and vectors.

use mcc_kernel::mach::{Reg, RegClass};
use mcc_kernel::{Cond, Lane, Op, Type, VReg};

use super::{Cx, Selector, is_double, is_float, lane_bits, low_bits, shape};
use crate::encode::vector as v;
use crate::encode::*;
use crate::inst::{Make, What};

impl Selector {
    /// Scalar floats.
    pub fn float(&mut self, cx: &mut Cx, to: Reg, ty: Type, op: &Op, args: &[VReg]) {
        let word = match op {
            Op::Add => v::S_FADD,
            Op::Sub => v::S_FSUB,
            Op::Mul => v::S_FMUL,
            Op::Div => v::S_FDIV,
            Op::Neg => v::S_FNEG,
            Op::Abs => v::S_FABS,
            Op::Sqrt => v::S_FSQRT,
            Op::Floor => v::S_FRINTM,
            Op::Ceil => v::S_FRINTP,
            Op::Trunc => v::S_FRINTZ,
            Op::Nearest => v::S_FRINTN,
            Op::Fma => v::S_FMADD,
            Op::Min | Op::Max => {
                let [a, b] = [args[0], args[1]].map(|arg| cx.reg(arg));
                Make::new(v::float(v::S_FCMP, is_double(ty))).what(What::SetsFlags).n(a).m(b).push(cx);
                let flags = if *op == Op::Min { Flags::Mi } else { Flags::Gt };
                return Make::new(v::fcsel(is_double(ty), flags)).what(What::ReadsFlags).def(to).n(a).m(b).push(cx);
            }
            _ => cx.unsupported(op),
        };
        let args: Vec<Reg> = args.iter().map(|&arg| cx.reg(arg)).collect();
        let fields = [RN, RM, RA];
        let make = Make::new(v::float(word, is_double(ty))).def(to);
        args.iter().zip(fields).fold(make, |make, (&arg, field)| make.with(arg, field)).push(cx);
    }

    /// Vectors of floats.
    pub fn floats(&mut self, cx: &mut Cx, to: Reg, ty: Type, op: &Op, args: &[VReg]) {
        let shape = shape(ty);
        let word = match op {
            Op::Fma => return self.multiply_add(cx, to, ty, args),
            Op::Mul => {
                let lane = [(args[0], args[1]), (args[1], args[0])]
                    .into_iter()
                    .find_map(|(splat, other)| Self::lane_of(cx, splat).map(|lane| (lane, other)));
                if let Some(((scalar, lane), other)) = lane {
                    let [n, m] = [other, scalar].map(|arg| cx.reg(arg));
                    return Make::new(v::by_lane(v::FMUL_LANE, shape, lane)).def(to).n(n).m(m).push(cx);
                }
                v::FMUL
            }
            Op::Add => v::FADD,
            Op::Sub => v::FSUB,
            Op::Div => v::FDIV,
            Op::Neg => v::FNEG,
            Op::Abs => v::FABS,
            Op::Sqrt => v::FSQRT,
            Op::Floor => v::FRINTM,
            Op::Ceil => v::FRINTP,
            Op::Trunc => v::FRINTZ,
            Op::Nearest => v::FRINTN,
            Op::Min | Op::Max => return self.extreme_floats(cx, to, ty, op, args),
            _ => cx.unsupported(op),
        };
        self.lanewise(cx, to, v::float_vector(word, shape), args);
    }

    fn lanewise(&mut self, cx: &mut Cx, to: Reg, word: u32, args: &[VReg]) {
        let args: Vec<Reg> = args.iter().map(|&arg| cx.reg(arg)).collect();
        let make = Make::new(word).def(to);
        args.iter().zip([RN, RM]).fold(make, |make, (&arg, field)| make.with(arg, field)).push(cx);
    }

    /// The vector (or scalar) and its lane that a splat repeats.
    fn lane_of(cx: &Cx, value: VReg) -> Option<(VReg, u32)> {
        let Some((Op::Splat, &[scalar])) = cx.def(value) else { return None };
        if !is_float(cx.ty(scalar)) || cx.constant(scalar).is_some() {
            return None;
        }
        match cx.def(scalar) {
            Some((Op::Extract(lane), &[vector])) => Some((vector, u32::from(*lane))),
            _ => Some((scalar, 0)),
        }
    }

    /// `to = a · b + c`, by element where a factor is a scalar.
    fn multiply_add(&mut self, cx: &mut Cx, to: Reg, ty: Type, args: &[VReg]) {
        let shape = shape(ty);
        let negated = |cx: &Cx, value: VReg| match cx.def(value) {
            Some((Op::Neg, &[value])) => Some(value),
            _ => None,
        };
        let (mut a, mut b, c) = (args[0], args[1], args[2]);
        let mut is_sub = false;
        for factor in [&mut a, &mut b] {
            if let Some(value) = negated(cx, *factor) {
                *factor = value;
                is_sub = !is_sub;
            }
        }
        let sum = cx.reg(c);
        let lane = [(a, b), (b, a)]
            .into_iter()
            .find_map(|(splat, other)| Self::lane_of(cx, splat).map(|(scalar, lane)| (scalar, lane, other)));
        if let Some((scalar, lane, other)) = lane {
            let [n, m] = [other, scalar].map(|arg| cx.reg(arg));
            let word = if is_sub { v::FMLS_LANE } else { v::FMLA_LANE };
            return Make::new(v::by_lane(word, shape, lane)).tied(to, sum).n(n).m(m).push(cx);
        }
        let [n, m] = [a, b].map(|arg| cx.reg(arg));
        let word = if is_sub { v::FMLS } else { v::FMLA };
        Make::new(v::float_vector(word, shape)).tied(to, sum).n(n).m(m).push(cx);
    }

    /// A float constant that is not NaN, in one or all lanes, and whether its sign is set.
    fn number(cx: &Cx, value: VReg) -> Option<(f64, bool)> {
        let scalar = match cx.def(value) {
            Some((Op::Splat, &[scalar])) => scalar,
            _ => value,
        };
        let bits = low_bits(cx.constant(scalar)?, lane_bits(cx.ty(scalar)));
        let number = match lane_bits(cx.ty(scalar)) {
            32 => f64::from(f32::from_bits(bits as u32)),
            _ => f64::from_bits(bits),
        };
        (!number.is_nan()).then_some((number, number.is_sign_negative()))
    }

    /// `a < b ? a : b` and its like.
    fn extreme_floats(&mut self, cx: &mut Cx, to: Reg, ty: Type, op: &Op, args: &[VReg]) {
        let shape = shape(ty);
        let mask = cx.fresh(RegClass::Float);
        if Self::number(cx, args[0]).is_some_and(|(value, is_negative)| value != 0.0 || is_negative == (*op == Op::Max)) {
            // Where the other is NaN it is the result; of two zeros, too.
            let [n, m] = [args[0], args[1]].map(|arg| cx.reg(arg));
            let word = if *op == Op::Max { v::FMAX } else { v::FMIN };
            return Make::new(v::float_vector(word, shape)).def(to).n(n).m(m).push(cx);
        }
        let is_zero = Self::number(cx, args[1]) == Some((0.0, false));
        let a = cx.reg(args[0]);
        if is_zero {
            let word = if *op == Op::Max { v::FCMGT_ZERO } else { v::FCMLT_ZERO };
            Make::new(v::float_vector(word, shape)).def(mask).n(a).push(cx);
            return Make::new(v::bits_vector(v::AND, shape.is_full)).def(to).n(a).m(mask).push(cx);
        }
        let b = cx.reg(args[1]);
        let (greater, less) = if *op == Op::Max { (a, b) } else { (b, a) };
        Make::new(v::float_vector(v::FCMGT, shape)).def(mask).n(greater).m(less).push(cx);
        Make::new(v::bits_vector(v::BSL, shape.is_full)).tied(to, mask).n(a).m(b).push(cx);
    }

    /// `select(x != x, x, max(x, c))`, which is what the instruction does where `c` is a number and, if zero, of the right sign;
    /// whether it was that.
    pub fn clamp(&mut self, cx: &mut Cx, to: Reg, ty: Type, args: &[VReg]) -> bool {
        let &[mask, x, extreme] = args else { return false };
        let is_nan_test = matches!(cx.def(mask), Some((Op::Cmp(Cond::Ne), &[a, b])) if a == x && b == x);
        let (is_max, bound) = match cx.def(extreme) {
            Some((Op::Max, &[a, bound])) if a == x => (true, bound),
            Some((Op::Min, &[a, bound])) if a == x => (false, bound),
            _ => return false,
        };
        let Some((value, is_negative)) = Self::number(cx, bound) else { return false };
        if !is_nan_test || value == 0.0 && is_negative == is_max {
            return false;
        }
        let [n, m] = [x, bound].map(|arg| cx.reg(arg));
        let word = match (ty.lanes() == 1, is_max) {
            (true, true) => v::float(v::S_FMAX, is_double(ty)),
            (true, false) => v::float(v::S_FMIN, is_double(ty)),
            (false, true) => v::float_vector(v::FMAX, shape(ty)),
            (false, false) => v::float_vector(v::FMIN, shape(ty)),
        };
        Make::new(word).def(to).n(n).m(m).push(cx);
        true
    }

    /// Vectors of integers.
    pub fn integers(&mut self, cx: &mut Cx, to: Reg, ty: Type, op: &Op, args: &[VReg]) {
        let shape = shape(ty);
        let is_wide = ty.lane() == Lane::I64;
        let word = match op {
            Op::Shl | Op::ShrS | Op::ShrU => return self.shift_lanes(cx, to, ty, op, args),
            Op::Mul if is_wide => return self.multiply_wide(cx, to, args),
            Op::Min | Op::Max | Op::MinU | Op::MaxU if is_wide => {
                let mask = cx.fresh(RegClass::Float);
                let [a, b] = [args[0], args[1]].map(|arg| cx.reg(arg));
                let word = if matches!(op, Op::Min | Op::Max) { v::CMGT } else { v::CMHI };
                let (greater, less) = if matches!(op, Op::Max | Op::MaxU) { (a, b) } else { (b, a) };
                Make::new(v::vector(word, shape)).def(mask).n(greater).m(less).push(cx);
                return Make::new(v::bits_vector(v::BSL, shape.is_full)).tied(to, mask).n(a).m(b).push(cx);
            }
            Op::And => return self.lanewise(cx, to, v::bits_vector(v::AND, shape.is_full), args),
            Op::Or => return self.lanewise(cx, to, v::bits_vector(v::ORR, shape.is_full), args),
            Op::Xor => return self.lanewise(cx, to, v::bits_vector(v::EOR, shape.is_full), args),
            Op::Not => return self.lanewise(cx, to, v::bits_vector(v::NOT, shape.is_full), args),
            Op::Add => v::ADD,
            Op::Sub => v::SUB,
            Op::Mul => v::MUL,
            Op::Neg => v::NEG,
            Op::Abs => v::ABS,
            Op::Min => v::SMIN,
            Op::Max => v::SMAX,
            Op::MinU => v::UMIN,
            Op::MaxU => v::UMAX,
            _ => cx.unsupported(op),
        };
        if *op == Op::Add
            && let Some((product, other)) =
                [(args[0], args[1]), (args[1], args[0])].into_iter().find_map(|(product, other)| match cx.sinkable(product) {
                    Some((Op::Mul, factors)) if !is_wide => Some((factors, other)),
                    _ => None,
                })
        {
            let [sum, n, m] = [other, product[0], product[1]].map(|arg| cx.reg(arg));
            return Make::new(v::vector(v::MLA, shape)).tied(to, sum).n(n).m(m).push(cx);
        }
        self.lanewise(cx, to, v::vector(word, shape), args);
    }

    /// There is no product of lanes of 64 bits.
    fn multiply_wide(&mut self, cx: &mut Cx, to: Reg, args: &[VReg]) {
        let [a, b] = [args[0], args[1]].map(|arg| cx.reg(arg));
        let products = [0, 1].map(|lane| {
            let [n, m] = [a, b].map(|vector| {
                let reg = cx.fresh(RegClass::Int);
                Make::new(v::umov(3, lane)).def(reg).n(vector).push(cx);
                reg
            });
            let product = cx.fresh(RegClass::Int);
            Make::new(general(MADD, Width::X) | ZERO_OR_SP << RA).def(product).n(n).m(m).push(cx);
            product
        });
        let low = cx.fresh(RegClass::Float);
        Make::new(v::convert(v::G_FROM_GENERAL, true, true)).def(low).n(products[0]).push(cx);
        Make::new(v::ins_general(3, 1)).tied(to, low).n(products[1]).push(cx);
    }

    fn shift_lanes(&mut self, cx: &mut Cx, to: Reg, ty: Type, op: &Op, args: &[VReg]) {
        let shape = shape(ty);
        let a = cx.reg(args[0]);
        let mask = lane_bits(ty) - 1;
        if let Some(amount) = cx.constant(args[1]).map(|bits| bits as u32 & mask) {
            let word = match op {
                _ if amount == 0 => v::bits_vector(v::ORR, shape.is_full),
                Op::Shl => v::shift(v::SHL, shape, amount),
                Op::ShrS => v::shift(v::SSHR, shape, amount),
                _ => v::shift(v::USHR, shape, amount),
            };
            let make = Make::new(word).def(to).n(a);
            return if amount == 0 { make.m(a).push(cx) } else { make.push(cx) };
        }
        let amount = cx.reg(args[1]);
        let mut masked = cx.fresh(RegClass::Int);
        let and = logical_imm(AND, Width::W, u64::from(mask)).expect("it is a run of ones");
        Make::new(and).def(masked).n(amount).push(cx);
        if *op != Op::Shl {
            // To the right is to the left by a negative number.
            let negative = cx.fresh(RegClass::Int);
            Make::new(general(SUB, Width::X) | ZERO_OR_SP << RN).def(negative).m(masked).push(cx);
            masked = negative;
        }
        let amounts = cx.fresh(RegClass::Float);
        Make::new(v::dup_general(shape)).def(amounts).n(masked).push(cx);
        let word = if *op == Op::ShrS { v::SSHL } else { v::USHL };
        Make::new(v::vector(word, shape)).def(to).n(a).m(amounts).push(cx);
    }

    pub fn compare(&mut self, cx: &mut Cx, to: Reg, cond: Cond, is_signed: bool, args: &[VReg]) {
        let ty = cx.ty(args[0]);
        let shape = shape(ty);
        let [a, b] = [args[0], args[1]].map(|arg| cx.reg(arg));
        let (equal, greater, at_least) = match (is_float(ty), is_signed) {
            (true, _) => (v::FCMEQ, v::FCMGT, v::FCMGE),
            (false, true) => (v::CMEQ, v::CMGT, v::CMGE),
            (false, false) => (v::CMEQ, v::CMHI, v::CMHS),
        };
        let sized = |word: u32| if is_float(ty) { v::float_vector(word, shape) } else { v::vector(word, shape) };
        let (word, n, m) = match cond {
            Cond::Eq | Cond::Ne => (equal, a, b),
            Cond::Gt => (greater, a, b),
            Cond::Lt => (greater, b, a),
            Cond::Ge => (at_least, a, b),
            Cond::Le => (at_least, b, a),
        };
        if cond != Cond::Ne {
            return Make::new(sized(word)).def(to).n(n).m(m).push(cx);
        }
        let equals = cx.fresh(RegClass::Float);
        Make::new(sized(word)).def(equals).n(n).m(m).push(cx);
        Make::new(v::bits_vector(v::NOT, shape.is_full)).def(to).n(equals).push(cx);
    }

    /// By a mask of as many lanes.
    pub fn choose_lanes(&mut self, cx: &mut Cx, to: Reg, ty: Type, args: &[VReg]) {
        if is_float(ty) && self.clamp(cx, to, ty, args) {
            return;
        }
        let is_full = shape(ty).is_full;
        // Where lanes differ is the complement of where they are equal.
        if let Some((Op::Cmp(Cond::Ne), factors)) = cx.sinkable(args[0]) {
            let equals = cx.fresh(RegClass::Float);
            self.compare(cx, equals, Cond::Eq, true, factors);
            let [a, b] = [args[1], args[2]].map(|arg| cx.reg(arg));
            return Make::new(v::bits_vector(v::BSL, is_full)).tied(to, equals).n(b).m(a).push(cx);
        }
        let [mask, a, b] = [args[0], args[1], args[2]].map(|arg| cx.reg(arg));
        Make::new(v::bits_vector(v::BSL, is_full)).tied(to, mask).n(a).m(b).push(cx);
    }

    pub fn mask(&mut self, cx: &mut Cx, to: Reg, ty: Type, op: &Op, args: &[VReg]) {
        let args: Vec<Reg> = args.iter().map(|&arg| cx.reg(arg)).collect();
        if ty.lanes() > 1 {
            let word = match op {
                Op::MaskAnd => v::AND,
                Op::MaskOr => v::ORR,
                Op::MaskXor => v::EOR,
                _ => v::NOT,
            };
            let make = Make::new(v::bits_vector(word, shape(ty).is_full)).def(to);
            return args.iter().zip([RN, RM]).fold(make, |make, (&arg, field)| make.with(arg, field)).push(cx);
        }
        let word = match op {
            Op::MaskAnd => AND,
            Op::MaskOr => ORR,
            Op::MaskXor => EOR,
            _ => {
                let word = logical_imm(EOR, Width::W, 1).expect("it is a run of ones");
                return Make::new(word).def(to).n(args[0]).push(cx);
            }
        };
        Make::new(general(word, Width::W)).def(to).n(args[0]).m(args[1]).push(cx);
    }
}
