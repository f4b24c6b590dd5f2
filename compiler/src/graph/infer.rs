//! The type rule of each op: the type of the result from the op and the types of its operands, or what is wrong with them.

use mcc_support::{Result, TensorType};

use super::op::Op;

pub fn infer(op: &Op, operands: &[&TensorType]) -> Result<TensorType> {
    mcc_support::bug!("no type rule yet for {op:?} of {operands:?}")
}
