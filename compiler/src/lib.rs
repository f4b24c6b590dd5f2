//! An ahead-of-time compiler for neural networks. The stages, in order:

pub mod decide;
pub mod graph;
pub mod loops;
