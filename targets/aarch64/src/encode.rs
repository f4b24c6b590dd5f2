//! A64 instructions as words.
//!
//! Nearly every instruction is a word with register numbers of five bits at [`RD`], [`RN`], [`RM`] or [`RA`]; the functions here
//! give the word with these fields empty, everything else (widths, immediates, lanes, conditions) in place. So an instruction whose
//! registers are not chosen yet is a word and a list of registers with their places.

pub mod vector;

#[cfg(test)]
mod tests;

/// Where register fields begin: destination (of loads and stores, the data), first and second operand, third operand (of pairs, the
/// second register of data).
pub const RD: u8 = 0;
pub const RN: u8 = 5;
pub const RM: u8 = 16;
pub const RA: u8 = 10;

/// The register number that is zero or the stack pointer, as the instruction has it.
pub const ZERO_OR_SP: u32 = 31;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    W,
    X,
}

impl Width {
    pub fn of_bits(bits: u32) -> Width {
        if bits == 64 { Width::X } else { Width::W }
    }

    pub fn bits(self) -> u32 {
        match self {
            Width::W => 32,
            Width::X => 64,
        }
    }

    fn flag(self) -> u32 {
        (self == Width::X) as u32
    }
}

/// An instruction of general registers, with the bit that makes it one of 64 bits.
pub fn general(word: u32, width: Width) -> u32 {
    word | width.flag() << 31
}

// Three registers: `rd = rn op rm`. The first ten take a shift of the last operand, see `shifted`.
pub const ADD: u32 = 0x0B00_0000;
pub const ADDS: u32 = 0x2B00_0000;
pub const SUB: u32 = 0x4B00_0000;
pub const SUBS: u32 = 0x6B00_0000;
pub const AND: u32 = 0x0A00_0000;
pub const BIC: u32 = 0x0A20_0000;
pub const ORR: u32 = 0x2A00_0000;
pub const ORN: u32 = 0x2A20_0000;
pub const EOR: u32 = 0x4A00_0000;
pub const ANDS: u32 = 0x6A00_0000;
pub const SDIV: u32 = 0x1AC0_0C00;
pub const UDIV: u32 = 0x1AC0_0800;
pub const LSLV: u32 = 0x1AC0_2000;
pub const LSRV: u32 = 0x1AC0_2400;
pub const ASRV: u32 = 0x1AC0_2800;
/// `rd = ra ± rn · rm`.
pub const MADD: u32 = 0x1B00_0000;
pub const MSUB: u32 = 0x1B00_8000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shift {
    Lsl,
    Lsr,
    Asr,
}

/// `rd = rn op (rm shift amount)`.
pub fn shifted(op: u32, width: Width, shift: Shift, amount: u32) -> u32 {
    assert!(amount < width.bits(), "a shift by {amount}");
    general(op, width) | (shift as u32) << 22 | amount << 10
}

/// How a register of 32 bits is widened as an operand or index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extend {
    Uxtw = 2,
    /// No extension: 64 bits.
    Lsl = 3,
    Sxtw = 6,
}

/// `rd = rn ± (rm extend << amount)` of 64 bits, where `rd` and `rn` may be the stack pointer.
pub fn add_extended(is_sub: bool, extend: Extend, amount: u32) -> u32 {
    assert!(amount <= 4, "a shift by {amount}");
    0x8B20_0000 | (is_sub as u32) << 30 | (extend as u32) << 13 | amount << 10
}

/// `rd = rn ± value` for `ADD`, `ADDS`, `SUB`, `SUBS`, where the value has 12 bits, or 12 bits above 12 zeros.
pub fn add_imm(op: u32, width: Width, value: u64) -> Option<u32> {
    let (field, shift) = match value {
        0..=0xFFF => (value as u32, 0),
        _ if value & 0xFFF == 0 && value >> 24 == 0 => ((value >> 12) as u32, 1),
        _ => return None,
    };
    Some(general((op & 0x6000_0000) | 0x1100_0000, width) | shift << 22 | field << 10)
}

/// `rd = rn op value` for `AND`, `ORR`, `EOR`, `ANDS`, where the value is a rotated run of ones, repeated.
pub fn logical_imm(op: u32, width: Width, value: u64) -> Option<u32> {
    let fields = logical_fields(if width == Width::W { (value & 0xFFFF_FFFF) * 0x1_0000_0001 } else { value })?;
    if width == Width::W && value >> 32 != 0 {
        return None;
    }
    Some(general((op & 0x6000_0000) | 0x1200_0000, width) | fields)
}

/// The fields N, immr and imms of a logical immediate of 64 bits.
fn logical_fields(value: u64) -> Option<u32> {
    if value == 0 || value == u64::MAX {
        return None;
    }
    let is_period = |size: u32| value.rotate_right(size) == value;
    let size = [2, 4, 8, 16, 32, 64].into_iter().find(|&size| is_period(size)).expect("every value repeats after 64 bits");
    let mask = u64::MAX >> (64 - size);
    let element = value & mask;
    let ones = element.count_ones();
    let run = (1u64 << ones) - 1;
    let rotate = |by: u32| if by == 0 { run } else { ((run >> by) | (run << (size - by))) & mask };
    let by = (0..size).find(|&by| rotate(by) == element)?;
    let imms = (!(2 * size - 1) & 0x3F) | (ones - 1);
    Some(u32::from(size == 64) << 22 | by << 16 | imms << 10)
}

pub const MOVN: u32 = 0x1280_0000;
pub const MOVZ: u32 = 0x5280_0000;
/// Keeps the other bits of `rd`.
pub const MOVK: u32 = 0x7280_0000;

/// Moves 16 bits to a quarter of the register.
pub fn mov_wide(op: u32, width: Width, value: u16, quarter: u32) -> u32 {
    assert!(quarter < width.bits() / 16, "quarter {quarter}");
    general(op, width) | quarter << 21 | u32::from(value) << 5
}

/// Copies bits `low..=high` of `rn` down to bit 0, with zeros or the sign above.
pub fn bits(is_signed: bool, width: Width, low: u32, high: u32) -> u32 {
    assert!(low <= high && high < width.bits(), "bits {low} to {high}");
    bitfield(is_signed, width, low, high)
}

fn bitfield(is_signed: bool, width: Width, immr: u32, imms: u32) -> u32 {
    let op = if is_signed { 0x1300_0000 } else { 0x5300_0000 };
    general(op, width) | width.flag() << 22 | immr << 16 | imms << 10
}

/// `rd = rn << amount`.
pub fn lsl_imm(width: Width, amount: u32) -> u32 {
    assert!(amount < width.bits(), "a shift by {amount}");
    bitfield(false, width, (width.bits() - amount) % width.bits(), width.bits() - 1 - amount)
}

/// `rd = rn >> amount`.
pub fn shr_imm(is_signed: bool, width: Width, amount: u32) -> u32 {
    bits(is_signed, width, amount, width.bits() - 1)
}

/// Conditions on the flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flags {
    Eq = 0,
    Ne = 1,
    /// Unsigned.
    Hs = 2,
    Lo = 3,
    Mi = 4,
    Hi = 8,
    Ls = 9,
    Ge = 10,
    Lt = 11,
    Gt = 12,
    Le = 13,
}

impl Flags {
    pub fn inverted(self) -> u32 {
        self as u32 ^ 1
    }
}

/// `rd = condition ? rn : rm`.
pub fn csel(width: Width, condition: Flags) -> u32 {
    general(0x1A80_0000, width) | (condition as u32) << 12
}

/// `rd = condition ? 1 : 0`; no other register.
pub fn cset(condition: Flags) -> u32 {
    0x1A80_0400 | ZERO_OR_SP << RM | condition.inverted() << 12 | ZERO_OR_SP << RN
}

/// `rd = condition ? rn : -rm`.
pub fn csneg(width: Width, condition: Flags) -> u32 {
    general(0x5A80_0400, width) | (condition as u32) << 12
}

// Branches; displacements are put in by `branch_displacement`.
pub const B: u32 = 0x1400_0000;
pub const BL: u32 = 0x9400_0000;
pub const BLR: u32 = 0xD63F_0000;
pub const RET: u32 = 0xD65F_03C0;
/// Where indirect calls may lead.
pub const BTI_C: u32 = 0xD503_245F;
/// Signs the return address, and tests it.
pub const PACIASP: u32 = 0xD503_233F;
pub const AUTIASP: u32 = 0xD503_23BF;
pub const ADRP: u32 = 0x9000_0000;
pub const ADR: u32 = 0x1000_0000;

pub fn b_cond(condition: u32) -> u32 {
    0x5400_0000 | condition
}

/// Branches where the register, at [`RD`], is (not) zero.
pub fn cbz(is_not: bool, width: Width) -> u32 {
    general(0x3400_0000, width) | (is_not as u32) << 24
}

/// Branches where bit `bit` of the register, at [`RD`], is (not) zero.
pub fn tbz(is_not: bool, bit: u32) -> u32 {
    0x3600_0000 | (bit >> 5) << 31 | (bit & 31) << 19 | (is_not as u32) << 24
}

/// A branch, `adr` or load of a literal with its displacement in bytes from the instruction.
pub fn with_displacement(word: u32, displacement: i64) -> u32 {
    let is = |mask: u32, value: u32| word & mask == value;
    let field = |bits: u32, shift: u32| {
        let units = displacement >> 2;
        assert!(displacement & 3 == 0 && units >> (bits - 1) == units >> 63, "a displacement of {displacement} bytes");
        (units as u32 & (u32::MAX >> (32 - bits))) << shift
    };
    if is(0x7C00_0000, B) {
        word | field(26, 0)
    } else if is(0x7E00_0000, 0x3600_0000) {
        word | field(14, 5)
    } else if is(0x9F00_0000, ADR) {
        assert!(displacement >> 20 == displacement >> 63, "an adr by {displacement} bytes");
        word | (displacement as u32 & 3) << 29 | ((displacement >> 2) as u32 & 0x7_FFFF) << 5
    } else {
        word | field(19, 5)
    }
}

/// What is loaded or stored: log₂ of the bytes, and whether by a vector register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    pub log2_bytes: u32,
    pub is_vector: bool,
    pub is_load: bool,
}

impl Access {
    pub fn bytes(self) -> i64 {
        1 << self.log2_bytes
    }

    fn fields(self) -> u32 {
        let (size, opc) = match self.log2_bytes {
            4 => (0, 2 | u32::from(self.is_load)),
            size => (size, u32::from(self.is_load)),
        };
        size << 30 | u32::from(self.is_vector) << 26 | opc << 22
    }

    /// At `rn + displacement`, scaled or, from -256 to 255, not.
    pub fn at(self, displacement: i64) -> Option<u32> {
        let units = displacement >> self.log2_bytes;
        if displacement & (self.bytes() - 1) == 0 && (0..4096).contains(&units) {
            return Some(0x3900_0000 | self.fields() | (units as u32) << 10);
        }
        (-256..256).contains(&displacement).then(|| 0x3800_0000 | self.fields() | (displacement as u32 & 0x1FF) << 12)
    }

    /// At `rn`, to which `step` is added afterwards.
    pub fn post_index(self, step: i64) -> Option<u32> {
        (-256..256).contains(&step).then(|| 0x3800_0400 | self.fields() | (step as u32 & 0x1FF) << 12)
    }

    /// At `rn + (rm extend, scaled by the access's size or not)`.
    pub fn indexed(self, extend: Extend, is_scaled: bool) -> u32 {
        0x3820_0800 | self.fields() | (extend as u32) << 13 | u32::from(is_scaled) << 12
    }

    /// The second of a pair at [`RA`]; 4 bytes or more. At `rn + displacement`, or at `rn`, which is moved before or after.
    pub fn pair(self, displacement: i64, mode: PairMode) -> Option<u32> {
        let units = displacement >> self.log2_bytes;
        let is_encoded = self.log2_bytes >= 2 && displacement & (self.bytes() - 1) == 0 && (-64..64).contains(&units);
        let opc = if self.is_vector { self.log2_bytes - 2 } else { 2 * (self.log2_bytes - 2) };
        is_encoded.then(|| {
            let load = u32::from(self.is_load) << 22;
            0x2800_0000 | opc << 30 | u32::from(self.is_vector) << 26 | (mode as u32) << 23 | load | (units as u32 & 0x7F) << 15
        })
    }

    /// From a place relative to the instruction; a load of 4, 8 or, by a vector register, 16 bytes.
    pub fn literal(self) -> u32 {
        0x1800_0000 | (self.log2_bytes - 2) << 30 | u32::from(self.is_vector) << 26
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PairMode {
    PostIndex = 1,
    Offset = 2,
    PreIndex = 3,
}

/// Brings a line into the nearest cache, for reading.
pub fn prefetch(displacement: i64) -> Option<u32> {
    let units = displacement >> 3;
    if displacement & 7 == 0 && (0..4096).contains(&units) {
        return Some(0xF980_0000 | (units as u32) << 10);
    }
    (-256..256).contains(&displacement).then_some(0xF880_0000 | (displacement as u32 & 0x1FF) << 12)
}
