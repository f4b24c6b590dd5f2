//! The list of operators, and models of one operator: extents of a run that do not fit, and numbers of a file that no memory holds.

use std::collections::{BTreeMap, BTreeSet};

use mcc_support::{Error, Tensor};

use super::*;
use crate::graph::{Graph, interp};
use crate::import::{ImportOptions, import_all_errors};
use crate::onnx::Model;
use crate::onnx::proto::*;
use crate::onnx::tests::{graph, import as opset, model, node, reread, value};

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
    let graph = imported(&reread(&model.proto), &ranges(&[("n", 1, 8)])).expect("can be compiled");
    let x = Tensor::from_elements([4], &[3.0f32, 9.0, 1.0, 5.0]);
    let k = |k: i64| Tensor::from_elements([1], &[k]);
    assert_eq!(run(&graph, &[x.clone(), k(3)]).expect("fits")[0].elements::<f32>(), [9.0, 5.0, 3.0]);
    assert!(run(&graph, &[x.clone(), k(4)]).is_ok());
    refused(run(&graph, &[x, k(5)]), &["'y'", "-1"]);
}

/// The pool looks at its operand after channels were moved to the front.
#[test]
fn a_pool_refuses_the_axis_that_it_cannot_take_wherever_channels_are() {
    let scalars = [("s", DataType::Float), ("z", DataType::Uint8), ("t", DataType::Float), ("u", DataType::Uint8)];
    let pool = |dims: &[&str]| {
        let inputs = [typed("x", DataType::Uint8, dims)].into_iter();
        let inputs = inputs.chain(scalars.iter().map(|&(name, ty)| typed(name, ty, &[]))).collect();
        let attributes =
            vec![int("channels_last", 1), int("ceil_mode", 1), ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
        imported(&model_of("com.microsoft", 1, "QLinearAveragePool", inputs, attributes), &ranges(&[("n", 2, 8)]))
    };
    for dims in [["1", "n", "6", "2"], ["1", "6", "n", "2"]] {
        refused(pool(&dims), &["whose extent is known only at run time"]);
    }
    assert!(pool(&["1", "6", "6", "n"]).is_ok(), "windows do not slide along channels");
}

#[test]
fn a_range_may_end_where_a_run_says_and_options_of_no_use_are_refused() {
    let scalars = |names: [&str; 3]| names.map(|name| typed(name, DataType::Int32, &[])).to_vec();
    let model = model_of("", 13, "Range", scalars(["a", "b", "c"]), vec![]);
    let known = |name: &str, value: i32| (name.to_string(), Tensor::scalar(value));
    let constants = BTreeMap::from([known("a", 1), known("c", 2)]);
    let options = ImportOptions { constants, ..ImportOptions::default() };
    refused(imported(&model, &options), &["'b'", "--max-elements b=N"]);
    let stated = |name: &str| BTreeMap::from([(name.to_string(), vec![8])]);
    let bounded = imported(&model, &ImportOptions { max_elements: stated("b"), ..options.clone() }).expect("can be compiled");
    assert_eq!(run(&bounded, &[Tensor::scalar(6i32)]).expect("fits")[0].elements::<i32>(), [1, 3, 5]);
    refused(run(&bounded, &[Tensor::scalar(9i32)]), &["is 9"]);
    let constants = options.constants.into_iter().chain([known("b", 6)]).collect();
    let options = ImportOptions { max_elements: stated("b"), constants, ..ImportOptions::default() };
    refused(imported(&model, &options), &["--max-elements names 'b'", "no node"]);
    // The size of a window must be known.
    let window = model_of("", 17, "HannWindow", vec![typed("size", DataType::Int64, &[])], vec![]);
    let message = imported(&window, &ImportOptions::default()).expect_err("must be refused");
    assert!(message.contains("--constant size") && !message.contains("--max-elements"), "{message}");
}

#[test]
fn an_element_of_no_category_ends_a_run_where_the_model_asks_for_it() {
    let encoder = |zeros: i64| {
        let attributes = vec![ints("cats_int64s", &[3, 5]), int("zeros", zeros)];
        let model = model_of("ai.onnx.ml", 1, "OneHotEncoder", vec![typed("x", DataType::Int64, &["n"])], attributes);
        imported(&model, &ranges(&[("n", 1, 8)])).expect("can be compiled")
    };
    let x = |x: &[i64]| [Tensor::from_elements([x.len()], x)];
    for zeros in [0, 1] {
        assert_eq!(run(&encoder(zeros), &x(&[5, 3])).expect("known")[0].elements::<f32>(), [0.0, 1.0, 1.0, 0.0]);
    }
    assert_eq!(run(&encoder(1), &x(&[5, 4])).expect("zeros")[0].elements::<f32>(), [0.0, 1.0, 0.0, 0.0]);
    refused(run(&encoder(0), &x(&[5, 4, 7])), &["no category", "is 2"]);
}

/// What a mean of equal numbers errs by would be scaled up to a result.
#[test]
fn equal_numbers_are_normalized_to_zero() {
    for count in [7, 13, 49, 768] {
        let extent = count.to_string();
        let inputs = vec![typed("x", DataType::Float, &["2", &extent]), typed("scale", DataType::Float, &[&extent])];
        let model = model_of("", 17, "LayerNormalization", inputs, Vec::new());
        let graph = imported(&model, &ImportOptions::default()).expect("the model is right");
        let x = Tensor::from_elements([2, count], &[vec![1000.0_f32; count], vec![3.0; count]].concat());
        let y = run(&graph, &[x, Tensor::from_elements([count], &vec![1.0_f32; count])]).expect("inputs of the graph");
        assert_eq!(y[0].elements::<f32>(), vec![0.0; 2 * count], "{count}");
    }
}

#[test]
fn a_default_is_one_value() {
    let list = |name: &str, values: &[i64]| ints(name, values);
    for count in [0usize, 1, 2] {
        let default = TensorProto {
            dims: vec![count as i64],
            data_type: Some(DataType::Int64 as i32),
            int64_data: vec![7; count],
            ..TensorProto::default()
        };
        let default = AttributeProto { t: Some(Box::new(default)), ..attribute("default_tensor", AttributeType::Tensor) };
        let attributes = vec![list("keys_int64s", &[1, 2]), list("values_int64s", &[3, 4]), default];
        let model = model_of("ai.onnx.ml", 4, "LabelEncoder", vec![typed("x", DataType::Int64, &["2"])], attributes);
        match imported(&model, &ImportOptions::default()) {
            Ok(graph) => {
                assert_eq!(count, 1);
                let x = Tensor::from_elements([2], &[2i64, 9]);
                assert_eq!(run(&graph, &[x]).expect("a run")[0].elements::<i64>(), [4, 7]);
            }
            message => refused(message, &["the default is"]),
        }
    }
}

/// Whatever a file says of sizes, nothing panics, or takes memory for them.
#[test]
fn sizes_that_no_memory_holds_are_refused() {
    const HUGE: [i64; 4] = [1 << 40, 1 << 62, i64::MAX, (1 << 62) + 1];
    let tree = |targets: i64| {
        let node = |name: &str| ints(name, &[0]);
        vec![
            int("n_targets", targets),
            node("nodes_treeids"),
            node("nodes_nodeids"),
            node("nodes_featureids"),
            node("nodes_truenodeids"),
            node("nodes_falsenodeids"),
            float_list("nodes_values", &[0.0]),
            AttributeProto { strings: vec![b"LEAF".as_slice().into()], ..attribute("nodes_modes", AttributeType::Strings) },
            node("target_treeids"),
            node("target_nodeids"),
            node("target_ids"),
            float_list("target_weights", &[1.0]),
        ]
    };
    let float = |name: &str, dims: &[&str]| typed(name, DataType::Float, dims);
    let rows = || vec![float("x", &["1", "4"])];
    for huge in HUGE {
        let regions = vec![float("x", &["1", "1", "4", "4"]), float("r", &["1", "4"]), typed("i", DataType::Int64, &["1"])];
        let blocks = vec![float("x", &["1", "4"]), typed("b", DataType::Uint8, &["1"]), float("s", &["1"])];
        let of_bits = |k: i64, n: i64, block: i64| vec![int("K", k), int("N", n), int("block_size", block)];
        let supports = vec![int("n_supports", huge), float_list("rho", &[0.0]), float_list("coefficients", &[1.0])];
        let machine = vec![
            ints("classlabels_ints", &[0, 1]),
            ints("vectors_per_class", &[huge, huge]),
            float_list("rho", &[0.0]),
            float_list("coefficients", &[1.0]),
            float_list("support_vectors", &[1.0]),
            word("kernel_type", "RBF"),
        ];
        let cases = [
            ("ai.onnx.ml", 1, "TreeEnsembleRegressor", rows(), tree(huge)),
            ("ai.onnx.ml", 1, "LinearRegressor", rows(), vec![int("targets", huge), float_list("coefficients", &[1.0])]),
            ("ai.onnx.ml", 1, "SVMRegressor", rows(), [supports, vec![float_list("support_vectors", &[1.0])]].concat()),
            ("ai.onnx.ml", 1, "SVMClassifier", rows(), machine),
            ("", 16, "RoiAlign", regions.clone(), vec![int("output_height", huge), int("output_width", huge)]),
            ("com.microsoft", 1, "MatMulNBits", blocks.clone(), of_bits(huge, 1, 16)),
            ("com.microsoft", 1, "MatMulNBits", blocks.clone(), of_bits(4, huge, 16)),
            ("com.microsoft", 1, "MatMulNBits", blocks.clone(), of_bits(4, 1, huge)),
            ("com.microsoft", 1, "MatMulNBits", blocks, of_bits(huge, 0, 16)),
        ];
        for (domain, version, operator, inputs, attributes) in cases {
            let result = imported(&model_of(domain, version, operator, inputs, attributes), &ImportOptions::default());
            refused(result, &[operator]);
        }
    }
    for (extent, sizes) in [("500000000", None), ("4", Some([i64::MAX, i64::MAX, 6]))] {
        let split = Tensor::from_elements([3], &sizes.unwrap_or_default());
        let given: &[&str] = if sizes.is_some() { &["x", "split"] } else { &["x"] };
        let nodes = vec![node("SplitToSequence", given, &["s"]), node("SequenceLength", &["s"], &["y"])];
        let input = vec![float("x", &[extent]), typed("split", DataType::Int64, &["3"])];
        let parts = GraphProto { input, ..graph(&[], nodes, &["y"]) };
        let options = ImportOptions { constants: BTreeMap::from([("split".into(), split)]), ..ImportOptions::default() };
        refused(imported(&model(parts), &options), &["SplitToSequence", "axis of"]);
    }
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
