//! Multiply-adds that round once on machines that have no instruction for it.
//!
//! As `mcc_support::multiply_add` does it, two lanes at a time: a product of `f32` is exact in `f64`, the sum is rounded to odd there.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use mcc_kernel::Type;

use crate::lower::Lower;

impl Lower<'_, '_> {
    /// `a · b + c` of `f32`, one or four lanes.
    pub fn multiply_add(&mut self, ty: Type, operands: &[Value]) -> Value {
        if ty.lanes() == 1 {
            let pairs: Vec<Value> = operands
                .iter()
                .map(|&operand| {
                    let vector = self.builder.ins().scalar_to_vector(types::F32X4, operand);
                    self.builder.ins().fvpromote_low(vector)
                })
                .collect();
            let result = self.multiply_add_pairs(&pairs);
            return self.builder.ins().extractlane(result, 0);
        }
        let low: Vec<Value> = operands.iter().map(|&operand| self.builder.ins().fvpromote_low(operand)).collect();
        let high: Vec<Value> = operands
            .iter()
            .map(|&operand| {
                let swapped = self.shuffle(operand, operand, [8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7]);
                self.builder.ins().fvpromote_low(swapped)
            })
            .collect();
        let (low, high) = (self.multiply_add_pairs(&low), self.multiply_add_pairs(&high));
        self.shuffle(low, high, [0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23])
    }

    /// The bytes of two vectors that `bytes` numbers.
    fn shuffle(&mut self, a: Value, b: Value, bytes: [u8; 16]) -> Value {
        let [a, b] = [a, b].map(|value| self.bits_as(types::I8X16, value));
        let mask = self.builder.func.dfg.immediates.push(bytes.as_slice().into());
        let result = self.builder.ins().shuffle(a, b, mask);
        self.bits_as(types::F32X4, result)
    }

    /// Of two lanes of `f64` that hold `f32`; the results are the first two lanes.
    fn multiply_add_pairs(&mut self, operands: &[Value]) -> Value {
        let product = self.builder.ins().fmul(operands[0], operands[1]);
        let sum = self.builder.ins().fadd(product, operands[2]);
        let part = self.builder.ins().fsub(sum, product);
        let rest = self.builder.ins().fsub(sum, part);
        let rest = self.builder.ins().fsub(product, rest);
        let other = self.builder.ins().fsub(operands[2], part);
        let lost = self.builder.ins().fadd(rest, other);
        // One where the sum is not exact; what was lost is NaN where it is not finite.
        let (zero, size) = (self.lane_const(types::F64X2, 0), self.builder.ins().fabs(lost));
        let is_inexact = self.builder.ins().fcmp(FloatCC::LessThan, zero, size);
        let [is_inexact, sum, lost] = [is_inexact, sum, lost].map(|value| self.bits_as(types::I64X2, value));
        let inexact = self.builder.ins().ushr_imm_u(is_inexact, 63);
        // One where it is besides farther from zero than what it stands for.
        let signs = self.builder.ins().bxor(sum, lost);
        let differ = self.builder.ins().ushr_imm_u(signs, 63);
        let above = self.builder.ins().band(differ, inexact);
        let toward_zero = self.builder.ins().isub(sum, above);
        let odd = self.builder.ins().bor(toward_zero, inexact);
        let odd = self.bits_as(types::F64X2, odd);
        self.builder.ins().fvdemote(odd)
    }
}
