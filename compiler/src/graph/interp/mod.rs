//! The meaning of each op: the interpreter of graphs, what compiled code is judged by, and what folds constants.
//!
//! Movement, integers and elementwise ops give exactly the bits that compiled code gives. Sums and products of floats
//! (contractions, convolutions, reductions, scans) are accumulated in f64 and rounded once: what compiled code is allowed to differ
//! by is measured from there. Batch normalization, which is never compiled as it stands, is computed likewise.

mod elements;
mod movement;
mod product;
mod reduce;

use mcc_support::{EntityMap, Error, Result, Shape, Tensor, TensorType, ensure};

use self::elements::Num;
use super::op::{Contraction, Loop, Op};
use super::{Def, Graph, ValueId};
use crate::loops::scalar::{self, Function};

/// The results, of these types, of an op.
pub fn eval_all(op: &Op, operands: &[&Tensor], types: &[&TensorType]) -> Result<Vec<Tensor>> {
    match op {
        Op::Loop(inner) => repeat(inner, operands, types),
        Op::If(inner) => {
            let taken = if operands[0].number(0).as_i64() != 0 { &inner.then } else { &inner.otherwise };
            run(taken, &operands[1..].iter().copied().cloned().collect::<Vec<_>>())
        }
        op => Ok(vec![eval(op, operands, types[0])]),
    }
}

fn repeat(inner: &Loop, operands: &[&Tensor], types: &[&TensorType]) -> Result<Vec<Tensor>> {
    let Loop { body, carried, limit } = inner;
    let rounds = operands[0].number(0).as_i64().min(*limit as i64);
    let mut go = operands[1].number(0).as_i64() != 0;
    let mut values: Vec<Tensor> = operands[2..].iter().copied().cloned().collect();
    let mut stacks: Vec<Vec<Tensor>> = vec![Vec::new(); types.len() - 1 - carried];
    let mut round = 0;
    while go && round < rounds {
        let inputs: Vec<Tensor> = [Tensor::scalar(round)].into_iter().chain(values.iter().cloned()).collect();
        let mut outputs = run(body, &inputs)?;
        let elements = outputs.split_off(1 + carried);
        stacks.iter_mut().zip(elements).for_each(|(stack, element)| stack.push(with_rows(&element, 1)));
        go = outputs[0].number(0).as_i64() != 0;
        values.splice(..*carried, outputs.drain(1..));
        round += 1;
    }
    values.truncate(*carried);
    let stacks = stacks.into_iter().zip(&types[1 + carried..]).map(|(mut rows, ty)| {
        let mut rest = ty.shape.clone().into_dims();
        rest[0] -= rows.len();
        rows.push(Tensor::zeros(TensorType::new(ty.dtype, rest)));
        movement::concat(0, &rows.iter().collect::<Vec<_>>(), ty)
    });
    Ok([Tensor::scalar(round)].into_iter().chain(values).chain(stacks).collect())
}

/// With another axis in front.
fn with_rows(element: &Tensor, rows: usize) -> Tensor {
    element.reshaped([rows].into_iter().chain(element.shape().iter().copied()).collect::<Shape>())
}

/// The result, of type `ty`, of an op without bodies on these operands.
pub fn eval(op: &Op, operands: &[&Tensor], ty: &TensorType) -> Tensor {
    let x = operands.first().copied();
    let x = || x.expect("the operands were counted by the type rule");
    let result = match op {
        Op::Unary(function) => scalar::map(Function::Unary(*function), operands, ty),
        Op::Binary(function) => scalar::map(Function::Binary(*function), operands, ty),
        Op::Select => scalar::map(Function::Select, operands, ty),
        Op::Cast(dtype) => scalar::map(Function::Cast(*dtype), operands, ty),
        Op::Bitcast(_) => Tensor::new(ty.clone(), x().data().clone()),
        Op::Contract(contraction) => product::contract(contraction, x(), operands[1], ty),
        Op::Conv(conv) => product::conv(conv, x(), operands[1], ty),
        Op::Reduce { kind, axes } => reduce::reduce(*kind, axes, x(), ty),
        Op::ArgReduce { max, axis, last } => reduce::arg_reduce(*max, *axis, *last, x(), ty),
        Op::Window { kind, window } => reduce::window(*kind, window, x(), ty),
        Op::WindowArgMax(window) => reduce::window_arg_max(window, x(), ty),
        Op::Scan { kind, axis, exclusive, reverse } => reduce::scan(*kind, *axis, *exclusive, *reverse, x()),
        Op::Reshape(shape) => x().reshaped(shape.clone()),
        Op::Transpose(permutation) => movement::transpose(permutation, x()),
        Op::Slice(axes) => movement::slice(axes, x()),
        Op::Pad { mode, amounts } => movement::pad(*mode, amounts, x(), operands.get(1).copied()),
        Op::Concat { axis } => movement::concat(*axis, operands, ty),
        Op::Broadcast(shape) => movement::broadcast(x(), shape),
        Op::Gather { axis } => movement::gather(*axis, x(), operands[1]),
        Op::GatherElements { axis } => movement::gather_elements(*axis, x(), operands[1]),
        Op::Iota { axis, .. } => movement::iota(*axis, ty),
        Op::BatchNorm { epsilon } => reduce::batch_norm(*epsilon, operands),
        Op::Loop(_) | Op::If(_) => unreachable!("ops with bodies have several results"),
    };
    assert_eq!(result.ty(), ty, "the type of the result of {op:?}");
    result
}

/// The elements of a tensor of floats.
pub fn to_f64(tensor: &Tensor) -> Vec<f64> {
    f64::load(tensor)
}

/// A tensor of floats, each rounded once.
pub fn from_f64(ty: TensorType, numbers: Vec<f64>) -> Tensor {
    f64::store(ty, numbers)
}

/// Whether a node of constants is worth to be computed at compile time: its result is small, or not much larger than what it is
/// made from (a model's size would grow by it), and computing it takes no more than about a second.
pub fn is_foldable(op: &Op, operands: &[&Tensor], ty: &TensorType) -> bool {
    const SMALL_BYTES: usize = 1 << 20;
    const MAX_BYTES: usize = 256 << 20;
    const MAX_STEPS: usize = 1 << 27;
    let operand_bytes: usize = operands.iter().map(|operand| operand.ty().size_bytes()).sum();
    let bound = SMALL_BYTES.max(operand_bytes.saturating_mul(8)).min(MAX_BYTES);
    let counts = operands.iter().map(|operand| operand.count()).chain([ty.shape.count()]);
    let elements = counts.max().unwrap_or(0);
    // Products and windows visit a part of their operands for each element of the result.
    let visited = match op {
        Op::Contract(Contraction { lhs, rhs, out }) => {
            let extent = |labels: &[u8], shape: &Shape| {
                let summed = labels.iter().zip(shape.iter()).filter(|(label, _)| !out.contains(label));
                summed.fold(1usize, |product, (_, &extent)| product.saturating_mul(extent))
            };
            let (a, b) = (extent(lhs, operands[0].shape()), extent(rhs, operands[1].shape()));
            ty.shape.count().saturating_mul(a.max(b))
        }
        Op::Conv(_) => ty.shape.count().saturating_mul(operands[1].shape()[1..].iter().product()),
        Op::Window { window, .. } | Op::WindowArgMax(window) => {
            window.kernel.iter().fold(ty.shape.count(), |product, &extent| product.saturating_mul(extent))
        }
        _ => 0,
    };
    ty.size_bytes() <= bound && elements.max(visited) <= MAX_STEPS
}

/// The outputs of a graph. The inputs are given in the graph's order.
pub fn run(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut uses = graph.use_counts();
    let mut values = start(graph, inputs)?;
    for id in graph.order() {
        let node = graph.node(id);
        eval_node(graph, id, &mut values)?;
        for &operand in &node.operands {
            uses[operand] -= 1;
            if uses[operand] == 0 {
                values[operand] = None;
            }
        }
    }
    Ok(graph.outputs.iter().map(|&(_, output)| values[output].clone().expect("an output is kept")).collect())
}

fn start(graph: &Graph, inputs: &[Tensor]) -> Result<EntityMap<ValueId, Option<Tensor>>> {
    ensure!(inputs.len() == graph.inputs.len(), "{} inputs where the model has {}", inputs.len(), graph.inputs.len());
    let mut values: EntityMap<ValueId, Option<Tensor>> = graph
        .values
        .values()
        .map(|value| match &value.def {
            Def::Constant(tensor) => Some(tensor.clone()),
            Def::Input | Def::Node { .. } => None,
        })
        .collect();
    for ((name, value), tensor) in graph.inputs.iter().zip(inputs) {
        let ty = graph.ty(*value);
        if tensor.ty() != ty {
            return Err(Error::new(format!("input '{name}' is a {}, not a {ty}", tensor.ty())));
        }
        values[*value] = Some(tensor.clone());
    }
    Ok(values)
}

fn eval_node(graph: &Graph, id: super::NodeId, values: &mut EntityMap<ValueId, Option<Tensor>>) -> Result<()> {
    let node = graph.node(id);
    let operands: Vec<&Tensor> =
        node.operands.iter().map(|&operand| values[operand].as_ref().expect("in topological order")).collect();
    let types: Vec<&TensorType> = node.results.iter().map(|&result| graph.ty(result)).collect();
    let results = eval_all(&node.op, &operands, &types)?;
    node.results.iter().zip(results).for_each(|(&result, tensor)| values[result] = Some(tensor));
    Ok(())
}
