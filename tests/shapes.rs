//! One object for several sets of shapes and several CPUs: it runs the set that fits on the best CPU that its caller tells of, shares
//! weights and kernels, and refuses other shapes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use mcc::driver::{Compilation, Options, ShapeSet, Silent, compile};
use mcc::emit::required_bits;
use mcc::graph::interp;
use mcc::onnx::proto::{
    AttributeProto, DimValue, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};
use mcc::tools::exec::Executable;
use mcc_runtime::abi::status;
use mcc_support::random::Random;
use mcc_support::tensor::Number;
use mcc_support::{DType, Tensor, TensorType};
use mcc_tests::compare::relative_error;
use mcc_tests::harness::{Harness, Link, Record};
use mcc_tests::machine::{Level, Machine};
use prost::Message;
use tempfile::TempDir;

const CHANNELS: i64 = 88;

fn value(name: &str, dims: &[&str]) -> ValueInfoProto {
    let dim = |name: &&str| {
        let value = match name.parse() {
            Ok(extent) => DimValue::Value(extent),
            Err(_) => DimValue::Param(name.to_string()),
        };
        DimensionProto { value: Some(value), denotation: None }
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let ty = TypeValue::Tensor(TensorTypeProto { elem_type: Some(1), shape: Some(shape) });
    ValueInfoProto {
        name: Some(name.to_string()),
        r#type: Some(TypeProto { value: Some(ty), denotation: None }),
        ..Default::default()
    }
}

fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[(&str, &[i64])]) -> NodeProto {
    let attribute = |(name, ints): &(&str, &[i64])| AttributeProto {
        name: Some(name.to_string()),
        r#type: Some(7),
        ints: ints.to_vec(),
        ..Default::default()
    };
    NodeProto {
        op_type: Some(operator.to_string()),
        input: inputs.iter().map(|input| input.to_string()).collect(),
        output: vec![output.to_string()],
        attribute: attributes.iter().map(attribute).collect(),
        ..Default::default()
    }
}

fn weights(name: &str, dims: &[i64], seed: u64) -> TensorProto {
    let mut random = Random::new(seed);
    let count = dims.iter().product::<i64>() as usize;
    TensorProto {
        name: Some(name.to_string()),
        data_type: Some(1),
        dims: dims.to_vec(),
        float_data: (0..count).map(|_| random.between(-0.5, 0.5) as f32).collect(),
        ..Default::default()
    }
}

/// Convolutions over `x: f32[n,3,h,w]`, which halve it, and a product along the channels: `y: f32[n,88,p,q]`, and `z` of the
/// shape of `x`.
fn model() -> Vec<u8> {
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        graph: Some(GraphProto {
            node: vec![
                node("Conv", &["x", "w0"], "a", &[("pads", &[1, 1, 1, 1]), ("strides", &[2, 2])]),
                node("Relu", &["a"], "b", &[]),
                node("Conv", &["b", "w1"], "y", &[]),
                node("Neg", &["x"], "z", &[]),
            ],
            initializer: vec![weights("w0", &[CHANNELS, 3, 3, 3], 1), weights("w1", &[CHANNELS, CHANNELS, 1, 1], 2)],
            input: vec![value("x", &["n", "3", "h", "w"])],
            output: vec![value("y", &["n", "88", "p", "q"]), value("z", &["n", "3", "h", "w"])],
            ..Default::default()
        }),
        ..Default::default()
    }
    .encode_to_vec()
}

/// Extents of n, h and w.
type Set = [usize; 3];

fn options(folder: &Path, level: Level, sets: &[Set]) -> Options {
    let path = folder.join("net.onnx");
    fs::write(&path, model()).expect("the test's folder can be written");
    let dims = |set: &Set| ["n", "h", "w"].map(String::from).into_iter().zip(*set).collect::<BTreeMap<_, _>>();
    let mut options = level.options(Options { name: Some("net".into()), ..Options::new(path) });
    options.import.dims = dims(&sets[0]);
    options.further_shapes = sets[1..].iter().map(|set| ShapeSet { dims: dims(set), ..ShapeSet::default() }).collect();
    options
}

fn built(folder: &Path, level: Level, sets: &[Set]) -> Compilation {
    compile(&options(folder, level, sets), &mut Silent).unwrap_or_else(|error| panic!("{error}"))
}

fn input([n, h, w]: Set) -> Tensor {
    let mut random = Random::new((h * w) as u64);
    let numbers: Vec<Number> = (0..n * 3 * h * w).map(|_| Number::Float(random.between(-1.0, 1.0))).collect();
    Tensor::from_numbers(TensorType::new(DType::F32, vec![n, 3, h, w]), numbers)
}

/// The smallest alone would pack weights otherwise than the largest.
const SETS: [Set; 4] = [[1, 2, 2], [2, 16, 12], [3, 16, 12], [2, 16, 50]];
/// Its extents occur in sets, but not together.
const REFUSED: Set = [1, 16, 50];

fn close(set: Set, got: &[Tensor], want: &[Tensor]) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        let error = relative_error(got, want).unwrap_or_else(|error| panic!("{set:?}: {error}"));
        assert!(error < 1e-5, "{set:?}: the error is {error}");
    }
}

#[test]
fn the_set_that_fits_runs() {
    Level::here().into_iter().for_each(the_set_that_fits_runs_for);
}

fn the_set_that_fits_runs_for(level: Level) {
    let folder = TempDir::new().expect("a temporary folder");
    let compilation = built(folder.path(), level, &SETS);
    let model = &compilation.linked().model;
    let names = |symbols: &[mcc::emit::Symbol]| symbols.iter().map(|symbol| symbol.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&model.dims), names(&model.counts)),
        (vec!["n".into(), "h".into(), "w".into()], vec!["p".into(), "q".into()])
    );
    let mut executable = Executable::load(compilation.linked()).expect("it was made for this machine");
    for (specialization, set) in compilation.specializations().iter().zip(SETS) {
        let x = input(set);
        let mut binding = executable.bind(std::slice::from_ref(&x)).expect("an input of the model");
        assert_eq!(executable.run(&mut binding), 0);
        let want = interp::run(specialization.graph(), &[x]).expect("an input of the graph");
        close(set, &executable.outputs(&binding), &want);
    }
    let mut binding = executable.bind(&[input(REFUSED)]).expect("an input of the model");
    assert_eq!(executable.run(&mut binding), status::ERROR_DIMS);
}

/// Weights are there once, although each set alone would pack them its own way, and kernels of the same code are one function.
#[test]
fn sets_share_weights_and_kernels() {
    let folder = TempDir::new().expect("a temporary folder");
    let level = Level { machine: Machine::X86_64, cpu: "x86-64-v3", bare: false };
    let all = built(folder.path(), level, &SETS);
    let weights = |sets: &[Set]| built(folder.path(), level, sets).linked().model.weights.clone();
    let (smallest, largest) = (weights(&SETS[..1]), weights(&SETS[3..]));
    assert!(smallest != largest, "this tests nothing");
    assert_eq!(all.linked().model.weights, largest);
    let kernels: usize = all.specializations().iter().map(|one| one.kernels().len()).sum();
    let functions = all.linked().functions.len() - 1;
    assert!(functions < kernels, "{functions} functions for {kernels} kernels");
}

/// Levels that a machine's code may be for in one object.
fn all_levels(machine: Machine) -> Level {
    let cpu = match machine {
        Machine::X86_64 => "x86-64-v2,x86-64-v4,x86-64-v3",
        Machine::Aarch64 => "armv8-a,+fp16",
    };
    Level { machine, cpu, bare: false }
}

/// As on CPUs that have less: each set for each CPU, by the kernels that run.
#[test]
fn the_set_that_fits_runs_on_the_best_cpu() {
    let folder = TempDir::new().expect("a temporary folder");
    let options = options(folder.path(), all_levels(Machine::host()), &SETS);
    let compilation = compile(&Options { profile: true, ..options }, &mut Silent).unwrap_or_else(|error| panic!("{error}"));
    let mut executable = Executable::load(compilation.linked()).expect("every machine runs code of its first level");
    let here = executable.cpu_features;
    let mut first = 0;
    for (at, specialization) in compilation.specializations().iter().enumerate() {
        let (set, level) = (SETS[at % SETS.len()], &compilation.levels[at / SETS.len()]);
        let kernels = first..first + specialization.kernels().len() as u32;
        first = kernels.end;
        executable.cpu_features = required_bits(&level.cpu);
        if executable.cpu_features & !here != 0 {
            println!("not run: this machine cannot run code for {}", level.cpu.name);
            continue;
        }
        let x = input(set);
        let mut binding = executable.bind(std::slice::from_ref(&x)).expect("an input of the model");
        let mut stamps = Vec::new();
        assert_eq!(executable.run_profiled(&mut binding, &mut stamps), 0);
        let ran: Vec<u32> = stamps.iter().filter(|stamp| stamp.is_end).map(|stamp| stamp.kernel).collect();
        assert_eq!(ran, kernels.collect::<Vec<_>>(), "{set:?} on {}", level.cpu.name);
        let want = interp::run(specialization.graph(), &[x]).expect("an input of the graph");
        close(set, &executable.outputs(&binding), &want);
    }
    let least = compilation.linked().cpu_features;
    for bit in (0..32).map(|bit| 1 << bit).filter(|bit| least & bit != 0) {
        executable.cpu_features = least & !bit;
        let mut binding = executable.bind(&[input(SETS[0])]).expect("an input of the model");
        assert_eq!(executable.run(&mut binding), status::ERROR_CPU);
    }
}

/// The packing of the best CPU serves the others, which alone would pack otherwise.
#[test]
fn cpus_share_weights() {
    let folder = TempDir::new().expect("a temporary folder");
    let weights = |cpu| {
        let level = Level { machine: Machine::X86_64, cpu, bare: false };
        built(folder.path(), level, &SETS[3..]).linked().model.weights.clone()
    };
    let [best, middle, least] = ["x86-64-v4", "x86-64-v3", "x86-64-v2"].map(weights);
    assert!(best != middle && best != least, "this tests nothing");
    assert_eq!(weights(all_levels(Machine::X86_64).cpu), best);
}

fn linked_sets_run(level: Level, link: Link) {
    let folder = TempDir::new().expect("a temporary folder");
    let compilation = built(folder.path(), level, &SETS);
    let object = folder.path().join("net.o");
    fs::write(&object, compilation.linked().object()).expect("the test's folder can be written");
    let mut records = Vec::new();
    let mut want = Vec::new();
    for (specialization, set) in compilation.specializations().iter().zip(SETS) {
        let x = input(set);
        let outputs = interp::run(specialization.graph(), std::slice::from_ref(&x)).expect("an input of the graph");
        let types = outputs.iter().map(|output| output.ty().clone()).collect();
        let dims = set.map(|extent| extent as i64).to_vec();
        records.push(Record { model: 0, dims, inputs: vec![x], outputs: types, count_count: 2 });
        want.push(outputs);
    }
    records.push(Record {
        model: 0,
        dims: REFUSED.map(|extent| extent as i64).to_vec(),
        inputs: vec![input(REFUSED)],
        outputs: Vec::new(),
        count_count: 2,
    });
    let harness = Harness::build(level.machine, link, &["net"], &[object], folder.path());
    let outcomes = harness.run(&records, 2).unwrap_or_else(|error| panic!("{error}"));
    for ((outcome, want), set) in outcomes.iter().zip(&want).zip(SETS) {
        assert_eq!(outcome.status, 0);
        assert_eq!(outcome.counts, [set[1] as i64 / 2, set[2] as i64 / 2]);
        close(set, &outcome.outputs, want);
    }
    assert_eq!(outcomes[SETS.len()].status, status::ERROR_DIMS);
}

#[test]
fn linked_sets_run_on_x86_64() {
    let all = [all_levels(Machine::X86_64)];
    Machine::X86_64.levels().into_iter().chain(all).for_each(|level| linked_sets_run(level, Link::Pie));
}

#[test]
fn linked_sets_run_on_aarch64() {
    let all = [all_levels(Machine::Aarch64)];
    Machine::Aarch64.levels().into_iter().chain(all).for_each(|level| linked_sets_run(level, Link::Static));
}
