//! Support vector machines.

use mcc_support::{DType, Result, Tensor};

use super::scores::{Labels, Transform, both_scores, column};
use super::{DOMAIN, f32_rows};
use crate::graph::{Extent, ReduceFn, UnaryFn, Wire};
use crate::ops::activation::sigmoid;
use crate::ops::{NodeContext, OpDef};

pub static ALL: &[&OpDef] = &[&SVM_CLASSIFIER, &SVM_REGRESSOR];

/// How a row is compared with a support vector.
struct Kernel {
    kind: &'static str,
    gamma: f64,
    constant: f64,
    degree: f64,
}

impl Kernel {
    fn of(node: &NodeContext<'_, '_>) -> Result<Self> {
        let kind = node.attributes().word("kernel_type", &["LINEAR", "POLY", "RBF", "SIGMOID"])?;
        let parameters = node.attributes().floats_or("kernel_params", vec![])?;
        let [gamma, constant, degree] = match parameters[..] {
            [] => [0.0; 3],
            [gamma, constant, degree] => [gamma, constant, degree].map(f64::from),
            _ => return Err(node.error(format!("attribute 'kernel_params' has {} entries, not 3", parameters.len()))),
        };
        Ok(Self { kind, gamma, constant, degree })
    }

    /// For rows `x [batch, features]` and vectors `v [count, features]`: `[batch, count]`.
    fn apply<'b>(&self, x: Wire<'b>, v: Wire<'b>) -> Wire<'b> {
        if self.kind == "RBF" {
            let (batch, features, count) = (x.shape()[0], x.shape()[1], v.shape()[0]);
            let distance = x.reshape([batch, 1, features]) - v.reshape([1, count, features]);
            return ((distance * distance).reduce(ReduceFn::Sum, &[2]) * -self.gamma).exp();
        }
        let product = x.contract(v, "bf", "vf", "bv");
        let scaled = || product * self.gamma + self.constant;
        match self.kind {
            "POLY" => {
                let base = scaled();
                match self.degree {
                    2.0 => base * base,
                    3.0 => base * base * base,
                    degree => base.pow(base.like(degree)),
                }
            }
            "SIGMOID" => scaled().unary(UnaryFn::Tanh),
            _ => product,
        }
    }
}

/// A list of floats as a matrix `[rows, columns]`, of which one extent is given.
fn matrix<'b>(node: &NodeContext<'_, 'b>, name: &str, rows: usize, columns: usize) -> Result<Wire<'b>> {
    let values = node.attributes().required(name, node.attributes().floats(name)?)?;
    if values.len() != node.count("the entries of a matrix", &[rows, columns])? {
        return Err(node.error(format!("attribute '{name}' has {} entries, not {rows} · {columns}", values.len())));
    }
    Ok(node.builder().constant(Tensor::from_elements([rows, columns], &values)))
}

fn list(node: &NodeContext<'_, '_>, name: &str) -> Result<Vec<f32>> {
    node.attributes().floats_or(name, vec![])
}

pub static SVM_REGRESSOR: OpDef = OpDef {
    domain: DOMAIN,
    name: "SVMRegressor",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let x = f32_rows(node)?;
        let attributes = node.attributes();
        let (features, kernel, transform) = (x.shape()[1], Kernel::of(node)?, Transform::of(node)?);
        let supports = node.size("the count of support vectors", attributes.int_or("n_supports", 0)?)?;
        let rho = list(node, "rho")?;
        let &[rho, ..] = &rho[..] else { return Err(node.error("attribute 'rho' is missing")) };
        let score = if supports > 0 {
            let similar = kernel.apply(x, matrix(node, "support_vectors", supports, features)?);
            similar.contract(matrix(node, "coefficients", 1, supports)?, "bv", "sv", "bs")
        } else {
            attributes.ignore("support_vectors");
            x.contract(matrix(node, "coefficients", 1, features)?, "bf", "sf", "bs")
        };
        let score = score + f64::from(rho);
        let score = if attributes.flag("one_class", false)? {
            score.like(0.0).lt(score).select(score.like(1.0), score.like(-1.0))
        } else {
            score
        };
        Ok(vec![transform.apply_to_several(score)])
    },
};

/// Results are the label and the scores of each row: of classes where the model has probabilities or is linear, else of pairs.
pub static SVM_CLASSIFIER: OpDef = OpDef {
    domain: DOMAIN,
    name: "SVMClassifier",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let x = f32_rows(node)?;
        let transform = Transform::of(node)?;
        let labels = Labels::of(node, "classlabels_ints", "classlabels_strings")?;
        if labels.count() < 2 {
            return Err(node.error("there are less than two classes"));
        }
        let vectors = node.attributes().ints_or("vectors_per_class", vec![])?;
        let vectors = vectors.iter().map(|&count| node.size("the count of vectors", count)).collect::<Result<Vec<_>>>()?;
        let kernel = Kernel::of(node)?;
        let pairs = Pairs { classes: labels.count() };
        let total = vectors.iter().try_fold(0usize, |total, &count| total.checked_add(count));
        let total = total.ok_or_else(|| node.error("there are too many support vectors"))?;
        if total == 0 {
            return linear(node, x, &labels, transform);
        }
        if vectors.len() != labels.count() {
            return Err(node.error(format!("there are vectors for {} classes, but {} labels", vectors.len(), labels.count())));
        }
        let similar = kernel.apply(x, matrix(node, "support_vectors", total, x.shape()[1])?);
        let rho = list(node, "rho")?;
        if rho.len() != pairs.count() {
            return Err(node.error(format!("attribute 'rho' has {} entries, not {}", rho.len(), pairs.count())));
        }
        let coefficients = pairs.coefficients(node, &vectors)?;
        let decisions =
            similar.contract(coefficients, "bv", "vp", "bp") + node.builder().constant(Tensor::from_elements([rho.len()], &rho));
        let label = labels.of_largest(pairs.votes(decisions));
        let (a, b) = (list(node, "prob_a")?, list(node, "prob_b")?);
        if a.is_empty() && b.is_empty() {
            let scores = match labels.count() {
                2 => both_scores(node, decisions, transform, transform != Transform::None)?,
                _ => transform.apply_to_several(decisions),
            };
            return Ok(vec![label, scores]);
        }
        if a.len() != pairs.count() || b.len() != pairs.count() {
            return Err(node.error(format!("{} and {} parameters of probabilities are given", a.len(), b.len())));
        }
        let row = |values: &[f32]| node.builder().constant(Tensor::from_elements([values.len()], values));
        let likely = sigmoid(-(decisions * row(&a) + row(&b))).clamp(1e-7, f64::from(1.0 - 1e-7f32));
        Ok(vec![label, transform.apply_to_several(pairs.probabilities(likely))])
    },
};

/// Without support vectors there is a row of coefficients for each class.
fn linear<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, labels: &Labels, transform: Transform) -> Result<Vec<Wire<'b>>> {
    for name in ["support_vectors", "prob_a", "prob_b"] {
        node.attributes().ignore(name);
    }
    let rho = list(node, "rho")?;
    let &[rho, ..] = &rho[..] else { return Err(node.error("attribute 'rho' is missing")) };
    let coefficients = matrix(node, "coefficients", labels.count(), x.shape()[1])?;
    let scores = x.contract(coefficients, "bf", "sf", "bs") + f64::from(rho);
    let label = if labels.count() == 2 {
        let positive = coefficients.constant().is_some_and(|tensor| tensor.numbers().all(|number| number.as_f64() >= 0.0));
        let largest = scores.reduce(ReduceFn::Max, &[1]);
        let (first, second) = (column(scores, 0), column(scores, 1));
        let sure = if positive { largest.like(0.5).le(largest) } else { largest.like(0.0).lt(largest) };
        labels.either(sure.select(sure.builder().constant(Tensor::scalar(true)), first.lt(second)))
    } else {
        labels.of_largest(scores)
    };
    Ok(vec![label, transform.apply_to_several(scores)])
}

/// The pairs `(i, j)` of classes with `i < j`, in order: each has a machine that decides between the two.
struct Pairs {
    classes: usize,
}

impl Pairs {
    /// Rounds after which probabilities are taken to be steady; four were enough for ten thousand random tables of up to ten classes.
    const ROUNDS: usize = 6;

    fn count(&self) -> usize {
        self.classes * (self.classes - 1) / 2
    }

    fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        let classes = self.classes;
        (0..classes).flat_map(move |i| (i + 1..classes).map(move |j| (i, j)))
    }

    /// The weight of each support vector in each pair `[vectors, pairs]`, from a row for each class but one.
    fn coefficients<'b>(&self, node: &NodeContext<'_, 'b>, vectors: &[usize]) -> Result<Wire<'b>> {
        let total: usize = vectors.iter().sum();
        let given = list(node, "coefficients")?;
        if given.len() != node.count("coefficients", &[self.classes - 1, total])? {
            return Err(node.error(format!("there are {} coefficients, not {} · {total}", given.len(), self.classes - 1)));
        }
        let starts: Vec<usize> = vectors.iter().scan(0, |end, &count| Some(std::mem::replace(end, *end + count))).collect();
        let mut table = vec![0.0f32; total * self.count()];
        for (pair, (i, j)) in self.iter().enumerate() {
            for (class, row) in [(i, j - 1), (j, i)] {
                for vector in starts[class]..starts[class] + vectors[class] {
                    table[vector * self.count() + pair] = given[row * total + vector];
                }
            }
        }
        Ok(node.builder().constant(Tensor::from_elements([total, self.count()], &table)))
    }

    /// How many pairs each class wins: `[batch, classes]`.
    fn votes<'b>(&self, decisions: Wire<'b>) -> Wire<'b> {
        let mut gains = vec![0.0f32; self.count() * self.classes];
        let mut losses = vec![0.0f32; self.classes];
        for (pair, (i, j)) in self.iter().enumerate() {
            gains[pair * self.classes + i] = 1.0;
            gains[pair * self.classes + j] = -1.0;
            losses[j] += 1.0;
        }
        let builder = decisions.builder();
        let won = decisions.like(0.0).lt(decisions).cast(DType::F32);
        won.contract(builder.constant(Tensor::from_elements([self.count(), self.classes], &gains)), "bp", "pc", "bc")
            + builder.constant(Tensor::from_elements([self.classes], &losses))
    }

    /// Probabilities of classes from those that the first class of each pair wins it, by the iteration of Wu, Lin and Weng which
    /// libsvm uses; it stops where the probabilities are steady.
    fn probabilities<'b>(&self, likely: Wire<'b>) -> Wire<'b> {
        let (classes, batch, builder) = (self.classes, likely.shape()[0], likely.builder());
        let mut wins = vec![vec![likely; classes]; classes];
        for (pair, (i, j)) in self.iter().enumerate() {
            wins[i][j] = likely.slice_axis(1, pair, 1);
            wins[j][i] = 1.0 - wins[i][j];
        }
        let entry = |i: usize, j: usize| {
            if i != j {
                return -wins[j][i] * wins[i][j];
            }
            let squares = (0..classes).filter(|&other| other != i).map(|other| wins[other][i] * wins[other][i]);
            squares.reduce(|sum, square| sum + square).expect("two classes or more")
        };
        let row = |i: usize| builder.concat(&(0..classes).map(|j| entry(i, j)).collect::<Vec<_>>(), 1);
        let rows: Vec<Wire<'b>> = (0..classes).map(row).collect();
        let table = builder.concat(&rows.iter().map(|row| row.reshape([batch, 1, classes])).collect::<Vec<_>>(), 1);
        let mut p = likely.like(1.0 / classes as f64).broadcast_to(&[likely.extent(0), Extent::from(classes)]);
        for _ in 0..Self::ROUNDS {
            let mut products = table.contract(p, "bij", "bj", "bi");
            let mut total = (p * products).reduce_keep(ReduceFn::Sum, &[1]);
            let error = (products - total).abs().reduce_keep(ReduceFn::Max, &[1]);
            let mut next = p;
            for (i, row) in rows.iter().enumerate() {
                let (own, product) = (row.slice_axis(1, i, 1), products.slice_axis(1, i, 1));
                let step = (total - product) / own;
                let scale = step + 1.0;
                total = (total + step * (step * own + product * 2.0)) / scale / scale;
                products = (products + step * *row) / scale;
                let here = builder.iota(DType::I32, [1, classes], 1);
                next = here.eq(here.like(i as f64)).select(next + step, next) / scale;
            }
            p = error.lt(error.like(0.005 / classes as f64)).select(p, next);
        }
        p
    }
}
