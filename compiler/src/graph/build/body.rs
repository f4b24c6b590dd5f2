//! Graphs inside of nodes. A body is built like everything else, in the same builder, and what was added is then taken out of the
//! graph into one of its own: what it reads of the values around it becomes its inputs.

use std::collections::{BTreeMap, BTreeSet};

use mcc_support::{DType, EntityMap, Result, Shape, Tensor, TensorType, ensure};

use super::{Builder, Wire};
use crate::graph::axes::Axis;
use crate::graph::{Def, Graph, If, Loop, Node, NodeId, Op, Value, ValueId};

/// What one round of a loop computes.
#[derive(Debug)]
pub struct Round<'b> {
    /// `bool[]`: whether there is another round, as far as the round decides that.
    pub go: Wire<'b>,
    /// The carried values of the next round.
    pub next: Vec<Wire<'b>>,
    /// What the round adds to each stack.
    pub elements: Vec<Wire<'b>>,
}

/// The results of a loop; see [`Loop`].
#[derive(Debug)]
pub struct Repeated<'b> {
    /// How many were run.
    pub rounds: Wire<'b>,
    pub carried: Vec<Wire<'b>>,
    /// Of as many rows as rounds could be run, or as were run where that is known.
    pub stacks: Vec<Wire<'b>>,
}

/// Loops of no more rounds are written out, where the number is known.
const WRITTEN_OUT: usize = 4;

impl Builder {
    /// A loop of at most `rounds` (`i64[]`, `None`: `limit`) rounds that is entered where `go` (`bool[]`, `None`: always) holds. `body`
    /// is given the round (`i64[]`) and the carried values; it may be called more than once. A short loop is written out.
    pub fn repeat<'b>(
        &'b self,
        limit: usize,
        rounds: Option<Wire<'b>>,
        go: Option<Wire<'b>>,
        initial: &[Wire<'b>],
        mut body: impl FnMut(Wire<'b>, &[Wire<'b>]) -> Result<Round<'b>>,
    ) -> Result<Repeated<'b>> {
        let rounds = rounds.unwrap_or_else(|| self.constant(Tensor::scalar(limit as i64)));
        let go = go.unwrap_or_else(|| self.constant(Tensor::scalar(true)));
        let known = rounds.constant().map(|rounds| usize::try_from(rounds.number(0).as_i64()).unwrap_or(0).min(limit));
        let known = if is_false(go) { Some(0) } else { known.filter(|_| go.constant().is_some()) };
        if let Some(known) = known.filter(|&known| known <= WRITTEN_OUT)
            && let Some(written) = self.write_out(known, initial, &mut body)?
        {
            return Ok(written);
        }
        let counters = self.counters(initial, &mut body);
        let bounded = self.limit(limit, initial, &counters, &mut body);
        let mut plan = LoopPlan { changed: Vec::new(), counters, limit: bounded };
        plan.changed = (0..initial.len()).filter(|at| !plan.counters.contains_key(at)).collect();
        let built = loop {
            let built = self.build_body(initial, &plan, &mut body)?;
            if !built.no_counters.is_empty() {
                // What was seen with a wrong counter is void, as is the bound that counters gave.
                plan.counters.retain(|at, _| !built.no_counters.contains(at));
                plan.changed = (0..initial.len()).filter(|at| !plan.counters.contains_key(at)).collect();
                plan.limit = limit;
            } else if built.moving != plan.changed {
                // What no round changes is not carried: the body reads it as it is.
                plan.changed = built.moving;
            } else {
                break built;
            }
        };
        self.close_loop(rounds, go, initial, &plan, built)
    }

    /// Builds the body once, for an unknown round.
    fn build_body<'b>(
        &'b self,
        initial: &[Wire<'b>],
        plan: &LoopPlan,
        body: &mut impl FnMut(Wire<'b>, &[Wire<'b>]) -> Result<Round<'b>>,
    ) -> Result<Built<'b>> {
        self.check()?;
        let placeholder = |&at: &usize| self.with_axes(self.define(initial[at].ty(), Def::Input), initial[at].axes());
        let carried: Vec<Wire<'b>> = plan.changed.iter().map(placeholder).collect();
        let mark = self.node_count();
        let round = self.define(TensorType::new(DType::I64, Shape::scalar()), Def::Input);
        self.name_extent("round", round, plan.limit.saturating_sub(1));
        let mut values = initial.to_vec();
        plan.changed.iter().zip(&carried).for_each(|(&at, &wire)| values[at] = wire);
        plan.counters.iter().for_each(|(&at, &step)| values[at] = counted(initial[at], round, step));
        let results = body(round, &values).and_then(|results| self.check().map(|()| results));
        // What a counter is in the next round must be seen to be one step more.
        let no_counters: Vec<usize> = results.as_ref().map_or(Vec::new(), |results| {
            let one_more = round + 1.0;
            let counts = |(&at, &step): (&usize, &i64)| {
                let (next, want) = (results.next[at].elements(), counted(initial[at], one_more, step).elements());
                (next.is_none() || next != want).then_some(at)
            };
            plan.counters.iter().filter_map(counts).collect()
        });
        let (nodes, checked) = self.take_checked(mark);
        let results = results?;
        ensure!(!checked, "a size that a loop finds in its rounds is not known to be in bounds");
        let moves = |(&at, wire): (&usize, &Wire<'b>)| (results.next[at].value != wire.value).then_some(at);
        let moving = plan.changed.iter().zip(&carried).filter_map(moves).collect();
        Ok(Built { round, carried, nodes, results, moving, no_counters })
    }

    /// Takes what was built into a node.
    fn close_loop<'b>(
        &'b self,
        rounds: Wire<'b>,
        go: Wire<'b>,
        initial: &[Wire<'b>],
        plan: &LoopPlan,
        built: Built<'b>,
    ) -> Result<Repeated<'b>> {
        let LoopPlan { changed, counters, limit } = plan;
        let Built { round, carried, nodes, results: Round { go: goes_on, next, elements }, .. } = built;
        let next: Vec<Wire<'b>> = changed.iter().map(|&at| next[at]).collect();
        let started: Vec<Wire<'b>> = changed.iter().map(|&at| initial[at]).collect();
        for (next, initial) in next.iter().zip(&started) {
            ensure!(
                next.axes() == initial.axes(),
                "a value carried by a loop starts as {} and goes on as {}",
                self.type_text(*initial),
                self.type_text(*next)
            );
        }
        self.check_extents(&nodes, [round].iter().chain(&carried), &elements)?;
        let inputs: Vec<ValueId> = [round].iter().chain(&carried).map(|wire| wire.value).collect();
        let outputs: Vec<ValueId> = [goes_on].iter().chain(&next).chain(&elements).map(|wire| wire.value).collect();
        let captured = self.captures(&nodes, &inputs, &outputs);
        let body = self.assemble(&nodes, inputs.iter().chain(&captured), &outputs);
        let mut operands = vec![rounds, go];
        operands.extend(&started);
        operands.extend(captured.iter().map(|&value| self.wire(value)));
        let op = Op::Loop(Box::new(Loop { body, carried: started.len(), limit: *limit }));
        let mut results = self.add_all(op, &operands);
        self.check()?;
        let stacks = results.split_off(1 + started.len());
        let rounds = results.remove(0);
        let mut ends = initial.to_vec();
        changed.iter().zip(results).for_each(|(&at, result)| ends[at] = self.with_axes(result, initial[at].axes()));
        counters.iter().for_each(|(&at, &step)| ends[at] = counted(initial[at], rounds, step));
        let stack = |(stack, element): (Wire<'b>, &Wire<'b>)| {
            self.with_axes(stack, [Axis::whole(*limit)].into_iter().chain(element.axes()).collect())
        };
        let stacks = stacks.into_iter().zip(&elements).map(stack).collect();
        Ok(Repeated { rounds, carried: ends, stacks })
    }

    /// How many rounds there can be, where counters alone tell that some round is the last one.
    fn limit<'b>(
        &'b self,
        limit: usize,
        initial: &[Wire<'b>],
        counters: &Counters,
        body: &mut impl FnMut(Wire<'b>, &[Wire<'b>]) -> Result<Round<'b>>,
    ) -> usize {
        if limit < 2 || counters.values().all(|&step| step == 0) {
            return limit;
        }
        let mark = self.node_count();
        // What the condition of a round is, with the counters' values or without.
        let mut goes_on = |round: usize, counts: bool| -> Option<bool> {
            let round = self.constant(Tensor::scalar(round as i64));
            let value = |(at, wire): (usize, &Wire<'b>)| match counters.get(&at) {
                Some(&step) if counts => counted(*wire, round, step),
                _ => self.with_axes(self.define(wire.ty(), Def::Input), wire.axes()),
            };
            let values: Vec<Wire<'b>> = initial.iter().enumerate().map(value).collect();
            let built = body(round, &values);
            let built = built.ok().filter(|_| self.check().is_ok())?;
            built.go.constant().map(|go| go.number(0).as_i64() != 0)
        };
        let mut search = || {
            if goes_on(1, false).is_some() {
                return None;
            }
            let mut last = 1;
            while goes_on(last, true)? {
                last = Some(2 * last).filter(|&last| last < limit.min(1 << 20))?;
            }
            let mut before = last / 2;
            while last - before > 1 {
                let middle = before.midpoint(last);
                if goes_on(middle, true)? { before = middle } else { last = middle }
            }
            Some(last + 1)
        };
        let found = search();
        // A mistake in a body that is not taken is none.
        let _ = self.check();
        self.take_nodes(mark);
        found.map_or(limit, |found| found.min(limit))
    }

    /// What a loop carries that seems to grow by the same number in each round, which may be 0: that number by place. It is seen
    /// in the first two.
    fn counters<'b>(
        &'b self,
        initial: &[Wire<'b>],
        body: &mut impl FnMut(Wire<'b>, &[Wire<'b>]) -> Result<Round<'b>>,
    ) -> Counters {
        let number = |wire: Wire<'b>| wire.constant().filter(|value| value.count() == 1).map(|value| value.number(0).as_i64());
        let may_count = |wire: &Wire<'b>| wire.dtype().is_integer() && number(*wire).is_some();
        let mut counters = Counters::new();
        if !initial.iter().any(may_count) {
            return counters;
        }
        let mark = self.node_count();
        let define = |wire: &Wire<'b>| self.with_axes(self.define(wire.ty(), Def::Input), wire.axes());
        let mut values: Vec<Wire<'b>> = initial.iter().map(|wire| if may_count(wire) { *wire } else { define(wire) }).collect();
        let mut seen: Vec<Vec<Option<i64>>> = vec![initial.iter().map(|&wire| number(wire)).collect()];
        for round in 0..2 {
            let built = body(self.constant(Tensor::scalar(round as i64)), &values);
            let Some(built) = built.ok().filter(|built| self.check().is_ok() && built.next.len() == initial.len()) else { break };
            seen.push(built.next.iter().map(|&wire| number(wire)).collect());
            values
                .iter_mut()
                .zip(&built.next)
                .filter(|(_, next)| number(**next).is_some())
                .for_each(|(value, &next)| *value = next);
        }
        self.take_nodes(mark);
        if let [first, second, third] = &seen[..] {
            for at in (0..initial.len()).filter(|&at| may_count(&initial[at])) {
                let (Some(a), Some(b), Some(c)) = (first[at], second[at], third[at]) else { continue };
                if b.checked_sub(a).is_some_and(|step| c.checked_sub(b) == Some(step)) {
                    counters.insert(at, b - a);
                }
            }
        }
        counters
    }

    /// A loop of at most so many rounds, round by round: what it carries may change its type. `None` where it depends on data whether
    /// there is another one.
    pub fn write_out<'b>(
        &'b self,
        rounds: usize,
        initial: &[Wire<'b>],
        body: &mut impl FnMut(Wire<'b>, &[Wire<'b>]) -> Result<Round<'b>>,
    ) -> Result<Option<Repeated<'b>>> {
        let mark = self.node_count();
        let mut carried = initial.to_vec();
        let mut elements: Vec<Vec<Wire<'b>>> = Vec::new();
        let mut goes_on = true;
        while goes_on && elements.len() < rounds {
            let round = body(self.constant(Tensor::scalar(elements.len() as i64)), &carried)?;
            self.check()?;
            let Some(go) = round.go.constant().filter(|go| go.count() == 1) else {
                self.take_nodes(mark);
                return Ok(None);
            };
            goes_on = go.number(0).as_i64() != 0;
            carried = round.next;
            elements.push(round.elements);
        }
        let run = elements.len();
        let types: Vec<TensorType> = match elements.first() {
            Some(first) => first.iter().map(|wire| wire.ty()).collect(),
            None => {
                // Those that the first round would have.
                let mark = self.node_count();
                let round = body(self.constant(Tensor::scalar(0i64)), &carried)?;
                self.take_nodes(mark);
                round.elements.iter().map(|wire| wire.ty()).collect()
            }
        };
        let stack = |(place, ty): (usize, TensorType)| {
            let shape = |rows: usize| [rows].into_iter().chain(ty.shape.iter().copied()).collect::<Vec<_>>();
            if run == 0 {
                return self.constant(Tensor::zeros(TensorType::new(ty.dtype, shape(0))));
            }
            self.concat(&elements.iter().map(|round| round[place].reshape(shape(1))).collect::<Vec<_>>(), 0)
        };
        let stacks = types.into_iter().enumerate().map(stack).collect();
        self.check()?;
        Ok(Some(Repeated { rounds: self.constant(Tensor::scalar(run as i64)), carried, stacks }))
    }

    /// The outputs of one of two branches, by `cond` (`bool[]`). `build` is called once for each: whether it is the one that is taken
    /// where the condition holds.
    pub fn branch<'b>(&'b self, cond: Wire<'b>, mut build: impl FnMut(bool) -> Result<Vec<Wire<'b>>>) -> Result<Vec<Wire<'b>>> {
        let mut side = |taken: bool| {
            self.check()?;
            let mark = self.node_count();
            let built = build(taken).and_then(|built| self.check().map(|()| built));
            let (nodes, checked) = self.take_checked(mark);
            ensure!(!checked, "a size that a branch finds is not known to be in bounds");
            let built = built?;
            self.check_extents(&nodes, [].iter(), &built)?;
            let axes = built.iter().map(|wire| wire.axes()).collect::<Vec<_>>();
            Ok((nodes, built.into_iter().map(|wire| wire.value).collect::<Vec<_>>(), axes))
        };
        let (then, otherwise) = (side(true)?, side(false)?);
        ensure!(then.2 == otherwise.2, "the branches compute values of different extents, which are known only at run time");
        let mut captured = self.captures(&then.0, &[], &then.1);
        let seen: BTreeSet<ValueId> = captured.iter().copied().collect();
        captured.extend(self.captures(&otherwise.0, &[], &otherwise.1).into_iter().filter(|value| !seen.contains(value)));
        let graph = |(nodes, outputs, _): &(Nodes, Vec<ValueId>, _)| self.assemble(nodes, captured.iter(), outputs);
        let op = Op::If(Box::new(If { then: graph(&then), otherwise: graph(&otherwise) }));
        let operands: Vec<Wire<'b>> = [cond].into_iter().chain(captured.iter().map(|&value| self.wire(value))).collect();
        let results = self.add_all(op, &operands);
        self.check()?;
        Ok(results.into_iter().zip(then.2).map(|(result, axes)| self.with_axes(result, axes)).collect())
    }

    /// Takes the nodes out of the graph that were added since there were so many.
    fn take_nodes(&self, mark: usize) -> Nodes {
        self.take_checked(mark).0
    }

    /// The same, and whether one of them is to end runs.
    fn take_checked(&self, mark: usize) -> (Nodes, bool) {
        let nodes: Nodes = {
            let nodes = &mut self.state.borrow_mut().graph.nodes;
            (mark..nodes.len()).map(|at| NodeId(at as u32)).filter_map(|id| nodes[id].take()).collect()
        };
        self.state.borrow_mut().taken += nodes.len();
        let checked = self.forget_wires(&nodes.iter().flat_map(|node| &node.results).copied().collect());
        (nodes, checked)
    }

    /// That no extent of these values is computed in the body.
    fn check_extents<'w, 'b: 'w>(
        &self,
        nodes: &Nodes,
        inputs: impl Iterator<Item = &'w Wire<'b>>,
        values: &[Wire<'b>],
    ) -> Result<()> {
        let inside: BTreeSet<ValueId> =
            nodes.iter().flat_map(|node| &node.results).copied().chain(inputs.map(|wire| wire.value)).collect();
        for value in values {
            let symbols = value.extents().iter().flat_map(|extent| self.symbols(extent)).collect::<Vec<_>>();
            ensure!(
                !symbols.iter().any(|symbol| inside.contains(symbol)),
                "how large {} is depends on what is computed in a loop or branch",
                self.type_text(*value)
            );
        }
        Ok(())
    }

    /// Values that these outputs are computed from and that are neither inputs of the body, constants nor computed in it, in the order
    /// in which they were made.
    fn captures(&self, nodes: &Nodes, inputs: &[ValueId], outputs: &[ValueId]) -> Vec<ValueId> {
        let graph = &self.state.borrow().graph;
        let needed = needed(nodes, outputs);
        let inside: BTreeSet<ValueId> = nodes.iter().flat_map(|node| &node.results).chain(inputs).copied().collect();
        needed.into_iter().filter(|value| !inside.contains(value) && graph.constant(*value).is_none()).collect()
    }

    /// The graph of these nodes, as far as the outputs need them.
    fn assemble<'v>(&self, nodes: &Nodes, inputs: impl Iterator<Item = &'v ValueId>, outputs: &[ValueId]) -> Graph {
        let outer = &self.state.borrow().graph;
        let mut graph = Graph { name: "body".into(), ..Graph::default() };
        let mut ids: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        for (place, &input) in inputs.enumerate() {
            let value = Value { def: Def::Input, ..outer.values[input].clone() };
            let id = graph.values.push(value);
            ids.insert(input, id);
            graph.inputs.push((format!("in{place}"), id));
        }
        let needed = needed(nodes, outputs);
        let constants = |values: &mut EntityMap<ValueId, Value>, ids: &mut BTreeMap<ValueId, ValueId>, value: ValueId| {
            *ids.entry(value).or_insert_with(|| values.push(outer.values[value].clone()))
        };
        for node in nodes.iter().filter(|node| node.results.iter().any(|result| needed.contains(result))) {
            let operands = node.operands.iter().map(|&operand| constants(&mut graph.values, &mut ids, operand)).collect();
            let id = NodeId(graph.nodes.len() as u32);
            let define = |(index, result): (usize, &ValueId)| {
                let def = Def::Node { node: id, index };
                let new = graph.values.push(Value { def, ..outer.values[*result].clone() });
                ids.insert(*result, new);
                new
            };
            let results = node.results.iter().enumerate().map(define).collect();
            graph.nodes.push(Some(Node { op: node.op.clone(), operands, results }));
        }
        for (place, &output) in outputs.iter().enumerate() {
            let id = constants(&mut graph.values, &mut ids, output);
            graph.outputs.push((format!("out{place}"), id));
        }
        graph
    }
}

/// By place among what a loop carries: what it grows by in each round.
type Counters = BTreeMap<usize, i64>;

/// What a loop carries, and how.
struct LoopPlan {
    /// Places of what rounds change.
    changed: Vec<usize>,
    counters: Counters,
    limit: usize,
}

/// A body as it was built.
struct Built<'b> {
    round: Wire<'b>,
    /// One for each of [`LoopPlan::changed`].
    carried: Vec<Wire<'b>>,
    nodes: Nodes,
    results: Round<'b>,
    /// Places among [`LoopPlan::changed`] of what rounds do change, as far as all counters count.
    moving: Vec<usize>,
    /// Places of counters that do not count.
    no_counters: Vec<usize>,
}

/// What a counter is in a round.
fn counted<'b>(initial: Wire<'b>, round: Wire<'b>, step: i64) -> Wire<'b> {
    if step == 0 {
        return initial;
    }
    let first = initial.cast(DType::I64).reshape(Shape::scalar());
    (first + round * round.builder().constant(Tensor::scalar(step))).reshape(initial.shape()).cast(initial.dtype())
}

fn is_false(wire: Wire<'_>) -> bool {
    wire.constant().is_some_and(|value| value.number(0).as_i64() == 0)
}

/// In the order in which they were added, which is topological.
type Nodes = Vec<Node>;

/// Values that these outputs are computed from, with themselves.
fn needed(nodes: &Nodes, outputs: &[ValueId]) -> BTreeSet<ValueId> {
    let mut needed: BTreeSet<ValueId> = outputs.iter().copied().collect();
    for node in nodes.iter().rev() {
        if node.results.iter().any(|result| needed.contains(result)) {
            needed.extend(&node.operands);
        }
    }
    needed
}
