//! Compiles models in `build.rs`, with the compiler as a library.
//!
//! ```no_run
//! // build.rs
//! mcc_build::Model::new("digits.onnx").compile();
//! mcc_build::Model::new("models/detect.onnx")
//!     .name("detect")
//!     .cpu("cortex-a53")
//!     .shape("image", [1, 3, 320, 320])
//!     .dim("boxes", 1..=100)
//!     .compile();
//! ```
//!
//! The program, which depends on `mcc-runtime`, gets a module of the model's name by `mcc_runtime::include_model!(digits);`. The model is
//! compiled for the target that the program is built for, and again when the model, its external data or the build script changes.
//! Large models compile faster with `[profile.dev.build-override] opt-level = 3` in `Cargo.toml`.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::{env, fs, process, thread};

pub use mcc::{Artifacts, BranchProtection, Error, Options, WeightsPlace};

/// As that of the command: models may be nested deeply.
const STACK_BYTES: usize = 256 << 20;

/// A model, and how it is compiled.
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `compile`"]
pub struct Model {
    options: Options,
    target: Option<String>,
}

/// An extent that is fixed, or a range from which each run takes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    Fixed(usize),
    Range(RangeInclusive<usize>),
}

impl From<usize> for Extent {
    fn from(extent: usize) -> Self {
        Extent::Fixed(extent)
    }
}

impl From<RangeInclusive<usize>> for Extent {
    fn from(range: RangeInclusive<usize>) -> Self {
        Extent::Range(range)
    }
}

impl Model {
    /// An ONNX model, by its path from the package's folder.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { options: Options::new(path), target: None }
    }

    /// The name of the module and prefix of the symbols, in place of the one that follows from the name of the file.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// As `mcc --target` takes it, in place of cargo's.
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// As `mcc --cpu` takes it.
    pub fn cpu(mut self, cpu: impl Into<String>) -> Self {
        self.options.cpu = Some(cpu.into());
        self
    }

    /// Fixes the shape of an input, but for the extents that are ranges.
    pub fn shape<E: Into<Extent>>(mut self, input: &str, extents: impl IntoIterator<Item = E>) -> Self {
        let mut shape = Vec::new();
        for (axis, extent) in extents.into_iter().enumerate() {
            match extent.into() {
                Extent::Fixed(extent) => shape.push(extent),
                Extent::Range(range) => {
                    shape.push(*range.end());
                    self.options.import.axis_ranges.insert((input.to_string(), axis), range.into_inner());
                }
            }
        }
        self.options.import.shapes.insert(input.to_string(), shape);
        self
    }

    /// Fixes the extent of a dimension that the model names, or gives its range.
    pub fn dim(mut self, name: &str, extent: impl Into<Extent>) -> Self {
        match extent.into() {
            Extent::Fixed(extent) => drop(self.options.import.dims.insert(name.to_string(), extent)),
            Extent::Range(range) => drop(self.options.import.ranges.insert(name.to_string(), range.into_inner())),
        }
        self
    }

    /// Changes any other option.
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Compiles the model, links it with the package and writes its module for `include_model!`. What is wrong with the model becomes an
    /// error of the build, and the build script ends.
    pub fn compile(self) -> Artifacts {
        // Also of a model that does not compile.
        println!("cargo::rerun-if-changed={}", self.options.model.display());
        self.try_compile().unwrap_or_else(|error| {
            error.to_string().lines().for_each(|line| println!("cargo::error={line}"));
            process::exit(1);
        })
    }

    /// The same for a build script that goes on after an error.
    ///
    /// # Errors
    ///
    /// What is wrong with the model, the options or the file system.
    ///
    /// # Panics
    ///
    /// Outside of a build script, which cargo tells the target and the folder for what is made.
    pub fn try_compile(self) -> Result<Artifacts, Error> {
        let variable =
            |name: &str| env::var(name).unwrap_or_else(|_| panic!("{name} is not set: this is no build script of cargo's"));
        let target = self.target.unwrap_or_else(|| variable("TARGET"));
        let options = Options { target, ..self.options };
        let compile = move || mcc::compile(&options);
        let compiled = thread::Builder::new().stack_size(STACK_BYTES).spawn(compile).expect("a thread can be started").join();
        let artifacts = compiled.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let (folder, name) = (variable("OUT_DIR"), artifacts.name());
        // Libraries of the system may have the model's name.
        let library = format!("{name}_mcc");
        write(Path::new(&folder), &format!("lib{library}.a"), &artifacts.static_library())?;
        write(Path::new(&folder), &format!("{name}.rs"), artifacts.rust().as_bytes())?;
        if let Some(weights) = artifacts.weights_file() {
            write(Path::new(&folder), &format!("{name}.weights"), &weights)?;
        }
        println!("cargo::rustc-link-search=native={folder}");
        println!("cargo::rustc-link-lib=static={library}");
        artifacts.dependencies().iter().for_each(|file| println!("cargo::rerun-if-changed={}", file.display()));
        artifacts.warnings().iter().for_each(|warning| println!("cargo::warning={warning}"));
        Ok(artifacts)
    }
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), Error> {
    let path = folder.join(name);
    fs::write(&path, bytes)
        .map_err(|error| Error::new(format!("cannot write the file: {error}")).context(format!("in file '{}'", path.display())))
}
