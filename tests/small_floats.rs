//! Conversions from and to floats of 8 and 4 bits: every code, and numbers at every border, have the bits of an independent
//! implementation at every level; see `tools/small_floats.py`.

use std::collections::BTreeMap;
use std::fs;

use mcc::driver::{Compilation, Options, Silent, compile};
use mcc::graph::interp;
use mcc::npy::as_dtype;
use mcc::tools::exec::Executable;
use mcc::tools::interpret;
use mcc_support::{Tensor, TensorType};
use mcc_tests::data;
use mcc_tests::harness::{Harness, Link, Record};
use mcc_tests::machine::{Level, Machine};
use tempfile::TempDir;

struct Casts {
    compilation: Compilation,
    inputs: Vec<Tensor>,
    want: Vec<(String, Tensor)>,
}

fn casts(level: Level) -> Casts {
    let folder = data::folder().join("small_floats");
    let arrays: BTreeMap<String, Tensor> = data::npz(&folder.join("casts.npz"));
    let options = level.options(Options { name: Some("casts".into()), ..Options::new(folder.join("casts.onnx")) });
    let compilation = compile(&options, &mut Silent).unwrap_or_else(|error| panic!("{error}"));
    let graph = compilation.graph();
    let array = |kind: &str, name: &str, ty: &TensorType| {
        as_dtype(arrays[&format!("{kind}_{name}")].clone(), ty.dtype).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let inputs = graph.inputs.iter().map(|(name, value)| array("in", name, graph.ty(*value))).collect();
    let want = graph.outputs.iter().map(|(name, value)| (name.clone(), array("out", name, graph.ty(*value)))).collect();
    Casts { compilation, inputs, want }
}

fn check(level: &str, got: &[Tensor], want: &[(String, Tensor)]) {
    assert_eq!(got.len(), want.len(), "{level}");
    for (got, (name, want)) in got.iter().zip(want) {
        assert_eq!(got.ty(), want.ty(), "{level}: {name}");
        let is_nan = |tensor: &Tensor, at| tensor.number(at).as_f64().is_nan();
        // In wider floats, what a NaN holds is open.
        let small = want.dtype().small_float().is_some();
        let same = |&at: &usize| !small && is_nan(got, at) && is_nan(want, at) || bits(got, at) == bits(want, at);
        if let Some(at) = (0..want.count()).find(|at| !same(at)) {
            panic!("{level}: {name}[{at}] is {:?}, wanted {:?}", got.number(at), want.number(at));
        }
    }
}

fn bits(tensor: &Tensor, at: usize) -> Vec<u8> {
    if tensor.dtype().is_packed() {
        return vec![mcc_support::tensor::packed_code(tensor.dtype(), tensor.data(), at)];
    }
    let size = tensor.dtype().size_bytes();
    tensor.data()[at * size..][..size].to_vec()
}

#[test]
fn conversions_have_the_bits_of_another_implementation() {
    for level in Level::here() {
        let Casts { compilation, inputs, want } = casts(level);
        check("graph", &interp::run(compilation.graph(), &inputs).expect("inputs of the graph"), &want);
        let program = &compilation.realized().program;
        let (loops, _) = mcc::loops::interp::run_with_status(program, &inputs).expect("inputs of the program");
        check(&format!("loops for {level}"), &loops, &want);
        check(&format!("kernel for {level}"), &interpret::run(&compilation, &inputs).expect("inputs of the model"), &want);
        let mut executable = Executable::load(compilation.linked()).expect("it was made for this machine");
        let mut binding = executable.bind(&inputs).expect("inputs of the model");
        assert_eq!(executable.run(&mut binding), 0);
        check(&format!("machine for {level}"), &executable.outputs(&binding), &want);
    }
}

#[test]
fn conversions_have_the_bits_of_another_implementation_on_the_other_machine() {
    let machine = *Machine::ALL.iter().find(|&&machine| machine != Machine::host()).expect("there are two");
    for level in machine.levels() {
        let Casts { compilation, inputs, want } = casts(level);
        let folder = TempDir::new().expect("a temporary folder");
        let object = folder.path().join("casts.o");
        fs::write(&object, compilation.linked().object()).expect("the test's folder can be written");
        let harness = Harness::build(machine, Link::Static, &["casts"], &[object], folder.path());
        let outputs = want.iter().map(|(_, tensor)| tensor.ty().clone()).collect();
        let record = Record { model: 0, dims: Vec::new(), inputs, outputs, count_count: 0 };
        let outcomes = harness.run(&[record], 1).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(outcomes[0].status, 0);
        check(&level.to_string(), &outcomes[0].outputs, &want);
    }
}
