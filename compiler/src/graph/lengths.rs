//! Extents of inputs and outputs that are known only when a graph runs.
//!
//! A value has room for its greatest extents. Callers hold dense tensors with the extents of the run: [`Lengths::expand`] and
//! [`Lengths::contract`] go between the two.

use mcc_support::{DType, Result, Shape, Tensor, TensorType, bail, ensure};

use super::Graph;

/// An extent with its bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    pub name: String,
    pub min: usize,
    pub max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// What the run is told, by its place in [`Lengths::dims`].
    Dim(usize),
    /// What the run finds, by its place in [`Lengths::counts`].
    Count(usize),
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lengths {
    /// The last inputs of the graph, each an `i64[]`.
    pub dims: Vec<Symbol>,
    /// Outputs behind all others but the checks, each an `i64[]`.
    pub counts: Vec<Symbol>,
    /// The last outputs of the graph, each an `i64[]`: where one is not within its bounds, the run has no result.
    pub checks: Vec<Symbol>,
    /// Of each other input, for each axis; empty where all of its extents are fixed.
    pub inputs: Vec<Vec<Option<Length>>>,
    pub outputs: Vec<Vec<Option<Length>>>,
}

impl Lengths {
    /// Whether an extent is known only at run time.
    pub fn any(&self) -> bool {
        !self.dims.is_empty() || !self.counts.is_empty() || !self.checks.is_empty()
    }

    /// The place among the dims and the counts behind them.
    pub fn symbol(&self, length: Length) -> usize {
        match length {
            Length::Dim(dim) => dim,
            Length::Count(count) => self.dims.len() + count,
        }
    }

    /// Of an input or an output, by axis.
    pub fn of(list: &[Vec<Option<Length>>], place: usize, axis: usize) -> Option<Length> {
        list.get(place)?.get(axis).copied().flatten()
    }

    /// The extents of a run with inputs of these shapes.
    ///
    /// # Errors
    ///
    /// Shapes that differ from the model's, and extents that are outside of their bounds.
    pub fn dims_of(&self, inputs: &[(&str, &TensorType)], given: &[&TensorType]) -> Result<Vec<usize>> {
        let mut dims: Vec<Option<usize>> = vec![None; self.dims.len()];
        for (place, ((name, ty), given)) in inputs.iter().zip(given).enumerate() {
            let wrong = given.dtype != ty.dtype || given.rank() != ty.rank();
            ensure!(!wrong, "input '{name}' is {ty}, given is {given}");
            for (axis, (&extent, &most)) in given.shape.iter().zip(ty.shape.iter()).enumerate() {
                let Some(Length::Dim(dim)) = Self::of(&self.inputs, place, axis) else {
                    ensure!(extent == most, "input '{name}' is {ty}, given is {given}");
                    continue;
                };
                let symbol = &self.dims[dim];
                ensure!(
                    (symbol.min..=symbol.max).contains(&extent) && dims[dim].is_none_or(|other| other == extent),
                    "axis {axis} of input '{name}' is '{}', from {} to {} and the same everywhere, given is {given}",
                    symbol.name,
                    symbol.min,
                    symbol.max
                );
                dims[dim] = Some(extent);
            }
        }
        match dims.iter().position(Option::is_none) {
            Some(dim) => bail!("no input has the dimension '{}'", self.dims[dim].name),
            None => Ok(dims.into_iter().flatten().collect()),
        }
    }

    fn counts_from(&self, counts: &[Tensor]) -> Vec<usize> {
        counts.iter().map(|count| usize::try_from(count.number(0).as_i64()).unwrap_or(0)).collect()
    }

    /// The shape of an output in a run.
    pub fn shape_of(&self, output: usize, ty: &TensorType, dims: &[usize], counts: &[usize]) -> Shape {
        let extent = |(axis, &most): (usize, &usize)| match Self::of(&self.outputs, output, axis) {
            Some(Length::Dim(dim)) => dims[dim],
            Some(Length::Count(count)) => counts[count].min(most),
            None => most,
        };
        ty.shape.iter().enumerate().map(extent).collect()
    }
}

impl Graph {
    /// The graph's inputs and outputs without dims and counts.
    pub fn tensor_inputs(&self) -> &[(String, super::ValueId)] {
        &self.inputs[..self.inputs.len() - self.lengths.dims.len()]
    }

    /// Whether a run is told the extent of an axis of an input.
    pub fn told(&self, input: &str, axis: usize) -> bool {
        let place = self.tensor_inputs().iter().position(|(name, _)| name == input);
        place.is_some_and(|place| Lengths::of(&self.lengths.inputs, place, axis).is_some())
    }

    pub fn tensor_outputs(&self) -> &[(String, super::ValueId)] {
        &self.outputs[..self.outputs.len() - self.lengths.counts.len() - self.lengths.checks.len()]
    }

    /// A value for each input of the graph from the tensors that a caller holds; what does not exist is filled so that it shows.
    pub fn expand(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>> {
        if !self.lengths.any() {
            return Ok(tensors.to_vec());
        }
        let inputs: Vec<_> = self.tensor_inputs().iter().map(|(name, value)| (name.as_str(), self.ty(*value))).collect();
        ensure!(tensors.len() == inputs.len(), "{} inputs where the model has {}", tensors.len(), inputs.len());
        let dims = self.lengths.dims_of(&inputs, &tensors.iter().map(Tensor::ty).collect::<Vec<_>>())?;
        let widened = tensors.iter().zip(&inputs).map(|(tensor, (_, ty))| widen(tensor, ty));
        let dims = dims.iter().map(|&dim| Tensor::scalar(dim as i64));
        Ok(widened.chain(dims).collect())
    }

    /// What a caller gets of the values of the graph's outputs, for these inputs of the caller.
    ///
    /// # Errors
    ///
    /// An extent that outgrew its bound.
    pub fn contract(&self, tensors: &[Tensor], outputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        if !self.lengths.any() {
            return Ok(outputs);
        }
        let inputs: Vec<_> = self.tensor_inputs().iter().map(|(name, value)| (name.as_str(), self.ty(*value))).collect();
        let given: Vec<_> = tensors.iter().map(Tensor::ty).collect();
        let dims = self.lengths.dims_of(&inputs, &given).expect("inputs that were expanded");
        let (values, counts) = outputs.split_at(self.tensor_outputs().len());
        let (counts, checks) = counts.split_at(self.lengths.counts.len());
        for (symbol, value) in self.lengths.checks.iter().zip(checks) {
            let value = value.number(0).as_i64();
            let fits = (symbol.min as i64..=symbol.max as i64).contains(&value);
            ensure!(fits, "'{}' is {value}, not from {} to {}", symbol.name, symbol.min, symbol.max);
        }
        let counts = self.lengths.counts_from(counts);
        let narrowed =
            |(place, value): (usize, &Tensor)| narrow(value, &self.lengths.shape_of(place, value.ty(), &dims, &counts));
        Ok(values.iter().enumerate().map(narrowed).collect())
    }
}

/// Copies the elements that both shapes have.
fn copy(from: &Tensor, to_shape: &Shape, to: &mut [u8]) {
    let (bytes, strides) = (from.dtype().size_bytes(), [from.shape().strides(), to_shape.strides()]);
    let common: Shape = from.shape().iter().zip(to_shape.iter()).map(|(a, b)| *a.min(b)).collect();
    common.for_each_index(|index| {
        let [source, target] =
            [&strides[0], &strides[1]].map(|strides| bytes * index.iter().zip(strides).map(|(i, s)| i * s).sum::<usize>());
        to[target..target + bytes].copy_from_slice(&from.data()[source..source + bytes]);
    });
}

fn widen(tensor: &Tensor, ty: &TensorType) -> Tensor {
    if tensor.ty() == ty {
        return tensor.clone();
    }
    // NaN in floats, and integers that no index may be; a `bool` must be one.
    let byte = if ty.dtype == DType::Bool { 1 } else { 0xff };
    let mut data = vec![byte; ty.size_bytes()];
    copy(tensor, &ty.shape, &mut data);
    Tensor::new(ty.clone(), data)
}

fn narrow(tensor: &Tensor, shape: &Shape) -> Tensor {
    if tensor.shape() == shape {
        return tensor.clone();
    }
    let ty = TensorType::new(tensor.dtype(), shape.clone());
    let mut data = vec![0; ty.size_bytes()];
    copy(tensor, shape, &mut data);
    Tensor::new(ty, data)
}
