//! Operators on matrices as such.

use mcc_support::DType;

use super::OpDef;
use super::activation::widened;
use crate::graph::{Op, Wire};

pub static ALL: &[&OpDef] = &[&DET];

/// Largest matrix whose elimination is written out.
const MAX_SIZE: usize = 128;

/// The determinants of the matrices in the last two axes, by elimination with the largest pivot of each column.
pub static DET: OpDef = OpDef {
    domain: "",
    name: "Det",
    since: &[11, 22],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let shape = x.shape();
        let (batch, size) = match *shape.dims() {
            [ref batch @ .., rows, columns] if rows == columns && rows <= MAX_SIZE => (batch, rows),
            _ => {
                return Err(
                    node.error(format!("the operand must hold square matrices of at most {MAX_SIZE} rows, not {}", x.ty()))
                );
            }
        };
        let count = batch.iter().product::<usize>();
        Ok(vec![widened(x, |x| determinant(x.reshape([count, size, size])).reshape(batch))])
    },
};

/// Of `[n, m, m]`, as `[n]`.
fn determinant(matrices: Wire<'_>) -> Wire<'_> {
    let builder = matrices.builder();
    let (count, size) = (matrices.shape()[0], matrices.shape()[1]);
    let mut result = matrices.like(1.0).broadcast([count]);
    if count == 0 {
        return result;
    }
    let mut rest = matrices;
    for rows in (1..=size).rev() {
        // Another of equals gives another sign and another order; NaN is found, so that it stays.
        let first = rest.slice_axis(2, 0, 1).reshape([count, rows]).abs();
        let pivot = builder.add(Op::ArgReduce { max: true, axis: 1, last: false }, &[first]).reshape([count, 1]);
        let own = builder.iota(DType::I64, [1, rows], 1);
        // The first row goes to where the pivot's was.
        let order = own.eq(own.like(0.0)).select(pivot, own.eq(pivot).select(own.like(0.0), own));
        let matrix = builder.iota(DType::I64, [count, 1], 0) * rows as f64;
        let sorted = rest.reshape([count * rows, rows]).gather(order + matrix, 0);
        let top = sorted.slice_axis(1, 0, 1);
        let lead = top.slice_axis(2, 0, 1);
        let signed = pivot.reshape([count]).eq(pivot.like(0.0));
        let factor = lead.reshape([count]);
        result = result * signed.select(factor, -factor);
        if rows == 1 {
            break;
        }
        let below = sorted.slice_axis(1, 1, rows - 1);
        // A column of zeros has made the result 0 already.
        let safe = lead.eq(lead.like(0.0)).select(lead.like(1.0), lead);
        let multiples = below.slice_axis(2, 0, 1) / safe;
        rest = below.slice_axis(2, 1, rows - 1) - multiples * top.slice_axis(2, 1, rows - 1);
    }
    result
}
