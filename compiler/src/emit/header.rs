//! The C header of one model: sizes as macros, tensors by name, and a call that takes them.

use std::fmt::Write as _;

use mcc_support::DType;

use super::model::{CompiledModel, Port, Symbol};
use super::weights::WeightsPlace;

/// The text of `NAME.h`, for C11 and C++17.
pub fn header(model: &CompiledModel, stack_bytes: u32) -> String {
    let name = &model.name;
    let upper = name.to_ascii_uppercase();
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text);
        out.push('\n');
    };
    line(&format!("/* {name}.h: a neural network compiled by mcc {} for {},", env!("CARGO_PKG_VERSION"), model.triple));
    line(&format!(" * CPU {}. See mcc.h for what holds of every model. */", model.cpu_names()));
    line(&format!("#ifndef MCC_MODEL_{upper}_H\n#define MCC_MODEL_{upper}_H\n"));
    line("#include \"mcc.h\"\n");
    let uses_bool = model.inputs.iter().chain(&model.outputs).any(|port| port.ty.dtype == DType::Bool);
    if uses_bool {
        line("#ifndef __cplusplus\n#include <stdbool.h>\n#endif\n");
    }
    line("#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    line(&format!("/* What a run needs: an arena at {upper}_ARENA_ALIGN, and stack. */"));
    line(&format!("#define {upper}_ARENA_BYTES {}", model.arena_bytes()));
    line(&format!("#define {upper}_ARENA_ALIGN MCC_ARENA_ALIGN"));
    line(&format!("#define {upper}_STACK_BYTES {stack_bytes}"));
    if model.weights_place == WeightsPlace::File {
        line(&format!(
            "#define {upper}_WEIGHTS_BYTES {} /* of the file of weights, which a run is passed */",
            model.passed_weights_bytes()
        ));
    }
    line("");
    for (kind, ports) in [("INPUT", &model.inputs), ("OUTPUT", &model.outputs)] {
        line(&format!("#define {upper}_{kind}_COUNT {}", ports.len()));
        for port in ports {
            line(&macros(&format!("{upper}_{kind}_{}", port.c_name.to_ascii_uppercase()), port));
        }
        line("");
    }
    line(&tensors_struct(&format!("{name}_inputs"), "const ", &model.inputs, model));
    line(&tensors_struct(&format!("{name}_outputs"), "", &model.outputs, model));
    if !model.dims.is_empty() {
        line(&sets(model));
        line(&extents_struct(&format!("{name}_dims"), &model.dims));
    }
    if !model.counts.is_empty() {
        line("/* Extents of outputs, which a run tells. */");
        line(&extents_struct(&format!("{name}_counts"), &model.counts));
    }
    line("/* Runs the model once; returns one of mcc_status. */");
    line(&format!("int {name}_call(const mcc_call *call);\n"));
    line("/* Describes the model. */");
    line(&format!("extern const mcc_model {name}_model;\n"));
    line("/* Runs the model once on tensors by name; returns one of mcc_status. */");
    if !model.dims.is_empty() {
        let one = model.specializations[0].dims.iter().all(|range| range.min == range.max);
        line(if one { "/* `dims` may be null for the first of the extents that it was compiled for. */" } else { "" });
    }
    if !model.counts.is_empty() {
        line("/* `counts` may be null. */");
    }
    line(&run(name, model));
    line("#ifdef __cplusplus\n}\n#endif\n\n#endif");
    out
}

fn macros(prefix: &str, port: &Port) -> String {
    let mut out = format!("#define {prefix}_RANK {}\n", port.ty.rank());
    for (axis, dim) in port.ty.shape.iter().enumerate() {
        let _ = writeln!(out, "#define {prefix}_DIM{axis} {dim}");
    }
    let _ = writeln!(out, "#define {prefix}_COUNT {}", port.ty.shape.count());
    let _ = write!(out, "#define {prefix}_BYTES {}", port.ty.size_bytes());
    out
}

fn tensors_struct(name: &str, qualifier: &str, ports: &[Port], model: &CompiledModel) -> String {
    let mut out = format!("typedef struct {name} {{\n");
    if ports.is_empty() {
        out.push_str("    char none; /* C has no empty structures */\n");
    }
    for port in ports {
        let renamed = if port.name == port.c_name { String::new() } else { format!(", '{}' in the model", comment(&port.name)) };
        let _ = writeln!(
            out,
            "    {qualifier}{} *{}; /* {}{renamed} */",
            c_type(port.ty.dtype),
            port.c_name,
            model.tensor_type(port)
        );
    }
    let _ = writeln!(out, "}} {name};");
    out
}

/// What the model was compiled for.
fn sets(model: &CompiledModel) -> String {
    let mut out = "/* Extents that the caller passes. The model was compiled for".to_string();
    for specialization in model.sets() {
        let extents = model.dims.iter().zip(&specialization.dims).map(|(symbol, range)| {
            if range.min == range.max {
                format!("{} = {}", symbol.c_name, range.min)
            } else {
                format!("{} = {} to {}", symbol.c_name, range.min, range.max)
            }
        });
        let _ = write!(out, "\n *   {}", extents.collect::<Vec<_>>().join(", "));
    }
    out.push_str("\n * and refuses others with MCC_ERROR_DIMS. Sizes above are the largest. */");
    out
}

fn extents_struct(name: &str, symbols: &[Symbol]) -> String {
    let mut out = format!("typedef struct {name} {{\n");
    for symbol in symbols {
        let renamed =
            if symbol.name == symbol.c_name { String::new() } else { format!(" /* '{}' in the model */", comment(&symbol.name)) };
        let _ = writeln!(out, "    int64_t {};{renamed}", symbol.c_name);
    }
    let _ = writeln!(out, "}} {name};");
    out
}

fn run(name: &str, model: &CompiledModel) -> String {
    let dims = if model.dims.is_empty() { String::new() } else { format!("const {name}_dims *dims, ") };
    let counts = if model.counts.is_empty() { String::new() } else { format!("{name}_counts *counts, ") };
    let passed = model.weights_place == WeightsPlace::File;
    let weights = if passed { ", const void *weights" } else { "" };
    let mut out = format!(
        "static inline int {name}_run(const {name}_inputs *in, const {name}_outputs *out, {dims}{counts}void *arena{weights}) {{\n"
    );
    let mut table = |kind: &str, pointer: &str, variable: &str, ports: &[Port]| {
        if ports.is_empty() {
            let _ = writeln!(out, "    (void){variable};");
            return "NULL".to_string();
        }
        let members: Vec<String> = ports.iter().map(|port| format!("{variable}->{}", port.c_name)).collect();
        let _ = writeln!(out, "    {pointer}const {kind}[] = {{{}}};", members.join(", "));
        kind.to_string()
    };
    let inputs = table("inputs", "const void *", "in", &model.inputs);
    let outputs = table("outputs", "void *", "out", &model.outputs);
    out.push_str("    mcc_call call;\n");
    for (field, value) in [
        ("size", "(uint32_t)sizeof call"),
        ("cpu_features", "mcc_cpu_features()"),
        ("inputs", &inputs),
        ("outputs", &outputs),
        ("dims", if model.dims.is_empty() { "NULL" } else { "(const int64_t *)dims" }),
        ("counts", if model.counts.is_empty() { "NULL" } else { "(int64_t *)counts" }),
        ("arena", "arena"),
        ("weights", if passed { "weights" } else { "NULL" }),
        ("parallel_for", "NULL"),
        ("parallel_context", "NULL"),
        ("profile", "NULL"),
    ] {
        let _ = writeln!(out, "    call.{field} = {value};");
    }
    let _ = write!(out, "    return {name}_call(&call);\n}}\n");
    out
}

/// The C type that elements, or bytes of the packed ones, are accessed by.
fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::I2 => "mcc_i2x4",
        DType::U2 => "mcc_u2x4",
        DType::I4 => "mcc_i4x2",
        DType::U4 => "mcc_u4x2",
        DType::I8 => "int8_t",
        DType::U8 => "uint8_t",
        DType::I16 => "int16_t",
        DType::U16 => "uint16_t",
        DType::I32 => "int32_t",
        DType::U32 => "uint32_t",
        DType::I64 => "int64_t",
        DType::U64 => "uint64_t",
        DType::F4E2M1 => "mcc_f4e2m1x2",
        DType::F8E4M3FN => "mcc_f8e4m3fn",
        DType::F8E4M3FNUZ => "mcc_f8e4m3fnuz",
        DType::F8E5M2 => "mcc_f8e5m2",
        DType::F8E5M2FNUZ => "mcc_f8e5m2fnuz",
        DType::F8E8M0 => "mcc_f8e8m0",
        DType::F16 => "mcc_f16",
        DType::BF16 => "mcc_bf16",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

/// A name inside a comment: nothing that ends the comment, or that compilers warn of in one.
fn comment(name: &str) -> String {
    name.escape_default().to_string().replace("*/", "*\\/").replace("/*", "/\\*")
}
