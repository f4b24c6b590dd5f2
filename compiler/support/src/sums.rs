//! Inner loops of sums of products, for the interpreters. They stand in this crate because it is optimized in every profile.

/// `sums[i] += factor · terms[i]`.
pub fn add_scaled_f64(sums: &mut [f64], factor: f64, terms: &[f64]) {
    for (sum, &term) in sums.iter_mut().zip(terms) {
        *sum += factor * term;
    }
}

/// `sums[i] += factor · terms[i]`, wrapping.
pub fn add_scaled_i64(sums: &mut [i64], factor: i64, terms: &[i64]) {
    for (sum, &term) in sums.iter_mut().zip(terms) {
        *sum = sum.wrapping_add(factor.wrapping_mul(term));
    }
}

/// `sums[to + a] += factor · terms[from + b]` for every `(to, from)` of `rows` and `(a, b)` of `row`, which ascend in both.
pub fn add_scaled_rows_f64(sums: &mut [f64], factor: f64, terms: &[f64], rows: &[(usize, usize)], row: &[(usize, usize)]) {
    let dense = dense_row(row);
    for &(to, from) in rows {
        let (sums, terms) = (&mut sums[to..], &terms[from..]);
        match dense {
            Some((a, b)) => add_scaled_f64(&mut sums[a..a + row.len()], factor, &terms[b..b + row.len()]),
            None => row.iter().for_each(|&(a, b)| sums[a] += factor * terms[b]),
        }
    }
}

/// `sums[to + a] += factor · terms[from + b]` for every `(to, from)` of `rows` and `(a, b)` of `row`, which ascend in both; wrapping.
pub fn add_scaled_rows_i64(sums: &mut [i64], factor: i64, terms: &[i64], rows: &[(usize, usize)], row: &[(usize, usize)]) {
    for &(to, from) in rows {
        let (sums, terms) = (&mut sums[to..], &terms[from..]);
        row.iter().for_each(|&(a, b)| sums[a] = sums[a].wrapping_add(factor.wrapping_mul(terms[b])));
    }
}

/// The first pair of a row without gaps.
fn dense_row(row: &[(usize, usize)]) -> Option<(usize, usize)> {
    let (first, last) = (row.first()?, row.last()?);
    (last.0 - first.0 + 1 == row.len() && last.1 - first.1 + 1 == row.len()).then_some(*first)
}

/// `Σ a[i · a_step] · b[i · b_step]` over `count` terms.
pub fn dot_f64(a: &[f64], a_step: usize, b: &[f64], b_step: usize, count: usize) -> f64 {
    (0..count).map(|i| a[i * a_step] * b[i * b_step]).sum()
}

/// `Σ a[i · a_step] · b[i · b_step]` over `count` terms, wrapping.
pub fn dot_i64(a: &[i64], a_step: usize, b: &[i64], b_step: usize, count: usize) -> i64 {
    (0..count).fold(0, |sum, i| sum.wrapping_add(a[i * a_step].wrapping_mul(b[i * b_step])))
}
