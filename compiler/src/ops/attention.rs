//! Attention and rotary embedding.

use mcc_support::{DType, Result, Tensor};

use super::softmax::softmax;
use super::{NodeContext, OpDef};
use crate::graph::{SliceAxis, UnaryFn, Wire};

pub static ALL: &[&OpDef] = &[&ATTENTION, &ROTARY_EMBEDDING];

/// Heads of queries, keys and values, each `[batch, heads, sequence, size]`.
struct Heads<'b> {
    q: Wire<'b>,
    k: Wire<'b>,
    v: Wire<'b>,
    /// Elements of the sequence that come before those of `k` as it is given.
    past: usize,
}

pub static ATTENTION: OpDef = OpDef {
    domain: "",
    name: "Attention",
    since: &[23, 24],
    shape_inputs: &[],
    build: |node| {
        let attributes = node.attributes();
        let flat = node.input(0)?.rank() == 3;
        let heads = heads(node)?;
        let (q, k, v) = (heads.q, heads.k, heads.v);
        [q, k].into_iter().try_for_each(|heads| node.expect_whole(heads, [1, 3]))?;
        let (batch, q_heads, q_length, size) = dims(q);
        let (_, kv_heads, length, _) = dims(k);
        let fits = kv_heads > 0 && q_heads.is_multiple_of(kv_heads) && k.shape()[3] == size && v.shape()[..3] == k.shape()[..3];
        if !fits || k.shape()[0] != batch {
            return Err(node.error(format!("the heads {}, {} and {} do not fit each other", q.ty(), k.ty(), v.ty())));
        }
        let scale = attributes.float("scale")?.map_or_else(|| 1.0 / libm::sqrt(size as f64), f64::from);
        let root = libm::sqrt(scale);
        // Heads of queries that share one of keys lie together.
        let shared = q_heads / kv_heads;
        let grouped = (q * root).reshape([batch, kv_heads, shared, q_length, size]);
        let plain = grouped.contract(k * root, "bgrqh", "bgkh", "bgrqk").reshape([batch, q_heads, q_length, length]);
        let softcap = f64::from(attributes.float_or("softcap", 0.0)?);
        let capped = if softcap > 0.0 { (plain / softcap).unary(UnaryFn::Tanh) * softcap } else { plain };
        let mut scores = capped;
        for bias in biases(node, &heads)? {
            scores = scores + bias;
        }
        let precision = attributes.int_or("softmax_precision", 0)?;
        let precision = if precision == 0 { None } else { attributes.dtype("softmax_precision")? }.unwrap_or(scores.dtype());
        let weights = softmax(scores.cast(precision), &[3]);
        let wide = if precision.size_bits() > v.dtype().size_bits() { precision } else { v.dtype() };
        let grouped = weights.cast(wide).reshape([batch, kv_heads, shared, q_length, length]);
        let y = grouped.contract(v.cast(wide), "bgrqk", "bgkh", "bgrqh").cast(q.dtype());
        let v_size = v.shape()[3];
        let y = y.reshape([batch, q_heads, q_length, v_size]);
        let y = if flat { y.transpose(&[0, 2, 1, 3]).reshape([batch, q_length, q_heads * v_size]) } else { y };
        let shown = match attributes.int_or("qk_matmul_output_mode", 0)? {
            0 => plain,
            1 => capped,
            2 => scores,
            3 => weights.cast(q.dtype()),
            other => {
                return Err(node.error(format!("attribute 'qk_matmul_output_mode' is {other}, which is not one of 0, 1, 2, 3")));
            }
        };
        Ok(vec![y, k, v, shown])
    },
};

pub(super) fn dims(x: Wire<'_>) -> (usize, usize, usize, usize) {
    let shape = x.shape();
    (shape[0], shape[1], shape[2], shape[3])
}

/// Reads queries, keys and values, joins the keys and values of the past to them.
fn heads<'b>(node: &NodeContext<'_, 'b>) -> Result<Heads<'b>> {
    let attributes = node.attributes();
    let (q_heads, kv_heads) = (attributes.int("q_num_heads")?, attributes.int("kv_num_heads")?);
    let split = |index: usize, count: Option<i64>| {
        let x = node.input(index)?;
        split_heads(node, x, count)
    };
    let (q, k, v) = (split(0, q_heads)?, split(1, kv_heads)?, split(2, kv_heads)?);
    let join = |index: usize, x: Wire<'b>| match node.optional(index) {
        Some(past) => node.builder().concat(&[past, x], 2),
        None => x,
    };
    if let Some(past) = node.optional(4) {
        node.expect_whole(past, [2])?;
    }
    let past = node.optional(4).map_or(0, |past| past.shape().get(2).copied().unwrap_or(0));
    let heads = Heads { q, k: join(4, k), v: join(5, v), past };
    // A mistake in joining makes scalars.
    node.builder().check()?;
    Ok(heads)
}

/// `[batch, sequence, heads · size]` as `[batch, heads, sequence, size]`; what has rank 4 is that already.
pub(super) fn split_heads<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, count: Option<i64>) -> Result<Wire<'b>> {
    let shape = x.shape();
    match *shape.dims() {
        [_, _, _, _] => Ok(x),
        [batch, length, hidden] => {
            node.expect_whole(x, [2])?;
            let count = count.ok_or_else(|| node.error("the count of heads is missing"))?;
            let count = node.size("the count of heads", count)?;
            if count == 0 || !hidden.is_multiple_of(count) {
                return Err(node.error(format!("the last axis of {} cannot be divided into {count} heads", x.ty())));
            }
            Ok(x.reshape([batch, length, count, hidden / count]).transpose(&[0, 2, 1, 3]))
        }
        _ => Err(node.error(format!("an operand must have rank 3 or 4, not {}", x.ty()))),
    }
}

/// What is added to the scores: the mask, and −∞ where a query must not look.
fn biases<'b>(node: &NodeContext<'_, 'b>, heads: &Heads<'b>) -> Result<Vec<Wire<'b>>> {
    let builder = node.builder();
    let (batch, _, q_length, _) = dims(heads.q);
    let length = heads.k.shape()[2];
    let dtype = heads.q.dtype();
    let hidden = |condition: Wire<'b>| condition.select(builder.scalar(dtype, 0.0), builder.scalar(dtype, f64::NEG_INFINITY));
    let mut biases = Vec::new();
    if let Some(mask) = node.optional(3) {
        let shape = mask.shape();
        let missing = shape.last().and_then(|&last| length.checked_sub(last));
        let missing = missing.ok_or_else(|| node.error(format!("the mask {} does not fit a sequence of {length}", mask.ty())))?;
        let mut amounts = vec![(0, 0); shape.rank()];
        amounts[shape.rank() - 1].1 = if shape.last() == Some(&1) && length > 1 { 0 } else { missing };
        let value =
            if mask.dtype() == DType::Bool { builder.constant(Tensor::scalar(false)) } else { mask.like(f64::NEG_INFINITY) };
        let mask = mask.pad(&amounts, value);
        biases.push(if mask.dtype() == DType::Bool { hidden(mask) } else { mask.cast(dtype) });
    }
    if node.attributes().flag("is_causal", false)? {
        let places: Vec<bool> = (0..q_length)
            .flat_map(|row| (0..length).map(move |column| (row, column)))
            .map(|(row, column)| column <= row + heads.past)
            .collect();
        biases.push(hidden(builder.constant(Tensor::from_elements([q_length, length], &places))));
    }
    if node.version() >= 24
        && let Some(lengths) = node.optional(6)
    {
        if lengths.shape().dims() != [batch] {
            return Err(node.error(format!("the lengths of the sequences must have shape [{batch}], not {}", lengths.ty())));
        }
        let places = builder.iota(lengths.dtype(), [1, 1, 1, length], 3);
        biases.push(hidden(places.lt(lengths.reshape([batch, 1, 1, 1]))));
    }
    Ok(biases)
}

/// Rotates pairs of elements of each head by angles whose cosines and sines are given, for each place in the sequence.
pub static ROTARY_EMBEDDING: OpDef = OpDef {
    domain: "",
    name: "RotaryEmbedding",
    since: &[23],
    shape_inputs: &[],
    build: |node| {
        let given = node.input(0)?;
        let attributes = node.attributes();
        let count = attributes.int_or("num_heads", 0)?;
        let x = split_heads(node, given, (count != 0).then_some(count))?;
        let (batch, _, length, size) = dims(x);
        let interleaved = attributes.flag("interleaved", false)?;
        let rotated = node.size("attribute 'rotary_embedding_dim'", attributes.int_or("rotary_embedding_dim", 0)?)?;
        let rotated = if rotated == 0 { size } else { rotated };
        if rotated > size || rotated % 2 != 0 {
            return Err(node.error(format!("{rotated} elements of a head of {size} cannot be rotated in pairs")));
        }
        let half = rotated / 2;
        let positions = node.optional(3);
        let angles = |index: usize| {
            let cache = node.input(index)?;
            let cache = match positions {
                Some(positions) if cache.rank() == 2 => cache.gather(positions, 0),
                _ => cache,
            };
            if cache.shape().dims() != [batch, length, half] {
                return Err(
                    node.error(format!("input {index} gives angles of shape {}, not [{batch},{length},{half}]", cache.shape()))
                );
            }
            Ok(cache.reshape([batch, 1, length, half]))
        };
        let y = rotated_pairs(x, rotated, angles(1)?, angles(2)?, interleaved);
        Ok(vec![if given.rank() == 3 { y.transpose(&[0, 2, 1, 3]).reshape(given.shape()) } else { y }])
    },
};

/// Turns the first `rotated` elements of heads `[batch, heads, sequence, size]`, in pairs, by angles whose cosines and sines have
/// shape `[batch, 1, sequence, rotated / 2]`. Pairs are neighbours, or elements of the first and of the second half.
pub(super) fn rotated_pairs<'b>(x: Wire<'b>, rotated: usize, cos: Wire<'b>, sin: Wire<'b>, interleaved: bool) -> Wire<'b> {
    let (batch, heads, length, size) = dims(x);
    let half = rotated / 2;
    let part = |start: usize, step: i64| {
        let whole = |count: usize| SliceAxis { start: 0, step: 1, count };
        x.slice(vec![whole(batch), whole(heads), whole(length), SliceAxis { start, step, count: half }])
    };
    let (first, second) = if interleaved { (part(0, 2), part(1, 2)) } else { (part(0, 1), part(half, 1)) };
    let (real, imaginary) = (cos * first - sin * second, sin * first + cos * second);
    let builder = x.builder();
    let y = if interleaved {
        let pair = [real, imaginary].map(|part| part.reshape([batch, heads, length, half, 1]));
        builder.concat(&pair, 4).reshape([batch, heads, length, rotated])
    } else {
        builder.concat(&[real, imaginary], 3)
    };
    if rotated < size { builder.concat(&[y, x.slice_axis(3, rotated, size - rotated)], 3) } else { y }
}
