//! Tensors from NumPy's `.npy` files.

use std::io::Read;
use std::path::Path;

use mcc_support::{DType, Error, Result, Shape, Tensor, TensorType, bail, ensure};
use npyz::{Endianness, NpyFile, Order, TypeChar, TypeStr};

/// Reads a file, of little-endian elements in either order.
pub fn read(path: &Path) -> Result<Tensor> {
    let context = |error: Error| error.context(format!("in {}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| context(Error::new(error.to_string())))?;
    let file = NpyFile::new(std::io::BufReader::new(file)).map_err(|error| context(Error::new(error.to_string())))?;
    from_npy(file).map_err(context)
}

/// Reads the elements behind a header, which may be that of an archive's member.
pub fn from_npy<R: Read>(file: NpyFile<R>) -> Result<Tensor> {
    let header = file.header().clone();
    let npyz::DType::Plain(element) = header.dtype() else { bail!("the array has records, not plain elements") };
    let dtype = dtype(&element)?;
    let dims: Vec<usize> = header.shape().iter().map(|&dim| dim as usize).collect();
    ensure!(element.endianness() != Endianness::Big, "elements of type '{element}' are big-endian");
    let columns_first = header.order() == Order::Fortran;
    let stored: Shape = if columns_first { dims.iter().rev().copied().collect() } else { dims.clone().into() };
    let ty = TensorType::new(dtype, stored);
    let Some(size_bytes) = ty.checked_size_bytes() else { bail!("the array of shape {} is too large", ty.shape) };
    let mut data = Vec::new();
    file.into_inner().take(size_bytes as u64).read_to_end(&mut data).map_err(|error| Error::new(error.to_string()))?;
    ensure!(data.len() == size_bytes, "the array should have {size_bytes} bytes and has {}", data.len());
    let tensor = Tensor::new(ty, data);
    Ok(if columns_first { transposed(&tensor) } else { tensor })
}

/// Reverses the dimensions.
fn transposed(tensor: &Tensor) -> Tensor {
    let shape: Shape = tensor.shape().iter().rev().copied().collect();
    let (strides, size) = (tensor.shape().strides(), tensor.dtype().size_bytes());
    let mut data = Vec::with_capacity(tensor.data().len());
    shape.for_each_index(|index| {
        let at: usize = index.iter().rev().zip(&strides).map(|(position, stride)| position * stride).sum();
        data.extend_from_slice(&tensor.data()[at * size..][..size]);
    });
    Tensor::new(TensorType::new(tensor.dtype(), shape), data)
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
        // How NumPy writes the bfloat16 of ml_dtypes.
        (TypeChar::RawData, 2) => DType::BF16,
        _ => bail!("elements of type '{element}' are not supported"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(descr: &str, order: &str, shape: &str, data: &[u8]) -> Result<Tensor> {
        let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((text.len() as u16).to_le_bytes());
        file.extend_from_slice(text.as_bytes());
        file.extend_from_slice(data);
        from_npy(NpyFile::new(&*file).unwrap())
    }

    #[test]
    fn reads_both_orders() {
        let rows = parse("<i2", "False", "(2, 3)", &[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0]).unwrap();
        assert_eq!(rows, Tensor::from_elements([2, 3], &[1i16, 2, 3, 4, 5, 6]));
        let columns = parse("<i2", "True", "(2, 3)", &[1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6, 0]).unwrap();
        assert_eq!(columns, rows);
        assert_eq!(parse("<f4", "False", "()", &[0, 0, 0x80, 0x3f]).unwrap(), Tensor::scalar(1.0f32));
        assert_eq!(parse("|b1", "False", "(0, 5)", &[]).unwrap().shape().dims(), [0, 5]);
    }

    #[test]
    fn refuses_what_it_cannot_hold() {
        let cases = [
            (parse("<f4", "False", "(2,)", &[0; 7]), "should have 8 bytes and has 7"),
            (parse(">f4", "False", "(1,)", &[0; 4]), "big-endian"),
            (parse("<c8", "False", "(1,)", &[0; 8]), "not supported"),
            (parse("<f8", "False", "(4611686018427387904,)", &[]), "too large"),
        ];
        for (result, message) in cases {
            let text = result.unwrap_err().to_string();
            assert!(text.contains(message), "{text}");
        }
    }
}
