//! The core ops: a closed set in which every model is expressed. Exhaustive matches name the few places that an op touches:
//! its type rule (`build`), its meaning (`interp`), its text and its loops (`loops::lower`).

use mcc_support::{DType, Shape};

use super::Graph;

/// What a node computes. Shapes and attributes are compile-time values; operands are listed with each op.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    // --- elementwise; operands broadcast as numpy's do ---
    /// One operand.
    Unary(UnaryFn),
    /// Two operands of one dtype. Comparisons give `bool`.
    Binary(BinaryFn),
    /// `select cond, a, b`: a `bool`, and two of one dtype.
    Select,
    /// To another dtype. Float to integer truncates, saturates and gives 0 for NaN (of packed types, keeps the low bits of the `i32`
    /// that this gives); to `bool` is `x != 0`; between integers keeps the low bits; to a narrower float rounds once, to nearest
    /// even. To floats of 8 and 4 bits it saturates, infinity too; to `f8e8m0` it takes the magnitude up to a power of two.
    Cast(DType),
    /// The same bits as another dtype of the same width.
    Bitcast(DType),

    // --- sums of products ---
    /// `out[…] = Σ lhs[…] · rhs[…]` over the labels that are not in `out`; see [`Contraction`]. Floats and i32, i64.
    Contract(Contraction),
    /// `x [N, C, spatial…]` and `w [M, C / groups, kernel…]` to `[N, M, spatial…]`.
    Conv(Conv),

    // --- reductions ---
    /// Over `axes` (sorted, distinct), which disappear from the shape. With no element: the identity (for extremes of floats
    /// the infinities, of integers the extreme values).
    Reduce { kind: ReduceFn, axes: Vec<usize> },
    /// The index (i64) of the extreme along `axis`, which disappears: the first of equals, or the last. NaN counts as extreme.
    ArgReduce { max: bool, axis: usize, last: bool },
    /// Reduction over a sliding window of the trailing `kernel.len()` axes; cells outside the input are left out.
    Window { kind: ReduceFn, window: Window },
    /// The flat index (i64, over the window's axes of one image, row-major) of the greatest number in each window, the first of equals;
    /// of the first cell where all are NaN.
    WindowArgMax(Window),
    /// Running reduction along an axis. `exclusive`: without the element itself, starting at the identity.
    Scan { kind: ReduceFn, axis: usize, exclusive: bool, reverse: bool },

    // --- movement ---
    /// The same elements in row-major order under another shape.
    Reshape(Shape),
    /// Result axis `i` is operand axis `permutation[i]`.
    Transpose(Vec<usize>),
    /// Result index `i` along an axis is operand index `start + i · step`; all are inside. One entry for each axis.
    Slice(Vec<SliceAxis>),
    /// Operand `x`, and for [`PadMode::Constant`] a scalar of its dtype. `(before, after)` for each axis, not negative.
    Pad { mode: PadMode, amounts: Vec<(usize, usize)> },
    /// One or more operands, equal but for `axis`.
    Concat { axis: usize },
    /// To this shape as numpy's broadcasting does.
    Broadcast(Shape),
    /// `data` and integer `indices` of any rank: the axis is replaced by the shape of the indices. Negative indices count from
    /// the end; what is still outside is clamped and sets the run's status.
    Gather { axis: usize },
    /// `data` and `indices` of the same rank: element along `axis` chosen by the indices, which are as in `Gather`.
    GatherElements { axis: usize },
    /// The index along `axis`, as `dtype`. No operand.
    Iota { dtype: DType, shape: Shape, axis: usize },

    // --- kept whole until the deployment passes ---
    /// `x [N, C, …]`, scale, bias, mean, variance `[C]`: `(x − mean) / sqrt(variance + epsilon) · scale + bias`.
    BatchNorm { epsilon: f32 },

    // --- control flow; the only ops with graphs of their own, and with several results ---
    /// See [`Loop`].
    Loop(Box<Loop>),
    /// See [`If`].
    If(Box<If>),
}

/// Runs a graph again and again.
///
/// Operands: `rounds i64[]`, `go bool[]`, the initial carried values, then whatever else the body reads. A round runs while fewer
/// than `rounds` and than `limit` were run and `go` holds, which each round computes anew.
///
/// Results: the number of rounds run (`i64[]`), the carried values after the last, and one stack `[limit, …]` for each value that
/// rounds add to one, zero beyond the rounds run.
#[derive(Clone, PartialEq, Debug)]
pub struct Loop {
    /// Inputs: the round (`i64[]`, from 0), the carried values, then the operands behind the initial values. Outputs: whether to go
    /// on, the carried values of the next round, then an element of each stack.
    pub body: Graph,
    /// How many values are carried.
    pub carried: usize,
    pub limit: usize,
}

/// Runs one graph or the other. Operands: `cond bool[]`, then the inputs of both graphs. Results: the outputs of the one that ran;
/// both have outputs of the same types.
#[derive(Clone, PartialEq, Debug)]
pub struct If {
    pub then: Graph,
    pub otherwise: Graph,
}

impl Op {
    /// The graphs inside.
    pub fn bodies(&self) -> Vec<&Graph> {
        match self {
            Op::Loop(inner) => vec![&inner.body],
            Op::If(inner) => vec![&inner.then, &inner.otherwise],
            _ => Vec::new(),
        }
    }

    pub fn bodies_mut(&mut self) -> Vec<&mut Graph> {
        match self {
            Op::Loop(inner) => vec![&mut inner.body],
            Op::If(inner) => {
                let If { then, otherwise } = inner.as_mut();
                vec![then, otherwise]
            }
            _ => Vec::new(),
        }
    }

    pub fn has_body(&self) -> bool {
        matches!(self, Op::Loop(_) | Op::If(_))
    }

    /// Of the operands of an op with bodies, the first that the bodies read as it is, and the place of the same among their inputs.
    pub fn captures(&self) -> (usize, usize) {
        match self {
            Op::Loop(inner) => (2 + inner.carried, 1 + inner.carried),
            _ => (1, 0),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UnaryFn {
    /// Signed numbers.
    Neg,
    Abs,
    /// −1, 0 or 1; NaN stays.
    Sign,
    /// `bool`: logical; integers: bits.
    Not,
    Sqrt,
    Exp,
    /// `2^64 · e^x` of x up to 0, of those below −105 at most `2^64 · e^-105`; above 0 some number. What is divided by its sum needs
    /// nothing else, and takes less time: none of the results is subnormal.
    ExpOfNegative,
    Log,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    Floor,
    Ceil,
    Trunc,
    /// To the nearest integer, ties to even.
    Round,
    /// Gives `bool`.
    IsNan,
    /// Gives `bool`.
    IsInf,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BinaryFn {
    Add,
    Sub,
    Mul,
    /// Integers truncate; by 0 gives 0.
    Div,
    /// The remainder with the sign of the dividend (C's `%` and `fmod`); integers by 0 give 0.
    Rem,
    /// The remainder with the sign of the divisor (Python's `%`); integers by 0 give 0.
    Mod,
    /// Floats, and integers by a non-negative exponent (a negative one gives the truncated real result).
    Pow,
    /// NaN where either is NaN.
    Min,
    Max,
    /// `bool`: logical; integers: bits.
    And,
    Or,
    Xor,
    /// Unsigned integers; an amount of the width or more gives 0.
    Shl,
    Shr,
    Eq,
    Lt,
    Le,
}

impl BinaryFn {
    /// Whether it gives a `bool`, of operands of any dtype.
    pub fn is_comparison(self) -> bool {
        matches!(self, BinaryFn::Eq | BinaryFn::Lt | BinaryFn::Le)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReduceFn {
    Sum,
    Prod,
    /// NaN where an element is NaN.
    Max,
    Min,
    /// The greatest number: NaN is left out, as if it were not there.
    MaxNumber,
}

/// Labels of the axes of both operands and of the result: `lhs "bmk"`, `rhs "bkn"`, `out "bmn"` is a batched matrix product.
/// A label occurs at most once in each; every label of `out` is in an operand; extents of one label are equal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Contraction {
    pub lhs: Vec<u8>,
    pub rhs: Vec<u8>,
    pub out: Vec<u8>,
}

/// A convolution of any rank. All lists have one entry for each spatial axis.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Conv {
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    /// Zeros before and after, in the dilated input; negative amounts crop.
    pub pads: Vec<(i64, i64)>,
    /// Distance between neighbouring input elements, filled with zeros: a transposed convolution's stride.
    pub input_dilations: Vec<usize>,
    pub groups: usize,
}

/// A sliding window. All lists have one entry for each windowed axis.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    pub kernel: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    /// Cells before and after that do not exist. Every window holds at least one cell that does, or the identity results.
    pub pads: Vec<(usize, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SliceAxis {
    pub start: usize,
    /// Not 0; negative walks backwards.
    pub step: i64,
    /// Elements taken.
    pub count: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PadMode {
    Constant,
    /// Mirrored at the border element, which is not repeated; goes on mirroring where the amount exceeds the axis.
    Reflect,
    /// The border element.
    Edge,
    /// From the other end.
    Wrap,
}
