//! Operators that prepare features, and those that pass results on.

use mcc_support::{DType, Result, Tensor};

use super::DOMAIN;
use crate::graph::{ReduceFn, UnaryFn, Wire};
use crate::ops::gather::check_indices;
use crate::ops::{NodeContext, OpDef};

pub static ALL: &[&OpDef] =
    &[&ARRAY_FEATURE_EXTRACTOR, &BINARIZER, &FEATURE_VECTORIZER, &IMPUTER, &NORMALIZER, &SCALER, &ZIP_MAP];

/// An input whose last axis, that of features, is known.
fn features<'b>(node: &NodeContext<'_, 'b>, index: usize) -> Result<Wire<'b>> {
    let x = node.input(index)?;
    node.expect_whole(x, [x.rank().saturating_sub(1)])?;
    Ok(x)
}

/// Chooses features, which are the last axis.
pub static ARRAY_FEATURE_EXTRACTOR: OpDef = OpDef {
    domain: DOMAIN,
    name: "ArrayFeatureExtractor",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let (x, indices) = (features(node, 0)?, node.input(1)?);
        node.expect_dtype(indices, "an integer", DType::is_integer)?;
        let x = if x.rank() == 1 { x.reshape([1, x.shape()[0]]) } else { x };
        let Some(&features) = x.shape().last() else { return Err(node.error("the operand has no features")) };
        check_indices(node, indices, features)?;
        let count = indices.shape().count();
        Ok(vec![x.gather(indices.reshape([count]), x.rank() - 1)])
    },
};

/// 1 where the operand is larger than `threshold`, else 0.
pub static BINARIZER: OpDef = OpDef {
    domain: DOMAIN,
    name: "Binarizer",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let x = features(node, 0)?;
        let threshold = f64::from(node.attributes().float_or("threshold", 0.0)?);
        let compared = if x.dtype().is_float() { x } else { x.cast(DType::F64) };
        Ok(vec![compared.like(threshold).lt(compared).cast(x.dtype())])
    },
};

/// Puts the features of several operands beside each other.
pub static FEATURE_VECTORIZER: OpDef =
    OpDef { domain: DOMAIN, name: "FeatureVectorizer", since: &[1], shape_inputs: &[], build: feature_vectorizer };

fn feature_vectorizer<'b>(node: &NodeContext<'_, 'b>) -> Result<Vec<Wire<'b>>> {
    let inputs = (0..node.input_count()).map(|index| features(node, index)).collect::<Result<Vec<_>>>()?;
    let counts = node.attributes().required("inputdimensions", node.attributes().ints("inputdimensions")?)?;
    if inputs.is_empty() || counts.len() != inputs.len() {
        return Err(node.error(format!("{} counts of features are given for {} operands", counts.len(), inputs.len())));
    }
    let part = |(x, count): (Wire<'b>, i64)| {
        let count = node.size("the count of features", count)?;
        let x = match *x.shape().dims() {
            [features] => x.reshape([1, features]),
            [_, _] => x,
            _ => return Err(node.error(format!("an operand must have rank 1 or 2, not {}", x.ty()))),
        };
        let given = x.shape()[1];
        let x = x.cast(DType::F32).slice_axis(1, 0, given.min(count));
        Ok(x.pad(&[(0, 0), (0, count.saturating_sub(given))], x.like(0.0)))
    };
    let parts = inputs.into_iter().zip(counts).map(part).collect::<Result<Vec<_>>>()?;
    Ok(vec![node.builder().concat(&parts, 1)])
}

/// Puts one value for all, or one for each feature, in the place of a value that stands for a missing one.
pub static IMPUTER: OpDef = OpDef {
    domain: DOMAIN,
    name: "Imputer",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let x = features(node, 0)?;
        let attributes = node.attributes();
        let builder = node.builder();
        let float = x.dtype().is_float();
        let values = if float {
            attributes.ignore("replaced_value_int64");
            attributes.ignore("imputed_value_int64s");
            let values = attributes.floats_or("imputed_value_floats", vec![])?;
            Tensor::from_elements([values.len()], &values)
        } else {
            attributes.ignore("replaced_value_float");
            attributes.ignore("imputed_value_floats");
            let values = attributes.ints_or("imputed_value_int64s", vec![])?;
            Tensor::from_elements([values.len()], &values)
        };
        if values.count() != 1 && x.shape().last() != Some(&values.count()) {
            return Err(node.error(format!("{} imputed values do not fit {}", values.count(), x.ty())));
        }
        let missing = if float {
            let replaced = attributes.float_or("replaced_value_float", 0.0)?;
            if replaced.is_nan() { x.unary(UnaryFn::IsNan) } else { x.eq(x.like(f64::from(replaced))) }
        } else {
            let replaced = attributes.int_or("replaced_value_int64", 0)?;
            x.cast(DType::I64).eq(builder.constant(Tensor::scalar(replaced)))
        };
        Ok(vec![missing.select(builder.constant(values).cast(x.dtype()), x)])
    },
};

/// Divides each row by its largest value, by its sum of magnitudes or by its length; a row for which that is 0 stays.
pub static NORMALIZER: OpDef = OpDef {
    domain: DOMAIN,
    name: "Normalizer",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let x = features(node, 0)?;
        if !(1..=2).contains(&x.rank()) {
            return Err(node.error(format!("the operand must have rank 1 or 2, not {}", x.ty())));
        }
        let axes = [x.rank() - 1];
        let norm = node.attributes().word("norm", &["MAX", "L1", "L2"])?;
        // A square may be beyond f32.
        let wide = x.cast(x.dtype().single_or_double());
        let size = match norm {
            "MAX" => wide.reduce_keep(ReduceFn::Max, &axes),
            "L1" => wide.abs().reduce_keep(ReduceFn::Sum, &axes),
            _ => (wide * wide).reduce_keep(ReduceFn::Sum, &axes).sqrt(),
        };
        let one = size.like(1.0);
        Ok(vec![(wide / size.eq(size.like(0.0)).select(one, size)).cast(DType::F32)])
    },
};

/// `(x − offset) · scale`, with one of each for all or for each feature.
pub static SCALER: OpDef = OpDef {
    domain: DOMAIN,
    name: "Scaler",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let x = features(node, 0)?;
        let parameters = |name: &str| -> Result<Wire<'_>> {
            let values = node.attributes().required(name, node.attributes().floats(name)?)?;
            if values.len() != 1 && (x.shape().last() != Some(&values.len()) || x.rank() > 2) {
                return Err(node.error(format!(
                    "attribute '{name}' has {} entries, which does not fit {}",
                    values.len(),
                    x.ty()
                )));
            }
            Ok(node.builder().constant(Tensor::from_elements([values.len()], &values)))
        };
        let (offset, scale) = (parameters("offset")?, parameters("scale")?);
        let wide = x.cast(x.dtype().single_or_double());
        Ok(vec![((wide - offset.cast(wide.dtype())) * scale.cast(wide.dtype())).cast(DType::F32)])
    },
};

/// Gives each score its label, in a list of maps: the scores are passed on as they are, in the order of the labels.
pub static ZIP_MAP: OpDef = OpDef {
    domain: DOMAIN,
    name: "ZipMap",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let x = features(node, 0)?;
        let attributes = node.attributes();
        let names: Vec<String> = match (attributes.ints("classlabels_int64s")?, attributes.strings("classlabels_strings")?) {
            (Some(numbers), None) => numbers.iter().map(i64::to_string).collect(),
            (None, Some(names)) => names.iter().map(|name| format!("'{name}'")).collect(),
            _ => return Err(node.error("one list of labels is needed")),
        };
        if x.shape().last() != Some(&names.len()) {
            return Err(node.error(format!("{} labels do not fit {}", names.len(), x.ty())));
        }
        node.warn(format!("the result is the tensor of scores, in the order of the labels: {}", names.join(", ")));
        Ok(vec![x])
    },
};

/// Fails where a list of labels holds strings.
pub(super) fn refuse_strings(node: &NodeContext<'_, '_>, names: &[&str]) -> Result<()> {
    for name in names {
        if node.attributes().strings(name)?.is_some_and(|list| !list.is_empty()) {
            return Err(node
                .error(format!("strings (attribute '{name}') are not supported"))
                .help("convert the model so that categories and labels are numbers"));
        }
    }
    Ok(())
}
