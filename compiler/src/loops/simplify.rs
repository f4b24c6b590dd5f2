//! Index expressions in their simplest form: sums in one order, divisions and remainders done where ranges allow.

use mcc_support::{DType, EntityMap};

use super::linear::{Atom, KernelRanges, Linear, Range};
use super::{Axis, AxisId, Binary, Expr, ExprId, Exprs, Kernel};

/// The simplest form of an `i64` expression that has the same value in every round of the axes in it. Loads and other expressions
/// in it that are not index arithmetic stay as they are.
pub fn simplify(exprs: &mut Exprs, axes: &EntityMap<AxisId, Axis>, id: ExprId) -> ExprId {
    match exprs.get(id) {
        Expr::Const(..) | Expr::Axis(_) => id,
        _ if exprs.dtype(id) == DType::I64 => linear(exprs, axes, id).to_expr(exprs),
        _ => id,
    }
}

/// Least and greatest value of an index; the whole of `i64` where they are not known.
pub fn range(kernel: &Kernel, id: ExprId) -> Range {
    Linear::of(&kernel.exprs, id).range(&KernelRanges { exprs: &kernel.exprs, axes: &kernel.axes })
}

/// The linear form, with atoms simplified.
fn linear(exprs: &mut Exprs, axes: &EntityMap<AxisId, Axis>, id: ExprId) -> Linear {
    let mut form = Linear::of(exprs, id);
    for atom in form.terms.keys().copied().collect::<Vec<_>>() {
        let Atom::Expr(expr) = atom else { continue };
        let simple = match *exprs.get(expr) {
            Expr::Binary(op @ (Binary::DivFloor | Binary::Mod), a, b) => match exprs.as_int(b) {
                Some(divisor) if divisor > 0 => {
                    let a = linear(exprs, axes, a);
                    divided(exprs, axes, op, &a, divisor)
                }
                _ => continue,
            },
            Expr::Binary(op @ (Binary::Min | Binary::Max), a, b) => {
                let (a, b) = (linear(exprs, axes, a), linear(exprs, axes, b));
                extreme(exprs, axes, op, &a, &b)
            }
            _ => continue,
        };
        form = form.replace(atom, &simple);
    }
    while let Some(joined) = join_digits(exprs, axes, &form) {
        form = joined;
    }
    form
}

/// `x mod k + k · (x / k)` is `x`, and `x mod k + k · (x / k mod m)` is `x mod (k · m)`, in any multiple.
fn join_digits(exprs: &mut Exprs, axes: &EntityMap<AxisId, Axis>, form: &Linear) -> Option<Linear> {
    for (&low, &factor) in &form.terms {
        let Atom::Expr(id) = low else { continue };
        let Expr::Binary(Binary::Mod, x, by) = *exprs.get(id) else { continue };
        let divisor = exprs.as_int(by)?;
        for (&high, _) in form.terms.iter().filter(|&(_, &other)| factor.checked_mul(divisor) == Some(other)) {
            let Atom::Expr(id) = high else { continue };
            let whole = match *exprs.get(id) {
                Expr::Binary(Binary::DivFloor, y, by) if (y, exprs.as_int(by)) == (x, Some(divisor)) => Linear::of(exprs, x),
                Expr::Binary(Binary::Mod, quotient, modulus) => {
                    let expected = divided(exprs, axes, Binary::DivFloor, &Linear::of(exprs, x), divisor);
                    if Linear::of(exprs, quotient) != expected {
                        continue;
                    }
                    let modulus = exprs.as_int(modulus)?.checked_mul(divisor)?;
                    let x = Linear::of(exprs, x);
                    divided(exprs, axes, Binary::Mod, &x, modulus)
                }
                _ => continue,
            };
            let rest = form.replace(low, &Linear::default()).replace(high, &Linear::default());
            return Some(rest.plus(&whole.times(factor)));
        }
    }
    None
}

fn range_of(exprs: &Exprs, axes: &EntityMap<AxisId, Axis>, form: &Linear) -> Range {
    form.range(&KernelRanges { exprs, axes })
}

/// One of the two where ranges tell which.
fn extreme(exprs: &mut Exprs, axes: &EntityMap<AxisId, Axis>, op: Binary, a: &Linear, b: &Linear) -> Linear {
    let (low, high) = range_of(exprs, axes, &a.plus(&b.times(-1)));
    let (is_less, is_greater) = (high <= 0, low >= 0);
    match op {
        Binary::Min if is_less => a.clone(),
        Binary::Min if is_greater => b.clone(),
        Binary::Max if is_greater => a.clone(),
        Binary::Max if is_less => b.clone(),
        _ => {
            let (a, b) = (a.to_expr(exprs), b.to_expr(exprs));
            Linear::atom(Atom::Expr(exprs.binary(op, a, b)))
        }
    }
}

/// `a / divisor` or `a mod divisor`.
fn divided(exprs: &mut Exprs, axes: &EntityMap<AxisId, Axis>, op: Binary, a: &Linear, divisor: i64) -> Linear {
    let is_quotient = op == Binary::DivFloor;
    if let Some((quotient, rest)) = a.divide(divisor, &KernelRanges { exprs, axes }) {
        return if is_quotient { quotient } else { rest };
    }
    // Whole multiples of the divisor leave the division.
    let whole = Linear {
        terms: a.terms.iter().map(|(&atom, c)| (atom, c.div_euclid(divisor))).filter(|&(_, c)| c != 0).collect(),
        constant: a.constant.div_euclid(divisor),
    };
    let rest = a.plus(&whole.times(-divisor));
    // (g · big + small) / (g · d) = big / d, where small is less than g.
    for unit in units(&rest, divisor) {
        let (big, small): (Vec<_>, Vec<_>) = rest.terms.iter().map(|(&atom, &c)| (atom, c)).partition(|(_, c)| c % unit == 0);
        let small = Linear { terms: small.into_iter().collect(), constant: rest.constant % unit };
        let (low, high) = range_of(exprs, axes, &small);
        if low < 0 || high >= unit {
            continue;
        }
        let big = Linear { terms: big.into_iter().map(|(atom, c)| (atom, c / unit)).collect(), constant: rest.constant / unit };
        let inner = divided(exprs, axes, op, &big, divisor / unit);
        return if is_quotient { whole.plus(&inner) } else { inner.times(unit).plus(&small) };
    }
    let nested = nested(exprs, op, &rest, divisor);
    let atom = match nested {
        Some((a, divisor)) => {
            let a = linear(exprs, axes, a);
            return if is_quotient {
                whole.plus(&divided(exprs, axes, op, &a, divisor))
            } else {
                divided(exprs, axes, op, &a, divisor)
            };
        }
        None => {
            let (rest, divisor) = (rest.to_expr(exprs), exprs.int(divisor));
            Linear::atom(Atom::Expr(exprs.binary(op, rest, divisor)))
        }
    };
    if is_quotient { whole.plus(&atom) } else { atom }
}

/// Divisors of `divisor` that could be the unit of some of the terms, the largest first.
fn units(form: &Linear, divisor: i64) -> Vec<i64> {
    let mut units: Vec<i64> = form.terms.values().map(|&c| gcd(c, divisor)).filter(|&unit| unit > 1).collect();
    units.sort_unstable_by(|a, b| b.cmp(a));
    units.dedup();
    units
}

/// `(x / a) / b = x / (a · b)`; `(x mod (a · b)) mod b = x mod b`.
fn nested(exprs: &Exprs, op: Binary, form: &Linear, divisor: i64) -> Option<(ExprId, i64)> {
    let (&Atom::Expr(atom), 1, 0) = (form.terms.keys().next()?, form.terms.len(), form.constant) else { return None };
    if form.coefficient(Atom::Expr(atom)) != 1 {
        return None;
    }
    match *exprs.get(atom) {
        Expr::Binary(inner, x, by) if inner == op => {
            let by = exprs.as_int(by).filter(|&by| by > 0)?;
            match op {
                Binary::DivFloor => Some((x, by.checked_mul(divisor)?)),
                _ => (by % divisor == 0).then_some((x, divisor)),
            }
        }
        _ => None,
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::AxisKind;
    use mcc_support::random::Random;

    /// The value of index arithmetic over axes.
    fn value(exprs: &Exprs, id: ExprId, axes: &[i64]) -> i64 {
        match *exprs.get(id) {
            Expr::Const(_, bits) => bits as i64,
            Expr::Axis(axis) => axes[axis.0 as usize],
            Expr::Binary(op, a, b) => {
                let (a, b) = (value(exprs, a, axes), value(exprs, b, axes));
                match op {
                    Binary::Add => a + b,
                    Binary::Sub => a - b,
                    Binary::Mul => a * b,
                    Binary::DivFloor => a.div_euclid(b),
                    Binary::Mod => a.rem_euclid(b),
                    Binary::Min => a.min(b),
                    Binary::Max => a.max(b),
                    _ => panic!("not index arithmetic"),
                }
            }
            _ => panic!("not index arithmetic"),
        }
    }

    fn random_index(kernel: &mut Kernel, random: &mut Random, depth: usize) -> ExprId {
        if depth == 0 || random.chance(0.1) {
            return match random.below(4) {
                0 => kernel.exprs.int(random.below(30) as i64 - 10),
                axis => kernel.exprs.axis(AxisId(axis as u32 - 1)),
            };
        }
        let a = random_index(kernel, random, depth - 1);
        let op = *random.pick(&[Binary::Add, Binary::Sub, Binary::Mul, Binary::DivFloor, Binary::Mod, Binary::Mod, Binary::Min]);
        let b = match op {
            Binary::Mul | Binary::DivFloor | Binary::Mod => kernel.exprs.int(*random.pick(&[1, 2, 3, 4, 6, 12])),
            _ => random_index(kernel, random, depth - 1),
        };
        kernel.exprs.binary(op, a, b)
    }

    #[test]
    fn simplified_indices_have_the_same_values() {
        let mut random = Random::new(7);
        for case in 0..20000 {
            let mut kernel = Kernel::new("k");
            for extent in [2, 3, 4] {
                kernel.axis(format!("i{extent}"), extent, AxisKind::Spatial);
            }
            let index = random_index(&mut kernel, &mut random, 5);
            let simple = simplify(&mut kernel.exprs, &kernel.axes, index);
            let (low, high) = range(&kernel, simple);
            for (x, y, z) in (0..2).flat_map(|x| (0..3).flat_map(move |y| (0..4).map(move |z| (x, y, z)))) {
                let expected = value(&kernel.exprs, index, &[x, y, z]);
                assert_eq!(value(&kernel.exprs, simple, &[x, y, z]), expected, "case {case} at {x}, {y}, {z}");
                assert!(low <= expected && expected <= high, "case {case}: {expected} outside {low}..={high}");
            }
        }
    }

    #[test]
    fn reshapes_cancel() {
        let mut kernel = Kernel::new("k");
        let h = kernel.axis("h", 12, AxisKind::Spatial);
        let s = kernel.axis("s", 128, AxisKind::Spatial);
        let j = kernel.axis("j", 768, AxisKind::Spatial);
        let exprs = &mut kernel.exprs;
        let (h, s, j) = (exprs.axis(h), exprs.axis(s), exprs.axis(j));
        let int = |exprs: &mut Exprs, op, a, b: i64| {
            let b = exprs.int(b);
            exprs.binary(op, a, b)
        };
        // [12, 128] flattened and taken apart again.
        let scaled = int(exprs, Binary::Mul, h, 128);
        let flat = exprs.binary(Binary::Add, scaled, s);
        let quotient = int(exprs, Binary::DivFloor, flat, 128);
        let rest = int(exprs, Binary::Mod, flat, 128);
        // [128, 768] seen as [128, 12, 64]: the middle index is that of the columns alone.
        let scaled = int(exprs, Binary::Mul, s, 768);
        let flat = exprs.binary(Binary::Add, scaled, j);
        let panels = int(exprs, Binary::DivFloor, flat, 64);
        let panel = int(exprs, Binary::Mod, panels, 12);
        let expected = int(exprs, Binary::DivFloor, j, 64);
        let axes = kernel.axes.clone();
        let exprs = &mut kernel.exprs;
        let (big, small) = (int(exprs, Binary::Mul, expected, 64), int(exprs, Binary::Mod, j, 64));
        let again = exprs.binary(Binary::Add, small, big);
        for (index, simple) in [(quotient, h), (rest, s), (panel, expected), (again, j)] {
            assert_eq!(simplify(&mut kernel.exprs, &axes, index), simple);
        }
    }
}
