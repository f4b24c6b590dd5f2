//! ONNX operators, each defined once as a formula over core ops. None is left after import.
//!
//! An operator is a record in the file of its family and its line in that file's list `ALL`. Lookup, messages, the table that
//! `mcc ops` prints and the set of conformance tests that must pass derive from the lists.

pub mod activation;
pub mod attention;
pub mod binary;
pub mod cast;
pub mod constant;
pub mod context;
pub mod conv;
pub mod dynamic;
pub mod einsum;
pub mod gather;
pub mod linalg;
pub mod loss;
pub mod matmul;
pub mod microsoft;
pub mod ml;
pub mod ngram;
pub mod norm;
pub mod pool;
pub mod quant;
pub mod random;
pub mod recurrent;
pub mod reduce;
pub mod region;
pub mod resize;
pub mod sample;
pub mod scatter;
pub mod selected;
pub mod shape;
pub mod signal;
pub mod slice;
pub mod softmax;
pub mod sort;
mod spatial;
pub mod state;
pub mod suppression;
pub mod unary;
pub mod unique;

use std::fmt;

use mcc_support::error::similar;
use mcc_support::{Error, Result};

use crate::graph::Wire;
pub use context::{NodeContext, NodeWarning};

/// How an operator is built: its results, of which the node may want only the first ones.
pub type Build = for<'n, 'b> fn(&NodeContext<'n, 'b>) -> Result<Vec<Wire<'b>>>;

/// One ONNX operator in all its versions.
pub struct OpDef {
    /// Empty for the default domain.
    pub domain: &'static str,
    pub name: &'static str,
    /// Versions of the domain at which it was introduced or changed, ascending: those in force at opset 7 and later,
    /// and those of opset 6 that differ in how operands broadcast.
    pub since: &'static [i64],
    /// Inputs whose values determine the shape of a result, or the form of the computation: they must be known when the model
    /// is compiled, or, where the formula asks for [`NodeContext::extents`], be extents of a run or have bounds that the user gives.
    pub shape_inputs: &'static [usize],
    pub build: Build,
}

impl fmt::Debug for OpDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.full_name(), self.since)
    }
}

impl OpDef {
    /// With its domain, where that is not the default one: `com.microsoft.Gelu`.
    pub fn full_name(&self) -> String {
        full_name(self.domain, self.name)
    }
}

fn full_name(domain: &str, name: &str) -> String {
    if domain.is_empty() { name.to_string() } else { format!("{domain}.{name}") }
}

/// Every operator that can be compiled, by family: those of the standard's own domain, and those of other domains.
static ALL: [&[&[&OpDef]]; 3] = [STANDARD, ml::FAMILIES, microsoft::FAMILIES];

#[rustfmt::skip]
static STANDARD: &[&[&OpDef]] = &[
    unary::ALL, activation::ALL, binary::ALL, cast::ALL,
    shape::ALL, slice::ALL, gather::ALL, scatter::ALL, constant::ALL, sort::ALL,
    conv::ALL, matmul::ALL, einsum::ALL, pool::ALL, reduce::ALL, resize::ALL,
    softmax::ALL, norm::ALL, loss::ALL, attention::ALL, recurrent::ALL,
    quant::ALL, signal::ALL, sample::ALL, state::ALL, selected::ALL,
    linalg::ALL, ngram::ALL, random::ALL, region::ALL, suppression::ALL, unique::ALL,
];

/// An operator that import itself carries out, so that it has no definition as a formula: one of control flow, which holds graphs, or one
/// on sequences and optional values, which are gone then.
#[derive(Debug)]
pub struct ControlDef {
    pub name: &'static str,
    /// As [`OpDef::since`].
    pub since: &'static [i64],
    /// As [`OpDef::shape_inputs`].
    pub shape_inputs: &'static [usize],
    pub sequences: bool,
}

const fn sequences(name: &'static str, since: &'static [i64], shape_inputs: &'static [usize]) -> ControlDef {
    ControlDef { name, since, shape_inputs, sequences: true }
}

pub static CONTROL: &[ControlDef] = &[
    sequences("ConcatFromSequence", &[11], &[]),
    ControlDef { name: "If", since: &[1, 11, 13, 16, 19, 21, 23, 24, 25], shape_inputs: &[], sequences: false },
    ControlDef { name: "Loop", since: &[1, 11, 13, 16, 19, 21, 23, 24, 25], shape_inputs: &[0, 1], sequences: false },
    sequences("Optional", &[15], &[]),
    sequences("OptionalGetElement", &[15, 18], &[]),
    sequences("OptionalHasElement", &[15, 18], &[]),
    ControlDef { name: "Scan", since: &[8, 9, 11, 16, 19, 21, 23, 24, 25], shape_inputs: &[], sequences: false },
    sequences("SequenceAt", &[11], &[1]),
    sequences("SequenceConstruct", &[11], &[]),
    sequences("SequenceEmpty", &[11], &[]),
    sequences("SequenceErase", &[11], &[1]),
    sequences("SequenceInsert", &[11], &[2]),
    sequences("SequenceLength", &[11], &[]),
    sequences("SequenceMap", &[17], &[]),
    sequences("SplitToSequence", &[11, 24], &[1]),
];

/// The operator that a node names, if import carries it out.
pub fn control(domain: &str, name: &str) -> Option<&'static ControlDef> {
    CONTROL.iter().find(|def| domain.is_empty() && def.name == name)
}

/// The inputs of a node that must be known when it is compiled, by their places.
pub fn shape_inputs(domain: &str, name: &str) -> &'static [usize] {
    let def = all().find(|def| def.domain == domain && def.name == name);
    def.map(|def| def.shape_inputs).or_else(|| control(domain, name).map(|def| def.shape_inputs)).unwrap_or_default()
}

/// All operators, in the order of the lists.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    ALL.iter().flat_map(|families| families.iter()).flat_map(|family| family.iter().copied())
}

/// The operator that a node of this domain, name and opset names, or why it cannot be compiled.
pub fn lookup(domain: &str, name: &str, opset: i64) -> Result<&'static OpDef> {
    let unsupported = |reason: String, help: String| Error::new(reason).help(help);
    let Some(def) = all().find(|def| def.domain == domain && def.name == name) else {
        let full = full_name(domain, name);
        let help = match all().find(|def| def.name == name) {
            Some(other) => format!("{} is supported; is the domain right?", other.full_name()),
            None => {
                let similar = similar(name, all().filter(|def| def.domain == domain).map(|def| def.name));
                let similar = similar.map_or(String::new(), |similar| format!("did you mean {similar}? "));
                format!("{similar}`mcc ops` lists the operators that can be compiled")
            }
        };
        return Err(unsupported(format!("the operator {full} is not supported"), help));
    };
    if opset < def.since[0] {
        let versions: Vec<String> = def.since.iter().map(i64::to_string).collect();
        return Err(unsupported(
            format!("{} does not exist in opset {opset} in a form that is supported", def.full_name()),
            format!("its versions {} are supported; convert the model with onnx.version_converter", versions.join(", ")),
        ));
    }
    Ok(def)
}

#[cfg(test)]
mod tests;
