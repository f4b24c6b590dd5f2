//! Tests of reading models, and a few builders of messages for them.

mod functions;
mod graphs;
mod hostile;
mod schema;
mod tensors;

use super::Model;
use super::proto::*;

/// A node without attributes, named after its first output.
pub(crate) fn node(operator: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        name: Some(format!("n_{}", outputs.first().copied().unwrap_or_default())),
        op_type: Some(operator.into()),
        input: inputs.iter().map(|name| name.to_string()).collect(),
        output: outputs.iter().map(|name| name.to_string()).collect(),
        ..NodeProto::default()
    }
}

pub(crate) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        i: Some(value),
        r#type: Some(AttributeType::Int as i32),
        ..AttributeProto::default()
    }
}

/// A graph attribute.
pub(crate) fn graph_attribute(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        g: Some(Box::new(graph)),
        r#type: Some(AttributeType::Graph as i32),
        ..AttributeProto::default()
    }
}

pub(crate) fn floats(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(DataType::Float as i32),
        float_data: values.to_vec(),
        ..TensorProto::default()
    }
}

/// A value of type `f32` with the given extents.
pub(crate) fn value(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = |dim: &i64| DimensionProto { value: Some(DimValue::Value(*dim)), denotation: None };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = TensorTypeProto { elem_type: Some(DataType::Float as i32), shape: Some(shape) };
    let ty = TypeProto { value: Some(TypeValue::Tensor(tensor)), denotation: None };
    ValueInfoProto { name: Some(name.into()), r#type: Some(ty), ..ValueInfoProto::default() }
}

pub(crate) fn graph(inputs: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> GraphProto {
    let values = |names: &[&str]| names.iter().map(|name| value(name, &[1])).collect();
    GraphProto { name: Some("g".into()), node: nodes, input: values(inputs), output: values(outputs), ..GraphProto::default() }
}

pub(crate) fn import(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: Some(domain.into()), version: Some(version) }
}

/// A model of opset 13.
pub(crate) fn model(graph: GraphProto) -> Model {
    let proto =
        ModelProto { ir_version: Some(8), opset_import: vec![import("", 13)], graph: Some(graph), ..ModelProto::default() };
    reread(&proto)
}

/// The model that a file with this message holds.
pub(crate) fn reread(proto: &ModelProto) -> Model {
    let model = Model::from_bytes(prost::Message::encode_to_vec(proto)).expect("the message has a graph");
    assert_eq!(model.proto, *proto, "decoding what was encoded");
    model
}

/// Asserts that a result is an error whose text has all of `words`.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: mcc_support::Result<T>, words: &[&str]) {
    let text = match result {
        Ok(value) => panic!("accepted: {value:?}"),
        Err(error) => error.to_string(),
    };
    for word in words {
        assert!(text.contains(word), "'{word}' is missing in: {text}");
    }
}
