//! Random graphs: fusions, chosen or drawn, keep every bit of the results, and plans are proved.

use std::collections::BTreeMap;

use mcc::decide;
use mcc::decisions::{Decisions, Fusion};
use mcc::loops::Program;
use mcc::loops::interp;
use mcc::loops::lower::lower;
use mcc::loops::verify::verify;
use mcc::plan::check::check;
use mcc::realize::fuse::{Fuser, fuse};
use mcc::realize::realize;
use mcc_support::Tensor;
use mcc_support::random::Random;
use mcc_tests::compare::same_bits;
use mcc_tests::random_graph::{Config, random_graph, random_inputs};

const GRAPHS: u64 = 200;

fn for_each_program(nodes: usize, check: &mut dyn FnMut(u64, &Program, &[Tensor])) {
    for seed in 0..GRAPHS {
        let config = Config { nodes, max_count: 512, ..Config::default() };
        let graph = random_graph(&mut Random::new(seed), &config).graph;
        check(seed, &lower(&graph), &random_inputs(&graph, seed));
    }
}

/// Reductions stay in their order, so that all results have the same bits.
fn check_results(seed: u64, before: &Program, after: &Program, inputs: &[Tensor], fusions: &[Fusion]) {
    verify(after).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}\n{before}\n{after}", log(fusions)));
    let want = interp::run(before, inputs).unwrap_or_else(|error| panic!("seed {seed}, as lowered: {error}"));
    let got =
        interp::run(after, inputs).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}\n{before}\n{after}", log(fusions)));
    for ((name, _), (got, want)) in before.outputs.iter().zip(got.iter().zip(&want)) {
        same_bits(got, want)
            .unwrap_or_else(|error| panic!("seed {seed}: output '{name}' changed: {error}\n{}\n{before}\n{after}", log(fusions)));
    }
}

fn log(fusions: &[Fusion]) -> String {
    fusions.iter().map(|fusion| format!("{fusion}\n")).collect()
}

fn kind(fusion: &Fusion) -> &'static str {
    match fusion {
        Fusion::Inline { .. } => "inline",
        Fusion::Epilogue { .. } => "epilogue",
        Fusion::Merge { .. } => "merge",
        Fusion::Interior { .. } => "interior",
        Fusion::Redirect { .. } => "redirect",
        Fusion::Distribute { .. } => "distribute",
    }
}

#[test]
fn chosen_fusions_keep_results_and_their_plans_hold() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut reordered = 0;
    for_each_program(16, &mut |seed, program, inputs| {
        let (fusions, fused) = decide::fuse::choose(program, true);
        fusions.iter().for_each(|fusion| *counts.entry(kind(fusion)).or_default() += 1);
        let order = decide::order::choose(&fused);
        reordered += usize::from(!order.iter().eq(fused.kernels.iter().map(|kernel| &kernel.name)));
        let decisions = Decisions { fusions, order, ..Decisions::default() };
        let realized = realize(program, &decisions).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        check_results(seed, program, &realized.program, inputs, &decisions.fusions);
        assert_eq!(check(&realized.program, &realized.plan), Vec::<String>::new(), "seed {seed}");
        assert!(realized.plan.arena_bytes >= realized.plan.lower_bound_bytes, "seed {seed}");
    });
    assert!(counts.len() == 6 && reordered > 20, "{counts:?}, {reordered} reordered");
}

/// Any fusion of kernels of which one reads what the other writes, and now and then of any two.
fn draw(random: &mut Random, fuser: &Fuser) -> Fusion {
    let slots = fuser.order();
    let slot = *random.pick(&slots);
    let consumer = slot;
    let producers = if random.chance(0.8) { fuser.producers(consumer) } else { slots };
    let producer = if producers.is_empty() { consumer } else { *random.pick(&producers) };
    let written: Vec<String> = fuser.writes(consumer).iter().map(|&buffer| fuser.buffer(buffer).name.clone()).collect();
    let name = |slot| fuser.kernel(slot).expect("slots in order are filled").name.clone();
    let (producer, consumer) = (name(producer), name(consumer));
    let read: Vec<String> = fuser.reads(slot).iter().map(|&buffer| fuser.buffer(buffer).name.clone()).collect();
    match random.below(6) {
        0 => Fusion::Inline { producer, consumer },
        1 => Fusion::Epilogue { producer, consumer },
        2 => Fusion::Merge { producer, consumer, depth: random.below(4) },
        3 => Fusion::Interior { producer, consumer },
        4 if !read.is_empty() => Fusion::Distribute { from: random.pick(&read).clone(), consumer },
        _ => Fusion::Redirect { from: random.pick(&written).clone(), to: random.pick(&written).clone() },
    }
}

#[test]
fn whatever_fusion_is_not_refused_keeps_results() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for_each_program(12, &mut |seed, program, inputs| {
        let mut random = Random::new(seed);
        let mut fuser = Fuser::new(program);
        let mut fusions = Vec::new();
        for _ in 0..10 * program.kernels.len() {
            let fusion = draw(&mut random, &fuser);
            if fuser.apply(&fusion).is_ok() {
                *counts.entry(kind(&fusion)).or_default() += 1;
                fusions.push(fusion);
            }
        }
        let fused = fuser.finish();
        check_results(seed, program, &fused, inputs, &fusions);
        assert!(fuse(program, &fusions).is_ok_and(|again| again == fused), "seed {seed}: not the same again");
    });
    assert!(counts.len() == 6, "{counts:?}");
}
