//! The list of operators, and models of one operator: extents of a run that do not fit, and numbers of a file that no memory holds.

use std::collections::{BTreeMap, BTreeSet};

use mcc_support::{Error, Tensor};

use super::*;
use crate::graph::{Graph, interp};
use crate::import::{ImportOptions, import_all_errors};
use crate::onnx::proto::*;
use crate::onnx::tests::{graph, import as opset, node, reread, value};
use crate::onnx::Model;

/// An input or output with dims that are numbers or names.
fn typed(name: &str, ty: DataType, dims: &[&str]) -> ValueInfoProto {
    let mut typed = value(name, &vec![0; dims.len()]);
    let Some(TypeValue::Tensor(tensor)) = typed.r#type.as_mut().and_then(|ty| ty.value.as_mut()) else { panic!("a tensor") };
    tensor.elem_type = Some(ty as i32);
    for (place, dim) in tensor.shape.iter_mut().flat_map(|shape| &mut shape.dim).zip(dims) {
        let number = dim.parse().map(DimValue::Value);
        place.value = Some(number.unwrap_or_else(|_| DimValue::Param(dim.to_string())));
    }
    typed
}

fn attribute(name: &str, ty: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(ty as i32), ..AttributeProto::default() }
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, AttributeType::Int) }
}

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto { ints: values.to_vec(), ..attribute(name, AttributeType::Ints) }
}

fn float_list(name: &str, values: &[f32]) -> AttributeProto {
    AttributeProto { floats: values.to_vec(), ..attribute(name, AttributeType::Floats) }
}

fn word(name: &str, value: &'static str) -> AttributeProto {
    AttributeProto { s: Some(value.as_bytes().into()), ..attribute(name, AttributeType::String) }
}

/// A model of one node with these inputs, and one output `y`.
fn model_of(domain: &str, version: i64, operator: &str, inputs: Vec<ValueInfoProto>, attributes: Vec<AttributeProto>) -> Model {
    let names: Vec<&str> = inputs.iter().map(|input| input.name()).collect();
    let one = NodeProto { domain: Some(domain.into()), attribute: attributes, ..node(operator, &names, &["y"]) };
    let mut output = value("y", &[]);
    output.r#type = None;
    let graph = GraphProto { input: inputs, output: vec![output], ..graph(&[], vec![one], &[]) };
    let mut imports = vec![opset("", if domain.is_empty() { version } else { 13 })];
    imports.extend((!domain.is_empty()).then(|| opset(domain, version)));
    reread(&ModelProto { ir_version: Some(8), opset_import: imports, graph: Some(graph), ..ModelProto::default() })
}

fn ranges(ranges: &[(&str, usize, usize)]) -> ImportOptions {
    let ranges = ranges.iter().map(|&(name, least, most)| (name.to_string(), (least, most)));
    ImportOptions { ranges: ranges.collect(), ..ImportOptions::default() }
}

/// The graph, or all that stops it.
fn imported(model: &Model, options: &ImportOptions) -> std::result::Result<Graph, String> {
    let text = |errors: Vec<Error>| errors.iter().map(|error| format!("{error} {:?}", error.help)).collect::<Vec<_>>().join("\n");
    import_all_errors(model, options).map(|(graph, _)| graph).map_err(text)
}

fn run(graph: &Graph, inputs: &[Tensor]) -> std::result::Result<Vec<Tensor>, String> {
    let outputs = interp::run(graph, &graph.expand(inputs).expect("inputs that fit")).expect("a run");
    graph.contract(inputs, outputs).map_err(|error| error.to_string())
}

#[track_caller]
fn refused<T: fmt::Debug>(result: std::result::Result<T, String>, words: &[&str]) {
    let message = result.expect_err("must be refused");
    for word in words {
        assert!(message.contains(word), "'{word}' is missing in: {message}");
    }
}

/// `k` and the extent that it is of are both known only at run time.
#[test]
fn a_run_that_wants_more_elements_than_there_are_has_no_result() {
    let inputs = vec![typed("x", DataType::Float, &["n"]), typed("k", DataType::Int64, &["1"])];
    let mut model = model_of("", 11, "TopK", inputs, vec![]);
    model.proto.graph.as_mut().expect("a graph").node[0].output.push("at".into());
    let options = ImportOptions { max_elements: BTreeMap::from([("k".into(), vec![6])]), ..ranges(&[("n", 1, 8)]) };
    let graph = imported(&reread(&model.proto), &options).expect("can be compiled");
    let x = Tensor::from_elements([4], &[3.0f32, 9.0, 1.0, 5.0]);
    let k = |k: i64| Tensor::from_elements([1], &[k]);
    assert_eq!(run(&graph, &[x.clone(), k(3)]).expect("fits")[0].elements::<f32>(), [9.0, 5.0, 3.0]);
    assert!(run(&graph, &[x.clone(), k(4)]).is_ok());
    refused(run(&graph, &[x, k(5)]), &["'y'", "-1"]);
}


#[test]
fn every_record_is_well_formed_and_unique() {
    let mut names = BTreeSet::new();
    for def in all() {
        assert!(names.insert(def.full_name()), "{def:?} is listed twice");
        assert!(!def.since.is_empty() && def.since.is_sorted_by(|a, b| a < b), "{def:?}");
    }
}

#[test]
fn unknown_operators_and_versions_are_refused_with_advice() {
    let unknown = lookup("", "Nonsense", 13).unwrap_err().to_string();
    assert!(unknown.contains("the operator Nonsense is not supported"), "{unknown}");
    for def in all() {
        assert!(std::ptr::eq(lookup(def.domain, def.name, def.since[0]).unwrap(), def));
        let early = lookup(def.domain, def.name, def.since[0] - 1).unwrap_err().to_string();
        assert!(early.contains(&def.since[0].to_string()), "{early}");
    }
}
