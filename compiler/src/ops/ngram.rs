//! Counts of short sequences of tokens.

use std::collections::BTreeMap;

use mcc_support::{DType, Result, Tensor};

use super::scatter::{Reduction, scatter};
use super::{NodeContext, OpDef};
use crate::graph::{ReduceFn, Wire};

pub static ALL: &[&OpDef] = &[&TF_IDF_VECTORIZER];

/// The sequences of one length, each with its place in the result.
struct Grams {
    length: usize,
    grams: Vec<(Vec<i64>, i64)>,
}

/// How often each listed sequence of tokens occurs in a row, with up to `max_skip_count` tokens between each two of its own.
/// The weights are those of the places in the result.
pub static TF_IDF_VECTORIZER: OpDef = OpDef {
    domain: "",
    name: "TfIdfVectorizer",
    since: &[9],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let attributes = node.attributes();
        if attributes.has("pool_strings") {
            return Err(node.error("strings are not supported"));
        }
        if !matches!(x.dtype(), DType::I32 | DType::I64) || x.rank() > 2 {
            return Err(node.error(format!("the tokens must be i32 or i64 in one row or several, not {}", x.ty())));
        }
        let amount = |name: &str| node.size(name, attributes.required(name, attributes.int(name)?)?);
        let (least, most, skips) = (amount("min_gram_length")?, amount("max_gram_length")?, amount("max_skip_count")?);
        let mode = attributes.required("mode", attributes.string("mode")?)?;
        let weights = attributes.floats("weights")?;
        let places = attributes.required("ngram_indexes", attributes.ints("ngram_indexes")?)?;
        let size = places.iter().map(|&place| node.size("a place", place)).collect::<Result<Vec<_>>>()?;
        let size = size.into_iter().max().map_or(0, |last| last + 1);
        let (rows, tokens) = match *x.shape().dims() {
            [rows, tokens] => (rows, tokens),
            [tokens] => (1, tokens),
            _ => (1, 1),
        };
        let rows_of = x.cast(DType::I64).reshape([rows, tokens]);
        let mut counts = vec![(node.builder().constant(Tensor::from_elements([1], &[0i32])).broadcast([rows, 1]), vec![-1])];
        for list in lists(node, &places)?.iter().filter(|list| (least..=most).contains(&list.length) && !list.grams.is_empty()) {
            counts.extend(occurrences(rows_of, list, skips).map(|count| (count, list.grams.iter().map(|gram| gram.1).collect())));
        }
        let frequencies = placed(node, &counts, rows, size);
        let weights = match &weights {
            None => frequencies.like(1.0),
            Some(weights) if weights.len() >= size => node.builder().constant(Tensor::from_elements([size], &weights[..size])),
            Some(weights) => return Err(node.error(format!("there are {} weights for {size} results", weights.len()))),
        };
        let result = match mode {
            "TF" => frequencies,
            "IDF" => frequencies.like(0.0).lt(frequencies).select(weights, frequencies.like(0.0)),
            "TFIDF" => frequencies * weights,
            _ => return Err(node.error(format!("attribute 'mode' is '{mode}', which is not TF, IDF or TFIDF"))),
        };
        Ok(vec![if x.rank() == 2 { result } else { result.reshape([size]) }])
    },
};

/// The sequences that the attributes list by their lengths; of equal ones, the last counts.
fn lists(node: &NodeContext<'_, '_>, places: &[i64]) -> Result<Vec<Grams>> {
    let attributes = node.attributes();
    let starts = attributes.required("ngram_counts", attributes.ints("ngram_counts")?)?;
    let pool = attributes.ints("pool_int64s")?.unwrap_or_default();
    let mut places = places.iter();
    let mut lists = Vec::with_capacity(starts.len());
    for (index, &start) in starts.iter().enumerate() {
        let length = index + 1;
        let end = starts.get(length).copied().unwrap_or(pool.len() as i64);
        let part = usize::try_from(start).ok().zip(usize::try_from(end).ok()).and_then(|(start, end)| pool.get(start..end));
        let part = part.filter(|part| part.len().is_multiple_of(length));
        let part = part.ok_or_else(|| {
            node.error(format!("the pool has no sequences of {length} tokens from {start} to {end}, of {} tokens", pool.len()))
        })?;
        let mut grams = BTreeMap::new();
        for gram in part.chunks(length) {
            let place = places.next().ok_or_else(|| node.error("attribute 'ngram_indexes' has fewer entries than the pool"))?;
            grams.insert(gram.to_vec(), *place);
        }
        lists.push(Grams { length, grams: grams.into_iter().collect() });
    }
    Ok(lists)
}

/// How often each sequence occurs in each row: `[rows, sequences]`. `None` where no row is long enough.
fn occurrences<'b>(rows: Wire<'b>, list: &Grams, skips: usize) -> Option<Wire<'b>> {
    let (builder, tokens) = (rows.builder(), rows.shape()[1]);
    let count = list.grams.len();
    let mut sum: Option<Wire<'b>> = None;
    // A single token is the same whatever is skipped.
    for distance in 1..=if list.length == 1 { 1 } else { skips.saturating_add(1) } {
        let reach = (list.length - 1).saturating_mul(distance);
        if reach >= tokens {
            break;
        }
        let starts = tokens - reach;
        let mut all: Option<Wire<'b>> = None;
        for token in 0..list.length {
            let wanted: Vec<i64> = list.grams.iter().map(|(gram, _)| gram[token]).collect();
            let wanted = builder.constant(Tensor::from_elements([1, count, 1], &wanted));
            let found = rows.slice_axis(1, token * distance, starts).reshape([rows.shape()[0], 1, starts]).eq(wanted);
            all = Some(all.map_or(found, |all| all.and(found)));
        }
        let found = all.expect("a sequence has a token").cast(DType::I32).reduce(ReduceFn::Sum, &[2]);
        sum = Some(sum.map_or(found, |sum| sum + found));
    }
    sum
}

/// Counts, each with its place in the result (none where it is negative), as `f32[rows, size]`.
fn placed<'b>(node: &NodeContext<'_, 'b>, counts: &[(Wire<'b>, Vec<i64>)], rows: usize, size: usize) -> Wire<'b> {
    let builder = node.builder();
    let all = builder.concat(&counts.iter().map(|(count, _)| *count).collect::<Vec<_>>(), 1);
    let places: Vec<i64> = counts.iter().flat_map(|(_, places)| places.iter().copied()).collect();
    let places = builder.constant(Tensor::from_elements([places.len()], &places));
    let zeros = builder.constant(Tensor::from_elements([1], &[0i32])).broadcast([size, rows]);
    let placed = scatter(node, zeros, places, all.transpose(&[1, 0]), 0, Reduction::Combine(ReduceFn::Sum));
    placed.transpose(&[1, 0]).cast(DType::F32)
}
