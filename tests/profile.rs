//! What a model that is compiled with profiling tells a C program of its kernels, and that others are the same without it.

use std::fs;
use std::path::PathBuf;

use mcc::driver::{Options, Silent, compile_graph};
use mcc::graph::{Graph, text};
use mcc_runtime::abi::status;
use mcc_tests::harness::{include, source};
use mcc_tests::machine::{Machine, run};
use tempfile::TempDir;

/// Without optimization, a kernel for each op.
const GRAPH: &str = "\
graph \"profiled\" {
  input %x \"x\" : f32[3,4]
  %a = exp %x : f32[3,4]
  %b = mul %a, %x : f32[3,4]
  %c = tanh %b : f32[3,4]
  output %c \"y\"
}
";

/// The object, and the number of its kernels for each CPU.
fn object(graph: &Graph, machine: Machine, profile: bool) -> (Vec<u8>, usize) {
    object_for(graph, machine, None, profile)
}

fn object_for(graph: &Graph, machine: Machine, cpus: Option<&str>, profile: bool) -> (Vec<u8>, usize) {
    let options = Options {
        target: machine.target().to_string(),
        cpu: cpus.map(String::from),
        name: Some("profiled".into()),
        profile,
        fuel: Some(0),
        ..Options::new("profiled.onnx")
    };
    let compilation = compile_graph(graph.clone(), &options, &mut Silent).expect("a graph that compiles");
    (compilation.linked().object(), compilation.kernels().len())
}

/// What the program prints on this machine's CPU, or on one that is emulated.
fn told(machine: Machine, object: &[u8], emulated: Option<&str>) -> String {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    fs::write(path("model.o"), object).unwrap();
    let mut compile = machine.tool("gcc");
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"]).arg(include()).arg(source("profile.c"));
    run(compile.arg(path("model.o")).arg("-o").arg(path("profile")));
    let mut program = match emulated {
        None => machine.program(&path("profile")),
        Some(cpu) => machine.emulated(&path("profile"), cpu),
    };
    String::from_utf8(run(&mut program)).unwrap()
}

#[test]
fn a_profile_is_told_of_every_kernel_in_order() {
    let graph = text::parse(GRAPH).unwrap();
    for machine in Machine::ALL {
        let (profiled, count) = object(&graph, machine, true);
        assert!(count >= 2, "{count} kernels show no order");
        let stamps: String = (0..count).map(|kernel| format!(" {kernel}+ {kernel}-")).collect();
        let expected = format!("{}:{stamps}\n{}:\n{}:\n", status::OK, status::OK, status::ERROR_CALL_SIZE);
        assert_eq!(told(machine, &profiled, None), expected, "{machine:?}");

        let (plain, _) = object(&graph, machine, false);
        let expected = format!("{}:\n{}:\n{}:\n", status::OK, status::OK, status::OK);
        assert_eq!(told(machine, &plain, None), expected, "{machine:?}");
        assert_ne!(plain, profiled);
    }
}

/// Emulated CPUs, and which of the levels of an object each of them runs; `None`: none.
const LEVELS: [(Machine, &str, [(&str, Option<usize>); 4]); 2] = [
    (
        Machine::X86_64,
        "x86-64-v3,x86-64-v2,+avx",
        [("qemu64", None), ("Nehalem", Some(2)), ("SandyBridge", Some(1)), ("Haswell", Some(0))],
    ),
    (
        Machine::Aarch64,
        "armv8-a,+fp16,+dotprod",
        [("cortex-a53", Some(2)), ("cortex-a72", Some(2)), ("cortex-a76", Some(0)), ("max", Some(0))],
    ),
];

#[test]
fn the_best_code_that_the_cpu_has_runs() {
    let graph = text::parse(GRAPH).unwrap();
    for (machine, cpus, emulated) in LEVELS {
        let (object, count) = object_for(&graph, machine, Some(cpus), true);
        for (cpu, level) in emulated {
            let stamps = |level| -> String { (level * count..(level + 1) * count).map(|k| format!(" {k}+ {k}-")).collect() };
            let (status, stamps) = level.map_or((status::ERROR_CPU, String::new()), |level| (status::OK, stamps(level)));
            let expected = format!("{status}:{stamps}\n{status}:\n{}:\n", status::ERROR_CALL_SIZE);
            assert_eq!(told(machine, &object, Some(cpu)), expected, "{cpu}");
        }
    }
}
