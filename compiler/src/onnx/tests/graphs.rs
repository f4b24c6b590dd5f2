//! Graphs without functions: definitions, order, versions, attributes, files.

use std::fs;

use super::super::proto::*;
use super::super::{FlatGraph, Model, flatten};
use super::{floats, graph, graph_attribute, import, int, model, node, refused, reread, value};

fn names(graph: &FlatGraph<'_>) -> Vec<String> {
    graph.nodes.iter().map(|node| node.outputs[0].clone()).collect()
}

#[test]
fn nodes_keep_their_order_where_it_is_one() {
    let nodes = || vec![node("Relu", &["x"], &["a"]), node("Relu", &["x"], &["b"]), node("Add", &["a", "b"], &["y"])];
    assert_eq!(names(&flatten(&model(graph(&["x"], nodes(), &["y"]))).expect("a graph")), ["a", "b", "y"]);
    let mut unordered = nodes();
    unordered.reverse();
    assert_eq!(names(&flatten(&model(graph(&["x"], unordered, &["y"]))).expect("a graph")), ["b", "a", "y"]);
}

#[test]
fn initializers_are_constants_even_when_listed_as_inputs() {
    let mut proto = graph(&["x", "w"], vec![node("Add", &["x", "w"], &["y"])], &["y"]);
    proto.initializer.push(floats("w", &[1], &[3.0]));
    proto.value_info.push(value("w", &[7]));
    let model = model(proto);
    let flat = flatten(&model).expect("a graph");
    assert_eq!(flat.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>(), ["x"]);
    assert_eq!(flat.initializers["w"].tensor().expect("a value").elements::<f32>(), [3.0]);
    assert_eq!(flat.initializers["w"].ty().expect("a type").to_string(), "f32[1]");
    assert_eq!(flat.declared_type("y").expect("a tensor").expect("declared").to_string(), "f32[1]");
    assert_eq!(flat.declared_type("nothing").expect("no type"), None);
}

#[test]
fn empty_names_are_kept_inside_and_dropped_at_the_end() {
    let mut clip = node("Clip", &["x", "", "m", "", ""], &["y", "", ""]);
    clip.name = None;
    let mut proto = graph(&["x", "m"], vec![clip], &["y"]);
    proto.node[0].domain = Some("ai.onnx".into());
    let model = model(proto);
    let flat = flatten(&model).expect("a graph");
    let node = &flat.nodes[0];
    assert_eq!(node.inputs, ["x", "", "m"]);
    assert_eq!(node.outputs, ["y"]);
    let reference = node.reference();
    assert_eq!((reference.name.as_str(), reference.operator.as_str(), reference.opset), ("y", "Clip", 13));
}

#[test]
fn bad_graphs_are_refused() {
    let relu = |input: &str, output: &str| node("Relu", &[input], &[output]);
    let mut subgraph_cycle = node("If", &["c"], &["a"]);
    subgraph_cycle.attribute.push(graph_attribute("then_branch", graph(&[], vec![relu("b", "t")], &["t"])));
    let mut repeated = graph(&["x"], vec![relu("x", "y")], &["y"]);
    repeated.initializer = vec![floats("w", &[1], &[1.0]), floats("w", &[1], &[1.0])];
    let mut nameless = graph(&["x"], vec![relu("x", "y")], &["y"]);
    nameless.initializer = vec![floats("", &[1], &[1.0])];
    let cases: Vec<(GraphProto, &[&str])> = vec![
        (graph(&["x"], vec![node("Add", &["x", "b"], &["a"]), relu("a", "b")], &["b"]), &["cycle", "n_a", "n_b"]),
        (graph(&["x"], vec![relu("y", "y")], &["y"]), &["cycle", "'y'"]),
        (graph(&["c"], vec![subgraph_cycle, relu("a", "b")], &["b"]), &["cycle", "n_a", "n_b"]),
        (graph(&["x"], vec![relu("ghost", "y")], &["y"]), &["ghost", "n_y"]),
        (graph(&["x"], vec![relu("x", "z")], &["y"]), &["output 'y'"]),
        (graph(&["x"], vec![relu("x", "y"), relu("x", "y")], &["y"]), &["'y'", "twice", "n_y"]),
        (graph(&["x"], vec![relu("x", "x")], &["x"]), &["'x'", "twice", "n_x"]),
        (graph(&["x", "x"], vec![relu("x", "y")], &["y"]), &["'x'", "twice"]),
        (graph(&["x"], vec![relu("x", "y")], &["y", "y"]), &["'y'", "output twice"]),
        (graph(&[""], vec![], &[]), &["no name"]),
        (graph(&["x"], vec![node("", &["x"], &["y"])], &["y"]), &["n_y", "no operator"]),
        (repeated, &["'w'", "twice"]),
        (nameless, &["no name"]),
    ];
    for (proto, words) in cases {
        refused(flatten(&model(proto)), words);
    }
}

#[test]
fn subgraphs_say_what_they_capture() {
    let mut inner = node("If", &["c"], &["i"]);
    inner.attribute.push(graph_attribute("then_branch", graph(&[], vec![node("Relu", &["late"], &["d"])], &["d"])));
    let mut body = graph(&["k"], vec![inner, node("Add", &["k", "w"], &["s"])], &["s", "x"]);
    body.initializer.push(floats("w", &[1], &[1.0]));
    let mut outer = node("Loop", &["x"], &["y"]);
    outer.attribute.push(graph_attribute("body", body));
    // The value that the innermost graph reads is made after the node in the file.
    let model = model(graph(&["x", "c"], vec![outer, node("Relu", &["x"], &["late"])], &["y"]));
    let flat = flatten(&model).expect("a graph");
    assert_eq!(names(&flat), ["late", "y"]);
    let node = &flat.nodes[1];
    let body = node.attributes().graph("body").expect("a graph").expect("an attribute");
    assert_eq!(body.captured.iter().collect::<Vec<_>>(), ["c", "late", "x"]);
    assert_eq!(node.reads().collect::<Vec<_>>(), ["x", "c", "late", "x"]);
    assert_eq!(body.nodes[0].graphs().next().expect("a subgraph").captured.iter().collect::<Vec<_>>(), ["late"]);
}

#[test]
fn versions_are_checked() {
    let with = |ir: Option<i64>, imports: Vec<OperatorSetIdProto>| {
        let graph = Some(graph(&["x"], vec![node("Relu", &["x"], &["y"])], &["y"]));
        reread(&ModelProto { ir_version: ir, opset_import: imports, graph, ..ModelProto::default() })
    };
    for (ir, opset) in [(3, 7), (13, 27), (4, 9)] {
        let model = with(Some(ir), vec![import("", opset)]);
        assert_eq!(flatten(&model).expect("a known version").nodes[0].opset, opset);
    }
    let both = with(Some(8), vec![import("", 13), import("ai.onnx", 13)]);
    assert_eq!(flatten(&both).expect("one version").nodes[0].opset, 13);
    let cases: [(Option<i64>, Vec<OperatorSetIdProto>, &[&str]); 7] = [
        (None, vec![import("", 13)], &["no IR version"]),
        (Some(2), vec![import("", 13)], &["IR version 2", "3 to 13", "help"]),
        (Some(14), vec![import("", 13)], &["IR version 14", "3 to 13", "help"]),
        (Some(8), vec![import("", 0)], &["opset 0", "1 to 27", "help"]),
        (Some(8), vec![import("", 9999)], &["opset 9999", "1 to 27", "help"]),
        (Some(8), vec![import("", 13), import("ai.onnx", 12)], &["two versions"]),
        (Some(8), vec![import("com.microsoft", 1)], &["n_y", "not imported"]),
    ];
    for (ir, imports, words) in cases {
        refused(flatten(&with(ir, imports)), words);
    }
}

fn attribute(name: &str, fill: impl FnOnce(&mut AttributeProto)) -> AttributeProto {
    let mut attribute = AttributeProto { name: Some(name.into()), ..AttributeProto::default() };
    fill(&mut attribute);
    attribute
}

fn with_attributes(attributes: Vec<AttributeProto>) -> Model {
    let mut relu = node("Relu", &["x"], &["y"]);
    relu.attribute = attributes;
    model(graph(&["x"], vec![relu], &["y"]))
}

#[test]
fn attributes_are_read_by_kind() {
    let model = with_attributes(vec![
        int("axis", -1),
        attribute("zero", |a| a.r#type = Some(AttributeType::Int as i32)),
        attribute("untyped", |a| a.f = Some(0.5)),
        attribute("mode", |a| a.s = Some("linear".into())),
        attribute("pads", |a| a.ints = vec![1, 2]),
        attribute("none", |a| a.r#type = Some(AttributeType::Floats as i32)),
        attribute("words", |a| a.strings = vec!["a".into(), "b".into()]),
        attribute("value", |a| a.t = Some(Box::new(floats("", &[2], &[1.0, 2.0])))),
        attribute("bytes", |a| a.s = Some(vec![0xff].into())),
    ]);
    let flat = flatten(&model).expect("a graph");
    let attributes = flat.nodes[0].attributes();
    assert_eq!(attributes.int("axis").expect("an integer"), Some(-1));
    assert_eq!(attributes.int("zero").expect("an integer"), Some(0));
    assert_eq!(attributes.int_or("absent", 4).expect("a default"), 4);
    assert_eq!(attributes.float_or("untyped", 1.0).expect("a float"), 0.5);
    assert_eq!(attributes.string_or("mode", "nearest").expect("a string"), "linear");
    assert_eq!(attributes.word("mode", &["nearest", "linear"]).expect("a word"), "linear");
    assert_eq!(attributes.word("absent", &["nearest", "linear"]).expect("a word"), "nearest");
    assert_eq!(attributes.ints("pads").expect("integers"), Some(vec![1, 2]));
    assert_eq!(attributes.floats("none").expect("floats"), Some(vec![]));
    assert_eq!(attributes.strings("words").expect("strings"), Some(vec!["a", "b"]));
    assert_eq!(attributes.tensor("value").expect("a tensor").expect("given").elements::<f32>(), [1.0, 2.0]);
    refused(attributes.finish(), &["n_y", "Relu", "no attribute 'bytes'", "opset 13"]);
    refused(attributes.string("bytes"), &["n_y", "'bytes'", "UTF-8"]);
    attributes.finish().expect("every attribute was read");

    refused(attributes.int("mode"), &["n_y", "'mode'", "an integer", "a string"]);
    refused(attributes.tensor("pads"), &["n_y", "'pads'", "a tensor", "a list of integers"]);
    refused(attributes.graph("pads"), &["n_y", "'pads'", "a graph"]);
    refused(attributes.word("mode", &["nearest", "cubic"]), &["n_y", "'mode'", "'linear'", "nearest, cubic"]);
    refused(attributes.required("to", attributes.int("to").expect("no attribute")), &["n_y", "'to'", "missing"]);
    refused(attributes.dtype("axis"), &["n_y", "'axis'", "-1"]);
    refused(flat.nodes[0].attributes().finish(), &["attributes 'axis', 'zero'"]);
}

#[test]
fn attributes_that_contradict_themselves_are_refused() {
    let cases: Vec<(Vec<AttributeProto>, &[&str])> = vec![
        (vec![int("a", 1), int("a", 1)], &["n_y", "'a'", "twice"]),
        (vec![attribute("a", |_| ())], &["n_y", "'a'", "neither"]),
        (vec![attribute("a", |a| (a.i, a.f) = (Some(1), Some(1.0)))], &["n_y", "'a'", "two values", "float", "int"]),
        (vec![attribute("a", |a| (a.i, a.r#type) = (Some(1), Some(1)))], &["n_y", "'a'", "type float", "type int"]),
        (vec![attribute("a", |a| a.r#type = Some(4))], &["n_y", "'a'", "no value"]),
        (vec![attribute("a", |a| a.r#type = Some(77))], &["n_y", "'a'", "77"]),
        (vec![attribute("a", |a| a.ref_attr_name = Some("b".into()))], &["n_y", "'a'", "'b'", "no function"]),
        (vec![attribute("a", |a| a.graphs = vec![GraphProto::default()])], &["n_y", "'a'", "graphs"]),
    ];
    for (attributes, words) in cases {
        refused(flatten(&with_attributes(attributes)), words);
    }
}

#[test]
fn files_that_are_no_models_are_named_for_what_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    // A character is cut where the look at the start ends.
    let long = "ü".repeat(300).replacen('ü', "u", 1);
    let cases: [(&[u8], &[&str]); 9] = [
        (b"", &["empty"]),
        (b"hello, this is no model\n", &["text"]),
        (long.as_bytes(), &["text"]),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", &["Git LFS", "git lfs pull"]),
        (b"PK\x03\x04rest", &["zip", "torch.onnx.export"]),
        (b"\x1c\0\0\0TFL3rest", &["TensorFlow Lite"]),
        (b"\x89HDF\r\n", &["HDF5"]),
        (b"\x08\x08\x3a\x7frest", &["damaged"]),
        (b"\x08\x08", &["no graph"]),
    ];
    for (bytes, words) in cases {
        fs::write(&path, bytes).expect("a file");
        refused(Model::open(&path), words);
        refused(Model::open(&path), &["in file", &path.display().to_string()]);
    }
    refused(Model::open(folder.path()), &["a folder"]);
    refused(Model::open(folder.path().join("absent")), &["cannot read", "absent"]);
}

#[test]
fn models_are_saved_and_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.onnx");
    let mut model = with_attributes(vec![int("a", 1)]);
    model.save(&path).expect("a folder to write to");
    let again = Model::open(&path).expect("the model");
    assert_eq!(again.proto, model.proto);
    assert_eq!(again.sha256(), model.sha256());
    assert_eq!(again.folder(), Some(folder.path()));
    assert_eq!(model.folder(), None);
    model.proto.producer_name = Some("edited".into());
    model.save(&path).expect("a file to replace");
    assert_eq!(Model::open(&path).expect("the model").proto, model.proto);
    assert_ne!(Model::open(&path).expect("the model").sha256(), model.sha256());
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1, "no temporary file is left");
    refused(model.save(folder.path().join("absent/m.onnx")), &["cannot write", "absent/m.onnx"]);
}
