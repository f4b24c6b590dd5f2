//! Registers and calling conventions.

use mcc_kernel::mach::{MachineEnv, PReg, PRegSet, RegClass};

/// A general register by its number.
pub fn general(number: usize) -> PReg {
    PReg::new(number, RegClass::Int)
}

/// A vector register by its number.
pub fn vector(number: usize) -> PReg {
    PReg::new(number, RegClass::Float)
}

pub const RAX: usize = 0;
pub const RCX: usize = 1;
pub const RDX: usize = 2;
pub const RBX: usize = 3;
pub const RSP: usize = 4;
pub const RBP: usize = 5;
pub const RSI: usize = 6;
pub const RDI: usize = 7;

#[derive(Debug)]
pub struct Abi {
    /// Where the first parameters are.
    pub params: &'static [usize],
    /// General registers that a function leaves as they were.
    pub saved: &'static [usize],
    /// Vector registers of which it leaves the low 128 bits as they were.
    pub saved_vectors: std::ops::Range<usize>,
    /// Bytes that a caller reserves above the return address.
    pub home_bytes: u32,
}

pub static SYSTEM_V: Abi =
    Abi { params: &[RDI, RSI, RDX, RCX, 8, 9], saved: &[RBX, RBP, 12, 13, 14, 15], saved_vectors: 0..0, home_bytes: 0 };

pub static WINDOWS: Abi =
    Abi { params: &[RCX, RDX, 8, 9], saved: &[RBX, RBP, RSI, RDI, 12, 13, 14, 15], saved_vectors: 6..16, home_bytes: 32 };

impl Abi {
    /// Registers that nobody saves come first, then those with short encodings.
    pub fn env(&self, is_v4: bool) -> MachineEnv {
        let all = || (0..16).filter(|&number| number != RSP);
        let is_saved = |number: &usize| self.saved.contains(number);
        let vectors = if is_v4 { 32 } else { 16 };
        let is_preferred = |number: &usize| *number < 16 && !self.saved_vectors.contains(number);
        let set = |numbers: Vec<usize>, class| numbers.into_iter().map(|number| PReg::new(number, class)).collect::<PRegSet>();
        let masks = if is_v4 { set((1..8).collect(), RegClass::Vector) } else { PRegSet::empty() };
        MachineEnv {
            preferred_regs_by_class: [
                set(all().filter(|number| !is_saved(number)).collect(), RegClass::Int),
                set((0..vectors).filter(is_preferred).collect(), RegClass::Float),
                masks,
            ],
            non_preferred_regs_by_class: [
                set(all().filter(is_saved).collect(), RegClass::Int),
                set((0..vectors).filter(|number| !is_preferred(number)).collect(), RegClass::Float),
                PRegSet::empty(),
            ],
            scratch_by_class: [None; 3],
            fixed_stack_slots: Vec::new(),
        }
    }

    /// What a call destroys, but for the registers of its result.
    pub fn clobbers(&self, is_v4: bool, has_result: bool) -> PRegSet {
        let mut set = PRegSet::empty();
        (0..16).filter(|number| *number != RSP && !self.saved.contains(number)).for_each(|number| set.add(general(number)));
        (0..if is_v4 { 32 } else { 16 }).for_each(|number| set.add(vector(number)));
        if is_v4 {
            (1..8).for_each(|number| set.add(PReg::new(number, RegClass::Vector)));
        }
        if has_result {
            set.remove(general(RAX));
        }
        set
    }
}
