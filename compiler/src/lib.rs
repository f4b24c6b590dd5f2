//! An ahead-of-time compiler for neural networks. The stages, in order:

pub mod decide;
pub mod emit;
pub mod graph;
pub mod import;
pub mod loops;
pub mod onnx;
pub mod ops;
