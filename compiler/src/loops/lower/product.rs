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

/// Every so many results along an axis of a convolution, which read the input without the zeros of its dilation.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// The first result, and the distance to the next.
    first: usize,
    step: usize,
    count: usize,
    /// The first tap that meets an input, the distance to the next, and how many there are.
    tap: usize,
    tap_step: usize,
    taps: usize,
}

impl Phase {
    /// The phases of an axis whose results are neighbours in a dilated input: in each, the same taps meet inputs. Of another axis, all
    /// results.
    fn all(conv: &Conv, axis: usize, extent: usize, taps: usize) -> Vec<Phase> {
        let dilation = conv.input_dilations[axis];
        if dilation == 1 || conv.strides[axis] != 1 {
            return vec![Phase { first: 0, step: 1, count: extent, tap: 0, tap_step: 1, taps }];
        }
        let meets = |first: usize, tap: usize| {
            (first as i64 + (tap * conv.dilations[axis]) as i64 - conv.pads[axis].0).rem_euclid(dilation as i64) == 0
        };
        let phase = |first: usize| {
            let mut met = (0..taps).filter(|&tap| meets(first, tap));
            let tap = met.next().unwrap_or(0);
            let tap_step = met.next().map_or(1, |next| next - tap);
            let count = (extent - first).div_ceil(dilation);
            Phase { first, step: dilation, count, tap, tap_step, taps: (0..taps).filter(|&tap| meets(first, tap)).count() }
        };
        (0..dilation.min(extent)).map(phase).collect()
    }
}

/// Loops `n, m, (z, y, x)` around `c, (kz, ky, kx)`. With groups of one filter `m` is the group; with groups of more, `n, g, m`
/// with `m` inside of the group. A convolution of a dilated input becomes several, each of the results that meet inputs at the same
/// taps.
pub fn conv(nest: &Nest, conv: &Conv, operands: &[Operand<'_>], buffer: BufferId) -> Vec<Nest> {
    let extents: Vec<usize> = nest.spatial.iter().map(|&axis| nest.kernel.axes[axis].extent).collect();
    let rank = conv.strides.len();
    let mut all: Vec<Vec<Phase>> = vec![Vec::new()];
    for axis in 0..rank {
        let phases = Phase::all(conv, axis, extents[axis + 2], operands[1].shape[axis + 2]);
        all = all.iter().flat_map(|earlier| phases.iter().map(|&phase| [&earlier[..], &[phase]].concat())).collect();
    }
    all.iter().map(|phases| conv_phase(conv, operands, buffer, &extents, phases)).collect()
}

fn conv_phase(conv: &Conv, operands: &[Operand<'_>], buffer: BufferId, extents: &[usize], phases: &[Phase]) -> Nest {
    let mut nest = Nest::empty();
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
    let at = |form: Linear, first: usize, step: usize| form.times(step as i64).plus(&Linear::constant(first as i64));
    let mut out = Vec::new();
    for (axis, phase) in phases.iter().enumerate() {
        out.push(at(nest.spatial(spatial_name(axis, rank), phase.count), phase.first, phase.step));
    }
    if phases.iter().any(|phase| phase.taps == 0) {
        // No tap meets an input.
        let zero = nest.exprs().add(Expr::Const(x.source.dtype(), 0));
        let index = nest.index(&[vec![n, m], out].concat());
        nest.store_at(buffer, index, zero);
        return nest;
    }
    let mut summed = Vec::new();
    let c = nest.reduce_axis("c", channels, &mut summed);
    let mut taps = Vec::new();
    for (axis, phase) in phases.iter().enumerate() {
        let tap = nest.reduce_axis(format!("k{}", spatial_name(axis, rank)), phase.taps, &mut summed);
        taps.push(at(tap, phase.tap, phase.tap_step));
    }

    let channel = group.times(channels as i64).plus(&c);
    let mut index = vec![n.clone(), channel];
    let mut between: Option<ExprId> = None;
    for axis in 0..rank {
        let at = out[axis].times(conv.strides[axis] as i64);
        let at = at.plus(&taps[axis].times(conv.dilations[axis] as i64)).plus(&Linear::constant(-conv.pads[axis].0));
        let (at, filled) = undilated(&mut nest, at, conv.input_dilations[axis]);
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
    let value = sum_of_products(&mut nest, element, weight, &summed);
    let index = nest.index(&[vec![n, m], out].concat());
    nest.store_at(buffer, index, value);
    nest
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
