//! Runs the kernels of a model, with its entry function, in the interpreter of the kernel IR.

use std::mem::offset_of;

use mcc_kernel::interp::{Memory, Pointer, Program, Value};
use mcc_runtime::abi::{self, Call};
use mcc_support::{Result, Tensor, TensorType, bug};

use crate::driver::Compilation;
use crate::emit;

use super::exec::finished;

/// The outputs for these inputs, one for each of the model's. Memory that was never written reads as NaN.
pub fn run(compilation: &Compilation, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let linked = compilation.linked();
    let model = &linked.model;
    let symbols: Vec<String> = compilation.kernels().iter().map(|compiled| compiled.kernel.name.clone()).collect();
    let entry = emit::entry(model, &symbols);
    let mut program = Program::new(compilation.kernels().iter().map(|compiled| &compiled.kernel).chain([&entry]));
    let mut memory = Memory::new();
    let align = abi::ARENA_ALIGN;
    let weights = memory.alloc_from(&model.weights, align);
    memory.protect(weights);
    program.define(emit::weights_symbol(model), weights);
    let arena = memory.alloc(model.arena_bytes as usize, align);
    memory.poison(arena);
    let input_pointers: Vec<Pointer> = inputs
        .iter()
        .map(|tensor| {
            let pointer = memory.alloc_from(tensor.data(), 8);
            memory.protect(pointer);
            pointer
        })
        .collect();
    let dims = model.dims_of(&inputs.iter().map(Tensor::ty).collect::<Vec<_>>())?;
    let words = |words: Vec<i64>| words.into_iter().flat_map(i64::to_le_bytes).collect::<Vec<u8>>();
    let dims_pointer = memory.alloc_from(&words(dims.iter().map(|&dim| dim as i64).collect()), 8);
    memory.protect(dims_pointer);
    let counts_pointer = memory.alloc_from(&words(vec![-1; model.counts.len()]), 8);
    let output_pointers: Vec<Pointer> = model.outputs.iter().map(|port| memory.alloc(port.ty.size_bytes(), 8)).collect();

    let call = memory.alloc_from(&vec![0; size_of::<Call>()], 8);
    let fault = |error: String| -> ! { bug!("the kernels cannot be interpreted: {error}") };
    let word = |memory: &mut Memory, offset: usize, value: u32| {
        memory.write(call.offset(offset as i64), &value.to_le_bytes()).unwrap_or_else(|error| fault(error));
    };
    word(&mut memory, offset_of!(Call, size), size_of::<Call>() as u32);
    word(&mut memory, offset_of!(Call, cpu_features), linked.cpu_features);
    let tables = [(offset_of!(Call, inputs), &input_pointers), (offset_of!(Call, outputs), &output_pointers)];
    for (offset, pointers) in tables {
        let table = memory.alloc(8 * pointers.len(), 8);
        for (index, &pointer) in pointers.iter().enumerate() {
            memory.write_pointer(table.offset(8 * index as i64), pointer).unwrap_or_else(|error| fault(error));
        }
        memory.write_pointer(call.offset(offset as i64), table).unwrap_or_else(|error| fault(error));
    }
    for (offset, pointer) in [(offset_of!(Call, dims), dims_pointer), (offset_of!(Call, counts), counts_pointer)] {
        memory.write_pointer(call.offset(offset as i64), pointer).unwrap_or_else(|error| fault(error));
    }
    memory.write_pointer(call.offset(offset_of!(Call, arena) as i64), arena).unwrap_or_else(|error| fault(error));

    let status = program.run(&entry.name, &mut memory, &[Value::Ptr(call)]).unwrap_or_else(|error| fault(error));
    finished(status.expect("the entry function returns a status"))?;
    let counts = memory.read(counts_pointer, 8 * model.counts.len()).unwrap_or_else(|error| fault(error));
    let counts = counts.chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().expect("eight bytes")).max(0) as usize);
    let extents: Vec<usize> = dims.into_iter().chain(counts).collect();
    let outputs = model.outputs.iter().zip(output_pointers).map(|(port, pointer)| {
        let ty = TensorType::new(port.ty.dtype, port.shape_of(&extents));
        let bytes = memory.read(pointer, ty.size_bytes()).unwrap_or_else(|error| fault(error));
        Tensor::new(ty, bytes.to_vec())
    });
    Ok(outputs.collect())
}
