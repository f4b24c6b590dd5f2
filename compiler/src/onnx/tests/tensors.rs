//! Values of tensors: every type and field, external files, and what is refused.

use std::fs;

use bytes::Bytes;
use half::{bf16, f16};
use mcc_support::tensor::Number;
use mcc_support::{DType, Tensor};

use super::super::external::ExternalFiles;
use super::super::proto::*;
use super::super::tensor::{densify, tensor};
use super::super::types::{DeclaredType, dtype};
use super::{floats, model, refused};

fn raw(data_type: DataType, dims: &[i64], bytes: impl Into<Bytes>) -> TensorProto {
    TensorProto {
        name: Some("w".into()),
        dims: dims.to_vec(),
        data_type: Some(data_type as i32),
        raw_data: Some(bytes.into()),
        ..TensorProto::default()
    }
}

fn typed(data_type: DataType, dims: &[i64], fill: impl FnOnce(&mut TensorProto)) -> TensorProto {
    let mut proto = raw(data_type, dims, Bytes::new());
    proto.raw_data = None;
    fill(&mut proto);
    proto
}

fn ints(data_type: DataType, dims: &[i64], values: &[i32]) -> TensorProto {
    typed(data_type, dims, |proto| proto.int32_data = values.to_vec())
}

fn read(proto: &TensorProto) -> mcc_support::Result<Tensor> {
    tensor(proto, &ExternalFiles::none())
}

/// Each type from its own field and from raw bytes gives the same numbers.
#[test]
fn typed_fields_and_raw_bytes_agree() {
    let int = |value: i64| Number::Int(value);
    let half_bits = [f16::from_f32(1.5), f16::from_f32(-2.0)].map(f16::to_bits);
    let bf16_bits = [bf16::from_f32(1.5), bf16::from_f32(-2.0)].map(bf16::to_bits);
    let bits = |values: [u16; 2]| values.map(i32::from);
    let cases: Vec<(TensorProto, DType, Vec<Number>)> = vec![
        (floats("w", &[2], &[1.5, -2.0]), DType::F32, vec![Number::Float(1.5), Number::Float(-2.0)]),
        (typed(DataType::Double, &[1], |p| p.double_data = vec![0.1]), DType::F64, vec![Number::Float(0.1)]),
        (typed(DataType::Int64, &[2], |p| p.int64_data = vec![i64::MIN, 7]), DType::I64, vec![int(i64::MIN), int(7)]),
        (typed(DataType::Uint64, &[1], |p| p.uint64_data = vec![u64::MAX]), DType::U64, vec![Number::UInt(u64::MAX)]),
        (typed(DataType::Uint32, &[1], |p| p.uint64_data = vec![0xffff_ffff]), DType::U32, vec![int(0xffff_ffff)]),
        (ints(DataType::Int32, &[2], &[i32::MIN, 5]), DType::I32, vec![int(i32::MIN.into()), int(5)]),
        (ints(DataType::Int16, &[2], &[-32768, 5]), DType::I16, vec![int(-32768), int(5)]),
        (ints(DataType::Uint16, &[1], &[65535]), DType::U16, vec![int(65535)]),
        (ints(DataType::Int8, &[2], &[-128, 127]), DType::I8, vec![int(-128), int(127)]),
        (ints(DataType::Uint8, &[2], &[0, 255]), DType::U8, vec![int(0), int(255)]),
        (ints(DataType::Bool, &[3], &[0, 1, 256]), DType::Bool, vec![int(0), int(1), int(1)]),
        (ints(DataType::Float16, &[2], &bits(half_bits)), DType::F16, vec![Number::Float(1.5), Number::Float(-2.0)]),
        (ints(DataType::Bfloat16, &[2], &bits(bf16_bits)), DType::BF16, vec![Number::Float(1.5), Number::Float(-2.0)]),
        (ints(DataType::Int4, &[3], &[0x7f, 0x08]), DType::I4, vec![int(-1), int(7), int(-8)]),
        (ints(DataType::Uint4, &[3], &[0x7f, 0xf8]), DType::U4, vec![int(15), int(7), int(8)]),
        (ints(DataType::Int2, &[5], &[0b01_11_10_00, 0b1111]), DType::I2, [0, -2, -1, 1, -1].map(int).to_vec()),
        (ints(DataType::Uint2, &[2], &[0b1001]), DType::U2, vec![int(1), int(2)]),
        (ints(DataType::Float4E2M1, &[3], &[0x72, 0xf9]), DType::F4E2M1, [1.0, 6.0, -0.5].map(Number::Float).to_vec()),
        (ints(DataType::Float8E4M3FN, &[2], &[0x7e, -2]), DType::F8E4M3FN, [448.0, -448.0].map(Number::Float).to_vec()),
        (ints(DataType::Float8E8M0, &[1], &[126]), DType::F8E8M0, vec![Number::Float(0.5)]),
        (ints(DataType::Int32, &[], &[9]), DType::I32, vec![int(9)]),
        (ints(DataType::Int32, &[2, 0, 3], &[]), DType::I32, vec![]),
    ];
    for (proto, dtype, numbers) in cases {
        let from_field = read(&proto).unwrap_or_else(|error| panic!("{dtype}: {error}"));
        assert_eq!(from_field.dtype(), dtype);
        assert_eq!(from_field.numbers().collect::<Vec<_>>(), numbers, "{dtype} from its field");
        let data_type = DataType::try_from(proto.data_type()).expect("a type of the schema");
        let from_raw = read(&raw(data_type, &proto.dims, from_field.data().clone())).expect("the same bytes");
        assert_eq!(from_raw, from_field, "{dtype} from raw bytes");
    }
}

/// Unused bits of the last byte and bytes other than 0 and 1 mean nothing, and are not there afterwards.
#[test]
fn raw_bytes_are_made_canonical() {
    let odd = read(&raw(DataType::Uint4, &[3], vec![0x21, 0xf3])).expect("three elements");
    assert_eq!(odd.data().as_ref(), [0x21, 0x03]);
    let flags = read(&raw(DataType::Bool, &[3], vec![0, 2, 255])).expect("three elements");
    assert_eq!(flags.data().as_ref(), [0, 1, 1]);
}

#[test]
fn payloads_share_the_buffer_of_the_model() {
    let graph = GraphProto { initializer: vec![raw(DataType::Float, &[64], vec![1; 256])], ..GraphProto::default() };
    let bytes = Bytes::from(model(graph).encode());
    let model = super::Model::from_bytes(bytes.clone()).expect("what was written");
    let proto = &model.proto.graph.as_ref().expect("a graph").initializer[0];
    let value = model.tensor(proto).expect("64 elements");
    assert!(bytes.as_ptr_range().contains(&value.data().as_ptr()), "the payload was copied");
}

#[test]
fn contradictions_are_refused() {
    let mut twice = floats("w", &[1], &[1.0]);
    twice.raw_data = Some(vec![0; 4].into());
    let mut segment = floats("w", &[1], &[1.0]);
    segment.segment = Some(Segment { begin: Some(0), end: Some(1) });
    let mut place = floats("w", &[1], &[1.0]);
    place.data_location = Some(7);
    let huge = i64::MAX / 2;
    let cases: Vec<(TensorProto, &[&str])> = vec![
        (raw(DataType::Float, &[3], vec![0; 8]), &["'w'", "8 bytes", "12"]),
        (raw(DataType::Float, &[3], vec![0; 16]), &["'w'", "16 bytes", "12"]),
        (raw(DataType::Int4, &[3], vec![0; 3]), &["'w'", "3 bytes", "2"]),
        (floats("w", &[3], &[1.0, 2.0]), &["'w'", "float_data", "2 elements (8 bytes)", "3 (12 bytes)"]),
        (floats("w", &[3], &[]), &["'w'", "0 elements", "12 bytes"]),
        (floats("w", &[-3], &[]), &["'w'", "negative", "-3"]),
        (floats("w", &[huge, 0, huge], &[]), &["'w'", "too large"]),
        (floats("w", &[huge, huge], &[1.0]), &["'w'", "too large"]),
        (floats("w", &[1 << 40], &[1.0]), &["'w'", "1 elements"]),
        (typed(DataType::Float, &[1], |p| p.int64_data = vec![1]), &["'w'", "int64_data", "float_data"]),
        (typed(DataType::Uint32, &[1], |p| p.uint64_data = vec![1 << 32]), &["'w'", "4294967296", "u32"]),
        (ints(DataType::Int8, &[1], &[200]), &["'w'", "200", "i8"]),
        (ints(DataType::Uint8, &[1], &[-1]), &["'w'", "-1", "u8"]),
        (ints(DataType::Float16, &[1], &[65536]), &["'w'", "65536", "f16"]),
        (twice, &["'w'", "twice", "float_data"]),
        (segment, &["'w'", "segments"]),
        (place, &["'w'", "location 7"]),
        (typed(DataType::String, &[1], |p| p.string_data = vec!["a".into()]), &["'w'", "type string"]),
        (ints(DataType::Float8E4M3FN, &[1], &[256]), &["'w'", "256", "f8e4m3fn"]),
        (raw(DataType::Complex64, &[1], vec![0; 8]), &["'w'", "complex64"]),
        (raw(DataType::Uint2, &[5], vec![0]), &["'w'", "1 bytes", "2"]),
        (raw(DataType::Undefined, &[1], vec![0]), &["'w'", "no element type"]),
        (TensorProto { data_type: Some(99), ..floats("w", &[1], &[1.0]) }, &["'w'", "99"]),
    ];
    for (proto, words) in cases {
        refused(read(&proto), words);
    }
}

fn external(entries: &[(&str, &str)]) -> TensorProto {
    let entry =
        |(key, value): &(&str, &str)| StringStringEntryProto { key: Some(key.to_string()), value: Some(value.to_string()) };
    TensorProto {
        external_data: entries.iter().map(entry).collect(),
        data_location: Some(DataLocation::External as i32),
        ..floats("w", &[3], &[])
    }
}

#[test]
fn external_files_are_read_inside_the_folder_only() {
    let outer = tempfile::tempdir().expect("a folder");
    let folder = outer.path().join("model");
    fs::create_dir_all(folder.join("sub")).expect("a folder");
    let payload: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let padded = [vec![9; 4], payload.clone(), vec![9; 4]].concat();
    for (path, bytes) in [("model/w.bin", &payload), ("model/sub/p.bin", &padded), ("outside.bin", &payload)] {
        fs::write(outer.path().join(path), bytes).expect("a file");
    }
    fs::write(folder.join("empty.bin"), b"").expect("a file");
    #[cfg(unix)]
    std::os::unix::fs::symlink("../outside.bin", folder.join("link.bin")).expect("a link");
    #[cfg(unix)]
    std::os::unix::fs::symlink("sub/p.bin", folder.join("inner.bin")).expect("a link");
    let files = ExternalFiles::in_folder(&folder);

    let mut good: Vec<&[(&str, &str)]> = vec![
        &[("location", "w.bin")],
        &[("location", "./w.bin"), ("offset", "0"), ("length", "12"), ("checksum", "of no interest")],
        &[("location", "sub/p.bin"), ("offset", "4"), ("length", "12")],
    ];
    let mut bad: Vec<(&[(&str, &str)], &[&str])> = vec![
        (&[], &["'w'", "no location"]),
        (&[("location", "")], &["'w'", "no location"]),
        (&[("location", "none.bin")], &["'w'", "'none.bin'", "cannot read"]),
        (&[("location", "../outside.bin")], &["'w'", "'../outside.bin'", ".."]),
        (&[("location", "sub/../w.bin")], &["'w'", "'sub/../w.bin'", ".."]),
        (&[("location", "/etc/passwd")], &["'w'", "'/etc/passwd'", "relative"]),
        (&[("location", "sub")], &["'w'", "'sub'", "regular file"]),
        (&[("location", "empty.bin")], &["'w'", "'empty.bin'", "12"]),
        (&[("location", "w.bin"), ("offset", "-4")], &["'w'", "offset", "-4"]),
        (&[("location", "w.bin"), ("offset", "99999999999999999999")], &["'w'", "offset"]),
        (&[("location", "w.bin"), ("offset", "18446744073709551615")], &["'w'", "'w.bin'", "past the end"]),
        (&[("location", "w.bin"), ("length", "8")], &["'w'", "'w.bin'", "8", "12"]),
        (&[("location", "w.bin"), ("length", "x")], &["'w'", "length", "'x'"]),
        (&[("location", "w.bin"), ("offset", "4"), ("length", "12")], &["'w'", "'w.bin'", "offset 4"]),
        (&[("location", "sub/p.bin")], &["'w'", "'sub/p.bin'", "no length", "20", "12"]),
        (&[("location", "w.bin"), ("location", "w.bin")], &["'w'", "two locations"]),
    ];
    if cfg!(unix) {
        good.push(&[("location", "inner.bin"), ("offset", "4"), ("length", "12")]);
        bad.push((&[("location", "link.bin")], &["'w'", "'link.bin'", "symbolic link"]));
    }
    for entries in good {
        let value = tensor(&external(entries), &files).unwrap_or_else(|error| panic!("{entries:?}: {error}"));
        assert_eq!(value.elements::<f32>(), [1.0, 2.0, 3.0], "{entries:?}");
    }
    for (entries, words) in bad {
        refused(tensor(&external(entries), &files), words);
    }
    refused(read(&external(&[("location", "w.bin")])), &["'w'", "'w.bin'", "not read from a file"]);
    // Two tensors of one file share one mapping.
    let share = |offset: &str| {
        tensor(&external(&[("location", "sub/p.bin"), ("offset", offset), ("length", "12")]), &files).expect("a payload")
    };
    assert_eq!(share("8").data().as_ptr() as usize - share("4").data().as_ptr() as usize, 4);
}

#[test]
fn sparse_tensors_become_dense() {
    let sparse = |dims: &[i64], indices: &[i64], index_dims: &[i64]| SparseTensorProto {
        values: Some(floats("w", &[2], &[5.0, 6.0])),
        indices: Some(typed(DataType::Int64, index_dims, |proto| proto.int64_data = indices.to_vec())),
        dims: dims.to_vec(),
    };
    let files = ExternalFiles::none();
    let wanted = [0.0, 5.0, 0.0, 0.0, 0.0, 6.0];
    for proto in [sparse(&[2, 3], &[1, 5], &[2]), sparse(&[2, 3], &[0, 1, 1, 2], &[2, 2])] {
        assert_eq!(densify(&proto, &files).expect("a sparse tensor").elements::<f32>(), wanted);
    }
    let cases: [(SparseTensorProto, &[&str]); 7] = [
        (sparse(&[2, 3], &[1, 6], &[2]), &["'w'", "out of range"]),
        (sparse(&[2, 3], &[0, 1, 1, 3], &[2, 2]), &["'w'", "out of range"]),
        (sparse(&[2, 3], &[-1, 5], &[2]), &["'w'", "out of range"]),
        (sparse(&[2, 3], &[5, 1], &[2]), &["'w'", "ascend"]),
        (sparse(&[2, 3], &[1, 2, 3], &[3]), &["'w'", "[3]"]),
        (sparse(&[1 << 20, 1 << 20], &[1, 5], &[2]), &["'w'", "too large"]),
        (SparseTensorProto::default(), &["needs values"]),
    ];
    for (proto, words) in cases {
        refused(densify(&proto, &files), words);
    }
}

#[test]
fn declared_types() {
    let tensor = |dims: Option<Vec<Option<DimValue>>>| {
        let shape = dims.map(|dims| TensorShapeProto {
            dim: dims.into_iter().map(|value| DimensionProto { value, denotation: None }).collect(),
        });
        let tensor = TensorTypeProto { elem_type: Some(DataType::Float as i32), shape };
        DeclaredType::from_proto(&TypeProto { value: Some(TypeValue::Tensor(tensor)), denotation: None }).expect("a tensor type")
    };
    let (three, minus, batch) = (DimValue::Value(3), DimValue::Value(-1), DimValue::Param("batch".into()));
    let cases = [
        (tensor(None), "f32[..]", None),
        (tensor(Some(vec![])), "f32[]", Some("f32[]")),
        (tensor(Some(vec![Some(three.clone()), Some(three.clone())])), "f32[3,3]", Some("f32[3,3]")),
        (tensor(Some(vec![Some(batch), Some(three), Some(minus), None])), "f32[batch,3,_,_]", None),
    ];
    for (ty, text, known) in cases {
        assert_eq!(ty.to_string(), text);
        assert_eq!(ty.known().map(|ty| ty.to_string()).as_deref(), known);
    }
    let sequence = TypeValue::Sequence(SequenceTypeProto { elem_type: None });
    refused(DeclaredType::from_proto(&TypeProto { value: Some(sequence), denotation: None }), &["a sequence"]);
    refused(DeclaredType::from_proto(&TypeProto::default()), &["empty"]);
}

/// Every type number of the schema is known or refused by name.
#[test]
fn type_numbers() {
    let known = (0..=26).filter(|&number| dtype(number).is_ok()).count();
    assert_eq!(known, DType::ALL.len());
    refused(dtype(8), &["string"]);
    refused(dtype(27), &["27"]);
    refused(dtype(-1), &["-1"]);
}
