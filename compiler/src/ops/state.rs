//! Operators that carry a state from one call to the next: it comes in as an input and goes out as an output.

use mcc_support::{DType, Result};

use super::activation::sigmoid;
use super::conv::per_channel;
use super::{NodeContext, OpDef};
use crate::graph::{Conv, Wire};

pub static ALL: &[&OpDef] = &[&CAUSAL_CONV_WITH_STATE, &LINEAR_ATTENTION];

/// A depthwise convolution over the past: the elements before the first are the state.
pub static CAUSAL_CONV_WITH_STATE: OpDef = OpDef {
    domain: "",
    name: "CausalConvWithState",
    since: &[27],
    shape_inputs: &[],
    build: |node| {
        let (x, weights) = (node.input(0)?, node.input(1)?);
        let (shape, filters) = (x.shape(), weights.shape());
        let (&[batch, channels, length], &[_, 1, kernel]) = (shape.dims(), filters.dims()) else {
            return Err(node.error(format!("weights {filters} do not fit an operand {shape}")));
        };
        if channels == 0 || kernel == 0 {
            return Err(node.error(format!("weights {filters} and an operand {shape} have no element")));
        }
        let builder = node.builder();
        let past = node.optional(3).unwrap_or_else(|| x.like(0.0).broadcast([batch, channels, kernel - 1]));
        let padded = if kernel == 1 { x } else { builder.concat(&[past, x], 2) };
        let conv = Conv { strides: vec![1], dilations: vec![1], pads: vec![(0, 0)], input_dilations: vec![1], groups: channels };
        let y = padded.conv(weights, conv);
        builder.check()?;
        let y = match node.optional(2) {
            Some(bias) => y + per_channel(node, "the bias", bias, y, 1)?,
            None => y,
        };
        let y = match node.attributes().word("activation", &["none", "silu", "swish"])? {
            "none" => y,
            _ if y.dtype() == DType::F64 => y * sigmoid(y),
            _ => {
                let wide = y.cast(DType::F32);
                (wide * sigmoid(wide)).cast(y.dtype())
            }
        };
        Ok(vec![y, padded.slice_axis(2, length, kernel - 1)])
    },
};

/// Steps of a sequence that are written one after the other.
const MAX_STEPS: usize = 512;

/// Attention by a matrix for each head that is updated at every step: read, forgotten in part, corrected, written.
pub static LINEAR_ATTENTION: OpDef = OpDef {
    domain: "",
    name: "LinearAttention",
    since: &[27],
    shape_inputs: &[],
    build: |node| {
        let attributes = node.attributes();
        attributes.ignore("chunk_size");
        let rule = attributes.word("update_rule", &["gated_delta", "linear", "gated", "delta"])?;
        let count = |name: &str| node.size("the count of heads", attributes.required(name, attributes.int(name)?)?);
        let (q_heads, heads) = (count("q_num_heads")?, count("kv_num_heads")?);
        let given = node.input(0)?;
        if heads == 0 || !q_heads.is_multiple_of(heads) {
            return Err(node.error(format!("{q_heads} heads of queries cannot share {heads}")));
        }
        let (q, k, v) = (split(node, given, q_heads)?, split(node, node.input(1)?, heads)?, split(node, node.input(2)?, heads)?);
        let [batch, length, _, size] = *q.shape().dims() else { unreachable!("split has four axes") };
        let v_size = v.shape()[3];
        if k.shape().dims() != [batch, length, heads, size] || v.shape()[..3] != k.shape()[..3] || length > MAX_STEPS {
            return Err(node.error(format!(
                "the heads {}, {} and {} do not fit each other, or have more than {MAX_STEPS} steps",
                q.ty(),
                k.ty(),
                v.ty()
            )));
        }
        let decay = if rule.starts_with("gated") { Some(per_step(node, node.input(4)?, batch, length)?.exp()) } else { None };
        let rate = if rule.ends_with("delta") { Some(per_step(node, node.input(5)?, batch, length)?) } else { None };
        let scale = match attributes.float_or("scale", 0.0)? {
            0.0 => 1.0 / libm::sqrt(size as f64),
            scale => f64::from(scale),
        };
        let past = node.optional(3);
        let mut state = past.unwrap_or_else(|| given.like(0.0)).cast(DType::F32).broadcast([batch, heads, size, v_size]);
        let builder = node.builder();
        let mut outputs = Vec::with_capacity(length);
        for step in 0..length {
            let key = at(k, step, [batch, heads, size, 1]);
            let mut value = at(v, step, [batch, heads, 1, v_size]);
            if let Some(decay) = decay {
                let width = decay.shape()[2];
                state = state * at(decay, step, [batch, heads, (width / heads).max(1), 1]);
            }
            if let Some(rate) = rate {
                let read =
                    state.contract(key.reshape([batch, heads, size]), "bhdm", "bhd", "bhm").reshape([batch, heads, 1, v_size]);
                value = (value - read) * at(rate, step, [batch, rate.shape()[2], 1, 1]);
            }
            state = state + key * value;
            let query = at(q, step, [batch, heads, q_heads / heads, size]);
            let read = query.contract(state, "bhgd", "bhdm", "bhgm") * scale;
            outputs.push(read.reshape([batch, 1, q_heads * v_size]));
        }
        let y = if outputs.is_empty() { given.slice_axis(1, 0, 0) } else { builder.concat(&outputs, 1) };
        Ok(vec![y.cast(given.dtype()), state.cast(past.map_or(given.dtype(), Wire::dtype))])
    },
};

/// What an operand holds for one step.
fn at<'b>(x: Wire<'b>, step: usize, shape: [usize; 4]) -> Wire<'b> {
    x.slice_axis(1, step, 1).reshape(shape)
}

/// `[batch, step, heads · size]` as `[batch, step, heads, size]` in f32.
fn split<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, heads: usize) -> Result<Wire<'b>> {
    match *x.shape().dims() {
        [batch, length, hidden] if heads > 0 && hidden.is_multiple_of(heads) => {
            Ok(x.cast(DType::F32).reshape([batch, length, heads, hidden / heads]))
        }
        _ => Err(node.error(format!("an operand must have rank 3 and a last axis for {heads} heads, not {}", x.ty()))),
    }
}

/// A factor of each step, in f32.
fn per_step<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, batch: usize, length: usize) -> Result<Wire<'b>> {
    let shape = x.shape();
    if shape.rank() == 3 && shape[..2] == [batch, length] {
        Ok(x.cast(DType::F32))
    } else {
        Err(node.error(format!("a factor of each step has shape {shape}")))
    }
}
