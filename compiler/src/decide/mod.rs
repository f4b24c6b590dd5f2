//! Chooses decisions: rules and a cost model over the facts of the target. Nothing here changes a program.

pub mod fuse;
pub mod layout;
pub mod nest;
pub mod order;
pub mod schedule;

use mcc_kernel::Facts;

use crate::decisions::{Decisions, KernelDecision};
use crate::loops::Program;

/// Chooses for a lowered program; `target` is the name of the one that compiles its kernels, with its facts.
pub fn decide(program: &Program, target: &str, facts: &Facts) -> Decisions {
    let (fusions, fused) = fuse::choose(program);
    let order = order::choose(&fused);
    let layouts = layout::choose(&fused, facts);
    let decision =
        |kernel| KernelDecision { target: target.to_owned(), schedule: schedule::choose(&fused, kernel, &layouts, facts) };
    let kernels = fused.kernels.iter().map(|kernel| (kernel.name.clone(), decision(kernel))).collect();
    Decisions { fusions, order, layouts, kernels }
}
