//! Element types, shapes and tensor types.

use std::fmt;
use std::ops::Deref;

/// The element type of a tensor. Names in text are the lower-case ones: `f32`, `bf16`, `f8e4m3fn`, `i4`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    Bool,
    I2,
    U2,
    I4,
    U4,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F4E2M1,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0,
    F16,
    BF16,
    F32,
    F64,
}

impl DType {
    pub const ALL: [DType; 23] = [
        DType::Bool,
        DType::I2,
        DType::U2,
        DType::I4,
        DType::U4,
        DType::I8,
        DType::U8,
        DType::I16,
        DType::U16,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
        DType::F4E2M1,
        DType::F8E4M3FN,
        DType::F8E4M3FNUZ,
        DType::F8E5M2,
        DType::F8E5M2FNUZ,
        DType::F8E8M0,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ];

    pub fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::I2 => "i2",
            DType::U2 => "u2",
            DType::I4 => "i4",
            DType::U4 => "u4",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I64 => "i64",
            DType::U64 => "u64",
            DType::F4E2M1 => "f4e2m1",
            DType::F8E4M3FN => "f8e4m3fn",
            DType::F8E4M3FNUZ => "f8e4m3fnuz",
            DType::F8E5M2 => "f8e5m2",
            DType::F8E5M2FNUZ => "f8e5m2fnuz",
            DType::F8E8M0 => "f8e8m0",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }

    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Width of an element in a dense tensor; a `bool` is a byte that holds 0 or 1, elements of 2 and 4 bits are packed, four or
    /// two to a byte, the first in the lowest bits.
    pub fn size_bits(self) -> usize {
        match self {
            DType::I2 | DType::U2 => 2,
            DType::I4 | DType::U4 | DType::F4E2M1 => 4,
            DType::Bool | DType::I8 | DType::U8 => 8,
            DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ | DType::F8E8M0 => 8,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 16,
            DType::I32 | DType::U32 | DType::F32 => 32,
            DType::I64 | DType::U64 | DType::F64 => 64,
        }
    }

    /// Bytes of one element; a bug for the packed types, whose elements have no address.
    pub fn size_bytes(self) -> usize {
        assert!(!self.is_packed(), "{self} elements are smaller than a byte");
        self.size_bits() / 8
    }

    pub fn is_packed(self) -> bool {
        self.size_bits() < 8
    }

    /// The float that formulas which need more than half precision compute in: `f64` for itself, else `f32`.
    pub fn single_or_double(self) -> DType {
        if self == DType::F64 { DType::F64 } else { DType::F32 }
    }

    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64) || self.small_float().is_some()
    }

    /// Whether there is arithmetic on the elements. Those of packed types and of 8-bit floats move and are converted, no more.
    pub fn is_computed_with(self) -> bool {
        self != DType::Bool && !self.is_packed() && self.small_float().is_none()
    }

    pub fn is_signed(self) -> bool {
        self.is_float() || matches!(self, DType::I2 | DType::I4 | DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// Integers of any width and sign; not `bool`.
    pub fn is_integer(self) -> bool {
        !self.is_float() && self != DType::Bool
    }

    /// Least and greatest value of an integer type.
    pub fn integer_range(self) -> (i128, i128) {
        assert!(self.is_integer(), "{self} is not an integer type");
        let bits = self.size_bits() as u32;
        if self.is_signed() { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The extents of a tensor, outermost first; empty for a scalar.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Shape(Vec<usize>);

impl Shape {
    pub fn new(dims: impl Into<Vec<usize>>) -> Self {
        Self(dims.into())
    }

    pub fn scalar() -> Self {
        Self::default()
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    pub fn into_dims(self) -> Vec<usize> {
        self.0
    }

    /// Number of elements, or `None` where it does not fit.
    pub fn checked_count(&self) -> Option<usize> {
        if self.0.contains(&0) {
            return Some(0);
        }
        self.0.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim))
    }

    /// Number of elements. Shapes in a graph were checked when they were made.
    pub fn count(&self) -> usize {
        self.checked_count().expect("shapes are bounded when they are made")
    }

    /// Element strides of the dense row-major layout.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.rank()];
        for axis in (0..self.rank().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * self.0[axis + 1].max(1);
        }
        strides
    }

    /// The shape that numpy's broadcasting gives, or `None` where it refuses.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let rank = self.rank().max(other.rank());
        let dim = |shape: &Shape, axis: usize| {
            let missing = rank - shape.rank();
            if axis < missing { 1 } else { shape.0[axis - missing] }
        };
        (0..rank)
            .map(|axis| match (dim(self, axis), dim(other, axis)) {
                (a, b) if a == b => Some(a),
                (1, b) => Some(b),
                (a, 1) => Some(a),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map(Shape)
    }

    /// Calls `visit` with every index of the shape in row-major order.
    pub fn for_each_index(&self, mut visit: impl FnMut(&[usize])) {
        if self.count() == 0 {
            return;
        }
        let mut index = vec![0; self.rank()];
        loop {
            visit(&index);
            let Some(axis) = (0..self.rank()).rev().find(|&axis| index[axis] + 1 < self.0[axis]) else { return };
            index[axis] += 1;
            index[axis + 1..].fill(0);
        }
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl<T: Into<Vec<usize>>> From<T> for Shape {
    fn from(dims: T) -> Self {
        Self(dims.into())
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if axis == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An element type with a shape; `f32[1,64]` in text, `f32[]` for a scalar.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    pub dtype: DType,
    pub shape: Shape,
}

impl TensorType {
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Self {
        Self { dtype, shape: shape.into() }
    }

    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Bytes of the dense tensor, or `None` where they do not fit.
    pub fn checked_size_bytes(&self) -> Option<usize> {
        Some(self.shape.checked_count()?.checked_mul(self.dtype.size_bits())?.div_ceil(8))
    }

    pub fn size_bytes(&self) -> usize {
        self.checked_size_bytes().expect("shapes are bounded when they are made")
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
