//! Activation functions.

use super::OpDef;

pub static ALL: &[&OpDef] = &[&HARD_SWISH];

/// `x · clamp(x / 6 + 1/2, 0, 1)`.
pub static HARD_SWISH: OpDef = OpDef {
    domain: "",
    name: "HardSwish",
    since: &[14, 22],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        Ok(vec![x * (x * (1.0 / 6.0) + 0.5).clamp(0.0, 1.0)])
    },
};
