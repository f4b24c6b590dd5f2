//! Matrix products of quantized operands whose results are floats or integers.

use mcc_support::{DType, Result};

use super::DOMAIN;
use crate::graph::{BinaryFn, Wire};
use crate::ops::matmul::{matmul, product};
use crate::ops::quant::{dynamically_quantized, integer_product, matrix_without_zero, per_line, requantized, without_zero};
use crate::ops::{NodeContext, OpDef};

pub static ALL: &[&OpDef] = &[&DYNAMIC_QUANTIZE_MAT_MUL, &MAT_MUL_INTEGER_TO_FLOAT, &MAT_MUL_N_BITS, &Q_GEMM];

/// Adds input `index`, one number for each column.
fn with_bias<'b>(node: &NodeContext<'_, 'b>, y: Wire<'b>, index: usize) -> Result<Wire<'b>> {
    let Some(bias) = node.optional(index) else { return Ok(y) };
    if y.shape().last().copied() != Some(bias.shape().count()) {
        return Err(node.error(format!("the bias {} does not fit {}", bias.ty(), y.ty())));
    }
    Ok(y + bias.reshape([bias.shape().count()]))
}

/// The left side is quantized to `u8` by its range.
pub static DYNAMIC_QUANTIZE_MAT_MUL: OpDef = OpDef {
    domain: DOMAIN,
    name: "DynamicQuantizeMatMul",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let (a, b) = (node.input(0)?, node.input(1)?);
        let [a, a_scale, a_zero] = dynamically_quantized(a);
        let b_scale = per_line(node, "the scale of the right side", node.input(2)?, b, false)?;
        let sum = integer_product(node, without_zero(a, Some(a_zero)), matrix_without_zero(node, b, node.optional(3), false)?)?;
        Ok(vec![with_bias(node, sum.cast(DType::F32) * (a_scale * b_scale), 4)?])
    },
};

pub static MAT_MUL_INTEGER_TO_FLOAT: OpDef = OpDef {
    domain: DOMAIN,
    name: "MatMulIntegerToFloat",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let (a, b) = (node.input(0)?, node.input(1)?);
        let a_scale = per_line(node, "the scale of the left side", node.input(2)?, a, true)?;
        let b_scale = per_line(node, "the scale of the right side", node.input(3)?, b, false)?;
        let a = matrix_without_zero(node, a, node.optional(4), true)?;
        let b = matrix_without_zero(node, b, node.optional(5), false)?;
        let sum = integer_product(node, a, b)?;
        Ok(vec![with_bias(node, sum.cast(DType::F32) * (a_scale * b_scale), 6)?])
    },
};

/// `alpha · A' · B' + C`, where `C` holds 32-bit integers of the scale of the product. A float, unless a scale of the result is given.
pub static Q_GEMM: OpDef = OpDef { domain: DOMAIN, name: "QGemm", since: &[1], shape_inputs: &[], build: q_gemm };

fn q_gemm<'b>(node: &NodeContext<'_, 'b>) -> Result<Vec<Wire<'b>>> {
    let (a, b) = (node.input(0)?, node.input(3)?);
    let attributes = node.attributes();
    let (lhs, b_columns) =
        (if attributes.flag("transA", false)? { "km" } else { "mk" }, if attributes.flag("transB", false)? { 0 } else { 1 });
    if a.rank() != 2 || b.rank() != 2 {
        return Err(node.error(format!("the operands must be matrices, not {} and {}", a.ty(), b.ty())));
    }
    let columns = b.shape()[b_columns];
    // In a shape that broadcasts to `B` (`along`) or to the product.
    let spread = |what: &str, x: Wire<'b>, along: bool| match x.shape().checked_count() {
        Some(1) => Ok(x.reshape([0; 0])),
        Some(count) if count == columns => {
            Ok(if along && b_columns == 0 { x.reshape([columns, 1]) } else { x.reshape([columns]) })
        }
        _ => Err(node.error(format!("{what}, a {}, does not fit {columns} columns", x.ty()))),
    };
    let b_zero = node.optional(5).map(|zero| spread("the zero point of B", zero, true)).transpose()?;
    let a_zero = node.optional_scalar(2)?;
    let rhs = if b_columns == 0 { "nk" } else { "kn" };
    let mut sum = product(without_zero(a, a_zero), without_zero(b, b_zero), lhs, rhs, "mn");
    if let Some(c) = node.optional(6) {
        sum = sum + c;
    }
    let alpha = f64::from(attributes.float_or("alpha", 1.0)?);
    let a_scale = node.optional_scalar(1)?.ok_or_else(|| node.error("the scale of A is missing"))?;
    let b_scale = spread("the scale of B", node.input(4)?, false)?;
    let y_zero = node.optional_scalar(8)?;
    Ok(vec![match node.optional_scalar(7)? {
        None => sum.cast(DType::F32) * (a_scale * b_scale * alpha),
        Some(y_scale) => {
            let zero = y_zero.unwrap_or_else(|| node.builder().scalar(a.dtype(), 0.0));
            requantized(sum, [a_scale * alpha, b_scale, y_scale], zero)
        }
    }])
}

/// A product with the transpose of a matrix `[N, K]` of `bits`-wide integers, packed with the first in the low bits. Each block along
/// `K` has a scale and a zero point.
pub static MAT_MUL_N_BITS: OpDef =
    OpDef { domain: DOMAIN, name: "MatMulNBits", since: &[1], shape_inputs: &[], build: mat_mul_n_bits };

fn mat_mul_n_bits<'b>(node: &NodeContext<'_, 'b>) -> Result<Vec<Wire<'b>>> {
    let attributes = node.attributes();
    let needed = |name: &str| node.size(name, attributes.required(name, attributes.int(name)?)?);
    let (k, n, block) = (needed("K")?, needed("N")?, needed("block_size")?);
    let bits = attributes.int_or("bits", 4)? as usize;
    // Says how precisely the left side must be kept; it stays as it is.
    attributes.ignore("accuracy_level");
    if attributes.int_or("weight_prepacked", 0)? != 0 || node.optional(4).is_some() {
        return Err(node.error("weights that are prepacked or in groups are not supported"));
    }
    if ![2, 4, 8].contains(&bits) || block == 0 || !node.count("the bits of a block", &[block, bits])?.is_multiple_of(8) {
        return Err(node.error(format!("blocks of {block} elements of {bits} bits are not supported")));
    }
    let blocks = k.div_ceil(block);
    node.count("the bits of a row", &[blocks, block, bits])?;
    node.count("the elements of the matrix", &[n, blocks, block])?;
    let (a, b, scales) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let elements = |what: &str, x: Wire<'b>, count: usize| {
        if x.shape().checked_count() == Some(count) {
            Ok(x)
        } else {
            Err(node.error(format!("{what}, a {}, has not {count} elements", x.ty())))
        }
    };
    let b = elements("the matrix", b, n * blocks * block * bits / 8)?;
    let q = unpacked(b.reshape([n * blocks, block * bits / 8]), bits).reshape([n, blocks, block]);
    let scales = elements("the scales", scales, n * blocks)?.reshape([n, blocks, 1]);
    let dtype = a.dtype();
    let zero = match node.optional(3) {
        None => node.builder().scalar(dtype, f64::from(1u32 << (bits - 1))),
        Some(zero) if zero.dtype() == DType::U8 => {
            let row = (blocks * bits).div_ceil(8);
            let packed = elements("the zero points", zero, n * row)?.reshape([n, row]);
            unpacked(packed, bits).slice_axis(1, 0, blocks).reshape([n, blocks, 1]).cast(dtype)
        }
        Some(zero) => elements("the zero points", zero, n * blocks)?.reshape([n, blocks, 1]).cast(dtype),
    };
    let weights = ((q.cast(dtype) - zero) * scales).reshape([n, blocks * block]).slice_axis(1, 0, k);
    let y = matmul(a, weights.transpose(&[1, 0]))
        .ok_or_else(|| node.error(format!("the operand {} does not have {k} columns", a.ty())))?;
    Ok(vec![with_bias(node, y, 5)?])
}

/// Rows of bytes as rows of the numbers that they hold.
fn unpacked(x: Wire<'_>, bits: usize) -> Wire<'_> {
    let (rows, bytes) = (x.shape()[0], x.shape()[1]);
    let parts: Vec<Wire<'_>> = (0..8 / bits)
        .map(|index| {
            let low = x.binary(BinaryFn::Shr, x.like((index * bits) as f64));
            let low = if bits == 8 { low } else { low.and(x.like(f64::from((1u32 << bits) - 1))) };
            low.reshape([rows, bytes, 1])
        })
        .collect();
    x.builder().concat(&parts, 2).reshape([rows, bytes * 8 / bits])
}
