//! How far results may lie apart: each element by the magnitudes of the terms that it is made of.
//!
//! Beside each value its magnitudes are computed, in f64: those of a sum are the sum of its terms', of a product the product. However
//! sums and products are ordered, an element differs by no more than a few roundings of the narrowest float that it depends on,
//! in proportion to its magnitude.

use mcc::graph::{BinaryFn, Conv, Graph, Node, Op, ReduceFn, UnaryFn, ValueId, interp};
use mcc_support::{DType, EntityMap, Shape, Tensor, TensorType};

use crate::compare::same_bits;

/// How much a value may differ in proportion to its magnitude, for a float on the way to it. Sums of 16 bits are rounded once, at
/// their end.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 4.0 / 128.0,
        DType::F16 => 4.0 / 1024.0,
        DType::F32 => 32.0 * f64::from(f32::EPSILON),
        DType::F64 => 32.0 * f64::EPSILON,
        _ => 0.0,
    }
}

/// What the outputs of a graph are judged by, for some inputs.
#[derive(Debug)]
pub struct Judge {
    outputs: Vec<Traced>,
    /// Whether convolutions may be computed in tiles.
    tiled: bool,
}

#[derive(Clone, Debug)]
struct Traced {
    value: Tensor,
    /// Of type f64. Infinite where a float may overflow on the way.
    magnitudes: Tensor,
    /// The greatest of those of the floats that it depends on.
    tolerance: f64,
    /// Whether it depends on the greatest or least of floats: of zeros with different signs either may be that.
    zeros: bool,
}

impl Judge {
    pub fn new(graph: &Graph, inputs: &[Tensor]) -> Self {
        Self::of_tiles(graph, inputs, 1)
    }

    /// As [`Judge::new`], where convolutions with filters of 3 × 3 may be computed in tiles of so many results along each dimension:
    /// every input of a tile is a part of each of its results, with factors of which many are more than 1.
    pub fn of_tiles(graph: &Graph, inputs: &[Tensor], tile: usize) -> Self {
        Self { outputs: run(graph, inputs.iter().map(given).collect(), tile), tiled: tile > 1 }
    }

    /// Whether an output has the same bits, but for the signs of zeros where they are open.
    ///
    /// # Errors
    ///
    /// What differs.
    pub fn same(&self, at: usize, got: &Tensor, want: &Tensor) -> Result<(), String> {
        let equal = |(got, want): (f64, f64)| got == want || got.is_nan() && want.is_nan();
        let are_equal = || got.ty() == want.ty() && numbers(got).into_iter().zip(numbers(want)).all(equal);
        same_bits(got, want).or_else(|error| if self.outputs[at].zeros && are_equal() { Ok(()) } else { Err(error) })
    }

    /// Whether an output differs by roundings only.
    ///
    /// # Errors
    ///
    /// What differs.
    pub fn close(&self, at: usize, got: &Tensor, want: &Tensor) -> Result<(), String> {
        if !want.dtype().is_float() || got.ty() != want.ty() {
            return self.same(at, got, want);
        }
        let magnitudes = numbers(&self.outputs[at].magnitudes);
        for (index, ((got, want), magnitude)) in numbers(got).into_iter().zip(numbers(want)).zip(magnitudes).enumerate() {
            let allowed = self.outputs[at].tolerance * magnitude + f64::from(f32::MIN_POSITIVE);
            let agrees = got == want
                || got.is_nan() && want.is_nan()
                || self.tiled && magnitude.is_infinite()
                || !want.is_nan() && (magnitude.is_infinite() || (got - want).abs() <= allowed);
            if !agrees {
                let ty = &self.outputs[at].value.ty();
                return Err(format!("element {index} of {ty} is {got:?}, wanted {want:?} within {allowed:.1e}"));
            }
        }
        Ok(())
    }
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.numbers().map(|number| number.as_f64()).collect()
}

fn wide(shape: &Shape) -> TensorType {
    TensorType::new(DType::F64, shape.clone())
}

fn map(tensor: &Tensor, function: impl Fn(f64) -> f64) -> Tensor {
    interp::from_f64(wide(tensor.shape()), numbers(tensor).into_iter().map(function).collect())
}

fn given(value: &Tensor) -> Traced {
    let magnitudes = map(value, |number| magnitude(number, value.dtype()));
    Traced { value: value.clone(), magnitudes, tolerance: tolerance(value.dtype()), zeros: false }
}

/// Of a number by itself.
fn magnitude(number: f64, dtype: DType) -> f64 {
    let greatest = match dtype {
        DType::F16 => 65504.0,
        DType::BF16 | DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    };
    if number.abs() <= greatest { number.abs() } else { f64::INFINITY }
}

fn run(graph: &Graph, inputs: Vec<Traced>, tile: usize) -> Vec<Traced> {
    let constants = graph.values.keys().map(|id| graph.constant(id).map(given));
    let mut values: EntityMap<ValueId, Option<Traced>> = constants.collect();
    graph.inputs.iter().zip(inputs).for_each(|(&(_, id), input)| values[id] = Some(input));
    for id in graph.order() {
        let node = graph.node(id);
        let operands = node.operands.iter().map(|&operand| values[operand].clone().expect("in topological order")).collect();
        let results = results(graph, node, operands, tile);
        node.results.iter().zip(results).for_each(|(&result, traced)| values[result] = Some(traced));
    }
    graph.outputs.iter().map(|&(_, output)| values[output].clone().expect("outputs are computed")).collect()
}

fn results(graph: &Graph, node: &Node, operands: Vec<Traced>, tile: usize) -> Vec<Traced> {
    match &node.op {
        Op::If(inner) => {
            let taken = if operands[0].value.number(0).as_i64() != 0 { &inner.then } else { &inner.otherwise };
            run(taken, operands[1..].to_vec(), tile)
        }
        Op::Loop(_) => repeated(graph, node, operands, tile),
        op => {
            let ty = graph.ty(node.results[0]);
            let tensors: Vec<&Tensor> = operands.iter().map(|operand| &operand.value).collect();
            let value = interp::eval(op, &tensors, ty);
            let alone = given(&value).magnitudes;
            let combined = if ty.dtype.is_float() { combined(op, &operands, ty, tile) } else { None };
            let magnitudes = combined.map_or(alone.clone(), |combined| greater(&combined, &alone, ty));
            // The errors of both factors are the same and add up, in a loop again and again.
            let is_square = *op == Op::Binary(BinaryFn::Mul) && node.operands[0] == node.operands[1];
            let magnitudes = if is_square { map(&magnitudes, |number| 2.0 * number) } else { magnitudes };
            let of_floats = operands.first().is_some_and(|first| first.value.dtype().is_float());
            let zeros = operands.iter().any(|operand| operand.zeros) || of_floats && picks_extreme(op);
            let tolerance = operands.iter().map(|operand| operand.tolerance).fold(tolerance(ty.dtype), f64::max);
            vec![Traced { value, magnitudes, tolerance, zeros }]
        }
    }
}

/// The greater of both, infinite where the dtype has no such number.
fn greater(a: &Tensor, b: &Tensor, ty: &TensorType) -> Tensor {
    let number = |(a, b): (f64, f64)| if a.is_nan() || b.is_nan() { f64::INFINITY } else { magnitude(a.max(b), ty.dtype) };
    interp::from_f64(wide(&ty.shape), numbers(a).into_iter().zip(numbers(b)).map(number).collect())
}

fn picks_extreme(op: &Op) -> bool {
    match op {
        Op::Reduce { kind, .. } | Op::Window { kind, .. } | Op::Scan { kind, .. } => {
            matches!(kind, ReduceFn::Max | ReduceFn::Min | ReduceFn::MaxNumber)
        }
        _ => false,
    }
}

/// The magnitudes of an op that passes errors on; `None` where its operands have none.
fn combined(op: &Op, operands: &[Traced], ty: &TensorType, tile: usize) -> Option<Tensor> {
    let wide = wide(&ty.shape);
    let m: Vec<&Tensor> = operands.iter().map(|operand| &operand.magnitudes).collect();
    let eval = |op: &Op, operands: &[&Tensor]| Some(interp::eval(op, operands, &wide));
    let binary = |function, a: &Tensor, b: &Tensor| eval(&Op::Binary(function), &[a, b]);
    match op {
        Op::Unary(UnaryFn::Neg | UnaryFn::Abs) | Op::Cast(_) => Some(m[0].clone()),
        // None is steeper than the error function at 0: 2 / sqrt(pi).
        Op::Unary(UnaryFn::Sin | UnaryFn::Cos | UnaryFn::Atan | UnaryFn::Tanh | UnaryFn::Erf | UnaryFn::Asinh) => {
            Some(map(m[0], |number| 1.13 * number))
        }
        Op::Unary(UnaryFn::Sigmoid) => Some(map(m[0], |number| 0.25 * number + 1.0)),
        Op::Binary(BinaryFn::Add | BinaryFn::Sub) => binary(BinaryFn::Add, m[0], m[1]),
        Op::Binary(BinaryFn::Mul) => binary(BinaryFn::Mul, m[0], m[1]),
        Op::Binary(BinaryFn::Min | BinaryFn::Max) => binary(BinaryFn::Max, m[0], m[1]),
        Op::Select => {
            let [a, b] = [m[1], m[2]].map(|branch| interp::eval(&Op::Broadcast(ty.shape.clone()), &[branch], &wide));
            binary(BinaryFn::Max, &a, &b)
        }
        Op::Conv(conv) if tile > 1 && in_tiles(conv, operands) => {
            let (conv, weights) = of_tiles(conv, m[1], tile);
            eval(&Op::Conv(conv), &[m[0], &weights])
        }
        Op::Contract(_) | Op::Conv(_) => eval(op, &m),
        Op::Reduce { kind, .. } | Op::Window { kind, .. } | Op::Scan { kind, .. } => reduced(op, *kind, m[0], &wide),
        Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Pad { .. } | Op::Concat { .. } | Op::Broadcast(_) => eval(op, &m),
        Op::Gather { .. } | Op::GatherElements { .. } => eval(op, &[m[0], &operands[1].value]),
        // (x + |mean|) / sqrt(variance + epsilon) · |scale| + |bias|
        Op::BatchNorm { .. } => eval(op, &[m[0], m[1], m[2], &map(m[3], |number| -number), m[4]]),
        _ => None,
    }
}

/// Whether a convolution is one of f32 with filters of 3 × 3 that neither skips nor spreads.
fn in_tiles(conv: &Conv, operands: &[Traced]) -> bool {
    let ones = |numbers: &[usize]| numbers.iter().all(|&number| number == 1);
    let plain = ones(&conv.strides) && ones(&conv.dilations) && ones(&conv.input_dilations) && conv.groups == 1;
    plain && operands[0].value.dtype() == DType::F32 && operands[1].value.shape()[2..] == [3, 3]
}

/// A convolution whose results have the magnitudes of all inputs of a tile around them with all of a filter: those of each product, and
/// how much of it comes and goes in the sums of a result, 4 times in a tile of 2 × 2 results and 36 times in one of 4 × 4 (squares of the
/// greatest sum over a tile's places of the magnitudes of what Aᵀ, Bᵀ and G have there).
fn of_tiles(conv: &Conv, weights: &Tensor, tile: usize) -> (Conv, Tensor) {
    let factor = if tile == 2 { 4.0 } else { 36.0 };
    let side = 3 + 2 * (tile - 1);
    let [filters, channels] = [weights.shape()[0], weights.shape()[1]];
    let sums = numbers(weights).chunks_exact(9).map(|filter| factor * filter.iter().sum::<f64>()).collect::<Vec<_>>();
    let spread = sums.into_iter().flat_map(|sum| vec![sum; side * side]).collect();
    let weights = interp::from_f64(TensorType::new(DType::F64, [filters, channels, side, side]), spread);
    let more = tile as i64 - 1;
    let pads = conv.pads.iter().map(|&(before, after)| (before + more, after + more)).collect();
    (Conv { pads, ..conv.clone() }, weights)
}

fn reduced(op: &Op, kind: ReduceFn, m: &Tensor, wide: &TensorType) -> Option<Tensor> {
    let with = |kind: ReduceFn| match op.clone() {
        Op::Reduce { axes, .. } => Op::Reduce { kind, axes },
        Op::Window { window, .. } => Op::Window { kind, window },
        Op::Scan { axis, exclusive, reverse, .. } => Op::Scan { kind, axis, exclusive, reverse },
        other => other,
    };
    let terms = match op {
        Op::Window { window, .. } => window.kernel.iter().product::<usize>(),
        Op::Scan { axis, .. } => m.shape()[*axis],
        _ => m.count() / wide.shape.count().max(1),
    };
    Some(match kind {
        ReduceFn::Sum => interp::eval(&with(kind), &[m], wide),
        // The errors of factors add up, and a part of the factors may be greater than all of them.
        ReduceFn::Prod => {
            let product = interp::eval(&with(kind), &[&map(m, |number| number.max(1.0))], wide);
            map(&product, |number| terms as f64 * number)
        }
        // Of no terms: nothing.
        ReduceFn::Max | ReduceFn::Min | ReduceFn::MaxNumber => {
            map(&interp::eval(&with(ReduceFn::Max), &[m], wide), |number| number.max(0.0))
        }
    })
}

/// A loop round by round, as far as its values say that it goes.
fn repeated(graph: &Graph, node: &Node, operands: Vec<Traced>, tile: usize) -> Vec<Traced> {
    let Op::Loop(inner) = &node.op else { unreachable!("the op of a loop") };
    let tensors: Vec<&Tensor> = operands.iter().map(|operand| &operand.value).collect();
    let types: Vec<&TensorType> = node.results.iter().map(|&result| graph.ty(result)).collect();
    let values = interp::eval_all(&node.op, &tensors, &types).expect("the graph runs");
    let rounds = values[0].number(0).as_i64();
    let mut carried = operands[2..].to_vec();
    let stacks = inner.body.outputs.len() - 1 - inner.carried;
    let mut elements: Vec<Traced> = values[1 + inner.carried..].iter().map(given).collect();
    let mut magnitudes = vec![Vec::new(); stacks];
    for round in 0..rounds {
        let inputs = [given(&Tensor::scalar(round))].into_iter().chain(carried.iter().cloned()).collect();
        let mut outputs = run(&inner.body, inputs, tile);
        for (at, element) in outputs.split_off(1 + inner.carried).iter().enumerate() {
            magnitudes[at].extend(numbers(&element.magnitudes));
            elements[at].zeros |= element.zeros;
            elements[at].tolerance = elements[at].tolerance.max(element.tolerance);
        }
        carried.splice(..inner.carried, outputs.into_iter().skip(1));
    }
    carried.truncate(inner.carried);
    for (stack, mut magnitudes) in elements.iter_mut().zip(magnitudes) {
        magnitudes.resize(stack.value.count(), 0.0);
        stack.magnitudes = interp::from_f64(wide(stack.value.shape()), magnitudes);
    }
    [given(&values[0])].into_iter().chain(carried).chain(elements).collect()
}
