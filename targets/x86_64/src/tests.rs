//! What the decoder of another project makes of the code, and what inner loops and frames hold.

use iced_x86::{Code as Decoded, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind as Kind, Register};
use mcc_kernel::{Address, Arch, Builder, Code, Cpu, Kernel, Lane, Op, Operand, Target, Type};

use crate::encode::{Base, Fields, Imm, Memory, Place};
use crate::rows::{Form, Tuple};
use crate::{TARGET, abi, compile, emit, facts};

const LEVELS: [&str; 2] = ["x86-64-v3", "x86-64-v4"];

fn cpu(name: &str) -> Cpu {
    let more: &[&str] = if name == "x86-64-v4" { &["avx512bw", "avx512dq", "avx512f", "avx512vl"] } else { &[] };
    let features = ["avx2", "bmi2", "fma"].into_iter().chain(more.iter().copied()).collect();
    Cpu {
        arch: Arch::X86_64,
        name: name.into(),
        features,
        protection: Default::default(),
        strict_alignment: false,
        windows_abi: false,
    }
}

fn logged(kernel: &Kernel, cpu: &Cpu) -> (Code, Vec<(usize, Fields)>) {
    let abi = if cpu.windows_abi { &abi::WINDOWS } else { &abi::SYSTEM_V };
    match facts::is_v4(cpu) {
        true => compile::<true, _>(kernel, abi, emit::emit_logged),
        false => compile::<false, _>(kernel, abi, emit::emit_logged),
    }
}

fn decode_at(code: &Code, offset: usize) -> Instruction {
    let bytes = &code.bytes[..code.code_bytes as usize];
    let mut decoder = Decoder::with_ip(64, &bytes[offset..], offset as u64, DecoderOptions::NONE);
    decoder.decode()
}

fn decode(code: &Code) -> Vec<Instruction> {
    Decoder::with_ip(64, &code.bytes[..code.code_bytes as usize], 0, DecoderOptions::NONE).into_iter().collect()
}

/// A register's number and bits.
fn number(reg: Register) -> (usize, usize) {
    let files = [
        (Register::AX, 16, 16),
        (Register::EAX, 16, 32),
        (Register::RAX, 16, 64),
        (Register::XMM0, 32, 128),
        (Register::YMM0, 32, 256),
        (Register::ZMM0, 32, 512),
        (Register::K0, 8, 64),
        (Register::AL, 20, 8),
    ];
    let of = |(first, count, bits): (Register, usize, usize)| {
        let index = (reg as usize).checked_sub(first as usize).filter(|index| *index < count)?;
        // Between the low bytes of rbx and rsp are the four high ones.
        Some((if bits == 8 && index >= 8 { index - 4 } else { index }, bits))
    };
    files.into_iter().find_map(of).unwrap_or_else(|| panic!("{reg:?}"))
}

fn is_vector(reg: Register) -> bool {
    (Register::XMM0..=Register::ZMM31).contains(&reg)
}

fn is_general(reg: Register) -> bool {
    (Register::AL..=Register::R15).contains(&reg)
}

fn name(fields: &Fields) -> String {
    let name = if fields.is_evex() { fields.row.evex_name } else { fields.row.name };
    match (name, fields.reg, fields.row.opcode) {
        ("cdq", ..) if fields.bits == 64 => "cqo".into(),
        ("shift", direction, opcode) => {
            let kind = ["", "", "vpsrl", "", "vpsra", "", "vpsll"][usize::from(direction)];
            let is_wide = opcode == 0x72 && matches!(fields.row.form, Form::Vector { evex_w: true, .. }) && fields.is_evex();
            let lane = if is_wide { "q" } else { ["w", "d", "q"][usize::from(opcode - 0x71)] };
            format!("{kind}{lane}")
        }
        _ => name.into(),
    }
}

/// The registers and memory operands that an instruction should have, in the order of the manuals.
fn operands(fields: &Fields) -> Vec<Place> {
    let (reg, rm) = (Place::Reg(fields.reg), fields.rm);
    let vvvv = fields.vvvv.map(Place::Reg);
    let is_general = matches!(fields.row.form, Form::General { .. });
    let is_store = match fields.row.name {
        "mov" | "vmovups" | "vmovupd" | "vmovss" | "vmovsd" | "vmovd" | "vmovq" | "kmovq" => {
            matches!(fields.row.opcode, 0x88 | 0x89 | 0x11 | 0x7e | 0x91)
        }
        name => name.starts_with("vextract") || name.starts_with("vpextr") || name == "test",
    };
    match fields.row.name {
        "cdq" | "vzeroupper" => vec![],
        "shift" => vvvv.into_iter().chain([rm]).collect(),
        "shlx" | "sarx" | "shrx" => [reg, rm].into_iter().chain(vvvv).collect(),
        "not" | "neg" | "div" | "idiv" | "prefetcht0" => vec![rm],
        "mov" if fields.row.opcode == 0xc7 => vec![rm],
        name if name.starts_with("set") => vec![rm],
        _ if is_general && fields.imm != Imm::None && fields.row.opcode < 0x40 => vec![rm],
        _ if is_store => vec![rm, reg],
        _ => [reg].into_iter().chain(vvvv).chain([rm]).chain(fields.fourth.map(Place::Reg)).collect(),
    }
}

fn matches_place(found: &Instruction, operand: u32, expected: Place) -> bool {
    match expected {
        Place::Reg(number) => {
            found.op_kind(operand) == Kind::Register && self::number(found.op_register(operand)).0 == usize::from(number)
        }
        Place::Memory(Memory { base, index, scale, displacement, is_broadcast }) => {
            let held = |reg: Register| (reg != Register::None).then(|| number(reg).0 as u8);
            let base_matches = match base {
                // Completed later.
                Base::Rip => found.memory_base() == Register::RIP,
                Base::Reg(reg) => {
                    held(found.memory_base()) == Some(reg) && found.memory_displacement64() as i64 == i64::from(displacement)
                }
            };
            found.op_kind(operand) == Kind::Memory
                && base_matches
                && held(found.memory_index()) == index
                && (index.is_none() || found.memory_index_scale() == u32::from(scale))
                && found.is_broadcast() == is_broadcast
        }
    }
}

/// How what was decoded differs from what was meant.
fn difference(fields: &Fields, found: &Instruction) -> Option<String> {
    if found.code() == Decoded::INVALID {
        return Some("is invalid".into());
    }
    let mnemonic = format!("{:?}", found.mnemonic()).to_lowercase();
    if mnemonic != name(fields) {
        return Some(format!("is {mnemonic}"));
    }
    let expected = operands(fields);
    let is_imm = |operand: &u32| matches!(found.op_kind(*operand), Kind::Register | Kind::Memory);
    let count = (0..found.op_count()).filter(is_imm).count();
    if count != expected.len() || !expected.iter().enumerate().all(|(index, &place)| matches_place(found, index as u32, place)) {
        return Some(format!("has other operands than {expected:?}"));
    }
    let mask = if found.op_mask() == Register::None { 0 } else { number(found.op_mask()).0 as u8 };
    let imm = match fields.imm {
        Imm::None => true,
        Imm::Byte(value) => found.immediate(found.op_count() - 1) as u8 == value,
        Imm::Word(value) => found.immediate(found.op_count() - 1) as i32 == value,
    };
    // Vectors have the length that was meant.
    let is_whole = matches!(fields.row.form, Form::Vector { tuple: Tuple::Full, .. });
    let reg = found.op_register(0);
    let length = !is_whole || !is_vector(reg) || fields.row.name.contains("vextract") || number(reg).1 == fields.bits as usize;
    (mask != fields.mask || found.zeroing_masking() != fields.zeroes || !imm || !length)
        .then(|| "has another mask, constant or length".into())
}

#[test]
fn a_decoder_reads_what_was_meant() {
    for level in LEVELS {
        let mut kinds = std::collections::BTreeSet::new();
        for windows_abi in [false, true] {
            let cpu = Cpu { windows_abi, ..cpu(level) };
            let facts = TARGET.facts(&cpu);
            let signatures = mcc_conformance::signatures(&facts);
            let cases = mcc_conformance::instructions(&facts).into_iter().chain(mcc_conformance::parts(&facts));
            let cases = cases.flat_map(|case| case.kernels);
            let random = (0..40).map(|seed| mcc_conformance::random_kernel(&signatures, seed));
            for kernel in cases.chain(random) {
                let (code, log) = logged(&kernel, &cpu);
                for (offset, fields) in log {
                    let found = decode_at(&code, offset);
                    if let Some(difference) = difference(&fields, &found) {
                        panic!("{level}: {found} {difference}; meant was {fields:?}");
                    }
                    kinds.insert(name(&fields));
                }
                assert!(decode(&code).iter().all(|found| found.code() != Decoded::INVALID), "{}", kernel.name);
            }
        }
        assert!(kinds.len() > 100, "{level}: only {} kinds of instructions", kinds.len());
    }
}

/// A tile of `rows × vectors` accumulators over a loop of 256 rounds: packed weights, and one float for each row.
fn tile(rows: usize, vectors: usize, lanes: u8) -> Kernel {
    let ty = Type::vector(Lane::F32, lanes);
    let row_bytes = 4096;
    let mut builder = Builder::new("tile", &[Type::Ptr, Type::I64, Type::I64]);
    let [a, b, c] = [0, 8, 16].map(|at| builder.load_ptr(Address::new(builder.param(0), at)));
    let zero = builder.constant(ty, 0);
    let mut init = vec![zero; rows * vectors];
    init.extend([a, b]);
    let results = builder.for_loop(Operand::Const(0), Operand::Const(256), 1, &init, |builder, _, params| {
        let (a, b) = (params[rows * vectors], params[rows * vectors + 1]);
        let bytes = 4 * i64::from(lanes);
        let weights: Vec<_> = (0..vectors).map(|v| builder.load(ty, Address::new(b, v as i64 * bytes), 4)).collect();
        let mut nexts = Vec::new();
        for row in 0..rows {
            let scalar = builder.load(Type::F32, Address::new(a, row as i64 * row_bytes), 4);
            let factor = builder.splat(scalar, lanes);
            nexts.extend((0..vectors).map(|v| builder.fma(factor, weights[v], params[row * vectors + v])));
        }
        nexts.push(builder.lea(Address::new(a, 4)));
        nexts.push(builder.lea(Address::new(b, vectors as i64 * bytes)));
        nexts
    });
    for (index, &result) in results[..rows * vectors].iter().enumerate() {
        builder.store(result, Address::new(c, index as i64 * 4 * i64::from(lanes)), 4);
    }
    builder.finish(None)
}

/// The instructions between the label of the only loop and its jump back.
fn loop_body(code: &Code) -> Vec<Instruction> {
    let all = decode(code);
    let back = all
        .iter()
        .find(|found| found.op0_kind() == Kind::NearBranch64 && found.near_branch_target() < found.ip())
        .expect("a loop");
    let inside = |found: &&Instruction| (back.near_branch_target()..=back.ip()).contains(&found.ip());
    all.iter().filter(inside).copied().collect()
}

#[test]
fn tiles_stay_in_registers() {
    for (level, rows, vectors, lanes) in
        [("x86-64-v3", 6, 2, 8), ("x86-64-v3", 4, 3, 8), ("x86-64-v4", 14, 2, 16), ("x86-64-v4", 28, 1, 16)]
    {
        let code = TARGET.compile(&tile(rows, vectors, lanes), &cpu(level));
        let body = loop_body(&code);
        let count = |mnemonic| body.iter().filter(|found| found.mnemonic() == mnemonic).count();
        assert_eq!(count(Mnemonic::Vfmadd231ps), rows * vectors, "{level} {rows}x{vectors}");
        // Beside them the loads, two pointers, and the count with its jump: no copy and nothing from the frame.
        let is_embedded = vectors == 1;
        let loads = if is_embedded { vectors } else { rows + vectors };
        assert_eq!(body.len(), rows * vectors + loads + 4, "{level} {rows}x{vectors}: {body:#?}");
        assert!(body.iter().all(|found| found.memory_base() != Register::RSP));
    }
}

#[test]
fn windows_keeps_what_callers_want_back() {
    for level in LEVELS {
        let cpu = Cpu { windows_abi: true, ..cpu(level) };
        let signatures = mcc_conformance::signatures(&TARGET.facts(&cpu));
        let mut saved_vectors = 0;
        for seed in 0..40 {
            let code = TARGET.compile(&mcc_conformance::random_kernel(&signatures, seed), &cpu);
            let all = decode(&code);
            let of = |mnemonic| all.iter().filter(move |found| found.mnemonic() == mnemonic).map(|found| found.op0_register());
            let (pushed, mut popped): (Vec<_>, Vec<_>) = (of(Mnemonic::Push).collect(), of(Mnemonic::Pop).collect());
            popped.reverse();
            assert_eq!(pushed, popped);
            // The frame's part that holds vectors is written once, before, and read once, after everything else.
            let frame = |found: &&Instruction| found.mnemonic() == Mnemonic::Vmovups && found.memory_base() == Register::RSP;
            let stores = all.iter().skip_while(|found| found.mnemonic() == Mnemonic::Push || found.mnemonic() == Mnemonic::Sub);
            let stores: Vec<_> = stores.take_while(|found| frame(found) && found.op0_kind() == Kind::Memory).collect();
            let written = |found: &&Instruction| found.op0_kind() == Kind::Register && found.op_count() > 1;
            for found in all.iter().filter(written) {
                let reg = found.op0_register();
                let number = if is_vector(reg) || is_general(reg) { number(reg).0 } else { continue };
                if is_general(reg)
                    && [3, 5, 6, 7, 12, 13, 14, 15].contains(&number)
                    && found.mnemonic() != Mnemonic::Cmp
                    && found.mnemonic() != Mnemonic::Test
                {
                    assert!(pushed.iter().any(|kept| self::number(*kept).0 == number), "{level}, seed {seed}: {found}");
                }
                if is_vector(reg) && (6..16).contains(&number) && !frame(&found) {
                    let kept = |place: &&&Instruction| self::number(place.op1_register()).0 == number;
                    let place = stores.iter().find(kept).unwrap_or_else(|| panic!("{level}, seed {seed}: {found}"));
                    let restores = all.iter().filter(frame).filter(|found| found.op0_kind() == Kind::Register);
                    let same = restores.filter(|found| found.memory_displacement64() == place.memory_displacement64());
                    assert_eq!(same.map(|found| self::number(found.op0_register()).0).collect::<Vec<_>>(), [number]);
                    saved_vectors += 1;
                }
            }
        }
        assert!(saved_vectors > 0);
    }
}

#[test]
fn many_accumulators_are_spilled_rightly() {
    for (level, rows, vectors, lanes) in [("x86-64-v3", 12, 3, 8), ("x86-64-v4", 14, 4, 16)] {
        // In debug builds the allocation is checked.
        let code = TARGET.compile(&tile(rows, vectors, lanes), &cpu(level));
        assert!(loop_body(&code).iter().any(|found| found.memory_base() == Register::RSP), "{level}");
        assert!(code.stack_bytes > 0);
    }
}

#[test]
fn lanes_are_taken_apart_and_put_together() {
    let mut builder = Builder::new("halves", &[Type::Ptr, Type::I64, Type::I64]);
    let buffer = builder.load_ptr(Address::new(builder.param(0), 0));
    let whole = builder.load(Type::vector(Lane::F32, 16), Address::new(buffer, 0), 4);
    let upper = builder.inst(Type::vector(Lane::F32, 8), Op::Extract(8), &[whole]);
    let lane = builder.extract(upper, 4);
    builder.store(lane, Address::new(buffer, 0), 4);
    let code = TARGET.compile(&builder.finish(None), &cpu("x86-64-v4"));
    let names: Vec<_> = decode(&code).iter().map(Instruction::mnemonic).collect();
    assert!(names.contains(&Mnemonic::Vextractf64x4) && names.contains(&Mnemonic::Vextractf128), "{names:?}");
}
