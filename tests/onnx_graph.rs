//! What models mean, by the interpreter of graphs: the ONNX backend node tests, and the cases from bug reports of other engines.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic;

use mcc::graph::interp;
use mcc::import::import_all_errors;
use mcc::onnx::{Model, flatten};
use mcc_support::{Error, Tensor};
use mcc_tests::compare::{Tolerance, compare, compare_except};
use mcc_tests::data::{self, Case, Expected, OnnxTest};
use mcc_tests::onnx::{Random, import_options, set_inputs, tolerance};

/// Node tests that pass at least. Raise it when operators are added.
const PASSING: usize = 1657;

enum Failure {
    /// It cannot be compiled.
    Refused(Vec<Error>),
    Wrong(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Refused(vec![error])
    }
}

/// Runs a model, with those of its inputs bound as constants that determine shapes.
fn run(model: &Model, inputs: &BTreeMap<String, Tensor>) -> Result<BTreeMap<String, Tensor>, Failure> {
    let (options, _) = import_options(model, inputs)?;
    let (graph, _) = import_all_errors(model, &options).map_err(Failure::Refused)?;
    let values: Vec<Tensor> = graph.inputs.iter().map(|(name, _)| inputs[name].clone()).collect();
    let outputs = interp::run(&graph, &values).map_err(|error| Failure::Wrong(error.to_string()))?;
    Ok(graph.outputs.iter().map(|(name, _)| name.clone()).zip(outputs).collect())
}

fn node_test(test: &OnnxTest) -> Result<(), Failure> {
    let model = Model::open(&test.model)?;
    let flat = flatten(&model)?;
    for set in &test.sets {
        let inputs = set_inputs(&flat, set)?;
        let outputs = run(&model, &inputs)?;
        let wanted = set.outputs.iter().map(|path| data::node_test_tensor(path)).collect::<Result<Vec<_>, _>>()?;
        if let Some(random) = Random::of(&test.name) {
            let inputs: Vec<_> = flat.inputs.iter().map(|input| inputs[&input.name].clone()).collect();
            let outputs: Vec<_> = flat.outputs.iter().map(|output| outputs[&output.name].clone()).collect();
            random.check(&inputs, &outputs, &wanted).map_err(Failure::Wrong)?;
            continue;
        }
        for (output, want) in flat.outputs.iter().zip(&wanted) {
            let result = compare(&outputs[&output.name], want, tolerance(&test.name));
            result.map_err(|difference| Failure::Wrong(format!("output '{}' {difference}", output.name)))?;
        }
    }
    Ok(())
}

/// The message of a refusal, without the node it speaks of.
fn reason(errors: &[Error]) -> String {
    errors[0].message.clone()
}

#[test]
fn node_tests() {
    let (mut passed, mut wrong) = (0, String::new());
    let mut refused: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in data::node_tests() {
        match panic::catch_unwind(|| node_test(&test)).unwrap_or_else(|_| Err(Failure::Wrong("panicked".into()))) {
            Ok(()) => passed += 1,
            Err(Failure::Wrong(reason)) => writeln!(wrong, "{}: {reason}", test.name).expect("writes to a string"),
            Err(Failure::Refused(errors)) => refused.entry(reason(&errors)).or_default().push(test.name),
        }
    }
    let mut refused: Vec<_> = refused.into_iter().collect();
    refused.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    for (reason, names) in refused {
        println!("{:4} {reason}: {}", names.len(), names[..names.len().min(4)].join(" "));
    }
    println!("{passed} passed");
    assert!(wrong.is_empty(), "these are wrong:\n{wrong}");
    assert!(passed >= PASSING, "{passed} passed, less than {PASSING}");
}

fn case(case: &Case) -> Result<(), String> {
    let outcome = Model::open(case.model()).map_err(Failure::from).and_then(|model| run(&model, &case.example().inputs));
    let accepted = [Some(&case.expected), case.also_right.as_ref()];
    match outcome {
        Err(Failure::Wrong(reason)) => Err(reason),
        Err(Failure::Refused(errors)) => {
            let message = errors.iter().map(|error| error.to_string().to_lowercase()).collect::<Vec<_>>().join("\n");
            let names = accepted.into_iter().flatten().find_map(|expected| match expected {
                Expected::Error { names } => Some(names),
                Expected::Values { .. } => None,
            });
            match names {
                Some(names) if names.iter().all(|name| message.contains(&name.to_lowercase())) => Ok(()),
                _ => Err(format!("refused: {message}")),
            }
        }
        Ok(outputs) => {
            let tolerance = accepted.into_iter().flatten().find_map(|expected| match expected {
                Expected::Values { rtol, atol } => Some(Tolerance { relative: *rtol, absolute: *atol }),
                Expected::Error { .. } => None,
            });
            let tolerance = tolerance.ok_or("accepted, but must be refused")?;
            for (name, want) in &case.example().outputs {
                let unspecified = case.unspecified.get(name).map_or(&[][..], Vec::as_slice);
                compare_except(&outputs[name], want, tolerance, unspecified)
                    .map_err(|difference| format!("output '{name}' {difference}"))?;
            }
            Ok(())
        }
    }
}

#[test]
fn cases() {
    let mut wrong = String::new();
    let (mut right, mut unsupported) = (0, 0);
    for entry in data::cases() {
        match panic::catch_unwind(|| case(&entry)).unwrap_or_else(|_| Err("panicked".into())) {
            Ok(()) => right += 1,
            Err(reason) if reason.starts_with("refused: ") && reason.contains(" is not supported") => {
                unsupported += 1;
                println!("{}: {}", entry.name, reason.lines().next().unwrap_or_default());
            }
            Err(reason) => writeln!(wrong, "{}: {reason}", entry.name).expect("writes to a string"),
        }
    }
    println!("{right} right, {unsupported} unsupported");
    assert!(wrong.is_empty(), "these are wrong:\n{wrong}");
}
