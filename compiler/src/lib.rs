//! The `mcc` compiler: ONNX model in, linkable object, C header and manifest out.

pub mod onnx;
