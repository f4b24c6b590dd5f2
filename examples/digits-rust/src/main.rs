//! Classifies handwritten digits.
//!
//! ```text
//! digits-rust IMAGE.pgm ...        each 28 × 28 pixels of 8 bits, white on black
//! ```

use std::error::Error;
use std::{env, fs};

use mcc_runtime::{ARENA_ALIGN, Model, TensorMut, TensorRef, abi, align, detect_cpu_features};

#[expect(unsafe_code, reason = "build.rs compiled the model and linked it in")]
mod linked {
    use super::{Model, abi, detect_cpu_features};

    unsafe extern "C" {
        static digits_model: abi::Model;
    }

    pub fn digits() -> Result<Model, mcc_runtime::Error> {
        // SAFETY: mcc wrote the description, and the features are those that the CPU has.
        unsafe { Model::from_raw(&raw const digits_model, detect_cpu_features()) }
    }
}

/// The pixels of a binary PGM file as values from 0 to 1.
fn read_image(path: &str) -> Result<Vec<f32>, Box<dyn Error>> {
    let bytes = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    match bytes.strip_prefix(b"P5\n28 28\n255\n") {
        Some(pixels) if pixels.len() == 28 * 28 => Ok(pixels.iter().map(|&pixel| f32::from(pixel) / 255.0).collect()),
        _ => Err(format!("{path}: not a binary PGM of 28 x 28 pixels").into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let model = linked::digits()?;
    let mut memory = vec![0; model.arena_bytes() + ARENA_ALIGN];
    for path in env::args().skip(1) {
        let image = read_image(&path)?;
        let mut logits = [0.0f32; 10];
        model.run(&[TensorRef::new(&image)], &mut [TensorMut::new(&mut logits)], align(&mut memory))?;
        let digit = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("there are ten");
        println!("{path}: {digit}");
    }
    Ok(())
}
