//! Whole trained models in machine code: in this process, and linked into programs for every level that check what a call may
//! touch; against ONNX Runtime, and the digit models against the labels of real images.

use std::fs;

use mcc::driver::{Compilation, Options, Silent, compile};
use mcc::tools::exec::Executable;
use mcc_support::Tensor;
use mcc_tests::compare::{largest, relative_error};
use mcc_tests::data::{self, Digits, Example, Reference};
use mcc_tests::harness::{Harness, Link, Record};
use mcc_tests::machine::{Level, Machine, run};
use mcc_tests::object::inspect;
use tempfile::TempDir;

/// The largest outputs lead by more than this part of the range wherever an engine's choice counts.
const LEAD: f64 = 1e-3;
/// Code of a model without its weights; instructions on vectors of 512 bits are the longest.
const CODE_BYTES: u64 = 448 << 10;
/// Right out of the 10,000 test images by ONNX Runtime in f32.
const DIGITS: [(&str, i32); 3] = [("digits_resnet8", 9919), ("digits_mobilenet", 9927), ("digits_vit", 9653)];

fn built(reference: &Reference, level: Level) -> Compilation {
    let mut options = level.options(Options { name: Some(reference.name.clone()), ..Options::new(&reference.model) });
    for (name, tensor) in &reference.examples[0].inputs {
        options.import.shapes.insert(name.clone(), tensor.shape().dims().to_vec());
    }
    compile(&options, &mut Silent).unwrap_or_else(|error| panic!("{}: {error}", reference.name))
}

fn inputs(compilation: &Compilation, example: &Example) -> Vec<Tensor> {
    compilation.graph().inputs.iter().map(|(name, _)| example.inputs[name].clone()).collect()
}

/// The largest error of outputs, after checking that what they choose is the same.
fn judge(reference: &Reference, compilation: &Compilation, example: &Example, outputs: &[Tensor]) -> Result<f64, String> {
    let mut worst = 0.0f64;
    for ((name, _), got) in compilation.graph().outputs.iter().zip(outputs) {
        let want = &example.outputs[name];
        worst = worst.max(relative_error(got, want).map_err(|error| format!("output '{name}' {error}"))?);
        let is_choice = want.dtype().is_float() && want.count() > 1 && want.shape().iter().filter(|&&dim| dim > 1).count() == 1;
        let (choice, lead) = if is_choice { largest(want) } else { (0, 0.0) };
        if lead > LEAD && largest(got).0 != choice {
            return Err(format!("output '{name}' chooses {}, wanted {choice}", largest(got).0));
        }
    }
    let most = reference.tolerance;
    if worst <= most { Ok(worst) } else { Err(format!("the error is {worst:.1e}, more than {most:.0e}")) }
}

fn execute(compilation: &Compilation, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut executable = Executable::load(compilation.linked()).expect("it was made for this machine");
    let mut binding = executable.bind(inputs).expect("inputs of the model");
    assert_eq!(executable.run(&mut binding), 0);
    executable.outputs(&binding)
}

/// The last of the levels that this machine can run.
fn best() -> Level {
    *Level::here().last().expect("every machine can run code of its first level")
}

#[test]
fn models_agree_with_onnx_runtime_in_this_process() {
    let (levels, mut wrong) = (Level::here(), Vec::new());
    for (reference, level) in data::references().iter().flat_map(|reference| levels.iter().map(move |&level| (reference, level)))
    {
        let compilation = built(reference, level);
        let worst = reference.examples.iter().try_fold(0.0f64, |worst, example| {
            let outputs = execute(&compilation, &inputs(&compilation, example));
            Ok::<_, String>(worst.max(judge(reference, &compilation, example, &outputs)?))
        });
        let sizes = &compilation.linked().sizes;
        let what = format!("{} for {level}", reference.name);
        println!("{what:36} error {worst:?}, code {} bytes, weights {}", sizes.code_bytes, sizes.weights_bytes);
        wrong.extend(worst.err().map(|error| format!("{what}: {error}")));
        if sizes.code_bytes > CODE_BYTES {
            wrong.push(format!("{what}: {} bytes of code", sizes.code_bytes));
        }
    }
    assert!(wrong.is_empty(), "these are wrong:\n{}", wrong.join("\n"));
}

/// All models that are small enough, and some digits for each digit model, in one program; at the machine's levels in turn.
fn linked_models_agree(machine: Machine, link: Link) {
    let folder = TempDir::new().expect("a temporary folder");
    let references: Vec<Reference> = data::references().into_iter().filter(|reference| reference.emulated).collect();
    assert!(references.len() >= 10, "only {} models are small enough", references.len());
    let levels = machine.levels();
    let level = |model: usize| levels[model % levels.len()];
    let compilations: Vec<Compilation> =
        references.iter().enumerate().map(|(model, reference)| built(reference, level(model))).collect();
    let (mut objects, mut records, mut examples) = (Vec::new(), Vec::new(), Vec::new());
    for (model, (reference, compilation)) in references.iter().zip(&compilations).enumerate() {
        let object = folder.path().join(format!("{}.o", reference.name));
        fs::write(&object, compilation.linked().object()).expect("the test's folder can be written");
        for example in &reference.examples {
            let outputs = compilation.linked().model.outputs.iter().map(|port| port.ty.clone()).collect();
            let inputs = inputs(compilation, example);
            records.push(Record { model, dims: Vec::new(), inputs, outputs, count_count: 0 });
            examples.push((model, example));
        }
        objects.push(object);
    }
    let names: Vec<&str> = references.iter().map(|reference| reference.name.as_str()).collect();
    let harness = Harness::build(machine, link, &names, &objects, folder.path());
    let outcomes = harness.run(&records, 2).unwrap_or_else(|error| panic!("{error}"));
    let mut wrong = Vec::new();
    for ((model, example), outcome) in examples.into_iter().zip(outcomes) {
        assert_eq!(outcome.status, 0, "{}", names[model]);
        let judged = judge(&references[model], &compilations[model], example, &outcome.outputs);
        println!("{:24} for {} {judged:?}", names[model], level(model));
        wrong.extend(judged.err().map(|error| format!("{} for {}: {error}", names[model], level(model))));
    }
    assert!(wrong.is_empty(), "these are wrong:\n{}", wrong.join("\n"));
}

#[test]
fn linked_models_agree_with_onnx_runtime_on_x86_64() {
    linked_models_agree(Machine::X86_64, Link::Pie);
}

#[test]
fn linked_models_agree_with_onnx_runtime_on_aarch64() {
    linked_models_agree(Machine::Aarch64, Link::Static);
}

#[test]
fn objects_need_nothing_and_leave_nothing_to_the_loader() {
    let folder = TempDir::new().expect("a temporary folder");
    for machine in Machine::ALL {
        let levels: Vec<Level> = Level::ALL.into_iter().filter(|level| level.machine == machine).collect();
        let references = data::references().into_iter().filter(|reference| reference.emulated);
        for (reference, level) in references.zip(levels.iter().cycle()) {
            let object = folder.path().join("model.o");
            fs::write(&object, built(&reference, *level).linked().object()).expect("the test's folder can be written");
            let found = inspect(&object);
            let what = format!("{} for {level}", reference.name);
            assert!(found.undefined.is_empty(), "{what} needs {:?}", found.undefined);
            assert!(found.writable.is_empty(), "{what} has writable sections {:?}", found.writable);
            let names = [format!("{}_call", reference.name), format!("{}_model", reference.name)];
            assert_eq!(found.exported, names, "{what}");
            let library = folder.path().join("model.so");
            run(machine.tool("gcc").args(["-shared", "-nostdlib", "-Wl,-z,text", "-o"]).arg(&library).arg(&object));
            assert_eq!(inspect(&library).dynamic_relocations, 0, "{what}");
        }
    }
}

fn digit_models() -> impl Iterator<Item = (Reference, i32)> {
    let count = |name: &str| DIGITS.iter().find(|(digits, _)| *digits == name).map(|&(_, count)| count);
    data::references().into_iter().filter_map(move |reference| count(&reference.name).map(|count| (reference, count)))
}

fn is_right(digits: &Digits, index: usize, logits: &Tensor) -> bool {
    largest(logits).0 == usize::from(digits.labels[index])
}

#[test]
fn digit_models_read_ten_thousand_images() {
    let digits = data::mnist();
    let mut models = 0;
    for (reference, expected) in digit_models() {
        let compilation = built(&reference, best());
        let mut executable = Executable::load(compilation.linked()).expect("it was made for this machine");
        let mut right = 0;
        for index in 0..digits.labels.len() {
            let mut binding = executable.bind(&[digits.image(index)]).expect("an image");
            assert_eq!(executable.run(&mut binding), 0);
            right += i32::from(is_right(&digits, index, &executable.outputs(&binding)[0]));
        }
        println!("{:24} {right} of {} right, {expected} by ONNX Runtime", reference.name, digits.labels.len());
        assert!((right - expected).abs() <= 2, "{}: {right} right, not {expected}", reference.name);
        models += 1;
    }
    assert_eq!(models, DIGITS.len());
}

#[test]
fn digit_models_choose_the_same_on_aarch64() {
    let folder = TempDir::new().expect("a temporary folder");
    let digits = data::mnist();
    let (mut names, mut objects, mut records, mut want) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let level = Machine::Aarch64.levels()[0];
    for (reference, _) in digit_models() {
        let compilation = built(&reference, level);
        let object = folder.path().join(format!("{}.o", reference.name));
        fs::write(&object, compilation.linked().object()).expect("the test's folder can be written");
        let host = built(&reference, best());
        for index in 0..200 {
            let image = digits.image(index);
            want.push(largest(&execute(&host, std::slice::from_ref(&image))[0]));
            let outputs = compilation.linked().model.outputs.iter().map(|port| port.ty.clone()).collect();
            records.push(Record { model: names.len(), dims: Vec::new(), inputs: vec![image], outputs, count_count: 0 });
        }
        names.push(reference.name);
        objects.push(object);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let harness = Harness::build(Machine::Aarch64, Link::Static, &names, &objects, folder.path());
    let outcomes = harness.run(&records, 1).unwrap_or_else(|error| panic!("{error}"));
    let mut right = vec![0; names.len()];
    for (at, (outcome, &(choice, lead))) in outcomes.iter().zip(&want).enumerate() {
        assert_eq!(outcome.status, 0);
        let model = records[at].model;
        right[model] += usize::from(is_right(&digits, at % 200, &outcome.outputs[0]));
        assert!(largest(&outcome.outputs[0]).0 == choice || lead <= LEAD, "{} on image {}", names[model], at % 200);
    }
    println!("right of 200 on aarch64: {names:?} {right:?}");
}
