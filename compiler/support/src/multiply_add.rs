//! The fused multiply-add with the same bits on every host. Hosts without the instruction leave it to libraries, some of which round a
//! subnormal result twice.

use crate::random::Random;

/// `a · b + c`, rounded once.
///
/// The product of two `f32` is exact in `f64`. The sum is rounded to odd there: an inexact one becomes the one of its two neighbours that
/// has an odd last bit. That is neither a number of `f32` nor half way between two, subnormal ones included, so rounding it again is
/// rounding once (Boldo and Melquiond, *Emulation of FMA and correctly rounded sums*).
pub fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    let (product, addend) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + addend;
    let part = sum - product;
    // What the sum lost; NaN where it is not finite.
    let lost = (product - (sum - part)) + (addend - part);
    if lost.abs() > 0.0 {
        let is_below = (lost < 0.0) != (sum < 0.0);
        return f64::from_bits((sum.to_bits() - u64::from(is_below)) | 1) as f32;
    }
    sum as f32
}

/// Operands for which a product and a sum that round apart, or a sum in `f64` that is rounded again, give another result than
/// [`multiply_add`], among others; of all exponents, and some of them special.
pub fn hard_operands(random: &mut Random) -> [f32; 3] {
    let power = |exponent: i32| f64::from_bits(((1023 + exponent) as u64) << 52);
    // A few bits apart: such products end far below where they begin.
    let sparse = |random: &mut Random| {
        let sign = if random.chance(0.5) { 1.0 } else { -1.0 };
        1.0 + sign * power(-(random.below(24) as i32)) + f64::from(random.below(3) as i32 - 1) * power(-23)
    };
    let (x, y) = (sparse(random), sparse(random));
    // Results from far below the least subnormal number to beyond the greatest one.
    let total = random.below(300) as i32 - 165;
    let first = (total / 2 + random.below(60) as i32 - 30).clamp(-149, 127);
    let a = (x * power(first)) as f32;
    let b = (y * power((total - first).clamp(-149, 127))) as f32;
    let product = f64::from(a) * f64::from(b);
    let (rounded, odd) = (product as f32, random.below(1 << 12) as f64 + 0.5);
    let c = match random.below(8) {
        // Cancels all but what rounding the product would lose.
        0 => -rounded,
        // With the product beside or on the middle between two numbers.
        1 => (f64::from(rounded) * power(random.below(27) as i32)) as f32,
        2 => (product * odd * power(12)) as f32,
        3 => f32::from_bits((random.below(1 << 24)) as u32),
        4 => -(product * odd * power(12)) as f32,
        5 => *random.pick(&[0.0, -0.0, 1.0, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]),
        6 => (sparse(random) * power((total + random.below(100) as i32 - 50).clamp(-149, 127))) as f32,
        _ => f32::from_bits(random.next_u64() as u32),
    };
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::{hard_operands, multiply_add};
    use crate::random::Random;

    #[test]
    fn rounds_once() {
        let mut random = Random::new(3);
        let (mut apart, mut twice) = (0, 0);
        for _ in 0..3_000_000 {
            let [a, b, c] = hard_operands(&mut random);
            let (got, want) = (multiply_add(a, b, c), a.mul_add(b, c));
            let same = |x: f32| x.to_bits() == want.to_bits() || x.is_nan() && want.is_nan();
            assert!(same(got), "{a:e} · {b:e} + {c:e} is {want:e}, not {got:e}");
            apart += usize::from(!same(a * b + c));
            twice += usize::from(!same((f64::from(a) * f64::from(b) + f64::from(c)) as f32));
        }
        assert!(apart > 100_000 && twice > 2_000, "{apart} and {twice} are hard");
    }

    #[test]
    fn rounds_subnormal_results_once() {
        // 2^-150 less 2^-182 beside an odd multiple of 2^-149: just below the middle, which f64 rounds to.
        let (a, b) = (65537.0 * f32::from_bits((127 - 91) << 23), 65535.0 * f32::from_bits((127 - 91) << 23));
        let c = f32::from_bits(0x40_0001);
        assert_eq!(multiply_add(a, b, c).to_bits(), 0x40_0001);
        assert_eq!(multiply_add(-a, b, -c).to_bits(), 0x8040_0001);
    }
}
