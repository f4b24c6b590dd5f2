//! Model-local functions, inlined.

use super::super::attributes::AttributeValue;
use super::super::proto::*;
use super::super::{FlatGraph, Model, flatten};
use super::{graph, graph_attribute, import, int, node, refused, reread};

fn function(name: &str, inputs: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> FunctionProto {
    let strings = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    FunctionProto {
        name: Some(name.into()),
        domain: Some("local".into()),
        input: strings(inputs),
        output: strings(outputs),
        node: nodes,
        opset_import: vec![import("", 17), import("local", 1)],
        ..FunctionProto::default()
    }
}

fn call(name: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto { domain: Some("local".into()), ..node(name, inputs, outputs) }
}

/// An attribute that stands for one of the function's.
fn reference(name: &str, of: &str) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        ref_attr_name: Some(of.into()),
        r#type: Some(AttributeType::Int as i32),
        ..AttributeProto::default()
    }
}

fn with(mut node: NodeProto, attributes: Vec<AttributeProto>) -> NodeProto {
    node.attribute = attributes;
    node
}

fn model(functions: Vec<FunctionProto>, graph: GraphProto) -> Model {
    reread(&ModelProto {
        ir_version: Some(8),
        opset_import: vec![import("", 13), import("local", 1)],
        graph: Some(graph),
        functions,
        ..ModelProto::default()
    })
}

/// One line per node: `outputs = operator-opset(inputs) attributes`.
fn text(graph: &FlatGraph<'_>) -> Vec<String> {
    let attribute = |(name, value): &(&str, AttributeValue<'_>)| match value {
        AttributeValue::Int(value) => format!(" {name}={value}"),
        AttributeValue::Graph(graph) => format!(" {name}={{{}}}", text(graph).join("; ")),
        other => format!(" {name} is {}", other.kind()),
    };
    let line = |node: &super::super::Node<'_>| {
        let attributes: String = node.attributes.iter().map(attribute).collect();
        format!("{} = {}-{}({}){attributes}", node.outputs.join(","), node.operator, node.opset, node.inputs.join(","))
    };
    graph.nodes.iter().map(line).collect()
}

#[track_caller]
fn check(model: &Model, wanted: &[&str]) {
    assert_eq!(text(&flatten(model).unwrap_or_else(|error| panic!("{error}"))), wanted);
}

#[test]
fn two_calls_have_names_of_their_own() {
    let f = function("F", &["a", "b"], vec![node("Mul", &["a", "a"], &["t"]), node("Add", &["t", "b"], &["r"])], &["t", "r"]);
    let calls = vec![call("F", &["x", "x"], &["p", "q"]), call("F", &["q", "p"], &["", "y"])];
    let model = model(vec![f], graph(&["x"], calls, &["y"]));
    check(&model, &["p = Mul-17(x,x)", "q = Add-17(p,x)", "n_/t = Mul-17(q,q)", "y = Add-17(n_/t,p)"]);
    assert_eq!(flatten(&model).expect("a graph").nodes[3].name, "n_/n_r");
}

#[test]
fn new_names_avoid_those_of_the_model() {
    let f = || function("F", &["a"], vec![node("Neg", &["a"], &["t"]), node("Neg", &["t"], &["r"])], &["r"]);
    let mut second = call("F", &["p"], &["q"]);
    second.name = Some("n_p".into());
    let nodes = vec![node("Neg", &["x"], &["n_p/t"]), call("F", &["n_p/t"], &["p"]), second];
    check(
        &model(vec![f()], graph(&["x"], nodes, &["q"])),
        &["n_p/t = Neg-13(x)", "n_p/t_2 = Neg-17(n_p/t)", "p = Neg-17(n_p/t_2)", "n_p_2/t = Neg-17(p)", "q = Neg-17(n_p_2/t)"],
    );
}

#[test]
fn attributes_are_passed_defaulted_and_left_out() {
    let body = vec![with(
        node("Op", &["a"], &["r"]),
        vec![reference("x", "given"), reference("y", "default"), reference("z", "absent")],
    )];
    let mut f = function("F", &["a"], body, &["r"]);
    f.attribute = vec!["given".into(), "absent".into()];
    f.attribute_proto = vec![int("default", 7)];
    let g = function("G", &["a"], vec![with(call("F", &["a"], &["r"]), vec![reference("given", "own")])], &["r"]);
    let g = FunctionProto { attribute: vec!["own".into()], ..g };
    let nodes = vec![
        with(call("F", &["x"], &["p"]), vec![int("given", 1)]),
        with(call("F", &["x"], &["q"]), vec![int("given", 2), int("default", 3)]),
        with(call("G", &["x"], &["r"]), vec![int("own", 4)]),
    ];
    let model = model(vec![f, g], graph(&["x"], nodes, &["p", "q", "r"]));
    check(&model, &["p = Op-17(x) x=1 y=7", "q = Op-17(x) x=2 y=3", "r = Op-17(x) x=4 y=7"]);
}

#[test]
fn left_out_inputs_and_outputs_stay_left_out() {
    let body = vec![node("Op", &["a", "b", "c"], &["r", "s"]), node("Neg", &["r"], &["t"])];
    let f = function("F", &["a", "b", "c"], body, &["s", "t"]);
    let model =
        model(vec![f], graph(&["x"], vec![call("F", &["x", "", "x"], &["p"]), call("F", &["x"], &["", "q"])], &["p", "q"]));
    check(&model, &["n_p/r,p = Op-17(x,,x)", "n_p/t = Neg-17(n_p/r)", "n_/r,n_/s = Op-17(x)", "q = Neg-17(n_/r)"]);
}

#[test]
fn outputs_that_are_inputs_or_repeated_are_copied() {
    let f = function("F", &["a"], vec![node("Neg", &["a"], &["r"])], &["a", "r", "r"]);
    let model = model(vec![f], graph(&["x"], vec![call("F", &["x"], &["p", "q", "s"])], &["p", "q", "s"]));
    check(&model, &["q = Neg-17(x)", "p = Identity-17(x)", "s = Identity-17(q)"]);
}

#[test]
fn subgraphs_see_the_names_around_them() {
    let branch = |name: &str| graph(&[], vec![with(node("Op", &["a", "t"], &[name]), vec![reference("x", "given")])], &[name]);
    let body = vec![
        node("Neg", &["a"], &["t"]),
        with(node("If", &["c"], &["r"]), vec![graph_attribute("then", branch("u")), graph_attribute("else", branch("u"))]),
    ];
    let mut f = function("F", &["c", "a"], body, &["r"]);
    f.attribute = vec!["given".into()];
    let nodes = vec![with(call("F", &["x", "x"], &["y"]), vec![int("given", 5)])];
    let inlined = "n_y/u = Op-17(x,n_y/t) x=5";
    let line = format!("y = If-17(x) then={{{inlined}}} else={{{inlined}}}");
    check(&model(vec![f], graph(&["x"], nodes, &["y"])), &["n_y/t = Neg-17(x)", &line]);
}

#[test]
fn calls_inside_of_subgraphs_and_graphs_as_arguments() {
    let f = || function("F", &["a"], vec![node("Neg", &["a"], &["r"])], &["r"]);
    let inner = graph(&[], vec![call("F", &["x"], &["u"])], &["u"]);
    let caller = graph(&["x"], vec![with(node("If", &["x"], &["y"]), vec![graph_attribute("then", inner.clone())])], &["y"]);
    check(&model(vec![f()], caller), &["y = If-13(x) then={u = Neg-17(x)}"]);

    let mut branch = reference("then", "branch");
    branch.r#type = Some(AttributeType::Graph as i32);
    let mut g = function("G", &["c"], vec![with(node("If", &["c"], &["r"]), vec![branch])], &["r"]);
    g.attribute = vec!["branch".into()];
    let passed = graph(&["x"], vec![with(call("G", &["x"], &["y"]), vec![graph_attribute("branch", inner)])], &["y"]);
    check(&model(vec![f(), g], passed), &["y = If-17(x) then={u = Neg-17(x)}"]);
}

#[test]
fn overloads_and_the_default_domain() {
    let mut f = function("F", &["a"], vec![node("Neg", &["a"], &["r"])], &["r"]);
    f.overload = Some("half".into());
    let g = function("F", &["a"], vec![node("Abs", &["a"], &["r"])], &["r"]);
    let mut own_relu = function("Relu", &["a"], vec![node("Sqrt", &["a"], &["r"])], &["r"]);
    own_relu.domain = Some("ai.onnx".into());
    let mut half = call("F", &["x"], &["p"]);
    half.overload = Some("half".into());
    let nodes = vec![half, call("F", &["x"], &["q"]), node("Relu", &["x"], &["r"])];
    check(
        &model(vec![f, g, own_relu], graph(&["x"], nodes, &["p", "q", "r"])),
        &["p = Neg-17(x)", "q = Abs-17(x)", "r = Sqrt-17(x)"],
    );
}

#[test]
fn bad_functions_are_refused() {
    let neg = |input: &str, output: &str| node("Neg", &[input], &[output]);
    let main = |node: NodeProto| graph(&["x"], vec![node], &["y"]);
    let plain = || function("F", &["a"], vec![neg("a", "r")], &["r"]);
    let f = |nodes: Vec<NodeProto>| function("F", &["a"], nodes, &["r"]);
    let simple = || call("F", &["x"], &["y"]);
    let mut missing = simple();
    missing.overload = Some("half".into());
    let mut typed = f(vec![with(neg("a", "r"), vec![reference("x", "given")])]);
    typed.attribute = vec!["given".into()];
    let mut text = reference("given", "");
    (text.r#type, text.ref_attr_name, text.s) = (Some(AttributeType::String as i32), None, Some("s".into()));
    let mut future = plain();
    future.opset_import = vec![import("", 99)];
    let shadow = graph_attribute("then", graph(&[], vec![neg("a", "a")], &["a"]));
    let cases: Vec<(Vec<FunctionProto>, GraphProto, &[&str])> = vec![
        (vec![f(vec![call("F", &["a"], &["r"])])], main(simple()), &["'F' calls itself", "n_r"]),
        (
            vec![f(vec![call("G", &["a"], &["r"])]), function("G", &["a"], vec![call("F", &["a"], &["r"])], &["r"])],
            main(simple()),
            &["'F' calls itself", "function 'G'", "n_y"],
        ),
        (vec![plain(), plain()], main(simple()), &["two functions 'F'"]),
        (vec![plain()], main(call("F", &["x", "x"], &["y"])), &["'F'", "1 inputs, not 2", "n_y"]),
        (vec![plain()], main(call("F", &["x"], &["y", "z"])), &["'F'", "1 outputs, not 2", "n_y"]),
        (vec![plain()], main(with(simple(), vec![int("k", 1)])), &["'F' has no attribute 'k'", "n_y"]),
        (vec![plain()], main(missing), &["n_y", "F:half"]),
        (vec![f(vec![with(neg("a", "r"), vec![reference("x", "k")])])], main(simple()), &["'F' has no attribute 'k'", "n_r"]),
        (vec![typed], main(with(simple(), vec![text])), &["'x'", "'given'", "a string"]),
        (vec![f(vec![neg("ghost", "r")])], main(simple()), &["n_y/ghost", "n_y/n_r"]),
        (vec![f(vec![neg("r", "t"), neg("t", "r")])], main(simple()), &["cycle"]),
        (vec![f(vec![])], main(simple()), &["'y'"]),
        (vec![f(vec![neg("a", "a")])], main(simple()), &["'F' gives its input 'a' a value"]),
        (vec![f(vec![with(neg("a", "r"), vec![shadow])])], main(simple()), &["'F' gives its input 'a' a value"]),
        (vec![future], main(simple()), &["opset 99", "'F'"]),
        (vec![function("F", &["a", "a"], vec![neg("a", "r")], &["r"])], main(simple()), &["two inputs 'a'"]),
    ];
    for (functions, graph, words) in cases {
        refused(flatten(&model(functions, graph)), words);
    }
}

/// Calls within calls double the nodes per function, or nest one deeper: both are bounded.
#[test]
fn expansion_is_bounded() {
    let chain = |count: usize, width: usize| {
        let next = |level: usize| {
            let callee = format!("F{}", level + 1);
            let link = |index: usize| {
                if index == 0 {
                    "a".to_string()
                } else if index == width {
                    "r".into()
                } else {
                    format!("t{index}")
                }
            };
            let calls = (0..width).map(|index| match level + 1 < count {
                true => call(&callee, &[&link(index)], &[&link(index + 1)]),
                false => node("Neg", &[&link(index)], &[&link(index + 1)]),
            });
            function(&format!("F{level}"), &["a"], calls.collect(), &["r"])
        };
        model((0..count).map(next).collect(), graph(&["x"], vec![call("F0", &["x"], &["y"])], &["y"]))
    };
    assert_eq!(flatten(&chain(10, 2)).expect("1024 nodes").nodes.len(), 1024);
    assert_eq!(flatten(&chain(60, 1)).expect("a deep chain").nodes.len(), 1);
    refused(flatten(&chain(40, 2)), &["expand to"]);
    let mut empty = chain(40, 2);
    empty.proto.functions[39].node.clear();
    refused(flatten(&empty), &["expand to"]);
    refused(flatten(&chain(1000, 1)), &["nest deeper"]);
}
