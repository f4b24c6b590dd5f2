//! Operators of other domains than the standard's own, and forms of those that its tests leave out, in machine code of this machine, against ONNX Runtime: the cases of
//! `tools/operators.py`.

use std::panic;
use std::thread;

use mcc::driver::{Options, Silent, compile};
use mcc::tools::exec::Executable;
use mcc_tests::compare::{Tolerance, compare, relative_error};
use mcc_tests::data::{self, OperatorCase};

/// Cases are judged by so many at once.
const WORKERS: usize = 4;

fn judge(case: &OperatorCase) -> Result<(), String> {
    let example = case.example();
    let options = Options { name: Some("case".into()), ..Options::new(case.model()) };
    let compilation = compile(&options, &mut Silent).map_err(|error| error.to_string())?;
    let graph = compilation.graph();
    let inputs: Vec<_> = graph.inputs.iter().map(|(name, _)| example.inputs[name].clone()).collect();
    let mut executable = Executable::load(compilation.linked()).map_err(|error| error.to_string())?;
    let mut binding = executable.bind(&inputs).map_err(|error| error.to_string())?;
    let status = executable.run(&mut binding);
    if status != 0 {
        return Err(format!("the run returned {status}"));
    }
    for (got, (name, _)) in executable.outputs(&binding).iter().zip(&graph.outputs) {
        let want = &example.outputs[name];
        let judged = if want.dtype().is_float() {
            relative_error(got, want).and_then(|error| {
                if error <= case.tolerance { Ok(()) } else { Err(format!("differs by {error:.1e} of the largest")) }
            })
        } else {
            compare(got, want, Tolerance { relative: 0.0, absolute: case.steps })
        };
        judged.map_err(|difference| format!("output '{name}' {difference}"))?;
    }
    Ok(())
}

#[test]
fn operators_agree_with_onnx_runtime() {
    let cases = data::operator_cases();
    let outcome = |case: &OperatorCase| {
        let judged = panic::catch_unwind(|| judge(case)).unwrap_or_else(|_| Err("a fault of mcc".into()));
        judged.err().map(|error| format!("{}: {error}", case.name))
    };
    let wrong: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = cases
            .chunks(cases.len().div_ceil(WORKERS))
            .map(|cases| scope.spawn(|| cases.iter().filter_map(outcome).collect::<Vec<_>>()))
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("faults are caught")).collect()
    });
    println!("{} of {} agree", cases.len() - wrong.len(), cases.len());
    assert!(wrong.is_empty(), "these are wrong:\n{}", wrong.join("\n"));
}
