//! Machine code against the interpreter.

use mcc_kernel::{Arch, Target};
use mcc_target_portable::{TARGET, cpu};

fn check(arch: Arch, name: &str) {
    let host_arch = if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 };
    let host = cpu(host_arch, "native").unwrap();
    let cpu = cpu(arch, name).unwrap();
    if !mcc_conformance::can_run(&cpu, &host) {
        eprintln!("not run: this machine cannot run code for {name}");
        return;
    }
    mcc_conformance::check(&TARGET, &cpu, 200);
}

#[test]
fn x86_64() {
    check(Arch::X86_64, "x86-64");
}

#[test]
fn x86_64_v2() {
    check(Arch::X86_64, "x86-64-v2");
}

#[test]
fn x86_64_v3() {
    check(Arch::X86_64, "x86-64-v3");
}

#[test]
fn x86_64_v4() {
    check(Arch::X86_64, "x86-64-v4");
}

#[test]
fn armv8_a() {
    check(Arch::Aarch64, "armv8-a");
}

#[test]
fn neoverse_n1() {
    check(Arch::Aarch64, "neoverse-n1");
}

#[test]
fn windows_abi() {
    let mut cpu = cpu(Arch::X86_64, "x86-64-v2").unwrap();
    cpu.windows_abi = true;
    mcc_conformance::check(&TARGET, &cpu, 50);
}

#[test]
fn strict_alignment() {
    let mut cpu = cpu(Arch::Aarch64, "armv8-a").unwrap();
    cpu.strict_alignment = true;
    assert!(TARGET.facts(&cpu).strict_alignment);
    mcc_conformance::check(&TARGET, &cpu, 50);
}
