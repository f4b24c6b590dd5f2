//! The ONNX node tests that pass on this machine pass on aarch64, too, at its levels in turn: linked into programs that run
//! under an emulator.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mcc::driver::{Options, Silent, compile};
use mcc::emit::Linked;
use mcc::onnx::{Model, flatten};
use mcc_support::{Tensor, TensorType, ensure};
use mcc_tests::compare::compare;
use mcc_tests::data::{self, OnnxTest};
use mcc_tests::harness::{Harness, Link, Outcome, Record};
use mcc_tests::machine::{Level, Machine};
use mcc_tests::onnx::{PASSING, Random, import_options, set_inputs, tolerance};
use tempfile::TempDir;

/// Models in one program.
const CHUNK: usize = 200;

/// One set of a test, compiled.
struct Built {
    test: String,
    linked: Linked,
    record: Record,
    /// The inputs of the model, those that were bound as well.
    inputs: Vec<Tensor>,
    wanted: Vec<Tensor>,
}

fn build(test: &OnnxTest, set: usize, name: &str, level: Level) -> mcc_support::Result<Built> {
    let model = Model::open(&test.model)?;
    let flat = flatten(&model)?;
    let set = &test.sets[set];
    let given = set_inputs(&flat, set)?;
    let (import, _) = import_options(&model, &given)?;
    let options = Options { name: Some(name.into()), import, ..Options::new(&test.model) };
    let compilation = compile(&level.options(options), &mut Silent)?;
    let wanted: Vec<Tensor> = set.outputs.iter().map(|path| data::node_test_tensor(path)).collect::<Result<_, _>>()?;
    let graph = compilation.graph();
    // The harness only knows the outputs' sizes.
    let found: Vec<&TensorType> = graph.tensor_outputs().iter().map(|(_, value)| graph.ty(*value)).collect();
    let types: Vec<&TensorType> = wanted.iter().map(Tensor::ty).collect();
    ensure!(found.len() == types.len(), "{} outputs, wanted {}", found.len(), types.len());
    ensure!(graph.lengths.any() || found == types, "the outputs are {found:?}, wanted {types:?}");
    let record = Record {
        model: 0,
        dims: Vec::new(),
        inputs: graph.tensor_inputs().iter().map(|(name, _)| given[name].clone()).collect(),
        outputs: wanted.iter().map(|tensor| tensor.ty().clone()).collect(),
        count_count: graph.lengths.counts.len(),
    };
    let inputs = flat.inputs.iter().map(|input| given[&input.name].clone()).collect();
    Ok(Built { test: test.name.clone(), linked: compilation.linked().clone(), record, inputs, wanted })
}

fn judge(built: &Built, outcome: &Outcome) -> Result<(), String> {
    if outcome.status != 0 {
        return Err(format!("the run returned {}", outcome.status));
    }
    if let Some(random) = Random::of(&built.test) {
        return random.check(&built.inputs, &outcome.outputs, &built.wanted);
    }
    let mut pairs = outcome.outputs.iter().zip(&built.wanted);
    pairs.try_for_each(|(output, want)| compare(output, want, tolerance(&built.test)))
}

/// The test of which a line of the list says that it passes.
fn passing(line: &str) -> Option<&str> {
    let (test, rest) = line.split_once(' ')?;
    (rest == "pass" || rest.starts_with("pass,")).then_some(test)
}

/// Runs these sets in two programs, each set for one of the levels; the names of those that were run.
fn run(sets: &[(&OnnxTest, usize)], levels: &[Level], wrong: &mut Vec<String>) -> BTreeSet<String> {
    let mut built = Vec::new();
    for (index, &(test, set)) in sets.iter().enumerate() {
        let level = levels[index % levels.len()];
        match build(test, set, &format!("node{index}"), level) {
            Ok(one) => built.push((one, level)),
            Err(error) => wrong.push(format!("{} for {level}: {error}", test.name)),
        }
    }
    // What finds extents in a run is not for the board's program.
    let (board, hosted) = built.into_iter().partition(|(one, level)| level.bare && one.record.count_count == 0);
    [(Link::Board, board), (Link::Static, hosted)].into_iter().flat_map(|(link, built)| run_linked(link, built, wrong)).collect()
}

fn run_linked(link: Link, mut built: Vec<(Built, Level)>, wrong: &mut Vec<String>) -> Vec<String> {
    let folder = TempDir::new().expect("a temporary folder");
    let (mut names, mut objects) = (Vec::new(), Vec::new());
    for (index, (one, _)) in built.iter_mut().enumerate() {
        one.record.model = index;
        let object = folder.path().join(format!("{index}.o"));
        fs::write(&object, one.linked.object()).expect("the test's folder can be written");
        objects.push(object);
        names.push(one.linked.model.name.clone());
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let harness = Harness::build(Machine::Aarch64, link, &names, &objects, folder.path());
    let records: Vec<Record> = built.iter().map(|(one, _)| one.record.clone()).collect();
    let outcomes = harness.run(&records, 1).unwrap_or_else(|error| panic!("{error}"));
    for ((one, level), outcome) in built.iter().zip(&outcomes) {
        wrong.extend(judge(one, outcome).err().map(|why| format!("{} for {level}: {why}", one.test)));
    }
    built.into_iter().map(|(one, _)| one.test).collect()
}

#[test]
fn node_tests_pass_on_aarch64() {
    let listed =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("onnx/status.txt")).expect("the list is committed");
    let passing: BTreeSet<&str> = listed.lines().filter_map(passing).collect();
    assert!(passing.len() >= PASSING, "{} are listed, less than {PASSING}", passing.len());
    let tests: Vec<OnnxTest> = data::node_tests().into_iter().filter(|test| passing.contains(&*test.name)).collect();
    let sets: Vec<(&OnnxTest, usize)> = tests.iter().flat_map(|test| (0..test.sets.len()).map(move |set| (test, set))).collect();
    let (mut ran, mut wrong) = (BTreeSet::new(), Vec::new());
    let levels = Machine::Aarch64.levels();
    sets.chunks(CHUNK).for_each(|chunk| ran.extend(run(chunk, &levels, &mut wrong)));
    println!("{} sets of {} tests", sets.len(), tests.len());
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(ran.iter().map(String::as_str).eq(passing), "every test that is listed was run");
}
