//! Ops that compute each element from the elements at the same index.

use mcc_support::{DType, TensorType};

use super::Operand;
use super::nest::Nest;
use crate::graph::{BinaryFn, Op, UnaryFn};
use crate::loops::expr::ExprId;
use crate::loops::scalar::{self, Function};

/// The element of the result, if the op is elementwise. `dtype` gives the dtypes of operands in the graph.
pub fn value(
    nest: &mut Nest,
    op: &Op,
    operands: &[Operand<'_>],
    result: &TensorType,
    dtype: &dyn Fn(usize) -> DType,
) -> Option<ExprId> {
    let function = match op {
        Op::Unary(function) => Function::Unary(*function),
        Op::Binary(function) => Function::Binary(*function),
        Op::Select => Function::Select,
        Op::Cast(to) if to.is_packed() || dtype(0).is_packed() => {
            let x = broadcast(nest, &operands[0]);
            return Some(convert(nest, dtype(0), *to, x));
        }
        Op::Cast(to) => Function::Cast(*to),
        Op::Bitcast(to) if to.is_packed() => {
            let x = broadcast(nest, &operands[0]);
            return Some(scalar::reinterpret(nest.exprs(), *to, x));
        }
        Op::Bitcast(to) => Function::Bitcast(*to),
        Op::BatchNorm { epsilon } => return Some(batch_norm(nest, *epsilon, operands, result.dtype)),
        _ => return None,
    };
    let values: Vec<ExprId> = operands.iter().map(|operand| broadcast(nest, operand)).collect();
    Some(function.build(nest.exprs(), &values))
}

/// A conversion from or to a packed dtype; both are held in their carriers.
fn convert(nest: &mut Nest, from: DType, to: DType, x: ExprId) -> ExprId {
    let exprs = nest.exprs();
    match (from.is_packed(), to.is_packed()) {
        _ if from == to => x,
        (true, false) => scalar::widen(exprs, from, to, x),
        (false, _) => scalar::narrow(exprs, to, x),
        (true, true) => {
            // One whose numbers both hold.
            let between = if from.is_float() { DType::F32 } else { exprs.dtype(x) };
            let number = scalar::widen(exprs, from, between, x);
            scalar::narrow(exprs, to, number)
        }
    }
}

/// The element of an operand that is broadcast to the result.
pub fn broadcast(nest: &mut Nest, operand: &Operand<'_>) -> ExprId {
    let axes = nest.axes();
    let missing = axes.len() - operand.shape.len();
    let index: Vec<_> = operand
        .shape
        .iter()
        .zip(&axes[missing..])
        .zip(&nest.spatial[missing..])
        .map(|((&extent, axis), &id)| if extent == nest.kernel.axes[id].extent { axis.clone() } else { Default::default() })
        .collect();
    nest.load(operand, &index)
}

fn batch_norm(nest: &mut Nest, epsilon: f32, operands: &[Operand<'_>], dtype: DType) -> ExprId {
    let channel = nest.axes()[1].clone();
    let x = broadcast(nest, &operands[0]);
    let statistics: Vec<ExprId> =
        operands[1..].iter().map(|operand| nest.load(operand, std::slice::from_ref(&channel))).collect();
    let exprs = nest.exprs();
    let wide = scalar::accumulator(dtype);
    let mut widened = |value| scalar::cast(exprs, wide, value);
    let x = widened(x);
    let [scale, bias, mean, variance] = [0, 1, 2, 3].map(|at| widened(statistics[at]));
    let epsilon = exprs.f32(epsilon);
    let epsilon = scalar::cast(exprs, wide, epsilon);
    let mut apply = |function, a, b| scalar::binary(exprs, function, a, b);
    let centered = apply(BinaryFn::Sub, x, mean);
    let variance = apply(BinaryFn::Add, variance, epsilon);
    let deviation = scalar::unary(exprs, UnaryFn::Sqrt, variance);
    let mut apply = |function, a, b| scalar::binary(exprs, function, a, b);
    let normal = apply(BinaryFn::Div, centered, deviation);
    let scaled = apply(BinaryFn::Mul, normal, scale);
    let moved = apply(BinaryFn::Add, scaled, bias);
    scalar::cast(exprs, dtype, moved)
}
