//! Runs a compiled model in this process.
//!
//! The machine code is loaded by cranelift-jit and called as a C program would call it.
#![allow(unsafe_code, reason = "calls the machine code of a compiled model, the one way to run it")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::time::Instant;

use bytes::Bytes;
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module, ModuleReloc, ModuleRelocTarget, default_libcall_names};
use mcc_kernel::{Code, RelocKind};
use mcc_runtime::abi;
use mcc_support::{Error, Result, Tensor, bug, ensure};
use target_lexicon::Triple;

use crate::emit::{CompiledModel, Linked, Port};

use super::report;

/// Room for alignment and for the veneers that calls over long distances take.
const SLACK_BYTES: usize = 1 << 16;
const SLACK_PER_FUNCTION_BYTES: usize = 4096;

/// A model that is loaded, with its arena.
pub struct Executable {
    function: abi::CallFunction,
    /// Owns the code; freed when this is dropped.
    module: Option<JITModule>,
    model: CompiledModel,
    /// What a run is told of the CPU: what this one has, or less.
    pub cpu_features: u32,
    arena: Buffer,
    /// Those that a run is passed.
    weights: Option<Buffer>,
}

/// Inputs and outputs in memory as a call takes them: a model can be run on them again and again.
#[derive(Debug)]
pub struct Binding {
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    /// Where they are, filled in by each run.
    input_table: Vec<*const c_void>,
    output_table: Vec<*mut c_void>,
    /// Extents known only at run time: those that the inputs have, then those that a run answers.
    extents: Vec<i64>,
}

impl Executable {
    /// # Errors
    ///
    /// A model for another architecture, or for a CPU with features that this one lacks.
    pub fn load(linked: &Linked) -> Result<Self> {
        let model = &linked.model;
        let host = Triple::host();
        ensure!(
            host.architecture == model.triple.architecture && host.operating_system == model.triple.operating_system,
            "a model for {} does not run in this process, on {host}",
            model.triple
        );
        let cpu_features = mcc_runtime::detect_cpu_features();
        let missing = linked.cpu_features & !cpu_features;
        if missing != 0 {
            return Err(Error::new(format!("this CPU is not a {}", model.least_cpu().name))
                .help("choose one with --cpu, as --cpu native"));
        }
        let passed = linked.weights_file().map(|bytes| Buffer::holding(&bytes));
        let weights =
            (passed.is_none() && !model.weights.is_empty()).then_some((linked.weights_symbol.as_str(), &model.weights[..]));
        let (module, functions) = load_module(&linked.functions, weights);
        let address = module.get_finalized_function(functions[0]);
        // SAFETY: the entry function has this signature, and the module that holds it lives as long as the result.
        let function = unsafe { std::mem::transmute::<*const u8, abi::CallFunction>(address) };
        Ok(Self {
            function,
            module: Some(module),
            cpu_features,
            arena: Buffer::filled(model.arena_bytes() as usize, 0xff),
            weights: passed,
            // The weights lie there or in the module.
            model: CompiledModel { weights: Bytes::new(), specializations: Vec::new(), ..model.clone() },
        })
    }

    /// Copies the inputs, one for each of the model's.
    ///
    /// # Errors
    ///
    /// Inputs that differ from the model's in number or type.
    pub fn bind(&self, inputs: &[Tensor]) -> Result<Binding> {
        let mut extents = self.model.bind(inputs)?;
        extents.resize(extents.len() + self.model.counts.len(), -1);
        Ok(Binding {
            inputs: inputs.iter().map(|tensor| Buffer::holding(tensor.data())).collect(),
            // What a run does not write shows: NaN in floats.
            outputs: self.model.outputs.iter().map(|port| Buffer::filled(port.ty.size_bytes(), 0xff)).collect(),
            input_table: Vec::new(),
            output_table: Vec::new(),
            extents,
        })
    }

    /// Runs once and returns the status, one of [`abi::status`].
    pub fn run(&mut self, binding: &mut Binding) -> i32 {
        self.call(binding, ptr::null(), 1)
    }

    /// So many runs, one after the other, with nothing between them: how long they take is the model's time. The status of the last.
    pub fn run_often(&mut self, binding: &mut Binding, times: u32) -> i32 {
        self.call(binding, ptr::null(), times)
    }

    /// As [`run`](Self::run), for a model that was compiled with profiling: `stamps` gets the time at the begin and end of each kernel.
    pub fn run_profiled(&mut self, binding: &mut Binding, stamps: &mut Vec<Stamp>) -> i32 {
        let context = ptr::from_mut(stamps).cast();
        let profile = abi::Profile { size: size_of::<abi::Profile>() as u32, reserved: 0, stamp: Some(stamp), context };
        self.call(binding, &profile, 1)
    }

    fn call(&mut self, binding: &mut Binding, profile: *const abi::Profile, times: u32) -> i32 {
        binding.input_table.clear();
        binding.input_table.extend(binding.inputs.iter().map(|buffer| buffer.start().cast::<c_void>()));
        binding.output_table.clear();
        binding.output_table.extend(binding.outputs.iter_mut().map(|buffer| buffer.start_mut().cast::<c_void>()));
        let (dims, counts) = binding.extents.split_at_mut(self.model.dims.len());
        let call = abi::Call {
            size: size_of::<abi::Call>() as u32,
            cpu_features: self.cpu_features,
            inputs: binding.input_table.as_ptr(),
            outputs: binding.output_table.as_ptr(),
            dims: dims.as_ptr(),
            counts: counts.as_mut_ptr(),
            arena: self.arena.start_mut().cast(),
            weights: self.weights.as_ref().map_or(ptr::null(), |weights| weights.start().cast()),
            parallel_for: None,
            parallel_context: ptr::null_mut(),
            profile,
        };
        let (mut status, mut left) = (0, times);
        while left > 0 {
            // SAFETY: `bind` made buffers of the sizes that the model was compiled for, which only this call refers to; the CPU has
            // what `load` checked.
            status = unsafe { (self.function)(&call) };
            left -= 1;
        }
        status
    }

    /// What the last run left in the arena.
    pub fn arena(&self) -> &[u8] {
        self.arena.bytes()
    }

    /// The outputs of the last run, one for each of the model's.
    pub fn outputs(&self, binding: &Binding) -> Vec<Tensor> {
        let tensor = |(port, buffer): (&Port, &Buffer)| {
            let ty = port.ty_with(&binding.extents);
            let size_bytes = ty.size_bytes();
            Tensor::new(ty, buffer.bytes()[..size_bytes].to_vec())
        };
        self.model.outputs.iter().zip(&binding.outputs).map(tensor).collect()
    }
}

/// A kernel, by its place in the manifest, that begins or ends.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub kernel: u32,
    pub is_end: bool,
    pub at: Instant,
}

unsafe extern "C" fn stamp(context: *mut c_void, kernel: u32, end: u32) {
    // SAFETY: `run_profiled` gives its stamps as the context.
    let stamps = unsafe { &mut *context.cast::<Vec<Stamp>>() };
    stamps.push(Stamp { kernel, is_end: end != 0, at: Instant::now() });
}

impl std::fmt::Debug for Executable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executable").field("model", &self.model).finish_non_exhaustive()
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: nothing refers to the code but `function`, which goes with this.
            unsafe { module.free_memory() };
        }
    }
}

/// A clamped index is worth a warning; anything else that is not well is an error.
pub fn finished(status: i32) -> Result<()> {
    match status {
        abi::status::OK => {}
        abi::status::CLAMPED => report::warning("an index was out of range and was clamped"),
        other => return Err(Error::new(format!("the model ended with {}", status_name(other)))),
    }
    Ok(())
}

/// The message for a status that is not [`abi::status::OK`].
fn status_name(status: i32) -> &'static str {
    abi::status::ALL.iter().find(|(_, value)| *value == status).map_or("an unknown status", |(name, _)| name)
}

/// Kernels that are loaded without a model around them.
pub struct Functions {
    functions: Vec<(KernelFunction, Vec<usize>)>,
    /// Owns the code; freed when this is dropped.
    module: Option<JITModule>,
}

type KernelFunction = unsafe extern "C" fn(table: *const *mut u8, begin: i64, end: i64);

impl Functions {
    /// Loads kernels for this machine, each with the bytes that it needs of each buffer. They refer to no symbol.
    pub fn load(kernels: Vec<(String, Code, Vec<usize>)>) -> Self {
        let (sizes, functions): (Vec<_>, Vec<_>) = kernels.into_iter().map(|(name, code, sizes)| (sizes, (name, code))).unzip();
        let (module, ids) = load_module(&functions, None);
        // SAFETY: kernels have this signature, and the module that holds them lives as long as the result.
        let function = |&id| unsafe { std::mem::transmute::<*const u8, KernelFunction>(module.get_finalized_function(id)) };
        let functions = ids.iter().map(function).zip(sizes).collect();
        Self { functions, module: Some(module) }
    }

    /// Runs rounds `0..rounds` of a kernel.
    pub fn run(&self, kernel: usize, buffers: &mut [Buffer], rounds: i64) {
        let (function, sizes) = &self.functions[kernel];
        let fits = buffers.len() == sizes.len() && buffers.iter().zip(sizes).all(|(buffer, size)| buffer.size_bytes >= *size);
        assert!(fits, "the kernel needs buffers of {sizes:?} bytes");
        let table: Vec<*mut u8> = buffers.iter_mut().map(Buffer::start_mut).collect();
        // SAFETY: the buffers are as large as the kernel takes them to be.
        unsafe { function(table.as_ptr(), 0, rounds) };
    }
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Functions").field("count", &self.functions.len()).finish_non_exhaustive()
    }
}

impl Drop for Functions {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: nothing refers to the code but `functions`, which go with this.
            unsafe { module.free_memory() };
        }
    }
}

/// Loads functions, in their order, and the weights that they may refer to by a symbol.
fn load_module(functions: &[(String, Code)], weights: Option<(&str, &[u8])>) -> (JITModule, Vec<FuncId>) {
    let fail = |error: &dyn std::fmt::Display| -> ! { bug!("the code cannot be loaded: {error}") };
    let mut flags = settings::builder();
    flags.set("is_pic", "false").unwrap_or_else(|error| fail(&error));
    let isa = cranelift_codegen::isa::lookup(Triple::host()).unwrap_or_else(|error| fail(&error));
    let isa = isa.finish(settings::Flags::new(flags)).unwrap_or_else(|error| fail(&error));
    let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
    // One block, so that everything is in reach of everything.
    let code_bytes: usize = functions.iter().map(|(_, code)| code.bytes.len() + SLACK_PER_FUNCTION_BYTES).sum();
    let size_bytes = weights.map_or(0, |(_, bytes)| bytes.len()) + code_bytes + SLACK_BYTES;
    let memory = ArenaMemoryProvider::new_with_size(size_bytes).unwrap_or_else(|error| fail(&error));
    builder.memory_provider(Box::new(memory));
    let mut module = JITModule::new(builder);

    let mut symbols = Symbols::default();
    let signature = module.make_signature();
    for (symbol, _) in functions {
        let id = module.declare_function(symbol, Linkage::Local, &signature).unwrap_or_else(|error| fail(&error));
        symbols.functions.insert(symbol, id);
    }
    if let Some((symbol, bytes)) = weights {
        let id = module.declare_data(symbol, Linkage::Local, false, false).unwrap_or_else(|error| fail(&error));
        symbols.data.insert(symbol, id);
        let mut data = DataDescription::new();
        data.define(bytes.to_vec().into_boxed_slice());
        data.set_align(abi::ARENA_ALIGN as u64);
        module.define_data(id, &data).unwrap_or_else(|error| fail(&error));
    }
    let mut ids = Vec::new();
    for (symbol, code) in functions {
        let relocs = symbols.relocs(code);
        let align = u64::from(code.align_bytes).max(16);
        let id = symbols.functions[symbol.as_str()];
        module.define_function_bytes(id, align, &code.bytes, &relocs).unwrap_or_else(|error| fail(&error));
        ids.push(id);
    }
    module.finalize_definitions().unwrap_or_else(|error| fail(&error));
    (module, ids)
}

#[derive(Default)]
struct Symbols<'a> {
    functions: BTreeMap<&'a str, FuncId>,
    data: BTreeMap<&'a str, DataId>,
}

impl Symbols<'_> {
    fn relocs(&self, code: &Code) -> Vec<ModuleReloc> {
        let target = |symbol: &str| match (self.functions.get(symbol), self.data.get(symbol)) {
            (Some(&id), _) => ModuleRelocTarget::from(id),
            (None, Some(&id)) => ModuleRelocTarget::from(id),
            (None, None) => bug!("symbol {symbol} is not defined in the model"),
        };
        let kind = |kind| match kind {
            RelocKind::X86Call4 => Reloc::X86CallPCRel4,
            RelocKind::X86PcRel4 => Reloc::X86PCRel4,
            RelocKind::Aarch64Call26 => Reloc::Arm64Call,
            RelocKind::Aarch64AdrPage21 => Reloc::Aarch64AdrPrelPgHi21,
            RelocKind::Aarch64AddLo12 => Reloc::Aarch64AddAbsLo12Nc,
        };
        let reloc = |reloc: &mcc_kernel::Reloc| ModuleReloc {
            offset: reloc.offset,
            kind: kind(reloc.kind),
            name: target(&reloc.symbol),
            addend: reloc.addend,
        };
        code.relocs.iter().map(reloc).collect()
    }
}

/// Bytes at the alignment of an arena.
#[derive(Debug)]
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    size_bytes: usize,
}

impl Buffer {
    pub fn filled(size_bytes: usize, byte: u8) -> Self {
        let memory = vec![byte; size_bytes + abi::ARENA_ALIGN];
        let start = memory.as_ptr().align_offset(abi::ARENA_ALIGN);
        Self { memory, start, size_bytes }
    }

    fn holding(bytes: &[u8]) -> Self {
        let mut buffer = Self::filled(bytes.len(), 0);
        buffer.memory[buffer.start..][..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.size_bytes]
    }

    fn start(&self) -> *const u8 {
        self.memory[self.start..].as_ptr()
    }

    fn start_mut(&mut self) -> *mut u8 {
        self.memory[self.start..].as_mut_ptr()
    }
}
