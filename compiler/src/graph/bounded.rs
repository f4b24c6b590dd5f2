//! Ops over values with extents that are known only at run time.
//!
//! The builder gives each result its axes, and keeps the elements that do not exist from influencing one that does: an op that
//! would read them along an axis gets an operand in which they are what changes nothing. All below is as if every extent were the
//! capacity.

use std::collections::BTreeMap;

use mcc_support::tensor::Number;
use mcc_support::{DType, Error, Result, Shape, Tensor, TensorType, bug};

use super::axes::{self, Axis};
use super::build::{Builder, Wire};
use super::extent::{Atom, Extent};
use super::op::{BinaryFn, Contraction, Conv, Op, PadMode, ReduceFn, SliceAxis, Window};

impl Builder {
    /// Adds a node of which an operand has an extent that is known only at run time.
    pub(super) fn add_bounded<'b>(&'b self, op: Op, operands: &[Wire<'b>]) -> Wire<'b> {
        match self.bounded(op, operands) {
            Ok((result, axes)) => self.with_axes(result, axes),
            Err(error) => self.fail(error),
        }
    }

    /// The result as if extents were capacities, and its axes.
    fn bounded<'b>(&'b self, op: Op, operands: &[Wire<'b>]) -> Result<(Wire<'b>, Vec<Axis>)> {
        let of: Vec<Vec<Axis>> = operands.iter().map(|operand| operand.axes()).collect();
        let whole = |op: Op, operands: &[Wire<'b>]| self.add_whole(op, operands);
        let x = operands.first().copied();
        let x = || x.expect("an op of bounded operands has operands");
        let axes = match &op {
            Op::Unary(_) | Op::Cast(_) | Op::Bitcast(_) => of[0].clone(),
            Op::Binary(_) | Op::Select => {
                let mut axes = of[0].clone();
                for other in &of[1..] {
                    axes = axes::broadcast(&axes, other).map_err(|(a, b)| self.differ(&a, &b))?;
                }
                axes
            }
            Op::Contract(_) | Op::Conv(_) | Op::Reduce { .. } | Op::ArgReduce { .. } | Op::Window { .. } | Op::Scan { .. } => {
                return self.reduced(&op, operands, &of);
            }
            Op::Reshape(shape) => axes::reshape(&of[0], shape).ok_or_else(|| {
                Error::new(format!("{} cannot be seen as {shape}: an extent is known only at run time", self.type_text(x())))
            })?,
            Op::Transpose(permutation) => permutation.iter().map(|&axis| of[0].get(axis).cloned().unwrap_or_default()).collect(),
            Op::Slice(slices) => self.sliced(slices, &of[0])?,
            Op::Pad { mode, amounts } => return self.padded(*mode, amounts, operands),
            Op::Concat { axis } => return self.joined(*axis, operands, &of),
            Op::Broadcast(shape) => axes::broadcast(&of[0], &axes::whole(shape)).map_err(|(a, b)| self.differ(&a, &b))?,
            Op::Gather { axis } => {
                let indices = self.indices_inside(operands[1], of[0].get(*axis));
                let axes = [&of[0][..*axis.min(&of[0].len())], &of[1], of[0].get(axis + 1..).unwrap_or_default()].concat();
                return Ok((whole(op.clone(), &[x(), indices]), axes));
            }
            Op::GatherElements { axis } => {
                let indices = self.indices_inside(operands[1], of[0].get(*axis));
                return Ok((whole(op.clone(), &[x(), indices]), of[1].clone()));
            }
            Op::BatchNorm { .. } => of[0].clone(),
            Op::Loop(_) | Op::If(_) => bug!("ops with bodies have several results"),
            Op::WindowArgMax(_) | Op::Iota { .. } => {
                return Err(Error::new("the places of maxima in images whose extent is known only at run time"));
            }
        };
        Ok((whole(op, operands), axes))
    }

    /// As [`bounded`](Self::bounded), of an op that combines elements.
    fn reduced<'b>(&'b self, op: &Op, operands: &[Wire<'b>], of: &[Vec<Axis>]) -> Result<(Wire<'b>, Vec<Axis>)> {
        let whole = |op: Op, operands: &[Wire<'b>]| self.add_whole(op, operands);
        let x = || operands[0];
        match op {
            Op::Contract(contraction) => {
                let axes = self.contracted(contraction, of)?;
                let operands = [(&contraction.lhs, operands[0]), (&contraction.rhs, operands[1])].map(|(labels, operand)| {
                    let summed = labels.iter().enumerate().filter(|(_, label)| !contraction.out.contains(label));
                    let summed: Vec<_> = summed.filter_map(|(at, label)| Some((at, axes.get(label)?.clone()))).collect();
                    self.masked_along(operand, &summed, zero(operand.dtype()))
                });
                let axes = contraction.out.iter().map(|label| axes.get(label).cloned().unwrap_or_default()).collect();
                Ok((whole(op.clone(), &operands), axes))
            }
            Op::Conv(conv) => {
                let spatial: Vec<usize> = (2..x().rank()).collect();
                let masked = self.masked(x(), &spatial, zero(x().dtype()));
                let result = whole(op.clone(), &[masked, operands[1]]);
                Ok((result, self.convolved(conv, of, &operands[1].shape(), &result.shape())?))
            }
            Op::Reduce { kind, axes: reduced } => {
                let axes = without(&of[0], reduced);
                Ok((whole(op.clone(), &[self.masked(x(), reduced, identity(*kind, x().dtype()))]), axes))
            }
            Op::ArgReduce { max, axis, .. } => {
                let axes = without(&of[0], &[*axis]);
                let Some(of_axis) = of[0].get(*axis).filter(|axis| !axis.is_whole()) else {
                    return Ok((whole(op.clone(), operands), axes));
                };
                self.expect_prefix(of_axis)?;
                let kind = if *max { ReduceFn::Max } else { ReduceFn::Min };
                let masked = self.masked(x(), &[*axis], identity(kind, x().dtype()));
                // Where nothing is better than the identity, the last of the equals is the last that exists.
                let last = self.extent_wire(&(&of_axis.extent() - &Extent::from(1i64)));
                let index = whole(op.clone(), &[masked]);
                Ok((index.min(last).max(index.like(0.0)), axes))
            }
            Op::Window { kind, window } => {
                let inner: Vec<usize> = (x().rank().saturating_sub(window.kernel.len())..x().rank()).collect();
                let result = whole(op.clone(), &[self.masked(x(), &inner, identity(*kind, x().dtype()))]);
                Ok((result, self.windowed(window, &of[0], &result.shape())?))
            }
            Op::Scan { kind, axis, reverse, .. } => {
                let along = if *reverse { &[*axis][..] } else { &[] };
                if let Some(of_axis) = of[0].get(*axis) {
                    self.expect_prefix(of_axis)?;
                }
                let masked = self.masked(x(), along, identity(*kind, x().dtype()));
                Ok((whole(op.clone(), &[masked]), of[0].clone()))
            }
            _ => bug!("{op:?} combines no elements"),
        }
    }

    /// An error about extents that must be equal.
    fn differ(&self, a: &Axis, b: &Axis) -> Error {
        let [a, b] = [a, b].map(|axis| self.extent_text(&axis.extent()));
        Error::new(format!("the extents {a} and {b} must be equal, which is not known when the model is compiled"))
    }

    fn expect_prefix(&self, axis: &Axis) -> Result<()> {
        if axis.is_prefix() {
            return Ok(());
        }
        Err(Error::new("an axis was made of several, one of which has an extent that is known only at run time"))
    }

    /// The axis of each label.
    fn contracted(&self, contraction: &Contraction, of: &[Vec<Axis>]) -> Result<BTreeMap<u8, Axis>> {
        let mut axes = BTreeMap::<u8, Axis>::new();
        for (labels, of) in [(&contraction.lhs, &of[0]), (&contraction.rhs, &of[1])] {
            for (&label, axis) in labels.iter().zip(of) {
                let joined = match axes.get(&label) {
                    Some(other) => other.join(axis).ok_or_else(|| self.differ(other, axis))?,
                    None => axis.clone(),
                };
                axes.insert(label, joined);
            }
        }
        Ok(axes)
    }

    fn convolved(&self, conv: &Conv, of: &[Vec<Axis>], kernel: &Shape, result: &Shape) -> Result<Vec<Axis>> {
        if !of[1].iter().all(Axis::is_whole) || of[0].get(1).is_some_and(|channels| !channels.is_whole()) {
            return Err(Error::new("a convolution whose weights or channels have an extent that is known only at run time"));
        }
        let mut axes = axes::whole(result);
        if axes.len() != of[0].len() {
            return Ok(axes);
        }
        axes[0] = of[0][0].clone();
        for (axis, of_axis) in of[0].iter().enumerate().skip(2).filter(|(_, of)| !of.is_whole()) {
            let at = axis - 2;
            let places = &(&of_axis.extent() - &Extent::from(1i64)) * &Extent::from(conv.input_dilations[at]);
            let pads = conv.pads[at].0.saturating_add(conv.pads[at].1);
            let padded = &(&places + &Extent::from(1i64)) + &Extent::from(pads);
            let count = self.places(of_axis, padded, kernel[axis], conv.dilations[at], conv.strides[at])?;
            axes[axis] = Axis::new(result[axis], count);
        }
        Ok(axes)
    }

    fn windowed(&self, window: &Window, of: &[Axis], result: &Shape) -> Result<Vec<Axis>> {
        let outer = of.len().saturating_sub(window.kernel.len());
        let mut axes = of.to_vec();
        for (axis, of_axis) in of.iter().enumerate().skip(outer).filter(|_| result.rank() == of.len()) {
            let at = axis - outer;
            axes[axis] = Axis::whole(result[axis]);
            if !of_axis.is_whole() {
                let pads = window.pads[at].0.saturating_add(window.pads[at].1);
                let padded = &of_axis.extent() + &Extent::from(pads);
                let count = self.places(of_axis, padded, window.kernel[at], window.dilations[at], window.strides[at])?;
                axes[axis] = Axis::new(result[axis], count);
            }
        }
        Ok(axes)
    }

    /// How many windows fit into an axis that is padded to an extent.
    fn places(&self, of: &Axis, padded: Extent, kernel: usize, dilation: usize, stride: usize) -> Result<Extent> {
        self.expect_prefix(of)?;
        let covered = Extent::from(kernel.saturating_sub(1).saturating_mul(dilation).saturating_add(1));
        let steps = self.quotient(&(&padded - &covered), &Extent::from(stride))?;
        Ok(self.larger(&(&steps + &Extent::from(1i64)), &Extent::default()))
    }

    fn sliced(&self, slices: &[SliceAxis], of: &[Axis]) -> Result<Vec<Axis>> {
        let slice = |(slice, axis): (&SliceAxis, &Axis)| {
            let is_whole = slice.start == 0 && slice.step == 1 && slice.count == axis.capacity();
            if is_whole || axis.is_whole() {
                return Ok(if is_whole { axis.clone() } else { Axis::whole(slice.count) });
            }
            self.expect_prefix(axis)?;
            if slice.step < 0 {
                return Err(Error::new("an axis whose extent is known only at run time is read backwards"));
            }
            let rest = &axis.extent() - &Extent::from(slice.start);
            let places = self.quotient(&(&rest + &Extent::from(slice.step - 1)), &Extent::from(slice.step))?;
            let count = self.smaller(&self.larger(&places, &Extent::default()), &Extent::from(slice.count));
            Ok(Axis::new(slice.count, count))
        };
        slices.iter().zip(of).map(slice).collect()
    }

    fn padded<'b>(&'b self, mode: PadMode, amounts: &[(usize, usize)], operands: &[Wire<'b>]) -> Result<(Wire<'b>, Vec<Axis>)> {
        let x = operands[0];
        let of = x.axes();
        let grown: Vec<usize> =
            (0..of.len()).filter(|&axis| !of[axis].is_whole() && amounts.get(axis).is_some_and(|&pads| pads != (0, 0))).collect();
        grown.iter().try_for_each(|&axis| self.expect_prefix(&of[axis]))?;
        if mode != PadMode::Constant && !grown.is_empty() {
            return Err(Error::new("an axis whose extent is known only at run time is padded with its own elements"));
        }
        let axes = of
            .iter()
            .zip(amounts)
            .map(|(axis, &(before, after))| {
                let added = before.saturating_add(after);
                if added == 0 {
                    return axis.clone();
                }
                Axis::new(axis.capacity().saturating_add(added), &axis.extent() + &Extent::from(added))
            })
            .collect();
        let op = Op::Pad { mode, amounts: amounts.to_vec() };
        if grown.is_empty() {
            return Ok((self.add_whole(op, operands), axes));
        }
        let along: Vec<_> = grown.iter().map(|&axis| (axis, of[axis].clone())).collect();
        let mask = self.exists(of.len(), &along).expect("an extent is known only at run time");
        let filled = self.add_whole(Op::Select, &[mask, x, operands[1]]);
        Ok((self.add_whole(op, &[filled, operands[1]]), axes))
    }

    /// A concatenation: operands follow where the one before ends.
    fn joined<'b>(&'b self, axis: usize, operands: &[Wire<'b>], of: &[Vec<Axis>]) -> Result<(Wire<'b>, Vec<Axis>)> {
        let mut axes = of[0].clone();
        for other in &of[1..] {
            for (at, joined) in axes.iter_mut().enumerate().filter(|(at, _)| *at != axis) {
                let Some(other) = other.get(at) else { break };
                let same = joined.capacity() == other.capacity();
                *joined = joined.join(other).filter(|_| same).ok_or_else(|| self.differ(joined, other))?;
            }
        }
        if of.iter().any(|of| of.len() != axes.len()) || axis >= axes.len() {
            return Ok((self.add_whole(Op::Concat { axis }, operands), axes));
        }
        of.iter().try_for_each(|of| self.expect_prefix(&of[axis]))?;
        let total = of.iter().fold(Extent::default(), |sum, of| &sum + &of[axis].extent());
        let capacity = of.iter().map(|of| of[axis].capacity()).sum();
        axes[axis] = Axis::new(capacity, total);
        let first = &of[..of.len() - 1];
        if first.iter().all(|of| of[axis].is_whole()) {
            return Ok((self.add_whole(Op::Concat { axis }, operands), axes));
        }
        // The place in the result, and in all operands behind one another with their capacities.
        let mut shape = vec![1; axes.len()];
        shape[axis] = capacity;
        let place = self.iota(DType::I64, shape, axis);
        let (mut source, mut start, mut offset) = (place, Extent::default(), 0usize);
        for of in first {
            start = &start + &of[axis].extent();
            offset += of[axis].capacity();
            let begin = self.extent_wire(&start);
            source = begin.le(place).select(place - begin + offset as f64, source);
        }
        let source = source.min(source.like(capacity as f64 - 1.0)).reshape([capacity]);
        let all = self.add_whole(Op::Concat { axis }, operands);
        Ok((self.add_whole(Op::Gather { axis }, &[all, source]), axes))
    }

    /// Indices into an axis: 0 where they do not exist, counted from the run-time end where they are negative.
    fn indices_inside<'b>(&'b self, indices: Wire<'b>, axis: Option<&Axis>) -> Wire<'b> {
        let all: Vec<usize> = (0..indices.rank()).collect();
        let indices = self.masked(indices, &all, Number::Int(0));
        let Some(axis) = axis.filter(|axis| !axis.is_whole()) else { return indices };
        if let Err(error) = self.expect_prefix(axis) {
            return self.fail(error);
        }
        let indices = indices.cast(DType::I64);
        let extent = self.extent_wire(&axis.extent());
        let wrapped = indices.lt(indices.like(0.0)).select(indices + extent, indices);
        let inside = wrapped.like(0.0).le(wrapped).and(wrapped.lt(extent));
        // What is outside of the extent is outside of the capacity.
        inside.select(wrapped, self.constant(Tensor::scalar(i64::MAX)))
    }

    /// The operand with `value` in place of the elements that do not exist along these axes.
    fn masked<'b>(&'b self, x: Wire<'b>, axes: &[usize], value: Number) -> Wire<'b> {
        let of = x.axes();
        let along: Vec<_> = axes.iter().filter_map(|&axis| Some((axis, of.get(axis)?.clone()))).collect();
        self.masked_along(x, &along, value)
    }

    fn masked_along<'b>(&'b self, x: Wire<'b>, axes: &[(usize, Axis)], value: Number) -> Wire<'b> {
        let Some(exists) = self.exists(x.rank(), axes) else { return x };
        let value = self.constant(Tensor::from_numbers(TensorType::new(x.dtype(), Shape::scalar()), [value]));
        self.add_whole(Op::Select, &[exists, x, value])
    }

    /// Whether elements exist along these axes of a value of this rank, in a shape that broadcasts to it; `None` where all do.
    pub fn exists(&self, rank: usize, axes: &[(usize, Axis)]) -> Option<Wire<'_>> {
        let mut mask: Option<Wire<'_>> = None;
        for (axis, of_axis) in axes.iter().filter(|(_, axis)| !axis.is_whole()) {
            let mut shape = vec![1; rank];
            shape[*axis] = of_axis.capacity();
            let place = self.iota(DType::I32, shape, *axis);
            let mut inner = of_axis.capacity();
            for (position, factor) in of_axis.factors().iter().enumerate() {
                inner /= factor.capacity.max(1);
                if factor.is_whole() {
                    continue;
                }
                let outer = if inner > 1 { place / inner as f64 } else { place };
                let index = if position > 0 { outer.binary(BinaryFn::Mod, outer.like(factor.capacity as f64)) } else { outer };
                let below = index.lt(self.extent_wire(&factor.extent).cast(DType::I32));
                mask = Some(mask.map_or(below, |mask| mask.and(below)));
            }
        }
        mask
    }

    /// The `i64[]` of an extent.
    pub fn extent_wire(&self, extent: &Extent) -> Wire<'_> {
        if let Some(value) = self.known_wire(extent) {
            return self.wire(value);
        }
        let mut sum: Option<Wire<'_>> = None;
        for (atoms, factor) in extent.terms() {
            let mut product: Option<Wire<'_>> = None;
            for &atom in atoms {
                let value = self.atom_wire(&self.atom(atom));
                product = Some(product.map_or(value, |product| product * value));
            }
            let factor_wire = self.constant(Tensor::scalar(factor));
            let product = match product {
                Some(product) if factor == 1 => product,
                Some(product) => product * factor_wire,
                None => factor_wire,
            };
            sum = Some(sum.map_or(product, |sum| sum + product));
        }
        let wire = sum.unwrap_or_else(|| self.constant(Tensor::scalar(0i64)));
        self.remember_wire(extent, wire);
        wire
    }

    fn atom_wire(&self, atom: &Atom) -> Wire<'_> {
        match atom {
            Atom::Symbol { value, .. } => self.wire(*value),
            Atom::Quotient(a, b) => {
                let (a, b) = (self.extent_wire(a), self.extent_wire(b));
                // Division truncates; what is subtracted makes it round down.
                (a - a.binary(BinaryFn::Mod, b)) / b
            }
            Atom::Min(a, b) => self.extent_wire(a).min(self.extent_wire(b)),
            Atom::Max(a, b) => self.extent_wire(a).max(self.extent_wire(b)),
        }
    }
}

fn without(axes: &[Axis], removed: &[usize]) -> Vec<Axis> {
    axes.iter().enumerate().filter(|(axis, _)| !removed.contains(axis)).map(|(_, axis)| axis.clone()).collect()
}

fn zero(dtype: DType) -> Number {
    if dtype.is_float() { Number::Float(0.0) } else { Number::Int(0) }
}

/// What changes nothing.
fn identity(kind: ReduceFn, dtype: DType) -> Number {
    let integer = |value: i128| if dtype == DType::U64 { Number::UInt(value as u64) } else { Number::Int(value as i64) };
    match (kind, dtype.is_float()) {
        (ReduceFn::Sum, true) => Number::Float(0.0),
        (ReduceFn::Prod, true) => Number::Float(1.0),
        (ReduceFn::Max | ReduceFn::MaxNumber, true) => Number::Float(f64::NEG_INFINITY),
        (ReduceFn::Min, true) => Number::Float(f64::INFINITY),
        (ReduceFn::Sum, false) => Number::Int(0),
        (ReduceFn::Prod, false) => Number::Int(1),
        // The operand's type is refused later where it has no numbers.
        (_, false) if !dtype.is_integer() => Number::Int(0),
        (ReduceFn::Max | ReduceFn::MaxNumber, false) => integer(dtype.integer_range().0),
        (ReduceFn::Min, false) => integer(dtype.integer_range().1),
    }
}
