//! Removes movement that does nothing, and makes one movement of two in a row.
//!
//! ```text
//! %1 = transpose %0 {permutation [0, 2, 1]} : f32[2,4,3]
//! %2 = transpose %1 {permutation [0, 2, 1]} : f32[2,3,4]   →   (%0)
//! ```

use mcc_support::Shape;
use mcc_support::tensor::Number;

use super::Pass;
use crate::graph::edit::Edit;
use crate::graph::{Contraction, Graph, Node, Op, SliceAxis, ValueId};

pub static PASS: Pass =
    Pass { name: "simplify-movement", doc: "remove movement that does nothing, join movements in a row", required: false, run };

/// What a node becomes: an op of these operands, or the first of them.
type Simpler = (Option<Op>, Vec<ValueId>);

fn run(edit: &mut Edit) {
    for id in edit.order() {
        if !edit.is_live(id) {
            continue;
        }
        let node = edit.graph().node(id);
        let result = node.results[0];
        let simpler = simplify(edit.graph(), node).or_else(|| transpose_result(edit, node));
        let Some((op, operands)) = simpler else {
            gather_of_scalar(edit, result).or_else(|| join_slices_of_one(edit, result));
            continue;
        };
        edit.replace(result, &[], |edit| match op {
            Some(op) => edit.add(op, &operands),
            None => operands[0],
        });
    }
}

fn simplify(graph: &Graph, node: &Node) -> Option<Simpler> {
    let &x = node.operands.first()?;
    let does_nothing = match &node.op {
        Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Pad { .. } | Op::Broadcast(_) | Op::Concat { .. } => {
            graph.ty(x) == graph.ty(node.results[0]) && !moves(&node.op)
        }
        _ => false,
    };
    if does_nothing && (node.operands.len() == 1 || matches!(node.op, Op::Pad { .. })) {
        return Some((None, vec![x]));
    }
    let inner = graph.definition(x).map(|(_, inner)| inner);
    match (&node.op, inner) {
        (Op::Reshape(shape), Some(Node { op: Op::Reshape(_), operands, .. })) => {
            Some((Some(Op::Reshape(shape.clone())), operands.clone()))
        }
        (Op::Transpose(outer), Some(Node { op: Op::Transpose(inner), operands, .. })) => {
            Some((Some(Op::Transpose(outer.iter().map(|&axis| inner[axis]).collect())), operands.clone()))
        }
        (Op::Transpose(permutation), _) if keeps_order(permutation, &graph.ty(x).shape) => {
            Some((Some(Op::Reshape(graph.ty(node.results[0]).shape.clone())), vec![x]))
        }
        (Op::Broadcast(shape), Some(Node { op: Op::Broadcast(_), operands, .. })) => {
            Some((Some(Op::Broadcast(shape.clone())), operands.clone()))
        }
        (Op::Slice(outer), Some(Node { op: Op::Slice(inner), operands, .. })) => {
            Some((Some(Op::Slice(join_slices(inner, outer))), operands.clone()))
        }
        (Op::Concat { axis }, _) => join_concats(graph, *axis, node),
        (Op::Gather { axis }, _) => gather_of_range(graph, *axis, node),
        (Op::Contract(contraction), _) => transposed_operand(graph, contraction, node),
        _ => None,
    }
}

/// Whether an op with a result of its operand's type still moves elements.
fn moves(op: &Op) -> bool {
    match op {
        Op::Transpose(permutation) => !permutation.is_sorted(),
        Op::Slice(axes) => axes.iter().any(|slice| slice.count > 0 && (slice.start, slice.step) != (0, 1)),
        _ => false,
    }
}

/// Whether only axes of extent 1 change their place.
fn keeps_order(permutation: &[usize], shape: &Shape) -> bool {
    permutation.iter().filter(|&&axis| shape[axis] != 1).is_sorted()
}

fn join_slices(inner: &[SliceAxis], outer: &[SliceAxis]) -> Vec<SliceAxis> {
    let join = |(inner, outer): (&SliceAxis, &SliceAxis)| match outer.count {
        0 => SliceAxis { start: 0, step: 1, count: 0 },
        count => SliceAxis {
            start: (inner.start as i64 + outer.start as i64 * inner.step) as usize,
            // Of a single element the step is of no account, and could overflow.
            step: if count == 1 { 1 } else { inner.step * outer.step },
            count,
        },
    };
    inner.iter().zip(outer).map(join).collect()
}

/// Concatenations inside of one along the same axis, and operands with nothing in them.
fn join_concats(graph: &Graph, axis: usize, node: &Node) -> Option<Simpler> {
    let mut operands = Vec::new();
    for &operand in &node.operands {
        match graph.definition(operand) {
            Some((_, Node { op: Op::Concat { axis: inner }, operands: parts, .. })) if *inner == axis => operands.extend(parts),
            _ => operands.push(operand),
        }
    }
    if operands.iter().any(|&operand| graph.ty(operand).shape[axis] > 0) {
        operands.retain(|&operand| graph.ty(operand).shape[axis] > 0);
    }
    if operands == node.operands { None } else { Some((Some(Op::Concat { axis }), operands)) }
}

/// Neighbouring slices of one value that a concatenation puts together again are one slice.
fn join_slices_of_one(edit: &mut Edit, result: ValueId) -> Option<()> {
    let graph = edit.graph();
    let Node { op: Op::Concat { axis }, operands, .. } = graph.definition(result)?.1 else { return None };
    let (axis, operands) = (*axis, operands.clone());
    let slice = |value: ValueId| match graph.definition(value)?.1 {
        Node { op: Op::Slice(axes), operands, .. } => Some((operands[0], axes.clone())),
        _ => None,
    };
    let (at, (source, joined)) = (0..operands.len().checked_sub(1)?).find_map(|at| {
        let ((source, mut first), (other, second)) = (slice(operands[at])?, slice(operands[at + 1])?);
        let (low, high) = (first[axis], second[axis]);
        first[axis] = second[axis];
        let adjoins = low.step == 1 && high.step == 1 && low.start + low.count == high.start;
        let same = source == other && first == second && adjoins;
        first[axis] = SliceAxis { start: low.start, step: 1, count: low.count + high.count };
        same.then_some((at, (source, first)))
    })?;
    edit.replace(result, &[], |edit| {
        let whole = edit.add(Op::Slice(joined), &[source]);
        let mut operands = operands;
        operands.splice(at..at + 2, [whole]);
        edit.add(Op::Concat { axis }, &operands)
    });
    Some(())
}

/// Constant indices in even steps are a slice.
fn gather_of_range(graph: &Graph, axis: usize, node: &Node) -> Option<Simpler> {
    let (data, indices) = (graph.ty(node.operands[0]), graph.constant(node.operands[1])?);
    let extent = data.shape[axis] as i64;
    let [count] = indices.shape()[..] else { return None };
    let index = |number: Number| {
        let index = number.as_i64();
        let index = if index < 0 { index + extent } else { index };
        (0..extent).contains(&index).then_some(index)
    };
    let indices: Vec<i64> = indices.numbers().map(index).collect::<Option<_>>()?;
    let &start = indices.first()?;
    let step = indices.get(1).map_or(1, |second| second - start);
    if step == 0 || indices.windows(2).any(|pair| pair[1] - pair[0] != step) {
        return None;
    }
    let mut axes: Vec<SliceAxis> = data.shape.iter().map(|&count| SliceAxis { start: 0, step: 1, count }).collect();
    axes[axis] = SliceAxis { start: start as usize, step, count };
    Some((Some(Op::Slice(axes)), vec![node.operands[0]]))
}

/// One constant index: a gather of a list of one index, which is a slice, without its axis.
fn gather_of_scalar(edit: &mut Edit, result: ValueId) -> Option<()> {
    let graph = edit.graph();
    let Node { op: Op::Gather { axis }, operands, .. } = graph.definition(result)?.1 else { return None };
    let (axis, data, index) = (*axis, operands[0], graph.constant(operands[1])?);
    if index.shape().rank() != 0 {
        return None;
    }
    let (list, shape) = (index.reshaped([1]), graph.ty(result).shape.clone());
    edit.replace(result, &[], |edit| {
        let list = edit.constant(list);
        let slice = edit.add(Op::Gather { axis }, &[data, list]);
        edit.reshape(slice, shape)
    });
    Some(())
}

/// A contraction reads its operands in any order of axes.
fn transposed_operand(graph: &Graph, contraction: &Contraction, node: &Node) -> Option<Simpler> {
    let mut contraction = contraction.clone();
    let mut operands = node.operands.clone();
    for (labels, operand) in [&mut contraction.lhs, &mut contraction.rhs].into_iter().zip(&mut operands) {
        if let Some((_, Node { op: Op::Transpose(permutation), operands: inner, .. })) = graph.definition(*operand) {
            let mut inner_labels = labels.clone();
            permutation.iter().zip(labels.iter()).for_each(|(&axis, &label)| inner_labels[axis] = label);
            *labels = inner_labels;
            *operand = inner[0];
        }
    }
    if operands == node.operands { None } else { Some((Some(Op::Contract(contraction)), operands)) }
}

/// A contraction writes its result in any order of axes.
fn transpose_result(edit: &Edit, node: &Node) -> Option<Simpler> {
    let Op::Transpose(permutation) = &node.op else { return None };
    let (_, Node { op: Op::Contract(contraction), operands, .. }) = edit.graph().definition(node.operands[0])? else {
        return None;
    };
    if !edit.has_one_user(node.operands[0]) {
        return None;
    }
    let out = permutation.iter().map(|&axis| contraction.out[axis]).collect();
    Some((Some(Op::Contract(Contraction { out, ..contraction.clone() })), operands.clone()))
}
