//! The C example classifies its images on both machines. (The Rust example has a test of its own.)

use std::fs;
use std::path::Path;

use mcc::driver::{Options, Silent, compile};
use mcc_tests::data;
use mcc_tests::machine::{Machine, run};

#[test]
fn c_program_classifies_every_image() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    for machine in Machine::ALL {
        let folder = tempfile::TempDir::new().unwrap();
        let file = |name: &str| folder.path().join(name);
        let mut options = Options::new(data::folder().join("models/digits_resnet8.onnx"));
        options.target = machine.target().to_string();
        options.name = Some("digits".to_string());
        let compilation = compile(&options, &mut Silent).unwrap();
        fs::write(file("digits.o"), compilation.linked().object()).unwrap();
        fs::write(file("digits.h"), compilation.linked().header()).unwrap();
        fs::write(file("mcc.h"), mcc_runtime::HEADER).unwrap();
        let mut build = machine.tool("gcc");
        build.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]).arg(folder.path());
        run(build.arg(examples.join("digits-c/main.c")).arg(file("digits.o")).arg("-o").arg(file("digits")));
        let images: Vec<String> = (0..10).map(|digit| format!("{}/images/{digit}.pgm", examples.display())).collect();
        let output = run(machine.program(&file("digits")).args(&images));
        let want: String = images.iter().enumerate().map(|(digit, image)| format!("{image}: {digit}\n")).collect();
        assert_eq!(String::from_utf8(output).unwrap(), want, "{machine:?}");
    }
}
