//! Rounding to integers.
//!
//! x86 has instructions for it since SSE4.1. Before, adding and subtracting the least number whose unit is 1 rounds a smaller
//! magnitude to the nearest integer, ties to even; the other directions correct that by 1. Greater numbers are integers already,
//! and the sign of the operand is put back because a result of zero keeps it.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use mcc_kernel::{Arch, Lane, Op, Type};

use crate::lower::{Lower, clif_type};

impl Lower<'_, '_> {
    pub fn round(&mut self, ty: Type, op: &Op, value: Value) -> Value {
        if self.cpu.arch == Arch::X86_64 && !self.cpu.features.contains("sse4.1") {
            return self.round_by_adding(ty, op, value);
        }
        let ins = self.builder.ins();
        match op {
            Op::Floor => ins.floor(value),
            Op::Ceil => ins.ceil(value),
            Op::Trunc => ins.trunc(value),
            _ => ins.nearest(value),
        }
    }

    fn round_by_adding(&mut self, ty: Type, op: &Op, value: Value) -> Value {
        let clif = clif_type(ty);
        let (unit_one, one, sign_bit) = match ty.lane() {
            Lane::F32 => (u64::from(8_388_608f32.to_bits()), u64::from(1f32.to_bits()), 1 << 31),
            _ => (4_503_599_627_370_496f64.to_bits(), 1f64.to_bits(), 1 << 63),
        };
        let [unit_one, one, sign_bit] = [unit_one, one, sign_bit].map(|bits| self.lane_const(clif, bits));
        let sign = self.builder.ins().band(value, sign_bit);
        let magnitude = self.builder.ins().fabs(value);
        let sum = self.builder.ins().fadd(magnitude, unit_one);
        let nearest_magnitude = self.builder.ins().fsub(sum, unit_one);
        let nearest = self.builder.ins().bor(nearest_magnitude, sign);
        let rounded = match op {
            Op::Floor => {
                let less = self.builder.ins().fsub(nearest, one);
                self.select_where(FloatCC::GreaterThan, nearest, value, less, nearest)
            }
            Op::Ceil => {
                let more = self.builder.ins().fadd(nearest, one);
                self.select_where(FloatCC::LessThan, nearest, value, more, nearest)
            }
            Op::Trunc => {
                let less = self.builder.ins().fsub(nearest_magnitude, one);
                self.select_where(FloatCC::GreaterThan, nearest_magnitude, magnitude, less, nearest_magnitude)
            }
            _ => nearest,
        };
        let signed = self.builder.ins().bor(rounded, sign);
        self.select_where(FloatCC::LessThan, magnitude, unit_one, signed, value)
    }
}
