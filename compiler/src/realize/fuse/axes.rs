//! Which round of a nest touches a given element: indices solved for the axes in them.

use std::collections::BTreeMap;

use mcc_support::{Result, bail, ensure};

use super::rewrite::simplify;
use crate::loops::linear::{Atom, Linear};
use crate::loops::{AxisId, Binary, Expr, ExprId, Kernel};

/// `(axis / divide) % modulo`, which has `range` values.
#[derive(Clone, Copy, Debug)]
struct Piece {
    axis: AxisId,
    divide: i64,
    range: i64,
}

/// `constant + Σ coefficient · piece`, the largest coefficient first.
struct Digits {
    constant: i64,
    digits: Vec<(i64, Piece)>,
}

fn atom_piece(kernel: &Kernel, atom: Atom) -> Option<Piece> {
    match atom {
        Atom::Axis(axis) => Some(Piece { axis, divide: 1, range: kernel.axes[axis].extent as i64 }),
        Atom::Expr(expr) => piece(kernel, expr),
    }
}

fn piece(kernel: &Kernel, id: ExprId) -> Option<Piece> {
    let exprs = &kernel.exprs;
    let positive = |id| exprs.as_int(id).filter(|&value| value > 0);
    match *exprs.get(id) {
        Expr::Axis(axis) => atom_piece(kernel, Atom::Axis(axis)),
        Expr::Binary(Binary::DivFloor, a, by) => {
            let (inner, by) = (piece(kernel, a)?, positive(by)?);
            Some(Piece { divide: inner.divide.checked_mul(by)?, range: (inner.range + by - 1) / by, ..inner })
        }
        Expr::Binary(Binary::Mod, a, by) => {
            let (inner, by) = (piece(kernel, a)?, positive(by)?);
            Some(Piece { range: inner.range.min(by), ..inner })
        }
        _ => None,
    }
}

/// The index as the number that its pieces are the digits of, or `None` where it is not one.
fn digits(kernel: &Kernel, index: ExprId) -> Option<Digits> {
    let Linear { terms, constant } = Linear::of(&kernel.exprs, index);
    let mut digits: Vec<(i64, Piece)> =
        terms.into_iter().map(|(atom, factor)| Some((factor, atom_piece(kernel, atom)?))).collect::<Option<_>>()?;
    digits.sort_by_key(|&(factor, _)| -factor);
    let mut below = 1;
    for &(factor, piece) in digits.iter().rev() {
        if factor != below {
            return None;
        }
        below = factor * piece.range;
    }
    Some(Digits { constant, digits })
}

/// Values for the `axes` of `kernel` under which `index` is `target` (expressions of `into`, which may be another kernel).
/// They are right where the index is a renumbering of the axes and the target is inside what it reaches.
pub fn solve(
    kernel: &Kernel,
    axes: &[AxisId],
    index: &[ExprId],
    into: &mut Kernel,
    target: &[ExprId],
) -> Result<BTreeMap<AxisId, ExprId>> {
    ensure!(index.len() == target.len(), "the ranks differ");
    let mut pieces: BTreeMap<AxisId, BTreeMap<i64, (i64, ExprId)>> = BTreeMap::new();
    for (&index, &target) in index.iter().zip(target) {
        let Some(Digits { constant, digits }) = digits(kernel, index) else {
            bail!("an index is not a plain renumbering of axes");
        };
        let constant = into.exprs.int(-constant);
        let value = into.exprs.binary(Binary::Add, target, constant);
        for (place, &(factor, piece)) in digits.iter().enumerate() {
            let mut digit = binary_int(into, Binary::DivFloor, value, factor);
            if place > 0 {
                digit = binary_int(into, Binary::Mod, digit, piece.range);
            }
            pieces.entry(piece.axis).or_default().entry(piece.divide).or_insert((piece.range, simplify(into, digit)));
        }
    }
    axes.iter().map(|&axis| Ok((axis, axis_value(kernel, axis, pieces.get(&axis), into)?))).collect()
}

/// An axis from its pieces, which must tell it completely.
fn axis_value(kernel: &Kernel, axis: AxisId, pieces: Option<&BTreeMap<i64, (i64, ExprId)>>, into: &mut Kernel) -> Result<ExprId> {
    let extent = kernel.axes[axis].extent as i64;
    let mut value = into.exprs.int(0);
    let mut known = 1;
    for (&divide, &(range, digit)) in pieces.into_iter().flatten() {
        if divide != known {
            break;
        }
        let part = binary_int(into, Binary::Mul, digit, divide);
        value = into.exprs.binary(Binary::Add, value, part);
        known *= range;
    }
    ensure!(known >= extent, "the index does not tell axis '{}'", kernel.axes[axis].name);
    Ok(simplify(into, value))
}

fn binary_int(kernel: &mut Kernel, op: Binary, a: ExprId, b: i64) -> ExprId {
    let b = kernel.exprs.int(b);
    kernel.exprs.binary(op, a, b)
}

/// The axes of `kernel` that an index is composed of as digits, with the number of values of each, the outermost first.
pub fn digits_of(kernel: &Kernel, index: ExprId) -> Option<Vec<(AxisId, usize)>> {
    Some(digits(kernel, index)?.digits.into_iter().map(|(_, piece)| (piece.axis, piece.range as usize)).collect())
}
