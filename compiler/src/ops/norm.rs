//! Normalizations.

use mcc_support::{DType, Error, Result};

use super::activation::widened;
use super::conv::per_channel;
use super::reduce::element_count;
use super::{NodeContext, OpDef};
use crate::graph::{Op, ReduceFn, Window, Wire};

pub static ALL: &[&OpDef] = &[
    &BATCH_NORMALIZATION,
    &GROUP_NORMALIZATION,
    &INSTANCE_NORMALIZATION,
    &LAYER_NORMALIZATION,
    &LP_NORMALIZATION,
    &LRN,
    &MEAN_VARIANCE_NORMALIZATION,
    &RMS_NORMALIZATION,
    &SIMPLIFIED_LAYER_NORMALIZATION,
];

/// With the statistics given, or `training_mode` with those of the batch, which also move the running ones.
pub static BATCH_NORMALIZATION: OpDef = OpDef {
    domain: "",
    name: "BatchNormalization",
    since: &[6, 7, 9, 14, 15],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let statistics = [node.input(1)?, node.input(2)?, node.input(3)?, node.input(4)?];
        let attributes = node.attributes();
        let epsilon = attributes.float_or("epsilon", 1e-5)?;
        let momentum = attributes.float_or("momentum", 0.9)?;
        if node.version() < 7 && !attributes.flag("is_test", false)? {
            return Err(node.error("training of a normalization before opset 14 is not supported").help("set its is_test to 1"));
        }
        if node.version() < 9 && !attributes.flag("spatial", true)? {
            return Ok(vec![normalized_places(x, statistics, epsilon)]);
        }
        if node.version() >= 14 && attributes.flag("training_mode", false)? {
            node.warn_of_training("it normalizes by the statistics of the batch, not by those that were learned");
            return trained(node, x, statistics, epsilon, momentum);
        }
        let one_type = statistics.iter().all(|statistic| statistic.dtype() == x.dtype());
        let dtype = if one_type { x.dtype() } else { DType::F32 };
        let operands = [x, statistics[0], statistics[1], statistics[2], statistics[3]].map(|wire| wire.cast(dtype));
        Ok(vec![node.builder().add(Op::BatchNorm { epsilon }, &operands).cast(x.dtype())])
    },
};

/// With statistics for each place of an image.
fn normalized_places<'b>(x: Wire<'b>, [scale, bias, mean, variance]: [Wire<'b>; 4], epsilon: f32) -> Wire<'b> {
    (x - mean) / (variance + f64::from(epsilon)).sqrt() * scale + bias
}

fn trained<'b>(
    node: &NodeContext<'_, 'b>,
    x: Wire<'b>,
    statistics: [Wire<'b>; 4],
    epsilon: f32,
    momentum: f32,
) -> Result<Vec<Wire<'b>>> {
    if x.rank() < 2 {
        return Err(node.error(format!("the input has axes for batch and channels, which {} has not", x.ty())));
    }
    let axes: Vec<usize> = (0..x.rank()).filter(|&axis| axis != 1).collect();
    let wide = x.cast(x.dtype().single_or_double());
    let moments = Moments::of(wide, &axes);
    let [scale, bias] = [("the scale", statistics[0]), ("the bias", statistics[1])]
        .map(|(what, statistic)| per_channel(node, what, statistic, x, 1).map(|statistic| statistic.cast(wide.dtype())));
    let y = moments.normalized(f64::from(epsilon)) * scale? + bias?;
    let momentum = f64::from(momentum);
    let running = |running: Wire<'b>, batch: Wire<'b>| {
        let batch = batch.reshape(running.shape()).cast(running.dtype());
        running * momentum + batch * (1.0 - momentum)
    };
    Ok(vec![y.cast(x.dtype()), running(statistics[2], moments.mean), running(statistics[3], moments.variance)])
}

/// Mean and variance over some axes, which keep extent 1, and the distances from the mean.
pub(super) struct Moments<'b> {
    pub mean: Wire<'b>,
    centred: Wire<'b>,
    variance: Wire<'b>,
}

impl<'b> Moments<'b> {
    pub fn of(x: Wire<'b>, axes: &[usize]) -> Self {
        let mean = mean(x, axes);
        let centred = x - mean;
        Self { mean, centred, variance: mean_square(centred, axes) }
    }

    pub fn inverse_deviation(&self, epsilon: f64) -> Wire<'b> {
        1.0 / (self.variance + epsilon).sqrt()
    }

    pub fn normalized(&self, epsilon: f64) -> Wire<'b> {
        self.centred * self.inverse_deviation(epsilon)
    }
}

/// By a division, so that numbers that are equal lie at their mean: what it erred by would be scaled up.
fn mean<'b>(x: Wire<'b>, axes: &[usize]) -> Wire<'b> {
    x.reduce_keep(ReduceFn::Sum, axes) / element_count(x, axes)
}

/// By a product: the sum that it is of has a larger error, and each row waits for it.
fn mean_square<'b>(x: Wire<'b>, axes: &[usize]) -> Wire<'b> {
    (x * x).reduce_keep(ReduceFn::Sum, axes) * (1.0 / element_count(x, axes))
}

/// The type in which statistics are computed: what `stash_type` says, but no less than f32, and f64 for f64.
fn stash_type(node: &NodeContext<'_, '_>, x: Wire<'_>) -> Result<(DType, DType)> {
    let stash = node.attributes().dtype("stash_type")?.unwrap_or(DType::F32);
    if !stash.is_float() {
        return Err(node.error(format!("attribute 'stash_type' is {stash}, which is not a float")));
    }
    let wide = if x.dtype() == DType::F64 || stash == DType::F64 { DType::F64 } else { DType::F32 };
    Ok((stash, wide))
}

pub(super) fn epsilon(node: &NodeContext<'_, '_>, default: f32) -> Result<f64> {
    Ok(f64::from(node.attributes().float_or("epsilon", default)?))
}

/// Over `axis` and all behind it. The results also are mean and inverse deviation, in the stash type.
pub static LAYER_NORMALIZATION: OpDef = OpDef {
    domain: "",
    name: "LayerNormalization",
    // ONNX Runtime writes it into models of earlier opsets too.
    since: &[1, 17],
    shape_inputs: &[],
    build: |node| {
        let (x, scale) = (node.input(0)?, node.input(1)?);
        let (stash, wide) = stash_type(node, x)?;
        let axes: Vec<usize> = (node.axis_attribute(-1, x.rank())?..x.rank()).collect();
        let epsilon = epsilon(node, 1e-5)?;
        let moments = Moments::of(x.cast(wide), &axes);
        let y = moments.normalized(epsilon).cast(x.dtype()) * broadcast_to(node, "the scale", scale, x)?;
        let y = match node.optional(2) {
            Some(bias) => y + broadcast_to(node, "the bias", bias, x)?,
            None => y,
        };
        Ok(vec![y, moments.mean.cast(stash), moments.inverse_deviation(epsilon).cast(stash)])
    },
};

/// Fails unless `x` broadcasts to the shape of `y`.
pub(super) fn broadcast_to<'b>(node: &NodeContext<'_, 'b>, what: &str, x: Wire<'b>, y: Wire<'b>) -> Result<Wire<'b>> {
    let error = || -> Error { node.error(format!("{what}, a {}, does not broadcast to {}", x.ty(), y.ty())) };
    if x.shape().broadcast(&y.shape()).as_ref() == Some(&y.shape()) { Ok(x) } else { Err(error()) }
}

/// `x / sqrt(mean(x²) + epsilon) · scale`, over `axis` and all behind it.
pub static RMS_NORMALIZATION: OpDef = OpDef {
    domain: "",
    name: "RMSNormalization",
    since: &[23],
    shape_inputs: &[],
    build: |node| {
        let (x, scale) = (node.input(0)?, node.input(1)?);
        let (_, wide) = stash_type(node, x)?;
        let axes: Vec<usize> = (node.axis_attribute(-1, x.rank())?..x.rank()).collect();
        let epsilon = epsilon(node, 1e-5)?;
        let wide = x.cast(wide);
        let normalized = wide * inverse_root_mean_square(wide, &axes, epsilon);
        let scale = broadcast_to(node, "the scale", scale, x)?;
        // The result has the scale's type.
        Ok(vec![normalized.cast(scale.dtype()) * scale])
    },
};

/// RMSNormalization as ONNX Runtime writes it into models, with the inverse of the root as a result too.
pub static SIMPLIFIED_LAYER_NORMALIZATION: OpDef = OpDef {
    domain: "",
    name: "SimplifiedLayerNormalization",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let (x, scale) = (node.input(0)?, node.input(1)?);
        let (stash, wide) = stash_type(node, x)?;
        let axes: Vec<usize> = (node.axis_attribute(-1, x.rank())?..x.rank()).collect();
        let wide = x.cast(wide);
        let inverse = inverse_root_mean_square(wide, &axes, epsilon(node, 1e-5)?);
        let scale = broadcast_to(node, "the scale", scale, x)?;
        Ok(vec![(wide * inverse).cast(scale.dtype()) * scale, inverse.cast(stash)])
    },
};

/// `1 / sqrt(mean(x²) + epsilon)`
pub(super) fn inverse_root_mean_square<'b>(x: Wire<'b>, axes: &[usize], epsilon: f64) -> Wire<'b> {
    1.0 / (mean_square(x, axes) + epsilon).sqrt()
}

/// Over each image of each channel.
pub static INSTANCE_NORMALIZATION: OpDef = OpDef {
    domain: "",
    name: "InstanceNormalization",
    since: &[6, 22],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let epsilon = epsilon(node, 1e-5)?;
        let scale = per_channel(node, "the scale", node.input(1)?, x, 1)?;
        let bias = per_channel(node, "the bias", node.input(2)?, x, 1)?;
        let axes: Vec<usize> = (2..x.rank()).collect();
        Ok(vec![widened(x, |x| Moments::of(x, &axes).normalized(epsilon) * scale.cast(x.dtype()) + bias.cast(x.dtype()))])
    },
};

/// Over the channels of a group and their images. Scale and bias are per group before opset 21, then per channel.
pub static GROUP_NORMALIZATION: OpDef = OpDef {
    domain: "",
    name: "GroupNormalization",
    since: &[18, 21],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let groups = node.attributes().required("num_groups", node.attributes().int("num_groups")?)?;
        let groups = node.size("the group count", groups)?;
        let epsilon = epsilon(node, 1e-5)?;
        let wide = if node.version() < 21 { x.dtype().single_or_double() } else { stash_type(node, x)?.1 };
        node.expect_whole(x, [1])?;
        let shape = x.shape();
        if shape.rank() < 2 || groups == 0 || !shape[1].is_multiple_of(groups) {
            return Err(node.error(format!("the channels of {} cannot be divided into {groups} groups", x.ty())));
        }
        let split = [&[shape[0], groups, shape[1] / groups], &shape[2..]].concat();
        let axes: Vec<usize> = (2..split.len()).collect();
        let normalized = Moments::of(x.cast(wide).reshape(split), &axes).normalized(epsilon);
        let (scale, bias) = (node.input(1)?, node.input(2)?);
        if node.version() < 21 {
            let scale = per_channel(node, "the scale", scale, normalized, 1)?;
            let bias = per_channel(node, "the bias", bias, normalized, 1)?;
            return Ok(vec![(normalized.cast(x.dtype()) * scale + bias).reshape(shape)]);
        }
        let normalized = normalized.cast(x.dtype()).reshape(shape);
        Ok(vec![normalized * per_channel(node, "the scale", scale, x, 1)? + per_channel(node, "the bias", bias, x, 1)?])
    },
};

/// Divides by a power of the mean square of the neighbouring channels.
pub static LRN: OpDef = OpDef {
    domain: "",
    name: "LRN",
    since: &[1, 13],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let attributes = node.attributes();
        let size = attributes.required("size", attributes.int("size")?)?;
        let size = node.size("the window", size)?;
        let alpha = f64::from(attributes.float_or("alpha", 1e-4)?);
        let beta = f64::from(attributes.float_or("beta", 0.75)?);
        let bias = f64::from(attributes.float_or("bias", 1.0)?);
        if x.rank() < 2 || size == 0 {
            return Err(node.error(format!("a window of {size} channels does not fit {}", x.ty())));
        }
        let images = x.rank() - 2;
        let mut window = Window {
            kernel: vec![1; images + 1],
            strides: vec![1; images + 1],
            dilations: vec![1; images + 1],
            pads: vec![(0, 0); images + 1],
        };
        // What a window has beyond all channels is nothing.
        let (before, after) = ((size - 1) / 2, size - 1 - (size - 1) / 2);
        window.pads[0] = (before.min(x.shape()[1]), after.min(x.shape()[1]));
        window.kernel[0] = window.pads[0].0 + window.pads[0].1 + 1;
        Ok(vec![widened(x, |x| {
            let sum = (x * x).window(ReduceFn::Sum, window);
            let base = sum * (alpha / size as f64) + bias;
            x / base.pow(base.like(beta))
        })])
    },
};

/// Divides by the norm along an axis; where that is 0, the result is 0.
pub static LP_NORMALIZATION: OpDef = OpDef {
    domain: "",
    name: "LpNormalization",
    since: &[1, 22],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let axes = [node.axis_attribute(-1, x.rank())?];
        let p = node.attributes().int_or("p", 2)?;
        if p != 1 && p != 2 {
            return Err(node.error(format!("attribute 'p' is {p}, which is neither 1 nor 2")));
        }
        Ok(vec![widened(x, |x| {
            let sum = (if p == 1 { x.abs() } else { x * x }).reduce_keep(ReduceFn::Sum, &axes);
            let norm = if p == 1 { sum } else { sum.sqrt() };
            let zero = x.like(0.0);
            norm.eq(zero).select(zero, x / norm)
        })])
    },
};

/// Subtracts the mean and divides by the deviation, over `axes`.
pub static MEAN_VARIANCE_NORMALIZATION: OpDef = OpDef {
    domain: "",
    name: "MeanVarianceNormalization",
    since: &[9, 13],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let axes = node.axes(&node.attributes().ints_or("axes", vec![0, 2, 3])?, x.rank())?;
        Ok(vec![widened(x, |x| {
            let moments = Moments::of(x, &axes);
            moments.centred / (moments.variance.sqrt() + 1e-9)
        })])
    },
};
