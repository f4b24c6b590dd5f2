//! CPUs as the interface of compiled models tells of them.

use mcc_kernel::{Arch, Cpu};
use mcc_runtime::abi;

/// The features of a CPU that not every CPU of its architecture has, each with its bit in `mcc.h`.
pub fn required_features(cpu: &Cpu) -> Vec<(&'static str, u32)> {
    let arch = abi_arch(cpu.arch);
    cpu.features.iter().filter_map(|&name| abi::feature_bit(arch, name).map(|bit| (name, bit))).collect()
}

/// The same as bits.
pub fn required_bits(cpu: &Cpu) -> u32 {
    required_features(cpu).iter().map(|&(_, bit)| bit).sum()
}

/// As `--cpu` takes several.
pub fn cpu_names<'c>(cpus: impl Iterator<Item = &'c Cpu>) -> String {
    cpus.map(|cpu| cpu.name.as_str()).collect::<Vec<_>>().join(",")
}

/// The value of `mcc_arch`.
pub fn abi_arch(arch: Arch) -> u32 {
    match arch {
        Arch::X86_64 => abi::arch::X86_64,
        Arch::Aarch64 => abi::arch::AARCH64,
    }
}
