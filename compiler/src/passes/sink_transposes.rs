//! Moves transposes down through elementwise nodes, where they meet one another and cancel, or become part of a contraction.
//!
//! ```text
//! %1 = transpose %0 {permutation [0, 2, 1]} : f32[2,4,3]
//! %2 = exp %1 : f32[2,4,3]
//! →
//! %1 = exp %0 : f32[2,3,4]
//! %2 = transpose %1 {permutation [0, 2, 1]} : f32[2,4,3]
//! ```
//!
//! The other operands of the elementwise node are transposed the same way, or constants (which are transposed at compile time).
//! So a transpose never becomes two, and each sinks only as far as the graph goes.

use mcc_support::Shape;

use super::Pass;
use crate::graph::edit::Edit;
use crate::graph::{Node, Op, ValueId};

pub static PASS: Pass =
    Pass { name: "sink-transposes", doc: "move transposes down through elementwise nodes", required: false, run };

fn run(edit: &mut Edit) {
    for id in edit.order() {
        if edit.is_live(id) {
            let result = edit.graph().node(id).results[0];
            sink(edit, result);
        }
    }
}

/// An operand of the elementwise node, as it is to stand above the transpose.
enum Operand {
    /// What was transposed.
    Inner(ValueId),
    /// A constant, to be brought to the rank of the result and transposed back.
    Constant(ValueId),
}

fn sink(edit: &mut Edit, result: ValueId) -> Option<()> {
    let graph = edit.graph();
    let (_, node) = graph.definition(result)?;
    if !matches!(node.op, Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast(_) | Op::Bitcast(_)) {
        return None;
    }
    let rank = graph.ty(result).rank();
    let mut permutation: Option<&Vec<usize>> = None;
    let mut operands = Vec::new();
    for &operand in &node.operands {
        if graph.constant(operand).is_some() {
            operands.push(Operand::Constant(operand));
            continue;
        }
        let (_, Node { op: Op::Transpose(own), operands: inner, .. }) = graph.definition(operand)? else { return None };
        // Transposes of a lower rank than the result, and such as others need, stay where they are.
        if own.len() != rank || *permutation.get_or_insert(own) != own || !edit.has_one_user(operand) {
            return None;
        }
        operands.push(Operand::Inner(inner[0]));
    }
    let permutation = permutation?.clone();
    let mut back = vec![0; rank];
    permutation.iter().enumerate().for_each(|(at, &axis)| back[axis] = at);
    let op = node.op.clone();
    edit.replace(result, &[], |edit| {
        let operands: Vec<ValueId> = operands
            .into_iter()
            .map(|operand| match operand {
                Operand::Inner(value) => value,
                Operand::Constant(value) => transpose_constant(edit, value, &back),
            })
            .collect();
        let sunk = edit.add(op, &operands);
        edit.transpose(sunk, &permutation)
    });
    Some(())
}

fn transpose_constant(edit: &mut Edit, value: ValueId, back: &[usize]) -> ValueId {
    let shape = &edit.graph().ty(value).shape;
    if shape.count() == 1 {
        return value;
    }
    let full: Shape = std::iter::repeat_n(1, back.len() - shape.rank()).chain(shape.iter().copied()).collect();
    let full = edit.reshape(value, full);
    edit.transpose(full, back)
}
