//! Operators on matrices as such.

use mcc_support::{DType, Result, Tensor};

use super::OpDef;
use crate::graph::{Op, Round, Wire};

pub static ALL: &[&OpDef] = &[&DET];

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
            [ref batch @ .., rows, columns] if rows == columns => (batch, rows),
            _ => {
                return Err(node.error(format!("the operand must hold square matrices, not {}", x.ty())));
            }
        };
        let wide = x.cast(x.dtype().single_or_double());
        let determinants = determinants(wide.reshape([batch.iter().product(), size, size]))?;
        Ok(vec![determinants.cast(x.dtype()).reshape(batch)])
    },
};

/// Of `[count, size, size]`, as `[count]`. Each round makes a column zero below its largest element.
fn determinants(matrices: Wire<'_>) -> Result<Wire<'_>> {
    let builder = matrices.builder();
    let [count, size, _] = *matrices.shape().dims() else { unreachable!("matrices have three axes") };
    let one = matrices.like(1.0).broadcast([count]);
    if count * size == 0 {
        return Ok(one);
    }
    let row = builder.iota(DType::I64, [1, size], 1);
    let matrix = builder.iota(DType::I64, [count, 1], 0) * size as f64;
    let repeated = builder.repeat(size, None, None, &[matrices, one], |at, carried| {
        // Rows before this one are done.
        let column = carried[0].element(2, at).abs();
        let open = at.le(row).select(column, column.like(-1.0));
        let pivot = builder.add(Op::ArgReduce { max: true, axis: 1, last: false }, &[open]).reshape([count, 1]);
        let order = row.eq(at).select(pivot, row.eq(pivot).select(at, row));
        let sorted = carried[0].reshape([count * size, size]).gather(order + matrix, 0);
        let top = sorted.element(1, at);
        let lead = top.element(1, at);
        let result = carried[1] * pivot.reshape([count]).eq(at).select(lead, -lead);
        // A column of zeros has made the result 0.
        let safe = lead.eq(lead.like(0.0)).select(lead.like(1.0), lead);
        let multiples = sorted.element(2, at) / safe.reshape([count, 1]);
        let multiples = at.lt(row).select(multiples, multiples.like(0.0)).reshape([count, size, 1]);
        let next = sorted - multiples * top.reshape([count, 1, size]);
        Ok(Round { go: builder.constant(Tensor::scalar(true)), next: vec![next, result], elements: Vec::new() })
    })?;
    Ok(repeated.carried[1])
}
