//! What the builder knows of extents and small integer values that are known only at run time.

use std::collections::{BTreeMap, BTreeSet};

use mcc_support::tensor::Number;
use mcc_support::{DType, Error, Result, Shape, Tensor, TensorType};

use super::axes::{self, Axis};
use super::build::{Builder, Wire};
use super::extent::{Atom, AtomId, Atoms, Extent};
use super::lengths::{Length, Lengths, Symbol};
use super::op::{BinaryFn, Op, ReduceFn, UnaryFn};
use super::{Def, Graph, ValueId, infer, interp};

/// Elements of larger values are not followed.
const MAX_ELEMENTS: usize = 256;

#[derive(Debug, Default)]
pub struct Symbolic {
    /// What the user states of values, by their names.
    most: BTreeMap<String, Vec<usize>>,
    /// The names of which something asked for that.
    stated: BTreeSet<String>,
    atoms: Atoms,
    /// Of values with an axis that is not whole.
    axes: BTreeMap<ValueId, Vec<Axis>>,
    /// Of integers and `bool`s that are not constants.
    elements: BTreeMap<ValueId, Vec<Extent>>,
    /// The `i64[]` of extents that were asked for.
    wires: BTreeMap<Extent, ValueId>,
    dims: Vec<(Symbol, ValueId)>,
    counts: Vec<(Symbol, Extent, ValueId)>,
    checks: Vec<(Symbol, ValueId)>,
    /// By place among the inputs and the outputs.
    inputs: BTreeMap<usize, Vec<Option<Length>>>,
    outputs: BTreeMap<usize, Vec<Option<Length>>>,
}

impl Symbolic {
    /// States the lengths of inputs and outputs in the graph; dims become its last inputs, counts its last outputs.
    pub(super) fn finish(self, graph: &mut Graph) {
        if self.dims.is_empty() && self.counts.is_empty() && self.checks.is_empty() {
            return;
        }
        let list = |lengths: &BTreeMap<usize, Vec<Option<Length>>>, count: usize| {
            (0..count).map(|at| lengths.get(&at).cloned().unwrap_or_default()).collect()
        };
        let (inputs, outputs) = (list(&self.inputs, graph.inputs.len()), list(&self.outputs, graph.outputs.len()));
        graph.inputs.extend(self.dims.iter().map(|(symbol, value)| (symbol.name.clone(), *value)));
        graph.outputs.extend(self.counts.iter().map(|(symbol, _, value)| (symbol.name.clone(), *value)));
        graph.outputs.extend(self.checks.iter().map(|(symbol, value)| (symbol.name.clone(), *value)));
        graph.lengths = Lengths {
            checks: self.checks.into_iter().map(|(symbol, _)| symbol).collect(),
            dims: self.dims.into_iter().map(|(symbol, _)| symbol).collect(),
            counts: self.counts.into_iter().map(|(symbol, ..)| symbol).collect(),
            inputs,
            outputs,
        };
    }
}

impl Builder {
    /// States greatest lengths and elements of values, by their names.
    pub fn set_most_elements(&self, most: BTreeMap<String, Vec<usize>>) {
        self.state.borrow_mut().symbolic.most = most;
    }

    pub fn most_elements(&self, name: &str) -> Option<Vec<usize>> {
        let symbolic = &mut self.state.borrow_mut().symbolic;
        let most = symbolic.most.get(name).filter(|most| !most.is_empty()).cloned()?;
        symbolic.stated.insert(name.to_string());
        Some(most)
    }

    /// The names of values of which the user states what nothing asked for.
    pub fn unused_most_elements(&self) -> Vec<String> {
        let symbolic = &self.state.borrow().symbolic;
        symbolic.most.keys().filter(|name| !symbolic.stated.contains(*name)).cloned().collect()
    }

    /// An extent that a run is told, unless there is only one.
    pub fn dimension(&self, name: &str, min: usize, max: usize) -> Extent {
        if min == max {
            return Extent::from(max);
        }
        let value = self.define(TensorType::new(DType::I64, Shape::scalar()), Def::Input).value;
        let symbol = Symbol { name: name.to_string(), min, max };
        let mut state = self.state.borrow_mut();
        state.symbolic.dims.push((symbol, value));
        state.symbolic.atoms.symbol(name, value, (min as i64, max as i64))
    }

    /// An input whose extents are dimensions or known.
    pub fn bounded_input(&self, name: &str, dtype: DType, extents: &[Extent]) -> Wire<'_> {
        let axes: Vec<Axis> = extents.iter().map(|extent| Axis::new(self.most(extent), extent.clone())).collect();
        let shape: Shape = axes.iter().map(Axis::capacity).collect();
        let wire = self.input(name, TensorType::new(dtype, shape));
        let lengths = axes.iter().map(|axis| if axis.is_whole() { None } else { self.dimension_of(&axis.extent()) }).collect();
        {
            let mut state = self.state.borrow_mut();
            let place = state.graph.inputs.len() - 1;
            state.symbolic.inputs.insert(place, lengths);
        }
        self.with_axes(wire, axes)
    }

    /// Whether an extent is known only at run time.
    pub fn has_dimensions(&self) -> bool {
        !self.state.borrow().symbolic.axes.is_empty()
    }

    fn dimension_of(&self, extent: &Extent) -> Option<Length> {
        let state = self.state.borrow();
        let Atom::Symbol { value, .. } = state.symbolic.atoms.atom(extent.atom()?) else { return None };
        state.symbolic.dims.iter().position(|(_, dim)| dim == value).map(Length::Dim)
    }

    /// An extent that the run finds: an `i64[]`. A run where it is not within the bounds ends without a result, unless that `cannot`
    /// be.
    pub fn count<'b>(&'b self, name: &str, value: Wire<'b>, max: usize, cannot: bool) -> Extent {
        let limited = value.clamp(0.0, max as f64);
        if !cannot {
            self.require(name, value, (0, max));
        }
        let mut state = self.state.borrow_mut();
        let extent = state.symbolic.atoms.symbol(name, limited.value, (0, max as i64));
        state.symbolic.wires.insert(extent.clone(), limited.value);
        state.symbolic.elements.insert(limited.value, vec![extent.clone()]);
        extent
    }

    /// A run where an `i64[]` is not from `min` to `max` ends without a result.
    pub fn require<'b>(&'b self, name: &str, value: Wire<'b>, (min, max): (usize, usize)) {
        let symbol = Symbol { name: name.to_string(), min, max };
        self.state.borrow_mut().symbolic.checks.push((symbol, value.value));
    }

    /// The elements of an integer as extents that the run finds, each at most what is given for it.
    pub fn counts<'b>(&'b self, name: &str, values: Wire<'b>, most: &[usize]) -> Vec<Extent> {
        let flat = values.cast(DType::I64).reshape([most.len()]);
        let element = |(at, &max): (usize, &usize)| {
            let value = flat.slice_axis(0, at, 1).reshape(Shape::scalar());
            self.count(&format!("{name}_{at}"), value, max, false)
        };
        let elements: Vec<Extent> = most.iter().enumerate().map(element).collect();
        self.state.borrow_mut().symbolic.elements.insert(values.value, elements.clone());
        elements
    }

    /// Notes the lengths of the next output, whose elements that exist are made to be the first ones along each axis.
    pub(super) fn output_lengths<'b>(&'b self, name: &str, wire: Wire<'b>) -> Wire<'b> {
        let wire = wire.compacted();
        let mut lengths = Vec::new();
        for (at, axis) in wire.axes().iter().enumerate() {
            let extent = axis.extent();
            lengths.push(match self.dimension_of(&extent) {
                _ if axis.is_whole() => None,
                Some(dim) => Some(dim),
                None => Some(Length::Count(self.count_of(&format!("{name}_{at}"), &extent, axis.capacity()))),
            });
        }
        let mut state = self.state.borrow_mut();
        let place = state.graph.outputs.len();
        state.symbolic.outputs.insert(place, lengths);
        wire
    }

    /// Place among the counts.
    fn count_of(&self, name: &str, extent: &Extent, capacity: usize) -> usize {
        let value = self.extent_wire(extent).value;
        let counts = &mut self.state.borrow_mut().symbolic.counts;
        if let Some(place) = counts.iter().position(|(_, other, _)| other == extent) {
            return place;
        }
        counts.push((Symbol { name: name.to_string(), min: 0, max: capacity }, extent.clone(), value));
        counts.len() - 1
    }

    pub(super) fn with_axes<'b>(&'b self, wire: Wire<'b>, axes: Vec<Axis>) -> Wire<'b> {
        if !axes.iter().all(Axis::is_whole) {
            self.state.borrow_mut().symbolic.axes.insert(wire.value, axes);
        }
        wire
    }

    pub(super) fn known_wire(&self, extent: &Extent) -> Option<ValueId> {
        self.state.borrow().symbolic.wires.get(extent).copied()
    }

    pub(super) fn remember_wire(&self, extent: &Extent, wire: Wire<'_>) {
        let symbolic = &mut self.state.borrow_mut().symbolic;
        symbolic.wires.insert(extent.clone(), wire.value);
        if extent.known().is_none() {
            symbolic.elements.insert(wire.value, vec![extent.clone()]);
        }
    }

    /// These values are no longer there. Whether a run was to be ended by one of them.
    pub(super) fn forget_wires(&self, gone: &BTreeSet<ValueId>) -> bool {
        let symbolic = &mut self.state.borrow_mut().symbolic;
        symbolic.wires.retain(|_, value| !gone.contains(value));
        let checks = symbolic.checks.len();
        symbolic.checks.retain(|(_, value)| !gone.contains(value));
        symbolic.checks.len() < checks
    }

    /// Notes that an `i64[]` is no less than 0 and no more than a bound.
    pub(super) fn name_extent(&self, name: &str, wire: Wire<'_>, max: usize) {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let symbolic = &mut self.state.borrow_mut().symbolic;
        let extent = symbolic.atoms.symbol(name, wire.value, (0, max));
        symbolic.elements.insert(wire.value, vec![extent]);
    }

    /// The values that an extent is computed from.
    pub(super) fn symbols(&self, extent: &Extent) -> Vec<ValueId> {
        let atoms = extent.terms().flat_map(|(atoms, _)| atoms).copied().collect::<Vec<_>>();
        let of = |atom| match self.atom(atom) {
            Atom::Symbol { value, .. } => vec![value],
            Atom::Quotient(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => [self.symbols(&a), self.symbols(&b)].concat(),
        };
        atoms.into_iter().flat_map(of).collect()
    }

    pub(super) fn atom(&self, atom: AtomId) -> Atom {
        self.state.borrow().symbolic.atoms.atom(atom).clone()
    }

    /// The least and the greatest value that an extent can have.
    pub fn bounds(&self, extent: &Extent) -> (i64, i64) {
        self.state.borrow().symbolic.atoms.bounds(extent)
    }

    /// Room for an extent.
    pub fn most(&self, extent: &Extent) -> usize {
        usize::try_from(self.bounds(extent).1).unwrap_or(0)
    }

    pub fn extent_text(&self, extent: &Extent) -> String {
        self.state.borrow().symbolic.atoms.text(extent)
    }

    /// The quotient, rounded down.
    pub fn quotient(&self, a: &Extent, b: &Extent) -> Result<Extent> {
        let quotient = self.state.borrow_mut().symbolic.atoms.quotient(a, b);
        quotient.ok_or_else(|| Error::new(format!("{} may be divided by 0", self.extent_text(a))))
    }

    pub fn smaller(&self, a: &Extent, b: &Extent) -> Extent {
        self.state.borrow_mut().symbolic.atoms.min(a, b)
    }

    pub fn larger(&self, a: &Extent, b: &Extent) -> Extent {
        self.state.borrow_mut().symbolic.atoms.max(a, b)
    }

    /// `f32[1,2*seq,384]`.
    pub fn type_text(&self, wire: Wire<'_>) -> String {
        let extents: Vec<String> = wire.axes().iter().map(|axis| self.extent_text(&axis.extent())).collect();
        format!("{}[{}]", wire.dtype(), extents.join(","))
    }

    /// A vector of extents.
    pub fn extents_wire(&self, extents: &[Extent]) -> Wire<'_> {
        let known: Option<Vec<i64>> = extents.iter().map(Extent::known).collect();
        if let Some(known) = known {
            return self.constant(Tensor::from_elements([known.len()], &known));
        }
        let elements: Vec<Wire<'_>> = extents.iter().map(|extent| self.extent_wire(extent).reshape([1])).collect();
        self.concat(&elements, 0)
    }

    pub(super) fn with_elements<'b>(&'b self, wire: Wire<'b>, elements: Vec<Extent>) -> Wire<'b> {
        let ty = wire.ty();
        if elements.len() != ty.shape.count() {
            return wire;
        }
        if let Some(known) = elements.iter().map(Extent::known).collect::<Option<Vec<_>>>() {
            return self.constant(Tensor::from_numbers(ty, known.into_iter().map(Number::Int)));
        }
        self.state.borrow_mut().symbolic.elements.insert(wire.value, elements);
        wire
    }

    /// The elements of a result, where those of the operands say what they are.
    pub(super) fn result_elements(&self, op: &Op, operands: &[Wire<'_>]) -> Option<Vec<Extent>> {
        let symbolic = |operand: &Wire<'_>| self.state.borrow().symbolic.elements.contains_key(&operand.value);
        if !operands.iter().any(symbolic) {
            return None;
        }
        let x = || operands.first()?.elements();
        match op {
            Op::Cast(dtype) => self.exact(*dtype, x()?),
            Op::Unary(UnaryFn::Neg) => {
                self.exact(operands[0].dtype(), x()?.iter().map(|element| &Extent::default() - element).collect())
            }
            Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Concat { .. } | Op::Broadcast(_) => moved(op, operands),
            Op::Gather { .. } => {
                let indices = operands.get(1)?.constant()?;
                let data = operands[0];
                let (ids, pool) = numbered(&[data])?;
                let ty = infer::infer(op, &[ids[0].ty(), indices.ty()]).ok()?;
                Some(named(&interp::eval(op, &[&ids[0], &indices], &ty), &pool))
            }
            Op::Binary(function) => {
                let dtype = operands[0].dtype();
                let divides = matches!(function, BinaryFn::Div | BinaryFn::Mod | BinaryFn::Rem);
                let [a, b] = broadcast(operands)?.try_into().ok()?;
                let elements = a.iter().zip(&b).map(|(a, b)| self.element(*function, a, b)).collect::<Option<_>>()?;
                // What a comparison gives is a bool.
                let exact = if function.is_comparison() { Some(elements) } else { self.exact(dtype, elements) };
                exact.filter(|_| !(dtype.is_float() && divides))
            }
            Op::Select => {
                let [condition, then, otherwise] = broadcast(operands)?.try_into().ok()?;
                let choose = |at: usize| Some(if condition[at].known()? != 0 { then[at].clone() } else { otherwise[at].clone() });
                (0..condition.len()).map(choose).collect()
            }
            Op::Reduce { kind, axes } if axes.len() == operands[0].rank() && operands[0].dtype().is_integer() => {
                let elements = x()?;
                let (first, rest) = elements.split_first()?;
                let total = rest.iter().fold(first.clone(), |a, b| match kind {
                    ReduceFn::Sum => &a + b,
                    ReduceFn::Prod => &a * b,
                    ReduceFn::Max | ReduceFn::MaxNumber => self.larger(&a, b),
                    ReduceFn::Min => self.smaller(&a, b),
                });
                self.exact(operands[0].dtype(), vec![total])
            }
            _ => None,
        }
    }

    /// Elements that a dtype holds as they are: integers do not wrap, floats do not round.
    fn exact(&self, dtype: DType, elements: Vec<Extent>) -> Option<Vec<Extent>> {
        let (least, greatest) = match dtype {
            DType::Bool => (0, 1),
            dtype if dtype.is_integer() => dtype.integer_range(),
            dtype => greatest_exact(dtype).map(|greatest| (-i128::from(greatest), i128::from(greatest)))?,
        };
        let fits = |element: &Extent| {
            let (low, high) = self.bounds(element);
            least <= i128::from(low) && i128::from(high) <= greatest
        };
        elements.iter().all(fits).then_some(elements)
    }

    fn element(&self, function: BinaryFn, a: &Extent, b: &Extent) -> Option<Extent> {
        let (low, high) = self.bounds(&(a - b));
        let truth = |holds: bool, fails: bool| {
            if holds { Some(Extent::from(1i64)) } else { fails.then(Extent::default) }
        };
        // By 0 an op gives 0.
        let divide = || if self.bounds(a).0 >= 0 && self.bounds(b).0 >= 1 { self.quotient(a, b).ok() } else { None };
        match function {
            BinaryFn::Add => Some(a + b),
            BinaryFn::Sub => Some(a - b),
            BinaryFn::Mul => Some(a * b),
            BinaryFn::Div => divide(),
            BinaryFn::Mod | BinaryFn::Rem => Some(a - &(b * &divide()?)),
            BinaryFn::Min => Some(self.smaller(a, b)),
            BinaryFn::Max => Some(self.larger(a, b)),
            BinaryFn::Eq => truth(low == 0 && high == 0, low > 0 || high < 0),
            BinaryFn::Lt => truth(high < 0, low >= 0),
            BinaryFn::Le => truth(high <= 0, low > 0),
            _ => None,
        }
    }
}

/// Up to which a float holds every integer.
fn greatest_exact(dtype: DType) -> Option<i64> {
    match dtype {
        DType::F32 => Some(1 << 24),
        DType::F64 => Some(1 << 53),
        _ => None,
    }
}

/// Each element of some values numbered, and what the numbers stand for.
fn numbered(operands: &[Wire<'_>]) -> Option<(Vec<Tensor>, Vec<Extent>)> {
    let (mut tensors, mut pool) = (Vec::new(), Vec::new());
    for operand in operands {
        let elements = operand.elements()?;
        let ids: Vec<i64> = (pool.len() as i64..).take(elements.len()).collect();
        tensors.push(Tensor::from_elements(operand.shape(), &ids));
        pool.extend(elements);
    }
    Some((tensors, pool))
}

fn named(ids: &Tensor, pool: &[Extent]) -> Vec<Extent> {
    ids.elements::<i64>().into_iter().map(|id| pool[id as usize].clone()).collect()
}

fn moved(op: &Op, operands: &[Wire<'_>]) -> Option<Vec<Extent>> {
    let (tensors, pool) = numbered(operands)?;
    let types: Vec<&TensorType> = tensors.iter().map(Tensor::ty).collect();
    let ty = infer::infer(op, &types).ok()?;
    if ty.shape.checked_count()? > MAX_ELEMENTS {
        return None;
    }
    Some(named(&interp::eval(op, &tensors.iter().collect::<Vec<_>>(), &ty), &pool))
}

/// The elements of operands that are broadcast to one shape.
fn broadcast(operands: &[Wire<'_>]) -> Option<Vec<Vec<Extent>>> {
    let mut shape = Shape::scalar();
    for operand in operands {
        shape = shape.broadcast(&operand.shape())?;
    }
    operands.iter().map(|&operand| moved(&Op::Broadcast(shape.clone()), &[operand])).collect()
}

impl<'b> Wire<'b> {
    /// Whether an extent is known only at run time.
    pub fn is_bounded(self) -> bool {
        self.builder.state.borrow().symbolic.axes.contains_key(&self.value)
    }

    pub fn axes(self) -> Vec<Axis> {
        let shape = self.shape();
        let axes = self.builder.state.borrow().symbolic.axes.get(&self.value).cloned();
        axes.filter(|axes| axes.len() == shape.rank()).unwrap_or_else(|| axes::whole(&shape))
    }

    pub fn extents(self) -> Vec<Extent> {
        self.axes().iter().map(Axis::extent).collect()
    }

    /// Of an axis that the value has.
    pub fn extent(self, axis: usize) -> Extent {
        self.axes()[axis].extent()
    }

    /// The elements of an integer or `bool`, as far as is known before a run.
    pub fn elements(self) -> Option<Vec<Extent>> {
        if let Some(elements) = self.builder.state.borrow().symbolic.elements.get(&self.value) {
            return Some(elements.clone());
        }
        let tensor = if self.shape().count() <= MAX_ELEMENTS { self.constant()? } else { return None };
        let greatest = if self.dtype().is_float() { greatest_exact(self.dtype())? } else { i64::MAX };
        let element = |number: Number| match number {
            Number::Float(number) => {
                let integer = number as i64;
                (integer as f64 == number && integer.abs() <= greatest).then(|| Extent::from(integer))
            }
            number => Some(Extent::from(number.as_i64())),
        };
        tensor.numbers().map(element).collect()
    }

    /// The same elements, of which only those exist that are below the extents; capacities stay.
    pub fn limited(self, extents: &[Extent]) -> Wire<'b> {
        let shape = self.shape();
        let axes = shape.iter().zip(extents).map(|(&dim, extent)| Axis::new(dim, extent.clone())).collect();
        let same = self.builder.add_whole(Op::Reshape(shape), &[self]);
        self.builder.with_axes(same, axes)
    }

    /// As if all elements existed that there is room for.
    pub fn unlimited(self) -> Wire<'b> {
        if self.is_bounded() { self.builder.add_whole(Op::Reshape(self.shape()), &[self]) } else { self }
    }

    /// As [`limited`](Self::limited) along one axis.
    pub fn limited_along(self, axis: usize, extent: &Extent) -> Wire<'b> {
        let mut axes = self.axes();
        let Some(of) = axes.get_mut(axis) else { return self };
        *of = Axis::new(of.capacity(), extent.clone());
        let same = self.builder.add_whole(Op::Reshape(self.shape()), &[self]);
        self.builder.with_axes(same, axes)
    }

    /// The elements that exist, in their order, under another shape of as many.
    pub fn reshape_to(self, extents: &[Extent]) -> Wire<'b> {
        if let Some(axes) = axes::reshape_to(&self.axes(), extents) {
            let shape: Shape = axes.iter().map(Axis::capacity).collect();
            let reshaped = self.builder.add_whole(Op::Reshape(shape), &[self]);
            return self.builder.with_axes(reshaped, axes);
        }
        let capacities: Vec<usize> = extents.iter().map(|extent| self.builder.most(extent)).collect();
        self.regrouped(extents, &capacities)
    }

    /// As [`reshape_to`](Self::reshape_to), through the index of each element among those that exist.
    fn regrouped(self, extents: &[Extent], capacities: &[usize]) -> Wire<'b> {
        let builder = self.builder;
        let shape = Shape::new(capacities);
        let total = self.shape().count();
        if shape.checked_count().is_none() || total == 0 {
            return builder.fail(Error::new(format!("{} is reshaped to {shape} at most", builder.type_text(self))));
        }
        let mut linear = builder.constant(Tensor::scalar(0i64)).broadcast(shape.clone());
        for (axis, extent) in extents.iter().enumerate() {
            linear = linear * builder.extent_wire(extent) + builder.iota(DType::I64, shape.clone(), axis);
        }
        let factors: Vec<_> = self.axes().iter().flat_map(|axis| axis.factors().to_vec()).collect();
        let (mut place, mut rest, mut stride) = (None, linear, 1usize);
        for factor in factors.iter().rev() {
            let extent = builder.extent_wire(&factor.extent);
            let index = rest.binary(BinaryFn::Mod, extent) * stride as f64;
            place = Some(place.map_or(index, |place: Wire<'b>| place + index));
            rest = rest / extent;
            stride *= factor.capacity;
        }
        let axes: Vec<Axis> = capacities.iter().zip(extents).map(|(&dim, extent)| Axis::new(dim, extent.clone())).collect();
        let along: Vec<_> = axes.iter().cloned().enumerate().collect();
        let zero = linear.like(0.0);
        let place = place.unwrap_or(zero).min(linear.like(total as f64 - 1.0));
        let place = builder.exists(shape.rank(), &along).map_or(place, |exists| exists.select(place, zero));
        let flat = builder.add_whole(Op::Reshape(Shape::new([total])), &[self]);
        let result = builder.add_whole(Op::Gather { axis: 0 }, &[flat, place.broadcast(shape)]);
        builder.with_axes(result, axes)
    }

    /// With the elements that exist first along each axis.
    pub fn compacted(self) -> Wire<'b> {
        let axes = self.axes();
        if axes.iter().all(Axis::is_prefix) {
            return self;
        }
        let extents: Vec<Extent> = axes.iter().map(Axis::extent).collect();
        self.regrouped(&extents, &axes.iter().map(Axis::capacity).collect::<Vec<_>>())
    }

    /// Repeated along axes of extent 1, and along new outer ones, to these extents.
    pub fn broadcast_to(self, extents: &[Extent]) -> Wire<'b> {
        let (builder, axes) = (self.builder, self.axes());
        let missing = extents.len().saturating_sub(axes.len());
        let mut wanted = Vec::with_capacity(extents.len());
        for (axis, extent) in extents.iter().enumerate() {
            let own = axis.checked_sub(missing).map(|axis| &axes[axis]).filter(|own| own.extent() != Extent::from(1i64));
            wanted.push(match own {
                Some(own) if own.extent() == *extent => own.clone(),
                Some(own) => {
                    let [a, b] = [&own.extent(), extent].map(|extent| builder.extent_text(extent));
                    return builder.fail(Error::new(format!("an extent of {a} cannot be broadcast to {b}")));
                }
                None => Axis::new(builder.most(extent), extent.clone()),
            });
        }
        let shape: Shape = wanted.iter().map(Axis::capacity).collect();
        if shape == self.shape() && wanted == axes {
            return self;
        }
        let result = builder.add_whole(Op::Broadcast(shape), &[self]);
        builder.with_axes(result, wanted)
    }
}
