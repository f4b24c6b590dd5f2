//! Removes elementwise nodes that do nothing, and writes others in a cheaper form that gives the same bits.
//!
//! ```text
//! constant %1 : f32[] = 1.0
//! %2 = mul %0, %1 : f32[4]   →   (%0)
//! ```
//!
//! Each rule holds for every element: NaN, infinities and both zeros too. So `x + 0` stays for floats, because it makes +0 of -0,
//! while `x + -0` and `x - 0` go. One rule is more exact than what it replaces: `pow(x, 2)` becomes `x · x`.

use mcc_support::tensor::Number;
use mcc_support::{DType, Shape};

use super::Pass;
use crate::graph::edit::Edit;
use crate::graph::{BinaryFn, Graph, Node, Op, ReduceFn, UnaryFn, ValueId};

pub static PASS: Pass =
    Pass { name: "simplify-identities", doc: "remove elementwise nodes that do nothing, cheapen others", required: false, run };

/// What a node becomes.
enum Simpler {
    /// This value, broadcast where the result is larger.
    Value(ValueId),
    Node(Op, Vec<ValueId>),
    /// A binary node whose second operand is a scalar constant.
    Scalar(BinaryFn, ValueId, f64),
}

fn run(edit: &mut Edit) {
    for id in edit.order() {
        if !edit.is_live(id) {
            continue;
        }
        let node = edit.graph().node(id);
        let result = node.results[0];
        let Some(simpler) = simplify(edit.graph(), node) else { continue };
        let ty = edit.graph().ty(result).clone();
        edit.replace(result, &[], |edit| match simpler {
            Simpler::Value(value) => edit.broadcast(value, ty.shape),
            Simpler::Node(op, operands) => edit.add(op, &operands),
            Simpler::Scalar(function, x, constant) => {
                let constant = edit.scalar(ty.dtype, constant);
                edit.binary(function, x, constant)
            }
        });
    }
}

fn simplify(graph: &Graph, node: &Node) -> Option<Simpler> {
    match &node.op {
        Op::Unary(function) => unary(graph, *function, node.operands[0]),
        Op::Binary(function) => {
            drop_broadcast(graph, node).or_else(|| binary(graph, *function, node.operands[0], node.operands[1]))
        }
        Op::Select => select(graph, node).or_else(|| drop_broadcast(graph, node)),
        Op::Cast(dtype) => cast(graph, *dtype, node.operands[0]),
        Op::Bitcast(dtype) => match graph.definition(node.operands[0]) {
            _ if graph.ty(node.operands[0]).dtype == *dtype => Some(Simpler::Value(node.operands[0])),
            Some((_, Node { op: Op::Bitcast(_), operands, .. })) => Some(Simpler::Node(node.op.clone(), operands.clone())),
            _ => None,
        },
        Op::Reduce { kind, axes } => reduce(graph, *kind, axes, node),
        _ => None,
    }
}

fn unary(graph: &Graph, function: UnaryFn, x: ValueId) -> Option<Simpler> {
    let (_, Node { op: Op::Unary(inner), operands, .. }) = graph.definition(x)? else { return None };
    match (function, inner) {
        (UnaryFn::Neg, UnaryFn::Neg) | (UnaryFn::Not, UnaryFn::Not) => Some(Simpler::Value(operands[0])),
        (UnaryFn::Abs, UnaryFn::Neg) => Some(Simpler::Node(Op::Unary(UnaryFn::Abs), operands.clone())),
        (UnaryFn::Abs, UnaryFn::Abs) | (UnaryFn::Sign, UnaryFn::Sign) => Some(Simpler::Value(x)),
        (
            UnaryFn::Floor | UnaryFn::Ceil | UnaryFn::Trunc | UnaryFn::Round,
            UnaryFn::Floor | UnaryFn::Ceil | UnaryFn::Trunc | UnaryFn::Round,
        ) => Some(Simpler::Value(x)),
        _ => None,
    }
}

/// The element of which a constant is full.
fn uniform(graph: &Graph, value: ValueId) -> Option<Number> {
    let tensor = graph.constant(value)?;
    if tensor.count() == 0 {
        return None;
    }
    let first = tensor.number(0);
    tensor.numbers().all(|number| is_same(number, first)).then_some(first)
}

fn is_same(a: Number, b: Number) -> bool {
    match (a, b) {
        (Number::Float(a), Number::Float(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

fn binary(graph: &Graph, function: BinaryFn, a: ValueId, b: ValueId) -> Option<Simpler> {
    let dtype = graph.ty(a).dtype;
    if let Some(constant) = uniform(graph, b)
        && let Some(simpler) = with_constant(function, dtype, a, constant)
    {
        return Some(simpler);
    }
    let commutes = matches!(
        function,
        BinaryFn::Add | BinaryFn::Mul | BinaryFn::Min | BinaryFn::Max | BinaryFn::And | BinaryFn::Or | BinaryFn::Xor
    );
    if commutes && let Some(constant) = uniform(graph, a) {
        return with_constant(function, dtype, b, constant);
    }
    let is_idempotent = matches!(function, BinaryFn::And | BinaryFn::Or | BinaryFn::Min | BinaryFn::Max);
    (is_idempotent && a == b).then_some(Simpler::Value(a))
}

/// `x` with the same constant for every element.
fn with_constant(function: BinaryFn, dtype: DType, x: ValueId, constant: Number) -> Option<Simpler> {
    let float = dtype.is_float();
    let is = |value: f64| is_same(constant, if float { Number::Float(value) } else { Number::Int(value as i64) });
    // A `u64` is read as another kind of number.
    let is = |value: f64| is(value) || (dtype == DType::U64 && constant == Number::UInt(value as u64));
    let all_bits = match (constant, dtype) {
        (_, DType::Bool) => is(1.0),
        (Number::Int(value), _) => value == dtype.integer_range().1 as i64 && !dtype.is_signed() || value == -1,
        (Number::UInt(value), _) => value == u64::MAX,
        (Number::Float(_), _) => false,
    };
    let identity = match function {
        BinaryFn::Add => {
            if float {
                is(-0.0)
            } else {
                is(0.0)
            }
        }
        BinaryFn::Sub | BinaryFn::Shl | BinaryFn::Shr => is(0.0),
        BinaryFn::Mul | BinaryFn::Div | BinaryFn::Pow => is(1.0),
        BinaryFn::Min => is(f64::INFINITY) && float,
        BinaryFn::Max => is(f64::NEG_INFINITY) && float,
        BinaryFn::Or | BinaryFn::Xor => is(0.0),
        BinaryFn::And => all_bits,
        BinaryFn::Rem | BinaryFn::Mod | BinaryFn::Eq | BinaryFn::Lt | BinaryFn::Le => false,
    };
    if identity {
        return Some(Simpler::Value(x));
    }
    match (function, constant) {
        (BinaryFn::Pow, _) if is(2.0) => Some(Simpler::Node(Op::Binary(BinaryFn::Mul), vec![x, x])),
        (BinaryFn::Mul, Number::Float(-1.0)) => Some(Simpler::Node(Op::Unary(UnaryFn::Neg), vec![x])),
        // The reciprocal of a power of two is exact, and a product by it rounds as the quotient does.
        (BinaryFn::Div, Number::Float(divisor)) if is_power_of_two(divisor, dtype) => {
            Some(Simpler::Scalar(BinaryFn::Mul, x, 1.0 / divisor))
        }
        _ => None,
    }
}

/// A power of two, of either sign, that is a normal number of the dtype as its reciprocal is.
fn is_power_of_two(value: f64, dtype: DType) -> bool {
    let exponent_limit = match dtype {
        DType::F16 => 14,
        DType::F64 => 1022,
        _ => 126,
    };
    let exponent = ((value.to_bits() >> 52) & 0x7ff) as i64 - 1023;
    value.to_bits() & ((1 << 52) - 1) == 0 && exponent.abs() <= exponent_limit
}

fn select(graph: &Graph, node: &Node) -> Option<Simpler> {
    let [condition, then, otherwise] = node.operands[..] else { unreachable!("select has three operands") };
    if then == otherwise {
        return Some(Simpler::Value(then));
    }
    let chosen = uniform(graph, condition)?;
    Some(Simpler::Value(if chosen == Number::Int(1) { then } else { otherwise }))
}

/// Elementwise nodes broadcast by themselves.
fn drop_broadcast(graph: &Graph, node: &Node) -> Option<Simpler> {
    let ty = graph.ty(node.results[0]);
    for (at, &operand) in node.operands.iter().enumerate() {
        let Some((_, Node { op: Op::Broadcast(_), operands: inner, .. })) = graph.definition(operand) else { continue };
        let mut operands = node.operands.clone();
        operands[at] = inner[0];
        let join = |shape: Shape, &operand: &ValueId| shape.broadcast(&graph.ty(operand).shape);
        let shape = operands.iter().try_fold(Shape::scalar(), join);
        if shape.as_ref() == Some(&ty.shape) {
            return Some(Simpler::Node(node.op.clone(), operands));
        }
    }
    None
}

fn cast(graph: &Graph, to: DType, x: ValueId) -> Option<Simpler> {
    let through = graph.ty(x).dtype;
    if through == to {
        return Some(Simpler::Value(x));
    }
    let (_, Node { op: Op::Cast(_), operands, .. }) = graph.definition(x)? else { return None };
    let from = graph.ty(operands[0]).dtype;
    if !is_through_exact(from, through, to) {
        return None;
    }
    Some(if from == to { Simpler::Value(operands[0]) } else { Simpler::Node(Op::Cast(to), operands.clone()) })
}

/// Whether casting `from` to `through` and then `to` gives what casting at once gives.
fn is_through_exact(from: DType, through: DType, to: DType) -> bool {
    if from.is_integer() && through.is_integer() && to.is_integer() && to.size_bits() <= through.size_bits() {
        return true; // Low bits of low bits.
    }
    let is_held = match (from, through) {
        (DType::Bool, _) => true,
        (_, DType::Bool) => false,
        (from, through) if from.is_integer() && through.is_integer() => {
            let ((low, high), (least, greatest)) = (from.integer_range(), through.integer_range());
            least <= low && high <= greatest
        }
        (from, through) if from.is_float() => through.is_float() && holds_float(from, through),
        (from, through) => from.size_bits() - usize::from(from.is_signed()) <= precision_bits(through),
    };
    // To an integer, floats saturate (or are truncated to 32 bits first) and integers keep their low bits.
    let is_same_rule = !to.is_integer() || from == DType::Bool || from.is_float() == through.is_float();
    is_held && is_same_rule
}

fn holds_float(from: DType, through: DType) -> bool {
    let is_wide = |dtype| matches!(dtype, DType::F32 | DType::F64);
    from == through || through == DType::F64 || through == DType::F32 && !is_wide(from)
}

/// Integers of so many bits are exact (and in range) in a float type.
fn precision_bits(dtype: DType) -> usize {
    match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        DType::F64 => 53,
        _ => 0,
    }
}

/// A reduction of single elements. Not of sums of floats, which make +0 of -0.
fn reduce(graph: &Graph, kind: ReduceFn, axes: &[usize], node: &Node) -> Option<Simpler> {
    let x = graph.ty(node.operands[0]);
    let is_single = axes.iter().all(|&axis| x.shape[axis] == 1);
    let is_exact = kind != ReduceFn::Sum || !x.dtype.is_float();
    (is_single && is_exact).then(|| Simpler::Node(Op::Reshape(graph.ty(node.results[0]).shape.clone()), vec![node.operands[0]]))
}
