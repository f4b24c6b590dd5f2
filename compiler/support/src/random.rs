//! A small seeded generator (SplitMix64), the same on every host: test inputs and `mcc run` without inputs.

use crate::tensor::Number;
use crate::{DType, Tensor, TensorType};

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..count`.
    pub fn below(&mut self, count: usize) -> usize {
        assert!(count > 0, "an empty range has no element");
        ((u128::from(self.next_u64()) * count as u128) >> 64) as usize
    }

    /// Uniform in `[low, high)`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.between(0.0, 1.0) < probability
    }

    /// Floats in `[-1, 1)`, integers from -8 or 0 up to 7.
    pub fn tensor(&mut self, ty: &TensorType) -> Tensor {
        let numbers: Vec<Number> = (0..ty.shape.count())
            .map(|_| match ty.dtype {
                DType::Bool => Number::Int(self.below(2) as i64),
                dtype if dtype.is_float() => Number::Float(self.between(-1.0, 1.0)),
                dtype if dtype.is_signed() => Number::Int(self.below(16) as i64 - 8),
                _ => Number::Int(self.below(8) as i64),
            })
            .collect();
        Tensor::from_numbers(ty.clone(), numbers)
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}
