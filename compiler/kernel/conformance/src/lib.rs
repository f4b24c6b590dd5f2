//! Judges a target: what its machine code computes must equal what the interpreter does, bit for bit, except for which NaN it is.
//!
//! Cases are every operation on every combination of types that the facts list ([`instructions`], [`parts`]), the corpus of kernels with
//! expected bytes ([`corpus`]), and random kernels with loops and branches ([`random`]). They are linked into one program, which
//! runs on this machine or in an emulator ([`machine`]).

mod case;
mod corpus;
mod instructions;
mod machine;
mod random;
mod values;

use mcc_kernel::{Cpu, Target};

pub use case::{Buffer, Case};
pub use corpus::corpus;
pub use instructions::{Signature, instructions, parts, signatures};
pub use machine::can_run;
pub use random::{random_case, random_kernel};

/// Compares the target with the interpreter on all cases, with this many random kernels; panics with what differs.
pub fn check(target: &dyn Target, cpu: &Cpu, random_kernels: usize) {
    let facts = target.facts(cpu);
    let mut cases = corpus();
    cases.extend(instructions(&facts));
    cases.extend(parts(&facts));
    let signatures = signatures(&facts);
    cases.extend((0..random_kernels).map(|seed| random_case(&signatures, seed as u64)));
    let expected: Vec<_> = cases.iter().map(|case| case.interpret(&facts)).collect();
    let found = machine::run(target, cpu, &cases);
    let faults: Vec<_> =
        cases.iter().zip(&expected).zip(&found).filter_map(|((case, expected), found)| case.compare(expected, found)).collect();
    let shown: Vec<_> = faults.iter().take(3).cloned().collect();
    let count = faults.len();
    assert!(
        faults.is_empty(),
        "{} for {}: {count} of {} cases differ\n{}",
        target.name(),
        cpu.name,
        cases.len(),
        shown.join("\n")
    );
}
