//! Runs compiled models in a C program that holds them to the interface; see `abi/harness.c`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use mcc_support::{Tensor, TensorType};

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
}

impl Link {
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
        if link == Link::Bare {
            Self::link_bare(machine, &models, objects, folder, &program);
        } else {
            Self::link_hosted(machine, link, &models, objects, folder, &program);
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
            Link::Bare => unreachable!("linked by ld"),
        }
        run(&mut command);
    }

    fn link_bare(machine: Machine, models: &Path, objects: &[PathBuf], folder: &Path, program: &Path) {
        let mut link = machine.tool("ld");
        link.args(["--fatal-warnings", "-z", "noexecstack", "-o"]).arg(program).args(objects);
        for (name, source) in [("bare.o", source("bare.c")), ("table.o", models.to_path_buf())] {
            let object = folder.join(name);
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
            compile.args(["-fno-stack-protector", "-fno-pie", "-c", "-I"]).arg(include());
            run(compile.arg(source).arg("-o").arg(&object));
            link.arg(object);
        }
        run(&mut link);
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
        let results = if self.link == Link::Bare {
            try_run(command.stdin(Stdio::from(fs::File::open(&input).expect("just written"))))?
        } else {
            try_run(command.arg("-t").arg(threads.to_string()).arg(&input).arg(&output))?;
            fs::read(&output).expect("the harness wrote its results")
        };
        Ok(Self::outcomes(records, &results))
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
