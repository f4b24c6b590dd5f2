//! Ops that move elements without computing with them. All but three are one table for each axis, which maps an index of the
//! result to an offset in the operand.

use mcc_support::tensor::Number;
use mcc_support::{Shape, Tensor, TensorType};

use super::elements::{cells, from_cells};
use crate::graph::op::{PadMode, SliceAxis};

/// In a table: not from the operand, but the fill.
const FILL: usize = usize::MAX;

/// The tensor whose element `[i0, i1, …]` is the operand's element at `tables[0][i0] + tables[1][i1] + …`; `shape` has the count of
/// the tables' lengths multiplied.
fn separable(operand: &Tensor, tables: &[Vec<usize>], shape: Shape, fill: Option<&Tensor>) -> Tensor {
    let (source, size) = cells(operand);
    let fill = fill.map_or_else(Vec::new, |fill| cells(fill).0);
    let ty = TensorType::new(operand.dtype(), shape);
    let mut result = Vec::with_capacity(ty.shape.count() * size);
    let (outer, inner) = match tables.split_last() {
        Some((inner, outer)) => (outer, inner.as_slice()),
        None => (tables, &[0usize][..]),
    };
    let contiguous = !inner.is_empty() && inner[0] != FILL && inner.windows(2).all(|pair| pair[0].wrapping_add(1) == pair[1]);
    let rows: Shape = outer.iter().map(Vec::len).collect();
    rows.for_each_index(|index| {
        let row = index.iter().zip(outer).try_fold(0usize, |sum, (&at, table)| match table[at] {
            FILL => None,
            offset => Some(sum + offset),
        });
        match row {
            Some(row) if contiguous => {
                let start = (row + inner[0]) * size;
                result.extend_from_slice(&source[start..start + inner.len() * size]);
            }
            _ => inner.iter().for_each(|&offset| match (row, offset) {
                (None, _) | (_, FILL) => result.extend_from_slice(&fill),
                (Some(row), offset) => result.extend_from_slice(&source[(row + offset) * size..][..size]),
            }),
        }
    });
    from_cells(ty, result)
}

/// The table of an axis of the operand itself.
fn whole(extent: usize, stride: usize) -> Vec<usize> {
    (0..extent).map(|index| index * stride).collect()
}

pub fn transpose(permutation: &[usize], x: &Tensor) -> Tensor {
    let strides = x.shape().strides();
    let tables: Vec<_> = permutation.iter().map(|&axis| whole(x.shape()[axis], strides[axis])).collect();
    separable(x, &tables, permutation.iter().map(|&axis| x.shape()[axis]).collect(), None)
}

pub fn slice(axes: &[SliceAxis], x: &Tensor) -> Tensor {
    let table = |(slice, stride): (&SliceAxis, usize)| {
        let at = |index: usize| (slice.start as i64 + index as i64 * slice.step) as usize * stride;
        (0..slice.count).map(at).collect::<Vec<_>>()
    };
    let tables: Vec<_> = axes.iter().zip(x.shape().strides()).map(table).collect();
    separable(x, &tables, axes.iter().map(|slice| slice.count).collect(), None)
}

pub fn broadcast(x: &Tensor, shape: &Shape) -> Tensor {
    let strides = x.shape().strides();
    let missing = shape.rank() - x.shape().rank();
    let table = |(axis, &extent): (usize, &usize)| match axis.checked_sub(missing) {
        Some(own) if x.shape()[own] == extent => whole(extent, strides[own]),
        _ => vec![0; extent],
    };
    let tables: Vec<_> = shape.iter().enumerate().map(table).collect();
    separable(x, &tables, shape.clone(), None)
}

pub fn pad(mode: PadMode, amounts: &[(usize, usize)], x: &Tensor, value: Option<&Tensor>) -> Tensor {
    let mut tables = Vec::with_capacity(amounts.len());
    for ((&(before, after), &extent), stride) in amounts.iter().zip(x.shape().iter()).zip(x.shape().strides()) {
        let at = |index: usize| pad_source(mode, index as i64 - before as i64, extent as i64).map_or(FILL, |at| at * stride);
        tables.push((0..before + extent + after).map(at).collect::<Vec<_>>());
    }
    let shape = tables.iter().map(Vec::len).collect();
    separable(x, &tables, shape, value)
}

/// Which element of an axis stands at `index` of the padded axis, counted from the axis's first element.
fn pad_source(mode: PadMode, index: i64, extent: i64) -> Option<usize> {
    let inside = (0..extent).contains(&index);
    let source = match mode {
        _ if inside => index,
        PadMode::Constant => return None,
        PadMode::Edge => index.clamp(0, extent - 1),
        PadMode::Wrap => index.rem_euclid(extent),
        PadMode::Reflect if extent == 1 => 0,
        PadMode::Reflect => {
            let period = 2 * (extent - 1);
            let folded = index.rem_euclid(period);
            folded.min(period - folded)
        }
    };
    Some(source as usize)
}

/// An index as `Gather` takes it: negative ones count from the end, what is still outside is clamped.
fn wrap_index(index: Number, extent: usize) -> usize {
    let last = extent as i128 - 1;
    let index = match index {
        Number::Int(value) => i128::from(value),
        Number::UInt(value) => i128::from(value),
        Number::Float(_) => unreachable!("indices are integers"),
    };
    let wrapped = if index < 0 { index + extent as i128 } else { index };
    wrapped.clamp(0, last) as usize
}

pub fn gather(axis: usize, data: &Tensor, indices: &Tensor) -> Tensor {
    let (shape, strides) = (data.shape(), data.shape().strides());
    let mut tables: Vec<_> = shape.iter().zip(&strides).map(|(&extent, &stride)| whole(extent, stride)).collect();
    tables[axis] = indices.numbers().map(|index| wrap_index(index, shape[axis]) * strides[axis]).collect();
    let result = [&shape[..axis], indices.shape(), &shape[axis + 1..]].concat();
    separable(data, &tables, result.into(), None)
}

pub fn gather_elements(axis: usize, data: &Tensor, indices: &Tensor) -> Tensor {
    let (source, size) = cells(data);
    let strides = data.shape().strides();
    let mut result = Vec::with_capacity(indices.count() * size);
    let mut taken = indices.numbers();
    indices.shape().for_each_index(|index| {
        let along = wrap_index(taken.next().expect("one for each index"), data.shape()[axis]);
        let offset =
            |(at, (&index, &stride)): (usize, (&usize, &usize))| if at == axis { along * stride } else { index * stride };
        let offset: usize = index.iter().zip(&strides).enumerate().map(offset).sum();
        result.extend_from_slice(&source[offset * size..][..size]);
    });
    from_cells(TensorType::new(data.dtype(), indices.shape().clone()), result)
}

pub fn concat(axis: usize, operands: &[&Tensor], ty: &TensorType) -> Tensor {
    let parts: Vec<_> = operands
        .iter()
        .map(|operand| {
            let (cells, size) = cells(operand);
            (cells, operand.shape()[axis..].iter().product::<usize>() * size)
        })
        .collect();
    let mut result = Vec::new();
    for outer in 0..ty.shape[..axis].iter().product() {
        parts.iter().for_each(|(cells, row)| result.extend_from_slice(&cells[outer * row..][..*row]));
    }
    from_cells(ty.clone(), result)
}

pub fn iota(axis: usize, ty: &TensorType) -> Tensor {
    let (extent, inner) = (ty.shape[axis], ty.shape[axis + 1..].iter().product::<usize>().max(1));
    let number = |index: usize| {
        let along = index / inner % extent.max(1);
        if ty.dtype.is_float() { Number::Float(along as f64) } else { Number::Int(along as i64) }
    };
    Tensor::from_numbers(ty.clone(), (0..ty.shape.count()).map(number))
}
