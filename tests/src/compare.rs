//! Comparing tensors.

use mcc_support::Tensor;
use mcc_support::tensor::Number;

/// `|got − want| ≤ absolute + relative · |want|`, NaN equal to NaN, infinities by sign.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    pub relative: f64,
    pub absolute: f64,
}

impl Tolerance {
    pub const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0 };

    fn accepts(&self, got: Number, want: Number) -> bool {
        match (got, want) {
            (Number::Float(got), Number::Float(want)) => {
                got == want
                    || got.is_nan() && want.is_nan()
                    || want.is_finite() && (got - want).abs() <= self.absolute + self.relative * want.abs()
            }
            (Number::Float(_), _) | (_, Number::Float(_)) => false,
            _ => {
                integer(got).abs_diff(integer(want)) as f64 <= self.absolute + self.relative * integer(want).unsigned_abs() as f64
            }
        }
    }
}

fn integer(number: Number) -> i128 {
    match number {
        Number::Int(value) => value.into(),
        Number::UInt(value) => value.into(),
        Number::Float(_) => unreachable!("integers only"),
    }
}

fn same_type(got: &Tensor, want: &Tensor) -> Result<(), String> {
    if got.ty() == want.ty() { Ok(()) } else { Err(format!("is {}, wanted {}", got.ty(), want.ty())) }
}

/// Compares type and every element, floats of 8 and 4 bits by their bits; the error tells how many differ and the first of them.
pub fn compare(got: &Tensor, want: &Tensor, tolerance: Tolerance) -> Result<(), String> {
    compare_except(got, want, tolerance, &[])
}

/// As [`compare`], but for the elements with these flat indices.
pub fn compare_except(got: &Tensor, want: &Tensor, tolerance: Tolerance, unspecified: &[usize]) -> Result<(), String> {
    same_type(got, want)?;
    let exact = want.dtype().small_float().is_some();
    let differ = |index: &usize| {
        let (got, want) = (got.number(*index), want.number(*index));
        if exact { !is_same(got, want) } else { !tolerance.accepts(got, want) }
    };
    let wrong: Vec<usize> = (0..want.count()).filter(|index| !unspecified.contains(index)).filter(differ).collect();
    let Some(&first) = wrong.first() else { return Ok(()) };
    Err(format!(
        "{} of {} elements of {} differ; [{first}] is {:?}, wanted {:?}",
        wrong.len(),
        want.count(),
        want.ty(),
        got.number(first),
        want.number(first)
    ))
}

/// The largest error in proportion to the largest finite magnitude of `want`.
///
/// # Errors
///
/// The types differ, or one has a NaN or infinity where the other does not.
pub fn relative_error(got: &Tensor, want: &Tensor) -> Result<f64, String> {
    same_type(got, want)?;
    let (mut error, mut magnitude) = (0.0f64, 0.0f64);
    for (index, (got, want)) in got.numbers().zip(want.numbers()).enumerate() {
        let (got, want) = (got.as_f64(), want.as_f64());
        if got.is_finite() && want.is_finite() {
            error = error.max((got - want).abs());
            magnitude = magnitude.max(want.abs());
        } else if got != want && !(got.is_nan() && want.is_nan()) {
            return Err(format!("[{index}] is {got:?}, wanted {want:?}"));
        }
    }
    Ok(if error == 0.0 { 0.0 } else { error / magnitude })
}

fn is_same(got: Number, want: Number) -> bool {
    match (got, want) {
        (Number::Float(got), Number::Float(want)) => got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
        _ => got == want,
    }
}

/// Whether type and elements have the same bits, NaN counting as one.
pub fn same_bits(got: &Tensor, want: &Tensor) -> Result<(), String> {
    same_type(got, want)?;
    match got.numbers().zip(want.numbers()).enumerate().find(|&(_, (got, want))| !is_same(got, want)) {
        None => Ok(()),
        Some((index, (found, wanted))) => Err(format!("element {index} of {} is {found:?}, wanted {wanted:?}", want.ty())),
    }
}

/// Index of the largest element, and by how much it leads in proportion to the range of all.
pub fn largest(tensor: &Tensor) -> (usize, f64) {
    let values: Vec<f64> = tensor.numbers().map(Number::as_f64).collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    let range = values[order[0]] - values[order[order.len() - 1]];
    let lead = order.get(1).map_or(0.0, |&second| values[order[0]] - values[second]);
    (order[0], if range > 0.0 { lead / range } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_within_the_tolerance_only() {
        let loose = Tolerance { relative: 0.1, absolute: 0.0 };
        let f32s = |values: &[f32]| Tensor::from_elements([values.len()], values);
        let cases = [
            (f32s(&[1.0, f32::NAN]), f32s(&[1.0, f32::NAN]), Tolerance::EXACT, true),
            (f32s(&[1.05]), f32s(&[1.0]), loose, true),
            (f32s(&[1.05]), f32s(&[1.0]), Tolerance::EXACT, false),
            (f32s(&[1.2]), f32s(&[1.0]), loose, false),
            (f32s(&[0.0]), f32s(&[-0.0]), Tolerance::EXACT, true),
            (f32s(&[f32::MAX]), f32s(&[f32::INFINITY]), loose, false),
            (f32s(&[f32::NEG_INFINITY]), f32s(&[f32::INFINITY]), loose, false),
            (f32s(&[0.0]), f32s(&[f32::NAN]), loose, false),
            (f32s(&[f32::NAN]), f32s(&[0.0]), loose, false),
            (Tensor::from_elements([1], &[1u64 << 63]), Tensor::from_elements([1], &[(1u64 << 63) + 1]), Tolerance::EXACT, false),
            (Tensor::from_elements([1], &[1i32]), Tensor::from_elements([1], &[1i64]), loose, false),
            (f32s(&[1.0]), f32s(&[1.0]).reshaped([1, 1]), loose, false),
        ];
        for (got, want, tolerance, accepted) in cases {
            assert_eq!(compare(&got, &want, tolerance).is_ok(), accepted, "{got:?} for {want:?}");
        }
        let (got, want) = (f32s(&[1.0, 9.0]), f32s(&[1.0, 2.0]));
        assert!(compare_except(&got, &want, Tolerance::EXACT, &[1]).is_ok());
        assert!(compare_except(&got, &want, Tolerance::EXACT, &[0]).is_err());
    }

    #[test]
    fn relates_the_error_to_the_largest_magnitude() {
        let f32s = |values: &[f32]| Tensor::from_elements([values.len()], values);
        assert_eq!(relative_error(&f32s(&[1.0, -4.0]), &f32s(&[2.0, -4.0])), Ok(0.25));
        assert_eq!(relative_error(&f32s(&[0.0]), &f32s(&[0.0])), Ok(0.0));
        assert_eq!(relative_error(&f32s(&[1.0]), &f32s(&[0.0])), Ok(f64::INFINITY));
        assert!(relative_error(&f32s(&[f32::NAN]), &f32s(&[0.0])).is_err());
        assert_eq!(largest(&f32s(&[0.0, 3.0, 2.0])), (1, 1.0 / 3.0));
    }
}
