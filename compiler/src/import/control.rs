//! Control flow: branches and loops whose course is known when the model is compiled are written out.

use std::cell::RefCell;

use mcc_support::{Error, Result, Shape, Tensor, TensorType, ensure};

use super::{Importer, Scope};
use crate::graph::Wire;
use crate::onnx::{Attributes, FlatGraph, Node};
use crate::ops;

/// Most nodes of the graph after a loop was written out.
const MAX_NODES: usize = 1 << 18;
/// Most rounds of all loops together.
const MAX_ROUNDS: usize = 1 << 16;

impl<'b> Importer<'b> {
    /// The results of an operator of control flow. `None` where something in it could not be made.
    pub(super) fn control<'a>(&mut self, scope: &Scope<'_, 'a, 'b>, node: &'a Node<'a>) -> Result<Option<Vec<Wire<'b>>>> {
        let Some(inputs) = self.inputs_of(scope, node).filter(|inputs| !self.needs_stand_in(node, inputs)) else {
            self.check_operators(node);
            return Ok(None);
        };
        if let Some(wire) = inputs.iter().flatten().find(|wire| wire.is_bounded()) {
            let found = self.builder.type_text(*wire);
            return Err(Error::new(format!("{} does not take extents that are known only at run time: {found}", node.operator))
                .help(ops::dynamic::HELP));
        }
        let attributes = node.attributes();
        let results = match node.operator {
            "If" => self.branch(scope, &attributes, &inputs, node.outputs.len()),
            "Loop" => self.repeat(scope, &attributes, &inputs),
            _ => self.scan(scope, &attributes, &inputs, node.opset),
        }?;
        attributes.finish()?;
        if let Some(results) = &results {
            let (found, wanted) = (results.len(), node.outputs.len());
            ensure!(found >= wanted, "the node has {wanted} outputs, but its graph gives {found}");
        }
        Ok(results)
    }

    /// Names the operators in the graphs of a node that are not supported, where the graphs cannot be looked at more closely.
    fn check_operators(&mut self, node: &Node<'_>) {
        for inner in node.graphs().flat_map(|graph| &graph.nodes) {
            if ops::control(inner.domain, inner.operator).is_none()
                && let Err(error) = ops::lookup(inner.domain, inner.operator, inner.opset)
            {
                self.errors.push(error.node(inner.reference()));
            }
            self.check_operators(inner);
        }
    }

    /// An `If` whose condition is known is the branch that it takes; else both are computed, and one chosen.
    fn branch<'a>(
        &mut self,
        scope: &Scope<'_, 'a, 'b>,
        attributes: &Attributes<'a>,
        inputs: &[Option<Wire<'b>>],
        wanted: usize,
    ) -> Result<Option<Vec<Wire<'b>>>> {
        let then_branch = attributes.required("then_branch", attributes.graph("then_branch")?)?;
        let else_branch = attributes.required("else_branch", attributes.graph("else_branch")?)?;
        let [Some(condition)] = inputs[..] else { return Err(Error::new("If needs exactly one input, the condition")) };
        ensure!(condition.shape().count() == 1, "the condition must have one element, not {}", condition.ty());
        if let Some(value) = condition.constant() {
            let taken = if value.number(0).as_f64() != 0.0 { then_branch } else { else_branch };
            return self.subgraph(scope, taken, &[]);
        }
        let then_results = self.subgraph(scope, then_branch, &[])?;
        let else_results = self.subgraph(scope, else_branch, &[])?;
        let (Some(then_results), Some(else_results)) = (then_results, else_results) else { return Ok(None) };
        let condition = condition.reshape(Shape::scalar());
        let choose = |(then, otherwise): (&Wire<'b>, &Wire<'b>)| {
            let types = (then.ty(), otherwise.ty());
            ensure!(
                types.0 == types.1 && then.axes() == otherwise.axes(),
                "the condition is not known when the model is compiled, and the branches compute different types: {} and {}",
                types.0,
                types.1
            );
            Ok(condition.select(*then, *otherwise))
        };
        let results = then_results.iter().zip(&else_results).take(wanted).map(choose).collect::<Result<_>>()?;
        self.builder.check()?;
        Ok(Some(results))
    }

    /// A `Loop` with a known number of rounds.
    fn repeat<'a>(
        &mut self,
        scope: &Scope<'_, 'a, 'b>,
        attributes: &Attributes<'a>,
        inputs: &[Option<Wire<'b>>],
    ) -> Result<Option<Vec<Wire<'b>>>> {
        let body = attributes.required("body", attributes.graph("body")?)?;
        let known = |index: usize, what: &str| match inputs.get(index).copied().flatten() {
            None => Ok(None),
            Some(wire) => match wire.constant() {
                Some(tensor) if tensor.count() == 1 => Ok(Some(tensor.number(0).as_i64())),
                _ => Err(self.unknown(what, wire)),
            },
        };
        let rounds = known(0, "the number of rounds of the loop")?.unwrap_or(i64::MAX);
        let mut condition = known(1, "the condition of the loop")?.is_none_or(|condition| condition != 0);
        let mut carried = inputs
            .iter()
            .skip(2)
            .copied()
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Error::new("an initial value is missing"))?;
        let count = carried.len();
        ensure!(body.outputs.len() > count, "the body of the loop has {} outputs for {count} carried values", body.outputs.len());
        let mut stacked: Vec<Vec<Wire<'b>>> = vec![Vec::new(); body.outputs.len() - count - 1];
        let mut round = 0;
        while condition && round < rounds {
            self.begin_round()?;
            let mut values = vec![self.builder.constant(Tensor::scalar(round)), self.builder.constant(Tensor::scalar(true))];
            values.extend(&carried);
            let Some(results) = self.subgraph(scope, body, &values)? else { return Ok(None) };
            let goes_on = results[0].constant().filter(|value| value.count() == 1);
            condition = goes_on.ok_or_else(|| self.unknown("the condition of the loop", results[0]))?.number(0).as_f64() != 0.0;
            carried = results[1..=count].to_vec();
            stacked.iter_mut().zip(&results[count + 1..]).for_each(|(list, result)| list.push(*result));
            round += 1;
        }
        let types = if round == 0 && !stacked.is_empty() {
            // Without a round, the types are those that the first one would have.
            let mut values = vec![self.builder.constant(Tensor::scalar(0i64)), self.builder.constant(Tensor::scalar(true))];
            values.extend(&carried);
            let Some(results) = self.subgraph(scope, body, &values)? else { return Ok(None) };
            results[count + 1..].iter().map(|result| result.ty()).collect()
        } else {
            stacked.iter().map(|list| list[0].ty()).collect::<Vec<_>>()
        };
        for (list, ty) in stacked.iter().zip(types) {
            carried.push(self.stack(list, 0, ty)?);
        }
        Ok(Some(carried))
    }

    /// A `Scan` over axes of known extent.
    fn scan<'a>(
        &mut self,
        scope: &Scope<'_, 'a, 'b>,
        attributes: &Attributes<'a>,
        inputs: &[Option<Wire<'b>>],
        opset: i64,
    ) -> Result<Option<Vec<Wire<'b>>>> {
        ensure!(opset >= 9, "Scan of opset 8, over batches, is not supported");
        let body = attributes.required("body", attributes.graph("body")?)?;
        let scanned = attributes.required("num_scan_inputs", attributes.int("num_scan_inputs")?)?;
        let inputs = inputs.iter().copied().collect::<Option<Vec<_>>>().ok_or_else(|| Error::new("an input is missing"))?;
        let states = usize::try_from(scanned).ok().and_then(|scanned| inputs.len().checked_sub(scanned));
        let states = states.ok_or_else(|| {
            Error::new(format!("the attribute 'num_scan_inputs' is {scanned}, but there are {} inputs", inputs.len()))
        })?;
        let outputs = body.outputs.len().checked_sub(states);
        let outputs =
            outputs.ok_or_else(|| Error::new(format!("the body has {} outputs for {states} states", body.outputs.len())))?;
        let per = |name: &str, count: usize| -> Result<Vec<i64>> {
            let list = attributes.ints_or(name, vec![0; count])?;
            ensure!(list.len() == count, "the attribute '{name}' has {} entries, not {count}", list.len());
            Ok(list)
        };
        let input_axes = per("scan_input_axes", inputs.len() - states)?;
        let input_directions = per("scan_input_directions", inputs.len() - states)?;
        let output_axes = per("scan_output_axes", outputs)?;
        let output_directions = per("scan_output_directions", outputs)?;
        let sequences: Vec<(Wire<'b>, usize, bool)> = (inputs[states..].iter().zip(&input_axes).zip(&input_directions))
            .map(|((&wire, &axis), &direction)| Ok((wire, axis_of(axis, wire.rank())?, direction != 0)))
            .collect::<Result<_>>()?;
        let Some(&(first, axis, _)) = sequences.first() else { return Err(Error::new("there is nothing to scan")) };
        let rounds = first.shape()[axis];
        ensure!(
            sequences.iter().all(|(wire, axis, _)| wire.shape()[*axis] == rounds),
            "the scanned inputs have different lengths"
        );
        let mut carried = inputs[..states].to_vec();
        let mut stacked: Vec<Vec<Wire<'b>>> = vec![Vec::new(); outputs];
        for round in 0..rounds {
            self.begin_round()?;
            let element = |&(wire, axis, reverse): &(Wire<'b>, usize, bool)| {
                let mut shape = wire.shape().into_dims();
                shape.remove(axis);
                wire.slice_axis(axis, if reverse { rounds - 1 - round } else { round }, 1).reshape(shape)
            };
            let values: Vec<Wire<'b>> = carried.iter().copied().chain(sequences.iter().map(element)).collect();
            let Some(results) = self.subgraph(scope, body, &values)? else { return Ok(None) };
            carried = results[..states].to_vec();
            stacked.iter_mut().zip(&results[states..]).for_each(|(list, result)| list.push(*result));
        }
        for ((mut list, axis), direction) in stacked.into_iter().zip(output_axes).zip(output_directions) {
            if direction != 0 {
                list.reverse();
            }
            let ty = list.first().ok_or_else(|| Error::new("there are no rounds"))?.ty();
            carried.push(self.stack(&list, axis_of(axis, ty.rank() + 1)?, ty)?);
        }
        Ok(Some(carried))
    }

    /// Results of all rounds, of this type, along a new axis.
    fn stack(&self, list: &[Wire<'b>], axis: usize, ty: TensorType) -> Result<Wire<'b>> {
        let mut shape = ty.shape.into_dims();
        shape.insert(axis, usize::from(!list.is_empty()));
        if list.is_empty() {
            return Ok(self.builder.constant(Tensor::zeros(TensorType::new(ty.dtype, shape))));
        }
        let stacked = self.builder.concat(&list.iter().map(|wire| wire.reshape(shape.clone())).collect::<Vec<_>>(), axis);
        self.builder.check()?;
        Ok(stacked)
    }

    /// Imports a graph inside of another with these inputs; its outputs.
    fn subgraph<'a>(
        &mut self,
        scope: &Scope<'_, 'a, 'b>,
        graph: &'a FlatGraph<'a>,
        inputs: &[Wire<'b>],
    ) -> Result<Option<Vec<Wire<'b>>>> {
        ensure!(graph.inputs.len() == inputs.len(), "the inner graph has {} inputs, not {}", graph.inputs.len(), inputs.len());
        let values = graph.inputs.iter().map(|input| input.name.as_str()).zip(inputs.iter().map(|&wire| Some(wire))).collect();
        let inner = Scope { graph, values: RefCell::new(values), outer: Some(scope) };
        self.nodes(&inner);
        Ok(graph.outputs.iter().map(|output| self.value(&inner, &output.name)).collect())
    }

    fn begin_round(&mut self) -> Result<()> {
        self.rounds += 1;
        let bounded = self.rounds <= MAX_ROUNDS && self.builder.node_count() <= MAX_NODES;
        ensure!(bounded, "the loop is too long to be written out");
        Ok(())
    }

    fn unknown(&self, what: &str, wire: Wire<'b>) -> Error {
        let error = Error::new(format!("{what} is not known when the model is compiled"));
        let sources = self.builder.inputs_of(wire);
        if sources.is_empty() {
            error
        } else {
            error.help(format!("give the values of {} with `--constant NAME=VALUE`", sources.join(", ")))
        }
    }
}

fn axis_of(axis: i64, rank: usize) -> Result<usize> {
    let place = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    let place = place.and_then(|place| usize::try_from(place).ok()).filter(|&place| place < rank);
    place.ok_or_else(|| Error::new(format!("axis {axis} is outside of a tensor of rank {rank}")))
}
