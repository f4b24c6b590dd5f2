//! Registers and their part in the calling convention (AAPCS64, which Apple's follows where it matters here).

use mcc_kernel::mach::{MachineEnv, PReg, PRegSet, RegClass};

/// Used between instructions: addresses of the frame that no instruction holds.
pub const SCRATCH: u32 = 16;
pub const LINK: usize = 30;
/// The platform's own.
const PLATFORM: usize = 18;
/// Arguments in registers.
pub const ARGUMENTS: usize = 8;

pub fn general(number: usize) -> PReg {
    PReg::new(number, RegClass::Int)
}

pub fn vector(number: usize) -> PReg {
    PReg::new(number, RegClass::Float)
}

fn set(regs: impl IntoIterator<Item = PReg>) -> PRegSet {
    let mut set = PRegSet::empty();
    regs.into_iter().for_each(|reg| set.add(reg));
    set
}

/// Whether a function must leave the register as it found it; of vector registers, the low half.
fn is_saved(reg: PReg) -> bool {
    match reg.class() {
        RegClass::Int => (19..=30).contains(&reg.hw_enc()),
        _ => (8..=15).contains(&reg.hw_enc()),
    }
}

fn allocatable() -> impl Iterator<Item = PReg> {
    let generals = (0..31).filter(|number| ![PLATFORM, SCRATCH as usize, SCRATCH as usize + 1].contains(number));
    generals.map(general).chain((0..32).map(vector))
}

/// What is given out: first what need not be saved.
pub fn environment() -> MachineEnv {
    let of = |class: RegClass, saved: bool| set(allocatable().filter(|&reg| reg.class() == class && is_saved(reg) == saved));
    MachineEnv {
        preferred_regs_by_class: [of(RegClass::Int, false), of(RegClass::Float, false), PRegSet::empty()],
        non_preferred_regs_by_class: [of(RegClass::Int, true), of(RegClass::Float, true), PRegSet::empty()],
        scratch_by_class: [None, None, None],
        fixed_stack_slots: Vec::new(),
    }
}

/// What a call destroys, but for its result. Of v8 to v15 the upper halves are lost, so nothing stays in them.
pub fn destroyed_by_call(has_result: bool) -> PRegSet {
    let is_lost = |reg: &PReg| reg.class() == RegClass::Float || !is_saved(*reg) || reg.hw_enc() == LINK;
    set(allocatable().filter(is_lost).filter(|&reg| !has_result || reg != general(0)))
}

/// Of the registers that are written, those that must be saved, in order.
pub fn to_save(written: PRegSet, class: RegClass) -> Vec<u32> {
    let saved = allocatable().filter(|&reg| reg.class() == class && is_saved(reg) && written.contains(reg));
    saved.map(|reg| reg.hw_enc() as u32).collect()
}
