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
use mcc_support::Tensor;
use sha2::{Digest, Sha256};

use crate::decisions::{Decisions, KernelDecision, Layout};
use crate::loops::{Program, Role};
use crate::realize;

/// Chooses for lowered programs that share their constants; `target` is the name of the one that compiles their kernels, with its
/// facts. `fuel` says, for each program, how many fusions, layouts and schedule steps are taken, in this order; `None`: all.
pub fn decide(programs: &[&Program], target: &str, facts: &Facts, fuel: &[Option<u64>]) -> Vec<Decisions> {
    if let [program] = programs {
        return vec![decide_one(program, target, facts, fuel[0], None)];
    }
    // The largest chooses how a constant is packed, and all others take it over: it is there once.
    let size = |program: &Program| -> usize { program.inputs.iter().map(|(_, id)| program.buffers[*id].ty.shape.count()).sum() };
    let mut order: Vec<usize> = (0..programs.len()).collect();
    order.sort_by_key(|&index| Reverse(size(programs[index])));
    let mut packed = BTreeMap::new();
    let mut decisions = vec![Decisions::default(); programs.len()];
    for index in order {
        decisions[index] = decide_one(programs[index], target, facts, fuel[index], Some(&mut packed));
    }
    decisions
}

/// Layouts of constants by the hash of their contents.
type Packed = BTreeMap<[u8; 32], Layout>;

fn decide_one(program: &Program, target: &str, facts: &Facts, mut fuel: Option<u64>, packed: Option<&mut Packed>) -> Decisions {
    let (mut fusions, mut fused) = fuse::choose(program, facts.vector_registers);
    let taken = spend(&mut fuel, fusions.len());
    if taken < fusions.len() {
        fusions.truncate(taken);
        fused = realize::fuse::fuse(program, &fusions).expect("the first of fusions that were chosen");
    }
    let values = layout::values(&fused);
    let mut winograd = winograd::choose(&fused, &values, facts, &BTreeMap::new());
    let taken = spend(&mut fuel, winograd.len());
    winograd = winograd.into_iter().take(taken).collect();
    let fused = realize::winograd::apply(fused, &winograd).expect("convolutions that were chosen");
    let order = order::choose(&fused);
    let packed_before = packed.as_deref().map(|packed| known(&fused, packed)).unwrap_or_default();
    let layouts = layout::add_weights(&fused, facts, values, packed_before);
    if let Some(packed) = packed {
        remember(&fused, &layouts, packed);
    }
    let taken = spend(&mut fuel, layouts.len());
    let layouts: BTreeMap<String, Layout> = layouts.into_iter().take(taken).collect();
    let decision = |name: &String| {
        let kernel = fused.kernels.iter().find(|kernel| kernel.name == *name).expect("the order names the kernels");
        let mut schedule = schedule::choose(&fused, kernel, &layouts, facts);
        schedule.truncate(spend(&mut fuel, schedule.len()));
        (name.clone(), KernelDecision { target: target.to_owned(), schedule })
    };
    let kernels = order.iter().map(decision).collect();
    Decisions { fusions, winograd, order, layouts, kernels }
}

/// How many of `count` the fuel suffices for.
fn spend(fuel: &mut Option<u64>, count: usize) -> usize {
    let taken = fuel.map_or(count as u64, |fuel| fuel.min(count as u64));
    *fuel = fuel.map(|fuel| fuel - taken);
    taken as usize
}

/// The layouts of constants that other programs have, too.
fn known(program: &Program, packed: &Packed) -> BTreeMap<String, Layout> {
    constants(program).filter_map(|(name, tensor)| Some((name.clone(), packed.get(&hash(tensor))?.clone()))).collect()
}

/// Adds layouts of constants that are new.
fn remember(program: &Program, layouts: &BTreeMap<String, Layout>, packed: &mut Packed) {
    for (name, tensor) in constants(program) {
        let layout = layouts.get(name).cloned();
        packed.entry(hash(tensor)).or_insert_with(|| layout.unwrap_or_else(|| Layout::row_major(tensor.shape().rank())));
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
