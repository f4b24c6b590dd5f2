//! `mcc bisect`: the rewrite, fusion, layout or schedule step that makes a result wrong, found by halving the fuel.

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use mcc_support::{Error, Result, Tensor, ensure};

use crate::driver::{self, Options, Silent, Stage};

use super::args::{CompareArgs, Level};
use super::compare::wrong;
use super::{inputs, print, run};

/// What became of a build with some fuel: its outputs, or the message of a fault.
pub type Outcome = Result<Vec<Tensor>, String>;

/// Who is to blame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Outputs are right after all steps.
    Right { steps: u64 },
    /// They are wrong before the first one.
    WrongAtOnce { how: String },
    /// They are right before step `number`, counted from 1, and wrong after it.
    Guilty { number: u64, steps: u64, line: String, how: String },
}

pub fn bisect(args: &CompareArgs) -> Result<ExitCode> {
    let mut options = args.build.options(&args.model, "host")?;
    ensure!(options.fuel.is_none(), "bisect chooses the fuel itself");
    ensure!(options.decisions.is_empty(), "bisect makes its own decisions");
    let (given, reference) = inputs::with_reference(args)?;
    inputs::fix_shapes(&given, &mut options)?;
    let plain = driver::compile(&Options { fuel: Some(0), stop_after: Some(Stage::Passes), ..options.clone() }, &mut Silent)?;
    let specialization = inputs::specialization(&plain, &given)?;
    let tensors = inputs::complete(specialization, given, args.seed)?;
    let names: Vec<String> = specialization.graph().tensor_outputs().iter().map(|(name, _)| name.clone()).collect();
    let reference = match reference {
        Some(values) => named(&names, values)?,
        None => run::outputs(&plain, specialization, Level::Graph, &tensors)?,
    };
    let mut build = |options: &Options| build(options, args.at, &tensors);
    let verdict = search(&options, &mut build, |outputs| wrong(&names, outputs, &reference, args.tolerance))?;
    let model = args.model.display();
    let text = match &verdict {
        Verdict::Right { steps } => format!("{model}: right before and after all {steps} steps\n"),
        Verdict::WrongAtOnce { how } => format!(
            "{model}: wrong without any optimization: {how}\n  what is left are import, lowering, the target, or the reference: see `mcc diff`\n"
        ),
        Verdict::Guilty { number, steps, line, how } => format!(
            "{model}: wrong by step {number} of {steps}: {line}\n  after it {how}\n  --fuel {} is right, --fuel {number} is wrong\n",
            number - 1
        ),
    };
    print(&text);
    Ok(if matches!(verdict, Verdict::Right { .. }) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The tensors of these outputs, which may be named as in reference files: `out_NAME`.
fn named(names: &[String], mut tensors: BTreeMap<String, Tensor>) -> Result<Vec<Tensor>> {
    let find = |name: &String| {
        let found = tensors.remove(name).or_else(|| tensors.remove(&format!("out_{name}")));
        found.ok_or_else(|| Error::new(format!("the reference has no output '{name}'")))
    };
    names.iter().map(find).collect()
}

/// Compiles and runs at a level; a fault of mcc is an outcome.
fn build(options: &Options, level: Level, inputs: &[Tensor]) -> Result<Outcome> {
    let options = Options { stop_after: run::last_stage(level), ..options.clone() };
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        let compilation = driver::compile(&options, &mut Silent)?;
        let sets = compilation.specializations_here();
        let shapes = sets.iter().find(|one| inputs::types(one).zip(inputs).all(|((_, ty), tensor)| ty == tensor.ty()));
        run::outputs(&compilation, shapes.unwrap_or(&sets[0]), level, inputs)
    }));
    panic::set_hook(hook);
    match outcome {
        Ok(outputs) => outputs.map(Ok),
        Err(fault) => {
            let text = fault.downcast_ref::<String>().cloned().or_else(|| Some((*fault.downcast_ref::<&str>()?).to_string()));
            Ok(Err(format!("mcc ends by a fault: {}", text.unwrap_or_default().lines().next().unwrap_or_default())))
        }
    }
}

/// Halves the fuel between 0 and all. `build` compiles and runs with some options; `judge` says what is wrong with outputs.
///
/// # Errors
///
/// What stops a compile or a run.
pub fn search(
    options: &Options,
    build: &mut dyn FnMut(&Options) -> Result<Outcome>,
    judge: impl Fn(&[Tensor]) -> Option<String>,
) -> Result<Verdict> {
    let mut how = |fuel: u64| -> Result<Option<String>> {
        let outcome = build(&Options { fuel: Some(fuel), ..options.clone() })?;
        Ok(match outcome {
            Ok(outputs) => judge(&outputs),
            Err(fault) => Some(fault),
        })
    };
    if let Some(how) = how(0)? {
        return Ok(Verdict::WrongAtOnce { how });
    }
    let steps = steps(options, None)?.len() as u64;
    let Some(last) = how(steps)? else { return Ok(Verdict::Right { steps }) };
    let (mut right, mut wrong) = (0, (steps, last));
    while wrong.0 - right > 1 {
        let middle = right + (wrong.0 - right) / 2;
        match how(middle)? {
            Some(how) => wrong = (middle, how),
            None => right = middle,
        }
    }
    let (number, how) = wrong;
    let line = self::steps(options, Some(number))?.pop().expect("fuel was spent");
    Ok(Verdict::Guilty { number, steps, line, how })
}

/// What fuel is spent on, in order.
fn steps(options: &Options, fuel: Option<u64>) -> Result<Vec<String>> {
    let options = Options { fuel, stop_after: Some(Stage::Decide), ..options.clone() };
    let compilation = driver::compile(&options, &mut Silent)?;
    let all = compilation.specializations().iter().map(|one| one.steps());
    Ok(all.max_by_key(Vec::len).unwrap_or_default())
}
