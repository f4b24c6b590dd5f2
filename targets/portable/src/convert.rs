//! Conversions between types.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, Value};
use mcc_kernel::{Arch, Lane, Op, Type};
use mcc_support::bug;

use crate::lower::{Lower, clif_lane, clif_type};

impl Lower<'_, '_> {
    /// `value` of type `source` as a `ty`.
    pub fn convert(&mut self, ty: Type, op: &Op, source: Type, value: Value) -> Value {
        let clif = clif_type(ty);
        match op {
            Op::Bitcast => self.bits_as(clif, value),
            Op::MaskResize if ty.lanes() == 1 => value,
            Op::MaskToInt if ty.lanes() > 1 => {
                let one = self.lane_const(clif, 1);
                self.builder.ins().band(value, one)
            }
            Op::MaskToInt if ty.lane() == Lane::I8 => value,
            Op::MaskToInt => self.builder.ins().uextend(clif, value),
            Op::IntToMask => {
                let zero = self.lane_const(clif_type(source), 0);
                self.builder.ins().icmp(IntCC::NotEqual, value, zero)
            }
            // Cranelift has no such vector conversion on x86.
            Op::FloatToIntS | Op::FloatToIntU if self.cpu.arch == Arch::X86_64 && ty.lanes() > 1 && ty.lane() == Lane::I64 => {
                let lanes: Vec<_> = (0..ty.lanes())
                    .map(|lane| {
                        let lane = self.builder.ins().extractlane(value, lane);
                        self.convert_number(clif_lane(Lane::I64), op, lane)
                    })
                    .collect();
                self.pack(clif, &lanes)
            }
            _ => self.convert_number(clif, op, value),
        }
    }

    fn convert_number(&mut self, ty: ir::Type, op: &Op, value: Value) -> Value {
        let ins = self.builder.ins();
        match op {
            Op::ExtendS => ins.sextend(ty, value),
            Op::ExtendU => ins.uextend(ty, value),
            Op::Wrap => ins.ireduce(ty, value),
            Op::IntToFloatS => ins.fcvt_from_sint(ty, value),
            Op::IntToFloatU => ins.fcvt_from_uint(ty, value),
            Op::FloatToIntS => ins.fcvt_to_sint_sat(ty, value),
            Op::FloatToIntU => ins.fcvt_to_uint_sat(ty, value),
            Op::Promote => ins.fpromote(ty, value),
            Op::Demote => ins.fdemote(ty, value),
            _ => bug!("{op:?} does not convert"),
        }
    }
}
