//! Conversions between element types.

use mcc_support::Result;

use super::{NodeContext, OpDef};
use crate::graph::Op;

pub static ALL: &[&OpDef] = &[&BIT_CAST, &CAST, &CAST_LIKE];

/// These attributes speak of 8-bit and narrower floats only, which are refused as types.
fn ignore_float8(node: &NodeContext<'_, '_>) {
    if node.version() >= 19 {
        node.attributes().ignore("saturate");
    }
    if node.version() >= 24 {
        node.attributes().ignore("round_mode");
    }
}

pub static CAST: OpDef = OpDef {
    domain: "",
    name: "Cast",
    since: &[6, 9, 13, 19, 21, 23, 24, 25],
    shape_inputs: &[],
    build: |node| {
        ignore_float8(node);
        let to = node.attributes().required("to", node.attributes().dtype("to")?)?;
        Ok(vec![node.input(0)?.cast(to)])
    },
};

pub static CAST_LIKE: OpDef = OpDef {
    domain: "",
    name: "CastLike",
    since: &[15, 19, 21, 23, 24, 25],
    shape_inputs: &[],
    build: |node| {
        ignore_float8(node);
        Ok(vec![node.input(0)?.cast(node.input(1)?.dtype())])
    },
};

pub static BIT_CAST: OpDef = OpDef {
    domain: "",
    name: "BitCast",
    since: &[26],
    shape_inputs: &[],
    build: |node| -> Result<_> {
        let to = node.attributes().required("to", node.attributes().dtype("to")?)?;
        Ok(vec![node.builder().add(Op::Bitcast(to), &[node.input(0)?])])
    },
};
