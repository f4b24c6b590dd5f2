//! Writes a batch normalization as a product and a sum for each channel; with constant statistics both factors are computed in f64.
//!
//! ```text
//! %5 = batch_norm %0, %1, %2, %3, %4 {epsilon 1e-5} : f32[1,8,4,4]
//! →
//! constant %6 : f32[8,1,1] = …          ; scale / sqrt(variance + epsilon)
//! constant %7 : f32[8,1,1] = …          ; bias - mean · %6
//! %8 = mul %0, %6 : f32[1,8,4,4]
//! %9 = add %8, %7 : f32[1,8,4,4]
//! ```

use mcc_support::{Shape, Tensor, TensorType};

use super::Pass;
use super::fold_batch_norm::Affine;
use crate::graph::edit::Edit;
use crate::graph::interp::from_f64;
use crate::graph::{BinaryFn, Op, UnaryFn, ValueId};

pub static PASS: Pass = Pass {
    name: "expand-batch-norm",
    doc: "write a batch normalization as a product and a sum for each channel",
    required: true,
    run,
};

fn run(edit: &mut Edit) {
    for id in edit.order() {
        let node = edit.graph().node(id);
        let Op::BatchNorm { epsilon } = node.op else { continue };
        let (operands, result) = (node.operands.clone(), node.results[0]);
        let ty = edit.graph().ty(result).clone();
        // [C, 1, 1, …] broadcasts along the channels.
        let mut shape = vec![1; ty.rank() - 1];
        shape[0] = ty.shape[1];
        let statistics: Option<Vec<&Tensor>> = operands[1..].iter().map(|&operand| edit.graph().constant(operand)).collect();
        let affine = statistics.map(|statistics| Affine::of_batch_norm(epsilon, &statistics));
        edit.replace(result, &[], |edit| match affine {
            Some(Affine { factors, terms }) => {
                let constant = |numbers| from_f64(TensorType::new(ty.dtype, shape.clone()), numbers);
                let (factors, terms) = (edit.constant(constant(factors)), edit.constant(constant(terms)));
                let product = edit.binary(BinaryFn::Mul, operands[0], factors);
                edit.binary(BinaryFn::Add, product, terms)
            }
            None => expand(edit, epsilon, &operands, shape.into()),
        });
    }
}

/// The same with statistics that are computed at run time.
fn expand(edit: &mut Edit, epsilon: f32, operands: &[ValueId], shape: Shape) -> ValueId {
    let dtype = edit.graph().ty(operands[0]).dtype;
    let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|at| edit.reshape(operands[at], shape.clone()));
    let epsilon = edit.scalar(dtype, f64::from(epsilon));
    let variance = edit.binary(BinaryFn::Add, variance, epsilon);
    let deviation = edit.add(Op::Unary(UnaryFn::Sqrt), &[variance]);
    let factors = edit.binary(BinaryFn::Div, scale, deviation);
    let centered = edit.binary(BinaryFn::Sub, operands[0], mean);
    let product = edit.binary(BinaryFn::Mul, centered, factors);
    edit.binary(BinaryFn::Add, product, bias)
}
