//! What `emit` is given: a model whose kernels are compiled, and the numbers that reports state.

use bytes::Bytes;
use mcc_kernel::{Code, Cpu};
use mcc_support::{Result, Shape, Tensor, TensorType, ensure};
use target_lexicon::Triple;

use super::cpus::cpu_names;
use super::run::{BufferPlace, Count, DimRange, Step};
use super::stage::Staged;
use super::weights::{HEAD_BYTES, WeightsPlace};

/// An input or output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// As in the ONNX model.
    pub name: String,
    /// As in the header.
    pub c_name: String,
    /// With the largest extents where they are known only at run time.
    pub ty: TensorType,
    /// For each dimension whose extent is known only at run time, which of [`CompiledModel::dims`] and, behind those,
    /// [`CompiledModel::counts`] it is. Empty where all extents are fixed.
    pub symbols: Vec<Option<usize>>,
}

/// An extent that is known only at run time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// As the ONNX model has it, else made of the tensor's name and the axis.
    pub name: String,
    /// As in the header.
    pub c_name: String,
    pub range: DimRange,
}

/// The model for one set of shapes and one CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Specialization {
    /// Which of [`CompiledModel::cpus`] has what its code uses.
    pub level: usize,
    /// Where the caller's extents are these, it is this that runs: one for each of [`CompiledModel::dims`].
    pub dims: Vec<DimRange>,
    /// What it answers: one for each of [`CompiledModel::counts`].
    pub counts: Vec<Count>,
    /// What kernels find that must be within its bounds.
    pub checks: Vec<Count>,
    /// See [`EntryBody`](super::entry::EntryBody).
    pub staged_inputs: Vec<Staged>,
    pub staged_outputs: Vec<Staged>,
    /// Shapes of the model's inputs and outputs.
    pub inputs: Vec<Shape>,
    pub outputs: Vec<Shape>,
    /// In the order in which they stand in `runs`.
    pub kernels: Vec<CompiledKernel>,
    /// What runs, with kernels by place.
    pub runs: Vec<Step<usize>>,
    pub arena_bytes: u64,
    /// The most that was live at once, below which no plan comes.
    pub arena_lower_bound_bytes: u64,
    /// See [`EntryBody::status_offset`](super::entry::EntryBody::status_offset).
    pub status_offset: Option<u64>,
}

/// A kernel with its one call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledKernel {
    pub name: String,
    /// Names of the model's nodes that it computes.
    pub origins: Vec<String>,
    /// Results along each dimension of the tiles in which it computes a convolution by Winograd's transforms.
    pub winograd: Option<usize>,
    pub code: Code,
    /// Its table of buffers.
    pub args: Vec<BufferPlace>,
    /// Extent of its outermost axis.
    pub extent: i64,
}

#[derive(Clone, Debug)]
pub struct CompiledModel {
    /// Prefix of the symbols: a C identifier.
    pub name: String,
    pub triple: Triple,
    /// At least one, the best first: each has all that those behind it have.
    pub cpus: Vec<Cpu>,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    /// Extents that the caller passes, in the order in which the inputs have them.
    pub dims: Vec<Symbol>,
    /// Extents of outputs that the run answers, in the order in which the outputs have them.
    pub counts: Vec<Symbol>,
    /// For each CPU, in their order, the same sets of shapes, at least one. Of the best CPU that the caller tells of, the first that
    /// fits runs, and the first where the caller passes no extents.
    pub specializations: Vec<Specialization>,
    /// Whether a run tells `mcc_call.profile` of each kernel.
    pub profile: bool,
    pub weights_place: WeightsPlace,
    /// Packed, as the offsets of [`BufferPlace::Weights`] say.
    pub weights: Bytes,
    pub model_sha256: [u8; 32],
    /// The options that the result depends on, as they are written, and their hash.
    pub options: serde_json::Value,
    pub options_sha256: [u8; 32],
    pub warnings: Vec<String>,
}

impl CompiledModel {
    /// What each specialization finds room in.
    pub fn arena_bytes(&self) -> u64 {
        self.specializations.iter().map(|specialization| specialization.arena_bytes).max().unwrap_or(0)
    }

    /// Of the file of weights, or of those in the object.
    pub fn passed_weights_bytes(&self) -> u64 {
        let head = if self.weights_place == WeightsPlace::File { HEAD_BYTES } else { 0 };
        (head + self.weights.len()) as u64
    }

    /// Of all specializations, each with the place of its CPU.
    pub fn kernels(&self) -> impl Iterator<Item = (usize, &CompiledKernel)> {
        self.specializations.iter().flat_map(|one| one.kernels.iter().map(|kernel| (one.level, kernel)))
    }

    /// The sets of shapes: the specializations for the best CPU.
    pub fn sets(&self) -> impl Iterator<Item = &Specialization> {
        self.specializations.iter().filter(|one| one.level == 0)
    }

    /// What a run needs at least.
    pub fn least_cpu(&self) -> &Cpu {
        self.cpus.last().expect("a model is for one CPU at least")
    }

    /// As `--cpu` takes them.
    pub fn cpu_names(&self) -> String {
        cpu_names(self.cpus.iter())
    }

    /// The extents that the caller passes with these inputs.
    ///
    /// # Errors
    ///
    /// Inputs that differ from the model's in number or type.
    pub fn bind(&self, inputs: &[Tensor]) -> Result<Vec<i64>> {
        ensure!(inputs.len() == self.inputs.len(), "the model has {} inputs, {} are given", self.inputs.len(), inputs.len());
        let mut extents = vec![-1; self.dims.len()];
        for (port, tensor) in self.inputs.iter().zip(inputs) {
            let fits = port.bind(tensor.ty(), &mut extents);
            ensure!(fits, "input '{}' is {}, given is {}", port.name, self.tensor_type(port), tensor.ty());
        }
        Ok(extents)
    }

    /// `f32[1,3,48,width]`: the names of extents that are known only at run time.
    pub fn tensor_type(&self, port: &Port) -> String {
        if port.symbols.is_empty() {
            return port.ty.to_string();
        }
        let symbols: Vec<&Symbol> = self.symbols().collect();
        let extent =
            |(dim, symbol): (&usize, &Option<usize>)| symbol.map_or(dim.to_string(), |symbol| symbols[symbol].c_name.clone());
        let extents: Vec<String> = port.ty.shape.iter().zip(&port.symbols).map(extent).collect();
        format!("{}[{}]", port.ty.dtype, extents.join(","))
    }

    /// The extents known only at run time, as ports number them.
    pub fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.dims.iter().chain(&self.counts)
    }
}

impl Port {
    /// States which of `all` each dimension is; the extents become the largest.
    pub fn set_symbols(&mut self, symbols: Vec<Option<usize>>, all: &[&Symbol]) {
        let mut dims = self.ty.shape.to_vec();
        for (dim, symbol) in dims.iter_mut().zip(&symbols) {
            *dim = symbol.map_or(*dim, |symbol| all[symbol].range.max as usize);
        }
        self.ty.shape = Shape::new(dims);
        self.symbols = symbols;
    }

    /// The symbol of a dimension, where it has one.
    fn symbol(&self, axis: usize) -> Option<usize> {
        self.symbols.get(axis).copied().flatten()
    }

    /// Reads the extents of symbols off the type of a tensor, into `extents`, where those that are not known are negative; whether
    /// the tensor fits.
    pub fn bind(&self, ty: &TensorType, extents: &mut [i64]) -> bool {
        let fits = |(axis, (&given, &fixed)): (usize, (&usize, &usize))| match self.symbol(axis) {
            None => given == fixed,
            Some(symbol) if extents[symbol] < 0 => {
                extents[symbol] = given as i64;
                true
            }
            Some(symbol) => extents[symbol] == given as i64,
        };
        ty.dtype == self.ty.dtype
            && ty.rank() == self.ty.rank()
            && ty.shape.iter().zip(self.ty.shape.iter()).enumerate().all(fits)
    }

    /// Its type where symbols have these extents.
    pub fn ty_with(&self, extents: &[i64]) -> TensorType {
        let extent = |(axis, &fixed): (usize, &usize)| self.symbol(axis).map_or(fixed, |symbol| extents[symbol] as usize);
        TensorType::new(self.ty.dtype, self.ty.shape.iter().enumerate().map(extent).collect::<Vec<_>>())
    }
}
