//! Conversions between dtypes: those of `graph::Op::Cast`, in terms of what the kernel IR has.

use mcc_kernel::{Cond, Lane, Op, Type, VReg};
use mcc_support::{DType, bug};

use super::Codegen;
use super::eval::lane_of;
use crate::loops::ExprId;

impl Codegen<'_> {
    pub(super) fn cast(&mut self, to: DType, from: ExprId, level: usize, vector: bool) -> VReg {
        let of = self.kernel.exprs.dtype(from);
        let value = self.operand(from, vector);
        let lanes = self.b.ty(value).lanes();
        if of == to || of.is_packed() || to.is_packed() {
            return value;
        }
        if [of, to].iter().any(|dtype| dtype.is_float() && !matches!(dtype, DType::F32 | DType::F64)) {
            bug!("{}: a conversion from {of} to {to} is made of operations on its bits", self.kernel.name);
        }
        if of == DType::Bool {
            return self.mask_to(value, to, level);
        }
        if to == DType::Bool {
            let zero = self.b.inst_at(level, self.b.ty(value), Op::Const(0), &[]);
            return self.b.inst_at(level, self.b.ty(value).mask(), Op::Cmp(Cond::Ne), &[value, zero]);
        }
        let ty = |lane| Type::vector(lane, lanes);
        match (of.is_float(), to.is_float()) {
            (true, true) => {
                let op = if to == DType::F64 { Op::Promote } else { Op::Demote };
                self.b.inst_at(level, ty(lane_of(to)), op, &[value])
            }
            (false, false) => self.resize_int(value, lane_of(to), of.is_signed(), level),
            (false, true) => {
                let wide = if of.size_bits() < 32 { Lane::I32 } else { lane_of(of) };
                let value = self.resize_int(value, wide, of.is_signed(), level);
                let op = if of.is_signed() { Op::IntToFloatS } else { Op::IntToFloatU };
                self.b.inst_at(level, ty(lane_of(to)), op, &[value])
            }
            (true, false) => self.float_to_int(value, to, level),
        }
    }

    fn mask_to(&mut self, mask: VReg, to: DType, level: usize) -> VReg {
        let lanes = self.b.ty(mask).lanes();
        let lane = if lanes > 1 { self.mask_lane() } else { lane_of(to) };
        let int = if lane.is_float() { if lane == Lane::F32 { Lane::I32 } else { Lane::I64 } } else { lane };
        let value = self.b.inst_at(level, Type::vector(int, lanes), Op::MaskToInt, &[mask]);
        if to.is_float() {
            return self.b.inst_at(level, Type::vector(lane_of(to), lanes), Op::IntToFloatS, &[value]);
        }
        value
    }

    /// Truncates and saturates to the range of `to`; NaN gives 0.
    fn float_to_int(&mut self, value: VReg, to: DType, level: usize) -> VReg {
        let lanes = self.b.ty(value).lanes();
        let wide = if to.size_bits() < 32 { Lane::I32 } else { lane_of(to) };
        let signed = to.is_signed() || to.size_bits() < 32;
        let op = if signed { Op::FloatToIntS } else { Op::FloatToIntU };
        let ty = Type::vector(wide, lanes);
        let mut int = self.b.inst_at(level, ty, op, &[value]);
        if to.size_bits() < 32 {
            let (low, high) = to.integer_range();
            let low = self.b.inst_at(level, ty, Op::Const(low as u64), &[]);
            let high = self.b.inst_at(level, ty, Op::Const(high as u64), &[]);
            int = self.b.inst_at(level, ty, Op::Max, &[low, int]);
            int = self.b.inst_at(level, ty, Op::Min, &[high, int]);
        }
        self.resize_int(int, lane_of(to), signed, level)
    }

    /// An integer in another width.
    pub(super) fn resize_int(&mut self, value: VReg, to: Lane, signed: bool, level: usize) -> VReg {
        let ty = self.b.ty(value);
        let op = match ty.lane().bits().cmp(&to.bits()) {
            std::cmp::Ordering::Equal => return value,
            std::cmp::Ordering::Greater => Op::Wrap,
            std::cmp::Ordering::Less if signed => Op::ExtendS,
            std::cmp::Ordering::Less => Op::ExtendU,
        };
        self.b.inst_at(level, Type::vector(to, ty.lanes()), op, &[value])
    }
}
