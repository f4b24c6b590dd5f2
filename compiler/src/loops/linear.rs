//! Index arithmetic: sums of multiples of axes, their ranges, and division by constants where it comes out even.

use std::collections::BTreeMap;

use mcc_support::DType;

use super::AxisId;
use super::expr::{Binary, Expr, ExprId, Exprs};

/// What a linear form is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Atom {
    Axis(AxisId),
    /// An expression that is not linear itself.
    Expr(ExprId),
}

/// `Σ coefficient · atom + constant`, over `i64`; coefficients are not 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Linear {
    pub terms: BTreeMap<Atom, i64>,
    pub constant: i64,
}

/// Least and greatest value.
pub type Range = (i64, i64);

/// What ranges of atoms are known from.
pub trait Ranges {
    /// Of an axis: its rounds. Of another expression: what its form tells, the whole of `i64` where that is nothing.
    fn range(&self, atom: Atom) -> Range;
}

const UNKNOWN: Range = (i64::MIN, i64::MAX);

impl Linear {
    pub fn constant(constant: i64) -> Self {
        Self { terms: BTreeMap::new(), constant }
    }

    pub fn atom(atom: Atom) -> Self {
        Self { terms: BTreeMap::from([(atom, 1)]), constant: 0 }
    }

    /// The linear form of an `i64` expression. What is not linear becomes an atom.
    pub fn of(exprs: &Exprs, id: ExprId) -> Self {
        match *exprs.get(id) {
            Expr::Const(DType::I64, bits) => Self::constant(bits as i64),
            Expr::Axis(axis) => Self::atom(Atom::Axis(axis)),
            Expr::Binary(Binary::Add, a, b) => Self::of(exprs, a).plus(&Self::of(exprs, b)),
            Expr::Binary(Binary::Sub, a, b) => Self::of(exprs, a).plus(&Self::of(exprs, b).times(-1)),
            Expr::Binary(Binary::Mul, a, b) => {
                let (a, b) = (Self::of(exprs, a), Self::of(exprs, b));
                match (a.as_constant(), b.as_constant()) {
                    (_, Some(factor)) => a.times(factor),
                    (Some(factor), _) => b.times(factor),
                    (None, None) => Self::atom(Atom::Expr(id)),
                }
            }
            _ => Self::atom(Atom::Expr(id)),
        }
    }

    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.constant = sum.constant.wrapping_add(other.constant);
        for (&atom, &coefficient) in &other.terms {
            sum.add_term(atom, coefficient);
        }
        sum
    }

    fn add_term(&mut self, atom: Atom, coefficient: i64) {
        let sum = self.terms.entry(atom).or_insert(0);
        *sum = sum.wrapping_add(coefficient);
        if *sum == 0 {
            self.terms.remove(&atom);
        }
    }

    #[must_use]
    pub fn times(&self, factor: i64) -> Self {
        if factor == 0 {
            return Self::default();
        }
        let terms = self.terms.iter().map(|(&atom, &coefficient)| (atom, coefficient.wrapping_mul(factor))).collect();
        Self { terms, constant: self.constant.wrapping_mul(factor) }
    }

    /// The coefficient of an atom, 0 where it is not there.
    pub fn coefficient(&self, atom: Atom) -> i64 {
        self.terms.get(&atom).copied().unwrap_or(0)
    }

    /// With an atom replaced by another form.
    #[must_use]
    pub fn replace(&self, atom: Atom, by: &Self) -> Self {
        let mut rest = self.clone();
        match rest.terms.remove(&atom) {
            Some(coefficient) => rest.plus(&by.times(coefficient)),
            None => rest,
        }
    }

    /// Least and greatest value; the whole of `i64` where it is not known.
    pub fn range(&self, ranges: &dyn Ranges) -> Range {
        let mut low = i128::from(self.constant);
        let mut high = low;
        for (&atom, &coefficient) in &self.terms {
            let (least, greatest) = ranges.range(atom);
            if (least, greatest) == UNKNOWN {
                return UNKNOWN;
            }
            let ends = [i128::from(least) * i128::from(coefficient), i128::from(greatest) * i128::from(coefficient)];
            low += ends[0].min(ends[1]);
            high += ends[0].max(ends[1]);
        }
        match (i64::try_from(low), i64::try_from(high)) {
            (Ok(low), Ok(high)) => (low, high),
            _ => UNKNOWN,
        }
    }

    /// `(floor(self / divisor), self mod divisor)`, both linear, where the terms that the divisor does not divide stay within one
    /// multiple of it.
    pub fn divide(&self, divisor: i64, ranges: &dyn Ranges) -> Option<(Self, Self)> {
        assert!(divisor > 0, "division by {divisor}");
        let mut quotient = Self::constant(self.constant.div_euclid(divisor));
        let mut rest = Self::constant(self.constant.rem_euclid(divisor));
        for (&atom, &coefficient) in &self.terms {
            let part = coefficient.rem_euclid(divisor);
            // The whole multiples go to the quotient, what is left of the coefficient to the rest.
            quotient.add_term(atom, coefficient.div_euclid(divisor));
            rest.add_term(atom, part);
        }
        quotient.terms.retain(|_, coefficient| *coefficient != 0);
        rest.terms.retain(|_, coefficient| *coefficient != 0);
        let (low, high) = rest.range(ranges);
        if (low, high) == UNKNOWN {
            return None;
        }
        let multiple = low.div_euclid(divisor);
        if high.div_euclid(divisor) != multiple {
            return None;
        }
        quotient.constant += multiple;
        rest.constant -= multiple * divisor;
        Some((quotient, rest))
    }

    pub fn to_expr(&self, exprs: &mut Exprs) -> ExprId {
        let mut sum = None;
        for (&atom, &coefficient) in &self.terms {
            let atom = match atom {
                Atom::Axis(axis) => exprs.axis(axis),
                Atom::Expr(expr) => expr,
            };
            let term = if coefficient == 1 {
                atom
            } else {
                let coefficient = exprs.int(coefficient);
                exprs.binary(Binary::Mul, atom, coefficient)
            };
            sum = Some(match sum {
                Some(sum) => exprs.binary(Binary::Add, sum, term),
                None => term,
            });
        }
        match sum {
            Some(sum) if self.constant == 0 => sum,
            Some(sum) => {
                let constant = exprs.int(self.constant);
                exprs.binary(Binary::Add, sum, constant)
            }
            None => exprs.int(self.constant),
        }
    }
}

/// Whether an index is a sum of multiples of axes.
pub fn is_affine(exprs: &Exprs, id: ExprId) -> bool {
    Linear::of(exprs, id).terms.keys().all(|atom| matches!(atom, Atom::Axis(_)))
}

/// Ranges of a kernel's atoms: rounds of axes, and of expressions what clamps, remainders and divisions tell.
#[derive(Clone, Copy, Debug)]
pub struct KernelRanges<'a> {
    pub exprs: &'a Exprs,
    pub axes: &'a mcc_support::EntityMap<AxisId, super::Axis>,
}

impl Ranges for KernelRanges<'_> {
    fn range(&self, atom: Atom) -> Range {
        match atom {
            Atom::Axis(axis) => (0, (self.axes[axis].extent as i64 - 1).max(0)),
            Atom::Expr(expr) => self.expr(expr),
        }
    }
}

impl KernelRanges<'_> {
    /// The range of an integer expression.
    pub fn expr(&self, id: ExprId) -> Range {
        let of = |id| Linear::of(self.exprs, id).range(self);
        match *self.exprs.get(id) {
            Expr::Binary(Binary::Mod, a, b) => match (self.exprs.as_int(b), of(a)) {
                (Some(divisor), (low, high)) if low >= 0 && high < divisor => (low, high),
                (Some(divisor), _) => (0, divisor - 1),
                _ => UNKNOWN,
            },
            Expr::Binary(Binary::DivFloor, a, b) => match (self.exprs.as_int(b), of(a)) {
                (Some(divisor), range) if range != UNKNOWN => (range.0.div_euclid(divisor), range.1.div_euclid(divisor)),
                _ => UNKNOWN,
            },
            Expr::Binary(Binary::Min, a, b) if self.exprs.dtype(id) == DType::I64 => {
                let (a, b) = (of(a), of(b));
                (a.0.min(b.0), a.1.min(b.1))
            }
            Expr::Binary(Binary::Max, a, b) if self.exprs.dtype(id) == DType::I64 => {
                let (a, b) = (of(a), of(b));
                (a.0.max(b.0), a.1.max(b.1))
            }
            Expr::Select(_, a, b) if self.exprs.dtype(id) == DType::I64 => {
                let (a, b) = (of(a), of(b));
                (a.0.min(b.0), a.1.max(b.1))
            }
            Expr::Cast(DType::I64, a) => {
                let from = self.exprs.dtype(a);
                match from {
                    DType::Bool => (0, 1),
                    _ if from.is_integer() && from.size_bits() < 64 => {
                        let (low, high) = from.integer_range();
                        (low as i64, high as i64)
                    }
                    _ => UNKNOWN,
                }
            }
            Expr::Const(DType::I64, bits) => (bits as i64, bits as i64),
            Expr::Axis(axis) => self.range(Atom::Axis(axis)),
            _ => UNKNOWN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::{AxisKind, Kernel};

    #[test]
    fn division_agrees_with_arithmetic_wherever_it_is_given() {
        let mut kernel = Kernel::new("k");
        let a = kernel.axis("a", 3, AxisKind::Spatial);
        let b = kernel.axis("b", 4, AxisKind::Spatial);
        let ranges = KernelRanges { exprs: &kernel.exprs, axes: &kernel.axes };
        let mut given = 0;
        for (ca, cb, c0, divisor) in (-9..9).flat_map(|ca| {
            (-5..6).flat_map(move |cb| (-7..8).flat_map(move |c0| [1, 2, 4, 5, 8].map(|divisor| (ca, cb, c0, divisor))))
        }) {
            let form =
                Linear::atom(Atom::Axis(a)).times(ca).plus(&Linear::atom(Atom::Axis(b)).times(cb)).plus(&Linear::constant(c0));
            let Some((quotient, rest)) = form.divide(divisor, &ranges) else { continue };
            given += 1;
            for (x, y) in (0..3i64).flat_map(|x| (0..4i64).map(move |y| (x, y))) {
                let at =
                    |form: &Linear| form.constant + form.coefficient(Atom::Axis(a)) * x + form.coefficient(Atom::Axis(b)) * y;
                assert_eq!(at(&quotient), at(&form).div_euclid(divisor), "{form:?} / {divisor}");
                assert_eq!(at(&rest), at(&form).rem_euclid(divisor), "{form:?} % {divisor}");
            }
        }
        assert!(given > 1000, "only {given} divisions came out even");
    }
}
