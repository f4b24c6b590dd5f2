//! Runs the kernels of a model, with its entry function, in the interpreter of the kernel IR.

use std::mem::offset_of;

use mcc_kernel::Kernel;
use mcc_kernel::interp::{Memory, Pointer, Program, Value};
use mcc_runtime::abi::{self, Call};
use mcc_support::{Result, Tensor, bug};

use crate::driver::Compilation;
use crate::emit;

use super::exec::finished;

/// The outputs for these inputs, one for each of the model's. Memory that was never written reads as NaN.
pub fn run(compilation: &Compilation, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    run_with_arena(compilation, inputs).map(|(outputs, _)| outputs)
}

/// The outputs, and the bytes of the arena after the run.
pub fn run_with_arena(compilation: &Compilation, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Vec<u8>)> {
    let linked = compilation.linked();
    let model = &linked.model;
    // Specializations have kernels of the same name.
    let rename = |(set, kernel): (usize, &Kernel)| Kernel { name: format!("{}.{set}", kernel.name), ..kernel.clone() };
    let sets = compilation.specializations().iter().enumerate();
    let kernels: Vec<Kernel> =
        sets.flat_map(|(set, one)| one.kernels().iter().map(move |compiled| rename((set, &compiled.kernel)))).collect();
    let symbols: Vec<String> = kernels.iter().map(|kernel| kernel.name.clone()).collect();
    let entry = emit::entry(model, &symbols);
    let mut program = Program::new(kernels.iter().chain([&entry]));
    let mut extents = model.bind(inputs)?;
    let mut memory = Memory::new();
    let align = abi::ARENA_ALIGN;
    let weights = memory.alloc_from(&model.weights, align);
    memory.protect(weights);
    program.define(emit::weights_symbol(model), weights);
    let arena = memory.alloc(model.arena_bytes() as usize, align);
    memory.poison(arena);
    let input_pointers: Vec<Pointer> = inputs
        .iter()
        .map(|tensor| {
            let pointer = memory.alloc_from(tensor.data(), 8);
            memory.protect(pointer);
            pointer
        })
        .collect();
    let output_pointers: Vec<Pointer> = model.outputs.iter().map(|port| memory.alloc(port.ty.size_bytes(), 8)).collect();

    let call = memory.alloc_from(&vec![0; size_of::<Call>()], 8);
    let fault = |error: String| -> ! { bug!("the kernels cannot be interpreted: {error}") };
    let word = |memory: &mut Memory, offset: usize, value: u32| {
        memory.write(call.offset(offset as i64), &value.to_le_bytes()).unwrap_or_else(|error| fault(error));
    };
    word(&mut memory, offset_of!(Call, size), size_of::<Call>() as u32);
    word(&mut memory, offset_of!(Call, cpu_features), emit::required_bits(&compilation.level_here().cpu));
    let tables = [(offset_of!(Call, inputs), &input_pointers), (offset_of!(Call, outputs), &output_pointers)];
    for (offset, pointers) in tables {
        let table = memory.alloc(8 * pointers.len(), 8);
        for (index, &pointer) in pointers.iter().enumerate() {
            memory.write_pointer(table.offset(8 * index as i64), pointer).unwrap_or_else(|error| fault(error));
        }
        memory.write_pointer(call.offset(offset as i64), table).unwrap_or_else(|error| fault(error));
    }
    memory.write_pointer(call.offset(offset_of!(Call, arena) as i64), arena).unwrap_or_else(|error| fault(error));

    let dims: Vec<u8> = extents.iter().flat_map(|extent| extent.to_le_bytes()).collect();
    let dims = memory.alloc_from(&dims, 8);
    let counts = memory.alloc(8 * model.counts.len(), 8);
    for (offset, pointer) in [(offset_of!(Call, dims), dims), (offset_of!(Call, counts), counts)] {
        memory.write_pointer(call.offset(offset as i64), pointer).unwrap_or_else(|error| fault(error));
    }

    let status = program.run(&entry.name, &mut memory, &[Value::Ptr(call)]).unwrap_or_else(|error| fault(error));
    finished(status.expect("the entry function returns a status"))?;
    let counts = memory.read(counts, 8 * model.counts.len()).unwrap_or_else(|error| fault(error));
    extents.extend(counts.chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().expect("8 bytes"))));
    let outputs = model.outputs.iter().zip(output_pointers).map(|(port, pointer)| {
        let ty = port.ty_with(&extents);
        let bytes = memory.read(pointer, ty.size_bytes()).unwrap_or_else(|error| fault(error));
        Tensor::new(ty, bytes.to_vec())
    });
    let outputs = outputs.collect();
    let arena = memory.peek(arena, model.arena_bytes() as usize).unwrap_or_else(|error| fault(error));
    Ok((outputs, arena.to_vec()))
}
