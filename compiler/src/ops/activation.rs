//! Activation functions.

use mcc_support::DType;

use super::OpDef;
use super::conv::per_channel;
use super::unary::unary;
use crate::graph::{UnaryFn, Wire};

pub static ALL: &[&OpDef] = &[
    &CELU, &ELU, &GELU, &HARD_SIGMOID, &HARD_SWISH, &LEAKY_RELU, &MICROSOFT_GELU, &MISH, &PRELU, &QUICK_GELU, &RELU, &SELU,
    &SHRINK, &SIGMOID, &SOFTPLUS, &SOFTSIGN, &SWISH, &TANH, &THRESHOLDED_RELU,
];

/// Applies a formula in f32 to types that would lose too much on its way; the result has the operand's type.
pub(super) fn widened<'b>(x: Wire<'b>, formula: impl FnOnce(Wire<'b>) -> Wire<'b>) -> Wire<'b> {
    match x.dtype() {
        DType::F32 | DType::F64 => formula(x),
        dtype => formula(x.cast(DType::F32)).cast(dtype),
    }
}

pub(super) fn sigmoid(x: Wire<'_>) -> Wire<'_> {
    x.unary(UnaryFn::Sigmoid)
}

/// `log(1 + u)` with the relative error of `log`: the rounding of `1 + u` is divided out again.
fn log1p(u: Wire<'_>) -> Wire<'_> {
    let sum = u + 1.0;
    sum.eq(u.like(1.0)).select(u, sum.log() * u / (sum - 1.0))
}

/// `log(1 + exp(x))`, for any `x`.
pub(super) fn softplus(x: Wire<'_>) -> Wire<'_> {
    x.max(x.like(0.0)) + log1p((-x.abs()).exp())
}

pub(super) fn erf_gelu(x: Wire<'_>) -> Wire<'_> {
    x * 0.5 * ((x * std::f64::consts::FRAC_1_SQRT_2).unary(UnaryFn::Erf) + 1.0)
}

pub(super) fn tanh_gelu(x: Wire<'_>) -> Wire<'_> {
    const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
    x * 0.5 * (((x + x * x * x * 0.044715) * SQRT_2_OVER_PI).unary(UnaryFn::Tanh) + 1.0)
}

/// An activation function with its parameters.
pub(super) struct Activation {
    name: &'static str,
    alpha: f64,
    beta: f64,
}

impl Activation {
    /// The function of a name in any case. `parameter` is asked for alpha (0) and beta (1) where the function has them.
    pub fn named(name: &str, mut parameter: impl FnMut(usize) -> Option<f32>) -> Option<Self> {
        let &(name, alpha, beta) = ACTIVATIONS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name))?;
        let mut number =
            |which: usize, default: Option<f32>| default.map_or(0.0, |default| f64::from(parameter(which).unwrap_or(default)));
        Some(Self { name, alpha: number(0, alpha), beta: number(1, beta) })
    }

    pub fn apply<'b>(&self, x: Wire<'b>) -> Wire<'b> {
        let (alpha, beta, zero) = (self.alpha, self.beta, x.like(0.0));
        match self.name {
            "relu" => x.max(zero),
            "tanh" => x.unary(UnaryFn::Tanh),
            "sigmoid" => sigmoid(x),
            "affine" => x * alpha + beta,
            "leakyrelu" => x.lt(zero).select(x * alpha, x),
            "thresholdedrelu" => x.like(alpha).le(x).select(x, zero),
            "scaledtanh" => (x * beta).unary(UnaryFn::Tanh) * alpha,
            "hardsigmoid" => (x * alpha + beta).clamp(0.0, 1.0),
            "elu" => x.lt(zero).select((x.exp() - 1.0) * alpha, x),
            "softsign" => x / (x.abs() + 1.0),
            _ => softplus(x),
        }
    }
}

/// Name, and defaults of alpha and beta, each where the function has one.
const ACTIVATIONS: [(&str, Option<f32>, Option<f32>); 11] = [
    ("relu", None, None),
    ("tanh", None, None),
    ("sigmoid", None, None),
    ("affine", Some(1.0), Some(0.0)),
    ("leakyrelu", Some(0.01), None),
    ("thresholdedrelu", Some(1.0), None),
    ("scaledtanh", Some(1.0), Some(1.0)),
    ("hardsigmoid", Some(0.2), Some(0.5)),
    ("elu", Some(1.0), None),
    ("softsign", None, None),
    ("softplus", None, None),
];

unary!(RELU, "Relu", [6, 13, 14], |x| x.max(x.like(0.0)));
unary!(SIGMOID, "Sigmoid", [6, 13], |x| widened(x, sigmoid));
unary!(SOFTPLUS, "Softplus", [1, 22], |x| widened(x, softplus));
unary!(
    /// `x / (1 + |x|)`
    SOFTSIGN, "Softsign", [1, 22], |x| widened(x, |x| x / (x.abs() + 1.0)));
unary!(TANH, "Tanh", [6, 13], |x| x.unary(UnaryFn::Tanh));
unary!(
    /// `x · clamp(x / 6 + 1/2, 0, 1)`
    HARD_SWISH, "HardSwish", [14, 22], |x| widened(x, |x| x * (x * (1.0 / 6.0) + 0.5).clamp(0.0, 1.0)));
unary!(
/// `x · tanh(softplus(x))`, where the tanh is `n / (n + 2)` with `n = e^x (e^x + 2)`; it is 1 long before that overflows.
MISH, "Mish", [18, 22], |x| widened(x, |x| {
    let exp = x.min(x.like(20.0)).exp();
    let n = exp * (exp + 2.0);
    x * (n / (n + 2.0))
}));

/// Declares an activation with float attributes, each with its default: `alpha · …`.
macro_rules! parametric {
    ($(#[$attr:meta])* $ident:ident, $domain:literal, $name:literal, $since:expr, |$x:ident $(, $param:ident: $attribute:literal = $default:literal)*| $formula:expr) => {
        $(#[$attr])*
        pub static $ident: OpDef = OpDef {
            domain: $domain,
            name: $name,
            since: &$since,
            shape_inputs: &[],
            build: |node| {
                let x = node.input(0)?;
                $(let $param = f64::from(node.attributes().float_or($attribute, $default)?);)*
                Ok(vec![widened(x, |$x| $formula)])
            },
        };
    };
}

parametric!(
/// `max(0, x) + min(0, alpha (exp(x / alpha) − 1))`
CELU, "", "Celu", [12], |x, alpha: "alpha" = 1.0| {
    let zero = x.like(0.0);
    x.max(zero) + (((x / alpha).exp() - 1.0) * alpha).min(zero)
});
parametric!(
    ELU, "", "Elu", [6, 22], |x, alpha: "alpha" = 1.0| x.lt(x.like(0.0)).select((x.exp() - 1.0) * alpha, x));
parametric!(
    HARD_SIGMOID, "", "HardSigmoid", [6, 22], |x, alpha: "alpha" = 0.2, beta: "beta" = 0.5| (x * alpha + beta).clamp(0.0, 1.0));
parametric!(
    LEAKY_RELU, "", "LeakyRelu", [6, 16], |x, alpha: "alpha" = 0.01| x.lt(x.like(0.0)).select(x * alpha, x));
parametric!(
    SELU, "", "Selu", [6, 22], |x, alpha: "alpha" = 1.673_263_2, gamma: "gamma" = 1.050_701|
        x.like(0.0).lt(x).select(x, (x.exp() - 1.0) * alpha) * gamma);
parametric!(
/// Moves elements outside of `[-lambd, lambd]` towards 0 and makes those inside 0.
SHRINK, "", "Shrink", [9], |x, bias: "bias" = 0.0, lambd: "lambd" = 0.5| {
    let above = x.like(lambd).lt(x).select(x - bias, x.like(0.0));
    x.lt(x.like(-lambd)).select(x + bias, above)
});
parametric!(
    /// `x · sigmoid(alpha x)`
    SWISH, "", "Swish", [24], |x, alpha: "alpha" = 1.0| x * sigmoid(x * alpha));
parametric!(
    QUICK_GELU, "com.microsoft", "QuickGelu", [1], |x, alpha: "alpha" = 1.702| x * sigmoid(x * alpha));
parametric!(
    THRESHOLDED_RELU, "", "ThresholdedRelu", [10, 22], |x, alpha: "alpha" = 1.0| x.like(alpha).lt(x).select(x, x.like(0.0)));
parametric!(MICROSOFT_GELU, "com.microsoft", "Gelu", [1], |x| erf_gelu(x));

pub static GELU: OpDef = OpDef {
    domain: "",
    name: "Gelu",
    since: &[20],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let approximate = node.attributes().word("approximate", &["none", "tanh"])?;
        Ok(vec![widened(x, if approximate == "tanh" { tanh_gelu } else { erf_gelu })])
    },
};

/// `slope · x` where `x` is negative; the slope broadcasts to `x`, in opset 6 along the channels.
pub static PRELU: OpDef = OpDef {
    domain: "",
    name: "PRelu",
    since: &[6, 7, 9, 16],
    shape_inputs: &[],
    build: |node| {
        let (x, slope) = (node.input(0)?, node.input(1)?);
        let slope = if node.version() < 7 && slope.rank() == 1 && slope.shape()[0] != 1 {
            per_channel(node, "the slope", slope, x, 1)?
        } else {
            slope.broadcast(x.shape())
        };
        Ok(vec![x.lt(x.like(0.0)).select(x * slope, x)])
    },
};
