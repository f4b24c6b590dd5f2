//! Whole trained models, by the interpreter of graphs, against what ONNX Runtime computes.

use std::thread;

use mcc::graph::interp;
use mcc::import::{ImportOptions, import_all_errors};
use mcc::onnx::Model;
use mcc_tests::compare::relative_error;
use mcc_tests::data::{self, Reference};

fn errors(reference: &Reference) -> Result<f64, String> {
    let model = Model::open(&reference.model).map_err(|error| error.to_string())?;
    // One example judges the operators; the interpreter is slow.
    let example = &reference.examples[0];
    let mut options = ImportOptions::default();
    for (name, tensor) in &example.inputs {
        options.shapes.insert(name.clone(), tensor.shape().dims().to_vec());
    }
    let (graph, _) = import_all_errors(&model, &options)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let inputs: Vec<_> = graph.inputs.iter().map(|(name, _)| example.inputs[name].clone()).collect();
    let outputs =
        interp::run(&graph, &inputs).and_then(|outputs| graph.contract(&inputs, outputs)).map_err(|error| error.to_string())?;
    let mut worst = 0.0f64;
    for ((name, _), got) in graph.tensor_outputs().iter().zip(&outputs) {
        let error = relative_error(got, &example.outputs[name]).map_err(|error| format!("output '{name}' {error}"))?;
        worst = worst.max(error);
    }
    let most = reference.tolerance;
    if worst <= most { Ok(worst) } else { Err(format!("the error is {worst:.1e}, more than {most:.0e}")) }
}

#[test]
fn models_agree_with_onnx_runtime() {
    let references = data::references();
    let outcomes: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = references.iter().map(|reference| scope.spawn(|| errors(reference))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err("panicked".into()))).collect()
    });
    let mut wrong = Vec::new();
    for (reference, outcome) in references.iter().zip(outcomes) {
        println!("{:24} {outcome:?}", reference.name);
        wrong.extend(outcome.err().map(|error| format!("{}: {error}", reference.name)));
    }
    assert!(wrong.is_empty(), "these are wrong:\n{}", wrong.join("\n"));
}
