//! Passes over the graph, and the runner that repeats them to a fixed point.
//!
//! A pass changes a graph through [`Edit`] only. It may decline; it cannot fail. Each rewrite leaves the meaning as it was: the
//! same bits, except where a doc comment says that something is computed otherwise, in f64 at compile time.

mod eliminate_common;
mod eliminate_dead;
mod expand_batch_norm;
mod fold_batch_norm;
mod fold_constants;
mod separate_padding;
mod separate_windows;
mod simplify_identities;
mod simplify_movement;
mod sink_constants;
mod sink_transposes;

use std::fmt;
use std::time::{Duration, Instant};

use mcc_support::bug;

use crate::graph::edit::Edit;
use crate::graph::{Graph, ValueId, verify};

pub struct Pass {
    /// As in the change log, at the prompt and in the folder of its golden tests: `fold-batch-norm`.
    pub name: &'static str,
    /// What it does, in one line.
    pub doc: &'static str,
    /// Later stages rely on it: it does not spend fuel.
    pub required: bool,
    pub run: fn(&mut Edit),
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Keeps weights as they are in the model, and normalization as it is.
pub static CANONICAL: &[&Pass] = &[
    &fold_constants::PASS,
    &simplify_identities::PASS,
    &simplify_movement::PASS,
    &sink_transposes::PASS,
    &sink_constants::PASS,
    &eliminate_common::PASS,
    &eliminate_dead::PASS,
];

/// Makes the graph that is compiled: no batch normalization is left.
pub static DEPLOYMENT: &[&Pass] = &[
    // Before expansion, which takes apart what is to be recognized.
    &fold_batch_norm::PASS,
    &expand_batch_norm::PASS,
    &separate_padding::PASS,
    &separate_windows::PASS,
    &fold_constants::PASS,
    &simplify_identities::PASS,
    &simplify_movement::PASS,
    &sink_transposes::PASS,
    &sink_constants::PASS,
    &eliminate_common::PASS,
    &eliminate_dead::PASS,
];

pub fn find(name: &str) -> Option<&'static Pass> {
    DEPLOYMENT.iter().chain(CANONICAL).copied().find(|pass| pass.name == name)
}

/// How passes run, and what they report.
#[derive(Default)]
pub struct Options<'a> {
    /// Rewrites that are still allowed, over all runs with these options; `None`: any number.
    pub fuel: Option<u64>,
    /// Verify after each pass; builds with debug assertions always do.
    pub verify: bool,
    /// Told of the graph after each pass that changed it.
    pub dump: Option<&'a mut dyn FnMut(&'static str, &Graph)>,
    /// One line for each rewrite.
    pub log: Vec<String>,
    /// Those of `log` that fuel is spent on.
    pub steps: Vec<String>,
    /// Values that someone wants to find again in the result; `None` for one that is gone.
    pub tracked: Vec<Option<ValueId>>,
    /// Rewrites and time of each run of a pass.
    pub timings: Vec<(&'static str, u64, Duration)>,
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("fuel", &self.fuel).field("verify", &self.verify).finish_non_exhaustive()
    }
}

/// Runs the passes of a list in order, again and again until none finds anything to do, in the graph and those inside of its nodes.
pub fn run(mut graph: Graph, list: &[&Pass], options: &mut Options<'_>) -> Graph {
    // Far above what a graph needs: two passes that undo one another are a bug, not a hang.
    let limit = 1000 + 100 * graph.nodes.len() as u64;
    let mut rewrites = 0;
    loop {
        let before = (rewrites, options.log.len());
        for pass in list {
            graph = run_pass(graph, pass, options, &mut rewrites);
            if rewrites > limit {
                let last = options.log.iter().rev().take(6).rev().cloned().collect::<Vec<_>>().join("\n");
                bug!("passes find no end after {rewrites} rewrites, the last of them\n{last}");
            }
        }
        // Bodies have values of their own.
        let tracked = std::mem::take(&mut options.tracked);
        for node in graph.nodes.iter_mut().filter_map(|(_, node)| node.as_mut()) {
            for body in node.op.bodies_mut() {
                *body = run(std::mem::take(body), list, options);
            }
        }
        options.tracked = tracked;
        if (rewrites, options.log.len()) == before {
            return graph;
        }
    }
}

fn run_pass(graph: Graph, pass: &Pass, options: &mut Options<'_>, rewrites: &mut u64) -> Graph {
    let start = Instant::now();
    let mut edit = Edit::new(graph, pass.name, if pass.required { None } else { options.fuel });
    edit.track(std::mem::take(&mut options.tracked));
    (pass.run)(&mut edit);
    let edited = edit.finish();
    options.tracked = edited.tracked;
    options.timings.push((pass.name, edited.rewrites, start.elapsed()));
    *rewrites += edited.rewrites;
    if !pass.required {
        options.fuel = options.fuel.map(|fuel| fuel - edited.rewrites);
        options.steps.extend(edited.log.iter().cloned());
    }
    options.log.extend(edited.log);
    if (options.verify || cfg!(debug_assertions))
        && let Err(error) = verify::verify(&edited.graph)
    {
        bug!("the graph is wrong after pass {} and {} rewrites: {error}\n{}", pass.name, rewrites, edited.graph);
    }
    if let Some(dump) = &mut options.dump
        && edited.rewrites > 0
    {
        dump(pass.name, &edited.graph);
    }
    edited.graph
}
