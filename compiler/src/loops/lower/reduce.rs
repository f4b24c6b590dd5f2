//! Reductions, windows, searches and scans.

use mcc_support::DType;

use super::Operand;
use super::nest::Nest;
use crate::graph::{ReduceFn, Window};
use crate::loops::expr::{Binary, Expr, ExprId};
use crate::loops::linear::{Atom, Linear};
use crate::loops::{AxisId, AxisKind, BufferId, Stmt, scalar};

pub fn reduce(nest: &mut Nest, kind: ReduceFn, axes: &[usize], x: &Operand<'_>, buffer: BufferId) {
    let mut kept = nest.axes().into_iter();
    let mut summed = Vec::new();
    let mut index = Vec::with_capacity(x.shape.len());
    for (axis, &extent) in x.shape.iter().enumerate() {
        index.push(if axes.contains(&axis) {
            nest.reduce_axis(format!("r{axis}"), extent, &mut summed)
        } else {
            kept.next().expect("axes that stay are the result's")
        });
    }
    let term = nest.load(x, &index);
    let value = nest.reduce(kind, &summed, term, x.source.dtype());
    nest.store(buffer, value);
}

/// What a reduction starts from, as an element of the operand.
fn identity(nest: &mut Nest, kind: ReduceFn, dtype: DType) -> ExprId {
    let wide = scalar::identity(nest.exprs(), kind, scalar::accumulator(dtype));
    let Expr::Const(_, bits) = *nest.exprs().get(wide) else { unreachable!("an identity is a constant") };
    // The identities are 0, 1 and the infinities: exact in 16 bits.
    let bits = match dtype {
        DType::F16 => u64::from(half::f16::from_f32(f32::from_bits(bits as u32)).to_bits()),
        DType::BF16 => bits >> 16,
        _ => bits,
    };
    nest.exprs().add(Expr::Const(dtype, bits))
}

/// The index of a window's cell in the operand, with an axis of `kind` for each of the kernel's.
fn cell(nest: &mut Nest, window: &Window, kind: AxisKind, axes: &mut Vec<AxisId>) -> Vec<Linear> {
    let outer = nest.spatial.len() - window.kernel.len();
    let mut index = nest.axes();
    for (axis, &extent) in window.kernel.iter().enumerate() {
        let at = if extent == 1 {
            Linear::default()
        } else {
            let id = nest.kernel.axis(format!("k{axis}"), extent, kind);
            axes.push(id);
            Linear::atom(Atom::Axis(id))
        };
        let place = index[outer + axis].times(window.strides[axis] as i64).plus(&at.times(window.dilations[axis] as i64));
        index[outer + axis] = place.plus(&Linear::constant(-(window.pads[axis].0 as i64)));
    }
    index
}

pub fn window(nest: &mut Nest, kind: ReduceFn, window: &Window, x: &Operand<'_>, buffer: BufferId) {
    let mut axes = Vec::new();
    let index = cell(nest, window, AxisKind::Reduce, &mut axes);
    let outside = identity(nest, kind, x.source.dtype());
    let term = nest.load_or(x, &index, outside);
    let value = nest.reduce(kind, &axes, term, x.source.dtype());
    nest.store(buffer, value);
}

/// Whether `x` is to replace `best`: more extreme, or as extreme where the `last` is wanted. NaN is the most extreme.
fn replaces(nest: &mut Nest, max: bool, last: bool, x: ExprId, best: ExprId) -> ExprId {
    let exprs = nest.exprs();
    let op = if last { Binary::Le } else { Binary::Lt };
    let beyond = if max { exprs.binary(op, best, x) } else { exprs.binary(op, x, best) };
    if !exprs.dtype(x).is_float() {
        return beyond;
    }
    let nan = exprs.binary(Binary::Ne, x, x);
    let first_nan = if last {
        nan
    } else {
        let number = exprs.binary(Binary::Eq, best, best);
        exprs.binary(Binary::And, nan, number)
    };
    exprs.binary(Binary::Or, beyond, first_nan)
}

/// Updates of the position and the value of the best so far.
fn updates(nest: &mut Nest, take: ExprId, at: (VarVar, ExprId), best: (VarVar, ExprId)) -> Vec<Stmt> {
    let exprs = nest.exprs();
    let position = exprs.select(take, at.1, at.0.1);
    let value = exprs.select(take, best.1, best.0.1);
    // The position first: the condition reads the value.
    vec![Stmt::Set { var: at.0.0, value: position }, Stmt::Set { var: best.0.0, value }]
}

/// A variable and its present value.
type VarVar = (crate::loops::VarId, ExprId);

pub fn arg_reduce(nest: &mut Nest, max: bool, axis: usize, last: bool, x: &Operand<'_>, buffer: BufferId) {
    let sequential = nest.kernel.axis("r", x.shape[axis], AxisKind::Sequential);
    let mut index = nest.axes();
    index.insert(axis, Linear::default());
    let wide = scalar::accumulator(x.source.dtype());
    let first = nest.load(x, &index);
    let first = scalar::cast(nest.exprs(), wide, first);
    let zero = nest.exprs().int(0);
    let (at, best) = (nest.var(zero), nest.var(first));
    index[axis] = Linear::atom(Atom::Axis(sequential));
    let element = nest.load(x, &index);
    let element = scalar::cast(nest.exprs(), wide, element);
    let take = replaces(nest, max, last, element, best.1);
    let round = nest.exprs().axis(sequential);
    let body = updates(nest, take, (at, round), (best, element));
    nest.statement(Stmt::Loop { axis: sequential, body });
    nest.store(buffer, at.1);
}

/// Whether `x` is a greater number than `best`, or the first number.
fn is_greater(nest: &mut Nest, x: ExprId, best: ExprId) -> ExprId {
    let exprs = nest.exprs();
    let greater = exprs.binary(Binary::Lt, best, x);
    if !exprs.dtype(x).is_float() {
        return greater;
    }
    let (none, number) = (exprs.binary(Binary::Ne, best, best), exprs.binary(Binary::Eq, x, x));
    let first = exprs.binary(Binary::And, none, number);
    exprs.binary(Binary::Or, greater, first)
}

pub fn window_arg_max(nest: &mut Nest, window: &Window, x: &Operand<'_>, buffer: BufferId) {
    let dtype = x.source.dtype();
    let lowest = identity(nest, ReduceFn::MaxNumber, dtype);
    // Not a number: no number yet.
    let none_yet = match scalar::accumulator(dtype) {
        DType::F32 => nest.exprs().f32(f32::NAN),
        DType::F64 => nest.exprs().add(Expr::Const(DType::F64, f64::NAN.to_bits())),
        _ => lowest,
    };
    // Below 0: no cell yet.
    let none = nest.exprs().int(-1);
    let (at, best) = (nest.var(none), nest.var(none_yet));
    let mut axes = Vec::new();
    let index = cell(nest, window, AxisKind::Sequential, &mut axes);
    let element = nest.load_or(x, &index, lowest);
    let element = scalar::cast(nest.exprs(), scalar::accumulator(dtype), element);
    let more = is_greater(nest, element, best.1);
    let zero = nest.exprs().int(0);
    let empty = nest.exprs().binary(Binary::Lt, at.1, zero);
    let mut take = nest.exprs().binary(Binary::Or, empty, more);
    if let Some(inside) = nest.is_inside(&index, x.shape) {
        take = nest.exprs().binary(Binary::And, inside, take);
    }
    let outer = x.shape.len() - window.kernel.len();
    let strides = mcc_support::Shape::new(&x.shape[outer..]).strides();
    let flat =
        index[outer..].iter().zip(strides).fold(Linear::default(), |sum, (form, stride)| sum.plus(&form.times(stride as i64)));
    let flat = flat.to_expr(nest.exprs());
    let body = updates(nest, take, (at, flat), (best, element));
    Stmt::loops(&axes, body).into_iter().for_each(|stmt| nest.statement(stmt));
    let found = nest.exprs().binary(Binary::Max, zero, at.1);
    nest.store(buffer, found);
}

pub fn scan(nest: &mut Nest, kind: ReduceFn, axis: usize, order: (bool, bool), x: &Operand<'_>, buffer: BufferId) {
    let (exclusive, reverse) = order;
    let dtype = x.source.dtype();
    // The axis itself runs innermost, in order.
    let scanned = nest.spatial.remove(axis);
    nest.kernel.axes[scanned].kind = AxisKind::Sequential;
    let round = Linear::atom(Atom::Axis(scanned));
    let place = if reverse { round.times(-1).plus(&Linear::constant(x.shape[axis] as i64 - 1)) } else { round };
    let mut index = nest.axes();
    index.insert(axis, place);
    let wide = scalar::accumulator(dtype);
    let start = scalar::identity(nest.exprs(), kind, wide);
    let (var, acc) = nest.var(start);
    let element = nest.load(x, &index);
    let element = scalar::cast(nest.exprs(), wide, element);
    let value = scalar::combine(nest.exprs(), kind, acc, element);
    let (total, index) = (scalar::cast(nest.exprs(), dtype, acc), nest.index(&index));
    let set = Stmt::Set { var, value };
    let store = Stmt::Store { buffer, index, value: total, guard: None };
    let body = if exclusive { vec![store, set] } else { vec![set, store] };
    nest.statement(Stmt::Loop { axis: scanned, body });
}
