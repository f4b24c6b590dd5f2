//! Bisection finds the step that makes a result wrong, whichever kind of step it is.

use mcc::driver::{Options, Silent, Stage, compile};
use mcc::graph::op::{BinaryFn, Op};
use mcc::graph::{self, Graph};
use mcc::loops;
use mcc::tools::bisect::{Outcome, Verdict, search};
use mcc::tools::compare;
use mcc_support::{Result, Tensor};
use mcc_tests::data;

/// A model with its input: a trained one whose graph is rewritten much.
fn digits() -> (Options, Vec<Tensor>) {
    (Options::new(data::folder().join("models/digits_resnet8.onnx")), vec![data::digits().image(0)])
}

/// A small one, for which there are decisions of every kind.
fn convolutions() -> (Options, Vec<Tensor>) {
    let name = "conv_weight_shared_by_two_batchnorms";
    let case = data::cases().into_iter().find(|case| case.name == name).expect("a case");
    (Options::new(case.model()), case.example().inputs.into_values().collect())
}

/// A trained network, which has decisions of every kind.
fn trained() -> (Options, Vec<Tensor>) {
    let references = data::references();
    let reference = references.iter().find(|reference| reference.name == "digits_mobilenet").expect("a trained model");
    let inputs = reference.examples[0].inputs.clone();
    let mut options = Options::new(&reference.model);
    for (name, tensor) in &inputs {
        options.import.shapes.insert(name.clone(), tensor.shape().dims().to_vec());
    }
    (options, inputs.into_values().collect())
}

/// What fuel is spent on in a build that nothing is wrong with, and its outputs.
fn reference((options, inputs): &(Options, Vec<Tensor>)) -> (Vec<String>, Vec<Tensor>) {
    let options = Options { stop_after: Some(Stage::Decide), ..options.clone() };
    let compilation = compile(&options, &mut Silent).expect("the model compiles");
    let outputs = graph::interp::run(compilation.graph(), inputs).expect("inputs of the model");
    (compilation.specializations()[0].steps(), outputs)
}

fn judge(want: &[Tensor]) -> impl Fn(&[Tensor]) -> Option<String> {
    let names: Vec<String> = (0..want.len()).map(|index| format!("o{index}")).collect();
    move |got| compare::wrong(&names, got, want, 1e-4)
}

/// What a pass with a mistake would leave: an addition became a subtraction.
fn corrupted(graph: &Graph) -> Graph {
    let mut graph = graph.clone();
    let add = graph.live_nodes().find(|(_, node)| node.op == Op::Binary(BinaryFn::Add)).expect("the model adds").0;
    graph.nodes[add].as_mut().expect("it is live").op = Op::Binary(BinaryFn::Sub);
    graph
}

#[test]
fn finds_a_wrong_rewrite() {
    let (options, inputs) = digits();
    let (steps, want) = reference(&digits());
    let rewrites =
        steps.iter().filter(|line| !["[fuse]", "[winograd]", "[layout]", "[schedule]"].iter().any(|word| line.starts_with(word)));
    let rewrites: Vec<&String> = rewrites.collect();
    assert!(rewrites.len() > 10, "{}", rewrites.len());
    for guilty in [0, rewrites.len() / 3, rewrites.len() - 1] {
        let mut builds = 0;
        let mut build = |options: &Options| -> Result<Outcome> {
            builds += 1;
            let options = Options { stop_after: Some(Stage::Decide), ..options.clone() };
            let compilation = compile(&options, &mut Silent)?;
            let did = compilation.specializations()[0].steps().len() > guilty;
            let graph = if did { corrupted(compilation.graph()) } else { compilation.graph().clone() };
            graph::interp::run(&graph, &inputs).map(Ok)
        };
        let verdict = search(&options, &mut build, judge(&want)).expect("the model compiles");
        let Verdict::Guilty { number, line, .. } = verdict else { panic!("{verdict:?}") };
        assert_eq!((number, &line), (guilty as u64 + 1, rewrites[guilty]));
        assert!(builds < 14, "{builds} builds for {} steps", steps.len());
    }
}

/// Fusions, layouts and schedules, where a build with the guilty one ends by a fault or gives other outputs.
#[test]
fn finds_a_wrong_decision() {
    let (options, inputs) = trained();
    let (steps, want) = reference(&trained());
    let of = |word: &str| steps.iter().filter(|line| line.starts_with(word)).collect::<Vec<_>>();
    for (word, faults) in [("[fuse]", false), ("[layout]", true), ("[schedule]", false)] {
        let lines = of(word);
        let guilty = lines[lines.len() / 2];
        let mut build = |options: &Options| -> Result<Outcome> {
            let options = Options { stop_after: Some(Stage::Realize), ..options.clone() };
            let compilation = compile(&options, &mut Silent)?;
            let did = compilation.specializations()[0].steps().contains(guilty);
            if did && faults {
                return Ok(Err("a fault".to_string()));
            }
            let mut outputs = loops::interp::run(&compilation.realized().program, &inputs)?;
            if did {
                outputs[0] = Tensor::zeros(outputs[0].ty().clone());
            }
            Ok(Ok(outputs))
        };
        let verdict = search(&options, &mut build, judge(&want)).expect("the model compiles");
        let Verdict::Guilty { number, line, how, .. } = verdict else { panic!("{verdict:?}") };
        assert_eq!((&line, &steps[number as usize - 1]), (guilty, guilty));
        assert_eq!(how == "a fault", faults, "{how}");
    }
}

#[test]
fn blames_nothing_that_is_right_and_no_step_for_what_was_wrong_before() {
    let (options, inputs) = convolutions();
    let (steps, want) = reference(&convolutions());
    let run = |options: &Options| -> Result<Vec<Tensor>> {
        let options = Options { stop_after: Some(Stage::Realize), ..options.clone() };
        loops::interp::run(&compile(&options, &mut Silent)?.realized().program, &inputs)
    };
    let right = search(&options, &mut |options| run(options).map(Ok), judge(&want)).expect("the model compiles");
    assert_eq!(right, Verdict::Right { steps: steps.len() as u64 });
    let zeros = vec![Tensor::zeros(want[0].ty().clone())];
    let wrong = search(&options, &mut |options| run(options).map(Ok), judge(&zeros)).expect("the model compiles");
    assert!(matches!(wrong, Verdict::WrongAtOnce { .. }), "{wrong:?}");
}
