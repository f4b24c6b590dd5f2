//! Losses: how far a prediction for each sample is from its class.

use mcc_support::{DType, Result};

use super::softmax::log_softmax;
use super::{NodeContext, OpDef};
use crate::graph::{Op, ReduceFn, Wire};

pub static ALL: &[&OpDef] = &[&NEGATIVE_LOG_LIKELIHOOD_LOSS, &SOFTMAX_CROSS_ENTROPY_LOSS];

pub static NEGATIVE_LOG_LIKELIHOOD_LOSS: OpDef = OpDef {
    domain: "",
    name: "NegativeLogLikelihoodLoss",
    since: &[12, 13, 22],
    shape_inputs: &[],
    build: |node| Ok(vec![loss(node, node.input(0)?)?]),
};

/// Of scores; the second result is their log softmax.
pub static SOFTMAX_CROSS_ENTROPY_LOSS: OpDef = OpDef {
    domain: "",
    name: "SoftmaxCrossEntropyLoss",
    since: &[12, 13],
    shape_inputs: &[],
    build: |node| {
        let scores = node.input(0)?;
        if scores.rank() < 2 {
            return Err(node.error(format!("the scores have axes for samples and classes, which {} has not", scores.ty())));
        }
        let logarithms = log_softmax(scores, &[1]);
        Ok(vec![loss(node, logarithms)?, logarithms])
    },
};

/// The negative of each sample's entry at its class, times the weight of the class, reduced. `ignore_index` is a class that does
/// not count.
fn loss<'b>(node: &NodeContext<'_, 'b>, logarithms: Wire<'b>) -> Result<Wire<'b>> {
    let (labels, weights) = (node.input(1)?, node.optional(2));
    let attributes = node.attributes();
    let ignored = attributes.int("ignore_index")?;
    let reduction = attributes.word("reduction", &["mean", "none", "sum"])?;
    let (shape, samples) = (logarithms.shape(), labels.shape());
    let fits = shape.rank() >= 2 && samples.rank() + 1 == shape.rank() && shape[0] == samples[0] && shape[2..] == samples[1..];
    if !fits || weights.is_some_and(|weights| weights.shape().dims() != [shape[1]]) {
        return Err(node.error(format!("the classes {} do not fit the predictions {}", labels.ty(), logarithms.ty())));
    }
    let labels = labels.cast(DType::I64);
    let skipped = ignored.map(|ignored| labels.eq(labels.like(ignored as f64)));
    let safe = skipped.map_or(labels, |skipped| skipped.select(labels.like(0.0), labels));
    let mut column = shape.to_vec();
    column[1] = 1;
    let chosen = node.builder().add(Op::GatherElements { axis: 1 }, &[logarithms, safe.reshape(column)]).reshape(samples.clone());
    let one = logarithms.like(1.0);
    let weight = weights.map(|weights| weights.gather(safe, 0));
    let weight = match (weight, skipped) {
        (weight, Some(skipped)) => Some(skipped.select(one * 0.0, weight.unwrap_or(one))),
        (weight, None) => weight,
    };
    let each = weight.map_or(-chosen, |weight| -chosen * weight);
    let axes: Vec<usize> = (0..samples.rank()).collect();
    let sum = |x: Wire<'b>| x.reduce(ReduceFn::Sum, &axes);
    Ok(match reduction {
        "none" => each,
        "sum" => sum(each),
        _ => {
            sum(each)
                / weight.map_or_else(|| logarithms.like(samples.count() as f64), |weight| sum(weight.broadcast(samples.clone())))
        }
    })
}
