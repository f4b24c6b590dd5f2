//! Elements of tensors as the numbers that the interpreter computes with.

use mcc_support::tensor::{Number, packed_code};
use mcc_support::{DType, Tensor, TensorType};

/// What sums, products and extremes are computed in: f64 for floats, i128 (which holds each) for integers; i64, which wraps as
/// every integer does, where nothing is compared.
pub trait Num: Copy {
    const ZERO: Self;
    const ONE: Self;
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// `self > other` (`self < other` for minima), or `self` is NaN and `other` is not.
    fn is_more_extreme(self, other: Self, max: bool) -> bool;
    fn is_nan(self) -> bool {
        false
    }
    fn lowest(dtype: DType) -> Self;
    fn highest(dtype: DType) -> Self;
    fn load(tensor: &Tensor) -> Vec<Self>;
    /// Floats are rounded once, integers keep their low bits.
    fn store(ty: TensorType, numbers: Vec<Self>) -> Tensor;
}

impl Num for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    fn add(self, other: Self) -> Self {
        self + other
    }
    fn mul(self, other: Self) -> Self {
        self * other
    }
    fn is_more_extreme(self, other: Self, max: bool) -> bool {
        (if max { self > other } else { self < other }) || (self.is_nan() && !other.is_nan())
    }
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
    fn lowest(_: DType) -> Self {
        f64::NEG_INFINITY
    }
    fn highest(_: DType) -> Self {
        f64::INFINITY
    }
    fn load(tensor: &Tensor) -> Vec<Self> {
        match tensor.dtype() {
            DType::F32 => tensor.elements::<f32>().into_iter().map(f64::from).collect(),
            _ => tensor.numbers().map(Number::as_f64).collect(),
        }
    }
    fn store(ty: TensorType, numbers: Vec<Self>) -> Tensor {
        match ty.dtype {
            DType::F16 | DType::BF16 => Tensor::from_numbers(ty, numbers.into_iter().map(Number::Float)),
            DType::F32 => Tensor::from_elements(ty.shape, &numbers.into_iter().map(|x| x as f32).collect::<Vec<_>>()),
            DType::F64 => Tensor::from_elements(ty.shape, &numbers),
            dtype => unreachable!("{dtype} is not a float"),
        }
    }
}

impl Num for i128 {
    const ZERO: Self = 0;
    const ONE: Self = 1;
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn mul(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
    fn is_more_extreme(self, other: Self, max: bool) -> bool {
        if max { self > other } else { self < other }
    }
    fn lowest(dtype: DType) -> Self {
        dtype.integer_range().0
    }
    fn highest(dtype: DType) -> Self {
        dtype.integer_range().1
    }
    fn load(tensor: &Tensor) -> Vec<Self> {
        let widen = |number| match number {
            Number::Int(value) => i128::from(value),
            Number::UInt(value) => i128::from(value),
            Number::Float(_) => unreachable!("{} is not an integer", tensor.ty()),
        };
        tensor.numbers().map(widen).collect()
    }
    fn store(ty: TensorType, numbers: Vec<Self>) -> Tensor {
        Tensor::from_numbers(ty, numbers.into_iter().map(|number| Number::Int(number as i64)))
    }
}

impl Num for i64 {
    const ZERO: Self = 0;
    const ONE: Self = 1;
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn mul(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
    fn is_more_extreme(self, other: Self, max: bool) -> bool {
        if max { self > other } else { self < other }
    }
    fn lowest(dtype: DType) -> Self {
        dtype.integer_range().0 as i64
    }
    fn highest(dtype: DType) -> Self {
        dtype.integer_range().1 as i64
    }
    fn load(tensor: &Tensor) -> Vec<Self> {
        tensor.numbers().map(Number::as_i64).collect()
    }
    fn store(ty: TensorType, numbers: Vec<Self>) -> Tensor {
        Tensor::from_numbers(ty, numbers.into_iter().map(Number::Int))
    }
}

/// The elements as bytes with the number of bytes of each: packed ones are spread, one to a byte.
pub fn cells(tensor: &Tensor) -> (Vec<u8>, usize) {
    if tensor.dtype().is_packed() {
        return ((0..tensor.count()).map(|index| packed_code(tensor.dtype(), tensor.data(), index)).collect(), 1);
    }
    (tensor.data().to_vec(), tensor.dtype().size_bytes())
}

/// A tensor from what [`cells`] gives.
pub fn from_cells(ty: TensorType, cells: Vec<u8>) -> Tensor {
    if ty.dtype.is_packed() {
        return Tensor::from_codes(ty, &cells);
    }
    Tensor::new(ty, cells)
}

/// Calls one function with the number type of a dtype: `with_num!(dtype, f(arguments))` calls `f::<f64>` or `f::<i128>`.
macro_rules! with_num {
    ($dtype:expr, $function:ident ($($argument:expr),*)) => {
        if $dtype.is_float() { $function::<f64>($($argument),*) } else { $function::<i128>($($argument),*) }
    };
}
pub(super) use with_num;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_rounded_to_sixteen_bits_once() {
        let power = |exponent: i64| f64::from_bits(((1023 + exponent) as u64) << 52);
        // Just above the middle between two neighbours, where rounding to f32 on the way would end on the middle.
        for (dtype, bits, middle) in [(DType::BF16, 0x3f81u16, -8), (DType::F16, 0x3c01, -11)] {
            let ty = TensorType::new(dtype, [1]);
            let sum = <f64 as Num>::store(ty, vec![1.0 + power(middle) + power(-40)]);
            assert_eq!(sum.data()[..], bits.to_le_bytes(), "{dtype}");
        }
    }
}
