//! The portable target: kernels to machine code for x86-64 and aarch64 through Cranelift.
//!
//! It has every operation on one lane, and on 128-bit vectors what [`facts`] lists. Code is position independent without a GOT, has
//! no call that the kernel does not have (no libm, no stack probes), and cannot trap.

mod classify;
mod compile;
mod convert;
mod cpus;
mod disassemble;
mod facts;
mod lower;
mod memory;
mod multiply;
mod ops;
mod round;

use mcc_kernel::{Arch, Code, Cpu, Facts, Kernel, Target};

pub use classify::Class;
pub use cpus::{cpu, cpu_names, default_cpu_name, feature_names};
pub use disassemble::{Instruction, disassemble, instructions};

pub static TARGET: Portable = Portable;

#[derive(Clone, Copy, Debug)]
pub struct Portable;

impl Target for Portable {
    fn name(&self) -> &'static str {
        "portable"
    }

    fn is_for(&self, _: Arch) -> bool {
        true
    }

    fn refuses(&self, _: &Cpu) -> Option<&'static str> {
        None
    }

    fn facts(&self, cpu: &Cpu) -> Facts {
        facts::facts(cpu)
    }

    fn compile(&self, kernel: &Kernel, cpu: &Cpu) -> Code {
        compile::compile(kernel, cpu)
    }
}
