//! Every field of the schema survives decoding and encoding, byte for byte.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::super::Model;
use super::super::proto::*;

/// The fields of `onnx.proto`: number, type; `*` repeated, `%` repeated and packed, `|` a case of the message's union.
const SCHEMA: &str = "
ModelProto = 1:int64 2:string 3:string 4:string 5:int64 6:string 7:GraphProto 8:*OperatorSetIdProto 14:*StringStringEntryProto 20:*TrainingInfoProto 25:*FunctionProto 26:*DeviceConfigurationProto
OperatorSetIdProto = 1:string 2:int64
GraphProto = 1:*NodeProto 2:string 5:*TensorProto 10:string 11:*ValueInfoProto 12:*ValueInfoProto 13:*ValueInfoProto 14:*TensorAnnotation 15:*SparseTensorProto 16:*StringStringEntryProto
NodeProto = 1:*string 2:*string 3:string 4:string 5:*AttributeProto 6:string 7:string 8:string 9:*StringStringEntryProto 10:*NodeDeviceConfigurationProto
AttributeProto = 1:string 2:float 3:int64 4:bytes 5:TensorProto 6:GraphProto 7:*float 8:*int64 9:*bytes 10:*TensorProto 11:*GraphProto 13:string 14:TypeProto 15:*TypeProto 20:enum 21:string 22:SparseTensorProto 23:*SparseTensorProto
TensorProto = 1:*int64 2:int32 3:Segment 4:%float 5:%int32 6:*bytes 7:%int64 8:string 9:bytes 10:%double 11:%uint64 12:string 13:*StringStringEntryProto 14:enum 16:*StringStringEntryProto
Segment = 1:int64 2:int64
StringStringEntryProto = 1:string 2:string
SparseTensorProto = 1:TensorProto 2:TensorProto 3:*int64
TypeProto = 1:|TensorTypeProto 4:|SequenceTypeProto 5:|MapTypeProto 7:|OpaqueTypeProto 8:|TensorTypeProto 9:|OptionalTypeProto 6:string
TensorTypeProto = 1:int32 2:TensorShapeProto
TensorShapeProto = 1:*DimensionProto
DimensionProto = 1:|int64 2:|string 3:string
SequenceTypeProto = 1:TypeProto
MapTypeProto = 1:int32 2:TypeProto
OptionalTypeProto = 1:TypeProto
OpaqueTypeProto = 1:string 2:string
NodeDeviceConfigurationProto = 1:string 2:*ShardingSpecProto 3:int32
ShardingSpecProto = 1:string 2:*int64 3:*IntIntListEntryProto 4:*ShardedDimProto
IntIntListEntryProto = 1:int64 2:*int64
ShardedDimProto = 1:int64 2:*SimpleShardedDimProto
SimpleShardedDimProto = 1:|int64 2:|string 3:int64
ValueInfoProto = 1:string 2:TypeProto 3:string 4:*StringStringEntryProto
TensorAnnotation = 1:string 2:*StringStringEntryProto
TrainingInfoProto = 1:GraphProto 2:GraphProto 3:*StringStringEntryProto 4:*StringStringEntryProto
FunctionProto = 1:string 2:int64 3:int32 4:*string 5:*string 6:*string 7:*NodeProto 8:string 9:*OperatorSetIdProto 10:string 11:*AttributeProto 12:*ValueInfoProto 13:string 14:*StringStringEntryProto
DeviceConfigurationProto = 1:string 2:int32 3:*string
";

/// Writes messages of the schema with every field set, down to a depth.
struct Writer {
    messages: BTreeMap<&'static str, Vec<(u32, &'static str)>>,
    /// Which case unions take.
    case: usize,
    /// Makes every value differ from the others.
    count: u64,
}

impl Writer {
    fn message(&mut self, name: &str, depth: usize) -> Vec<u8> {
        let fields = self.messages[name].clone();
        let cases = fields.iter().filter(|(_, ty)| ty.starts_with('|')).count().max(1);
        let mut union = 0;
        let mut out = Vec::new();
        for (number, ty) in fields {
            let scalar = ty.trim_start_matches(['*', '%', '|']);
            let is_message = scalar.starts_with(char::is_uppercase);
            if ty.starts_with('|') {
                union += 1;
                if (union - 1) % cases != self.case % cases {
                    continue;
                }
            }
            if ty.starts_with('%') {
                let mut values = Vec::new();
                (0..3).for_each(|_| self.scalar(scalar, &mut values));
                encode_key(number, WireType::LengthDelimited, &mut out);
                encode_varint(values.len() as u64, &mut out);
                out.extend(values);
                continue;
            }
            for _ in 0..if ty.starts_with('*') { 2 } else { 1 } {
                if is_message {
                    let inner = if depth == 0 { Vec::new() } else { self.message(scalar, depth - 1) };
                    encode_key(number, WireType::LengthDelimited, &mut out);
                    encode_varint(inner.len() as u64, &mut out);
                    out.extend(inner);
                } else {
                    encode_key(number, wire_type(scalar), &mut out);
                    self.scalar(scalar, &mut out);
                }
            }
        }
        out
    }

    fn scalar(&mut self, ty: &str, out: &mut Vec<u8>) {
        self.count += 1;
        match ty {
            "float" => out.extend((self.count as f32).to_le_bytes()),
            "double" => out.extend((self.count as f64).to_le_bytes()),
            "string" | "bytes" => {
                let text = format!("s{}", self.count);
                encode_varint(text.len() as u64, out);
                out.extend(text.bytes());
            }
            "uint64" | "enum" => encode_varint(self.count, out),
            "int64" | "int32" => encode_varint((-(self.count as i64)) as u64, out),
            other => panic!("type {other} of the table"),
        }
    }
}

fn wire_type(scalar: &str) -> WireType {
    match scalar {
        "float" => WireType::ThirtyTwoBit,
        "double" => WireType::SixtyFourBit,
        "string" | "bytes" => WireType::LengthDelimited,
        _ => WireType::Varint,
    }
}

type Recode = fn(Vec<u8>) -> Vec<u8>;

fn recode<M: Message + Default>(bytes: Vec<u8>) -> Vec<u8> {
    M::decode(Bytes::from(bytes)).expect("a message of the schema").encode_to_vec()
}

#[test]
fn every_field_survives() {
    let messages = SCHEMA.trim().lines().map(|line| {
        let (name, fields) = line.split_once(" = ").expect("a line of the table");
        let field = |field: &'static str| {
            let (number, ty) = field.split_once(':').expect("a field of the table");
            (number.parse().expect("a field's number"), ty)
        };
        (name, fields.split(' ').map(field).collect())
    });
    let mut writer = Writer { messages: messages.collect(), case: 0, count: 0 };
    let types: [(&str, Recode); 27] = [
        ("ModelProto", recode::<ModelProto>),
        ("OperatorSetIdProto", recode::<OperatorSetIdProto>),
        ("GraphProto", recode::<GraphProto>),
        ("NodeProto", recode::<NodeProto>),
        ("AttributeProto", recode::<AttributeProto>),
        ("TensorProto", recode::<TensorProto>),
        ("Segment", recode::<Segment>),
        ("StringStringEntryProto", recode::<StringStringEntryProto>),
        ("SparseTensorProto", recode::<SparseTensorProto>),
        ("TypeProto", recode::<TypeProto>),
        ("TensorTypeProto", recode::<TensorTypeProto>),
        ("TensorShapeProto", recode::<TensorShapeProto>),
        ("DimensionProto", recode::<DimensionProto>),
        ("SequenceTypeProto", recode::<SequenceTypeProto>),
        ("MapTypeProto", recode::<MapTypeProto>),
        ("OptionalTypeProto", recode::<OptionalTypeProto>),
        ("OpaqueTypeProto", recode::<OpaqueTypeProto>),
        ("NodeDeviceConfigurationProto", recode::<NodeDeviceConfigurationProto>),
        ("ShardingSpecProto", recode::<ShardingSpecProto>),
        ("IntIntListEntryProto", recode::<IntIntListEntryProto>),
        ("ShardedDimProto", recode::<ShardedDimProto>),
        ("SimpleShardedDimProto", recode::<SimpleShardedDimProto>),
        ("ValueInfoProto", recode::<ValueInfoProto>),
        ("TensorAnnotation", recode::<TensorAnnotation>),
        ("TrainingInfoProto", recode::<TrainingInfoProto>),
        ("FunctionProto", recode::<FunctionProto>),
        ("DeviceConfigurationProto", recode::<DeviceConfigurationProto>),
    ];
    assert_eq!(types.len(), writer.messages.len(), "messages of the table and of this test");
    for (name, recode) in types {
        for case in 0..6 {
            writer.case = case;
            let bytes = writer.message(name, 3);
            assert_eq!(recode(bytes.clone()), bytes, "{name}, case {case}");
        }
    }
}

/// Models that were fetched, where there are any.
fn fetched() -> Vec<PathBuf> {
    let cache = std::env::var_os("MCC_CACHE").map(PathBuf::from);
    let xdg = || std::env::var_os("XDG_CACHE_HOME").map(|folder| PathBuf::from(folder).join("mcc"));
    let home = || std::env::var_os("HOME").map(|folder| PathBuf::from(folder).join(".cache/mcc"));
    let Some(cache) = cache.or_else(xdg).or_else(home) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(cache.join("zoo")) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "onnx"));
    paths.sort();
    paths
}

/// Real models lose nothing: as their writers put fields in order too, the very bytes come back. They can also be made flat,
/// and their initializers read.
#[test]
fn fetched_models_survive() {
    for path in fetched() {
        let model = Model::open(&path).unwrap_or_else(|error| panic!("{error}"));
        let encoded = model.encode();
        let again = Model::from_bytes(encoded.clone()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(again.proto, model.proto, "{}", path.display());
        assert!(std::fs::read(&path).expect("the file was read") == encoded, "{}: bytes written and read", path.display());
        let flat = super::super::flatten(&model).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (name, initializer) in &flat.initializers {
            initializer.tensor().unwrap_or_else(|error| panic!("{}: {name}: {error}", path.display()));
        }
    }
}
