//! Chooses decisions: rules and a cost model over the facts of the target. Nothing here changes a program.

pub mod cost;
pub mod fuse;
pub mod layout;
pub mod nest;
pub mod order;
pub mod schedule;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use mcc_kernel::Facts;
use mcc_support::Tensor;
use sha2::{Digest, Sha256};

use crate::decisions::{Decisions, KernelDecision, Layout};
use crate::loops::{Program, Role};
use crate::realize;

/// A lowered program for one CPU.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub program: &'a Program,
    /// The name of the target that compiles its kernels, and its facts.
    pub target: &'a str,
    pub facts: &'a Facts,
    /// Better CPUs have lower numbers.
    pub level: usize,
    /// How many fusions, layouts and schedule steps are taken, in this order; `None`: all.
    pub fuel: Option<u64>,
}

/// Chooses for programs that share their constants.
pub fn decide(questions: &[Question]) -> Vec<Decisions> {
    if let [one] = questions {
        return vec![decide_one(one, None)];
    }
    // The largest for the best CPU chooses how a constant is packed, and all others take it over: it is there once.
    let size = |program: &Program| -> usize { program.inputs.iter().map(|(_, id)| program.buffers[*id].ty.shape.count()).sum() };
    let mut order: Vec<usize> = (0..questions.len()).collect();
    order.sort_by_key(|&index| (questions[index].level, Reverse(size(questions[index].program))));
    let mut packed = BTreeMap::new();
    let mut decisions = vec![Decisions::default(); questions.len()];
    for index in order {
        decisions[index] = decide_one(&questions[index], Some(&mut packed));
    }
    decisions
}

/// Layouts of constants by the hash of their contents.
type Packed = BTreeMap<[u8; 32], Layout>;

fn decide_one(question: &Question, packed: Option<&mut Packed>) -> Decisions {
    let Question { program, target, facts, mut fuel, .. } = *question;
    let (mut fusions, mut fused) = fuse::choose(program);
    let taken = spend(&mut fuel, fusions.len());
    if taken < fusions.len() {
        fusions.truncate(taken);
        fused = realize::fuse::fuse(program, &fusions).expect("the first of fusions that were chosen");
    }
    let order = order::choose(&fused);
    let layouts = match packed {
        Some(packed) => layouts_beside(&fused, facts, packed),
        None => layout::choose(&fused, facts),
    };
    let taken = spend(&mut fuel, layouts.len());
    let layouts: BTreeMap<String, Layout> = layouts.into_iter().take(taken).collect();
    let decision = |name: &String| {
        let kernel = fused.kernels.iter().find(|kernel| kernel.name == *name).expect("the order names the kernels");
        let mut schedule = schedule::choose(&fused, kernel, &layouts, facts);
        schedule.truncate(spend(&mut fuel, schedule.len()));
        (name.clone(), KernelDecision { target: target.to_owned(), schedule })
    };
    let kernels = order.iter().map(decision).collect();
    Decisions { fusions, order, layouts, kernels }
}

/// How many of `count` the fuel suffices for.
fn spend(fuel: &mut Option<u64>, count: usize) -> usize {
    let taken = fuel.map_or(count as u64, |fuel| fuel.min(count as u64));
    *fuel = fuel.map(|fuel| fuel - taken);
    taken as usize
}

/// Layouts, where constants in `packed` lie as that says; adds those that are new.
fn layouts_beside(program: &Program, facts: &Facts, packed: &mut Packed) -> BTreeMap<String, Layout> {
    let constants: Vec<(&String, [u8; 32], usize)> = program
        .buffers
        .values()
        .filter_map(|buffer| match &buffer.role {
            Role::Constant(tensor) => Some((&buffer.name, hash(tensor), buffer.ty.rank())),
            _ => None,
        })
        .collect();
    let known = constants.iter().filter_map(|(name, hash, _)| Some(((*name).clone(), packed.get(hash)?.clone())));
    let layouts = layout::choose_beside(program, facts, known.collect());
    for (name, hash, rank) in constants {
        let layout = layouts.get(name).cloned();
        packed.entry(hash).or_insert_with(|| layout.unwrap_or_else(|| Layout::row_major(rank)));
    }
    layouts
}

fn hash(tensor: &Tensor) -> [u8; 32] {
    Sha256::new().chain_update(tensor.ty().to_string()).chain_update(tensor.data()).finalize().into()
}
