//! Shapes that the user fixes, constants, and what is said of models that cannot be compiled.

use std::fmt;

use mcc_support::{Error, Tensor};

use super::*;
use crate::onnx::proto::*;
use crate::onnx::tests::{graph, graph_attribute, import as opset, model, node, reread, value};

/// `x f32[batch,3]` and `flag bool`, with `y = x + x` and `z`, which is `y` or `−y`.
fn sample() -> Model {
    let mut x = value("x", &[0, 3]);
    let Some(TypeValue::Tensor(ty)) = x.r#type.as_mut().and_then(|ty| ty.value.as_mut()) else { panic!("a tensor") };
    ty.shape.as_mut().expect("a shape").dim[0].value = Some(DimValue::Param("batch".into()));
    let mut flag = value("flag", &[]);
    let Some(TypeValue::Tensor(ty)) = flag.r#type.as_mut().and_then(|ty| ty.value.as_mut()) else { panic!("a tensor") };
    ty.elem_type = Some(DataType::Bool as i32);
    let branch = |operator: &str, output: &str| graph(&[], vec![node(operator, &["y"], &[output])], &[output]);
    let mut choice = node("If", &["flag"], &["z"]);
    choice.attribute =
        vec![graph_attribute("then_branch", branch("Identity", "t")), graph_attribute("else_branch", branch("Neg", "e"))];
    let mut outputs = vec![value("z", &[2, 3])];
    outputs[0].r#type = x.r#type.clone();
    let nodes = vec![node("Add", &["x", "x"], &["y"]), choice];
    model(GraphProto { name: Some("sample".into()), node: nodes, input: vec![x, flag], output: outputs, ..GraphProto::default() })
}

fn options(shapes: &[(&str, &[usize])], dims: &[(&str, usize)], constants: &[(&str, Tensor)]) -> ImportOptions {
    ImportOptions {
        name: None,
        shapes: shapes.iter().map(|(name, shape)| (name.to_string(), shape.to_vec())).collect(),
        dims: dims.iter().map(|(name, extent)| (name.to_string(), *extent)).collect(),
        constants: constants.iter().map(|(name, tensor)| (name.to_string(), tensor.clone())).collect(),
        ..ImportOptions::default()
    }
}

#[track_caller]
fn refused<T: fmt::Debug>(result: Result<T, Vec<Error>>, words: &[&str]) {
    let message = result.expect_err("must be refused").iter().map(|error| error.to_string()).collect::<Vec<_>>().join("\n");
    for word in words {
        assert!(message.contains(word), "'{word}' is missing in: {message}");
    }
}

#[test]
fn options_fix_what_is_dynamic() {
    for options in [options(&[("x", &[2, 3])], &[], &[]), options(&[], &[("batch", 2)], &[])] {
        let (graph, warnings) = import(&sample(), &options).expect("can be compiled");
        assert_eq!((graph.name.as_str(), graph.inputs.len(), warnings.len()), ("sample", 2, 0));
        assert_eq!(graph.ty(graph.outputs[0].1).to_string(), "f32[2,3]");
    }
}

#[test]
fn a_branch_that_is_known_replaces_the_choice() {
    for (flag, nodes) in [(true, 1), (false, 2)] {
        let options = options(&[], &[("batch", 2)], &[("flag", Tensor::scalar(flag))]);
        let (graph, _) = import(&sample(), &options).expect("can be compiled");
        assert_eq!((graph.inputs.len(), graph.live_nodes().count()), (1, nodes), "flag {flag}");
        assert_eq!(graph.values[graph.outputs[0].1].origin.operator, if flag { "Add" } else { "Neg" });
    }
}

#[test]
fn a_branch_that_does_not_fit_is_told_with_its_node() {
    let mut model = sample();
    let graph = model.proto.graph.as_mut().expect("a graph");
    let Some(branch) = &mut graph.node[1].attribute[0].g else { panic!("a branch") };
    branch.node[0] = node("MatMul", &["y", "y"], &["t"]);
    let (graph, warnings) = import(&reread(&model.proto), &options(&[], &[("batch", 2)], &[])).expect("can be compiled");
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert!(told[0].contains("node 'n_z' (If") && told[0].contains("where the condition is true"), "{told:?}");
    let checks: Vec<&str> = graph.lengths.checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!((told.len(), checks), (1, vec!["z"]));
}

/// A loop of three rounds, in each of which the body is built.
#[test]
fn what_is_odd_about_a_node_in_a_loop_is_told_once() {
    let shape = AttributeProto {
        name: Some("shape".into()),
        ints: vec![2],
        r#type: Some(AttributeType::Ints as i32),
        ..AttributeProto::default()
    };
    let random = NodeProto { attribute: vec![shape], ..node("RandomUniform", &[], &["r"]) };
    let typed = |name: &str, ty: DataType, dims: &[i64]| {
        let mut value = value(name, dims);
        let Some(TypeValue::Tensor(tensor)) = value.r#type.as_mut().and_then(|ty| ty.value.as_mut()) else { panic!("a tensor") };
        tensor.elem_type = Some(ty as i32);
        value
    };
    let nodes = vec![random.clone(), node("Add", &["a", "r"], &["b"]), node("Identity", &["go"], &["on"])];
    let body = GraphProto {
        input: vec![typed("i", DataType::Int64, &[]), typed("go", DataType::Bool, &[]), value("a", &[2])],
        ..graph(&[], nodes, &["on", "b"])
    };
    let rounds = TensorProto {
        name: Some("n".into()),
        data_type: Some(DataType::Int64 as i32),
        int64_data: vec![3],
        ..TensorProto::default()
    };
    let mut repeat = node("Loop", &["n", "", "x"], &["y"]);
    repeat.attribute = vec![graph_attribute("body", body)];
    let outer = NodeProto { output: vec!["z".into()], ..random };
    let graph = GraphProto {
        input: vec![value("x", &[2])],
        output: vec![value("y", &[2]), value("z", &[2])],
        initializer: vec![rounds],
        ..graph(&[], vec![repeat, outer], &[])
    };
    let (_, warnings) = import(&model(graph), &ImportOptions::default()).expect("can be compiled");
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert!(told.len() == 1 && told[0].contains("node 'n_r' (RandomUniform") && told[0].contains("round"), "{told:?}");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let fixed: &[(&str, usize)] = &[("batch", 2)];
    let flag = Tensor::scalar(1.0f32);
    let ranged =
        ImportOptions { ranges: BTreeMap::from([("batch".to_string(), (1, 8))]), ..options(&[("x", &[2, 3])], &[], &[]) };
    let cases: [(ImportOptions, &[&str]); 7] = [
        (options(&[], &[], &[]), &["'x' f32[batch,3]", "--shape x=DIM,3", "--dim batch=DIM"]),
        (options(&[("w", &[1])], fixed, &[]), &["--shape", "'w'", "'x', 'flag'"]),
        (options(&[], &[("batch", 2), ("time", 1)], &[]), &["--dim", "'time'", "batch"]),
        (options(&[("x", &[2])], &[], &[]), &["'x'", "f32[batch,3]", "1 dims"]),
        (options(&[], fixed, &[("flag", flag)]), &["'flag'", "bool[]", "f32[]"]),
        (ranged, &["'x'", "'batch'", "2 by --shape", "1..8 by --dim"]),
        (options(&[("x", &[1 << 40, 3])], &[], &[]), &["'x'", "larger than"]),
    ];
    for (options, words) in cases {
        refused(import_all_errors(&sample(), &options), words);
    }
}

#[test]
fn other_shapes_than_declared_are_a_warning_only_where_the_user_asked() {
    let declared = |output: &[i64]| {
        let graph = graph(&[], vec![node("Relu", &["x"], &["y"])], &[]);
        model(GraphProto { input: vec![value("x", &[2, 3])], output: vec![value("y", output)], ..graph })
    };
    let (graph, warnings) = import(&declared(&[2, 3]), &options(&[("x", &[5, 3])], &[], &[])).expect("can be compiled");
    assert_eq!(graph.ty(graph.outputs[0].1).to_string(), "f32[5,3]");
    assert_eq!(warnings.len(), 2, "of the input and of the output: {warnings:?}");
    for output in [&[2, 4][..], &[2, 3, 1]] {
        refused(import_all_errors(&declared(output), &ImportOptions::default()), &["'y'", "f32[2,3]"]);
    }
    let (_, warnings) = import(&declared(&[2, -1, 3]), &ImportOptions::default()).expect("no contract, for an extent is open");
    assert!(matches!(&warnings[..], [warning] if warning.message.contains("f32[2,3]")), "{warnings:?}");
}

/// A classifier whose labels are strings, and maps of labels to scores.
#[test]
fn labels_that_are_strings_become_numbers_and_maps_tensors() {
    let list = |name: &str, floats: &[f32], strings: &[&'static str]| AttributeProto {
        name: Some(name.into()),
        floats: floats.to_vec(),
        strings: strings.iter().map(|string| string.as_bytes().into()).collect(),
        ..AttributeProto::default()
    };
    let labels = ["setosa", "virginica"];
    let ml = |operator: &str, inputs: &[&str], outputs: &[&str], attributes: Vec<AttributeProto>| NodeProto {
        domain: Some("ai.onnx.ml".into()),
        attribute: attributes,
        ..node(operator, inputs, outputs)
    };
    let attributes = vec![
        list("coefficients", &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0], &[]),
        list("intercepts", &[0.0, 0.5], &[]),
        list("classlabels_strings", &[], &labels),
    ];
    let nodes = vec![
        ml("LinearClassifier", &["x"], &["label", "scores"], attributes),
        ml("ZipMap", &["scores"], &["maps"], vec![list("classlabels_strings", &[], &labels)]),
    ];
    let mut outputs = vec![value("label", &[2]), value("maps", &[2])];
    outputs[0].r#type.as_mut().expect("a type").value =
        Some(TypeValue::Tensor(TensorTypeProto { elem_type: Some(DataType::String as i32), ..TensorTypeProto::default() }));
    outputs[1].r#type.as_mut().expect("a type").value = Some(TypeValue::Sequence(SequenceTypeProto::default()));
    let graph = GraphProto { input: vec![value("x", &[2, 3])], output: outputs, ..graph(&[], nodes, &[]) };
    let imports = vec![opset("", 13), opset("ai.onnx.ml", 1)];
    let proto = ModelProto { ir_version: Some(8), opset_import: imports, graph: Some(graph), ..ModelProto::default() };
    let (graph, warnings) = import(&reread(&proto), &ImportOptions::default()).expect("can be compiled");
    let types: Vec<String> = graph.outputs.iter().map(|(_, output)| graph.ty(*output).to_string()).collect();
    assert_eq!(types, ["i64[2]", "f32[2,2]"]);
    let told = warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for words in ["1 is 'virginica'", "'setosa', 'virginica'", "'label' is computed as i64[2]", "'maps' is computed as f32[2,2]"]
    {
        assert!(told.contains(words), "'{words}' is missing in: {told}");
    }
}

#[test]
fn all_that_stops_a_model_is_told_at_once() {
    let nodes = vec![
        node("Frobnicate", &["x"], &["a"]),
        node("Relu", &["a"], &["b"]),
        node("Nonsense", &["b"], &["c"]),
        node("Reshape", &["x", "x"], &["d"]),
    ];
    let result = import_all_errors(&model(graph(&["x"], nodes, &["c", "d"])), &ImportOptions::default());
    assert_eq!(result.as_ref().expect_err("must be refused").len(), 3);
    refused(result, &["node 'n_a' (Frobnicate, opset 13)", "node 'n_c' (Nonsense", "node 'n_d' (Reshape", "`--constant x="]);
}
