//! The examples for ARM, copied out of the repository and built with make: the firmware boots under qemu with and without the MMU,
//! sees every digit, and takes what mcc said when it compiled the model; the program for Linux reads images from files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use mcc::driver::{Options, Silent, compile};
use mcc::tools::exec::Executable;
use mcc_support::Tensor;
use mcc_tests::compare::largest;
use mcc_tests::data;
use mcc_tests::machine::{Machine, run};
use serde_json::Value;

const MODELS: [&str; 3] = ["digits_resnet8", "digits_mobilenet", "digits_vit"];
/// Of a firmware, with its images, beyond the weights.
const READ_ONLY_BYTES: u64 = 64 << 10;

/// Variables that `make` is told, folder of what is built.
#[derive(Clone, Copy, Debug)]
struct Variant {
    variable: &'static str,
    build: &'static str,
}

const PLAIN: Variant = Variant { variable: "MMU=", build: "build/plain" };
const MMU: Variant = Variant { variable: "MMU=1", build: "build/mmu" };

/// A copy of an example, in which links became files.
struct Example {
    temporary: tempfile::TempDir,
}

impl Example {
    fn new(name: &str, model: &str) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
        run(Command::new("cp").arg("-rL").arg(example).arg(temporary.path().join("example")));
        let copy = Self { temporary };
        let _ = fs::remove_dir_all(copy.file("build"));
        fs::copy(data::folder().join(format!("models/{model}.onnx")), copy.file("digits.onnx")).unwrap();
        copy
    }

    fn file(&self, name: &str) -> PathBuf {
        self.temporary.path().join("example").join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }

    fn make(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["300", "make", concat!("MCC=", env!("CARGO_BIN_EXE_mcc-command"))]).args(args);
        command.current_dir(self.file(""));
        command
    }

    /// Builds; how many models were compiled.
    fn compiles(&self, args: &[&str]) -> usize {
        String::from_utf8(run(&mut self.make(args))).unwrap().lines().filter(|line| line.contains(".onnx")).count()
    }

    /// The model is compiled when it changed, and only then.
    fn rebuilds_what_changed(&self, args: &[&str]) {
        assert_eq!(self.compiles(args), 1, "the first build");
        assert_eq!(self.compiles(args), 0, "nothing changed");
        File::options().append(true).open(self.file("digits.onnx")).unwrap().set_modified(SystemTime::now()).unwrap();
        assert_eq!(self.compiles(args), 1, "the model changed");
        assert_eq!(self.compiles(args), 0, "nothing changed after the model");
    }

    /// Starts the firmware on a machine of qemu, `virt` with options, with so many nanoseconds for an instruction as a power of two.
    fn boot(&self, variant: Variant, machine: &str, shift: u32) -> Output {
        let qemu = format!(
            "QEMU=qemu-system-aarch64 -M {machine} -cpu cortex-a53 -icount shift={shift} -nographic -nic none -semihosting"
        );
        let mut command = self.make(&["--silent", "run", variant.variable, &qemu]);
        command.output().unwrap_or_else(|error| panic!("{error}: run tests/tools/setup.py, as ./test does"))
    }
}

/// What a firmware printed.
struct Report(String);

impl Report {
    fn new(output: &Output) -> Self {
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        Self(text.replace('\r', ""))
    }

    fn number(&self, name: &str) -> u64 {
        let rest = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let number = rest.and_then(|rest| rest.split(' ').next()?.parse().ok());
        number.unwrap_or_else(|| panic!("no {name} in\n{}", self.0))
    }
}

/// Where a linker's map has the sections of an object file whose names begin with `section`.
fn mapped(map: &str, section: &str, object: &str) -> Vec<Range<u64>> {
    let placed = map.split_once("Linker script and memory map").expect("the map has a second part").1;
    let words: Vec<&str> = placed.split_whitespace().collect();
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let entries = words.windows(4).filter(|entry| entry[0].starts_with(section) && entry[3].ends_with(object));
    let ranges = entries.filter_map(|entry| Some(number(entry[1])?..number(entry[1])? + number(entry[2])?));
    ranges.filter(|range| !range.is_empty()).collect()
}

/// From the first to the last byte of such sections.
fn mapped_bytes(map: &str, section: &str, object: &str) -> u64 {
    let ranges = mapped(map, section, object);
    let start = ranges.iter().map(|range| range.start).min();
    start.map_or(0, |start| ranges.iter().map(|range| range.end).max().unwrap_or(start) - start)
}

/// What was printed, what mcc wrote when it compiled, and what the linker wrote agree.
fn figures_agree(example: &Example, variant: Variant, report: &Report) {
    let manifest: Value = serde_json::from_str(&example.text(&format!("{}/net.json", variant.build))).unwrap();
    let stated = |name: &str| manifest[name].as_u64().unwrap();
    let map = example.text(&format!("{}/firmware.map", variant.build));
    assert_eq!(report.number("arena"), stated("arena_bytes"));
    assert_eq!(mapped_bytes(&map, ".bss.arena", "/main.o"), stated("arena_bytes"));
    let (used, planned) = (report.number("stack of a run"), report.number("stack planned"));
    assert_eq!(planned, stated("stack_bytes"));
    assert!(used <= planned && planned <= 2 * used, "{planned} bytes of stack were planned and {used} used");
    assert_eq!(mapped_bytes(&map, ".text", "/net.o"), stated("code_bytes"));
    assert_eq!(mapped_bytes(&map, ".rodata.net_weights", "/net.o"), stated("weights_bytes"));
    assert_eq!(mapped_bytes(&map, ".rodata.net_model", "/net.o"), stated("description_bytes"));
    assert_eq!(mapped(&map, ".rodata", "/net.o").len(), 2);
    assert!(mapped(&map, ".data", "/net.o").is_empty() && mapped(&map, ".bss", "/net.o").is_empty());
    assert_eq!(report.number("weights"), stated("weights_bytes"));
    let (code, read_only) = (report.number("code"), report.number("rodata"));
    assert!(code > stated("code_bytes") && read_only > stated("weights_bytes") + stated("description_bytes"));
    let beyond = code + read_only - stated("weights_bytes");
    assert!(beyond <= READ_ONLY_BYTES, "{beyond} bytes of code and read-only data beyond the weights");
}

/// Where a model, in this process, sees another digit than the image's name tells; of images by their names, which digit it is.
fn mistaken(example: &Example) -> BTreeMap<String, usize> {
    let compilation = compile(&Options::new(example.file("digits.onnx")), &mut Silent).unwrap();
    let mut executable = Executable::load(compilation.linked()).unwrap();
    let mut mistaken = BTreeMap::new();
    for (name, digit) in images() {
        let bytes = fs::read(example.file(&format!("images/{name}.pgm"))).unwrap();
        let pixels: Vec<f32> = bytes[bytes.len() - 28 * 28..].iter().map(|&pixel| f32::from(pixel) / 255.0).collect();
        let mut binding = executable.bind(&[Tensor::from_elements([1, 1, 28, 28], &pixels)]).unwrap();
        assert_eq!(executable.run(&mut binding), 0);
        let (seen, _) = largest(&executable.outputs(&binding)[0]);
        if seen != digit {
            mistaken.insert(name, seen);
        }
    }
    mistaken
}

/// Names of the images, and what they show.
fn images() -> Vec<(String, usize)> {
    (0..10).flat_map(|digit| ["", "b"].map(|which| (format!("{digit}{which}"), digit))).collect()
}

fn boots(variant: Variant) {
    for model in MODELS {
        let example = Example::new("bare-metal-aarch64", model);
        let mistaken = mistaken(&example);
        let output = example.boot(variant, "virt", 0);
        let report = Report::new(&output);
        assert_eq!(output.status.success(), mistaken.is_empty(), "{model}, {variant:?}: {}", report.0);
        for (name, digit) in images() {
            let said = mistaken.get(&name).map_or(format!("{digit}, right"), |seen| format!("{seen}, wrong"));
            assert!(report.0.contains(&format!("\n{name}.pgm: {said}\n")), "{model}, {variant:?}: {name} in {}", report.0);
        }
        figures_agree(&example, variant, &report);
        if model != MODELS[0] {
            continue;
        }
        assert!(mistaken.is_empty(), "{mistaken:?}");
        assert!(report.0.contains("started at EL1\n"), "{}", report.0);
        for (machine, start) in [("virt,virtualization=on", "started at EL2\n"), ("virt,secure=on", "started at EL3\n")] {
            let output = example.boot(variant, machine, 1);
            let slower = Report::new(&output);
            assert!(output.status.success() && slower.0.contains(start), "{machine}: {}", slower.0);
            // The counter counts instructions: where each takes twice as long, so does a run.
            let ratio = slower.number("a run") as f64 / report.number("a run") as f64;
            assert!((ratio - 2.0).abs() < 1e-3, "{ratio}");
        }
    }
}

#[test]
fn firmware_takes_another_model_and_the_bytes_of_its_input() {
    let references = data::references();
    let reference = references.iter().find(|reference| reference.name == "blazeface_front").expect("it is fetched");
    let (input, output) = (&reference.examples[0].inputs, &reference.examples[0].outputs);
    let compilation = compile(&Options::new(&reference.model), &mut Silent).unwrap();
    let first = &compilation.linked().model.outputs[0].name;
    let example = Example::new("bare-metal-aarch64", MODELS[0]);
    let file = format!("{}.bin", largest(&output[first]).0);
    fs::write(example.file(&file), input.values().next().unwrap().data()).unwrap();
    let variables = [format!("MODEL={}", reference.model.display()), format!("INPUTS={file}")];
    let text = String::from_utf8(run(&mut example.make(&["--silent", "run", &variables[0], &variables[1]]))).unwrap();
    assert!(text.contains(", right") && text.contains("1 of 1 right"), "{text}");
}

#[test]
fn firmware_boots_without_the_mmu() {
    boots(PLAIN);
}

#[test]
fn firmware_boots_with_the_mmu() {
    boots(MMU);
}

#[test]
fn firmware_without_the_mmu_notices_an_unaligned_access() {
    let example = Example::new("bare-metal-aarch64", MODELS[0]);
    run(&mut example.make(&["MCCFLAGS=--strict-align off"]));
    let output = example.boot(PLAIN, "virt", 0);
    let report = Report::new(&output);
    // A data abort without a change of exception level, by an address that is not aligned.
    let syndrome = report.0.split_once("syndrome ").map(|(_, rest)| u64::from_str_radix(&rest[..16], 16).unwrap());
    let is_unaligned = |syndrome: u64| syndrome >> 26 == 0x25 && syndrome & 0x3f == 0x21;
    assert!(!output.status.success() && syndrome.is_some_and(is_unaligned), "{}", report.0);
}

#[test]
fn only_what_changed_is_built_again() {
    Example::new("bare-metal-aarch64", MODELS[1]).rebuilds_what_changed(&[]);
    Example::new("arm-linux", MODELS[1]).rebuilds_what_changed(&[]);
}

#[test]
fn program_for_linux_reads_images() {
    let example = Example::new("arm-linux", MODELS[0]);
    run(&mut example.make(&[]));
    let mut program = Machine::Aarch64.program(&example.file("build/digits"));
    let output = run(program.args(images().iter().map(|(name, _)| format!("images/{name}.pgm"))).current_dir(example.file("")));
    let want: String = images().iter().map(|(name, digit)| format!("images/{name}.pgm: {digit}\n")).collect();
    assert_eq!(String::from_utf8(output).unwrap(), want);
}
