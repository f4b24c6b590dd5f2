//! Dense tensor values: constants of a graph, inputs and results of the interpreters.

use std::fmt;

use bytes::Bytes;

use crate::types::{DType, Shape, TensorType};

/// A dense row-major value, little-endian, elements of 2 and 4 bits packed into bytes from the lowest bits on. Cloning shares the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Tensor {
    ty: TensorType,
    data: Bytes,
}

/// A Rust type whose bytes are a tensor's elements.
pub trait Element: Copy {
    const DTYPE: DType;
    fn write(self, out: &mut Vec<u8>);
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! element {
    ($($ty:ty => $dtype:ident),*) => {$(
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
            fn write(self, out: &mut Vec<u8>) { out.extend_from_slice(&self.to_le_bytes()) }
            fn read(bytes: &[u8]) -> Self { <$ty>::from_le_bytes(bytes.try_into().expect("element size")) }
        }
    )*};
}
element!(i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64, f32 => F32, f64 => F64,
    half::f16 => F16, half::bf16 => BF16);

impl Element for bool {
    const DTYPE: DType = DType::Bool;
    fn write(self, out: &mut Vec<u8>) {
        out.push(u8::from(self));
    }
    fn read(bytes: &[u8]) -> Self {
        bytes[0] != 0
    }
}

impl Tensor {
    /// Panics unless `data` holds exactly the elements of `ty`.
    pub fn new(ty: TensorType, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        assert_eq!(data.len(), ty.size_bytes(), "payload of a {ty}");
        Self { ty, data }
    }

    pub fn from_elements<T: Element>(shape: impl Into<Shape>, elements: &[T]) -> Self {
        let shape = shape.into();
        assert_eq!(elements.len(), shape.count(), "elements of a {shape}");
        let mut data = Vec::with_capacity(size_of_val(elements));
        elements.iter().for_each(|element| element.write(&mut data));
        Self { ty: TensorType::new(T::DTYPE, shape), data: data.into() }
    }

    pub fn scalar<T: Element>(element: T) -> Self {
        Self::from_elements(Shape::scalar(), &[element])
    }

    pub fn zeros(ty: TensorType) -> Self {
        let data = vec![0; ty.size_bytes()];
        Self { ty, data: data.into() }
    }

    /// A tensor of any type from numbers, each converted as [`set`](number_to_bytes) says.
    pub fn from_numbers(ty: TensorType, numbers: impl IntoIterator<Item = Number>) -> Self {
        let numbers: Vec<Number> = numbers.into_iter().collect();
        assert_eq!(numbers.len(), ty.shape.count(), "elements of a {ty}");
        let mut data = Vec::with_capacity(ty.size_bytes());
        if ty.dtype.is_packed() {
            let code = |number: &Number| match ty.dtype.small_float() {
                Some(format) => format.encode(number.as_f64()),
                None => number.as_i64() as u8,
            };
            let codes: Vec<u8> = numbers.iter().map(code).collect();
            return Self::from_codes(ty, &codes);
        } else {
            numbers.iter().for_each(|number| number_to_bytes(ty.dtype, *number, &mut data));
        }
        Self { ty, data: data.into() }
    }

    /// A tensor of a packed type or of one of 8 bits from the bits of its elements, those of each in the low ones of a byte.
    pub fn from_codes(ty: TensorType, codes: &[u8]) -> Self {
        let bits = ty.dtype.size_bits();
        let join = |codes: &[u8]| {
            codes.iter().rev().fold(0, |byte: u8, code| byte.checked_shl(bits as u32).unwrap_or(0) | code & mask(bits))
        };
        Self::new(ty, codes.chunks(8 / bits).map(join).collect::<Vec<u8>>())
    }

    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    pub fn shape(&self) -> &Shape {
        &self.ty.shape
    }

    pub fn count(&self) -> usize {
        self.ty.shape.count()
    }

    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// The elements, which must be of type `T`.
    pub fn elements<T: Element>(&self) -> Vec<T> {
        assert_eq!(self.ty.dtype, T::DTYPE, "element type");
        self.data.chunks_exact(size_of::<T>()).map(T::read).collect()
    }

    /// Element `index` in row-major order, of any type.
    pub fn number(&self, index: usize) -> Number {
        assert!(index < self.count(), "element {index} of a {}", self.ty);
        if self.ty.dtype.is_packed() {
            let (code, rest) = (packed_code(self.ty.dtype, &self.data, index), 8 - self.ty.dtype.size_bits());
            return match self.ty.dtype.small_float() {
                Some(format) => Number::Float(format.decode(code.into())),
                None if self.ty.dtype.is_signed() => Number::Int(i64::from((code << rest) as i8 >> rest)),
                None => Number::Int(code.into()),
            };
        }
        let size = self.ty.dtype.size_bytes();
        number_from_bytes(self.ty.dtype, &self.data[index * size..][..size])
    }

    pub fn numbers(&self) -> impl Iterator<Item = Number> + '_ {
        (0..self.count()).map(|index| self.number(index))
    }

    /// The same elements under another shape of the same count.
    pub fn reshaped(&self, shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        assert_eq!(shape.count(), self.count(), "{} reshaped to {shape}", self.ty);
        Self { ty: TensorType::new(self.ty.dtype, shape), data: self.data.clone() }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.ty)?;
        f.debug_list().entries(self.numbers().take(16)).finish()
    }
}

/// A byte with so many low bits set.
fn mask(bits: usize) -> u8 {
    ((1u16 << bits) - 1) as u8
}

/// The bits of element `index` of a packed type.
pub fn packed_code(dtype: DType, data: &[u8], index: usize) -> u8 {
    let (bits, at) = (dtype.size_bits(), index * dtype.size_bits());
    data[at / 8] >> (at % 8) & mask(bits)
}

/// One element, widened: integers and booleans to 64 bits, floats to f64 (which holds each narrower one exactly).
#[derive(Clone, Copy, PartialEq)]
pub enum Number {
    Int(i64),
    UInt(u64),
    Float(f64),
}

impl Number {
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::UInt(value) => value as f64,
            Number::Float(value) => value,
        }
    }

    /// Floats truncate and saturate, NaN gives 0; a large unsigned value wraps.
    pub fn as_i64(self) -> i64 {
        match self {
            Number::Int(value) => value,
            Number::UInt(value) => value as i64,
            Number::Float(value) => value as i64,
        }
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Int(value) => write!(f, "{value}"),
            Number::UInt(value) => write!(f, "{value}"),
            Number::Float(value) => write!(f, "{value:?}"),
        }
    }
}

/// Reads one element of a type that is at least a byte wide.
pub fn number_from_bytes(dtype: DType, bytes: &[u8]) -> Number {
    match dtype {
        DType::Bool => Number::Int(i64::from(bytes[0] != 0)),
        DType::I8 => Number::Int(i64::from(i8::read(bytes))),
        DType::U8 => Number::Int(i64::from(u8::read(bytes))),
        DType::I16 => Number::Int(i64::from(i16::read(bytes))),
        DType::U16 => Number::Int(i64::from(u16::read(bytes))),
        DType::I32 => Number::Int(i64::from(i32::read(bytes))),
        DType::U32 => Number::Int(i64::from(u32::read(bytes))),
        DType::I64 => Number::Int(i64::read(bytes)),
        DType::U64 => Number::UInt(u64::read(bytes)),
        DType::F16 => Number::Float(f64::from(half::f16::read(bytes))),
        DType::BF16 => Number::Float(f64::from(half::bf16::read(bytes))),
        DType::F32 => Number::Float(f64::from(f32::read(bytes))),
        DType::F64 => Number::Float(f64::read(bytes)),
        other => match other.small_float() {
            Some(format) if !other.is_packed() => Number::Float(format.decode(bytes[0].into())),
            _ => unreachable!("packed elements have no address"),
        },
    }
}

/// Writes one element: floats are rounded once from f64 (those of 8 bits saturate), integers keep their low bits, a bool is whether
/// it differs from 0.
pub fn number_to_bytes(dtype: DType, number: Number, out: &mut Vec<u8>) {
    match dtype {
        DType::Bool => out.push(u8::from(number != Number::Int(0) && number.as_f64() != 0.0)),
        DType::I8 | DType::U8 => out.push(number.as_i64() as u8),
        DType::I16 | DType::U16 => (number.as_i64() as u16).write(out),
        DType::I32 | DType::U32 => (number.as_i64() as u32).write(out),
        DType::I64 => number.as_i64().write(out),
        DType::U64 => match number {
            Number::UInt(value) => value.write(out),
            other => other.as_i64().write(out),
        },
        DType::F16 => half::f16::from_f32(rounded_to_odd(number.as_f64())).write(out),
        DType::BF16 => half::bf16::from_f32(rounded_to_odd(number.as_f64())).write(out),
        DType::F32 => (number.as_f64() as f32).write(out),
        DType::F64 => number.as_f64().write(out),
        other => match other.small_float() {
            Some(format) if !other.is_packed() => out.push(format.encode(number.as_f64())),
            _ => unreachable!("packed elements have no address"),
        },
    }
}

/// The f32 next to `value` on the side of zero, with its last bit set where it is not `value` itself: rounding it to 16 bits gives
/// what rounding `value` itself once would have given.
fn rounded_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if value.is_nan() || f64::from(nearest) == value {
        return nearest;
    }
    let beyond = f64::from(nearest).abs() > value.abs();
    f32::from_bits((nearest.to_bits() - u32::from(beyond)) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dtype: DType, value: f64, bits: u16) {
        let mut bytes = Vec::new();
        number_to_bytes(dtype, Number::Float(value), &mut bytes);
        assert_eq!(bytes, bits.to_le_bytes(), "{value:?} as {dtype}");
    }

    #[test]
    fn sixteen_bit_floats_are_rounded_once() {
        let power = |exponent: i64| f64::from_bits(((1023 + exponent) as u64) << 52);
        // Just above the middle between two neighbours: rounding to f32 first would put it on the middle.
        check(DType::BF16, 1.0 + power(-8) + power(-40), 0x3f81);
        check(DType::BF16, 1.0 + power(-8) - power(-40), 0x3f80);
        check(DType::BF16, 1.0 + power(-8), 0x3f80);
        check(DType::BF16, 52_210_712_576.0, half::bf16::from_f32(52_210_712_576.0).to_bits());
        check(DType::F16, 1.0 + power(-11) + power(-40), 0x3c01);
        check(DType::F16, 1.0 + power(-11) - power(-40), 0x3c00);
        check(DType::F16, -(1.0 + power(-11) + power(-40)), 0xbc01);
        check(DType::F16, 65520.0, 0x7c00);
        check(DType::F16, 65519.999, 0x7bff);
        check(DType::F16, 1e300, 0x7c00);
        check(DType::BF16, f64::NEG_INFINITY, 0xff80);
        check(DType::F16, power(-25) * 1.000_001, 0x0001);
        check(DType::F16, power(-25), 0x0000);
    }
}
