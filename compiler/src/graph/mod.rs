//! The graph: what a model computes, in core ops over typed values. No ONNX operator is left in it.
//!
//! Always true of a graph: every value has one definition and a type with a bounded size; nodes are in topological order of
//! [`Graph::order`]; the types of results are what [`build`] infers from op and operands.

pub mod axes;
mod bounded;
pub mod build;
pub mod edit;
pub mod extent;
pub mod infer;
pub mod interp;
pub mod lengths;
pub mod op;
mod symbolic;
pub mod text;
pub mod verify;

use mcc_support::{EntityMap, Tensor, TensorType, entity_id};

pub use build::{Builder, Repeated, Round, Wire};
pub use extent::Extent;
pub use lengths::Lengths;
pub use op::{BinaryFn, Contraction, Conv, If, Loop, Op, PadMode, ReduceFn, SliceAxis, UnaryFn, Window};

entity_id!(/// The typed result of a node, an input or a constant.
    ValueId, "%");
entity_id!(NodeId, "n");

/// Where a value comes from in the user's model: for messages, names of kernels and reports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// Name of the ONNX node.
    pub node: String,
    pub operator: String,
    /// Name of the ONNX value; for intermediate values of a composition, of the node's first output.
    pub output: String,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Def {
    Input,
    Constant(Tensor),
    /// Result `index` of a node.
    Node {
        node: NodeId,
        index: usize,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    pub ty: TensorType,
    pub def: Def,
    pub origin: Origin,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    pub op: Op,
    pub operands: Vec<ValueId>,
    pub results: Vec<ValueId>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Graph {
    pub name: String,
    pub values: EntityMap<ValueId, Value>,
    /// `None` where a pass removed the node.
    pub nodes: EntityMap<NodeId, Option<Node>>,
    /// Inputs and outputs with the names they have in the model, in its order. An output may be an input, a constant or listed twice.
    pub inputs: Vec<(String, ValueId)>,
    pub outputs: Vec<(String, ValueId)>,
    /// Extents of inputs and outputs that are known only when the graph runs.
    pub lengths: Lengths,
}

impl Graph {
    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes[id].as_ref().expect("the node was removed")
    }

    pub fn ty(&self, value: ValueId) -> &TensorType {
        &self.values[value].ty
    }

    /// The node that defines a value, unless it is an input or a constant.
    pub fn definition(&self, value: ValueId) -> Option<(NodeId, &Node)> {
        match self.values[value].def {
            Def::Node { node, .. } => Some((node, self.node(node))),
            Def::Input | Def::Constant(_) => None,
        }
    }

    pub fn constant(&self, value: ValueId) -> Option<&Tensor> {
        match &self.values[value].def {
            Def::Constant(tensor) => Some(tensor),
            Def::Input | Def::Node { .. } => None,
        }
    }

    /// The nodes that are there, in the order of their ids. The builder appends in topological order; `passes` keep one by
    /// [`order`](Self::order).
    pub fn live_nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().filter_map(|(id, node)| node.as_ref().map(|node| (id, node)))
    }

    /// Edges from definition to use, for the algorithms of petgraph.
    pub fn digraph(&self) -> petgraph::graph::DiGraph<NodeId, ()> {
        let mut digraph = petgraph::graph::DiGraph::new();
        let mut index = EntityMap::<NodeId, _>::filled(self.nodes.len(), None);
        for (id, _) in self.live_nodes() {
            index[id] = Some(digraph.add_node(id));
        }
        for (id, node) in self.live_nodes() {
            for &operand in &node.operands {
                if let Some((from, _)) = self.definition(operand) {
                    digraph.add_edge(index[from].expect("live"), index[id].expect("live"), ());
                }
            }
        }
        digraph
    }

    /// The nodes in a topological order that keeps to the order of ids where it may.
    pub fn order(&self) -> Vec<NodeId> {
        self.order_by(|id| id.0)
    }

    /// The nodes in a topological order that keeps to the order of `rank`, then of ids, where it may.
    pub fn order_by(&self, rank: impl Fn(NodeId) -> u32) -> Vec<NodeId> {
        let digraph = self.digraph();
        let mut waiting: Vec<usize> =
            digraph.node_indices().map(|node| digraph.neighbors_directed(node, petgraph::Incoming).count()).collect();
        let entry = |node| (rank(digraph[node]), digraph[node], node);
        let mut ready: std::collections::BTreeSet<_> =
            digraph.node_indices().filter(|node| waiting[node.index()] == 0).map(entry).collect();
        let mut order = Vec::with_capacity(digraph.node_count());
        while let Some((_, id, node)) = ready.pop_first() {
            order.push(id);
            for next in digraph.neighbors(node) {
                waiting[next.index()] -= 1;
                if waiting[next.index()] == 0 {
                    ready.insert(entry(next));
                }
            }
        }
        assert_eq!(order.len(), digraph.node_count(), "a graph has no cycle");
        order
    }

    /// How often each value is used, as an operand or an output.
    pub fn use_counts(&self) -> EntityMap<ValueId, usize> {
        let mut counts = EntityMap::filled(self.values.len(), 0);
        for (_, node) in self.live_nodes() {
            node.operands.iter().for_each(|&operand| counts[operand] += 1);
        }
        self.outputs.iter().for_each(|&(_, output)| counts[output] += 1);
        counts
    }
}
