//! Ops that move elements: index expressions.

use mcc_support::{DType, TensorType, bug};

use super::nest::Nest;
use super::{Operand, Source, elementwise};
use crate::graph::{Op, PadMode, ReduceFn};
use crate::loops::expr::{Binary, Expr, ExprId, Exprs};
use crate::loops::linear::{Atom, Linear};
use crate::loops::{BufferId, STATUS_CLAMPED, Stmt, scalar};

/// The element of the result.
pub fn value(nest: &mut Nest, op: &Op, operands: &[Operand<'_>]) -> ExprId {
    let axes = nest.axes();
    match op {
        Op::Reshape(_) => {
            let index = reshaped(nest, operands[0].shape);
            nest.load(&operands[0], &index)
        }
        Op::Transpose(permutation) => {
            let mut index = vec![Linear::default(); axes.len()];
            permutation.iter().zip(axes).for_each(|(&from, axis)| index[from] = axis);
            nest.load(&operands[0], &index)
        }
        Op::Slice(slices) => {
            let at = |(slice, axis): (&crate::graph::SliceAxis, Linear)| {
                axis.times(slice.step).plus(&Linear::constant(slice.start as i64))
            };
            let index: Vec<Linear> = slices.iter().zip(axes).map(at).collect();
            nest.load(&operands[0], &index)
        }
        Op::Broadcast(_) => elementwise::broadcast(nest, &operands[0]),
        Op::Pad { mode, amounts } => pad(nest, *mode, amounts, operands),
        Op::Gather { axis } => {
            let rank = operands[1].shape.len();
            let at = nest.load(&operands[1], &axes[*axis..axis + rank]);
            let at = wrapped(nest, at, operands[0].shape[*axis]);
            let index = [&axes[..*axis], &[at], &axes[axis + rank..]].concat();
            nest.load(&operands[0], &index)
        }
        Op::GatherElements { axis } => {
            let at = nest.load(&operands[1], &axes);
            let mut index = axes;
            index[*axis] = wrapped(nest, at, operands[0].shape[*axis]);
            nest.load(&operands[0], &index)
        }
        Op::Iota { dtype, axis, .. } => {
            let index = nest.spatial_indices()[*axis];
            scalar::cast(nest.exprs(), *dtype, index)
        }
        other => bug!("{other:?} is not lowered as movement"),
    }
}

/// The index in a tensor of `shape` that has the same place in row-major order as the result's.
fn reshaped(nest: &mut Nest, shape: &[usize]) -> Vec<Linear> {
    let extents: Vec<usize> = nest.spatial.iter().map(|&axis| nest.kernel.axes[axis].extent).collect();
    let strides = mcc_support::Shape::new(extents).strides();
    let mut flat = Linear::default();
    for (axis, stride) in nest.axes().iter().zip(strides) {
        flat = flat.plus(&axis.times(stride as i64));
    }
    let mut index = Vec::with_capacity(shape.len());
    for (axis, &extent) in shape.iter().enumerate().rev() {
        // The outermost takes what is left; an empty tensor has no index at all.
        if axis == 0 || extent == 0 {
            index.push(std::mem::take(&mut flat));
            continue;
        }
        let (rest, at) = nest.div_mod(&flat, extent as i64);
        index.push(at);
        flat = rest;
    }
    index.reverse();
    index
}

fn pad(nest: &mut Nest, mode: PadMode, amounts: &[(usize, usize)], operands: &[Operand<'_>]) -> ExprId {
    let moved = nest.axes().into_iter().zip(amounts).map(|(axis, &(before, _))| axis.plus(&Linear::constant(-(before as i64))));
    let moved: Vec<Linear> = moved.collect();
    if mode == PadMode::Constant {
        let fill = nest.load(&operands[1], &[]);
        return nest.load_or(&operands[0], &moved, fill);
    }
    let mut index = Vec::with_capacity(moved.len());
    for (at, (&amount, &extent)) in moved.into_iter().zip(amounts.iter().zip(operands[0].shape)) {
        index.push(if amount == (0, 0) { at } else { pad_source(nest, mode, at, extent as i64) });
    }
    nest.load(&operands[0], &index)
}

/// Which element of an axis of `extent` elements stands at a place of the padded axis.
fn pad_source(nest: &mut Nest, mode: PadMode, at: Linear, extent: i64) -> Linear {
    let source = match mode {
        PadMode::Edge => {
            let exprs = nest.exprs();
            let (at, zero, last) = (at.to_expr(exprs), exprs.int(0), exprs.int(extent - 1));
            let above = exprs.binary(Binary::Max, zero, at);
            exprs.binary(Binary::Min, last, above)
        }
        PadMode::Wrap => return nest.div_mod(&at, extent).1,
        PadMode::Reflect if extent == 1 => return Linear::default(),
        PadMode::Reflect => {
            let period = 2 * (extent - 1);
            let folded = nest.div_mod(&at, period).1;
            let back = folded.times(-1).plus(&Linear::constant(period));
            let exprs = nest.exprs();
            let (folded, back, last) = (folded.to_expr(exprs), back.to_expr(exprs), exprs.int(extent - 1));
            let nearer = exprs.binary(Binary::Min, folded, back);
            // It is so already: said for the ranges.
            exprs.binary(Binary::Min, last, nearer)
        }
        PadMode::Constant => unreachable!("has no source"),
    };
    Linear::atom(Atom::Expr(source))
}

/// A loaded index along an axis: from the end where it is negative, then clamped.
fn wrapped(nest: &mut Nest, at: ExprId, extent: usize) -> Linear {
    let exprs = nest.exprs();
    let dtype = exprs.dtype(at);
    let at = signed(exprs, at);
    let (zero, count, last) = (exprs.int(0), exprs.int(extent as i64), exprs.int(extent as i64 - 1));
    let at = if dtype.is_signed() {
        let negative = exprs.binary(Binary::Lt, at, zero);
        let from_end = exprs.binary(Binary::Add, at, count);
        exprs.select(negative, from_end, at)
    } else {
        at
    };
    let above = exprs.binary(Binary::Max, zero, at);
    Linear::atom(Atom::Expr(exprs.binary(Binary::Min, last, above)))
}

/// Counts the indices that are outside of an axis (negative ones count from its end) and stores the status if there is one.
pub fn check_indices(nest: &mut Nest, indices: &Operand<'_>, extent: usize, status: BufferId) {
    let mut axes = Vec::new();
    let index: Vec<Linear> =
        indices.shape.iter().enumerate().map(|(axis, &extent)| nest.reduce_axis(format!("r{axis}"), extent, &mut axes)).collect();
    let at = nest.load(indices, &index);
    let exprs = nest.exprs();
    let at = signed(exprs, at);
    let (least, count, zero, one) = (exprs.int(-(extent as i64)), exprs.int(extent as i64), exprs.int(0), exprs.int(1));
    let below = exprs.binary(Binary::Lt, at, least);
    let above = exprs.binary(Binary::Le, count, at);
    let outside = exprs.binary(Binary::Or, below, above);
    let term = exprs.select(outside, one, zero);
    let total = nest.reduce(ReduceFn::Sum, &axes, term, DType::I64);
    let exprs = nest.exprs();
    let guard = exprs.binary(Binary::Ne, total, zero);
    let value = exprs.add(Expr::Const(DType::I32, u64::from(STATUS_CLAMPED)));
    nest.statement(Stmt::Store { buffer: status, index: Vec::new(), value, guard: Some(guard) });
}

/// An index as an `i64`; the greatest unsigned values stay large.
fn signed(exprs: &mut Exprs, at: ExprId) -> ExprId {
    let at = if exprs.dtype(at) == DType::U64 {
        let most = exprs.add(Expr::Const(DType::U64, i64::MAX as u64));
        exprs.binary(Binary::Min, at, most)
    } else {
        at
    };
    exprs.cast(DType::I64, at)
}

/// One operand of a concatenation.
pub fn concat(source: &Source, ty: &TensorType, axis: usize, offset: usize, buffer: BufferId) -> Nest {
    let mut nest = Nest::new(ty);
    let axes = nest.axes();
    let value = nest.load(&Operand { source, shape: &ty.shape }, &axes);
    let mut index = axes;
    index[axis] = index[axis].plus(&Linear::constant(offset as i64));
    let index = nest.index(&index);
    nest.store_at(buffer, index, value);
    nest
}
