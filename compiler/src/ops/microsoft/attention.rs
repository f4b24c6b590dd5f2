//! Attention as ONNX Runtime's optimizer for transformers writes it.

use mcc_support::{DType, Result, Tensor};

use super::DOMAIN;
use crate::graph::Wire;
use crate::ops::attention::{dims, rotated_pairs, split_heads};
use crate::ops::matmul::matmul;
use crate::ops::quant::{integer_product, matrix_without_zero, per_line, without_zero};
use crate::ops::softmax::softmax;
use crate::ops::{NodeContext, OpDef};

pub static ALL: &[&OpDef] = &[&ATTENTION, &MULTI_HEAD_ATTENTION, &Q_ATTENTION, &ROTARY_EMBEDDING];

/// Heads of queries, keys and values, each `[batch, heads, sequence, size]`, and what is added to their products.
struct Heads<'b> {
    q: Wire<'b>,
    k: Wire<'b>,
    v: Wire<'b>,
    /// Elements of the sequence that come before the first query.
    past: usize,
    biases: Vec<Wire<'b>>,
}

impl<'b> Heads<'b> {
    /// Fails unless the extents fit each other.
    fn new(node: &NodeContext<'_, 'b>, q: Wire<'b>, k: Wire<'b>, v: Wire<'b>, past: usize) -> Result<Self> {
        // A mistake before this one made scalars.
        node.builder().check()?;
        let fits = [q, k, v].iter().all(|x| x.rank() == 4) && {
            let ((batch, heads, _, size), of_k, of_v) = (dims(q), dims(k), dims(v));
            (of_k.0, of_k.1, of_k.3) == (batch, heads, size) && (of_v.0, of_v.1, of_v.2) == (batch, heads, of_k.2)
        };
        if fits {
            Ok(Self { q, k, v, past, biases: Vec::new() })
        } else {
            Err(node.error(format!("the heads {}, {} and {} do not fit each other", q.ty(), k.ty(), v.ty())))
        }
    }

    /// What a masked place adds to a score.
    fn filter(node: &NodeContext<'_, 'b>) -> Result<f64> {
        Ok(f64::from(node.attributes().float_or("mask_filter_value", -10000.0)?))
    }

    fn add_where(&mut self, allowed: Wire<'b>, filter: f64) {
        let dtype = self.q.dtype();
        let builder = allowed.builder();
        self.biases.push(allowed.select(builder.scalar(dtype, 0.0), builder.scalar(dtype, filter)));
    }

    /// Reads a mask of keys: lengths (and with them starts), or a flag for each key, or for each query and key.
    fn mask(&mut self, node: &NodeContext<'_, 'b>, index: usize, starts: bool) -> Result<()> {
        let Some(mask) = node.optional(index) else { return Ok(()) };
        let (batch, _, queries, _) = dims(self.q);
        let keys = self.k.shape()[2];
        let places = || node.builder().iota(mask.dtype(), [1, 1, 1, keys], 3);
        let per_batch = |x: Wire<'b>| x.reshape([batch, 1, 1, 1]);
        let set = |x: Wire<'b>| x.like(0.0).lt(x);
        let allowed = match *mask.shape().dims() {
            [_] if mask.extent(0) == self.q.extent(0) => places().lt(per_batch(mask)),
            [count] if starts && count == 2 * batch => {
                node.expect_whole(self.q, [0])?;
                let (ends, starts) = (mask.slice_axis(0, 0, batch), mask.slice_axis(0, batch, batch));
                places().lt(per_batch(ends)).and(per_batch(starts).le(places()))
            }
            [first, last] if (first, last) == (batch, keys) => set(mask.reshape([batch, 1, 1, keys])),
            [first, middle, last] if (first, middle, last) == (batch, queries, keys) => {
                set(mask.reshape([batch, 1, queries, keys]))
            }
            _ => {
                let message = format!("the mask {} does not fit {batch} batches of {queries} queries and {keys} keys", mask.ty());
                return Err(node.error(message));
            }
        };
        self.add_where(allowed, Self::filter(node)?);
        Ok(())
    }

    /// No query looks at keys behind it, where the attribute says so.
    fn one_way(&mut self, node: &NodeContext<'_, 'b>) -> Result<()> {
        if node.attributes().flag("unidirectional", false)? {
            let (queries, keys) = (self.q.shape()[2], self.k.shape()[2]);
            let allowed: Vec<bool> = (0..queries)
                .flat_map(|row| (0..keys).map(move |column| (row, column)))
                .map(|(row, column)| column <= row + self.past)
                .collect();
            let filter = f64::from(f32::MIN);
            self.add_where(node.builder().constant(Tensor::from_elements([queries, keys], &allowed)), filter);
        }
        Ok(())
    }

    fn bias(&mut self, node: &NodeContext<'_, 'b>, index: usize) {
        self.biases.extend(node.optional(index));
    }

    /// The result `[batch, sequence, heads · size]`, and the scores before the softmax.
    fn attend(&self, node: &NodeContext<'_, 'b>) -> Result<(Wire<'b>, Wire<'b>)> {
        let (batch, heads, queries, size) = dims(self.q);
        let scale = match node.attributes().float("scale")? {
            Some(scale) if scale != 0.0 => f64::from(scale),
            _ => 1.0 / libm::sqrt(size as f64),
        };
        let products = (self.q * scale).contract(self.k, "bnqh", "bnkh", "bnqk");
        let scores = self.biases.iter().fold(products, |scores, &bias| scores + bias);
        let y = softmax(scores, &[3]).contract(self.v, "bnqk", "bnkh", "bnqh");
        Ok((y.transpose(&[0, 2, 1, 3]).reshape([batch, queries, heads * self.v.shape()[3]]), scores))
    }
}

fn heads_of(node: &NodeContext<'_, '_>) -> Result<i64> {
    node.attributes().required("num_heads", node.attributes().int("num_heads")?)
}

/// The projections of queries, keys and values beside each other, `[batch, sequence, 3 · hidden]`, as heads behind those of `past`
/// `[2, batch, heads, sequence, size]`.
fn projected<'b>(node: &NodeContext<'_, 'b>, projections: Wire<'b>, sizes: [usize; 3], past: usize) -> Result<Heads<'b>> {
    let count = heads_of(node)?;
    let mut start = 0;
    let mut split = |size: usize| {
        let part = projections.slice_axis(2, start, size);
        start += size;
        split_heads(node, part, Some(count))
    };
    let (q, k, v) = (split(sizes[0])?, split(sizes[1])?, split(sizes[2])?);
    let Some(past) = node.optional(past) else { return Heads::new(node, q, k, v, 0) };
    let &[2, batch, heads, length, size] = past.shape().dims() else {
        return Err(node.error(format!("the past must have shape [2,batch,heads,sequence,size], not {}", past.ty())));
    };
    node.expect_whole(past, [3])?;
    let join = |index: usize, x: Wire<'b>| {
        node.builder().concat(&[past.slice_axis(0, index, 1).reshape([batch, heads, length, size]), x], 2)
    };
    Heads::new(node, q, join(0, k), join(1, v), length)
}

/// Keys and values behind each other.
fn present<'b>(heads: &Heads<'b>) -> Wire<'b> {
    heads.k.builder().concat(&[heads.k.insert_axis(0), heads.v.insert_axis(0)], 0)
}

/// The results of an operator that projects its input: those of attention, and keys and values for the next call.
fn results<'b>(node: &NodeContext<'_, 'b>, mut heads: Heads<'b>, mask: usize, bias: Option<usize>) -> Result<Vec<Wire<'b>>> {
    heads.mask(node, mask, true)?;
    heads.one_way(node)?;
    if let Some(bias) = bias {
        heads.bias(node, bias);
    }
    let (y, _) = heads.attend(node)?;
    let wanted = node.wants_output(1).then(|| present(&heads));
    Ok([Some(y), wanted].into_iter().flatten().collect())
}

fn refuse_flags(node: &NodeContext<'_, '_>, names: &[&str]) -> Result<()> {
    for name in names {
        if node.attributes().flag(name, false)? {
            return Err(node.error(format!("the attribute '{name}' is not supported")));
        }
    }
    Ok(())
}

/// Projects its input to queries, keys and values by one matrix.
pub static ATTENTION: OpDef = OpDef {
    domain: DOMAIN,
    name: "Attention",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let (x, weights) = (node.input(0)?, node.input(1)?);
        refuse_flags(node, &["do_rotary", "past_present_share_buffer"])?;
        node.attributes().ignore("rotary_embedding_dim");
        let projections = matmul(x, weights).filter(|projections| projections.rank() == 3);
        let projections = projections.ok_or_else(|| node.error(format!("{} cannot be projected by {}", x.ty(), weights.ty())))?;
        let projections = node.optional(2).map_or(projections, |bias| projections + bias);
        let hidden = projections.shape()[2];
        let sizes = match node.attributes().ints("qkv_hidden_sizes")? {
            None => vec![hidden / 3; 3],
            Some(sizes) => sizes.iter().map(|&size| node.size("the hidden size", size)).collect::<Result<Vec<_>>>()?,
        };
        let sizes = <[usize; 3]>::try_from(sizes).ok().filter(|sizes| sizes.iter().sum::<usize>() == hidden);
        let sizes = sizes.ok_or_else(|| node.error(format!("{hidden} columns are not those of queries, keys and values")))?;
        let heads = projected(node, projections, sizes, 4)?;
        results(node, heads, 3, Some(5))
    },
};

/// As Attention, with a quantized projection.
pub static Q_ATTENTION: OpDef = OpDef {
    domain: DOMAIN,
    name: "QAttention",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let (x, weights) = (node.input(0)?, node.input(1)?);
        refuse_flags(node, &["do_rotary", "past_present_share_buffer"])?;
        let missing = || node.error("the scale of the input is missing");
        let scale = node.optional_scalar(3)?.ok_or_else(missing)?
            * per_line(node, "the scale of the weights", node.input(4)?, weights, false)?;
        let x = without_zero(x, node.optional_scalar(6)?);
        let sum = integer_product(node, x, matrix_without_zero(node, weights, node.optional(7), false)?)?;
        let projections = sum.cast(DType::F32) * scale + node.input(2)?;
        node.builder().check()?;
        if projections.rank() != 3 {
            return Err(node.error(format!("the input must have rank 3, not {}", projections.rank())));
        }
        let heads = projected(node, projections, [projections.shape()[2] / 3; 3], 8)?;
        results(node, heads, 5, None)
    },
};

/// Of queries, keys and values `[batch, sequence, heads · size]`; keys and values also as heads `[batch, heads, sequence, size]`.
pub static MULTI_HEAD_ATTENTION: OpDef =
    OpDef { domain: DOMAIN, name: "MultiHeadAttention", since: &[1], shape_inputs: &[], build: multi_head_attention };

fn multi_head_attention<'b>(node: &NodeContext<'_, 'b>) -> Result<Vec<Wire<'b>>> {
    let count = heads_of(node)?;
    let query = node.input(0)?;
    let bias = node.optional(3);
    let mut start = 0;
    let mut heads = |x: Wire<'b>| {
        let biased = match bias {
            Some(bias) if x.rank() == 3 => x + bias.slice_axis(0, start, x.shape()[2]),
            _ => x,
        };
        start += if x.rank() == 3 { x.shape()[2] } else { 0 };
        node.builder().check()?;
        split_heads(node, biased, Some(count))
    };
    let (Some(key), Some(value)) = (node.optional(1), node.optional(2)) else {
        return Err(node.error("operands that are packed into one are not supported"));
    };
    let (q, k, v) = (heads(query)?, heads(key)?, heads(value)?);
    if node.optional(8).is_some() || node.optional(9).is_some() {
        return Err(node.error("a past in a shared buffer is not supported"));
    }
    node.optional(6).map_or(Ok(()), |past| node.expect_whole(past, [2]))?;
    let past = node.optional(6).map_or(0, |past| past.shape().get(2).copied().unwrap_or(0));
    let join = |index: usize, x: Wire<'b>| match node.optional(index) {
        Some(past) => node.builder().concat(&[past, x], 2),
        None => x,
    };
    let mut heads = Heads::new(node, q, join(6, k), join(7, v), past)?;
    heads.mask(node, 4, false)?;
    heads.one_way(node)?;
    heads.bias(node, 5);
    let (y, scores) = heads.attend(node)?;
    Ok(vec![y, heads.k, heads.v, scores])
}

/// As the standard's, with other places of the inputs: positions are given for each element, or for the first one.
pub static ROTARY_EMBEDDING: OpDef =
    OpDef { domain: DOMAIN, name: "RotaryEmbedding", since: &[1], shape_inputs: &[], build: rotary_embedding };

fn rotary_embedding<'b>(node: &NodeContext<'_, 'b>) -> Result<Vec<Wire<'b>>> {
    let (given, positions, cos, sin) = (node.input(0)?, node.input(1)?, node.input(2)?, node.input(3)?);
    let attributes = node.attributes();
    refuse_flags(node, &["is_packed_batching"])?;
    if attributes.float_or("scale", 1.0)? != 1.0 {
        return Err(node.error("a scale of positions is not supported"));
    }
    let interleaved = attributes.flag("interleaved", false)?;
    let wanted = node.size("attribute 'rotary_embedding_dim'", attributes.int_or("rotary_embedding_dim", 0)?)?;
    let &[_, half] = cos.shape().dims() else {
        return Err(node.error(format!("the cosines must have rank 2, not {}", cos.ty())));
    };
    let rotated = if wanted == 0 { 2 * half } else { wanted };
    let count = attributes.int_or("num_heads", 0)?;
    // Without a count, a head is as large as the angles say.
    let count = match given.shape().dims() {
        [_, _, hidden] if count == 0 && half > 0 => (hidden / (2 * half)) as i64,
        _ => count,
    };
    let x = split_heads(node, given, Some(count))?;
    let (batch, _, length, size) = dims(x);
    let positions = match *positions.shape().dims() {
        [1] => positions + node.builder().iota(positions.dtype(), [1, length], 1),
        _ => positions,
    };
    let positions = positions.broadcast([batch, length]);
    node.builder().check()?;
    if 2 * half != rotated || rotated > size || sin.shape() != cos.shape() {
        return Err(node.error(format!("{rotated} elements of a head of {size} do not fit the angles {}", cos.ty())));
    }
    let angles = |cache: Wire<'b>| cache.gather(positions, 0).reshape([batch, 1, length, half]);
    let y = rotated_pairs(x, rotated, angles(cos), angles(sin), interleaved);
    Ok(vec![if given.rank() == 3 { y.transpose(&[0, 2, 1, 3]).reshape(given.shape()) } else { y }])
}
