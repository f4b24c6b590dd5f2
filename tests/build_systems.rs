//! Each example of a build system, copied out of the repository and built with an installed mcc: it works, and the model is compiled
//! when what it depends on changed and not otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use mcc::targets;
use mcc_tests::data;
use mcc_tests::machine::{Machine, run};
use mcc_tests::project::{Project, installed};

/// How one build system is used. Commands are those of a shell, in the project's folder.
#[derive(Clone, Copy)]
struct System {
    example: &'static str,
    configure: &'static str,
    /// What follows `configure` for the example's other machine.
    cross: &'static str,
    build: &'static str,
    program: &'static str,
    /// In which file an option of mcc is added, by what is replaced with what.
    option: (&'static str, &'static str, &'static str),
}

const CMAKE: System = System {
    example: "cmake",
    configure: "cmake -S . -B build -G Ninja",
    cross: "--toolchain aarch64-linux.cmake",
    build: "cmake --build build",
    program: "build/classify",
    option: ("CMakeLists.txt", "digits.onnx)", "digits.onnx OPTIONS --profile)"),
};

const MAKE: System = System {
    example: "make",
    configure: "true",
    cross: "",
    build: "make",
    program: "build/classify",
    option: ("Makefile", "MCCFLAGS =", "MCCFLAGS = --profile"),
};

const MESON: System = System {
    example: "meson",
    configure: "meson setup build",
    cross: "--cross-file aarch64-linux.ini",
    build: "meson compile -C build",
    program: "build/classify",
    option: ("meson.build", "'--target', target", "'--profile', '--target', target"),
};

/// Builds and runs; natively, changes one thing after the other.
fn check(system: &System, machine: Machine) {
    let project = Project::new(system.example);
    let is_native = machine == Machine::host();
    project.run(&format!("{} {}", system.configure, if is_native { "" } else { system.cross }));
    assert_eq!(project.compiles(), 0, "nothing is compiled when a project is configured");
    let build = |expected: usize, what: &str| {
        let output = project.run(system.build);
        assert_eq!(project.compiles(), expected, "{}, {machine:?}: {what}: {output}", system.example);
    };
    build(1, "the first build");
    project.classify(system.program, machine);
    build(1, "nothing changed");
    if !is_native {
        return;
    }
    project.touch("digits.onnx");
    build(2, "the model changed");
    build(2, "nothing changed after the model");
    project.touch("digits.bin");
    build(3, "the weights changed");
    build(3, "nothing changed after the weights");
    project.edit(system.option);
    build(4, "an option changed");
    build(4, "nothing changed after the option");
    project.classify(system.program, machine);
    fs::write(project.folder.join("digits.onnx"), "no model\n").unwrap();
    let output = project.fail(system.build);
    assert!(output.contains("this is not an ONNX model: it is a text file"), "{output}");
}

#[test]
fn cmake_with_ninja() {
    check(&CMAKE, Machine::host());
}

#[test]
fn cmake_cross_compiling() {
    check(&CMAKE, Machine::Aarch64);
}

#[test]
fn cmake_with_make() {
    check(&System { configure: "cmake -S . -B build -G 'Unix Makefiles'", ..CMAKE }, Machine::host());
}

#[test]
fn cmake_with_several_configurations_and_static_pie() {
    let system = System {
        configure: "cmake -S . -B build -G 'Ninja Multi-Config' -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
            -DCMAKE_EXE_LINKER_FLAGS=-static-pie",
        build: "cmake --build build --config Debug && cmake --build build --config Release",
        program: "build/Release/classify",
        ..CMAKE
    };
    check(&system, Machine::host());
}

/// A project of C++ alone, of an older CMake's policies, with models in a folder of their own.
#[test]
fn cmake_with_several_models() {
    let project = Project::new("cmake");
    for (file, text) in [
        (
            "CMakeLists.txt",
            "cmake_minimum_required(VERSION 3.10)\nproject(several CXX)\nfind_package(mcc REQUIRED)\nadd_subdirectory(models)
            add_executable(several main.cpp)\ntarget_link_libraries(several PRIVATE digits small-digits)",
        ),
        (
            "models/CMakeLists.txt",
            "mcc_add_model(digits ../digits.onnx)
            mcc_add_model(small-digits ../digits.onnx NAME small OPTIONS --fuel 0 --profile)",
        ),
        (
            "main.cpp",
            "#include \"digits.h\"\n#include \"small.h\"
            alignas(64) static unsigned char arena[DIGITS_ARENA_BYTES], small_arena[SMALL_ARENA_BYTES];
            int main() {
                static float image[784], logits[10], small_logits[10];
                const digits_inputs in = {image};
                const digits_outputs out = {logits};
                const small_inputs small_in = {image};
                const small_outputs small_out = {small_logits};
                const int status = digits_run(&in, &out, arena) + small_run(&small_in, &small_out, small_arena);
                return status != MCC_OK || logits[0] == 0 || logits[0] - small_logits[0] > 1e-3f;
            }",
        ),
    ] {
        let path = project.folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    project.run("cmake -S . -B build -G 'Unix Makefiles' && cmake --build build -j2 && build/several");
    assert_eq!(project.compiles(), 2);
    project.run("cmake --build build");
    assert_eq!(project.compiles(), 2, "nothing changed");
}

/// A file of weights is a result as the library is: made again where it is not there, with what is made from it, and installed.
fn check_weights_file(generator: &str) {
    let project = Project::new("cmake");
    for edit in [
        ("CMakeLists.txt", "digits.onnx)", "digits.onnx WEIGHTS_FILE \"flash/of weights.bin\")"),
        (
            "CMakeLists.txt",
            "target_link_libraries(classify PRIVATE digits)",
            "target_link_libraries(classify PRIVATE digits)
            target_compile_definitions(classify PRIVATE \"WEIGHTS=\\\"${CMAKE_INSTALL_PREFIX}/share/of weights.bin\\\"\")
            set(weights \"$<TARGET_PROPERTY:digits,MCC_WEIGHTS_FILE>\")
            install(FILES \"${weights}\" DESTINATION share)
            add_custom_command(OUTPUT image COMMAND cat \"${weights}\" >> image DEPENDS digits \"${weights}\" VERBATIM)
            add_custom_target(flash ALL DEPENDS image)",
        ),
        ("main.c", "static _Alignas", "static _Alignas(64) unsigned char weights[DIGITS_WEIGHTS_BYTES];\nstatic _Alignas"),
        ("main.c", "&out, arena)", "&out, arena, weights)"),
        (
            "main.c",
            "**paths) {",
            "**paths) {\nFILE *file = fopen(WEIGHTS, \"rb\");\nif (!file || !fread(weights, sizeof weights, 1, file)) return 2;",
        ),
    ] {
        project.edit(edit);
    }
    project.run(&format!("cmake -S . -B build -G '{generator}' -DCMAKE_INSTALL_PREFIX=\"$PWD/installed\""));
    let build = |compiles: usize, images: u64, what: &str| {
        let output = project.run("cmake --build build");
        assert_eq!(project.compiles(), compiles, "{generator}: {what}: {output}");
        let bytes = |path: &str| fs::metadata(project.folder.join("build").join(path)).unwrap().len();
        assert_eq!(bytes("image"), images * bytes("flash/of weights.bin"), "{generator}: {what}: {output}");
    };
    build(1, 1, "the first build");
    build(1, 1, "nothing changed");
    project.run("cmake --install build");
    project.classify("build/classify", Machine::host());
    project.touch("digits.bin");
    build(2, 2, "the weights changed");
    for (count, gone) in (3..).zip(["flash/of weights.bin", "digits.mcc/digits.h", "digits.mcc/digits.json"]) {
        fs::remove_file(project.folder.join("build").join(gone)).unwrap();
        build(count, count as u64, gone);
        build(count, count as u64, "nothing changed after what was gone");
    }
}

#[test]
fn cmake_with_ninja_and_a_file_of_weights() {
    check_weights_file("Ninja");
}

#[test]
fn cmake_with_make_and_a_file_of_weights() {
    check_weights_file("Unix Makefiles");
}

#[test]
fn make() {
    check(&MAKE, Machine::host());
}

#[test]
fn make_cross_compiling() {
    let system = System { build: "make CC=aarch64-linux-gnu-gcc MCC='mcc --target aarch64'", ..MAKE };
    check(&system, Machine::Aarch64);
}

#[test]
fn meson() {
    check(&MESON, Machine::host());
}

#[test]
fn meson_cross_compiling() {
    check(&MESON, Machine::Aarch64);
}

#[test]
fn pkg_config() {
    let project = Project::new("make");
    let lines = "export PKG_CONFIG_PATH=\"$(mcc --print pkg-config-dir)\"
        pkg-config --atleast-version 0.1 mcc
        eval mcc=$(pkg-config --variable=mcc mcc)
        \"$mcc\" digits.onnx -q -o build/ --emit object
        echo '#include <mcc.h>' | cat - main.c > other.c
        \"$mcc\" digits.onnx -q -o headers/
        rm headers/mcc.h
        eval cc $(pkg-config --cflags mcc) -I headers other.c build/digits.o -o classify";
    project.run(&format!("set -e; {lines}"));
    project.classify("classify", Machine::host());
}

/// Runs a script of CMake on the package; what it printed, whether it succeeded.
fn cmake_script(project: &Project, definitions: &str, text: &str) -> (bool, String) {
    let text = format!("list(APPEND CMAKE_PREFIX_PATH \"{}\")\n{text}", project.prefix.display());
    fs::write(project.folder.join("script.cmake"), text).unwrap();
    let output = project.command(&format!("cmake {definitions} -P script.cmake 2>&1")).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn cmake_takes_versions_that_fit() {
    let project = Project::new("cmake");
    let [major, minor, patch] =
        [0, 1, 2].map(|place| env!("CARGO_PKG_VERSION").split('.').nth(place).unwrap().parse::<u32>().unwrap());
    let (next_major, next_minor, next_patch) = (major + 1, minor + 1, patch + 1);
    for (version, fits) in [
        (String::new(), true),
        (format!("{major}"), true),
        (format!("{major}.{minor}"), true),
        (format!("{major}.{minor}.{patch}"), true),
        (format!("{major}.{minor}.{patch} EXACT"), true),
        (format!("{major}.{minor}...<{major}.{next_minor}"), true),
        (format!("{next_major}"), false),
        (format!("{major}.{next_minor}"), false),
        (format!("{major}.{minor}.{next_patch}"), false),
        (format!("{major}.{minor}.{next_patch} EXACT"), false),
        (format!("{major}.{next_minor}...<{next_major}"), false),
        (format!("{major}.{minor}...<{major}.{minor}.{patch}"), false),
    ] {
        let (found, output) = cmake_script(&project, "", &format!("find_package(mcc {version} REQUIRED)"));
        assert_eq!(found, fits, "{version}: {output}");
    }
}

/// The target follows from what CMake compiles for.
#[test]
fn cmake_derives_the_target() {
    let project = Project::new("cmake");
    let script = "find_package(mcc REQUIRED)\n_mcc_target(target)\nmessage(\"target: ${target}.\")";
    for (system, processor, more, expected) in [
        ("Linux", "x86_64", "", "target: x86_64-unknown-linux-gnu."),
        ("Linux", "aarch64", "", "target: aarch64-unknown-linux-gnu."),
        ("Generic", "aarch64", "", "target: aarch64-unknown-none."),
        ("Generic", "arm64", "", "target: aarch64-unknown-none."),
        ("Generic", "cortex-a53", "", "target: aarch64-unknown-none."),
        ("Android", "aarch64", "", "target: aarch64-linux-android."),
        ("Darwin", "x86_64", "-DAPPLE=1 -DCMAKE_OSX_ARCHITECTURES=arm64", "target: aarch64-apple-darwin."),
        ("Windows", "AMD64", "", "target: x86_64-pc-windows-msvc."),
        ("Windows", "AMD64", "-DMINGW=1", "target: x86_64-pc-windows-gnu."),
        ("FreeBSD", "amd64", "", "target: x86_64-unknown-freebsd."),
        ("Linux", "armv7l", "", "no code for the processor 'armv7l'"),
        ("Generic", "cortex-m4", "", "no code for the processor 'cortex-m4'"),
        ("Linux", "x86_64", "-DCMAKE_SIZEOF_VOID_P=4", "pointers have 4 bytes"),
        ("Haiku", "x86_64", "", "no target is known for the system 'Haiku'"),
    ] {
        let definitions = format!("-DCMAKE_SYSTEM_NAME={system} -DCMAKE_SYSTEM_PROCESSOR={processor} {more}");
        let (_, output) = cmake_script(&project, &definitions, script);
        // Messages are broken into lines.
        let output = output.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.contains(expected), "{system}, {processor}: {output}");
        if let Some(target) = expected.strip_prefix("target: ") {
            let target = target.trim_end_matches('.');
            assert!(targets::Machine::new(target, None).is_ok(), "{target}");
        }
    }
}

#[test]
fn what_is_wrong_is_said_in_the_output() {
    let project = Project::new("cmake");
    let said = |line: &str, message: &str| {
        let output = project.fail(line).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.contains(message), "{line}: {output}");
    };
    for (argument, message) in [
        ("SHAPES image=1", "'SHAPES;image=1' is no argument of it"),
        ("OPTIONS --emit=rust", "OPTIONS must not have --emit=rust"),
        ("OPTIONS --weights-file w", "OPTIONS must not have --weights-file"),
        ("OPTIONS -ofile", "OPTIONS must not have -ofile"),
        ("OPTIONS --stop-after import", "OPTIONS must not have --stop-after"),
        ("WEIGHTS_FILE w)\nmcc_add_model(other digits.onnx WEIGHTS_FILE w", "build/w is that of another model"),
        ("SHAPE", "no value follows SHAPE"),
        ("SHAPE image=1 CPU", "no value follows CPU"),
    ] {
        let old = fs::read_to_string(project.folder.join("CMakeLists.txt")).unwrap();
        project.edit(("CMakeLists.txt", "digits.onnx)", &format!("digits.onnx {argument})")));
        said("rm -rf build; cmake -S . -B build", message);
        fs::write(project.folder.join("CMakeLists.txt"), old).unwrap();
    }
    let package = format!("rm -rf build; cmake -S . -B build -Dmcc_DIR='{}/lib/cmake/mcc'", project.prefix.display());
    fs::write(project.prefix.join("bin/mcc"), "#!/bin/sh\necho mcc 0.0.1\n").unwrap();
    said(&package, "says it is 'mcc 0.0.1', this package is of mcc");
    fs::remove_file(project.prefix.join("bin/mcc")).unwrap();
    said(&package, "The command mcc was not found: put it into PATH");
}

/// Every file below a folder with the time of its last change.
fn files(folder: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), path.symlink_metadata().unwrap().modified().unwrap());
        }
    }
    found
}

/// What `--print` names is there, written once by whichever of several processes, in the user's cache and nowhere else.
#[test]
fn what_is_printed_is_there() {
    let cache = tempfile::tempdir().unwrap();
    let mcc = installed().join("mcc");
    let print = |what: &str| {
        let mut command = Command::new(&mcc);
        command.args(["--print", what]).current_dir(cache.path()).env("XDG_CACHE_HOME", cache.path().join("a cache"));
        command
    };
    let first: Vec<_> = (0..6).map(|_| print("prefix").stdout(Stdio::piped()).spawn().unwrap()).collect();
    let paths: BTreeSet<String> =
        first.into_iter().map(|child| String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()).collect();
    let prefix = PathBuf::from(paths.first().unwrap().trim_end());
    assert!(paths.len() == 1 && prefix.starts_with(cache.path().join("a cache/mcc/prefix")), "{paths:?}");
    let written = files(cache.path());
    assert!(written.keys().all(|path| path.starts_with(&prefix)), "{written:?}");
    for (what, file) in [
        ("prefix", "bin/mcc"),
        ("cmake-dir", "mccConfig.cmake"),
        ("include-dir", "mcc.h"),
        ("pkg-config-dir", "mcc.pc"),
        ("runtime-source", "src/lib.rs"),
        ("zephyr-module", "zephyr/module.yml"),
    ] {
        let path = String::from_utf8(run(&mut print(what))).unwrap();
        assert!(Path::new(path.trim_end()).join(file).exists(), "{what}: {path}");
    }
    assert_eq!(files(cache.path()), written, "what is there is not written again");
    let damaged = prefix.join("include/mcc.h");
    fs::write(&damaged, "").unwrap();
    run(&mut print("prefix"));
    assert_eq!(fs::read_to_string(damaged).unwrap(), mcc_runtime::HEADER);
    let output = print("prefix").env_remove("XDG_CACHE_HOME").env_remove("HOME").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && error.contains("mcc install-files DIR"), "{error}");
}

/// The sources that are written are the crate.
#[test]
fn the_runtime_builds_from_what_is_written() {
    let project = Project::new("cmake");
    let cargo = env!("CARGO");
    project.run(&format!(
        "'{cargo}' check --quiet --offline --features std --manifest-path \"$(mcc --print runtime-source)/Cargo.toml\""
    ));
}

/// What Zephyr does with a module and an application, as far as the module sees it.
const ZEPHYR: &str = "
cmake_minimum_required(VERSION 3.20)
project(zephyr C)
set(CONFIG_MCC y)
CONFIG
add_library(app STATIC)
add_subdirectory(${EXTRA_ZEPHYR_MODULES} modules/mcc)
# The application's own.
target_sources(app PRIVATE main.c)
zephyr_mcc_model(digits digits.onnx)
# The end of Zephyr's.
file(WRITE ${CMAKE_BINARY_DIR}/empty.c)
add_executable(zephyr_final ${CMAKE_BINARY_DIR}/empty.c)
target_link_libraries(zephyr_final -static -Wl,--gc-sections,--fatal-warnings -Wl,--whole-archive app -Wl,--no-whole-archive)
";

/// As Zephyr's, but with a C library to run it.
const ZEPHYR_TOOLCHAIN: &str = "
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR BOARD)
set(CMAKE_C_COMPILER COMPILER)
set(CMAKE_C_FLAGS_INIT \"-std=c99 -ffreestanding -Werror\")
set(CMAKE_FIND_ROOT_PATH /nowhere)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
";

/// The module in a project that has what it uses of Zephyr, for boards and for a simulated one. The CPU has features that nothing
/// but its name tells of.
#[test]
fn zephyr_module() {
    let cases = [
        (Machine::Aarch64, "arm64", "aarch64-linux-gnu-gcc", "set(CONFIG_ARM64 y)\nset(CONFIG_MCC_CPU cortex-a55)"),
        (Machine::X86_64, "x86_64", "x86_64-linux-gnu-gcc", "set(CONFIG_X86_64 y)\nset(CONFIG_MCC_CPU \"\")"),
        (Machine::host(), "posix", "cc", "set(CONFIG_ARCH_POSIX y)\nset(CONFIG_MCC_CPU \"\")"),
    ];
    for (machine, board, compiler, config) in cases {
        let project = Project::new("cmake");
        fs::write(project.folder.join("CMakeLists.txt"), ZEPHYR.replace("CONFIG\n", &format!("{config}\n"))).unwrap();
        let toolchain = ZEPHYR_TOOLCHAIN.replace("BOARD", board).replace("COMPILER)", &format!("{compiler})"));
        fs::write(project.folder.join("toolchain.cmake"), toolchain).unwrap();
        project.run(
            "cmake -S . -B build -G Ninja --toolchain toolchain.cmake \
                -DEXTRA_ZEPHYR_MODULES=\"$(mcc --print zephyr-module)\" && cmake --build build",
        );
        project.classify("build/zephyr_final", machine);
        project.edit(("CMakeLists.txt", "set(CONFIG_MCC y)", ""));
        let output = project.fail("cmake -S . -B build");
        assert!(output.contains("zephyr_mcc_model: set CONFIG_MCC=y in prj.conf"), "{output}");
    }
}

const KCONFIG: &str = "
config ARM64
\tbool \"ARM64\"
\tselect 64BIT
config ARCH_POSIX
\tbool \"ARCH_POSIX\"
config X86_64
\tbool \"X86_64\"
\tselect 64BIT
config 64BIT
\tbool \"64BIT\"
config CPU_HAS_FPU
\tdef_bool y
config CPU_CORTEX_A76_A55
\tdef_bool y if ARM64
config MULTITHREADING
\tdef_bool y
config FPU
\tbool \"FPU\"
\tdepends on CPU_HAS_FPU
config FPU_SHARING
\tbool \"FPU_SHARING\"
\tdepends on FPU && MULTITHREADING
source \"$(MODULE)/Kconfig\"
";

/// The module's symbols among those of Zephyr that they refer to.
#[test]
fn zephyr_kconfig() {
    let project = Project::new("cmake");
    fs::write(project.folder.join("Kconfig"), KCONFIG).unwrap();
    for (given, expected) in [
        ("CONFIG_ARM64=y\nCONFIG_MCC=y\n", "y y y cortex-a55"),
        ("CONFIG_ARM64=y\nCONFIG_MCC=y\nCONFIG_MCC_CPU=\"armv8-a\"\n", "y y y armv8-a"),
        ("CONFIG_ARM64=y\n", "n n n "),
        ("CONFIG_MCC=y\n", "n n n "),
        ("CONFIG_X86_64=y\nCONFIG_MCC=y\n", "y n n "),
        ("CONFIG_ARCH_POSIX=y\nCONFIG_MCC=y\n", "n n n "),
        ("CONFIG_ARCH_POSIX=y\nCONFIG_64BIT=y\nCONFIG_MCC=y\n", "y n n "),
    ] {
        fs::write(project.folder.join("prj.conf"), given).unwrap();
        let script = "import kconfiglib; k = kconfiglib.Kconfig(warn_to_stderr=False); k.load_config('prj.conf'); \
            print(*(k.syms[name].str_value for name in ('MCC', 'FPU', 'FPU_SHARING', 'MCC_CPU')), sep=' ', end='')";
        let line =
            format!("MODULE=\"$(mcc --print zephyr-module)\" PYTHONPATH='{}' python3 -c \"{script}\"", data::kconfig().display());
        assert_eq!(project.run(&line), expected, "{given}");
    }
}
