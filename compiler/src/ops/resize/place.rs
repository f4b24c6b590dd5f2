//! Where an element of a resized axis lies in the original one. Exact, so that ties are ties, but for quotients: they are rounded to f32,
//! as engines compute them, so that a scale such as 0.6, which no f32 is, gives the places that it stands for.

use std::cmp::Ordering;

/// An exact fraction. Its parts stay far from the limits: scales are bounded by [`Ratio::from_f32`], extents by 31 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ratio {
    numerator: i128,
    /// Positive.
    denominator: i128,
}

impl Ratio {
    pub const ONE: Self = Self { numerator: 1, denominator: 1 };

    pub fn new(numerator: i128, denominator: i128) -> Self {
        let sign = if denominator < 0 { -1 } else { 1 };
        let divisor = gcd(numerator.unsigned_abs(), denominator.unsigned_abs()).max(1) as i128 * sign;
        Self { numerator: numerator / divisor, denominator: denominator / divisor }
    }

    /// A positive number between 2^-32 and 2^32.
    pub fn from_f32(value: f32) -> Option<Self> {
        const LIMIT: f32 = 4_294_967_296.0;
        if !(1.0 / LIMIT..LIMIT).contains(&value) {
            return None;
        }
        // The lowest bit of such a number is at least 2^-55.
        Some(Self::new((f64::from(value) * (1u64 << 56) as f64) as i128, 1 << 56))
    }

    /// The nearest f32.
    pub fn rounded(self) -> Self {
        const ONE: i128 = 1 << 56;
        Self::new((f64::from(self.as_f64() as f32) * ONE as f64) as i128, ONE)
    }

    pub fn floor(self) -> i128 {
        self.numerator.div_euclid(self.denominator)
    }

    /// Of a number that is not 0.
    pub fn inverse(self) -> Self {
        Self::new(self.denominator, self.numerator)
    }

    pub fn as_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl From<usize> for Ratio {
    fn from(value: usize) -> Self {
        Self { numerator: value as i128, denominator: 1 }
    }
}

impl std::ops::Mul for Ratio {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self::new(self.numerator * other.numerator, self.denominator * other.denominator)
    }
}

impl std::ops::Add for Ratio {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::new(self.numerator * other.denominator + other.numerator * self.denominator, self.denominator * other.denominator)
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.numerator * other.denominator).cmp(&(other.numerator * self.denominator))
    }
}

/// The element at or before a coordinate, and how far the coordinate lies behind it.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub floor: i64,
    /// 0 … 1
    pub fraction: f64,
    /// The fraction compared with 1/2.
    to_half: Ordering,
    /// Whether the coordinate has no element on one of its sides, where that matters.
    pub outside: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nearest {
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
}

impl Place {
    fn exact(coordinate: Ratio) -> Self {
        let floor = coordinate.floor();
        let fraction = coordinate + Ratio::new(-floor, 1);
        Self { floor: floor as i64, fraction: fraction.as_f64(), to_half: fraction.cmp(&Ratio::new(1, 2)), outside: false }
    }

    fn approximate(coordinate: f64, extent: usize) -> Self {
        let floor = libm::floor(coordinate);
        let fraction = coordinate - floor;
        Self {
            floor: floor as i64,
            fraction,
            to_half: fraction.total_cmp(&0.5),
            outside: !(0.0..=extent as f64 - 1.0).contains(&coordinate),
        }
    }

    /// The element at or behind the coordinate.
    pub fn ceil(self) -> Self {
        let up = i64::from(self.fraction > 0.0);
        Self { floor: self.floor + up, fraction: 0.0, to_half: Ordering::Less, ..self }
    }

    /// The index of the nearest element of an axis.
    pub fn nearest(&self, mode: Nearest, extent: usize) -> usize {
        let up = match mode {
            Nearest::RoundPreferFloor => self.to_half == Ordering::Greater,
            Nearest::RoundPreferCeil => self.to_half != Ordering::Less,
            Nearest::Floor => false,
            Nearest::Ceil => self.fraction > 0.0,
        };
        clamped(self.floor.saturating_add(i64::from(up)), extent)
    }
}

/// The element of an axis that stands for an index which may be outside.
pub fn clamped(index: i64, extent: usize) -> usize {
    index.clamp(0, extent as i64 - 1) as usize
}

/// How coordinates of the result become those of the operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transform {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    HalfPixelForNearest,
    CropAndResize,
}

impl Transform {
    /// Element `index` of `count` in an axis of `extent`; the length of the result may be a fraction, `extent · scale`.
    pub fn place(self, index: usize, extent: usize, count: usize, scale: Ratio, region: (f64, f64)) -> Place {
        let (a, b) = (scale.numerator, scale.denominator);
        let (index, length) = (index as i128, extent as i128);
        let centre = Ratio::new((2 * index + 1) * b, 2 * a).rounded();
        let half = Ratio::new(-1, 2);
        let half_pixel = centre + half;
        Place::exact(match self {
            Transform::HalfPixel => half_pixel,
            Transform::HalfPixelSymmetric => {
                // The centre of the result is that of the operand.
                let stretched = Ratio::new(count as i128 * b, length * a).rounded();
                let offset = Ratio::new(length, 2) * (Ratio::ONE + stretched * Ratio::new(-1, 1));
                (offset.rounded() + centre).rounded() + half
            }
            Transform::PytorchHalfPixel if length * a > b => half_pixel,
            Transform::AlignCorners if length * a != b => Ratio::new(index * (length - 1) * b, length * a - b).rounded(),
            Transform::PytorchHalfPixel | Transform::AlignCorners => Ratio::from(0),
            Transform::Asymmetric => Ratio::new(index * b, a).rounded(),
            Transform::HalfPixelForNearest => centre,
            Transform::CropAndResize => {
                let last = extent as f64 - 1.0;
                let reached = scale.as_f64() * extent as f64 - 1.0;
                let (start, end) = region;
                let coordinate = if length * a > b {
                    start * last + index as f64 * (end - start) * last / reached
                } else {
                    0.5 * (start + end) * last
                };
                return Place::approximate(coordinate, extent);
            }
        })
    }
}
