//! Which elements along the axes of a value exist.
//!
//! An axis has room for as many elements as the type of the value says, its capacity. Where the extent is known only at run time,
//! the elements at or beyond it are unspecified. An axis that was made of several is a list of factors, the outermost first: an
//! element exists where its index along each factor is below that factor's extent.

use mcc_support::Shape;

use super::extent::Extent;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Factor {
    pub capacity: usize,
    /// At most the capacity.
    pub extent: Extent,
}

impl Factor {
    fn whole(capacity: usize) -> Self {
        Self { capacity, extent: Extent::from(capacity) }
    }

    pub fn is_whole(&self) -> bool {
        self.extent.known_size() == Some(self.capacity)
    }
}

/// Factors of capacity 1 are left out where they are whole; neighbours are joined where one extent says it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Axis(Vec<Factor>);

impl Axis {
    pub fn whole(capacity: usize) -> Self {
        Self::of([Factor::whole(capacity)])
    }

    pub fn new(capacity: usize, extent: Extent) -> Self {
        Self::of([Factor { capacity, extent }])
    }

    pub fn of(factors: impl IntoIterator<Item = Factor>) -> Self {
        let mut list: Vec<Factor> = Vec::new();
        for factor in factors.into_iter().filter(|factor| !(factor.capacity == 1 && factor.is_whole())) {
            match list.last_mut() {
                // What is inside of an extent is whole: the first elements of both together exist.
                Some(last) if factor.is_whole() => {
                    last.capacity = last.capacity.saturating_mul(factor.capacity);
                    last.extent = &last.extent * &factor.extent;
                }
                _ => list.push(factor),
            }
        }
        Self(list)
    }

    pub fn factors(&self) -> &[Factor] {
        &self.0
    }

    pub fn capacity(&self) -> usize {
        self.0.iter().fold(1, |product, factor| product.saturating_mul(factor.capacity))
    }

    pub fn extent(&self) -> Extent {
        self.0.iter().fold(Extent::from(1i64), |product, factor| &product * &factor.extent)
    }

    /// Whether all elements exist.
    pub fn is_whole(&self) -> bool {
        self.0.iter().all(Factor::is_whole)
    }

    /// Whether the elements that exist are the first ones.
    pub fn is_prefix(&self) -> bool {
        self.0.len() <= 1
    }

    /// The axis along which two are read together, one of which may be repeated; an element exists where it does in both. `None`
    /// where their extents may differ.
    pub fn join(&self, other: &Axis) -> Option<Axis> {
        let repeats = |axis: &Axis| axis.0.is_empty();
        let carries = |whole: &Axis, other: &Axis| whole.is_whole() && whole.capacity() == other.capacity();
        if self == other || repeats(other) || carries(other, self) {
            Some(self.clone())
        } else if repeats(self) || carries(self, other) {
            Some(other.clone())
        } else {
            None
        }
    }
}

pub fn whole(shape: &Shape) -> Vec<Axis> {
    shape.iter().map(|&dim| Axis::whole(dim)).collect()
}

/// As [`Axis::join`] for the axes of broadcast operands.
pub fn broadcast(a: &[Axis], b: &[Axis]) -> Result<Vec<Axis>, (Axis, Axis)> {
    let rank = a.len().max(b.len());
    let at =
        |axes: &[Axis], axis: usize| (axis + axes.len()).checked_sub(rank).map_or_else(Axis::default, |axis| axes[axis].clone());
    (0..rank)
        .map(|axis| {
            let (a, b) = (at(a, axis), at(b, axis));
            a.join(&b).ok_or((a, b))
        })
        .collect()
}

/// What remains to be divided among the axes of a result.
struct Rest(Vec<Factor>);

impl Rest {
    fn of(axes: &[Axis]) -> Self {
        let mut factors = Axis::of(axes.iter().flat_map(|axis| axis.0.iter().cloned())).0;
        factors.reverse();
        Self(factors)
    }

    /// Splits the next factor into an outer one of this extent and capacity and a whole inner one.
    fn split(&mut self, capacity: usize, extent: Extent, inner: usize) -> Factor {
        self.0.pop();
        self.0.push(Factor::whole(inner));
        Factor { capacity, extent }
    }
}

/// The axes after a reshape between shapes of the capacities; `None` where they are not made of the same factors.
pub fn reshape(axes: &[Axis], shape: &Shape) -> Option<Vec<Axis>> {
    let mut rest = Rest::of(axes);
    let mut result = Vec::with_capacity(shape.rank());
    for &dim in shape.iter() {
        let (mut needed, mut factors) = (dim, Vec::new());
        while needed != 1 {
            let next = rest.0.last()?.clone();
            if next.capacity == 0 || needed == 0 {
                return None;
            }
            if needed % next.capacity == 0 {
                needed /= next.capacity;
                rest.0.pop();
                factors.push(next);
            } else if next.capacity.is_multiple_of(needed) {
                let inner = next.capacity / needed;
                let extent = next.extent.exact_quotient(&Extent::from(inner))?;
                factors.push(rest.split(needed, extent, inner));
                needed = 1;
            } else {
                return None;
            }
        }
        result.push(Axis::of(factors));
    }
    rest.0.is_empty().then_some(result)
}

/// The axes after a reshape to these extents, of the same elements in the same order; `None` where that takes more than another
/// shape of the capacities.
pub fn reshape_to(axes: &[Axis], extents: &[Extent]) -> Option<Vec<Axis>> {
    let one = Extent::from(1i64);
    let mut rest = Rest::of(axes);
    let mut result = Vec::with_capacity(extents.len());
    for extent in extents {
        let (mut needed, mut factors) = (extent.clone(), Vec::new());
        while needed != one {
            let next = rest.0.last()?.clone();
            if let Some(quotient) = needed.exact_quotient(&next.extent) {
                needed = quotient;
                rest.0.pop();
                factors.push(next);
            } else {
                let inner = next.extent.exact_quotient(&needed)?.known_size().filter(|&inner| inner > 0)?;
                if !next.capacity.is_multiple_of(inner) {
                    return None;
                }
                factors.push(rest.split(next.capacity / inner, needed, inner));
                needed = one.clone();
            }
        }
        result.push(Axis::of(factors));
    }
    rest.0.is_empty().then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ValueId;
    use crate::graph::extent::Atoms;

    #[test]
    fn reshapes_keep_what_exists() {
        let mut atoms = Atoms::default();
        let seq = atoms.symbol("seq", ValueId(0), (1, 128));
        let rows = |rows: usize| [Axis::whole(rows), Axis::new(128, seq.clone()), Axis::whole(384)];
        // A row of one sentence is a prefix; rows of several are not.
        let flat = reshape(&rows(1), &Shape::from([128, 384])).unwrap();
        assert_eq!(flat, [Axis::new(128, seq.clone()), Axis::whole(384)]);
        let flat = reshape(&rows(4), &Shape::from([512, 384])).unwrap();
        assert!(!flat[0].is_prefix() && flat[1].is_whole());
        assert_eq!(flat[0].extent(), &seq * &Extent::from(4i64));
        assert_eq!(reshape(&flat, &Shape::from([4, 128, 12, 32])).unwrap()[1], Axis::new(128, seq.clone()));
        // Half of the elements that there is room for are not half of those that exist.
        assert_eq!(reshape(&rows(1), &Shape::from([64, 2, 384])), None);
        let extents = [Extent::from(4i64), seq.clone(), Extent::from(12i64), Extent::from(32i64)];
        assert_eq!(reshape_to(&rows(4), &extents).unwrap()[2], Axis::whole(12));
        let swapped = [seq.clone(), Extent::from(4i64), Extent::from(384i64)];
        assert_eq!(reshape_to(&rows(4), &swapped), None);
        let wide = [&seq * &Extent::from(384i64)];
        assert_eq!(reshape_to(&rows(1), &wide).unwrap(), [Axis::new(128 * 384, wide[0].clone())]);
    }
}
