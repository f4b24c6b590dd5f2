//! What becomes of the scores of a model: transforms, and the choice of a label.

use mcc_support::{DType, Result, Tensor};

use crate::graph::{Op, ReduceFn, Wire};
use crate::ops::NodeContext;
use crate::ops::activation::sigmoid;
use crate::ops::softmax::softmax;

/// The attribute `post_transform`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transform {
    None,
    Softmax,
    Logistic,
    /// Softmax in which a score of 0 keeps no weight.
    SoftmaxZero,
    Probit,
}

impl Transform {
    /// In the order of the numbers by which `TreeEnsemble` names them.
    pub const ALL: [(&'static str, Transform); 5] = [
        ("NONE", Transform::None),
        ("SOFTMAX", Transform::Softmax),
        ("LOGISTIC", Transform::Logistic),
        ("SOFTMAX_ZERO", Transform::SoftmaxZero),
        ("PROBIT", Transform::Probit),
    ];

    pub fn of(node: &NodeContext<'_, '_>) -> Result<Self> {
        let word = node.attributes().word("post_transform", &Self::ALL.map(|(name, _)| name))?;
        Ok(Self::ALL.iter().find(|(name, _)| *name == word).expect("one of the words").1)
    }

    /// As [`apply`](Self::apply), but of one score ONNX Runtime transforms none except by PROBIT.
    pub fn apply_to_several(self, scores: Wire<'_>) -> Wire<'_> {
        if scores.shape()[1] == 1 && self != Transform::Probit { scores } else { self.apply(scores) }
    }

    /// Of rows of scores `[batch, scores]`.
    pub fn apply(self, scores: Wire<'_>) -> Wire<'_> {
        match self {
            Transform::None => scores,
            Transform::Softmax => softmax(scores, &[1]),
            Transform::Logistic => sigmoid(scores),
            Transform::SoftmaxZero => softmax_zero(scores),
            Transform::Probit => probit(scores),
        }
    }
}

fn softmax_zero(scores: Wire<'_>) -> Wire<'_> {
    let max = scores.reduce_keep(ReduceFn::Max, &[1]);
    let counts = scores.like(1e-7).lt(scores.abs());
    let exp = (scores - max).exp();
    let sum = counts.select(exp, exp.like(0.0)).reduce_keep(ReduceFn::Sum, &[1]);
    counts.select(exp, scores * (-max).exp()) / sum
}

/// The quantile of the normal distribution, by the closed formula for the inverse of erf that is exact to 0.2 %.
fn probit(scores: Wire<'_>) -> Wire<'_> {
    const A: f64 = 0.147;
    let x = scores * 2.0 - 1.0;
    let log = ((1.0 - x) * (x + 1.0)).log();
    let mean = log * 0.5 + 2.0 / (std::f64::consts::PI * A);
    let root = ((mean * mean - log * (1.0 / A)).sqrt() - mean).sqrt();
    x.lt(x.like(0.0)).select(-root, root) * std::f64::consts::SQRT_2
}

/// The scores of both classes from that of the second one, `[batch, 1]`, which may be a probability.
pub fn both_scores<'b>(node: &NodeContext<'_, 'b>, score: Wire<'b>, transform: Transform, probability: bool) -> Result<Wire<'b>> {
    let other = match transform {
        Transform::Probit => return Err(node.error("PROBIT of one score for two classes is not supported")),
        Transform::None | Transform::Softmax | Transform::SoftmaxZero if probability => 1.0 - score,
        _ => -score,
    };
    let pair = node.builder().concat(&[other, score], 1);
    Ok(if transform == Transform::Logistic { transform.apply(pair) } else { pair })
}

/// The labels of a classifier's classes.
pub struct Labels {
    numbers: Vec<i64>,
}

impl Labels {
    /// From one of two attributes. Strings become their places in the list, of which the user is told.
    pub fn of(node: &NodeContext<'_, '_>, numbers: &str, strings: &str) -> Result<Self> {
        let attributes = node.attributes();
        let given = attributes.ints(numbers)?.filter(|given| !given.is_empty());
        let names = attributes.strings(strings)?.filter(|names| !names.is_empty());
        match (given, names) {
            (Some(numbers), None) => Ok(Self { numbers }),
            (None, Some(names)) => {
                if node.wants_output(0) {
                    let list: Vec<String> = names.iter().enumerate().map(|(at, name)| format!("{at} is '{name}'")).collect();
                    node.warn(format!("the labels are strings; the result is their number: {}", list.join(", ")));
                }
                Ok(Self { numbers: (0..names.len() as i64).collect() })
            }
            (None, None) => Err(node.error(format!("one of the attributes '{numbers}' and '{strings}' is needed"))),
            (Some(_), Some(_)) => Err(node.error(format!("only one of the attributes '{numbers}' and '{strings}' may be given"))),
        }
    }

    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// The labels of classes given by their places.
    pub fn choose<'b>(&self, places: Wire<'b>) -> Wire<'b> {
        if self.numbers.iter().copied().eq(0..self.numbers.len() as i64) {
            return places;
        }
        places.builder().constant(Tensor::from_elements([self.numbers.len()], &self.numbers)).gather(places, 0)
    }

    /// The second label where a condition of shape `[batch]` holds, else the first.
    pub fn either<'b>(&self, second: Wire<'b>) -> Wire<'b> {
        self.choose(second.cast(DType::I64))
    }

    /// The label of the largest score in each row, the first of equals.
    pub fn of_largest<'b>(&self, scores: Wire<'b>) -> Wire<'b> {
        let places = scores.builder().add(Op::ArgReduce { max: true, axis: 1, last: false }, &[scores]);
        self.choose(places)
    }
}

/// Column `index` of rows, as a vector.
pub fn column(x: Wire<'_>, index: usize) -> Wire<'_> {
    let batch = x.shape()[0];
    x.slice_axis(1, index, 1).reshape([batch])
}
