//! Sums of products: contractions and convolutions.

use mcc_support::{Tensor, TensorType, sums};

use super::elements::Num;
use super::reduce::{Tap, rows, taps};
use crate::graph::op::{Contraction, Conv};

pub fn contract(contraction: &Contraction, a: &Tensor, b: &Tensor, ty: &TensorType) -> Tensor {
    if ty.dtype.is_float() { contract_in::<f64>(contraction, a, b, ty) } else { contract_in::<i64>(contraction, a, b, ty) }
}

/// An axis of the loops around a product: extent, and the stride (0 where the axis is absent) in lhs, rhs and result.
#[derive(Clone, Copy)]
struct Axis {
    extent: usize,
    strides: [usize; 3],
}

fn contract_in<N: Product>(contraction: &Contraction, a: &Tensor, b: &Tensor, ty: &TensorType) -> Tensor {
    let sides = [(&contraction.lhs, a.shape()), (&contraction.rhs, b.shape()), (&contraction.out, &ty.shape)];
    let mut labels: Vec<u8> = contraction.out.clone();
    labels.extend(contraction.lhs.iter().chain(&contraction.rhs).filter(|label| !contraction.out.contains(label)));
    let mut kept = Vec::new();
    let mut summed = Vec::new();
    for (index, label) in labels.iter().enumerate() {
        if labels[..index].contains(label) {
            continue;
        }
        let mut axis = Axis { extent: 0, strides: [0; 3] };
        for (side, (labels, shape)) in sides.iter().enumerate() {
            if let Some(at) = labels.iter().position(|other| other == label) {
                axis.extent = shape[at];
                axis.strides[side] = shape.strides()[at];
            }
        }
        if index < contraction.out.len() { kept.push(axis) } else { summed.push(axis) }
    }
    let (lhs, rhs) = (N::load(a), N::load(b));
    let mut out = vec![N::ZERO; ty.shape.count()];
    // The innermost loop is the longer of the last axis of the result, if one factor is the same all along it and the others are
    // dense, and the longest that is summed.
    summed.sort_by_key(|axis| axis.extent);
    let is_row = |axis: &Axis| matches!(axis.strides, [0, 1, 1] | [1, 0, 1]);
    let longest = summed.last().map_or(1, |axis| axis.extent);
    if let Some(row) = kept.pop_if(|axis| is_row(axis) && axis.extent >= longest) {
        let terms = offsets(&summed);
        for outer in offsets(&kept) {
            let sums = &mut out[outer[2]..][..row.extent];
            for term in &terms {
                let (x, y) = (&lhs[outer[0] + term[0]..], &rhs[outer[1] + term[1]..]);
                let (factor, terms) = if row.strides[0] == 0 { (x[0], y) } else { (y[0], x) };
                N::add_scaled(sums, factor, &terms[..row.extent]);
            }
        }
    } else {
        let inner = summed.pop().unwrap_or(Axis { extent: 1, strides: [0; 3] });
        let terms = offsets(&summed);
        for outer in offsets(&kept) {
            for term in &terms {
                let (x, y) = (&lhs[outer[0] + term[0]..], &rhs[outer[1] + term[1]..]);
                let dot = N::dot(x, inner.strides[0], y, inner.strides[1], inner.extent);
                out[outer[2]] = out[outer[2]].add(dot);
            }
        }
    }
    N::store(ty.clone(), out)
}

/// The offsets of every index of the axes in lhs, rhs and result, in row-major order. None where an axis is empty.
fn offsets(axes: &[Axis]) -> Vec<[usize; 3]> {
    axes.iter().fold(vec![[0; 3]], |outer, axis| {
        let at = |from: [usize; 3], index: usize| [0, 1, 2].map(|side| from[side] + index * axis.strides[side]);
        outer.into_iter().flat_map(|from| (0..axis.extent).map(move |index| at(from, index))).collect()
    })
}

/// The inner loops, which are in another crate because that is optimized.
trait Product: Num {
    fn add_scaled(sums: &mut [Self], factor: Self, terms: &[Self]);
    fn add_scaled_rows(sums: &mut [Self], factor: Self, terms: &[Self], rows: &[Tap], row: &[Tap]);
    fn dot(a: &[Self], a_step: usize, b: &[Self], b_step: usize, count: usize) -> Self;
}

impl Product for f64 {
    fn add_scaled(sums: &mut [Self], factor: Self, terms: &[Self]) {
        sums::add_scaled_f64(sums, factor, terms);
    }
    fn add_scaled_rows(sums: &mut [Self], factor: Self, terms: &[Self], rows: &[Tap], row: &[Tap]) {
        sums::add_scaled_rows_f64(sums, factor, terms, rows, row);
    }
    fn dot(a: &[Self], a_step: usize, b: &[Self], b_step: usize, count: usize) -> Self {
        sums::dot_f64(a, a_step, b, b_step, count)
    }
}

impl Product for i64 {
    fn add_scaled(sums: &mut [Self], factor: Self, terms: &[Self]) {
        sums::add_scaled_i64(sums, factor, terms);
    }
    fn add_scaled_rows(sums: &mut [Self], factor: Self, terms: &[Self], rows: &[Tap], row: &[Tap]) {
        sums::add_scaled_rows_i64(sums, factor, terms, rows, row);
    }
    fn dot(a: &[Self], a_step: usize, b: &[Self], b_step: usize, count: usize) -> Self {
        sums::dot_i64(a, a_step, b, b_step, count)
    }
}

pub fn conv(conv: &Conv, x: &Tensor, weights: &Tensor, ty: &TensorType) -> Tensor {
    if ty.dtype.is_float() { conv_in::<f64>(conv, x, weights, ty) } else { conv_in::<i64>(conv, x, weights, ty) }
}

fn conv_in<N: Product>(conv: &Conv, x: &Tensor, weights: &Tensor, ty: &TensorType) -> Tensor {
    let (input, factors) = (N::load(x), N::load(weights));
    let mut out = vec![N::ZERO; ty.shape.count()];
    let (channels, filters) = (x.shape()[1], weights.shape()[0]);
    let (group_channels, group_filters) = (channels / conv.groups, filters / conv.groups);
    let (spatial_in, spatial_out) = (&x.shape()[2..], &ty.shape[2..]);
    let (image_in, image_out) = (spatial_in.iter().product::<usize>(), spatial_out.iter().product::<usize>());
    let kernel = mcc_support::Shape::new(&weights.shape()[2..]);
    let tap_count = kernel.count();
    let mut tap = 0;
    kernel.for_each_index(|index| {
        let pairs: Vec<Vec<Tap>> = (0..kernel.rank())
            .map(|axis| {
                let position =
                    i128::from(index[axis] as u64) * i128::from(conv.dilations[axis] as u64) - i128::from(conv.pads[axis].0);
                taps(spatial_out[axis], spatial_in[axis], position, conv.strides[axis], conv.input_dilations[axis])
            })
            .collect();
        let (rows, row) = rows(&pairs, spatial_out, spatial_in);
        for batch in 0..x.shape()[0] {
            for filter in 0..filters {
                let result = &mut out[(batch * filters + filter) * image_out..][..image_out];
                for channel in 0..group_channels {
                    let factor = factors[(filter * group_channels + channel) * tap_count + tap];
                    let from = filter / group_filters * group_channels + channel;
                    let image = &input[(batch * channels + from) * image_in..][..image_in];
                    N::add_scaled_rows(result, factor, image, &rows, &row);
                }
            }
        }
        tap += 1;
    });
    N::store(ty.clone(), out)
}
