//! Every form of instruction against the disassembler of binutils.

use std::process::Command;

use mcc_support::random::Random;

use super::vector as v;
use super::vector::Shape;
use super::*;

/// Instructions with what they are meant to be.
struct Forms {
    random: Random,
    list: Vec<(u32, String)>,
}

impl Forms {
    /// Several choices of registers. In the text, `{x0}` is the general register whose field begins at bit 0, `p` is one where 31
    /// is the stack pointer, `{w5}` one of 32 bits, and `b`, `h`, `s`, `d`, `q`, `v` are vector registers.
    fn add(&mut self, word: u32, text: impl AsRef<str>) {
        for round in 0..4 {
            let mut word = word;
            let mut out = String::new();
            let mut rest = text.as_ref();
            let mut taken = Vec::new();
            while let Some((before, after)) = rest.split_once('{') {
                let (field, after) = after.split_once('}').expect("fields end");
                let (kind, shift) = field.split_at(1);
                let shift: u32 = shift.parse().expect("fields have a place");
                // No base that is also loaded, which would be unpredictable.
                let number = loop {
                    let number = if round == 0 { 31 } else { self.random.below(32) as u32 };
                    if round == 0 || !taken.contains(&number) {
                        break number;
                    }
                };
                // Where all are 31 for a pair or a base that is moved, the meaning is not defined; others stay.
                let number = if round == 0 && !taken.is_empty() { 30 - taken.len() as u32 } else { number };
                taken.push(number);
                word |= number << shift;
                out += before;
                out += &match (kind, number) {
                    ("x", 31) => "xzr".to_string(),
                    ("w", 31) => "wzr".to_string(),
                    ("p", 31) => "sp".to_string(),
                    ("p", _) => format!("x{number}"),
                    _ => format!("{kind}{number}"),
                };
                rest = after;
            }
            self.list.push((word, out + rest));
        }
    }

    fn check(&self) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("code");
        let bytes: Vec<u8> = self.list.iter().flat_map(|(word, _)| word.to_le_bytes()).collect();
        std::fs::write(&path, bytes).expect("the temporary folder is writable");
        let args = ["-D", "-z", "-b", "binary", "-m", "aarch64", "-M", "no-aliases"];
        let out = Command::new("aarch64-linux-gnu-objdump").args(args).arg(&path).output();
        let out =
            out.unwrap_or_else(|error| panic!("objdump: {error}; to install it: apt-get install binutils-aarch64-linux-gnu"));
        let text = String::from_utf8(out.stdout).expect("objdump writes text");
        let lines: Vec<_> = text.lines().filter(|line| line.split('\t').count() >= 3).collect();
        assert_eq!(lines.len(), self.list.len(), "objdump does not list every instruction");
        let faults: Vec<_> = lines
            .iter()
            .zip(&self.list)
            .filter_map(|(line, (word, meant))| {
                let found: Vec<_> = line.split('\t').skip(2).collect();
                let found = found.join(" ");
                // Comments and the numbers of a branch's target beside its symbol.
                let found = found.split("//").next().unwrap_or_default().trim().to_string();
                (found != *meant).then(|| format!("{word:08x} is '{found}', not '{meant}'"))
            })
            .collect();
        assert!(
            faults.is_empty(),
            "{} of {} differ\n{}",
            faults.len(),
            self.list.len(),
            faults[..faults.len().min(40)].join("\n")
        );
    }
}

const WIDTHS: [(Width, char, u32); 2] = [(Width::W, 'w', 32), (Width::X, 'x', 64)];

fn shapes() -> impl Iterator<Item = (Shape, String)> {
    (0..4)
        .flat_map(|size| [false, true].map(|is_full| Shape { size, is_full }))
        .filter(|shape| shape.size < 3 || shape.is_full)
        .map(|shape| {
            let bits = if shape.is_full { 128 } else { 64 };
            (shape, format!("{}{}", bits / shape.lane_bits(), ['b', 'h', 's', 'd'][shape.size as usize]))
        })
}

fn general_forms(forms: &mut Forms) {
    let shifted_ops = [
        (ADD, "add"),
        (ADDS, "adds"),
        (SUB, "sub"),
        (SUBS, "subs"),
        (AND, "and"),
        (BIC, "bic"),
        (ORR, "orr"),
        (ORN, "orn"),
        (EOR, "eor"),
        (ANDS, "ands"),
    ];
    for (width, r, count) in WIDTHS {
        for (op, name) in shifted_ops {
            forms.add(shifted(op, width, Shift::Lsl, 0), format!("{name} {{{r}0}}, {{{r}5}}, {{{r}16}}"));
            for (shift, shift_name) in [(Shift::Lsl, "lsl"), (Shift::Lsr, "lsr"), (Shift::Asr, "asr")] {
                for amount in [1, 7, count - 1] {
                    let text = format!("{name} {{{r}0}}, {{{r}5}}, {{{r}16}}, {shift_name} #{amount}");
                    forms.add(shifted(op, width, shift, amount), text);
                }
            }
        }
        for (op, name) in [(SDIV, "sdiv"), (UDIV, "udiv"), (LSLV, "lslv"), (LSRV, "lsrv"), (ASRV, "asrv")] {
            forms.add(general(op, width), format!("{name} {{{r}0}}, {{{r}5}}, {{{r}16}}"));
        }
        for (op, name) in [(MADD, "madd"), (MSUB, "msub")] {
            forms.add(general(op, width), format!("{name} {{{r}0}}, {{{r}5}}, {{{r}16}}, {{{r}10}}"));
        }
        for (op, name) in [(MOVZ, "movz"), (MOVN, "movn"), (MOVK, "movk")] {
            for quarter in 0..count / 16 {
                let place = if quarter == 0 { String::new() } else { format!(", lsl #{}", 16 * quarter) };
                forms.add(mov_wide(op, width, 0xBEEF, quarter), format!("{name} {{{r}0}}, #0xbeef{place}"));
            }
        }
        for low in [0, 3, 8, count - 1] {
            for high in [7, 15, 20, count - 1].into_iter().filter(|&high| high >= low) {
                for (is_signed, name) in [(true, "sbfm"), (false, "ubfm")] {
                    forms.add(bits(is_signed, width, low, high), format!("{name} {{{r}0}}, {{{r}5}}, #{low}, #{high}"));
                }
            }
        }
        for amount in [0, 1, 5, count - 1] {
            let (immr, imms) = ((count - amount) % count, count - 1 - amount);
            forms.add(lsl_imm(width, amount), format!("ubfm {{{r}0}}, {{{r}5}}, #{immr}, #{imms}"));
            forms.add(shr_imm(true, width, amount), format!("sbfm {{{r}0}}, {{{r}5}}, #{amount}, #{}", count - 1));
        }
        for (condition, name) in CONDITIONS {
            forms.add(csel(width, condition), format!("csel {{{r}0}}, {{{r}5}}, {{{r}16}}, {name}"));
            forms.add(csneg(width, condition), format!("csneg {{{r}0}}, {{{r}5}}, {{{r}16}}, {name}"));
        }
        immediates(forms, width, r);
    }
    for (condition, (_, inverted)) in CONDITIONS.iter().zip(INVERTED) {
        forms.add(cset(condition.0), format!("csinc {{w0}}, wzr, wzr, {inverted}"));
    }
    for (extend, name, r) in [(Extend::Uxtw, "uxtw", 'w'), (Extend::Sxtw, "sxtw", 'w')] {
        for amount in 1..=4 {
            forms.add(add_extended(false, extend, amount), format!("add {{p0}}, {{p5}}, {{{r}16}}, {name} #{amount}"));
            forms.add(add_extended(true, extend, amount), format!("sub {{p0}}, {{p5}}, {{{r}16}}, {name} #{amount}"));
        }
    }
    forms.add(add_extended(false, Extend::Lsl, 3) | 31 << RN, "add {p0}, sp, {x16}, lsl #3");
}

const CONDITIONS: [(Flags, &str); 11] = [
    (Flags::Eq, "eq"),
    (Flags::Ne, "ne"),
    (Flags::Hs, "cs"),
    (Flags::Lo, "cc"),
    (Flags::Mi, "mi"),
    (Flags::Hi, "hi"),
    (Flags::Ls, "ls"),
    (Flags::Ge, "ge"),
    (Flags::Lt, "lt"),
    (Flags::Gt, "gt"),
    (Flags::Le, "le"),
];
const INVERTED: [(Flags, &str); 11] = [
    (Flags::Eq, "ne"),
    (Flags::Ne, "eq"),
    (Flags::Hs, "cc"),
    (Flags::Lo, "cs"),
    (Flags::Mi, "pl"),
    (Flags::Hi, "ls"),
    (Flags::Ls, "hi"),
    (Flags::Ge, "lt"),
    (Flags::Lt, "ge"),
    (Flags::Gt, "le"),
    (Flags::Le, "gt"),
];

fn immediates(forms: &mut Forms, width: Width, r: char) {
    for (op, name) in [(ADD, "add"), (SUB, "sub")] {
        for value in [0, 1, 0xFFF, 0x123] {
            let word = add_imm(op, width, value).expect("it fits");
            let p = if width == Width::X { 'p' } else { r };
            if width == Width::X {
                forms.add(word, format!("{name} {{{p}0}}, {{{p}5}}, #0x{value:x}"));
            } else {
                forms.add(word | 3 | 4 << RN, format!("{name} w3, w4, #0x{value:x}"));
            }
        }
        let word = add_imm(op, width, 0x45_6000).expect("it fits");
        forms.add(word | 3 | 4 << RN, format!("{name} {r}3, {r}4, #0x456, lsl #12"));
    }
    for (op, name) in [(ADDS, "adds"), (SUBS, "subs")] {
        let word = add_imm(op, width, 77).expect("it fits");
        forms.add(word | 4 << RN, format!("{name} {{{r}0}}, {r}4, #0x4d"));
    }
    assert_eq!(add_imm(ADD, width, 0x1001), None);
    assert_eq!(add_imm(ADD, width, 1 << 24), None);
    let mask = if width == Width::W { 0xFFFF_FFFF } else { u64::MAX };
    let values = [
        0x1, 0xFF, 0xFF00, 0x7FFF_FFFF, 0x8000_0000, 0x5555_5555_5555_5555, 0xF0F0_F0F0_F0F0_F0F0, 0x8000_0000_0000_0001,
        0xFFFF_FFFF_FFFF_FFFE, 0x00FF_FFFF_0000_0000, 0x0001_8000_0001_8000, 0x7FFF_FFFF_FFFF_FFFF,
    ];
    for value in values {
        for (op, name) in [(AND, "and"), (ORR, "orr"), (EOR, "eor"), (ANDS, "ands")] {
            if let Some(word) = logical_imm(op, width, value & mask) {
                forms.add(word | 2 | 4 << RN, format!("{name} {r}2, {r}4, #0x{:x}", value & mask));
            }
        }
    }
    for value in [0, mask, 0x5, 0x1234_5678, 0x0F00_0F0F] {
        assert_eq!(logical_imm(AND, width, value), None, "{value:x}");
    }
    let count = (0..4096u64).filter(|&value| logical_imm(AND, width, value).is_some()).count();
    // The runs of ones within 12 bits, without zero.
    assert_eq!(count, 78);
}

fn branch_forms(forms: &mut Forms) {
    // Displacements are from the instruction; the listing has the target.
    let list: [(u32, &str); 8] = [
        (B, "b "),
        (BL, "bl "),
        (b_cond(Flags::Ne as u32), "b.ne "),
        (cbz(false, Width::W), "cbz {w0}, "),
        (cbz(true, Width::X), "cbnz {x0}, "),
        (tbz(false, 5), "tbz {w0}, #5, "),
        (tbz(true, 40), "tbnz {x0}, #40, "),
        (ADR, "adr {x0}, "),
    ];
    for (word, text) in list {
        for displacement in [-16, 8, 32764, -32768] {
            if (4 * forms.list.len() as i64 + displacement) < 0 {
                continue;
            }
            for _ in 0..2 {
                let target = 4 * forms.list.len() as i64 + displacement;
                let number = forms.random.below(31) as u32;
                let register = if word == B || word == BL || text.starts_with("b.") { 0 } else { number };
                let text = text.replace("{w0}", &format!("w{number}")).replace("{x0}", &format!("x{number}"));
                let meant = format!("{text}0x{target:x}");
                forms.list.push((with_displacement(word, displacement) | register, meant));
            }
        }
    }
    forms.add(BLR, "blr {x5}");
    forms.list.push((RET, "ret".to_string()));
}

fn accesses() -> Vec<(Access, String, char)> {
    let mut list = Vec::new();
    for is_load in [true, false] {
        let op = if is_load { "ld" } else { "st" };
        for log2_bytes in 0..4 {
            let suffix = ["b", "h", "", ""][log2_bytes as usize];
            let register = if log2_bytes == 3 { 'x' } else { 'w' };
            list.push((Access { log2_bytes, is_vector: false, is_load }, format!("{op}*r{suffix}"), register));
        }
        for log2_bytes in 0..5 {
            let register = ['b', 'h', 's', 'd', 'q'][log2_bytes as usize];
            list.push((Access { log2_bytes, is_vector: true, is_load }, format!("{op}*r"), register));
        }
    }
    list
}

fn memory_forms(forms: &mut Forms) {
    for (access, name, r) in accesses() {
        let (scaled, unscaled) = (name.replace('*', ""), name.replace('*', "u"));
        let bytes = access.bytes();
        forms.add(access.at(0).expect("it fits"), format!("{scaled} {{{r}0}}, [{{p5}}]"));
        for units in [1, 17, 4095] {
            forms.add(access.at(units * bytes).expect("it fits"), format!("{scaled} {{{r}0}}, [{{p5}}, #{}]", units * bytes));
        }
        for displacement in [-256, -1, -bytes] {
            forms.add(access.at(displacement).expect("it fits"), format!("{unscaled} {{{r}0}}, [{{p5}}, #{displacement}]"));
        }
        if bytes > 1 {
            forms.add(access.at(bytes - 1).expect("it fits"), format!("{unscaled} {{{r}0}}, [{{p5}}, #{}]", bytes - 1));
        }
        assert_eq!(access.at(4096 * bytes), None);
        assert_eq!(access.at(-257), None);
        for step in [-256, 255, 16] {
            forms.add(access.post_index(step).expect("it fits"), format!("{scaled} {{{r}0}}, [{{p5}}], #{step}"));
        }
        forms.add(access.indexed(Extend::Lsl, false), format!("{scaled} {{{r}0}}, [{{p5}}, {{x16}}]"));
        if bytes > 1 {
            let amount = access.log2_bytes;
            forms.add(access.indexed(Extend::Lsl, true), format!("{scaled} {{{r}0}}, [{{p5}}, {{x16}}, lsl #{amount}]"));
            forms.add(access.indexed(Extend::Sxtw, true), format!("{scaled} {{{r}0}}, [{{p5}}, {{w16}}, sxtw #{amount}]"));
        }
        if access.log2_bytes >= 2 {
            let name = if access.is_load { "ldp" } else { "stp" };
            let pair = |displacement, mode| access.pair(displacement, mode).expect("it fits");
            for units in [-64, 1, 63] {
                let at = units * bytes;
                forms.add(pair(at, PairMode::Offset), format!("{name} {{{r}0}}, {{{r}10}}, [{{p5}}, #{at}]"));
                forms.add(pair(at, PairMode::PostIndex), format!("{name} {{{r}0}}, {{{r}10}}, [{{p5}}], #{at}"));
                forms.add(pair(at, PairMode::PreIndex), format!("{name} {{{r}0}}, {{{r}10}}, [{{p5}}, #{at}]!"));
            }
            forms.add(pair(0, PairMode::Offset), format!("{name} {{{r}0}}, {{{r}10}}, [{{p5}}]"));
            assert_eq!(access.pair(64 * bytes, PairMode::Offset), None);
            assert_eq!(access.pair(bytes / 2, PairMode::Offset), None);
            if access.is_load {
                let number = forms.random.below(32) as u32;
                let register = if number == 31 && !access.is_vector { "zr".to_string() } else { number.to_string() };
                let here = 4 * forms.list.len() as i64;
                let word = with_displacement(access.literal(), 1024) | number;
                forms.list.push((word, format!("ldr {r}{register}, 0x{:x}", here + 1024)));
            }
        }
    }
    forms.add(prefetch(0).expect("it fits"), "prfm pldl1keep, [{p5}]");
    forms.add(prefetch(4096).expect("it fits"), "prfm pldl1keep, [{p5}, #4096]");
    forms.add(prefetch(-64).expect("it fits"), "prfum pldl1keep, [{p5}, #-64]");
    for (shape, name) in shapes() {
        forms.add(v::ld1r(shape), format!("ld1r <{{v0}}.{name}>, [{{p5}}]"));
        forms.add(v::ld1(true, shape.size, shape.is_full), format!("ld1 <{{v0}}.{name}>, [{{p5}}]"));
        forms.add(v::ld1(false, shape.size, shape.is_full), format!("st1 <{{v0}}.{name}>, [{{p5}}]"));
    }
}

const INTS: [(u32, &str); 16] = [
    (v::ADD, "add"),
    (v::SUB, "sub"),
    (v::SSHL, "sshl"),
    (v::USHL, "ushl"),
    (v::CMEQ, "cmeq"),
    (v::CMTST, "cmtst"),
    (v::CMGT, "cmgt"),
    (v::CMGE, "cmge"),
    (v::CMHI, "cmhi"),
    (v::CMHS, "cmhs"),
    (v::ZIP1, "zip1"),
    (v::ZIP2, "zip2"),
    (v::UZP1, "uzp1"),
    (v::UZP2, "uzp2"),
    (v::TRN1, "trn1"),
    (v::TRN2, "trn2"),
];
const NARROW: [(u32, &str); 7] = [
    (v::MUL, "mul"),
    (v::MLA, "mla"),
    (v::MLS, "mls"),
    (v::SMAX, "smax"),
    (v::UMAX, "umax"),
    (v::SMIN, "smin"),
    (v::UMIN, "umin"),
];

fn vector_forms(forms: &mut Forms) {
    for (shape, a) in shapes() {
        let more = if shape.size < 3 { &NARROW[..] } else { &[] };
        for &(op, name) in INTS.iter().chain(more) {
            forms.add(v::vector(op, shape), format!("{name} {{v0}}.{a}, {{v5}}.{a}, {{v16}}.{a}"));
        }
        for (op, name, end) in
            [(v::NEG, "neg", ""), (v::ABS, "abs", ""), (v::CMEQ_ZERO, "cmeq", ", #0"), (v::CMLT_ZERO, "cmlt", ", #0")]
        {
            forms.add(v::vector(op, shape), format!("{name} {{v0}}.{a}, {{v5}}.{a}{end}"));
        }
        for amount in [1, 3, shape.lane_bits() - 1] {
            for (op, name) in [(v::SHL, "shl"), (v::SSHR, "sshr"), (v::USHR, "ushr")] {
                forms.add(v::shift(op, shape, amount), format!("{name} {{v0}}.{a}, {{v5}}.{a}, #{amount}"));
            }
        }
        let letter = ['b', 'h', 's', 'd'][shape.size as usize];
        let general = if shape.size == 3 { 'x' } else { 'w' };
        forms.add(v::dup_general(shape), format!("dup {{v0}}.{a}, {{{general}5}}"));
        for lane in [0, 1, (16 >> shape.size) - 1] {
            forms.add(v::dup(shape, lane), format!("dup {{v0}}.{a}, {{v5}}.{letter}[{lane}]"));
            forms.add(v::umov(shape.size, lane), format!("umov {{{general}0}}, {{v5}}.{letter}[{lane}]"));
            forms.add(v::ins_general(shape.size, lane), format!("ins {{v0}}.{letter}[{lane}], {{{general}5}}"));
            forms.add(v::ins(shape.size, 1, lane), format!("ins {{v0}}.{letter}[1], {{v5}}.{letter}[{lane}]"));
            forms.add(v::scalar_from(shape.size, lane), format!("dup {{{letter}0}}, {{v5}}.{letter}[{lane}]"));
            for (is_load, name) in [(true, "ld1"), (false, "st1")] {
                let text = format!("{name} <{{v0}}.{letter}>[{lane}], [{{p5}}]");
                forms.add(v::ld1_lane(is_load, shape.size, lane), text);
            }
        }
        if shape.size < 2 || shape.size == 2 && shape.is_full {
            forms.add(v::vector(v::ADDV, shape), format!("addv {{{letter}0}}, {{v5}}.{a}"));
        }
        if shape.size < 3 {
            let wide = ["8h", "4s", "2d"][shape.size as usize];
            let two = if shape.is_full { "2" } else { "" };
            forms.add(v::vector(v::XTN, shape), format!("xtn{two} {{v0}}.{a}, {{v5}}.{wide}"));
        }
    }
    let bits = [
        (v::AND, "and"),
        (v::BIC, "bic"),
        (v::ORR, "orr"),
        (v::ORN, "orn"),
        (v::EOR, "eor"),
        (v::BSL, "bsl"),
        (v::BIT, "bit"),
        (v::BIF, "bif"),
    ];
    for (is_full, a) in [(false, "8b"), (true, "16b")] {
        for (op, name) in bits {
            forms.add(v::bits_vector(op, is_full), format!("{name} {{v0}}.{a}, {{v5}}.{a}, {{v16}}.{a}"));
        }
        forms.add(v::bits_vector(v::NOT, is_full), format!("not {{v0}}.{a}, {{v5}}.{a}"));
        forms.add(v::ext(is_full, 4), format!("ext {{v0}}.{a}, {{v5}}.{a}, {{v16}}.{a}, #4"));
    }
}

const FLOATS_THREE: [(u32, &str); 12] = [
    (v::FADD, "fadd"),
    (v::FSUB, "fsub"),
    (v::FMUL, "fmul"),
    (v::FDIV, "fdiv"),
    (v::FMLA, "fmla"),
    (v::FMLS, "fmls"),
    (v::FCMEQ, "fcmeq"),
    (v::FCMGE, "fcmge"),
    (v::FCMGT, "fcmgt"),
    (v::FADDP, "faddp"),
    (v::FMAX, "fmax"),
    (v::FMIN, "fmin"),
];
const FLOATS_TWO: [(u32, &str, &str); 13] = [
    (v::FABS, "fabs", ""),
    (v::FNEG, "fneg", ""),
    (v::FSQRT, "fsqrt", ""),
    (v::FRINTN, "frintn", ""),
    (v::FRINTM, "frintm", ""),
    (v::FRINTP, "frintp", ""),
    (v::FRINTZ, "frintz", ""),
    (v::SCVTF, "scvtf", ""),
    (v::UCVTF, "ucvtf", ""),
    (v::FCVTZS, "fcvtzs", ""),
    (v::FCVTZU, "fcvtzu", ""),
    (v::FCMGT_ZERO, "fcmgt", ", #0.0"),
    (v::FCMLT_ZERO, "fcmlt", ", #0.0"),
];

fn float_forms(forms: &mut Forms) {
    for (shape, a) in shapes().filter(|(shape, _)| shape.size >= 2) {
        let letter = ['s', 'd'][shape.size as usize - 2];
        for (op, name) in FLOATS_THREE {
            forms.add(v::float_vector(op, shape), format!("{name} {{v0}}.{a}, {{v5}}.{a}, {{v16}}.{a}"));
        }
        for (op, name, end) in FLOATS_TWO {
            forms.add(v::float_vector(op, shape), format!("{name} {{v0}}.{a}, {{v5}}.{a}{end}"));
        }
        let lanes =
            [(v::FMLA_LANE, "fmla"), (v::FMLS_LANE, "fmls"), (v::FMUL_LANE, "fmul"), (v::MLA_LANE, "mla"), (v::MUL_LANE, "mul")];
        for (op, name) in lanes.into_iter().filter(|(_, name)| shape.size == 2 || name.starts_with('f')) {
            for lane in 0..16 >> shape.size {
                let text = format!("{name} {{v0}}.{a}, {{v5}}.{a}, {{v16}}.{letter}[{lane}]");
                forms.add(v::by_lane(op, shape, lane), text);
            }
        }
    }
    scalar_float_forms(forms);
}

fn scalar_float_forms(forms: &mut Forms) {
    for (is_double, r) in [(false, 's'), (true, 'd')] {
        for (op, name) in [
            (v::S_FADD, "fadd"),
            (v::S_FSUB, "fsub"),
            (v::S_FMUL, "fmul"),
            (v::S_FDIV, "fdiv"),
            (v::S_FMAX, "fmax"),
            (v::S_FMIN, "fmin"),
        ] {
            forms.add(v::float(op, is_double), format!("{name} {{{r}0}}, {{{r}5}}, {{{r}16}}"));
        }
        let one = [
            (v::S_FABS, "fabs"),
            (v::S_FNEG, "fneg"),
            (v::S_FSQRT, "fsqrt"),
            (v::S_FRINTN, "frintn"),
            (v::S_FRINTP, "frintp"),
            (v::S_FRINTM, "frintm"),
            (v::S_FRINTZ, "frintz"),
            (v::S_FMOV, "fmov"),
        ];
        for (op, name) in one {
            forms.add(v::float(op, is_double), format!("{name} {{{r}0}}, {{{r}5}}"));
        }
        forms.add(v::float(v::S_FMADD, is_double), format!("fmadd {{{r}0}}, {{{r}5}}, {{{r}16}}, {{{r}10}}"));
        forms.add(v::float(v::S_FCMP, is_double), format!("fcmp {{{r}5}}, {{{r}16}}"));
        for (condition, name) in CONDITIONS {
            forms.add(v::fcsel(is_double, condition), format!("fcsel {{{r}0}}, {{{r}5}}, {{{r}16}}, {name}"));
        }
        for (is_wide, g) in [(false, 'w'), (true, 'x')] {
            for (op, name) in [(v::G_FCVTZS, "fcvtzs"), (v::G_FCVTZU, "fcvtzu")] {
                forms.add(v::convert(op, is_wide, is_double), format!("{name} {{{g}0}}, {{{r}5}}"));
            }
            for (op, name) in [(v::G_SCVTF, "scvtf"), (v::G_UCVTF, "ucvtf")] {
                forms.add(v::convert(op, is_wide, is_double), format!("{name} {{{r}0}}, {{{g}5}}"));
            }
        }
        let g = if is_double { 'x' } else { 'w' };
        forms.add(v::convert(v::G_FROM_GENERAL, is_double, is_double), format!("fmov {{{r}0}}, {{{g}5}}"));
        forms.add(v::convert(v::G_TO_GENERAL, is_double, is_double), format!("fmov {{{g}0}}, {{{r}5}}"));
    }
    forms.add(v::S_FCVT_UP, "fcvt {d0}, {s5}");
    forms.add(v::S_FCVT_DOWN, "fcvt {s0}, {d5}");
}

fn constant_forms(forms: &mut Forms) {
    // Each with its size and how it is written.
    let vectors: [(u32, u64, &str); 15] = [
        (0, 0xA5, "movi {v0}.16b, #0xa5"),
        (2, 0, "movi {v0}.16b, #0x0"),
        (1, 0x0012, "movi {v0}.8h, #0x12"),
        (1, 0x1200, "movi {v0}.8h, #0x12, lsl #8"),
        (1, 0xFFED, "mvni {v0}.8h, #0x12"),
        (2, 0x1, "movi {v0}.4s, #0x1"),
        (2, 0x0080_0000, "movi {v0}.4s, #0x80, lsl #16"),
        (2, 0x8000_0000, "movi {v0}.4s, #0x80, lsl #24"),
        (2, 0x7FFF_FFFF, "mvni {v0}.4s, #0x80, lsl #24"),
        (2, 0x0012_FFFF, "movi {v0}.4s, #0x12, msl #16"),
        (2, 0xFFFF_ED00, "mvni {v0}.4s, #0x12, msl #8"),
        (3, 0xFF00_00FF_FF00_FF00, "movi {v0}.2d, #0xff0000ffff00ff00"),
        (2, 0x3F80_0000, "fmov {v0}.4s, #1.000000000000000000e+00"),
        (2, 0xC0B0_0000, "fmov {v0}.4s, #-5.500000000000000000e+00"),
        (3, 0x3FD0_0000_0000_0000, "fmov {v0}.2d, #2.500000000000000000e-01"),
    ];
    for (size, bits, text) in vectors {
        forms.add(v::constant(true, size, bits).unwrap_or_else(|| panic!("{text}")), text);
    }
    for (size, bits) in [(2, 0x1234_5678), (2, 0x3F81_2345), (3, 1), (1, 0x1234), (3, 0x3FF1_2345_0000_0000)] {
        assert_eq!(v::constant(true, size, bits), None, "{bits:x}");
    }
    for value in [1.0f32, -2.0, 0.5, 31.0, 0.125, -1.9375] {
        let bits = u64::from(value.to_bits());
        forms.add(
            v::float_constant(false, bits).expect("it fits"),
            format!("fmov {{s0}}, #{value:.18e}").replace("e0", "e+00").replace("e1", "e+01").replace("e-1", "e-01"),
        );
        let double = f64::from(value);
        forms.add(
            v::float_constant(true, double.to_bits()).expect("it fits"),
            format!("fmov {{d0}}, #{double:.18e}").replace("e0", "e+00").replace("e1", "e+01").replace("e-1", "e-01"),
        );
    }
    for value in [0.0f32, 0.1, 32.0, 0.0625, f32::INFINITY] {
        assert_eq!(v::float_constant(false, u64::from(value.to_bits())), None, "{value}");
    }
}

#[test]
fn instructions_are_what_the_disassembler_says() {
    let mut forms = Forms { random: Random::new(1), list: Vec::new() };
    general_forms(&mut forms);
    memory_forms(&mut forms);
    vector_forms(&mut forms);
    float_forms(&mut forms);
    constant_forms(&mut forms);
    branch_forms(&mut forms);
    for (_, text) in &mut forms.list {
        *text = text.replace('<', "{").replace('>', "}");
    }
    assert!(forms.list.len() > 2000);
    forms.check();
}
