//! Moves constants that a loop or branch reads into its bodies, where they fold and fuse.
//!
//! ```text
//! constant %1 : f32[4] = …                    %2 = if %0 : f32[4] graph "then" {
//! %2 = if %0, %1 : f32[4] graph "then" {        constant %0 : f32[4] = …
//!   input %0 "captured" : f32[4]          →     …
//!   …
//! ```

use super::Pass;
use crate::graph::edit::Edit;
use crate::graph::{Def, Graph};

pub static PASS: Pass =
    Pass { name: "sink-constants", doc: "move constants that a loop or branch reads into its bodies", required: false, run };

fn run(edit: &mut Edit) {
    for id in edit.order() {
        let node = edit.graph().node(id);
        if !node.op.has_body() {
            continue;
        }
        let (first, input) = node.op.captures();
        let is_constant = |at: usize| edit.graph().constant(node.operands[at]).is_some();
        let sunk: Vec<usize> = (first..node.operands.len()).filter(|&at| is_constant(at)).collect();
        if sunk.is_empty() {
            continue;
        }
        let (mut op, mut operands) = (node.op.clone(), node.operands.clone());
        for at in sunk.into_iter().rev() {
            let tensor = edit.graph().constant(operands.remove(at)).expect("found to be one");
            for body in op.bodies_mut() {
                let value = body.inputs.remove(at - first + input).1;
                body.values[value].def = Def::Constant(tensor.clone());
            }
        }
        op.bodies_mut().into_iter().for_each(rename_inputs);
        edit.exchange(id, op, operands);
    }
}

/// Names of inputs stay distinct: those that bodies capture are numbered by their places.
fn rename_inputs(body: &mut Graph) {
    for (place, (name, _)) in body.inputs.iter_mut().enumerate() {
        *name = format!("in{place}");
    }
}
