//! The manifest: what was compiled, for which machine, and what it takes, as JSON.

use mcc_kernel::Cpu;
use mcc_support::Shape;
use serde_json::{Value, json};

use super::Sizes;
use super::cpus::required_features;
use super::model::{CompiledModel, Port, Specialization, Symbol};
use super::run::Count;

/// Grows when a field changes its meaning or goes.
const SCHEMA_VERSION: u32 = 1;

/// `symbols` are those of the kernels' functions: kernels of equal code have one.
pub fn manifest(model: &CompiledModel, symbols: &[&str], required_features: &[&str], sizes: &Sizes) -> String {
    let ports = |ports: &[Port]| ports.iter().map(port).collect::<Vec<_>>();
    let kernels: Vec<Value> = model
        .kernels()
        .zip(symbols)
        .map(|((level, kernel), symbol)| {
            json!({
                "name": kernel.name,
                "cpu": model.cpus[level].name,
                "symbol": symbol,
                "origins": kernel.origins,
                "winograd": kernel.winograd,
                "code_bytes": kernel.code.bytes.len(),
                "stack_bytes": kernel.code.stack_bytes,
            })
        })
        .collect();
    let value = json!({
        "schema_version": SCHEMA_VERSION,
        "compiler": concat!("mcc ", env!("CARGO_PKG_VERSION")),
        "name": model.name,
        "model_sha256": hex(&model.model_sha256),
        "options": model.options,
        "options_sha256": hex(&model.options_sha256),
        "target": model.triple.to_string(),
        "cpu": model.cpu_names(),
        "cpus": model.cpus.iter().map(cpu).collect::<Vec<_>>(),
        "required_features": required_features,
        "inputs": ports(&model.inputs),
        "outputs": ports(&model.outputs),
        "dims": model.dims.iter().map(symbol).collect::<Vec<_>>(),
        "counts": model.counts.iter().map(symbol).collect::<Vec<_>>(),
        "specializations": model.specializations.iter().map(|shapes| specialization(model, shapes)).collect::<Vec<_>>(),
        "arena_bytes": sizes.arena_bytes,
        "arena_align": mcc_runtime::ARENA_ALIGN,
        "arena_lower_bound_bytes": sizes.arena_lower_bound_bytes,
        "stack_bytes": sizes.stack_bytes,
        "weights_bytes": sizes.weights_bytes,
        "code_bytes": sizes.code_bytes,
        "description_bytes": sizes.description_bytes,
        "kernels": kernels,
        "warnings": model.warnings,
    });
    let mut text = serde_json::to_string_pretty(&value).expect("a value without keys that are not texts");
    text.push('\n');
    text
}

fn cpu(cpu: &Cpu) -> Value {
    let features: Vec<&str> = required_features(cpu).iter().map(|&(name, _)| name).collect();
    json!({ "name": cpu.name, "required_features": features })
}

fn port(port: &Port) -> Value {
    json!({
        "name": port.name,
        "c_name": port.c_name,
        "dtype": port.ty.dtype.name(),
        "shape": port.ty.shape.dims(),
        "size_bytes": port.ty.size_bytes(),
        "symbols": port.symbols,
    })
}

fn symbol(symbol: &Symbol) -> Value {
    json!({ "name": symbol.name, "c_name": symbol.c_name, "min": symbol.range.min, "max": symbol.range.max })
}

/// `null` where the run finds it.
fn count(count: &Count) -> Value {
    match count {
        Count::Known(count) => json!(count),
        Count::Found { .. } => Value::Null,
    }
}

/// Which shapes it is for, by the names of tensors.
fn specialization(model: &CompiledModel, specialization: &Specialization) -> Value {
    let shapes = |ports: &[Port], shapes: &[Shape]| {
        let pairs = ports.iter().zip(shapes).map(|(port, shape)| (port.name.clone(), json!(shape.dims())));
        pairs.collect::<serde_json::Map<_, _>>()
    };
    json!({
        "cpu": model.cpus[specialization.level].name,
        "dims": specialization.dims.iter().map(|range| json!([range.min, range.max])).collect::<Vec<_>>(),
        "counts": specialization.counts.iter().map(count).collect::<Vec<_>>(),
        "inputs": shapes(&model.inputs, &specialization.inputs),
        "outputs": shapes(&model.outputs, &specialization.outputs),
        "arena_bytes": specialization.arena_bytes,
    })
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
