//! Loops and branches.

use mcc_support::{DType, EntityMap, TensorType};

use super::{Lowering, Nest, Source, unpacked};
use crate::graph::{Graph, If, Loop, Node, Origin, ValueId};
use crate::loops::expr::{Binary, Expr, ExprId};
use crate::loops::{BufferId, Region, RegionId, RegionKind, Role, scalar};

/// Where kernels of a graph go, and what it has so far; see [`Lowering::enter`].
struct Outside<'g> {
    graph: &'g Graph,
    region: Option<RegionId>,
    rounds: Option<usize>,
    buffers: EntityMap<ValueId, Option<BufferId>>,
    checked: std::collections::BTreeSet<(ValueId, usize)>,
}

impl<'g> Lowering<'g> {
    /// A loop: what it carries is stored to shared buffers before it and by its latches.
    pub(super) fn repeat(&mut self, inner: &'g Loop, node: &Node) {
        let origin = self.graph.values[node.results[0]].origin.clone();
        let (round_ty, go_ty) = (TensorType::new(DType::I64, []), TensorType::new(DType::Bool, []));
        let round = self.shared("round", round_ty.clone(), &origin);
        let go = self.shared("go", go_ty.clone(), &origin);
        let (rounds, enters) = (self.source(node.operands[0]), self.source(node.operands[1]));
        self.set_round(round, None, &origin);
        self.set_go(go, &rounds, &enters, None, inner.limit, &origin);
        let carried: Vec<BufferId> = node.operands[2..2 + inner.carried]
            .iter()
            .zip(&node.results[1..])
            .map(|(&initial, &result)| {
                let ty = self.wide(initial);
                let name = self.graph.values[result].origin.output.clone();
                let buffer = self.shared(&name, ty.clone(), &origin);
                let source = self.source(initial);
                self.copy(source, buffer, &ty, "carry", &origin);
                buffer
            })
            .collect();
        let always = self.graph.constant(node.operands[0]).is_some_and(|rounds| rounds.number(0).as_i64() >= inner.limit as i64)
            && [self.graph.constant(node.operands[1]), inner.body.constant(inner.body.outputs[0].1)]
                .iter()
                .all(|go| go.is_some_and(|go| go.number(0).as_i64() != 0));
        let stacks: Vec<BufferId> = node.results[1 + inner.carried..]
            .iter()
            .map(|&result| {
                let ty = self.wide(result);
                let stack = self.shared(&self.graph.values[result].origin.output.clone(), ty.clone(), &origin);
                if !always {
                    self.copy(Source::Const(ty.dtype, 0), stack, &ty, "clear", &origin);
                }
                stack
            })
            .collect();
        let captured = self.captured(&node.operands[2 + inner.carried..]);
        let results = [round].into_iter().chain(carried.iter().copied()).chain(stacks.iter().copied());
        node.results.iter().zip(results).for_each(|(&result, buffer)| self.buffers[result] = Some(buffer));
        // The number of rounds is read in the loop.
        self.share(&rounds);

        let outside = self.enter(&inner.body, RegionKind::Loop { go });
        self.rounds = Some(inner.limit);
        let inputs = [round].into_iter().chain(carried.iter().copied()).map(Some).chain(captured);
        inner.body.inputs.iter().zip(inputs).for_each(|(&(_, input), buffer)| self.buffers[input] = buffer);
        self.body();
        let next = self.next_values(&inner.body.outputs[1..=inner.carried], &carried, &origin);
        for (&(_, element), &stack) in inner.body.outputs[1 + inner.carried..].iter().zip(&stacks) {
            let source = self.source(element);
            self.add_to_stack(&source, stack, round, &origin);
        }
        let goes_on = self.source(inner.body.outputs[0].1);
        self.share(&goes_on);
        let latches = self.program.kernels.len();
        // First, for what it reads may be carried.
        self.set_go(go, &rounds, &goes_on, Some(round), inner.limit, &origin);
        for (source, &buffer) in next.into_iter().zip(&carried) {
            if let Some(source) = source {
                let ty = self.program.buffers[buffer].ty.clone();
                self.copy(source, buffer, &ty, "carry", &origin);
            }
        }
        self.set_round(round, Some(round), &origin);
        self.program.kernels[latches..].iter_mut().for_each(|kernel| kernel.latch = true);
        self.leave(outside);
    }

    /// Two regions that store to the same shared buffers.
    pub(super) fn branch(&mut self, inner: &'g If, node: &Node) {
        let origin = self.graph.values[node.results[0]].origin.clone();
        let cond = match self.source(node.operands[0]) {
            source @ Source::Const(..) => {
                let ty = TensorType::new(DType::Bool, []);
                let cond = self.shared("cond", ty.clone(), &origin);
                self.copy(source, cond, &ty, "cond", &origin);
                cond
            }
            source @ Source::Buffer { buffer, .. } => {
                self.share(&source);
                buffer
            }
        };
        let results: Vec<BufferId> = node
            .results
            .iter()
            .map(|&result| {
                let buffer = self.shared(&self.graph.values[result].origin.output.clone(), self.wide(result), &origin);
                self.buffers[result] = Some(buffer);
                buffer
            })
            .collect();
        let captured = self.captured(&node.operands[1..]);
        for (body, taken) in [(&inner.then, true), (&inner.otherwise, false)] {
            let outside = self.enter(body, RegionKind::Branch { cond, taken });
            body.inputs.iter().zip(&captured).for_each(|(&(_, input), &buffer)| self.buffers[input] = buffer);
            // What one node computes is stored in its place.
            for (&(_, output), &buffer) in body.outputs.iter().zip(&results) {
                let own = body.definition(output).is_some_and(|(_, node)| !node.op.has_body());
                if own && self.buffers[output].is_none() {
                    self.buffers[output] = Some(buffer);
                }
            }
            self.body();
            for (&(_, output), &buffer) in body.outputs.iter().zip(&results) {
                if self.buffers[output] != Some(buffer) {
                    let (source, ty) = (self.source(output), self.program.buffers[buffer].ty.clone());
                    self.copy(source, buffer, &ty, "copy", &origin);
                }
            }
            self.leave(outside);
        }
    }

    /// Goes on with a graph inside, in a region of its own.
    fn enter(&mut self, body: &'g Graph, kind: RegionKind) -> Outside<'g> {
        let region = self.program.regions.push(Region { parent: self.region, kind });
        Outside {
            graph: std::mem::replace(&mut self.graph, body),
            region: self.region.replace(region),
            rounds: self.rounds.take(),
            buffers: std::mem::replace(&mut self.buffers, EntityMap::filled(body.values.len(), None)),
            checked: std::mem::take(&mut self.checked),
        }
    }

    fn leave(&mut self, outside: Outside<'g>) {
        let Outside { graph, region, rounds, buffers, checked } = outside;
        (self.graph, self.region, self.rounds, self.buffers, self.checked) = (graph, region, rounds, buffers, checked);
    }

    fn body(&mut self) {
        let graph = self.graph;
        for id in graph.order() {
            self.node(graph.node(id));
        }
    }

    /// The type in which a value lies.
    fn wide(&self, value: ValueId) -> TensorType {
        let ty = self.graph.ty(value);
        TensorType::new(unpacked(ty.dtype), ty.shape.clone())
    }

    fn shared(&mut self, name: &str, ty: TensorType, origin: &Origin) -> BufferId {
        let name = if name.is_empty() { &origin.output } else { name };
        self.buffer(name, ty, Role::Shared)
    }

    /// Marks a buffer as one that another region touches.
    fn share(&mut self, source: &Source) {
        if let Source::Buffer { buffer, .. } = source
            && let role @ Role::Temporary = &mut self.program.buffers[*buffer].role
        {
            *role = Role::Shared;
        }
    }

    /// Buffers of values that a body reads; one without elements or with one that is constant has none.
    fn captured(&mut self, operands: &[ValueId]) -> Vec<Option<BufferId>> {
        let mut captured = Vec::with_capacity(operands.len());
        for &operand in operands {
            let source = match self.source(operand) {
                Source::Const(dtype, bits) => {
                    // Its body knows it by place only.
                    let (ty, origin) = (self.wide(operand), self.graph.values[operand].origin.clone());
                    let buffer = self.shared("captured", ty.clone(), &origin);
                    self.copy(Source::Const(dtype, bits), buffer, &ty, "constant", &origin);
                    Source::Buffer { buffer, ty }
                }
                source => source,
            };
            self.share(&source);
            let Source::Buffer { buffer, .. } = source else { unreachable!("constants were stored") };
            captured.push(Some(buffer));
        }
        captured
    }

    /// Where to read what a loop carries on, `None` where it stays as it is. What is carried in another place now is copied first:
    /// latches run one after the other.
    fn next_values(&mut self, outputs: &[(String, ValueId)], carried: &[BufferId], origin: &Origin) -> Vec<Option<Source>> {
        let mut next = Vec::with_capacity(carried.len());
        for (&(_, output), &own) in outputs.iter().zip(carried) {
            let source = self.source(output);
            let Source::Buffer { buffer, ty } = &source else {
                next.push(Some(source));
                continue;
            };
            if *buffer == own {
                next.push(None);
            } else if carried.contains(buffer) {
                let ty = ty.clone();
                let copy = self.buffer("next", ty.clone(), Role::Shared);
                self.copy(source, copy, &ty, "copy", origin);
                next.push(Some(Source::Buffer { buffer: copy, ty }));
            } else {
                self.share(&source);
                next.push(Some(source));
            }
        }
        next
    }

    /// `stack[round, …] = element[…]`.
    fn add_to_stack(&mut self, element: &Source, stack: BufferId, round: BufferId, origin: &Origin) {
        let ty = self.program.buffers[stack].ty.clone();
        let mut nest = Nest::new(&TensorType::new(ty.dtype, ty.shape.dims()[1..].to_vec()));
        let place = nest.exprs().load(round, DType::I64, Vec::new());
        let (zero, last) = (nest.exprs().int(0), nest.exprs().int(ty.shape[0].saturating_sub(1) as i64));
        let place = nest.exprs().binary(Binary::Max, place, zero);
        let place = nest.exprs().binary(Binary::Min, place, last);
        let mut index = nest.spatial_indices();
        let value = element.load(nest.exprs(), index.clone());
        index.insert(0, place);
        nest.store_at(stack, index, value);
        self.push(nest, "stack", origin);
    }

    /// `round = 0`, or one more than it was.
    fn set_round(&mut self, round: BufferId, before: Option<BufferId>, origin: &Origin) {
        let mut nest = Nest::new(&TensorType::new(DType::I64, []));
        let value = next_round(&mut nest, before);
        nest.store(round, value);
        self.push(nest, "round", origin);
    }

    /// `go = condition && next round < min(rounds, limit)`.
    fn set_go(
        &mut self,
        go: BufferId,
        rounds: &Source,
        condition: &Source,
        before: Option<BufferId>,
        limit: usize,
        origin: &Origin,
    ) {
        let mut nest = Nest::new(&TensorType::new(DType::Bool, []));
        let round = next_round(&mut nest, before);
        let rounds = rounds.load(nest.exprs(), Vec::new());
        let limit = nest.exprs().int(limit as i64);
        let condition = condition.load(nest.exprs(), Vec::new());
        let rounds = nest.exprs().binary(Binary::Min, rounds, limit);
        let more = nest.exprs().binary(Binary::Lt, round, rounds);
        let no = nest.exprs().add(Expr::Const(DType::Bool, 0));
        let value = scalar::select(nest.exprs(), condition, more, no);
        nest.store(go, value);
        self.push(nest, "go", origin);
    }
}

fn next_round(nest: &mut Nest, before: Option<BufferId>) -> ExprId {
    let Some(before) = before else { return nest.exprs().int(0) };
    let (round, one) = (nest.exprs().load(before, DType::I64, Vec::new()), nest.exprs().int(1));
    nest.exprs().binary(Binary::Add, round, one)
}
