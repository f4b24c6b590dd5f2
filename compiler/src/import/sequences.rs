//! Sequences and optional values. They exist during import only: how many tensors a sequence holds, and which of them a node means, is
//! known there, so that a sequence is a list of values.

use mcc_support::{Error, Result, Tensor, ensure};

use super::control::MAX_NODES;
use super::{Importer, Item, Scope};
use crate::graph::Wire;
use crate::onnx::{Attributes, Node};

impl<'b> Importer<'b> {
    /// The results of an operator on sequences or optional values. `None` where an input could not be made.
    pub(super) fn sequence<'a>(&mut self, scope: &Scope<'_, 'a, 'b>, node: &'a Node<'a>) -> Result<Option<Vec<Item<'b>>>> {
        let Some(inputs) = self.items_of(scope, node) else { return Ok(None) };
        let attributes = node.attributes();
        let result = match node.operator {
            "SequenceMap" => {
                let results = self.map(scope, &attributes, &inputs)?;
                attributes.finish()?;
                return Ok(results);
            }
            "SequenceConstruct" => Item::List(tensors(&inputs)?),
            "SequenceEmpty" => {
                attributes.ignore("dtype");
                Item::List(Vec::new())
            }
            "SequenceInsert" => self.insert(&inputs)?,
            "SequenceErase" => self.erase(&inputs)?,
            "SequenceAt" => {
                let list = list(&inputs)?;
                let place = self.place(&inputs, 1, list.len())?;
                let place = place.ok_or_else(|| Error::new("input 1, the position, is missing"))?;
                ensure!(place < list.len(), "position {place} is behind the end of a sequence of {}", list.len());
                Item::Tensor(list[place])
            }
            "SequenceLength" => Item::Tensor(self.builder.constant(Tensor::scalar(list(&inputs)?.len() as i64))),
            "SplitToSequence" => self.split(&attributes, &inputs)?,
            "ConcatFromSequence" => Item::Tensor(self.join(&attributes, list(&inputs)?)?),
            "Optional" => {
                attributes.ignore("type");
                inputs.first().cloned().unwrap_or(Item::Nothing)
            }
            "OptionalHasElement" => {
                let there = !matches!(inputs.first(), None | Some(Item::Nothing));
                Item::Tensor(self.builder.constant(Tensor::scalar(there)))
            }
            "OptionalGetElement" => match inputs.first() {
                None | Some(Item::Nothing) => return Err(Error::new("the optional value is not there")),
                Some(item) => item.clone(),
            },
            _ => match &inputs[..] {
                [item] => item.clone(),
                _ => return Err(Error::new(format!("{} needs one input", node.operator))),
            },
        };
        self.builder.check()?;
        attributes.finish()?;
        Ok(Some(vec![result]))
    }

    /// The position in a sequence of this length that an input gives, from its end where it is negative: up to the length itself.
    fn place(&self, inputs: &[Item<'b>], index: usize, length: usize) -> Result<Option<usize>> {
        let wire = match inputs.get(index) {
            None | Some(Item::Nothing) => return Ok(None),
            Some(item) => item.tensor("the position")?,
        };
        let known = wire.constant().filter(|value| value.count() == 1 && value.dtype().is_integer());
        let position = known.ok_or_else(|| self.unknown("the position in the sequence", wire))?.number(0).as_i64();
        let place = if position < 0 { position.checked_add(length as i64) } else { Some(position) };
        let place = place.and_then(|place| usize::try_from(place).ok()).filter(|&place| place <= length);
        place.map(Some).ok_or_else(|| Error::new(format!("position {position} is outside of a sequence of {length}")))
    }

    fn insert(&self, inputs: &[Item<'b>]) -> Result<Item<'b>> {
        let mut list = list(inputs)?.to_vec();
        let tensor = inputs.get(1).ok_or_else(|| Error::new("input 1, the tensor, is missing"))?.tensor("what is inserted")?;
        let place = self.place(inputs, 2, list.len())?.unwrap_or(list.len());
        list.insert(place, tensor);
        Ok(Item::List(list))
    }

    fn erase(&self, inputs: &[Item<'b>]) -> Result<Item<'b>> {
        let mut list = list(inputs)?.to_vec();
        let place = self.place(inputs, 1, list.len())?.unwrap_or(list.len().saturating_sub(1));
        ensure!(place < list.len(), "position {place} is behind the end of a sequence of {}", list.len());
        list.remove(place);
        Ok(Item::List(list))
    }

    /// Parts of the extents given, or of one extent but for the last, or of extent 1, then without the axis if wanted.
    fn split(&self, attributes: &Attributes<'_>, inputs: &[Item<'b>]) -> Result<Item<'b>> {
        let x = inputs.first().ok_or_else(|| Error::new("input 0 is missing"))?.tensor("what is split")?;
        let axis = super::control::axis_of(attributes.int_or("axis", 0)?, x.rank())?;
        let keep = attributes.flag("keepdims", true)?;
        let extent = x.shape()[axis];
        ensure!(
            x.axes().get(axis).is_none_or(|of| of.is_whole()),
            "SplitToSequence does not take axis {axis} of {}, whose extent is known only at run time",
            self.builder.type_text(x)
        );
        let split = match inputs.get(1) {
            None | Some(Item::Nothing) => None,
            Some(item) => {
                let wire = item.tensor("the extents of the parts")?;
                let known = wire.constant().ok_or_else(|| self.unknown("the extents of the parts", wire))?;
                Some((known.numbers().map(|number| number.as_i64()).collect::<Vec<_>>(), known.shape().rank() == 0))
            }
        };
        let count = match &split {
            None => extent,
            Some((size, true)) => extent.div_ceil(usize::try_from(size[0]).unwrap_or(1).max(1)),
            Some((sizes, false)) => sizes.len(),
        };
        ensure!(count <= MAX_NODES, "an axis of {extent} in {count} parts makes a sequence that is too long");
        let (parts, drop) = match split {
            None => (vec![1; extent], !keep),
            Some((size, true)) => {
                let size = usize::try_from(size[0]).ok().filter(|&size| size > 0);
                let size = size.ok_or_else(|| Error::new("the extent of a part is not positive"))?;
                ((0..extent).step_by(size).map(|start| size.min(extent - start)).collect(), false)
            }
            Some((sizes, false)) => {
                let sizes = sizes.iter().map(|&size| usize::try_from(size)).collect::<Result<Vec<_>, _>>();
                let sizes = sizes.map_err(|_| Error::new("the extent of a part is negative"))?;
                let total = sizes.iter().try_fold(0usize, |total, &size| total.checked_add(size));
                ensure!(total == Some(extent), "parts of extents {sizes:?} do not make an axis of {extent}");
                (sizes, false)
            }
        };
        let mut start = 0;
        let part = |size: usize| {
            let part = x.slice_axis(axis, start, size);
            start += size;
            if !drop {
                return part;
            }
            let mut shape = part.shape().into_dims();
            // What could not be made has no axes; the builder tells why.
            if axis < shape.len() {
                shape.remove(axis);
            }
            part.reshape(shape)
        };
        Ok(Item::List(parts.into_iter().map(part).collect()))
    }

    fn join(&self, attributes: &Attributes<'_>, list: &[Wire<'b>]) -> Result<Wire<'b>> {
        let new = attributes.flag("new_axis", false)?;
        let axis = attributes.required("axis", attributes.int("axis")?)?;
        let Some(first) = list.first() else { return Err(Error::new("an empty sequence cannot be joined")) };
        let axis = super::control::axis_of(axis, first.rank() + usize::from(new))?;
        let parts = if new { list.iter().map(|wire| wire.insert_axis(axis)).collect() } else { list.to_vec() };
        Ok(self.builder.concat(&parts, axis))
    }

    /// Applies a graph to the elements of sequences; a tensor among the inputs is the same for all.
    fn map<'a>(
        &mut self,
        scope: &Scope<'_, 'a, 'b>,
        attributes: &Attributes<'a>,
        inputs: &[Item<'b>],
    ) -> Result<Option<Vec<Item<'b>>>> {
        let body = attributes.required("body", attributes.graph("body")?)?;
        let length = list(inputs)?.len();
        let mut results = vec![Vec::with_capacity(length); body.outputs.len()];
        for place in 0..length {
            self.begin_round()?;
            let element = |item: &Item<'b>| match item {
                Item::List(list) => {
                    let element = list.get(place).map(|&wire| Item::Tensor(wire));
                    element.ok_or_else(|| Error::new(format!("sequences of {length} and {} elements are not alike", list.len())))
                }
                item => Ok(item.clone()),
            };
            let elements = inputs.iter().map(element).collect::<Result<Vec<_>>>()?;
            let Some(outputs) = self.subgraph_items(scope, body, elements)? else { return Ok(None) };
            for (list, output) in results.iter_mut().zip(outputs) {
                list.push(output.tensor("an element of a sequence")?);
            }
        }
        Ok(Some(results.into_iter().map(Item::List).collect()))
    }
}

fn list<'i, 'b>(inputs: &'i [Item<'b>]) -> Result<&'i [Wire<'b>]> {
    match inputs.first() {
        Some(Item::List(list)) => Ok(list),
        _ => Err(Error::new("input 0 is not a sequence")),
    }
}

fn tensors<'b>(inputs: &[Item<'b>]) -> Result<Vec<Wire<'b>>> {
    inputs.iter().map(|item| item.tensor("an element of a sequence")).collect()
}
