//! The transforms of Winograd's convolutions: matrices from a few points, and their products as straight-line expressions.
//!
//! `m` neighbouring results of a filter of 3 are `Aᵀ ((G w) ∘ (Bᵀ d))` for the `m + 2` inputs `d` that they are made of: a product of
//! polynomials, known by its values at `m + 1` points and by its leading coefficient. In two dimensions the same is done along one and
//! then along the other.

use mcc_support::{Result, Tensor, bail};

use crate::loops::{Binary, Expr, ExprId, Exprs};

/// Weights along each dimension of a filter.
pub const FILTER: usize = 3;

type Matrix = Vec<Vec<f64>>;

/// For some number of results along each dimension.
#[derive(Clone, Debug)]
pub struct Transform {
    /// Bᵀ, of the inputs.
    input: Matrix,
    /// G, of the weights.
    filter: Matrix,
    /// Aᵀ, of the products.
    output: Matrix,
}

impl Transform {
    /// For `outputs` results along each dimension.
    ///
    /// # Errors
    ///
    /// There are points for 2 and 4 only.
    pub fn new(outputs: usize) -> Result<Self> {
        // Fractions of two, so that all factors but those of weights are exact. Of all such pairs of opposites, these four results err
        // least: a quarter of what 1 and 2 do.
        let points: &[f64] = match outputs {
            2 => &[0.0, 1.0, -1.0],
            4 => &[0.0, 0.75, -0.75, 1.5, -1.5],
            _ => bail!("there is no transform for {outputs} × {outputs} results, but for 2 × 2 and 4 × 4"),
        };
        Ok(Self::of(points, outputs))
    }

    fn of(points: &[f64], outputs: usize) -> Self {
        let inputs = points.len() + 1;
        // Coefficients of the product of x - point over some points.
        let product = |points: &mut dyn Iterator<Item = f64>| {
            let mut product = vec![0.0; inputs];
            product[0] = 1.0;
            for (degree, point) in points.enumerate() {
                for power in (0..=degree + 1).rev() {
                    let lower = if power > 0 { product[power - 1] } else { 0.0 };
                    product[power] = lower - point * product[power];
                }
            }
            product
        };
        let others = |at: usize| points.iter().enumerate().filter(move |&(other, _)| other != at).map(|(_, &point)| point);
        let mut input: Matrix = (0..points.len()).map(|at| product(&mut others(at))).collect();
        input.push(product(&mut points.iter().copied()));
        let powers = |point: f64, count: usize| -> Vec<f64> {
            std::iter::successors(Some(1.0), |power| Some(power * point)).take(count).collect()
        };
        let mut filter: Matrix = (0..points.len())
            .map(|at| {
                let scale: f64 = others(at).map(|other| points[at] - other).product();
                powers(points[at], FILTER).into_iter().map(|power| power / scale).collect()
            })
            .collect();
        filter.push((0..FILTER).map(|power| f64::from(u8::from(power + 1 == FILTER))).collect());
        let output = (0..outputs)
            .map(|power| {
                let last = f64::from(u8::from(power + 1 == outputs));
                points.iter().map(|&point| powers(point, outputs)[power]).chain([last]).collect()
            })
            .collect();
        Self { input, filter, output }
    }

    /// Inputs along each dimension of a tile.
    pub fn inputs(&self) -> usize {
        self.input.len()
    }

    /// One dimension of a tile's inputs.
    pub fn input(&self, exprs: &mut Exprs, values: &[ExprId]) -> Vec<ExprId> {
        let mut results = Vec::with_capacity(values.len());
        while let Some(row) = self.input.get(results.len()) {
            let next = self.input.get(results.len() + 1);
            if next.is_some_and(|next| are_opposite(row, next)) {
                // At opposite points the even powers have the same sum, the odd ones the negative.
                let part = |first: usize| -> Vec<(f64, ExprId)> {
                    row.iter().copied().zip(values.iter().copied()).skip(first).step_by(2).collect()
                };
                let (even, odd) = (weighted(exprs, &part(0)), weighted(exprs, &part(1)));
                results.push(joined(exprs, &[even, odd]));
                results.push(joined(exprs, &[even, (-odd.0, odd.1)]));
            } else {
                let terms: Vec<(f64, ExprId)> = row.iter().copied().zip(values.iter().copied()).collect();
                let sum = weighted(exprs, &terms);
                results.push(joined(exprs, &[sum]));
            }
        }
        results
    }

    /// One dimension of a tile's products.
    pub fn output(&self, exprs: &mut Exprs, values: &[ExprId]) -> Vec<ExprId> {
        let column = |at: usize| -> Vec<f64> { self.output.iter().map(|row| row[at]).collect() };
        let mut terms: Vec<Vec<(f64, ExprId)>> = vec![Vec::new(); self.output.len()];
        let mut at = 0;
        while at < values.len() {
            let factors = column(at);
            if at + 1 < values.len() && are_opposite(&factors, &column(at + 1)) {
                let (a, b) = (values[at], values[at + 1]);
                let parts = [exprs.binary(Binary::Add, a, b), exprs.binary(Binary::Sub, a, b)];
                factors.iter().enumerate().for_each(|(power, &factor)| terms[power].push((factor, parts[power % 2])));
                at += 2;
            } else {
                factors.iter().enumerate().for_each(|(power, &factor)| terms[power].push((factor, values[at])));
                at += 1;
            }
        }
        let sum = |terms: &Vec<(f64, ExprId)>| {
            let sum = weighted(exprs, terms);
            joined(exprs, &[sum])
        };
        terms.iter().map(sum).collect()
    }

    /// `G w Gᵀ` for each filter of `[filters, channels, 3, 3]`, as `[inputs · inputs, channels, filters]`: computed in f64, rounded once.
    /// `at` gives the place of an element of a filter by filter, channel and its two indices.
    pub fn weights(&self, weights: &Tensor, [filters, channels]: [usize; 2], at: impl Fn([usize; 4]) -> usize) -> Tensor {
        let inputs = self.inputs();
        let elements = weights.elements::<f32>();
        let mut transformed = vec![0f32; inputs * inputs * channels * filters];
        for (filter, channel) in (0..filters).flat_map(|filter| (0..channels).map(move |channel| (filter, channel))) {
            let dot = |row: &[f64], value: &dyn Fn(usize) -> f64| -> f64 { (0..FILTER).map(|k| row[k] * value(k)).sum() };
            for (i, row) in self.filter.iter().enumerate() {
                let along: Vec<f64> =
                    (0..FILTER).map(|x| dot(row, &|y| f64::from(elements[at([filter, channel, y, x])]))).collect();
                for (j, column) in self.filter.iter().enumerate() {
                    let place = ((i * inputs + j) * channels + channel) * filters + filter;
                    transformed[place] = dot(column, &|x| along[x]) as f32;
                }
            }
        }
        Tensor::from_elements([inputs * inputs, channels, filters].to_vec(), &transformed)
    }
}

/// Whether two lists are the same at even places and negative at odd ones.
fn are_opposite(a: &[f64], b: &[f64]) -> bool {
    let opposite = |at: usize| if at.is_multiple_of(2) { a[at] == b[at] } else { a[at] == -b[at] };
    (0..a.len()).all(opposite) && a != b
}

/// A sum of terms, some with the factor 0, as a factor and an expression: the last term has the factor of all in it.
fn weighted(exprs: &mut Exprs, terms: &[(f64, ExprId)]) -> (f64, ExprId) {
    let terms: Vec<(f64, ExprId)> = terms.iter().copied().filter(|&(factor, _)| factor != 0.0).collect();
    let plain = terms.iter().rposition(|&(factor, _)| factor == 1.0).unwrap_or(terms.len() - 1);
    let (scale, first) = terms[plain];
    let others = terms.iter().enumerate().rev().filter(|&(at, _)| at != plain);
    let sum = others.fold(first, |sum, (_, &(factor, term))| plus(exprs, sum, factor / scale, term));
    (scale, sum)
}

fn joined(exprs: &mut Exprs, terms: &[(f64, ExprId)]) -> ExprId {
    let (scale, sum) = weighted(exprs, terms);
    if scale == 1.0 {
        return sum;
    }
    let scale = exprs.f32(scale as f32);
    exprs.binary(Binary::Mul, scale, sum)
}

fn plus(exprs: &mut Exprs, sum: ExprId, factor: f64, term: ExprId) -> ExprId {
    match factor {
        1.0 => exprs.binary(Binary::Add, sum, term),
        -1.0 => exprs.binary(Binary::Sub, sum, term),
        factor => {
            let factor = exprs.f32(factor as f32);
            exprs.add(Expr::Fma(term, factor, sum))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcc_support::DType;
    use mcc_support::random::Random;

    /// The value of sums and products of parameters, in f64.
    fn value(exprs: &Exprs, id: ExprId, given: &[f64]) -> f64 {
        match *exprs.get(id) {
            Expr::Const(_, bits) => f64::from(f32::from_bits(bits as u32)),
            Expr::Param(at, _) => given[at as usize],
            Expr::Fma(a, b, c) => {
                let [a, b, c] = [a, b, c].map(|id| value(exprs, id, given));
                a * b + c
            }
            Expr::Binary(op, a, b) => {
                let (a, b) = (value(exprs, a, given), value(exprs, b, given));
                match op {
                    Binary::Add => a + b,
                    Binary::Sub => a - b,
                    Binary::Mul => a * b,
                    _ => panic!("neither a sum nor a product"),
                }
            }
            _ => panic!("neither a sum nor a product"),
        }
    }

    #[test]
    fn products_of_transforms_are_the_results_and_take_few_operations() {
        let mut random = Random::new(5);
        for (outputs, most) in [(2, [4, 4]), (4, [12, 12])] {
            let transform = Transform::new(outputs).unwrap();
            let inputs = transform.inputs();
            let mut exprs = Exprs::default();
            let params: Vec<ExprId> = (0..inputs).map(|at| exprs.add(Expr::Param(at as u32, DType::F32))).collect();
            let of_inputs = transform.input(&mut exprs, &params);
            let before = operations(&exprs);
            let of_products = transform.output(&mut exprs, &params);
            assert!(before <= most[0] && operations(&exprs) - before <= most[1], "{before}, {}", operations(&exprs));
            for _ in 0..50 {
                let mut number = || random.below(2001) as f64 / 1000.0 - 1.0;
                let data: Vec<f64> = (0..inputs).map(|_| number()).collect();
                let filter: Vec<f64> = (0..FILTER).map(|_| number()).collect();
                let dot = |row: &Vec<f64>| row.iter().zip(&filter).map(|(a, b)| a * b).sum::<f64>();
                let products: Vec<f64> =
                    of_inputs.iter().zip(&transform.filter).map(|(&id, row)| value(&exprs, id, &data) * dot(row)).collect();
                for (at, &id) in of_products.iter().enumerate() {
                    let want: f64 = (0..FILTER).map(|k| data[at + k] * filter[k]).sum();
                    let got = value(&exprs, id, &products);
                    assert!((got - want).abs() < 1e-12, "{outputs} results: {got} for {want}");
                }
            }
        }
    }

    fn operations(exprs: &Exprs) -> usize {
        (0..exprs.len()).filter(|&id| matches!(exprs.get(ExprId(id as u32)), Expr::Binary(..) | Expr::Fma(..))).count()
    }
}
