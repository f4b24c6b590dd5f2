//! The description of a model for callers that know no header: the bytes of `mcc_model` and what it refers to.
//!
//! All lies in one block, so its offsets are constants, but for the two to code and weights, which the object resolves.

use mcc_runtime::abi;

use super::cpus::abi_arch;
use super::dtype_code;
use super::model::{CompiledModel, Port, Specialization, Symbol};
use super::run::{Count, DimRange};

/// The block, and where in it the distances to the entry function and to the weights go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptor {
    pub bytes: Vec<u8>,
    pub call_offset: u64,
    pub weights_offset: u64,
}

pub const ALIGN_BYTES: u64 = 8;

pub fn descriptor(model: &CompiledModel, cpu_features: u32, stack_bytes: u32) -> Descriptor {
    let mut block = Block::default();
    let start = block.reserve(size_of::<abi::Model>());
    let inputs = block.reserve(size_of::<abi::TensorInfo>() * model.inputs.len());
    let outputs = block.reserve(size_of::<abi::TensorInfo>() * model.outputs.len());
    for (first, ports) in [(inputs, &model.inputs), (outputs, &model.outputs)] {
        for (index, port) in ports.iter().enumerate() {
            tensor_info(&mut block, first + index * size_of::<abi::TensorInfo>(), port);
        }
    }
    let symbols = block.reserve(size_of::<abi::Symbol>() * model.symbols().count());
    for (index, symbol) in model.symbols().enumerate() {
        symbol_info(&mut block, symbols + index * size_of::<abi::Symbol>(), symbol);
    }
    let version = concat!("mcc ", env!("CARGO_PKG_VERSION"));
    let texts = [model.name.as_str(), version, &model.triple.to_string(), &model.cpu_names()].map(|text| block.text(text));

    let mut at = start;
    let mut u32_field = |block: &mut Block, value: u32| {
        block.put(at, &value.to_le_bytes());
        at += 4;
        at - 4
    };
    for value in [size_of::<abi::Model>() as u32, abi::ABI_VERSION, abi_arch(model.least_cpu().arch), cpu_features] {
        u32_field(&mut block, value);
    }
    for text in texts {
        let field = u32_field(&mut block, 0);
        block.point(field, text);
    }
    let call_offset = u32_field(&mut block, 0) as u64;
    let weights_offset = u32_field(&mut block, 0) as u64;
    u32_field(&mut block, model.inputs.len() as u32);
    u32_field(&mut block, model.outputs.len() as u32);
    for (first, ports) in [(inputs, &model.inputs), (outputs, &model.outputs)] {
        let field = u32_field(&mut block, 0);
        if !ports.is_empty() {
            block.point(field, first);
        }
    }
    for count in [model.dims.len(), model.counts.len()] {
        u32_field(&mut block, count as u32);
    }
    let field = u32_field(&mut block, 0);
    if model.symbols().next().is_some() {
        block.point(field, symbols);
    }
    u32_field(&mut block, size_of::<abi::Symbol>() as u32);
    for value in [model.arena_bytes(), model.passed_weights_bytes()] {
        u32_field(&mut block, value as u32);
        u32_field(&mut block, (value >> 32) as u32);
    }
    let max_workers = 1;
    for value in [abi::ARENA_ALIGN as u32, stack_bytes, max_workers, size_of::<abi::TensorInfo>() as u32] {
        u32_field(&mut block, value);
    }
    block.put(at, &model.model_sha256);
    block.put(at + 32, &model.options_sha256);
    let sets = shape_sets(model);
    if !sets.is_empty() {
        block.put(at + 64, &(model.sets().count() as u32).to_le_bytes());
        let values = block.reserve(8 * sets.len());
        for (index, extent) in sets.iter().enumerate() {
            block.put(values + 8 * index, &extent.to_le_bytes());
        }
        block.point(at + 68, values);
    }
    assert_eq!(at + 72 - start, size_of::<abi::Model>(), "every field of mcc_model is written");
    Descriptor { bytes: block.0, call_offset, weights_offset }
}

fn tensor_info(block: &mut Block, at: usize, port: &Port) {
    let name = block.text(&port.name);
    block.point(at, name);
    block.put(at + 4, &dtype_code(port.ty.dtype).to_le_bytes());
    block.put(at + 8, &(port.ty.rank() as u32).to_le_bytes());
    if port.ty.rank() > 0 {
        let dims = block.reserve(8 * port.ty.rank());
        for (axis, &dim) in port.ty.shape.iter().enumerate() {
            block.put(dims + 8 * axis, &(dim as i64).to_le_bytes());
        }
        block.point(at + 12, dims);
    }
    block.put(at + 16, &(port.ty.size_bytes() as u64).to_le_bytes());
    if !port.symbols.is_empty() {
        let symbols = block.reserve(4 * port.ty.rank());
        for (axis, symbol) in port.symbols.iter().enumerate() {
            block.put(symbols + 4 * axis, &symbol.map_or(-1, |symbol| symbol as i32).to_le_bytes());
        }
        block.point(at + 24, symbols);
    }
}

/// The extents of each specialization one after the other; none where one of them is for more than one set.
fn shape_sets(model: &CompiledModel) -> Vec<i64> {
    let dim = |range: &DimRange| (range.min == range.max).then_some(range.min);
    let count = |count: &Count| if let Count::Known(count) = *count { Some(count) } else { None };
    let extents = |one: &Specialization| one.dims.iter().map(dim).chain(one.counts.iter().map(count)).collect::<Vec<_>>();
    model.sets().flat_map(extents).collect::<Option<_>>().unwrap_or_default()
}

fn symbol_info(block: &mut Block, at: usize, symbol: &Symbol) {
    block.put(at, &symbol.range.min.to_le_bytes());
    block.put(at + 8, &symbol.range.max.to_le_bytes());
    let name = block.text(&symbol.name);
    block.point(at + 16, name);
}

#[derive(Default)]
struct Block(Vec<u8>);

impl Block {
    /// Zeros at the end, aligned.
    fn reserve(&mut self, size_bytes: usize) -> usize {
        let at = self.0.len().next_multiple_of(ALIGN_BYTES as usize);
        self.0.resize(at + size_bytes, 0);
        at
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A text that ends in a zero; what stands behind a zero inside it cannot be seen.
    fn text(&mut self, text: &str) -> usize {
        let at = self.0.len();
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
        at
    }

    fn point(&mut self, field: usize, to: usize) {
        self.put(field, &(to as i32 - field as i32).to_le_bytes());
    }
}
