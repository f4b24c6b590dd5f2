//! What the tests of mcc share: where data lies, reading and comparing tensors, building and running C programs on the host and
//! under qemu, projects outside of the repository, looking into object files.

pub mod compare;
pub mod data;
pub mod harness;
pub mod judge;
pub mod machine;
pub mod object;
pub mod onnx;
pub mod project;
pub mod random_graph;
