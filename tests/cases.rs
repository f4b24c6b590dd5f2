//! The cases from bug reports of other engines pass as their index says: by the interpreter of graphs, and in machine code of every
//! level of both machines, optimized and with optimization off.

use std::collections::BTreeMap;
use std::fs;
use std::panic;

use mcc::driver::{Options, Silent, compile};
use mcc::emit::Linked;
use mcc::graph::interp;
use mcc::import::import_all_errors;
use mcc::onnx::Model;
use mcc::tools::exec::Executable;
use mcc_runtime::abi::status;
use mcc_support::{Error, Tensor};
use mcc_tests::compare::{Tolerance, compare_except};
use mcc_tests::data::{self, Case, Expected};
use mcc_tests::harness::{Harness, Link, Record};
use mcc_tests::machine::{Level, Machine};
use mcc_tests::onnx::import_options;
use tempfile::TempDir;

/// Optimization is off, and on.
const FUEL: [Option<u64>; 2] = [Some(0), None];

type Outputs = BTreeMap<String, Tensor>;

/// Checks what came of a case, or why it was refused.
fn judge(case: &Case, outcome: Result<Outputs, Vec<Error>>) -> Result<(), String> {
    let accepted = [Some(&case.expected), case.also_right.as_ref()];
    let outputs = match outcome {
        Ok(outputs) => outputs,
        Err(errors) => {
            let message = errors.iter().map(|error| error.to_string().to_lowercase()).collect::<Vec<_>>().join("\n");
            let names = accepted.into_iter().flatten().find_map(|expected| match expected {
                Expected::Error { names } => Some(names),
                Expected::Values { .. } => None,
            });
            return match names {
                Some(names) if names.iter().all(|name| message.contains(&name.to_lowercase())) => Ok(()),
                _ => Err(format!("refused: {message}")),
            };
        }
    };
    let tolerance = accepted.into_iter().flatten().find_map(|expected| match expected {
        Expected::Values { rtol, atol } => Some(Tolerance { relative: *rtol, absolute: *atol }),
        Expected::Error { .. } => None,
    });
    let tolerance = tolerance.ok_or("accepted, but must be refused")?;
    for (name, want) in &case.example().outputs {
        let unspecified = case.unspecified.get(name).map_or(&[][..], Vec::as_slice);
        compare_except(&outputs[name], want, tolerance, unspecified)
            .map_err(|difference| format!("output '{name}' {difference}"))?;
    }
    Ok(())
}

/// Options for a case, which bind the inputs that determine shapes; all that stops it.
fn options(case: &Case) -> Result<Options, Vec<Error>> {
    let one = |error: Error| vec![error];
    let model = Model::open(case.model()).map_err(one)?;
    let (import, _) = import_options(&model, &case.example().inputs).map_err(one)?;
    import_all_errors(&model, &import)?;
    Ok(Options { import, ..Options::new(case.model()) })
}

fn compiled(case: &Case, level: Level, fuel: Option<u64>, name: String) -> Result<Linked, Vec<Error>> {
    let options = level.options(Options { fuel, name: Some(name), ..options(case)? });
    let compilation = compile(&options, &mut Silent).map_err(|error| vec![error])?;
    Ok(compilation.linked().clone())
}

fn inputs(case: &Case, names: impl IntoIterator<Item = String>) -> Vec<Tensor> {
    let example = case.example();
    names.into_iter().map(|name| example.inputs[&name].clone()).collect()
}

/// The outputs by name, unless the run says that something is wrong.
fn outputs(linked: &Linked, status: i32, outputs: Vec<Tensor>) -> Result<Outputs, Vec<Error>> {
    match status {
        status::OK => Ok(linked.model.outputs.iter().map(|port| port.name.clone()).zip(outputs).collect()),
        other => Err(vec![Error::new(format!("the run ended with status {other}"))]),
    }
}

fn input_names(linked: &Linked) -> impl Iterator<Item = String> {
    linked.model.inputs.iter().map(|port| port.name.clone())
}

fn check(what: &str, results: impl IntoIterator<Item = (Case, Result<Outputs, Vec<Error>>)>) {
    let judged =
        results.into_iter().map(|(case, outcome)| judge(&case, outcome).map_err(|reason| format!("{}: {reason}", case.name)));
    let wrong: Vec<String> = judged.filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{} are wrong {what}:\n{}", wrong.len(), wrong.join("\n"));
}

/// A fault of mcc is an answer too.
fn guarded<T>(run: impl FnOnce() -> Result<T, Vec<Error>>) -> Result<T, Vec<Error>> {
    panic::catch_unwind(panic::AssertUnwindSafe(run)).unwrap_or_else(|_| Err(vec![Error::new("a fault of mcc")]))
}

#[test]
fn cases_pass_in_graphs() {
    let run = |case: &Case| {
        let options = options(case)?;
        let (graph, _) = import_all_errors(&Model::open(&options.model).map_err(|error| vec![error])?, &options.import)?;
        let names = graph.inputs.iter().map(|(name, _)| name.clone());
        let outputs = interp::run(&graph, &inputs(case, names)).map_err(|error| vec![error])?;
        Ok(graph.outputs.iter().map(|(name, _)| name.clone()).zip(outputs).collect())
    };
    check("in graphs", data::cases().into_iter().map(|case| (case.clone(), guarded(|| run(&case)))));
}

#[test]
fn cases_pass_in_this_process() {
    let level = *Level::here().last().expect("every machine can run code of its first level");
    for fuel in FUEL {
        let run = |case: &Case| {
            let linked = compiled(case, level, fuel, "net".to_string())?;
            let one = |error: Error| vec![error];
            let mut executable = Executable::load(&linked).map_err(one)?;
            let mut binding = executable.bind(&inputs(case, input_names(&linked))).map_err(one)?;
            let status = executable.run(&mut binding);
            outputs(&linked, status, executable.outputs(&binding))
        };
        let results = data::cases().into_iter().map(|case| (case.clone(), guarded(|| run(&case))));
        check(&format!("in this process for {level} with fuel {fuel:?}"), results);
    }
}

/// All cases in one program, each optimized and not, for every level.
fn linked_cases_pass(machine: Machine, link: Link) {
    let folder = TempDir::new().expect("a temporary folder");
    let builds: Vec<(Level, Option<u64>)> =
        machine.levels().into_iter().flat_map(|level| FUEL.map(|fuel| (level, fuel))).collect();
    let (mut names, mut objects, mut records, mut built) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (index, case) in data::cases().into_iter().enumerate() {
        for (build, &(level, fuel)) in builds.iter().enumerate() {
            let name = format!("case{index}_{build}");
            let linked = guarded(|| compiled(&case, level, fuel, name.clone()));
            if let Ok(linked) = &linked {
                let object = folder.path().join(format!("{name}.o"));
                fs::write(&object, linked.object()).expect("the test's folder can be written");
                let outputs = linked.model.outputs.iter().map(|port| port.ty.clone()).collect();
                let inputs = inputs(&case, input_names(linked));
                records.push(Record { model: names.len(), dims: Vec::new(), inputs, outputs, count_count: 0 });
                names.push(name);
                objects.push(object);
            }
            built.push((case.clone(), build, linked));
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let harness = Harness::build(machine, link, &names, &objects, folder.path());
    let mut outcomes = harness.run(&records, 1).unwrap_or_else(|error| panic!("{error}")).into_iter();
    let mut results = vec![Vec::new(); builds.len()];
    for (case, build, linked) in built {
        let outcome = linked.and_then(|linked| {
            let outcome = outcomes.next().expect("one for each record");
            outputs(&linked, outcome.status, outcome.outputs)
        });
        results[build].push((case, outcome));
    }
    for ((level, fuel), results) in builds.into_iter().zip(results) {
        check(&format!("for {level} with fuel {fuel:?}"), results);
    }
}

#[test]
fn linked_cases_pass_on_x86_64() {
    linked_cases_pass(Machine::X86_64, Link::Pie);
}

#[test]
fn linked_cases_pass_on_aarch64() {
    linked_cases_pass(Machine::Aarch64, Link::Static);
}
