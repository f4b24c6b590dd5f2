//! What an instruction does, read off its text.

use mcc_kernel::Arch;

/// What an instruction is there for. One that computes with an operand in memory is not a `Load`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Multiply-adds and dot products.
    Fma,
    Load,
    Store,
    /// Between registers.
    Move,
    Branch,
    Other,
}

impl Class {
    pub const ALL: [Class; 6] = [Class::Fma, Class::Load, Class::Store, Class::Move, Class::Branch, Class::Other];

    pub fn name(self) -> &'static str {
        match self {
            Class::Fma => "fma",
            Class::Load => "load",
            Class::Store => "store",
            Class::Move => "move",
            Class::Branch => "branch",
            Class::Other => "other",
        }
    }
}

/// What the text of an instruction at `offset` tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meaning {
    pub class: Class,
    /// Whether it reads memory, whatever its class.
    pub reads_memory: bool,
    /// Where it may go on, in the same function.
    pub jumps_to: Option<usize>,
}

pub(crate) fn meaning(arch: Arch, text: &str, offset: usize) -> Meaning {
    let (mnemonic, rest) = text.split_once(' ').unwrap_or((text, ""));
    let operands = operands(rest);
    match arch {
        Arch::X86_64 => x86_64(mnemonic, &operands),
        Arch::Aarch64 => aarch64(mnemonic, &operands, offset),
    }
}

/// Operands in order; commas in brackets belong to an operand.
fn operands(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(text[start..].trim());
    found.retain(|operand| !operand.is_empty());
    found
}

/// The destination comes last.
fn x86_64(mnemonic: &str, operands: &[&str]) -> Meaning {
    let is_memory = |operand: &&str| operand.contains('(');
    let has = |starts: &[&str]| starts.iter().any(|start| mnemonic.starts_with(start));
    let plain = mnemonic.strip_prefix('v').unwrap_or(mnemonic);
    let none = Meaning { class: Class::Other, reads_memory: false, jumps_to: None };
    if has(&["j"]) {
        let target = operands.first().and_then(|target| usize::from_str_radix(target.strip_prefix("0x")?, 16).ok());
        return Meaning { class: Class::Branch, jumps_to: target, ..none };
    }
    if has(&["call", "ret"]) {
        return Meaning { class: Class::Branch, ..none };
    }
    if has(&["lea", "nop", "prefetch"]) {
        return none;
    }
    let only_reads = has(&["cmp", "test", "ucomis", "vucomis", "comis", "vcomis", "push"]);
    let stores = operands.last().is_some_and(is_memory) && !only_reads || mnemonic == "push";
    let reads_memory = operands.iter().rev().skip(usize::from(stores)).any(is_memory)
        || mnemonic == "pop"
        || only_reads && operands.iter().any(is_memory);
    let is_move = ["mov", "movl", "movq", "movd"].contains(&plain)
        || ["movap", "movup", "movdq", "kmov", "movs", "movz"].iter().any(|start| plain.starts_with(start))
            && !plain.starts_with("movsh")
            && !plain.starts_with("movsl");
    let class = if ["fmadd", "fmsub", "fnmadd", "fnmsub", "pdp"].iter().any(|start| plain.starts_with(start)) {
        Class::Fma
    } else if stores {
        Class::Store
    } else if reads_memory && (is_move || mnemonic == "pop" || plain.starts_with("broadcast") || plain.starts_with("pbroadcast"))
    {
        Class::Load
    } else if is_move && operands.iter().all(|operand| !operand.starts_with('$')) {
        Class::Move
    } else {
        Class::Other
    };
    Meaning { class, reads_memory, jumps_to: None }
}

fn aarch64(mnemonic: &str, operands: &[&str], offset: usize) -> Meaning {
    let none = Meaning { class: Class::Other, reads_memory: false, jumps_to: None };
    let is_branch = ["b", "cbz", "cbnz", "tbz", "tbnz"].contains(&mnemonic) || mnemonic.starts_with("b.");
    if is_branch {
        let distance = operands.last().and_then(|target| {
            let (sign, digits) = target.strip_prefix('$')?.split_once("0x")?;
            let distance = i64::from_str_radix(digits, 16).ok()?;
            Some(if sign == "-" { -distance } else { distance })
        });
        let target = distance.and_then(|distance| usize::try_from(offset as i64 + distance).ok());
        return Meaning { class: Class::Branch, jumps_to: target, ..none };
    }
    let fma =
        ["fmla", "fmls", "fmadd", "fmsub", "fnmadd", "fnmsub", "mla", "mls", "sdot", "udot", "usdot", "smmla", "ummla", "bfmmla"];
    let class = match mnemonic {
        "bl" | "blr" | "br" | "ret" => Class::Branch,
        "mov" | "fmov" if operands.iter().all(|operand| !operand.starts_with('#')) => Class::Move,
        _ if fma.contains(&mnemonic) => Class::Fma,
        _ if mnemonic.starts_with("ld") => Class::Load,
        _ if mnemonic.starts_with("st") => Class::Store,
        _ => Class::Other,
    };
    Meaning { class, reads_memory: class == Class::Load, jumps_to: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_what_their_text_says() {
        for (arch, text, class, reads_memory, jumps_to) in [
            (Arch::X86_64, "vfmadd231ps 0x40(%rsi,%rcx),%zmm1,%zmm2", Class::Fma, true, None),
            (Arch::X86_64, "vfmadd213ps %xmm5,%xmm2,%xmm15", Class::Fma, false, None),
            (Arch::X86_64, "vpdpbusd %zmm1,%zmm2,%zmm3", Class::Fma, false, None),
            (Arch::X86_64, "vmovups (%rdi),%ymm15", Class::Load, true, None),
            (Arch::X86_64, "vbroadcastss 4(%rdi),%ymm15", Class::Load, true, None),
            (Arch::X86_64, "vmovups %zmm0,(%rax){%k1}", Class::Store, false, None),
            (Arch::X86_64, "vmovaps %zmm0,%zmm3", Class::Move, false, None),
            (Arch::X86_64, "mov %rax,%rdi", Class::Move, false, None),
            (Arch::X86_64, "mov $0x10,%rdi", Class::Other, false, None),
            (Arch::X86_64, "vmovshdup %xmm0,%xmm3", Class::Other, false, None),
            (Arch::X86_64, "vaddps 0x10(%rsp),%ymm1,%ymm2", Class::Other, true, None),
            (Arch::X86_64, "cmp %rax,8(%rdi)", Class::Other, true, None),
            (Arch::X86_64, "lea 8(%rdi),%rax", Class::Other, false, None),
            (Arch::X86_64, "prefetcht0 0x400(%rdi)", Class::Other, false, None),
            (Arch::X86_64, "jge 0x1B5", Class::Branch, false, Some(0x1b5)),
            (Arch::X86_64, "ret", Class::Branch, false, None),
            (Arch::Aarch64, "fmla v0.4s, v0.4s, v1.s[0]", Class::Fma, false, None),
            (Arch::Aarch64, "ldp q0, q1, [x1, #0x20]", Class::Load, true, None),
            (Arch::Aarch64, "ld1r {v0.4s}, [x1]", Class::Load, true, None),
            (Arch::Aarch64, "stur q0, [sp, #0x8]", Class::Store, false, None),
            (Arch::Aarch64, "mov v1.16b, v2.16b", Class::Move, false, None),
            (Arch::Aarch64, "mov x1, #0x10", Class::Other, false, None),
            (Arch::Aarch64, "madd x1, x2, x3, x4", Class::Other, false, None),
            (Arch::Aarch64, "b.lt $-0x20", Class::Branch, false, Some(0x80)),
            (Arch::Aarch64, "tbnz w0, #0x3, $+0x8", Class::Branch, false, Some(0xa8)),
            (Arch::Aarch64, "bl $+0x0", Class::Branch, false, None),
        ] {
            assert_eq!(meaning(arch, text, 0xa0), Meaning { class, reads_memory, jumps_to }, "{text}");
        }
    }
}
