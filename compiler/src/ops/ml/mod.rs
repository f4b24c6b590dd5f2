//! The domain `ai.onnx.ml`: classical models on numbers.
//!
//! Where the standard leaves something open (what two classes with one score mean, say), results are those of ONNX Runtime, by
//! which the tools that write such models check them. Labels that are strings become numbers: the place of the label in its list.

mod encode;
mod ensemble;
mod forest;
mod linear;
mod scores;
mod svm;
mod values;

use mcc_support::{DType, Result};

use super::{NodeContext, OpDef};
use crate::graph::Wire;

pub(super) const DOMAIN: &str = "ai.onnx.ml";

pub static FAMILIES: &[&[&OpDef]] = &[encode::ALL, ensemble::ALL, linear::ALL, svm::ALL, values::ALL];

/// The operand as rows of features: a vector is one row.
fn rows<'b>(node: &NodeContext<'_, 'b>) -> Result<Wire<'b>> {
    let x = node.input(0)?;
    node.expect_whole(x, [x.rank().saturating_sub(1)])?;
    match *x.shape().dims() {
        [features] => Ok(x.reshape([1, features])),
        [_, _] => Ok(x),
        _ => Err(node.error(format!("the operand must have rank 1 or 2, not {}", x.ty()))),
    }
}

/// Rows of features in f32, as most operators of the domain compute.
fn f32_rows<'b>(node: &NodeContext<'_, 'b>) -> Result<Wire<'b>> {
    Ok(rows(node)?.cast(DType::F32))
}
