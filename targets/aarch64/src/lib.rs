//! Kernels to machine code for aarch64 with vectors of 128 bits.
//!
//! [`select`] makes instructions of operations, [`improve`] makes fewer and better placed ones of these, registers are allocated,
//! and [`emit`] makes bytes. [`encode`] knows what instructions look like.

mod emit;
pub mod encode;
mod facts;
mod improve;
mod inst;
mod registers;
mod select;

use mcc_kernel::mach;
use mcc_kernel::{Arch, Code, Cpu, Facts, Kernel, Target};

pub static TARGET: Aarch64 = Aarch64;

#[derive(Clone, Copy, Debug)]
pub struct Aarch64;

/// Units of 8 bytes that a spilled register takes, by class.
const SPILL_UNITS: [usize; 3] = [1, 2, 2];

impl Target for Aarch64 {
    fn name(&self) -> &'static str {
        "aarch64"
    }

    fn is_for(&self, arch: Arch) -> bool {
        arch == Arch::Aarch64
    }

    fn refuses(&self, _: &Cpu) -> Option<&'static str> {
        None
    }

    fn facts(&self, cpu: &Cpu) -> Facts {
        facts::facts(cpu)
    }

    fn compile(&self, kernel: &Kernel, cpu: &Cpu) -> Code {
        let mut selector = select::Selector::new(cpu.strict_alignment);
        let program = mach::lower(kernel, &mut selector);
        let program = improve::improve(program, cpu);
        let allocated = mach::allocate(&program, &registers::environment(), SPILL_UNITS);
        let mut emitter = emit::Emitter::new(kernel, &selector, &allocated, program.blocks.len(), cpu.protection);
        mach::emit(&program, &allocated, &mut emitter);
        emitter.finish()
    }
}
