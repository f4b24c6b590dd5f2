//! Reading and writing ONNX models.
//!
//! ```text
//! file ─decode─► Model (every field of the file) ─flatten─► FlatGraph (no function calls, in order, every name defined)
//! ```
//!
//! A [`Model`] keeps the whole message: tools that edit models change [`Model::proto`] and write it back. Nothing below this
//! module sees protobuf: import reads a [`FlatGraph`], the [`Attributes`] of its nodes and its initializers as tensors.

pub mod attributes;
pub mod external;
pub(crate) mod file;
pub mod functions;
pub mod graph;
pub mod proto;
pub mod tensor;
pub mod types;

use std::path::Path;

use bytes::Bytes;
use mcc_support::{Error, Result, Tensor};
use prost::Message;
use sha2::{Digest, Sha256};

pub use attributes::{AttributeValue, Attributes};
pub use external::ExternalFiles;
pub use functions::flatten;
pub use graph::{Declared, FlatGraph, Initializer, Node};
pub use types::{DeclaredDim, DeclaredType};

use proto::{ModelProto, TensorProto};

/// IR versions that can be read: 13 is that of onnx 1.22.
pub const IR_VERSIONS: std::ops::RangeInclusive<i64> = 3..=13;
/// Versions of the default operator set that can be read: 27 is the newest of onnx 1.22. Of those before 7, only operators that
/// did not change up to there can be compiled.
pub const OPSETS: std::ops::RangeInclusive<i64> = 1..=27;

/// An ONNX model as its file has it. Payloads share the mapped file.
#[derive(Debug)]
pub struct Model {
    pub proto: ModelProto,
    sha256: [u8; 32],
    files: ExternalFiles,
}

impl Model {
    /// Maps and decodes a file. Fails on a file that cannot be read, is no ONNX model, or is damaged; versions, names and
    /// payloads are checked later, by [`flatten`] and [`tensor::tensor`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let place = || format!("in file '{}'", path.display());
        let bytes = file::read(path).map_err(|error| error.context(place()))?;
        let folder = match path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => Path::new("/"),
        };
        Self::decode(bytes, ExternalFiles::in_folder(folder)).map_err(|error| error.context(place()))
    }

    /// Decodes a model that has no folder: its tensors cannot be in external files.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Self> {
        Self::decode(bytes.into(), ExternalFiles::none())
    }

    fn decode(bytes: Bytes, files: ExternalFiles) -> Result<Self> {
        let sha256 = Sha256::digest(&bytes).into();
        let proto = ModelProto::decode(bytes.clone()).map_err(|error| {
            file::not_onnx(&bytes).unwrap_or_else(|| Error::new(format!("the model is damaged or cut short: {error}")))
        })?;
        if proto.graph.is_none() {
            return Err(file::not_onnx(&bytes).unwrap_or_else(|| Error::new("the model has no graph")));
        }
        Ok(Self { proto, sha256, files })
    }

    /// SHA-256 of the bytes that were decoded; external files are not part of it.
    pub fn sha256(&self) -> &[u8; 32] {
        &self.sha256
    }

    /// Where external tensors are looked for; `None` for a model that was not read from a file.
    pub fn folder(&self) -> Option<&Path> {
        self.files.folder()
    }

    pub fn files(&self) -> &ExternalFiles {
        &self.files
    }

    /// The value of a tensor of this model, as [`tensor::tensor`] reads it.
    pub fn tensor(&self, proto: &TensorProto) -> Result<Tensor> {
        tensor::tensor(proto, &self.files)
    }

    /// The message as bytes, fields in the order of their numbers as other writers put them.
    pub fn encode(&self) -> Vec<u8> {
        self.proto.encode_to_vec()
    }

    /// Writes the message to a file, all of it or nothing. External files are not copied: a model that refers to some must
    /// be saved into their folder.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        crate::outputs::write(path.as_ref(), &self.encode())
    }
}

#[cfg(test)]
pub(crate) mod tests;
