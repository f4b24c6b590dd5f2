//! What the programs of `tests/bench` compute without a clock.

use std::path::Path;
use std::process::Command;

use mcc_tests::data;
use mcc_tests::machine::run;

#[test]
fn bounds_and_counts_are_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench");
    run(Command::new(data::cache().join("venv/bin/python")).args(["-B", "-m", "unittest"]).current_dir(folder));
}
