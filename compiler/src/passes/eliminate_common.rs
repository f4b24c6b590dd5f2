//! Makes one of nodes with the same op and operands, and of equal constants.
//!
//! ```text
//! %1 = exp %0 : f32[4]
//! %2 = exp %0 : f32[4]          %1 = exp %0 : f32[4]
//! %3 = add %1, %2 : f32[4]  →   %3 = add %1, %1 : f32[4]
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Pass;
use crate::graph::edit::Edit;
use crate::graph::{ValueId, text};

pub static PASS: Pass =
    Pass { name: "eliminate-common", doc: "make one of equal nodes and equal constants", required: false, run };

fn run(edit: &mut Edit) {
    let mut constants: BTreeMap<(String, Bytes), ValueId> = BTreeMap::new();
    for value in edit.graph().values.keys() {
        let Some(tensor) = edit.graph().constant(value) else { continue };
        let key = (tensor.ty().to_string(), tensor.data().clone());
        let first = *constants.entry(key).or_insert(value);
        if first != value && edit.is_used(value) {
            edit.replace(value, &[], |_| first);
        }
    }
    let mut nodes: BTreeMap<(String, Vec<ValueId>), ValueId> = BTreeMap::new();
    for id in edit.order() {
        let node = edit.graph().node(id);
        if node.op.has_body() {
            continue;
        }
        let result = node.results[0];
        let op = format!("{}{} : {}", text::op_name(&node.op), text::op_attributes(&node.op), edit.graph().ty(result));
        let first = *nodes.entry((op, node.operands.clone())).or_insert(result);
        if first != result && edit.is_used(result) {
            edit.replace(result, &[], |_| first);
        }
    }
}
