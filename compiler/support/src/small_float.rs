//! Floats of 4 and 8 bits: formats that differ only in numbers.

use crate::types::DType;

/// How the bits of a small float are read: a sign (but for a scale), an exponent, a mantissa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallFloat {
    pub exponent_bits: u32,
    /// None where every code is a power of two: a *scale*, which has neither sign nor zero nor subnormals.
    pub mantissa_bits: u32,
    pub bias: i32,
    pub specials: Specials,
}

/// Codes that are no finite numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// The last exponent is infinity and NaNs, as in the larger formats.
    LastExponent,
    /// The last magnitude is NaN; there is no infinity.
    LastCode,
    /// What would be negative zero is the only NaN; there is neither infinity nor negative zero.
    NegativeZero,
    /// All are numbers; what is made of NaN is negative zero.
    None,
}

impl DType {
    /// The format of a float of 4 or 8 bits.
    pub fn small_float(self) -> Option<SmallFloat> {
        let format = |exponent_bits, mantissa_bits, bias, specials| SmallFloat { exponent_bits, mantissa_bits, bias, specials };
        Some(match self {
            DType::F4E2M1 => format(2, 1, 1, Specials::None),
            DType::F8E4M3FN => format(4, 3, 7, Specials::LastCode),
            DType::F8E4M3FNUZ => format(4, 3, 8, Specials::NegativeZero),
            DType::F8E5M2 => format(5, 2, 15, Specials::LastExponent),
            DType::F8E5M2FNUZ => format(5, 2, 16, Specials::NegativeZero),
            DType::F8E8M0 => format(8, 0, 127, Specials::LastCode),
            _ => return None,
        })
    }
}

impl SmallFloat {
    pub fn is_scale(&self) -> bool {
        self.mantissa_bits == 0
    }

    /// Bits behind the sign.
    pub fn magnitude_bits(&self) -> u32 {
        self.exponent_bits + self.mantissa_bits
    }

    /// The last code without its sign.
    pub fn magnitude_mask(&self) -> u32 {
        (1 << self.magnitude_bits()) - 1
    }

    /// The bit of the sign; 0 for a scale.
    pub fn sign_mask(&self) -> u32 {
        if self.is_scale() { 0 } else { 1 << self.magnitude_bits() }
    }

    /// The code of the greatest finite number.
    pub fn greatest_code(&self) -> u32 {
        match self.specials {
            Specials::LastExponent => (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1,
            Specials::LastCode => self.magnitude_mask() - 1,
            Specials::NegativeZero | Specials::None => self.magnitude_mask(),
        }
    }

    /// What NaN becomes, and whether the sign is kept.
    pub fn nan_code(&self) -> (u32, bool) {
        match self.specials {
            Specials::LastExponent => ((self.greatest_code() + 1) | 1 << (self.mantissa_bits - 1), true),
            Specials::LastCode => (self.magnitude_mask(), true),
            Specials::NegativeZero | Specials::None => (self.sign_mask(), false),
        }
    }

    pub fn greatest(&self) -> f64 {
        self.decode(self.greatest_code())
    }

    /// The number that a code stands for.
    pub fn decode(&self, code: u32) -> f64 {
        let magnitude = code & self.magnitude_mask();
        let sign = if code & self.sign_mask() == 0 { 1.0 } else { -1.0 };
        if magnitude > self.greatest_code() {
            let is_infinity = self.specials == Specials::LastExponent && magnitude == self.greatest_code() + 1;
            return if is_infinity { sign * f64::INFINITY } else { f64::NAN };
        }
        if self.specials == Specials::NegativeZero && code == self.sign_mask() {
            return f64::NAN;
        }
        let fraction = magnitude & ((1 << self.mantissa_bits) - 1);
        let exponent = (magnitude >> self.mantissa_bits) as i32;
        let (exponent, whole) = if exponent == 0 && !self.is_scale() { (1, 0) } else { (exponent, 1) };
        let significand = f64::from(whole << self.mantissa_bits | fraction);
        sign * significand * power_of_two(exponent - self.bias - self.mantissa_bits as i32)
    }

    /// The code of the nearest number, of two the one with the even code; for a scale, of the least that is no smaller than the
    /// magnitude. What is too large becomes the greatest finite number, as infinity does where there is none.
    pub fn encode(&self, value: f64) -> u8 {
        let sign = if value.is_sign_negative() { self.sign_mask() } else { 0 };
        if value.is_nan() {
            let (code, signed) = self.nan_code();
            return (code | if signed { sign } else { 0 }) as u8;
        }
        let magnitude = value.abs();
        if magnitude.is_infinite() && self.specials == Specials::LastExponent {
            return ((self.greatest_code() + 1) | sign) as u8;
        }
        // The first code whose number is no smaller: numbers ascend with their codes.
        let (mut first, mut end) = (0, self.greatest_code() + 1);
        while first < end {
            let middle = (first + end) / 2;
            (first, end) = if self.decode(middle) < magnitude { (middle + 1, end) } else { (first, middle) };
        }
        let code = match first {
            0 => 0,
            above if above > self.greatest_code() => self.greatest_code(),
            above if self.is_scale() => above,
            above => {
                let (down, up) = (magnitude - self.decode(above - 1), self.decode(above) - magnitude);
                if down < up || down == up && above % 2 == 1 { above - 1 } else { above }
            }
        };
        let is_negative_zero = code == 0 && self.specials == Specials::NegativeZero;
        (code | if is_negative_zero { 0 } else { sign }) as u8
    }
}

/// Of an exponent in the range of normal numbers.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_numbers_of_their_definitions() {
        // The greatest, the least above zero.
        let cases = [
            (DType::F4E2M1, 6.0, 0.5),
            (DType::F8E4M3FN, 448.0, power_of_two(-9)),
            (DType::F8E4M3FNUZ, 240.0, power_of_two(-10)),
            (DType::F8E5M2, 57344.0, power_of_two(-16)),
            (DType::F8E5M2FNUZ, 57344.0, power_of_two(-17)),
            (DType::F8E8M0, power_of_two(127), power_of_two(-126)),
        ];
        for (dtype, greatest, least) in cases {
            let format = dtype.small_float().expect("a small float");
            assert_eq!((format.greatest(), format.decode(1)), (greatest, least), "{dtype}");
            assert_eq!(format.magnitude_bits() + u32::from(!format.is_scale()), dtype.size_bits() as u32);
            for code in 0..1u32 << dtype.size_bits() {
                let value = format.decode(code);
                let back = u32::from(format.encode(value));
                let expected = match value {
                    _ if value.is_nan() => format.nan_code().0 | if format.nan_code().1 { back & format.sign_mask() } else { 0 },
                    _ => code,
                };
                assert_eq!(back, expected, "{dtype} {code:#x} is {value:?}");
            }
        }
    }
}
