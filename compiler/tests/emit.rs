//! Objects link as an executable and as a shared library, for every format, and do what their kernels say.

use std::fs;
use std::path::Path;
use std::process::Command;

use mcc::emit::{self, BufferPlace, CompiledKernel, CompiledModel, Linked, Port, Specialization, Step, WeightsPlace};
use mcc::targets;
use mcc::tools::exec::Executable;
use mcc_kernel::{Address, Arch, BranchProtection, Builder, Kernel, Op, Operand, Type};
use mcc_support::{DType, Tensor, TensorType};
use mcc_target_portable::{TARGET, cpu, default_cpu_name};
use target_lexicon::{Architecture, Triple};

/// `args[2][i] = op(args[0][i], args[1][i])` for `i` from begin to end, on f32.
fn elementwise(name: &str, op: Op) -> Kernel {
    let mut builder = Builder::new(name, &[Type::Ptr, Type::I64, Type::I64]);
    let [table, begin, end] = [0, 1, 2].map(|index| builder.param(index));
    let [a, b, c] = [0, 8, 16].map(|offset| builder.load_ptr(Address::new(table, offset)));
    builder.for_loop(Operand::Reg(begin), Operand::Reg(end), 1, &[], |builder, index, _| {
        let at = |base| Address { base, terms: vec![(index, 4)], displacement: 0 };
        let x = builder.load(Type::F32, at(a), 4);
        let y = builder.load(Type::F32, at(b), 4);
        let result = builder.binary(op.clone(), x, y);
        builder.store(result, at(c), 4);
        Vec::new()
    });
    builder.finish(None)
}

fn port(name: &str, c_name: &str, dtype: DType, shape: &[usize]) -> Port {
    Port { name: name.to_string(), c_name: c_name.to_string(), ty: TensorType::new(dtype, shape), symbols: Vec::new() }
}

/// The one for all shapes.
fn specialization(kernels: Vec<CompiledKernel>, arena_bytes: u64) -> Specialization {
    Specialization {
        level: 0,
        dims: Vec::new(),
        counts: Vec::new(),
        checks: Vec::new(),
        staged_inputs: Vec::new(),
        staged_outputs: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        runs: (0..kernels.len()).map(Step::Call).collect(),
        kernels,
        arena_bytes,
        arena_lower_bound_bytes: arena_bytes,
        status_offset: None,
    }
}

fn triple_and_cpu(triple: &str) -> (Triple, mcc_kernel::Cpu) {
    let triple: Triple = triple.parse().unwrap();
    let arch = if triple.architecture == Architecture::X86_64 { Arch::X86_64 } else { Arch::Aarch64 };
    let mut cpu = cpu(arch, default_cpu_name(arch)).unwrap();
    cpu.windows_abi = triple.operating_system == target_lexicon::OperatingSystem::Windows;
    (triple, cpu)
}

/// `y = (x · w + x) · w` over eight elements with `w = 1, 2, …, 8`, by three kernels of which two have the same code.
fn model(triple: &str) -> Linked {
    model_with(triple, WeightsPlace::Object)
}

fn model_with(triple: &str, weights_place: WeightsPlace) -> Linked {
    protected(triple, weights_place, BranchProtection::default())
}

fn protected(triple: &str, weights_place: WeightsPlace, protection: BranchProtection) -> Linked {
    let (triple, mut cpu) = triple_and_cpu(triple);
    cpu.protection = protection;
    let place = |index: u64| BufferPlace::Arena(64 * index);
    let calls = [
        ("k0_mul", Op::Mul, [BufferPlace::Input(0), BufferPlace::Weights(64), place(0)]),
        ("k1_add", Op::Add, [place(0), BufferPlace::Input(0), place(1)]),
        ("k2_mul", Op::Mul, [place(1), BufferPlace::Weights(64), BufferPlace::Output(0)]),
    ];
    let kernels = calls.map(|(name, op, args)| CompiledKernel {
        name: name.to_string(),
        winograd: None,
        origins: vec!["/a.node".to_string(), "other".to_string()],
        code: targets::target_for(&cpu).0.compile(&elementwise(name, op), &cpu),
        args: args.to_vec(),
        extent: 8,
    });
    let weights: Vec<u8> = std::iter::repeat_n(0u8, 64).chain((1..=8).flat_map(|w| (w as f32).to_le_bytes())).collect();
    let model = CompiledModel {
        name: "net".to_string(),
        triple,
        cpus: vec![cpu],
        inputs: vec![port("x:0", "x", DType::F32, &[2, 4])],
        outputs: vec![port("y", "y", DType::F32, &[8])],
        dims: Vec::new(),
        counts: Vec::new(),
        specializations: vec![specialization(kernels.to_vec(), 128)],
        profile: false,
        weights_place,
        weights: weights.into(),
        model_sha256: [7; 32],
        options: serde_json::json!({}),
        options_sha256: [9; 32],
        warnings: Vec::new(),
    };
    emit::link(model, &TARGET)
}

const PROGRAM: &str = r#"
#include "net.h"
#include <stdio.h>
#include <string.h>
_Alignas(64) static unsigned char arena[NET_ARENA_BYTES + 1];
int main(void) {
    float x[NET_INPUT_X_DIM0 * NET_INPUT_X_DIM1], y[NET_OUTPUT_Y_COUNT];
    for (int i = 0; i < 8; i++) x[i] = (float)i - 3;
    const net_inputs in = {x};
    const net_outputs out = {y};
    if (net_run(&in, &out, arena) != MCC_OK) return 1;
    for (int i = 0; i < 8; i++)
        if (y[i] != (x[i] * (float)(i + 1) + x[i]) * (float)(i + 1)) return 2;
    if (net_run(&in, &out, NULL) != MCC_ERROR_ARENA || net_run(&in, &out, arena + 1) != MCC_ERROR_ARENA) return 3;
    mcc_call call;
    memset(&call, 0, sizeof call);
    call.size = 47;
    if (net_call(&call) != MCC_ERROR_CALL_SIZE) return 4;
    call.size = sizeof call;
    if (net_call(&call) != (net_model.cpu_features ? MCC_ERROR_CPU : MCC_ERROR_ARENA)) return 5;
    const void *inputs[] = {x};
    void *outputs[] = {y};
    call.cpu_features = mcc_cpu_features(); call.inputs = inputs; call.outputs = outputs; call.arena = arena;
    memset(y, 0, sizeof y);
    if (mcc_model_call(&net_model)(&call) != MCC_OK || y[0] != (x[0] + x[0])) return 6;
    const mcc_tensor_info *info = mcc_model_input(&net_model, 0);
    if (strcmp(mcc_tensor_name(info), "x:0") || info->rank != 2 || mcc_tensor_dims(info)[1] != 4 || info->dtype != MCC_F32) return 7;
    if (strcmp(mcc_model_name(&net_model), "net") || net_model.weights_bytes != 96 || net_model.model_sha256[31] != 7) return 8;
    if (((const float *)mcc_at(&net_model.weights))[17] != 2.0f || (uintptr_t)mcc_at(&net_model.weights) % 64) return 9;
    if (net_model.options_sha256[31] != 9 || net_model.stack_bytes != NET_STACK_BYTES || net_model.arena_bytes != NET_ARENA_BYTES) return 10;
    puts("all is as it should be");
    return 0;
}
"#;

fn write_model(folder: &Path, linked: &Linked) {
    fs::write(folder.join("net.o"), linked.object()).unwrap();
    fs::write(folder.join("libnet.a"), linked.static_library()).unwrap();
    fs::write(folder.join("net.h"), linked.header()).unwrap();
    fs::write(folder.join("mcc.h"), mcc_runtime::HEADER).unwrap();
    fs::write(folder.join("main.c"), PROGRAM).unwrap();
}

fn output(folder: &Path, command: &str) -> String {
    let out = Command::new("sh").arg("-c").arg(command).current_dir(folder).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{command}: {}\n{text}{}", out.status, String::from_utf8_lossy(&out.stderr));
    text
}

fn exists(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|out| out.status.success())
}

/// Links and runs the model in all ways, and looks at what the object is made of.
fn check_elf(triple: &str, prefix: &str, run: &str) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_model(folder, &model(triple));
    let gcc = if prefix.is_empty() { "cc".to_string() } else { format!("{prefix}gcc") };
    let flags = "-std=c11 -Wall -Wextra -Wpedantic -Werror -Wl,--fatal-warnings";
    for link in ["-pie -fPIE main.c net.o", "-no-pie -fno-pie main.c net.o", "-static main.c -L. -lnet", "-O2 main.c -L. -lnet"] {
        let out = output(folder, &format!("{gcc} {flags} {link} -o main && {run} ./main"));
        assert_eq!(out, "all is as it should be\n", "{link}");
    }
    assert_eq!(output(folder, &format!("{prefix}nm -u net.o")), "");
    let exported = output(folder, &format!("{prefix}nm -g net.o"));
    let names: Vec<&str> = exported.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(names, ["net_call", "net_model"]);
    let sections = output(folder, &format!("{prefix}readelf -SW net.o"));
    let flags = sections.lines().filter_map(|line| line.split(']').nth(1)?.split_whitespace().nth(6).map(str::to_string));
    assert!(!flags.clone().any(|flag| flag.starts_with('W')), "a section is writable:\n{sections}");
    assert!(flags.clone().any(|flag| flag == "AX") && sections.contains(".note.GNU-stack"), "{sections}");
    output(folder, &format!("{gcc} -shared -nostdlib -Wl,--fatal-warnings net.o -o libnet.so"));
    let relocations = output(folder, &format!("{prefix}readelf -rW libnet.so"));
    assert!(relocations.contains("no relocations"), "{relocations}");
    let again = model(triple).object();
    assert_eq!(again, fs::read(folder.join("net.o")).unwrap(), "the same bytes again");
}

/// What a program does not use is left out; weights lie where they are asked to.
#[test]
fn sections() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let triple = "x86_64-unknown-linux-gnu";
    write_model(folder, &model_with(triple, WeightsPlace::section(".flash.net", &triple.parse().unwrap()).unwrap()));
    let sections = output(folder, "readelf -SW net.o");
    for name in [".text.net_call ", ".text.net_k0_mul__a_node ", ".text.net_k1_add__a_node ", ".flash.net ", ".rodata.net_model "]
    {
        assert!(sections.contains(name), "{name} in\n{sections}");
    }
    fs::write(folder.join("unused.c"), "int main(void) { return 0; }").unwrap();
    output(folder, "cc -Wl,--gc-sections unused.c net.o -o unused");
    assert!(!output(folder, "nm unused").contains("net_"), "a model that nothing refers to is left out");
    output(folder, "cc -std=c11 -Wl,--gc-sections main.c net.o -o main && ./main");
    for (wrong, triple) in [("", triple), ("a b", triple), ("a,b", triple), ("x", "aarch64-apple-darwin")] {
        assert!(WeightsPlace::section(wrong, &triple.parse().unwrap()).is_err(), "{wrong}");
    }
    assert!(WeightsPlace::section("__DATA,__net", &"aarch64-apple-darwin".parse().unwrap()).is_ok());
}

const WITH_FILE: &str = r#"
#include "net.h"
#include <stdio.h>
_Alignas(64) static unsigned char arena[NET_ARENA_BYTES], file[NET_WEIGHTS_BYTES + 1], damaged[NET_WEIGHTS_BYTES];
int main(void) {
    FILE *in_file = fopen("net.weights", "rb");
    if (fread(file, 1, sizeof file, in_file) != NET_WEIGHTS_BYTES || net_model.weights_bytes != NET_WEIGHTS_BYTES || net_model.weights) return 1;
    float x[8] = {1, 1, 1, 1, 1, 1, 1, 1}, y[8];
    const net_inputs in = {x};
    const net_outputs out = {y};
    if (net_run(&in, &out, arena, file) != MCC_OK || y[7] != 72 || !mcc_weights_intact(file, sizeof file)) return 2;
    if (net_run(&in, &out, arena, NULL) != MCC_ERROR_WEIGHTS || net_run(&in, &out, arena, file + 1) != MCC_ERROR_WEIGHTS) return 3;
    for (int word = 0; word < 6; word++) {
        for (unsigned i = 0; i < sizeof damaged; i++) damaged[i] = file[i];
        damaged[8 * word + 3] ^= 1;
        if (net_run(&in, &out, arena, damaged) != MCC_ERROR_WEIGHTS) return 10 + word;
    }
    /* Other numbers of the same network. */
    for (unsigned i = 0; i < sizeof damaged; i++) damaged[i] = file[i];
    for (int i = 0; i < 8; i++) ((float *)damaged)[(64 + 64) / 4 + i] = 2;
    if (net_run(&in, &out, arena, damaged) != MCC_OK || y[7] != 6 || mcc_weights_intact(damaged, sizeof damaged)) return 4;
    if (mcc_weights_intact(file, NET_WEIGHTS_BYTES - 1) || mcc_weights_intact(file, 8) || mcc_weights_intact(NULL, 64)) return 5;
    puts("the weights come from the file");
    return 0;
}
"#;

#[test]
fn weights_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let linked = model_with("x86_64-unknown-linux-gnu", WeightsPlace::File);
    write_model(folder, &linked);
    fs::write(folder.join("net.weights"), linked.weights_file().unwrap()).unwrap();
    fs::write(folder.join("main.c"), WITH_FILE).unwrap();
    let built = "cc -std=c11 -Wall -Wextra -Wpedantic -Werror -O1 main.c net.o -o main";
    assert_eq!(output(folder, &format!("{built} && ./main")), "the weights come from the file\n");
    if Triple::host().architecture == Architecture::X86_64 {
        let mut executable = Executable::load(&linked).unwrap();
        let mut binding = executable.bind(&[Tensor::from_elements(vec![2, 4], &[1.0f32; 8])]).unwrap();
        assert_eq!(executable.run(&mut binding), 0);
        assert_eq!(executable.outputs(&binding)[0].elements::<f32>()[7], 72.0);
    }
}

/// In this process, without a linker.
#[test]
fn loads_and_runs() {
    let linked = model(&Triple::host().to_string());
    let mut executable = Executable::load(&linked).unwrap();
    for offset in [0.0f32, 100.0] {
        let x: Vec<f32> = (0..8).map(|i| i as f32 - offset).collect();
        let expected: Vec<f32> = (0..8).map(|i| (x[i] * (i + 1) as f32 + x[i]) * (i + 1) as f32).collect();
        let mut binding = executable.bind(&[Tensor::from_elements(vec![2, 4], &x)]).unwrap();
        assert_eq!(executable.run(&mut binding), 0);
        assert_eq!(executable.outputs(&binding), [Tensor::from_elements(vec![8], &expected)]);
    }
    assert!(executable.bind(&[Tensor::from_elements(vec![8], &[0.0f32; 8])]).is_err());
    assert!(Executable::load(&model("aarch64-apple-darwin")).is_err());
}

#[test]
fn elf_for_x86_64() {
    check_elf("x86_64-unknown-linux-gnu", "", "");
}

#[test]
fn elf_for_aarch64() {
    if exists("aarch64-linux-gnu-gcc") && exists("qemu-aarch64") {
        check_elf("aarch64-unknown-linux-gnu", "aarch64-linux-gnu-", "qemu-aarch64 -L /usr/aarch64-linux-gnu");
    } else {
        eprintln!("not run: needs aarch64-linux-gnu-gcc and qemu-aarch64");
    }
}

/// Code for CPUs that guard branches: linkers are told, functions start as they must, and run where that is enforced.
#[test]
fn protected_branches() {
    if !exists("aarch64-linux-gnu-gcc") || !exists("qemu-aarch64") {
        return eprintln!("not run: needs aarch64-linux-gnu-gcc and qemu-aarch64");
    }
    for (targets, returns, property, start) in
        [(true, true, "BTI, PAC", "paciasp"), (true, false, "BTI", "bti"), (false, true, "PAC", "paciasp")]
    {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let protection = BranchProtection { targets, returns };
        write_model(folder, &protected("aarch64-unknown-linux-gnu", WeightsPlace::Object, protection));
        let notes = output(folder, "aarch64-linux-gnu-readelf -n net.o");
        assert!(notes.contains(&format!("AArch64 feature: {property}\n")), "{notes}");
        let code = output(folder, "aarch64-linux-gnu-objdump -d net.o");
        let function =
            |name: &str| code.split(&format!("<net_{name}>:\n")).nth(1).unwrap().split("\n\n").next().unwrap().to_string();
        let first = |name: &str| function(name).lines().next().unwrap().to_string();
        assert!(first("call").contains(start), "{code}");
        assert_eq!(function("call").contains("autiasp"), returns, "{code}");
        assert_eq!(
            first("k0_mul__a_node").contains("bti"),
            targets,
            "a function that calls none keeps its return address:\n{code}"
        );
        fs::write(folder.join("start.c"), START).unwrap();
        output(folder, &format!("aarch64-linux-gnu-gcc -mbranch-protection=standard {FREESTANDING}"));
        output(folder, "aarch64-linux-gnu-ld --fatal-warnings start.o net.o -o main && qemu-aarch64 -cpu max ./main");
    }
}

/// Firmware: no libc, the linker alone; run under emulation.
#[test]
fn bare_metal_links_without_a_library() {
    if !exists("aarch64-linux-gnu-gcc") || !exists("qemu-aarch64") {
        return eprintln!("not run: needs aarch64-linux-gnu-gcc and qemu-aarch64");
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_model(folder, &model("aarch64-unknown-none"));
    fs::write(folder.join("start.c"), START).unwrap();
    output(folder, &format!("aarch64-linux-gnu-gcc {FREESTANDING}"));
    output(folder, "aarch64-linux-gnu-ld --fatal-warnings start.o net.o -o main && qemu-aarch64 ./main");
}

/// A program without a library, which calls the model by its description.
const START: &str = r#"
#include "net.h"
_Alignas(64) static unsigned char arena[NET_ARENA_BYTES];
void _start(void) {
    float x[8] = {1, 1, 1, 1, 1, 1, 1, 1}, y[8];
    const void *in[] = {x};
    void *out[] = {y};
    const mcc_call call = {sizeof call, mcc_cpu_features(), in, out, 0, 0, arena, 0, 0, 0, 0};
    register long code __asm__("x0") = mcc_model_call(&net_model)(&call) != MCC_OK || y[7] != 72;
    register long exit __asm__("x8") = 93;
    __asm__ volatile("svc 0" : : "r"(code), "r"(exit));
}
"#;
const FREESTANDING: &str = "-ffreestanding -fno-stack-protector -Wall -Wextra -Wpedantic -Werror -O1 -c start.c";

/// The linker of LLVM that comes with Rust.
fn lld() -> Option<std::path::PathBuf> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let sysroot = String::from_utf8(sysroot.stdout).ok()?;
    let lld = Path::new(sysroot.trim()).join("lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld");
    lld.exists().then_some(lld)
}

/// Follows the description's distances in a linked file whose first segment, from the file's start, holds code and constants.
fn check_distances(linked: &Linked, file: &[u8]) {
    let start = file.windows(8).position(|bytes| bytes == [176, 0, 0, 0, 1, 0, 0, 0]).expect("a description");
    let follow = |field: usize| {
        let at = start + field;
        at.wrapping_add_signed(i32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as isize)
    };
    let (call, weights) = (follow(32), follow(36));
    assert_eq!(file[call..call + 4], linked.functions[0].1.bytes[..4]);
    assert_eq!(file[weights..weights + 96], linked.model.weights[..]);
    assert_eq!(weights % 64, 0);
}

#[test]
fn mach_o_and_coff_link() {
    let Some(lld) = lld() else { return eprintln!("not run: needs rust-lld") };
    let lld = lld.display();
    let apple = "-flavor darwin -dylib -platform_version macos 11.0 11.0 -undefined error -fatal_warnings";
    for (triple, link) in [
        ("x86_64-apple-darwin", format!("{lld} {apple} -arch x86_64 net.o -o net.dylib")),
        ("aarch64-apple-darwin", format!("{lld} {apple} -arch arm64 net.o -o net.dylib")),
        (
            "x86_64-pc-windows-msvc",
            format!("{lld} -flavor link /dll /noentry /wx /export:net_call /export:net_model,DATA net.o /out:net.dll"),
        ),
        ("aarch64-unknown-none", format!("{lld} -flavor gnu -r net.o -o all.o")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let linked = model(triple);
        write_model(folder.path(), &linked);
        output(folder.path(), &link);
        if let Ok(file) = fs::read(folder.path().join("net.dylib")) {
            check_distances(&linked, &file);
        }
    }
}

/// A model that nothing refers to is left out of a library that exports another.
#[test]
fn unused_models_are_left_out_of_mach_o_and_coff() {
    let Some(lld) = lld() else { return eprintln!("not run: needs rust-lld") };
    let lld = lld.display();
    let apple = "-flavor darwin -dylib -platform_version macos 11.0 11.0 -dead_strip -exported_symbol _net_call";
    for (triple, link) in [
        ("x86_64-apple-darwin", format!("{lld} {apple} -arch x86_64 -o out")),
        ("aarch64-apple-darwin", format!("{lld} {apple} -arch arm64 -o out")),
        ("x86_64-pc-windows-msvc", format!("{lld} -flavor link /dll /noentry /wx /opt:ref /export:net_call /out:out")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let linked = model(triple);
        write_model(folder, &linked);
        let mut spare = CompiledModel { name: "spare".to_string(), ..linked.model };
        let marker = b"weights that nobody uses";
        spare.weights = marker.repeat(4096).into();
        fs::write(folder.join("spare.o"), emit::link(spare, &TARGET).object()).unwrap();
        let mut link = |objects: &str| {
            output(folder, &format!("{link} {objects}"));
            fs::read(folder.join("out")).unwrap()
        };
        let (alone, both) = (link("net.o"), link("net.o spare.o"));
        assert!(!both.windows(marker.len()).any(|bytes| bytes == marker), "{triple}");
        assert_eq!(alone.len(), both.len(), "{triple}");
    }
}

/// A header is clean C and C++ whatever the tensors are.
#[test]
fn headers_compile_cleanly() {
    let (triple, cpu) = triple_and_cpu("x86_64-unknown-linux-gnu");
    let every_type: Vec<_> = DType::ALL.iter().map(|&dtype| (dtype.name(), dtype, vec![3usize])).collect();
    let odd = vec![
        ("int", DType::F32, vec![]),
        ("class", DType::F32, vec![0, 4]),
        ("x*/y", DType::U8, vec![1]),
        ("x/*y", DType::U8, vec![1]),
        ("x\ny\\", DType::I64, vec![2]),
        ("??/", DType::I64, vec![2]),
        ("2nd", DType::I4, vec![]),
        ("NULL", DType::Bool, vec![]),
        ("", DType::F16, vec![1, 1, 1, 1, 1, 1, 1]),
        ("日本", DType::F16, vec![1]),
        ("ODD_ARENA_BYTES", DType::F16, vec![1]),
    ];
    for (inputs, outputs) in [(&every_type, &odd), (&odd, &every_type), (&vec![], &odd), (&vec![], &vec![])] {
        let ports = |kind, tensors: &[(&str, DType, Vec<usize>)]| -> Vec<Port> {
            let names = emit::tensor_names("odd", kind, tensors.iter().map(|(name, ..)| *name));
            tensors.iter().zip(names).map(|((name, dtype, shape), c_name)| port(name, &c_name, *dtype, shape)).collect()
        };
        let model = CompiledModel {
            name: "odd".to_string(),
            inputs: ports("input", inputs),
            outputs: ports("output", outputs),
            dims: Vec::new(),
            counts: Vec::new(),
            specializations: vec![specialization(Vec::new(), 0)],
            profile: false,
            weights_place: WeightsPlace::Object,
            weights: Default::default(),
            triple: triple.clone(),
            cpus: vec![cpu.clone()],
            model_sha256: [0; 32],
            options: serde_json::json!({}),
            options_sha256: [0; 32],
            warnings: Vec::new(),
        };
        let linked = emit::link(model, &TARGET);
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join("odd.h"), linked.header()).unwrap();
        fs::write(folder.join("odd.o"), linked.object()).unwrap();
        fs::write(folder.join("mcc.h"), mcc_runtime::HEADER).unwrap();
        let program = "#include \"odd.h\"\n#include \"odd.h\"\n\
            int main(void) { odd_inputs in; odd_outputs out; (void)in; (void)out; return odd_run(&in, &out, NULL); }\n";
        for file in ["main.c", "main.cc"] {
            fs::write(folder.join(file), program).unwrap();
        }
        let strict = "-Wall -Wextra -Wpedantic -Wshadow -Wno-maybe-uninitialized -Wno-uninitialized -Werror";
        output(folder, &format!("cc -std=c11 {strict} main.c odd.o -o main && ./main"));
        output(folder, &format!("c++ -std=c++17 {strict} main.cc odd.o -o main && ./main"));
    }
}
