//! Classifies handwritten digits.
//!
//! ```text
//! digits-rust IMAGE.pgm ...        each 28 × 28 pixels of 8 bits, white on black
//! ```

use std::error::Error;
use std::{array, env, fs};

mcc_runtime::include_model!(digits);

/// The pixels of a binary PGM file as values from 0 to 1.
fn read_image(path: &str) -> Result<[f32; 28 * 28], Box<dyn Error>> {
    let bytes = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    match bytes.strip_prefix(b"P5\n28 28\n255\n") {
        Some(pixels) if pixels.len() == 28 * 28 => Ok(array::from_fn(|place| f32::from(pixels[place]) / 255.0)),
        _ => Err(format!("{path}: not a binary PGM of 28 x 28 pixels").into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let model = digits::Model::new()?;
    let mut arena = digits::Arena::boxed();
    for path in env::args().skip(1) {
        let image = read_image(&path)?;
        let mut logits = [0.0; 10];
        model.run(digits::Inputs { image: &image }, digits::Outputs { logits: &mut logits }, &mut arena)?;
        let digit = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("there are ten");
        println!("{path}: {digit}");
    }
    Ok(())
}
