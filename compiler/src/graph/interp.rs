//! The meaning of each op: the interpreter of graphs, and what folds constants.

use mcc_support::{Tensor, TensorType};

use super::op::Op;

/// The result, of type `ty`, of an op on these operands.
pub fn eval(op: &Op, operands: &[&Tensor], ty: &TensorType) -> Tensor {
    mcc_support::bug!("no meaning yet for {op:?} of {operands:?}: {ty}")
}
