//! What is free to choose, as one value: which kernels are fused, in which order they run, how each buffer lies in memory, which
//! target compiles each kernel and how it is scheduled. A build is replayed, tuned or bisected by editing it.
//!
//! [`crate::decide`] chooses it and [`crate::realize`] carries it out; the same decisions give the same bytes. Kernels, axes and buffers are named as in the text
//! of the loop IR.

use std::collections::BTreeMap;
use std::fmt;

use mcc_support::{Result, ensure};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Decisions {
    /// Carried out in this order, on the lowered program.
    pub fusions: Vec<Fusion>,
    /// Convolutions of the fused program that multiply less, by kernel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub winograd: BTreeMap<String, Winograd>,
    /// Of the fused kernels, by name.
    pub order: Vec<String>,
    /// By buffer. A buffer that is not named is dense and row-major; the caller's buffers always are.
    pub layouts: BTreeMap<String, Layout>,
    /// By kernel, for each of `order`.
    pub kernels: BTreeMap<String, KernelDecision>,
}

/// One fusion. Where two kernels become one, that has the consumer's name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "fuse")]
pub enum Fusion {
    /// The consumer computes what the producer would have stored in place of loading it. The producer goes when nothing else
    /// reads its buffer.
    Inline { producer: String, consumer: String },
    /// The consumer's elementwise work is done on the producer's result before it is stored; the producer's own store stays
    /// where something else reads it.
    Epilogue { producer: String, consumer: String },
    /// Both run under the same `depth` outer loops, one after the other; buffers between them shrink to what one round needs.
    Merge { producer: String, consumer: String, depth: usize },
    /// The consumer pads what the producer stores: the producer stores into the interior of the padded buffer itself, and the
    /// consumer only fills the border.
    Interior { producer: String, consumer: String },
    /// A kernel stores the same values to the buffers `from` and `to`: whoever reads `from` reads `to`, and `from` goes.
    Redirect { from: String, to: String },
    /// Several kernels store parts of the buffer `from`: each does the consumer's elementwise work on its part before it stores it.
    Distribute { from: String, consumer: String },
}

/// A convolution with filters of 3 × 3 is computed by Winograd's transforms: of its inputs, in tiles, and of the products of these with
/// transformed weights. Sums differ by more than their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Winograd {
    /// Results along each dimension of a tile: 2 or 4. Each of a tile's products takes the place of that square of sums.
    pub outputs: usize,
    /// Rows of tiles that are transformed together: a divisor of the number of rows of all images.
    pub rows: usize,
}

/// Order of a buffer's elements in memory: an index is taken apart into physical coordinates, the first outermost, which are dense.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Layout {
    pub coordinates: Vec<Coordinate>,
}

/// `(index[dim] / divide) % modulo`, without the remainder for the outermost coordinate of a dimension. Where the extent is not a
/// multiple, the rest is padding: zero for constants, undefined for temporaries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Coordinate {
    pub dim: usize,
    pub divide: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modulo: Option<usize>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KernelDecision {
    /// Name of the target that compiles it.
    pub target: String,
    /// Carried out in this order.
    pub schedule: Vec<Step>,
}

/// One change of a kernel's loops. Axes by name; a split of `x` makes `x.o` around `x.i`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum Step {
    /// Into rounds of `factor`. Where the extent is not a multiple, the rest becomes loops of its own after the others, with `x.t`
    /// (of the rest's extent) in place of `x.o` and `x.i`.
    Split { axis: String, factor: usize },
    /// Moves the loop over `axis`, which must be nested perfectly, to just inside that over `inside`, or outermost.
    Move { axis: String, inside: Option<String> },
    /// The first and the last so many rounds of `x` become loops of their own, `x.b` and `x.e`, before and after the rest, `x.m`: what
    /// lies outside of a buffer at the ends is inside of it between them.
    Peel { axis: String, first: usize, last: usize },
    /// The loop over `inner`, which is all that the loop over `outer` does, and that become one, over `outer.inner`.
    Merge { outer: String, inner: String },
    /// All rounds do a statement before any does the next. What they share in a local buffer, each gets for itself.
    Unroll { axis: String },
    /// The rounds of an axis that reduces are unrolled, and sum up apart from each other: none waits for the one before.
    Apart { axis: String },
    /// The axis becomes vector lanes; its extent is a lane count of the target or, where that can use vectors in part, less than one.
    Vectorize { axis: String },
}

impl Decisions {
    /// One line for each fusion, transformed convolution, layout and schedule step, in the order in which fuel is spent on them.
    pub fn lines(&self) -> Vec<String> {
        let fusions = self.fusions.iter().map(|fusion| format!("[fuse] {fusion}"));
        let winograd = self.winograd.iter().map(|(kernel, winograd)| format!("[winograd] {kernel}: {winograd}"));
        let layouts = self.layouts.iter().map(|(buffer, layout)| format!("[layout] @{buffer} as {layout}"));
        let steps = self.order.iter().filter_map(|name| Some((name, self.kernels.get(name)?)));
        let steps =
            steps.flat_map(|(name, decision)| decision.schedule.iter().map(move |step| format!("[schedule] {name}: {step}")));
        fusions.chain(winograd).chain(layouts).chain(steps).collect()
    }
}

impl fmt::Display for Winograd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { outputs, rows } = self;
        write!(f, "{outputs} × {outputs} results of a tile, {rows} rows of tiles together")
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Split { axis, factor } => write!(f, "split {axis} by {factor}"),
            Step::Move { axis, inside: Some(inside) } => write!(f, "move {axis} inside of {inside}"),
            Step::Move { axis, inside: None } => write!(f, "move {axis} outermost"),
            Step::Peel { axis, first, last } => write!(f, "peel {first} and {last} rounds off {axis}"),
            Step::Merge { outer, inner } => write!(f, "merge {outer} and {inner}"),
            Step::Unroll { axis } => write!(f, "unroll {axis}"),
            Step::Apart { axis } => write!(f, "sum up the rounds of {axis} apart"),
            Step::Vectorize { axis } => write!(f, "vectorize {axis}"),
        }
    }
}

/// `0/16, 1, 0%16`, as plans write it.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, coordinate) in self.coordinates.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { ", " } else { "" }, coordinate.dim)?;
            if coordinate.divide > 1 {
                write!(f, "/{}", coordinate.divide)?;
            }
            if let Some(modulo) = coordinate.modulo {
                write!(f, "%{modulo}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Fusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fusion::Inline { producer, consumer } => write!(f, "inline {producer} into {consumer}"),
            Fusion::Epilogue { producer, consumer } => write!(f, "do {consumer} before {producer} stores"),
            Fusion::Merge { producer, consumer, depth } => write!(f, "merge {producer} and {consumer} under {depth} loops"),
            Fusion::Interior { producer, consumer } => write!(f, "store from {producer} inside of the border of {consumer}"),
            Fusion::Redirect { from, to } => write!(f, "read @{to} for @{from}"),
            Fusion::Distribute { from, consumer } => write!(f, "do {consumer} before the parts of @{from} are stored"),
        }
    }
}

impl Layout {
    pub fn row_major(rank: usize) -> Self {
        Self::permuted(&(0..rank).collect::<Vec<_>>())
    }

    /// Dimensions in this order, the first outermost.
    pub fn permuted(order: &[usize]) -> Self {
        Self { coordinates: order.iter().map(|&dim| Coordinate { dim, divide: 1, modulo: None }).collect() }
    }

    /// That each dimension is taken apart completely and once, so that every index has a place of its own: its coordinates divide by
    /// 1, by m, by m · n, … with remainders by m, n, … but for the last.
    pub fn validate(&self, shape: &[usize]) -> Result<()> {
        ensure!(self.coordinates.iter().all(|c| c.dim < shape.len()), "a coordinate is of a dimension that is not there");
        for dim in 0..shape.len() {
            let mut digits: Vec<&Coordinate> = self.coordinates.iter().filter(|c| c.dim == dim).collect();
            digits.sort_by_key(|c| (c.divide, c.modulo.is_none()));
            let mut below = Some(1);
            for digit in &digits {
                ensure!(digit.modulo != Some(0) && below == Some(digit.divide), "the coordinates of dimension {dim} do not join");
                below = digit.modulo.and_then(|modulo| digit.divide.checked_mul(modulo));
            }
            ensure!(below.is_none(), "dimension {dim} has no outermost coordinate");
        }
        Ok(())
    }

    /// Extent of each coordinate for a buffer of this shape.
    pub fn extents(&self, shape: &[usize]) -> Vec<usize> {
        self.coordinates
            .iter()
            .map(|coordinate| coordinate.modulo.unwrap_or(shape[coordinate.dim].div_ceil(coordinate.divide)))
            .collect()
    }

    /// Elements of each step of each coordinate.
    pub fn strides(&self, shape: &[usize]) -> Vec<usize> {
        let extents = self.extents(shape);
        let mut strides = vec![1; extents.len()];
        for at in (0..extents.len().saturating_sub(1)).rev() {
            strides[at] = strides[at + 1] * extents[at + 1];
        }
        strides
    }

    /// Elements with padding.
    pub fn count(&self, shape: &[usize]) -> usize {
        self.extents(shape).iter().product()
    }

    /// Where the element at an index lies, in elements.
    pub fn offset(&self, shape: &[usize], index: &[usize]) -> usize {
        let strides = self.strides(shape);
        self.coordinates
            .iter()
            .zip(strides)
            .map(|(c, stride)| {
                let coordinate = index[c.dim] / c.divide;
                stride * c.modulo.map_or(coordinate, |modulo| coordinate % modulo)
            })
            .sum()
    }
}
