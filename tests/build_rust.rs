//! A Rust program whose build script compiles models, as `examples/digits-rust`, copied out of the repository.

use std::fs;

use mcc::onnx::proto::{
    DimValue, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};
use mcc_tests::data;
use mcc_tests::machine::Machine;
use mcc_tests::project::{Project, target_folder};
use prost::Message;

/// As that of the repository, so that what both depend on is built once.
const MANIFEST: &str = r#"
[package]
name = "outside"
version = "0.1.0"
edition = "2024"
[dependencies]
mcc-runtime = { path = "@/runtime", features = ["std"] }
[build-dependencies]
mcc-build = { path = "@/compiler/build" }
[profile.dev]
debug = false
incremental = false
[profile.dev.package."*"]
opt-level = 3
"#;

/// Our own crates are quickly built.
const CRATES: [&str; 8] = [
    "mcc", "mcc-build", "mcc-kernel", "mcc-runtime", "mcc-support", "mcc-target-aarch64", "mcc-target-portable",
    "mcc-target-x86_64",
];

/// y = x + x and the places where x is not zero, for x: f32[n].
fn model_with_extents() -> Vec<u8> {
    let value = |name: &str, elem_type: i32, dims: &[DimValue]| {
        let dim = dims.iter().map(|dim| DimensionProto { value: Some(dim.clone()), denotation: None }).collect();
        let tensor = TensorTypeProto { elem_type: Some(elem_type), shape: Some(TensorShapeProto { dim }) };
        ValueInfoProto {
            name: Some(name.to_string()),
            r#type: Some(TypeProto { value: Some(TypeValue::Tensor(tensor)), denotation: None }),
            ..Default::default()
        }
    };
    let node = |operator: &str, inputs: &[&str], output: &str| NodeProto {
        op_type: Some(operator.to_string()),
        input: inputs.iter().map(|input| input.to_string()).collect(),
        output: vec![output.to_string()],
        ..Default::default()
    };
    let extent = |name: &str| DimValue::Param(name.to_string());
    let graph = GraphProto {
        node: vec![node("Add", &["x", "x"], "type"), node("NonZero", &["x"], "places")],
        input: vec![value("x", 1, &[extent("n")])],
        output: vec![value("type", 1, &[extent("n")]), value("places", 7, &[DimValue::Value(1), extent("found")])],
        ..Default::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: None, version: Some(17) }];
    ModelProto { ir_version: Some(8), opset_import, graph: Some(graph), ..Default::default() }.encode_to_vec()
}

/// y = x · (1, 2, …, 16).
fn model_with_weights() -> Vec<u8> {
    let dim = vec![DimensionProto { value: Some(DimValue::Value(16)), denotation: None }];
    let tensor = TensorTypeProto { elem_type: Some(1), shape: Some(TensorShapeProto { dim }) };
    let value = |name: &str| ValueInfoProto {
        name: Some(name.to_string()),
        r#type: Some(TypeProto { value: Some(TypeValue::Tensor(tensor.clone())), denotation: None }),
        ..Default::default()
    };
    let weights = TensorProto {
        name: Some("w".to_string()),
        data_type: Some(1),
        dims: vec![16],
        float_data: (1..=16).map(|w| w as f32).collect(),
        ..Default::default()
    };
    let node = NodeProto {
        op_type: Some("Mul".to_string()),
        input: vec!["x".to_string(), "w".to_string()],
        output: vec!["y".to_string()],
        ..Default::default()
    };
    let graph = GraphProto {
        node: vec![node],
        initializer: vec![weights],
        input: vec![value("x")],
        output: vec![value("y")],
        ..Default::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: None, version: Some(17) }];
    ModelProto { ir_version: Some(8), opset_import, graph: Some(graph), ..Default::default() }.encode_to_vec()
}

/// And a third, whose weights a run is passed.
const WEIGHTS: &str = "
#[cfg(test)]
mcc_runtime::include_model!(pub scaled);

#[test]
fn weights_are_passed() {
    #[repr(align(64))]
    struct Aligned<const N: usize>([u8; N]);
    static FILE: Aligned<{ include_bytes!(concat!(env!(\"OUT_DIR\"), \"/scaled.weights\")).len() }> =
        Aligned(*include_bytes!(concat!(env!(\"OUT_DIR\"), \"/scaled.weights\")));
    let (x, mut y) = ([2.0; 16], [0.0; 16]);
    let model = scaled::Model::new(&FILE.0).unwrap();
    model.run(scaled::Inputs { x: &x }, scaled::Outputs { y: &mut y }, &mut scaled::Arena::new()).unwrap();
    assert_eq!((y[0], y[15]), (2.0, 32.0));
    for wrong in [&FILE.0[..FILE.0.len() - 1], &FILE.0[64..], &[]] {
        assert!(matches!(scaled::Model::new(wrong), Err(mcc_runtime::Error::Weights)));
    }
}
";

/// The program of the example runs a second model, too, whose extents a run is told and tells.
const EXTENTS: &str = "
#[cfg(test)]
mcc_runtime::include_model!(pub extents);

#[cfg(test)]
pub fn run(x: &[f32]) -> (Vec<f32>, Vec<i64>) {
    let model = extents::Model::new().unwrap();
    let (mut doubled, mut places) = (vec![0.0; x.len()], vec![0; extents::PLACES_MAX_COUNT]);
    let outputs = extents::Outputs { type_: &mut doubled, places: &mut places };
    let counts = model.run(extents::Inputs { x }, outputs, extents::Dims { n: x.len() }, &mut extents::Arena::new()).unwrap();
    places.truncate(counts.places_1);
    (doubled, places)
}

#[test]
fn extents_are_told() {
    assert_eq!(run(&[0.0, 2.0, 0.0, 3.0]), (vec![0.0, 4.0, 0.0, 6.0], vec![1, 3]));
    assert_eq!(run(&[1.0]), (vec![2.0], vec![0]));
}
";

/// Builds, and changes one thing after the other.
#[test]
fn a_package_outside_of_the_repository() {
    let project = Project::new("digits-rust");
    let repository = data::repository();
    let mut manifest = MANIFEST.replace('@', &repository.display().to_string());
    CRATES.iter().for_each(|name| manifest += &format!("[profile.dev.package.{name}]\nopt-level = 0\n"));
    fs::write(project.folder.join("Cargo.toml"), manifest).unwrap();
    fs::copy(repository.join("Cargo.lock"), project.folder.join("Cargo.lock")).unwrap();
    fs::write(project.folder.join("extents.onnx"), model_with_extents()).unwrap();
    fs::write(project.folder.join("src/extents.rs"), EXTENTS).unwrap();
    fs::write(project.folder.join("scaled.onnx"), model_with_weights()).unwrap();
    fs::write(project.folder.join("src/scaled.rs"), WEIGHTS).unwrap();
    fs::remove_dir_all(project.folder.join("tests")).unwrap();
    // The script runs for all models of the package; each run leaves a letter.
    let more = "\n    mcc_build::Model::new(\"extents.onnx\").dim(\"n\", 1..=8).compile();
    mcc_build::Model::new(\"scaled.onnx\").options(|options| options.weights = mcc_build::WeightsPlace::File).compile();
    let mut runs = std::fs::File::options().create(true).append(true).open(\"runs\").unwrap();
    std::io::Write::write_all(&mut runs, b\"r\").unwrap();\n}";
    project.edit(("build.rs", "\n}", more));
    project.edit((
        "src/main.rs",
        "mcc_runtime::include_model!(digits);",
        "mod extents;\nmod scaled;\nmcc_runtime::include_model!(digits);",
    ));
    let cargo =
        |command: &str| format!("'{}' {command} --quiet --offline --target-dir '{}'", env!("CARGO"), target_folder().display());
    let build = |expected: usize, what: &str| {
        project.run(&cargo("build"));
        assert_eq!(fs::read(project.folder.join("runs")).unwrap().len(), expected, "{what}");
    };
    build(1, "the first build");
    project.classify(target_folder().join("debug/outside").to_str().unwrap(), Machine::host());
    build(1, "nothing changed");
    for file in ["digits.onnx", "digits.bin"] {
        let before = fs::read(project.folder.join("runs")).unwrap().len();
        project.touch(file);
        build(before + 1, file);
        build(before + 1, "nothing changed");
    }
    let output = project.run(&cargo("test"));
    assert!(output.contains("test result: ok. 2 passed"), "{output}");
    fs::write(project.folder.join("digits.onnx"), "no model\n").unwrap();
    let output = project.fail(&cargo("build"));
    assert!(
        output.contains("error: outside@0.1.0: ") && output.contains("this is not an ONNX model: it is a text file"),
        "{output}"
    );
}
