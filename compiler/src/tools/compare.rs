//! How far tensors are from what they should be.

use std::fmt;

use mcc_support::Tensor;

/// The largest error of a tensor's elements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Difference {
    pub absolute: f64,
    /// As a part of the largest magnitude that should be there; infinite where one of two is a NaN or an infinity, or any integer
    /// differs.
    pub relative: f64,
    /// Flat index of the element with the largest error; of the first such one.
    pub at: usize,
}

impl Difference {
    const NONE: Difference = Difference { absolute: 0.0, relative: 0.0, at: 0 };

    /// `None` where the types differ.
    pub fn of(got: &Tensor, want: &Tensor) -> Option<Difference> {
        if got.ty() != want.ty() {
            return None;
        }
        let is_float = want.dtype().is_float();
        let magnitude =
            want.numbers().map(|number| number.as_f64().abs()).filter(|number| number.is_finite()).fold(0.0, f64::max);
        let mut worst = Difference::NONE;
        for (at, (got, want)) in got.numbers().zip(want.numbers()).enumerate() {
            let (a, b) = (got.as_f64(), want.as_f64());
            let same = got == want || is_float && (a == b || a.is_nan() && b.is_nan());
            let absolute = if same {
                continue;
            } else if a.is_finite() && b.is_finite() {
                (a - b).abs()
            } else {
                f64::INFINITY
            };
            if absolute > worst.absolute || worst == Difference::NONE {
                let relative =
                    if is_float && absolute.is_finite() && magnitude > 0.0 { absolute / magnitude } else { f64::INFINITY };
                worst = Difference { absolute, relative, at };
            }
        }
        Some(worst)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3e} absolute, {:.3e} of the largest", self.absolute, self.relative)
    }
}

/// Why outputs are not as they should be; `None` where every error is at most `tolerance` of the largest magnitude.
pub fn wrong(names: &[String], got: &[Tensor], want: &[Tensor], tolerance: f64) -> Option<String> {
    names.iter().zip(got.iter().zip(want)).find_map(|(name, (got, want))| match Difference::of(got, want) {
        Some(difference) if difference.relative <= tolerance => None,
        Some(difference) => Some(format!("output '{name}' is off by {difference}, at element {}", difference.at)),
        None => Some(format!("output '{name}' is {}, not {}", got.ty(), want.ty())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_of_the_largest() {
        let of = |got: &[f32], want: &[f32]| {
            Difference::of(&Tensor::from_elements([got.len()], got), &Tensor::from_elements([want.len()], want)).unwrap()
        };
        assert_eq!(of(&[1.0, f32::NAN, -0.0], &[1.0, f32::NAN, 0.0]), Difference::NONE);
        assert_eq!(of(&[1.0, 3.0, 0.5], &[1.0, 4.0, 0.0]), Difference { absolute: 1.0, relative: 0.25, at: 1 });
        assert_eq!(
            of(&[1.0, f32::INFINITY], &[1.5, 2.0]),
            Difference { absolute: f64::INFINITY, relative: f64::INFINITY, at: 1 }
        );
        let (one, two) = (Tensor::from_elements([1], &[1i64]), Tensor::from_elements([1], &[2i64]));
        assert_eq!(Difference::of(&one, &two).unwrap().relative, f64::INFINITY);
        assert_eq!(Difference::of(&one, &Tensor::scalar(1i64)), None);
    }
}
