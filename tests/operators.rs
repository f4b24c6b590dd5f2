//! Operators of other domains than the standard's own, and forms of those that its tests leave out, in machine code of this machine, against ONNX Runtime: the cases of
//! `tools/operators.py`.

use std::collections::{BTreeMap, BTreeSet};
use std::panic;
use std::thread;

use mcc::driver::{Options, Silent, compile};
use mcc::graph::interp;
use mcc::import::{ImportOptions, import};
use mcc::onnx::Model;
use mcc::onnx::proto::{DimValue, TypeValue};
use mcc::tools::exec::Executable;
use mcc_support::Tensor;
use mcc_tests::compare::{Tolerance, compare, relative_error};
use mcc_tests::data::{self, OperatorCase};
use prost::Message;

/// Cases are judged by so many at once.
const WORKERS: usize = 4;
/// Cases and dimensions at least that may be known only at run time.
const TAKEN: usize = 640;

fn agrees(case: &OperatorCase, got: &Tensor, want: &Tensor) -> Result<(), String> {
    if !want.dtype().is_float() {
        return compare(got, want, Tolerance { relative: 0.0, absolute: case.steps });
    }
    let error = relative_error(got, want)?;
    if error <= case.tolerance { Ok(()) } else { Err(format!("differs by {error:.1e} of the largest")) }
}

fn judge(case: &OperatorCase) -> Result<(), String> {
    let example = case.example();
    let options = Options { name: Some("case".into()), ..Options::new(case.model()) };
    let compilation = compile(&options, &mut Silent).map_err(|error| error.to_string())?;
    let graph = compilation.graph();
    let inputs: Vec<_> = graph.inputs.iter().map(|(name, _)| example.inputs[name].clone()).collect();
    let mut executable = Executable::load(compilation.linked()).map_err(|error| error.to_string())?;
    let mut binding = executable.bind(&inputs).map_err(|error| error.to_string())?;
    let status = executable.run(&mut binding);
    if status != 0 {
        return Err(format!("the run returned {status}"));
    }
    for (got, (name, _)) in executable.outputs(&binding).iter().zip(&graph.outputs) {
        let want = &example.outputs[name];
        agrees(case, got, want).map_err(|difference| format!("output '{name}' {difference}"))?;
    }
    Ok(())
}

/// The model with dimensions of this extent, in any input, made one that is known only at run time.
fn symbolic(model: Model, extent: usize) -> Model {
    let mut proto = model.proto;
    for input in &mut proto.graph.as_mut().expect("a model has a graph").input {
        let Some(TypeValue::Tensor(ty)) = input.r#type.as_mut().and_then(|ty| ty.value.as_mut()) else { panic!("a tensor") };
        for dim in ty.shape.iter_mut().flat_map(|shape| &mut shape.dim) {
            if dim.value == Some(DimValue::Value(extent as i64)) {
                dim.value = Some(DimValue::Param("n".into()));
            }
        }
    }
    Model::from_bytes(proto.encode_to_vec()).expect("it was a model")
}

/// As [`judge`] in the interpreter of graphs, with dimensions of this extent known only at run time. Whether the model takes that.
fn judge_ranges(case: &OperatorCase, extent: usize) -> Result<bool, String> {
    let example = case.example();
    let model = symbolic(Model::open(case.model()).map_err(|error| error.to_string())?, extent);
    let options = ImportOptions { ranges: BTreeMap::from([("n".into(), (1, extent + 2))]), ..ImportOptions::default() };
    let Ok((graph, _)) = import(&model, &options) else { return Ok(false) };
    let inputs: Vec<Tensor> = graph.tensor_inputs().iter().map(|(name, _)| example.inputs[name].clone()).collect();
    let outputs = interp::run(&graph, &graph.expand(&inputs).map_err(|error| error.to_string())?);
    let outputs = graph.contract(&inputs, outputs.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    for (got, (name, _)) in outputs.iter().zip(&graph.outputs) {
        agrees(case, got, &example.outputs[name]).map_err(|difference| format!("output '{name}' {difference}"))?;
    }
    Ok(true)
}

#[test]
fn dimensions_may_be_known_only_at_run_time() {
    let (mut taken, mut refused, mut wrong) = (0, BTreeSet::new(), Vec::new());
    for case in data::operator_cases() {
        let inputs = case.example().inputs;
        let extents: BTreeSet<usize> = inputs.values().flat_map(|x| x.shape().to_vec()).filter(|&extent| extent > 1).collect();
        for extent in extents {
            match panic::catch_unwind(|| judge_ranges(&case, extent)).unwrap_or_else(|_| Err("a fault of mcc".into())) {
                Ok(true) => taken += 1,
                Ok(false) => drop(refused.insert(case.name.clone())),
                Err(error) => wrong.push(format!("{} with {extent}: {error}", case.name)),
            }
        }
    }
    println!("{taken} taken; refused with some extent: {refused:?}");
    assert!(wrong.is_empty(), "these are wrong:\n{}", wrong.join("\n"));
    assert!(taken >= TAKEN, "only {taken} are taken");
}

#[test]
fn operators_agree_with_onnx_runtime() {
    let cases = data::operator_cases();
    let outcome = |case: &OperatorCase| {
        let judged = panic::catch_unwind(|| judge(case)).unwrap_or_else(|_| Err("a fault of mcc".into()));
        judged.err().map(|error| format!("{}: {error}", case.name))
    };
    let wrong: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = cases
            .chunks(cases.len().div_ceil(WORKERS))
            .map(|cases| scope.spawn(|| cases.iter().filter_map(outcome).collect::<Vec<_>>()))
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("faults are caught")).collect()
    });
    println!("{} of {} agree", cases.len() - wrong.len(), cases.len());
    assert!(wrong.is_empty(), "these are wrong:\n{}", wrong.join("\n"));
}
