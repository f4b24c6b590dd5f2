//! Instructions with physical registers to bytes.

use crate::rows::{Form, M0F, NP, Prefix, Row, Tuple};

/// The number of rsp where it is a base, and of "no index" where that is asked.
const RSP: u8 = 4;
const RBP: u8 = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    Reg(u8),
    /// Relative to the end of the instruction; completed later.
    Rip,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    pub base: Base,
    pub index: Option<u8>,
    /// 1, 2, 4 or 8.
    pub scale: u8,
    pub displacement: i32,
    /// One lane, for every lane of the vector.
    pub is_broadcast: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Reg(u8),
    Memory(Memory),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Imm {
    None,
    Byte(u8),
    Word(i32),
}

/// The fields of an instruction, by their names in its encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    pub row: Row,
    /// Of general registers 8 to 64, of vectors 128 to 512; 128 for scalars in vector registers.
    pub bits: u32,
    pub reg: u8,
    pub vvvv: Option<u8>,
    pub rm: Place,
    /// The mask register that an EVEX instruction is under; 0 for none.
    pub mask: u8,
    /// Whether lanes that the mask leaves out become 0.
    pub zeroes: bool,
    /// A fourth register, in VEX.
    pub fourth: Option<u8>,
    pub imm: Imm,
}

impl Fields {
    pub fn is_evex(&self) -> bool {
        let Form::Vector { prefix, .. } = self.row.form else { return false };
        let is_high = |reg: u8| reg >= 16;
        let is_broadcast = matches!(self.rm, Place::Memory(Memory { is_broadcast: true, .. }));
        let rm_is_high = matches!(self.rm, Place::Reg(reg) if is_high(reg));
        let needs = self.bits == 512
            || is_high(self.reg)
            || self.vvvv.is_some_and(is_high)
            || rm_is_high
            || is_broadcast
            || self.mask != 0;
        prefix == Prefix::Evex || prefix == Prefix::Both && needs
    }
}

/// Appends an instruction. The result is where a displacement relative to its end is, if it has one.
pub fn encode(bytes: &mut Vec<u8>, fields: &Fields) -> Option<usize> {
    match fields.row.form {
        Form::General { is_two_bytes } => general(bytes, fields, is_two_bytes),
        Form::Vector { pp, map, vex_w, evex_w, tuple, .. } => {
            if fields.is_evex() {
                return evex(bytes, fields, pp, map, evex_w, tuple);
            }
            vex(bytes, fields, pp, map, vex_w, fields.bits == 256)
        }
        Form::Masks => vex(bytes, fields, NP, M0F, true, true),
    }
}

/// The fourth bits of the registers in ModRM.rm and SIB, and the fifth of a register in ModRM.rm.
fn extensions(rm: &Place) -> (u8, u8, u8) {
    match rm {
        Place::Reg(reg) => (0, reg >> 3 & 1, reg >> 4),
        Place::Memory(memory) => {
            let base = if let Base::Reg(reg) = memory.base { reg >> 3 } else { 0 };
            (memory.index.unwrap_or(0) >> 3, base, 0)
        }
    }
}

fn general(bytes: &mut Vec<u8>, fields: &Fields, is_two_bytes: bool) -> Option<usize> {
    let mut opcode = fields.row.opcode;
    let mut reg = fields.reg;
    let mut imm = fields.imm;
    // Arithmetic with a constant: its opcode is a field of another one.
    if let (Imm::Word(value), true) = (imm, opcode < 0x40 && !is_two_bytes) {
        reg = opcode >> 3;
        opcode = 0x81;
        if let Ok(small) = i8::try_from(value) {
            opcode = 0x83;
            imm = Imm::Byte(small as u8);
        }
    }
    if let (Imm::Word(value), 0x69) = (imm, opcode)
        && let Ok(small) = i8::try_from(value)
    {
        opcode = 0x6b;
        imm = Imm::Byte(small as u8);
    }
    if fields.bits == 16 {
        bytes.push(0x66);
    }
    let (x, b, _) = extensions(&fields.rm);
    let rex = u8::from(fields.bits == 64) << 3 | (reg >> 3) << 2 | x << 1 | b;
    // Without it, the low bytes of rsp to rdi would be the second bytes of rax to rbx.
    let reads_byte = matches!(fields.row.name, "movzx" | "movsx") || fields.bits == 8;
    let is_low = |reg: u8| (4..8).contains(&reg);
    let needs_rex = reads_byte && (is_low(reg) || matches!(fields.rm, Place::Reg(reg) if is_low(reg)));
    if rex != 0 || needs_rex {
        bytes.push(0x40 | rex);
    }
    if is_two_bytes {
        bytes.push(0x0f);
    }
    bytes.push(opcode);
    if fields.row.opcode == 0x99 {
        return None;
    }
    let place = modrm(bytes, reg, &fields.rm, 1);
    immediate(bytes, imm);
    place
}

fn vex(bytes: &mut Vec<u8>, fields: &Fields, pp: u8, map: u8, w: bool, is_long: bool) -> Option<usize> {
    let (x, b, _) = extensions(&fields.rm);
    let long = u8::from(is_long);
    let r = fields.reg >> 3 & 1;
    let low = (!fields.vvvv.unwrap_or(0) & 15) << 3 | long << 2 | pp;
    if x == 0 && b == 0 && map == 1 && !w {
        bytes.extend([0xc5, (1 - r) << 7 | low]);
    } else {
        bytes.extend([0xc4, (1 - r) << 7 | (1 - x) << 6 | (1 - b) << 5 | map, u8::from(w) << 7 | low]);
    }
    bytes.push(fields.row.opcode);
    if fields.row.name == "vzeroupper" {
        return None;
    }
    let place = modrm(bytes, fields.reg, &fields.rm, 1);
    if let Some(fourth) = fields.fourth {
        bytes.push(fourth << 4);
    }
    immediate(bytes, fields.imm);
    place
}

fn evex(bytes: &mut Vec<u8>, fields: &Fields, pp: u8, map: u8, w: bool, tuple: Tuple) -> Option<usize> {
    let (x, b, high) = extensions(&fields.rm);
    let x = if matches!(fields.rm, Place::Reg(_)) { high } else { x };
    let (r, r_high) = (fields.reg >> 3 & 1, fields.reg >> 4);
    let vvvv = fields.vvvv.unwrap_or(0);
    let is_broadcast = matches!(fields.rm, Place::Memory(Memory { is_broadcast: true, .. }));
    let length = match fields.bits {
        512 => 2,
        256 => 1,
        _ => 0,
    };
    bytes.extend([
        0x62,
        (1 - r) << 7 | (1 - x) << 6 | (1 - b) << 5 | (1 - r_high) << 4 | map,
        u8::from(w) << 7 | (!vvvv & 15) << 3 | 4 | pp,
        u8::from(fields.zeroes) << 7 | length << 5 | u8::from(is_broadcast) << 4 | (1 - (vvvv >> 4)) << 3 | fields.mask,
        fields.row.opcode,
    ]);
    let unit = match tuple {
        Tuple::Bytes(count) => i32::from(count),
        Tuple::Full if is_broadcast => {
            if w {
                8
            } else {
                4
            }
        }
        Tuple::Full => fields.bits as i32 / 8,
    };
    let place = modrm(bytes, fields.reg, &fields.rm, unit);
    immediate(bytes, fields.imm);
    place
}

fn immediate(bytes: &mut Vec<u8>, imm: Imm) {
    match imm {
        Imm::None => {}
        Imm::Byte(value) => bytes.push(value),
        Imm::Word(value) => bytes.extend(value.to_le_bytes()),
    }
}

/// ModRM, SIB and displacement; one of 8 bits counts `unit`s.
fn modrm(bytes: &mut Vec<u8>, reg: u8, rm: &Place, unit: i32) -> Option<usize> {
    let reg = (reg & 7) << 3;
    let memory = match rm {
        Place::Reg(rm) => {
            bytes.push(0xc0 | reg | rm & 7);
            return None;
        }
        Place::Memory(memory) => memory,
    };
    let Base::Reg(base) = memory.base else {
        bytes.push(reg | 5);
        bytes.extend(memory.displacement.to_le_bytes());
        return Some(bytes.len() - 4);
    };
    let displacement = memory.displacement;
    let short = i8::try_from(displacement / unit).ok().filter(|_| displacement % unit == 0);
    let mode = match short {
        _ if displacement == 0 && base & 7 != RBP => 0,
        Some(_) => 1,
        None => 2,
    };
    match memory.index {
        None if base & 7 != RSP => bytes.push(mode << 6 | reg | base & 7),
        index => {
            bytes.push(mode << 6 | reg | RSP);
            bytes.push((memory.scale.trailing_zeros() as u8) << 6 | (index.unwrap_or(RSP) & 7) << 3 | base & 7);
        }
    }
    match (mode, short) {
        (0, _) => {}
        (1, Some(short)) => bytes.push(short as u8),
        _ => bytes.extend(displacement.to_le_bytes()),
    }
    None
}
