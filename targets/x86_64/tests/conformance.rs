//! Machine code against the interpreter.

use mcc_kernel::Arch;
use mcc_target_portable::cpu;
use mcc_target_x86_64::TARGET;

fn check(name: &str, windows_abi: bool, random_kernels: usize) {
    let mut cpu = cpu(Arch::X86_64, name).unwrap();
    let can_run = cfg!(target_arch = "x86_64")
        && mcc_conformance::can_run(&cpu, &mcc_target_portable::cpu(Arch::X86_64, "native").unwrap());
    if !can_run {
        eprintln!("not run: this machine cannot run code for {name}");
        return;
    }
    cpu.windows_abi = windows_abi;
    mcc_conformance::check(&TARGET, &cpu, random_kernels);
}

#[test]
fn x86_64_v3() {
    check("x86-64-v3", false, 300);
}

#[test]
fn x86_64_v4() {
    check("x86-64-v4", false, 300);
}

#[test]
fn windows_abi() {
    check("x86-64-v3", true, 50);
    check("x86-64-v4", true, 50);
}
