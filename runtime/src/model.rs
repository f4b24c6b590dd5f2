//! A compiled model, described and run safely.

use core::ffi::{CStr, c_void};
use core::mem::size_of;
use core::ptr::{self, NonNull};

use crate::abi::{self, Call, Offset};
use crate::arena::{self, arena_bytes};
use crate::error::Error;
use crate::tensor::{DType, TensorMut, TensorRef};

/// The architecture of this program; 0 where models are never compiled for it.
const ARCH: u32 = if cfg!(target_arch = "x86_64") {
    abi::arch::X86_64
} else if cfg!(target_arch = "aarch64") {
    abi::arch::AARCH64
} else {
    0
};

/// Where an offset leads. The description lies in static memory that the linker placed, beyond any one Rust object.
fn follow<T>(field: &'static Offset) -> Option<NonNull<T>> {
    let address = ptr::from_ref(field).expose_provenance().wrapping_add_signed(*field as isize);
    NonNull::new(ptr::with_exposed_provenance_mut(address)).filter(|_| *field != 0)
}

fn text(field: &'static Offset) -> &'static str {
    let Some(start) = follow(field) else { return "" };
    // SAFETY: `Model::from_raw` was promised a description, whose texts end in a zero byte.
    unsafe { CStr::from_ptr(start.as_ptr()) }.to_str().unwrap_or("")
}

fn table<T>(field: &'static Offset, count: usize) -> &'static [T] {
    let start = follow(field).unwrap_or(NonNull::dangling());
    assert!(count == 0 || *field != 0, "a description whose table is missing");
    // SAFETY: `Model::from_raw` was promised a description, whose tables have the stated counts.
    unsafe { core::slice::from_raw_parts(start.as_ptr(), count) }
}

/// Element `index` of a table whose elements are `stride` bytes apart: a newer compiler may have added fields to each.
fn element<T>(field: &'static Offset, stride: u32, index: usize) -> &'static T {
    let start: NonNull<u8> = follow(field).expect("a description whose table is missing");
    // SAFETY: as in `table`; callers keep `index` below the stated count.
    unsafe { start.add(stride as usize * index).cast().as_ref() }
}

/// The part of `memory` that starts where an arena may. Give [`ARENA_ALIGN`](abi::ARENA_ALIGN) bytes more than the arena takes.
pub fn align(memory: &mut [u8]) -> &mut [u8] {
    let skip = memory.as_ptr().align_offset(abi::ARENA_ALIGN).min(memory.len());
    &mut memory[skip..]
}

/// An extent that is known only at run time.
#[derive(Clone, Copy, Debug)]
pub struct Symbol(&'static abi::Symbol);

impl Symbol {
    pub fn name(&self) -> &'static str {
        text(&self.0.name)
    }

    pub fn min(&self) -> usize {
        self.0.min as usize
    }

    pub fn max(&self) -> usize {
        self.0.max as usize
    }
}

/// An input or output of a model.
#[derive(Clone, Copy, Debug)]
pub struct TensorInfo {
    raw: &'static abi::TensorInfo,
    model: Model,
}

impl TensorInfo {
    /// The name in the ONNX model.
    pub fn name(&self) -> &'static str {
        text(&self.raw.name)
    }

    /// `None` for a type that a newer compiler knows.
    pub fn dtype(&self) -> Option<DType> {
        DType::from_code(self.raw.dtype)
    }

    pub fn rank(&self) -> usize {
        self.raw.rank as usize
    }

    /// The extents; where one is known only at run time, its maximum.
    pub fn dims(&self) -> &'static [i64] {
        table(&self.raw.dims, self.rank())
    }

    /// What dimension `axis` is, where its extent is known only at run time.
    pub fn symbol(&self, axis: usize) -> Option<Symbol> {
        self.symbol_index(axis).map(|index| self.model.symbol(index))
    }

    /// Bytes of the whole tensor with the extents of [`dims`](Self::dims).
    pub fn size_bytes(&self) -> usize {
        self.raw.size_bytes as usize
    }

    fn symbol_index(&self, axis: usize) -> Option<usize> {
        if self.raw.symbols == 0 {
            return None;
        }
        usize::try_from(table::<i32>(&self.raw.symbols, self.rank())[axis]).ok()
    }

    /// Bytes with these extents, or `None` where they do not fit.
    fn size_bytes_of(&self, extent: impl Fn(usize) -> usize) -> Option<usize> {
        let bits = self.dtype()?.size_bits();
        let count = (0..self.rank()).map(extent).try_fold(1usize, usize::checked_mul)?;
        Some(count.checked_mul(bits)?.div_ceil(8))
    }

    fn check_data(&self, dtype: DType, data: *const c_void) -> Result<(), Error> {
        if dtype.code() != self.raw.dtype {
            return Err(Error::DType { tensor: self.name(), given: dtype, needed: self.raw.dtype });
        }
        if !data.addr().is_multiple_of(dtype.align_bytes()) {
            return Err(Error::Align { tensor: self.name() });
        }
        Ok(())
    }

    fn check_size(&self, given: usize, needed: Option<usize>) -> Result<(), Error> {
        let needed = needed.unwrap_or(usize::MAX);
        if given == needed { Ok(()) } else { Err(Error::Size { tensor: self.name(), given, needed }) }
    }
}

/// A compiled model, and the CPU features that it was checked against.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    raw: &'static abi::Model,
    cpu_features: u32,
    /// The file of weights, where they were left out of the object.
    weights: Option<&'static [u8]>,
}

/// The arena, and the tail of it behind what the model itself takes: what a call points to. All are made from one borrow, so that
/// writing through one leaves the others valid.
struct Tail {
    arena: *mut u8,
    inputs: *mut *const c_void,
    outputs: *mut *mut c_void,
    dims: *mut i64,
    counts: *mut i64,
}

impl Model {
    /// Takes the description that a model's object exports, `&raw const NAME_model`, and what the CPU has
    /// ([`detect_cpu_features`](crate::detect_cpu_features), or what firmware knows).
    ///
    /// # Errors
    ///
    /// A version that this library does not read, another architecture, or a CPU without the features that the model needs.
    ///
    /// # Safety
    ///
    /// `raw` points to a description written by mcc, with all that it refers to, for the rest of the program; and the CPU has
    /// `cpu_features`.
    pub unsafe fn from_raw(raw: *const abi::Model, cpu_features: u32) -> Result<Model, Error> {
        // SAFETY: the caller's promise.
        let raw = unsafe { &*raw };
        if raw.abi_version != abi::ABI_VERSION || (raw.size as usize) < size_of::<abi::Model>() {
            return Err(Error::Version { version: raw.abi_version, size: raw.size });
        }
        if raw.arch != ARCH {
            return Err(Error::Arch { model: raw.arch });
        }
        let missing = raw.cpu_features & !cpu_features;
        if missing != 0 {
            return Err(Error::Cpu { missing });
        }
        Ok(Model { raw, cpu_features, weights: None })
    }

    pub fn name(&self) -> &'static str {
        text(&self.raw.name)
    }

    /// The compiler's name and version.
    pub fn compiler(&self) -> &'static str {
        text(&self.raw.compiler)
    }

    /// The target triple.
    pub fn target(&self) -> &'static str {
        text(&self.raw.target)
    }

    /// The CPU that the model was compiled for, as `--cpu` spells it.
    pub fn cpu(&self) -> &'static str {
        text(&self.raw.cpu)
    }

    /// The features that the model needs.
    pub fn cpu_features(&self) -> u32 {
        self.raw.cpu_features
    }

    pub fn weights_bytes(&self) -> u64 {
        self.raw.weights_bytes
    }

    /// The same with the file of weights that was written beside the object, at [`ARENA_ALIGN`](abi::ARENA_ALIGN). A run tests that it
    /// is for the model's code.
    ///
    /// # Errors
    ///
    /// A file of another length, or one that is not aligned.
    pub fn with_weights(self, weights: &'static [u8]) -> Result<Model, Error> {
        if weights.len() as u64 != self.raw.weights_bytes || !weights.as_ptr().addr().is_multiple_of(abi::ARENA_ALIGN) {
            return Err(Error::Weights);
        }
        Ok(Model { weights: Some(weights), ..self })
    }

    /// The most that a run takes of the calling thread's stack, besides what [`run`](Self::run) itself takes.
    pub fn stack_bytes(&self) -> usize {
        self.raw.stack_bytes as usize
    }

    pub fn model_sha256(&self) -> &'static [u8; 32] {
        &self.raw.model_sha256
    }

    pub fn options_sha256(&self) -> &'static [u8; 32] {
        &self.raw.options_sha256
    }

    pub fn inputs(&self) -> impl ExactSizeIterator<Item = TensorInfo> + use<> {
        let model = *self;
        (0..model.raw.input_count as usize)
            .map(move |index| TensorInfo { raw: element(&model.raw.inputs, model.raw.tensor_info_bytes, index), model })
    }

    pub fn outputs(&self) -> impl ExactSizeIterator<Item = TensorInfo> + use<> {
        let model = *self;
        (0..model.raw.output_count as usize)
            .map(move |index| TensorInfo { raw: element(&model.raw.outputs, model.raw.tensor_info_bytes, index), model })
    }

    /// The sets of extents that the model was compiled for, each with one for every symbol of inputs and then of outputs; none where
    /// any extents between the symbols' ends will do.
    pub fn shape_sets(&self) -> impl ExactSizeIterator<Item = &'static [i64]> + use<> {
        let symbols = (self.raw.dim_count + self.raw.count_count) as usize;
        let sets = table::<i64>(&self.raw.shape_sets, symbols * self.raw.shape_set_count as usize);
        (0..self.raw.shape_set_count as usize).map(move |set| &sets[set * symbols..][..symbols])
    }

    /// What an arena for [`run`](Self::run) takes: the model's own, and room for what a call points to, so that a run needs no
    /// memory of its own whatever the number of tensors.
    pub fn arena_bytes(&self) -> usize {
        let pointers = (self.raw.input_count + self.raw.output_count) as usize;
        let extents = (self.raw.dim_count + self.raw.count_count) as usize;
        arena_bytes(self.raw.arena_bytes as usize, pointers, extents)
    }

    /// Runs the model once.
    ///
    /// # Errors
    ///
    /// Refuses tensors that differ from the model's in number, type, shape, size or alignment, and an arena that is too small
    /// or not aligned; nothing ran then. [`Error::Clamped`] comes after a complete run.
    pub fn run(&self, inputs: &[TensorRef<'_>], outputs: &mut [TensorMut<'_>], arena: &mut [u8]) -> Result<(), Error> {
        let (given, needed) = (inputs.len(), self.raw.input_count as usize);
        if given != needed {
            return Err(Error::InputCount { given, needed });
        }
        let (given, needed) = (outputs.len(), self.raw.output_count as usize);
        if given != needed {
            return Err(Error::OutputCount { given, needed });
        }
        let tail = self.tail(arena)?;
        self.bind_inputs(inputs, &tail)?;
        self.bind_outputs(outputs, &tail)?;
        let call = Call {
            size: size_of::<Call>() as u32,
            cpu_features: self.cpu_features,
            inputs: tail.inputs,
            outputs: tail.outputs,
            dims: tail.dims,
            counts: tail.counts,
            arena: tail.arena.cast(),
            weights: self.weights.map_or(ptr::null(), |weights| weights.as_ptr().cast()),
            parallel_for: None,
            parallel_context: ptr::null_mut(),
            profile: ptr::null(),
        };
        // SAFETY: every tensor was compared with the description, and references keep them apart from each other and the arena.
        let status = unsafe { self.call(&call) };
        let result = Error::check(status);
        if matches!(result, Ok(()) | Err(Error::Clamped)) {
            self.report_shapes(outputs, &tail);
        }
        result
    }

    /// Calls the model as C does, for what [`run`](Self::run) does not offer; returns one of [`abi::status`].
    ///
    /// # Safety
    ///
    /// What `mcc.h` asks of a call.
    pub unsafe fn call(&self, call: &Call) -> i32 {
        let address = follow::<c_void>(&self.raw.call).expect("a description without its function");
        // SAFETY: the description states the address of the model's function.
        let function = unsafe { core::mem::transmute::<*mut c_void, abi::CallFunction>(address.as_ptr()) };
        // SAFETY: the caller's promise.
        unsafe { function(call) }
    }

    fn symbol(&self, index: usize) -> Symbol {
        assert!(index < (self.raw.dim_count + self.raw.count_count) as usize, "a description with a symbol beyond its table");
        Symbol(element(&self.raw.symbols, self.raw.symbol_bytes, index))
    }

    fn tail_offset(&self) -> usize {
        arena::tail_offset(self.raw.arena_bytes as usize)
    }

    fn tail(&self, arena: &mut [u8]) -> Result<Tail, Error> {
        let (given, needed) = (arena.len(), self.arena_bytes());
        if given < needed {
            return Err(Error::Arena { given, needed });
        }
        if !arena.as_ptr().addr().is_multiple_of(abi::ARENA_ALIGN) {
            return Err(Error::ArenaAlign);
        }
        let [inputs, outputs, dims] = [self.raw.input_count, self.raw.output_count, self.raw.dim_count].map(|n| n as usize);
        let arena = arena.as_mut_ptr();
        let start: *mut u64 = arena.wrapping_add(self.tail_offset()).cast();
        // One 8-byte place each, whatever the size of a pointer.
        let at = |index: usize| start.wrapping_add(index);
        let dims_start = at(inputs + outputs);
        Ok(Tail {
            arena,
            inputs: start.cast(),
            outputs: start.cast::<*mut c_void>().wrapping_add(inputs),
            dims: dims_start.cast(),
            counts: dims_start.wrapping_add(dims).cast(),
        })
    }

    fn bind_inputs(&self, inputs: &[TensorRef<'_>], tail: &Tail) -> Result<(), Error> {
        let dim_count = self.raw.dim_count as usize;
        // SAFETY (of the writes through `tail` here and in `bind_outputs`): `tail` checked that the arena has room for them.
        let dims = unsafe {
            tail.dims.write_bytes(0xff, dim_count);
            core::slice::from_raw_parts_mut(tail.dims, dim_count)
        };
        for (index, (info, given)) in self.inputs().zip(inputs).enumerate() {
            info.check_data(given.dtype, given.data)?;
            if let Some(shape) = given.shape {
                self.bind_shape(&info, shape, dims)?;
            } else if (0..info.rank()).any(|axis| info.symbol_index(axis).is_some()) {
                return Err(Error::ShapeNeeded { tensor: info.name() });
            }
            let extent = |axis: usize| given.shape.map_or(info.dims()[axis] as usize, |shape| shape[axis]);
            info.check_size(given.size_bytes, info.size_bytes_of(extent))?;
            unsafe { tail.inputs.add(index).write(given.data) };
        }
        match dims.iter().position(|&dim| dim < 0) {
            Some(index) => Err(Error::Extent { symbol: self.symbol(index).name() }),
            None => Ok(()),
        }
    }

    fn bind_shape(&self, info: &TensorInfo, shape: &[usize], dims: &mut [i64]) -> Result<(), Error> {
        if shape.len() != info.rank() {
            return Err(Error::Shape { tensor: info.name() });
        }
        for (axis, &extent) in shape.iter().enumerate() {
            let Some(index) = info.symbol_index(axis) else {
                if i64::try_from(extent) != Ok(info.dims()[axis]) {
                    return Err(Error::Shape { tensor: info.name() });
                }
                continue;
            };
            let symbol = self.symbol(index);
            let in_range = (symbol.min()..=symbol.max()).contains(&extent);
            if !in_range || dims[index] >= 0 && dims[index] != extent as i64 {
                return Err(Error::Extent { symbol: symbol.name() });
            }
            dims[index] = extent as i64;
        }
        Ok(())
    }

    fn bind_outputs(&self, outputs: &mut [TensorMut<'_>], tail: &Tail) -> Result<(), Error> {
        for (index, (info, given)) in self.outputs().zip(outputs).enumerate() {
            info.check_data(given.dtype, given.data)?;
            if given.shape.as_ref().is_some_and(|shape| shape.len() != info.rank()) {
                return Err(Error::Shape { tensor: info.name() });
            }
            // Extents that the run finds take their maximum.
            let extent = |axis: usize| match info.symbol_index(axis).filter(|&index| index < self.raw.dim_count as usize) {
                Some(index) => unsafe { *tail.dims.add(index) as usize },
                None => info.dims()[axis] as usize,
            };
            info.check_size(given.size_bytes, info.size_bytes_of(extent))?;
            unsafe { tail.outputs.add(index).write(given.data) };
        }
        Ok(())
    }

    fn report_shapes(&self, outputs: &mut [TensorMut<'_>], tail: &Tail) {
        for (info, output) in self.outputs().zip(outputs) {
            let Some(shape) = output.shape.as_deref_mut() else { continue };
            for (axis, extent) in shape.iter_mut().enumerate() {
                *extent = match info.symbol_index(axis) {
                    // SAFETY: dims and counts lie one behind the other, and symbols number both.
                    Some(index) => unsafe { *tail.dims.add(index) as usize },
                    None => info.dims()[axis] as usize,
                };
            }
        }
    }
}
