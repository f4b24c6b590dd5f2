//! Extents that are known only when a model runs, as symbolic expressions: equal ones are recognised, and each has bounds.

use std::collections::BTreeMap;
use std::fmt;

use mcc_support::EntityMap;
use mcc_support::entity_id;

use super::ValueId;

entity_id!(/// A part of extents that is not a sum or product of others.
    AtomId, "s");

/// A polynomial over atoms: products of atoms, each list sorted, with their factors. What is zero is left out, so equal
/// polynomials are equal values.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Extent(BTreeMap<Vec<AtomId>, i64>);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Atom {
    /// An `i64[]` of the graph, never outside of the bounds.
    Symbol {
        name: String,
        value: ValueId,
    },
    /// Rounded down; the divisor is at least 1.
    Quotient(Extent, Extent),
    Min(Extent, Extent),
    Max(Extent, Extent),
}

#[derive(Clone, PartialEq, Debug)]
struct Entry {
    atom: Atom,
    bounds: (i64, i64),
}

/// The atoms of the extents of one graph.
#[derive(Debug, Default)]
pub struct Atoms(EntityMap<AtomId, Entry>);

impl From<i64> for Extent {
    fn from(value: i64) -> Self {
        Extent::default().plus(Vec::new(), value)
    }
}

impl From<usize> for Extent {
    fn from(value: usize) -> Self {
        Extent::from(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl Extent {
    fn plus(mut self, atoms: Vec<AtomId>, factor: i64) -> Self {
        let entry = self.0.entry(atoms).or_insert(0);
        // An extent that overflows is larger than any tensor, and refused for that.
        *entry = entry.saturating_add(factor);
        self.0.retain(|_, factor| *factor != 0);
        self
    }

    /// The value, where it does not depend on the run.
    pub fn known(&self) -> Option<i64> {
        match self.0.len() {
            0 => Some(0),
            1 => self.0.get(&Vec::new()).copied(),
            _ => None,
        }
    }

    /// As [`known`](Self::known), of what is not negative.
    pub fn known_size(&self) -> Option<usize> {
        self.known().and_then(|value| usize::try_from(value).ok())
    }

    /// The products of atoms with their factors.
    pub fn terms(&self) -> impl Iterator<Item = (&[AtomId], i64)> {
        self.0.iter().map(|(atoms, &factor)| (atoms.as_slice(), factor))
    }

    /// The atom that it is, if it is one.
    pub fn atom(&self) -> Option<AtomId> {
        match self.0.iter().next() {
            Some((atoms, 1)) if self.0.len() == 1 && atoms.len() == 1 => Some(atoms[0]),
            _ => None,
        }
    }

    /// The quotient where the division has no remainder whatever the atoms are.
    pub fn exact_quotient(&self, by: &Extent) -> Option<Extent> {
        if self == by && by.known() != Some(0) {
            return Some(Extent::from(1i64));
        }
        let mut terms = by.0.iter();
        let (Some((atoms, &factor)), None) = (terms.next(), terms.next()) else { return None };
        let mut quotient = Extent::default();
        for (product, &value) in &self.0 {
            let mut rest = product.clone();
            for atom in atoms {
                rest.remove(rest.iter().position(|other| other == atom)?);
            }
            if value.checked_rem(factor)? != 0 {
                return None;
            }
            quotient = quotient.plus(rest, value / factor);
        }
        Some(quotient)
    }
}

impl std::ops::Add for &Extent {
    type Output = Extent;
    fn add(self, other: &Extent) -> Extent {
        other.0.iter().fold(self.clone(), |sum, (atoms, &factor)| sum.plus(atoms.clone(), factor))
    }
}

impl std::ops::Sub for &Extent {
    type Output = Extent;
    fn sub(self, other: &Extent) -> Extent {
        other.0.iter().fold(self.clone(), |sum, (atoms, &factor)| sum.plus(atoms.clone(), factor.saturating_neg()))
    }
}

impl std::ops::Mul for &Extent {
    type Output = Extent;
    fn mul(self, other: &Extent) -> Extent {
        let mut product = Extent::default();
        for (a, &x) in &self.0 {
            for (b, &y) in &other.0 {
                let mut atoms = [a.as_slice(), b].concat();
                atoms.sort_unstable();
                product = product.plus(atoms, x.saturating_mul(y));
            }
        }
        product
    }
}

impl Atoms {
    pub fn symbol(&mut self, name: &str, value: ValueId, bounds: (i64, i64)) -> Extent {
        self.intern(Atom::Symbol { name: name.to_string(), value }, bounds)
    }

    pub fn atom(&self, id: AtomId) -> &Atom {
        &self.0[id].atom
    }

    fn intern(&mut self, atom: Atom, bounds: (i64, i64)) -> Extent {
        if bounds.0 == bounds.1 {
            return Extent::from(bounds.0);
        }
        let known = self.0.iter().find(|(_, entry)| entry.atom == atom).map(|(id, _)| id);
        let id = known.unwrap_or_else(|| self.0.push(Entry { atom, bounds }));
        Extent::default().plus(vec![id], 1)
    }

    /// The least and the greatest value that it can have, or wider ones.
    pub fn bounds(&self, extent: &Extent) -> (i64, i64) {
        let product = |(atoms, factor): (&[AtomId], i64)| {
            atoms.iter().fold((factor, factor), |(low, high), &atom| {
                let (a, b) = self.0[atom].bounds;
                let corners = [low.saturating_mul(a), low.saturating_mul(b), high.saturating_mul(a), high.saturating_mul(b)];
                (corners.into_iter().min().unwrap_or(0), corners.into_iter().max().unwrap_or(0))
            })
        };
        extent.terms().map(product).fold((0i64, 0i64), |(low, high), (a, b)| (low.saturating_add(a), high.saturating_add(b)))
    }

    /// The quotient, rounded down; `None` where the divisor may be less than 1.
    pub fn quotient(&mut self, a: &Extent, b: &Extent) -> Option<Extent> {
        if let Some(quotient) = a.exact_quotient(b) {
            return Some(quotient);
        }
        let ((low, high), (least, most)) = (self.bounds(a), self.bounds(b));
        if least < 1 {
            return None;
        }
        // What of a sum can be divided is divided.
        if let Some(divisor) = b.known() {
            let (mut whole, mut rest) = (Extent::default(), Extent::default());
            for (atoms, factor) in a.terms() {
                whole = whole.plus(atoms.to_vec(), factor.div_euclid(divisor));
                rest = rest.plus(atoms.to_vec(), factor.rem_euclid(divisor));
            }
            if whole != Extent::default() {
                return Some(&whole + &self.quotient(&rest, b)?);
            }
        }
        let corners = [low, high].into_iter().flat_map(|a| [a.div_euclid(least), a.div_euclid(most)]);
        let bounds = (corners.clone().min()?, corners.max()?);
        Some(self.intern(Atom::Quotient(a.clone(), b.clone()), bounds))
    }

    pub fn min(&mut self, a: &Extent, b: &Extent) -> Extent {
        let (low, high) = self.bounds(&(a - b));
        if high <= 0 {
            return a.clone();
        }
        if low >= 0 {
            return b.clone();
        }
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        let (x, y) = (self.bounds(a), self.bounds(b));
        self.intern(Atom::Min(a.clone(), b.clone()), (x.0.min(y.0), x.1.min(y.1)))
    }

    pub fn max(&mut self, a: &Extent, b: &Extent) -> Extent {
        let (low, high) = self.bounds(&(a - b));
        if high <= 0 {
            return b.clone();
        }
        if low >= 0 {
            return a.clone();
        }
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        let (x, y) = (self.bounds(a), self.bounds(b));
        self.intern(Atom::Max(a.clone(), b.clone()), (x.0.max(y.0), x.1.max(y.1)))
    }

    /// As users write it: `2*seq+1`.
    pub fn text(&self, extent: &Extent) -> String {
        let product = |(atoms, factor): (&[AtomId], i64)| {
            let names = atoms.iter().map(|&atom| self.atom_text(atom));
            let factor = (factor != 1 || atoms.is_empty()).then(|| factor.to_string());
            factor.into_iter().chain(names).collect::<Vec<_>>().join("*")
        };
        // Constants come last.
        let mut terms: Vec<_> = extent.terms().collect();
        terms.reverse();
        let text = terms.into_iter().map(product).collect::<Vec<_>>().join("+").replace("+-", "-");
        if text.is_empty() { "0".to_string() } else { text }
    }

    fn atom_text(&self, atom: AtomId) -> String {
        match &self.0[atom].atom {
            Atom::Symbol { name, .. } => name.clone(),
            Atom::Quotient(a, b) => format!("floor(({})/({}))", self.text(a), self.text(b)),
            Atom::Min(a, b) => format!("min({}, {})", self.text(a), self.text(b)),
            Atom::Max(a, b) => format!("max({}, {})", self.text(a), self.text(b)),
        }
    }
}

impl fmt::Display for Extent {
    /// For debugging; [`Atoms::text`] knows the names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some(value) => write!(f, "{value}"),
            None => write!(f, "{:?}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atoms() -> (Atoms, Extent, Extent) {
        let mut atoms = Atoms::default();
        let seq = atoms.symbol("seq", ValueId(0), (1, 128));
        let batch = atoms.symbol("batch", ValueId(1), (1, 4));
        (atoms, seq, batch)
    }

    #[test]
    fn equal_extents_are_equal_however_they_were_computed() {
        let (mut atoms, seq, batch) = atoms();
        let one = Extent::from(1i64);
        assert_eq!(&(&seq + &one) - &one, seq);
        assert_eq!(&seq * &batch, &batch * &seq);
        let wide = &seq * &Extent::from(384i64);
        assert_eq!(atoms.quotient(&wide, &Extent::from(384i64)), Some(seq.clone()));
        assert_eq!(atoms.quotient(&(&wide * &batch), &(&wide * &one)), Some(batch.clone()));
        assert_eq!(atoms.min(&seq, &(&seq + &one)), seq);
        assert_eq!(atoms.max(&seq, &Extent::from(0i64)), seq);
        assert_ne!(atoms.min(&seq, &batch), seq);
        let halves = [&seq, &(&seq + &Extent::from(2i64))].map(|extent| atoms.quotient(extent, &Extent::from(2i64)).unwrap());
        assert_eq!(&halves[1] - &halves[0], one);
    }

    #[test]
    fn bounds_hold_what_extents_can_be() {
        let (mut atoms, seq, batch) = atoms();
        assert_eq!(atoms.bounds(&(&seq * &batch)), (1, 512));
        assert_eq!(atoms.bounds(&(&Extent::from(10i64) - &seq)), (-118, 9));
        let half = atoms.quotient(&(&seq + &Extent::from(1i64)), &Extent::from(2i64)).unwrap();
        assert_eq!(atoms.bounds(&half), (1, 64));
        assert_eq!(atoms.text(&(&(&seq * &Extent::from(2i64)) - &Extent::from(1i64))), "2*seq-1");
        assert_eq!(atoms.quotient(&seq, &(&batch - &Extent::from(1i64))), None);
    }
}
