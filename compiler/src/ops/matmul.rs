//! Matrix products.

use mcc_support::{DType, Result, Shape};

use super::{NodeContext, OpDef};
use crate::graph::{Op, Wire};

pub static ALL: &[&OpDef] = &[&GEMM, &MATMUL];

/// `alpha · A' · B' + beta · C`, where `C` broadcasts to the product.
pub static GEMM: OpDef =
    OpDef { domain: "", name: "Gemm", since: &[6, 7, 9, 11, 13], shape_inputs: &[], build: |node| Ok(vec![gemm(node)?]) };

pub(super) fn gemm<'b>(node: &NodeContext<'_, 'b>) -> Result<Wire<'b>> {
    let (a, b) = (node.input(0)?, node.input(1)?);
    let attributes = node.attributes();
    let (alpha, beta) = (attributes.float_or("alpha", 1.0)?, attributes.float_or("beta", 1.0)?);
    let lhs = if attributes.flag("transA", false)? { "km" } else { "mk" };
    let rhs = if attributes.flag("transB", false)? { "nk" } else { "kn" };
    if a.rank() != 2 || b.rank() != 2 {
        return Err(node.error(format!("the operands must be matrices, not {} and {}", a.ty(), b.ty())));
    }
    if node.domain().is_empty() && node.version() < 7 {
        // What it forbids is allowed later on.
        attributes.ignore("broadcast");
    }
    let mut product = product(a, b, lhs, rhs, "mn");
    // Factors of integers are floats.
    let factors = !a.dtype().is_float() && (alpha, beta) != (1.0, 1.0);
    if factors {
        product = product.cast(DType::F64);
    }
    let product = times(product, alpha);
    let Some(c) = node.optional(2) else { return Ok(product.cast(a.dtype())) };
    if c.shape().broadcast(&product.shape()).as_ref() != Some(&product.shape()) {
        return Err(node.error(format!("input 2, a {}, does not broadcast to the product {}", c.ty(), product.ty())));
    }
    let c = if factors { c.cast(DType::F64) } else { c };
    let sum = product + times(c, beta);
    Ok(if factors { sum.cast(a.dtype()) } else { sum })
}

fn times(x: Wire<'_>, factor: f32) -> Wire<'_> {
    if factor == 1.0 { x } else { x * f64::from(factor) }
}

/// A contraction, of unsigned integers too: their products have the bits of the signed ones.
pub(super) fn product<'b>(a: Wire<'b>, b: Wire<'b>, lhs: &str, rhs: &str, out: &str) -> Wire<'b> {
    let signed = match a.dtype() {
        DType::U32 => DType::I32,
        DType::U64 => DType::I64,
        _ => return a.contract(b, lhs, rhs, out),
    };
    if b.dtype() != a.dtype() {
        return a.contract(b, lhs, rhs, out);
    }
    let bits = |x: Wire<'b>, dtype| x.builder().add(Op::Bitcast(dtype), &[x]);
    bits(bits(a, signed).contract(bits(b, signed), lhs, rhs, out), a.dtype())
}

pub static MATMUL: OpDef = OpDef {
    domain: "",
    name: "MatMul",
    since: &[1, 9, 13],
    shape_inputs: &[],
    build: |node| {
        let (a, b) = (node.input(0)?, node.input(1)?);
        matmul(a, b)
            .map(|product| vec![product])
            .ok_or_else(|| node.error(format!("the operands {} and {} cannot be multiplied as matrices", a.ty(), b.ty())))
    },
};

/// numpy's `matmul`: a vector counts as a row on the left and a column on the right, axes before the last two broadcast.
pub(super) fn matmul<'b>(a: Wire<'b>, b: Wire<'b>) -> Option<Wire<'b>> {
    let (a_shape, b_shape) = (a.shape(), b.shape());
    let (a_rows, a_batch) = rows(&a_shape, true)?;
    let (b_rows, b_batch) = rows(&b_shape, false)?;
    if a_rows[1] != b_rows[0] {
        return None;
    }
    let batch = Shape::new(a_batch).broadcast(&Shape::new(b_batch))?;
    let mut result = batch.to_vec();
    result.extend((a_shape.rank() > 1).then_some(a_rows[0]));
    result.extend((b_shape.rank() > 1).then_some(b_rows[1]));
    // Batch axes of the right side alone would be columns that do not lie together; those of the left side alone are rows.
    if b_batch.iter().all(|&dim| dim == 1) && a_batch.len() >= b_batch.len() {
        let count = a_batch.iter().product::<usize>() * a_rows[0];
        return Some(product(a.reshape([count, a_rows[1]]), b.reshape(b_rows), "mk", "kn", "mn").reshape(result));
    }
    // An axis that one side lacks, or has with extent 1, is left out of that side.
    let label = |axis: usize| b'A' + axis as u8;
    let side = |dims: &[usize], rows: [usize; 2], names: [u8; 2]| {
        let missing = batch.rank() - dims.len();
        let kept = (0..dims.len()).filter(|&axis| dims[axis] != 1);
        let (mut shape, mut labels) = (Vec::new(), Vec::new());
        for axis in kept {
            shape.push(dims[axis]);
            labels.push(label(axis + missing));
        }
        shape.extend(rows);
        labels.extend(names);
        (shape, String::from_utf8(labels).expect("letters"))
    };
    if batch.rank() > 10 {
        return None;
    }
    let (a_shape, lhs) = side(a_batch, a_rows, *b"mk");
    let (b_shape, rhs) = side(b_batch, b_rows, *b"kn");
    let out: String = (0..batch.rank())
        .map(|axis| char::from(label(axis)))
        .filter(|&label| lhs.contains(label) || rhs.contains(label))
        .collect();
    Some(product(a.reshape(a_shape), b.reshape(b_shape), &lhs, &rhs, &(out + "mn")).reshape(result))
}

/// The last two extents, of a vector with a 1 before or behind it, and the others.
fn rows(shape: &Shape, left: bool) -> Option<([usize; 2], &[usize])> {
    match *shape.dims() {
        [] => None,
        [k] => Some((if left { [1, k] } else { [k, 1] }, &[])),
        [ref batch @ .., m, n] => Some(([m, n], batch)),
    }
}
