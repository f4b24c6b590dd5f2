//! Types shared by every crate of the compiler: typed ids, tensor types and values, errors, text.

pub mod entity;
pub mod error;
pub mod multiply_add;
pub mod random;
pub mod small_float;
pub mod sums;
pub mod tensor;
pub mod text;
pub mod types;

pub use entity::{EntityId, EntityMap};
pub use error::{Error, Result};
pub use multiply_add::multiply_add;
pub use small_float::{SmallFloat, Specials};
pub use tensor::Tensor;
pub use types::{DType, Shape, TensorType};
