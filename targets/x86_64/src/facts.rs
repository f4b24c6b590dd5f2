//! What the target has at each level, and what is known of named cores.

use std::collections::BTreeSet;

use mcc_kernel::{Cpu, Facts, Lane, OpKind};

const ALL: &[Lane] = &Lane::ALL;
const FLOATS: &[Lane] = &[Lane::F32, Lane::F64];
const INTS: &[Lane] = &[Lane::I8, Lane::I16, Lane::I32, Lane::I64];

/// Whether there are vectors of 512 bits and mask registers.
pub fn is_v4(cpu: &Cpu) -> bool {
    ["avx512f", "avx512vl", "avx512dq", "avx512bw"].iter().all(|name| cpu.features.contains(name))
}

/// A core by its names in `--cpu`: caches of the first two levels in KiB; multiply-adds of the widest vectors, loads and stores in
/// a cycle; cycles of a multiply-add.
struct Core {
    names: &'static [&'static str],
    l1: usize,
    l2: usize,
    fmas: u32,
    loads: u32,
    stores: u32,
    latency: u32,
}

const CORES: [Core; 6] = [
    Core { names: &["haswell", "broadwell"], l1: 32, l2: 256, fmas: 2, loads: 2, stores: 1, latency: 5 },
    Core { names: &["skylake", "alderlake"], l1: 32, l2: 256, fmas: 2, loads: 2, stores: 1, latency: 4 },
    Core { names: &["skylake-avx512", "cascadelake"], l1: 32, l2: 1024, fmas: 2, loads: 2, stores: 1, latency: 4 },
    Core { names: &["icelake-server"], l1: 48, l2: 1280, fmas: 2, loads: 2, stores: 1, latency: 4 },
    Core { names: &["sapphirerapids"], l1: 48, l2: 2048, fmas: 2, loads: 2, stores: 1, latency: 4 },
    Core { names: &["znver1", "znver2", "znver3"], l1: 32, l2: 512, fmas: 2, loads: 2, stores: 1, latency: 4 },
];

/// Vectors of 512 bits are done in halves.
const ZNVER4: Core = Core { names: &["znver4"], l1: 32, l2: 1024, fmas: 1, loads: 1, stores: 1, latency: 4 };

/// Where no core is named.
const ANY: Core = Core { names: &[], l1: 32, l2: 1024, fmas: 2, loads: 2, stores: 1, latency: 4 };

fn core(cpu: &Cpu) -> &'static Core {
    let name = cpu.name.split('+').next().unwrap_or_default();
    CORES.iter().chain([&ZNVER4]).find(|core| core.names.contains(&name)).unwrap_or(&ANY)
}

pub fn facts(cpu: &Cpu) -> Facts {
    let is_v4 = is_v4(cpu);
    let kinds: [(OpKind, &[Lane]); 12] = [
        (OpKind::Move, ALL),
        (OpKind::AddSub, ALL),
        (OpKind::Mul, &ALL[1..]),
        (OpKind::Div, FLOATS),
        (OpKind::MinMax, ALL),
        (OpKind::Fma, FLOATS),
        (OpKind::Sqrt, FLOATS),
        (OpKind::Round, FLOATS),
        (OpKind::Bits, INTS),
        (OpKind::Shift, INTS),
        // Before AVX-512 there are none of 64 bits.
        (OpKind::IntFloat, if is_v4 { &[Lane::I32, Lane::I64, Lane::F32, Lane::F64] } else { &[Lane::I32, Lane::F32] }),
        (OpKind::First, &[Lane::I32, Lane::I64, Lane::F32, Lane::F64]),
    ];
    let widths: &[u32] = if is_v4 { &[128, 256, 512] } else { &[128, 256] };
    let lanes = |lane: Lane| widths.iter().map(move |width| (width / lane.bits()) as u8);
    let supported: BTreeSet<_> = kinds
        .iter()
        .flat_map(|&(kind, of)| of.iter().flat_map(move |&lane| lanes(lane).map(move |count| (kind, lane, count))))
        .collect();
    let core = core(cpu);
    Facts {
        supported,
        vector_bytes: if is_v4 { 64 } else { 32 },
        vector_registers: if is_v4 { 32 } else { 16 },
        general_registers: 15,
        fma: true,
        strict_alignment: false,
        l1_bytes: core.l1 << 10,
        l2_bytes: core.l2 << 10,
        line_bytes: 64,
        ahead_bytes: 4096,
        fmas_per_cycle: core.fmas,
        loads_per_cycle: core.loads,
        stores_per_cycle: core.stores,
        fma_latency: core.latency,
        in_order: false,
        lane_operand: false,
    }
}
