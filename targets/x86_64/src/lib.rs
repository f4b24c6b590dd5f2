//! The x86-64 target: kernels to machine code with AVX2 and FMA, or AVX-512 F, VL, DQ and BW.
//!
//! Instructions are selected node by node ([`select`]), get registers from the allocator that kernels share, and are encoded by
//! [`encode`] from one table ([`rows`]). Code has no relocation but for the symbols that the kernel names: constants lie behind it.

mod abi;
mod emit;
mod encode;
mod facts;
mod inst;
mod pool;
mod rows;
mod select;
#[cfg(test)]
mod tests;

use mcc_kernel::mach::{self, Allocated, Program};
use mcc_kernel::{Arch, Code, Cpu, Facts, Kernel, Target};

use abi::Abi;
use emit::Parts;
use inst::Inst;
use select::Selector;

pub static TARGET: X86 = X86;

#[derive(Clone, Copy, Debug)]
pub struct X86;

impl Target for X86 {
    fn name(&self) -> &'static str {
        "x86_64"
    }

    fn is_for(&self, arch: Arch) -> bool {
        arch == Arch::X86_64
    }

    fn refuses(&self, cpu: &Cpu) -> Option<&'static str> {
        let is_v3 = ["avx2", "fma", "bmi2"].iter().all(|name| cpu.features.contains(name));
        (!is_v3).then_some("needs AVX2, FMA and BMI2")
    }

    fn facts(&self, cpu: &Cpu) -> Facts {
        facts::facts(cpu)
    }

    fn compile(&self, kernel: &Kernel, cpu: &Cpu) -> Code {
        let abi = if cpu.windows_abi { &abi::WINDOWS } else { &abi::SYSTEM_V };
        match facts::is_v4(cpu) {
            true => compile::<true, _>(kernel, abi, emit::emit),
            false => compile::<false, _>(kernel, abi, emit::emit),
        }
    }
}

/// Selects and allocates; `emit` encodes.
fn compile<const V4: bool, T>(
    kernel: &Kernel,
    abi: &'static Abi,
    emit: impl FnOnce(&Kernel, &Program<Inst>, &Allocated, &Parts) -> T,
) -> T {
    let mut selector = Selector::<V4>::new(abi);
    let program = mach::lower(kernel, &mut selector);
    let allocated = mach::allocate(&program, &abi.env(V4), [1, emit::vector_bits(&program) as usize / 64, 1]);
    let Selector { pool, symbols, has_calls, uses_scratch, .. } = &selector;
    let parts = Parts { abi, pool, symbols, has_calls: *has_calls, uses_scratch: *uses_scratch };
    emit(kernel, &program, &allocated, &parts)
}
