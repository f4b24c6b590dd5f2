//! `mcc run`: a model's outputs, from any of its forms.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use mcc_support::{Error, Result, Tensor};

use crate::driver::{self, Compilation, Specialization, Stage};
use crate::graph;
use crate::loops;
use crate::outputs;

use super::args::{Level, RunArgs};
use super::exec::{Executable, finished};
use super::report::{self, Reporter};
use super::{inputs, interpret, print};

pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let mut options = args.build.options(&args.model, "host")?;
    options.stop_after = last_stage(args.at);
    let given = inputs::from_arguments(&args.input)?;
    inputs::fix_shapes(&given, &mut options)?;
    let mut reporter = Reporter::new(!args.quiet, Vec::new());
    let compilation = driver::compile(&options, &mut reporter)?;
    let times = reporter.finish();
    if args.build.time {
        report::times(&times);
    }
    let specialization = inputs::specialization(&compilation, &given)?;
    let graph = specialization.graph();
    let random: Vec<String> = inputs::types(specialization)
        .filter(|(name, _)| !given.contains_key(*name))
        .map(|(name, _)| format!("'{name}'"))
        .collect();
    if !args.quiet && !random.is_empty() {
        report::note(&format!("inputs that no --input gives are random: {}", random.join(", ")));
    }
    let tensors = inputs::complete(specialization, given, args.seed)?;
    let outputs = outputs(&compilation, specialization, args.at, &tensors)?;
    let names: Vec<&str> = graph.tensor_outputs().iter().map(|(name, _)| name.as_str()).collect();
    if let Some(folder) = &args.output {
        write(folder, &names, &outputs)?;
    }
    if !args.quiet {
        for (name, tensor) in names.iter().zip(&outputs) {
            print(&format!("{name}: {}\n", summary(tensor)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The last stage that a run at a level needs; `None`: all of them.
pub fn last_stage(level: Level) -> Option<Stage> {
    match level {
        Level::Graph => Some(Stage::Passes),
        Level::Loops => Some(Stage::Realize),
        Level::Kernel | Level::Machine => None,
    }
}

/// The outputs at a level; `specialization` is that of the inputs' shapes.
pub fn outputs(
    compilation: &Compilation,
    specialization: &Specialization,
    level: Level,
    inputs: &[Tensor],
) -> Result<Vec<Tensor>> {
    match level {
        Level::Graph => {
            let graph = specialization.graph();
            graph.contract(inputs, graph::interp::run(graph, &graph.expand(inputs)?)?)
        }
        Level::Loops => {
            let (graph, program) = (specialization.graph(), &specialization.realized().program);
            let (outputs, status) = loops::interp::run_with_status(program, &graph.expand(inputs)?)?;
            finished(status as i32)?;
            graph.contract(inputs, outputs)
        }
        Level::Kernel => interpret::run(compilation, inputs),
        Level::Machine => {
            let mut executable = Executable::load(compilation.linked())?;
            let mut binding = executable.bind(inputs)?;
            finished(executable.run(&mut binding))?;
            Ok(executable.outputs(&binding))
        }
    }
}

/// Type, range and first elements.
fn summary(tensor: &Tensor) -> String {
    const SHOWN: usize = 8;
    let numbers: Vec<f64> = tensor.numbers().map(|number| number.as_f64()).collect();
    let first: Vec<String> = tensor.numbers().take(SHOWN).map(|number| format!("{number:?}")).collect();
    let more = if numbers.len() > SHOWN { ", …" } else { "" };
    let list = format!("{} [{}{more}]", tensor.ty(), first.join(", "));
    if numbers.len() <= 1 {
        return list;
    }
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let nans = numbers.iter().filter(|number| number.is_nan()).count();
    let at = numbers.iter().position(|&number| number == greatest);
    let at = at.map_or(String::new(), |at| format!(" at {at}"));
    let nans = if nans > 0 { format!(", {nans} NaN") } else { String::new() };
    format!("{list}, least {least}, greatest {greatest}{at}{nans}")
}

/// One `NAME.npy` per output, with an underscore for what file names should not hold.
fn write(folder: &Path, names: &[&str], outputs: &[Tensor]) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| {
        Error::new(format!("cannot make the folder: {error}")).context(format!("in folder '{}'", folder.display()))
    })?;
    let mut taken = BTreeSet::new();
    for (name, tensor) in names.iter().zip(outputs) {
        let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
        let base: String = name.chars().map(safe).collect();
        let numbered = (2..).map(|number| format!("{base}_{number}"));
        let mut candidates = std::iter::once(base.clone()).chain(numbered);
        let file = candidates.find(|name| taken.insert(name.clone())).expect("some number is free");
        outputs::write(&folder.join(format!("{file}.npy")), &crate::npy::write(tensor))?;
    }
    Ok(())
}
