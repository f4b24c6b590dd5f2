//! What the portable target has on 128-bit vectors.

use std::collections::BTreeSet;

use mcc_kernel::{Arch, Cpu, Facts, Lane, OpKind};

const ALL: [Lane; 6] = Lane::ALL;
const FLOATS: [Lane; 2] = [Lane::F32, Lane::F64];
const INTS: [Lane; 4] = [Lane::I8, Lane::I16, Lane::I32, Lane::I64];

pub(crate) fn has_fma(cpu: &Cpu) -> bool {
    cpu.arch == Arch::Aarch64 || cpu.features.contains("fma")
}

pub(crate) fn facts(cpu: &Cpu) -> Facts {
    let is_x86 = cpu.arch == Arch::X86_64;
    let mut kinds: Vec<(OpKind, &[Lane])> = vec![
        (OpKind::Move, &ALL),
        (OpKind::AddSub, &ALL),
        (OpKind::Div, &FLOATS),
        (OpKind::MinMax, &ALL),
        (OpKind::Sqrt, &FLOATS),
        (OpKind::Round, &FLOATS),
        (OpKind::Bits, &INTS),
        (OpKind::Shift, &INTS),
        (OpKind::IntFloat, &[Lane::I32, Lane::I64, Lane::F32, Lane::F64]),
    ];
    // There is no product of bytes on x86.
    kinds.push((OpKind::Mul, if is_x86 { &ALL[1..] } else { &ALL }));
    kinds.push((OpKind::Fma, if has_fma(cpu) { &FLOATS } else { &FLOATS[..1] }));
    // Without a byte shuffle, vectors of bytes would be taken apart by calls.
    let has_bytes = !is_x86 || cpu.features.contains("ssse3");
    let supported: BTreeSet<_> = kinds
        .iter()
        .flat_map(|&(kind, lanes)| lanes.iter().map(move |&lane| (kind, lane, (128 / lane.bits()) as u8)))
        .filter(|&(_, lane, _)| has_bytes || lane != Lane::I8)
        .collect();
    Facts {
        supported,
        vector_bytes: 16,
        vector_registers: if is_x86 { 16 } else { 32 },
        general_registers: if is_x86 { 16 } else { 31 },
        fma: has_fma(cpu),
        strict_alignment: cpu.strict_alignment,
        l1_bytes: 32 << 10,
        l2_bytes: 1 << 20,
        line_bytes: 64,
        ahead_bytes: 0,
        fmas_per_cycle: 2,
        loads_per_cycle: 2,
        stores_per_cycle: 1,
        fma_latency: 4,
        in_order: cpu.arch == Arch::Aarch64 && ["cortex-a53", "cortex-a55"].contains(&cpu.name.as_str()),
        // Cranelift recognizes a splat lane as such a factor only on aarch64.
        lane_operand: !is_x86,
    }
}
