//! Operators that are several others in one, and those that are older than their counterparts in the standard.

use mcc_support::Result;

use super::DOMAIN;
use crate::graph::Wire;
use crate::ops::activation::{Activation, erf_gelu, tanh_gelu, widened};
use crate::ops::conv::conv;
use crate::ops::gather::triangle;
use crate::ops::matmul::{gemm, matmul};
use crate::ops::slice::padded;
use crate::ops::{NodeContext, OpDef};

pub static ALL: &[&OpDef] =
    &[&BIAS_GELU, &EXPAND_DIMS, &FAST_GELU, &FUSED_CONV, &FUSED_GEMM, &FUSED_MAT_MUL, &PAD, &TRANSPOSE_MAT_MUL, &TRILU];

pub static BIAS_GELU: OpDef = OpDef {
    domain: DOMAIN,
    name: "BiasGelu",
    since: &[1],
    shape_inputs: &[],
    build: |node| Ok(vec![widened(node.input(0)? + node.input(1)?, erf_gelu)]),
};

/// The approximation by tanh, of the sum with a bias.
pub static FAST_GELU: OpDef = OpDef {
    domain: DOMAIN,
    name: "FastGelu",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let x = node.optional(1).map_or(x, |bias| x + bias);
        Ok(vec![widened(x, tanh_gelu)])
    },
};

/// A convolution, to which input 3 is added, and an activation.
pub static FUSED_CONV: OpDef = OpDef {
    domain: DOMAIN,
    name: "FusedConv",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let y = conv(node)?;
        let y = node.optional(3).map_or(y, |residual| y + residual);
        let parameters = node.attributes().floats_or("activation_params", vec![])?;
        Ok(vec![activated(node, y, &parameters.into_iter().map(Some).collect::<Vec<_>>())?])
    },
};

/// The function that the attribute `activation` names, with its parameters by their places.
fn activated<'b>(node: &NodeContext<'_, 'b>, y: Wire<'b>, parameters: &[Option<f32>]) -> Result<Wire<'b>> {
    let parameter = |index: usize| parameters.get(index).copied().flatten();
    let number = |index: usize, default: f32| f64::from(parameter(index).unwrap_or(default));
    Ok(match node.attributes().string_or("activation", "")? {
        "" => y,
        "Clip" => y.clamp(number(0, f32::MIN), number(1, f32::MAX)),
        name => Activation::named(name, parameter)
            .ok_or_else(|| node.error(format!("the activation '{name}' is not supported")))?
            .apply(y),
    })
}

/// Gemm and an activation.
pub static FUSED_GEMM: OpDef = OpDef {
    domain: DOMAIN,
    name: "FusedGemm",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let y = gemm(node)?;
        let names = ["activation_alpha", "activation_beta", "activation_gamma"];
        let parameters = names.iter().map(|name| node.attributes().float(name)).collect::<Result<Vec<_>>>()?;
        Ok(vec![activated(node, y, &parameters)?])
    },
};

/// `alpha · A' · B'`, where `transA` swaps the last two axes, and `transBatchA` before that moves the first axis behind those of the
/// batch.
pub static FUSED_MAT_MUL: OpDef =
    OpDef { domain: DOMAIN, name: "FusedMatMul", since: &[1], shape_inputs: &[], build: fused_mat_mul };

/// An older name of FusedMatMul.
pub static TRANSPOSE_MAT_MUL: OpDef =
    OpDef { domain: DOMAIN, name: "TransposeMatMul", since: &[1], shape_inputs: &[], build: fused_mat_mul };

fn fused_mat_mul<'b>(node: &NodeContext<'_, 'b>) -> Result<Vec<Wire<'b>>> {
    let attributes = node.attributes();
    let side = |index: usize, trans: &str, batch: &str| -> Result<Wire<'b>> {
        let x = node.input(index)?;
        let rank = x.rank();
        let (swapped, moved) = (attributes.flag(trans, false)?, attributes.flag(batch, false)?);
        let mut axes: Vec<usize> = (0..rank).collect();
        if moved && rank > 2 {
            axes[..rank - 1].rotate_left(1);
        }
        if swapped && rank > 1 {
            axes.swap(rank - 2, rank - 1);
        }
        Ok(x.transpose(&axes))
    };
    let (a, b) = (side(0, "transA", "transBatchA")?, side(1, "transB", "transBatchB")?);
    let alpha = attributes.float_or("alpha", 1.0)?;
    let product = matmul(a, b)
        .ok_or_else(|| node.error(format!("the operands {} and {} cannot be multiplied as matrices", a.ty(), b.ty())))?;
    Ok(vec![if alpha == 1.0 { product } else { product * f64::from(alpha) }])
}

pub static EXPAND_DIMS: OpDef = OpDef {
    domain: DOMAIN,
    name: "ExpandDims",
    since: &[1],
    shape_inputs: &[1],
    build: |node| {
        let x = node.input(0)?;
        let axis = node.axis(node.constant_int(1)?, x.rank() + 1)?;
        Ok(vec![x.insert_axis(axis)])
    },
};

pub static PAD: OpDef = OpDef { domain: DOMAIN, name: "Pad", since: &[1], shape_inputs: &[1], build: padded };
pub static TRILU: OpDef = OpDef { domain: DOMAIN, name: "Trilu", since: &[1], shape_inputs: &[1], build: triangle };
