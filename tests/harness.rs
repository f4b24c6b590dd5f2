//! The harness that judges compiled models is judged itself: with a model written by hand it agrees however the model is linked,
//! and it notices every rule that the model can break.

use std::path::{Path, PathBuf};

use mcc::driver::{Options, Silent, compile};
use mcc_support::{Tensor, TensorType};
use mcc_tests::data;
use mcc_tests::harness::{Harness, Link, Record, include, source};
use mcc_tests::machine::{Machine, run};
use mcc_tests::object::inspect;
use tempfile::TempDir;

/// Faults of `abi/sample.c`, and what the harness says of each.
const FAULTS: [(&str, &str); 13] = [
    ("BEHIND_OUTPUT", "byte 24 of output 0"),
    ("BEFORE_OUTPUT", "byte -4 of output 0"),
    ("BEHIND_INPUT", "byte 24 of input 0"),
    ("BEFORE_INPUT", "byte -4 of input 0"),
    ("INPUT_WRITTEN", "byte 0 of input 0"),
    ("BEHIND_ARENA", "byte 40 of arena 0"),
    ("UNWRITTEN_ARENA", "differs between two runs"),
    ("UNWRITTEN_OUTPUT", "differs between two runs"),
    ("CALL_WRITTEN", "changed its mcc_call"),
    ("STATE", "differs between two runs"),
    ("STACK", "of stack 0"),
    ("REGISTER", "did not keep"),
    ("ROUNDING", "did not keep"),
];

fn sample(machine: Machine, name: &str, scale: u32, fault: &str, folder: &Path) -> Vec<PathBuf> {
    ["sample.c", "sample_model.S"]
        .iter()
        .map(|file| {
            let object = folder.join(format!("{name}-{file}.o"));
            let mut command = machine.tool("gcc");
            command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-fno-stack-protector", "-DNONE=0"]);
            command.args(FAULTS.iter().enumerate().map(|(index, (fault, _))| format!("-D{fault}={}", index + 1)));
            command.args([format!("-DNAME={name}"), format!("-DSCALE={scale}"), format!("-DFAULT={fault}")]);
            run(command.arg("-c").arg("-I").arg(include()).arg(source(file)).arg("-o").arg(&object));
            object
        })
        .collect()
}

fn record(model: usize, step: f32) -> Record {
    let x: Vec<f32> = (0..6).map(|index| index as f32 * step).collect();
    let input = Tensor::from_elements([6], &x);
    let output: TensorType = input.ty().clone();
    Record { model, dims: vec![], inputs: vec![input], outputs: vec![output], count_count: 0 }
}

#[test]
fn two_models_run_however_they_are_linked() {
    for machine in Machine::ALL {
        let folder = TempDir::new().unwrap();
        let mut objects = sample(machine, "twice", 2, "NONE", folder.path());
        objects.extend(sample(machine, "thrice", 3, "NONE", folder.path()));
        for link in Link::ALL {
            let harness = Harness::build(machine, link, &["twice", "thrice"], &objects, folder.path());
            let outcomes = harness.run(&[record(0, 1.0), record(1, 1.0), record(0, -0.5)], 2).unwrap();
            let outputs: Vec<Vec<f32>> = outcomes.iter().map(|outcome| outcome.outputs[0].elements()).collect();
            assert!(outcomes.iter().all(|outcome| outcome.status == 0));
            assert_eq!(outputs[0], [0.0, 2.0, 4.0, 6.0, 8.0, 10.0], "{machine:?} {link:?}");
            assert_eq!(outputs[1], [0.0, 3.0, 6.0, 9.0, 12.0, 15.0], "{machine:?} {link:?}");
            assert_eq!(outputs[2], [0.0, -1.0, -2.0, -3.0, -4.0, -5.0], "{machine:?} {link:?}");
        }
    }
}

#[test]
fn every_fault_is_noticed() {
    for machine in Machine::ALL {
        let folder = TempDir::new().unwrap();
        let names = FAULTS.map(|(fault, _)| format!("sample_{}", fault.to_lowercase()));
        let objects: Vec<PathBuf> =
            FAULTS.iter().zip(&names).flat_map(|((fault, _), name)| sample(machine, name, 2, fault, folder.path())).collect();
        let harness = Harness::build(machine, Link::Pie, &names.each_ref().map(String::as_str), &objects, folder.path());
        for (index, (fault, message)) in FAULTS.into_iter().enumerate() {
            match harness.run(&[record(index, 1.0)], 1) {
                Err(error) => assert!(error.contains(message), "{machine:?} {fault}: {error}"),
                Ok(_) => panic!("{machine:?} {fault} went unnoticed"),
            }
        }
    }
}

#[test]
fn a_board_notices_an_access_that_is_not_aligned() {
    for (target, is_noticed) in [("aarch64", true), ("aarch64-none", false)] {
        let folder = TempDir::new().unwrap();
        let model = data::folder().join("models/digits_resnet8.onnx");
        let options = Options { target: target.into(), name: Some("digits".into()), ..Options::new(model) };
        let compilation = compile(&options, &mut Silent).unwrap();
        let object = folder.path().join("digits.o");
        std::fs::write(&object, compilation.linked().object()).unwrap();
        let harness = Harness::build(Machine::Aarch64, Link::Board, &["digits"], &[object], folder.path());
        let outputs = vec![compilation.linked().model.outputs[0].ty.clone()];
        let record = Record { model: 0, dims: Vec::new(), inputs: vec![data::digits().image(0)], outputs, count_count: 0 };
        match harness.run(&[record], 1) {
            Ok(_) => assert!(!is_noticed, "{target}: it went unnoticed"),
            Err(error) => assert!(is_noticed && error.contains("fault: ") && error.contains("in digits_k"), "{target}: {error}"),
        }
    }
}

#[test]
fn objects_are_inspected() {
    for machine in Machine::ALL {
        let folder = TempDir::new().unwrap();
        let clean = sample(machine, "sample", 2, "NONE", folder.path());
        let code = inspect(&clean[0]);
        assert_eq!(code.exported, ["sample_call", "sample_local"]);
        assert!(code.undefined.is_empty() && code.writable.is_empty() && code.code_bytes > 0, "{code:?}");
        let description = inspect(&clean[1]);
        assert_eq!((description.undefined, description.constant_bytes > 200), (vec!["sample_local".to_string()], true));
        let state = sample(machine, "state", 2, "STATE", folder.path());
        assert_eq!(inspect(&state[0]).writable, [".bss"]);
        let library = folder.path().join("libsample.so");
        let build =
            |objects: &[PathBuf]| run(machine.tool("gcc").args(["-shared", "-nostdlib", "-o"]).arg(&library).args(objects));
        build(&clean);
        assert_eq!(inspect(&library).dynamic_relocations, 0);
        let pointer = folder.path().join("pointer.c");
        std::fs::write(&pointer, "int value; int *pointer = &value;\n").unwrap();
        build(&[pointer]);
        assert_eq!(inspect(&library).dynamic_relocations, 1);
    }
}
