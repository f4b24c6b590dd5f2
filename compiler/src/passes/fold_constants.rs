//! Computes nodes whose operands are constants, by the interpreter.
//!
//! ```text
//! constant %0 : f32[2] = [1.0, 2.0]
//! %1 = neg %0 : f32[2]                 →  constant %1 : f32[2] = [-1.0, -2.0]
//! ```
//!
//! Constants that are much larger than what they are made from stay as they are, and so does what takes long to compute: see
//! [`interp::is_foldable`].

use super::Pass;
use crate::graph::edit::Edit;
use crate::graph::interp;

pub static PASS: Pass = Pass { name: "fold-constants", doc: "compute nodes whose operands are constants", required: false, run };

fn run(edit: &mut Edit) {
    for id in edit.order() {
        if !edit.is_live(id) {
            continue;
        }
        let graph = edit.graph();
        let node = graph.node(id);
        let result = node.results[0];
        let operands: Option<Vec<_>> = node.operands.iter().map(|&operand| graph.constant(operand)).collect();
        let Some(operands) = operands.filter(|_| !node.op.has_body()) else { continue };
        let ty = graph.ty(result);
        if interp::is_foldable(&node.op, &operands, ty) {
            let tensor = interp::eval(&node.op, &operands, ty);
            edit.replace(result, &[], |edit| edit.constant(tensor));
        }
    }
}
