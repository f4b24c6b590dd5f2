//! Operators whose result does not depend on the elements of run-time values.

use mcc_support::tensor::Number;
use mcc_support::{DType, Result, Shape, Tensor};

use super::gather::diagonal_distance;
use super::shape::fill;
use super::{NodeContext, OpDef};
use crate::graph::{Extent, UnaryFn, Wire};

pub static ALL: &[&OpDef] =
    &[&BLACKMAN_WINDOW, &CONSTANT, &CONSTANT_OF_SHAPE, &EYE_LIKE, &HAMMING_WINDOW, &HANN_WINDOW, &RANGE, &SHAPE, &SIZE];

pub static CONSTANT: OpDef = OpDef {
    domain: "",
    name: "Constant",
    since: &[1, 9, 11, 12, 13, 19, 21, 23, 24, 25],
    shape_inputs: &[],
    build: |node| {
        let attributes = node.attributes();
        let list = |count: usize| Shape::new([count]);
        let values = [
            attributes.tensor("value")?,
            attributes.tensor("sparse_value")?,
            attributes.float("value_float")?.map(Tensor::scalar),
            attributes.floats("value_floats")?.map(|values| Tensor::from_elements(list(values.len()), &values)),
            attributes.int("value_int")?.map(Tensor::scalar),
            attributes.ints("value_ints")?.map(|values| Tensor::from_elements(list(values.len()), &values)),
        ];
        if attributes.has("value_string") || attributes.has("value_strings") {
            return Err(node.error("strings are not supported"));
        }
        let mut values = values.into_iter().flatten();
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(vec![node.builder().constant(value)]),
            _ => Err(node.error("a constant must have exactly one value")),
        }
    },
};

pub static CONSTANT_OF_SHAPE: OpDef = OpDef {
    domain: "",
    name: "ConstantOfShape",
    since: &[9, 20, 21, 23, 24, 25],
    shape_inputs: &[0],
    build: |node| {
        let extents = node.extents(0)?;
        let shape =
            extents.iter().filter_map(Extent::known).map(|dim| node.size("the extent", dim)).collect::<Result<Shape>>()?;
        let value = node.attributes().tensor("value")?.unwrap_or_else(|| Tensor::scalar(0.0f32));
        if value.count() != 1 {
            return Err(node.error(format!("attribute 'value' must have one element, not {}", value.ty())));
        }
        let scalar = node.builder().constant(value.reshaped(Shape::scalar()));
        Ok(vec![if shape.rank() == extents.len() { scalar.broadcast(shape) } else { scalar.broadcast_to(&extents) }])
    },
};

/// From opset 15 on, of the axes from `start` up to `end`, both clamped.
pub static SHAPE: OpDef = OpDef {
    domain: "",
    name: "Shape",
    since: &[1, 13, 15, 19, 21, 23, 24, 25],
    shape_inputs: &[],
    build: |node| {
        let extents = node.input(0)?.extents();
        let rank = extents.len() as i64;
        let (mut start, mut end) = (0, rank);
        if node.version() >= 15 {
            let clamped = |axis: i64| if axis < 0 { axis.saturating_add(rank) } else { axis }.clamp(0, rank);
            start = clamped(node.attributes().int_or("start", 0)?);
            end = clamped(node.attributes().int_or("end", rank)?).max(start);
        }
        Ok(vec![node.builder().extents_wire(&extents[start as usize..end as usize])])
    },
};

pub static SIZE: OpDef = OpDef {
    domain: "",
    name: "Size",
    since: &[1, 13, 19, 21, 23, 24, 25],
    shape_inputs: &[],
    build: |node| {
        let count = node.input(0)?.extents().iter().fold(Extent::from(1i64), |product, extent| &product * extent);
        Ok(vec![node.builder().extent_wire(&count)])
    },
};

/// `start + i · delta` up to `limit`, which is not included.
pub static RANGE: OpDef = OpDef {
    domain: "",
    name: "Range",
    since: &[11, 27],
    shape_inputs: &[0, 1, 2],
    build: |node| {
        if node.version() >= 27 {
            node.attributes().ignore("stash_type");
        }
        let unknown = |index| node.input(index).ok().filter(|wire| wire.constant().is_none());
        if [0, 1, 2].into_iter().filter_map(unknown).any(|wire| wire.dtype().is_integer() || wire.elements().is_some()) {
            return bounded_range(node);
        }
        let (start, limit, delta) = (node.constant(0)?, node.constant(1)?, node.constant(2)?);
        if [&start, &limit, &delta].iter().any(|tensor| tensor.count() != 1 || tensor.dtype() != start.dtype()) {
            return Err(node.error("start, limit and delta must have one element each, of one type"));
        }
        let count = range_count(start.number(0), limit.number(0), delta.number(0));
        let count = count.ok_or_else(|| node.error("the range has no end"))?;
        let scalar = |tensor: Tensor| node.builder().constant(tensor.reshaped(Shape::scalar()));
        let dtype = start.dtype();
        Ok(vec![node.builder().iota(dtype, [count], 0) * scalar(delta) + scalar(start)])
    },
};

/// A range of integers whose ends are known only at run time.
fn bounded_range<'b>(node: &NodeContext<'_, 'b>) -> Result<Vec<Wire<'b>>> {
    let [start, limit, delta] = [0, 1, 2].map(|index| node.extents(index));
    let (start, limit, delta) = (start?, limit?, delta?);
    let ([start], [limit], [delta]) = (&start[..], &limit[..], &delta[..]) else {
        return Err(node.error("start, limit and delta must have one element each"));
    };
    let builder = node.builder();
    let step = delta.known().filter(|&step| step != 0 && step != i64::MIN);
    let step = step.ok_or_else(|| node.error("the step of the range must be known when the model is compiled, and not 0"))?;
    let distance = if step > 0 { limit - start } else { start - limit };
    let places = builder.quotient(&(&distance + &Extent::from(step.abs() - 1)), &Extent::from(step.abs()))?;
    let count = builder.larger(&places, &Extent::default());
    let (dtype, scalar) = (node.input(0)?.dtype(), |index: usize| Ok(node.input(index)?.reshape(Shape::scalar())));
    let range = builder.iota(dtype, [builder.most(&count)], 0) * scalar(2)? + scalar(0)?;
    Ok(vec![range.limited(&[count])])
}

fn range_count(start: Number, limit: Number, delta: Number) -> Option<usize> {
    let exact = |number: Number| match number {
        Number::Int(value) => Some(i128::from(value)),
        Number::UInt(value) => Some(i128::from(value)),
        Number::Float(_) => None,
    };
    if let (Some(start), Some(limit), Some(delta)) = (exact(start), exact(limit), exact(delta)) {
        let (distance, step) = if delta < 0 { (start - limit, -delta) } else { (limit - start, delta) };
        return if step == 0 { None } else { usize::try_from((distance.max(0) + step - 1) / step).ok() };
    }
    let count = ((limit.as_f64() - start.as_f64()) / delta.as_f64()).ceil();
    (count < 1e15).then_some(count.max(0.0) as usize)
}

/// Ones on a diagonal of a matrix of the operand's shape.
pub static EYE_LIKE: OpDef = OpDef {
    domain: "",
    name: "EyeLike",
    since: &[9, 22],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let dtype = node.attributes().dtype("dtype")?.unwrap_or(x.dtype());
        let k = node.attributes().int_or("k", 0)?;
        let &[rows, columns] = x.shape().dims() else {
            return Err(node.error(format!("the operand must have rank 2, not {}", x.ty())));
        };
        let distance = diagonal_distance(node, rows, columns, k);
        Ok(vec![distance.eq(distance.like(0.0)).cast(dtype)])
    },
};

macro_rules! window {
    ($(#[$attr:meta])* $ident:ident, $name:literal, $coefficients:expr) => {
        $(#[$attr])*
        pub static $ident: OpDef =
            OpDef { domain: "", name: $name, since: &[17], shape_inputs: &[0], build: |node| Ok(vec![window(node, $coefficients)?]) };
    };
}

window!(
    /// `a0 − a1 cos(2πi / n) + a2 cos(4πi / n)`, as the other windows.
    BLACKMAN_WINDOW, "BlackmanWindow", [0.42, 0.5, 0.08]);
window!(HAMMING_WINDOW, "HammingWindow", [25.0 / 46.0, 21.0 / 46.0, 0.0]);
window!(HANN_WINDOW, "HannWindow", [0.5, 0.5, 0.0]);

fn window<'b>(node: &NodeContext<'_, 'b>, [a0, a1, a2]: [f64; 3]) -> Result<Wire<'b>> {
    let size = node.size("the size", node.constant_int(0)?)?;
    let dtype = node.attributes().dtype("output_datatype")?.unwrap_or(DType::F32);
    let period = if node.attributes().flag("periodic", true)? { size } else { size.saturating_sub(1) };
    if period == 0 {
        return Ok(fill(node, dtype, [size], Number::Float(1.0)));
    }
    let angle = node.builder().iota(DType::F64, [size], 0) * (std::f64::consts::TAU / period as f64);
    let cos = |angle: Wire<'b>| angle.unary(UnaryFn::Cos);
    Ok((a0 - cos(angle) * a1 + cos(angle * 2.0) * a2).cast(dtype))
}
