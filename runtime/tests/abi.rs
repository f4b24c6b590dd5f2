//! `mcc.h` and `abi.rs` say the same, and the header compiles without a warning as C11 and as C++17.

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use mcc_runtime::abi::{self, Call, Model, Profile, Quantization, Symbol, TensorInfo};

/// A static assertion of a struct's size and of each field's offset.
macro_rules! layout {
    ($out:ident, $c_name:literal, $ty:ident { $($field:ident),* }) => {
        writeln!($out, "CHECK(sizeof({}) == {});", $c_name, size_of::<$ty>()).unwrap();
        $(writeln!($out, "CHECK(offsetof({}, {}) == {});", $c_name, stringify!($field), offset_of!($ty, $field)).unwrap();)*
        // Names every field, so that one added in Rust cannot be forgotten here.
        let _ = |value: $ty| { let $ty { $($field: _),* } = value; };
    };
}

fn assertions() -> String {
    let mut out = String::from("#include \"mcc.h\"\n#ifdef __cplusplus\n#define CHECK(x) static_assert(x, #x)\n#else\n");
    out += "#define CHECK(x) _Static_assert(x, #x)\n#endif\n";
    layout!(out, "mcc_profile", Profile { size, reserved, stamp, context });
    layout!(
        out,
        "mcc_call",
        Call { size, cpu_features, inputs, outputs, dims, counts, arena, weights, parallel_for, parallel_context, profile }
    );
    layout!(out, "mcc_quantization", Quantization { axis, count, scales, zero_points });
    layout!(out, "mcc_symbol", Symbol { min, max, name, reserved });
    layout!(out, "mcc_tensor_info", TensorInfo { name, dtype, rank, dims, size_bytes, symbols, quantization });
    layout!(
        out,
        "mcc_model",
        Model {
            size,
            abi_version,
            arch,
            cpu_features,
            name,
            compiler,
            target,
            cpu,
            call,
            weights,
            input_count,
            output_count,
            inputs,
            outputs,
            dim_count,
            count_count,
            symbols,
            symbol_bytes,
            arena_bytes,
            weights_bytes,
            arena_align,
            stack_bytes,
            max_workers,
            tensor_info_bytes,
            model_sha256,
            options_sha256,
            shape_set_count,
            shape_sets
        }
    );
    writeln!(out, "CHECK(MCC_ABI_VERSION == {}u);\nCHECK(MCC_ARENA_ALIGN == {}u);", abi::ABI_VERSION, abi::ARENA_ALIGN).unwrap();
    for (name, value) in abi::status::ALL {
        writeln!(out, "CHECK({name} == {value});").unwrap();
    }
    for (name, value) in [abi::dtype::ALL, abi::arch::ALL, abi::x86::ALL, abi::aarch64::ALL].concat() {
        writeln!(out, "CHECK({name} == {value}u);").unwrap();
    }
    out
}

/// Compiles `source` with every warning an error; `defines` picks the branches of the header.
fn compile(compiler: &str, source: &str, extension: &str, arguments: &[&str]) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("abi-{}.{extension}", arguments.join("").replace(|c: char| !c.is_alphanumeric(), "")));
    std::fs::write(&file, source).unwrap();
    let output = Command::new(compiler)
        .args(arguments)
        .args(["-Wall", "-Wextra", "-Werror", "-Wpedantic", "-Wconversion", "-fsyntax-only"])
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg(&file)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; these tests need a C and a C++ compiler"));
    assert!(output.status.success(), "{compiler} {arguments:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn header_agrees_with_rust() {
    let source = assertions();
    compile("cc", &source, "c", &["-std=c11"]);
    compile("c++", &source, "cpp", &["-std=c++17"]);
    compile("cc", &source, "c", &["-std=c11", "-ffreestanding"]);
    compile("cc", &source, "c", &["-std=c11", "-DMCC_CPU_FEATURES=MCC_X86_64_V3"]);
}

#[test]
fn every_status_has_a_message() {
    let text = mcc_runtime::HEADER;
    for (name, _) in abi::status::ALL {
        assert!(text.contains(&format!("case {name}: return")), "{name}");
    }
}

#[test]
fn every_constant_of_the_header_is_in_rust() {
    let known: Vec<&str> = [abi::dtype::ALL, abi::arch::ALL, abi::x86::ALL, abi::aarch64::ALL]
        .concat()
        .iter()
        .map(|&(name, _)| name)
        .chain(abi::status::ALL.iter().map(|&(name, _)| name))
        .collect();
    let constant = |word: &&str| {
        ["MCC_X86_", "MCC_AARCH64_", "MCC_ARCH_", "MCC_ERROR_"]
            .iter()
            .any(|prefix| word.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()))
    };
    for word in mcc_runtime::HEADER.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(constant) {
        assert!(known.contains(&word), "{word} is not in abi.rs");
    }
}

#[test]
fn features_are_found_by_their_compiler_name() {
    let cases = [
        (abi::arch::X86_64, "sse4.1", Some(abi::x86::SSE4_1)),
        (abi::arch::X86_64, "avx512vnni", Some(abi::x86::AVX512VNNI)),
        (abi::arch::X86_64, "v3", None),
        (abi::arch::AARCH64, "dotprod", Some(abi::aarch64::DOTPROD)),
        (abi::arch::AARCH64, "avx2", None),
        (abi::arch::X86_64, "dotprod", None),
    ];
    for (arch, name, bit) in cases {
        assert_eq!(abi::feature_bit(arch, name), bit, "{name}");
    }
}

/// Both ask the same CPU. Older C compilers cannot ask for every feature.
#[cfg(feature = "std")]
#[test]
fn c_and_rust_detect_the_same_features() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join("detect.c"), folder.join("detect"));
    std::fs::write(
        &source,
        "#include \"mcc.h\"\n#include <stdio.h>\nint main(void) { printf(\"%u\", mcc_cpu_features()); return 0; }\n",
    )
    .unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let status = Command::new("cc").arg("-I").arg(include).arg(&source).arg("-o").arg(&program).status().unwrap();
    assert!(status.success());
    let output = Command::new(&program).output().unwrap();
    let from_c: u32 = String::from_utf8(output.stdout).unwrap().parse().unwrap();
    let from_rust = mcc_runtime::detect_cpu_features();
    assert_eq!(from_c & !from_rust, 0, "C found {from_c:#x}, Rust {from_rust:#x}");
    let levels = if cfg!(target_arch = "x86_64") { abi::x86::V4 } else { abi::aarch64::DOTPROD | abi::aarch64::FP16 };
    assert_eq!(from_c & levels, from_rust & levels);
}
