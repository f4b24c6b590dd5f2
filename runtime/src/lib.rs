//! Runs models compiled by mcc: no allocation, no global state, no dependency.
//!
//! A model that a build script compiled (the crate `mcc-build`) has a module of its own, with tensors by name and type:
//!
//! ```text
//! mcc_runtime::include_model!(digits);
//!
//! static ARENA: Mutex<digits::Arena> = Mutex::new(digits::Arena::new());
//! let model = digits::Model::new()?;
//! model.run(digits::Inputs { image: &image }, digits::Outputs { logits: &mut logits }, &mut ARENA.lock()?)?;
//! ```
//!
//! [`Model`] runs any:
//!
//! ```no_run
//! use mcc_runtime::{Model, TensorMut, TensorRef, abi, detect_cpu_features};
//! unsafe extern "C" {
//!     static digits_model: abi::Model;
//! }
//! # fn main() -> Result<(), mcc_runtime::Error> {
//! let model = unsafe { Model::from_raw(&raw const digits_model, detect_cpu_features()) }?;
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
mod arena;
mod detect;
mod error;
mod model;
mod tensor;

pub use abi::ARENA_ALIGN;
pub use arena::{Arena, arena_bytes};
pub use detect::detect_cpu_features;
pub use error::Error;
pub use model::{Model, Symbol, TensorInfo, align};
pub use tensor::{
    BF16, DType, Element, F4E2M1x2, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, F16, I2x4, I4x2, TensorMut, TensorRef,
    U2x4, U4x2,
};

/// The module of a model that a build script compiled, as `mcc_build` does: `mcc_runtime::include_model!(digits);`.
#[macro_export]
macro_rules! include_model {
    ($visibility:vis $name:ident) => {
        #[allow(dead_code, unsafe_code, missing_docs)]
        $visibility mod $name {
            include!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".rs"));
        }
    };
}

/// The C header that every compiled model's own header includes.
pub const HEADER: &str = include_str!("../include/mcc.h");
