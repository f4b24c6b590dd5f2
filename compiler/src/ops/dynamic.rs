//! Which operators take dimensions that are known only at run time.
//!
//! A formula that reads an extent as a number reads the greatest one. The builder makes core ops right whatever the extents are;
//! what else a formula does with them was looked at for the operators listed here. All others refuse such operands.

use mcc_support::Result;

use super::{NodeContext, OpDef, activation, binary, cast, microsoft, ml, unary};
use crate::graph::Wire;
use crate::graph::axes::Axis;

pub const HELP: &str = "fix the dimensions that it depends on with `--dim NAME=EXTENT` or `--shape`";

/// Families of elementwise operators.
const FAMILIES: &[&[&OpDef]] = &[unary::ALL, activation::ALL, binary::ALL, cast::ALL];

/// Operators of the default domain.
const AWARE: &[&str] = &[
    "ArgMax", "ArgMin", "Attention", "AveragePool", "BatchNormalization", "Compress", "Concat", "ConstantOfShape", "Conv",
    "ConvInteger", "ConvTranspose", "CumProd", "CumSum", "DepthToSpace", "DequantizeLinear", "Dropout", "DynamicQuantizeLinear",
    "Expand", "Flatten", "GRU", "Gather", "GatherElements", "GatherND", "Gemm", "GlobalAveragePool", "GlobalMaxPool",
    "GroupNormalization", "Identity", "InstanceNormalization", "LSTM", "LayerNormalization", "LogSoftmax", "LpNormalization",
    "MatMul", "MatMulInteger", "MaxPool", "MeanVarianceNormalization", "NonZero", "OneHot", "Pad", "QLinearConv",
    "QLinearMatMul", "QuantizeLinear", "RMSNormalization", "RNN", "Range", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Reshape",
    "RotaryEmbedding", "Shape", "Size", "Slice", "Softmax", "SpaceToDepth", "Split", "Squeeze", "Tile", "TopK", "Transpose",
    "Trilu", "Unsqueeze",
];

fn is_in(families: &[&[&OpDef]], def: &OpDef) -> bool {
    families.iter().any(|family| family.iter().any(|other| std::ptr::eq(*other, def)))
}

/// Whether an operator takes operands with extents that are known only at run time.
pub fn is_aware(def: &OpDef) -> bool {
    [FAMILIES, ml::FAMILIES, microsoft::FAMILIES].iter().any(|families| is_in(families, def))
        || def.domain.is_empty() && AWARE.contains(&def.name)
}

/// Refuses operands that an operator does not take.
pub fn check<'b>(node: &NodeContext<'_, 'b>, def: &'static OpDef, inputs: &[Option<Wire<'b>>]) -> Result<()> {
    let bounded: Vec<Wire<'b>> = inputs.iter().flatten().copied().filter(|wire| wire.is_bounded()).collect();
    if !bounded.is_empty() && !is_aware(def) {
        let types: Vec<String> = bounded.iter().map(|&wire| node.builder().type_text(wire)).collect();
        let message =
            format!("{} does not take dimensions that are known only at run time: {}", def.full_name(), types.join(", "));
        return Err(node.error(message));
    }
    if !bounded.is_empty() && is_in(&[binary::ALL], def) {
        expect_equal(node, &inputs.iter().flatten().copied().collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Fails unless extents that are not 1 are the same in all operands: those that are known with those that are not.
pub(super) fn expect_equal<'b>(node: &NodeContext<'_, 'b>, operands: &[Wire<'b>]) -> Result<()> {
    for (at, a) in operands.iter().enumerate() {
        for b in &operands[..at] {
            let (x, y) = (a.axes(), b.axes());
            let differs = |(x, y): (&Axis, &Axis)| {
                let one = |axis: &Axis| axis.factors().is_empty();
                let known = x.is_whole() && y.is_whole();
                !(known || one(x) || one(y) || x.extent() == y.extent())
            };
            if x.iter().rev().zip(y.iter().rev()).any(differs) {
                let [x, y] = [a, b].map(|wire| node.builder().type_text(*wire));
                return Err(node.error(format!("{x} and {y} cannot be broadcast to one shape in every run")));
            }
        }
    }
    Ok(())
}
