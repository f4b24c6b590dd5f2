//! Which elements somebody needs: those that the extents of a run give to outputs, and what these depend on.
//!
//! Where an extent is known only when a graph runs, values have room for the greatest. What lies beyond is computed as well unless
//! nobody needs it, which is found from the outputs backwards.

use mcc_support::{EntityMap, Tensor};

use crate::graph::lengths::Length;
use crate::graph::{BinaryFn, Def, Graph, Node, Op, PadMode, ValueId};
use crate::loops::Limit;

/// For each axis, from which index on nothing is needed; `None` where all may be.
type Limits = Vec<Option<Limit>>;

/// Of each value; empty where all elements are needed.
pub fn needed(graph: &Graph) -> EntityMap<ValueId, Limits> {
    let mut needed: EntityMap<ValueId, Option<Limits>> = EntityMap::filled(graph.values.len(), None);
    let lengths = &graph.lengths;
    if lengths.dims.is_empty() {
        return EntityMap::filled(graph.values.len(), Limits::new());
    }
    let first_dim = graph.tensor_inputs().len();
    for (place, (_, value)) in graph.outputs.iter().enumerate() {
        let rank = graph.ty(*value).rank();
        let limit = |axis: usize| match lengths.outputs.get(place)?.get(axis).copied().flatten()? {
            Length::Dim(dim) => Some(Limit { input: first_dim + dim, mul: 1, add: 0, div: 1 }),
            Length::Count(count) => told(graph, graph.outputs[graph.tensor_outputs().len() + count].1),
        };
        join(&mut needed[*value], (0..rank).map(limit).collect());
    }
    for &id in graph.order().iter().rev() {
        let node = graph.node(id);
        // What nobody uses is not computed for anybody.
        let result = needed[node.results[0]].clone().unwrap_or_else(|| vec![None; graph.ty(node.results[0]).rank()]);
        for (at, &operand) in node.operands.iter().enumerate() {
            let limits = operand_limits(graph, node, at, &result);
            debug_assert_eq!(limits.len(), graph.ty(operand).rank());
            join(&mut needed[operand], limits);
        }
    }
    needed.values().map(|limits| limits.clone().unwrap_or_default()).collect()
}

/// Adds a use.
fn join(needed: &mut Option<Limits>, limits: Limits) {
    match needed {
        None => *needed = Some(limits),
        Some(known) => known.iter_mut().zip(limits).for_each(|(known, limit)| *known = known.zip(limit).and_then(wider)),
    }
}

/// The greater one, where that is known.
fn wider((a, b): (Limit, Limit)) -> Option<Limit> {
    let same = (a.input, a.mul, a.div) == (b.input, b.mul, b.div);
    same.then_some(Limit { add: a.add.max(b.add), ..a })
}

/// What of operand `at` the needed elements of a node's result depend on.
fn operand_limits(graph: &Graph, node: &Node, at: usize, result: &Limits) -> Limits {
    let shape = |at: usize| &graph.ty(node.operands[at]).shape;
    let own = shape(at);
    let all = || vec![None; own.rank()];
    match &node.op {
        Op::Unary(_) | Op::Cast(_) | Op::Bitcast(_) => result.clone(),
        Op::BatchNorm { .. } if at == 0 => result.clone(),
        Op::Binary(_) | Op::Broadcast(_) => broadcast(own, result),
        Op::Select => {
            let mut limits = broadcast(own, result);
            if at == 1 {
                // Where the condition does not hold, the first choice does not matter.
                let missing = result.len() - limits.len();
                for (axis, limit) in conditions(graph, node.operands[0], result.len()) {
                    if let Some(own_axis) = axis.checked_sub(missing).filter(|&axis| own[axis] != 1) {
                        limits[own_axis] = Some(limit);
                    }
                }
            }
            limits
        }
        Op::Transpose(permutation) => {
            let mut limits = all();
            permutation.iter().zip(result).for_each(|(&axis, limit)| limits[axis] = *limit);
            limits
        }
        Op::Reshape(to) => reshape(own, to, result),
        Op::Reduce { axes, .. } => spread(own.rank(), axes, result),
        Op::ArgReduce { axis, .. } => spread(own.rank(), &[*axis], result),
        Op::Scan { axis, reverse, .. } => {
            let mut limits = result.clone();
            if *reverse {
                limits[*axis] = None;
            }
            limits
        }
        Op::Contract(contraction) => {
            let labels = if at == 0 { &contraction.lhs } else { &contraction.rhs };
            let limit = |label: &u8| contraction.out.iter().position(|other| other == label).and_then(|axis| result[axis]);
            labels.iter().map(limit).collect()
        }
        Op::Conv(conv) if at == 0 => {
            let mut limits = all();
            limits[0] = result[0];
            for axis in 2..own.rank() {
                let place = axis - 2;
                if conv.input_dilations[place] == 1 {
                    let reach = (shape(1)[axis] - 1) * conv.dilations[place] + 1;
                    limits[axis] = slid(result[axis], conv.strides[place], reach, conv.pads[place].0);
                }
            }
            limits
        }
        Op::Window { window, .. } => {
            let outer = own.rank() - window.kernel.len();
            let mut limits = result.clone();
            for axis in outer..own.rank() {
                let place = axis - outer;
                let reach = (window.kernel[place] - 1) * window.dilations[place] + 1;
                limits[axis] = slid(result[axis], window.strides[place], reach, window.pads[place].0 as i64);
            }
            limits
        }
        Op::Slice(_) | Op::Pad { .. } | Op::Concat { .. } | Op::Gather { .. } => moved(graph, node, at, result),
        _ => all(),
    }
}

/// The same of an op that moves elements along an axis.
fn moved(graph: &Graph, node: &Node, at: usize, result: &Limits) -> Limits {
    let shape = |at: usize| &graph.ty(node.operands[at]).shape;
    let own = shape(at);
    match &node.op {
        Op::Slice(slices) => {
            let taken = |(slice, limit): (&crate::graph::SliceAxis, &Option<Limit>)| {
                let limit = limit.filter(|_| slice.step > 0)?;
                // The last needed element and one more.
                scaled(limit, slice.step, slice.start as i64 - slice.step + 1)
            };
            slices.iter().zip(result).map(taken).collect()
        }
        Op::Pad { mode: PadMode::Constant, amounts } if at == 0 => {
            let inner = |(&(before, _), limit): (&(usize, usize), &Option<Limit>)| scaled((*limit)?, 1, -(before as i64));
            amounts.iter().zip(result).map(inner).collect()
        }
        Op::Concat { axis } => {
            let mut limits = result.clone();
            let offset: usize = (0..at).map(|before| shape(before)[*axis]).sum();
            limits[*axis] = limits[*axis].and_then(|limit| scaled(limit, 1, -(offset as i64)));
            limits
        }
        Op::Gather { axis } if at == 0 => {
            let count = shape(1).rank();
            (0..own.rank())
                .map(|own| match own.cmp(axis) {
                    std::cmp::Ordering::Less => result[own],
                    std::cmp::Ordering::Equal => None,
                    std::cmp::Ordering::Greater => result[own + count - 1],
                })
                .collect()
        }
        // Indices are checked, all of them.
        _ => vec![None; own.rank()],
    }
}

/// `limit · factor + add`, where that has no fraction.
fn scaled(limit: Limit, factor: i64, add: i64) -> Option<Limit> {
    if limit.div != 1 {
        return None;
    }
    let (mul, sum) = (limit.mul.checked_mul(factor)?, limit.add.checked_mul(factor)?);
    Some(Limit { mul, add: sum.checked_add(add)?, ..limit })
}

/// Of the elements under windows.
fn slid(limit: Option<Limit>, stride: usize, reach: usize, before: i64) -> Option<Limit> {
    let add = i64::try_from(reach).ok()?.checked_sub(i64::try_from(stride).ok()?)?.checked_sub(before)?;
    scaled(limit?, i64::try_from(stride).ok()?, add)
}

fn broadcast(own: &[usize], result: &Limits) -> Limits {
    let missing = result.len() - own.len();
    own.iter().zip(&result[missing..]).map(|(&dim, limit)| limit.filter(|_| dim != 1)).collect()
}

/// With axes that the result has not.
fn spread(rank: usize, gone: &[usize], result: &Limits) -> Limits {
    let mut rest = result.iter();
    (0..rank).map(|axis| if gone.contains(&axis) { None } else { rest.next().copied().flatten() }).collect()
}

/// Of what is seen under another shape: where an axis is the outermost of several that are the same elements as others.
fn reshape(from: &[usize], to: &[usize], result: &Limits) -> Limits {
    let mut limits = vec![None; from.len()];
    if from.contains(&0) {
        return limits;
    }
    let (mut a, mut b) = (0, 0);
    while a < from.len() && b < to.len() {
        // Axes of one element come before the outermost of a group.
        while a < from.len() && from[a] == 1 {
            a += 1;
        }
        while b < to.len() && to[b] == 1 {
            b += 1;
        }
        if a == from.len() || b == to.len() {
            break;
        }
        let (first_a, first_b) = (a, b);
        let (mut left, mut right) = (from[a], to[b]);
        (a, b) = (a + 1, b + 1);
        while left != right {
            if left < right {
                left *= from[a];
                a += 1;
            } else {
                right *= to[b];
                b += 1;
            }
        }
        let (inner_from, inner_to) = ((left / from[first_a]) as i64, (right / to[first_b]) as i64);
        limits[first_a] = result[first_b].and_then(|limit| {
            let elements = scaled(limit, inner_to, 0)?;
            if elements.mul % inner_from == 0 && elements.add % inner_from == 0 {
                Some(Limit { mul: elements.mul / inner_from, add: elements.add / inner_from, ..elements })
            } else {
                Some(Limit { div: inner_from, ..elements })
            }
        });
    }
    limits
}

/// Of a `bool` in a shape of this rank: below which indices along axes it can hold only.
fn conditions(graph: &Graph, value: ValueId, rank: usize) -> Vec<(usize, Limit)> {
    let missing = rank - graph.ty(value).rank();
    let Some((_, node)) = graph.definition(value) else { return Vec::new() };
    match node.op {
        Op::Binary(BinaryFn::And) => node.operands.iter().flat_map(|&operand| conditions(graph, operand, rank)).collect(),
        Op::Binary(BinaryFn::Lt) => {
            let place = index_axis(graph, node.operands[0]).map(|axis| axis + rank - graph.ty(node.operands[0]).rank());
            place.zip(told(graph, node.operands[1])).into_iter().collect()
        }
        Op::Broadcast(_) | Op::Reshape(_) => {
            // Where only axes of one element are added in front.
            let (own, inner) = (&graph.ty(value).shape, &graph.ty(node.operands[0]).shape);
            let same = own.rank() >= inner.rank() && own[own.rank() - inner.rank()..] == inner[..];
            if same && missing <= rank { conditions(graph, node.operands[0], rank) } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

/// The axis along which a value is the index.
fn index_axis(graph: &Graph, value: ValueId) -> Option<usize> {
    match &graph.values[value].def {
        Def::Constant(tensor) => constant_index(tensor),
        Def::Input => None,
        Def::Node { node, .. } => match &graph.node(*node).op {
            Op::Iota { axis, .. } => Some(*axis),
            Op::Cast(dtype) if dtype.is_integer() => {
                let x = graph.node(*node).operands[0];
                let last = graph.ty(x).shape.iter().copied().max().unwrap_or(0) as i128;
                index_axis(graph, x).filter(|_| last <= dtype.integer_range().1)
            }
            _ => None,
        },
    }
}

fn constant_index(tensor: &Tensor) -> Option<usize> {
    let shape = tensor.shape();
    let axis = shape.iter().position(|&dim| dim != 1)?;
    let is_index = shape.count() == shape[axis] && tensor.numbers().enumerate().all(|(at, number)| number.as_f64() == at as f64);
    (is_index && tensor.dtype().is_integer()).then_some(axis)
}

/// The value of a scalar, where it depends on one extent that a run is told, and no dtype on the way wraps.
fn told(graph: &Graph, value: ValueId) -> Option<Limit> {
    let limit = told_by_node(graph, value)?;
    let dim = &graph.lengths.dims[limit.input - graph.tensor_inputs().len()];
    let at = |dim: usize| (i128::from(limit.mul) * dim as i128 + i128::from(limit.add)).div_euclid(i128::from(limit.div));
    let (least, greatest) = graph.ty(value).dtype.integer_range();
    [dim.min, dim.max].into_iter().map(at).all(|end| least <= end && end <= greatest).then_some(limit)
}

fn told_by_node(graph: &Graph, value: ValueId) -> Option<Limit> {
    if graph.ty(value).shape.count() != 1 {
        return None;
    }
    if let Def::Input = graph.values[value].def {
        let input = graph.inputs.iter().position(|&(_, input)| input == value)?;
        return (input >= graph.tensor_inputs().len()).then_some(Limit { input, mul: 1, add: 0, div: 1 });
    }
    let (_, node) = graph.definition(value)?;
    let constant = |at: usize| {
        graph.constant(node.operands[at]).filter(|tensor| tensor.dtype().is_integer()).map(|tensor| tensor.number(0).as_i64())
    };
    let (a, b) = (*node.operands.first()?, node.operands.get(1).copied());
    match node.op {
        Op::Cast(dtype) if dtype.is_integer() => told(graph, a),
        Op::Reshape(_) | Op::Broadcast(_) => told(graph, a),
        Op::Binary(BinaryFn::Add) => match (constant(0), constant(1)) {
            (_, Some(add)) => scaled(told(graph, a)?, 1, add),
            (Some(add), _) => scaled(told(graph, b?)?, 1, add),
            _ => None,
        },
        Op::Binary(BinaryFn::Sub) => scaled(told(graph, a)?, 1, constant(1)?.checked_neg()?),
        Op::Binary(BinaryFn::Mul) => match (constant(0), constant(1)) {
            (_, Some(factor)) => scaled(told(graph, a)?, factor, 0),
            (Some(factor), _) => scaled(told(graph, b?)?, factor, 0),
            _ => None,
        },
        _ => None,
    }
}
