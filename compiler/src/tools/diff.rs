//! `mcc diff`: the values inside of a model at some level beside what they should be.
//!
//! A value is known by its name in the model. Rewrites and fusions do away with many: what no kernel stores cannot be compared, and the
//! table says so. To see the others, buffers keep their contents to the end of the run; that the model runs as well in less memory is
//! tested with its outputs.

use std::collections::BTreeMap;
use std::process::ExitCode;

use mcc_support::{Error, Result, Tensor, ensure};

use crate::driver::{self, Compilation, Options, Silent, Specialization, Stage, Value};
use crate::graph;
use crate::loops::{self, Program, Role, sites};
use crate::plan::{Place, pack};

use super::args::{CompareArgs, Level};
use super::compare::{Difference, wrong};
use super::exec::{Executable, finished};
use super::{inputs, interpret, print, run};

/// Tensors by their names in the model.
pub type Values = BTreeMap<String, Tensor>;

/// A value of the model.
#[derive(Clone, Debug)]
pub struct Row {
    pub value: Value,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Outcome {
    /// It does not exist at the level: rewritten or fused.
    NotStored,
    NotInReference,
    OtherType,
    Compared(Difference),
}

impl Row {
    pub fn is_wrong(&self, tolerance: f64) -> bool {
        match self.outcome {
            Outcome::NotStored | Outcome::NotInReference => false,
            Outcome::OtherType => true,
            Outcome::Compared(difference) => difference.relative > tolerance,
        }
    }

    pub fn is_compared(&self) -> bool {
        !matches!(self.outcome, Outcome::NotStored | Outcome::NotInReference)
    }
}

pub fn diff(args: &CompareArgs) -> Result<ExitCode> {
    let mut options = args.build.options(&args.model, "host")?;
    let (given, reference) = inputs::with_reference(args)?;
    inputs::fix_shapes(&given, &mut options)?;
    let plain = driver::compile(&Options { stop_after: Some(Stage::Import), ..options.clone() }, &mut Silent)?;
    let imported = inputs::specialization(&plain, &given)?;
    ensure!(imported.graph().tensor_inputs().len() == imported.graph().inputs.len(), "diff needs shapes that are fixed");
    let tensors = inputs::complete(imported, given, args.seed)?;
    let reference = match reference {
        Some(values) => values.into_iter().map(unprefixed).collect(),
        None => of_graph(imported, &tensors)?,
    };
    let options = Options { keep_values: true, stop_after: run::last_stage(args.at), ..options };
    let compilation = driver::compile(&options, &mut Silent)?;
    let index = plain.specializations().iter().position(|one| std::ptr::eq(one, imported)).expect("one of them");
    let specialization = &compilation.specializations_here()[index];
    let found = values(&compilation, specialization, args.at, &tensors)?;
    let rows = rows(specialization, &reference, &found);
    let compared = rows.iter().filter(|row| row.is_compared()).count();
    ensure!(compared > 0, "the reference has no value that the model has at this level");
    let mut text = table(&rows, args.tolerance);
    text += &format!("{compared} of {} values of the model are compared\n", rows.len());
    let first = rows.iter().find(|row| row.is_wrong(args.tolerance));
    let shared = match first {
        Some(_) => None,
        None => in_less_memory(&options, specialization, args.at, &tensors, &reference, args.tolerance)?,
    };
    text += &match (first, &shared) {
        (Some(row), _) => {
            let node = &row.value.node;
            format!(
                "the first that differs: '{}', of node '{}' ({}, opset {})\n",
                row.value.name, node.name, node.operator, node.opset
            )
        }
        (None, Some(how)) => format!("values are right, but not where buffers share memory: {how}\n"),
        (None, None) => "no value differs\n".to_string(),
    };
    print(&text);
    Ok(if first.is_none() && shared.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// References may have outputs as `out_NAME`.
fn unprefixed((name, tensor): (String, Tensor)) -> (String, Tensor) {
    (name.strip_prefix("out_").map(str::to_string).unwrap_or(name), tensor)
}

/// What is wrong with the outputs of the build as it is without buffers that keep their contents.
fn in_less_memory(
    options: &Options,
    specialization: &Specialization,
    level: Level,
    inputs: &[Tensor],
    reference: &Values,
    tolerance: f64,
) -> Result<Option<String>> {
    if matches!(level, Level::Graph | Level::Loops) {
        return Ok(None);
    }
    let compilation = driver::compile(&Options { keep_values: false, ..options.clone() }, &mut Silent)?;
    let outputs = run::outputs(&compilation, specialization, level, inputs)?;
    let names = specialization.graph().outputs.iter().map(|(name, _)| name.clone());
    let known = names.zip(outputs).filter_map(|(name, got)| Some((reference.get(&name)?.clone(), name, got)));
    let (mut want, mut names, mut got) = (Vec::new(), Vec::new(), Vec::new());
    known.for_each(|(tensor, name, output)| {
        want.push(tensor);
        names.push(name);
        got.push(output);
    });
    Ok(wrong(&names, &got, &want, tolerance))
}

/// Every value of the model, in its order.
pub fn rows(specialization: &Specialization, reference: &Values, found: &Values) -> Vec<Row> {
    let outcome = |value: &Value| match (reference.get(&value.name), found.get(&value.name)) {
        (_, None) => Outcome::NotStored,
        (None, _) => Outcome::NotInReference,
        (Some(want), Some(got)) => Difference::of(got, want).map_or(Outcome::OtherType, Outcome::Compared),
    };
    specialization.values.iter().map(|value| Row { value: value.clone(), outcome: outcome(value) }).collect()
}

fn table(rows: &[Row], tolerance: f64) -> String {
    let widest = rows.iter().map(|row| row.value.name.chars().count()).max().unwrap_or(0).clamp(5, 60);
    let mut text = format!("  {:<widest$}  {:>9}  {:>9}  node\n", "value", "absolute", "relative");
    for row in rows {
        let mark = if row.is_wrong(tolerance) { '!' } else { ' ' };
        let numbers = match row.outcome {
            Outcome::Compared(difference) => format!("{:>9.2e}  {:>9.2e}", difference.absolute, difference.relative),
            Outcome::OtherType => format!("{:>20}", "another type"),
            Outcome::NotStored => format!("{:>20}", "not stored"),
            Outcome::NotInReference => format!("{:>20}", "not in reference"),
        };
        text +=
            &format!("{mark} {:<widest$}  {numbers}  {} ({})\n", row.value.name, row.value.node.name, row.value.node.operator);
    }
    text
}

/// The values that exist at a level.
pub fn values(compilation: &Compilation, specialization: &Specialization, level: Level, inputs: &[Tensor]) -> Result<Values> {
    match level {
        Level::Graph => of_graph(specialization, inputs),
        Level::Loops => of_loops(specialization, inputs),
        Level::Kernel => {
            let (outputs, arena) = interpret::run_with_arena(compilation, inputs)?;
            of_memory(specialization, outputs, &arena)
        }
        Level::Machine => {
            let mut executable = Executable::load(compilation.linked())?;
            let mut binding = executable.bind(inputs)?;
            finished(executable.run(&mut binding))?;
            of_memory(specialization, executable.outputs(&binding), executable.arena())
        }
    }
}

fn of_graph(specialization: &Specialization, inputs: &[Tensor]) -> Result<Values> {
    // All that is wanted becomes an output.
    let mut graph = specialization.graph().clone();
    graph.outputs.extend(specialization.values.iter().filter_map(|value| Some((value.name.clone(), value.id?))));
    let outputs = graph::interp::run(&graph, inputs)?;
    Ok(graph.outputs.into_iter().map(|(name, _)| name).zip(outputs).collect())
}

fn of_loops(specialization: &Specialization, inputs: &[Tensor]) -> Result<Values> {
    let mut program = specialization.realized().program.clone();
    let stored = stored(specialization, &program);
    program.outputs.extend(stored);
    let (outputs, status) = loops::interp::run_with_status(&program, inputs)?;
    finished(status as i32)?;
    Ok(program.outputs.into_iter().map(|(name, _)| name).zip(outputs).collect())
}

/// The values that kernels store, with their buffers.
fn stored(specialization: &Specialization, program: &Program) -> Vec<(String, loops::BufferId)> {
    let mut written = std::collections::BTreeSet::new();
    program.kernels.iter().for_each(|kernel| written.extend(sites::accesses(kernel).1));
    let find = |value: &Value| {
        let name = value.buffer.as_ref()?;
        let (id, buffer) = program.buffers.iter().find(|(_, buffer)| buffer.name == *name)?;
        // One that is shared by rounds has another shape, and holds what the last round left.
        let whole = buffer.ty == *specialization.graph().ty(value.id?);
        let kept = matches!(buffer.role, Role::Temporary | Role::Output(_));
        (whole && kept && written.contains(&id)).then(|| (value.name.clone(), id))
    };
    specialization.values.iter().filter_map(find).collect()
}

fn of_memory(specialization: &Specialization, outputs: Vec<Tensor>, arena: &[u8]) -> Result<Values> {
    let realized = specialization.realized();
    let (program, plan) = (&realized.program, &realized.plan);
    let value = |(name, id): (String, loops::BufferId)| match plan.places[id] {
        Place::Output(at) => Ok((name, outputs[at].clone())),
        Place::Arena { offset, size_bytes } => {
            let bytes = arena.get(offset..offset + size_bytes).ok_or_else(|| Error::new("the arena is too small"))?;
            Ok((name, pack::unpack(&program.buffers[id].ty, &plan.layouts[id], bytes)))
        }
        place => mcc_support::bug!("a value that is stored lies at {place:?}"),
    };
    // An output may be a copy of what is stored elsewhere.
    let names = specialization.graph().outputs.iter().map(|(name, _)| name.clone());
    let named = names.zip(outputs.iter().cloned()).map(Ok);
    stored(specialization, program).into_iter().map(value).chain(named).collect()
}
