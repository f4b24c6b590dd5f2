//! Values of tensors in a model file.

use bytes::Bytes;
use mcc_support::{DType, Error, Result, Tensor, TensorType, ensure};

use super::external::ExternalFiles;
use super::proto::{DataLocation, SparseTensorProto, TensorProto};
use super::types::tensor_type;

/// Most bytes that a sparse tensor may take when it is made dense: nothing in the file bounds that.
const DENSE_BYTES: usize = 1 << 30;

/// The type of a tensor, without reading its value.
pub fn ty(proto: &TensorProto) -> Result<TensorType> {
    tensor_type(proto.data_type(), &proto.dims).map_err(|error| in_tensor(error, proto))
}

/// The value of a tensor. Raw and external payloads are not copied. Fails, naming the tensor, where the type is unsupported,
/// the shape is absurd, the payload is not exactly what the type takes, an element does not fit its type, or an external
/// file is refused ([`ExternalFiles::payload`]).
pub fn tensor(proto: &TensorProto, files: &ExternalFiles) -> Result<Tensor> {
    read(proto, files).map_err(|error| in_tensor(error, proto))
}

fn in_tensor(error: Error, proto: &TensorProto) -> Error {
    error.context(format!("in tensor '{}'", proto.name()))
}

fn read(proto: &TensorProto, files: &ExternalFiles) -> Result<Tensor> {
    let ty = tensor_type(proto.data_type(), &proto.dims)?;
    ensure!(proto.segment.is_none(), "tensors in segments are not supported");
    let location = proto.data_location.unwrap_or(0);
    if location == DataLocation::External as i32 {
        let data = files.payload(proto, ty.size_bytes())?;
        return Ok(from_raw(ty, data));
    }
    ensure!(location == DataLocation::Default as i32, "the data location {location} is unknown");
    match &proto.raw_data {
        Some(raw) if !raw.is_empty() => {
            let other = typed_fields(proto).into_iter().find(|(_, count)| *count > 0);
            if let Some((field, _)) = other {
                return Err(Error::new(format!("elements are given twice, in raw_data and in {field}")));
            }
            ensure!(raw.len() == ty.size_bytes(), "raw_data holds {} bytes, but {ty} takes {}", raw.len(), ty.size_bytes());
            Ok(from_raw(ty, raw.clone()))
        }
        _ => from_typed(ty, proto),
    }
}

/// Takes little-endian elements as they are, except that a bool is made 0 or 1 and unused bits are made 0.
fn from_raw(ty: TensorType, data: Bytes) -> Tensor {
    let last_bits = ty.shape.count() * ty.dtype.size_bits() % 8;
    let unused = last_bits != 0 && data.last().is_some_and(|last| last >> last_bits != 0);
    let unclean = ty.dtype == DType::Bool && data.iter().any(|&byte| byte > 1);
    if !unused && !unclean {
        return Tensor::new(ty, data);
    }
    let mut data = data.to_vec();
    if unclean {
        data.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    } else if let Some(last) = data.last_mut() {
        *last &= (1 << last_bits) - 1;
    }
    Tensor::new(ty, data)
}

fn typed_fields(proto: &TensorProto) -> [(&'static str, usize); 6] {
    [
        ("float_data", proto.float_data.len()),
        ("int32_data", proto.int32_data.len()),
        ("int64_data", proto.int64_data.len()),
        ("double_data", proto.double_data.len()),
        ("uint64_data", proto.uint64_data.len()),
        ("string_data", proto.string_data.len()),
    ]
}

/// Elements from the field of their type; a number holds a byte of packed ones.
fn from_typed(ty: TensorType, proto: &TensorProto) -> Result<Tensor> {
    let field = match ty.dtype {
        DType::F32 => "float_data",
        DType::F64 => "double_data",
        DType::I64 => "int64_data",
        DType::U32 | DType::U64 => "uint64_data",
        _ => "int32_data",
    };
    let wanted = if ty.dtype.is_packed() { ty.size_bytes() } else { ty.shape.count() };
    let fields = typed_fields(proto);
    if let Some((other, _)) = fields.into_iter().find(|(name, count)| *name != field && *count > 0) {
        return Err(Error::new(format!("elements are given in {other}, but those of {ty} belong into {field}")));
    }
    let count: usize = fields.into_iter().map(|(_, count)| count).sum();
    let held = count * ty.dtype.size_bits().max(8) / 8;
    let size = ty.size_bytes();
    ensure!(count == wanted, "{field} holds {count} elements ({held} bytes), but {ty} takes {wanted} ({size} bytes)");
    let mut data = Vec::with_capacity(ty.size_bytes());
    match ty.dtype {
        DType::F32 => proto.float_data.iter().for_each(|value| data.extend(value.to_le_bytes())),
        DType::F64 => proto.double_data.iter().for_each(|value| data.extend(value.to_le_bytes())),
        DType::I64 => proto.int64_data.iter().for_each(|value| data.extend(value.to_le_bytes())),
        DType::U64 => proto.uint64_data.iter().for_each(|value| data.extend(value.to_le_bytes())),
        DType::U32 => {
            for &value in &proto.uint64_data {
                let value = u32::try_from(value).map_err(|_| Error::new(format!("the element {value} does not fit u32")))?;
                data.extend(value.to_le_bytes());
            }
        }
        dtype => {
            for &value in &proto.int32_data {
                narrow(dtype, value, &mut data)?;
            }
        }
    }
    Ok(from_raw(ty, data.into()))
}

/// Appends what is stored as an `int32`: the bits of a float, a byte of packed elements, or the value.
fn narrow(dtype: DType, value: i32, data: &mut Vec<u8>) -> Result<()> {
    let value = if dtype == DType::Bool { i32::from(value != 0) } else { value };
    let (low, high) = match dtype {
        DType::Bool => (0, 1),
        // Writers differ in whether they extend the sign of a bit pattern.
        DType::F16 | DType::BF16 => (-(1 << 15), (1 << 16) - 1),
        dtype if dtype.is_packed() || dtype.is_float() => (-(1 << 7), (1 << 8) - 1),
        dtype => dtype.integer_range(),
    };
    ensure!((low..=high).contains(&i128::from(value)), "the element {value} in int32_data does not fit {dtype}");
    data.extend(&value.to_le_bytes()[..dtype.size_bits().div_ceil(8)]);
    Ok(())
}

/// The dense value of a sparse tensor: zero wherever no value is given. Indices are linear or one per dimension, and must
/// ascend.
pub fn densify(proto: &SparseTensorProto, files: &ExternalFiles) -> Result<Tensor> {
    let (Some(values), Some(indices)) = (&proto.values, &proto.indices) else {
        return Err(Error::new("a sparse tensor needs values and indices"));
    };
    let fill = || {
        let ty = tensor_type(values.data_type(), &proto.dims)?;
        ensure!(ty.size_bytes() <= DENSE_BYTES, "a sparse {ty} is too large to be made dense");
        ensure!(!ty.dtype.is_packed(), "sparse tensors of {} are not supported", ty.dtype);
        let (values, indices) = (tensor(values, files)?, tensor(indices, files)?);
        ensure!(values.shape().rank() == 1, "the values of a sparse tensor must have rank 1, not shape {}", values.shape());
        let places = linear_indices(&ty, values.count(), &indices)?;
        ensure!(places.is_sorted_by(|a, b| a < b), "the indices of a sparse tensor must ascend");
        let size = ty.dtype.size_bytes();
        let mut data = vec![0; ty.size_bytes()];
        for (place, value) in places.iter().zip(values.data().chunks_exact(size)) {
            data[place * size..][..size].copy_from_slice(value);
        }
        Ok(Tensor::new(ty, data))
    };
    fill().map_err(|error: Error| error.context(format!("in sparse tensor '{}'", values.name())))
}

fn linear_indices(ty: &TensorType, count: usize, indices: &Tensor) -> Result<Vec<usize>> {
    let shape = indices.shape();
    ensure!(indices.dtype() == DType::I64, "the indices of a sparse tensor must be i64, not {}", indices.dtype());
    let (rank, limits) = match shape.dims() {
        [first] if *first == count => (1, vec![ty.shape.count()]),
        [first, rank] if *first == count && *rank == ty.rank() => (*rank, ty.shape.dims().to_vec()),
        _ => return Err(Error::new(format!("the indices {shape} of a sparse {ty} do not match its {count} values"))),
    };
    let numbers: Vec<i64> = indices.elements();
    let linear = |index: usize| {
        numbers[index * rank..][..rank].iter().zip(&limits).try_fold(0usize, |sum, (&number, &limit)| {
            let number = usize::try_from(number).ok().filter(|number| *number < limit);
            number
                .map(|number| sum * limit + number)
                .ok_or_else(|| Error::new(format!("an index of a sparse {ty} is out of range")))
        })
    };
    (0..count).map(linear).collect()
}

/// The dense type of a sparse tensor, without reading its value.
pub fn sparse_ty(proto: &SparseTensorProto) -> Result<TensorType> {
    let values = proto.values.as_ref().ok_or_else(|| Error::new("a sparse tensor needs values"))?;
    tensor_type(values.data_type(), &proto.dims).map_err(|error| error.context(format!("in sparse tensor '{}'", values.name())))
}
