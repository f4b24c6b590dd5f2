//! Fourier transforms, as products with constant matrices.

use std::f64::consts::TAU;

use mcc_support::{DType, Result, Tensor};

use super::activation::widened;
use super::{NodeContext, OpDef};
use crate::graph::{Conv, UnaryFn, Wire};

pub static ALL: &[&OpDef] = &[&DFT, &MEL_WEIGHT_MATRIX, &STFT];

/// A discrete Fourier transform of `length` samples. Numbers have two parts, real and imaginary, or only the real one.
struct Transform {
    length: usize,
    /// Samples that are there: those that lack are zeros.
    given: usize,
    parts: usize,
    inverse: bool,
    /// The half of the frequencies that determines the other one: given by the transform, or to its inverse.
    onesided: bool,
}

impl Transform {
    /// Extent and parts of the result.
    fn result(&self) -> [usize; 2] {
        match (self.onesided, self.inverse) {
            (false, _) => [self.length, 2],
            (true, false) => [self.length / 2 + 1, 2],
            (true, true) => [self.length, 1],
        }
    }

    /// What part `from` of sample `sample` adds to part `to` of result `place`.
    fn factor(&self, place: usize, to: usize, sample: usize, from: usize) -> f64 {
        // The angle of a multiple of the length is that of 0.
        let turn = (place as u128 * sample as u128 % self.length as u128) as f64 / self.length as f64;
        let (sine, cosine) = libm::sincos(TAU * turn);
        let sine = if self.inverse { sine } else { -sine };
        let factor = match (to, from) {
            (0, 0) | (1, 1) => cosine,
            (1, 0) => sine,
            _ => -sine,
        };
        let mirrored = self.onesided && self.inverse && sample != 0 && 2 * sample != self.length;
        factor * if mirrored { 2.0 } else { 1.0 } / if self.inverse { self.length as f64 } else { 1.0 }
    }

    /// The factors as `[place, part, sample, part]`.
    fn matrix(&self) -> Tensor {
        let [places, parts] = self.result();
        let mut factors = Vec::with_capacity(places * parts * self.given * self.parts);
        for (place, to) in (0..places).flat_map(|place| (0..parts).map(move |to| (place, to))) {
            for (sample, from) in (0..self.given).flat_map(|sample| (0..self.parts).map(move |from| (sample, from))) {
                factors.push(self.factor(place, to, sample, from));
            }
        }
        Tensor::from_elements([places, parts, self.given, self.parts], &factors)
    }
}

/// The extent of the last axis: 1 for real numbers, 2 for complex ones.
fn parts(node: &NodeContext<'_, '_>, x: Wire<'_>, rank: usize) -> Result<usize> {
    let shape = x.shape();
    match shape.last() {
        Some(&parts @ (1 | 2)) if shape.rank() >= rank => Ok(parts),
        _ => Err(node.error(format!("the last axis of {} must hold the one or two parts of a number", x.ty()))),
    }
}

/// A length from the model. Matrices grow with its square.
fn length(node: &NodeContext<'_, '_>, what: &str, value: i64) -> Result<usize> {
    match usize::try_from(value) {
        Ok(length @ 1..=8192) => Ok(length),
        _ => Err(node.error(format!("{what} is {value}, which is not one of 1 … 8192"))),
    }
}

/// The axis: an attribute before opset 20, then input 2.
pub static DFT: OpDef = OpDef {
    domain: "",
    name: "DFT",
    since: &[17, 20],
    shape_inputs: &[1, 2],
    build: |node| {
        let x = node.input(0)?;
        let parts = parts(node, x, 2)?;
        let attributes = node.attributes();
        let axis = if node.version() < 20 { attributes.int_or("axis", 1)? } else { node.optional_int(2)?.unwrap_or(-2) };
        let axis = node.axis(axis, x.rank())?;
        if axis + 1 == x.rank() {
            return Err(node.error("the last axis, which holds the parts of numbers, cannot be transformed"));
        }
        let (inverse, onesided) = (attributes.flag("inverse", false)?, attributes.flag("onesided", false)?);
        let halved = inverse && onesided;
        let extent = x.shape()[axis];
        let default = if halved { 2 * (extent as i64 - 1) } else { extent as i64 };
        let length = length(node, "the length of the transform", node.optional_int(1)?.unwrap_or(default))?;
        let used = if halved { length / 2 + 1 } else { length };
        let transform = Transform { length, given: extent.min(used), parts, inverse, onesided };
        let x = x.slice_axis(axis, 0, transform.given);
        let shape = x.shape();
        let (before, after) = (&shape[..axis], &shape[axis + 1..shape.rank() - 1]);
        let flat = [before.iter().product(), transform.given, after.iter().product(), parts];
        let [places, parts] = transform.result();
        let matrix = node.builder().constant(transform.matrix());
        Ok(vec![widened(x, |x| {
            let y = x.reshape(flat).contract(matrix.cast(x.dtype()), "anbc", "kdnc", "akbd");
            y.reshape([before, &[places], after, &[parts]].concat())
        })])
    },
};

/// The transforms of overlapping frames, weighted by a window: a convolution.
pub static STFT: OpDef = OpDef {
    domain: "",
    name: "STFT",
    since: &[17],
    shape_inputs: &[1, 3],
    build: |node| {
        let x = node.input(0)?;
        let parts = parts(node, x, 3)?;
        let [batch, samples, _] = *x.shape().dims() else {
            return Err(node.error(format!("the signal must have axes for batch, samples and parts, not {}", x.ty())));
        };
        let step = length(node, "the step between frames", node.constant_int(1)?)?;
        let window = node.optional(2);
        let default = window.map_or(samples, |window| window.shape().count()) as i64;
        let length = length(node, "the length of a frame", node.optional_int(3)?.unwrap_or(default))?;
        let onesided = node.attributes().flag("onesided", true)?;
        if samples < length || window.is_some_and(|window| window.shape().dims() != [length]) {
            return Err(node
                .error(format!("frames of {length} samples fit neither a window of another length nor a signal of {samples}")));
        }
        let transform = Transform { length, given: length, parts, inverse: false, onesided };
        let [places, results] = transform.result();
        let matrix = node.builder().constant(transform.matrix());
        let frames = (samples - length) / step + 1;
        Ok(vec![widened(x, |x| {
            let matrix = matrix.cast(x.dtype());
            let weights = window.map_or(matrix, |window| matrix * window.cast(x.dtype()).reshape([length, 1]));
            let weights = weights.transpose(&[0, 1, 3, 2]).reshape([places * results, parts, length]);
            let conv = Conv { strides: vec![step], dilations: vec![1], pads: vec![(0, 0)], input_dilations: vec![1], groups: 1 };
            let y = x.transpose(&[0, 2, 1]).conv(weights, conv);
            y.transpose(&[0, 2, 1]).reshape([batch, frames, places, results])
        })])
    },
};

/// For each frequency of a spectrum, its share in each of the bands: triangles that are evenly spaced on the mel scale.
pub static MEL_WEIGHT_MATRIX: OpDef = OpDef {
    domain: "",
    name: "MelWeightMatrix",
    since: &[17],
    shape_inputs: &[0, 1],
    build: |node| {
        let bands = node.size("the number of bands", node.constant_int(0)?)?;
        let length = node.size("the length of the transform", node.constant_int(1)?)?;
        let scalar = |index: usize| -> Result<_> {
            let wire = node.optional_scalar(index)?.ok_or_else(|| node.error(format!("input {index} is missing")))?;
            Ok(wire.cast(DType::F64))
        };
        let edges = [scalar(2)?, scalar(3)?, scalar(4)?];
        let dtype = node.attributes().dtype("output_datatype")?.unwrap_or(DType::F32);
        Ok(vec![mel_weights(bands, length, edges).cast(dtype)])
    },
};

fn mel_weights(bands: usize, length: usize, [rate, low, high]: [Wire<'_>; 3]) -> Wire<'_> {
    fn mel(frequency: Wire<'_>) -> Wire<'_> {
        // The constants of the scale cancel out; what remains of `2595 log10(1 + f / 700)` is the logarithm.
        (frequency / 700.0 + 1.0).log()
    }
    fn ratio<'b>(part: Wire<'b>, whole: Wire<'b>) -> Wire<'b> {
        part / whole.max(whole.like(1.0))
    }
    let builder = rate.builder();
    let step = (mel(high) - mel(low)) / (bands as f64 + 2.0);
    let edges = ((builder.iota(DType::F64, [bands + 2], 0) * step + mel(low)).exp() - 1.0) * 700.0;
    let edges = (edges * (length as f64 + 1.0) / rate).unary(UnaryFn::Floor);
    let [left, centre, right] = [0, 1, 2].map(|first| edges.slice_axis(0, first, bands));
    let place = builder.iota(DType::F64, [length / 2 + 1, 1], 0);
    let rising = left.le(place).and(place.le(centre)).select(ratio(place - left, centre - left), place.like(0.0));
    let rising = left.eq(centre).and(place.eq(centre)).select(place.like(1.0), rising);
    let falling = centre.le(place).and(place.lt(right));
    falling.select(ratio(right - place, right - centre), rising)
}
