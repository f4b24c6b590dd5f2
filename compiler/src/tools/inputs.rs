//! Values of a model's inputs: from files, or random.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mcc_support::random::Random;
use mcc_support::tensor::Number;
use mcc_support::{DType, Error, Result, Tensor, TensorType, bail, ensure};
use serde::Deserialize;

use crate::driver::{Compilation, Options, Specialization};
use crate::import::declared_inputs;
use crate::npy;
use crate::onnx::{DeclaredType, Model};

use super::args::CompareArgs;

/// Inputs by name, from `NAME=FILE.npy` and `FILE.npz`.
pub fn from_arguments(arguments: &[String]) -> Result<BTreeMap<String, Tensor>> {
    let mut tensors = BTreeMap::new();
    for argument in arguments {
        let found = match argument.rsplit_once('=') {
            _ if Path::new(argument).extension().is_some_and(|extension| extension == "npz") => {
                npy::read_archive(Path::new(argument))?
            }
            Some((name, file)) if !name.is_empty() => vec![(name.to_string(), npy::read(Path::new(file))?)],
            _ => bail!("--input {argument}: NAME=FILE.npy or FILE.npz is needed"),
        };
        for (name, tensor) in found {
            ensure!(tensors.insert(name.clone(), tensor).is_none(), "the input '{name}' is given twice");
        }
    }
    Ok(tensors)
}

#[derive(Deserialize)]
struct IndexEntry {
    name: String,
    file: String,
}

/// Inputs by name, from a folder with `index.json`.
pub fn from_folder(folder: &Path) -> Result<BTreeMap<String, Tensor>> {
    let path = folder.join("index.json");
    let wrong = |error: &dyn std::fmt::Display| {
        Error::new(format!("cannot read the file: {error}")).context(format!("in file '{}'", path.display()))
    };
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(&error))?;
    let index: Vec<IndexEntry> = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    index.into_iter().map(|entry| Ok((entry.name, npy::read(&folder.join(entry.file))?))).collect()
}

/// Inputs whose shape the options do not fix have that of the value they are given; but several sets of shapes fix all, and so do
/// ranges.
///
/// # Errors
///
/// A value of what is no input of the model, or with another number of dimensions.
pub fn fix_shapes(given: &BTreeMap<String, Tensor>, options: &mut Options) -> Result<()> {
    if given.is_empty() {
        return Ok(());
    }
    let declared = declared(&options.model)?;
    for (name, tensor) in given {
        let Some(ty) = declared.get(name) else {
            let names: Vec<String> = declared.keys().map(|name| format!("'{name}'")).collect();
            let error = Error::new(format!("a value is given for '{name}', which is not an input of the model"));
            return Err(error.help(format!("its inputs are {}", names.join(", "))));
        };
        if let Some((ty, dims)) = ty.as_ref().and_then(|ty| Some((ty, ty.dims.as_ref()?))) {
            ensure!(dims.len() == tensor.shape().rank(), "the input '{name}' is {ty}, given is {}", tensor.ty());
        }
    }
    if options.further_shapes.is_empty() && options.import.ranges.is_empty() && options.import.axis_ranges.is_empty() {
        for (name, tensor) in given {
            options.import.shapes.entry(name.clone()).or_insert_with(|| tensor.shape().to_vec());
        }
    }
    Ok(())
}

fn declared(model: &Path) -> Result<BTreeMap<String, Option<DeclaredType>>> {
    Ok(declared_inputs(&Model::open(model)?)?.into_iter().collect())
}

/// Tensors by name.
type Values = BTreeMap<String, Tensor>;

/// The inputs given, and the values that are right, which may have those of inputs among them.
///
/// # Errors
///
/// Beside files that cannot be read: an input without a value where there are values that are right, which are of no random input.
pub fn with_reference(args: &CompareArgs) -> Result<(Values, Option<Values>)> {
    let mut given = from_arguments(&args.input)?;
    let Some(path) = &args.against else { return Ok((given, None)) };
    let mut right: Values = npy::read_archive(path)?.into_iter().collect();
    let constants: BTreeSet<&String> = args.build.constant.iter().map(|(name, _)| name).collect();
    for name in declared(&args.model)?.into_keys().filter(|name| !constants.contains(name)) {
        if given.contains_key(&name) {
            continue;
        }
        let Some(value) = right.remove(&name) else {
            let error = Error::new(format!("what is right depends on the input '{name}', which is not given"))
                .context(format!("in file '{}'", path.display()));
            return Err(error.help("put the values of the inputs into the archive, by their names, or give them with --input"));
        };
        given.insert(name, value);
    }
    Ok((given, Some(right)))
}

/// The specialization for the shapes of these values on this machine.
pub fn specialization<'c>(compilation: &'c Compilation, given: &BTreeMap<String, Tensor>) -> Result<&'c Specialization> {
    let all = compilation.specializations_here();
    let fits =
        |one: &&Specialization| types(one).all(|(name, ty)| given.get(name).is_none_or(|tensor| *tensor.shape() == ty.shape));
    match (all, all.iter().find(fits)) {
        // What does not fit the only one is told of by name.
        ([one], _) | (_, Some(one)) => Ok(one),
        (_, None) => Err(Error::new(format!("none of the {} sets of shapes has the shapes of the inputs given", all.len()))),
    }
}

/// Names and types of the inputs.
pub fn types(specialization: &Specialization) -> impl Iterator<Item = (&str, &TensorType)> {
    let graph = specialization.graph();
    graph.tensor_inputs().iter().map(|(name, value)| (name.as_str(), graph.ty(*value)))
}

/// A value for each input, in order: the one given, or a random one.
///
/// What a run is told of extents is checked when it runs.
pub fn complete(specialization: &Specialization, mut given: BTreeMap<String, Tensor>, seed: u64) -> Result<Vec<Tensor>> {
    let mut random = Random::new(seed);
    let mut names = Vec::new();
    let mut tensors = Vec::new();
    for (name, ty) in types(specialization) {
        let place = |error: Error| error.context(format!("in input '{name}'"));
        let tensor = match given.remove(name) {
            Some(tensor) => npy::as_dtype(tensor, ty.dtype).map_err(place)?,
            None => random_tensor(ty, &mut random),
        };
        let fits = |(axis, (given, most)): (usize, (&usize, &usize))| given == most || specialization.graph().told(name, axis);
        if tensor.shape().rank() != ty.rank() || !tensor.shape().iter().zip(ty.shape.iter()).enumerate().all(fits) {
            return Err(place(Error::new(format!("the input is {ty}, given is {}", tensor.ty()))));
        }
        names.push(format!("'{name}'"));
        tensors.push(tensor);
    }
    if let Some(name) = given.keys().next() {
        return Err(Error::new(format!("the model has no input '{name}'")).help(format!("its inputs are {}", names.join(", "))));
    }
    Ok(tensors)
}

/// Floats in [-1, 1); integers that are small, as indices must be.
fn random_tensor(ty: &TensorType, random: &mut Random) -> Tensor {
    let number = |_| match ty.dtype {
        DType::Bool => Number::Int(random.below(2) as i64),
        float if float.is_float() => Number::Float(random.between(-1.0, 1.0)),
        _ => Number::Int(random.below(8) as i64),
    };
    Tensor::from_numbers(ty.clone(), (0..ty.shape.count()).map(number).collect::<Vec<_>>())
}
