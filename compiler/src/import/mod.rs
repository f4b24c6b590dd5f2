//! From a model to a graph: every operator is replaced by its definition in core ops, shapes are fixed, constants are folded.
//!
//! What stops a model is collected, node by node, so that the user sees all of it at once.

mod control;
mod inputs;
mod sequences;
mod warning;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use mcc_support::error::NodeRef;
use mcc_support::{Error, Result, Tensor, TensorType, ensure};

use crate::graph::{Builder, Extent, Graph, Origin, ValueId, Wire};
use crate::onnx::{DeclaredDim, DeclaredType, FlatGraph, Model, Node, flatten};
use crate::ops::{self, NodeContext};

pub use warning::{Warning, WarningKind, add_new};

/// What the user says about a model.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Name of the graph; the model's own by default.
    pub name: Option<String>,
    /// Shapes of inputs, by name. They win over what the model declares.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Extents of dimensions that the model names.
    pub dims: BTreeMap<String, usize>,
    /// Least and greatest extents of dimensions that the model names and a run is told.
    pub ranges: BTreeMap<String, (usize, usize)>,
    /// By name of a value: where it is as long as the data say, its greatest length; where it determines extents, the greatest
    /// value of each of its elements (the last holds for those behind it).
    pub max_elements: BTreeMap<String, Vec<usize>>,
    /// As `ranges`, for an axis of an input, whose greatest extent `shapes` has.
    pub axis_ranges: BTreeMap<(String, usize), (usize, usize)>,
    /// Inputs that become constants.
    pub constants: BTreeMap<String, Tensor>,
}

/// The graph of a model, or the first thing that stops it.
pub fn import(model: &Model, options: &ImportOptions) -> Result<(Graph, Vec<Warning>)> {
    import_all_errors(model, options).map_err(|errors| errors.into_iter().next().expect("a failure has an error"))
}

/// As [`import`], with everything that stops the model: at least one error.
pub fn import_all_errors(model: &Model, options: &ImportOptions) -> Result<(Graph, Vec<Warning>), Vec<Error>> {
    import_named(model, options).map(|imported| (imported.graph, imported.warnings))
}

/// A model as a graph.
#[derive(Debug)]
pub struct Imported {
    pub graph: Graph,
    pub warnings: Vec<Warning>,
    /// The values of the model's nodes, in their order.
    pub values: Vec<NamedValue>,
}

/// An output of a node of the model, as the graph has it.
#[derive(Clone, Debug)]
pub struct NamedValue {
    pub name: String,
    pub node: NodeRef,
    pub value: ValueId,
}

/// As [`import_all_errors`], with the values of the model's nodes.
pub fn import_named(model: &Model, options: &ImportOptions) -> Result<Imported, Vec<Error>> {
    let flat = flatten(model).map_err(|error| vec![error])?;
    let name = options.name.clone().unwrap_or_else(|| flat.name.to_string());
    let builder = Builder::new(name);
    builder.set_most_elements(options.max_elements.clone());
    let mut importer = Importer {
        builder: &builder,
        errors: Vec::new(),
        warnings: warning::of_model(model, &flat),
        reshaped: false,
        rounds: 0,
        dimensions: BTreeMap::new(),
        stand_ins: BTreeSet::new(),
    };
    let scope = Scope { graph: &flat, values: RefCell::default(), outer: None, is_repeated: false };
    importer.inputs(&scope, options);
    importer.nodes(&scope);
    for output in &flat.outputs {
        let value = importer.value(&scope, &output.name).map(|item| item.tensor(&format!("the output '{}'", output.name)));
        let value = value.and_then(|value| value.map_err(|error| importer.errors.push(error)).ok());
        if let Some(wire) = value {
            builder.output(&output.name, wire);
            let checked = match output.declared_type() {
                Ok(declared) => importer.check_output(&output.name, declared, wire),
                // Labels that are strings and lists of maps, which operators of ai.onnx.ml leave behind.
                Err(error) => {
                    let ty = wire.ty();
                    let message = format!("the output '{}' is computed as {ty}; {}", output.name, error.message);
                    importer.warn(Warning::new(WarningKind::Declared, message));
                    Ok(())
                }
            };
            checked.unwrap_or_else(|error| importer.errors.push(error));
        }
    }
    importer.check_declared(&scope);
    if importer.errors.is_empty() {
        let unused = |name: String| {
            let error = Error::new(format!("--max-elements names '{name}', but no node needs its greatest length or elements"));
            error.help("leave it out")
        };
        importer.errors.extend(builder.unused_most_elements().into_iter().map(unused));
    }
    let Importer { errors, warnings, .. } = importer;
    let made = scope.values.take();
    let outputs = flat.nodes.iter().flat_map(|node| node.outputs.iter().map(move |name| (node, name)));
    let values = outputs.filter_map(|(node, name)| {
        let Some(Some(Item::Tensor(wire))) = made.get(name.as_str()) else { return None };
        let value = wire.value;
        Some(NamedValue { name: name.clone(), node: node.reference(), value })
    });
    let values = values.collect();
    drop((scope, made));
    if errors.is_empty() { Ok(Imported { graph: builder.finish(), warnings, values }) } else { Err(errors) }
}

/// Names and declared types of a model's inputs, which options refer to.
pub fn declared_inputs(model: &Model) -> Result<Vec<(String, Option<DeclaredType>)>> {
    flatten(model)?.inputs.iter().map(|input| Ok((input.name.clone(), input.declared_type()?))).collect()
}

/// The names that a model gives to dimensions of its inputs and outputs.
pub fn declared_dims(model: &Model) -> Result<BTreeMap<String, Vec<Option<String>>>> {
    let flat = flatten(model)?;
    let names = flat.inputs.iter().chain(&flat.outputs).map(|value| {
        let dims = value.declared_type()?.and_then(|declared| declared.dims).unwrap_or_default();
        let name = |dim| if let DeclaredDim::Symbol(name) = dim { Some(name) } else { None };
        Ok((value.name.clone(), dims.into_iter().map(name).collect()))
    });
    names.collect()
}

struct Importer<'b> {
    builder: &'b Builder,
    errors: Vec<Error>,
    warnings: Vec<Warning>,
    /// An input has another shape than the model declares, so that declared shapes of outputs mean nothing.
    reshaped: bool,
    /// Of loops that were written out.
    rounds: usize,
    /// By name, those that a run is told.
    dimensions: BTreeMap<String, Extent>,
    /// Values that could not be made and are replaced, so that import goes on.
    stand_ins: BTreeSet<String>,
}

/// What a name stands for.
#[derive(Clone, Debug)]
enum Item<'b> {
    Tensor(Wire<'b>),
    /// A sequence of tensors.
    List(Vec<Wire<'b>>),
    /// An input that is left out, or an optional value that is not there.
    Nothing,
}

impl<'b> Item<'b> {
    fn wires(&self) -> &[Wire<'b>] {
        match self {
            Item::Tensor(wire) => std::slice::from_ref(wire),
            Item::List(list) => list,
            Item::Nothing => &[],
        }
    }

    fn tensor(&self, what: &str) -> Result<Wire<'b>> {
        match self {
            Item::Tensor(wire) => Ok(*wire),
            Item::List(list) => {
                Err(Error::new(format!("{what} is a sequence of {} tensors, and must be one tensor", list.len()))
                    .help("take an element with SequenceAt, or join them with ConcatFromSequence"))
            }
            Item::Nothing => Err(Error::new(format!("{what} is not there"))),
        }
    }
}

/// The values of a graph, inside of those of the graph around it.
struct Scope<'s, 'a, 'b> {
    graph: &'a FlatGraph<'a>,
    /// `None` for a value that could not be made; the reason is among the errors already.
    values: RefCell<BTreeMap<&'a str, Option<Item<'b>>>>,
    outer: Option<&'s Scope<'s, 'a, 'b>>,
    /// Inside of a graph that runs several times.
    is_repeated: bool,
}

impl<'b> Importer<'b> {
    /// A node may be built several times, as a part of a loop.
    fn warn(&mut self, warning: Warning) {
        add_new(&mut self.warnings, [warning]);
    }

    fn nodes<'a>(&mut self, scope: &Scope<'_, 'a, 'b>) {
        for node in &scope.graph.nodes {
            let reference = node.reference();
            let output = node.first_output().to_string();
            self.builder.set_origin(Origin { node: reference.name.clone(), operator: reference.operator.clone(), output });
            let results = match self.node(scope, node) {
                Ok(results) => results,
                Err(error) => {
                    self.errors.push(error.node(reference));
                    None
                }
            };
            for (index, name) in node.outputs.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
                let value = results.as_ref().map(|results| results[index].clone());
                let value = value.or_else(|| self.stand_in(scope, name).map(Item::Tensor));
                scope.values.borrow_mut().insert(name, value);
            }
        }
    }

    /// In place of a value that could not be made, one of the type that the model declares, so that more of what stops the model is
    /// found. The graph is not used. Shapes may depend on integers: those have no stand-in, which would only seem unknown.
    fn stand_in(&mut self, scope: &Scope<'_, '_, 'b>, name: &str) -> Option<Wire<'b>> {
        let ty = scope.graph.declared_type(name).ok().flatten()?.known()?;
        let useful = !self.errors.is_empty() && ty.dtype.is_float();
        useful.then(|| {
            self.stand_ins.insert(name.to_string());
            self.builder.input(name, ty)
        })
    }

    /// Whether an input that must be known is computed from a stand-in: then nothing can be said of the node.
    fn needs_stand_in(&self, node: &Node<'_>, items: &[Item<'b>]) -> bool {
        let needed = ops::shape_inputs(node.domain, node.operator).iter().filter_map(|&index| items.get(index));
        let wires = needed.flat_map(Item::wires);
        let sources = |wire: &Wire<'b>| self.builder.inputs_of(*wire);
        !self.stand_ins.is_empty() && wires.flat_map(sources).any(|source| self.stand_ins.contains(&source))
    }

    /// What a node's inputs stand for; `None` where one could not be made, or where nothing can be said of the node.
    fn items_of<'a>(&mut self, scope: &Scope<'_, 'a, 'b>, node: &'a Node<'a>) -> Option<Vec<Item<'b>>> {
        let item = |name: &String| if name.is_empty() { Some(Item::Nothing) } else { self.value(scope, name) };
        let items: Option<Vec<_>> = node.inputs.iter().map(item).collect();
        items.filter(|items| !self.needs_stand_in(node, items))
    }

    /// What a node's outputs stand for; `None` where one of its inputs could not be made.
    fn node<'a>(&mut self, scope: &Scope<'_, 'a, 'b>, node: &'a Node<'a>) -> Result<Option<Vec<Item<'b>>>> {
        match ops::control(node.domain, node.operator) {
            Some(def) if def.sequences => return self.sequence(scope, node),
            Some(_) => return self.control(scope, node),
            None => {}
        }
        let def = ops::lookup(node.domain, node.operator, node.opset)?;
        let Some(items) = self.items_of(scope, node) else { return Ok(None) };
        if node.operator == "Identity" && !matches!(items[..], [Item::Tensor(_)]) {
            return self.sequence(scope, node);
        }
        let inputs = wires(node, &items)?;
        let is_bounded = inputs.iter().flatten().any(|wire| wire.is_bounded() || wire.elements().is_some());
        let context = NodeContext::new(self.builder, node, def, inputs.clone(), scope.is_repeated);
        let results = ops::dynamic::check(&context, def, &inputs).and_then(|()| (def.build)(&context));
        let results = self.builder.check().and(results);
        let results = results.map_err(|error| match error.help {
            None if is_bounded && self.builder.has_dimensions() => error.help(ops::dynamic::HELP),
            _ => error,
        })?;
        context.finish()?;
        if let Some(index) = (results.len()..node.outputs.len()).find(|&index| context.wants_output(index)) {
            return Err(Error::new(format!("output {index} ('{}') of {} is not supported", node.outputs[index], def.name)));
        }
        context.into_warnings().into_iter().for_each(|noted| self.warn(Warning::of_node(node.reference(), noted)));
        Ok(Some(results.into_iter().map(Item::Tensor).collect()))
    }

    /// What a name stands for; initializers are read when they are first used. `None` where it could not be made.
    fn value(&mut self, scope: &Scope<'_, '_, 'b>, name: &str) -> Option<Item<'b>> {
        if let Some(value) = scope.values.borrow().get(name) {
            return value.clone();
        }
        let Some((key, initializer)) = scope.graph.initializers.get_key_value(name) else {
            return scope.outer.and_then(|outer| self.value(outer, name));
        };
        let value = initializer.tensor().map(|tensor| {
            // The node that reads it is being built.
            let origin = self.builder.set_origin(Origin { output: name.to_string(), ..Origin::default() });
            let constant = self.builder.constant(tensor);
            self.builder.set_origin(origin);
            Item::Tensor(constant)
        });
        let value = value.map_err(|error| self.errors.push(error)).ok();
        scope.values.borrow_mut().insert(key, value.clone());
        value
    }

    /// Compares what the model declares of values inside of it with what they are; outputs are compared by themselves.
    fn check_declared(&mut self, scope: &Scope<'_, '_, 'b>) {
        if self.reshaped || !self.errors.is_empty() {
            return;
        }
        let outputs: BTreeSet<&str> = scope.graph.outputs.iter().map(|output| output.name.as_str()).collect();
        for (&name, value) in scope.values.borrow().iter() {
            let declared = scope.graph.declared_type(name).ok().flatten();
            let (Some(declared), Some(Item::Tensor(wire)), false) = (declared, value, outputs.contains(name)) else { continue };
            let ty = wire.ty();
            if differs(&declared, &ty) || declared.dtype != ty.dtype {
                let message = format!("the model declares '{name}' as {declared}, but it computes {ty}");
                self.warn(Warning::new(WarningKind::Declared, message));
            }
        }
    }

    /// Compares a declared type with the inferred one. A known extent is a contract with the caller, who sizes a buffer by it:
    /// one that cannot be true is an error, unless the user asked for other shapes than the model was made for. A shape of another
    /// rank with extents that are not known is no such contract: a warning.
    fn check_output(&mut self, name: &str, declared: Option<DeclaredType>, wire: Wire<'b>) -> Result<()> {
        let mut ty = wire.ty();
        let is_whole = wire.axes().iter().all(|axis| axis.is_whole());
        ensure!(
            is_whole || !ty.dtype.is_packed(),
            "an extent of the output '{name}' is known only at run time, but elements of {} share bytes",
            ty.dtype
        );
        let Some(declared) = declared else { return Ok(()) };
        let mut dims = ty.shape.to_vec();
        // An extent that is known only at run time may be any.
        for (axis, (dim, of)) in dims.iter_mut().zip(wire.axes()).enumerate().filter(|(_, (_, of))| !of.is_whole()) {
            let declared = declared.dims.as_ref().and_then(|dims| dims.get(axis));
            *dim = if let Some(DeclaredDim::Known(known)) = declared { *known } else { of.capacity() };
        }
        ty.shape = dims.into();
        let complete = declared.dims.as_ref().is_some_and(|dims| dims.iter().all(|dim| matches!(dim, DeclaredDim::Known(_))));
        let other_rank = declared.dims.as_ref().is_some_and(|dims| dims.len() != ty.rank());
        let contradicts = differs(&declared, &ty) && (complete || !other_rank);
        let message = format!("the model declares its output '{name}' as {declared}, but it computes {ty}");
        ensure!(!contradicts || self.reshaped, "{message}");
        if differs(&declared, &ty) || declared.dtype != ty.dtype {
            self.warn(Warning::new(WarningKind::Declared, message));
        }
        Ok(())
    }
}

/// The inputs of a node that takes tensors only, each `None` where it is left out.
fn wires<'b>(node: &Node<'_>, items: &[Item<'b>]) -> Result<Vec<Option<Wire<'b>>>> {
    let wire = |(index, item): (usize, &Item<'b>)| match item {
        Item::Nothing => Ok(None),
        item => item.tensor(&format!("input {index} '{}'", node.inputs[index])).map(Some),
    };
    items.iter().enumerate().map(wire).collect()
}

/// Whether a declared shape has another rank or other known extents.
fn differs(declared: &DeclaredType, ty: &TensorType) -> bool {
    let differs = |(dim, &extent): (&DeclaredDim, &usize)| matches!(dim, DeclaredDim::Known(known) if *known != extent);
    declared.dims.as_ref().is_some_and(|dims| dims.len() != ty.rank() || dims.iter().zip(ty.shape.iter()).any(differs))
}

#[cfg(test)]
mod tests;
