//! Machine code against the interpreter.

use std::collections::BTreeSet;

use mcc_kernel::{Arch, Cpu, Target};
use mcc_target_aarch64::TARGET;

fn cpu(name: &str) -> Cpu {
    let features = BTreeSet::from(["neon"]);
    Cpu {
        arch: Arch::Aarch64,
        name: name.to_string(),
        features,
        protection: Default::default(),
        strict_alignment: false,
        windows_abi: false,
    }
}

#[test]
fn armv8_a() {
    mcc_conformance::check(&TARGET, &cpu("armv8-a"), 300);
}

#[test]
fn armv8_a_with_fp16() {
    let mut cpu = cpu("armv8-a+fp16");
    cpu.features.insert("fp16");
    mcc_conformance::check(&TARGET, &cpu, 50);
}

#[test]
fn cortex_a53() {
    mcc_conformance::check(&TARGET, &cpu("cortex-a53"), 300);
}

#[test]
fn cortex_a55() {
    mcc_conformance::check(&TARGET, &cpu("cortex-a55"), 100);
}

#[test]
fn cortex_a72() {
    mcc_conformance::check(&TARGET, &cpu("cortex-a72"), 100);
}

#[test]
fn neoverse_n1() {
    mcc_conformance::check(&TARGET, &cpu("neoverse-n1"), 100);
}

#[test]
fn strict_alignment() {
    let mut cpu = cpu("armv8-a");
    cpu.strict_alignment = true;
    assert!(TARGET.facts(&cpu).strict_alignment);
    mcc_conformance::check(&TARGET, &cpu, 100);
}
