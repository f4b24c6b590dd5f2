//! What `emit` is given: a model whose kernels are compiled, and the numbers that reports state.

use bytes::Bytes;
use mcc_kernel::{Code, Cpu};
use mcc_support::{Shape, TensorType};
use target_lexicon::Triple;

use super::entry::BufferPlace;

/// An input or output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// As in the ONNX model.
    pub name: String,
    /// As in the header.
    pub c_name: String,
    /// With the greatest extents.
    pub ty: TensorType,
    /// Of each dimension, its symbol where its extent is known only at run time; empty where all are fixed.
    pub symbols: Vec<Option<usize>>,
    /// Where in the arena the tensor lies with room for its greatest extents, if it has symbols.
    pub staged: Option<u64>,
}

impl Port {
    /// The shape of a run, of which the extents of all symbols are known.
    pub fn shape_of(&self, extents: &[usize]) -> Shape {
        let extent = |(axis, &most): (usize, &usize)| match self.symbols.get(axis).copied().flatten() {
            Some(symbol) => extents[symbol].min(most),
            None => most,
        };
        self.ty.shape.iter().enumerate().map(extent).collect()
    }
}

/// An extent that is known only at run time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    pub name: String,
    /// As in the header.
    pub c_name: String,
    pub min: usize,
    pub max: usize,
}

/// A kernel with its one call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledKernel {
    pub name: String,
    /// Names of the model's nodes that it computes.
    pub origins: Vec<String>,
    pub code: Code,
    /// Its table of buffers.
    pub args: Vec<BufferPlace>,
    /// Extent of its outermost axis.
    pub extent: i64,
}

#[derive(Clone, Debug)]
pub struct CompiledModel {
    /// Prefix of the symbols: a C identifier.
    pub name: String,
    pub triple: Triple,
    pub cpu: Cpu,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    /// Extents that a run is told, and behind them those that it finds: what [`Port::symbols`] counts.
    pub dims: Vec<Symbol>,
    pub counts: Vec<Symbol>,
    /// In the order in which they run.
    pub kernels: Vec<CompiledKernel>,
    /// Packed, as the offsets of [`BufferPlace::Weights`] say.
    pub weights: Bytes,
    pub arena_bytes: u64,
    /// The most that was live at once, below which no plan comes.
    pub arena_lower_bound_bytes: u64,
    /// See [`EntryPlan::status_offset`](super::entry::EntryPlan::status_offset).
    pub status_offset: Option<u64>,
    pub model_sha256: [u8; 32],
    /// The options that the result depends on, as they are written, and their hash.
    pub options: serde_json::Value,
    pub options_sha256: [u8; 32],
    pub warnings: Vec<String>,
}
