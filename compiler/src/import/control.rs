//! Control flow. Branches whose condition is known are taken, short loops of a known number of rounds are written out; what is left
//! becomes a branch or loop of the graph.

use std::cell::RefCell;
use std::collections::BTreeSet;

use mcc_support::{DType, Error, Result, Shape, Tensor, ensure};

use super::{Importer, Item, Scope, Warning, WarningKind, wires};
use crate::graph::{Repeated, Round, Wire};
use crate::onnx::{Attributes, Declared, FlatGraph, Node};
use crate::ops;

/// Most nodes of the graph after a loop was written out.
pub(super) const MAX_NODES: usize = 1 << 18;
/// Most rounds of all loops together.
const MAX_ROUNDS: usize = 1 << 16;

impl<'b> Importer<'b> {
    /// The results of an operator of control flow. `None` where something in it could not be made.
    pub(super) fn control<'a>(&mut self, scope: &Scope<'_, 'a, 'b>, node: &'a Node<'a>) -> Result<Option<Vec<Item<'b>>>> {
        let Some(items) = self.items_of(scope, node) else {
            self.check_operators(node);
            return Ok(None);
        };
        // As many rounds as the sequences are long.
        let wire = items.iter().flat_map(Item::wires).find(|wire| node.operator == "Scan" && wire.is_bounded());
        if let Some(wire) = wire {
            let found = self.builder.type_text(*wire);
            return Err(Error::new(format!("{} does not take extents that are known only at run time: {found}", node.operator))
                .help(ops::dynamic::HELP));
        }
        let attributes = node.attributes();
        let tensors = |results: Option<Vec<Wire<'b>>>| results.map(|wires| wires.into_iter().map(Item::Tensor).collect());
        let results = match node.operator {
            "If" => self.branch(scope, node, &attributes, &wires(node, &items)?)?,
            "Loop" if items.iter().skip(2).any(|item| !matches!(item, Item::Tensor(_))) => {
                self.repeat_items(scope, &attributes, &items)?
            }
            "Loop" => tensors(self.repeat(scope, &attributes, &wires(node, &items)?)?),
            _ if node.opset < 9 => tensors(self.scan_batches(scope, &attributes, &wires(node, &items)?)?),
            _ => tensors(self.scan(scope, &attributes, &wires(node, &items)?)?),
        };
        attributes.finish()?;
        if let Some(results) = &results {
            let (found, wanted) = (results.len(), node.outputs.len());
            ensure!(found >= wanted, "the node has {wanted} outputs, but its graph gives {found}");
        }
        Ok(results)
    }

    /// Names the operators in the graphs of a node that are not supported, where the graphs cannot be looked at more closely.
    fn check_operators(&mut self, node: &Node<'_>) {
        node.graphs().for_each(|graph| unsupported_operators(graph, &mut self.errors));
    }

    /// An `If` whose condition is known is the branch that it takes; else both are computed, and one chosen.
    fn branch<'a>(
        &mut self,
        scope: &Scope<'_, 'a, 'b>,
        node: &'a Node<'a>,
        attributes: &Attributes<'a>,
        inputs: &[Option<Wire<'b>>],
    ) -> Result<Option<Vec<Item<'b>>>> {
        let then_branch = attributes.required("then_branch", attributes.graph("then_branch")?)?;
        let else_branch = attributes.required("else_branch", attributes.graph("else_branch")?)?;
        let [Some(condition)] = inputs[..] else { return Err(Error::new("If needs exactly one input, the condition")) };
        ensure!(condition.shape().count() == 1, "the condition must have one element, not {}", condition.ty());
        if let Some(value) = condition.constant() {
            let taken = if value.number(0).as_f64() != 0.0 { then_branch } else { else_branch };
            return self.subgraph_items(scope, taken, Vec::new());
        }
        let condition = condition.reshape(Shape::scalar());
        let branches = [else_branch, then_branch];
        let before = self.attempt();
        let mut failed = None;
        let results = self.builder.branch(condition, |taken| {
            let results = self.subgraph(scope, branches[usize::from(taken)], &[])?;
            let results = results.filter(|_| self.errors.len() == before.errors);
            failed = results.is_none().then_some(taken);
            Ok(results.ok_or_else(|| Error::new("a branch could not be made"))?.into_iter().take(node.outputs.len()).collect())
        });
        let Some(taken) = failed else { return results.map(|wires| Some(wires.into_iter().map(Item::Tensor).collect())) };
        let reasons = self.give_up(&before);
        let mut unsupported = Vec::new();
        unsupported_operators(branches[usize::from(taken)], &mut unsupported);
        let other =
            if unsupported.is_empty() { self.subgraph_items(scope, branches[usize::from(!taken)], Vec::new())? } else { None };
        let Some(other) = other.filter(|_| self.errors.len() == before.errors) else {
            self.give_up(&before);
            self.errors.extend(reasons);
            return Ok(None);
        };
        // The model's author made the branch for other shapes.
        let wrong = condition.eq(self.builder.constant(Tensor::scalar(taken))).cast(DType::I64);
        self.builder.require(node.first_output(), wrong, (0, 0));
        let reason = reasons.first().map_or_else(String::new, |error| format!(": {error}"));
        let message = format!("where the condition is {taken}, a run ends without a result, for the branch does not fit{reason}");
        self.warn(Warning { node: Some(node.reference()), ..Warning::new(WarningKind::Branch, message) });
        Ok(Some(other))
    }

    /// Where import stands, before what may turn out not to be possible.
    fn attempt(&self) -> Attempt {
        Attempt {
            errors: self.errors.len(),
            warnings: self.warnings.len(),
            inputs: self.builder.input_count(),
            stand_ins: self.stand_ins.clone(),
        }
    }

    /// Goes back to there; the errors since.
    fn give_up(&mut self, attempt: &Attempt) -> Vec<Error> {
        self.warnings.truncate(attempt.warnings);
        self.builder.truncate_inputs(attempt.inputs);
        self.stand_ins.clone_from(&attempt.stand_ins);
        self.errors.split_off(attempt.errors)
    }

    fn repeat<'a>(
        &mut self,
        scope: &Scope<'_, 'a, 'b>,
        attributes: &Attributes<'a>,
        inputs: &[Option<Wire<'b>>],
    ) -> Result<Option<Vec<Wire<'b>>>> {
        let body = attributes.required("body", attributes.graph("body")?)?;
        let scalar = |index: usize, what: &str| match inputs.get(index).copied().flatten() {
            Some(wire) if wire.shape().count() != 1 => {
                Err(Error::new(format!("{what} must have one element, not {}", wire.ty())))
            }
            wire => Ok(wire.map(|wire| wire.reshape(Shape::scalar()))),
        };
        let rounds = scalar(0, "the number of rounds")?;
        let go = scalar(1, "the condition")?;
        let initial = inputs
            .iter()
            .skip(2)
            .copied()
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Error::new("an initial value is missing"))?;
        let count = initial.len();
        ensure!(body.outputs.len() > count, "the body of the loop has {} outputs for {count} carried values", body.outputs.len());
        let known = match rounds.map(|rounds| rounds.constant()) {
            None => Some(usize::MAX >> 1),
            Some(rounds) => rounds.map(|rounds| usize::try_from(rounds.number(0).as_i64()).unwrap_or(0)),
        };
        let limit = known.unwrap_or(usize::MAX >> 1);
        let results = self.rounds(limit, rounds, go, &initial, |importer, round, carried| {
            let mut values = vec![round, importer.builder.constant(Tensor::scalar(true))];
            values.extend(carried);
            let Some(results) = importer.subgraph(scope, body, &values)? else { return Ok(None) };
            ensure!(results[0].shape().count() == 1, "the condition of the loop must have one element, not {}", results[0].ty());
            let go = results[0].reshape(Shape::scalar());
            Ok(Some(Round { go, next: results[1..=count].to_vec(), elements: results[count + 1..].to_vec() }))
        })?;
        let Some(Repeated { rounds, mut carried, stacks: stacked }) = results else { return Ok(None) };
        match rounds.constant() {
            Some(run) => {
                let run = usize::try_from(run.number(0).as_i64()).unwrap_or(0);
                carried.extend(stacked.into_iter().map(|stack| stack.slice_axis(0, 0, run)));
            }
            None if !stacked.is_empty() => {
                // No more than the stacks have room for.
                let run = self.builder.count("rounds", rounds, stacked[0].shape()[0], true);
                carried.extend(stacked.into_iter().map(|stack| stack.limited_along(0, &run)));
            }
            None => {}
        }
        self.builder.check()?;
        Ok(Some(carried))
    }

    /// A `Loop` that carries sequences is written out: its course must be known.
    fn repeat_items<'a>(
        &mut self,
        scope: &Scope<'_, 'a, 'b>,
        attributes: &Attributes<'a>,
        items: &[Item<'b>],
    ) -> Result<Option<Vec<Item<'b>>>> {
        let body = attributes.required("body", attributes.graph("body")?)?;
        let known = |item: Option<&Item<'b>>, what: &str| match item {
            None | Some(Item::Nothing) => Ok(None),
            Some(item) => {
                let wire = item.tensor(what)?;
                let value = wire.constant().filter(|value| value.count() == 1);
                let value = value.ok_or_else(|| self.unknown(&format!("{what} of a loop that carries sequences"), wire))?;
                Ok(Some(value.number(0).as_i64()))
            }
        };
        let rounds = known(items.first(), "the number of rounds")?.unwrap_or(i64::MAX);
        let mut go = known(items.get(1), "the condition")?.is_none_or(|go| go != 0);
        let mut carried = items.get(2..).unwrap_or_default().to_vec();
        let count = carried.len();
        ensure!(body.outputs.len() > count, "the body of the loop has {} outputs for {count} carried values", body.outputs.len());
        let mut stacks: Vec<Vec<Wire<'b>>> = vec![Vec::new(); body.outputs.len() - count - 1];
        let mut round = 0;
        while go && round < rounds {
            self.begin_round()?;
            let scalars = [self.builder.constant(Tensor::scalar(round)), self.builder.constant(Tensor::scalar(true))];
            let inputs = scalars.into_iter().map(Item::Tensor).chain(carried).collect();
            let Some(results) = self.subgraph_items(scope, body, inputs)? else { return Ok(None) };
            let wire = results[0].tensor("the condition")?;
            let value = wire.constant().filter(|value| value.count() == 1);
            let value = value.ok_or_else(|| self.unknown("the condition of a loop that carries sequences", wire))?;
            go = value.number(0).as_f64() != 0.0;
            carried = results[1..=count].to_vec();
            for (stack, result) in stacks.iter_mut().zip(&results[count + 1..]) {
                let element = result.tensor("what each round adds")?;
                stack.push(element.insert_axis(0));
            }
            round += 1;
        }
        for stack in stacks {
            ensure!(!stack.is_empty(), "a loop that carries sequences makes no round, and its results have no type");
            carried.push(Item::Tensor(self.builder.concat(&stack, 0)));
        }
        self.builder.check()?;
        Ok(Some(carried))
    }

    /// A `Scan` of opset 8: of each batch by itself, over the steps that its sequence has.
    fn scan_batches<'a>(
        &mut self,
        scope: &Scope<'_, 'a, 'b>,
        attributes: &Attributes<'a>,
        inputs: &[Option<Wire<'b>>],
    ) -> Result<Option<Vec<Wire<'b>>>> {
        let body = attributes.required("body", attributes.graph("body")?)?;
        let (lengths, inputs) = inputs.split_first().ok_or_else(|| Error::new("there is nothing to scan"))?;
        let (inputs, states) = scan_inputs(attributes, inputs)?;
        ensure!(body.outputs.len() >= states, "the body has {} outputs for {states} states", body.outputs.len());
        let directions = attributes.ints_or("directions", vec![0; inputs.len() - states])?;
        let extents = inputs[states].shape();
        let fits = extents.rank() >= 2
            && directions.len() == inputs.len() - states
            && inputs.iter().all(|wire| wire.rank() > 0 && wire.shape()[0] == extents[0])
            && inputs[states..].iter().all(|wire| wire.rank() >= 2 && wire.shape()[1] == extents[1]);
        ensure!(fits, "the scanned inputs have different batches or lengths");
        let (batches, steps) = (extents[0], extents[1]);
        let lengths = match lengths {
            None => vec![steps; batches],
            Some(wire) => {
                let known = wire.constant().ok_or_else(|| self.unknown("the lengths of the sequences", *wire))?;
                known.numbers().map(|number| usize::try_from(number.as_i64()).map_or(0, |length| length.min(steps))).collect()
            }
        };
        ensure!(lengths.len() == batches && batches > 0, "there are {} lengths for {batches} batches", lengths.len());
        let mut results: Vec<Vec<Wire<'b>>> = vec![Vec::with_capacity(batches); body.outputs.len()];
        for (batch, &length) in lengths.iter().enumerate() {
            let place = self.builder.constant(Tensor::scalar(batch as i64));
            let own: Vec<Wire<'b>> = inputs.iter().map(|wire| wire.element(0, place)).collect();
            let sequences = own[states..].iter().zip(&directions).map(|(&wire, &direction)| (wire, 0, direction != 0));
            let repeated = self.scan_rounds(scope, body, length, &own[..states], &sequences.collect::<Vec<_>>())?;
            let Some(Repeated { carried, stacks, .. }) = repeated else { return Ok(None) };
            let padded = stacks.into_iter().map(|stack| {
                let mut missing = vec![(0, 0); stack.rank()];
                missing[0].1 = steps - length;
                stack.pad(&missing, stack.like(0.0))
            });
            for (list, result) in results.iter_mut().zip(carried.into_iter().chain(padded)) {
                list.push(result.insert_axis(0));
            }
        }
        self.builder.check()?;
        Ok(Some(results.iter().map(|list| self.builder.concat(list, 0)).collect()))
    }

    /// A `Scan` over axes of known extent.
    fn scan<'a>(
        &mut self,
        scope: &Scope<'_, 'a, 'b>,
        attributes: &Attributes<'a>,
        inputs: &[Option<Wire<'b>>],
    ) -> Result<Option<Vec<Wire<'b>>>> {
        let body = attributes.required("body", attributes.graph("body")?)?;
        let (inputs, states) = scan_inputs(attributes, inputs)?;
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
        let (first, axis, _) = sequences[0];
        let rounds = first.shape()[axis];
        ensure!(
            sequences.iter().all(|(wire, axis, _)| wire.shape()[*axis] == rounds),
            "the scanned inputs have different lengths"
        );
        let results = self.scan_rounds(scope, body, rounds, &inputs[..states], &sequences)?;
        let Some(Repeated { mut carried, stacks, .. }) = results else { return Ok(None) };
        for ((stack, axis), direction) in stacks.into_iter().zip(output_axes).zip(output_directions) {
            let stack = if direction != 0 { stack.reversed(0) } else { stack };
            let axis = axis_of(axis, stack.rank())?;
            let mut order: Vec<usize> = (1..stack.rank()).collect();
            order.insert(axis, 0);
            carried.push(stack.transpose(&order));
        }
        self.builder.check()?;
        Ok(Some(carried))
    }

    /// The rounds of a `Scan`, in each of which the body gets the states and one element of each sequence, along its axis and from its
    /// end if so said.
    fn scan_rounds<'a>(
        &mut self,
        scope: &Scope<'_, 'a, 'b>,
        body: &'a FlatGraph<'a>,
        count: usize,
        states: &[Wire<'b>],
        sequences: &[(Wire<'b>, usize, bool)],
    ) -> Result<Option<Repeated<'b>>> {
        self.rounds(count, None, None, states, |importer, round, carried| {
            let last = importer.builder.constant(Tensor::scalar(count as i64 - 1));
            let element =
                |&(wire, axis, reverse): &(Wire<'b>, usize, bool)| wire.element(axis, if reverse { last - round } else { round });
            let values: Vec<Wire<'b>> = carried.iter().copied().chain(sequences.iter().map(element)).collect();
            let Some(results) = importer.subgraph(scope, body, &values)? else { return Ok(None) };
            let go = importer.builder.constant(Tensor::scalar(true));
            Ok(Some(Round { go, next: results[..states.len()].to_vec(), elements: results[states.len()..].to_vec() }))
        })
    }

    /// A loop; written out where that is short, or where rounds differ in more than values. `None` where something in it could not be
    /// made.
    fn rounds(
        &mut self,
        limit: usize,
        rounds: Option<Wire<'b>>,
        go: Option<Wire<'b>>,
        initial: &[Wire<'b>],
        mut body: impl FnMut(&mut Self, Wire<'b>, &[Wire<'b>]) -> Result<Option<Round<'b>>>,
    ) -> Result<Option<Repeated<'b>>> {
        let builder = self.builder;
        let mut reason = None;
        // Leaves no trace of a round that could not be made, but the reason.
        let mut round = |importer: &mut Self, round: Wire<'b>, carried: &[Wire<'b>]| {
            importer.begin_round()?;
            let before = importer.attempt();
            let results = body(importer, round, carried);
            let failed = importer.errors.len() > before.errors || results.as_ref().is_ok_and(Option::is_none);
            let failure = || Error::new("the body of a loop could not be made");
            let results = results.and_then(|results| results.filter(|_| !failed).ok_or_else(failure));
            results.map_err(|error| {
                let inner = importer.give_up(&before).into_iter().next();
                let inner = inner.unwrap_or(error);
                reason = Some(inner);
                failure()
            })
        };
        let mut repeated = builder.repeat(limit, rounds, go, initial, |at, carried| round(self, at, carried)).map(Some);
        let constant = |wire: Wire<'b>| wire.constant().map(|value| value.number(0).as_i64());
        let known = rounds.map_or(Some(limit as i64), constant).filter(|_| go.is_none_or(|go| constant(go) == Some(1)));
        if let (Err(_), Some(known)) = (&repeated, known) {
            // Rounds whose types depend on their number.
            let written = usize::try_from(known).unwrap_or(0);
            repeated = builder.write_out(written, initial, &mut |at, carried: &[Wire<'b>]| round(self, at, carried));
        }
        match repeated {
            Ok(Some(repeated)) => Ok(Some(repeated)),
            Ok(None) => {
                let error = Error::new("what the loop carries changes its type, and when it ends depends on data");
                Err(reason.into_iter().fold(error, |error, reason| error.context(format!("for {reason}"))))
            }
            Err(error) => {
                let inner = reason.unwrap_or(error);
                let unknown = rounds.filter(|rounds| rounds.constant().is_none()).or(go);
                let Some(wire) = unknown.filter(|_| known.is_none()) else { return Err(inner) };
                // Were it known how the loop runs, its rounds could be written out.
                let what = "how many rounds a loop runs whose body cannot be compiled for all rounds at once";
                Err(self.unknown(what, wire).context(format!("for {inner}")))
            }
        }
    }

    /// Imports a graph inside of another with these inputs; its outputs.
    fn subgraph<'a>(
        &mut self,
        scope: &Scope<'_, 'a, 'b>,
        graph: &'a FlatGraph<'a>,
        inputs: &[Wire<'b>],
    ) -> Result<Option<Vec<Wire<'b>>>> {
        let inputs = inputs.iter().map(|&wire| Item::Tensor(wire)).collect();
        let Some(outputs) = self.subgraph_items(scope, graph, inputs)? else { return Ok(None) };
        let wire = |(item, output): (&Item<'b>, &Declared<'_>)| item.tensor(&format!("'{}', computed at run time,", output.name));
        outputs.iter().zip(&graph.outputs).map(wire).collect::<Result<_>>().map(Some)
    }

    pub(super) fn subgraph_items<'a>(
        &mut self,
        scope: &Scope<'_, 'a, 'b>,
        graph: &'a FlatGraph<'a>,
        inputs: Vec<Item<'b>>,
    ) -> Result<Option<Vec<Item<'b>>>> {
        ensure!(graph.inputs.len() == inputs.len(), "the inner graph has {} inputs, not {}", graph.inputs.len(), inputs.len());
        let values = graph.inputs.iter().map(|input| input.name.as_str()).zip(inputs.into_iter().map(Some)).collect();
        // Only branches have no inputs.
        let is_repeated = scope.is_repeated || !graph.inputs.is_empty();
        let inner = Scope { graph, values: RefCell::new(values), outer: Some(scope), is_repeated };
        self.nodes(&inner);
        Ok(graph.outputs.iter().map(|output| self.value(&inner, &output.name)).collect())
    }

    pub(super) fn begin_round(&mut self) -> Result<()> {
        self.rounds += 1;
        let bounded = self.rounds <= MAX_ROUNDS && self.builder.live_count() <= MAX_NODES;
        ensure!(bounded, "the loop is too long to be written out");
        Ok(())
    }

    pub(super) fn unknown(&self, what: &str, wire: Wire<'b>) -> Error {
        let error = Error::new(format!("{what} is not known when the model is compiled"));
        let sources = self.builder.inputs_of(wire);
        if sources.is_empty() {
            error
        } else {
            error.help(format!("give the values of {} with `--constant NAME=VALUE`", sources.join(", ")))
        }
    }
}

/// The inputs of a `Scan` behind the lengths, and how many of them are states.
fn scan_inputs<'b>(attributes: &Attributes<'_>, inputs: &[Option<Wire<'b>>]) -> Result<(Vec<Wire<'b>>, usize)> {
    let scanned = attributes.required("num_scan_inputs", attributes.int("num_scan_inputs")?)?;
    let inputs = inputs.iter().copied().collect::<Option<Vec<_>>>().ok_or_else(|| Error::new("an input is missing"))?;
    let states =
        usize::try_from(scanned).ok().filter(|&scanned| scanned > 0).and_then(|scanned| inputs.len().checked_sub(scanned));
    let states = states.ok_or_else(|| {
        Error::new(format!("the attribute 'num_scan_inputs' is {scanned}, but there are {} inputs", inputs.len()))
    })?;
    Ok((inputs, states))
}

/// See [`Importer::attempt`].
struct Attempt {
    errors: usize,
    warnings: usize,
    inputs: usize,
    stand_ins: BTreeSet<String>,
}

fn unsupported_operators(graph: &FlatGraph<'_>, errors: &mut Vec<Error>) {
    for node in &graph.nodes {
        if ops::control(node.domain, node.operator).is_none()
            && let Err(error) = ops::lookup(node.domain, node.operator, node.opset)
        {
            errors.push(error.node(node.reference()));
        }
        node.graphs().for_each(|graph| unsupported_operators(graph, errors));
    }
}

pub(super) fn axis_of(axis: i64, rank: usize) -> Result<usize> {
    let place = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    let place = place.and_then(|place| usize::try_from(place).ok()).filter(|&place| place < rank);
    place.ok_or_else(|| Error::new(format!("axis {axis} is outside of a tensor of rank {rank}")))
}
