//! Folds a batch normalization, or a product with constants, into the weights and the bias of the convolution or contraction before
//! it. All is computed in f64 and rounded once.
//!
//! ```text
//! %2 = conv %0, %1 {…} : f32[1,8,4,4]
//! %7 = batch_norm %2, %3, %4, %5, %6 {epsilon 1e-5} : f32[1,8,4,4]
//! →
//! constant %8 : f32[8,3,3,3] = …     ; %1 · scale / sqrt(variance + epsilon)
//! constant %10 : f32[8,1,1] = …      ; bias - mean · scale / sqrt(variance + epsilon)
//! %9 = conv %0, %8 {…} : f32[1,8,4,4]
//! %11 = add %9, %10 : f32[1,8,4,4]
//! ```
//!
//! The weights must be constant and the result of the convolution (and its sum with a bias) not used otherwise, nor an output.
//! Weights that other nodes use stay for them. Factors that are not finite, or that make weights overflow, are left alone.

use mcc_support::{Tensor, TensorType};

use super::Pass;
use crate::graph::edit::Edit;
use crate::graph::interp::{from_f64, to_f64};
use crate::graph::{BinaryFn, Contraction, Op, ValueId};

pub static PASS: Pass = Pass {
    name: "fold-batch-norm",
    doc: "fold batch normalizations and constant factors into the weights before them",
    required: false,
    run,
};

fn run(edit: &mut Edit) {
    for id in edit.order() {
        if edit.is_live(id) {
            let result = edit.graph().node(id).results[0];
            fold(edit, result);
        }
    }
}

/// `y = x · factors[c] + terms[c]` along one axis; one number each stands for all channels.
pub(super) struct Affine {
    pub factors: Vec<f64>,
    pub terms: Vec<f64>,
}

impl Affine {
    /// From scale, bias, mean and variance.
    pub fn of_batch_norm(epsilon: f32, statistics: &[&Tensor]) -> Self {
        let [scale, bias, mean, variance] = [0, 1, 2, 3].map(|at: usize| to_f64(statistics[at]));
        let factor = |c: usize| scale[c] / libm::sqrt(variance[c] + f64::from(epsilon));
        let factors: Vec<f64> = (0..scale.len()).map(factor).collect();
        let terms = (0..scale.len()).map(|c| bias[c] - mean[c] * factors[c]).collect();
        Self { factors, terms }
    }
}

/// A constant operand that differs along one axis of the result at most: the axis, and its numbers along it (one, if none).
struct Channels {
    axis: Option<usize>,
    numbers: Vec<f64>,
}

fn channels(edit: &Edit, value: ValueId, result: ValueId) -> Option<Channels> {
    let (tensor, rank) = (edit.graph().constant(value)?, edit.graph().ty(result).rank());
    if tensor.shape().broadcast(&edit.graph().ty(result).shape)? != edit.graph().ty(result).shape {
        return None;
    }
    let missing = rank - tensor.shape().rank();
    let mut wide = tensor.shape().iter().enumerate().filter(|&(_, &extent)| extent != 1).map(|(axis, _)| axis + missing);
    let axis = wide.next();
    if wide.next().is_some() {
        return None;
    }
    Some(Channels { axis, numbers: to_f64(tensor) })
}

/// The constants of a node of the form `x · factors + terms`, and `x`.
fn affine(edit: &Edit, result: ValueId) -> Option<(ValueId, Option<usize>, Affine)> {
    let graph = edit.graph();
    let (_, node) = graph.definition(result)?;
    if !graph.ty(result).dtype.is_float() {
        return None;
    }
    match node.op {
        Op::BatchNorm { epsilon } => {
            let statistics: Vec<&Tensor> =
                node.operands[1..].iter().map(|&operand| graph.constant(operand)).collect::<Option<_>>()?;
            Some((node.operands[0], Some(1), Affine::of_batch_norm(epsilon, &statistics)))
        }
        Op::Binary(function @ (BinaryFn::Mul | BinaryFn::Div)) => {
            let swapped = function == BinaryFn::Mul && graph.constant(node.operands[0]).is_some();
            let (x, other) = if swapped { (node.operands[1], node.operands[0]) } else { (node.operands[0], node.operands[1]) };
            if graph.ty(x) != graph.ty(result) {
                return None;
            }
            let Channels { axis, mut numbers } = channels(edit, other, result)?;
            if function == BinaryFn::Div {
                numbers.iter_mut().for_each(|number| *number = 1.0 / *number);
            }
            let terms = vec![0.0; numbers.len()];
            Some((x, axis, Affine { factors: numbers, terms }))
        }
        _ => None,
    }
}

/// A product whose weights can take up factors along an axis of its result.
struct Product {
    result: ValueId,
    op: Op,
    operands: Vec<ValueId>,
    /// Which operand is the weights, and which of its axes the factors go along.
    weights: usize,
    axis: Option<usize>,
}

fn product(edit: &Edit, result: ValueId, axis: Option<usize>) -> Option<Product> {
    let graph = edit.graph();
    let (_, node) = graph.definition(result)?;
    if !edit.has_one_user(result) {
        return None;
    }
    let is_constant = |at: usize| graph.constant(node.operands[at]).is_some();
    let (weights, weights_axis) = match &node.op {
        Op::Conv(_) if axis.is_none_or(|axis| axis == 1) => (1, axis.map(|_| 0)),
        Op::Contract(Contraction { lhs, rhs, out }) => {
            let weights = if is_constant(1) { 1 } else { 0 };
            let (own, other) = if weights == 1 { (rhs, lhs) } else { (lhs, rhs) };
            match axis {
                None => (weights, None),
                Some(axis) if other.contains(&out[axis]) => return None,
                Some(axis) => (weights, Some(own.iter().position(|label| *label == out[axis])?)),
            }
        }
        _ => return None,
    };
    let operands = node.operands.clone();
    is_constant(weights).then(|| Product { result, op: node.op.clone(), operands, weights, axis: weights_axis })
}

/// A product with constants added to it.
fn biased_product(edit: &Edit, sum: ValueId, axis: Option<usize>) -> Option<(Product, Channels)> {
    let graph = edit.graph();
    let (_, node) = graph.definition(sum)?;
    if node.op != Op::Binary(BinaryFn::Add) || !edit.has_one_user(sum) {
        return None;
    }
    let constant = graph.constant(node.operands[0]).is_none();
    let (inner, bias) = if constant { (node.operands[0], node.operands[1]) } else { (node.operands[1], node.operands[0]) };
    if graph.ty(inner) != graph.ty(sum) {
        return None;
    }
    Some((product(edit, inner, axis)?, channels(edit, bias, sum)?))
}

fn fold(edit: &mut Edit, result: ValueId) -> Option<()> {
    let (inner, axis, affine) = affine(edit, result)?;
    let (product, bias) = match product(edit, inner, axis) {
        Some(product) => (product, Channels { axis: None, numbers: vec![0.0] }),
        None => biased_product(edit, inner, axis)?,
    };
    if axis.is_some() && bias.axis.is_some() && axis != bias.axis {
        return None;
    }
    let weights = scaled(edit.graph().constant(product.operands[product.weights])?, product.axis, &affine.factors)?;
    let at = |numbers: &[f64], c: usize| numbers[if numbers.len() == 1 { 0 } else { c }];
    let terms: Vec<f64> = (0..affine.factors.len().max(bias.numbers.len()))
        .map(|c| at(&bias.numbers, c) * at(&affine.factors, c) + at(&affine.terms, c))
        .collect();
    let terms = if terms.iter().all(|&term| term == 0.0) {
        None
    } else {
        let ty = edit.graph().ty(result);
        let mut shape = axis.or(bias.axis).map_or(Vec::new(), |axis| vec![1; ty.rank() - axis]);
        shape.iter_mut().take(1).for_each(|extent| *extent = terms.len());
        Some(finite(from_f64(TensorType::new(ty.dtype, shape), terms))?)
    };
    let Product { op, mut operands, weights: weights_at, .. } = product;
    let with = [product.result, inner];
    edit.replace(result, if product.result == inner { &with[1..] } else { &with }, |edit| {
        if terms.is_some() {
            edit.set_origin(with[0]);
        }
        operands[weights_at] = edit.constant(weights);
        let product = edit.add(op, &operands);
        edit.set_origin(result);
        match terms {
            None => product,
            Some(terms) => {
                let terms = edit.constant(terms);
                edit.binary(BinaryFn::Add, product, terms)
            }
        }
    });
    Some(())
}

/// The weights times the factors along an axis, unless one of them is not finite then.
fn scaled(weights: &Tensor, axis: Option<usize>, factors: &[f64]) -> Option<Tensor> {
    let (inner, extent) = axis.map_or((1, 1), |axis| (weights.shape()[axis + 1..].iter().product(), weights.shape()[axis]));
    let factor = |index: usize| factors[if factors.len() == 1 { 0 } else { index / inner % extent }];
    let numbers = to_f64(weights).into_iter().enumerate().map(|(index, weight)| weight * factor(index)).collect();
    finite(from_f64(weights.ty().clone(), numbers))
}

fn finite(tensor: Tensor) -> Option<Tensor> {
    to_f64(&tensor).into_iter().all(f64::is_finite).then_some(tensor)
}
