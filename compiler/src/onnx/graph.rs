//! A graph as import reads it: functions inlined, nodes in an order in which every value is produced before it is read.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use indexmap::IndexMap;
use mcc_support::error::NodeRef;
use mcc_support::{Error, Result, Tensor, TensorType, ensure};

use super::attributes::{AttributeValue, Attributes};
use super::external::ExternalFiles;
use super::proto::{SparseTensorProto, TensorProto, TypeProto};
use super::tensor;
use super::types::DeclaredType;

/// A flat graph, borrowed from its model: of the whole model, or a subgraph in an attribute (a branch, a loop's body).
///
/// Every name that a node reads and every output is an input, an initializer, the output of an earlier node, or, in a
/// subgraph, listed in `captured`. Names are unique within the graph; a subgraph's own names hide those of outer ones.
#[derive(Debug)]
pub struct FlatGraph<'a> {
    pub name: &'a str,
    /// In topological order; nodes of the file keep their order where that is one.
    pub nodes: Vec<Node<'a>>,
    /// Constants. An initializer of the main graph that is listed as an input too is a constant and no input.
    pub initializers: IndexMap<String, Initializer<'a>>,
    pub inputs: Vec<Declared<'a>>,
    pub outputs: Vec<Declared<'a>>,
    /// Types that the file declares for values, by name: inputs, outputs and others (not those inside of functions). They can
    /// be wrong.
    pub declared: BTreeMap<String, &'a TypeProto>,
    /// Names of outer graphs that this subgraph reads; empty for the main graph.
    pub captured: BTreeSet<String>,
}

/// An input or output with its declared type, if any.
#[derive(Clone, Debug)]
pub struct Declared<'a> {
    pub name: String,
    pub ty: Option<&'a TypeProto>,
}

impl Declared<'_> {
    /// The declared type; `None` where nothing is declared, an error where it is no tensor.
    pub fn declared_type(&self) -> Result<Option<DeclaredType>> {
        declared_type(&self.name, self.ty)
    }
}

fn declared_type(name: &str, ty: Option<&TypeProto>) -> Result<Option<DeclaredType>> {
    let given = ty.filter(|ty| ty.value.is_some());
    given
        .map(|ty| DeclaredType::from_proto(ty).map_err(|error| error.context(format!("in the declared type of '{name}'"))))
        .transpose()
}

/// A constant tensor of the file, read on demand.
#[derive(Clone, Debug)]
pub struct Initializer<'a> {
    pub payload: Payload<'a>,
    files: &'a ExternalFiles,
}

#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    Dense(&'a TensorProto),
    Sparse(&'a SparseTensorProto),
}

impl<'a> Initializer<'a> {
    pub(super) fn new(payload: Payload<'a>, files: &'a ExternalFiles) -> Self {
        Self { payload, files }
    }

    /// The value; a sparse tensor is made dense.
    pub fn tensor(&self) -> Result<Tensor> {
        match self.payload {
            Payload::Dense(proto) => tensor::tensor(proto, self.files),
            Payload::Sparse(proto) => tensor::densify(proto, self.files),
        }
    }

    /// The type, without reading the value.
    pub fn ty(&self) -> Result<TensorType> {
        match self.payload {
            Payload::Dense(proto) => tensor::ty(proto),
            Payload::Sparse(proto) => tensor::sparse_ty(proto),
        }
    }
}

/// A node: an operator applied to values. Never a call of a model's function.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    /// Empty where the file gives none; that of a node from a function begins with the calling node's.
    pub name: String,
    /// Empty for the default domain, `ai.onnx`.
    pub domain: &'a str,
    pub operator: &'a str,
    /// Version of the domain which the model, or the function that the node comes from, imports.
    pub opset: i64,
    /// An empty name is an input that is left out; there are none at the end.
    pub inputs: Vec<String>,
    /// An empty name is an output that is not wanted; there are none at the end.
    pub outputs: Vec<String>,
    /// Names are unique.
    pub attributes: Vec<(&'a str, AttributeValue<'a>)>,
    pub(super) files: &'a ExternalFiles,
}

impl<'a> Node<'a> {
    pub fn attributes(&'a self) -> Attributes<'a> {
        Attributes::new(self)
    }

    /// The node as errors name it.
    pub fn reference(&self) -> NodeRef {
        node_reference(&self.name, &self.outputs, self.domain, self.operator, self.opset)
    }

    /// The name of its first output that has one.
    pub fn first_output(&self) -> &str {
        self.outputs.iter().find(|name| !name.is_empty()).map_or("", String::as_str)
    }

    /// The subgraphs in its attributes.
    pub fn graphs(&self) -> impl Iterator<Item = &FlatGraph<'a>> {
        self.attributes
            .iter()
            .filter_map(|(_, value)| if let AttributeValue::Graph(graph) = value { Some(&**graph) } else { None })
    }

    /// Every name that must have a value before the node runs: its inputs and what its subgraphs capture.
    pub fn reads(&self) -> impl Iterator<Item = &str> {
        let inputs = self.inputs.iter().filter(|name| !name.is_empty());
        inputs.chain(self.graphs().flat_map(|graph| &graph.captured)).map(String::as_str)
    }
}

pub(super) fn node_reference(name: &str, outputs: &[String], domain: &str, operator: &str, opset: i64) -> NodeRef {
    let first = || outputs.iter().find(|output| !output.is_empty()).map_or("", String::as_str);
    let operator = if domain.is_empty() { operator.to_string() } else { format!("{domain}.{operator}") };
    NodeRef { name: if name.is_empty() { first() } else { name }.to_string(), operator, opset }
}

impl<'a> FlatGraph<'a> {
    /// What the file declares of a value; `None` where it declares nothing, an error where it is no tensor.
    pub fn declared_type(&self, name: &str) -> Result<Option<DeclaredType>> {
        declared_type(name, self.declared.get(name).copied())
    }

    /// Orders the nodes and fills in `captured`. Fails where a name has two definitions, where nodes wait for each other, and
    /// in a main graph where a name has none.
    pub(super) fn finish(mut self, is_main: bool) -> Result<Self> {
        let producers = self.producers()?;
        let mut waits = vec![0usize; self.nodes.len()];
        let mut readers = vec![Vec::new(); self.nodes.len()];
        let mut captured = BTreeSet::new();
        for (index, node) in self.nodes.iter().enumerate() {
            for name in node.reads() {
                match producers.get(name) {
                    Some(Some(producer)) => {
                        waits[index] += 1;
                        readers[*producer].push(index);
                    }
                    Some(None) => {}
                    None if is_main => {
                        return Err(Error::new(format!("'{name}' is read, but no node, input or initializer gives it a value"))
                            .node(node.reference()));
                    }
                    None => drop(captured.insert(name.to_string())),
                }
            }
        }
        let mut seen = BTreeSet::new();
        for output in &self.outputs {
            ensure!(seen.insert(&output.name) || !is_main, "'{}' is an output twice", output.name);
            if !producers.contains_key(output.name.as_str()) {
                ensure!(!is_main, "nothing gives the graph's output '{}' a value", output.name);
                captured.insert(output.name.clone());
            }
        }
        let order = order(waits, &readers).map_err(|stuck| self.cycle(&stuck))?;
        let mut nodes: Vec<Option<Node<'a>>> = std::mem::take(&mut self.nodes).into_iter().map(Some).collect();
        self.nodes = order.into_iter().map(|index| nodes[index].take().expect("an order has each node once")).collect();
        self.captured = captured;
        Ok(self)
    }

    /// The node that produces each name; `None` for inputs and initializers.
    fn producers(&self) -> Result<BTreeMap<&str, Option<usize>>> {
        let mut producers = BTreeMap::new();
        for input in &self.inputs {
            ensure!(producers.insert(input.name.as_str(), None).is_none(), "'{}' is an input twice", input.name);
        }
        for name in self.initializers.keys() {
            ensure!(producers.insert(name, None).is_none(), "'{name}' is an input and an initializer of a subgraph");
        }
        for (index, node) in self.nodes.iter().enumerate() {
            for name in node.outputs.iter().filter(|name| !name.is_empty()) {
                if let Some(other) = producers.insert(name, Some(index)) {
                    let other = other.map_or("an input or initializer has that name".to_string(), |other: usize| {
                        let other = self.nodes[other].reference();
                        format!("node '{}' ({}) gives it too", other.name, other.operator)
                    });
                    return Err(Error::new(format!("'{name}' is given a value twice: {other}")).node(node.reference()));
                }
            }
        }
        Ok(producers)
    }

    /// The error for nodes that wait for each other; each of `stuck` reads a value of another one of them.
    fn cycle(&self, stuck: &BTreeSet<usize>) -> Error {
        let producers: BTreeMap<&str, usize> =
            stuck.iter().flat_map(|&index| self.nodes[index].outputs.iter().map(move |name| (name.as_str(), index))).collect();
        let mut last = *stuck.first().expect("some node waits");
        let (mut path, mut places) = (vec![last], BTreeMap::from([(last, 0)]));
        let (start, value) = loop {
            let needed = self.nodes[last].reads().find_map(|name| producers.get(name).map(|&index| (name, index)));
            let (name, index) = needed.expect("a node that waits reads a value of another that waits");
            if let Some(&start) = places.get(&index) {
                break (start, name);
            }
            places.insert(index, path.len());
            path.push(index);
            last = index;
        };
        let names: Vec<String> =
            path[start..].iter().take(8).map(|&index| format!("'{}'", self.nodes[index].reference().name)).collect();
        let more = if path.len() - start > names.len() { ", …" } else { "" };
        Error::new(format!("the graph has a cycle through '{value}': nodes {}{more} wait for each other", names.join(", ")))
            .node(self.nodes[path[start]].reference())
    }
}

/// The topological order that keeps the given one where it can, or the nodes that never become ready.
fn order(mut waits: Vec<usize>, readers: &[Vec<usize>]) -> Result<Vec<usize>, BTreeSet<usize>> {
    let mut ready: BinaryHeap<Reverse<usize>> = (0..waits.len()).filter(|&index| waits[index] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(waits.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &reader in &readers[index] {
            waits[reader] -= 1;
            if waits[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    if order.len() == waits.len() { Ok(order) } else { Err((0..waits.len()).filter(|&index| waits[index] > 0).collect()) }
}
