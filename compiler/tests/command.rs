//! The command as its user meets it: files, exit codes, messages, protocols.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use mcc::npy;
use mcc::onnx::proto::{
    AttributeProto, DimValue, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};
use mcc_support::Tensor;
use prost::Message;

/// `y = tanh(x · w) + x` for `x: f32[n,4]`.
fn model() -> Vec<u8> {
    let dim = |value| DimensionProto { value: Some(value), denotation: None };
    let shape = TensorShapeProto { dim: vec![dim(DimValue::Param("n".to_string())), dim(DimValue::Value(4))] };
    let ty = TypeValue::Tensor(TensorTypeProto { elem_type: Some(1), shape: Some(shape) });
    let value = |name: &str| ValueInfoProto {
        name: Some(name.to_string()),
        r#type: Some(TypeProto { value: Some(ty.clone()), denotation: None }),
        ..Default::default()
    };
    let node = |operator: &str, inputs: &[&str], output: &str| NodeProto {
        op_type: Some(operator.to_string()),
        input: inputs.iter().map(|input| input.to_string()).collect(),
        output: vec![output.to_string()],
        ..Default::default()
    };
    let weights = TensorProto {
        name: Some("w".to_string()),
        data_type: Some(1),
        dims: vec![4],
        float_data: vec![0.0, 1.0, 2.0, 3.0],
        ..Default::default()
    };
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        graph: Some(GraphProto {
            node: vec![node("Mul", &["x", "w"], "a"), node("Tanh", &["a"], "b"), node("Add", &["b", "x"], "y")],
            initializer: vec![weights],
            input: vec![value("x")],
            output: vec![value("y")],
            ..Default::default()
        }),
        ..Default::default()
    }
    .encode_to_vec()
}

/// A folder with the model as `net.onnx`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("net.onnx"), model()).unwrap();
    folder
}

fn mcc(folder: &Path, args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mcc")).current_dir(folder).args(args.split_whitespace()).output().unwrap()
}

fn succeed(folder: &Path, args: &str) -> (String, String) {
    let out = mcc(folder, args);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert!(out.status.success(), "mcc {args}: {}\n{}", out.status, text(&out.stderr));
    (text(&out.stdout), text(&out.stderr))
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn compiles_to_files_beside_each_other() {
    let folder = folder();
    let folder = folder.path();
    let (out, err) = succeed(folder, "net.onnx --dim n=3");
    assert_eq!(out, "");
    for line in ["net for ", "arena ", "weights ", "code ", "stack "] {
        assert!(err.contains(line), "{err}");
    }
    assert_eq!(files(folder), ["mcc.h", "net.h", "net.json", "net.o", "net.onnx"]);
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("net.json")).unwrap()).unwrap();
    assert_eq!(manifest["inputs"][0]["shape"], serde_json::json!([3, 4]));
    assert_eq!(manifest["options"]["dims"]["n"], 3);

    let all = "object,staticlib,header,manifest,rust,graph,loops,decisions,plan,kernel,asm";
    let (out, err) =
        succeed(folder, &format!("net.onnx --dim n=3 -q -o build/ --name other --target aarch64 --emit {all} --depfile net.d"));
    assert_eq!((out.as_str(), err.as_str()), ("", ""));
    let extensions = ["asm", "decisions.json", "graph", "h", "json", "kernel", "loops", "o", "plan", "rs"];
    let expected: Vec<String> = ["libother.a".to_string(), "mcc.h".to_string()]
        .into_iter()
        .chain(extensions.iter().map(|extension| format!("other.{extension}")))
        .collect();
    assert_eq!(files(&folder.join("build")), expected);
    let rule = fs::read_to_string(folder.join("net.d")).unwrap();
    assert!(rule.starts_with("build/other.o ") && rule.ends_with(": \\\n  net.onnx\n"), "{rule}");
    succeed(folder, "net.onnx --dim n=3 --target aarch64 -o again/ --decisions build/other.decisions.json --depfile net.d");
    let rule = fs::read_to_string(folder.join("net.d")).unwrap();
    assert!(rule.ends_with(": \\\n  net.onnx \\\n  build/other.decisions.json\n\nbuild/other.decisions.json:\n"), "{rule}");
}

/// The bytes depend on the model and the options, not on folder, home or locale.
#[test]
fn the_same_bytes_anywhere() {
    let (one, other) = (folder(), folder());
    succeed(one.path(), "net.onnx --shape x=2,4 --target x86_64");
    let path = one.path().join("net.onnx");
    let status = Command::new(env!("CARGO_BIN_EXE_mcc"))
        .current_dir(other.path())
        .args([path.to_str().unwrap(), "--shape", "x=2,4", "--target", "x86_64", "-o", "deep/er/net.o"])
        .env_clear()
        .env("HOME", "/nowhere")
        .env("LC_ALL", "tr_TR.UTF-8")
        .status()
        .unwrap();
    assert!(status.success());
    for file in ["net.o", "net.h", "net.json"] {
        assert_eq!(
            fs::read(one.path().join(file)).unwrap(),
            fs::read(other.path().join("deep/er").join(file)).unwrap(),
            "{file}"
        );
    }
}

/// A build script gets what the command writes.
/// The object without its weights is the same whatever they are, and the file is one of the outputs.
#[test]
fn weights_are_written_apart() {
    let folder = folder();
    let folder = folder.path();
    let others = ModelProto::decode(&*model()).map(|mut model| {
        model.graph.as_mut().unwrap().initializer[0].float_data = vec![3.0, 1.0, 4.0, 1.0];
        model.encode_to_vec()
    });
    fs::create_dir(folder.join("other")).unwrap();
    fs::write(folder.join("other/net.onnx"), others.unwrap()).unwrap();
    for place in ["", "other/"] {
        succeed(
            folder,
            &format!("{place}net.onnx --dim n=3 -q -o {place}net.o --weights-file {place}net.bin --depfile {place}net.d"),
        );
        assert!(fs::read_to_string(folder.join(format!("{place}net.d"))).unwrap().contains("net.bin"));
    }
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let [first, second] = ["net.bin", "other/net.bin"].map(read);
    assert_eq!(first[..48], second[..48], "both are for the same code");
    assert_ne!(first[64..], second[64..]);
    assert_eq!(read("net.h"), read("other/net.h"));
}

#[test]
fn programs_compile_to_the_same_files() {
    let (one, other) = (folder(), folder());
    succeed(one.path(), "net.onnx --dim n=3 --target aarch64");
    let path = other.path().join("net.onnx");
    let mut options = mcc::Options::new(&path);
    options.target = "aarch64".to_string();
    options.import.dims.insert("n".to_string(), 3);
    let artifacts = mcc::compile(&options).unwrap();
    artifacts.write(other.path()).unwrap();
    assert_eq!(files(one.path()), files(other.path()));
    for file in files(one.path()) {
        assert_eq!(fs::read(one.path().join(&file)).unwrap(), fs::read(other.path().join(&file)).unwrap(), "{file}");
    }
    assert_eq!(artifacts.dependencies(), [path]);
}

#[test]
fn edited_decisions_that_do_not_fit_are_refused() {
    let folder = folder();
    let folder = folder.path();
    succeed(folder, "net.onnx --dim n=3 -q --emit decisions");
    let text = fs::read_to_string(folder.join("net.decisions.json")).unwrap();
    let decisions: serde_json::Value = serde_json::from_str(&text).unwrap();
    let name = decisions["order"][0].as_str().unwrap().to_string();
    let axis = serde_json::json!([{ "step": "split", "axis": "d0", "factor": 1 }, { "step": "vectorize", "axis": "d0.i" }]);
    for (key, value, message) in [("target", "vax".into(), "'vax'"), ("schedule", axis, "lanes")] {
        let mut edited = decisions.clone();
        edited["kernels"][&name][key] = value;
        fs::write(folder.join("edited.json"), edited.to_string()).unwrap();
        let out = mcc(folder, "net.onnx --dim n=3 --decisions edited.json");
        let error = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{error}");
        assert!(error.contains(message), "{error}");
    }
}

/// Exit code 1 for what is wrong with the model, 2 for the command line; nothing is written then.
#[test]
fn errors_say_what_to_do_and_write_nothing() {
    let folder = folder();
    let folder = folder.path();
    fs::write(folder.join("text.onnx"), "hello\n").unwrap();
    fs::create_dir(folder.join("net.h")).unwrap();
    let two = npy::write(&Tensor::from_elements(vec![2], &[1.0f32, 2.0]));
    fs::write(folder.join("two.npz"), npy_archive("y", &two)).unwrap();
    fs::write(folder.join("two.npy"), two).unwrap();
    let before = files(folder);
    for (args, code, message) in [
        ("net.onnx", 1, "--dim n="),
        ("net.onnx --dim m=3", 1, "'m'"),
        ("net.onnx --dim n=3 --target vax", 1, "aarch64-none"),
        ("net.onnx --dim n=3 --cpu 8086", 1, "x86-64-v3"),
        ("net.onnx --dim n=3 --name 3d", 1, "C identifier"),
        ("net.onnx --dim n=3 --constant x=1,2", 1, "x"),
        ("net.onnx --dim n=3", 1, "net.h"),
        ("net.onnx --dim n=3 --emit object -o net.onnx", 1, "would replace what the compile reads"),
        ("net.onnx --dim n=3 --emit object --depfile net.onnx", 1, "would replace what the compile reads"),
        ("net.onnx --dim n=3 --shape x=2,4", 1, "'n' is 2 by --shape, but 3"),
        ("net.onnx --dim n=3 --constant z=1", 1, "its inputs are 'x'"),
        ("bench net.onnx --dim n=3 --seconds 1e30", 1, "no time"),
        ("inspect net.onnx --dim n=3 --asm nothing", 1, "no kernel is called 'nothing'"),
        ("text.onnx", 1, "a text file"),
        ("net.onnx --dim n=3 -o -", 1, "none to the standard output"),
        ("net.onnx --dim n=3 -o /dev/null", 1, "mcc check"),
        ("net.onnx --dim n=3 --cpu armv8-a", 1, "--target aarch64"),
        ("net.onnx --dim n=3 --strict-align on --target x86_64-none", 1, "aarch64 only"),
        ("net.onnx --dim n=3 -o made --depfile text.onnx/depfile", 1, "text.onnx/depfile"),
        ("net.onnx --dim n=3 -o made --weights-file net.h", 1, "net.h"),
        ("run net.onnx --input z=two.npy", 1, "a value is given for 'z', which is not an input of the model"),
        ("run net.onnx --input x=two.npy", 1, "the input 'x' is f32[n,4], given is f32[2]"),
        ("diff net.onnx --dim n=3 --against two.npz", 1, "depends on the input 'x', which is not given"),
        ("chek net.onnx", 2, "did you mean 'check'?"),
        ("net.onnx text.onnx", 2, "one model is compiled at a time"),
        ("missing.onnx", 1, "missing.onnx"),
        ("run net.onnx --dim n=3 --input z=net.onnx", 1, "net.onnx"),
        ("opt --run no-such-pass text.onnx", 1, "hello"),
        ("check net.onnx", 1, "--dim n="),
        ("", 2, "Usage"),
        ("net.onnx --dim n=3 --weights-section a,b", 1, "for Mach-O only"),
        ("net.onnx --dim n=3 --emit object --weights-file net.onnx", 1, "would replace what the compile reads"),
        ("net.onnx --dim n=3 --constant x=1,2 --weights-file w", 1, "x"),
        ("net.onnx --weights-section a --weights-file w", 2, "cannot be used with"),
        ("net.onnx --dim n=3 --limit arena=1GiB,code=10", 1, "code takes"),
        ("net.onnx --dim n=3 --limit heap=1", 2, "arena, stack, code, weights"),
        ("net.onnx -O2", 2, "0..=1"),
        ("net.onnx -O0 --fuel 3", 2, "cannot be used with"),
        ("net.onnx --no-such-option", 2, "--no-such-option"),
        ("net.onnx --shape x", 2, "equals sign"),
        ("net.onnx --emit nothing", 2, "staticlib"),
        ("net.onnx --stop-after nowhere", 2, "import"),
    ] {
        let out = mcc(folder, args);
        let text = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(code), "mcc {args}: {text}");
        assert!(text.contains(message), "mcc {args}: {text}");
        assert!(out.stdout.is_empty(), "mcc {args}");
        assert_eq!(files(folder), before, "mcc {args}");
    }
}

/// What is given again is for another set; a run takes the set of its inputs' shapes, at every level.
#[test]
fn several_sets_of_shapes_in_one_object() {
    let folder = folder();
    let folder = folder.path();
    succeed(folder, "net.onnx --dim n=3 --dim n=5 --emit header,manifest,decisions");
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("net.json")).unwrap()).unwrap();
    assert_eq!(manifest["inputs"][0]["shape"], serde_json::json!([5, 4]));
    assert_eq!(manifest["dims"][0], serde_json::json!({ "name": "n", "c_name": "n", "min": 3, "max": 5 }));
    assert_eq!(manifest["specializations"][0]["outputs"]["y"], serde_json::json!([3, 4]));
    let header = fs::read_to_string(folder.join("net.h")).unwrap();
    for text in ["n = 3", "typedef struct net_dims", "int64_t n;", "const float *x; /* f32[n,4] */", "const net_dims *dims"] {
        assert!(header.contains(text), "{header}");
    }
    for n in [3, 5] {
        fs::write(folder.join("x.npy"), npy::write(&Tensor::from_elements(vec![n, 4], &vec![0.5f32; 4 * n]))).unwrap();
        for level in ["graph", "loops", "kernel", "machine"] {
            for sets in ["--shape x=5,4 --shape x=3,4", "--dim n=3 --dim n=5 --decisions net.decisions.json"] {
                let (out, _) = succeed(folder, &format!("run net.onnx {sets} --input x=x.npy --at {level}"));
                assert!(out.starts_with(&format!("y: f32[{n},4] [0.5, ")), "{level}: {out}");
            }
        }
    }
    fs::write(folder.join("x.npy"), npy::write(&Tensor::from_elements(vec![4, 4], &[0.5f32; 16]))).unwrap();
    for (args, message) in [
        ("run net.onnx --dim n=3 --dim n=5 --input x=x.npy", "none of the 2 sets of shapes"),
        ("net.onnx --dim n=3 --dim n=5 --dim n=3", "sets 1 and 3 of shapes are the same"),
        ("net.onnx --shape x=3,4 --shape x=4 --target host", "in set 2 of shapes"),
        ("net.onnx --dim n=3 --dim n=5 --decisions net.decisions.json --shape x=3,4", "'n' is 3 by --shape, but 5 by --dim"),
        ("net.onnx --dim n=3 --decisions net.decisions.json", "decisions for 2 sets"),
    ] {
        let out = mcc(folder, args);
        let text = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "mcc {args}: {text}");
        assert!(text.contains(message), "mcc {args}: {text}");
    }
}

/// `x: f32[4]` through nodes of which three cannot be compiled, two of them behind another, and one is in training mode; with an input
/// that has a default value, metadata, and a wrong declared type.
fn troubled(healthy: bool) -> Vec<u8> {
    let mut proto = ModelProto::decode(&model()[..]).unwrap();
    let graph = proto.graph.as_mut().unwrap();
    let declare = |name: &str, dims: &[i64]| {
        let dim = dims.iter().map(|&dim| DimensionProto { value: Some(DimValue::Value(dim)), denotation: None });
        let ty = TypeValue::Tensor(TensorTypeProto { elem_type: Some(1), shape: Some(TensorShapeProto { dim: dim.collect() }) });
        let r#type = Some(TypeProto { value: Some(ty), denotation: None });
        ValueInfoProto { name: Some(name.to_string()), r#type, ..Default::default() }
    };
    graph.input.push(declare("w", &[4]));
    graph.value_info = vec![declare("a", &[3, 4]), declare("b", &[7, 4])];
    proto.metadata_props = vec![StringStringEntryProto { key: Some("author".into()), value: Some("nobody".into()) }];
    let graph = proto.graph.as_mut().unwrap();
    if healthy {
        let flag = TensorProto { name: Some("flag".into()), data_type: Some(9), int32_data: vec![1], ..Default::default() };
        graph.initializer.push(flag);
        graph.node[1].op_type = Some("Dropout".into());
        graph.node[1].input = vec!["a".into(), String::new(), "flag".into()];
    } else {
        graph.node[0].op_type = Some("Frobnicate".into());
        graph.node[0].name = Some("first".into());
        graph.node[1].attribute =
            vec![AttributeProto { name: Some("speed".into()), r#type: Some(2), i: Some(1), ..Default::default() }];
        graph.node[2].op_type = Some("Frobnicate".into());
    }
    proto.encode_to_vec()
}

#[test]
fn check_names_all_that_is_wrong_and_odd() {
    let folder = folder();
    let folder = folder.path();
    fs::write(folder.join("bad.onnx"), troubled(false)).unwrap();
    fs::write(folder.join("odd.onnx"), troubled(true)).unwrap();
    let json = |args: &str, code: i32| -> serde_json::Value {
        let out = mcc(folder, args);
        assert_eq!(out.status.code(), Some(code), "{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let found = json("check bad.onnx --dim n=3 --format json", 1);
    assert_eq!(found["can_be_compiled"], false);
    let errors: Vec<[String; 3]> = found["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| {
            assert!(error["help"].is_string() && error["opset"] == 17, "{error}");
            ["node", "operator", "message"].map(|field| error[field].as_str().unwrap().to_string())
        })
        .collect();
    for (error, (node, operator, word)) in
        errors.iter().zip([("first", "Frobnicate", "Frobnicate"), ("b", "Tanh", "speed"), ("y", "Frobnicate", "Frobnicate")])
    {
        assert!(error[0] == node && error[1] == operator && error[2].contains(word), "{error:?}");
    }
    assert_eq!(errors.len(), 3);
    let text = String::from_utf8(mcc(folder, "check bad.onnx --dim n=3").stderr).unwrap();
    assert!(text.contains("in 2 nodes (Frobnicate, opset 17): 'first', 'y'") && text.contains("'b' (Tanh, opset 17)"), "{text}");
    assert!(text.contains("3 problems"), "{text}");
    let text = String::from_utf8(mcc(folder, "bad.onnx --dim n=3").stderr).unwrap();
    assert!(text.contains("in file 'bad.onnx'") && text.contains("and 2 more: `mcc check` names all of them"), "{text}");

    let found = json("check odd.onnx --dim n=3 --format json", 0);
    assert_eq!((&found["can_be_compiled"], &found["errors"]), (&serde_json::json!(true), &serde_json::json!([])));
    let warnings = found["warnings"].as_array().unwrap();
    for (kind, word) in
        [("default-input", "'w'"), ("dropped", "'author'"), ("training", "drops elements"), ("declared-type", "'b' as f32[7,4]")]
    {
        let fits = |warning: &&serde_json::Value| warning["kind"] == kind && warning["message"].as_str().unwrap().contains(word);
        assert_eq!(warnings.iter().filter(fits).count(), 1, "{kind}: {found}");
    }
    assert_eq!(warnings.len(), 4, "{found}");
    let (_, text) = succeed(folder, "odd.onnx --dim n=3");
    assert_eq!(text.matches("warning: ").count(), 3, "metadata is nothing to be warned of at each compile: {text}");
    assert_eq!(json("check odd.onnx --format json", 1)["errors"][0]["node"], serde_json::Value::Null);
    assert_eq!(json("check missing.onnx --format json", 1)["can_be_compiled"], false);
}

#[test]
fn bisect_tells_whether_a_step_is_to_blame() {
    let folder = folder();
    let folder = folder.path();
    for level in ["graph", "loops", "kernel", "machine"] {
        let (out, _) = succeed(folder, &format!("bisect net.onnx --dim n=3 --at {level}"));
        assert!(out.contains("right before and after all"), "{out}");
    }
    fs::write(folder.join("zeros.npy"), npy::write(&Tensor::from_elements(vec![3, 4], &[0.0f32; 12]))).unwrap();
    let zip = npy_archive("y", &fs::read(folder.join("zeros.npy")).unwrap());
    fs::write(folder.join("zeros.npz"), zip).unwrap();
    fs::write(folder.join("ones.npy"), npy::write(&Tensor::from_elements(vec![3, 4], &[1.0f32; 12]))).unwrap();
    let out = mcc(folder, "bisect net.onnx --dim n=3 --input x=ones.npy --against zeros.npz");
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.code() == Some(1) && text.contains("wrong without any optimization: output 'y' is off by"), "{text}");
    for (args, message) in [("--fuel 3", "chooses the fuel itself"), ("--against net.onnx", "net.onnx")] {
        let out = mcc(folder, &format!("bisect net.onnx --dim n=3 {args}"));
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.code() == Some(1) && text.contains(message), "{text}");
    }
}

#[test]
fn diff_names_the_first_value_that_differs() {
    let folder = folder();
    let folder = folder.path();
    for level in ["graph", "loops", "kernel", "machine"] {
        let (out, _) = succeed(folder, &format!("diff net.onnx --dim n=3 --at {level}"));
        assert!(out.ends_with("no value differs\n") && out.contains("  y "), "{out}");
    }
    fs::write(folder.join("b.npz"), npy_archive("b", &npy::write(&Tensor::from_elements(vec![3, 4], &[9.0f32; 12])))).unwrap();
    let x = npy::write(&Tensor::from_elements(vec![3, 4], &[0.5f32; 12]));
    // The values of inputs may be among those that are right.
    fs::write(folder.join("x.npz"), npy_archive("x", &x)).unwrap();
    let text = String::from_utf8(mcc(folder, "diff net.onnx --dim n=3 --against x.npz").stderr).unwrap();
    assert!(text.contains("no value that the model has at this level"), "{text}");
    fs::write(folder.join("x.npy"), x).unwrap();
    let out = mcc(folder, "diff net.onnx --dim n=3 --at graph --input x=x.npy --against b.npz");
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text.ends_with("the first that differs: 'b', of node 'b' (Tanh, opset 17)\n"), "{text}");
    assert!(text.contains("not in reference") && text.contains("1 of 3 values"), "{text}");
    // In machine code it is one kernel, which stores no such value.
    let text = String::from_utf8(mcc(folder, "diff net.onnx --dim n=3 --input x=x.npy --against b.npz").stderr).unwrap();
    assert!(text.contains("no value that the model has at this level"), "{text}");
    succeed(folder, "diff net.onnx --dim n=3 -O0 --at machine");
}

/// An archive with one array, stored as it is.
fn npy_archive(name: &str, array: &[u8]) -> Vec<u8> {
    let mut checksum = !0u32;
    for &byte in array {
        checksum ^= u32::from(byte);
        for _ in 0..8 {
            checksum = checksum >> 1 ^ (0xedb8_8320 & (checksum & 1).wrapping_neg());
        }
    }
    let name = format!("{name}.npy");
    let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let size = array.len() as u32;
    // What both headers hold: versions, method, time; checksum, sizes, length of the name.
    let common = [vec![20, 0, 0, 0, 0, 0, 0, 0, 33, 0], words(&[!checksum, size, size, name.len() as u32])].concat();
    let local = [&b"PK\x03\x04"[..], &common, name.as_bytes(), array].concat();
    let central = [&b"PK\x01\x02\x14\0"[..], &common, &[0; 14], name.as_bytes()].concat();
    let end = [&b"PK\x05\x06\0\0\0\0\x01\0\x01\0"[..], &words(&[central.len() as u32, local.len() as u32]), &[0, 0]].concat();
    [local, central, end].concat()
}

/// Every form of the model gives the same outputs.
#[test]
fn runs_at_every_level() {
    let folder = folder();
    let folder = folder.path();
    let x = Tensor::from_elements(vec![3, 4], &[0.5f32, -1.0, 2.0, 0.0, 1.0, 1.0, 1.0, 1.0, -0.5, 0.25, -0.125, 3.0]);
    fs::write(folder.join("x.npy"), npy::write(&x)).unwrap();
    let mut outputs = Vec::new();
    for level in ["graph", "loops", "kernel", "machine"] {
        let (out, _) = succeed(folder, &format!("run net.onnx --dim n=3 --input x=x.npy --at {level} --output {level}"));
        assert!(out.starts_with("y: f32[3,4] [0.5, "), "{out}");
        outputs.push(npy::read(&folder.join(level).join("y.npy")).unwrap().elements::<f32>());
    }
    for output in &outputs {
        for (i, (&x, &y)) in x.elements::<f32>().iter().zip(output).enumerate() {
            let expected = libm::tanhf(x * (i % 4) as f32) + x;
            assert!((y - expected).abs() <= 1e-6, "{y} where {expected} is right");
        }
    }
    for (flags, kernels) in [("-O0", 3), ("--fuel 0", 3), ("-O1", 1), ("", 1)] {
        succeed(folder, &format!("net.onnx --dim n=3 -q {flags}"));
        let manifest: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("net.json")).unwrap()).unwrap();
        assert_eq!(manifest["kernels"].as_array().unwrap().len(), kernels, "{flags}");
        let (out, _) = succeed(folder, &format!("run net.onnx --dim n=3 --input x=x.npy {flags}"));
        assert!(out.starts_with("y: f32[3,4] [0.5, "), "{out}");
    }
    let random = |seed: u32| succeed(folder, &format!("run net.onnx --dim n=3 --seed {seed}")).0;
    assert_eq!(random(1), random(1));
    assert!(succeed(folder, "run net.onnx --dim n=3").1.contains("random: 'x'"));
    assert_ne!(random(1), random(2));
    let (out, _) = succeed(folder, "run net.onnx --constant x=1,2,3,4 --shape x=1,4");
    assert!(out.starts_with("y: f32[1,4] [1.0, "), "{out}");
}

#[test]
fn prints_stages_and_times() {
    let folder = folder();
    let folder = folder.path();
    let before = files(folder);
    let (out, err) = succeed(folder, "net.onnx --dim n=3 --print-after passes --print-after realize --stop-after realize --time");
    assert!(out.starts_with("; after passes\n") && out.contains("\n; after realize\n"), "{out}");
    assert!(err.contains("lower ") && err.contains("total ") && !err.contains("codegen"), "{err}");
    assert_eq!(files(folder), before);
    fs::write(folder.join("net.graph"), out.split("; after realize").next().unwrap()).unwrap();
    let (again, _) = succeed(folder, "opt --run deployment net.graph");
    assert_eq!(format!("; after passes\n{again}").trim_end(), fs::read_to_string(folder.join("net.graph")).unwrap().trim_end());
    for (list, entry) in [("ops", "LayerNormalization"), ("targets", "x86_64-pc-windows-msvc")] {
        assert!(succeed(folder, list).0.contains(entry));
    }
}

/// The protocol of workers that are timed beside other engines.
#[test]
fn bench_answers_as_a_worker() {
    let folder = folder();
    let folder = folder.path();
    fs::create_dir(folder.join("in")).unwrap();
    fs::write(folder.join("in/0.npy"), npy::write(&Tensor::from_elements(vec![2, 4], &[1.0f32; 8]))).unwrap();
    fs::write(folder.join("in/index.json"), r#"[{"name": "x", "shape": [2, 4], "dtype": "float32", "file": "0.npy"}]"#).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_mcc"))
        .current_dir(folder)
        .args(["bench", "net.onnx", "--dim", "n=2", "--worker", "--inputs", "in", "--threads", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "READY {}");
    let mut stdin = child.stdin.take().unwrap();
    for _ in 0..2 {
        stdin.write_all(b"run 0.01\n").unwrap();
        let times: Vec<f64> = serde_json::from_str(&next()).unwrap();
        assert!(times.iter().all(|&time| time > 0.0) && times.len() > 1, "{times:?}");
    }
    stdin.write_all(b"rates L1\n").unwrap();
    let rates: serde_json::Value = serde_json::from_str(&next()).unwrap();
    assert!(rates["fma_per_s"].as_f64().unwrap() > 0.0 && rates["levels"][0]["name"] == "L1", "{rates}");
    stdin.write_all(b"quit\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert!(succeed(folder, "bench net.onnx --dim n=2 --seconds 0.05").0.starts_with("median "));
}

/// What is shown of memory agrees with the manifest, and limits are of the same numbers.
#[test]
fn inspect_shows_what_is_taken() {
    let folder = folder();
    let folder = folder.path();
    succeed(folder, "net.onnx --dim n=3 -q -O0");
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("net.json")).unwrap()).unwrap();
    let (out, _) = succeed(folder, "inspect net.onnx --dim n=3 -O0 --memory --json --svg arena.svg");
    let memory: serde_json::Value = serde_json::from_str(&out).unwrap();
    let mut limits = Vec::new();
    for kind in ["arena", "stack", "code", "weights"] {
        let key = format!("{kind}_bytes");
        assert_eq!(memory[&key], manifest[&key], "{out}");
        let taken = memory[&key].as_u64().unwrap();
        assert!(taken > 0, "{out}");
        limits.push(format!("{kind}={taken}"));
        let refused = mcc(folder, &format!("inspect net.onnx --dim n=3 -O0 --limit {kind}={}", taken - 1));
        assert_eq!(refused.status.code(), Some(1));
        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(text.contains(&format!("{kind} takes {taken} bytes, 1 more than the limit")) && text.contains("k0"), "{text}");
    }
    succeed(folder, &format!("net.onnx --dim n=3 -q -O0 --limit {}", limits.join(",")));
    let kernels = memory["kernels"].as_array().unwrap();
    let peak = memory["peak"].as_u64().unwrap() as usize;
    assert_eq!(kernels[peak]["live_bytes"], memory["arena_lower_bound_bytes"]);
    let deepest = kernels.iter().map(|kernel| kernel["stack_bytes"].as_u64().unwrap()).max().unwrap();
    assert_eq!(memory["stack_bytes"].as_u64().unwrap(), memory["entry_stack_bytes"].as_u64().unwrap() + deepest);
    let svg = fs::read_to_string(folder.join("arena.svg")).unwrap();
    for block in memory["blocks"].as_array().unwrap() {
        assert!(
            svg.contains(&format!("{}: {} bytes at {}", block["tensor"].as_str().unwrap(), block["bytes"], block["offset"])),
            "{svg}"
        );
    }
    let (text, _) = succeed(folder, "inspect net.onnx --dim n=3 -O0 --memory");
    assert!(text.contains(&format!("The peak is in {}", kernels[peak]["name"].as_str().unwrap())), "{text}");
}

/// Kernels of the same code take it once.
#[test]
fn inspect_counts_shared_code_once() {
    let folder = folder();
    let folder = folder.path();
    let mut proto = ModelProto::decode(&model()[..]).unwrap();
    let nodes = &mut proto.graph.as_mut().unwrap().node;
    for (node, input) in nodes.iter_mut().zip(["x", "a", "b"]) {
        (node.op_type, node.input) = (Some("Tanh".into()), vec![input.into()]);
    }
    fs::write(folder.join("same.onnx"), proto.encode_to_vec()).unwrap();
    let (out, _) = succeed(folder, "inspect same.onnx --dim n=3 -O0 --memory --json");
    let memory: serde_json::Value = serde_json::from_str(&out).unwrap();
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let kernels = memory["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), 3, "{out}");
    let code = number(&kernels[0]["code_bytes"]);
    assert!(code > 0 && kernels[0]["code_of"].is_null(), "{out}");
    for kernel in &kernels[1..] {
        assert_eq!((&kernel["code_of"], number(&kernel["code_bytes"])), (&kernels[0]["name"], 0), "{out}");
    }
    // The entry function and one kernel, which begins where it is aligned.
    let padding = number(&memory["code_bytes"]) - number(&memory["entry_code_bytes"]) - code;
    assert!(padding < 64, "{out}");
    let (text, _) = succeed(folder, "inspect same.onnx --dim n=3 -O0 --memory");
    assert_eq!(text.matches("= k0").count(), 2, "{text}");
}

/// The list, one kernel by name or node, and what is said of others.
#[test]
fn inspect_shows_loops_of_machine_code() {
    let folder = folder();
    let folder = folder.path();
    for target in ["x86_64", "aarch64"] {
        let list = succeed(folder, &format!("inspect net.onnx --dim n=64 --target {target}")).0;
        let name = list.lines().nth(1).unwrap().split(' ').next().unwrap().to_string();
        let asm = succeed(folder, &format!("inspect net.onnx --dim n=64 --target {target} --asm {name}")).0;
        assert!(asm.starts_with(&format!("{name}: ")) && asm.contains("+ innermost loop, depth "), "{asm}");
        let json = succeed(folder, &format!("inspect net.onnx --dim n=64 --target {target} --asm {name} --json")).0;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let loops = json[0]["loops"].as_array().unwrap();
        assert!(loops.iter().any(|one| one["innermost"] == true && one["counts"]["branch"].as_u64() > Some(0)), "{json}");
    }
}

/// Kernels as the manifest has them, each once.
#[test]
fn bench_lists_every_kernel() {
    let folder = folder();
    let folder = folder.path();
    succeed(folder, "net.onnx --dim n=2 --emit manifest");
    let read = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
    let names = |kernels: &serde_json::Value, nodes: &str| -> Vec<(String, String)> {
        let kernels = kernels.as_array().unwrap().iter();
        kernels.map(|kernel| (kernel["name"].to_string(), kernel[nodes].to_string())).collect()
    };
    let manifest = read(&fs::read_to_string(folder.join("net.json")).unwrap());
    let report = read(&succeed(folder, "bench net.onnx --dim n=2 --seconds 0.05 --json").0);
    assert_eq!(names(&report["kernels"], "nodes"), names(&manifest["kernels"], "origins"));
    let kernels = report["kernels"].as_array().unwrap();
    assert!(!kernels.is_empty() && kernels.iter().all(|kernel| kernel["calls"] == 1.0 && kernel["us"].as_f64().unwrap() > 0.0));
}
