//! Files: mapping them, saying what a file is that is no ONNX model.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use mcc_support::{Error, Result};

/// Most that is read from a pipe or a device, which cannot be mapped; the limit of a protobuf message.
const PIPE_BYTES: u64 = 1 << 31;

/// The bytes of a file, mapped where it is a regular one.
pub fn read(path: &Path) -> Result<Bytes> {
    let failed = |error: std::io::Error| Error::new(format!("cannot read the file: {error}"));
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(Error::new("this is a folder, not a model").help("give the path of an .onnx file"));
    }
    if metadata.is_file() {
        return map(&file, metadata.len()).map_err(failed);
    }
    let mut bytes = Vec::new();
    file.take(PIPE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes.into())
}

/// Maps a regular file of a known length.
#[expect(
    unsafe_code,
    reason = "weights are gigabytes and are read in place. The mapping is private and read-only; that nobody \
    truncates the file while mcc runs is asked of the user, as every linker asks it"
)]
pub fn map(file: &File, size_bytes: u64) -> std::io::Result<Bytes> {
    if size_bytes == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: see the reason above; the owner of the mapping lives as long as any slice of the bytes.
    let map = unsafe { memmap2::Mmap::map(file)? };
    Ok(Bytes::from_owner(map))
}

/// What a file is that did not decode as a model, where its first bytes tell.
pub fn not_onnx(bytes: &[u8]) -> Option<Error> {
    const MAGIC: [(usize, &[u8], &str, &str); 8] = [
        (0, b"version https://git-lfs", "a Git LFS pointer", "fetch the model itself with `git lfs pull`"),
        (0, b"PK\x03\x04", "a zip archive (a PyTorch checkpoint?)", "unpack it, or export it with `torch.onnx.export`"),
        (0, b"\x89HDF", "an HDF5 file (a Keras model?)", "convert it with tf2onnx"),
        (4, b"TFL3", "a TensorFlow Lite model", "convert it with tf2onnx"),
        (4, b"ORTM", "a model in ONNX Runtime's own format", "use the .onnx file that it was made from"),
        (0, b"\x1f\x8b", "a gzip archive", "unpack it"),
        (0, b"\x7fELF", "an executable or object file", "give an .onnx file"),
        (0, b"\x93NUMPY", "a numpy array", "give an .onnx file"),
    ];
    let error = |what: &str, help: &str| Some(Error::new(format!("this is not an ONNX model: it is {what}")).help(help));
    if bytes.is_empty() {
        return error("an empty file", "give an .onnx file");
    }
    for (offset, magic, what, help) in MAGIC {
        if bytes.get(offset..).is_some_and(|rest| rest.starts_with(magic)) {
            return error(what, help);
        }
    }
    let start = &bytes[..bytes.len().min(512)];
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        // A character may be cut at the end of what is looked at.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&start[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    let is_text = text.chars().all(|c| !c.is_control() || c.is_ascii_whitespace());
    if is_text { error("a text file", "give a binary .onnx file") } else { None }
}
