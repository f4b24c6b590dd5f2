//! The inputs of the graph: their dims must be known, from the model or from the user.

use std::collections::BTreeMap;

use mcc_support::{Error, Result, Shape, Tensor, TensorType, bail, ensure};

use super::{ImportOptions, Importer, Item, Scope, Warning, WarningKind};
use crate::graph::build::MAX_VALUE_BYTES;
use crate::graph::{Extent, Origin, Wire};
use crate::onnx::graph::Declared;
use crate::onnx::{DeclaredDim, DeclaredType, Node};

impl<'b> Importer<'b> {
    /// Gives every input a value.
    pub(super) fn inputs(&mut self, scope: &Scope<'_, '_, 'b>, options: &ImportOptions) {
        let inputs = &scope.graph.inputs;
        self.check_names(scope, options);
        let dims = symbols(inputs, options);
        let mut dynamic = Vec::new();
        if let Err(error) = check_ranges(inputs, options) {
            self.errors.push(error);
        }
        for input in inputs {
            self.builder.set_origin(Origin { output: input.name.clone(), ..Origin::default() });
            let value = match self.input_type(input, options, &dims) {
                Ok(InputType::Constant(tensor)) => Some(self.builder.constant(tensor)),
                Ok(InputType::Known(ty)) => Some(self.builder.input(&input.name, ty)),
                Ok(InputType::Bounded(ty, ranges)) => Some(self.bounded(&input.name, &ty, &ranges)),
                Ok(InputType::Dynamic(declared)) => {
                    dynamic.push((input.name.as_str(), declared));
                    None
                }
                Err(error) => {
                    self.errors.push(error.context(format!("in input '{}'", input.name)));
                    None
                }
            };
            scope.values.borrow_mut().insert(&input.name, value.map(Item::Tensor));
        }
        if !dynamic.is_empty() {
            self.errors.push(dynamic_error(&dynamic, &dims));
        }
    }

    /// Options must speak of inputs and dimensions that the model has.
    fn check_names(&mut self, scope: &Scope<'_, '_, 'b>, options: &ImportOptions) {
        let inputs = &scope.graph.inputs;
        let names = || inputs.iter().map(|input| format!("'{}'", input.name)).collect::<Vec<_>>().join(", ");
        let given =
            options.shapes.keys().map(|name| ("--shape", name)).chain(options.constants.keys().map(|name| ("--constant", name)));
        for (option, name) in given {
            if inputs.iter().all(|input| input.name != *name) {
                let error = Error::new(format!("{option} names '{name}', which is not an input of the model"));
                self.errors.push(error.help(format!("its inputs are {}", names())));
            }
        }
        let nodes = &scope.graph.nodes;
        let known = |name: &String| names_of(inputs, nodes).any(|known| known == name);
        if let Some(name) = options.max_elements.keys().find(|name| !known(name)) {
            self.errors.push(Error::new(format!("--max-elements names '{name}', which is not a value of the model")));
        }
        let symbols: Vec<String> = inputs.iter().flat_map(symbols_of).collect();
        for name in options.dims.keys().chain(options.ranges.keys()).filter(|name| !symbols.contains(name)) {
            let error = Error::new(format!("--dim names '{name}', which is not a dimension of an input of the model"));
            let help = if symbols.is_empty() {
                "its inputs have no named dimensions".to_string()
            } else {
                format!("its named dimensions are {}", symbols.join(", "))
            };
            self.errors.push(error.help(help));
        }
    }

    fn input_type(
        &mut self,
        input: &Declared<'_>,
        options: &ImportOptions,
        symbols: &BTreeMap<String, usize>,
    ) -> Result<InputType> {
        let Some(declared) = input.declared_type()? else { bail!("the model declares no type") };
        if let Some(tensor) = options.constants.get(&input.name) {
            check_constant(&declared, tensor)?;
            return Ok(InputType::Constant(tensor.clone()));
        }
        let dims = match (options.shapes.get(&input.name), &declared.dims) {
            (Some(shape), declared_dims) => {
                if let Some(dims) = declared_dims {
                    ensure!(dims.len() == shape.len(), "the model declares {declared}, but --shape gives {} dims", shape.len());
                    let differs =
                        |(dim, &extent): (&DeclaredDim, &usize)| matches!(dim, DeclaredDim::Known(known) if *known != extent);
                    if dims.iter().zip(shape).any(differs) {
                        self.reshaped = true;
                        let shape = Shape::new(shape.clone());
                        let message =
                            format!("the model declares its input '{}' as {declared}, but --shape gives {shape}", input.name);
                        self.warn(Warning::new(WarningKind::Reshaped, message));
                    }
                }
                for (axis, (dim, &extent)) in declared_dims.iter().flatten().zip(shape).enumerate() {
                    let DeclaredDim::Symbol(name) = dim else { continue };
                    if let Some(&other) = options.dims.get(name) {
                        ensure!(other == extent, "its dimension '{name}' is {extent} by --shape, but {other} by --dim");
                    }
                    if let Some((least, most)) = options.ranges.get(name) {
                        let is_range = options.axis_ranges.contains_key(&(input.name.clone(), axis));
                        ensure!(is_range, "its dimension '{name}' is {extent} by --shape, but {least}..{most} by --dim");
                    }
                }
                shape.clone()
            }
            (None, None) => return Ok(InputType::Dynamic(declared)),
            (None, Some(dims)) => {
                let known = dims.iter().map(|dim| match dim {
                    DeclaredDim::Known(extent) => Some(*extent),
                    DeclaredDim::Symbol(name) => symbols.get(name).copied(),
                    DeclaredDim::Unknown => None,
                });
                match known.collect::<Option<Vec<_>>>() {
                    Some(dims) => dims,
                    None => return Ok(InputType::Dynamic(declared)),
                }
            }
        };
        let ty = TensorType::new(declared.dtype, dims);
        let bounded = ty.shape.iter().try_fold(ty.dtype.size_bits(), |bits, &dim| bits.checked_mul(dim.max(1)));
        ensure!(
            bounded.is_some_and(|bits| bits.div_ceil(8) <= MAX_VALUE_BYTES),
            "a value of type {ty} is larger than {} MiB",
            MAX_VALUE_BYTES >> 20
        );
        let ranges: Vec<_> = (0..ty.rank()).map(|axis| range_of(input, &declared, axis, options)).collect();
        if ranges.iter().all(Option::is_none) {
            return Ok(InputType::Known(ty));
        }
        ensure!(!ty.dtype.is_packed(), "an extent of {ty} is a range, but its elements share bytes");
        Ok(InputType::Bounded(ty, ranges))
    }

    /// An input with dimensions that are known only at run time.
    fn bounded(&mut self, name: &str, ty: &TensorType, ranges: &[Option<Range>]) -> Wire<'b> {
        let extents: Vec<Extent> = ty
            .shape
            .iter()
            .zip(ranges)
            .map(|(&dim, range)| match range {
                None => Extent::from(dim),
                Some(range) => {
                    let new = || self.builder.dimension(&range.name, range.bounds.0, range.bounds.1);
                    self.dimensions.entry(range.name.clone()).or_insert_with(new).clone()
                }
            })
            .collect();
        self.builder.bounded_input(name, ty.dtype, &extents)
    }
}

/// The names of all inputs and results.
fn names_of<'a>(inputs: &'a [Declared<'_>], nodes: &'a [Node<'_>]) -> impl Iterator<Item = &'a String> {
    inputs.iter().map(|input| &input.name).chain(nodes.iter().flat_map(|node| &node.outputs))
}

/// A dimension that is known only at run time.
struct Range {
    name: String,
    bounds: (usize, usize),
}

/// What the options say of a dimension: of the one that the model names, or of this one.
fn range_of(input: &Declared<'_>, declared: &DeclaredType, axis: usize, options: &ImportOptions) -> Option<Range> {
    let symbol = match declared.dims.as_ref().and_then(|dims| dims.get(axis)) {
        Some(DeclaredDim::Symbol(name)) => Some(name.clone()),
        _ => None,
    };
    let named = symbol.as_ref().and_then(|name| options.ranges.get(name));
    let here = options.axis_ranges.get(&(input.name.clone(), axis));
    let bounds = *here.or(named.filter(|_| !options.shapes.contains_key(&input.name)))?;
    Some(Range { name: symbol.unwrap_or_else(|| format!("{}_{axis}", input.name)), bounds })
}

/// A dimension has one range, wherever it is.
fn check_ranges(inputs: &[Declared<'_>], options: &ImportOptions) -> Result<()> {
    let mut known = options.ranges.clone();
    for input in inputs {
        let Some(declared) = input.declared_type()? else { continue };
        for axis in 0..declared.dims.as_ref().map_or(0, Vec::len) {
            let Some(range) = range_of(input, &declared, axis, options) else { continue };
            let (least, most) = *known.entry(range.name.clone()).or_insert(range.bounds);
            ensure!(
                (least, most) == range.bounds,
                "the dimension '{}' is from {least} to {most} and from {} to {}",
                range.name,
                range.bounds.0,
                range.bounds.1
            );
        }
    }
    Ok(())
}

enum InputType {
    Known(TensorType),
    /// With the greatest extents, and which of them are ranges.
    Bounded(TensorType, Vec<Option<Range>>),
    Constant(Tensor),
    /// A dim or the rank is not known.
    Dynamic(DeclaredType),
}

fn symbols_of(input: &Declared<'_>) -> Vec<String> {
    let dims = input.declared_type().ok().flatten().and_then(|declared| declared.dims).unwrap_or_default();
    dims.into_iter().filter_map(|dim| if let DeclaredDim::Symbol(name) = dim { Some(name) } else { None }).collect()
}

/// The extents of named dimensions: those given, and those which follow from the shapes and constants given.
fn symbols(inputs: &[Declared<'_>], options: &ImportOptions) -> BTreeMap<String, usize> {
    let mut symbols = options.dims.clone();
    symbols.extend(options.ranges.iter().map(|(name, &(_, most))| (name.clone(), most)));
    for input in inputs {
        let constant = options.constants.get(&input.name).map(|tensor| tensor.shape().dims());
        let Some(shape) = options.shapes.get(&input.name).map(Vec::as_slice).or(constant) else { continue };
        let declared = input.declared_type().ok().flatten().and_then(|declared| declared.dims).unwrap_or_default();
        for (dim, &extent) in declared.into_iter().zip(shape) {
            if let DeclaredDim::Symbol(name) = dim {
                symbols.entry(name).or_insert(extent);
            }
        }
    }
    symbols
}

fn check_constant(declared: &DeclaredType, tensor: &Tensor) -> Result<()> {
    let contradicts = |dims: &Vec<DeclaredDim>| {
        dims.len() != tensor.shape().rank()
            || dims
                .iter()
                .zip(tensor.shape().iter())
                .any(|(dim, &extent)| matches!(dim, DeclaredDim::Known(known) if *known != extent))
    };
    let fits = declared.dtype == tensor.dtype() && !declared.dims.as_ref().is_some_and(contradicts);
    ensure!(fits, "the model declares {declared}, but --constant gives {}", tensor.ty());
    Ok(())
}

fn dynamic_error(inputs: &[(&str, DeclaredType)], known: &BTreeMap<String, usize>) -> Error {
    let list: Vec<String> = inputs.iter().map(|(name, declared)| format!("'{name}' {declared}")).collect();
    let noun = if inputs.len() == 1 { "shape of the model's input has" } else { "shapes of the model's inputs have" };
    let extent = |dim: &DeclaredDim| match dim {
        DeclaredDim::Known(extent) => Some(*extent),
        DeclaredDim::Symbol(name) => known.get(name).copied(),
        DeclaredDim::Unknown => None,
    };
    let shape = |(name, declared): &(&str, DeclaredType)| match &declared.dims {
        None => option("shape", name, "DIM,…"),
        Some(dims) => {
            let dims = dims.iter().map(|dim| extent(dim).map_or("DIM".to_string(), |extent| extent.to_string()));
            option("shape", name, &dims.collect::<Vec<_>>().join(","))
        }
    };
    let mut help = format!("fix them with `{}`", inputs.iter().map(shape).collect::<Vec<_>>().join(" "));
    let mut symbols: Vec<&String> = Vec::new();
    for dim in inputs.iter().filter_map(|(_, declared)| declared.dims.as_ref()).flatten() {
        if let DeclaredDim::Symbol(name) = dim
            && !known.contains_key(name)
            && !symbols.contains(&name)
        {
            symbols.push(name);
        }
    }
    if !symbols.is_empty() {
        let dims: Vec<String> = symbols.iter().map(|name| option("dim", name, "DIM")).collect();
        help += &format!(", or named dimensions with `{}`", dims.join(" "));
    }
    help += "; an extent may be a range, as 1..128, which each run is told of";
    Error::new(format!("the {noun} to be fixed when it is compiled: {}", list.join(", "))).help(help)
}

/// `--dim batch=1`, quoted where a shell would read it otherwise.
fn option(option: &str, name: &str, value: &str) -> String {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./:".contains(&byte));
    if plain { format!("--{option} {name}={value}") } else { format!("--{option} '{}={value}'", name.replace('\'', "'\\''")) }
}
