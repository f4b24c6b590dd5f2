//! The text of graphs.
//!
//! ```text
//! graph "digits" {
//!   input %0 "image" : f32[1,1,28,28]
//!   constant %1 : f32[16,1,3,3] = #9e107d9d
//!   %2 = conv %0, %1 {strides [1], dilations [1], pads [0:0], input_dilations [1], groups 1} : f32[1,16,26,26] from "conv1" "Conv" "y"
//!   output %2 "logits"
//! }
//! ```
//!
//! Nodes stand in topological order, each constant before its first use. What the type of the result says is not said again: `cast`,
//! `bitcast`, `reshape`, `broadcast` and `iota` have no attribute for it. `from` gives the origin of a value, where it has one.
//!
//! A constant is a number (rank 0), a list of numbers, `fill NUMBER` (all elements alike), `hex "…"` (its bytes), or `random SEED`,
//! which only the parser knows. [`Graph`]'s `Display` shows the hash of a large constant in place of its bytes;
//! [`to_text`] gives what can be read again: `parse(to_text(g))` is `g`, where its ids are in the order of the text, as passes leave
//! them.

mod attributes;
mod parse;
mod print;

pub use attributes::{name as op_name, print as op_attributes};
pub use parse::parse;
pub(crate) use parse::read_tensor;
pub(crate) use print::tensor_text;
pub use print::to_text;
