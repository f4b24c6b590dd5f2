//! Dimensions that are known only at run time: the ONNX node tests with extents of their inputs made dimensions that a run is told.
//!
//! A model may be refused; what is compiled must be right, though it has room for more elements and those hold NaN and -1.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::{fs, iter, panic};

use mcc::driver::{Options, Silent, compile, compile_graph};
use mcc::graph::{self, Builder, Extent, Graph, ReduceFn, interp};
use mcc::import::{ImportOptions, import};
use mcc::loops;
use mcc::onnx::{Model, flatten};
use mcc::tools::exec::Executable;
use mcc_runtime::abi::status;
use mcc_support::random::Random;
use mcc_support::{DType, Error, Tensor, TensorType};
use mcc_tests::compare::{compare, relative_error};
use mcc_tests::data::{self, OnnxTest, OnnxTestSet};
use mcc_tests::harness::{Harness, Link, Record};
use mcc_tests::machine::{Level, Machine};
use mcc_tests::onnx::{TOLERANCE, import_options, set_inputs, symbol, symbolic, tolerance};
use tempfile::TempDir;

/// Variants that are compiled at least. Raise it when operators learn.
const COMPILED: usize = 3660;
/// Node tests at least whose lengths the run finds.
const STATED: usize = 24;
/// Node tests whose runs are refused then: of a shape that a run is told, an element may not be the 0 that keeps an extent.
const OUTGROWN: [&str; 1] = ["test_reshape_zero_dim"];

/// Every so many tests one runs in machine code too.
const COMPILED_EACH: usize = 16;
/// How much more room there is than the test needs.
const ROOM: usize = 2;

enum Failure {
    Refused(Error),
    /// The interpreted run found an extent that outgrew its bounds.
    Outgrown(Error),
    Wrong(String),
}

/// Whether the graph takes a dimension at all.
fn graph_of(model: &Model, inputs: &BTreeMap<String, Tensor>, extents: &BTreeSet<usize>) -> Result<Option<Graph>, Failure> {
    let (mut options, _) = import_options(model, inputs).map_err(Failure::Refused)?;
    let free: BTreeSet<String> = options.shapes.keys().cloned().collect();
    let model = symbolic(model, extents, |input| free.contains(input));
    options.shapes.clear();
    options.ranges = extents.iter().map(|&extent| (symbol(extent), (1, extent + ROOM))).collect();
    let known: BTreeSet<String> = symbols(&model);
    options.ranges.retain(|name, _| known.contains(name));
    let options = ImportOptions { name: Some("node".into()), ..options };
    let (graph, _) = import(&model, &options).map_err(Failure::Refused)?;
    Ok(graph.lengths.any().then_some(graph))
}

fn symbols(model: &Model) -> BTreeSet<String> {
    let flat = flatten(model).expect("a model of a node test");
    let types = flat.inputs.iter().filter_map(|input| input.declared_type().ok().flatten());
    let dims = types.filter_map(|ty| ty.dims).flatten();
    dims.filter_map(|dim| if let mcc::onnx::DeclaredDim::Symbol(name) = dim { Some(name) } else { None }).collect()
}

/// Runs in the interpreter of graphs, or in machine code of a level.
fn run(graph: &Graph, inputs: &[Tensor], level: Option<Level>) -> Result<Vec<Tensor>, Failure> {
    let wrong = |error: Error| Failure::Wrong(error.to_string());
    let Some(level) = level else {
        let outputs = interp::run(graph, &graph.expand(inputs).map_err(wrong)?).map_err(wrong)?;
        return graph.contract(inputs, outputs).map_err(Failure::Outgrown);
    };
    let options = level.options(Options { name: Some("node".into()), ..Options::new("node.onnx") });
    let compilation = compile_graph(graph.clone(), &options, &mut Silent).map_err(wrong)?;
    let mut executable = Executable::load(compilation.linked()).map_err(wrong)?;
    let mut binding = executable.bind(inputs).map_err(wrong)?;
    match executable.run(&mut binding) {
        0 => Ok(executable.outputs(&binding)),
        status => Err(Failure::Wrong(format!("the run returned {status}"))),
    }
}

/// Every output of the set, with its extents.
fn judge(test: &OnnxTest, set: &OnnxTestSet, outputs: &[Tensor]) -> Result<(), Failure> {
    if outputs.len() != set.outputs.len() {
        return Err(Failure::Wrong(format!("{} outputs, wanted {}", outputs.len(), set.outputs.len())));
    }
    for (output, path) in outputs.iter().zip(&set.outputs) {
        let want = data::node_test_tensor(path).map_err(Failure::Refused)?;
        compare(output, &want, tolerance(&test.name)).map_err(Failure::Wrong)?;
    }
    Ok(())
}

/// Whether it was compiled.
fn variant(test: &OnnxTest, model: &Model, extents: &BTreeSet<usize>, level: Option<Level>) -> Result<bool, Failure> {
    let flat = flatten(model).map_err(Failure::Refused)?;
    for set in &test.sets {
        let inputs = set_inputs(&flat, set).map_err(Failure::Refused)?;
        let Some(graph) = graph_of(model, &inputs, extents)? else { return Ok(false) };
        let values: Vec<Tensor> = graph.tensor_inputs().iter().map(|(name, _)| inputs[name].clone()).collect();
        judge(test, set, &run(&graph, &values, level)?)?;
    }
    Ok(!test.sets.is_empty())
}

/// Sets of extents that become dimensions: each alone, and all.
fn variants(test: &OnnxTest, model: &Model) -> Vec<BTreeSet<usize>> {
    let Ok(flat) = flatten(model) else { return Vec::new() };
    let Some(Ok(inputs)) = test.sets.first().map(|set| set_inputs(&flat, set)) else { return Vec::new() };
    let all: BTreeSet<usize> = inputs.values().flat_map(|tensor| tensor.shape().to_vec()).filter(|&extent| extent > 1).collect();
    let mut variants: Vec<BTreeSet<usize>> = all.iter().map(|&extent| BTreeSet::from([extent])).collect();
    if all.len() > 1 {
        variants.push(all);
    }
    variants
}

/// In the interpreter of graphs, and some of them also in machine code.
fn node_tests() {
    let levels = Level::here();
    let (mut compiled, mut wrong) = (0, String::new());
    let mut refused: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (at, test) in data::node_tests().into_iter().enumerate() {
        let Ok(model) = Model::open(&test.model) else { continue };
        for extents in variants(&test, &model) {
            let compiled_for = (at % COMPILED_EACH == 0).then(|| levels[at / COMPILED_EACH % levels.len()]);
            let outcome = panic::catch_unwind(|| {
                let in_graphs = variant(&test, &model, &extents, None)?;
                compiled_for.map_or(Ok(in_graphs), |level| variant(&test, &model, &extents, Some(level)))
            });
            match outcome.unwrap_or_else(|_| Err(Failure::Wrong("panicked".into()))) {
                Ok(ran) => compiled += usize::from(ran),
                Err(Failure::Wrong(reason)) => writeln!(wrong, "{} {extents:?}: {reason}", test.name).expect("text grows"),
                Err(Failure::Outgrown(error)) => writeln!(wrong, "{} {extents:?}: {error}", test.name).expect("text grows"),
                Err(Failure::Refused(error)) => {
                    refused.entry(error.message).or_default().insert(test.name.clone());
                }
            }
        }
    }
    let mut refused: Vec<_> = refused.into_iter().collect();
    refused.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    for (reason, names) in refused {
        println!("{:4} {reason}: {}", names.len(), names.iter().take(3).cloned().collect::<Vec<_>>().join(" "));
    }
    println!("{compiled} compiled");
    assert!(wrong.is_empty(), "these are wrong:\n{wrong}");
    assert!(compiled >= COMPILED, "{compiled} compiled, less than {COMPILED}");
}

/// `y = softmax(x) · w` for rows of `x`, and the rows joined with themselves; rows, columns and a batch are told.
fn product() -> Graph {
    let builder = Builder::new("product");
    let [batch, rows, columns] =
        [("batch", 1, 3), ("rows", 0, 9), ("columns", 2, 20)].map(|(name, least, most)| builder.dimension(name, least, most));
    let x = builder.bounded_input("x", DType::F32, &[batch.clone(), rows, columns.clone()]);
    let w = builder.bounded_input("w", DType::F32, &[batch, columns, Extent::from(5usize)]);
    let exp = (x - x.reduce_keep(ReduceFn::Max, &[2])).exp();
    let y = (exp / exp.reduce_keep(ReduceFn::Sum, &[2])).contract(w, "bmk", "bkn", "bmn");
    builder.output("y", y);
    builder.output("twice", builder.concat(&[y, y], 1));
    builder.check().expect("a graph");
    builder.finish()
}

/// In a C program that shows what a run may touch, for every level of both machines.
#[test]
fn a_run_touches_what_exists_and_refuses_what_does_not_fit() {
    let graph = product();
    let mut random = Random::new(4);
    let (mut records, mut fit) = (Vec::new(), Vec::new());
    let fitting = [[1, 1, 2], [3, 9, 20], [2, 4, 7], [3, 0, 5]].map(|dims| (dims, true));
    let others = [[0, 9, 20], [1, 1, 1]].map(|dims| (dims, false));
    for (dims, fits) in fitting.into_iter().chain(others) {
        let [batch, rows, columns] = dims.map(|dim: i64| dim as usize);
        let mut tensor = |shape: [usize; 3]| random.tensor(&TensorType::new(DType::F32, shape));
        let inputs = vec![tensor([batch, rows, columns]), tensor([batch, columns, 5])];
        let output = |rows: usize| TensorType::new(DType::F32, [batch, rows, 5]);
        let outputs = if fits { vec![output(rows), output(2 * rows)] } else { Vec::new() };
        fit.push(fits);
        records.push(Record { model: 0, dims: dims.to_vec(), inputs, outputs, count_count: 1 });
    }
    for level in Machine::ALL.into_iter().flat_map(Machine::levels) {
        let folder = TempDir::new().expect("a temporary folder");
        let options = level.options(Options { name: Some("product".into()), ..Options::new("product.onnx") });
        let compilation = compile_graph(graph.clone(), &options, &mut Silent).expect("a graph");
        let object = folder.path().join("product.o");
        fs::write(&object, compilation.linked().object()).expect("the test's folder can be written");
        let harness = Harness::build(level.machine, Link::Static, &["product"], &[object], folder.path());
        let outcomes = harness.run(&records, 2).unwrap_or_else(|error| panic!("{level}: {error}"));
        for ((record, fits), outcome) in records.iter().zip(&fit).zip(outcomes) {
            let values = graph.expand(&record.inputs);
            if !fits {
                assert!(values.is_err(), "{:?}", record.dims);
                assert_eq!(outcome.status, status::ERROR_DIMS, "{:?}", record.dims);
                continue;
            }
            let values = values.expect("extents within their bounds");
            assert_eq!((outcome.status, outcome.counts[0]), (0, 2 * record.dims[1]), "{:?}", record.dims);
            let values = interp::run(&graph, &values).expect("inputs of the graph");
            let want = graph.contract(&record.inputs, values).expect("extents within their bounds");
            assert_eq!(outcome.outputs.len(), want.len());
            for (got, want) in outcome.outputs.iter().zip(&want) {
                compare(got, want, TOLERANCE).unwrap_or_else(|error| panic!("{:?} for {level}: {error}", record.dims));
            }
        }
    }
}

/// Loops over rows of which a run has fewer stop there, and the texts of graph and program say so.
#[test]
fn loops_stop_where_nothing_is_needed() {
    let options = Options { name: Some("product".into()), ..Options::new("product.onnx") };
    let compilation = compile_graph(product(), &options, &mut Silent).expect("a graph");
    let program = &compilation.realized().program;
    let limits: Vec<_> = program.kernels.iter().flat_map(|kernel| kernel.axes.values()).filter_map(|axis| axis.limit).collect();
    // Rows and batches; all columns are needed, for they are summed.
    assert!(limits.iter().any(|limit| limit.input == 2) && limits.iter().any(|limit| limit.input == 3), "{program}");
    let text = loops::text::to_text(program);
    assert_eq!(loops::text::to_text(&loops::text::parse(&text).expect("its own text")), text);
    let graph = compilation.graph();
    assert_eq!(graph::text::parse(&graph::text::to_text(graph)).expect("its own text").lengths, graph.lengths);
}

/// One object for sentences of up to 128 tokens gives what an object for each length does.
#[test]
fn a_language_model_takes_sentences_of_any_length() {
    let reference = data::references().into_iter().find(|reference| reference.name == "minilm_l3").expect("it is there");
    let mut options = Options { name: Some("minilm".into()), ..Options::new(&reference.model) };
    options.import.dims.insert("batch_size".into(), 1);
    options.import.ranges.insert("sequence_length".into(), (1, 128));
    let compilation = compile(&options, &mut Silent).expect("a model");
    let mut executable = Executable::load(compilation.linked()).expect("it was made for this machine");
    for length in [1, 7, 64, 128] {
        let mut random = Random::new(length as u64);
        let ids: Vec<i64> = (0..length).map(|_| random.below(30_000) as i64).collect();
        let mask: Vec<i64> = (0..length).map(|at| i64::from(at <= length * 3 / 4)).collect();
        let inputs = [ids, mask].map(|list| Tensor::from_elements([1, length], &list));
        let mut fixed = options.clone();
        fixed.import.ranges.clear();
        fixed.import.dims.insert("sequence_length".into(), length);
        let fixed = compile(&fixed, &mut Silent).expect("a model");
        let mut want = Executable::load(fixed.linked()).expect("it was made for this machine");
        let [got, want] = [&mut executable, &mut want].map(|executable| {
            let mut binding = executable.bind(&inputs).expect("inputs of the model");
            assert_eq!(executable.run(&mut binding), 0);
            executable.outputs(&binding)
        });
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            let error = relative_error(got, want).unwrap_or_else(|error| panic!("{length}: {error}"));
            assert!(error < 1e-5, "{length}: {error}");
        }
    }
}

/// The node test with inputs that determine shapes left as inputs, whose elements are at most a little more than those of the test.
fn stated(test: &OnnxTest, model: &Model, levels: &[Level]) -> Result<bool, Failure> {
    let flat = flatten(model).map_err(Failure::Refused)?;
    let mut ran = false;
    for set in &test.sets {
        let inputs = set_inputs(&flat, set).map_err(Failure::Refused)?;
        let (mut options, bound) = import_options(model, &inputs).map_err(Failure::Refused)?;
        for name in bound {
            let tensor = &inputs[&name];
            let elements: Vec<i64> = tensor.numbers().map(|number| number.as_i64()).collect();
            if tensor.dtype().is_integer() && !elements.is_empty() && elements.iter().all(|element| (0..1000).contains(element)) {
                options.constants.remove(&name);
                options.shapes.insert(name.clone(), tensor.shape().to_vec());
                options.max_elements.insert(name, elements.iter().map(|&element| element as usize + ROOM).collect());
            }
        }
        let graph = import(model, &ImportOptions { name: Some("node".into()), ..options }).map_err(Failure::Refused)?.0;
        if !graph.lengths.any() {
            continue;
        }
        ran = true;
        let values: Vec<Tensor> = graph.tensor_inputs().iter().map(|(name, _)| inputs[name].clone()).collect();
        for level in iter::once(None).chain(levels.iter().copied().map(Some)) {
            judge(test, set, &run(&graph, &values, level)?)?;
        }
    }
    Ok(ran)
}

#[test]
fn node_tests_mean_the_same_with_bounds_of_what_determines_shapes() {
    let levels = Level::here();
    let (mut ran, mut outgrown, mut wrong) = (0, Vec::new(), String::new());
    for test in data::node_tests() {
        let Ok(model) = Model::open(&test.model) else { continue };
        match panic::catch_unwind(|| stated(&test, &model, &levels)).unwrap_or_else(|_| Err(Failure::Wrong("panicked".into()))) {
            Ok(did) => {
                ran += usize::from(did);
                if did {
                    println!("{} ran", test.name);
                }
            }
            Err(Failure::Wrong(reason)) => writeln!(wrong, "{}: {reason}", test.name).expect("text grows"),
            Err(Failure::Outgrown(_)) => outgrown.push(test.name),
            Err(Failure::Refused(_)) => {}
        }
    }
    println!("{ran} ran");
    assert!(wrong.is_empty(), "these are wrong:\n{wrong}");
    assert_eq!(outgrown, OUTGROWN, "these outgrow their bounds");
    assert!(ran >= STATED, "{ran} ran, less than {STATED}");
}

#[test]
fn node_tests_mean_the_same_with_dimensions_of_a_run() {
    node_tests();
}
