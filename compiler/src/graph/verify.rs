//! Checks what is always true of a graph:
//!
//! * Definitions: the inputs are distinct and defined as inputs; a constant has the type of its tensor; the result of a node is
//!   defined by this node and no other, and belongs to one place in it.
//! * Uses: operands and outputs exist and are an input of the graph, a constant or the result of a node that is there.
//! * Types: the type of every result is what the type rule gives for op and operands, and no larger than
//!   [`MAX_VALUE_BYTES`].
//! * Order: no value depends on itself.
//! * Names: those of inputs are distinct.
//! * Lengths: those that are stated are one for each axis, of extents that are there.
//! * The graphs inside of nodes: all of this.

use std::collections::BTreeSet;

use mcc_support::{DType, EntityMap, Result, Shape, TensorType, bail, ensure};

use super::build::MAX_VALUE_BYTES;
use super::lengths::Length;
use super::{Def, Graph, Node, NodeId, ValueId, infer};

/// The first property that does not hold; the message starts with the value concerned.
pub fn verify(graph: &Graph) -> Result<()> {
    lengths(graph)?;
    definitions(graph)?;
    for (id, node) in graph.live_nodes() {
        uses(graph, id, node)?;
    }
    for (name, value) in &graph.outputs {
        ensure!(graph.values.get(*value).is_some(), "output '{name}' is {value}, which does not exist");
        check_defined(graph, *value)?;
    }
    if let Err(cycle) = petgraph::algo::toposort(&graph.digraph(), None) {
        let digraph = graph.digraph();
        bail!("{}: depends on itself", graph.node(digraph[cycle.node_id()]).results[0]);
    }
    for (_, node) in graph.live_nodes() {
        types(graph, node)?;
    }
    Ok(())
}

fn lengths(graph: &Graph) -> Result<()> {
    let lengths = &graph.lengths;
    let (dims, counts, found) = (lengths.dims.len(), lengths.counts.len(), lengths.counts.len() + lengths.checks.len());
    ensure!(dims <= graph.inputs.len() && found <= graph.outputs.len(), "there are more extents than inputs or outputs");
    for (kind, list, tensors) in
        [("input", &lengths.inputs, graph.tensor_inputs()), ("output", &lengths.outputs, graph.tensor_outputs())]
    {
        let stated = if lengths.any() { tensors.len() } else { 0 };
        ensure!(list.len() == stated, "lengths of {} {kind}s are stated, not of {stated}", list.len());
        for ((name, value), axes) in tensors.iter().zip(list) {
            let Some(value) = graph.values.get(*value) else { continue };
            let fits = axes.is_empty() || axes.len() == value.ty.rank();
            ensure!(fits, "{kind} '{name}', a {}, has {} lengths", value.ty, axes.len());
            let known = axes.iter().flatten().all(|length| match *length {
                Length::Dim(dim) => dim < dims,
                Length::Count(count) => kind == "output" && count < counts,
            });
            ensure!(known, "{kind} '{name}' has a length that is not there");
        }
    }
    let extents = graph.inputs[graph.inputs.len() - dims..].iter().chain(&graph.outputs[graph.outputs.len() - found..]);
    for (name, value) in extents {
        let scalar = TensorType::new(DType::I64, Shape::scalar());
        let is_extent = graph.values.get(*value).is_none_or(|value| value.ty == scalar);
        ensure!(is_extent, "the extent '{name}' is not an i64[]");
    }
    Ok(())
}

fn definitions(graph: &Graph) -> Result<()> {
    let mut seen = BTreeSet::new();
    let mut names = BTreeSet::new();
    for (name, value) in &graph.inputs {
        let Some(input) = graph.values.get(*value) else { bail!("input '{name}' is {value}, which does not exist") };
        ensure!(input.def == Def::Input, "{value}: is an input but defined otherwise");
        ensure!(seen.insert(*value), "{value}: is an input twice");
    }
    for (name, value) in graph.tensor_inputs() {
        ensure!(names.insert(name), "{value}: another input is named '{name}' too");
    }
    for (id, value) in graph.values.iter() {
        let size = value.ty.checked_size_bytes();
        ensure!(size.is_some_and(|size| size <= MAX_VALUE_BYTES), "{id}: a {} is too large", value.ty);
        if let Def::Constant(tensor) = &value.def {
            ensure!(*tensor.ty() == value.ty, "{id}: is a {} but its constant is a {}", value.ty, tensor.ty());
        }
    }
    let mut defined = EntityMap::<ValueId, bool>::filled(graph.values.len(), false);
    for (id, node) in graph.live_nodes() {
        ensure!(!node.results.is_empty(), "{id}: has no results");
        for (index, &result) in node.results.iter().enumerate() {
            ensure!(graph.values.get(result).is_some(), "{id}: gives {result}, which does not exist");
            ensure!(!defined[result], "{result}: is the result of two nodes");
            defined[result] = true;
            ensure!(graph.values[result].def == Def::Node { node: id, index }, "{result}: does not say that {id} defines it");
        }
    }
    Ok(())
}

fn check_defined(graph: &Graph, value: ValueId) -> Result<()> {
    match graph.values[value].def {
        Def::Constant(_) => {}
        Def::Input => ensure!(graph.inputs.iter().any(|&(_, input)| input == value), "{value}: is used but nothing defines it"),
        Def::Node { node, index } => {
            let node = graph.nodes.get(node).and_then(Option::as_ref);
            let defines = node.is_some_and(|node| node.results.get(index) == Some(&value));
            ensure!(defines, "{value}: is used but the node that defined it was removed");
        }
    }
    Ok(())
}

fn uses(graph: &Graph, id: NodeId, node: &Node) -> Result<()> {
    for &operand in &node.operands {
        ensure!(graph.values.get(operand).is_some(), "{}: {id} uses {operand}, which does not exist", node.results[0]);
        check_defined(graph, operand)?;
    }
    Ok(())
}

fn types(graph: &Graph, node: &Node) -> Result<()> {
    let result = node.results[0];
    for body in node.op.bodies() {
        verify(body).map_err(|error| error.context(format!("in a body of {result}")))?;
    }
    let operands: Vec<_> = node.operands.iter().map(|&operand| graph.ty(operand)).collect();
    match infer::infer_all(&node.op, &operands) {
        Err(error) => bail!("{result}: {}", error.message),
        Ok(types) => {
            ensure!(types.len() == node.results.len(), "{result}: {} results of {}", node.results.len(), types.len());
            for (&result, ty) in node.results.iter().zip(types) {
                ensure!(ty == *graph.ty(result), "{result}: is declared as {} but is a {ty}", graph.ty(result));
            }
        }
    }
    Ok(())
}
