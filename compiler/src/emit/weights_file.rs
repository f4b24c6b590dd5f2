//! The file that holds packed weights where they are left out of the object.
//!
//! It starts with 64 bytes, little-endian, and then has the weights as kernels read them:
//!
//! ```text
//!  0 u64    magic
//!  8 u64    bytes of the weights
//! 16 u8[32] hash of the code that reads them
//! 48 u32    CRC-32 of the weights, as zlib has it
//! 52        zeros
//! ```
//!
//! A run tests all of it but the CRC. Two models of the same code, as before and after further training, have the same hash of the
//! code: either file fits either object.

use mcc_support::{Result, ensure};
use sha2::{Digest, Sha256};

use super::model::CompiledModel;
use super::run::BufferPlace;
use super::weights::{HEAD_BYTES, WeightsPlace};

/// `MCCWGTS1`.
const MAGIC: u64 = u64::from_le_bytes(*b"MCCWGTS1");

/// What the head of the file must be for a run, as 64-bit words.
pub fn head(model: &CompiledModel) -> [u64; 6] {
    let mut code = Sha256::new();
    for (_, kernel) in model.kernels() {
        code.update((kernel.code.bytes.len() as u64).to_le_bytes());
        code.update(&kernel.code.bytes);
        code.update(kernel.extent.to_le_bytes());
        for place in &kernel.args {
            if let BufferPlace::Weights(offset) = place {
                code.update(offset.to_le_bytes());
            }
        }
    }
    let code = code.finalize();
    let word = |index: usize| u64::from_le_bytes(code[8 * index..][..8].try_into().expect("eight bytes"));
    [MAGIC, model.weights.len() as u64, word(0), word(1), word(2), word(3)]
}

/// The bytes of the file.
pub fn file(model: &CompiledModel) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + model.weights.len());
    out.extend(head(model).iter().flat_map(|word| word.to_le_bytes()));
    out.extend(crc32fast::hash(&model.weights).to_le_bytes());
    out.resize(HEAD_BYTES, 0);
    out.extend_from_slice(&model.weights);
    out
}

/// # Errors
///
/// A model without weights has no file of them.
pub fn expect_some(model: &CompiledModel) -> Result<()> {
    let has = model.weights_place != WeightsPlace::File || !model.weights.is_empty();
    ensure!(has, "the model has no weights: compile it without a file of weights");
    Ok(())
}
