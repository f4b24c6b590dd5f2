//! Chooses decisions: rules and a cost model over the facts of the target. Nothing here changes a program.

pub mod cost;
pub mod fuse;
pub mod layout;
pub mod nest;
pub mod order;
pub mod schedule;
pub mod winograd;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use mcc_kernel::Facts;
use mcc_support::{Result, Tensor};
use sha2::{Digest, Sha256};

use crate::decisions::{Decisions, Fusion, KernelDecision, Layout, Winograd};
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
    /// Whether convolutions are transformed where that is faster.
    pub may_transform: bool,
    /// How many fusions, transformed convolutions, layouts and schedule steps are taken, in this order; `None`: all.
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
    let mut shared = Shared::default();
    let mut decisions = vec![Decisions::default(); questions.len()];
    for index in order {
        decisions[index] = decide_one(&questions[index], Some(&mut shared));
    }
    decisions
}

/// What programs that have the same constants settle on, by the hash of their contents.
#[derive(Default)]
struct Shared {
    layouts: BTreeMap<[u8; 32], Layout>,
    /// Results of a tile of convolutions with these weights.
    outputs: BTreeMap<[u8; 32], usize>,
}

fn decide_one(question: &Question, mut shared: Option<&mut Shared>) -> Decisions {
    let Question { program, target, facts, may_transform, mut fuel, .. } = *question;
    let (mut fusions, mut fused) = fuse::choose(program, facts.fma);
    let taken = spend(&mut fuel, fusions.len());
    if taken < fusions.len() {
        fusions.truncate(taken);
        fused = realize::fuse::fuse(program, &fusions).expect("the first of fusions that were chosen");
    }
    let values = layout::values(&fused);
    let fixed = shared.as_deref().map(|shared| found(&fused, &shared.outputs)).unwrap_or_default();
    let winograd = if may_transform { winograd::choose(&fused, &values, facts, &fixed) } else { BTreeMap::new() };
    let taken = spend(&mut fuel, winograd.len());
    let winograd: BTreeMap<String, Winograd> = winograd.into_iter().take(taken).collect();
    if let Some(shared) = &mut shared {
        let outputs = winograd::outputs_of_weights(&fused, &winograd);
        remember(&fused, &outputs, &mut shared.outputs);
    }
    let fused = realize::winograd::apply(fused, &winograd).expect("convolutions that were chosen");
    let rest = rest(&fused, values, target, facts, &mut fuel, shared.map(|shared| &mut shared.layouts));
    Decisions { fusions, winograd, ..rest }
}

/// All other decisions for these ones.
///
/// # Errors
///
/// Those that do not fit the program.
pub fn complete(
    program: &Program,
    fusions: Vec<Fusion>,
    winograd: BTreeMap<String, Winograd>,
    target: &str,
    facts: &Facts,
) -> Result<Decisions> {
    let fused = realize::fuse::fuse(program, &fusions)?;
    let values = layout::values(&fused);
    let fused = realize::winograd::apply(fused, &winograd)?;
    Ok(Decisions { fusions, winograd, ..rest(&fused, values, target, facts, &mut None, None) })
}

/// Order, layouts and schedules of a program whose values lie as `layouts` say.
fn rest(
    fused: &Program,
    layouts: BTreeMap<String, Layout>,
    target: &str,
    facts: &Facts,
    fuel: &mut Option<u64>,
    packed: Option<&mut BTreeMap<[u8; 32], Layout>>,
) -> Decisions {
    let order = order::choose(fused);
    let before = packed.as_deref().map(|packed| found(fused, packed)).unwrap_or_default();
    let layouts = layout::add_weights(fused, facts, layouts, before);
    if let Some(packed) = packed {
        let of = |(name, tensor): (&String, &Tensor)| {
            let layout = layouts.get(name).cloned();
            (name.clone(), layout.unwrap_or_else(|| Layout::row_major(tensor.shape().rank())))
        };
        remember(fused, &constants(fused).map(of).collect(), packed);
    }
    let taken = spend(fuel, layouts.len());
    let layouts: BTreeMap<String, Layout> = layouts.into_iter().take(taken).collect();
    let decision = |name: &String| {
        let kernel = fused.kernels.iter().find(|kernel| kernel.name == *name).expect("the order names the kernels");
        let mut schedule = schedule::choose(fused, kernel, &layouts, facts);
        schedule.truncate(spend(fuel, schedule.len()));
        (name.clone(), KernelDecision { target: target.to_owned(), schedule })
    };
    let kernels = order.iter().map(decision).collect();
    Decisions { order, layouts, kernels, ..Decisions::default() }
}

/// How many of `count` the fuel suffices for.
fn spend(fuel: &mut Option<u64>, count: usize) -> usize {
    let taken = fuel.map_or(count as u64, |fuel| fuel.min(count as u64));
    *fuel = fuel.map(|fuel| fuel - taken);
    taken as usize
}

/// What is known of the constants of a program, by their names.
fn found<T: Clone>(program: &Program, known: &BTreeMap<[u8; 32], T>) -> BTreeMap<String, T> {
    constants(program).filter_map(|(name, tensor)| Some((name.clone(), known.get(&hash(tensor))?.clone()))).collect()
}

/// Adds what is new of constants.
fn remember<T: Clone>(program: &Program, of: &BTreeMap<String, T>, known: &mut BTreeMap<[u8; 32], T>) {
    for (name, tensor) in constants(program) {
        if let Some(of) = of.get(name) {
            known.entry(hash(tensor)).or_insert_with(|| of.clone());
        }
    }
}

fn constants(program: &Program) -> impl Iterator<Item = (&String, &Tensor)> {
    program.buffers.values().filter_map(|buffer| match &buffer.role {
        Role::Constant(tensor) => Some((&buffer.name, tensor)),
        _ => None,
    })
}

fn hash(tensor: &Tensor) -> [u8; 32] {
    Sha256::new().chain_update(tensor.ty().to_string()).chain_update(tensor.data()).finalize().into()
}
