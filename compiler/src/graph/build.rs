//! Builds a graph: adding a node infers its type, checks its operands and folds it where all of them are constants.
//!
//! Operators are written as formulas over [`Wire`]s. A formula cannot stop half-way, so the first mistake is kept in the builder
//! and what follows from it is void: whoever builds a node asks [`Builder::check`] at its end.

mod body;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use mcc_support::tensor::Number;
use mcc_support::{DType, Error, Result, Shape, Tensor, TensorType};

use super::op::{BinaryFn, Contraction, Conv, Op, PadMode, ReduceFn, SliceAxis, UnaryFn, Window};
use super::symbolic::Symbolic;
use super::{Def, Graph, Node, Origin, Value, ValueId, infer, interp};
pub use body::{Repeated, Round};

/// Largest value a graph may hold, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 31;

#[derive(Debug, Default)]
pub struct Builder {
    pub(super) state: RefCell<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) graph: Graph,
    /// Nodes that were taken into bodies.
    taken: usize,
    /// Given to every value that is made.
    origin: Origin,
    error: Option<Error>,
    pub(super) symbolic: Symbolic,
}

/// A value in a builder, copied freely.
#[derive(Clone, Copy)]
pub struct Wire<'b> {
    pub(super) builder: &'b Builder,
    pub value: ValueId,
}

impl fmt::Debug for Wire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.value, self.ty())
    }
}

impl Builder {
    pub fn new(name: impl Into<String>) -> Self {
        let builder = Self::default();
        builder.state.borrow_mut().graph.name = name.into();
        builder
    }

    /// Values made from now on come from here; returns where they came from before.
    pub fn set_origin(&self, origin: Origin) -> Origin {
        std::mem::replace(&mut self.state.borrow_mut().origin, origin)
    }

    /// The first mistake since the last call, if there was one.
    pub fn check(&self) -> Result<()> {
        self.state.borrow_mut().error.take().map_or(Ok(()), Err)
    }

    pub(super) fn define(&self, ty: TensorType, def: Def) -> Wire<'_> {
        let mut state = self.state.borrow_mut();
        let origin = state.origin.clone();
        Wire { builder: self, value: state.graph.values.push(Value { ty, def, origin }) }
    }

    pub fn input(&self, name: impl Into<String>, ty: TensorType) -> Wire<'_> {
        let wire = self.define(ty, Def::Input);
        self.state.borrow_mut().graph.inputs.push((name.into(), wire.value));
        wire
    }

    pub fn input_count(&self) -> usize {
        self.state.borrow().graph.inputs.len()
    }

    /// Forgets the inputs after the first so many, which nothing uses.
    pub fn truncate_inputs(&self, count: usize) {
        self.state.borrow_mut().graph.inputs.truncate(count);
    }

    pub fn output(&self, name: impl Into<String>, wire: Wire<'_>) {
        let name = name.into();
        let wire = if wire.is_bounded() { self.output_lengths(&name, wire) } else { wire };
        self.state.borrow_mut().graph.outputs.push((name, wire.value));
    }

    pub fn constant(&self, tensor: Tensor) -> Wire<'_> {
        self.define(tensor.ty().clone(), Def::Constant(tensor))
    }

    /// A scalar constant of any dtype.
    pub fn scalar(&self, dtype: DType, value: f64) -> Wire<'_> {
        let number = if dtype.is_float() { Number::Float(value) } else { Number::Int(value as i64) };
        self.constant(Tensor::from_numbers(TensorType::new(dtype, Shape::scalar()), [number]))
    }

    pub fn wire(&self, value: ValueId) -> Wire<'_> {
        Wire { builder: self, value }
    }

    /// Keeps a mistake for [`check`](Self::check) and gives a wire to go on with.
    pub fn fail(&self, error: Error) -> Wire<'_> {
        self.state.borrow_mut().error.get_or_insert(error);
        self.constant(Tensor::scalar(0.0f32))
    }

    /// Adds a node.
    pub fn add<'b>(&'b self, op: Op, operands: &[Wire<'b>]) -> Wire<'b> {
        let elements = self.result_elements(&op, operands);
        let result = if operands.iter().any(|operand| operand.is_bounded()) {
            self.add_bounded(op, operands)
        } else {
            self.add_whole(op, operands)
        };
        match elements {
            Some(elements) => self.with_elements(result, elements),
            None => result,
        }
    }

    /// Adds a node as if each extent were the capacity.
    pub(super) fn add_whole(&self, op: Op, operands: &[Wire<'_>]) -> Wire<'_> {
        if self.state.borrow().error.is_some() {
            return self.constant(Tensor::scalar(0.0f32));
        }
        let types: Vec<TensorType> = operands.iter().map(|wire| wire.ty()).collect();
        let ty = match infer::infer(&op, &types.iter().collect::<Vec<_>>()) {
            Ok(ty) => ty,
            Err(error) => return self.fail(error),
        };
        match ty.checked_size_bytes() {
            Some(size) if size <= MAX_VALUE_BYTES => {}
            _ => return self.fail(Error::new(format!("a value of type {ty} is larger than {} MiB", MAX_VALUE_BYTES >> 20))),
        }
        if let Some(tensor) = self.fold(&op, operands, &ty) {
            return self.constant(tensor);
        }
        let result = self.define(ty, Def::Input);
        let mut state = self.state.borrow_mut();
        let operands = operands.iter().map(|wire| wire.value).collect();
        let node = state.graph.nodes.push(Some(Node { op, operands, results: vec![result.value] }));
        state.graph.values[result.value].def = Def::Node { node, index: 0 };
        result
    }

    /// Adds a node of several results; where there was a mistake, none.
    fn add_all(&self, op: Op, operands: &[Wire<'_>]) -> Vec<Wire<'_>> {
        let types: Vec<TensorType> = operands.iter().map(|wire| wire.ty()).collect();
        let types = match infer::infer_all(&op, &types.iter().collect::<Vec<_>>()) {
            Ok(types) => types,
            Err(error) => {
                self.fail(error);
                return Vec::new();
            }
        };
        if let Some(ty) = types.iter().find(|ty| ty.checked_size_bytes().is_none_or(|size| size > MAX_VALUE_BYTES)) {
            self.fail(Error::new(format!("a value of type {ty} is larger than {} MiB", MAX_VALUE_BYTES >> 20)));
            return Vec::new();
        }
        let results: Vec<Wire<'_>> = types.into_iter().map(|ty| self.define(ty, Def::Input)).collect();
        let mut state = self.state.borrow_mut();
        let operands = operands.iter().map(|wire| wire.value).collect();
        let values: Vec<ValueId> = results.iter().map(|wire| wire.value).collect();
        let node = state.graph.nodes.push(Some(Node { op, operands, results: values.clone() }));
        values.iter().enumerate().for_each(|(index, &value)| state.graph.values[value].def = Def::Node { node, index });
        drop(state);
        results
    }

    fn fold(&self, op: &Op, operands: &[Wire<'_>], ty: &TensorType) -> Option<Tensor> {
        let operands = operands.iter().map(|wire| wire.constant()).collect::<Option<Vec<_>>>()?;
        let operands: Vec<&Tensor> = operands.iter().collect();
        interp::is_foldable(op, &operands, ty).then(|| interp::eval(op, &operands, ty))
    }

    /// Names of the inputs from which a value is computed, in their order.
    pub fn inputs_of(&self, wire: Wire<'_>) -> Vec<String> {
        let graph = &self.state.borrow().graph;
        let mut seen = BTreeSet::new();
        let mut waiting = vec![wire.value];
        while let Some(value) = waiting.pop() {
            // A value inside of a body that was taken out has no node here.
            if seen.insert(value)
                && let Def::Node { node, .. } = graph.values[value].def
                && let Some(node) = &graph.nodes[node]
            {
                waiting.extend(&node.operands);
            }
        }
        graph.inputs.iter().filter(|(_, input)| seen.contains(input)).map(|(name, _)| name.clone()).collect()
    }

    pub fn concat<'b>(&'b self, operands: &[Wire<'b>], axis: usize) -> Wire<'b> {
        if operands.len() == 1 { operands[0] } else { self.add(Op::Concat { axis }, operands) }
    }

    /// The index along `axis` in a value of this shape.
    pub fn iota(&self, dtype: DType, shape: impl Into<Shape>, axis: usize) -> Wire<'_> {
        self.add(Op::Iota { dtype, shape: shape.into(), axis }, &[])
    }

    pub fn finish(self) -> Graph {
        let State { mut graph, symbolic, .. } = self.state.into_inner();
        symbolic.finish(&mut graph);
        graph
    }

    /// Number of nodes that are there; those of bodies were taken out.
    pub fn live_count(&self) -> usize {
        let state = self.state.borrow();
        state.graph.nodes.len() - state.taken
    }

    /// Number of nodes so far, for those who want to know what an operator added.
    pub fn node_count(&self) -> usize {
        self.state.borrow().graph.nodes.len()
    }
}

impl<'b> Wire<'b> {
    pub fn builder(self) -> &'b Builder {
        self.builder
    }

    pub fn ty(self) -> TensorType {
        self.builder.state.borrow().graph.values[self.value].ty.clone()
    }

    pub fn dtype(self) -> DType {
        self.builder.state.borrow().graph.values[self.value].ty.dtype
    }

    pub fn shape(self) -> Shape {
        self.ty().shape
    }

    pub fn rank(self) -> usize {
        self.ty().rank()
    }

    /// The value, where it is known at compile time.
    pub fn constant(self) -> Option<Tensor> {
        self.builder.state.borrow().graph.constant(self.value).cloned()
    }

    pub fn unary(self, function: UnaryFn) -> Self {
        self.builder.add(Op::Unary(function), &[self])
    }

    pub fn binary(self, function: BinaryFn, other: Self) -> Self {
        self.builder.add(Op::Binary(function), &[self, other])
    }

    /// A scalar constant of this wire's dtype.
    pub fn like(self, value: f64) -> Self {
        self.builder.scalar(self.dtype(), value)
    }

    pub fn exp(self) -> Self {
        self.unary(UnaryFn::Exp)
    }

    pub fn log(self) -> Self {
        self.unary(UnaryFn::Log)
    }

    pub fn sqrt(self) -> Self {
        self.unary(UnaryFn::Sqrt)
    }

    pub fn abs(self) -> Self {
        self.unary(UnaryFn::Abs)
    }

    pub fn min(self, other: Self) -> Self {
        self.binary(BinaryFn::Min, other)
    }

    pub fn max(self, other: Self) -> Self {
        self.binary(BinaryFn::Max, other)
    }

    pub fn clamp(self, low: f64, high: f64) -> Self {
        self.max(self.like(low)).min(self.like(high))
    }

    pub fn pow(self, other: Self) -> Self {
        self.binary(BinaryFn::Pow, other)
    }

    pub fn eq(self, other: Self) -> Self {
        self.binary(BinaryFn::Eq, other)
    }

    pub fn lt(self, other: Self) -> Self {
        self.binary(BinaryFn::Lt, other)
    }

    pub fn le(self, other: Self) -> Self {
        self.binary(BinaryFn::Le, other)
    }

    /// Of `bool`s, or of the bits of integers.
    pub fn and(self, other: Self) -> Self {
        self.binary(BinaryFn::And, other)
    }

    /// Of a `bool`: `then` where it holds.
    pub fn select(self, then: Self, otherwise: Self) -> Self {
        self.builder.add(Op::Select, &[self, then, otherwise])
    }

    pub fn cast(self, dtype: DType) -> Self {
        if dtype == self.dtype() { self } else { self.builder.add(Op::Cast(dtype), &[self]) }
    }

    pub fn contract(self, other: Self, lhs: &str, rhs: &str, out: &str) -> Self {
        let contraction = Contraction { lhs: lhs.into(), rhs: rhs.into(), out: out.into() };
        self.builder.add(Op::Contract(contraction), &[self, other])
    }

    pub fn conv(self, weights: Self, conv: Conv) -> Self {
        self.builder.add(Op::Conv(conv), &[self, weights])
    }

    /// Reduces axes away.
    pub fn reduce(self, kind: ReduceFn, axes: &[usize]) -> Self {
        if axes.is_empty() {
            return self;
        }
        let mut axes = axes.to_vec();
        axes.sort_unstable();
        self.builder.add(Op::Reduce { kind, axes }, &[self])
    }

    /// Reduces axes to extent 1.
    pub fn reduce_keep(self, kind: ReduceFn, axes: &[usize]) -> Self {
        let shape: Shape =
            self.shape().iter().enumerate().map(|(axis, &dim)| if axes.contains(&axis) { 1 } else { dim }).collect();
        self.reduce(kind, axes).reshape(shape)
    }

    /// Of a `bool`: whether it holds anywhere along the axes, which are reduced away.
    pub fn any(self, axes: &[usize]) -> Self {
        self.cast(DType::I32).reduce(ReduceFn::Max, axes).cast(DType::Bool)
    }

    pub fn window(self, kind: ReduceFn, window: Window) -> Self {
        self.builder.add(Op::Window { kind, window }, &[self])
    }

    pub fn reshape(self, shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        if shape == self.shape() { self } else { self.builder.add(Op::Reshape(shape), &[self]) }
    }

    /// With a new axis of extent 1 before `axis`.
    pub fn insert_axis(self, axis: usize) -> Self {
        let mut shape = self.shape().into_dims();
        // What could not be made has no axes; the builder tells why.
        shape.insert(axis.min(shape.len()), 1);
        self.reshape(shape)
    }

    pub fn transpose(self, permutation: &[usize]) -> Self {
        if permutation.iter().copied().eq(0..self.rank()) {
            return self;
        }
        self.builder.add(Op::Transpose(permutation.to_vec()), &[self])
    }

    pub fn broadcast(self, shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        if shape == self.shape() { self } else { self.builder.add(Op::Broadcast(shape), &[self]) }
    }

    /// All axes, each with start, step and count.
    pub fn slice(self, axes: Vec<SliceAxis>) -> Self {
        let whole = |(axis, &dim): (&SliceAxis, &usize)| axis.start == 0 && axis.step == 1 && axis.count == dim;
        if axes.len() == self.rank() && axes.iter().zip(self.shape().iter()).all(whole) {
            return self;
        }
        self.builder.add(Op::Slice(axes), &[self])
    }

    /// Elements `start..start + count` of one axis.
    pub fn slice_axis(self, axis: usize, start: usize, count: usize) -> Self {
        if axis >= self.rank() {
            return self.builder.fail(Error::new(format!("there is no axis {axis} in {}", self.ty())));
        }
        let mut axes: Vec<SliceAxis> = self.shape().iter().map(|&dim| SliceAxis { start: 0, step: 1, count: dim }).collect();
        axes[axis] = SliceAxis { start, step: 1, count };
        self.slice(axes)
    }

    /// The part of an axis at an index (an integer scalar that is inside), without the axis.
    pub fn element(self, axis: usize, index: Self) -> Self {
        let Some(place) = index.constant().and_then(|place| usize::try_from(place.number(0).as_i64()).ok()) else {
            return self.gather(index, axis);
        };
        let mut shape = self.shape().into_dims();
        shape.remove(axis);
        self.slice_axis(axis, place, 1).reshape(shape)
    }

    /// Along an axis from its end.
    pub fn reversed(self, axis: usize) -> Self {
        let mut axes: Vec<SliceAxis> = self.shape().iter().map(|&dim| SliceAxis { start: 0, step: 1, count: dim }).collect();
        let count = axes[axis].count;
        axes[axis] = SliceAxis { start: count.saturating_sub(1), step: -1, count };
        self.slice(axes)
    }

    /// Pads with a constant.
    pub fn pad(self, amounts: &[(usize, usize)], value: Self) -> Self {
        if amounts.iter().all(|&amount| amount == (0, 0)) {
            return self;
        }
        self.builder.add(Op::Pad { mode: PadMode::Constant, amounts: amounts.to_vec() }, &[self, value])
    }

    pub fn gather(self, indices: Self, axis: usize) -> Self {
        self.builder.add(Op::Gather { axis }, &[self, indices])
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident $function:ident),*) => {$(
        impl<'b> std::ops::$trait<Wire<'b>> for Wire<'b> {
            type Output = Wire<'b>;
            fn $method(self, other: Wire<'b>) -> Wire<'b> { self.binary(BinaryFn::$function, other) }
        }
        impl<'b> std::ops::$trait<f64> for Wire<'b> {
            type Output = Wire<'b>;
            fn $method(self, other: f64) -> Wire<'b> { self.binary(BinaryFn::$function, self.like(other)) }
        }
        impl<'b> std::ops::$trait<Wire<'b>> for f64 {
            type Output = Wire<'b>;
            fn $method(self, other: Wire<'b>) -> Wire<'b> { other.like(self).binary(BinaryFn::$function, other) }
        }
    )*};
}
operator!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);

impl<'b> std::ops::Neg for Wire<'b> {
    type Output = Wire<'b>;
    fn neg(self) -> Wire<'b> {
        self.unary(UnaryFn::Neg)
    }
}

impl<'b> std::ops::Not for Wire<'b> {
    type Output = Wire<'b>;
    fn not(self) -> Wire<'b> {
        self.unary(UnaryFn::Not)
    }
}
