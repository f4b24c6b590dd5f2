//! Reductions, windows and scans.

use mcc_support::{Shape, Tensor, TensorType};

use super::elements::{Num, with_num};
use crate::graph::op::{ReduceFn, Window};

fn identity<N: Num>(kind: ReduceFn, dtype: mcc_support::DType) -> N {
    match kind {
        ReduceFn::Sum => N::ZERO,
        ReduceFn::Prod => N::ONE,
        ReduceFn::Max | ReduceFn::MaxNumber => N::lowest(dtype),
        ReduceFn::Min => N::highest(dtype),
    }
}

fn combine<N: Num>(kind: ReduceFn, a: N, b: N) -> N {
    match kind {
        ReduceFn::Sum => a.add(b),
        ReduceFn::Prod => a.mul(b),
        ReduceFn::Max | ReduceFn::Min => {
            if b.is_more_extreme(a, kind == ReduceFn::Max) {
                b
            } else {
                a
            }
        }
        ReduceFn::MaxNumber if b.is_nan() => a,
        ReduceFn::MaxNumber => combine(ReduceFn::Max, a, b),
    }
}

pub fn reduce(kind: ReduceFn, axes: &[usize], x: &Tensor, ty: &TensorType) -> Tensor {
    with_num!(ty.dtype, reduce_in(kind, axes, x, ty))
}

fn reduce_in<N: Num>(kind: ReduceFn, axes: &[usize], x: &Tensor, ty: &TensorType) -> Tensor {
    let mut out = vec![identity::<N>(kind, ty.dtype); ty.shape.count()];
    let kept: Vec<usize> = (0..x.shape().rank()).filter(|axis| !axes.contains(axis)).collect();
    let mut strides = vec![0; x.shape().rank()];
    kept.iter().zip(ty.shape.strides()).for_each(|(&axis, stride)| strides[axis] = stride);
    let mut elements = N::load(x).into_iter();
    x.shape().for_each_index(|index| {
        let at: usize = index.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
        out[at] = combine(kind, out[at], elements.next().expect("one for each index"));
    });
    N::store(ty.clone(), out)
}

/// Extents outside, along and inside of an axis.
fn around(shape: &Shape, axis: usize) -> (usize, usize, usize) {
    (shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product())
}

pub fn arg_reduce(max: bool, axis: usize, last: bool, x: &Tensor, ty: &TensorType) -> Tensor {
    with_num!(x.dtype(), arg_reduce_in(max, axis, last, x, ty))
}

fn arg_reduce_in<N: Num>(max: bool, axis: usize, last: bool, x: &Tensor, ty: &TensorType) -> Tensor {
    let (outer, extent, inner) = around(x.shape(), axis);
    let elements = N::load(x);
    let mut out = Vec::with_capacity(outer * inner);
    for (row, column) in (0..outer).flat_map(|row| (0..inner).map(move |column| (row, column))) {
        let at = |index: usize| elements[(row * extent + index) * inner + column];
        let better = |best: usize, index: usize| {
            let replaces =
                if last { !at(best).is_more_extreme(at(index), max) } else { at(index).is_more_extreme(at(best), max) };
            if replaces { index } else { best }
        };
        out.push((1..extent).fold(0, better) as i64);
    }
    Tensor::from_elements(ty.shape.clone(), &out)
}

pub fn scan(kind: ReduceFn, axis: usize, exclusive: bool, reverse: bool, x: &Tensor) -> Tensor {
    with_num!(x.dtype(), scan_in(kind, axis, exclusive, reverse, x))
}

fn scan_in<N: Num>(kind: ReduceFn, axis: usize, exclusive: bool, reverse: bool, x: &Tensor) -> Tensor {
    let (outer, extent, inner) = around(x.shape(), axis);
    let mut elements = N::load(x);
    for (row, column) in (0..outer).flat_map(|row| (0..inner).map(move |column| (row, column))) {
        let mut running = identity::<N>(kind, x.dtype());
        for step in 0..extent {
            let along = if reverse { extent - 1 - step } else { step };
            let element = &mut elements[(row * extent + along) * inner + column];
            let included = combine(kind, running, *element);
            *element = if exclusive { running } else { included };
            running = included;
        }
    }
    N::store(x.ty().clone(), elements)
}

/// A cell of a window that exists, by its indices along one axis: of the window in the result, of the cell in the operand.
pub type Tap = (usize, usize);

/// For each index of a result axis, the element of the operand at `index · stride + position` of the axis spread by `spread`,
/// where there is one.
pub fn taps(result: usize, operand: usize, position: i128, stride: usize, spread: usize) -> Vec<Tap> {
    let (stride, spread) = (i128::from(stride as u64), i128::from(spread as u64));
    let tap = |index: usize| {
        let at = i128::from(index as u64) * stride + position;
        let inside = at % spread == 0 && (0..i128::from(operand as u64)).contains(&(at / spread));
        inside.then(|| (index, (at / spread) as usize))
    };
    // `at / spread` rounds towards zero: a negative `at` that divides is negative still, so is outside.
    (0..result).filter_map(tap).collect()
}

/// From the pairs along each axis the offsets of the rows, each along the last axis, and the pairs in a row.
pub fn rows(pairs: &[Vec<Tap>], result: &[usize], operand: &[usize]) -> (Vec<Tap>, Vec<Tap>) {
    let Some((row, outer)) = pairs.split_last() else { return (vec![(0, 0)], vec![(0, 0)]) };
    let rows = outer.iter().enumerate().fold(vec![(0, 0)], |rows, (axis, pairs)| {
        let (result, operand) = (result[axis + 1], operand[axis + 1]);
        let at = move |(to, from): Tap, &(a, b): &Tap| ((to + a) * result, (from + b) * operand);
        rows.into_iter().flat_map(|offset| pairs.iter().map(move |pair| at(offset, pair))).collect()
    });
    (rows, row.clone())
}

pub fn window(kind: ReduceFn, window: &Window, x: &Tensor, ty: &TensorType) -> Tensor {
    with_num!(ty.dtype, window_in(kind, window, x, ty))
}

fn window_in<N: Num>(kind: ReduceFn, window: &Window, x: &Tensor, ty: &TensorType) -> Tensor {
    let elements = N::load(x);
    let mut out = vec![identity::<N>(kind, ty.dtype); ty.shape.count()];
    for_each_cell(window, x.shape(), &ty.shape, |to, from| out[to] = combine(kind, out[to], elements[from]));
    N::store(ty.clone(), out)
}

/// Calls `visit` with the offset of a window in the result and of a cell in the operand, the cells of each window in row-major
/// order.
fn for_each_cell(window: &Window, operand: &Shape, result: &Shape, mut visit: impl FnMut(usize, usize)) {
    let outer = operand.rank() - window.kernel.len();
    let images = operand[..outer].iter().product::<usize>();
    let (operand, result) = (&operand[outer..], &result[outer..]);
    let (size_in, size_out) = (operand.iter().product::<usize>(), result.iter().product::<usize>());
    Shape::new(window.kernel.clone()).for_each_index(|index| {
        let pairs: Vec<Vec<Tap>> = (0..index.len())
            .map(|axis| {
                let position = i128::from(index[axis] as u64) * i128::from(window.dilations[axis] as u64)
                    - i128::from(window.pads[axis].0 as u64);
                taps(result[axis], operand[axis], position, window.strides[axis], 1)
            })
            .collect();
        let (rows, row) = rows(&pairs, result, operand);
        for image in 0..images {
            for (to, from) in &rows {
                row.iter().for_each(|(a, b)| visit(image * size_out + to + a, image * size_in + from + b));
            }
        }
    });
}

pub fn window_arg_max(window: &Window, x: &Tensor, ty: &TensorType) -> Tensor {
    with_num!(x.dtype(), window_arg_max_in(window, x, ty))
}

fn window_arg_max_in<N: Num>(window: &Window, x: &Tensor, ty: &TensorType) -> Tensor {
    let elements = N::load(x);
    let image = x.shape()[x.shape().rank() - window.kernel.len()..].iter().product::<usize>().max(1);
    let mut best: Vec<Option<usize>> = vec![None; ty.shape.count()];
    for_each_cell(window, x.shape(), &ty.shape, |to, from| {
        let x = elements[from];
        if best[to].is_none_or(|best| !x.is_nan() && (elements[best].is_nan() || x.is_more_extreme(elements[best], true))) {
            best[to] = Some(from);
        }
    });
    let indices: Vec<i64> = best.into_iter().map(|best| best.map_or(0, |best| (best % image) as i64)).collect();
    Tensor::from_elements(ty.shape.clone(), &indices)
}

pub fn batch_norm(epsilon: f32, operands: &[&Tensor]) -> Tensor {
    let mut x = f64::load(operands[0]);
    let statistics: Vec<Vec<f64>> = operands[1..].iter().map(|operand| f64::load(operand)).collect();
    let (_, channels, image) = around(operands[0].shape(), 1);
    for (index, element) in x.iter_mut().enumerate() {
        let channel = index / image % channels;
        let [scale, bias, mean, variance] = [0, 1, 2, 3].map(|statistic: usize| statistics[statistic][channel]);
        *element = (*element - mean) / libm::sqrt(variance + f64::from(epsilon)) * scale + bias;
    }
    f64::store(operands[0].ty().clone(), x)
}
