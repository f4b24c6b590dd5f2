//! Operators of other domains than the standard's own, and forms of those that its tests leave out, in machine code of this machine, against ONNX Runtime: the cases of
//! `tools/operators.py`.

use std::collections::BTreeMap;
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

/// As [`judge`] in the interpreter of graphs, with a count of rows of the only input that is known only at run time. Whether the
/// model was one for that.
fn judge_rows(case: &OperatorCase) -> Result<bool, String> {
    let example = case.example();
    let Some((input, x)) = example.inputs.iter().next().filter(|(_, x)| example.inputs.len() == 1 && x.shape().rank() == 2)
    else {
        return Ok(false);
    };
    let model = Model::open(case.model()).map_err(|error| error.to_string())?;
    let rows = x.shape()[0];
    let mut proto = model.proto;
    let declared = &mut proto.graph.as_mut().expect("a model has a graph").input[0];
    let Some(TypeValue::Tensor(ty)) = declared.r#type.as_mut().and_then(|ty| ty.value.as_mut()) else { panic!("a tensor") };
    ty.shape.as_mut().expect("a shape").dim[0].value = Some(DimValue::Param("rows".into()));
    let model = Model::from_bytes(proto.encode_to_vec()).expect("it was a model");
    let options = ImportOptions { ranges: BTreeMap::from([("rows".into(), (1, rows + 2))]), ..ImportOptions::default() };
    let (graph, _) = import(&model, &options).map_err(|error| error.to_string())?;
    let inputs = [example.inputs[input].clone()];
    let outputs = interp::run(&graph, &graph.expand(&inputs).map_err(|error| error.to_string())?);
    let outputs = graph.contract(&inputs, outputs.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    for (got, (name, _)) in outputs.iter().zip(&graph.outputs) {
        agrees(case, got, &example.outputs[name]).map_err(|difference| format!("output '{name}' {difference}"))?;
    }
    Ok(true)
}

#[test]
fn classical_models_take_any_count_of_rows() {
    let cases: Vec<OperatorCase> = data::operator_cases();
    let classical = |name: &str| {
        ["tree_", "linear_", "svm_", "scaler_", "normalizer_", "one_hot_", "imputer_"].iter().any(|p| name.starts_with(p))
    };
    let (mut judged, mut wrong) = (0, Vec::new());
    for case in cases.iter().filter(|case| classical(&case.name)) {
        match panic::catch_unwind(|| judge_rows(case)).unwrap_or_else(|_| Err("a fault of mcc".into())) {
            Ok(taken) => judged += usize::from(taken),
            Err(error) => wrong.push(format!("{}: {error}", case.name)),
        }
    }
    println!("{judged} judged");
    assert!(wrong.is_empty(), "these are wrong:\n{}", wrong.join("\n"));
    assert!(judged > 150, "{judged} judged");
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
