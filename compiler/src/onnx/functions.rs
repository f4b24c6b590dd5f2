//! From a model to flat graphs: versions are checked, calls of the model's functions replaced by their bodies.
//!
//! A name inside of a call becomes `CALL/NAME`, where `CALL` is the calling node's name; inputs and outputs of the function
//! become the caller's. Names that the caller sees do not change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use indexmap::IndexMap;
use mcc_support::{Error, Result, bail, ensure};

use super::attributes::AttributeValue;
use super::external::ExternalFiles;
use super::graph::{Declared, FlatGraph, Initializer, Node, Payload, node_reference};
use super::proto::{AttributeProto, AttributeType, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto, ValueInfoProto};
use super::{IR_VERSIONS, Model, OPSETS};

/// Calls and subgraphs inside of each other; files cannot nest deeper than their decoder allows, but chains of calls can.
const DEPTH: usize = 64;
/// Most calls and nodes inside of them, and most bytes of their names: calls within calls multiply.
const EXPANSION: usize = 1 << 18;
const NAME_BYTES: usize = 1 << 28;

/// The main graph of a model, flat. Fails where the model's versions are not known ([`IR_VERSIONS`], [`OPSETS`]), a function
/// calls itself, a name has no or two definitions, nodes wait for each other, or an attribute contradicts itself.
pub fn flatten(model: &Model) -> Result<FlatGraph<'_>> {
    let proto = &model.proto;
    check_ir_version(proto.ir_version)?;
    let graph = proto.graph.as_ref().ok_or_else(|| Error::new("the model has no graph"))?;
    let mut functions = BTreeMap::new();
    for function in &proto.functions {
        let key = (domain(function.domain()), function.name(), function.overload());
        ensure!(functions.insert(key, function).is_none(), "the model has two functions '{}' of one domain", function.name());
    }
    let mut used = BTreeSet::new();
    collect_names(graph, &mut used);
    let mut flattener = Flattener { model, functions, used, prefixes: BTreeMap::new(), expansion: 0, name_bytes: 0, depth: 0 };
    let mut scope = Scope { opsets: opsets(&proto.opset_import)?, call: None };
    flattener.graph(graph, &mut scope, true)
}

fn check_ir_version(version: Option<i64>) -> Result<()> {
    let Some(version) = version else { bail!("the model states no IR version") };
    if IR_VERSIONS.contains(&version) {
        return Ok(());
    }
    let (low, high) = IR_VERSIONS.into_inner();
    let help =
        if version < low { "save it anew with a current version of onnx" } else { "export it for an older version of ONNX" };
    Err(Error::new(format!("the model has IR version {version}; versions {low} to {high} are supported")).help(help))
}

fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// Versions by domain.
type Opsets<'a> = BTreeMap<&'a str, i64>;

fn opsets(imports: &[OperatorSetIdProto]) -> Result<Opsets<'_>> {
    let mut opsets = BTreeMap::new();
    for import in imports {
        let domain = domain(import.domain());
        let other = opsets.insert(domain, import.version());
        ensure!(other.is_none_or(|other| other == import.version()), "two versions of operator set '{domain}' are imported");
    }
    if let Some(&version) = opsets.get("")
        && !OPSETS.contains(&version)
    {
        let (low, high) = OPSETS.into_inner();
        let help = format!(
            "convert the model to one of these, for instance with `onnx.version_converter.convert_version(model, {high})`"
        );
        return Err(Error::new(format!("the model uses opset {version}; opsets {low} to {high} are supported")).help(help));
    }
    Ok(opsets)
}

/// Every name that stands for a value or node in a graph of the file, so that new names differ.
fn collect_names(graph: &GraphProto, names: &mut BTreeSet<String>) {
    let sparse = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
    names.extend(graph.initializer.iter().chain(sparse).map(|tensor| tensor.name().to_string()));
    names.extend(graph.input.iter().map(|input| input.name().to_string()));
    for node in &graph.node {
        names.extend(node.input.iter().chain(&node.output).cloned());
        for attribute in &node.attribute {
            attribute.g.iter().for_each(|graph| collect_names(graph, names));
        }
    }
}

/// What names, operators and attribute references mean: in the graphs of the file, or in one call of a function.
struct Scope<'a> {
    opsets: Opsets<'a>,
    call: Option<Call<'a>>,
}

struct Call<'a> {
    function: &'a FunctionProto,
    /// The function and its callers.
    stack: Vec<&'a FunctionProto>,
    prefix: String,
    /// The function's names and what they are outside; names of its body are added when they are met.
    names: BTreeMap<&'a str, String>,
    attributes: BTreeMap<&'a str, AttributeValue<'a>>,
}

struct Flattener<'a> {
    model: &'a Model,
    functions: BTreeMap<(&'a str, &'a str, &'a str), &'a FunctionProto>,
    used: BTreeSet<String>,
    /// How often a prefix was asked for.
    prefixes: BTreeMap<String, usize>,
    expansion: usize,
    name_bytes: usize,
    depth: usize,
}

impl<'a> Flattener<'a> {
    fn graph(&mut self, proto: &'a GraphProto, scope: &mut Scope<'a>, is_main: bool) -> Result<FlatGraph<'a>> {
        self.enter()?;
        let initializers = self.initializers(proto, scope)?;
        let mut inputs = self.declare(&proto.input, scope, true)?;
        if is_main {
            inputs.retain(|input| !initializers.contains_key(&input.name));
        }
        let outputs = self.declare(&proto.output, scope, false)?;
        let mut declared = BTreeMap::new();
        for info in proto.value_info.iter().chain(&proto.input).chain(&proto.output) {
            if let Some(ty) = &info.r#type {
                declared.insert(self.name(info.name(), scope)?, ty);
            }
        }
        let mut nodes = Vec::with_capacity(proto.node.len());
        for node in &proto.node {
            self.node(node, scope, &mut nodes)?;
        }
        self.depth -= 1;
        let captured = BTreeSet::new();
        FlatGraph { name: proto.name(), nodes, initializers, inputs, outputs, declared, captured }.finish(is_main)
    }

    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        ensure!(self.depth <= DEPTH, "functions and subgraphs nest deeper than {DEPTH}");
        Ok(())
    }

    fn initializers(&mut self, proto: &'a GraphProto, scope: &mut Scope<'a>) -> Result<IndexMap<String, Initializer<'a>>> {
        let dense = proto.initializer.iter().map(|tensor| (tensor.name(), Payload::Dense(tensor)));
        let sparse = proto.sparse_initializer.iter().map(|sparse| {
            let name = sparse.values.as_ref().map_or("", |values| values.name());
            (name, Payload::Sparse(sparse))
        });
        let mut initializers = IndexMap::new();
        for (name, payload) in dense.chain(sparse) {
            ensure!(!name.is_empty(), "an initializer of graph '{}' has no name", proto.name());
            let known = initializers.insert(self.define(name, scope)?, Initializer::new(payload, &self.model.files));
            ensure!(known.is_none(), "'{name}' is an initializer twice");
        }
        Ok(initializers)
    }

    /// The inputs of a graph, which it defines, or its outputs.
    fn declare(&mut self, infos: &'a [ValueInfoProto], scope: &mut Scope<'a>, defines: bool) -> Result<Vec<Declared<'a>>> {
        let mut declared = Vec::with_capacity(infos.len());
        for info in infos {
            ensure!(!info.name().is_empty(), "an input or output of a graph has no name");
            let name = if defines { self.define(info.name(), scope)? } else { self.name(info.name(), scope)? };
            declared.push(Declared { name, ty: info.r#type.as_ref() });
        }
        Ok(declared)
    }

    /// Adds a node, or the nodes of the function that it calls.
    fn node(&mut self, proto: &'a NodeProto, scope: &mut Scope<'a>, out: &mut Vec<Node<'a>>) -> Result<()> {
        let domain = domain(proto.domain());
        let opset = scope.opsets.get(domain).copied();
        let reference = || node_reference(proto.name(), &proto.output, domain, proto.op_type(), opset.unwrap_or(0));
        ensure!(!proto.op_type().is_empty(), "node '{}' has no operator", reference().name);
        let attributes = self.attributes(proto, scope).map_err(|error| error.node(reference()))?;
        let function = self.functions.get(&(domain, proto.op_type(), proto.overload())).copied();
        if let Some(function) = function {
            return self.call(function, proto, attributes, scope, out).map_err(|error| error.node(reference()));
        }
        ensure!(
            proto.overload().is_empty(),
            "node '{}' calls {}:{}, a function that the model does not have",
            reference().name,
            proto.op_type(),
            proto.overload()
        );
        let opset = match opset {
            Some(opset) => opset,
            None if domain.is_empty() => {
                bail!("node '{}' ({}) is of the default operator set, which is not imported", reference().name, proto.op_type())
            }
            // Sets of other domains, which have one version each, are often not imported.
            None => 1,
        };
        let name = match &scope.call {
            Some(call) if !proto.name().is_empty() => format!("{}/{}", call.prefix, proto.name()),
            _ => proto.name().to_string(),
        };
        if scope.call.is_some() {
            self.expand(1, name.len())?;
        }
        let inputs = self.names(&proto.input, scope, false)?;
        let outputs = self.names(&proto.output, scope, true)?;
        let files = &self.model.files;
        out.push(Node { name, domain, operator: proto.op_type(), opset, inputs, outputs, attributes, files });
        Ok(())
    }

    /// Counts a call, a node inside of one, or a name made for one.
    fn expand(&mut self, count: usize, name_bytes: usize) -> Result<()> {
        self.expansion += count;
        self.name_bytes += name_bytes;
        ensure!(
            self.expansion <= EXPANSION && self.name_bytes <= NAME_BYTES,
            "the model's functions call each other so often that they expand to more than {EXPANSION} nodes"
        );
        Ok(())
    }

    /// Names as the flat graph has them, without empty ones at the end.
    fn names(&mut self, names: &'a [String], scope: &mut Scope<'a>, defines: bool) -> Result<Vec<String>> {
        let mut mapped = Vec::with_capacity(names.len());
        for name in names {
            let is_new = defines && !name.is_empty();
            mapped.push(if is_new { self.define(name, scope)? } else { self.name(name, scope)? });
        }
        // A function's input that is left out has an empty name too.
        let given = mapped.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
        mapped.truncate(given);
        Ok(mapped)
    }

    /// The name that a name of the scope has in the flat graph.
    fn name(&mut self, name: &'a str, scope: &mut Scope<'a>) -> Result<String> {
        let Some(call) = &mut scope.call else { return Ok(name.to_string()) };
        if name.is_empty() {
            return Ok(String::new());
        }
        if let Some(mapped) = call.names.get(name) {
            return Ok(mapped.clone());
        }
        let fresh = self.fresh(&format!("{}/{name}", call.prefix))?;
        call.names.insert(name, fresh.clone());
        Ok(fresh)
    }

    /// The same for a name that is given a value here: in a function that cannot be one of its inputs.
    fn define(&mut self, name: &'a str, scope: &mut Scope<'a>) -> Result<String> {
        if let Some(call) = &scope.call {
            let function = call.function;
            ensure!(
                !function.input.iter().any(|input| input == name),
                "function '{}' gives its input '{name}' a value",
                function.name()
            );
        }
        self.name(name, scope)
    }

    /// A name that no value has, for one that would be called `wish`.
    fn fresh(&mut self, wish: &str) -> Result<String> {
        self.expand(0, wish.len())?;
        let mut name = wish.to_string();
        while self.used.contains(&name) {
            let count = self.prefixes.entry(wish.to_string()).or_insert(1);
            *count += 1;
            name = format!("{wish}_{count}");
        }
        self.used.insert(name.clone());
        Ok(name)
    }

    /// The attributes of a node, references to the function's attributes replaced by what the caller gave.
    fn attributes(&mut self, proto: &'a NodeProto, scope: &mut Scope<'a>) -> Result<Vec<(&'a str, AttributeValue<'a>)>> {
        let mut attributes = Vec::with_capacity(proto.attribute.len());
        let mut names = BTreeSet::new();
        for attribute in &proto.attribute {
            let name = attribute.name();
            ensure!(names.insert(name), "attribute '{name}' is given twice");
            let value = if attribute.ref_attr_name().is_empty() {
                Some(self.value(attribute, scope)?)
            } else {
                self.referenced(attribute, scope).map_err(|error| error.context(format!("in attribute '{name}'")))?
            };
            attributes.extend(value.map(|value| (name, value)));
        }
        Ok(attributes)
    }

    fn value(&mut self, attribute: &'a AttributeProto, scope: &mut Scope<'a>) -> Result<AttributeValue<'a>> {
        let value = AttributeValue::from_proto(attribute, |graph| self.graph(graph, scope, false).map(Arc::new));
        value.map_err(|error| error.context(format!("in attribute '{}'", attribute.name())))
    }

    /// What an attribute of the function is in this call; `None` where the caller gave none and it has no default.
    fn referenced(&self, attribute: &'a AttributeProto, scope: &Scope<'a>) -> Result<Option<AttributeValue<'a>>> {
        let wanted = attribute.ref_attr_name();
        let Some(call) = &scope.call else {
            bail!("it refers to an attribute '{wanted}' of a function, but stands in no function");
        };
        let is_declared = call.function.attribute.iter().any(|name| name == wanted)
            || call.function.attribute_proto.iter().any(|default| default.name() == wanted);
        ensure!(is_declared, "function '{}' has no attribute '{wanted}'", call.function.name());
        let value = call.attributes.get(wanted);
        if let Some(value) = value
            && let declared = attribute.r#type.unwrap_or(0)
            && declared != AttributeType::Undefined as i32
        {
            ensure!(
                value.attribute_type() as i32 == declared,
                "it has another type than the attribute '{wanted}' of the call, which is {}",
                value.kind()
            );
        }
        Ok(value.cloned())
    }

    /// Adds the body of a function in place of the node that calls it.
    fn call(
        &mut self,
        function: &'a FunctionProto,
        node: &'a NodeProto,
        attributes: Vec<(&'a str, AttributeValue<'a>)>,
        scope: &mut Scope<'a>,
        out: &mut Vec<Node<'a>>,
    ) -> Result<()> {
        self.enter()?;
        self.expand(1, 0)?;
        let name = function.name();
        let mut stack = scope.call.as_ref().map_or(Vec::new(), |call| call.stack.clone());
        ensure!(!stack.iter().any(|other| std::ptr::eq(*other, function)), "function '{name}' calls itself");
        stack.push(function);
        let inputs = self.names(&node.input, scope, false)?;
        let outputs = self.names(&node.output, scope, true)?;
        ensure!(
            inputs.len() <= function.input.len(),
            "function '{name}' takes {} inputs, not {}",
            function.input.len(),
            inputs.len()
        );
        ensure!(
            outputs.len() <= function.output.len(),
            "function '{name}' has {} outputs, not {}",
            function.output.len(),
            outputs.len()
        );

        let first_output = node.output.iter().find(|output| !output.is_empty());
        let label = if node.name().is_empty() { first_output.map_or(name, String::as_str) } else { node.name() };
        let wish = scope.call.as_ref().map_or_else(|| label.to_string(), |call| format!("{}/{label}", call.prefix));
        let prefix = self.prefix(&wish);
        let mut inner = Scope {
            opsets: function_opsets(function, &scope.opsets)?,
            call: Some(Call { function, stack, prefix, names: BTreeMap::new(), attributes: BTreeMap::new() }),
        };
        self.bind_attributes(function, attributes, &mut inner)?;
        let copies = self.bind_values(function, inputs, outputs, &mut inner)?;
        for node in &function.node {
            self.node(node, &mut inner, out)
                .map_err(|error| error.context(format!("in function '{name}', called by node '{label}'")))?;
        }
        for (from, to) in copies {
            let from = self.name(from, &mut inner)?;
            let opset = inner.opsets.get("").copied().unwrap_or(*OPSETS.end());
            out.push(identity(from, to, opset, &self.model.files));
        }
        self.depth -= 1;
        Ok(())
    }

    fn prefix(&mut self, wish: &str) -> String {
        let count = self.prefixes.entry(format!("{wish}/")).or_insert(0);
        *count += 1;
        if *count == 1 { wish.to_string() } else { format!("{wish}_{count}") }
    }

    /// Attributes of the call: given ones and defaults.
    fn bind_attributes(
        &mut self,
        function: &'a FunctionProto,
        given: Vec<(&'a str, AttributeValue<'a>)>,
        inner: &mut Scope<'a>,
    ) -> Result<()> {
        let mut bound = BTreeMap::new();
        for (name, value) in given {
            let is_declared = function.attribute.iter().any(|other| other == name)
                || function.attribute_proto.iter().any(|default| default.name() == name);
            ensure!(is_declared, "function '{}' has no attribute '{name}'", function.name());
            bound.insert(name, value);
        }
        for default in &function.attribute_proto {
            if !bound.contains_key(default.name()) {
                bound.insert(default.name(), self.value(default, inner)?);
            }
        }
        if let Some(call) = &mut inner.call {
            call.attributes = bound;
        }
        Ok(())
    }

    /// Names of the call: inputs that are left out stay empty, outputs that are not wanted get a name of their own. Returns
    /// the outputs that need a copy, because they are an input or were listed before.
    fn bind_values(
        &mut self,
        function: &'a FunctionProto,
        inputs: Vec<String>,
        outputs: Vec<String>,
        inner: &mut Scope<'a>,
    ) -> Result<Vec<(&'a str, String)>> {
        let Some(call) = &mut inner.call else { return Ok(Vec::new()) };
        let mut inputs = inputs.into_iter();
        for formal in &function.input {
            let known = call.names.insert(formal, inputs.next().unwrap_or_default());
            ensure!(known.is_none(), "function '{}' has two inputs '{formal}'", function.name());
        }
        let mut copies = Vec::new();
        for (formal, actual) in function.output.iter().zip(outputs) {
            if actual.is_empty() {
                continue;
            }
            if call.names.contains_key(formal.as_str()) {
                copies.push((formal.as_str(), actual));
            } else {
                call.names.insert(formal, actual);
            }
        }
        Ok(copies)
    }
}

fn identity<'a>(from: String, to: String, opset: i64, files: &'a ExternalFiles) -> Node<'a> {
    let (inputs, outputs, attributes) = (vec![from], vec![to], Vec::new());
    Node { name: String::new(), domain: "", operator: "Identity", opset, inputs, outputs, attributes, files }
}

/// What a function imports; for domains that it leaves out, what its caller does.
fn function_opsets<'a>(function: &'a FunctionProto, caller: &Opsets<'a>) -> Result<Opsets<'a>> {
    let mut opsets =
        opsets(&function.opset_import).map_err(|error| error.context(format!("in function '{}'", function.name())))?;
    for (domain, version) in caller {
        opsets.entry(domain).or_insert(*version);
    }
    Ok(opsets)
}
