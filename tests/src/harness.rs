//! Runs compiled models in a C program that holds them to the interface; see `abi/harness.c`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mcc_support::{Tensor, TensorType};
use tempfile::TempDir;

use crate::machine::{Machine, run, try_run};

/// How the models get into the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// A position-independent executable, what compilers make by default.
    Pie,
    /// Without any shared library, at a fixed address.
    Static,
    /// The models in a shared library.
    Shared,
    /// By `ld` alone, without a C library; see `abi/bare.c`. Checks nothing but the results.
    Bare,
    /// The same as firmware of a board for aarch64, on which accesses that are not aligned fault: its start-up code is that of the example.
    Board,
}

impl Link {
    /// Those that every machine has.
    pub const ALL: [Link; 4] = [Link::Pie, Link::Static, Link::Shared, Link::Bare];
}

/// One run of a model.
#[derive(Clone, Debug)]
pub struct Record {
    /// Which of the harness's models.
    pub model: usize,
    /// Extents known only at run time.
    pub dims: Vec<i64>,
    pub inputs: Vec<Tensor>,
    /// With the extents of this run; none where it is refused.
    pub outputs: Vec<TensorType>,
    /// Number of extents that the run finds.
    pub count_count: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub status: i32,
    pub counts: Vec<i64>,
    pub outputs: Vec<Tensor>,
}

#[derive(Debug)]
pub struct Harness {
    machine: Machine,
    link: Link,
    folder: PathBuf,
    program: PathBuf,
}

/// Models that are linked into one program, in which each runs once.
#[derive(Debug)]
pub struct Program {
    folder: TempDir,
    names: Vec<String>,
    objects: Vec<PathBuf>,
    records: Vec<Record>,
}

impl Program {
    pub fn new() -> Program {
        let folder = TempDir::new().expect("a temporary folder");
        Program { folder, names: Vec::new(), objects: Vec::new(), records: Vec::new() }
    }

    /// Adds a model of this name, which no other has, and its run for these inputs.
    pub fn add(&mut self, name: String, object: &[u8], inputs: Vec<Tensor>, outputs: Vec<TensorType>) {
        let path = self.folder.path().join(format!("{name}.o"));
        fs::write(&path, object).expect("the test's folder can be written");
        self.records.push(Record { model: self.names.len(), dims: Vec::new(), inputs, outputs, count_count: 0 });
        self.objects.push(path);
        self.names.push(name);
    }

    /// Of each model, in the order in which they were added. Panics with what rule of the interface a model broke.
    pub fn run(self, machine: Machine, link: Link) -> Vec<Outcome> {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let harness = Harness::build(machine, link, &names, &self.objects, self.folder.path());
        harness.run(&self.records, 1).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Default for Program {
    fn default() -> Self {
        Self::new()
    }
}

/// The folder of `mcc.h`.
pub fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/include")
}

/// A source of `tests/abi`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("abi").join(name)
}

impl Harness {
    /// Links the models of these objects, each exporting `NAME_model`, in `folder`.
    pub fn build(machine: Machine, link: Link, names: &[&str], objects: &[PathBuf], folder: &Path) -> Harness {
        let mut table = String::from("#include \"mcc.h\"\n");
        names.iter().for_each(|name| writeln!(table, "extern const mcc_model {name}_model;").expect("text grows"));
        let entries: Vec<String> = names.iter().map(|name| format!("&{name}_model")).collect();
        writeln!(table, "const mcc_model *const models[] = {{{}}};", entries.join(", ")).expect("text grows");
        writeln!(table, "const uint32_t model_count = {};", names.len()).expect("text grows");
        let models = folder.join("models.c");
        fs::write(&models, table).expect("the test's folder can be written");
        let program = folder.join("harness");
        match link {
            Link::Bare => Self::link_bare(machine, &[source("bare.c"), models], objects, [&[], &[]], folder, &program),
            Link::Board => Self::link_firmware(machine, models, objects, folder, &program),
            _ => Self::link_hosted(machine, link, &models, objects, folder, &program),
        }
        Harness { machine, link, folder: folder.to_path_buf(), program }
    }

    fn link_hosted(machine: Machine, link: Link, models: &Path, objects: &[PathBuf], folder: &Path, program: &Path) {
        let mut command = machine.tool("gcc");
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-I"]).arg(include());
        command.args([source("harness.c"), source("checked_call.S"), models.to_path_buf()]).arg("-o").arg(program);
        match link {
            Link::Pie => _ = command.args(["-fPIE", "-pie"]).args(objects),
            Link::Static => _ = command.args(["-fno-pie", "-static"]).args(objects),
            Link::Shared => {
                let library = folder.join("libmodels.so");
                // A text relocation would make the library's code writable while it loads.
                run(machine.tool("gcc").args(["-shared", "-nostdlib", "-Wl,-z,text", "-o"]).arg(&library).args(objects));
                // The table needs the address of the library's own description: a copy would lose what it refers to.
                command.arg("-fPIC").arg(library).arg(format!("-Wl,-rpath,{}", folder.display()));
            }
            Link::Bare | Link::Board => unreachable!("linked by ld"),
        }
        run(&mut command);
    }

    /// Compiles the sources and links all with `ld`.
    fn link_bare(machine: Machine, sources: &[PathBuf], objects: &[PathBuf], extra: [&[&str]; 2], folder: &Path, program: &Path) {
        let [compiled, linked] = extra;
        let mut link = machine.tool("ld");
        link.args(["--fatal-warnings", "-z", "noexecstack"]).args(linked).arg("-o").arg(program).args(objects);
        for (index, source) in sources.iter().enumerate() {
            let object = folder.join(format!("source{index}.o"));
            let mut compile = machine.tool("gcc");
            // Loops that copy stay loops: there is no memcpy to call.
            compile.args([
                "-std=gnu11",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-O1",
                "-ffreestanding",
                "-fno-tree-loop-distribute-patterns",
            ]);
            compile.args(["-fno-stack-protector", "-fno-pie", "-c", "-I"]).arg(include()).args(compiled);
            run(compile.arg(source).arg("-o").arg(&object));
            link.arg(object);
        }
        run(&mut link);
    }

    fn link_firmware(machine: Machine, models: PathBuf, objects: &[PathBuf], folder: &Path, program: &Path) {
        let example = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/bare-metal-aarch64").join(name);
        let sources = [source("bare.c"), models, example("start.S"), example("board.c")];
        let script = example("link.ld").display().to_string();
        let linked = ["-T", &script, "--defsym=__stack_bytes=0x100000"];
        Self::link_bare(machine, &sources, objects, [&["-DBOARD", "-mstrict-align"], &linked], folder, program);
        run(machine.tool("objcopy").args(["-O", "binary"]).arg(program).arg(program.with_extension("bin")));
    }

    /// Runs every record, in `threads` threads at once.
    ///
    /// # Errors
    ///
    /// What rule of the interface a model broke.
    pub fn run(&self, records: &[Record], threads: usize) -> Result<Vec<Outcome>, String> {
        let mut bytes = Vec::new();
        for record in records {
            bytes.extend((record.model as u32).to_le_bytes());
            record.dims.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
            record.inputs.iter().for_each(|input| bytes.extend_from_slice(input.data()));
        }
        let (input, output) = (self.folder.join("records"), self.folder.join("results"));
        fs::write(&input, bytes).expect("the test's folder can be written");
        let mut command = self.machine.program(&self.program);
        let results = match self.link {
            Link::Bare => try_run(command.stdin(Stdio::from(fs::File::open(&input).expect("just written"))))?,
            Link::Board => {
                try_run(&mut self.board()).map_err(|error| self.locate(error))?;
                fs::read(&output).expect("the firmware wrote its results")
            }
            _ => {
                try_run(command.arg("-t").arg(threads.to_string()).arg(&input).arg(&output))?;
                fs::read(&output).expect("the harness wrote its results")
            }
        };
        Ok(Self::outcomes(records, &results))
    }

    fn board(&self) -> Command {
        let mut board = Command::new("timeout");
        board.args([
            "300", "qemu-system-aarch64", "-M", "virt", "-cpu", "max", "-display", "none", "-nic", "none", "-semihosting",
        ]);
        board.args(["-serial", "file:/dev/stderr", "-bios"]).arg(self.program.with_extension("bin")).current_dir(&self.folder);
        board
    }

    /// What a firmware said, and in which function it was.
    fn locate(&self, error: String) -> String {
        let Some((_, rest)) = error.split_once("code at ") else { return error };
        let mut tool = self.machine.tool("addr2line");
        let place = tool.arg("-f").arg("-e").arg(&self.program).arg(&rest[..rest.len().min(16)]);
        format!("{error}in {}", String::from_utf8_lossy(&run(place)))
    }

    fn outcomes(records: &[Record], mut results: &[u8]) -> Vec<Outcome> {
        let mut take = |count: usize| {
            let (taken, rest) = results.split_at_checked(count).expect("the harness's results are shorter than its outputs");
            results = rest;
            taken.to_vec()
        };
        let outcomes = records
            .iter()
            .map(|record| Outcome {
                status: i32::from_le_bytes(take(4).try_into().expect("4 bytes")),
                counts: (0..record.count_count).map(|_| i64::from_le_bytes(take(8).try_into().expect("8 bytes"))).collect(),
                outputs: record.outputs.iter().map(|ty| Tensor::new(ty.clone(), take(ty.size_bytes()))).collect(),
            })
            .collect();
        assert!(results.is_empty(), "the harness's results are longer than its outputs");
        outcomes
    }
}
