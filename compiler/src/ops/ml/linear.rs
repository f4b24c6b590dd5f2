//! Linear models.

use mcc_support::{Result, Tensor};

use super::scores::{Labels, Transform, both_scores, column};
use super::{DOMAIN, f32_rows};
use crate::graph::Wire;
use crate::ops::{NodeContext, OpDef};

pub static ALL: &[&OpDef] = &[&LINEAR_CLASSIFIER, &LINEAR_REGRESSOR];

/// `x · coefficientsᵀ + intercepts` for rows `x [batch, features]`: `[batch, count]`.
fn scores<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, count: usize, intercepts: Option<Vec<f32>>) -> Result<Wire<'b>> {
    let attributes = node.attributes();
    let coefficients = attributes.required("coefficients", attributes.floats("coefficients")?)?;
    let features = x.shape()[1];
    if count == 0
        || coefficients.len() != node.count("coefficients", &[count, features])?
        || intercepts.as_ref().is_some_and(|list| list.len() != count)
    {
        return Err(node.error(format!(
            "{} coefficients and {} intercepts do not fit {count} scores of {features} features",
            coefficients.len(),
            intercepts.map_or(0, |list| list.len())
        )));
    }
    let builder = node.builder();
    let product = x.contract(builder.constant(Tensor::from_elements([count, features], &coefficients)), "bf", "sf", "bs");
    Ok(match intercepts {
        Some(intercepts) => product + builder.constant(Tensor::from_elements([count], &intercepts)),
        None => product,
    })
}

pub static LINEAR_REGRESSOR: OpDef = OpDef {
    domain: DOMAIN,
    name: "LinearRegressor",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let x = f32_rows(node)?;
        let attributes = node.attributes();
        let targets = node.size("the count of targets", attributes.int_or("targets", 1)?)?;
        let intercepts = attributes.floats("intercepts")?.filter(|list| !list.is_empty());
        Ok(vec![Transform::of(node)?.apply_to_several(scores(node, x, targets, intercepts)?)])
    },
};

/// Results are the label and the scores of each row. One score for two classes is that of the second.
pub static LINEAR_CLASSIFIER: OpDef = OpDef {
    domain: DOMAIN,
    name: "LinearClassifier",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let x = f32_rows(node)?;
        let attributes = node.attributes();
        // Says how the model was trained.
        attributes.ignore("multi_class");
        let transform = Transform::of(node)?;
        let labels = Labels::of(node, "classlabels_ints", "classlabels_strings")?;
        let intercepts = attributes.floats("intercepts")?.filter(|list| !list.is_empty());
        let count = intercepts.as_ref().map_or(labels.count(), Vec::len);
        let scores = scores(node, x, count, intercepts)?;
        if count == 1 && labels.count() == 2 {
            let score = column(scores, 0);
            let label = labels.either(score.like(0.0).lt(score));
            return Ok(vec![label, both_scores(node, scores, transform, true)?]);
        }
        if count != labels.count() {
            return Err(node.error(format!("there are {count} scores for {} labels", labels.count())));
        }
        Ok(vec![labels.of_largest(scores), transform.apply_to_several(scores)])
    },
};
