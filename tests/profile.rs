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

/// The object, and the number of its kernels.
fn object(graph: &Graph, machine: Machine, profile: bool) -> (Vec<u8>, usize) {
    let options = Options {
        target: machine.target().to_string(),
        name: Some("profiled".into()),
        profile,
        fuel: Some(0),
        ..Options::new("profiled.onnx")
    };
    let compilation = compile_graph(graph.clone(), &options, &mut Silent).expect("a graph that compiles");
    (compilation.linked().object(), compilation.kernels().len())
}

/// What the program prints.
fn told(machine: Machine, object: &[u8]) -> String {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    fs::write(path("model.o"), object).unwrap();
    let mut compile = machine.tool("gcc");
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"]).arg(include()).arg(source("profile.c"));
    run(compile.arg(path("model.o")).arg("-o").arg(path("profile")));
    String::from_utf8(run(&mut machine.program(&path("profile")))).unwrap()
}

#[test]
fn a_profile_is_told_of_every_kernel_in_order() {
    let graph = text::parse(GRAPH).unwrap();
    for machine in Machine::ALL {
        let (profiled, count) = object(&graph, machine, true);
        assert!(count >= 2, "{count} kernels show no order");
        let stamps: String = (0..count).map(|kernel| format!(" {kernel}+ {kernel}-")).collect();
        let expected = format!("{}:{stamps}\n{}:\n{}:\n", status::OK, status::OK, status::ERROR_CALL_SIZE);
        assert_eq!(told(machine, &profiled), expected, "{machine:?}");

        let (plain, _) = object(&graph, machine, false);
        let expected = format!("{}:\n{}:\n{}:\n", status::OK, status::OK, status::OK);
        assert_eq!(told(machine, &plain), expected, "{machine:?}");
        assert_ne!(plain, profiled);
    }
}
