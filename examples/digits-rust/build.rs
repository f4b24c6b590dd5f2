//! Compiles the model for the machine that the program is built for, and links it in.

fn main() {
    mcc_build::Model::new("digits.onnx").compile();
}
