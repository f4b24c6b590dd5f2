//! Damaged models: whatever is wrong with a file, it is refused with an error, or machine code computes what the graph means; mcc
//! neither panics nor hangs.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mcc::driver::{Options, Silent, compile_graph};
use mcc::graph::{Graph, interp};
use mcc::import::{ImportOptions, import_all_errors};
use mcc::onnx::proto::{AttributeProto, DimValue, DimensionProto, GraphProto, ModelProto, TensorProto, TypeValue};
use mcc::onnx::{ExternalFiles, Model, flatten, tensor};
use mcc::ops;
use mcc::tools::exec::Executable;
use mcc_runtime::abi::status;
use mcc_support::Tensor;
use mcc_support::random::Random;
use mcc_tests::data;
use prost::Message;

/// Graphs with larger values are not run.
const RUN_BYTES: usize = 1 << 22;
const ROUNDS: usize = 1000;
const LONGEST: Duration = Duration::from_secs(10);

/// A model and inputs for it.
struct Sample {
    name: String,
    bytes: Vec<u8>,
    inputs: Vec<PathBuf>,
}

fn samples() -> Vec<Sample> {
    let tests = data::node_tests().into_iter().map(|test| (test.name, test.model, test.sets[0].inputs.clone()));
    let cases = data::cases().into_iter().map(|case| (case.name.clone(), case.model(), Vec::new()));
    let read =
        |(name, path, inputs): (String, PathBuf, Vec<PathBuf>)| Sample { name, bytes: fs::read(path).expect("a model"), inputs };
    tests.chain(cases).map(read).filter(|sample| sample.bytes.len() < 1 << 16).collect()
}

/// Damage of the bytes: cut off, flipped bits, a stretch copied elsewhere.
fn damage_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    let length = bytes.len();
    match random.below(3) {
        0 => bytes.truncate(random.below(length)),
        1 => (0..=random.below(2)).for_each(|_| bytes[random.below(length)] ^= 1 << random.below(8)),
        _ => {
            let count = random.below(length.min(16)) + 1;
            let (from, to) = (random.below(length - count + 1), random.below(length - count + 1));
            bytes.copy_within(from..from + count, to);
        }
    }
}

const INTEGERS: [i64; 16] = [0, 1, -1, 2, 3, -2, 5, 7, 64, -128, 1000, 1 << 31, 1 << 40, i64::MAX, i64::MIN, i64::MIN + 1];

fn damage_attribute(attribute: &mut AttributeProto, random: &mut Random) {
    let integer = |random: &mut Random| *random.pick(&INTEGERS);
    match random.below(5) {
        0 => attribute.r#type = Some(random.below(16) as i32),
        1 => attribute.name = Some(random.pick(&["axis", "axes", "alpha", "kernel_shape", "to", "nothing"]).to_string()),
        2 if attribute.f.is_some() => attribute.f = Some(*random.pick(&[0.0, -1.0, f32::NAN, f32::INFINITY, 1e30])),
        3 if !attribute.ints.is_empty() => drop(attribute.ints.pop()),
        _ if !attribute.ints.is_empty() => {
            let index = random.below(attribute.ints.len());
            attribute.ints[index] = integer(random);
        }
        _ => attribute.i = Some(integer(random)),
    }
}

fn damage_tensor(tensor: &mut TensorProto, random: &mut Random) {
    match random.below(3) {
        0 => tensor.data_type = Some(random.below(28) as i32),
        1 if !tensor.dims.is_empty() => {
            let axis = random.below(tensor.dims.len());
            tensor.dims[axis] = *random.pick(&INTEGERS);
        }
        _ => {
            // Values of tensors often determine shapes.
            tensor.dims = vec![1];
            tensor.data_type = Some(7);
            tensor.raw_data = None;
            tensor.float_data.clear();
            tensor.int32_data.clear();
            tensor.int64_data = vec![*random.pick(&INTEGERS)];
        }
    }
}

fn damage_type(value: &mut Option<TypeValue>, random: &mut Random) {
    let Some(TypeValue::Tensor(ty)) = value else { return };
    match (random.below(3), &mut ty.shape) {
        (0, _) | (_, None) => ty.elem_type = Some(random.below(28) as i32),
        (1, Some(shape)) if !shape.dim.is_empty() => drop(shape.dim.pop()),
        (_, Some(shape)) => {
            let dim = *random.pick(&INTEGERS);
            let dim = DimensionProto { value: Some(DimValue::Value(dim)), ..Default::default() };
            let at = random.below(shape.dim.len() + 1);
            if at == shape.dim.len() { shape.dim.push(dim) } else { shape.dim[at] = dim }
        }
    }
}

fn damage_graph(graph: &mut GraphProto, random: &mut Random) {
    let names: Vec<String> = graph
        .input
        .iter()
        .map(|input| input.name().to_string())
        .chain(graph.node.iter().flat_map(|node| node.output.clone()))
        .collect();
    let choice = random.below(8);
    if choice == 0 && !graph.initializer.is_empty() {
        let index = random.below(graph.initializer.len());
        return damage_tensor(&mut graph.initializer[index], random);
    }
    if choice == 1 && !graph.input.is_empty() {
        let index = random.below(graph.input.len());
        if let Some(ty) = &mut graph.input[index].r#type {
            return damage_type(&mut ty.value, random);
        }
    }
    if graph.node.is_empty() {
        return;
    }
    let index = random.below(graph.node.len());
    let node = &mut graph.node[index];
    let attribute = if node.attribute.is_empty() { None } else { Some(random.below(node.attribute.len())) };
    match (choice, attribute) {
        (2, _) if !node.input.is_empty() => {
            let input = random.below(node.input.len());
            node.input[input] = if random.chance(0.2) { String::new() } else { random.pick(&names).clone() };
        }
        (3, _) => drop(node.input.pop()),
        (4, _) => {
            let operators: Vec<&str> = ops::all().filter(|def| def.domain.is_empty()).map(|def| def.name).collect();
            node.op_type = Some(random.pick(&operators).to_string());
        }
        (5, _) => node.input.push(random.pick(&names).clone()),
        (_, Some(attribute)) => {
            let attribute = &mut node.attribute[attribute];
            match (&mut attribute.t, &mut attribute.g) {
                (Some(tensor), _) if random.chance(0.8) => damage_tensor(tensor, random),
                (_, Some(graph)) if random.chance(0.8) => damage_graph(graph, random),
                _ => damage_attribute(attribute, random),
            }
        }
        _ => node.attribute.push(AttributeProto {
            name: Some(random.pick(&["axis", "axes", "pads", "keepdims"]).to_string()),
            i: Some(*random.pick(&INTEGERS)),
            ..Default::default()
        }),
    }
}

/// Damage of the structure: types, dims, attributes, edges, operators, versions.
fn damage_model(bytes: &mut Vec<u8>, random: &mut Random) {
    let Ok(mut model) = ModelProto::decode(bytes.as_slice()) else { return };
    for _ in 0..=random.below(2) {
        match &mut model.graph {
            Some(graph) if random.chance(0.9) => damage_graph(graph, random),
            _ => model.opset_import.iter_mut().for_each(|import| import.version = Some(random.below(29) as i64)),
        }
    }
    *bytes = model.encode_to_vec();
}

/// What becomes of a model.
#[derive(Default, Debug)]
struct Tally {
    refused: usize,
    imported: usize,
    run: usize,
    /// Of these, with numbers near the greatest that f32 has.
    overflow: usize,
}

fn attempt(sample: &Sample, bytes: Vec<u8>, tally: &mut Tally) {
    tally.refused += 1;
    let Ok(model) = Model::from_bytes(bytes) else { return };
    let Ok(flat) = flatten(&model) else { return };
    let read = |path: &PathBuf| {
        let proto = TensorProto::decode(fs::read(path).expect("an input").as_slice()).ok()?;
        tensor::tensor(&proto, &ExternalFiles::none()).ok()
    };
    let given = flat.inputs.iter().zip(&sample.inputs).filter_map(|(input, path)| Some((input.name.clone(), read(path)?)));
    let given: BTreeMap<String, Tensor> = given.collect();
    let mut options = ImportOptions::default();
    for node in &flat.nodes {
        for name in ops::shape_inputs(node.domain, node.operator).iter().filter_map(|&index| node.inputs.get(index)) {
            if let Some(tensor) = given.get(name) {
                options.constants.insert(name.clone(), tensor.clone());
            }
        }
    }
    let Ok((graph, _)) = import_all_errors(&model, &options) else { return };
    tally.refused -= 1;
    tally.imported += 1;
    if graph.values.values().map(|value| value.ty.size_bytes()).sum::<usize>() > RUN_BYTES {
        return;
    }
    let inputs = graph.inputs.iter().map(|(name, value)| {
        let ty = graph.ty(*value);
        given.get(name).filter(|tensor| tensor.ty() == ty).cloned().unwrap_or_else(|| Tensor::zeros(ty.clone()))
    });
    let inputs: Vec<Tensor> = inputs.collect();
    let want = interp::run(&graph, &inputs).expect("inputs of the graph's own types");
    let (got, outputs) = execute(&graph, &inputs);
    // Outputs with extents that the run finds, as far as they exist.
    match graph.contract(&inputs, want) {
        Err(_) => assert_eq!(got, status::ERROR_COUNT, "an extent is outside of its bounds"),
        Ok(want) => {
            assert!(got == status::OK || got == status::CLAMPED, "the run returned {got}");
            let constants = graph.values.keys().filter_map(|id| graph.constant(id));
            let overflows = constants.chain(&inputs).chain(&want).any(is_extreme);
            tally.overflow += usize::from(overflows);
            assert_eq!(outputs.len(), want.len());
            for (got, want) in outputs.iter().zip(&want) {
                assert!(is_close(got, want, overflows), "machine code gives {got:?}, the graph {want:?}");
            }
        }
    }
    tally.run += 1;
}

/// The status of a run, and the outputs where it has any.
fn execute(graph: &Graph, inputs: &[Tensor]) -> (i32, Vec<Tensor>) {
    let options = Options { name: Some("damaged".into()), ..Options::new("damaged.onnx") };
    let compilation = compile_graph(graph.clone(), &options, &mut Silent).expect("the graph was imported");
    let mut executable = Executable::load(compilation.linked()).expect("it was made for this machine");
    let mut binding = executable.bind(inputs).expect("inputs of the graph");
    let status = executable.run(&mut binding);
    let outputs = if status == status::ERROR_COUNT { Vec::new() } else { executable.outputs(&binding) };
    (status, outputs)
}

/// Equal but for the rounding of sums. Where damage made numbers so large that f32 overflows and the reference's f64 does not,
/// only what is in range is compared.
fn is_close(got: &Tensor, want: &Tensor, overflows: bool) -> bool {
    let numbers = || got.numbers().zip(want.numbers()).map(|(got, want)| (got.as_f64(), want.as_f64()));
    let in_range = |&(got, want): &(f64, f64)| !overflows || got.abs() < 1e30 && want.abs() < 1e30;
    let largest = numbers().map(|(_, want)| want.abs()).filter(|want| want.is_finite() && *want < 1e30).fold(1.0, f64::max);
    let tolerance = if want.dtype().is_float() { 1e-3 * largest } else { 0.0 };
    let agrees = |(got, want): (f64, f64)| got == want || got.is_nan() && want.is_nan() || (got - want).abs() <= tolerance;
    got.ty() == want.ty() && numbers().filter(in_range).all(agrees)
}

/// Whether a float is so large that products of a few such overflow.
fn is_extreme(tensor: &Tensor) -> bool {
    tensor.dtype().is_float() && tensor.numbers().any(|number| number.as_f64().abs() >= 1e15)
}

#[test]
fn damaged_models_are_refused_or_mean_something() {
    let samples = samples();
    let mut random = Random::new(22);
    let mut tallies = [Tally::default(), Tally::default()];
    for round in 0..ROUNDS {
        let tally = &mut tallies[round % 2];
        let sample = random.pick(&samples);
        let mut bytes = sample.bytes.clone();
        if round % 2 == 0 {
            damage_bytes(&mut bytes, &mut random)
        } else {
            damage_model(&mut bytes, &mut random)
        }
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| attempt(sample, bytes.clone(), tally)));
        let took = start.elapsed();
        if result.is_err() || took > LONGEST {
            let path = std::env::temp_dir().join(format!("damaged-{round}.onnx"));
            fs::write(&path, &bytes).expect("the temporary folder can be written");
            panic!("round {round}, made of {}, took {took:?}; see {}", sample.name, path.display());
        }
    }
    for (kind, tally) in ["bytes", "structure"].iter().zip(&tallies) {
        println!("damaged {kind}: {tally:?}");
        assert!(tally.refused > ROUNDS / 8, "damage of {kind} is refused: {tally:?}");
    }
    let run: usize = tallies.iter().map(|tally| tally.run).sum();
    let overflow: usize = tallies.iter().map(|tally| tally.overflow).sum();
    assert!(overflow * 4 < run, "{overflow} of {run} runs are compared in part only");
    assert!(run > ROUNDS / 20, "only {run} damaged models ran");
}
