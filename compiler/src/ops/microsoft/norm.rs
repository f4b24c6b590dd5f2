//! Normalizations of sums.

use mcc_support::{DType, Result};

use super::DOMAIN;
use crate::graph::{ReduceFn, Wire};
use crate::ops::norm::{Moments, broadcast_to, epsilon, inverse_root_mean_square};
use crate::ops::{NodeContext, OpDef};

pub static ALL: &[&OpDef] = &[&EMBED_LAYER_NORMALIZATION, &SKIP_LAYER_NORMALIZATION, &SKIP_SIMPLIFIED_LAYER_NORMALIZATION];

/// Input 0 and input 1, which broadcasts to it, and a bias.
fn sum<'b>(node: &NodeContext<'_, 'b>, bias: Option<Wire<'b>>) -> Result<Wire<'b>> {
    let x = node.input(0)?;
    if x.rank() == 0 {
        return Err(node.error("the operand has no axis"));
    }
    let sum = x + broadcast_to(node, "input 1", node.input(1)?, x)?;
    Ok(match bias {
        Some(bias) => sum + broadcast_to(node, "the bias", bias, x)?,
        None => sum,
    })
}

/// The last axis of `x` normalized, scaled and shifted, with the moments; computed in f32 at least.
fn layer_norm<'b>(
    node: &NodeContext<'_, 'b>,
    x: Wire<'b>,
    gamma: Wire<'b>,
    beta: Option<Wire<'b>>,
) -> Result<(Wire<'b>, Moments<'b>)> {
    let wide = x.cast(x.dtype().single_or_double());
    let moments = Moments::of(wide, &[x.rank() - 1]);
    let gamma = broadcast_to(node, "gamma", gamma, x)?.cast(wide.dtype());
    let y = moments.normalized(epsilon(node, 1e-12)?) * gamma;
    let y = match beta {
        Some(beta) => y + broadcast_to(node, "beta", beta, x)?.cast(wide.dtype()),
        None => y,
    };
    Ok((y.cast(x.dtype()), moments))
}

/// Results are the normalized sum, its mean and inverse deviation, and the sum itself.
pub static SKIP_LAYER_NORMALIZATION: OpDef = OpDef {
    domain: DOMAIN,
    name: "SkipLayerNormalization",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let sum = sum(node, node.optional(4))?;
        let (y, moments) = layer_norm(node, sum, node.input(2)?, node.optional(3))?;
        Ok(vec![y, moments.mean, moments.inverse_deviation(epsilon(node, 1e-12)?), sum])
    },
};

/// As SkipLayerNormalization, without subtracting the mean, which is no result then.
pub static SKIP_SIMPLIFIED_LAYER_NORMALIZATION: OpDef = OpDef {
    domain: DOMAIN,
    name: "SkipSimplifiedLayerNormalization",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let sum = sum(node, node.optional(3))?;
        let gamma = broadcast_to(node, "gamma", node.input(2)?, sum)?;
        let wide = sum.cast(sum.dtype().single_or_double());
        let inverse = inverse_root_mean_square(wide, &[sum.rank() - 1], epsilon(node, 1e-12)?);
        if node.wants_output(1) {
            return Err(node.error("the mean (output 1) is not computed"));
        }
        Ok(vec![(wide * inverse * gamma.cast(wide.dtype())).cast(sum.dtype()), inverse, inverse, sum])
    },
};

/// Embeddings of words, of their places and of segments, summed and normalized. Further results are the number of words of each
/// sequence that the mask leaves, and the sum.
pub static EMBED_LAYER_NORMALIZATION: OpDef = OpDef {
    domain: DOMAIN,
    name: "EmbedLayerNormalization",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let words = node.input(0)?;
        let &[_, length] = words.shape().dims() else {
            return Err(node.error(format!("the words must have rank 2, not {}", words.ty())));
        };
        let (table, places) = (node.input(2)?, node.input(3)?);
        let places = match node.optional(8) {
            Some(positions) => places.gather(positions, 0),
            None if places.rank() == 2 && places.shape()[0] >= length => places.slice_axis(0, 0, length),
            None => return Err(node.error(format!("{} has no place for each of {length} words", places.ty()))),
        };
        let mut sum = table.gather(words, 0) + places;
        if let (Some(segments), Some(table)) = (node.optional(1), node.optional(4)) {
            sum = sum + table.gather(segments, 0);
        }
        let (y, _) = layer_norm(node, sum, node.input(5)?, Some(node.input(6)?))?;
        node.attributes().ignore("mask_index_type");
        let counts = match node.optional(7) {
            Some(mask) => mask.eq(mask.like(1.0)).cast(DType::I32).reduce(ReduceFn::Sum, &[1]),
            None => node.builder().scalar(DType::I32, 0.0).broadcast_to(&[words.extent(0)]),
        };
        Ok(vec![y, counts, sum])
    },
};
