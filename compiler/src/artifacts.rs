//! Compiling from a program, as a build script does.
//!
//! ```no_run
//! # fn main() -> Result<(), mcc::Error> {
//! let artifacts = mcc::compile(&mcc::Options::new("digits.onnx"))?;
//! artifacts.write("out".as_ref())?; // digits.o, digits.h, mcc.h, digits.json
//! for path in artifacts.dependencies() {
//!     println!("cargo::rerun-if-changed={}", path.display());
//! }
//! # Ok(()) }
//! ```

use std::path::{Path, PathBuf};

use mcc_support::{Error, Result};

use crate::driver::{self, Compilation, Options, Silent};
use crate::emit::Sizes;
use crate::outputs;

/// A compiled model, in memory.
#[derive(Debug)]
pub struct Artifacts(Compilation);

/// Compiles a model, through all stages whatever the options say.
///
/// # Errors
///
/// What is wrong with the model or the options.
pub fn compile(options: &Options) -> Result<Artifacts> {
    let options = Options { stop_after: None, ..options.clone() };
    driver::compile(&options, &mut Silent).map(Artifacts)
}

impl Artifacts {
    /// Prefix of the symbols.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn object(&self) -> Vec<u8> {
        self.0.linked().object()
    }

    pub fn static_library(&self) -> Vec<u8> {
        self.0.linked().static_library()
    }

    /// The C header of the model; it includes `mcc.h`, which is [`mcc_runtime::HEADER`].
    pub fn header(&self) -> String {
        self.0.linked().header()
    }

    /// The weights, where [`Options::weights`] leaves them out of the object.
    pub fn weights_file(&self) -> Option<Vec<u8>> {
        self.0.linked().weights_file()
    }

    /// A Rust module, which a program includes that has `mcc-runtime`: see [`mcc_runtime::include_model`].
    pub fn rust(&self) -> String {
        self.0.linked().rust()
    }

    /// JSON: sizes, tensors, kernels.
    pub fn manifest(&self) -> String {
        self.0.linked().manifest()
    }

    pub fn sizes(&self) -> Sizes {
        self.0.linked().sizes
    }

    pub fn warnings(&self) -> &[String] {
        &self.0.warnings
    }

    /// The files that the result depends on.
    pub fn dependencies(&self) -> Vec<PathBuf> {
        self.0.dependencies()
    }

    /// Writes object, headers, manifest and, where they are apart, weights into a folder, which is made where it is not there.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(|error| {
            Error::new(format!("cannot make the folder: {error}")).context(format!("in folder '{}'", folder.display()))
        })?;
        let path = |extension: &str| folder.join(format!("{}.{extension}", self.name()));
        let mut files = vec![
            (path("o"), self.object()),
            (path("h"), self.header().into_bytes()),
            (folder.join("mcc.h"), mcc_runtime::HEADER.as_bytes().to_vec()),
            (path("json"), self.manifest().into_bytes()),
        ];
        files.extend(self.weights_file().map(|weights| (path("weights"), weights)));
        outputs::write_all(&files)
    }
}
