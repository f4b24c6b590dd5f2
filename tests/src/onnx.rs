//! What the ONNX node tests need at every level: which inputs are known at compile time, and how close results must be.

use std::collections::{BTreeMap, BTreeSet};

use mcc::import::ImportOptions;
use mcc::onnx::{FlatGraph, Model, flatten};
use mcc::ops;
use mcc_support::{Result, Tensor};

use crate::compare::Tolerance;
use crate::data::{self, NodeTestSet};

/// How close an output must be: as onnx's own runner of these tests has it. What a fast Fourier transform gives in place of zero is
/// the rounding error of the numbers that it adds up, which the expected values hold.
pub fn tolerance(graph: &FlatGraph<'_>, want: &Tensor) -> Tolerance {
    let plain = Tolerance { relative: 1e-3, absolute: 1e-7 };
    if !graph.nodes.iter().any(|node| node.operator == "DFT") {
        return plain;
    }
    let largest = want.numbers().map(|number| number.as_f64().abs()).fold(0.0, f64::max);
    Tolerance { absolute: plain.absolute.max(largest * f64::from(f32::EPSILON)), ..plain }
}

/// The inputs whose values determine shapes, directly or through other nodes.
pub fn shape_inputs(graph: &FlatGraph<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for node in graph.nodes.iter().rev() {
        let determining = ops::shape_inputs(node.domain, node.operator);
        let only_shape = matches!(node.operator, "Shape" | "Size");
        let through = !only_shape && node.outputs.iter().any(|output| found.contains(output));
        let used = node.inputs.iter().enumerate().filter(|(index, _)| through || determining.contains(index));
        found.extend(used.map(|(_, name)| name.clone()));
    }
    found
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

/// The inputs of one set of a node test, by name.
pub fn set_inputs(flat: &FlatGraph<'_>, set: &NodeTestSet) -> Result<BTreeMap<String, Tensor>> {
    let names = flat.inputs.iter().map(|input| input.name.clone());
    names.zip(&set.inputs).map(|(name, path)| Ok((name, data::node_test_tensor(path)?))).collect()
}
