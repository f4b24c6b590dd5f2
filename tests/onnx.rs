//! The ONNX backend node tests in machine code of this machine, against a committed list of what becomes of each.
//!
//! `onnx/status.txt` has a line for each test: `pass`, with what was bound by `--constant` and whether no kernel was left to run, or
//! `fail` with the reason. `MCC_BLESS=1` writes it anew; a test that is worse than the list fails.

use std::fmt::Write;
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};

use mcc::driver::{Options, Silent, compile};
use mcc::onnx::{Model, flatten};
use mcc::tools::exec::Executable;
use mcc_tests::compare::compare;
use mcc_tests::data::{self, NodeTest};
use mcc_tests::onnx::{import_options, set_inputs, tolerance};

/// What a test that passes needed.
#[derive(Default)]
struct Passed {
    /// Inputs that were made constants.
    bound: Vec<String>,
    /// Inputs that were left.
    free: usize,
    kernels: usize,
}

fn status_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("onnx/status.txt")
}

fn node_test(test: &NodeTest) -> Result<Passed, String> {
    let model = Model::open(&test.model).map_err(|error| error.to_string())?;
    let flat = flatten(&model).map_err(|error| error.to_string())?;
    let mut passed = Passed::default();
    for set in &test.sets {
        let inputs = set_inputs(&flat, set).map_err(|error| error.to_string())?;
        let (import, bound) = import_options(&model, &inputs).map_err(|error| error.to_string())?;
        let options = Options { name: Some("node".into()), import, ..Options::new(&test.model) };
        let compilation = compile(&options, &mut Silent).map_err(|error| error.to_string())?;
        let graph = compilation.graph();
        let values: Vec<_> = graph.inputs.iter().map(|(name, _)| inputs[name].clone()).collect();
        let mut executable = Executable::load(compilation.linked()).map_err(|error| error.to_string())?;
        let mut binding = executable.bind(&values).map_err(|error| error.to_string())?;
        let status = executable.run(&mut binding);
        if status != 0 {
            return Err(format!("the run returned {status}"));
        }
        let outputs = executable.outputs(&binding);
        for ((output, path), (name, _)) in outputs.iter().zip(&set.outputs).zip(&graph.outputs) {
            let want = data::node_test_tensor(path).map_err(|error| error.to_string())?;
            compare(output, &want, tolerance(&flat, &want)).map_err(|difference| format!("output '{name}' {difference}"))?;
        }
        passed = Passed { bound, free: values.len(), kernels: compilation.kernels().len() };
    }
    Ok(passed)
}

/// One line of the list.
fn status(test: &NodeTest) -> String {
    match panic::catch_unwind(|| node_test(test)).unwrap_or_else(|_| Err("a fault of mcc".into())) {
        Ok(passed) => {
            let mut line = format!("{} pass", test.name);
            if !passed.bound.is_empty() {
                write!(line, ", bound {}", passed.bound.join(" ")).expect("text grows");
            }
            if passed.kernels == 0 {
                write!(line, ", no kernel for {} inputs", passed.free).expect("text grows");
            }
            line
        }
        Err(reason) => format!("{} fail: {}", test.name, reason.lines().next().unwrap_or_default()),
    }
}

#[test]
fn node_tests_pass_in_machine_code() {
    let lines: Vec<String> = data::node_tests().iter().map(status).collect();
    let count = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    let (passed, bound, none) = (count(" pass"), count(", bound "), count(", no kernel"));
    println!("{passed} of {} pass; {bound} of them with a bound input, {none} without a kernel", lines.len());
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    if std::env::var_os("MCC_BLESS").is_some() {
        fs::write(status_file(), text).expect("the list can be written");
        return;
    }
    let listed = fs::read_to_string(status_file()).expect("the list is committed");
    let differing: Vec<String> = listed
        .lines()
        .zip(&lines)
        .filter(|(listed, found)| listed != found)
        .map(|(listed, found)| format!("listed: {listed}\nfound:  {found}"))
        .collect();
    assert!(differing.is_empty() && listed.lines().count() == lines.len(), "the list is not true:\n{}", differing.join("\n"));
}
