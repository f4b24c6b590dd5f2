//! Carries out decisions; pure: the same program and decisions give the same result, and the results of a run stay as they were.

mod border;
pub mod fuse;
mod limit;
pub mod schedule;
pub mod winograd;

use std::collections::BTreeMap;

use mcc_support::{EntityMap, Result, bail, ensure};

use crate::decisions::{Decisions, Layout};
use crate::loops::{BufferId, Kernel, Program, RegionId, Role, regions, sites};
use crate::plan::pack::Weights;
use crate::plan::{self, MemoryPlan};

/// A program as decided: fused, in order, scheduled; and where its buffers live.
#[derive(Clone, PartialEq, Debug)]
pub struct Realized {
    pub program: Program,
    pub plan: MemoryPlan,
}

/// Carries out decisions on a lowered program. Errors are of decisions that do not fit it.
pub fn realize(program: &Program, decisions: &Decisions) -> Result<Realized> {
    let mut realized = realize_all(&[(program, decisions)], false)?;
    Ok(realized.remove(0))
}

/// Carries out decisions on each of several programs, whose constants are packed together: equal ones are there once. With `keep`,
/// buffers keep their contents to the end of a run.
pub fn realize_all(programs: &[(&Program, &Decisions)], keep: bool) -> Result<Vec<Realized>> {
    let mut weights = Weights::default();
    let realize = |&(program, decisions): &(&Program, &Decisions)| realize_with(program, decisions, keep, &mut weights);
    let mut realized = programs.iter().map(realize).collect::<Result<Vec<_>>>()?;
    let weights = weights.finish();
    realized.iter_mut().for_each(|realized| realized.plan.weights = weights.clone());
    Ok(realized)
}

fn realize_with(program: &Program, decisions: &Decisions, keep: bool, weights: &mut Weights) -> Result<Realized> {
    let fused = fuse::fuse(program, &decisions.fusions)?;
    let mut program = ordered(winograd::apply(fused, &decisions.winograd)?, &decisions.order)?;
    for kernel in &mut program.kernels {
        if let Some(decision) = decisions.kernels.get(&kernel.name) {
            schedule::apply(kernel, &mut program.buffers, &decision.schedule)?;
        }
        border::apply(kernel, &program.buffers);
    }
    for name in decisions.kernels.keys() {
        ensure!(
            program.kernels.iter().any(|kernel| kernel.name == *name),
            "a schedule is for kernel '{name}', which is not there"
        );
    }
    limit::apply(&mut program, &decisions.fusions);
    let layouts = layouts(&program, &decisions.layouts)?;
    let plan = plan::plan_with(&program, &layouts, keep, weights);
    Ok(Realized { program, plan })
}

/// The kernels in the order named.
fn ordered(mut program: Program, order: &[String]) -> Result<Program> {
    ensure!(order.len() == program.kernels.len(), "the order names {} of {} kernels", order.len(), program.kernels.len());
    let latches: Vec<(Option<RegionId>, String)> =
        program.kernels.iter().filter(|kernel| kernel.latch).map(|kernel| (kernel.region, kernel.name.clone())).collect();
    let mut kernels: BTreeMap<String, Kernel> =
        std::mem::take(&mut program.kernels).into_iter().map(|kernel| (kernel.name.clone(), kernel)).collect();
    // Kernels that write each buffer and have yet to run.
    let mut writers: EntityMap<BufferId, Vec<String>> = EntityMap::filled(program.buffers.len(), Vec::new());
    let regions: BTreeMap<String, (Option<RegionId>, bool)> =
        kernels.values().map(|kernel| (kernel.name.clone(), (kernel.region, kernel.latch))).collect();
    for kernel in kernels.values() {
        sites::accesses(kernel).1.into_iter().for_each(|buffer| writers[buffer].push(kernel.name.clone()));
    }
    // They write what those before them read.
    let named = order.iter().filter(|name| regions.get(*name).is_some_and(|&(_, latch)| latch));
    let mut by_region: BTreeMap<Option<RegionId>, Vec<&String>> = BTreeMap::new();
    named.for_each(|name| by_region.entry(regions[name].0).or_default().push(name));
    let in_order =
        |region: &Option<RegionId>| latches.iter().filter(|(of, _)| of == region).map(|(_, name)| name).collect::<Vec<_>>();
    if let Some((_, named)) = by_region.iter().find(|(region, named)| in_order(region) != **named) {
        bail!("the order runs the last kernels of a loop, {named:?}, in another order than they end its rounds in");
    }
    for name in order {
        let Some(kernel) = kernels.remove(name) else { bail!("the order names kernel '{name}' twice, or it is not there") };
        let (reads, writes) = sites::accesses(&kernel);
        writes.iter().for_each(|&buffer| writers[buffer].retain(|writer| writer != name));
        let path = program.region_path(kernel.region);
        let conditions = path.iter().map(|&region| program.regions[region].kind.condition());
        // The latches of a loop write for its next round.
        let comes_later = |writer: &String| {
            let (region, latch) = regions[writer];
            !(latch && region.is_some_and(|region| path.contains(&region)))
        };
        // What a region adds to must be there; the status is stored to in any order.
        let surrounds = |writer: &String| match regions[writer].0 {
            None => kernel.region.is_some(),
            Some(region) => kernel.region != Some(region) && path.contains(&region),
        };
        let ordered = |buffer: BufferId| program.buffers[buffer].role != Role::Status;
        if let Some(early) = writes.iter().find(|&&buffer| ordered(buffer) && writers[buffer].iter().any(surrounds)) {
            bail!("the order runs kernel '{name}' before '{}' is written around its region", program.buffers[*early].name);
        }
        // The other side of a branch writes it, too.
        let missing = |&buffer: &BufferId| {
            let waits = |writer: &&String| comes_later(writer) && !program.are_sides(kernel.region, regions[*writer].0);
            writers[buffer].iter().any(|writer| waits(&writer))
        };
        if let Some(early) = reads.into_iter().chain(conditions).find(missing) {
            bail!("the order runs kernel '{name}' before what it reads, '{}', is written", program.buffers[early].name);
        }
        program.kernels.push(kernel);
    }
    regions::verify(&program).map_err(|error| error.context("in the order of kernels"))?;
    Ok(program)
}

/// The layout of every buffer.
fn layouts(program: &Program, named: &BTreeMap<String, Layout>) -> Result<EntityMap<BufferId, Layout>> {
    for (name, layout) in named {
        let Some(buffer) = program.buffers.values().find(|buffer| buffer.name == *name) else {
            bail!("a layout is for buffer '{name}', which is not there");
        };
        let callers = matches!(buffer.role, Role::Input(_) | Role::Output(_));
        ensure!(!callers || *layout == Layout::row_major(buffer.ty.rank()), "the layout of '{name}' is the caller's");
        layout.validate(buffer.ty.shape.dims()).map_err(|error| error.context(format!("in the layout of '{name}'")))?;
    }
    let of = |buffer: &crate::loops::Buffer| named.get(&buffer.name).cloned();
    Ok(program.buffers.values().map(|buffer| of(buffer).unwrap_or_else(|| Layout::row_major(buffer.ty.rank()))).collect())
}

#[cfg(test)]
mod tests;
