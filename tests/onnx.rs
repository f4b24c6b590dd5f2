//! The ONNX backend tests in machine code of every level of this machine, against committed lists of what becomes of each.
//!
//! `onnx/status.txt` has a line for each node test, `onnx/others.txt` for each other: `pass`, with what was bound by `--constant` and whether no kernel was left to run, or
//! `fail` with the reason. `MCC_BLESS=1` writes it anew; a test that is worse than the list fails.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::panic;
use std::path::Path;

use mcc::driver::{Compilation, Options, Silent, compile};
use mcc::onnx::{FlatGraph, Model, flatten};
use mcc::tools::exec::Executable;
use mcc_support::Tensor;
use mcc_tests::compare::compare;
use mcc_tests::data::{self, OnnxTest, OnnxTestSet};
use mcc_tests::machine::Level;
use mcc_tests::onnx::{Random, import_options, set_inputs, tolerance};

/// What a test that passes needed.
#[derive(Default)]
struct Passed {
    /// Inputs that were made constants.
    bound: Vec<String>,
    /// Inputs that were left.
    free: usize,
    kernels: usize,
}

/// One set of a test, read.
struct Set<'a> {
    test: &'a OnnxTest,
    flat: &'a FlatGraph<'a>,
    inputs: BTreeMap<String, Tensor>,
    wanted: Result<Vec<Tensor>, String>,
}

impl Set<'_> {
    /// Runs what it was compiled to.
    fn check(&self, compilation: &Compilation) -> Result<(), String> {
        let graph = compilation.graph();
        let values: Vec<_> = graph.tensor_inputs().iter().map(|(name, _)| self.inputs[name].clone()).collect();
        let mut executable = Executable::load(compilation.linked()).map_err(|error| error.to_string())?;
        let mut binding = executable.bind(&values).map_err(|error| error.to_string())?;
        let status = executable.run(&mut binding);
        if status != 0 {
            return Err(format!("the run returned {status}"));
        }
        let outputs = executable.outputs(&binding);
        let wanted = self.wanted.as_ref().map_err(Clone::clone)?;
        if let Some(random) = Random::of(&self.test.name) {
            let inputs: Vec<_> = self.flat.inputs.iter().map(|input| self.inputs[&input.name].clone()).collect();
            return random.check(&inputs, &outputs, wanted);
        }
        if outputs.len() != wanted.len() {
            return Err(format!("{} outputs, wanted {}", outputs.len(), wanted.len()));
        }
        for ((output, want), (name, _)) in outputs.iter().zip(wanted).zip(graph.tensor_outputs()) {
            compare(output, want, tolerance(&self.test.name)).map_err(|difference| format!("output '{name}' {difference}"))?;
        }
        Ok(())
    }
}

fn wanted(set: &OnnxTestSet) -> Result<Vec<Tensor>, String> {
    set.outputs.iter().map(|path| data::node_test_tensor(path).map_err(|error| error.to_string())).collect()
}

fn run(test: &OnnxTest, levels: &[Level]) -> Result<Passed, String> {
    let model = Model::open(&test.model).map_err(|error| error.to_string())?;
    let flat = flatten(&model).map_err(|error| error.to_string())?;
    let mut passed = Passed::default();
    for set in &test.sets {
        let inputs = set_inputs(&flat, set).map_err(|error| error.to_string())?;
        let (import, bound) = import_options(&model, &inputs).map_err(|error| error.to_string())?;
        let options = Options { name: Some("node".into()), import, ..Options::new(&test.model) };
        let set = Set { test, flat: &flat, inputs, wanted: wanted(set) };
        for level in levels {
            let compilation = compile(&level.options(options.clone()), &mut Silent).map_err(|error| error.to_string())?;
            set.check(&compilation).map_err(|error| format!("{level}: {error}"))?;
            let free = compilation.graph().tensor_inputs().len();
            passed = Passed { bound: bound.clone(), free, kernels: compilation.kernels().len() };
        }
    }
    Ok(passed)
}

/// One line of the list.
fn status(test: &OnnxTest, levels: &[Level]) -> String {
    match panic::catch_unwind(|| run(test, levels)).unwrap_or_else(|_| Err("a fault of mcc".into())) {
        Ok(passed) => {
            let mut line = format!("{} pass", test.name);
            if !passed.bound.is_empty() {
                write!(line, ", bound {}", passed.bound.join(" ")).expect("text grows");
            }
            if Random::of(&test.name).is_some() {
                line.push_str(", random: type, shape and distribution");
            }
            if passed.kernels == 0 {
                write!(line, ", no kernel for {} inputs", passed.free).expect("text grows");
            }
            line
        }
        Err(reason) => format!("{} fail: {}", test.name, reason.lines().next().unwrap_or_default()),
    }
}

/// Runs the tests, and compares what becomes of them with the list in this file.
fn compare_with_list(file: &str, tests: &[OnnxTest]) {
    let levels = Level::here();
    let lines: Vec<String> = tests.iter().map(|test| status(test, &levels)).collect();
    let count = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    let (passed, bound, random, none) = (count(" pass"), count(", bound "), count(", random: "), count(", no kernel"));
    println!(
        "{passed} of {} pass; {bound} of them with a bound input, {random} with random numbers, {none} without a kernel",
        lines.len()
    );
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("onnx").join(file);
    if std::env::var_os("MCC_BLESS").is_some() {
        fs::write(file, text).expect("the list can be written");
        return;
    }
    let listed = fs::read_to_string(file).expect("the list is committed");
    let differing: Vec<String> = listed
        .lines()
        .zip(&lines)
        .filter(|(listed, found)| listed != found)
        .map(|(listed, found)| format!("listed: {listed}\nfound:  {found}"))
        .collect();
    assert!(differing.is_empty() && listed.lines().count() == lines.len(), "the list is not true:\n{}", differing.join("\n"));
}

#[test]
fn node_tests_pass_in_machine_code() {
    compare_with_list("status.txt", &data::node_tests());
}

#[test]
fn other_tests_pass_in_machine_code() {
    compare_with_list("others.txt", &data::other_onnx_tests());
}
