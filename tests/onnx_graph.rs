//! What models mean, by the interpreter of graphs: the ONNX backend node tests.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic;

use mcc::graph::interp;
use mcc::import::import_all_errors;
use mcc::onnx::{Model, flatten};
use mcc_support::{Error, Tensor};
use mcc_tests::compare::compare;
use mcc_tests::data::{self, OnnxTest};
use mcc_tests::onnx::{PASSING, Random, import_options, set_inputs, tolerance};

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
    let values: Vec<Tensor> = graph.tensor_inputs().iter().map(|(name, _)| inputs[name].clone()).collect();
    let wrong = |error: Error| Failure::Wrong(error.to_string());
    let outputs = interp::run(&graph, &graph.expand(&values).map_err(wrong)?).map_err(wrong)?;
    let outputs = graph.contract(&values, outputs).map_err(wrong)?;
    Ok(graph.tensor_outputs().iter().map(|(name, _)| name.clone()).zip(outputs).collect())
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
        if flat.outputs.len() != wanted.len() {
            return Err(Failure::Wrong(format!("{} outputs, wanted {}", flat.outputs.len(), wanted.len())));
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
