//! Scalars to lanes and back.

use mcc_kernel::mach::{Reg, RegClass};
use mcc_kernel::{Op, Type, VReg};

use super::convert::copy;
use super::{Cx, Selector, is_float, lane_bits, shape, width};
use crate::encode::vector as v;
use crate::encode::*;
use crate::inst::{Make, What};

impl Selector {
    pub fn splat(&mut self, cx: &mut Cx, to: Reg, ty: Type, scalar: VReg) {
        let shape = shape(ty);
        if matches!(ty, Type::Mask { .. }) {
            let cond = cx.reg(scalar);
            return self.spread(cx, to, ty, cond);
        }
        if let Some(bits) = cx.constant(scalar) {
            return self.vector_constant(cx, to, ty, bits);
        }
        if let Some((Op::Load { address, align }, _)) = cx.sinkable(scalar)
            && (!self.strict_alignment || *align >= lane_bits(ty) / 8)
        {
            let base = self.pointer(cx, address);
            return Make::new(v::ld1r(shape)).what(What::Loads).def(to).n(base).push(cx);
        }
        if let Some((Op::Extract(lane), &[vector])) = cx.def(scalar)
            && cx.ty(vector).lanes() > 1
        {
            let vector = cx.reg(vector);
            return Make::new(v::dup(shape, u32::from(*lane))).def(to).n(vector).push(cx);
        }
        let from = cx.reg(scalar);
        let word = if is_float(ty) { v::dup(shape, 0) } else { v::dup_general(shape) };
        Make::new(word).def(to).n(from).push(cx);
    }

    pub fn pack(&mut self, cx: &mut Cx, to: Reg, ty: Type, args: &[VReg]) {
        if ty.lanes() == 1 {
            let from = cx.reg(args[0]);
            return copy(cx, to, from);
        }
        if is_float(ty) {
            let args: Vec<Reg> = args.iter().map(|&arg| cx.reg(arg)).collect();
            return self.zip(cx, to, shape(ty).size, &args);
        }
        let is_mask = matches!(ty, Type::Mask { .. });
        let size = shape(ty).size;
        let mut vector = cx.fresh(RegClass::Float);
        let first = cx.reg(args[0]);
        let is_wide = width(ty) == Width::X;
        Make::new(v::convert(v::G_FROM_GENERAL, is_wide, is_wide)).def(vector).n(first).push(cx);
        for (lane, &arg) in args.iter().enumerate().skip(1) {
            let arg = cx.reg(arg);
            let last = lane + 1 == args.len() && !is_mask;
            let next = if last { to } else { cx.fresh(RegClass::Float) };
            Make::new(v::ins_general(size, lane as u32)).tied(next, vector).n(arg).push(cx);
            vector = next;
        }
        if is_mask {
            // From 1 to all ones.
            Make::new(v::vector(v::NEG, shape(ty))).def(to).n(vector).push(cx);
        }
    }

    /// A vector of scalars in vector registers: of neighbours pairs, of pairs a vector.
    fn zip(&mut self, cx: &mut Cx, to: Reg, size: u32, args: &[Reg]) {
        let mut level: Vec<Reg> = args.to_vec();
        let mut size = size;
        while level.len() > 1 {
            let is_last = level.len() == 2;
            level = level
                .chunks(2)
                .map(|pair| {
                    let joined = if is_last { to } else { cx.fresh(RegClass::Float) };
                    let shape = v::Shape { size, is_full: true };
                    Make::new(v::vector(v::ZIP1, shape)).def(joined).n(pair[0]).m(pair[1]).push(cx);
                    joined
                })
                .collect();
            size += 1;
        }
    }

    pub fn extract(&mut self, cx: &mut Cx, to: Reg, ty: Type, vector: VReg, lane: u8) {
        let from = cx.reg(vector);
        let size = shape(ty).size;
        match ty {
            _ if cx.ty(vector).lanes() == 1 => copy(cx, to, from),
            Type::Data { lane: kind, .. } if kind.is_float() && lane == 0 => copy(cx, to, from),
            Type::Data { lane: kind, .. } if kind.is_float() => {
                Make::new(v::scalar_from(size, u32::from(lane))).def(to).n(from).push(cx);
            }
            Type::Data { .. } => Make::new(v::umov(size, u32::from(lane))).def(to).n(from).push(cx),
            _ => {
                let all = cx.fresh(RegClass::Int);
                Make::new(v::umov(size, u32::from(lane))).def(all).n(from).push(cx);
                let word = logical_imm(AND, Width::W, 1).expect("it is a run of ones");
                Make::new(word).def(to).n(all).push(cx);
            }
        }
    }
}
