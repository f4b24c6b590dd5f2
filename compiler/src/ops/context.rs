//! What an operator's definition sees of its node: inputs as wires, attributes, versions. Everything asked for is noted, so that
//! an input or attribute which the definition does not know is an error and never ignored.

use std::cell::RefCell;

use mcc_support::{DType, Error, Result, Shape, Tensor, bug};

use super::{OpDef, dynamic};
use crate::graph::build::MAX_VALUE_BYTES;
use crate::graph::{Builder, Extent, Wire};
use crate::onnx::{Attributes, Node};

/// What the user should know of a node though it can be compiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeWarning {
    pub of_training: bool,
    pub message: String,
}

#[derive(Debug)]
pub struct NodeContext<'n, 'b> {
    builder: &'b Builder,
    node: &'n Node<'n>,
    def: &'static OpDef,
    attributes: Attributes<'n>,
    /// `None` for an input that is left out.
    inputs: Vec<Option<Wire<'b>>>,
    /// Per input.
    read: RefCell<Vec<bool>>,
    warnings: RefCell<Vec<NodeWarning>>,
    is_repeated: bool,
}

impl<'n, 'b> NodeContext<'n, 'b> {
    /// `is_repeated` for a node in a graph that runs several times.
    pub fn new(
        builder: &'b Builder,
        node: &'n Node<'n>,
        def: &'static OpDef,
        inputs: Vec<Option<Wire<'b>>>,
        is_repeated: bool,
    ) -> Self {
        let read = RefCell::new(vec![false; inputs.len()]);
        Self { builder, node, def, attributes: node.attributes(), inputs, read, warnings: RefCell::default(), is_repeated }
    }

    pub fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    pub fn builder(&self) -> &'b Builder {
        self.builder
    }

    pub fn attributes(&self) -> &Attributes<'n> {
        &self.attributes
    }

    /// The version of the node's domain, not that of the operator: compare it with the versions at which the operator changed.
    pub fn version(&self) -> i64 {
        self.node.opset
    }

    /// Empty for the standard's own.
    pub fn domain(&self) -> &'static str {
        self.def.domain
    }

    /// Inputs that the node lists, those left out in between included.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    pub fn output_count(&self) -> usize {
        self.node.outputs.len()
    }

    pub fn wants_output(&self, index: usize) -> bool {
        self.node.outputs.get(index).is_some_and(|name| !name.is_empty())
    }

    /// Notes that the node does what it does in training, which a model that is used does only by mistake.
    pub fn warn_of_training(&self, what: &str) {
        self.warnings.borrow_mut().push(NodeWarning { of_training: true, message: format!("it is in training mode: {what}") });
    }

    /// An error about this node.
    pub fn error(&self, message: impl Into<String>) -> Error {
        self.attributes.error(message)
    }

    /// Notes what the user should know of this node though it can be compiled.
    pub fn warn(&self, message: impl Into<String>) {
        self.warnings.borrow_mut().push(NodeWarning { of_training: false, message: message.into() });
    }

    /// What was noted.
    pub fn into_warnings(self) -> Vec<NodeWarning> {
        self.warnings.into_inner()
    }

    pub fn input(&self, index: usize) -> Result<Wire<'b>> {
        self.optional(index).ok_or_else(|| self.error(format!("input {index} is missing")))
    }

    pub fn optional(&self, index: usize) -> Option<Wire<'b>> {
        let wire = *self.inputs.get(index)?;
        self.read.borrow_mut()[index] = true;
        wire
    }

    /// The inputs from `first` on, none of which may be left out.
    pub fn inputs_from(&self, first: usize) -> Result<Vec<Wire<'b>>> {
        (first..self.inputs.len()).map(|index| self.input(index)).collect()
    }

    /// An input of one element, as a scalar.
    pub fn optional_scalar(&self, index: usize) -> Result<Option<Wire<'b>>> {
        let Some(wire) = self.optional(index) else { return Ok(None) };
        let ty = wire.ty();
        if ty.shape.checked_count() != Some(1) {
            return Err(self.error(format!("input {index} '{}' must have one element, not {ty}", self.node.inputs[index])));
        }
        Ok(Some(wire.reshape(Shape::scalar())))
    }

    /// The value of an input of [`OpDef::shape_inputs`].
    pub fn constant(&self, index: usize) -> Result<Tensor> {
        self.optional_constant(index)?.ok_or_else(|| self.error(format!("input {index} is missing")))
    }

    /// The value of an input of [`OpDef::shape_inputs`], unless it is left out.
    pub fn optional_constant(&self, index: usize) -> Result<Option<Tensor>> {
        if !self.def.shape_inputs.contains(&index) {
            bug!("input {index} of {:?} is not declared to determine shapes", self.def);
        }
        let Some(wire) = self.optional(index) else { return Ok(None) };
        match wire.constant() {
            Some(tensor) => Ok(Some(tensor)),
            None => Err(self.not_known(index, wire, false)),
        }
    }

    /// As [`optional_ints`](Self::optional_ints), where extents that are known only at run time are known as such.
    pub fn optional_extents(&self, index: usize) -> Result<Option<Vec<Extent>>> {
        let elements = self.inputs.get(index).copied().flatten().and_then(Wire::elements);
        let elements = elements.or_else(|| self.bounded_elements(index));
        match elements {
            Some(elements) if self.def.shape_inputs.contains(&index) => {
                self.optional(index);
                Ok(Some(elements))
            }
            _ => {
                if let Some(wire) = self.optional(index).filter(|wire| wire.constant().is_none()) {
                    return Err(self.not_known(index, wire, bounded_count(wire).is_some()));
                }
                Ok(self.optional_ints(index)?.map(|ints| ints.into_iter().map(Extent::from).collect()))
            }
        }
    }

    /// The elements of an input whose greatest values the user states.
    fn bounded_elements(&self, index: usize) -> Option<Vec<Extent>> {
        let wire = self.inputs.get(index).copied().flatten()?;
        let name = self.node.inputs.get(index)?;
        let count = bounded_count(wire)?;
        let most = self.builder.most_elements(name)?;
        let most: Vec<usize> = (0..count).map(|at| most[at.min(most.len() - 1)]).collect();
        Some(self.builder.counts(name, wire, &most))
    }

    /// The greatest length of an output that is as long as the data say, where the user states it; else `all`.
    pub fn most_elements(&self, output: usize, all: usize) -> usize {
        let name = self.node.outputs.get(output).map_or("", String::as_str);
        self.builder.most_elements(name).and_then(|most| most.first().copied()).map_or(all, |most| most.min(all))
    }

    /// The name of an output, which no other value of the model has.
    pub fn output_name(&self, output: usize) -> &str {
        self.node.outputs.get(output).map_or("", String::as_str)
    }

    /// The name of the first output that has one.
    pub fn first_output(&self) -> &str {
        self.node.first_output()
    }

    pub fn extents(&self, index: usize) -> Result<Vec<Extent>> {
        self.optional_extents(index)?.ok_or_else(|| self.error(format!("input {index} is missing")))
    }

    /// Fails where an extent along one of these axes is known only at run time.
    pub fn expect_whole(&self, wire: Wire<'b>, axes: impl IntoIterator<Item = usize>) -> Result<()> {
        let of = wire.axes();
        match axes.into_iter().find(|&axis| of.get(axis).is_some_and(|of| !of.is_whole())) {
            Some(axis) => Err(self.error(format!(
                "{} does not take axis {axis} of {}, whose extent is known only at run time",
                self.def.name,
                self.builder.type_text(wire)
            ))),
            None => Ok(()),
        }
    }

    /// The elements of an integer input of [`OpDef::shape_inputs`], of any rank.
    pub fn constant_ints(&self, index: usize) -> Result<Vec<i64>> {
        self.optional_ints(index)?.ok_or_else(|| self.error(format!("input {index} is missing")))
    }

    pub fn optional_ints(&self, index: usize) -> Result<Option<Vec<i64>>> {
        let Some(tensor) = self.optional_constant(index)? else { return Ok(None) };
        self.ints(index, &tensor).map(Some)
    }

    /// The only element of an integer input of [`OpDef::shape_inputs`].
    pub fn constant_int(&self, index: usize) -> Result<i64> {
        self.optional_int(index)?.ok_or_else(|| self.error(format!("input {index} is missing")))
    }

    pub fn optional_int(&self, index: usize) -> Result<Option<i64>> {
        let Some(values) = self.optional_ints(index)? else { return Ok(None) };
        match values[..] {
            [value] => Ok(Some(value)),
            _ => Err(self.error(format!(
                "input {index} '{}' must have one element, not {}",
                self.node.inputs[index],
                values.len()
            ))),
        }
    }

    fn ints(&self, index: usize, tensor: &Tensor) -> Result<Vec<i64>> {
        if !tensor.dtype().is_integer() {
            return Err(self.error(format!(
                "input {index} '{}' must hold integers, not {}",
                self.node.inputs[index],
                tensor.dtype()
            )));
        }
        Ok(tensor.numbers().map(|number| number.as_i64()).collect())
    }

    /// That an input is not known; `may_be_bounded` where the greatest values of its elements would do.
    fn not_known(&self, index: usize, wire: Wire<'b>, may_be_bounded: bool) -> Error {
        let name = &self.node.inputs[index];
        let error =
            self.error(format!("input {index} '{name}' must be known when the model is compiled, for it determines shapes"));
        let or_most = match may_be_bounded {
            true => format!(", or the greatest value of each of its elements with `--max-elements {name}=N,…`"),
            false => String::new(),
        };
        let sources = self.builder.inputs_of(wire);
        match &sources[..] {
            [] if wire.elements().is_some() => error.help(dynamic::HELP),
            [] => error,
            [source] if source == name => {
                error.help(format!("give its value with `--constant {source}=VALUE|FILE.npy`{or_most}"))
            }
            _ => error.help(format!(
                "it is computed from the values of {}: give them with `--constant NAME=VALUE|FILE.npy`{or_most}",
                sources.iter().map(|source| format!("'{source}'")).collect::<Vec<_>>().join(", ")
            )),
        }
    }

    /// An axis, which counts from the end where it is negative.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let from_end = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        from_end
            .and_then(|axis| usize::try_from(axis).ok())
            .filter(|&axis| axis < rank)
            .ok_or_else(|| self.error(format!("axis {axis} is outside of a tensor of rank {rank}")))
    }

    /// Distinct axes, in the order given.
    pub fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
        let result = axes.iter().map(|&axis| self.axis(axis, rank)).collect::<Result<Vec<_>>>()?;
        for (index, axis) in result.iter().enumerate() {
            if result[..index].contains(axis) {
                return Err(self.error(format!("axis {axis} is given twice in {axes:?}")));
            }
        }
        Ok(result)
    }

    /// The attribute `axis`, of a tensor of this rank.
    pub fn axis_attribute(&self, default: i64, rank: usize) -> Result<usize> {
        self.axis(self.attributes.int_or("axis", default)?, rank)
    }

    /// A number from the file as an extent or an amount.
    pub fn size(&self, what: &str, value: i64) -> Result<usize> {
        usize::try_from(value).map_err(|_| self.error(format!("{what} {value} is negative")))
    }

    /// A product of numbers from the file, where no value of that many bytes would be too large.
    pub fn count(&self, what: &str, factors: &[usize]) -> Result<usize> {
        let count = factors.iter().try_fold(1usize, |product, &factor| product.checked_mul(factor));
        count.filter(|&count| count <= MAX_VALUE_BYTES).ok_or_else(|| {
            let factors: Vec<String> = factors.iter().map(usize::to_string).collect();
            self.error(format!("{what} are {}, which is too many", factors.join(" · ")))
        })
    }

    /// Fails unless the dtype of a value is one that the operator takes.
    pub fn expect_dtype(&self, wire: Wire<'b>, what: &str, accepts: fn(DType) -> bool) -> Result<()> {
        if accepts(wire.dtype()) { Ok(()) } else { Err(self.error(format!("the operand must be {what}, not {}", wire.dtype()))) }
    }

    /// To be called when the operator is built: fails where it did not ask for an input or an attribute that the node has.
    pub fn finish(&self) -> Result<()> {
        let read = self.read.borrow();
        if let Some(index) = (0..self.inputs.len()).find(|&index| self.inputs[index].is_some() && !read[index]) {
            let name = &self.node.inputs[index];
            return Err(self.error(format!("{} has no input {index} ('{name}') in opset {}", self.def.name, self.version())));
        }
        self.attributes.finish()
    }
}

/// How many elements of a value the user may state the greatest values of; `None` where not of any.
fn bounded_count(wire: Wire<'_>) -> Option<usize> {
    wire.shape().checked_count().filter(|&count| wire.dtype().is_integer() && !wire.is_bounded() && count > 0)
}
