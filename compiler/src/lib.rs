//! An ahead-of-time compiler for neural networks: ONNX model in, linkable object, C header and manifest out.

mod artifacts;
pub mod codegen;
pub mod decide;
pub mod decisions;
pub mod driver;
pub mod emit;
pub mod graph;
pub mod import;
pub mod loops;
pub mod npy;
pub mod onnx;
pub mod ops;
mod outputs;
mod parallel;
pub mod passes;
pub mod plan;
pub mod realize;
pub mod targets;
pub mod tools;

pub use artifacts::{Artifacts, compile};
pub use driver::Options;
pub use emit::WeightsPlace;
pub use mcc_kernel::BranchProtection;
pub use mcc_support::{Error, Result};
