//! Element types, and tensors as a program passes them.

use core::ffi::c_void;
use core::marker::PhantomData;

use crate::abi::dtype;

macro_rules! dtypes {
    ($($name:ident $bits:literal),*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum DType { $($name),* }

        impl DType {
            /// The number in `mcc.h`, which is ONNX's.
            pub fn code(self) -> u32 {
                match self { $(DType::$name => dtype::$name),* }
            }

            pub fn from_code(code: u32) -> Option<DType> {
                match code { $(dtype::$name => Some(DType::$name),)* _ => None }
            }

            pub fn size_bits(self) -> usize {
                match self { $(DType::$name => $bits),* }
            }
        }
    };
}
dtypes!(
    F32 32, U8 8, I8 8, U16 16, I16 16, I32 32, I64 64, BOOL 8, F16 16, F64 64, U32 32, U64 64, BF16 16, U4 4, I4 4, U2 2, I2 2,
    F8E4M3FN 8, F8E4M3FNUZ 8, F8E5M2 8, F8E5M2FNUZ 8, F8E8M0 8, F4E2M1 4
);

impl DType {
    /// What the address of a tensor's data must be a multiple of.
    pub fn align_bytes(self) -> usize {
        self.size_bits().div_ceil(8)
    }
}

macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident $ty:ty;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct $name(pub $ty);
    )*};
}
bits! {
    /// IEEE binary16, as bits.
    F16 u16;
    /// The upper half of an `f32`, as bits.
    BF16 u16;
    /// A float of 8 bits (4 of exponent, 3 of mantissa, no infinity), as bits.
    F8E4M3FN u8;
    /// A float of 8 bits (4 of exponent, 3 of mantissa, neither infinity nor negative zero), as bits.
    F8E4M3FNUZ u8;
    /// A float of 8 bits (5 of exponent, 2 of mantissa), as bits.
    F8E5M2 u8;
    /// A float of 8 bits (5 of exponent, 2 of mantissa, neither infinity nor negative zero), as bits.
    F8E5M2FNUZ u8;
    /// A power of two, as the exponent plus 127; 255 is NaN.
    F8E8M0 u8;
    /// Two floats of 4 bits (2 of exponent, 1 of mantissa), the first in the low half.
    F4E2M1x2 u8;
    /// Two signed 4-bit elements, the first in the low half.
    I4x2 u8;
    /// Two unsigned 4-bit elements, the first in the low half.
    U4x2 u8;
    /// Four signed 2-bit elements, the first in the lowest bits.
    I2x4 u8;
    /// Four unsigned 2-bit elements, the first in the lowest bits.
    U2x4 u8;
}

/// A Rust type that lies in memory as a tensor's elements do.
///
/// # Safety
///
/// The type has the size and meaning of `DTYPE` (of the elements of a byte for the packed types), and every value that a model may write
/// is a value of the type.
pub unsafe trait Element: Copy {
    const DTYPE: DType;
}

macro_rules! elements {
    ($($ty:ty: $dtype:ident),*) => {$(
        unsafe impl Element for $ty { const DTYPE: DType = DType::$dtype; }
    )*};
}
elements!(f32: F32, f64: F64, i8: I8, u8: U8, i16: I16, u16: U16, i32: I32, u32: U32, i64: I64, u64: U64, bool: BOOL,
    F16: F16, BF16: BF16, F8E4M3FN: F8E4M3FN, F8E4M3FNUZ: F8E4M3FNUZ, F8E5M2: F8E5M2, F8E5M2FNUZ: F8E5M2FNUZ, F8E8M0: F8E8M0,
    F4E2M1x2: F4E2M1, I4x2: I4, U4x2: U4, I2x4: I2, U2x4: U2);

/// An input: dense elements, and the shape where the model does not fix it.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    pub(crate) dtype: DType,
    pub(crate) data: *const c_void,
    pub(crate) size_bytes: usize,
    pub(crate) shape: Option<&'a [usize]>,
    life: PhantomData<&'a [u8]>,
}

impl<'a> TensorRef<'a> {
    pub fn new<T: Element>(data: &'a [T]) -> Self {
        Self { dtype: T::DTYPE, data: data.as_ptr().cast(), size_bytes: size_of_val(data), shape: None, life: PhantomData }
    }

    /// Bytes that hold elements of `dtype`; each byte of a `BOOL` must be 0 or 1.
    pub fn from_bytes(dtype: DType, data: &'a [u8]) -> Self {
        Self { dtype, ..Self::new(data) }
    }

    /// States the shape; needed where the model leaves an extent to run time, checked in any case.
    #[must_use]
    pub fn shape(mut self, shape: &'a [usize]) -> Self {
        self.shape = Some(shape);
        self
    }
}

/// An output: room for dense elements, and for the shape where the caller wants it.
#[derive(Debug)]
pub struct TensorMut<'a> {
    pub(crate) dtype: DType,
    pub(crate) data: *mut c_void,
    pub(crate) size_bytes: usize,
    pub(crate) shape: Option<&'a mut [usize]>,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a> TensorMut<'a> {
    pub fn new<T: Element>(data: &'a mut [T]) -> Self {
        Self { dtype: T::DTYPE, size_bytes: size_of_val(data), data: data.as_mut_ptr().cast(), shape: None, life: PhantomData }
    }

    pub fn from_bytes(dtype: DType, data: &'a mut [u8]) -> Self {
        Self { dtype, ..Self::new(data) }
    }

    /// A run writes the extents of the result here; as many as the output's rank.
    #[must_use]
    pub fn shape(mut self, shape: &'a mut [usize]) -> Self {
        self.shape = Some(shape);
        self
    }
}
