//! Declared types: what a model file says about the type of a value. It can be wrong, and parts can be missing.

use std::fmt;

use mcc_support::{DType, Error, Result, Shape, TensorType, bail, ensure};

use super::proto::{DataType, DimValue, TypeProto, TypeValue};

/// A dimension as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeclaredDim {
    Known(usize),
    /// The same name means the same extent throughout a graph.
    Symbol(String),
    /// Nothing is said; also a negative extent, which some exporters write for an unknown one.
    Unknown,
}

/// The declared type of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredType {
    pub dtype: DType,
    /// `None` where not even the rank is known.
    pub dims: Option<Vec<DeclaredDim>>,
}

impl DeclaredType {
    /// Reads the declared type of a tensor, or of an optional one that is there; a sequence, map, sparse or opaque type is an error that
    /// says so, and so is an element type that mcc does not have.
    pub fn from_proto(proto: &TypeProto) -> Result<Self> {
        let kind = match &proto.value {
            Some(TypeValue::Tensor(tensor)) => {
                let dims =
                    tensor.shape.as_ref().map(|shape| shape.dim.iter().map(|dim| DeclaredDim::from_proto(&dim.value)).collect());
                return Ok(Self { dtype: dtype(tensor.elem_type())?, dims });
            }
            Some(TypeValue::Sequence(_)) => "a sequence",
            Some(TypeValue::Map(_)) => "a map",
            Some(TypeValue::Opaque(_)) => "an opaque type",
            Some(TypeValue::SparseTensor(_)) => "a sparse tensor",
            // The caller gives it: a compiled model has no other form of a tensor.
            Some(TypeValue::Optional(optional)) => match &optional.elem_type {
                Some(element) => return Self::from_proto(element),
                None => "an optional",
            },
            None => bail!("the declared type is empty"),
        };
        bail!("values must be tensors, but the declared type is {kind}")
    }

    /// The type, where every dimension is known.
    pub fn known(&self) -> Option<TensorType> {
        let dims = self.dims.as_ref()?.iter().map(|dim| if let DeclaredDim::Known(dim) = dim { Some(*dim) } else { None });
        let ty = TensorType::new(self.dtype, dims.collect::<Option<Vec<_>>>()?);
        ty.checked_size_bytes().map(|_| ty)
    }
}

impl DeclaredDim {
    fn from_proto(value: &Option<DimValue>) -> Self {
        match value {
            Some(DimValue::Value(value)) => usize::try_from(*value).map_or(DeclaredDim::Unknown, DeclaredDim::Known),
            Some(DimValue::Param(name)) if !name.is_empty() => DeclaredDim::Symbol(name.clone()),
            Some(DimValue::Param(_)) | None => DeclaredDim::Unknown,
        }
    }
}

/// As `f32[batch,3,_]`, where an extent has neither number nor name; `f32[..]` where the rank is unknown.
impl fmt::Display for DeclaredType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(dims) = &self.dims else { return write!(f, "{}[..]", self.dtype) };
        write!(f, "{}[", self.dtype)?;
        for (axis, dim) in dims.iter().enumerate() {
            f.write_str(if axis == 0 { "" } else { "," })?;
            match dim {
                DeclaredDim::Known(dim) => write!(f, "{dim}")?,
                DeclaredDim::Symbol(name) => f.write_str(name)?,
                DeclaredDim::Unknown => f.write_str("_")?,
            }
        }
        f.write_str("]")
    }
}

/// The element type that `TensorProto.DataType` number `data_type` means: also the value of the attribute `to` of Cast.
pub fn dtype(data_type: i32) -> Result<DType> {
    Ok(match DataType::try_from(data_type) {
        Ok(DataType::Float) => DType::F32,
        Ok(DataType::Uint8) => DType::U8,
        Ok(DataType::Int8) => DType::I8,
        Ok(DataType::Uint16) => DType::U16,
        Ok(DataType::Int16) => DType::I16,
        Ok(DataType::Int32) => DType::I32,
        Ok(DataType::Int64) => DType::I64,
        Ok(DataType::Bool) => DType::Bool,
        Ok(DataType::Float16) => DType::F16,
        Ok(DataType::Double) => DType::F64,
        Ok(DataType::Uint32) => DType::U32,
        Ok(DataType::Uint64) => DType::U64,
        Ok(DataType::Bfloat16) => DType::BF16,
        Ok(DataType::Uint4) => DType::U4,
        Ok(DataType::Int4) => DType::I4,
        Ok(DataType::Uint2) => DType::U2,
        Ok(DataType::Int2) => DType::I2,
        Ok(DataType::Float4E2M1) => DType::F4E2M1,
        Ok(DataType::Float8E4M3FN) => DType::F8E4M3FN,
        Ok(DataType::Float8E4M3FNUZ) => DType::F8E4M3FNUZ,
        Ok(DataType::Float8E5M2) => DType::F8E5M2,
        Ok(DataType::Float8E5M2FNUZ) => DType::F8E5M2FNUZ,
        Ok(DataType::Float8E8M0) => DType::F8E8M0,
        Ok(DataType::Undefined) => bail!("no element type is given"),
        Ok(other @ (DataType::String | DataType::Complex64 | DataType::Complex128)) => {
            bail!("elements of type {} are not supported", format!("{other:?}").to_lowercase())
        }
        Err(_) => bail!("{data_type} is not the number of an element type"),
    })
}

/// The type of a tensor of known extents, small enough that sizes and strides fit.
pub fn tensor_type(data_type: i32, dims: &[i64]) -> Result<TensorType> {
    let dtype = dtype(data_type)?;
    let extents = dims.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
    let extents = extents.map_err(|_| Error::new(format!("the shape {dims:?} has a negative extent")))?;
    // Empty dimensions count as one here, for strides are computed without them.
    let bits = extents.iter().try_fold(dtype.size_bits(), |bits, &dim| bits.checked_mul(dim.max(1)));
    ensure!(bits.is_some_and(|bits| bits <= isize::MAX as usize), "the shape {dims:?} is too large");
    Ok(TensorType::new(dtype, Shape::new(extents)))
}
