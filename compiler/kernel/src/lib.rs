//! The kernel IR: virtual registers, flat instructions, structured loops, and addresses of base plus scaled registers.
//!
//! A kernel knows neither shapes nor tensors; a target turns it into machine code and needs to know nothing else.

pub mod build;
pub mod interp;
pub mod ir;
pub mod mach;
pub mod target;
pub mod text;
pub mod verify;

pub use build::Builder;
pub use ir::{Address, Block, Carried, Cond, If, Kernel, Lane, Loop, Node, Op, Operand, Slot, Type, VReg, While};
pub use target::{Arch, BranchProtection, Code, Cpu, Facts, OpKind, Reloc, RelocKind, Target};
