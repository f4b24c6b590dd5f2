//! The elements that an interpolated one is the sum of.

use super::place::{Nearest, Place, Ratio, clamped};

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Filter {
    Nearest(Nearest),
    Linear { antialias: bool, exclude_outside: bool },
    Cubic { a: f64, antialias: bool, exclude_outside: bool },
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tap {
    pub index: usize,
    pub weight: f64,
}

/// One column for each term of the sums; in it, one entry for each element of the result. At least one column.
#[derive(Debug)]
pub struct Taps {
    pub columns: Vec<Vec<Tap>>,
}

impl Taps {
    pub fn count(&self) -> usize {
        self.columns[0].len()
    }
}

impl Filter {
    pub fn linear(antialias: bool) -> Self {
        Filter::Linear { antialias, exclude_outside: false }
    }

    /// The weight of an element at this distance, in elements of the coarser of operand and result.
    fn weight(self, distance: f64) -> f64 {
        let x = distance.abs();
        match self {
            Filter::Nearest(_) => unreachable!("the nearest element has no weight"),
            Filter::Linear { .. } => (1.0 - x).max(0.0),
            Filter::Cubic { a, .. } if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            Filter::Cubic { a, .. } if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
            Filter::Cubic { .. } => 0.0,
        }
    }

    /// Elements outside have the weight of the nearest that is inside, or none with `exclude_outside`. An antialiasing filter is
    /// as wide as an element of a coarser result. Weights add up to 1.
    pub fn taps(self, places: &[Place], extent: usize, scale: Ratio) -> Taps {
        let (radius, antialias, exclude_outside) = match self {
            Filter::Nearest(_) => unreachable!("the nearest element has no weight"),
            Filter::Linear { antialias, exclude_outside } => (1, antialias, exclude_outside),
            Filter::Cubic { antialias, exclude_outside, .. } => (2, antialias, exclude_outside),
        };
        let width = if antialias && scale < Ratio::ONE { scale } else { Ratio::ONE };
        let first = (Ratio::new(-radius, 1) * width.inverse()).floor() as i64 + 1;
        let offsets: Vec<i64> = (first..2 - first).collect();
        let row = |place: &Place| -> Vec<Tap> {
            let tap = |&offset: &i64| {
                let index = place.floor.saturating_add(offset);
                let excluded = exclude_outside && !(0..extent as i64).contains(&index);
                let weight = if excluded { 0.0 } else { self.weight((offset as f64 - place.fraction) * width.as_f64()) };
                Tap { index: clamped(index, extent), weight }
            };
            let taps: Vec<Tap> = offsets.iter().map(tap).collect();
            let sum: f64 = taps.iter().map(|tap| tap.weight).sum();
            let divisor = if sum == 0.0 || (sum - 1.0).abs() < 1e-12 { 1.0 } else { sum };
            taps.into_iter().map(|tap| Tap { weight: tap.weight / divisor, ..tap }).collect()
        };
        let rows: Vec<Vec<Tap>> = places.iter().map(row).collect();
        let column = |at: usize| rows.iter().map(|row| row[at]).collect::<Vec<_>>();
        let mut columns: Vec<Vec<Tap>> = (0..offsets.len()).map(column).collect();
        let used = |column: &Vec<Tap>| column.iter().any(|tap| tap.weight != 0.0);
        if columns.iter().any(used) {
            columns.retain(used);
        } else {
            columns.truncate(1);
        }
        Taps { columns }
    }
}
