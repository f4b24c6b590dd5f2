//! Operators that replace numbers by others, after lists.

use std::cmp::Ordering;

use mcc_support::{DType, Error, Result, Shape, Tensor, TensorType, tensor::Number};

use super::DOMAIN;
use super::values::refuse_strings;
use crate::graph::{ReduceFn, UnaryFn, Wire};
use crate::ops::{NodeContext, OpDef};

pub static ALL: &[&OpDef] = &[&LABEL_ENCODER, &ONE_HOT_ENCODER];

/// The value of the key that the operand equals, or a default.
pub static LABEL_ENCODER: OpDef = OpDef {
    domain: DOMAIN,
    name: "LabelEncoder",
    since: &[1, 2, 4],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        if node.version() < 2 {
            return Err(strings(node));
        }
        refuse_strings(node, &["keys_strings", "values_strings"])?;
        let (keys, values) = (list(node, "keys")?, list(node, "values")?);
        if keys.count() != values.count() || keys.count() == 0 {
            return Err(node.error(format!("there are {} keys and {} values", keys.count(), values.count())));
        }
        if keys.dtype() != x.dtype() {
            return Err(node.error(format!("the keys are {}, but the operand is {}", keys.dtype(), x.ty())));
        }
        let default = default(node, values.dtype())?;
        let order = sorted(node, &keys);
        let pick = |list: &Tensor| {
            let ty = TensorType::new(list.dtype(), [order.len()]);
            Tensor::from_numbers(ty, order.iter().map(|&at| list.number(at)))
        };
        let (place, found) = search(node, x, pick(&keys));
        let builder = node.builder();
        Ok(vec![found.select(builder.constant(pick(&values)).gather(place, 0), builder.constant(default))])
    },
};

fn strings(node: &NodeContext<'_, '_>) -> Error {
    node.error("LabelEncoder of version 1 maps strings, which are not supported")
        .help("convert the model so that categories and labels are numbers")
}

/// Keys or values: a list of integers, of floats or a tensor.
fn list(node: &NodeContext<'_, '_>, name: &str) -> Result<Tensor> {
    let attributes = node.attributes();
    let ints = attributes.ints(&format!("{name}_int64s"))?.filter(|list| !list.is_empty());
    let floats = attributes.floats(&format!("{name}_floats"))?.filter(|list| !list.is_empty());
    let tensor = if node.version() < 4 { None } else { attributes.tensor(&format!("{name}_tensor"))? };
    let given = [
        ints.map(|list| Tensor::from_elements([list.len()], &list)),
        floats.map(|list| Tensor::from_elements([list.len()], &list)),
        tensor.map(|tensor| tensor.reshaped([tensor.count()])),
    ];
    let mut given = given.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(list), None) => Ok(list),
        (None, _) => Err(node.error(format!("the {name} are missing"))),
        (Some(_), Some(_)) => Err(node.error(format!("the {name} are given twice"))),
    }
}

/// The value of what no key equals, as a scalar.
fn default(node: &NodeContext<'_, '_>, dtype: DType) -> Result<Tensor> {
    let attributes = node.attributes();
    attributes.ignore("default_string");
    let (int, float) = (attributes.int_or("default_int64", -1)?, attributes.float_or("default_float", -0.0)?);
    let tensor = if node.version() < 4 { None } else { attributes.tensor("default_tensor")? };
    if let Some(tensor) = tensor {
        if tensor.dtype() != dtype || tensor.count() != 1 {
            return Err(
                node.error(format!("the default is {}, but must be one value and {dtype} as the values are", tensor.ty()))
            );
        }
        return Ok(tensor.reshaped(Shape::scalar()));
    }
    let number = if dtype.is_float() { Number::Float(float.into()) } else { Number::Int(int) };
    Ok(Tensor::from_numbers(TensorType::new(dtype, Shape::scalar()), [number]))
}

fn is_nan(number: Number) -> bool {
    matches!(number, Number::Float(value) if value.is_nan())
}

fn order(a: Number, b: Number) -> Ordering {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => a.cmp(&b),
        _ => is_nan(a).cmp(&is_nan(b)).then(a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal)),
    }
}

/// Places of keys in ascending order, NaN last; of equal ones the last in the list. NaN equals nothing before version 4.
fn sorted(node: &NodeContext<'_, '_>, keys: &Tensor) -> Vec<usize> {
    let mut places: Vec<usize> = (0..keys.count()).filter(|&at| node.version() >= 4 || !is_nan(keys.number(at))).rev().collect();
    places.sort_by(|&a, &b| order(keys.number(a), keys.number(b)));
    places.dedup_by(|a, b| order(keys.number(*a), keys.number(*b)) == Ordering::Equal);
    places
}

/// For each element the place of its key among the sorted ones (by halving the distance), and whether it has one.
fn search<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, keys: Tensor) -> (Wire<'b>, Wire<'b>) {
    let builder = node.builder();
    let missing = keys.numbers().position(is_nan);
    let count = missing.unwrap_or(keys.count());
    let key = builder.constant(keys);
    let mut place = builder.scalar(DType::I32, 0.0).broadcast_to(&x.extents());
    let mut step = count.next_power_of_two() / 2;
    while step > 0 {
        let next = place + step as f64;
        let inside = next.lt(next.like(count as f64));
        let further = inside.and(key.gather(next.min(next.like(count as f64 - 1.0)), 0).le(x));
        place = further.select(next, place);
        step /= 2;
    }
    let mut found = key.gather(place, 0).eq(x);
    if let Some(missing) = missing {
        let nan = x.unary(UnaryFn::IsNan);
        place = nan.select(place.like(missing as f64), place);
        found = nan.select(builder.constant(Tensor::scalar(true)), found);
    }
    (place, found)
}

/// 1 in the place of the category that the operand is, 0 elsewhere. An element of no category has zeros only, or ends the run without
/// a result where `zeros` is 0.
pub static ONE_HOT_ENCODER: OpDef = OpDef {
    domain: DOMAIN,
    name: "OneHotEncoder",
    since: &[1],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        refuse_strings(node, &["cats_strings"])?;
        let zeros = node.attributes().flag("zeros", true)?;
        let categories = node.attributes().required("cats_int64s", node.attributes().ints("cats_int64s")?)?;
        let mut shape = x.shape().into_dims();
        shape.push(1);
        let categories = node.builder().constant(Tensor::from_elements([categories.len()], &categories));
        let hot = x.cast(DType::I64).reshape(shape).eq(categories);
        if !zeros {
            let count = (!hot.any(&[x.rank()])).cast(DType::I64).reduce(ReduceFn::Sum, &(0..x.rank()).collect::<Vec<_>>());
            node.builder().require(&format!("elements of no category for '{}'", node.first_output()), count, (0, 0));
        }
        Ok(vec![hot.cast(DType::F32)])
    },
};
