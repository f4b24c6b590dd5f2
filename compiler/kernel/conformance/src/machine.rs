//! Runs cases as machine code: one program with all of them, on this machine or in an emulator.
//!
//! The code is assembled as bytes with relocations, and a program in C gives each kernel its buffers between guards and writes what
//! they hold afterwards. That needs a C compiler, for aarch64 on other hosts a cross compiler and qemu.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use mcc_kernel::{Arch, Code, Cpu, RelocKind, Target};

use crate::case::{Case, Outcome};

const MAIN: &str = include_str!("main.c");

/// How to build and run programs for an architecture.
struct Tools {
    compiler: &'static str,
    emulator: Option<[&'static str; 3]>,
    /// What to install where one is missing.
    help: &'static str,
}

/// Models of qemu that have no more than the cores of these names; others are run on the one that has everything.
const EMULATED_CORES: [&str; 4] = ["cortex-a53", "cortex-a72", "cortex-a76", "neoverse-n1"];

fn tools(cpu: &Cpu) -> Tools {
    let arch = cpu.arch;
    let is_native = match arch {
        Arch::X86_64 => cfg!(target_arch = "x86_64"),
        Arch::Aarch64 => cfg!(target_arch = "aarch64"),
    };
    let model = EMULATED_CORES.into_iter().find(|core| *core == cpu.name).unwrap_or("max");
    match (arch, is_native) {
        (_, true) => Tools { compiler: "gcc", emulator: None, help: "apt-get install gcc" },
        (Arch::Aarch64, false) => Tools {
            compiler: "aarch64-linux-gnu-gcc",
            emulator: Some(["qemu-aarch64", "-cpu", model]),
            help: "apt-get install gcc-aarch64-linux-gnu qemu-user",
        },
        (Arch::X86_64, false) => Tools {
            compiler: "x86_64-linux-gnu-gcc",
            emulator: Some(["qemu-x86_64", "-cpu", model]),
            help: "apt-get install gcc-x86-64-linux-gnu qemu-user",
        },
    }
}

/// Whether code for this CPU can run here, given what the CPU of this machine has. qemu has all but AVX-512.
pub fn can_run(cpu: &Cpu, host: &Cpu) -> bool {
    match tools(cpu).emulator {
        None => cpu.features.is_subset(&host.features),
        Some(_) => !cpu.features.contains("avx512f"),
    }
}

fn execute(command: &mut Command, help: &str) -> Output {
    let program = command.get_program().to_string_lossy().into_owned();
    command.output().unwrap_or_else(|error| panic!("{program}: {error}; to install it: {help}"))
}

/// The outcome of each case. No case may take more stack than its functions state together.
pub(crate) fn run(target: &dyn Target, cpu: &Cpu, cases: &[Case]) -> Vec<Outcome> {
    let tools = tools(cpu);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, bytes: &[u8]| std::fs::write(path(name), bytes).expect("the temporary folder is writable");
    let compile = |case: &Case| case.kernels.iter().map(|kernel| target.compile(kernel, cpu)).collect();
    let code: Vec<Vec<Code>> = cases.iter().map(compile).collect();
    write("cases.s", assembly(cases, &code).as_bytes());
    write("main.c", MAIN.as_bytes());
    write("input", &input(cases));
    let mut build = Command::new(tools.compiler);
    if cpu.windows_abi {
        build.arg("-DKERNEL_ABI=__attribute__((ms_abi))");
    }
    build
        .args(["-O1", "-fno-stack-protector", "-fPIE", "-static-pie", "-Wl,-z,text", "-o"])
        .arg(path("program"))
        .arg(path("main.c"))
        .arg(path("cases.s"));
    let built = execute(&mut build, tools.help);
    assert!(built.status.success(), "{}: {}", tools.compiler, String::from_utf8_lossy(&built.stderr));
    let mut command = match tools.emulator {
        None => Command::new(path("program")),
        Some(emulator) => {
            let mut command = Command::new(emulator[0]);
            command.args(&emulator[1..]).arg(path("program"));
            command
        }
    };
    let ran = execute(command.arg(path("input")).arg(path("output")), tools.help);
    let outcomes = outcomes(&path("output"), cases);
    let failed = cases.get(outcomes.len()).map_or("none", |case| &case.name);
    let message = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{} for {}: in {failed}: {}: {message}", target.name(), cpu.name, ran.status);
    for ((case, code), (_, used)) in cases.iter().zip(&code).zip(&outcomes) {
        // The caller gives functions of Windows room for the arguments that are passed in registers.
        let home_bytes = if cpu.windows_abi { 32 } else { 0 };
        let stated = home_bytes + code.iter().map(|code| code.stack_bytes).sum::<u32>();
        assert!(*used <= stated, "{} for {}: {} took {used} bytes of stack, not {stated}", target.name(), cpu.name, case.name);
    }
    outcomes.into_iter().map(|(outcome, _)| outcome).collect()
}

/// All kernels and their data as the assembler's text, and a table of those that are run.
fn assembly(cases: &[Case], code: &[Vec<Code>]) -> String {
    let mut text = String::from(".text\n");
    let mut table = String::from(".section .data.rel.ro,\"aw\"\n.balign 8\n.globl case_table\ncase_table:\n");
    for (index, case) in cases.iter().enumerate() {
        writeln!(table, ".quad case{index}_{}", case.kernels[0].name).expect("strings take every text");
        for (kernel, code) in case.kernels.iter().zip(&code[index]) {
            writeln!(text, ".balign {}\ncase{index}_{}:", code.align_bytes, kernel.name).expect("strings take every text");
            for reloc in &code.relocs {
                let kind = match reloc.kind {
                    RelocKind::X86Call4 => "R_X86_64_PLT32",
                    RelocKind::X86PcRel4 => "R_X86_64_PC32",
                    RelocKind::Aarch64Call26 => "R_AARCH64_CALL26",
                    RelocKind::Aarch64AdrPage21 => "R_AARCH64_ADR_PREL_PG_HI21",
                    RelocKind::Aarch64AddLo12 => "R_AARCH64_ADD_ABS_LO12_NC",
                };
                let (offset, symbol, addend) = (reloc.offset, &reloc.symbol, reloc.addend);
                writeln!(text, ".reloc . + {offset}, {kind}, case{index}_{symbol} + {addend}").expect("strings take every text");
            }
            write_bytes(&mut text, &code.bytes);
        }
        for (symbol, bytes) in &case.data {
            writeln!(text, ".section .rodata\n.balign 64\ncase{index}_{symbol}:").expect("strings take every text");
            write_bytes(&mut text, bytes);
            text.push_str(".text\n");
        }
    }
    text + &table + ".section .note.GNU-stack,\"\",%progbits\n"
}

fn write_bytes(text: &mut String, bytes: &[u8]) {
    for chunk in bytes.chunks(32) {
        let list: Vec<_> = chunk.iter().map(u8::to_string).collect();
        writeln!(text, ".byte {}", list.join(",")).expect("strings take every text");
    }
}

/// For each case its number of buffers, begin and end, and for each buffer its size, alignment and bytes; numbers have 8 bytes.
fn input(cases: &[Case]) -> Vec<u8> {
    let mut bytes = (cases.len() as u64).to_le_bytes().to_vec();
    for case in cases {
        let header = [case.buffers.len() as i64, case.begin, case.end];
        bytes.extend(header.iter().flat_map(|number| number.to_le_bytes()));
        for buffer in &case.buffers {
            bytes.extend([buffer.bytes.len(), buffer.align_bytes].iter().flat_map(|&number| (number as u64).to_le_bytes()));
            bytes.extend(&buffer.bytes);
        }
    }
    bytes
}

/// Of the cases that ran to their end, with the bytes of stack that they took.
fn outcomes(path: &Path, cases: &[Case]) -> Vec<(Outcome, u32)> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let mut rest = bytes.as_slice();
    let mut outcomes = Vec::new();
    for case in cases {
        let size = 8 + case.buffers.iter().map(|buffer| buffer.bytes.len()).sum::<usize>();
        let Some((own, more)) = rest.split_at_checked(size) else { break };
        rest = more;
        let (header, mut held) = own.split_at(8);
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let mut buffers = Vec::new();
        for buffer in &case.buffers {
            let (own, more) = held.split_at(buffer.bytes.len());
            buffers.push(own.to_vec());
            held = more;
        }
        // What a kernel without a result leaves in the register is nothing.
        let status = if case.kernels[0].result.is_some() { word(0) as i32 } else { 0 };
        outcomes.push((Outcome { status, buffers }, word(4)));
    }
    outcomes
}
