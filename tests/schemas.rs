//! What ONNX defines and mcc does not compile, by the definitions of the onnx package: operators, versions, element types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use mcc::import::{ImportOptions, import};
use mcc::onnx::Model;
use mcc::onnx::proto::{ModelProto, TensorProto, TypeValue, ValueInfoProto};
use mcc::ops;
use mcc_tests::data::{self, OnnxTest, Schema};
use prost::Message;

/// Operators that are not there, and why.
const MISSING: [(&str, &str); 5] = [
    ("ImageDecoder", "files of images are not tensors"),
    ("RegexFullMatch", "strings"),
    ("StringConcat", "strings"),
    ("StringNormalizer", "strings"),
    ("StringSplit", "strings"),
];

/// The first opset whose operators are compiled in full.
const FIRST_OPSET: i64 = 7;

/// The versions of each operator that a model of [`FIRST_OPSET`] or later may mean.
fn versions(schemas: &[Schema]) -> BTreeMap<&str, Vec<i64>> {
    let mut versions: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for schema in schemas {
        let list = versions.entry(&schema.name).or_default();
        if schema.since <= FIRST_OPSET {
            list.clear();
        }
        if !schema.deprecated {
            list.push(schema.since);
        }
    }
    versions.retain(|_, list| !list.is_empty());
    versions
}

#[test]
fn every_operator_and_version_is_there() {
    let schemas = data::schemas();
    let mut ours: BTreeMap<&str, &[i64]> =
        ops::all().filter(|def| def.domain.is_empty()).map(|def| (def.name, def.since)).collect();
    ours.extend(ops::CONTROL.iter().map(|def| (def.name, def.since)));
    let mut wrong = String::new();
    for (name, wanted) in versions(&schemas) {
        let known = MISSING.iter().any(|(missing, _)| *missing == name);
        match ours.get(name) {
            None if known => {}
            None => writeln!(wrong, "{name} {wanted:?} is missing").expect("text grows"),
            Some(_) if known => writeln!(wrong, "{name} is there").expect("text grows"),
            Some(since) if wanted.iter().all(|version| since.contains(version)) => {}
            Some(since) => writeln!(wrong, "{name} has versions {wanted:?}, listed are {since:?}").expect("text grows"),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The schema that is in force in an opset.
fn in_force<'s>(schemas: &'s [Schema], name: &str, opset: i64) -> &'s Schema {
    let mut of_name = schemas.iter().filter(|schema| schema.name == name && schema.since <= opset);
    of_name.next_back().unwrap_or_else(|| panic!("{name} is not in opset {opset}"))
}

/// The names among `values` whose formal parameter is of the type `variable`.
fn of_type<'a>(values: &'a [String], formal: &[String], variable: &str) -> BTreeSet<&'a str> {
    let typed = values.iter().enumerate().filter(|(index, name)| {
        let formal = formal.get(*index).or(formal.last());
        !name.is_empty() && formal.is_some_and(|formal| formal == variable)
    });
    typed.map(|(_, name)| name.as_str()).collect()
}

fn retype(values: &mut [ValueInfoProto], names: &BTreeSet<&str>, data_type: i32) {
    for value in values.iter_mut().filter(|value| names.contains(value.name())) {
        if let Some(TypeValue::Tensor(tensor)) = value.r#type.as_mut().and_then(|ty| ty.value.as_mut()) {
            tensor.elem_type = Some(data_type);
        }
    }
}

/// Models of one node, by operator: the first test, and the one with the most inputs and outputs.
fn samples() -> Vec<(OnnxTest, ModelProto)> {
    let mut samples: BTreeMap<String, Vec<(usize, OnnxTest, ModelProto)>> = BTreeMap::new();
    for test in data::node_tests() {
        let bytes = fs::read(&test.model).expect("a model can be read");
        let model = ModelProto::decode(&*bytes).expect("a model is a message");
        let graph = model.graph.as_ref().expect("a model has a graph");
        let [node] = &graph.node[..] else { continue };
        if !node.domain().is_empty() || test.name.ends_with("_expanded") {
            continue;
        }
        let list = samples.entry(node.op_type().to_string()).or_default();
        let size = node.input.len() + node.output.len();
        match list.len() {
            2 if list[1].0 >= size => {}
            2 => list[1] = (size, test, model),
            1 if list[0].0 >= size => {}
            _ => list.push((size, test, model)),
        }
    }
    samples.into_values().flatten().map(|(_, test, model)| (test, model)).collect()
}

/// The model with another element type for those of its values that have the type `variable`; the other inputs become constants.
fn retyped(test: &OnnxTest, model: &ModelProto, schema: &Schema, variable: &str, data_type: i32) -> Option<ModelProto> {
    let mut model = model.clone();
    let graph = model.graph.as_mut()?;
    let node = graph.node[0].clone();
    let inputs = of_type(&node.input, &schema.inputs, variable);
    let outputs = of_type(&node.output, &schema.outputs, variable);
    let free = |value: &ValueInfoProto| inputs.contains(value.name());
    if !graph.input.iter().any(free) || graph.initializer.iter().any(|tensor| inputs.contains(tensor.name())) {
        return None;
    }
    for (input, path) in graph.input.iter().zip(&test.sets[0].inputs).filter(|(input, _)| !free(input)) {
        let mut tensor = TensorProto::decode(&*fs::read(path).expect("an input can be read")).ok()?;
        tensor.name = input.name.clone();
        graph.initializer.push(tensor);
    }
    graph.input.retain(free);
    retype(&mut graph.input, &inputs, data_type);
    retype(&mut graph.output, &outputs, data_type);
    Some(model)
}

/// What refusals for want of a value that must be known say; they tell nothing about types.
const VALUES: [&str; 3] = ["must be known when", "has to be fixed", "not known"];

/// Every element type that the definition of an operator allows is taken, where mcc has it. `onnx/refused.txt` lists what is not,
/// written by `MCC_BLESS=1`.
#[test]
fn every_element_type_is_taken() {
    let schemas = data::schemas();
    let mut refused: BTreeMap<(String, String, String), BTreeSet<String>> = BTreeMap::new();
    let mut tried = 0;
    for (test, model) in samples() {
        let operator = model.graph.as_ref().expect("a model has a graph").node[0].op_type().to_string();
        if MISSING.iter().any(|(missing, _)| *missing == operator) {
            continue;
        }
        let opset = model.opset_import.iter().find(|import| import.domain().is_empty()).and_then(|import| import.version);
        let schema = in_force(&schemas, &operator, opset.expect("a model has an opset"));
        for (variable, types) in &schema.types {
            for &data_type in types {
                let Ok(dtype) = mcc::onnx::types::dtype(data_type) else { continue };
                let Some(model) = retyped(&test, &model, schema, variable, data_type) else { continue };
                let model = Model::from_bytes(model.encode_to_vec()).expect("the model is well-formed");
                let message = import(&model, &ImportOptions::default()).err().map(|error| error.message);
                if message.as_ref().is_some_and(|message| VALUES.iter().any(|part| message.contains(part))) {
                    continue;
                }
                tried += 1;
                if let Some(message) = message {
                    let reason = message.replace(&dtype.to_string(), "T");
                    refused.entry((operator.clone(), variable.clone(), reason)).or_default().insert(dtype.to_string());
                }
            }
        }
    }
    assert!(tried > 1500, "{tried} types were tried");
    let mut text = String::new();
    for ((operator, variable, reason), types) in refused {
        let types = types.into_iter().collect::<Vec<_>>().join(" ");
        writeln!(text, "{operator} {variable} {types}: {reason}").expect("text grows");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("onnx/refused.txt");
    if std::env::var_os("MCC_BLESS").is_some() {
        fs::write(path, text).expect("the list can be written");
        return;
    }
    assert_eq!(fs::read_to_string(path).expect("the list is committed"), text);
}
