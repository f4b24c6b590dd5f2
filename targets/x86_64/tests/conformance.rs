//! Machine code against the interpreter.

use mcc_kernel::{Arch, Cpu};
use mcc_target_x86_64::TARGET;

const V3: [&str; 3] = ["avx2", "bmi2", "fma"];
const V4: [&str; 7] = ["avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "bmi2", "fma"];

fn cpu(name: &str, features: impl IntoIterator<Item = &'static str>) -> Cpu {
    let features = features.into_iter().collect();
    Cpu {
        arch: Arch::X86_64,
        name: name.into(),
        features,
        protection: Default::default(),
        strict_alignment: false,
        windows_abi: false,
    }
}

/// Those of the features above that this machine has.
fn host() -> Cpu {
    #[cfg(target_arch = "x86_64")]
    macro_rules! detect {
        ($($name:tt)*) => { [$(($name, std::arch::is_x86_feature_detected!($name))),*] };
    }
    #[cfg(target_arch = "x86_64")]
    let detected = detect!["avx2" "avx512bw" "avx512dq" "avx512f" "avx512vl" "bmi2" "fma"];
    #[cfg(not(target_arch = "x86_64"))]
    let detected = [("", false)];
    cpu("native", detected.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name))
}

fn check(cpu: &Cpu, random_kernels: usize) {
    if !mcc_conformance::can_run(cpu, &host()) {
        eprintln!("not run: this machine cannot run code for {}", cpu.name);
        return;
    }
    mcc_conformance::check(&TARGET, cpu, random_kernels);
}

#[test]
fn x86_64_v3() {
    check(&cpu("x86-64-v3", V3), 300);
}

#[test]
fn x86_64_v4() {
    check(&cpu("x86-64-v4", V4), 300);
}

#[test]
fn windows_abi() {
    check(&Cpu { windows_abi: true, ..cpu("x86-64-v3", V3) }, 50);
    check(&Cpu { windows_abi: true, ..cpu("x86-64-v4", V4) }, 50);
}
