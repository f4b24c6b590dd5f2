//! Sums of products.

use super::Operand;
use super::nest::Nest;
use crate::graph::{Contraction, Conv, ReduceFn};
use crate::loops::BufferId;
use crate::loops::expr::{Binary, Expr, ExprId};
use crate::loops::linear::Linear;
use crate::loops::scalar;

/// Axes are named by their labels: those of the result in its order, then the summed ones in the order of the operands.
pub fn contract(nest: &mut Nest, contraction: &Contraction, operands: &[Operand<'_>], buffer: BufferId) {
    nest.clear();
    let Contraction { lhs, rhs, out } = contraction;
    let extent = |label: u8| {
        let at = |labels: &[u8], shape: &[usize]| labels.iter().position(|&other| other == label).map(|at| shape[at]);
        at(lhs, operands[0].shape).or_else(|| at(rhs, operands[1].shape)).expect("a label is in an operand")
    };
    let name = |label: u8| {
        if label.is_ascii_alphabetic() { char::from(label).to_string() } else { format!("l{label}") }
    };
    let mut forms: Vec<(u8, Linear)> = out.iter().map(|&label| (label, nest.spatial(name(label), extent(label)))).collect();
    let mut summed = Vec::new();
    for &label in lhs.iter().chain(rhs) {
        if forms.iter().all(|&(known, _)| known != label) {
            forms.push((label, nest.reduce_axis(name(label), extent(label), &mut summed)));
        }
    }
    let form = |&label: &u8| forms.iter().find(|&&(known, _)| known == label).expect("every label has an axis").1.clone();
    let a = nest.load(&operands[0], &lhs.iter().map(form).collect::<Vec<_>>());
    let b = nest.load(&operands[1], &rhs.iter().map(form).collect::<Vec<_>>());
    let value = sum_of_products(nest, a, b, &summed);
    nest.store(buffer, value);
}

fn sum_of_products(nest: &mut Nest, a: ExprId, b: ExprId, axes: &[crate::loops::AxisId]) -> ExprId {
    let exprs = nest.exprs();
    let dtype = exprs.dtype(a);
    let wide = scalar::accumulator(dtype);
    let (a, b) = (scalar::cast(exprs, wide, a), scalar::cast(exprs, wide, b));
    let product = exprs.binary(Binary::Mul, a, b);
    nest.reduce(ReduceFn::Sum, axes, product, dtype)
}

/// Names of up to three spatial axes, the last ones first.
fn spatial_name(axis: usize, rank: usize) -> String {
    let from_end = rank - 1 - axis;
    ["x", "y", "z"].get(from_end).map_or_else(|| format!("s{axis}"), |&name| name.to_string())
}

/// Loops `n, m, (z, y, x)` around `c, (kz, ky, kx)`. With groups of one filter `m` is the group; with groups of more, `n, g, m`
/// with `m` inside of the group.
pub fn conv(nest: &mut Nest, conv: &Conv, operands: &[Operand<'_>], buffer: BufferId) {
    let extents: Vec<usize> = nest.spatial.iter().map(|&axis| nest.kernel.axes[axis].extent).collect();
    nest.clear();
    let (x, w) = (&operands[0], &operands[1]);
    let rank = conv.strides.len();
    let (filters, channels) = (w.shape[0] / conv.groups, w.shape[1]);
    let n = nest.spatial("n", extents[0]);
    let (group, m) = if conv.groups > 1 && filters > 1 {
        let group = nest.spatial("g", conv.groups);
        let m = nest.spatial("m", filters);
        (group.clone(), group.times(filters as i64).plus(&m))
    } else {
        let m = nest.spatial("m", extents[1]);
        (if conv.groups > 1 { m.clone() } else { Linear::default() }, m)
    };
    let out: Vec<Linear> = (0..rank).map(|axis| nest.spatial(spatial_name(axis, rank), extents[axis + 2])).collect();
    let mut summed = Vec::new();
    let c = nest.reduce_axis("c", channels, &mut summed);
    let taps: Vec<Linear> = (0..rank)
        .map(|axis| nest.reduce_axis(format!("k{}", spatial_name(axis, rank)), w.shape[axis + 2], &mut summed))
        .collect();

    let channel = group.times(channels as i64).plus(&c);
    let mut index = vec![n.clone(), channel];
    let mut between: Option<ExprId> = None;
    for axis in 0..rank {
        let at = out[axis].times(conv.strides[axis] as i64);
        let at = at.plus(&taps[axis].times(conv.dilations[axis] as i64)).plus(&Linear::constant(-conv.pads[axis].0));
        let (at, filled) = undilated(nest, at, conv.input_dilations[axis]);
        index.push(at);
        between = match (between, filled) {
            (Some(a), Some(b)) => Some(nest.exprs().binary(Binary::Or, a, b)),
            (a, b) => a.or(b),
        };
    }
    let dtype = x.source.dtype();
    let zero = nest.exprs().add(Expr::Const(dtype, 0));
    let mut element = nest.load_or(x, &index, zero);
    if let Some(between) = between {
        element = scalar::select(nest.exprs(), between, zero, element);
    }
    let weight = nest.load(w, &[vec![m.clone(), c], taps].concat());
    let value = sum_of_products(nest, element, weight, &summed);
    let index = nest.index(&[vec![n, m], out].concat());
    nest.store_at(buffer, index, value);
}

/// The place in the input of a place in the dilated input, and the condition that there is none.
fn undilated(nest: &mut Nest, at: Linear, dilation: usize) -> (Linear, Option<ExprId>) {
    if dilation == 1 {
        return (at, None);
    }
    let (quotient, rest) = nest.div_mod(&at, dilation as i64);
    if rest.as_constant() == Some(0) {
        return (quotient, None);
    }
    let (rest, zero) = (rest.to_expr(nest.exprs()), nest.exprs().int(0));
    (quotient, Some(nest.exprs().binary(Binary::Ne, rest, zero)))
}
