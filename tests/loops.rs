//! Loops compute what the graph does: random graphs and trained models, in the interpreters of both.

use std::time::Instant;

use mcc::decide;
use mcc::graph::{Graph, interp};
use mcc::import::{ImportOptions, import_all_errors};
use mcc::loops::{self, Program};
use mcc::onnx::Model;
use mcc::passes;
use mcc::realize;
use mcc::targets::{self, Machine};
use mcc_support::Tensor;
use mcc_support::random::Random;
use mcc_tests::compare::{relative_error, same_bits};
use mcc_tests::data;
use mcc_tests::random_graph::{Config, RandomGraph, check_close, random_graph, random_inputs, tolerance};

const GRAPHS: u64 = 200;

/// The program of a graph, verified, and the same when it is written and read.
fn lowered(graph: &Graph) -> Program {
    let program = loops::lower::lower(graph);
    loops::verify::verify(&program).unwrap_or_else(|error| panic!("{error}\n{program}"));
    program
}

fn run(program: &Program, inputs: &[Tensor]) -> Vec<Tensor> {
    loops::interp::run(program, inputs).unwrap_or_else(|error| panic!("{error}\n{program}"))
}

/// Whether a program gives what the graph gave.
fn check(random: &RandomGraph, program: &Program, inputs: &[Tensor], want: &[Tensor]) -> Result<(), String> {
    loops::verify::verify(program).map_err(|error| error.to_string())?;
    let got = loops::interp::run(program, inputs).map_err(|error| error.to_string())?;
    let limit = tolerance(&random.graph);
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let checked = if random.exact[at] { same_bits(got, want) } else { check_close(got, want, limit) };
        checked.map_err(|error| format!("output '{}': {error}", random.graph.outputs[at].0))?;
    }
    Ok(())
}

/// As they are lowered, and as they are compiled: fused and scheduled.
#[test]
fn random_graphs_compute_the_same_in_loops() {
    let target = targets::TARGETS[0];
    let machines = ["x86_64", "aarch64"].map(|name| Machine::new(name, None).unwrap());
    let mut wrong = Vec::new();
    for seed in 0..GRAPHS {
        let random = random_graph(&mut Random::new(seed), &Config::default());
        let inputs = random_inputs(&random.graph, seed);
        let want = interp::run(&random.graph, &inputs).unwrap();
        let program = loops::lower::lower(&random.graph);
        let text = loops::text::to_text(&program);
        let read = loops::text::parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{program}"));
        assert!(loops::text::to_text(&read) == text, "seed {seed}: reading changed\n{program}");
        if let Err(error) = check(&random, &read, &inputs, &want) {
            panic!("seed {seed}: {error}\n{}\n{program}", random.graph);
        }
        for machine in &machines {
            let decisions = decide::decide(&program, target.name(), &target.facts(&machine.cpu));
            let realized = realize::realize(&program, &decisions).unwrap().program;
            if let Err(error) = check(&random, &realized, &inputs, &want) {
                wrong.push(format!("seed {seed} for {}: {error}", machine.triple));
            }
        }
    }
    assert!(wrong.is_empty(), "fusion or scheduling changed results:\n{}", wrong.join("\n"));
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
