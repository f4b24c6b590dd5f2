//! What a compiled model becomes: an object or static library, a C header, a manifest.

pub mod cpus;
pub mod descriptor;
pub mod entry;
pub mod extents;
pub mod header;
pub mod manifest;
pub mod model;
pub mod names;
pub mod object;
pub mod run;
pub mod rust;
pub mod stage;
pub mod weights;
pub mod weights_file;

use std::collections::{BTreeSet, HashMap};

use mcc_kernel::{Code, Kernel, Target};
use mcc_runtime::abi;
use mcc_support::DType;

pub use cpus::{abi_arch, cpu_names, required_bits, required_features};
pub use entry::{EntryBody, EntryLevel, EntryPlan, KernelCall, Weights};
pub use model::{CompiledKernel, CompiledModel, Port, Specialization, Symbol};
pub use names::{given_model_name, model_name, tensor_names};
pub use run::{BufferPlace, Count, DimRange, Step};
pub use stage::Staged;
pub use weights::WeightsPlace;

/// Characters of a node's name in a symbol.
const MAX_NODE_NAME: usize = 48;

/// What a model takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    pub arena_bytes: u64,
    pub arena_lower_bound_bytes: u64,
    pub weights_bytes: u64,
    /// Of all functions, and of what aligns one after the other.
    pub code_bytes: u64,
    /// The rest of the read-only data: `NAME_model` and what it refers to, but for the weights.
    pub description_bytes: u64,
    pub stack_bytes: u32,
}

/// A compiled model with its entry function: all that an object holds and that a loader needs.
#[derive(Clone, Debug)]
pub struct Linked {
    pub model: CompiledModel,
    /// Each with its symbol; the first is the entry function, the others differ from one another.
    pub functions: Vec<(String, Code)>,
    /// Of the weights; what the functions refer to.
    pub weights_symbol: String,
    /// What the CPU must have at least, as bits of `mcc.h`.
    pub cpu_features: u32,
    pub sizes: Sizes,
}

/// The entry function, `NAME_call`, where the kernels of all specializations are functions with these symbols.
pub fn entry(model: &CompiledModel, symbols: &[String]) -> Kernel {
    let mut symbols = symbols.iter().zip(0..);
    let mut body = |specialization: &Specialization| {
        let calls: Vec<KernelCall> = (specialization.kernels.iter().zip(&mut symbols))
            .map(|(kernel, (symbol, number))| KernelCall {
                symbol: symbol.clone(),
                args: kernel.args.clone(),
                extent: kernel.extent,
                number,
            })
            .collect();
        EntryBody {
            dims: specialization.dims.clone(),
            counts: specialization.counts.clone(),
            checks: specialization.checks.clone(),
            staged_inputs: specialization.staged_inputs.clone(),
            staged_outputs: specialization.staged_outputs.clone(),
            steps: specialization.runs.iter().map(|step| step.map(&|&place: &usize| calls[place].clone())).collect(),
            status_offset: specialization.status_offset,
        }
    };
    let mut bodies: Vec<Vec<EntryBody>> = vec![Vec::new(); model.cpus.len()];
    for specialization in &model.specializations {
        bodies[specialization.level].push(body(specialization));
    }
    let levels = model.cpus.iter().zip(bodies).map(|(cpu, bodies)| EntryLevel { cpu_features: required_bits(cpu), bodies });
    let plan = EntryPlan {
        levels: levels.collect(),
        arena_bytes: model.arena_bytes(),
        weights: (!model.weights.is_empty()).then(|| match model.weights_place {
            WeightsPlace::File => Weights::Passed(weights_file::head(model)),
            _ => Weights::Symbol(weights_symbol(model)),
        }),
        profile: model.profile,
    };
    entry::entry(&format!("{}_call", model.name), &plan)
}

/// Of the packed weights, which functions refer to.
pub fn weights_symbol(model: &CompiledModel) -> String {
    format!("{}_weights", model.name)
}

/// What debuggers and profilers show: the kernel and the first node that it computes, `digits_k012_conv_add_max__r1_b_Conv`, and which
/// CPU it is for where there are several.
fn kernel_symbol(model: &CompiledModel, kernel: &CompiledKernel, level: usize) -> String {
    let node = kernel.origins.first().map_or("", String::as_str);
    let node: String = node.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    // The ends of names tell nodes apart, their beginnings modules.
    let node = &node[node.len().saturating_sub(MAX_NODE_NAME)..];
    let name = match node.trim_matches('_') {
        "" => format!("{}_{}", model.name, kernel.name),
        node => format!("{}_{}__{node}", model.name, kernel.name),
    };
    match &model.cpus[..] {
        [_] => name,
        cpus => format!("{name}__{}", cpus[level].name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")),
    }
}

/// Makes the entry function. Kernels of the same code become one function.
pub fn link(model: CompiledModel, target: &dyn Target) -> Linked {
    let mut functions: Vec<(String, Code)> = Vec::new();
    let mut known: HashMap<&Code, String> = HashMap::new();
    let mut symbols = Vec::new();
    let mut taken = BTreeSet::new();
    for (level, kernel) in model.kernels() {
        let symbol = known.entry(&kernel.code).or_insert_with(|| {
            // Specializations have kernels of the same name.
            let name = kernel_symbol(&model, kernel, level);
            let numbered = (2..).map(|number| format!("{name}_{number}"));
            let mut candidates = std::iter::once(name.clone()).chain(numbered);
            let symbol = candidates.find(|symbol| taken.insert(symbol.clone())).expect("some number is free");
            functions.push((symbol.clone(), kernel.code.clone()));
            symbol
        });
        symbols.push(symbol.clone());
    }
    let entry_kernel = entry(&model, &symbols);
    let entry = target.compile(&entry_kernel, model.least_cpu());
    let callee_stack_bytes = functions.iter().map(|(_, code)| code.stack_bytes).max().unwrap_or(0);
    let stack_bytes = entry.stack_bytes + callee_stack_bytes;
    functions.insert(0, (entry_kernel.name, entry));
    let cpu_features = required_bits(model.least_cpu());
    let lower_bounds = model.specializations.iter().map(|specialization| specialization.arena_lower_bound_bytes);
    let sizes = Sizes {
        arena_bytes: model.arena_bytes(),
        arena_lower_bound_bytes: lower_bounds.max().unwrap_or(0),
        weights_bytes: model.weights.len() as u64,
        code_bytes: object::code_size_bytes(functions.iter().map(|(_, code)| code)),
        description_bytes: descriptor::descriptor(&model, cpu_features, stack_bytes).bytes.len() as u64,
        stack_bytes,
    };
    Linked { weights_symbol: weights_symbol(&model), cpu_features, model, functions, sizes }
}

impl Linked {
    pub fn object(&self) -> Vec<u8> {
        let model_symbol = format!("{}_model", self.model.name);
        let descriptor = descriptor::descriptor(&self.model, self.cpu_features, self.sizes.stack_bytes);
        let mut module = object::Module::default();
        for (index, (symbol, code)) in self.functions.iter().enumerate() {
            module.functions.push(object::Function { symbol, code, exported: index == 0 });
        }
        let mut distances = vec![(descriptor.call_offset, self.functions[0].0.as_str())];
        if !self.model.weights.is_empty() && self.model.weights_place != WeightsPlace::File {
            distances.push((descriptor.weights_offset, &self.weights_symbol));
            module.data.push(object::Data {
                symbol: &self.weights_symbol,
                bytes: &self.model.weights,
                align_bytes: abi::ARENA_ALIGN as u64,
                exported: false,
                section: if let WeightsPlace::Section(name) = &self.model.weights_place { Some(name) } else { None },
                distances: Vec::new(),
            });
        }
        module.data.push(object::Data {
            symbol: &model_symbol,
            bytes: &descriptor.bytes,
            align_bytes: descriptor::ALIGN_BYTES,
            exported: true,
            section: None,
            distances,
        });
        object::write_object(&module, &self.model.triple, self.model.least_cpu().protection)
    }

    pub fn static_library(&self) -> Vec<u8> {
        object::write_static_library(&self.object(), &format!("{}.o", self.model.name), &self.model.triple)
    }

    /// The weights, where they are not in the object.
    pub fn weights_file(&self) -> Option<Vec<u8>> {
        (self.model.weights_place == WeightsPlace::File).then(|| weights_file::file(&self.model))
    }

    pub fn header(&self) -> String {
        header::header(&self.model, self.sizes.stack_bytes)
    }

    pub fn rust(&self) -> String {
        rust::rust(&self.model, self.sizes.stack_bytes)
    }

    pub fn manifest(&self) -> String {
        let features: Vec<&str> = required_features(self.model.least_cpu()).iter().map(|&(name, _)| name).collect();
        let symbol = |(_, kernel): (usize, &CompiledKernel)| {
            let function = self.functions.iter().find(|(_, code)| *code == kernel.code);
            &*function.expect("every kernel is linked").0
        };
        let symbols: Vec<&str> = self.model.kernels().map(symbol).collect();
        manifest::manifest(&self.model, &symbols, &features, &self.sizes)
    }
}

/// The value of `mcc_dtype`, which is ONNX's.
fn dtype_code(dtype: DType) -> u32 {
    match dtype {
        DType::Bool => abi::dtype::BOOL,
        DType::I2 => abi::dtype::I2,
        DType::U2 => abi::dtype::U2,
        DType::I4 => abi::dtype::I4,
        DType::U4 => abi::dtype::U4,
        DType::I8 => abi::dtype::I8,
        DType::U8 => abi::dtype::U8,
        DType::I16 => abi::dtype::I16,
        DType::U16 => abi::dtype::U16,
        DType::I32 => abi::dtype::I32,
        DType::U32 => abi::dtype::U32,
        DType::I64 => abi::dtype::I64,
        DType::U64 => abi::dtype::U64,
        DType::F4E2M1 => abi::dtype::F4E2M1,
        DType::F8E4M3FN => abi::dtype::F8E4M3FN,
        DType::F8E4M3FNUZ => abi::dtype::F8E4M3FNUZ,
        DType::F8E5M2 => abi::dtype::F8E5M2,
        DType::F8E5M2FNUZ => abi::dtype::F8E5M2FNUZ,
        DType::F8E8M0 => abi::dtype::F8E8M0,
        DType::F16 => abi::dtype::F16,
        DType::BF16 => abi::dtype::BF16,
        DType::F32 => abi::dtype::F32,
        DType::F64 => abi::dtype::F64,
    }
}
