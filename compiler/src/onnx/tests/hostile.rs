//! Damaged models: an error or a model, never a panic, and nothing that grows beyond the file.

use bytes::Bytes;
use mcc_support::random::Random;
use prost::Message;

use super::super::proto::*;
use super::super::{FlatGraph, Model, flatten};
use super::{floats, graph, graph_attribute, import, int, node, value};

/// A small model that has a bit of everything.
fn seed() -> ModelProto {
    let mut body = graph(&["k", "cond", "v"], vec![node("Add", &["v", "w"], &["n"])], &["cond", "n"]);
    body.initializer.push(floats("inner", &[2], &[1.0, 2.0]));
    let mut looped = node("Loop", &["m", "", "h"], &["y"]);
    looped.attribute = vec![graph_attribute("body", body)];
    let mut call = NodeProto { domain: Some("local".into()), ..node("F", &["x"], &["h"]) };
    call.attribute = vec![int("axis", 1)];
    let mut inner = node("Softmax", &["a"], &["r"]);
    inner.attribute = vec![AttributeProto { ref_attr_name: Some("axis".into()), r#type: Some(2), ..int("axis", 0) }];
    inner.attribute[0].i = None;
    let function = FunctionProto {
        name: Some("F".into()),
        domain: Some("local".into()),
        input: vec!["a".into()],
        output: vec!["r".into()],
        attribute: vec!["axis".into()],
        node: vec![inner],
        opset_import: vec![import("", 13)],
        ..FunctionProto::default()
    };
    let mut main = graph(&["x", "m"], vec![call, looped], &["y"]);
    main.initializer = vec![floats("w", &[2, 1], &[1.0, 2.0])];
    main.initializer[0].raw_data = Some(vec![0; 8].into());
    main.initializer[0].float_data.clear();
    main.value_info = vec![value("h", &[1, 4])];
    main.sparse_initializer = vec![SparseTensorProto {
        values: Some(floats("s", &[1], &[3.0])),
        indices: Some(TensorProto { dims: vec![1], data_type: Some(7), int64_data: vec![2], ..TensorProto::default() }),
        dims: vec![4],
    }];
    let opset_import = vec![import("", 13), import("local", 1)];
    ModelProto { ir_version: Some(8), opset_import, graph: Some(main), functions: vec![function], ..ModelProto::default() }
}

/// Reads everything that can be read. Returns whether there was no error.
fn exercise(bytes: Bytes) -> bool {
    let Ok(model) = Model::from_bytes(bytes) else { return false };
    let again = Model::from_bytes(model.encode()).expect("what was decoded can be encoded");
    // Not equality of the messages, for NaN differs from itself.
    assert_eq!(again.encode(), model.encode());
    match flatten(&model) {
        Ok(graph) => walk(&graph),
        Err(error) => {
            assert!(!error.message.is_empty());
            false
        }
    }
}

fn walk(graph: &FlatGraph<'_>) -> bool {
    let mut good = true;
    for (name, initializer) in &graph.initializers {
        let (ty, tensor) = (initializer.ty(), initializer.tensor());
        if let (Ok(ty), Ok(tensor)) = (&ty, &tensor) {
            assert_eq!(tensor.ty(), ty, "{name}");
        }
        good &= tensor.is_ok();
    }
    for declared in graph.inputs.iter().chain(&graph.outputs) {
        good &= declared.declared_type().is_ok();
    }
    for node in &graph.nodes {
        let attributes = node.attributes();
        for (name, _) in &node.attributes {
            let read = attributes.int(name).is_ok() || attributes.tensor(name).is_ok() || attributes.graph(name).is_ok();
            good &= read;
        }
        attributes.finish().expect("every attribute was asked for");
        for graph in node.graphs() {
            good &= walk(graph);
        }
    }
    good
}

#[test]
fn damaged_bytes_never_panic() {
    let bytes = seed().encode_to_vec();
    assert!(exercise(bytes.clone().into()), "the model is whole before it is damaged");
    for length in 0..bytes.len() {
        exercise(Bytes::copy_from_slice(&bytes[..length]));
    }
    let mut random = Random::new(1);
    let (mut whole, rounds) = (0, 6000);
    for _ in 0..rounds {
        let mut damaged = bytes.clone();
        for _ in 0..1 + random.below(3) {
            let place = random.below(damaged.len());
            match random.below(5) {
                0 => damaged[place] ^= 1 << random.below(8),
                1 => damaged[place] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
                2 => drop(damaged.remove(place)),
                3 => damaged.insert(place, random.next_u64() as u8),
                _ => {
                    let other = random.below(damaged.len());
                    damaged.swap(place, other);
                }
            }
        }
        whole += usize::from(exercise(damaged.into()));
    }
    // Damage to names that agree, payloads and doc strings is none; most other damage is.
    assert!(whole > 0 && whole < rounds / 2, "{whole} of {rounds} damaged models are readable");
}

/// Lengths that lie, and messages nested without end.
#[test]
fn absurd_sizes_are_refused() {
    let mut nested = Vec::new();
    for _ in 0..5000 {
        // graph { node { attribute { g { … } } } }, outermost last.
        for key in [0x32, 0x2a, 0x0a] {
            let mut outer = vec![key];
            prost::encoding::encode_varint(nested.len() as u64, &mut outer);
            outer.extend(&nested);
            nested = outer;
        }
    }
    let mut deep = vec![0x3a];
    prost::encoding::encode_varint(nested.len() as u64, &mut deep);
    deep.extend(nested);
    let lies: [&[u8]; 3] = [
        &[0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x2a, 0x02],
        &[0x3a, 0x06, 0x2a, 0x04, 0x4a, 0xff, 0xff, 0x03],
    ];
    for bytes in lies.into_iter().chain([deep.as_slice()]) {
        super::refused(Model::from_bytes(Bytes::copy_from_slice(bytes)), &["damaged"]);
    }
}
