//! Whole programs, in C, C++ and Rust, with models for two levels of CPUs: what they do not use is left out, as static executables at any
//! address and under the sanitizers of the program's own code.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mcc::driver::{Options, Silent, compile};
use mcc_tests::data;
use mcc_tests::harness::include;
use mcc_tests::machine::{Machine, run};
use object::{Object, ObjectSection, ObjectSymbol};
use tempfile::TempDir;

/// Names of models, their files, and the digits that each sees in the images of 0 to 9, as ONNX Runtime does.
const MODELS: [(&str, &str, [u8; 10]); 4] = [
    ("digits", "digits_resnet8", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ("mobile", "digits_mobilenet", [0, 1, 2, 5, 4, 5, 6, 7, 8, 9]),
    ("vit", "digits_vit", [0, 1, 2, 3, 4, 6, 6, 7, 8, 9]),
    ("spare", "digits_resnet8", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
];

const CPP: &str = r#"
#include "digits.h"
#include "mobile.h"
#include "vit.h"
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

template <typename Inputs, typename Outputs>
static int digit(int (*run)(const Inputs *, const Outputs *, void *), const float *image, size_t arena_bytes) {
    // Just as large as a model asks for: what is beyond is the sanitizer's.
    auto *arena = static_cast<unsigned char *>(::operator new(arena_bytes, std::align_val_t(MCC_ARENA_ALIGN)));
    std::vector<float> logits(10);
    Inputs in = {image};
    Outputs out = {logits.data()};
    int status = run(&in, &out, arena);
    ::operator delete(arena, std::align_val_t(MCC_ARENA_ALIGN));
    if (status != MCC_OK) {
        std::fprintf(stderr, "%s\n", mcc_status_message(status));
        return -1;
    }
    int best = 0;
    for (int d = 1; d < 10; d++)
        if (logits[d] > logits[best])
            best = d;
    return best;
}

int main(int count, char **paths) {
    for (int i = 1; i < count; i++) {
        std::ifstream file(paths[i], std::ios::binary);
        std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
        std::vector<float> image(28 * 28);
        for (size_t p = 0; p < image.size(); p++)
            image[p] = static_cast<unsigned char>(bytes[bytes.size() - image.size() + p]) / 255.0f;
        std::printf("%s: %d %d %d\n", paths[i], digit(digits_run, image.data(), DIGITS_ARENA_BYTES),
                    digit(mobile_run, image.data(), MOBILE_ARENA_BYTES), digit(vit_run, image.data(), VIT_ARENA_BYTES));
    }
    return 0;
}
"#;

/// Compiles all models, each for two CPUs, into a folder.
fn models(machine: Machine) -> TempDir {
    let folder = TempDir::new().unwrap();
    let cpus = match machine {
        Machine::X86_64 => "x86-64,x86-64-v3",
        Machine::Aarch64 => "armv8-a,+fp16",
    };
    for (name, file, _) in MODELS {
        let path = data::folder().join("models").join(format!("{file}.onnx"));
        let target = machine.target().to_string();
        let options = Options { target, cpu: Some(cpus.into()), name: Some(name.into()), ..Options::new(path) };
        let compilation = compile(&options, &mut Silent).unwrap_or_else(|error| panic!("{name}: {error}"));
        let linked = compilation.linked();
        let write = |extension: &str, bytes: &[u8]| fs::write(folder.path().join(format!("{name}.{extension}")), bytes).unwrap();
        write("o", &linked.object());
        write("h", linked.header().as_bytes());
        write("rs", linked.rust().as_bytes());
    }
    fs::write(folder.path().join("main.cc"), CPP).unwrap();
    folder
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    StaticPie,
    Sanitized,
}

/// A program in a language, which names the models that it uses.
#[derive(Clone, Copy, Debug)]
struct Program {
    language: &'static str,
    used: &'static [&'static str],
}

const PROGRAMS: [Program; 3] = [
    Program { language: "c", used: &["digits"] },
    Program { language: "c++", used: &["digits", "mobile", "vit"] },
    Program { language: "rust", used: &["digits"] },
];

impl Program {
    /// Links objects of these models, with more options for a compiler of C.
    fn build(&self, machine: Machine, folder: &Path, way: Way, models: &[&str], options: &[&str]) -> PathBuf {
        let program = folder.join("program");
        let objects = models.iter().map(|name| folder.join(format!("{name}.o")));
        let sanitize = "-fsanitize=address,undefined";
        if self.language == "rust" {
            let runtime = folder.join("libmcc_runtime.rlib");
            let rustc = || {
                let mut rustc = Command::new("rustc");
                rustc.current_dir(data::repository()).env("OUT_DIR", folder).args(["--edition", "2024", "-O"]);
                rustc
            };
            let mut build = rustc();
            build.args(["--crate-type", "rlib", "--crate-name", "mcc_runtime", "--cfg", "feature=\"std\"", "runtime/src/lib.rs"]);
            run(build.arg("-o").arg(&runtime));
            let mut link = rustc();
            link.arg("examples/digits-rust/src/main.rs").arg("--extern").arg(format!("mcc_runtime={}", runtime.display()));
            link.args(objects.map(|object| format!("-Clink-arg={}", object.display())));
            link.arg(match way {
                Way::StaticPie => "-Ctarget-feature=+crt-static".to_string(),
                Way::Sanitized => format!("-Clink-arg={sanitize}"),
            });
            run(link.args(["-Clink-arg=-Wl,--gc-sections", "-o"]).arg(&program));
            return program;
        }
        let (compiler, source, standard) = match self.language {
            "c" => ("gcc", data::repository().join("examples/digits-c/main.c"), "-std=c11"),
            _ => ("g++", folder.join("main.cc"), "-std=c++17"),
        };
        let mut command = machine.tool(compiler);
        command.args([standard, "-Wall", "-Wextra", "-Werror", "-O1", "-ffunction-sections", "-fdata-sections", "-I"]);
        command.arg(include()).arg("-I").arg(folder).arg(source).args(objects).args(options);
        match way {
            Way::StaticPie => _ = command.args(["-fPIE", "-static-pie"]),
            Way::Sanitized => _ = command.args([sanitize, "-fno-sanitize-recover=all"]),
        }
        run(command.args(["-Wl,--gc-sections", "-Wl,--fatal-warnings", "-o"]).arg(&program));
        program
    }

    /// Every model tells which digit it sees in each image, and nobody complains.
    fn classifies(&self, machine: Machine, program: &Path) {
        let images: Vec<String> =
            (0..10).map(|digit| format!("{}/examples/images/{digit}.pgm", data::repository().display())).collect();
        let output = machine.program(program).args(&images).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut want = String::new();
        for (place, image) in images.iter().enumerate() {
            let used = MODELS.iter().filter(|(name, ..)| self.used.contains(name));
            let seen: Vec<String> = used.map(|(_, _, digits)| format!(" {}", digits[place])).collect();
            want += &format!("{image}:{}\n", seen.concat());
        }
        assert_eq!(String::from_utf8(output.stdout).unwrap(), want);
    }
}

/// Sizes of the sections that are loaded, and all symbols.
fn contents(program: &Path) -> (BTreeMap<String, u64>, Vec<String>) {
    let bytes = fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let loaded = file.sections().filter(|section| section.address() != 0);
    let sizes = loaded.map(|section| (section.name().unwrap().to_string(), section.size())).collect();
    let symbols = file.symbols().map(|symbol| symbol.name().unwrap().to_string()).collect();
    (sizes, symbols)
}

fn check(machine: Machine, program: &Program, folder: &Path, way: Way) {
    let all = MODELS.map(|(name, ..)| name);
    let built = program.build(machine, folder, way, program.used, &[]);
    let (sizes, symbols) = contents(&built);
    let of = |symbols: &[String], name: &str| symbols.iter().any(|symbol| symbol.starts_with(&format!("{name}_")));
    assert!(program.used.iter().all(|name| of(&symbols, name)), "symbols would tell: {symbols:?}");
    // What a program calls by its header needs no description.
    assert_eq!(symbols.iter().any(|symbol| symbol == "digits_model"), program.language == "rust");
    assert_eq!(sizes.contains_key(".interp"), way == Way::Sanitized);

    let built = program.build(machine, folder, way, &all, &[]);
    let (sizes_with_all, symbols) = contents(&built);
    assert_eq!(sizes, sizes_with_all, "{program:?}: unused models take room");
    let unused = all.iter().filter(|name| !program.used.contains(name));
    unused.for_each(|name| assert!(!of(&symbols, name), "{program:?}: something of model '{name}' is left"));
    program.classifies(machine, &built);
}

fn check_all(way: Way) {
    let machine = Machine::host();
    let folder = models(machine);
    for program in &PROGRAMS {
        check(machine, program, folder.path(), way);
    }
    // The same on a CPU of which nothing is known.
    let least = PROGRAMS[1];
    let built = least.build(machine, folder.path(), way, least.used, &["-DMCC_CPU_FEATURES=0u"]);
    least.classifies(machine, &built);
}

#[test]
fn static_executables_at_any_address() {
    check_all(Way::StaticPie);
}

#[test]
fn under_sanitizers() {
    check_all(Way::Sanitized);
}

#[test]
fn for_another_machine() {
    let machine = Machine::ALL.into_iter().find(|&machine| machine != Machine::host()).unwrap();
    check(machine, &PROGRAMS[0], models(machine).path(), Way::StaticPie);
}
