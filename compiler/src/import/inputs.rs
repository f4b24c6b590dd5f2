//! The inputs of the graph: their dims must be known, from the model or from the user.

use std::collections::BTreeMap;

use mcc_support::{Error, Result, Shape, Tensor, TensorType, bail, ensure};

use super::{ImportOptions, Importer, Item, Scope, Warning, WarningKind};
use crate::graph::Origin;
use crate::graph::build::MAX_VALUE_BYTES;
use crate::onnx::graph::Declared;
use crate::onnx::{DeclaredDim, DeclaredType};

impl<'b> Importer<'b> {
    /// Gives every input a value.
    pub(super) fn inputs(&mut self, scope: &Scope<'_, '_, 'b>, options: &ImportOptions) {
        let inputs = &scope.graph.inputs;
        self.check_names(inputs, options);
        let dims = symbols(inputs, options);
        let mut dynamic = Vec::new();
        for input in inputs {
            self.builder.set_origin(Origin { output: input.name.clone(), ..Origin::default() });
            let value = match self.input_type(input, options, &dims) {
                Ok(InputType::Constant(tensor)) => Some(self.builder.constant(tensor)),
                Ok(InputType::Known(ty)) => Some(self.builder.input(&input.name, ty)),
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
            self.errors.push(dynamic_error(&dynamic));
        }
    }

    /// Options must speak of inputs and dimensions that the model has.
    fn check_names(&mut self, inputs: &[Declared<'_>], options: &ImportOptions) {
        let names = || inputs.iter().map(|input| format!("'{}'", input.name)).collect::<Vec<_>>().join(", ");
        let given =
            options.shapes.keys().map(|name| ("--shape", name)).chain(options.constants.keys().map(|name| ("--constant", name)));
        for (option, name) in given {
            if inputs.iter().all(|input| input.name != *name) {
                let error = Error::new(format!("{option} names '{name}', which is not an input of the model"));
                self.errors.push(error.help(format!("its inputs are {}", names())));
            }
        }
        let symbols: Vec<String> = inputs.iter().flat_map(symbols_of).collect();
        for name in options.dims.keys().filter(|name| !symbols.contains(name)) {
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
                        self.warnings.push(Warning::new(WarningKind::Reshaped, message));
                    }
                }
                for (dim, &extent) in declared_dims.iter().flatten().zip(shape) {
                    if let DeclaredDim::Symbol(name) = dim
                        && let Some(&other) = options.dims.get(name)
                    {
                        ensure!(other == extent, "its dimension '{name}' is {extent} by --shape, but {other} by --dim");
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
        Ok(InputType::Known(ty))
    }
}

enum InputType {
    Known(TensorType),
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

fn dynamic_error(inputs: &[(&str, DeclaredType)]) -> Error {
    let list: Vec<String> = inputs.iter().map(|(name, declared)| format!("'{name}' {declared}")).collect();
    let noun = if inputs.len() == 1 { "shape of the model's input has" } else { "shapes of the model's inputs have" };
    let shape = |(name, declared): &(&str, DeclaredType)| match &declared.dims {
        None => format!("--shape {name}=DIM,…"),
        Some(dims) => {
            let dims =
                dims.iter().map(|dim| if let DeclaredDim::Known(extent) = dim { extent.to_string() } else { "DIM".to_string() });
            format!("--shape {name}={}", dims.collect::<Vec<_>>().join(","))
        }
    };
    let mut help = format!("fix them with `{}`", inputs.iter().map(shape).collect::<Vec<_>>().join(" "));
    let mut symbols: Vec<&String> = Vec::new();
    for dim in inputs.iter().filter_map(|(_, declared)| declared.dims.as_ref()).flatten() {
        if let DeclaredDim::Symbol(name) = dim
            && !symbols.contains(&name)
        {
            symbols.push(name);
        }
    }
    if !symbols.is_empty() {
        let dims: Vec<String> = symbols.iter().map(|name| format!("--dim {name}=DIM")).collect();
        help += &format!(", or named dimensions with `{}`", dims.join(" "));
    }
    Error::new(format!("the {noun} to be fixed when it is compiled: {}", list.join(", "))).help(help)
}
