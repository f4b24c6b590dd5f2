//! Recurrent networks: loops over the steps of a sequence.

use mcc_support::{DType, Result, Shape, Tensor};

use super::activation::Activation;
use super::quant::{dynamic_product, without_zero};
use super::{NodeContext, OpDef};
use crate::graph::{Round, Wire};

pub static ALL: &[&OpDef] = &[&DYNAMIC_QUANTIZE_LSTM, &GRU, &LSTM, &RNN];

pub static RNN: OpDef =
    OpDef { domain: "", name: "RNN", since: &[7, 14, 22], shape_inputs: &[], build: |node| layer(node, &Kind::Rnn, false) };
pub static GRU: OpDef =
    OpDef { domain: "", name: "GRU", since: &[7, 14, 22], shape_inputs: &[], build: |node| layer(node, &Kind::Gru, false) };
pub static LSTM: OpDef =
    OpDef { domain: "", name: "LSTM", since: &[7, 14, 22], shape_inputs: &[], build: |node| layer(node, &Kind::Lstm, false) };

/// LSTM with weights that are quantized: those of a direction `[input, 4 · hidden]`. What they are multiplied with is quantized by its
/// range, in each step.
pub static DYNAMIC_QUANTIZE_LSTM: OpDef = OpDef {
    domain: "com.microsoft",
    name: "DynamicQuantizeLSTM",
    since: &[1],
    shape_inputs: &[],
    build: |node| layer(node, &Kind::Lstm, true),
};

enum Kind {
    Rnn,
    Gru,
    Lstm,
}

impl Kind {
    fn gates(&self) -> usize {
        match self {
            Kind::Rnn => 1,
            Kind::Gru => 3,
            Kind::Lstm => 4,
        }
    }

    fn activations(&self) -> &'static [&'static str] {
        match self {
            Kind::Rnn => &["Tanh"],
            Kind::Gru => &["Sigmoid", "Tanh"],
            Kind::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// The functions of all directions. Lists of parameters hold those of the functions that have one, in order.
fn activations(node: &NodeContext<'_, '_>, defaults: &[&str], directions: usize) -> Result<Vec<Activation>> {
    let attributes = node.attributes();
    let names: Vec<String> = match attributes.strings("activations")? {
        Some(names) => names.iter().map(|name| name.to_lowercase()).collect(),
        None => defaults.repeat(directions).iter().map(|name| name.to_lowercase()).collect(),
    };
    if names.len() != defaults.len() * directions {
        return Err(node.error(format!(
            "{} activations are given where {} are needed",
            names.len(),
            defaults.len() * directions
        )));
    }
    let mut alphas = attributes.floats("activation_alpha")?.unwrap_or_default().into_iter();
    let mut betas = attributes.floats("activation_beta")?.unwrap_or_default().into_iter();
    let find = |name: String| {
        let parameter = |which: usize| if which == 0 { alphas.next() } else { betas.next() };
        Activation::named(&name, parameter).ok_or_else(|| node.error(format!("the activation '{name}' is unknown")))
    };
    names.into_iter().map(find).collect()
}

/// A matrix that rows are multiplied with.
#[derive(Clone, Copy)]
enum Matrix<'b> {
    /// `[columns, rows]`
    Plain(Wire<'b>),
    /// `[rows, columns]` without zero point, of a scale for all or for each column.
    Quantized(Wire<'b>, Wire<'b>),
}

impl<'b> Matrix<'b> {
    /// The product of `x [n, rows]` with `count` columns.
    fn times(self, x: Wire<'b>, first: usize, count: usize) -> Wire<'b> {
        match self {
            Matrix::Plain(w) => x.contract(w.slice_axis(0, first, count), "bh", "gh", "bg"),
            Matrix::Quantized(w, scale) => {
                let scale = if scale.rank() == 0 { scale } else { scale.slice_axis(0, first, count) };
                dynamic_product(x, w.slice_axis(1, first, count), scale)
            }
        }
    }
}

/// What one direction of a layer computes with.
struct Direction<'b, 'c> {
    kind: &'c Kind,
    activations: &'c [Activation],
    clip: Option<f64>,
    /// GRU: the reset gate acts behind the product. LSTM: the forget gate is one minus the input gate.
    coupled: bool,
    hidden: usize,
    /// `[steps, batch, gates · hidden]`: the input's share, with its bias and, where it only adds, the recurrent one.
    inputs: Wire<'b>,
    /// `hidden` rows, `gates · hidden` columns.
    recurrent: Matrix<'b>,
    /// `[hidden]`: the recurrent bias of a GRU's new state, where the reset gate acts on it.
    reset_bias: Option<Wire<'b>>,
    /// `[hidden]` each, of input, output and forget gate.
    peepholes: Option<[Wire<'b>; 3]>,
    /// `[batch, 1]`: how many steps each sequence has.
    lengths: Option<Wire<'b>>,
    reverse: bool,
}

impl<'b> Direction<'b, '_> {
    fn activate(&self, index: usize, x: Wire<'b>) -> Wire<'b> {
        self.activations[index].apply(self.clip.map_or(x, |clip| x.clamp(-clip, clip)))
    }

    /// A gate's part of `[batch, gates · hidden]`.
    fn gate(&self, x: Wire<'b>, index: usize) -> Wire<'b> {
        x.slice_axis(1, index * self.hidden, self.hidden)
    }

    fn product(&self, h: Wire<'b>, first: usize, count: usize) -> Wire<'b> {
        self.recurrent.times(h, first * self.hidden, count * self.hidden)
    }

    /// The next hidden state and cell.
    fn step(&self, input: Wire<'b>, h: Wire<'b>, c: Wire<'b>) -> (Wire<'b>, Wire<'b>) {
        match self.kind {
            Kind::Rnn => (self.activate(0, input + self.product(h, 0, 1)), c),
            Kind::Gru => {
                let gates = input.slice_axis(1, 0, 2 * self.hidden) + self.product(h, 0, 2);
                let (update, reset) = (self.activate(0, self.gate(gates, 0)), self.activate(0, self.gate(gates, 1)));
                let new = self.gate(input, 2);
                let new = if self.coupled {
                    let past = self.product(h, 2, 1);
                    new + reset * self.reset_bias.map_or(past, |bias| past + bias)
                } else {
                    new + self.product(reset * h, 2, 1)
                };
                let new = self.activate(1, new);
                ((1.0 - update) * new + update * h, c)
            }
            Kind::Lstm => {
                let gates = input + self.product(h, 0, 4);
                let peep = |x: Wire<'b>, index: usize, c: Wire<'b>| self.peepholes.map_or(x, |weights| x + weights[index] * c);
                let enter = self.activate(0, peep(self.gate(gates, 0), 0, c));
                let forget = if self.coupled { 1.0 - enter } else { self.activate(0, peep(self.gate(gates, 2), 2, c)) };
                let cell = forget * c + enter * self.activate(1, self.gate(gates, 3));
                let leave = self.activate(0, peep(self.gate(gates, 1), 1, cell));
                // The clip is for what enters the gates.
                (leave * self.activations[2].apply(cell), cell)
            }
        }
    }

    /// The hidden states of all steps, `[steps, batch, hidden]`, and the last state and cell.
    fn run(&self, h: Wire<'b>, c: Wire<'b>) -> Result<[Wire<'b>; 3]> {
        let builder = h.builder();
        let steps = self.inputs.shape()[0];
        let with_cell = matches!(self.kind, Kind::Lstm);
        let initial = if with_cell { vec![h, c] } else { vec![h] };
        let repeated = builder.repeat(steps, None, None, &initial, |round, carried| {
            let (h, c) = (carried[0], *carried.last().expect("the hidden state is carried"));
            let at = if self.reverse { builder.constant(Tensor::scalar(steps as i64 - 1)) - round } else { round };
            let (next, cell) = self.step(self.inputs.element(0, at), h, c);
            let (output, next, cell) = match self.lengths {
                None => (next, next, cell),
                Some(lengths) => {
                    let valid = at.lt(lengths);
                    (valid.select(next, next.like(0.0)), valid.select(next, h), valid.select(cell, c))
                }
            };
            let next = if with_cell { vec![next, cell] } else { vec![next] };
            Ok(Round { go: builder.constant(Tensor::scalar(true)), next, elements: vec![output] })
        })?;
        let all = if self.reverse { repeated.stacks[0].reversed(0) } else { repeated.stacks[0] };
        Ok([all, repeated.carried[0], *repeated.carried.last().expect("the hidden state is carried")])
    }
}

/// The extents of a layer.
struct Extents {
    steps: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    directions: usize,
}

fn layer<'b>(node: &NodeContext<'_, 'b>, kind: &Kind, quantized: bool) -> Result<Vec<Wire<'b>>> {
    let attributes = node.attributes();
    let batch_first = node.version() >= 14 && attributes.flag("layout", false)?;
    let direction = attributes.word("direction", &["forward", "reverse", "bidirectional"])?;
    let x = node.input(0)?;
    let x = if batch_first && x.rank() == 3 { x.transpose(&[1, 0, 2]) } else { x };
    let (w, r) = (node.input(1)?, node.input(2)?);
    let extents = extents(node, kind, x, [w, r].map(|w| shape(w, quantized)), if direction == "bidirectional" { 2 } else { 1 })?;
    let Extents { batch, hidden, directions, .. } = extents;
    let activations = activations(node, kind.activations(), directions)?;
    let clip = attributes.float("clip")?.map(f64::from);
    let coupled = coupled(node, kind)?;
    let bias = of_shape(node, 3, &[directions, 2 * kind.gates() * hidden])?;
    // Where a run tells how long the sequences are, it is as if their lengths were given.
    let told = x.axes()[0].extent();
    let bounded = x.is_bounded();
    node.expect_whole(x, [1, 2])?;
    let x = x.unlimited();
    let lengths = lengths(node, batch)?.or_else(|| bounded.then(|| node.builder().extent_wire(&told).broadcast([batch, 1])));
    let state_shape = if batch_first { [batch, directions, hidden] } else { [directions, batch, hidden] };
    let initial = |index: usize| -> Result<Vec<Wire<'b>>> {
        let zero = || x.like(0.0).broadcast(state_shape);
        let state = of_shape(node, index, &state_shape)?.unwrap_or_else(zero);
        let axis = usize::from(batch_first);
        Ok((0..directions).map(|direction| state.slice_axis(axis, direction, 1).reshape([batch, hidden])).collect())
    };
    let h = initial(5)?;
    let c = if matches!(kind, Kind::Lstm) { initial(6)? } else { h.clone() };
    let peepholes = if matches!(kind, Kind::Lstm) { of_shape(node, 7, &[directions, 3 * hidden])? } else { None };
    let mut results = Vec::with_capacity(directions);
    for index in 0..directions {
        let one = |wire: Wire<'b>| {
            let mut shape = wire.shape().into_dims();
            shape.remove(0);
            wire.slice_axis(0, index, 1).reshape(shape)
        };
        // Its scale and zero point are inputs `at` and `at + 1`.
        let matrix = |w: Wire<'b>, at: usize| -> Result<Matrix<'b>> {
            if !quantized {
                return Ok(Matrix::Plain(one(w)));
            }
            let (scale, zero) = (per_column(node, at, index, &extents)?, per_column(node, at + 1, index, &extents)?);
            Ok(Matrix::Quantized(without_zero(one(w), Some(zero)), scale))
        };
        let (inputs, reset_bias) = input_shares(kind, x, matrix(w, 8)?, bias.map(one), coupled, &extents);
        node.builder().check()?;
        let peepholes = peepholes.map(one).map(|p| [0, 1, 2].map(|gate| p.slice_axis(0, gate * hidden, hidden)));
        let count = kind.activations().len();
        let direction = Direction {
            kind,
            activations: &activations[index * count..][..count],
            clip,
            coupled,
            hidden,
            inputs,
            recurrent: matrix(r, 10)?,
            reset_bias,
            peepholes,
            lengths,
            reverse: index == 1 || direction == "reverse",
        };
        results.push(direction.run(h[index], c[index])?);
    }
    let mut results = gather_results(node, kind, &results, batch_first);
    if bounded {
        results[0] = results[0].limited_along(usize::from(batch_first), &told);
    }
    Ok(results)
}

/// See [`Direction::coupled`].
fn coupled(node: &NodeContext<'_, '_>, kind: &Kind) -> Result<bool> {
    match kind {
        Kind::Rnn => Ok(false),
        Kind::Gru => node.attributes().flag("linear_before_reset", false),
        Kind::Lstm => node.attributes().flag("input_forget", false),
    }
}

/// Input 4, of one length for each sequence.
fn lengths<'b>(node: &NodeContext<'_, 'b>, batch: usize) -> Result<Option<Wire<'b>>> {
    Ok(of_shape(node, 4, &[batch])?.map(|lengths| lengths.cast(DType::I64).reshape([batch, 1])))
}

/// The shape of weights as if they were not quantized.
fn shape(w: Wire<'_>, quantized: bool) -> Shape {
    let mut dims = w.shape().into_dims();
    if quantized && dims.len() == 3 {
        dims.swap(1, 2);
    }
    dims.into()
}

/// Input `at` for one direction: of its shape `[directions]`, a scalar, or `[directions, columns]`.
fn per_column<'b>(node: &NodeContext<'_, 'b>, at: usize, direction: usize, extents: &Extents) -> Result<Wire<'b>> {
    let x = node.input(at)?;
    let columns = Kind::Lstm.gates() * extents.hidden;
    match *x.shape().dims() {
        [directions] if directions == extents.directions => Ok(x.slice_axis(0, direction, 1).reshape(Shape::scalar())),
        [directions, count] if directions == extents.directions && (count == columns || count == 1) => {
            let one = x.slice_axis(0, direction, 1);
            Ok(one.reshape(if count == 1 { vec![] } else { vec![count] }))
        }
        _ => Err(node.error(format!("input {at}, a {}, does not fit {} directions", x.ty(), extents.directions))),
    }
}

/// Checks the shapes of the input and the weights.
fn extents<'b>(node: &NodeContext<'_, 'b>, kind: &Kind, x: Wire<'b>, [w, r]: [Shape; 2], directions: usize) -> Result<Extents> {
    let mismatch = || node.error(format!("the input {} and the weights {w} and {r} do not match", x.ty()));
    let &[steps, batch, input] = x.shape().dims() else { return Err(mismatch()) };
    let &[.., hidden] = r.dims() else { return Err(mismatch()) };
    let rows = hidden.checked_mul(kind.gates()).ok_or_else(mismatch)?;
    if w.dims() != [directions, rows, input] || r.dims() != [directions, rows, hidden] {
        return Err(mismatch());
    }
    if let Some(size) = node.attributes().int("hidden_size")?
        && size != hidden as i64
    {
        return Err(node.error(format!("the attribute 'hidden_size' is {size}, but the weights have {hidden}")));
    }
    Ok(Extents { steps, batch, input, hidden, directions })
}

/// An input that may be left out, of this shape.
fn of_shape<'b>(node: &NodeContext<'_, 'b>, index: usize, shape: &[usize]) -> Result<Option<Wire<'b>>> {
    let Some(wire) = node.optional(index) else { return Ok(None) };
    if wire.shape().dims() != shape {
        return Err(node.error(format!("input {index} must be of shape {shape:?}, not {}", wire.ty())));
    }
    Ok(Some(wire))
}

/// What the inputs add to the gates of each step, and the recurrent bias that cannot be added to it.
fn input_shares<'b>(
    kind: &Kind,
    x: Wire<'b>,
    w: Matrix<'b>,
    bias: Option<Wire<'b>>,
    coupled: bool,
    extents: &Extents,
) -> (Wire<'b>, Option<Wire<'b>>) {
    let &Extents { steps, batch, hidden, input, .. } = extents;
    let rows = kind.gates() * hidden;
    let mut shares = w.times(x.reshape([steps * batch, input]), 0, rows).reshape([steps, batch, rows]);
    let mut reset_bias = None;
    if let Some(bias) = bias {
        let (own, mut past) = (bias.slice_axis(0, 0, rows), bias.slice_axis(0, rows, rows));
        if matches!(kind, Kind::Gru) && coupled {
            reset_bias = Some(past.slice_axis(0, 2 * hidden, hidden));
            past = past.slice_axis(0, 0, 2 * hidden).pad(&[(0, hidden)], past.like(0.0));
        }
        shares = shares + (own + past);
    }
    (shares, reset_bias)
}

/// States of all steps `[steps, directions, batch, hidden]` and the last ones `[directions, batch, hidden]`, or batches first.
fn gather_results<'b>(node: &NodeContext<'_, 'b>, kind: &Kind, results: &[[Wire<'b>; 3]], batch_first: bool) -> Vec<Wire<'b>> {
    let stack = |which: usize, axis: usize| {
        let widened = results.iter().map(|result| result[which].insert_axis(axis));
        node.builder().concat(&widened.collect::<Vec<_>>(), axis)
    };
    let all = stack(0, 1);
    let mut outputs = vec![if batch_first { all.transpose(&[2, 0, 1, 3]) } else { all }];
    for which in if matches!(kind, Kind::Lstm) { 1..3 } else { 1..2 } {
        let last = stack(which, 0);
        outputs.push(if batch_first { last.transpose(&[1, 0, 2]) } else { last });
    }
    outputs
}
