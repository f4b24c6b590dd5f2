//! The different elements of a tensor, by comparing all with all.

use mcc_support::{DType, Result};

use super::{NodeContext, OpDef};
use crate::graph::{BinaryFn, Op, ReduceFn, UnaryFn, Wire};

pub static ALL: &[&OpDef] = &[&UNIQUE];

/// The different rows of a matrix.
struct Unique<'b> {
    /// `bool[rows]`: whether a row is the first of those equal to it.
    is_first: Wire<'b>,
    /// `i64[rows]`: the place of each row of the operand in the result.
    inverse: Wire<'b>,
    /// `bool[rows, rows]`: whether a row of the result (the first axis) is a row of the operand.
    same: Wire<'b>,
}

/// NaN is equal to NaN and above all else.
fn compare<'b>(a: Wire<'b>, b: Wire<'b>) -> (Wire<'b>, Wire<'b>) {
    if !a.dtype().is_float() {
        let (a, b) = if a.dtype() == DType::Bool { (a.cast(DType::I32), b.cast(DType::I32)) } else { (a, b) };
        return (a.eq(b), a.lt(b));
    }
    let (none_a, none_b) = (a.unary(UnaryFn::IsNan), b.unary(UnaryFn::IsNan));
    let equal = a.eq(b).binary(BinaryFn::Or, none_a.and(none_b));
    (equal, a.lt(b).binary(BinaryFn::Or, none_b.and(!none_a)))
}

fn count(x: Wire<'_>, axis: usize) -> Wire<'_> {
    x.cast(DType::I64).reduce(ReduceFn::Sum, &[axis])
}

fn first(x: Wire<'_>, axis: usize) -> Wire<'_> {
    x.builder().add(Op::ArgReduce { max: true, axis, last: false }, &[x.cast(DType::I32)])
}

/// Of `x [rows, width]`, sorted by their elements from left to right, or in the order in which they occur. There are rows.
fn unique(x: Wire<'_>, sorted: bool) -> Unique<'_> {
    let builder = x.builder();
    let (rows, width) = (x.shape()[0], x.shape()[1]);
    let (a, b) = (x.reshape([rows, 1, width]), x.reshape([1, rows, width]));
    let (equal, less) = compare(a, b);
    // Of both rows: whether they are equal, whether the first comes before the second.
    let (same, before) = if width == 1 {
        (equal.reshape([rows, rows]), less.reshape([rows, rows]))
    } else {
        let differs = (!equal).any(&[2]);
        let place = first(!equal, 2).reshape([rows, rows, 1]);
        let less = builder.add(Op::GatherElements { axis: 2 }, &[less.cast(DType::I32), place]).cast(DType::Bool);
        (!differs, differs.and(less.reshape([rows, rows])))
    };
    let own = builder.iota(DType::I64, [rows], 0);
    let first_equal = first(same, 1);
    let is_first = first_equal.eq(own);
    let earlier = if sorted { before } else { own.reshape([rows, 1]).lt(first_equal.reshape([1, rows])) };
    let inverse = count(earlier.and(is_first.reshape([rows, 1])), 0);
    let place = builder.iota(DType::I64, [rows, 1], 0);
    Unique { is_first, inverse, same: place.eq(inverse.reshape([1, rows])) }
}

/// The different elements, or parts along an axis; where each occurs first; the place in the result of each; how often each occurs.
pub static UNIQUE: OpDef = OpDef {
    domain: "",
    name: "Unique",
    since: &[11],
    shape_inputs: &[],
    build: |node| -> Result<_> {
        let x = node.input(0)?;
        let attributes = node.attributes();
        let sorted = attributes.flag("sorted", true)?;
        let shape = x.shape();
        let (parts, axis) = match attributes.int("axis")? {
            Some(axis) => (x, node.axis(axis, shape.rank())?),
            None => (x.reshape([shape.count()]), 0),
        };
        let extents = parts.shape();
        if extents.contains(&0) {
            return Err(node.error(format!("{} has no element", x.ty())));
        }
        let mut order: Vec<usize> = (0..extents.rank()).filter(|&other| other != axis).collect();
        order.insert(0, axis);
        let rows = parts.transpose(&order).reshape([extents[axis], extents.count() / extents[axis]]);
        let found = unique(rows, sorted);
        node.builder().check()?;
        let [firsts, counts] = with_length(node, &found, extents[axis]);
        Ok(vec![parts.gather(firsts, axis), firsts, found.inverse, counts])
    },
};

/// Where each row of the result occurs first, and how often it occurs: as long as the run finds.
fn with_length<'b>(node: &NodeContext<'_, 'b>, found: &Unique<'b>, rows: usize) -> [Wire<'b>; 2] {
    let number = count(found.is_first, 0);
    let lists = [first(found.same, 1), count(found.same, 1)];
    if let Some(known) = number.constant() {
        return lists.map(|list| list.slice_axis(0, 0, known.number(0).as_i64() as usize));
    }
    let most = node.most_elements(0, rows);
    let length = node.builder().count(node.output_name(0), number, most, most >= rows);
    lists.map(|list| list.slice_axis(0, 0, most).limited(std::slice::from_ref(&length)))
}
