//! Machine code as text.

use std::fmt::Write as _;
use std::ops::Range;

use iced_x86::{Decoder as X86Decoder, DecoderOptions, Formatter, GasFormatter};
use mcc_kernel::{Arch, Code};
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::ARMv8;

use crate::classify::{self, Class, Meaning};

/// An instruction of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// Where its bytes are.
    pub range: Range<usize>,
    pub text: String,
    pub class: Class,
    /// Whether it reads memory, whatever its class.
    pub reads_memory: bool,
    /// Where it may go on, in the same function.
    pub jumps_to: Option<usize>,
    /// What it refers to.
    pub symbols: Vec<String>,
}

/// The instructions of a function, in their order.
pub fn instructions(arch: Arch, code: &Code) -> Vec<Instruction> {
    let decoded = match arch {
        Arch::X86_64 => x86_64(&code.bytes[..code.code_bytes as usize]),
        Arch::Aarch64 => aarch64(&code.bytes[..code.code_bytes as usize]),
    };
    let instruction = |(range, text): (Range<usize>, String)| {
        let Meaning { class, reads_memory, jumps_to } = classify::meaning(arch, &text, range.start);
        let relocs = code.relocs.iter().filter(|reloc| range.contains(&(reloc.offset as usize)));
        let symbols = relocs.map(|reloc| reloc.symbol.clone()).collect();
        Instruction { range, text, class, reads_memory, jumps_to, symbols }
    };
    decoded.into_iter().map(instruction).collect()
}

/// One line for each instruction: its offset, its bytes, the instruction, and the symbols that it refers to.
pub fn disassemble(arch: Arch, code: &Code) -> String {
    let instructions = instructions(arch, code);
    let width = instructions.iter().map(|one| one.range.len()).max().unwrap_or(0);
    let mut out = String::new();
    for Instruction { range, text, symbols, .. } in instructions {
        let bytes: String = code.bytes[range.clone()].iter().map(|byte| format!("{byte:02x}")).collect();
        let symbols = if symbols.is_empty() { String::new() } else { format!(" ; {}", symbols.join(", ")) };
        let _ = writeln!(out, "{:6x}  {bytes:width$}  {text}{symbols}", range.start, width = 2 * width);
    }
    out
}

type Decoded = Vec<(Range<usize>, String)>;

fn x86_64(bytes: &[u8]) -> Decoded {
    let mut decoder = X86Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
    let mut formatter = GasFormatter::new();
    formatter.options_mut().set_branch_leading_zeros(false);
    formatter.options_mut().set_small_hex_numbers_in_decimal(false);
    formatter.options_mut().set_rip_relative_addresses(true);
    let mut instruction = iced_x86::Instruction::default();
    let mut out = Vec::new();
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut instruction);
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        out.push((start..decoder.position(), text));
    }
    out
}

fn aarch64(bytes: &[u8]) -> Decoded {
    let decoder = <ARMv8 as yaxpeax_arch::Arch>::Decoder::default();
    let instruction = |(index, word): (usize, &[u8])| {
        let text = match decoder.decode(&mut U8Reader::new(word)) {
            Ok(instruction) => instruction.to_string(),
            // A constant among the instructions.
            Err(_) => ".word".to_string(),
        };
        (4 * index..4 * index + word.len(), text)
    };
    bytes.chunks(4).enumerate().map(instruction).collect()
}

#[cfg(test)]
mod tests {
    use mcc_kernel::{Reloc, RelocKind};

    use super::*;

    #[test]
    fn instructions_are_listed_with_their_symbols() {
        for (arch, bytes, offset, kind, expected) in [
            (
                Arch::X86_64,
                &[0xc5, 0xfc, 0x58, 0xc1, 0xe8, 0, 0, 0, 0, 0xc3][..],
                5,
                RelocKind::X86Call4,
                "     0  c5fc58c1    vaddps %ymm1,%ymm0,%ymm0\n     4  e800000000  call 0x9 ; f\n     9  c3          ret\n",
            ),
            (
                Arch::Aarch64,
                &[0x00, 0x10, 0x81, 0x4f, 0x00, 0x00, 0x00, 0x94, 0xc0, 0x03, 0x5f, 0xd6],
                4,
                RelocKind::Aarch64Call26,
                "     0  0010814f  fmla v0.4s, v0.4s, v1.s[0]\n     4  00000094  bl $+0x0 ; f\n     8  c0035fd6  ret\n",
            ),
        ] {
            let relocs = vec![Reloc { offset, kind, symbol: "f".to_string(), addend: 0 }];
            let code = Code { bytes: bytes.to_vec(), code_bytes: bytes.len() as u32, align_bytes: 16, relocs, stack_bytes: 0 };
            assert_eq!(disassemble(arch, &code), expected);
        }
    }
}
