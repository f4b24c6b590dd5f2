//! What can go wrong between a program and a compiled model.

use core::fmt;

use crate::abi;
use crate::tensor::DType;

/// Why a model cannot be used, or why a run was refused. Tensors are named as in the ONNX model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The description has a version or size that this library does not know.
    Version {
        version: u32,
        size: u32,
    },
    /// The model was compiled for another architecture.
    Arch {
        model: u32,
    },
    /// The CPU lacks these feature bits.
    Cpu {
        missing: u32,
    },
    InputCount {
        given: usize,
        needed: usize,
    },
    OutputCount {
        given: usize,
        needed: usize,
    },
    DType {
        tensor: &'static str,
        given: DType,
        needed: u32,
    },
    /// The shape differs from the model's in rank or in an extent that is fixed.
    Shape {
        tensor: &'static str,
    },
    /// The tensor has extents that only its shape can tell: pass one.
    ShapeNeeded {
        tensor: &'static str,
    },
    /// An extent is outside its range, differs between two inputs, or is told by none.
    Extent {
        symbol: &'static str,
    },
    /// The data has another size in bytes than the shape.
    Size {
        tensor: &'static str,
        given: usize,
        needed: usize,
    },
    /// The data is not aligned at its element's size.
    Align {
        tensor: &'static str,
    },
    Arena {
        given: usize,
        needed: usize,
    },
    /// The arena does not start at a multiple of [`ARENA_ALIGN`](crate::ARENA_ALIGN); see [`align`](crate::align).
    ArenaAlign,
    /// The weights were left out of the model's object: those that were passed are none, not aligned, of another length, or were
    /// written for other code. See [`Model::with_weights`](crate::Model::with_weights).
    Weights,
    /// An index in the data was out of range and was clamped; the outputs are complete.
    Clamped,
    /// The model was compiled for several sets of extents, none of which is that of the inputs; nothing was written. See
    /// [`Model::shape_sets`](crate::Model::shape_sets).
    ShapeSet,
    /// The model returned this status, one of [`abi::status`].
    Status(i32),
}

impl Error {
    pub(crate) fn check(status: i32) -> Result<(), Error> {
        match status {
            abi::status::OK => Ok(()),
            abi::status::CLAMPED => Err(Error::Clamped),
            abi::status::ERROR_DIMS => Err(Error::ShapeSet),
            abi::status::ERROR_WEIGHTS => Err(Error::Weights),
            other => Err(Error::Status(other)),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::Version { version, size } => {
                write!(f, "the model's description has version {version} and {size} bytes, which this library does not read")
            }
            Error::Arch { model } => write!(f, "the model was compiled for another architecture (number {model})"),
            Error::Cpu { missing } => write!(f, "the CPU lacks features that the model was compiled for (bits {missing:#x})"),
            Error::InputCount { given, needed } => write!(f, "{given} inputs given, the model has {needed}"),
            Error::OutputCount { given, needed } => write!(f, "{given} outputs given, the model has {needed}"),
            Error::DType { tensor, given, needed } => match DType::from_code(needed) {
                Some(needed) => write!(f, "tensor '{tensor}' is {given:?}, the model's is {needed:?}"),
                None => write!(f, "tensor '{tensor}' has type number {needed}, which this library does not know"),
            },
            Error::Shape { tensor } => write!(f, "tensor '{tensor}' has another shape than the model's"),
            Error::ShapeNeeded { tensor } => write!(f, "tensor '{tensor}' has extents known only at run time: pass its shape"),
            Error::Extent { symbol } => write!(f, "extent '{symbol}' is missing, out of its range, or two inputs differ in it"),
            Error::Size { tensor, given, needed } => write!(f, "tensor '{tensor}' has {given} bytes, needed are {needed}"),
            Error::Align { tensor } => write!(f, "the data of tensor '{tensor}' is not aligned at the size of its element"),
            Error::Arena { given, needed } => write!(f, "the arena has {given} bytes, needed are {needed}"),
            Error::ArenaAlign => f.write_str("the arena does not start at a multiple of 64 bytes"),
            Error::Weights => f.write_str("the model needs its file of weights, whole and at a multiple of 64 bytes"),
            Error::Clamped => f.write_str("an index was out of range and was clamped"),
            Error::ShapeSet => f.write_str("the inputs' extents are no set that the model was compiled for"),
            Error::Status(status) => write!(f, "the model returned status {status}"),
        }
    }
}

impl core::error::Error for Error {}
