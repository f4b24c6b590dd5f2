//! The attributes of a node: their values, and typed access that notes which were read.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use mcc_support::{DType, Error, Result, Tensor, bail};

use super::graph::{FlatGraph, Node};
use super::proto::{AttributeProto, AttributeType, GraphProto, SparseTensorProto, TensorProto, TypeProto};
use super::{tensor, types};

/// The value of an attribute; large ones are borrowed from the model.
#[derive(Clone, Debug)]
pub enum AttributeValue<'a> {
    Float(f32),
    Int(i64),
    String(&'a Bytes),
    Tensor(&'a TensorProto),
    Graph(Arc<FlatGraph<'a>>),
    SparseTensor(&'a SparseTensorProto),
    Type(&'a TypeProto),
    Floats(&'a [f32]),
    Ints(&'a [i64]),
    Strings(&'a [Bytes]),
    Tensors(&'a [TensorProto]),
    SparseTensors(&'a [SparseTensorProto]),
    Types(&'a [TypeProto]),
}

impl<'a> AttributeValue<'a> {
    /// What kind of value this is, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            AttributeValue::Float(_) => "a float",
            AttributeValue::Int(_) => "an integer",
            AttributeValue::String(_) => "a string",
            AttributeValue::Tensor(_) => "a tensor",
            AttributeValue::Graph(_) => "a graph",
            AttributeValue::SparseTensor(_) => "a sparse tensor",
            AttributeValue::Type(_) => "a type",
            AttributeValue::Floats(_) => "a list of floats",
            AttributeValue::Ints(_) => "a list of integers",
            AttributeValue::Strings(_) => "a list of strings",
            AttributeValue::Tensors(_) => "a list of tensors",
            AttributeValue::SparseTensors(_) => "a list of sparse tensors",
            AttributeValue::Types(_) => "a list of types",
        }
    }

    pub(super) fn attribute_type(&self) -> AttributeType {
        match self {
            AttributeValue::Float(_) => AttributeType::Float,
            AttributeValue::Int(_) => AttributeType::Int,
            AttributeValue::String(_) => AttributeType::String,
            AttributeValue::Tensor(_) => AttributeType::Tensor,
            AttributeValue::Graph(_) => AttributeType::Graph,
            AttributeValue::SparseTensor(_) => AttributeType::SparseTensor,
            AttributeValue::Type(_) => AttributeType::TypeProto,
            AttributeValue::Floats(_) => AttributeType::Floats,
            AttributeValue::Ints(_) => AttributeType::Ints,
            AttributeValue::Strings(_) => AttributeType::Strings,
            AttributeValue::Tensors(_) => AttributeType::Tensors,
            AttributeValue::SparseTensors(_) => AttributeType::SparseTensors,
            AttributeValue::Types(_) => AttributeType::TypeProtos,
        }
    }

    /// Reads the value of an attribute that is no reference; `flatten` makes a subgraph flat. The declared type must be that
    /// of the field that is set. Writers that leave out zeros and empty lists are understood, and files without the type.
    pub fn from_proto(
        proto: &'a AttributeProto,
        flatten: impl FnOnce(&'a GraphProto) -> Result<Arc<FlatGraph<'a>>>,
    ) -> Result<Self> {
        let kind = kind(proto)?;
        let missing = || Error::new("the attribute has no value");
        static EMPTY: Bytes = Bytes::new();
        Ok(match kind {
            AttributeType::Float => AttributeValue::Float(proto.f()),
            AttributeType::Int => AttributeValue::Int(proto.i()),
            AttributeType::String => AttributeValue::String(proto.s.as_ref().unwrap_or(&EMPTY)),
            AttributeType::Tensor => AttributeValue::Tensor(proto.t.as_deref().ok_or_else(missing)?),
            AttributeType::Graph => AttributeValue::Graph(flatten(proto.g.as_deref().ok_or_else(missing)?)?),
            AttributeType::SparseTensor => AttributeValue::SparseTensor(proto.sparse_tensor.as_deref().ok_or_else(missing)?),
            AttributeType::TypeProto => AttributeValue::Type(proto.tp.as_deref().ok_or_else(missing)?),
            AttributeType::Floats => AttributeValue::Floats(&proto.floats),
            AttributeType::Ints => AttributeValue::Ints(&proto.ints),
            AttributeType::Strings => AttributeValue::Strings(&proto.strings),
            AttributeType::Tensors => AttributeValue::Tensors(&proto.tensors),
            AttributeType::SparseTensors => AttributeValue::SparseTensors(&proto.sparse_tensors),
            AttributeType::TypeProtos => AttributeValue::Types(&proto.type_protos),
            AttributeType::Graphs => bail!("lists of graphs are not supported"),
            AttributeType::Undefined => return Err(missing()),
        })
    }
}

/// The type of an attribute: the declared one, or that of the only field that is set.
fn kind(proto: &AttributeProto) -> Result<AttributeType> {
    use AttributeType::*;
    let fields = [
        (Float, proto.f.is_some()),
        (Int, proto.i.is_some()),
        (String, proto.s.is_some()),
        (Tensor, proto.t.is_some()),
        (Graph, proto.g.is_some()),
        (SparseTensor, proto.sparse_tensor.is_some()),
        (TypeProto, proto.tp.is_some()),
        (Floats, !proto.floats.is_empty()),
        (Ints, !proto.ints.is_empty()),
        (Strings, !proto.strings.is_empty()),
        (Tensors, !proto.tensors.is_empty()),
        (Graphs, !proto.graphs.is_empty()),
        (SparseTensors, !proto.sparse_tensors.is_empty()),
        (TypeProtos, !proto.type_protos.is_empty()),
    ];
    let name = |kind: AttributeType| format!("{kind:?}").to_lowercase();
    let mut set = fields.into_iter().filter(|(_, set)| *set).map(|(kind, _)| kind);
    let first = set.next();
    if let (Some(first), Some(second)) = (first, set.next()) {
        bail!("the attribute has two values, of types {} and {}", name(first), name(second));
    }
    let declared = proto.r#type.unwrap_or(0);
    match (AttributeType::try_from(declared), first) {
        (Err(_), _) => bail!("{declared} is not the number of an attribute type"),
        (Ok(Undefined), None) => bail!("the attribute has neither a type nor a value"),
        (Ok(Undefined), Some(set)) => Ok(set),
        (Ok(declared), Some(set)) if declared != set => {
            bail!("the attribute is declared to be of type {}, but has a value of type {}", name(declared), name(set))
        }
        (Ok(declared), _) => Ok(declared),
    }
}

/// Typed access to the attributes of one node, for the code that builds its operator. Every accessor notes that it was asked
/// for; [`finish`](Self::finish) refuses attributes that nobody asked for. Errors name the node and the attribute.
#[derive(Debug)]
pub struct Attributes<'a> {
    node: &'a Node<'a>,
    /// Per attribute of the node.
    read: RefCell<Vec<bool>>,
}

/// Declares an accessor of a kind.
macro_rules! accessor {
    ($(#[$attr:meta])* $name:ident, $or:ident, $variant:ident, $what:literal, $ty:ty, |$value:ident| $convert:expr) => {
        $(#[$attr])*
        pub fn $name(&self, name: &str) -> Result<Option<$ty>> {
            match self.value(name) {
                None => Ok(None),
                Some(AttributeValue::$variant($value)) => Ok(Some($convert)),
                Some(other) => Err(self.error(format!("attribute '{name}' must be {}, not {}", $what, other.kind()))),
            }
        }

        /// As the accessor without a default, with one.
        pub fn $or(&self, name: &str, default: $ty) -> Result<$ty> {
            Ok(self.$name(name)?.unwrap_or(default))
        }
    };
}

impl<'a> Attributes<'a> {
    pub fn new(node: &'a Node<'a>) -> Self {
        Self { node, read: RefCell::new(vec![false; node.attributes.len()]) }
    }

    accessor!(int, int_or, Int, "an integer", i64, |value| *value);
    accessor!(float, float_or, Float, "a float", f32, |value| *value);
    accessor!(ints, ints_or, Ints, "a list of integers", Vec<i64>, |value| value.to_vec());
    accessor!(floats, floats_or, Floats, "a list of floats", Vec<f32>, |value| value.to_vec());

    /// A string, which must be UTF-8.
    pub fn string(&self, name: &str) -> Result<Option<&'a str>> {
        match self.value(name) {
            None => Ok(None),
            Some(AttributeValue::String(value)) => self.utf8(name, value).map(Some),
            Some(other) => Err(self.error(format!("attribute '{name}' must be a string, not {}", other.kind()))),
        }
    }

    pub fn string_or(&self, name: &str, default: &'a str) -> Result<&'a str> {
        Ok(self.string(name)?.unwrap_or(default))
    }

    pub fn strings(&self, name: &str) -> Result<Option<Vec<&'a str>>> {
        match self.value(name) {
            None => Ok(None),
            Some(AttributeValue::Strings(values)) => {
                values.iter().map(|value| self.utf8(name, value)).collect::<Result<_>>().map(Some)
            }
            Some(other) => Err(self.error(format!("attribute '{name}' must be a list of strings, not {}", other.kind()))),
        }
    }

    /// A string that is one of `words`; the first is the default.
    pub fn word(&self, name: &str, words: &[&'static str]) -> Result<&'static str> {
        let value = self.string_or(name, words[0])?;
        words
            .iter()
            .find(|word| **word == value)
            .copied()
            .ok_or_else(|| self.error(format!("attribute '{name}' is '{value}', which is not one of {}", words.join(", "))))
    }

    /// An integer that stands for a boolean: 0 is false, every other true.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.int(name)?.map_or(default, |value| value != 0))
    }

    /// An element type, given by the number of a `TensorProto.DataType`.
    pub fn dtype(&self, name: &str) -> Result<Option<DType>> {
        let Some(value) = self.int(name)? else { return Ok(None) };
        // A number that does not fit is none of a type either.
        let dtype = types::dtype(i32::try_from(value).unwrap_or(-1));
        dtype.map(Some).map_err(|error| self.error(format!("attribute '{name}': {}", error.message)))
    }

    /// A tensor, which is read; a sparse one is made dense.
    pub fn tensor(&self, name: &str) -> Result<Option<Tensor>> {
        let value = match self.value(name) {
            None => return Ok(None),
            Some(AttributeValue::Tensor(proto)) => tensor::tensor(proto, self.node.files),
            Some(AttributeValue::SparseTensor(proto)) => tensor::densify(proto, self.node.files),
            Some(other) => return Err(self.error(format!("attribute '{name}' must be a tensor, not {}", other.kind()))),
        };
        value.map(Some).map_err(|error| error.context(format!("in attribute '{name}'")).node(self.node.reference()))
    }

    pub fn graph(&self, name: &str) -> Result<Option<&'a FlatGraph<'a>>> {
        match self.value(name) {
            None => Ok(None),
            Some(AttributeValue::Graph(graph)) => Ok(Some(graph)),
            Some(other) => Err(self.error(format!("attribute '{name}' must be a graph, not {}", other.kind()))),
        }
    }

    /// Whether the node has the attribute. Does not count as reading it.
    pub fn has(&self, name: &str) -> bool {
        self.node.attributes.iter().any(|(other, _)| *other == name)
    }

    /// The value of an attribute that the operator needs: `attributes.required("to", attributes.dtype("to")?)?`.
    pub fn required<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.error(format!("attribute '{name}' is missing")))
    }

    /// Notes an attribute as read that has no effect on the result.
    pub fn ignore(&self, name: &str) {
        self.value(name);
    }

    /// Fails where the node has an attribute that was not asked for.
    pub fn finish(&self) -> Result<()> {
        let read = self.read.borrow();
        let unread: Vec<String> = self
            .node
            .attributes
            .iter()
            .zip(read.iter())
            .filter(|(_, read)| !**read)
            .map(|((name, _), _)| format!("'{name}'"))
            .collect();
        if unread.is_empty() {
            return Ok(());
        }
        let noun = if unread.len() == 1 { "attribute" } else { "attributes" };
        Err(self.error(format!("{} has no {noun} {} in opset {}", self.node.operator, unread.join(", "), self.node.opset)))
    }

    /// An error about this node.
    pub fn error(&self, message: impl Into<String>) -> Error {
        Error::new(message).node(self.node.reference())
    }

    fn value(&self, name: &str) -> Option<&'a AttributeValue<'a>> {
        let index = self.node.attributes.iter().position(|(other, _)| *other == name)?;
        self.read.borrow_mut()[index] = true;
        Some(&self.node.attributes[index].1)
    }

    fn utf8(&self, name: &str, value: &'a Bytes) -> Result<&'a str> {
        std::str::from_utf8(value).map_err(|_| self.error(format!("attribute '{name}' is not UTF-8")))
    }
}
