//! The Rust module of one model, for a program that links the object and `mcc-runtime`: tensors by name and type, a call that takes
//! them. Shapes that are fixed are part of the types, so that a run of them cannot be refused but for the CPU.

use std::fmt::Write as _;

use mcc_support::DType;

use super::model::{CompiledModel, Port, Symbol};
use super::weights::WeightsPlace;

/// Keywords of Rust that are names in the header of C.
const KEYWORDS: &[&str] = &[
    "Self", "abstract", "as", "async", "await", "become", "box", "crate", "dyn", "final", "fn", "gen", "impl", "in", "let",
    "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "self", "static", "super", "trait", "type",
    "unsafe", "unsized", "use", "where", "yield",
];

/// The text of `NAME.rs`.
pub fn rust(model: &CompiledModel, stack_bytes: u32) -> String {
    let tensor_count = model.inputs.len() + model.outputs.len();
    let symbol_count = model.dims.len() + model.counts.len();
    let mut out = format!(
        "// {}: a neural network compiled by mcc {} for {}, CPU {}.\n\n",
        model.name,
        env!("CARGO_PKG_VERSION"),
        model.triple,
        model.cpu_names()
    );
    let _ = writeln!(out, "/// The most that a run takes of the calling thread's stack, besides what mcc-runtime takes.");
    let _ = writeln!(out, "pub const STACK_BYTES: usize = {stack_bytes};\n");
    let _ = writeln!(out, "/// The memory that a run works in.");
    let _ = writeln!(
        out,
        "pub type Arena = ::mcc_runtime::Arena<{{ ::mcc_runtime::arena_bytes({}, {tensor_count}, {symbol_count}) }}>;\n",
        model.arena_bytes()
    );
    for port in model.inputs.iter().chain(&model.outputs).filter(|port| !is_array(port)) {
        let name = port.c_name.to_ascii_uppercase();
        let _ = writeln!(out, "/// Elements of `{}` with the greatest extents.", field(&port.c_name));
        let _ = writeln!(out, "pub const {name}_MAX_COUNT: usize = {};\n", element_count(port));
    }
    out.push_str(&tensors("Inputs", "What a run reads", "#[derive(Clone, Copy, Debug)]", "&'a ", &model.inputs, model));
    out.push_str(&tensors("Outputs", "What a run writes", "#[derive(Debug)]", "&'a mut ", &model.outputs, model));
    if !model.dims.is_empty() {
        out.push_str(&extents("Dims", "Extents that a run is told", &model.dims));
    }
    if !model.counts.is_empty() {
        out.push_str(&extents("Counts", "Extents of outputs, which a run tells", &model.counts));
    }
    out.push_str(&handle(model));
    out
}

fn tensors(name: &str, what: &str, derive: &str, reference: &str, ports: &[Port], model: &CompiledModel) -> String {
    let life = if ports.is_empty() { "" } else { "<'a>" };
    let mut out = format!("/// {what}.\n#[allow(non_snake_case)]\n{derive}\npub struct {name}{life} {{\n");
    for port in ports {
        let renamed = if port.name == port.c_name { String::new() } else { format!(", `{}` in the model", comment(&port.name)) };
        let _ = writeln!(out, "    /// `{}`{renamed}.", model.tensor_type(port));
        let _ = writeln!(out, "    pub {}: {reference}{},", field(&port.c_name), data_type(port));
    }
    out.push_str("}\n\n");
    out
}

/// Of a fixed shape, an array: its length is part of the type.
fn data_type(port: &Port) -> String {
    let element = element_type(port.ty.dtype);
    if is_array(port) { format!("[{element}; {}]", element_count(port)) } else { format!("[{element}]") }
}

fn is_array(port: &Port) -> bool {
    port.symbols.is_empty()
}

/// Of the Rust type.
fn element_count(port: &Port) -> usize {
    port.ty.size_bytes() / port.ty.dtype.size_bits().div_ceil(8)
}

fn extents(name: &str, what: &str, symbols: &[Symbol]) -> String {
    let mut out =
        format!("/// {what}.\n#[allow(non_snake_case)]\n#[derive(Clone, Copy, Debug, PartialEq, Eq)]\npub struct {name} {{\n");
    for symbol in symbols {
        let _ = writeln!(out, "    /// `{}`, from {} to {}.", comment(&symbol.name), symbol.range.min, symbol.range.max);
        let _ = writeln!(out, "    pub {}: usize,", field(&symbol.c_name));
    }
    out.push_str("}\n\n");
    out
}

fn handle(model: &CompiledModel) -> String {
    let passed = model.weights_place == WeightsPlace::File;
    let mut out =
        "/// The model.\n#[derive(Clone, Copy, Debug)]\npub struct Model(::mcc_runtime::Model);\n\nimpl Model {\n".to_string();
    let errors = if passed { "; weights that are not whole or not aligned" } else { "" };
    let (parameter, argument) = if passed { ("weights: &'static [u8]", "weights, ") } else { ("", "") };
    let mut line = |text: &str| {
        let _ = writeln!(out, "    {text}");
    };
    line("/// For this CPU.");
    line("///\n    /// # Errors\n    ///");
    line(&format!("/// A CPU that lacks features which the model was compiled for{errors}."));
    line("#[allow(unsafe_code)]");
    line(&format!("pub fn new({parameter}) -> ::core::result::Result<Self, ::mcc_runtime::Error> {{"));
    line("    // SAFETY: the features were found on this CPU.");
    line(&format!("    unsafe {{ Self::with_features({argument}::mcc_runtime::detect_cpu_features()) }}"));
    line("}\n");
    line("/// For a CPU that the caller knows better, as in firmware.");
    line("///\n    /// # Errors\n    ///\n    /// As [`new`](Self::new).");
    line("///\n    /// # Safety\n    ///\n    /// The CPU has these features, bits of `mcc.h`.");
    line("#[allow(unsafe_code)]");
    let separator = if passed { ", " } else { "" };
    line(&format!(
        "pub unsafe fn with_features({parameter}{separator}cpu_features: u32) -> ::core::result::Result<Self, ::mcc_runtime::Error> {{"
    ));
    line("    unsafe extern \"C\" {");
    line(&format!("        #[link_name = \"{}_model\"]", model.name));
    line("        static MODEL: ::mcc_runtime::abi::Model;\n        }");
    line("    // SAFETY: mcc wrote the description, and the features are the caller's promise.");
    line("    let model = unsafe { ::mcc_runtime::Model::from_raw(&raw const MODEL, cpu_features) }?;");
    line(&format!("    ::core::result::Result::Ok(Self({}))", if passed { "model.with_weights(weights)?" } else { "model" }));
    line("}\n");
    out.push_str("    /// Names, types and sizes, and a call for any model.\n");
    out.push_str("    pub fn describe(&self) -> ::mcc_runtime::Model {\n        self.0\n    }\n\n");
    out.push_str(&run(model));
    out.push_str("}\n");
    out
}

fn run(model: &CompiledModel) -> String {
    let symbols: Vec<&Symbol> = model.symbols().collect();
    let dims = if model.dims.is_empty() { "" } else { "dims: Dims, " };
    let result = if model.counts.is_empty() { "()" } else { "Counts" };
    let mut out =
        "    /// Runs the model once.\n    ///\n    /// # Errors\n    ///\n    /// As `mcc_runtime::Model::run`.\n".to_string();
    let _ = writeln!(
        out,
        "    pub fn run(&self, inputs: Inputs{}, outputs: Outputs{}, {dims}arena: &mut Arena) -> ::core::result::Result<{result}, ::mcc_runtime::Error> {{",
        life(&model.inputs),
        life(&model.outputs)
    );
    for (index, port) in model.outputs.iter().enumerate().filter(|(_, port)| tells_count(port, model)) {
        let _ = writeln!(out, "        let mut shape{index} = [0; {}];", port.ty.rank());
    }
    let inputs = model.inputs.iter().map(|port| {
        let extent = |(&dim, symbol): (&usize, &Option<usize>)| {
            symbol.map_or(dim.to_string(), |symbol| format!("dims.{}", field(&symbols[symbol].c_name)))
        };
        let shape: Vec<String> = port.ty.shape.iter().zip(&port.symbols).map(extent).collect();
        let shape = if port.symbols.is_empty() { String::new() } else { format!(".shape(&[{}])", shape.join(", ")) };
        format!("::mcc_runtime::TensorRef::new(inputs.{}){shape}", field(&port.c_name))
    });
    let outputs = model.outputs.iter().enumerate().map(|(index, port)| {
        let shape = if tells_count(port, model) { format!(".shape(&mut shape{index})") } else { String::new() };
        format!("::mcc_runtime::TensorMut::new(outputs.{}){shape}", field(&port.c_name))
    });
    let [inputs, outputs] = [inputs.collect::<Vec<_>>(), outputs.collect()].map(|list| list.join(", "));
    let call = format!("self.0.run(&[{inputs}], &mut [{outputs}], arena.bytes())");
    if model.counts.is_empty() {
        let _ = writeln!(out, "        {call}\n    }}");
        return out;
    }
    let _ = writeln!(out, "        {call}?;");
    let counts: Vec<String> = model
        .counts
        .iter()
        .enumerate()
        .map(|(count, symbol)| {
            let place = model.outputs.iter().enumerate().find_map(|(index, port)| {
                let axis = port.symbols.iter().position(|symbol| *symbol == Some(model.dims.len() + count))?;
                Some(format!("shape{index}[{axis}]"))
            });
            format!("{}: {}", field(&symbol.c_name), place.expect("a count is an extent of an output"))
        })
        .collect();
    let _ = writeln!(out, "        ::core::result::Result::Ok(Counts {{ {} }})\n    }}", counts.join(", "));
    out
}

fn life(ports: &[Port]) -> &'static str {
    if ports.is_empty() { "" } else { "<'_>" }
}

/// Whether the output has an extent that a run tells.
fn tells_count(port: &Port, model: &CompiledModel) -> bool {
    port.symbols.iter().flatten().any(|symbol| *symbol >= model.dims.len())
}

/// A name of the header, which ends in no underscore but where it is a keyword of C.
fn field(c_name: &str) -> String {
    if KEYWORDS.contains(&c_name) { format!("{c_name}_") } else { c_name.to_string() }
}

/// A name inside a comment of one line.
fn comment(name: &str) -> String {
    name.escape_default().to_string().replace('`', "'")
}

/// The Rust type of elements, or of bytes of the packed ones.
fn element_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::I2 => "::mcc_runtime::I2x4",
        DType::U2 => "::mcc_runtime::U2x4",
        DType::I4 => "::mcc_runtime::I4x2",
        DType::U4 => "::mcc_runtime::U4x2",
        DType::I8 => "i8",
        DType::U8 => "u8",
        DType::I16 => "i16",
        DType::U16 => "u16",
        DType::I32 => "i32",
        DType::U32 => "u32",
        DType::I64 => "i64",
        DType::U64 => "u64",
        DType::F4E2M1 => "::mcc_runtime::F4E2M1x2",
        DType::F8E4M3FN => "::mcc_runtime::F8E4M3FN",
        DType::F8E4M3FNUZ => "::mcc_runtime::F8E4M3FNUZ",
        DType::F8E5M2 => "::mcc_runtime::F8E5M2",
        DType::F8E5M2FNUZ => "::mcc_runtime::F8E5M2FNUZ",
        DType::F8E8M0 => "::mcc_runtime::F8E8M0",
        DType::F16 => "::mcc_runtime::F16",
        DType::BF16 => "::mcc_runtime::BF16",
        DType::F32 => "f32",
        DType::F64 => "f64",
    }
}
