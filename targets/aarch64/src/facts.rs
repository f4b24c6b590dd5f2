//! What the target has: vectors of 128 bits, and what is known of each core.

use mcc_kernel::{Cpu, Facts, Lane, OpKind};

const FLOATS: [Lane; 2] = [Lane::F32, Lane::F64];
const INTS: [Lane; 4] = [Lane::I8, Lane::I16, Lane::I32, Lane::I64];
const WIDE: [Lane; 4] = [Lane::I32, Lane::I64, Lane::F32, Lane::F64];

/// Lanes of which there are vectors, by the kind of operation.
const SUPPORTED: [(OpKind, &[Lane]); 11] = [
    (OpKind::Move, &Lane::ALL),
    (OpKind::AddSub, &Lane::ALL),
    (OpKind::Mul, &Lane::ALL),
    (OpKind::Div, &FLOATS),
    (OpKind::MinMax, &Lane::ALL),
    (OpKind::Fma, &FLOATS),
    (OpKind::Sqrt, &FLOATS),
    (OpKind::Round, &FLOATS),
    (OpKind::Bits, &INTS),
    (OpKind::Shift, &INTS),
    (OpKind::IntFloat, &WIDE),
];

/// A core as schedules see it.
#[derive(Debug)]
pub struct Core {
    name: &'static str,
    l1_bytes: usize,
    l2_bytes: usize,
    /// Vector instructions of 128 bits that begin in a cycle: multiply-adds, loads, stores.
    ports: [u32; 3],
    fma_latency: u32,
    /// Whether it runs instructions in the order of the code.
    in_order: bool,
    /// Whether code is put in an order that suits such cores: for these, and for what may run on any.
    pub is_scheduled: bool,
}

const fn core_of(name: &'static str, kib: [usize; 2], ports: [u32; 3], fma_latency: u32, in_order: bool) -> Core {
    Core { name, l1_bytes: kib[0] << 10, l2_bytes: kib[1] << 10, ports, fma_latency, in_order, is_scheduled: in_order }
}

/// Cores by the names that `--cpu` takes; the first is taken for others. Caches have the sizes that are usual; ports and latencies
/// are those of Arm's optimization guides.
const CORES: [Core; 11] = [
    Core { is_scheduled: true, ..core_of("armv8-a", [32, 512], [2, 2, 1], 4, false) },
    core_of("cortex-a53", [32, 512], [1, 1, 1], 8, true),
    core_of("cortex-a55", [32, 128], [1, 1, 1], 4, true),
    core_of("cortex-a72", [32, 1024], [1, 1, 1], 7, false),
    core_of("cortex-a76", [64, 512], [2, 2, 1], 4, false),
    core_of("cortex-a77", [64, 512], [2, 2, 1], 4, false),
    core_of("cortex-a78", [64, 512], [2, 2, 1], 4, false),
    core_of("neoverse-n1", [64, 1024], [2, 2, 1], 4, false),
    core_of("neoverse-n2", [64, 1024], [2, 2, 1], 4, false),
    core_of("neoverse-v1", [64, 1024], [4, 2, 2], 4, false),
    core_of("neoverse-v2", [64, 1024], [4, 2, 2], 4, false),
];

pub fn core(cpu: &Cpu) -> &'static Core {
    let name = cpu.name.split('+').next().unwrap_or_default();
    CORES.iter().find(|core| core.name == name).unwrap_or(&CORES[0])
}

pub fn facts(cpu: &Cpu) -> Facts {
    let core = core(cpu);
    let combinations = SUPPORTED.iter().flat_map(|&(kind, lanes)| lanes.iter().map(move |&lane| (kind, lane)));
    Facts {
        supported: combinations.map(|(kind, lane)| (kind, lane, (128 / lane.bits()) as u8)).collect(),
        vector_bytes: 16,
        vector_registers: 32,
        general_registers: 31,
        fma: true,
        strict_alignment: cpu.strict_alignment,
        l1_bytes: core.l1_bytes,
        l2_bytes: core.l2_bytes,
        line_bytes: 64,
        ahead_bytes: 0,
        fmas_per_cycle: core.ports[0],
        loads_per_cycle: core.ports[1],
        stores_per_cycle: core.ports[2],
        fma_latency: core.fma_latency,
        in_order: core.in_order,
        lane_operand: true,
    }
}
