//! Runs models compiled by mcc: no allocation, no global state, no dependency.
//!
//! ```no_run
//! use mcc_runtime::{Model, TensorMut, TensorRef, abi};
//! unsafe extern "C" {
//!     static digits_model: abi::Model;
//! }
//! # fn main() -> Result<(), mcc_runtime::Error> {
//! # let cpu_features = 0;
//! // With feature `std`, `detect_cpu_features()` gives the mask.
//! let model = unsafe { Model::from_raw(&raw const digits_model, cpu_features) }?;
//! let mut memory = vec![0; model.arena_bytes() + mcc_runtime::ARENA_ALIGN];
//! let mut logits = [0.0f32; 10];
//! model.run(&[TensorRef::new(&[0.0f32; 784])], &mut [TensorMut::new(&mut logits)], mcc_runtime::align(&mut memory))?;
//! # Ok(()) }
//! ```

#![no_std]
#![allow(unsafe_code, reason = "the border to compiled code: descriptions and calls are raw memory")]

#[cfg(feature = "std")]
extern crate std;

pub mod abi;
#[cfg(feature = "std")]
mod detect;
mod error;
mod model;
mod tensor;

pub use abi::ARENA_ALIGN;
#[cfg(feature = "std")]
pub use detect::detect_cpu_features;
pub use error::Error;
pub use model::{Model, Symbol, TensorInfo, align};
pub use tensor::{
    BF16, DType, Element, F4E2M1x2, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, F16, I2x4, I4x2, TensorMut, TensorRef,
    U2x4, U4x2,
};

/// The C header that every compiled model's own header includes.
pub const HEADER: &str = include_str!("../include/mcc.h");
