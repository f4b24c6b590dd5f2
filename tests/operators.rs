//! Operators of other domains than the standard's own, and forms of those that its tests leave out, in machine code of every level
//! of this machine, against ONNX Runtime: the cases of `tools/operators.py`.

use std::collections::{BTreeMap, BTreeSet};
use std::panic;
use std::thread;

use mcc::driver::{Options, Silent, compile};
use mcc::graph::interp;
use mcc::import::{ImportOptions, import};
use mcc::onnx::Model;
use mcc::ops;
use mcc::tools::exec::Executable;
use mcc_support::Tensor;
use mcc_tests::compare::{Tolerance, compare, relative_error};
use mcc_tests::data::{self, OperatorCase};
use mcc_tests::machine::Level;
use mcc_tests::onnx::{symbol, symbolic};

/// Cases are judged by so many at once.
const WORKERS: usize = 4;
/// All of them.
const CASES: usize = 606;
/// Cases and dimensions at least that may be known only at run time.
const TAKEN: usize = 640;

fn agrees(case: &OperatorCase, got: &Tensor, want: &Tensor) -> Result<(), String> {
    if !want.dtype().is_float() {
        return compare(got, want, Tolerance { relative: 0.0, absolute: case.steps });
    }
    let error = relative_error(got, want)?;
    if error <= case.tolerance { Ok(()) } else { Err(format!("differs by {error:.1e} of the largest")) }
}

fn judge(case: &OperatorCase, level: Level) -> Result<(), String> {
    let example = case.example();
    let options = level.options(Options { name: Some("case".into()), ..Options::new(case.model()) });
    let compilation = compile(&options, &mut Silent).map_err(|error| error.to_string())?;
    let graph = compilation.graph();
    let inputs: Vec<_> = graph.inputs.iter().map(|(name, _)| example.inputs[name].clone()).collect();
    let mut executable = Executable::load(compilation.linked()).map_err(|error| error.to_string())?;
    let mut binding = executable.bind(&inputs).map_err(|error| error.to_string())?;
    let status = executable.run(&mut binding);
    if status != 0 {
        return Err(format!("the run returned {status}"));
    }
    let outputs = executable.outputs(&binding);
    if outputs.len() != example.outputs.len() {
        return Err(format!("{} outputs, wanted {}", outputs.len(), example.outputs.len()));
    }
    for (got, (name, _)) in outputs.iter().zip(graph.tensor_outputs()) {
        let want = &example.outputs[name];
        agrees(case, got, want).map_err(|difference| format!("output '{name}' {difference}"))?;
    }
    Ok(())
}

/// As [`judge`] in the interpreter of graphs, with dimensions of this extent known only at run time. Whether the model takes that.
fn judge_ranges(case: &OperatorCase, extent: usize) -> Result<bool, String> {
    let example = case.example();
    let model = Model::open(case.model()).map_err(|error| error.to_string())?;
    let model = symbolic(&model, &BTreeSet::from([extent]), |_| true);
    let options = ImportOptions { ranges: BTreeMap::from([(symbol(extent), (1, extent + 2))]), ..ImportOptions::default() };
    let Ok((graph, _)) = import(&model, &options) else { return Ok(false) };
    let inputs: Vec<Tensor> = graph.tensor_inputs().iter().map(|(name, _)| example.inputs[name].clone()).collect();
    let outputs = interp::run(&graph, &graph.expand(&inputs).map_err(|error| error.to_string())?);
    let outputs = graph.contract(&inputs, outputs.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    if outputs.len() != example.outputs.len() {
        return Err(format!("{} outputs, wanted {}", outputs.len(), example.outputs.len()));
    }
    for (got, (name, _)) in outputs.iter().zip(graph.tensor_outputs()) {
        agrees(case, got, &example.outputs[name]).map_err(|difference| format!("output '{name}' {difference}"))?;
    }
    Ok(true)
}

/// Nothing else tests operators of other domains one by one.
#[test]
fn every_operator_of_another_domain_has_a_case() {
    let mut found = BTreeSet::new();
    for case in data::operator_cases() {
        let model = Model::open(case.model()).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let nodes = model.proto.graph.expect("a model has a graph").node;
        found.extend(nodes.iter().map(|node| (node.domain().to_string(), node.op_type().to_string())));
    }
    let others = ops::all().filter(|def| !def.domain.is_empty());
    let without: Vec<String> =
        others.filter(|def| !found.contains(&(def.domain.into(), def.name.into()))).map(|def| def.full_name()).collect();
    assert!(without.is_empty(), "no case has {}", without.join(", "));
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
    assert_eq!(cases.len(), CASES, "cases that `tools/operators.py` recorded");
    let levels = Level::here();
    let outcome = |case: &OperatorCase| {
        let of = |&level: &Level| {
            let judged = panic::catch_unwind(|| judge(case, level)).unwrap_or_else(|_| Err("a fault of mcc".into()));
            judged.err().map(|error| format!("{} for {level}: {error}", case.name))
        };
        levels.iter().filter_map(of).collect::<Vec<_>>()
    };
    let wrong: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = cases
            .chunks(cases.len().div_ceil(WORKERS))
            .map(|cases| scope.spawn(|| cases.iter().flat_map(outcome).collect::<Vec<_>>()))
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("faults are caught")).collect()
    });
    println!("{} of {} agree", levels.len() * cases.len() - wrong.len(), levels.len() * cases.len());
    assert!(wrong.is_empty(), "these are wrong:\n{}", wrong.join("\n"));
}
