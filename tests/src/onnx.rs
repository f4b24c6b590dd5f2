//! What the ONNX node tests need at every level: which inputs are known at compile time, and how close results must be.

use std::collections::{BTreeMap, BTreeSet};

use mcc::import::ImportOptions;
use mcc::onnx::proto::{DimValue, DimensionProto, TypeValue};
use mcc::onnx::{Declared, FlatGraph, Model, flatten};
use mcc::ops;
use mcc_support::{Result, Tensor, TensorType};
use prost::Message;

use crate::compare::Tolerance;
use crate::data::{self, OnnxTestSet};

/// Node tests that pass at least, at every level and on every machine. Raise it when operators are added.
pub const PASSING: usize = 1686;

/// As onnx's own runner of these tests has it.
pub const TOLERANCE: Tolerance = Tolerance { relative: 1e-3, absolute: 1e-7 };

/// Their expected zeros hold the rounding errors of a fast Fourier transform, of twice the absolute tolerance.
pub const INEXACT_ZEROS: [&str; 2] = ["test_dft_inverse", "test_dft_inverse_opset19"];

/// How close the results of a test must be.
pub fn tolerance(test: &str) -> Tolerance {
    if INEXACT_ZEROS.contains(&test) { Tolerance { absolute: 2.0 * TOLERANCE.absolute, ..TOLERANCE } } else { TOLERANCE }
}

/// Tests of operators that draw random numbers. ONNX leaves the generator open, so that the values of these tests are those of
/// one generator (onnx's own runner leaves them out); what is checked is type, shape and distribution.
pub const RANDOM: [(&str, Random); 10] = [
    ("test_bernoulli", Random::Bernoulli),
    ("test_bernoulli_double", Random::Bernoulli),
    ("test_bernoulli_double_expanded", Random::InvertedBernoulli),
    ("test_bernoulli_expanded", Random::InvertedBernoulli),
    ("test_bernoulli_seed", Random::Bernoulli),
    ("test_bernoulli_seed_expanded", Random::InvertedBernoulli),
    ("test_training_dropout", Random::Dropout),
    ("test_training_dropout_default", Random::Dropout),
    ("test_training_dropout_default_mask", Random::Dropout),
    ("test_training_dropout_mask", Random::Dropout),
];

/// How the outputs of a node test depend on its first input, of probabilities or values, and on the second, the ratio of a dropout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Random {
    Bernoulli,
    /// The function body of Bernoulli in the specification gives 1 where a number is greater than the probability.
    InvertedBernoulli,
    /// Values, and the mask of those that are kept if it is wanted.
    Dropout,
}

impl Random {
    pub fn of(test: &str) -> Option<Self> {
        RANDOM.iter().find(|(name, _)| *name == test).map(|(_, random)| *random)
    }

    /// Types and shapes are those wanted; every element is one that can be; of those that are 1 or kept, there are as many as
    /// expected, but for four standard deviations.
    pub fn check(self, inputs: &[Tensor], outputs: &[Tensor], wanted: &[Tensor]) -> Result<(), String> {
        if outputs.len() != wanted.len() {
            return Err(format!("{} outputs, wanted {}", outputs.len(), wanted.len()));
        }
        for (output, want) in outputs.iter().zip(wanted) {
            if output.ty() != want.ty() {
                return Err(format!("is {}, wanted {}", output.ty(), want.ty()));
            }
        }
        let ratio = inputs.get(1).map_or(0.5, |ratio| ratio.number(0).as_f64());
        let (mut surplus, mut variance) = (0.0, 0.0);
        for (index, x) in inputs[0].numbers().enumerate() {
            let (x, y) = (x.as_f64(), outputs[0].number(index).as_f64());
            let (probability, one) = match self {
                Random::Bernoulli => (x, 1.0),
                Random::InvertedBernoulli => (1.0 - x, 1.0),
                Random::Dropout => (1.0 - ratio, x / (1.0 - ratio)),
            };
            let kept = outputs.get(1).map_or(y != 0.0, |mask| mask.number(index).as_f64() != 0.0);
            if (y - if kept { one } else { 0.0 }).abs() > 1e-5 * one.abs() {
                return Err(format!("[{index}] is {y}, from {x}"));
            }
            surplus += if kept { 1.0 - probability } else { -probability };
            variance += probability * (1.0 - probability);
        }
        if surplus.abs() <= 4.0 * variance.sqrt() { Ok(()) } else { Err(format!("{surplus} more than expected are 1 or kept")) }
    }
}

/// The inputs whose values determine shapes, directly or through other nodes.
pub fn shape_inputs(graph: &FlatGraph<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    add_shape_inputs(graph, &mut found);
    found
}

fn add_shape_inputs(graph: &FlatGraph<'_>, found: &mut BTreeSet<String>) {
    for node in graph.nodes.iter().rev() {
        // How often a loop runs is how long its stacks are; without any it need not be known.
        let is_plain_loop = node.operator == "Loop" && node.outputs.len() + 2 <= node.inputs.len();
        let determining = if is_plain_loop { &[] } else { ops::shape_inputs(node.domain, node.operator) };
        let only_shape = matches!(node.operator, "Shape" | "Size");
        let through = !only_shape && node.outputs.iter().any(|output| found.contains(output));
        for inner in node.graphs() {
            // All outputs of a graph inside are those of the node: which of them belongs to which makes no difference here.
            if through {
                found.extend(inner.outputs.iter().map(|output| output.name.clone()));
            }
            add_shape_inputs(inner, found);
        }
        let used = node.inputs.iter().enumerate().filter(|(index, _)| through || determining.contains(index));
        found.extend(used.map(|(_, name)| name.clone()));
    }
}

/// Options that fix the shapes of inputs and bind as constants those that determine shapes; with the names of the latter.
pub fn import_options(model: &Model, inputs: &BTreeMap<String, Tensor>) -> Result<(ImportOptions, Vec<String>)> {
    let determining = shape_inputs(&flatten(model)?);
    let mut options = ImportOptions::default();
    let mut bound = Vec::new();
    for (name, tensor) in inputs {
        if determining.contains(name) {
            bound.push(name.clone());
            options.constants.insert(name.clone(), tensor.clone());
        } else {
            options.shapes.insert(name.clone(), tensor.shape().dims().to_vec());
        }
    }
    Ok((options, bound))
}

/// The name of the dimension that [`symbolic`] puts in place of an extent.
pub fn symbol(extent: usize) -> String {
    format!("n{extent}")
}

/// The model with dimensions of some of its inputs that have one of these extents made symbols, its outputs of no declared shape.
pub fn symbolic(model: &Model, extents: &BTreeSet<usize>, is_free: impl Fn(&str) -> bool) -> Model {
    let mut proto = model.proto.clone();
    let graph = proto.graph.as_mut().expect("a model has a graph");
    for input in graph.input.iter_mut().filter(|input| is_free(input.name())) {
        let Some(TypeValue::Tensor(tensor)) = input.r#type.as_mut().and_then(|ty| ty.value.as_mut()) else { continue };
        for dim in tensor.shape.iter_mut().flat_map(|shape| &mut shape.dim) {
            let Some(DimValue::Value(extent)) = dim.value else { continue };
            if extents.contains(&(extent as usize)) {
                *dim = DimensionProto { value: Some(DimValue::Param(symbol(extent as usize))), denotation: None };
            }
        }
    }
    for output in &mut graph.output {
        if let Some(TypeValue::Tensor(tensor)) = output.r#type.as_mut().and_then(|ty| ty.value.as_mut()) {
            tensor.shape = None;
        }
    }
    graph.value_info.clear();
    Model::from_bytes(proto.encode_to_vec()).expect("it was a model")
}

/// The inputs of one set of a test, by name. What is not stored goes evenly from 0 up to 1, as in onnx's own runner.
pub fn set_inputs(flat: &FlatGraph<'_>, set: &OnnxTestSet) -> Result<BTreeMap<String, Tensor>> {
    let input = |(index, input): (usize, &Declared<'_>)| {
        let value = match set.inputs.get(index) {
            Some(path) if is_optional(input) => data::optional_test_tensor(path)?,
            Some(path) => data::node_test_tensor(path)?,
            None => ramp(input.declared_type()?.and_then(|declared| declared.known()).expect("the type of an input is known")),
        };
        Ok((input.name.clone(), value))
    };
    flat.inputs.iter().enumerate().map(input).collect()
}

fn is_optional(input: &Declared<'_>) -> bool {
    matches!(input.ty.and_then(|ty| ty.value.as_ref()), Some(TypeValue::Optional(_)))
}

fn ramp(ty: TensorType) -> Tensor {
    let count = ty.shape.count();
    let values: Vec<f32> = (0..count).map(|index| (index as f64 / count as f64) as f32).collect();
    Tensor::from_elements(ty.shape, &values)
}
