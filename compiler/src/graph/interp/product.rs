//! Sums of products: contractions and convolutions.

use mcc_support::{Tensor, TensorType};

use super::elements::Num;
use super::reduce::{Tap, taps, visit_rows};
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

fn contract_in<N: Num>(contraction: &Contraction, a: &Tensor, b: &Tensor, ty: &TensorType) -> Tensor {
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
    // The innermost loop runs over the last axis of the result, so that lhs is one number in it wherever it can be.
    let inner = kept.pop().unwrap_or(Axis { extent: 1, strides: [0; 3] });
    let (lhs, rhs) = (N::load(a), N::load(b));
    let mut out = vec![N::ZERO; ty.shape.count()];
    for_each_offset(&kept, &mut |outer| {
        for_each_offset(&summed, &mut |term| {
            let (x, y) = (&lhs[outer[0] + term[0]..], &rhs[outer[1] + term[1]..]);
            let row = &mut out[outer[2]..];
            match inner.strides {
                [0, 1, _] => axpy(&mut row[..inner.extent], x[0], &y[..inner.extent]),
                [1, 0, _] => axpy(&mut row[..inner.extent], y[0], &x[..inner.extent]),
                [i, j, k] => {
                    for at in 0..inner.extent {
                        row[at * k] = row[at * k].add(x[at * i].mul(y[at * j]));
                    }
                }
            }
        });
    });
    N::store(ty.clone(), out)
}

/// Calls `visit` with the offsets of every index of the axes. Not at all where one is empty.
fn for_each_offset(axes: &[Axis], visit: &mut impl FnMut([usize; 3])) {
    let extents: mcc_support::Shape = axes.iter().map(|axis| axis.extent).collect();
    extents.for_each_index(|index| {
        let offset = |side: usize| index.iter().zip(axes).map(|(at, axis)| at * axis.strides[side]).sum();
        visit([offset(0), offset(1), offset(2)]);
    });
}

fn axpy<N: Num>(row: &mut [N], factor: N, terms: &[N]) {
    for (sum, &term) in row.iter_mut().zip(terms) {
        *sum = sum.add(factor.mul(term));
    }
}

pub fn conv(conv: &Conv, x: &Tensor, weights: &Tensor, ty: &TensorType) -> Tensor {
    if ty.dtype.is_float() { conv_in::<f64>(conv, x, weights, ty) } else { conv_in::<i64>(conv, x, weights, ty) }
}

fn conv_in<N: Num>(conv: &Conv, x: &Tensor, weights: &Tensor, ty: &TensorType) -> Tensor {
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
                let position = i128::from(index[axis] as u64) * i128::from(conv.dilations[axis] as u64)
                    - i128::from(conv.pads[axis].0);
                taps(spatial_out[axis], spatial_in[axis], position, conv.strides[axis], conv.input_dilations[axis])
            })
            .collect();
        let steps = |pair: &[Tap]| (pair[1].result - pair[0].result, pair[1].operand - pair[0].operand);
        let row_is_dense = pairs.last().is_some_and(|row| row.windows(2).all(|pair| steps(pair) == (1, 1)));
        for batch in 0..x.shape()[0] {
            for filter in 0..filters {
                let result = &mut out[(batch * filters + filter) * image_out..][..image_out];
                for channel in 0..group_channels {
                    let factor = factors[(filter * group_channels + channel) * tap_count + tap];
                    let from = filter / group_filters * group_channels + channel;
                    let image = &input[(batch * channels + from) * image_in..][..image_in];
                    visit_rows(&pairs, spatial_out, spatial_in, |to, from, row| match row {
                        [first, .., last] if row_is_dense => {
                            let (to, from) = (to + first.result, from + first.operand);
                            axpy(&mut result[to..to + row.len()], factor, &image[from..=from + last.operand - first.operand]);
                        }
                        _ => {
                            for &Tap { result: at, operand } in row {
                                result[to + at] = result[to + at].add(factor.mul(image[from + operand]));
                            }
                        }
                    });
                }
            }
        }
        tap += 1;
    });
    N::store(ty.clone(), out)
}
