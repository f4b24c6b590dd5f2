//! Test data: committed in `tests/data`, or in the cache folder that `tests/tools/setup.py` fills.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mcc::onnx::ExternalFiles;
use mcc::onnx::proto::TensorProto;
use mcc_support::{Tensor, TensorType};
use prost::Message;
use serde::Deserialize;

/// The folder of the whole.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests have a folder of their own").to_path_buf()
}

/// `tests/data`.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

/// The folder of what is fetched: `$MCC_CACHE`, else `mcc` in the user's cache folder.
pub fn cache() -> PathBuf {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("MCC_CACHE")
        .or_else(|| Some(from("XDG_CACHE_HOME").or_else(|| Some(from("HOME")?.join(".cache")))?.join("mcc")))
        .expect("HOME is set")
}

/// A file or folder of the cache; where it is missing, the tests were started without their set-up.
fn cached(path: impl AsRef<Path>) -> PathBuf {
    let path = cache().join(path);
    assert!(path.exists(), "{} is missing: run tests/tools/setup.py, as ./test does", path.display());
    path
}

/// Where Python finds kconfiglib.
pub fn kconfig() -> PathBuf {
    cached("kconfig")
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    serde_json::from_slice(&read(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The arrays of a `.npz` file by name.
pub fn npz(path: &Path) -> BTreeMap<String, Tensor> {
    mcc::npy::read_archive(path).unwrap_or_else(|error| panic!("{error}")).into_iter().collect()
}

/// Inputs and right outputs of one run, by the names of the model.
#[derive(Clone, Debug)]
pub struct Example {
    pub inputs: BTreeMap<String, Tensor>,
    pub outputs: BTreeMap<String, Tensor>,
}

impl Example {
    /// From an archive of `in_<name>` and `out_<name>`.
    pub fn read(path: &Path) -> Self {
        let mut example = Example { inputs: BTreeMap::new(), outputs: BTreeMap::new() };
        for (name, tensor) in npz(path) {
            if let Some(name) = name.strip_prefix("in_") {
                example.inputs.insert(name.to_string(), tensor);
            } else if let Some(name) = name.strip_prefix("out_") {
                example.outputs.insert(name.to_string(), tensor);
            } else {
                panic!("{}: array '{name}' is neither input nor output", path.display());
            }
        }
        example
    }
}

/// A trained model with what ONNX Runtime computes for it.
#[derive(Clone, Debug)]
pub struct Reference {
    pub name: String,
    pub model: PathBuf,
    pub examples: Vec<Example>,
    /// Whether it is small enough to run under qemu.
    pub emulated: bool,
    /// The largest error that is right, as a part of the largest output.
    pub tolerance: f64,
}

/// The digit models and the models of `zoo.json` that tests run.
pub fn references() -> Vec<Reference> {
    #[derive(Deserialize)]
    struct Entry {
        name: String,
        model: PathBuf,
        sets: Vec<PathBuf>,
        test: Vec<String>,
        tolerance: f64,
    }
    let entries: Vec<Entry> = read_json(&cached("reference/index.json"));
    entries
        .into_iter()
        .map(|entry| Reference {
            model: if entry.model.starts_with("zoo") { cached(&entry.model) } else { folder().join(&entry.model) },
            examples: entry.sets.iter().map(|set| Example::read(&cached(Path::new("reference").join(set)))).collect(),
            emulated: entry.test.iter().any(|place| place == "emulated"),
            tolerance: entry.tolerance,
            name: entry.name,
        })
        .collect()
}

/// A small model distilled from a bug report; the fields are those of `cases/index.json`, see `tests/data/README.md`.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    pub name: String,
    pub checks: String,
    pub operators: Vec<String>,
    pub opset: i64,
    pub expected: Expected,
    pub also_right: Option<Expected>,
    #[serde(default)]
    pub unspecified: BTreeMap<String, Vec<usize>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Expected {
    Values { rtol: f64, atol: f64 },
    Error { names: Vec<String> },
}

impl Case {
    pub fn model(&self) -> PathBuf {
        folder().join(format!("cases/{}.onnx", self.name))
    }

    /// Inputs, and the right outputs where there are any.
    pub fn example(&self) -> Example {
        Example::read(&folder().join(format!("cases/{}.npz", self.name)))
    }
}

pub fn cases() -> Vec<Case> {
    read_json(&folder().join("cases/index.json"))
}

/// A model of one operator, with what ONNX Runtime computes for it, as `tools/operators.py` records it.
#[derive(Clone, Debug, Deserialize)]
pub struct OperatorCase {
    pub name: String,
    /// Of floats, as a part of the largest magnitude of a result.
    pub tolerance: f64,
    /// Of integers.
    pub steps: f64,
}

impl OperatorCase {
    pub fn model(&self) -> PathBuf {
        cached(format!("operators/{}.onnx", self.name))
    }

    pub fn example(&self) -> Example {
        Example::read(&cached(format!("operators/{}.npz", self.name)))
    }
}

pub fn operator_cases() -> Vec<OperatorCase> {
    #[derive(Deserialize)]
    struct Index {
        cases: Vec<OperatorCase>,
    }
    read_json::<Index>(&cached("operators/index.json")).cases
}

/// One of the ONNX backend tests. The `.pb` files hold a TensorProto each (a SequenceProto or OptionalProto where the model says so),
/// in the order of the model's inputs and outputs.
#[derive(Clone, Debug)]
pub struct OnnxTest {
    pub name: String,
    pub model: PathBuf,
    pub sets: Vec<OnnxTestSet>,
}

#[derive(Clone, Debug)]
pub struct OnnxTestSet {
    pub inputs: Vec<PathBuf>,
    pub outputs: Vec<PathBuf>,
}

/// What a folder holds, by name.
fn entries(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    paths.sort();
    paths
}

/// Those of one folder, by name.
fn onnx_tests(kind: &str, prefix: &str) -> Vec<OnnxTest> {
    let subfolders = |path: &Path| entries(path).into_iter().filter(|path| path.is_dir());
    let files = |folder: &Path, kind: &str| -> Vec<PathBuf> {
        (0..).map(|index| folder.join(format!("{kind}_{index}.pb"))).take_while(|path| path.exists()).collect()
    };
    let tests = subfolders(&cached("onnx-tests").join(kind));
    tests
        .map(|path| OnnxTest {
            name: format!("{prefix}{}", path.file_name().expect("a folder has a name").to_string_lossy()),
            model: path.join("model.onnx"),
            sets: subfolders(&path)
                .map(|set| OnnxTestSet { inputs: files(&set, "input"), outputs: files(&set, "output") })
                .collect(),
        })
        .collect()
}

/// The tests of single operators.
pub fn node_tests() -> Vec<OnnxTest> {
    onnx_tests("node", "")
}

/// All others, with the folder in the name: small models, models that PyTorch made, and in `light` known models with constant weights,
/// whose input is not stored.
pub fn other_onnx_tests() -> Vec<OnnxTest> {
    let kinds = ["pytorch-converted", "pytorch-operator", "simple"];
    let mut tests: Vec<_> = kinds.iter().flat_map(|kind| onnx_tests(kind, &format!("{kind}/"))).collect();
    let models =
        entries(&cached("onnx-tests").join("light")).into_iter().filter(|path| path.extension().is_some_and(|e| e == "onnx"));
    tests.extend(models.map(|model| {
        let name = model.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let outputs = vec![model.with_file_name(format!("{name}_output_0.pb"))];
        OnnxTest { name: format!("light/{name}"), model, sets: vec![OnnxTestSet { inputs: Vec::new(), outputs }] }
    }));
    tests
}

/// An operator of ai.onnx in one version, by the onnx package. The last of `inputs` and `outputs` stands for all that follow.
#[derive(Clone, Debug, Deserialize)]
pub struct Schema {
    pub name: String,
    pub since: i64,
    pub deprecated: bool,
    /// Names of types.
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    /// The element types that each may be, by their numbers in ONNX.
    pub types: BTreeMap<String, Vec<i32>>,
}

/// All of them, by name and version.
pub fn schemas() -> Vec<Schema> {
    read_json(&cached("onnx-schemas.json"))
}

/// Images of digits, as the digit models take them.
#[derive(Clone, Debug)]
pub struct Digits {
    images: Vec<u8>,
    pub labels: Vec<u8>,
}

impl Digits {
    const PIXELS: usize = 28 * 28;

    /// Image `index` as f32[1,1,28,28], in 0 … 1.
    pub fn image(&self, index: usize) -> Tensor {
        let pixels: Vec<f32> =
            self.images[index * Self::PIXELS..][..Self::PIXELS].iter().map(|&p| f32::from(p) / 255.0).collect();
        Tensor::from_elements([1, 1, 28, 28], &pixels)
    }
}

/// The 20 committed images.
pub fn digits() -> Digits {
    let array = |name: &str| {
        let path = folder().join("digits").join(name);
        mcc::npy::read(&path).unwrap_or_else(|error| panic!("{error}")).elements::<u8>()
    };
    Digits { images: array("images.npy"), labels: array("labels.npy") }
}

/// The 10,000 images of the MNIST test set.
pub fn mnist() -> Digits {
    let idx = |name: &str, header_bytes: usize| read(&cached(Path::new("mnist").join(name)))[header_bytes..].to_vec();
    Digits { images: idx("t10k-images-idx3-ubyte", 16), labels: idx("t10k-labels-idx1-ubyte", 8) }
}

/// The element types and shapes of tensors.
pub fn types<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Vec<TensorType> {
    tensors.into_iter().map(|tensor| tensor.ty().clone()).collect()
}

/// `OptionalProto`, as far as it holds a tensor.
#[derive(Clone, PartialEq, Message)]
struct OptionalTensor {
    #[prost(message, optional, tag = "3")]
    tensor_value: Option<TensorProto>,
}

/// The tensor in a `.pb` file of an optional value.
///
/// # Errors
///
/// As [`node_test_tensor`], and a value that is not there.
pub fn optional_test_tensor(path: &Path) -> mcc_support::Result<Tensor> {
    let value = OptionalTensor::decode(&*read(path)).map_err(|error| mcc_support::Error::new(error.to_string()))?;
    let proto = value.tensor_value.ok_or_else(|| mcc_support::Error::new("the optional value is no tensor"))?;
    mcc::onnx::tensor::tensor(&proto, &ExternalFiles::none())
}

/// A tensor from a `.pb` file of a node test.
///
/// # Errors
///
/// An element type that mcc does not have, or a file that holds something else (a sequence, an optional value).
pub fn node_test_tensor(path: &Path) -> mcc_support::Result<Tensor> {
    let proto = TensorProto::decode(&*read(path)).map_err(|error| mcc_support::Error::new(error.to_string()))?;
    mcc::onnx::tensor::tensor(&proto, &ExternalFiles::none())
}
