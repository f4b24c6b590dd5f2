//! Whole trained models, by the interpreter of graphs, against what ONNX Runtime computes.

use std::time::Instant;

use mcc::graph::interp;
use mcc::import::{ImportOptions, import_all_errors};
use mcc::onnx::Model;
use mcc_tests::compare::relative_error;
use mcc_tests::data::{self, Reference};

/// Largest error, as a part of the largest output.
const TOLERANCE: f64 = 1e-4;

fn errors(reference: &Reference) -> Result<f64, String> {
    let model = Model::open(&reference.model).map_err(|error| error.to_string())?;
    let mut worst = 0.0f64;
    for example in &reference.examples {
        let mut options = ImportOptions::default();
        for (name, tensor) in &example.inputs {
            options.shapes.insert(name.clone(), tensor.shape().dims().to_vec());
        }
        let (graph, _) = import_all_errors(&model, &options)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        let inputs: Vec<_> = graph.inputs.iter().map(|(name, _)| example.inputs[name].clone()).collect();
        let outputs = interp::run(&graph, &inputs).map_err(|error| error.to_string())?;
        for ((name, _), got) in graph.outputs.iter().zip(&outputs) {
            let error = relative_error(got, &example.outputs[name]).map_err(|error| format!("output '{name}' {error}"))?;
            worst = worst.max(error);
        }
    }
    if worst <= TOLERANCE { Ok(worst) } else { Err(format!("the error is {worst:.1e}, more than {TOLERANCE:.0e}")) }
}

#[test]
fn models_agree_with_onnx_runtime() {
    let mut wrong = Vec::new();
    for reference in data::references() {
        let start = Instant::now();
        let outcome = errors(&reference);
        println!("{:24} {outcome:?} {:?}", reference.name, start.elapsed());
        wrong.extend(outcome.err().map(|error| format!("{}: {error}", reference.name)));
    }
    assert!(wrong.is_empty(), "these are wrong:\n{}", wrong.join("\n"));
}
