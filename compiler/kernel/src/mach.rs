//! From kernels to allocated machine programs: what every target that encodes for itself shares.
//!
//! [`lower`] walks a kernel and asks the target's [`Select`] for the machine instructions of each node; the result is a [`Program`]
//! of basic blocks over virtual registers. [`allocate`] gives these physical registers by regalloc2, and [`check`] proves the result
//! without it. [`emit`] then goes through the blocks in order and hands instructions, moves and jumps to the target's [`Emit`].

mod alloc;
mod analysis;
pub mod check;
mod context;
mod emit;
mod lower;
mod pressure;
mod program;

pub use alloc::{Allocated, allocate};
pub use context::Context;
pub use emit::{Emit, emit};
pub use lower::{Latch, Select, lower};
pub use program::{Block, Inst, Kind, Program};
pub use regalloc2::{
    Allocation, MachineEnv, Operand, OperandConstraint, OperandKind, OperandPos, PReg, PRegSet, RegClass, VReg as Reg,
};
