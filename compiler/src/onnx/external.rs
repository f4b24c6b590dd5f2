//! Payloads of tensors that stand in files beside the model.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use bytes::Bytes;
use mcc_support::{Error, Result, bail, ensure};

use super::file;
use super::proto::TensorProto;

/// The external files of one model; each is mapped once, when it is first read.
#[derive(Debug)]
pub struct ExternalFiles {
    folder: Option<PathBuf>,
    maps: Mutex<BTreeMap<PathBuf, Bytes>>,
}

/// The entries of `TensorProto.external_data`. A `checksum` is not read: it is optional, and of the whole file.
struct Location<'a> {
    path: &'a str,
    offset: usize,
    length: Option<usize>,
}

impl ExternalFiles {
    /// Of a model without a folder: every external tensor is an error.
    pub const fn none() -> Self {
        Self { folder: None, maps: Mutex::new(BTreeMap::new()) }
    }

    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), maps: Mutex::new(BTreeMap::new()) }
    }

    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The files that were read, by their true paths.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.maps.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).keys().cloned().collect()
    }

    /// The payload of an external tensor, which must be of `size_bytes`; shares the mapping. Errors name the file, and do not
    /// name the tensor. Refused: paths that are absolute or leave the folder, also through a symbolic link; ranges outside
    /// of the file; a length other than `size_bytes`.
    pub fn payload(&self, tensor: &TensorProto, size_bytes: usize) -> Result<Bytes> {
        let location = Location::parse(tensor)?;
        let read = || {
            let bytes = self.map(location.path)?;
            let available = bytes.len().checked_sub(location.offset).ok_or_else(|| {
                Error::new(format!("the offset {} is past the end of the file, which has {} bytes", location.offset, bytes.len()))
            })?;
            if let Some(length) = location.length {
                ensure!(
                    length == size_bytes,
                    "the length {length} disagrees with the tensor's type, which takes {size_bytes} bytes"
                );
            }
            ensure!(
                size_bytes <= available,
                "the file ends after {} bytes; the tensor takes {size_bytes} at offset {}",
                bytes.len(),
                location.offset
            );
            ensure!(
                location.length.is_some() || size_bytes == available,
                "no length is given and {available} bytes follow offset {}, but the tensor takes {size_bytes}",
                location.offset
            );
            Ok(bytes.slice(location.offset..location.offset + size_bytes))
        };
        read().map_err(|error: Error| error.context(format!("in external file '{}'", location.path)))
    }

    fn map(&self, location: &str) -> Result<Bytes> {
        let path = self.resolve(location)?;
        let mut maps = self.maps.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(bytes) = maps.get(&path) {
            return Ok(bytes.clone());
        }
        let open = || -> std::io::Result<Bytes> {
            let file = File::open(&path)?;
            let size_bytes = file.metadata()?.len();
            file::map(&file, size_bytes)
        };
        let bytes = open().map_err(|error| Error::new(format!("cannot read the file: {error}")))?;
        maps.insert(path, bytes.clone());
        Ok(bytes)
    }

    /// The true path of a regular file inside the folder.
    fn resolve(&self, location: &str) -> Result<PathBuf> {
        let Some(folder) = &self.folder else {
            bail!("the model was not read from a file, so that external files have no folder");
        };
        let inside = |component: Component<'_>| matches!(component, Component::Normal(_) | Component::CurDir);
        ensure!(
            !location.contains(['\0', '\\']) && Path::new(location).components().all(inside),
            "external data must be inside the model's folder, given by a relative path without '..'"
        );
        let missing = |error: std::io::Error| {
            Error::new(format!("cannot read the file: {error}")).help(format!("it must be in '{}'", folder.display()))
        };
        let folder_true = fs::canonicalize(folder).map_err(missing)?;
        let path = fs::canonicalize(folder.join(location)).map_err(missing)?;
        if !path.starts_with(&folder_true) {
            return Err(Error::new("external data must be inside the model's folder, but a symbolic link leads out of it")
                .help("replace the link by the file itself"));
        }
        ensure!(fs::metadata(&path).map_err(missing)?.is_file(), "external data must be a regular file");
        Ok(path)
    }
}

impl<'a> Location<'a> {
    fn parse(tensor: &'a TensorProto) -> Result<Self> {
        let (mut path, mut offset, mut length) = (None, None, None);
        for entry in &tensor.external_data {
            match entry.key() {
                "location" => {
                    ensure!(path.is_none(), "external data has two locations");
                    path = Some(entry.value());
                }
                key @ ("offset" | "length") => {
                    let number = entry.value().trim().parse::<usize>().map_err(|_| {
                        Error::new(format!("the {key} of external data is '{}', which is not a size in bytes", entry.value()))
                    })?;
                    let slot = if key == "offset" { &mut offset } else { &mut length };
                    ensure!(slot.replace(number).is_none(), "external data has two entries '{key}'");
                }
                _ => {}
            }
        }
        match path {
            Some(path) if !path.is_empty() => Ok(Self { path, offset: offset.unwrap_or(0), length }),
            _ => bail!("external data has no location"),
        }
    }
}
