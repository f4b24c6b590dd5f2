//! Tensors in numpy's files: `.npy`, and `.npz` archives of them.
//!
//! Where numpy has no type, the values are written in one that holds them: `bf16` as f32, `i4` and `u4` as i8 and u8. What is read
//! as one of these types may be in either form.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use half::bf16;
use mcc_support::tensor::Number;
use mcc_support::{DType, Error, Result, Shape, Tensor, TensorType, bail, ensure};
use npyz::{DType as NpyType, Endianness, NpyHeader, Order, TypeChar, TypeStr, WriteOptions, WriterBuilder};

/// Reads a `.npy` file, as a tensor of type `dtype` where one is asked for: nothing is converted, but between a type that numpy
/// does not have and the one that stands for it.
pub fn read(path: &Path, dtype: Option<DType>) -> Result<Tensor> {
    let place = || format!("in file '{}'", path.display());
    let file = File::open(path).map_err(|error| Error::new(format!("cannot read the file: {error}")).context(place()))?;
    read_from(BufReader::new(file), dtype).map_err(|error| error.context(place()))
}

/// Reads the arrays of an `.npz` archive, in its order; names without `.npy`.
pub fn read_archive(path: &Path, dtype: impl Fn(&str) -> Option<DType>) -> Result<Vec<(String, Tensor)>> {
    let place = || format!("in file '{}'", path.display());
    let failed = |error: std::io::Error| Error::new(format!("cannot read the file: {error}")).context(place());
    let mut archive = npyz::npz::NpzArchive::open(path).map_err(failed)?;
    let names: Vec<String> = archive.array_names().map(str::to_string).collect();
    let mut tensors = Vec::with_capacity(names.len());
    for name in names {
        let entry = npyz::npz::file_name_from_array_name(&name);
        let reader = archive.zip_archive().by_name(&entry).map_err(|error| failed(error.into()))?;
        let tensor = read_from(reader, dtype(&name)).map_err(|error| error.context(format!("in array '{name}'")).context(place()))?;
        tensors.push((name, tensor));
    }
    Ok(tensors)
}

fn read_from(mut reader: impl Read, dtype: Option<DType>) -> Result<Tensor> {
    let failed = |error: std::io::Error| Error::new(format!("this is not an array of numpy: {error}"));
    let header = NpyHeader::from_reader(&mut reader).map_err(failed)?;
    let NpyType::Plain(ty) = header.dtype() else { bail!("the array has a structured type") };
    let found = FileType::of(&ty)?;
    let dims: Option<Vec<usize>> = header.shape().iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let shape = Shape::new(dims.ok_or_else(|| Error::new("the array is too large"))?);
    let size_bytes = shape.checked_count().and_then(|count| count.checked_mul(found.size_bytes()));
    let size_bytes = size_bytes.ok_or_else(|| Error::new("the array is too large"))?;
    // A header may promise more than there is: what is read grows with the file.
    let mut bytes = Vec::new();
    reader.take(size_bytes as u64).read_to_end(&mut bytes).map_err(failed)?;
    ensure!(bytes.len() == size_bytes, "the array ends after {} of {size_bytes} bytes", bytes.len());
    if ty.endianness() == Endianness::Big {
        bytes.chunks_mut(found.size_bytes()).for_each(<[u8]>::reverse);
    }
    if header.order() == Order::Fortran {
        bytes = to_row_major(&bytes, &shape, found.size_bytes());
    }
    found.tensor(shape, bytes, dtype)
}

/// Elements from the order in which the first dimension is innermost.
fn to_row_major(bytes: &[u8], shape: &Shape, size_bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    shape.for_each_index(|index| {
        let at = index.iter().zip(shape.iter()).rev().fold(0, |at, (&i, &extent)| at * extent + i);
        out.extend_from_slice(&bytes[at * size_bytes..][..size_bytes]);
    });
    out
}

/// The element type of a file.
enum FileType {
    Known(DType),
    /// Two bytes of unknown meaning, as which `ml_dtypes` writes `bfloat16`.
    Raw16,
}

impl FileType {
    fn of(ty: &TypeStr) -> Result<Self> {
        let dtype = match (ty.type_char(), ty.size_field()) {
            (TypeChar::Bool, 1) => DType::Bool,
            (TypeChar::Int, 1) => DType::I8,
            (TypeChar::Int, 2) => DType::I16,
            (TypeChar::Int, 4) => DType::I32,
            (TypeChar::Int, 8) => DType::I64,
            (TypeChar::Uint, 1) => DType::U8,
            (TypeChar::Uint, 2) => DType::U16,
            (TypeChar::Uint, 4) => DType::U32,
            (TypeChar::Uint, 8) => DType::U64,
            (TypeChar::Float, 2) => DType::F16,
            (TypeChar::Float, 4) => DType::F32,
            (TypeChar::Float, 8) => DType::F64,
            (TypeChar::RawData, 2) => return Ok(FileType::Raw16),
            _ => bail!("the array's type '{ty}' is none of a tensor's"),
        };
        Ok(FileType::Known(dtype))
    }

    fn size_bytes(&self) -> usize {
        match self {
            FileType::Known(dtype) => dtype.size_bytes(),
            FileType::Raw16 => 2,
        }
    }

    fn tensor(self, shape: Shape, mut bytes: Vec<u8>, wanted: Option<DType>) -> Result<Tensor> {
        let found = match (self, wanted) {
            (FileType::Raw16, None | Some(DType::BF16)) => DType::BF16,
            (FileType::Raw16, Some(wanted)) => bail!("the array holds raw bytes where {wanted} is needed"),
            (FileType::Known(found), _) => found,
        };
        if found == DType::Bool {
            // Numpy may hold any byte; a bool here is 0 or 1.
            bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        let tensor = Tensor::new(TensorType::new(found, shape), bytes);
        match wanted {
            Some(wanted) if wanted != found => narrow(&tensor, wanted),
            _ => Ok(tensor),
        }
    }
}

/// From the type that stands for one that numpy does not have.
fn narrow(tensor: &Tensor, wanted: DType) -> Result<Tensor> {
    let found = tensor.dtype();
    let ty = TensorType::new(wanted, tensor.shape().clone());
    if stand_in(wanted) == found && wanted == DType::BF16 {
        let elements: Vec<bf16> = tensor.elements::<f32>().into_iter().map(bf16::from_f32).collect();
        return Ok(Tensor::from_elements(ty.shape, &elements));
    }
    if stand_in(wanted) == found && wanted.is_packed() {
        let (low, high) = wanted.integer_range();
        let outside = tensor.numbers().find(|number| !(low..=high).contains(&i128::from(number.as_i64())));
        ensure!(outside.is_none(), "the value {outside:?} does not fit into {wanted}");
        return Ok(Tensor::from_numbers(ty, tensor.numbers()));
    }
    bail!("the array holds {found} where {wanted} is needed")
}

/// The type of numpy that holds the values of `dtype`.
fn stand_in(dtype: DType) -> DType {
    match dtype {
        DType::BF16 => DType::F32,
        DType::I4 => DType::I8,
        DType::U4 => DType::U8,
        other => other,
    }
}

/// The bytes of a `.npy` file.
pub fn write(tensor: &Tensor) -> Vec<u8> {
    let stand_in = stand_in(tensor.dtype());
    let (kind, size) = match stand_in {
        DType::Bool => ('b', 1),
        other => {
            let kind = if other.is_float() { 'f' } else { if other.is_signed() { 'i' } else { 'u' } };
            (kind, other.size_bytes())
        }
    };
    let endianness = if size == 1 { '|' } else { '<' };
    let ty: TypeStr = format!("{endianness}{kind}{size}").parse().expect("a type of numpy");
    let shape: Vec<u64> = tensor.shape().iter().map(|&dim| dim as u64).collect();
    let options = WriteOptions::new_header_only().dtype(NpyType::Plain(ty)).shape(&shape).writer(Vec::new());
    let mut out = options.write_header_only().expect("memory can be written");
    if stand_in == tensor.dtype() {
        out.extend_from_slice(tensor.data());
    } else {
        let numbers: Vec<Number> = tensor.numbers().collect();
        out.extend_from_slice(Tensor::from_numbers(TensorType::new(stand_in, tensor.shape().clone()), numbers).data());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for dtype in DType::ALL {
            for dims in [vec![], vec![0], vec![3], vec![2, 3, 2]] {
                let ty = TensorType::new(dtype, dims);
                let range = if dtype.is_signed() { -7..8 } else { 0..2 };
                let numbers: Vec<Number> = range.cycle().take(ty.shape.count()).map(Number::Int).collect();
                let tensor = Tensor::from_numbers(ty, numbers);
                assert_eq!(read_from(&write(&tensor)[..], Some(dtype)).unwrap(), tensor);
            }
        }
    }

    #[test]
    fn other_orders_and_endianness_are_read() {
        let expected = Tensor::from_elements(vec![2, 3], &[1i16, 2, 3, 4, 5, 6]);
        let header = |descr: &str, fortran: &str| {
            let text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': (2, 3), }}\n");
            [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat()
        };
        let big: Vec<u8> = [1i16, 2, 3, 4, 5, 6].iter().flat_map(|v| v.to_be_bytes()).collect();
        let columns: Vec<u8> = [1i16, 4, 2, 5, 3, 6].iter().flat_map(|v| v.to_le_bytes()).collect();
        for file in [[header(">i2", "False"), big].concat(), [header("<i2", "True"), columns].concat()] {
            assert_eq!(read_from(&file[..], None).unwrap(), expected);
            assert!(read_from(&file[..], Some(DType::I32)).is_err());
            assert!(read_from(&file[..file.len() - 1], None).unwrap_err().message.contains("ends after"));
        }
    }
}
