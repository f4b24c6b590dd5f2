//! Loops compute what the graph does: random graphs and trained models, in the interpreters of both.

use std::time::Instant;

use mcc::graph::{Graph, interp};
use mcc::import::{ImportOptions, import_all_errors};
use mcc::loops::{self, Program};
use mcc::onnx::Model;
use mcc::passes;
use mcc_support::Tensor;
use mcc_support::random::Random;
use mcc_tests::compare::relative_error;
use mcc_tests::data;
use mcc_tests::judge::Judge;
use mcc_tests::random_graph::{Config, random_graph, random_inputs};

const GRAPHS: u64 = 400;

/// The program of a graph, verified.
fn lowered(graph: &Graph) -> Program {
    let program = loops::lower::lower(graph);
    loops::verify::verify(&program).unwrap_or_else(|error| panic!("{error}\n{program}"));
    program
}

fn run(program: &Program, inputs: &[Tensor]) -> Vec<Tensor> {
    loops::interp::run(program, inputs).unwrap_or_else(|error| panic!("{error}\n{program}"))
}

/// As they are lowered; `differential` runs them as they are fused and scheduled.
#[test]
fn random_graphs_compute_the_same_in_loops() {
    for seed in 0..GRAPHS {
        let random = random_graph(&mut Random::new(seed), &Config::default());
        let graph = &random.graph;
        let inputs = random_inputs(graph, seed);
        let want = interp::run(graph, &inputs).unwrap();
        let program = lowered(graph);
        let text = loops::text::to_text(&program);
        let read = loops::text::parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{program}"));
        assert!(loops::text::to_text(&read) == text, "seed {seed}: reading changed\n{program}");
        let judge = Judge::new(graph, &inputs);
        for (at, (got, want)) in run(&read, &inputs).iter().zip(&want).enumerate() {
            let checked = if random.exact[at] { judge.same(at, got, want) } else { judge.close(at, got, want) };
            if let Err(error) = checked {
                panic!("seed {seed}, output '{}': {error}\n{graph}\n{program}", graph.outputs[at].0);
            }
        }
    }
}

/// Small enough for the interpreter, with and without passes.
const MODELS: [&str; 3] = ["digits_mobilenet", "digits_resnet8", "digits_vit"];

#[test]
fn models_compute_the_same_in_loops() {
    let mut seen = 0;
    for reference in data::references().into_iter().filter(|reference| MODELS.contains(&reference.name.as_str())) {
        seen += 1;
        let model = Model::open(&reference.model).unwrap();
        let example = &reference.examples[0];
        let mut options = ImportOptions::default();
        for (name, tensor) in &example.inputs {
            options.shapes.insert(name.clone(), tensor.shape().dims().to_vec());
        }
        let (graph, _) = import_all_errors(&model, &options).unwrap();
        let graph = passes::run(graph, passes::DEPLOYMENT, &mut passes::Options::default());
        let inputs: Vec<Tensor> = graph.inputs.iter().map(|(name, _)| example.inputs[name].clone()).collect();
        let program = lowered(&graph);
        let start = Instant::now();
        let outputs = run(&program, &inputs);
        println!("{}: {:?}", reference.name, start.elapsed());
        for ((name, _), got) in graph.outputs.iter().zip(&outputs) {
            let error = relative_error(got, &example.outputs[name]).unwrap();
            assert!(error <= 1e-4, "{}: output '{name}' is off by {error:e}", reference.name);
        }
    }
    assert_eq!(seen, MODELS.len());
}
