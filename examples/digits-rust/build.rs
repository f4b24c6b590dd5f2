//! Compiles the model for the machine that the program is built for, and links it in.

use std::env;
use std::fs;
use std::path::Path;

use mcc::Options;

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let mut options = Options::new("../../tests/data/models/digits_resnet8.onnx");
    options.target = variable("TARGET");
    options.name = Some("digits".to_string());
    let artifacts = mcc::compile(&options).unwrap_or_else(|error| panic!("{error}"));
    let folder = variable("OUT_DIR");
    fs::write(Path::new(&folder).join("libdigits.a"), artifacts.static_library()).expect("OUT_DIR can be written");
    println!("cargo::rustc-link-search=native={folder}");
    println!("cargo::rustc-link-lib=static=digits");
    for file in artifacts.dependencies() {
        println!("cargo::rerun-if-changed={}", file.display());
    }
}
