//! What a target is: facts, and a function from kernels to machine code.

use std::collections::BTreeSet;

use crate::ir::{Kernel, Lane, Op};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Arch {
    X86_64,
    Aarch64,
}

/// What code of aarch64 does against attacks that change where branches lead. Both are hints to CPUs that do not know them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BranchProtection {
    /// Functions start with an instruction that indirect branches may lead to.
    pub targets: bool,
    /// Return addresses in memory are signed.
    pub returns: bool,
}

/// The machine that code is made for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cpu {
    pub arch: Arch,
    /// As `--cpu` spells it: `x86-64-v3`, `armv8-a`.
    pub name: String,
    /// Features by name, sorted: `avx2`, `fma`, `sse4.1`.
    pub features: BTreeSet<&'static str>,
    /// What code does against attacks that change where branches lead.
    pub protection: BranchProtection,
    /// Whether every access must be aligned to its size.
    pub strict_alignment: bool,
    /// Whether the stack pointer's red zone and calling convention are Windows'.
    pub windows_abi: bool,
}

/// The kinds of operation that facts distinguish among those on more than one lane; see [`Facts::supports`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OpKind {
    /// Load, store, constants, splat, pack, extract, bitcast, select, compare, masks.
    Move,
    /// Also negation and absolute value.
    AddSub,
    Mul,
    Div,
    MinMax,
    Fma,
    Sqrt,
    Round,
    Bits,
    Shift,
    /// Between i32 and f32, i64 and f64: same lane width.
    IntFloat,
    /// Loads and stores of the first lanes only, and splices.
    First,
}

impl OpKind {
    /// The kind of an operation; `None` for those that exist on one lane only.
    pub fn of(op: &Op) -> Option<OpKind> {
        Some(match op {
            Op::Const(_) | Op::Splat | Op::Pack | Op::Extract(_) | Op::Bitcast | Op::Load { .. } | Op::Store { .. } => {
                OpKind::Move
            }
            Op::Select | Op::Cmp(_) | Op::CmpU(_) | Op::MaskToInt | Op::IntToMask => OpKind::Move,
            Op::MaskAnd | Op::MaskOr | Op::MaskXor | Op::MaskNot => OpKind::Move,
            Op::Add | Op::Sub | Op::Neg | Op::Abs => OpKind::AddSub,
            Op::Mul => OpKind::Mul,
            Op::Div | Op::DivU | Op::Rem | Op::RemU => OpKind::Div,
            Op::Min | Op::Max | Op::MinU | Op::MaxU => OpKind::MinMax,
            Op::Fma => OpKind::Fma,
            Op::Sqrt => OpKind::Sqrt,
            Op::Floor | Op::Ceil | Op::Trunc | Op::Nearest => OpKind::Round,
            Op::And | Op::Or | Op::Xor | Op::Not => OpKind::Bits,
            Op::Shl | Op::ShrS | Op::ShrU => OpKind::Shift,
            Op::IntToFloatS | Op::IntToFloatU | Op::FloatToIntS | Op::FloatToIntU => OpKind::IntFloat,
            Op::LoadFirst { .. } | Op::StoreFirst { .. } | Op::Splice(_) => OpKind::First,
            Op::MaskResize | Op::ExtendS | Op::ExtendU | Op::Wrap | Op::Promote | Op::Demote => return None,
            Op::Lea(_) | Op::LoadPtr(_) | Op::StorePtr(_) | Op::Prefetch(_) | Op::SlotAddr(_) => return None,
            Op::SymbolAddr(_) | Op::Call(_) | Op::CallPtr => return None,
        })
    }
}

/// What a target states about a machine; the only way in which the rest of the compiler knows one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Facts {
    /// Combinations that exist with more than one lane. One lane exists for everything.
    pub supported: BTreeSet<(OpKind, Lane, u8)>,
    /// Bytes of a vector register.
    pub vector_bytes: u32,
    pub vector_registers: u32,
    pub general_registers: u32,
    /// Whether a fused multiply-add is an instruction. Where not, that of `f32` takes several, with the same bits.
    pub fma: bool,
    /// Whether every access must be aligned to its size.
    pub strict_alignment: bool,
    pub l1_bytes: usize,
    pub l2_bytes: usize,
    /// Of the caches.
    pub line_bytes: usize,
    /// How far ahead of its use what comes from memory in a row should be fetched; 0 where the machine does that by itself.
    pub ahead_bytes: usize,
    /// Vector instructions that the machine begins in a cycle: multiply-adds, loads, stores.
    pub fmas_per_cycle: u32,
    pub loads_per_cycle: u32,
    pub stores_per_cycle: u32,
    /// Cycles from an operand of a multiply-add, the accumulator too, to its result.
    pub fma_latency: u32,
    /// Whether instructions begin in the order of the code.
    pub in_order: bool,
    /// Whether a multiply-add takes one lane of a vector as a factor, so that a scalar factor need not be splat.
    pub lane_operand: bool,
}

impl Facts {
    /// Lane counts of the vectors with lanes of this type, the widest first.
    pub fn lane_counts(&self, lane: Lane) -> Vec<usize> {
        let counts = self.supported.iter().filter(|(kind, found, _)| *kind == OpKind::Move && *found == lane);
        let mut counts: Vec<usize> = counts.map(|&(_, _, lanes)| usize::from(lanes)).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    /// The lanes of the narrowest vector in which so many run: all of them, or the first ones only where vectors may be used in part.
    pub fn lanes_for(&self, lane: Lane, count: usize) -> Option<u8> {
        let counts = self.lane_counts(lane).into_iter().map(|lanes| lanes as u8);
        let fits = |&lanes: &u8| {
            usize::from(lanes) == count || usize::from(lanes) > count && count > 1 && self.supports(OpKind::First, lane, lanes)
        };
        counts.filter(fits).min()
    }

    /// Whether vectors with lanes of 32 and 64 bits may be used in part.
    pub fn has_parts(&self) -> bool {
        self.supported.iter().any(|(kind, ..)| *kind == OpKind::First)
    }

    pub fn supports(&self, kind: OpKind, lane: Lane, lanes: u8) -> bool {
        lanes == 1 || self.supported.contains(&(kind, lane, lanes))
    }
}

/// A place in the code that the linker or loader completes with the address of a symbol.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reloc {
    pub offset: u32,
    pub kind: RelocKind,
    pub symbol: String,
    pub addend: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RelocKind {
    /// 32-bit, relative to the place: `call rel32`.
    X86Call4,
    /// 32-bit, relative to the place: `lea reg, [rip + rel32]`.
    X86PcRel4,
    /// `bl`.
    Aarch64Call26,
    /// `adrp`.
    Aarch64AdrPage21,
    /// `add` of the low 12 bits.
    Aarch64AddLo12,
}

/// The machine code of one function.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Code {
    /// Instructions, and after them constants that only they read.
    pub bytes: Vec<u8>,
    /// How many of the bytes are instructions.
    pub code_bytes: u32,
    pub align_bytes: u32,
    pub relocs: Vec<Reloc>,
    /// Bytes of stack that the function itself takes, with its return address and saved registers.
    pub stack_bytes: u32,
}

pub trait Target: Sync {
    fn name(&self) -> &'static str;

    /// Whether it makes code for this architecture; else nothing else is asked.
    fn is_for(&self, arch: Arch) -> bool;

    /// Why it has no code for a CPU, if so; nothing else is asked then.
    fn refuses(&self, cpu: &Cpu) -> Option<&'static str>;

    fn facts(&self, cpu: &Cpu) -> Facts;

    /// Cannot fail for a kernel that keeps to the facts: which target compiles a kernel is decided before it is made.
    fn compile(&self, kernel: &Kernel, cpu: &Cpu) -> Code;
}
