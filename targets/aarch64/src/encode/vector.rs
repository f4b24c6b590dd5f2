//! Scalar floats, and vectors of 64 or 128 bits.

use super::Flags;

/// The lanes of a vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// log₂ of a lane's bytes.
    pub size: u32,
    /// 128 bits, not 64.
    pub is_full: bool,
}

impl Shape {
    pub const BYTES: Shape = Shape { size: 0, is_full: true };

    fn full(self) -> u32 {
        u32::from(self.is_full) << 30
    }

    pub fn lane_bits(self) -> u32 {
        8 << self.size
    }
}

/// An instruction of two or three vectors with lanes of any width, also narrowing and widening ones (by the narrow lane).
pub fn vector(word: u32, shape: Shape) -> u32 {
    word | shape.full() | shape.size << 22
}

/// An instruction of vectors of floats.
pub fn float_vector(word: u32, shape: Shape) -> u32 {
    word | shape.full() | (shape.size & 1) << 22
}

/// An instruction of bits.
pub fn bits_vector(word: u32, is_full: bool) -> u32 {
    word | u32::from(is_full) << 30
}

/// An instruction of scalar floats of 32 or 64 bits.
pub fn float(word: u32, is_double: bool) -> u32 {
    word | u32::from(is_double) << 22
}

// Three vectors of integers.
pub const ADD: u32 = 0x0E20_8400;
pub const SUB: u32 = 0x2E20_8400;
pub const MUL: u32 = 0x0E20_9C00;
/// `rd += rn · rm`.
pub const MLA: u32 = 0x0E20_9400;
pub const MLS: u32 = 0x2E20_9400;
pub const SMAX: u32 = 0x0E20_6400;
pub const UMAX: u32 = 0x2E20_6400;
pub const SMIN: u32 = 0x0E20_6C00;
pub const UMIN: u32 = 0x2E20_6C00;
/// Shifts by the low byte of each lane of `rm`, to the right where it is negative.
pub const SSHL: u32 = 0x0E20_4400;
pub const USHL: u32 = 0x2E20_4400;
pub const CMEQ: u32 = 0x2E20_8C00;
pub const CMTST: u32 = 0x0E20_8C00;
pub const CMGT: u32 = 0x0E20_3400;
pub const CMGE: u32 = 0x0E20_3C00;
pub const CMHI: u32 = 0x2E20_3400;
pub const CMHS: u32 = 0x2E20_3C00;
pub const ZIP1: u32 = 0x0E00_3800;
pub const ZIP2: u32 = 0x0E00_7800;
pub const UZP1: u32 = 0x0E00_1800;
pub const UZP2: u32 = 0x0E00_5800;
pub const TRN1: u32 = 0x0E00_2800;
pub const TRN2: u32 = 0x0E00_6800;

// Three vectors of bits.
pub const AND: u32 = 0x0E20_1C00;
pub const BIC: u32 = 0x0E60_1C00;
pub const ORR: u32 = 0x0EA0_1C00;
pub const ORN: u32 = 0x0EE0_1C00;
pub const EOR: u32 = 0x2E20_1C00;
/// `rd = rd ? rn : rm`.
pub const BSL: u32 = 0x2E60_1C00;
/// `rd = rm ? rn : rd`.
pub const BIT: u32 = 0x2EA0_1C00;
/// `rd = rm ? rd : rn`.
pub const BIF: u32 = 0x2EE0_1C00;

// Two vectors.
pub const NEG: u32 = 0x2E20_B800;
pub const ABS: u32 = 0x0E20_B800;
/// Of bits.
pub const NOT: u32 = 0x2E20_5800;
pub const CMEQ_ZERO: u32 = 0x0E20_9800;
pub const CMLT_ZERO: u32 = 0x0E20_A800;
/// The low halves of wide lanes to the low half of `rd`.
pub const XTN: u32 = 0x0E21_2800;
/// Across all lanes.
pub const ADDV: u32 = 0x0E31_B800;

// Vectors of floats, two or three.
pub const FADD: u32 = 0x0E20_D400;
pub const FSUB: u32 = 0x0EA0_D400;
pub const FMUL: u32 = 0x2E20_DC00;
pub const FDIV: u32 = 0x2E20_FC00;
/// `rd += rn · rm`.
pub const FMLA: u32 = 0x0E20_CC00;
pub const FMLS: u32 = 0x0EA0_CC00;
pub const FCMEQ: u32 = 0x0E20_E400;
pub const FCMGE: u32 = 0x2E20_E400;
pub const FCMGT: u32 = 0x2EA0_E400;
pub const FADDP: u32 = 0x2E20_D400;
/// NaN where one is; of zeros the greater, or lesser, is the positive, or negative, one.
pub const FMAX: u32 = 0x0E20_F400;
pub const FMIN: u32 = 0x0EA0_F400;
pub const FCMGT_ZERO: u32 = 0x0EA0_C800;
pub const FCMLT_ZERO: u32 = 0x0EA0_E800;
pub const FABS: u32 = 0x0EA0_F800;
pub const FNEG: u32 = 0x2EA0_F800;
pub const FSQRT: u32 = 0x2EA1_F800;
pub const FRINTN: u32 = 0x0E21_8800;
pub const FRINTM: u32 = 0x0E21_9800;
pub const FRINTP: u32 = 0x0EA1_8800;
pub const FRINTZ: u32 = 0x0EA1_9800;
pub const SCVTF: u32 = 0x0E21_D800;
pub const UCVTF: u32 = 0x2E21_D800;
pub const FCVTZS: u32 = 0x0EA1_B800;
pub const FCVTZU: u32 = 0x2EA1_B800;

// Scalar floats.
pub const S_FADD: u32 = 0x1E20_2800;
pub const S_FSUB: u32 = 0x1E20_3800;
pub const S_FMUL: u32 = 0x1E20_0800;
pub const S_FDIV: u32 = 0x1E20_1800;
pub const S_FMAX: u32 = 0x1E20_4800;
pub const S_FMIN: u32 = 0x1E20_5800;
/// `rd = ra + rn · rm`.
pub const S_FMADD: u32 = 0x1F00_0000;
pub const S_FABS: u32 = 0x1E20_C000;
pub const S_FNEG: u32 = 0x1E21_4000;
pub const S_FSQRT: u32 = 0x1E21_C000;
pub const S_FRINTN: u32 = 0x1E24_4000;
pub const S_FRINTP: u32 = 0x1E24_C000;
pub const S_FRINTM: u32 = 0x1E25_4000;
pub const S_FRINTZ: u32 = 0x1E25_C000;
pub const S_FMOV: u32 = 0x1E20_4000;
/// Sets the flags by `rn` and `rm`; no result.
pub const S_FCMP: u32 = 0x1E20_2000;
/// From 32 to 64 bits, and back.
pub const S_FCVT_UP: u32 = 0x1E22_C000;
pub const S_FCVT_DOWN: u32 = 0x1E62_4000;
// Between general and vector registers, see `convert`.
pub const G_FCVTZS: u32 = 0x1E38_0000;
pub const G_FCVTZU: u32 = 0x1E39_0000;
pub const G_SCVTF: u32 = 0x1E22_0000;
pub const G_UCVTF: u32 = 0x1E23_0000;
/// The same bits; both of 32 or both of 64.
pub const G_FROM_GENERAL: u32 = 0x1E27_0000;
pub const G_TO_GENERAL: u32 = 0x1E26_0000;

/// Between a general register of 32 or 64 bits and a float.
pub fn convert(word: u32, is_wide: bool, is_double: bool) -> u32 {
    word | u32::from(is_wide) << 31 | u32::from(is_double) << 22
}

/// `rd = condition ? rn : rm` of scalar floats.
pub fn fcsel(is_double: bool, condition: Flags) -> u32 {
    float(0x1E20_0C00, is_double) | (condition as u32) << 12
}

// By element: `rm` is one lane of a vector, in every lane.
pub const FMLA_LANE: u32 = 0x0F80_1000;
pub const FMLS_LANE: u32 = 0x0F80_5000;
pub const FMUL_LANE: u32 = 0x0F80_9000;
/// Integers of 32 bits.
pub const MLA_LANE: u32 = 0x2F80_0000;
pub const MUL_LANE: u32 = 0x0F80_8000;

/// With lanes of 32 or 64 bits.
pub fn by_lane(word: u32, shape: Shape, lane: u32) -> u32 {
    let (is_double, high, low) = match shape.size {
        2 => (0, lane >> 1, lane & 1),
        3 => (1, lane, 0),
        size => panic!("a product by a lane of {} bits", 8 << size),
    };
    assert!(high < 2, "lane {lane}");
    word | shape.full() | is_double << 22 | low << 21 | high << 11
}

// Shifts by an immediate.
pub const SHL: u32 = 0x0F00_5400;
pub const SSHR: u32 = 0x0F00_0400;
pub const USHR: u32 = 0x2F00_0400;

/// To the left or right by less than the lane's width, to the right by at least 1.
pub fn shift(word: u32, shape: Shape, amount: u32) -> u32 {
    let bits = shape.lane_bits();
    assert!(amount < bits && (word == SHL || amount > 0), "a shift by {amount}");
    let field = if word == SHL { bits + amount } else { 2 * bits - amount };
    word | shape.full() | field << 16
}

fn lane_field(size: u32, lane: u32) -> u32 {
    assert!(lane < 16 >> size, "lane {lane}");
    (lane << (size + 1) | 1 << size) << 16
}

/// Every lane of `rd` from one of `rn`.
pub fn dup(shape: Shape, lane: u32) -> u32 {
    0x0E00_0400 | shape.full() | lane_field(shape.size, lane)
}

/// The lane of `rn` as a scalar of a vector register.
pub fn scalar_from(size: u32, lane: u32) -> u32 {
    0x5E00_0400 | lane_field(size, lane)
}

/// Every lane of `rd` from a general register.
pub fn dup_general(shape: Shape) -> u32 {
    0x0E00_0C00 | shape.full() | lane_field(shape.size, 0)
}

/// A lane to a general register, with zeros above.
pub fn umov(size: u32, lane: u32) -> u32 {
    0x0E00_3C00 | u32::from(size == 3) << 30 | lane_field(size, lane)
}

/// One lane of `rd` from a general register.
pub fn ins_general(size: u32, lane: u32) -> u32 {
    0x4E00_1C00 | lane_field(size, lane)
}

/// One lane of `rd` from one of `rn`.
pub fn ins(size: u32, to: u32, from: u32) -> u32 {
    0x6E00_0400 | lane_field(size, to) | (from << size) << 11
}

/// Bytes of `rn` from `from` on, then of `rm`.
pub fn ext(is_full: bool, from: u32) -> u32 {
    assert!(from < if is_full { 16 } else { 8 }, "byte {from}");
    bits_vector(0x2E00_0000, is_full) | from << 11
}

/// Loads one lane's bytes at `rn` into every lane.
pub fn ld1r(shape: Shape) -> u32 {
    0x0D40_C000 | shape.full() | shape.size << 10
}

/// Loads all lanes, or stores them, at `rn`; each is aligned for itself.
pub fn ld1(is_load: bool, size: u32, is_full: bool) -> u32 {
    bits_vector(0x0C00_7000, is_full) | u32::from(is_load) << 22 | size << 10
}

/// Loads one lane of `rd`, or stores it, at `rn`.
pub fn ld1_lane(is_load: bool, size: u32, lane: u32) -> u32 {
    assert!(lane < 16 >> size, "lane {lane}");
    let index = lane << size;
    let (opcode, size_field) = match size {
        0 => (0, index & 3),
        1 => (2, index & 3),
        2 => (4, 0),
        _ => (4, 1),
    };
    let s = index >> 2 & 1;
    0x0D00_0000 | u32::from(is_load) << 22 | (index >> 3) << 30 | opcode << 13 | s << 12 | size_field << 10
}

/// The same constant in every lane of 8, 16, 32 or 64 bits, where one instruction makes it.
pub fn constant(is_full: bool, size: u32, bits: u64) -> Option<u32> {
    // As a repeated pattern of 64 bits, whose shortest period decides.
    let value = match size {
        0 => (bits & 0xFF) * 0x0101_0101_0101_0101,
        1 => (bits & 0xFFFF) * 0x0001_0001_0001_0001,
        2 => (bits & 0xFFFF_FFFF) * 0x0000_0001_0000_0001,
        _ => bits,
    };
    let word = |op: u32, cmode: u32, byte: u64| {
        let byte = byte as u32 & 0xFF;
        Some(bits_vector(0x0F00_0400, is_full) | op << 29 | cmode << 12 | (byte >> 5) << 16 | (byte & 31) << 5)
    };
    if value == value.rotate_left(8) {
        return word(0, 14, value);
    }
    if value.to_le_bytes().iter().all(|byte| [0, 0xFF].contains(byte)) {
        let mask = value.to_le_bytes().iter().enumerate().map(|(index, byte)| u64::from(byte & 1) << index).sum();
        return word(1, 14, mask);
    }
    for (op, value) in [(0, value), (1, !value)] {
        if value == value.rotate_left(16) {
            let half = value & 0xFFFF;
            match () {
                () if half & 0xFF00 == 0 => return word(op, 8, half),
                () if half & 0x00FF == 0 => return word(op, 10, half >> 8),
                () => {}
            }
        }
        if value == value.rotate_left(32) {
            let low = value & 0xFFFF_FFFF;
            if let Some(byte) = (0..4).find(|byte| low & !(0xFF << (8 * byte)) == 0) {
                return word(op, 2 * byte, low >> (8 * byte));
            }
            if let Some(ones) =
                [8, 16].into_iter().find(|&ones| low & ((1 << ones) - 1) == (1 << ones) - 1 && low >> (ones + 8) == 0)
            {
                return word(op, if ones == 8 { 12 } else { 13 }, low >> ones);
            }
        }
    }
    if value == value.rotate_left(32)
        && let Some(byte) = float_byte(false, value & 0xFFFF_FFFF)
    {
        return word(0, 15, byte);
    }
    match float_byte(true, value) {
        Some(byte) if is_full => word(1, 15, byte),
        _ => None,
    }
}

/// The byte that stands for a float in an instruction: a sign, three bits of the exponent, four of the fraction.
fn float_byte(is_double: bool, bits: u64) -> Option<u64> {
    let (exponent_bits, fraction_bits) = if is_double { (11, 52) } else { (8, 23) };
    let fraction = bits & ((1 << fraction_bits) - 1);
    let exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
    let sign = bits >> (fraction_bits + exponent_bits) & 1;
    let low = exponent & 3;
    let is_small = exponent >> (exponent_bits - 1) == 0;
    let repeated = if is_small { ((1 << (exponent_bits - 3)) - 1) << 2 } else { 1 << (exponent_bits - 1) };
    let is_encoded = fraction.trailing_zeros() >= fraction_bits - 4 && exponent == repeated | low;
    is_encoded.then(|| sign << 7 | u64::from(is_small) << 6 | low << 4 | fraction >> (fraction_bits - 4))
}

/// A scalar float constant, where one instruction makes it.
pub fn float_constant(is_double: bool, bits: u64) -> Option<u32> {
    let byte = float_byte(is_double, bits)?;
    Some(float(0x1E20_1000, is_double) | (byte as u32) << 13)
}
