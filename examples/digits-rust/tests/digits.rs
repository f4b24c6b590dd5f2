//! The program reads the digits that the images' names tell.

use std::process::Command;

#[test]
fn every_image_is_classified() {
    let paths: Vec<String> = (0..10).map(|digit| format!("../images/{digit}.pgm")).collect();
    let output = Command::new(env!("CARGO_BIN_EXE_digits-rust")).args(&paths).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let want: String = paths.iter().enumerate().map(|(digit, path)| format!("{path}: {digit}\n")).collect();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), want);
}
