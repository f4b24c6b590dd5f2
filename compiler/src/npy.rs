//! Tensors in numpy's files: `.npy`, and `.npz` archives of them.
//!
//! Where numpy has no type, the values are written in one that holds them: `bf16` and the floats of 8 and 4 bits as f32, integers of
//! 4 and 2 bits as i8 or u8. Small floats are read from their codes as well, one to a byte: u8, or what numpy writes for the types
//! of ml_dtypes.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use mcc_support::tensor::Number;
use mcc_support::{DType, Error, Result, Shape, Tensor, TensorType, bail, ensure};
use npyz::npz::NpzArchive;
use npyz::{DType as NpyType, Endianness, NpyFile, Order, TypeChar, TypeStr, WriteOptions, WriterBuilder};

/// Reads a `.npy` file.
pub fn read(path: &Path) -> Result<Tensor> {
    let place = || format!("in file '{}'", path.display());
    let failed = |error: std::io::Error| Error::new(format!("cannot read the file: {error}")).context(place());
    let file = NpyFile::new(BufReader::new(File::open(path).map_err(failed)?)).map_err(failed)?;
    from_npy(file).map_err(|error| error.context(place()))
}

/// Reads the arrays of an `.npz` archive, in its order; names without `.npy`.
pub fn read_archive(path: &Path) -> Result<Vec<(String, Tensor)>> {
    let place = || format!("in file '{}'", path.display());
    let failed = |error: std::io::Error| Error::new(format!("cannot read the file: {error}")).context(place());
    let mut archive = NpzArchive::open(path).map_err(failed)?;
    let names: Vec<String> = archive.array_names().map(str::to_string).collect();
    let mut tensors = Vec::with_capacity(names.len());
    for name in names {
        let file = archive.by_name(&name).map_err(failed)?.expect("the archive lists the array");
        let tensor = from_npy(file).map_err(|error| error.context(format!("in array '{name}'")).context(place()))?;
        tensors.push((name, tensor));
    }
    Ok(tensors)
}

/// Reads the elements behind a header, which may be that of an archive's member.
pub fn from_npy<R: Read>(file: NpyFile<R>) -> Result<Tensor> {
    let header = file.header().clone();
    let NpyType::Plain(element) = header.dtype() else { bail!("the array has records, not plain elements") };
    let dtype = dtype(&element)?;
    let dims: Option<Vec<usize>> = header.shape().iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let ty = dims.map(|dims| TensorType::new(dtype, dims));
    let Some((ty, size_bytes)) = ty.and_then(|ty| ty.checked_size_bytes().map(|size| (ty, size))) else {
        bail!("the array of shape {:?} is too large", header.shape());
    };
    // A header may promise more than there is: what is allocated grows with the file.
    let mut bytes = Vec::new();
    let read = file.into_inner().take(size_bytes as u64).read_to_end(&mut bytes);
    read.map_err(|error| Error::new(error.to_string()))?;
    ensure!(bytes.len() == size_bytes, "the array should have {size_bytes} bytes and has {}", bytes.len());
    if element.endianness() == Endianness::Big {
        bytes.chunks_mut(dtype.size_bytes()).for_each(<[u8]>::reverse);
    }
    if header.order() == Order::Fortran {
        bytes = to_row_major(&bytes, &ty.shape, dtype.size_bytes());
    }
    if dtype == DType::Bool {
        // Numpy may hold any byte; a bool here is 0 or 1.
        bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    Ok(Tensor::new(ty, bytes))
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

fn dtype(element: &TypeStr) -> Result<DType> {
    Ok(match (element.type_char(), element.size_field()) {
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
        // How numpy writes the types of ml_dtypes: bfloat16, and all that take a byte.
        (TypeChar::RawData, 2) => DType::BF16,
        (TypeChar::RawData, 1) => DType::U8,
        _ => bail!("elements of type '{element}' are not supported"),
    })
}

/// The tensor as one of type `wanted`, which numpy may not have: from the type that stands for it. Nothing else is converted.
pub fn as_dtype(tensor: Tensor, wanted: DType) -> Result<Tensor> {
    let found = tensor.dtype();
    if found == wanted {
        return Ok(tensor);
    }
    if let Some(format) = wanted.small_float().filter(|_| found == DType::U8) {
        let outside = tensor.data().iter().find(|&&code| u32::from(code) > (format.sign_mask() | format.magnitude_mask()));
        ensure!(outside.is_none(), "the array holds a code that {wanted} does not have");
        return Ok(Tensor::from_codes(TensorType::new(wanted, tensor.shape().clone()), tensor.data()));
    }
    ensure!(stand_in(wanted) == found, "the array holds {found} where {wanted} is needed");
    if wanted.is_packed() && wanted.is_integer() {
        let (low, high) = wanted.integer_range();
        let outside = tensor.numbers().find(|number| !(low..=high).contains(&i128::from(number.as_i64())));
        ensure!(outside.is_none(), "the array holds a value that does not fit into {wanted}");
    }
    Ok(Tensor::from_numbers(TensorType::new(wanted, tensor.shape().clone()), tensor.numbers()))
}

/// The type of numpy that holds the values of `dtype`.
fn stand_in(dtype: DType) -> DType {
    match dtype {
        DType::BF16 => DType::F32,
        DType::I2 | DType::I4 => DType::I8,
        DType::U2 | DType::U4 => DType::U8,
        other if other.small_float().is_some() => DType::F32,
        other => other,
    }
}

/// The bytes of a `.npy` file.
pub fn write(tensor: &Tensor) -> Vec<u8> {
    let stand_in = stand_in(tensor.dtype());
    let (kind, size) = match stand_in {
        DType::Bool => ('b', 1),
        float if float.is_float() => ('f', float.size_bytes()),
        signed if signed.is_signed() => ('i', signed.size_bytes()),
        unsigned => ('u', unsigned.size_bytes()),
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

    fn parse(descr: &str, order: &str, shape: &str, data: &[u8]) -> Result<Tensor> {
        let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let file = [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes(), data].concat();
        from_npy(NpyFile::new(&*file).unwrap())
    }

    #[test]
    fn reads_both_orders() {
        let rows = parse("<i2", "False", "(2, 3)", &[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0]).unwrap();
        assert_eq!(rows, Tensor::from_elements([2, 3], &[1i16, 2, 3, 4, 5, 6]));
        let columns = parse("<i2", "True", "(2, 3)", &[1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6, 0]).unwrap();
        assert_eq!(columns, rows);
        assert_eq!(parse(">i2", "False", "(2, 3)", &[0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6]).unwrap(), rows);
        assert_eq!(parse("<f4", "False", "()", &[0, 0, 0x80, 0x3f]).unwrap(), Tensor::scalar(1.0f32));
        assert_eq!(parse("|b1", "False", "(0, 5)", &[]).unwrap().shape().dims(), [0, 5]);
        assert_eq!(parse("|b1", "False", "(2,)", &[2, 0]).unwrap(), Tensor::from_elements([2], &[true, false]));
    }

    #[test]
    fn refuses_what_it_cannot_hold() {
        let cases = [
            (parse("<f4", "False", "(2,)", &[0; 7]), "should have 8 bytes and has 7"),
            (parse("<c8", "False", "(1,)", &[0; 8]), "not supported"),
            (parse("<f8", "False", "(4611686018427387904,)", &[]), "too large"),
        ];
        for (result, message) in cases {
            let text = result.unwrap_err().to_string();
            assert!(text.contains(message), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for dtype in DType::ALL {
            for dims in [vec![], vec![0], vec![3], vec![2, 3, 2]] {
                let ty = TensorType::new(dtype, dims);
                let range = match dtype {
                    DType::I2 => -2..2,
                    _ if dtype.is_signed() => -7..8,
                    _ => 0..2,
                };
                let numbers: Vec<Number> = range.cycle().take(ty.shape.count()).map(Number::Int).collect();
                let tensor = Tensor::from_numbers(ty, numbers);
                let read = from_npy(NpyFile::new(&write(&tensor)[..]).unwrap()).unwrap();
                assert_eq!(as_dtype(read, dtype).unwrap(), tensor);
            }
        }
        assert!(as_dtype(Tensor::scalar(1i32), DType::I64).is_err());
        assert!(as_dtype(Tensor::scalar(8i8), DType::I4).is_err());
        assert!(as_dtype(Tensor::scalar(16u8), DType::F4E2M1).is_err());
        // As numpy writes a float8_e4m3fn and a float4_e2m1fn of ml_dtypes.
        for (dtype, code) in [(DType::F8E4M3FN, 0x3c), (DType::F4E2M1, 0x3)] {
            let read = as_dtype(parse("<V1", "False", "(3,)", &[code; 3]).unwrap(), dtype).unwrap();
            assert_eq!(read, Tensor::from_numbers(TensorType::new(dtype, [3]), [Number::Float(1.5); 3]));
        }
    }
}
