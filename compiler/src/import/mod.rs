//! From a model to a graph: every operator is replaced by its definition in core ops, shapes are fixed, constants are folded.
//!
//! What stops a model is collected, node by node, so that the user sees all of it at once.

mod control;
mod inputs;
mod sequences;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use mcc_support::{Error, Result, Tensor, ensure};

use crate::graph::{Builder, Graph, Origin, Wire};
use crate::onnx::{DeclaredDim, DeclaredType, FlatGraph, Model, Node, flatten};
use crate::ops::{self, NodeContext};

/// What the user says about a model.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Name of the graph; the model's own by default.
    pub name: Option<String>,
    /// Shapes of inputs, by name. They win over what the model declares.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Extents of dimensions that the model names.
    pub dims: BTreeMap<String, usize>,
    /// Inputs that become constants.
    pub constants: BTreeMap<String, Tensor>,
}

/// Something odd that does not stop a compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning(pub String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The graph of a model, or the first thing that stops it.
pub fn import(model: &Model, options: &ImportOptions) -> Result<(Graph, Vec<Warning>)> {
    import_all_errors(model, options).map_err(|errors| errors.into_iter().next().expect("a failure has an error"))
}

/// As [`import`], with everything that stops the model: at least one error.
pub fn import_all_errors(model: &Model, options: &ImportOptions) -> Result<(Graph, Vec<Warning>), Vec<Error>> {
    let flat = flatten(model).map_err(|error| vec![error])?;
    let name = options.name.clone().unwrap_or_else(|| flat.name.to_string());
    let builder = Builder::new(name);
    let mut importer = Importer { builder: &builder, errors: Vec::new(), warnings: Vec::new(), reshaped: false, rounds: 0 };
    let scope = Scope { graph: &flat, values: RefCell::default(), outer: None };
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
                    importer
                        .warnings
                        .push(Warning(format!("the output '{}' is computed as {ty}; {}", output.name, error.message)));
                    Ok(())
                }
            };
            checked.unwrap_or_else(|error| importer.errors.push(error));
        }
    }
    let Importer { errors, warnings, .. } = importer;
    drop(scope);
    if errors.is_empty() { Ok((builder.finish(), warnings)) } else { Err(errors) }
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
}

impl<'b> Importer<'b> {
    fn nodes<'a>(&mut self, scope: &Scope<'_, 'a, 'b>) {
        for node in &scope.graph.nodes {
            let reference = node.reference();
            let output = node.outputs.iter().find(|name| !name.is_empty()).cloned().unwrap_or_default();
            self.builder.set_origin(Origin { node: reference.name.clone(), operator: reference.operator.clone(), output });
            let results = match self.node(scope, node) {
                Ok(results) => results,
                Err(error) => {
                    self.errors.push(error.node(reference));
                    None
                }
            };
            for (index, name) in node.outputs.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
                scope.values.borrow_mut().insert(name, results.as_ref().map(|results| results[index].clone()));
            }
        }
    }

    /// What a node's inputs stand for; `None` where one could not be made.
    fn items_of<'a>(&mut self, scope: &Scope<'_, 'a, 'b>, node: &'a Node<'a>) -> Option<Vec<Item<'b>>> {
        let item = |name: &String| if name.is_empty() { Some(Item::Nothing) } else { self.value(scope, name) };
        node.inputs.iter().map(item).collect()
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
        let context = NodeContext::new(self.builder, node, def, inputs);
        let results = (def.build)(&context);
        self.builder.check()?;
        let results = results?;
        context.finish()?;
        if let Some(index) = (results.len()..node.outputs.len()).find(|&index| context.wants_output(index)) {
            return Err(Error::new(format!("output {index} ('{}') of {} is not supported", node.outputs[index], def.name)));
        }
        self.warnings.extend(context.into_warnings().into_iter().map(Warning));
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

    /// Compares a declared type with the inferred one. A known extent is a contract with the caller, who sizes a buffer by it:
    /// one that cannot be true is an error, unless the user asked for other shapes than the model was made for. A shape of another
    /// rank with extents that are not known is no such contract: a warning.
    fn check_output(&mut self, name: &str, declared: Option<DeclaredType>, wire: Wire<'b>) -> Result<()> {
        let Some(declared) = declared else { return Ok(()) };
        let ty = wire.ty();
        let differs = |(dim, &extent): (&DeclaredDim, &usize)| matches!(dim, DeclaredDim::Known(known) if *known != extent);
        let (other_rank, other_extent, complete) = declared.dims.as_ref().map_or((false, false, false), |dims| {
            let complete = dims.iter().all(|dim| matches!(dim, DeclaredDim::Known(_)));
            (dims.len() != ty.rank(), dims.iter().zip(ty.shape.iter()).any(differs), complete)
        });
        let contradicts = if other_rank { complete } else { other_extent };
        let message = format!("the model declares its output '{name}' as {declared}, but it computes {ty}");
        ensure!(!contradicts || self.reshaped, "{message}");
        if other_rank || contradicts || declared.dtype != ty.dtype {
            self.warnings.push(Warning(message));
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

#[cfg(test)]
mod tests;
