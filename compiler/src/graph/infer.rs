//! The type rule of each op: the type of the result from the op and the types of its operands, or what is wrong with them.
//!
//! The messages name types and extents; whoever builds a node adds the node. Attributes and shapes may come from a hostile
//! model: arithmetic on them is checked. Whether a value is too large is the builder's question, not the rule's.

use mcc_support::{DType, Error, Result, Shape, TensorType, ensure};

use super::Graph;
use super::op::{BinaryFn, Contraction, Conv, If, Loop, Op, PadMode, ReduceFn, SliceAxis, UnaryFn, Window};

/// No model's window is as large; larger ones could only consist of padding.
const MAX_WINDOW_CELLS: usize = 1 << 24;

/// The types of the op's results.
pub fn infer_all(op: &Op, operands: &[&TensorType]) -> Result<Vec<TensorType>> {
    match op {
        Op::Loop(inner) => repeated(inner, operands),
        Op::If(inner) => branch(inner, operands),
        op => infer(op, operands).map(|ty| vec![ty]),
    }
}

/// The type of the only result of an op without bodies.
pub fn infer(op: &Op, operands: &[&TensorType]) -> Result<TensorType> {
    check_count(op, operands.len())?;
    match op {
        Op::Loop(_) | Op::If(_) => Err(Error::new("an op with bodies has several results")),
        Op::Unary(function) => unary(*function, operands[0]),
        Op::Binary(function) => binary(*function, operands[0], operands[1]),
        Op::Select => select(operands),
        Op::Cast(dtype) => Ok(TensorType::new(*dtype, operands[0].shape.clone())),
        Op::Bitcast(dtype) => {
            let x = operands[0];
            ensure!(
                dtype.size_bits() == x.dtype.size_bits(),
                "the bits of {x} cannot be read as {dtype}, which has another width"
            );
            Ok(TensorType::new(*dtype, x.shape.clone()))
        }
        Op::Contract(contraction) => contract(contraction, operands[0], operands[1]),
        Op::Conv(attributes) => conv(attributes, operands[0], operands[1]),
        Op::Reduce { kind, axes } => reduce(*kind, axes, operands[0]),
        Op::ArgReduce { axis, .. } => arg_reduce(*axis, operands[0]),
        Op::Window { kind, window } => {
            check_number(reduce_name(*kind), operands[0])?;
            Ok(TensorType::new(operands[0].dtype, window_shape(window, operands[0])?))
        }
        Op::WindowArgMax(window) => {
            check_number("the maximum", operands[0])?;
            Ok(TensorType::new(DType::I64, window_shape(window, operands[0])?))
        }
        Op::Scan { kind, axis, .. } => {
            check_number(reduce_name(*kind), operands[0])?;
            check_axis(*axis, operands[0])?;
            Ok(operands[0].clone())
        }
        Op::Reshape(shape) => reshape(shape, operands[0]),
        Op::Transpose(permutation) => transpose(permutation, operands[0]),
        Op::Slice(axes) => slice(axes, operands[0]),
        Op::Pad { mode, amounts } => pad(*mode, amounts, operands),
        Op::Concat { axis } => concat(*axis, operands),
        Op::Broadcast(shape) => {
            let x = operands[0];
            ensure!(x.shape.broadcast(shape).as_ref() == Some(shape), "{x} cannot be broadcast to shape {shape}");
            Ok(TensorType::new(x.dtype, shape.clone()))
        }
        Op::Gather { axis } => gather(*axis, operands[0], operands[1]),
        Op::GatherElements { axis } => gather_elements(*axis, operands[0], operands[1]),
        Op::Iota { dtype, shape, axis } => {
            let result = TensorType::new(*dtype, shape.clone());
            check_number("an index", &result)?;
            check_axis(*axis, &result)?;
            Ok(result)
        }
        Op::BatchNorm { .. } => batch_norm(operands),
    }
}

fn check_count(op: &Op, found: usize) -> Result<()> {
    let expected = match op {
        Op::Iota { .. } => 0,
        Op::Unary(_) | Op::Cast(_) | Op::Bitcast(_) | Op::Reduce { .. } | Op::ArgReduce { .. } | Op::Window { .. } => 1,
        Op::WindowArgMax(_) | Op::Scan { .. } | Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Broadcast(_) => 1,
        Op::Pad { mode, .. } => 1 + usize::from(*mode == PadMode::Constant),
        Op::Binary(_) | Op::Contract(_) | Op::Conv(_) | Op::Gather { .. } | Op::GatherElements { .. } => 2,
        Op::Select => 3,
        Op::BatchNorm { .. } => 5,
        Op::Concat { .. } => {
            ensure!(found > 0, "concat needs at least one operand");
            found
        }
        Op::Loop(_) | Op::If(_) => found,
    };
    ensure!(found == expected, "{found} operands where {expected} are needed");
    Ok(())
}

fn repeated(inner: &Loop, operands: &[&TensorType]) -> Result<Vec<TensorType>> {
    let Loop { body, carried, limit } = inner;
    let (round, go) = (TensorType::new(DType::I64, []), TensorType::new(DType::Bool, []));
    ensure!(operands.len() >= 2 + carried, "a loop has a number of rounds, a condition and {carried} initial values");
    ensure!(*operands[0] == round && *operands[1] == go, "a loop runs {round} rounds while a {go} holds");
    check_inputs(body, [&round].into_iter().chain(operands[2..].iter().copied()))?;
    let outputs = output_types(body);
    ensure!(outputs.len() > *carried && *outputs[0] == go, "the body of a loop gives a {go} and {carried} carried values");
    for (next, initial) in outputs[1..].iter().zip(&operands[2..2 + carried]) {
        ensure!(next == initial, "a value carried by a loop starts as {initial} and goes on as {next}");
    }
    let stack =
        |ty: &&TensorType| TensorType::new(ty.dtype, [*limit].into_iter().chain(ty.shape.iter().copied()).collect::<Vec<_>>());
    Ok([round]
        .into_iter()
        .chain(outputs[1..=*carried].iter().copied().cloned())
        .chain(outputs[1 + carried..].iter().map(stack))
        .collect())
}

fn branch(inner: &If, operands: &[&TensorType]) -> Result<Vec<TensorType>> {
    let cond = TensorType::new(DType::Bool, []);
    ensure!(operands.first().is_some_and(|first| **first == cond), "a branch is taken by a {cond}");
    check_inputs(&inner.then, operands[1..].iter().copied())?;
    check_inputs(&inner.otherwise, operands[1..].iter().copied())?;
    let (then, otherwise) = (output_types(&inner.then), output_types(&inner.otherwise));
    ensure!(then == otherwise, "the branches compute different types: {then:?} and {otherwise:?}");
    Ok(then.into_iter().cloned().collect())
}

fn output_types(body: &Graph) -> Vec<&TensorType> {
    body.outputs.iter().map(|&(_, output)| body.ty(output)).collect()
}

fn check_inputs<'t>(body: &Graph, given: impl Iterator<Item = &'t TensorType>) -> Result<()> {
    let inputs: Vec<&TensorType> = body.inputs.iter().map(|&(_, input)| body.ty(input)).collect();
    let given: Vec<&TensorType> = given.collect();
    ensure!(inputs == given, "a body with the inputs {inputs:?} is given {given:?}");
    Ok(())
}

/// Arithmetic is not defined on `bool`, nor on the types that only move and cast.
fn check_number(what: &str, x: &TensorType) -> Result<()> {
    ensure!(x.dtype != DType::Bool, "{what} is not defined for {x}: the elements must be numbers");
    let computed = x.dtype.is_computed_with();
    ensure!(computed, "{what} is not defined for {x}: elements of {} can be moved and cast, not computed with", x.dtype);
    Ok(())
}

fn check_float(what: &str, x: &TensorType) -> Result<()> {
    ensure!(x.dtype.is_float(), "{what} is not defined for {x}: the elements must be floats");
    check_number(what, x)
}

fn check_axis(axis: usize, x: &TensorType) -> Result<()> {
    ensure!(axis < x.rank(), "there is no axis {axis} in {x}");
    Ok(())
}

fn check_same_dtype(a: &TensorType, b: &TensorType) -> Result<()> {
    ensure!(a.dtype == b.dtype, "the operands {a} and {b} have different element types");
    Ok(())
}

fn check_entries(what: &str, found: usize, expected: usize) -> Result<()> {
    ensure!(found == expected, "{found} {what} where {expected} are needed, one for each axis");
    Ok(())
}

fn broadcast(a: &TensorType, b: &TensorType) -> Result<Shape> {
    a.shape.broadcast(&b.shape).ok_or_else(|| Error::new(format!("the shapes of {a} and {b} cannot be broadcast to one")))
}

fn unary(function: UnaryFn, x: &TensorType) -> Result<TensorType> {
    let what = format!("{function:?}");
    match function {
        UnaryFn::Neg => {
            check_number(&what, x)?;
            ensure!(x.dtype.is_signed(), "{what} is not defined for {x}: the elements must be signed");
        }
        UnaryFn::Abs | UnaryFn::Sign => check_number(&what, x)?,
        UnaryFn::Not => check_logical(&what, x)?,
        UnaryFn::IsNan | UnaryFn::IsInf => {
            check_float(&what, x)?;
            return Ok(TensorType::new(DType::Bool, x.shape.clone()));
        }
        UnaryFn::Sqrt
        | UnaryFn::Exp
        | UnaryFn::ExpOfNegative
        | UnaryFn::Log
        | UnaryFn::Sin
        | UnaryFn::Cos
        | UnaryFn::Tan
        | UnaryFn::Asin
        | UnaryFn::Acos
        | UnaryFn::Atan
        | UnaryFn::Sinh
        | UnaryFn::Cosh
        | UnaryFn::Tanh
        | UnaryFn::Sigmoid
        | UnaryFn::Asinh
        | UnaryFn::Acosh
        | UnaryFn::Atanh
        | UnaryFn::Erf
        | UnaryFn::Floor
        | UnaryFn::Ceil
        | UnaryFn::Trunc
        | UnaryFn::Round => {
            check_float(&what, x)?;
        }
    }
    Ok(x.clone())
}

fn check_logical(what: &str, x: &TensorType) -> Result<()> {
    let defined = !x.dtype.is_float() && !x.dtype.is_packed();
    ensure!(defined, "{what} is not defined for {x}: the elements must be bool or integers of at least 8 bits");
    Ok(())
}

fn binary(function: BinaryFn, a: &TensorType, b: &TensorType) -> Result<TensorType> {
    check_same_dtype(a, b)?;
    let what = format!("{function:?}");
    match function {
        BinaryFn::Add
        | BinaryFn::Sub
        | BinaryFn::Mul
        | BinaryFn::Div
        | BinaryFn::Rem
        | BinaryFn::Mod
        | BinaryFn::Pow
        | BinaryFn::Min
        | BinaryFn::Max => check_number(&what, a)?,
        BinaryFn::And | BinaryFn::Or | BinaryFn::Xor => check_logical(&what, a)?,
        BinaryFn::Shl | BinaryFn::Shr => {
            check_number(&what, a)?;
            ensure!(!a.dtype.is_signed(), "{what} is not defined for {a}: the elements must be unsigned integers");
        }
        BinaryFn::Lt | BinaryFn::Le => check_number(&what, a)?,
        BinaryFn::Eq if a.dtype == DType::Bool => {}
        BinaryFn::Eq => check_number(&what, a)?,
    }
    let comparison = matches!(function, BinaryFn::Eq | BinaryFn::Lt | BinaryFn::Le);
    Ok(TensorType::new(if comparison { DType::Bool } else { a.dtype }, broadcast(a, b)?))
}

fn select(operands: &[&TensorType]) -> Result<TensorType> {
    let [condition, then, otherwise] = operands else { unreachable!("counted") };
    ensure!(condition.dtype == DType::Bool, "the condition must be bool, not {condition}");
    check_same_dtype(then, otherwise)?;
    ensure!(!then.dtype.is_packed(), "a choice is not defined for {then}: elements of {} can be moved and cast", then.dtype);
    let values = TensorType::new(then.dtype, broadcast(then, otherwise)?);
    Ok(TensorType::new(then.dtype, broadcast(condition, &values)?))
}

fn check_product(what: &str, a: &TensorType, b: &TensorType) -> Result<()> {
    check_same_dtype(a, b)?;
    let defined = a.dtype.is_float() && a.dtype.is_computed_with() || matches!(a.dtype, DType::I32 | DType::I64);
    ensure!(defined, "{what} of {a} and {b} is not defined: the elements must be floats, i32 or i64");
    Ok(())
}

fn contract(contraction: &Contraction, a: &TensorType, b: &TensorType) -> Result<TensorType> {
    check_product("a product", a, b)?;
    let mut extents = std::collections::BTreeMap::new();
    for (labels, operand) in [(&contraction.lhs, a), (&contraction.rhs, b)] {
        let text = String::from_utf8_lossy(labels);
        ensure!(labels.len() == operand.rank(), "the labels \"{text}\" do not name each axis of {operand}");
        check_labels(labels)?;
        for (&label, &extent) in labels.iter().zip(operand.shape.iter()) {
            let first = *extents.entry(label).or_insert(extent);
            ensure!(
                first == extent,
                "{a} and {b} cannot be multiplied: the axes '{}' that must agree are {first} and {extent} long",
                char::from(label)
            );
        }
    }
    check_labels(&contraction.out)?;
    let extent = |label: &u8| {
        extents.get(label).copied().ok_or_else(|| Error::new(format!("label '{}' is in no operand", char::from(*label))))
    };
    Ok(TensorType::new(a.dtype, contraction.out.iter().map(extent).collect::<Result<Vec<_>>>()?))
}

fn check_labels(labels: &[u8]) -> Result<()> {
    for (index, label) in labels.iter().enumerate() {
        ensure!(label.is_ascii_alphabetic(), "the label {label:#04x} of an axis is not a letter");
        ensure!(!labels[..index].contains(label), "the label '{}' stands for two axes of one operand", char::from(*label));
    }
    Ok(())
}

fn conv(conv: &Conv, x: &TensorType, weights: &TensorType) -> Result<TensorType> {
    check_product("a convolution", x, weights)?;
    ensure!(x.rank() >= 3, "the input of a convolution has axes for batch, channels and space, which {x} has not");
    ensure!(weights.rank() == x.rank(), "the input {x} and the weights {weights} of a convolution differ in rank");
    let rank = x.rank() - 2;
    check_entries("strides", conv.strides.len(), rank)?;
    check_entries("dilations", conv.dilations.len(), rank)?;
    check_entries("pairs of padding", conv.pads.len(), rank)?;
    check_entries("input dilations", conv.input_dilations.len(), rank)?;
    let (channels, filters) = (x.shape[1], weights.shape[0]);
    ensure!(conv.groups > 0, "a convolution has at least one group, not 0");
    ensure!(
        channels.is_multiple_of(conv.groups) && filters.is_multiple_of(conv.groups),
        "{channels} input and {filters} output channels cannot be divided into {} groups",
        conv.groups
    );
    ensure!(
        weights.shape[1] == channels / conv.groups,
        "the input {x} has {} channels in each of {} groups, but the weights {weights} are made for {}",
        channels / conv.groups,
        conv.groups,
        weights.shape[1]
    );
    let mut dims = vec![x.shape[0], filters];
    for axis in 0..rank {
        let (extent, dilation) = (x.shape[axis + 2], conv.input_dilations[axis]);
        ensure!(dilation > 0, "an input dilation is at least 1, not 0");
        let dilated = match extent {
            0 => 0,
            _ => i128::from(extent as u64 - 1) * i128::from(dilation as u64) + 1,
        };
        let (before, after) = conv.pads[axis];
        let padded = dilated + i128::from(before) + i128::from(after);
        let kernel = weights.shape[axis + 2];
        dims.push(windows(axis, padded, kernel, conv.dilations[axis], conv.strides[axis])?);
    }
    Ok(TensorType::new(x.dtype, dims))
}

/// How many windows of `kernel` cells fit into `padded` cells.
fn windows(axis: usize, padded: i128, kernel: usize, dilation: usize, stride: usize) -> Result<usize> {
    ensure!(stride > 0 && dilation > 0, "strides and dilations are at least 1, not {stride} and {dilation}");
    ensure!(kernel > 0, "the kernel is empty along spatial axis {axis}");
    let covered = i128::from(kernel as u64 - 1) * i128::from(dilation as u64) + 1;
    ensure!(
        covered <= padded,
        "the kernel covers {covered} elements along spatial axis {axis}, but the padded input has only {}",
        padded.max(0)
    );
    usize::try_from((padded - covered) / i128::from(stride as u64) + 1)
        .map_err(|_| Error::new(format!("spatial axis {axis} of the result is too long")))
}

fn reduce_name(kind: ReduceFn) -> &'static str {
    match kind {
        ReduceFn::Sum => "the sum",
        ReduceFn::Prod => "the product",
        ReduceFn::Max | ReduceFn::MaxNumber => "the maximum",
        ReduceFn::Min => "the minimum",
    }
}

fn reduce(kind: ReduceFn, axes: &[usize], x: &TensorType) -> Result<TensorType> {
    check_number(reduce_name(kind), x)?;
    axes.iter().try_for_each(|&axis| check_axis(axis, x))?;
    ensure!(axes.is_sorted_by(|a, b| a < b), "the axes {axes:?} to reduce are not sorted and distinct");
    let kept = x.shape.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
    Ok(TensorType::new(x.dtype, kept.map(|(_, &extent)| extent).collect::<Shape>()))
}

fn arg_reduce(axis: usize, x: &TensorType) -> Result<TensorType> {
    check_number("an extreme", x)?;
    check_axis(axis, x)?;
    ensure!(x.shape[axis] > 0, "{x} has no element along axis {axis}, so no extreme");
    let mut dims = x.shape.to_vec();
    dims.remove(axis);
    Ok(TensorType::new(DType::I64, dims))
}

fn window_shape(window: &Window, x: &TensorType) -> Result<Shape> {
    let rank = window.kernel.len();
    ensure!(rank <= x.rank(), "a window over {rank} axes does not fit {x}");
    check_entries("strides", window.strides.len(), rank)?;
    check_entries("dilations", window.dilations.len(), rank)?;
    check_entries("pairs of padding", window.pads.len(), rank)?;
    let cells = Shape::new(window.kernel.clone()).checked_count();
    ensure!(cells.is_some_and(|cells| cells <= MAX_WINDOW_CELLS), "a window of {:?} has too many cells", window.kernel);
    let outer = x.rank() - rank;
    let mut dims = x.shape[..outer].to_vec();
    for axis in 0..rank {
        let (before, after) = window.pads[axis];
        let padded = i128::from(x.shape[outer + axis] as u64) + i128::from(before as u64) + i128::from(after as u64);
        dims.push(windows(axis, padded, window.kernel[axis], window.dilations[axis], window.strides[axis])?);
    }
    Ok(dims.into())
}

fn reshape(shape: &Shape, x: &TensorType) -> Result<TensorType> {
    let (from, to) = (x.shape.checked_count(), shape.checked_count());
    ensure!(
        from.is_some() && from == to,
        "{x} cannot be reshaped to {shape}: {} elements become {}",
        count_text(from),
        count_text(to)
    );
    Ok(TensorType::new(x.dtype, shape.clone()))
}

fn count_text(count: Option<usize>) -> String {
    count.map_or("too many".into(), |count| count.to_string())
}

fn transpose(permutation: &[usize], x: &TensorType) -> Result<TensorType> {
    let mut sorted = permutation.to_vec();
    sorted.sort_unstable();
    ensure!(sorted.into_iter().eq(0..x.rank()), "{permutation:?} is not a permutation of the axes of {x}");
    Ok(TensorType::new(x.dtype, permutation.iter().map(|&axis| x.shape[axis]).collect::<Shape>()))
}

fn slice(axes: &[SliceAxis], x: &TensorType) -> Result<TensorType> {
    check_entries("slices", axes.len(), x.rank())?;
    for (axis, (slice, &extent)) in axes.iter().zip(x.shape.iter()).enumerate() {
        ensure!(slice.step != 0, "the step of a slice along axis {axis} is 0");
        if slice.count > 0 {
            let first = i128::from(slice.start as u64);
            let last = first + i128::from(slice.count as u64 - 1) * i128::from(slice.step);
            let inside = 0..i128::from(extent as u64);
            ensure!(
                inside.contains(&first) && inside.contains(&last),
                "a slice of {x} along axis {axis} goes from {first} to {last}, which is outside"
            );
        }
    }
    Ok(TensorType::new(x.dtype, axes.iter().map(|slice| slice.count).collect::<Shape>()))
}

fn pad(mode: PadMode, amounts: &[(usize, usize)], operands: &[&TensorType]) -> Result<TensorType> {
    let x = operands[0];
    check_entries("pairs of padding", amounts.len(), x.rank())?;
    if let Some(value) = operands.get(1) {
        check_same_dtype(x, value)?;
        ensure!(value.rank() == 0, "the padding value must be a scalar, not {value}");
    }
    let mut dims = Vec::with_capacity(x.rank());
    for (axis, (&(before, after), &extent)) in amounts.iter().zip(x.shape.iter()).enumerate() {
        let padded = extent.checked_add(before).and_then(|sum| sum.checked_add(after));
        let copies = mode != PadMode::Constant && (before, after) != (0, 0);
        ensure!(!copies || extent > 0, "{x} has no element along axis {axis} to fill the padding with");
        dims.push(padded.ok_or_else(|| Error::new(format!("axis {axis} of {x} padded by {before} and {after} is too long")))?);
    }
    Ok(TensorType::new(x.dtype, dims))
}

fn concat(axis: usize, operands: &[&TensorType]) -> Result<TensorType> {
    let first = operands[0];
    check_axis(axis, first)?;
    let mut dims = first.shape.to_vec();
    for operand in &operands[1..] {
        check_same_dtype(first, operand)?;
        let agree = |(at, (a, b)): (usize, (&usize, &usize))| at == axis || a == b;
        let fits = operand.rank() == first.rank() && operand.shape.iter().zip(first.shape.iter()).enumerate().all(agree);
        ensure!(fits, "{first} and {operand} cannot be joined along axis {axis}: their other axes differ");
        dims[axis] = dims[axis]
            .checked_add(operand.shape[axis])
            .ok_or_else(|| Error::new(format!("the joined axis {axis} is too long")))?;
    }
    Ok(TensorType::new(first.dtype, dims))
}

fn check_indices(indices: &TensorType) -> Result<()> {
    let defined = indices.dtype.is_integer() && !indices.dtype.is_packed();
    ensure!(defined, "indices must be integers of at least 8 bits, not {indices}");
    Ok(())
}

fn check_takes(axis: usize, data: &TensorType, taken: &Shape) -> Result<()> {
    let empty = data.shape[axis] == 0 && !taken.contains(&0);
    ensure!(!empty, "{data} has no element along axis {axis} that could be taken");
    Ok(())
}

fn gather(axis: usize, data: &TensorType, indices: &TensorType) -> Result<TensorType> {
    check_indices(indices)?;
    check_axis(axis, data)?;
    check_takes(axis, data, &indices.shape)?;
    let dims = [&data.shape[..axis], &indices.shape, &data.shape[axis + 1..]].concat();
    Ok(TensorType::new(data.dtype, dims))
}

fn gather_elements(axis: usize, data: &TensorType, indices: &TensorType) -> Result<TensorType> {
    check_indices(indices)?;
    check_axis(axis, data)?;
    ensure!(data.rank() == indices.rank(), "the data {data} and the indices {indices} differ in rank");
    check_takes(axis, data, &indices.shape)?;
    for (at, (&taken, &extent)) in indices.shape.iter().zip(data.shape.iter()).enumerate() {
        ensure!(at == axis || taken <= extent, "the indices {indices} are longer than the data {data} along axis {at}");
    }
    Ok(TensorType::new(data.dtype, indices.shape.clone()))
}

fn batch_norm(operands: &[&TensorType]) -> Result<TensorType> {
    let x = operands[0];
    check_float("batch normalization", x)?;
    ensure!(x.rank() >= 2, "the input of a batch normalization has axes for batch and channels, which {x} has not");
    for (name, statistic) in ["scale", "bias", "mean", "variance"].into_iter().zip(&operands[1..]) {
        check_same_dtype(x, statistic)?;
        ensure!(
            statistic.shape.dims() == [x.shape[1]],
            "the {name} of a batch normalization of {x} must have shape [{}], not {}",
            x.shape[1],
            statistic.shape
        );
    }
    Ok(x.clone())
}
