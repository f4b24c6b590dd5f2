//! Random graphs: their text reads back, they verify, and passes keep what they compute.

use std::cell::RefCell;
use std::collections::BTreeSet;

use mcc::graph::edit::Edit;
use mcc::graph::{Builder, Graph, Round, Wire, interp, text, verify};
use mcc::passes::{self, Options, Pass};
use mcc_support::random::Random;
use mcc_support::{DType, Tensor};
use mcc_tests::compare::same_bits;
use mcc_tests::judge::Judge;
use mcc_tests::random_graph::{Config, RandomGraph, random_graph, random_inputs};

const GRAPHS: u64 = 700;

fn for_each_graph(check: impl Fn(u64, &RandomGraph)) {
    for seed in 0..GRAPHS {
        check(seed, &random_graph(&mut Random::new(seed), &Config::default()));
    }
}

#[test]
fn random_graphs_hold_every_op() {
    let names = RefCell::new(BTreeSet::new());
    for_each_graph(|_, random| {
        verify::verify(&random.graph).expect("random graphs are right");
        add_names(&random.graph, &mut names.borrow_mut());
    });
    let names = names.into_inner();
    // All but `iota`: it has no operand, so the builder folds it.
    assert_eq!(names.len(), 81, "ops: {names:?}");
}

fn add_names(graph: &Graph, names: &mut BTreeSet<String>) {
    for (_, node) in graph.live_nodes() {
        names.insert(text::op_name(&node.op));
        node.op.bodies().into_iter().for_each(|body| add_names(body, names));
    }
}

#[test]
fn text_reads_back() {
    for_each_graph(|seed, RandomGraph { graph, .. }| {
        // With ids in the order of the text, as passes leave them.
        let graph = Edit::new(graph.clone(), "none", None).finish().graph;
        let full = text::to_text(&graph);
        let read = text::parse(&full).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{full}"));
        assert!(read == graph && text::to_text(&read) == full, "seed {seed}: reading changed\n{graph}\nto\n{read}");
    });
}

/// Whatever becomes of a file, it is read or refused: by the parser or by the verifier.
#[test]
fn damaged_text_is_read_or_refused() {
    let counts = RefCell::new([0; 3]);
    for_each_graph(|seed, RandomGraph { graph, .. }| {
        let text = text::to_text(graph);
        let mut random = Random::new(seed);
        for _ in 0..6 {
            let mut chars: Vec<char> = text.chars().collect();
            for _ in 0..1 + random.below(3) {
                let (at, from) = (random.below(chars.len()), random.below(chars.len()));
                match random.below(3) {
                    0 => drop(chars.remove(at)),
                    1 => chars.insert(at, *random.pick(&['0', '1', '9', '-', '.', 'e', '"', '[', ']', ',', '%', 'λ', '\\'])),
                    _ => chars.swap(at, from),
                }
            }
            let damaged: String = chars.into_iter().collect();
            let outcome = text::parse(&damaged).map(|graph| verify::verify(&graph));
            counts.borrow_mut()[match outcome {
                Ok(Ok(())) => 0,
                Ok(Err(_)) => 1,
                Err(_) => 2,
            }] += 1;
        }
    });
    let [read, unverified, refused] = counts.into_inner();
    assert!(read > 10 && unverified > 10 && refused > 50, "{read} {unverified} {refused}");
}

fn keeps_meaning(list: &[&Pass], rounds: bool) {
    let working = RefCell::new(BTreeSet::new());
    for_each_graph(|seed, RandomGraph { graph, exact }| {
        let mut options = Options { verify: true, ..Options::default() };
        let changed = passes::run(graph.clone(), list, &mut options);
        working.borrow_mut().extend(options.timings.iter().filter(|(_, rewrites, _)| *rewrites > 0).map(|(name, ..)| *name));
        check_outputs(seed, graph, &changed, exact, rounds);
    });
    let idle: Vec<_> = list.iter().filter(|pass| !working.borrow().contains(pass.name)).collect();
    assert!(idle.is_empty(), "passes that never found anything to do: {idle:?}");
}

fn check_outputs(seed: u64, graph: &Graph, changed: &Graph, exact: &[bool], rounds: bool) {
    let inputs = random_inputs(graph, seed);
    let before = interp::run(graph, &inputs).unwrap();
    let after = interp::run(changed, &inputs).unwrap();
    let judge = Judge::new(graph, &inputs);
    for (at, (before, after)) in before.iter().zip(&after).enumerate() {
        let checked = if exact[at] || !rounds { same_bits(after, before) } else { judge.close(at, after, before) };
        if let Err(error) = checked {
            panic!("seed {seed}, output '{}': {error}\n{graph}\nbecame\n{changed}", graph.outputs[at].0);
        }
    }
}

#[test]
fn canonical_passes_keep_bits() {
    keeps_meaning(passes::CANONICAL, false);
}

#[test]
fn deployment_passes_keep_values() {
    keeps_meaning(passes::DEPLOYMENT, true);
}

/// Any number of rewrites gives a right graph: what bisection relies on.
#[test]
fn fuel_stops_anywhere() {
    for_each_graph(|seed, RandomGraph { graph, exact }| {
        let fuel = Some(seed % 7);
        let mut options = Options { fuel, verify: true, ..Options::default() };
        let changed = passes::run(graph.clone(), passes::DEPLOYMENT, &mut options);
        assert!(options.fuel <= fuel);
        check_outputs(seed, graph, &changed, exact, true);
    });
}

/// Rounds end by their number, by the condition of a round, or before the first; rows of stacks that no round wrote are 0.
#[test]
fn loops_end() {
    let graph = text::parse(
        r#"graph "g" {
          input %n "n" : i64[]
          input %go "go" : bool[]
          input %x "x" : i32[]
          %rounds, %last, %stack = loop %n, %go, %x {carried 1, limit 5} : i64[], i32[], i32[5] graph "doubles to twenty" {
            input %round "round" : i64[]
            input %c "c" : i32[]
            constant %twenty : i32[] = 20
            %next = add %c, %c : i32[]
            %go = lt %next, %twenty : bool[]
            output %go "go"
            output %next "c"
            output %c "stack"
          }
          output %rounds "rounds"
          output %last "last"
          output %stack "stack"
        }"#,
    )
    .unwrap();
    verify::verify(&graph).unwrap();
    for (rounds, go, x, want) in [
        (3i64, true, 1i32, (3, 8, [1, 2, 4, 0, 0])),
        (100, true, 1, (5, 32, [1, 2, 4, 8, 16])),
        (100, true, 3, (3, 24, [3, 6, 12, 0, 0])),
        (100, false, 1, (0, 1, [0; 5])),
        (-1, true, 1, (0, 1, [0; 5])),
    ] {
        let outputs = interp::run(&graph, &[Tensor::scalar(rounds), Tensor::scalar(go), Tensor::scalar(x)]).unwrap();
        let numbers = |tensor: &Tensor| tensor.numbers().map(|number| number.as_i64()).collect::<Vec<_>>();
        assert_eq!(numbers(&outputs[0]), [want.0], "{rounds} {go} {x}");
        assert_eq!(numbers(&outputs[1]), [want.1], "{rounds} {go} {x}");
        assert_eq!(numbers(&outputs[2]), want.2, "{rounds} {go} {x}");
    }
}

/// A loop that carries constants and its inputs, as it is built, run.
fn built_loop(
    inputs: &[Tensor],
    limit: usize,
    initial: &[Tensor],
    body: impl for<'b> Fn(&'b Builder, Wire<'b>, &[Wire<'b>], &[Wire<'b>]) -> Round<'b>,
) -> Vec<Tensor> {
    let builder = Builder::new("loop");
    let given: Vec<Wire<'_>> = inputs.iter().enumerate().map(|(at, x)| builder.input(format!("x{at}"), x.ty().clone())).collect();
    let constants = initial.iter().map(|tensor| builder.constant(tensor.clone()));
    let carried: Vec<Wire<'_>> = constants.chain(given.iter().copied()).collect();
    let repeated = builder.repeat(limit, None, None, &carried, |round, carried| Ok(body(&builder, round, carried, &given)));
    let repeated = repeated.expect("a well-typed body");
    for (at, wire) in [repeated.rounds].into_iter().chain(repeated.carried).chain(repeated.stacks).enumerate() {
        builder.output(format!("y{at}"), wire);
    }
    let graph = builder.finish();
    verify::verify(&graph).unwrap();
    interp::run(&graph, inputs).unwrap()
}

fn integers(tensor: &Tensor) -> Vec<i64> {
    tensor.numbers().map(|number| number.as_i64()).collect()
}

/// What seems to stay the same in the first rounds, and so do values that depend on it, but does not in later ones.
#[test]
fn what_seems_constant_is_carried() {
    let x = Tensor::from_elements([2], &[1i32, 3]);
    let outputs = built_loop(&[x], 20, &[Tensor::scalar(0i64)], |builder, round, carried, _| {
        let (flag, a) = (carried[0], carried[1]);
        let late = builder.constant(Tensor::scalar(5i64)).le(round).cast(DType::I64);
        let doubles = flag.eq(builder.constant(Tensor::scalar(1i64)));
        // The branch is known where the flag is.
        let next = match doubles.constant() {
            Some(known) if known.number(0).as_i64() == 0 => a,
            _ => doubles.select(a + a, a),
        };
        Round { go: builder.constant(Tensor::scalar(true)), next: vec![late, next], elements: vec![] }
    });
    assert_eq!(integers(&outputs[0]), [20]);
    assert_eq!(integers(&outputs[1]), [1]);
    // Doubled in the rounds 6 to 19.
    assert_eq!(integers(&outputs[2]), [1 << 14, 3 << 14]);
}

/// A counter of few bits wraps; what is known of it must not say otherwise.
#[test]
fn counters_wrap() {
    let x = Tensor::scalar(0i32);
    let outputs = built_loop(&[x], 10, &[Tensor::scalar(253u8)], |builder, _, carried, _| {
        let (c, sum) = (carried[0], carried[1]);
        let small = c.lt(c.like(5.0)).cast(DType::I32);
        Round { go: builder.constant(Tensor::scalar(true)), next: vec![c + 1.0, sum + small], elements: vec![c] }
    });
    assert_eq!(integers(&outputs[1]), [7]);
    // 253, 254, 255, 0, 1, 2, 3, 4, 5, 6
    assert_eq!(integers(&outputs[2]), [5]);
    assert_eq!(integers(&outputs[3]), [253, 254, 255, 0, 1, 2, 3, 4, 5, 6]);
}

/// A counter bounds the loop, never beyond what is given.
#[test]
fn counters_bound_loops() {
    for (limit, last, rows) in [(1000, 9, 9), (5, 9, 5), (2, 1, 2), (5, 1, 1)] {
        let x = Tensor::scalar(7i32);
        let outputs = built_loop(&[x], limit, &[Tensor::scalar(0i64)], |builder, _, carried, given| {
            let next = carried[0] + 1.0;
            let go = next.lt(builder.constant(Tensor::scalar(last)));
            let element = given[0] + carried[0].cast(DType::I32);
            Round { go, next: vec![next, carried[1]], elements: vec![element] }
        });
        assert_eq!(integers(&outputs[0]), [rows.min(last)], "{limit} {last}");
        let stack = integers(&outputs[3]);
        assert!(stack.len() <= limit && stack.len() as i64 >= rows.min(last), "{limit} {last}: {stack:?}");
        assert!((0..rows.min(last)).all(|row| stack[row as usize] == 7 + row), "{limit} {last}: {stack:?}");
    }
}
