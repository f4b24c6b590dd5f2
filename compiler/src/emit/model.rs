//! What `emit` is given: a model whose kernels are compiled, and the numbers that reports state.

use bytes::Bytes;
use mcc_kernel::{Code, Cpu};
use mcc_support::TensorType;
use target_lexicon::Triple;

use super::entry::{BufferPlace, Step};

/// An input or output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// As in the ONNX model.
    pub name: String,
    /// As in the header.
    pub c_name: String,
    pub ty: TensorType,
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
    /// In the order in which they run first.
    pub kernels: Vec<CompiledKernel>,
    /// What runs, with kernels by place.
    pub runs: Vec<Step<usize>>,
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
