//! The only way in which passes change a graph: it counts rewrites, spends fuel, infers types, keeps track of uses and writes the
//! change log.

use std::collections::BTreeSet;

use mcc_support::tensor::Number;
use mcc_support::{DType, EntityMap, Shape, Tensor, TensorType, bug};

use super::op::{BinaryFn, Op};
use super::{Def, Graph, Node, NodeId, Origin, Value, ValueId, infer, text};

/// A graph under change by one pass.
#[derive(Debug)]
pub struct Edit {
    graph: Graph,
    pass: &'static str,
    /// Rewrites that are still allowed; `None`: any number.
    fuel: Option<u64>,
    rewrites: u64,
    log: Vec<String>,
    /// The nodes that use each value, and how often outputs do.
    users: EntityMap<ValueId, BTreeSet<NodeId>>,
    output_uses: EntityMap<ValueId, usize>,
    /// Values that someone wants to find again; `None` for one that is gone.
    tracked: Vec<Option<ValueId>>,
    /// Where a node stands among others that do not depend on it: new nodes, where the node stood that they replace.
    ranks: EntityMap<NodeId, u32>,
    /// What new nodes get.
    origin: Origin,
    rank: u32,
}

/// What a pass did.
#[derive(Debug)]
pub struct Edited {
    pub graph: Graph,
    pub rewrites: u64,
    /// What became of the values of [`Edit::track`].
    pub tracked: Vec<Option<ValueId>>,
    /// One line for each rewrite: `[fold-batch-norm] %12 conv + %13 batch_norm → %20 add`.
    pub log: Vec<String>,
}

impl Edit {
    pub fn new(graph: Graph, pass: &'static str, fuel: Option<u64>) -> Self {
        let mut users = EntityMap::filled(graph.values.len(), BTreeSet::new());
        for (id, node) in graph.live_nodes() {
            node.operands.iter().for_each(|&operand| {
                users[operand].insert(id);
            });
        }
        let mut output_uses = EntityMap::filled(graph.values.len(), 0);
        graph.outputs.iter().for_each(|&(_, output)| output_uses[output] += 1);
        let ranks = graph.nodes.keys().map(|id| id.0).collect();
        Self {
            graph,
            pass,
            fuel,
            rewrites: 0,
            log: Vec::new(),
            users,
            output_uses,
            tracked: Vec::new(),
            ranks,
            origin: Origin::default(),
            rank: 0,
        }
    }

    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Follows values through rewrites: what replaces one stands for it from then on.
    pub fn track(&mut self, values: Vec<Option<ValueId>>) {
        self.tracked = values;
    }

    /// The nodes as they are now; a node that was removed since is to be skipped ([`is_live`](Self::is_live)).
    pub fn order(&self) -> Vec<NodeId> {
        self.graph.order_by(|id| self.ranks[id])
    }

    pub fn is_live(&self, node: NodeId) -> bool {
        self.graph.nodes[node].is_some()
    }

    /// Whether exactly one node uses a value, in one place or more, and no output does.
    pub fn has_one_user(&self, value: ValueId) -> bool {
        self.users[value].len() == 1 && self.output_uses[value] == 0
    }

    pub fn is_used(&self, value: ValueId) -> bool {
        !self.users[value].is_empty() || self.output_uses[value] > 0
    }

    /// `%12 conv`.
    pub fn describe(&self, value: ValueId) -> String {
        let what = match &self.graph.values[value].def {
            Def::Input => "input".into(),
            Def::Constant(_) => "constant".into(),
            Def::Node { node, .. } => text::op_name(&self.graph.node(*node).op),
        };
        format!("{value} {what}")
    }

    /// One rewrite: everywhere that `value` is used, what `build` makes is used instead; `build` gets the edit to add nodes with,
    /// and gives a value of the same type. `with` lists further values that the rewrite does away with, for the log. What is no
    /// longer used is removed. Nothing happens when the fuel is spent: then `build` is not called and the result is `false`.
    pub fn replace(&mut self, value: ValueId, with: &[ValueId], build: impl FnOnce(&mut Edit) -> ValueId) -> bool {
        if !self.spend() {
            return false;
        }
        let before: Vec<String> = with.iter().chain([&value]).map(|&value| self.describe(value)).collect();
        self.origin = self.graph.values[value].origin.clone();
        self.rank = match self.graph.values[value].def {
            Def::Node { node, .. } => self.ranks[node],
            Def::Input | Def::Constant(_) => 0,
        };
        let new = build(self);
        let (old_ty, new_ty) = (self.graph.ty(value), self.graph.ty(new));
        if old_ty != new_ty {
            bug!("pass {} replaced {}, a {old_ty}, by {}, a {new_ty}", self.pass, self.describe(value), self.describe(new));
        }
        self.log.push(format!("[{}] {} → {}", self.pass, before.join(" + "), self.describe(new)));
        self.redirect(value, new);
        self.remove_unused(value);
        true
    }

    /// One rewrite: a node becomes another with the same results.
    pub fn exchange(&mut self, id: NodeId, op: Op, operands: Vec<ValueId>) -> bool {
        if !self.spend() {
            return false;
        }
        let types: Vec<&TensorType> = operands.iter().map(|&operand| self.graph.ty(operand)).collect();
        let results = self.graph.node(id).results.clone();
        let types =
            infer::infer_all(&op, &types).unwrap_or_else(|error| bug!("pass {} made an ill-typed node: {error}", self.pass));
        if !types.iter().eq(results.iter().map(|&result| self.graph.ty(result))) {
            bug!("pass {} exchanged {} for a node of the types {types:?}", self.pass, self.describe(results[0]));
        }
        let before = self.describe(results[0]);
        let node = self.graph.nodes[id].as_mut().expect("only nodes that are there are exchanged");
        let old = std::mem::replace(node, Node { op, operands, results: results.clone() });
        old.operands.iter().for_each(|&operand| {
            self.users[operand].remove(&id);
        });
        self.graph.node(id).operands.iter().for_each(|&operand| {
            self.users[operand].insert(id);
        });
        self.log.push(format!("[{}] {before} → {}", self.pass, self.describe(results[0])));
        old.operands.into_iter().for_each(|operand| self.remove_unused(operand));
        true
    }

    /// Whether a result of a node is used.
    pub fn is_needed(&self, node: NodeId) -> bool {
        self.graph.node(node).results.iter().any(|&result| self.is_used(result))
    }

    /// One rewrite: a node that nobody uses goes.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let result = self.graph.node(node).results[0];
        assert!(!self.is_needed(node), "{result} is used");
        if !self.spend() {
            return false;
        }
        self.log.push(format!("[{}] {} → nothing", self.pass, self.describe(result)));
        self.remove_unused(result);
        true
    }

    fn spend(&mut self) -> bool {
        match &mut self.fuel {
            Some(0) => return false,
            Some(fuel) => *fuel -= 1,
            None => {}
        }
        self.rewrites += 1;
        true
    }

    fn redirect(&mut self, from: ValueId, to: ValueId) {
        for user in std::mem::take(&mut self.users[from]) {
            let node = self.graph.nodes[user].as_mut().expect("users are live");
            node.operands.iter_mut().filter(|operand| **operand == from).for_each(|operand| *operand = to);
            self.users[to].insert(user);
        }
        self.graph.outputs.iter_mut().filter(|(_, output)| *output == from).for_each(|(_, output)| *output = to);
        self.output_uses[to] += std::mem::take(&mut self.output_uses[from]);
        self.tracked.iter_mut().filter(|value| **value == Some(from)).for_each(|value| *value = Some(to));
    }

    /// Removes the node of an unused value, and what only it used.
    fn remove_unused(&mut self, value: ValueId) {
        let mut unused = vec![value];
        while let Some(value) = unused.pop() {
            let Def::Node { node: id, .. } = self.graph.values[value].def else { continue };
            if self.graph.nodes[id].is_none() || self.is_needed(id) {
                continue;
            }
            let node = self.graph.nodes[id].take().expect("looked at just now");
            for operand in node.operands {
                self.users[operand].remove(&id);
                unused.push(operand);
            }
        }
    }

    fn define(&mut self, ty: TensorType, def: Def) -> ValueId {
        self.users.push(BTreeSet::new());
        self.output_uses.push(0);
        self.graph.values.push(Value { ty, def, origin: self.origin.clone() })
    }

    /// Adds a node; only inside of [`replace`](Self::replace).
    pub fn add(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types: Vec<&TensorType> = operands.iter().map(|&operand| self.graph.ty(operand)).collect();
        let ty = match infer::infer(&op, &types) {
            Ok(ty) => ty,
            Err(error) => bug!("pass {} made an ill-typed node: {error}", self.pass),
        };
        let node = NodeId(self.graph.nodes.len() as u32);
        let result = self.define(ty, Def::Node { node, index: 0 });
        operands.iter().for_each(|&operand| {
            self.users[operand].insert(node);
        });
        self.graph.nodes.push(Some(Node { op, operands: operands.to_vec(), results: vec![result] }));
        self.ranks.push(self.rank);
        result
    }

    /// What is added from now on comes from where `value` comes from; until then, from where the replaced value does.
    pub fn set_origin(&mut self, value: ValueId) {
        self.origin = self.graph.values[value].origin.clone();
    }

    pub fn constant(&mut self, tensor: Tensor) -> ValueId {
        self.define(tensor.ty().clone(), Def::Constant(tensor))
    }

    pub fn scalar(&mut self, dtype: DType, value: f64) -> ValueId {
        let number = if dtype.is_float() { Number::Float(value) } else { Number::Int(value as i64) };
        self.constant(Tensor::from_numbers(TensorType::new(dtype, Shape::scalar()), [number]))
    }

    pub fn binary(&mut self, function: BinaryFn, a: ValueId, b: ValueId) -> ValueId {
        self.add(Op::Binary(function), &[a, b])
    }

    pub fn reshape(&mut self, x: ValueId, shape: impl Into<Shape>) -> ValueId {
        let shape = shape.into();
        if self.graph.ty(x).shape == shape { x } else { self.add(Op::Reshape(shape), &[x]) }
    }

    pub fn broadcast(&mut self, x: ValueId, shape: impl Into<Shape>) -> ValueId {
        let shape = shape.into();
        if self.graph.ty(x).shape == shape { x } else { self.add(Op::Broadcast(shape), &[x]) }
    }

    pub fn transpose(&mut self, x: ValueId, permutation: &[usize]) -> ValueId {
        if permutation.is_sorted() { x } else { self.add(Op::Transpose(permutation.to_vec()), &[x]) }
    }

    /// The graph without what was removed, its ids in the order in which its text names them.
    pub fn finish(self) -> Edited {
        let order = self.order();
        let (graph, new_ids) = compact(self.graph, &order);
        let tracked = self.tracked.into_iter().map(|value| value.and_then(|value| new_ids[value])).collect();
        Edited { graph, rewrites: self.rewrites, tracked, log: self.log }
    }
}

/// The graph, and which value became which.
fn compact(mut graph: Graph, order: &[NodeId]) -> (Graph, EntityMap<ValueId, Option<ValueId>>) {
    let mut values = EntityMap::new();
    let mut new_ids = EntityMap::<ValueId, Option<ValueId>>::filled(graph.values.len(), None);
    let mut keep = |graph: &mut Graph, old: ValueId| -> ValueId {
        *new_ids[old].get_or_insert_with(|| {
            let void = Value { ty: TensorType::new(DType::Bool, Shape::scalar()), def: Def::Input, origin: Origin::default() };
            values.push(std::mem::replace(&mut graph.values[old], void))
        })
    };
    for at in 0..graph.inputs.len() {
        let old = graph.inputs[at].1;
        graph.inputs[at].1 = keep(&mut graph, old);
    }
    let mut nodes = EntityMap::new();
    for &id in order {
        let mut node = graph.nodes[id].take().expect("the order holds live nodes");
        node.operands.iter_mut().chain(&mut node.results).for_each(|value| *value = keep(&mut graph, *value));
        nodes.push(Some(node));
    }
    for at in 0..graph.outputs.len() {
        let old = graph.outputs[at].1;
        graph.outputs[at].1 = keep(&mut graph, old);
    }
    for (id, node) in nodes.iter() {
        let node: &Node = node.as_ref().expect("pushed just now");
        node.results.iter().enumerate().for_each(|(index, &result)| values[result].def = Def::Node { node: id, index });
    }
    (Graph { values, nodes, ..graph }, new_ids)
}
