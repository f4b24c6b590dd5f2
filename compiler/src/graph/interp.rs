//! The meaning of each op: the interpreter of graphs, and what folds constants.

use mcc_support::{Tensor, TensorType};

use super::op::Op;
