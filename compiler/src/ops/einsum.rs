//! Sums of products in Einstein's notation.

use std::collections::BTreeMap;

use mcc_support::{DType, Result, Shape, Tensor};

use super::OpDef;
use super::matmul::product;
use crate::graph::{ReduceFn, Wire};

pub static ALL: &[&OpDef] = &[&EINSUM];

pub static EINSUM: OpDef = OpDef {
    domain: "",
    name: "Einsum",
    since: &[12],
    shape_inputs: &[],
    build: |node| {
        let operands = node.inputs_from(0)?;
        let attributes = node.attributes();
        let equation = attributes.required("equation", attributes.string("equation")?)?;
        let wrong = |why: &str| node.error(format!("the equation '{equation}' {why}"));
        let text: String = equation.chars().filter(|letter| !letter.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let terms: Vec<&str> = left.split(',').collect();
        if terms.len() != operands.len() {
            return Err(wrong(&format!("has {} terms for {} operands", terms.len(), operands.len())));
        }
        let free = free_letters(&text);
        let shapes: Vec<Shape> = operands.iter().map(|operand| operand.shape()).collect();
        let terms = terms
            .iter()
            .zip(&shapes)
            .map(|(term, shape)| {
                labels(term, shape.rank(), &free).ok_or_else(|| wrong(&format!("does not fit an operand of shape {shape}")))
            })
            .collect::<Result<Vec<_>>>()?;
        let extents = extents(&terms, &shapes).map_err(|label| wrong(&format!("gives the label '{label}' two extents")))?;
        let wide = terms.iter().map(|term| term.ellipsis).max().unwrap_or(0);
        let out = match right {
            Some(right) => {
                labels(right, right.replace("...", "").len() + wide, &free).ok_or_else(|| wrong("is malformed"))?.labels
            }
            None => implicit(&terms, &free[free.len() - wide..]),
        };
        let known = out.iter().enumerate().all(|(at, label)| extents.contains_key(label) && !out[..at].contains(label));
        if !known {
            return Err(wrong("has a result with a label that is repeated or in no operand"));
        }
        let terms: Vec<Vec<u8>> = terms.into_iter().map(|term| term.labels).collect();
        Ok(vec![einsum(operands, terms, &out, &extents)])
    },
};

/// The labels of the axes of a term, and how many of them its ellipsis stands for.
struct Term {
    labels: Vec<u8>,
    ellipsis: usize,
}

/// Letters that an equation does not use: they stand for the axes of its ellipses.
fn free_letters(equation: &str) -> Vec<u8> {
    (b'a'..=b'z').chain(b'A'..=b'Z').filter(|&letter| !equation.contains(char::from(letter))).collect()
}

/// The axes of an ellipsis have the last free letters, so that ellipses of different lengths are aligned at their ends.
fn labels(term: &str, rank: usize, free: &[u8]) -> Option<Term> {
    let (before, after) = match term.split_once("...") {
        Some((before, after)) => (before, Some(after)),
        None => (term, None),
    };
    let named = before.len() + after.map_or(0, str::len);
    let ellipsis = rank.checked_sub(named).filter(|&ellipsis| (ellipsis == 0 || after.is_some()) && ellipsis <= free.len())?;
    let letters = before.bytes().chain(after.unwrap_or_default().bytes());
    if !letters.clone().all(|letter| letter.is_ascii_alphabetic()) {
        return None;
    }
    let mut labels: Vec<u8> = letters.collect();
    labels.splice(before.len()..before.len(), free[free.len() - ellipsis..].iter().copied());
    Some(Term { labels, ellipsis })
}

/// The extent of each label: axes of extent 1 broadcast.
fn extents(terms: &[Term], shapes: &[Shape]) -> Result<BTreeMap<u8, usize>, char> {
    let mut extents = BTreeMap::new();
    for (&label, &extent) in terms.iter().zip(shapes).flat_map(|(term, shape)| term.labels.iter().zip(shape.iter())) {
        let known = extents.entry(label).or_insert(extent);
        if *known == 1 {
            *known = extent;
        } else if extent != 1 && extent != *known {
            return Err(char::from(label));
        }
    }
    Ok(extents)
}

/// The result of an equation without arrow: the axes of the ellipsis, and in alphabetic order the labels that occur once.
fn implicit(terms: &[Term], ellipsis: &[u8]) -> Vec<u8> {
    let all: Vec<u8> = terms.iter().flat_map(|term| term.labels.iter().copied()).collect();
    let once = |label: &u8| all.iter().filter(|&other| other == label).count() == 1;
    let mut named: Vec<u8> = all.iter().copied().filter(|label| once(label) && !ellipsis.contains(label)).collect();
    named.sort_unstable();
    [ellipsis, &named].concat()
}

fn einsum<'b>(operands: Vec<Wire<'b>>, terms: Vec<Vec<u8>>, out: &[u8], extents: &BTreeMap<u8, usize>) -> Wire<'b> {
    let dtype = operands[0].dtype();
    // Products of narrow integers are made in wide ones, whose low bits are theirs.
    let wide = if dtype.is_float() || dtype.size_bits() >= 32 { dtype } else { DType::I32 };
    let mut operands = operands.into_iter().zip(terms).map(|(operand, labels)| {
        let operand = if operand.dtype() == dtype { operand.cast(wide) } else { operand };
        simplified(operand, labels, extents)
    });
    let (mut result, mut labels) = operands.next().expect("an equation has a term");
    let rest: Vec<(Wire<'b>, Vec<u8>)> = operands.collect();
    for (at, (operand, other)) in rest.iter().enumerate() {
        let later = |label: &u8| out.contains(label) || rest[at + 1..].iter().any(|(_, labels)| labels.contains(label));
        let both = labels.iter().chain(other.iter().filter(|label| !labels.contains(label)));
        let mut kept: Vec<u8> = both.copied().filter(later).collect();
        if at + 1 == rest.len() {
            kept = out.iter().copied().filter(|label| kept.contains(label)).collect();
        }
        let text = |labels: &[u8]| String::from_utf8(labels.to_vec()).expect("labels are letters");
        result = product(result, *operand, &text(&labels), &text(other), &text(&kept));
        labels = kept;
    }
    let summed: Vec<usize> = (0..labels.len()).filter(|&axis| !out.contains(&labels[axis])).collect();
    let result = result.reduce(ReduceFn::Sum, &summed);
    labels.retain(|label| out.contains(label));
    let kept: Vec<u8> = out.iter().copied().filter(|label| labels.contains(label)).collect();
    let order: Vec<usize> = kept.iter().map(|label| labels.iter().position(|other| other == label).expect("kept")).collect();
    let shape: Shape = out.iter().map(|label| extents[label]).collect();
    result.transpose(&order).reshape(shape).cast(dtype)
}

/// Without repeated labels, by taking diagonals, and without axes of extent 1, which broadcast.
fn simplified<'b>(mut x: Wire<'b>, mut labels: Vec<u8>, extents: &BTreeMap<u8, usize>) -> (Wire<'b>, Vec<u8>) {
    let kept: Vec<usize> = (0..labels.len()).filter(|&axis| x.shape()[axis] != 1).collect();
    let shape = x.shape();
    x = x.reshape(kept.iter().map(|&axis| shape[axis]).collect::<Shape>());
    labels = kept.iter().map(|&axis| labels[axis]).collect();
    while let Some((first, second)) = repeated(&labels) {
        // The two axes go to the front and become one, of which every (extent + 1)-th element is on the diagonal.
        let extent = extents[&labels[first]];
        let order: Vec<usize> =
            [first, second].into_iter().chain((0..labels.len()).filter(|&axis| axis != first && axis != second)).collect();
        let moved = x.transpose(&order);
        let rest = moved.shape()[2..].to_vec();
        let flat = moved.reshape([&[extent * extent], &rest[..]].concat());
        let places: Vec<i64> = (0..extent).map(|place| (place * (extent + 1)) as i64).collect();
        x = flat.gather(x.builder().constant(Tensor::from_elements([extent], &places)), 0);
        labels = [first].into_iter().chain(order[2..].iter().copied()).map(|axis| labels[axis]).collect();
    }
    (x, labels)
}

/// Two axes of one label.
fn repeated(labels: &[u8]) -> Option<(usize, usize)> {
    (0..labels.len())
        .find_map(|second| labels[..second].iter().position(|label| *label == labels[second]).map(|first| (first, second)))
}
