//! What is odd about a model and does not stop it.

use std::fmt;

use mcc_support::error::NodeRef;

use crate::onnx::{FlatGraph, Model};
use crate::ops::NodeWarning;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum WarningKind {
            $($(#[$doc])* $kind,)*
        }

        impl WarningKind {
            pub fn name(self) -> &'static str {
                match self { $(WarningKind::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// The user's shapes are not those that the model declares.
    Reshaped = "reshaped",
    /// A declared type is not the computed one.
    Declared = "declared-type",
    /// A node does what it does in training.
    Training = "training",
    /// A node answers in another form than ONNX has it.
    Result = "result",
    /// A branch does not fit the shapes.
    Branch = "branch",
    /// An input with a default value became a constant.
    Default = "default-input",
    /// Something that does not change results is not in the object.
    Dropped = "dropped",
}

/// Something odd that does not stop a compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub kind: WarningKind,
    pub message: String,
    pub node: Option<NodeRef>,
}

impl Warning {
    pub fn new(kind: WarningKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), node: None }
    }

    pub(super) fn of_node(node: NodeRef, noted: NodeWarning) -> Self {
        let kind = if noted.of_training { WarningKind::Training } else { WarningKind::Result };
        Self { kind, message: noted.message, node: Some(node) }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = &self.node {
            write!(f, "node '{}' ({}, opset {}): ", node.name, node.operator, node.opset)?;
        }
        f.write_str(&self.message)
    }
}

/// Adds what is not there yet: several builds of a node, or several sets of shapes, have much in common.
pub fn add_new<T: PartialEq>(all: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    for one in more {
        if !all.contains(&one) {
            all.push(one);
        }
    }
}

/// Of the model as a whole.
pub(super) fn of_model(model: &Model, graph: &FlatGraph<'_>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |kind, what: String, names: Vec<&str>| {
        if !names.is_empty() {
            let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
            warnings.push(Warning::new(kind, format!("{what}: {}", names.join(", "))));
        }
    };
    let proto = &model.proto;
    let inputs = proto.graph.iter().flat_map(|graph| &graph.input).map(|input| input.name());
    // Up to version 3 of the format, every initializer was an input too.
    let defaults = inputs.filter(|name| proto.ir_version() >= 4 && graph.initializers.contains_key(*name));
    warn(
        WarningKind::Default,
        "inputs with a default value are constants, which a caller cannot replace".into(),
        defaults.collect(),
    );
    let metadata = proto.metadata_props.iter().map(|entry| entry.key.as_deref().unwrap_or_default());
    warn(WarningKind::Dropped, "the model's metadata is not in the object".into(), metadata.collect());
    let training = if proto.training_info.is_empty() { Vec::new() } else { vec!["training_info"] };
    warn(WarningKind::Dropped, "what the model says about training is not in the object".into(), training);
    warnings
}
