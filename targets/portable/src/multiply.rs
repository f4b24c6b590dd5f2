//! Multiply-adds that round once on machines that have no instruction for it.
//!
//! As `mcc_support::multiply_add` does it, two lanes at a time: a product of `f32` is exact in `f64`, the sum is rounded there and again
//! to `f32`. Where that could differ from rounding once, which is hardly ever so, the sum is rounded to odd before.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{self, BlockArg, InstBuilder, Value, types};
use mcc_kernel::Type;

use crate::lower::Lower;

/// Two lanes of `f64`: a sum, and what it is made of.
#[derive(Clone, Copy)]
struct Sum {
    product: Value,
    addend: Value,
    sum: Value,
}

impl Lower<'_, '_> {
    /// `a · b + c` of `f32`, one or four lanes.
    pub fn multiply_add(&mut self, ty: Type, operands: &[Value]) -> Value {
        if ty.lanes() == 1 {
            let vectors: Vec<Value> =
                operands.iter().map(|&operand| self.builder.ins().scalar_to_vector(types::F32X4, operand)).collect();
            let sum = self.sum_of_low_lanes(&vectors);
            let odd = self.round_to_odd(sum);
            let result = self.builder.ins().fvdemote(odd);
            return self.builder.ins().extractlane(result, 0);
        }
        let swapped: Vec<Value> =
            operands.iter().map(|&operand| self.shuffle(operand, operand, [2, 3, 0, 1], types::F32X4)).collect();
        let (low, high) = (self.sum_of_low_lanes(operands), self.sum_of_low_lanes(&swapped));
        let [low, high] = self.round_where_needed([low, high]);
        let [low, high] = [low, high].map(|sum| self.builder.ins().fvdemote(sum));
        self.shuffle(low, high, [0, 1, 4, 5], types::F32X4)
    }

    /// The lanes of two vectors of 32-bit lanes that `lanes` numbers.
    fn shuffle(&mut self, a: Value, b: Value, lanes: [u8; 4], ty: ir::Type) -> Value {
        let [a, b] = [a, b].map(|value| self.bits_as(types::I8X16, value));
        let bytes: Vec<u8> = lanes.iter().flat_map(|lane| (0..4).map(move |byte| lane * 4 + byte)).collect();
        let mask = self.builder.func.dfg.immediates.push(bytes.into());
        let result = self.builder.ins().shuffle(a, b, mask);
        self.bits_as(ty, result)
    }

    fn sum_of_low_lanes(&mut self, operands: &[Value]) -> Sum {
        let wide: Vec<Value> = operands.iter().map(|&operand| self.builder.ins().fvpromote_low(operand)).collect();
        let product = self.builder.ins().fmul(wide[0], wide[1]);
        Sum { product, addend: wide[2], sum: self.builder.ins().fadd(product, wide[2]) }
    }

    /// The sums, rounded to odd unless rounding them to `f32` as they are is right: half way between two of those no last bit is set
    /// but that one, and numbers that are not far above subnormal ones may become such.
    fn round_where_needed(&mut self, sums: [Sum; 2]) -> [Value; 2] {
        let ty = types::I32X4;
        let [low, high] = [[0, 2, 4, 6], [1, 3, 5, 7]].map(|lanes| self.shuffle(sums[0].sum, sums[1].sum, lanes, ty));
        let [dropped, middle, magnitude, tiny] =
            [0x1fff_ffff, 0x1000_0000, 0x7fff_ffff, 0x3810_0001].map(|bits| self.lane_const(ty, bits));
        let low = self.builder.ins().band(low, dropped);
        let is_middle = self.builder.ins().icmp(IntCC::Equal, low, middle);
        let high = self.builder.ins().band(high, magnitude);
        let is_tiny = self.builder.ins().icmp(IntCC::SignedLessThan, high, tiny);
        let needed = self.builder.ins().bor(is_middle, is_tiny);
        let needed = self.builder.ins().vhigh_bits(types::I32, needed);
        let (rounding, rounded) = (self.builder.create_block(), self.builder.create_block());
        let results = [(); 2].map(|()| self.builder.append_block_param(rounded, types::F64X2));
        self.builder.set_cold_block(rounding);
        self.builder.ins().brif(needed, rounding, &[], rounded, &sums.map(|sum| BlockArg::Value(sum.sum)));
        self.builder.switch_to_block(rounding);
        let odd = sums.map(|sum| BlockArg::Value(self.round_to_odd(sum)));
        self.builder.ins().jump(rounded, &odd);
        self.builder.switch_to_block(rounded);
        results
    }

    /// Where a sum is not exact, the one of its two neighbours whose last bit is set.
    fn round_to_odd(&mut self, Sum { product, addend, sum }: Sum) -> Value {
        let part = self.builder.ins().fsub(sum, product);
        let rest = self.builder.ins().fsub(sum, part);
        let rest = self.builder.ins().fsub(product, rest);
        let other = self.builder.ins().fsub(addend, part);
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
        self.bits_as(types::F64X2, odd)
    }
}
