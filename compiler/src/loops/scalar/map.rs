//! Scalar functions of whole tensors: the expression is made into a list of steps over registers, and each step runs over a chunk
//! of elements.

use mcc_support::tensor::packed_code;
use mcc_support::{DType, Tensor, TensorType};

use crate::graph::op::{BinaryFn, UnaryFn};
use crate::loops::expr::{Expr, ExprId, Exprs};
use crate::loops::primitive::{self, Function1, Function2};

/// A scalar function of a graph's elementwise ops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    Unary(UnaryFn),
    Binary(BinaryFn),
    /// Of a `bool` and two of one dtype.
    Select,
    Cast(DType),
    Bitcast(DType),
}

impl Function {
    /// The function of these operands, as an expression.
    pub fn build(self, exprs: &mut Exprs, operands: &[ExprId]) -> ExprId {
        match (self, operands) {
            (Function::Unary(f), &[x]) => super::unary(exprs, f, x),
            (Function::Binary(f), &[a, b]) => super::binary(exprs, f, a, b),
            (Function::Select, &[cond, a, b]) => super::select(exprs, cond, a, b),
            (Function::Cast(to), &[x]) => super::cast(exprs, to, x),
            (Function::Bitcast(to), &[x]) if exprs.dtype(x) == to => x,
            (Function::Bitcast(to), &[x]) => exprs.add(Expr::Bitcast(to, x)),
            _ => panic!("{self:?} of {} operands", operands.len()),
        }
    }
}

/// Applies a function to each element. Operands are dense and broadcast to the result's shape as numpy's do (their ranks may be
/// smaller); `ty` is the result's type. The bits are those that compiled code gives, but for the payload of NaNs.
pub fn map(function: Function, operands: &[&Tensor], ty: &TensorType) -> Tensor {
    let mut exprs = Exprs::default();
    let params: Vec<ExprId> =
        (0u32..).zip(operands).map(|(index, operand)| exprs.add(Expr::Param(index, operand.dtype()))).collect();
    let root = function.build(&mut exprs, &params);
    assert_eq!(exprs.dtype(root), ty.dtype, "result of {function:?}");
    eval(&exprs, root, operands, ty)
}

/// Elements that one step handles at a time.
const CHUNK: usize = 512;

enum Step {
    Const(u64),
    Param(usize),
    Unary(Function1, usize),
    Binary(Function2, usize, usize),
    Fma([usize; 3]),
    Select(usize, usize, usize),
    Copy(usize),
}

/// Evaluates an expression of parameters over all elements; see [`map`].
pub fn eval(exprs: &Exprs, root: ExprId, operands: &[&Tensor], ty: &TensorType) -> Tensor {
    let mut steps = Vec::new();
    let mut registers = vec![None; exprs.len()];
    let result = compile(exprs, root, &mut steps, &mut registers);
    let inputs: Vec<Input> = operands.iter().map(|operand| Input::new(operand, ty)).collect();
    let count = ty.shape.count();
    // Registers one after the other. Only the last chunk may be shorter.
    let chunk = CHUNK.min(count).max(1);
    let mut values = vec![0; chunk * steps.len()];
    let mut data = Vec::with_capacity(ty.size_bytes() + 1);
    for start in (0..count).step_by(chunk) {
        let length = chunk.min(count - start);
        for (at, step) in steps.iter().enumerate() {
            let (before, rest) = values.split_at_mut(at * chunk);
            run(step, &|register| &before[register * chunk..][..length], &mut rest[..length], &inputs, start);
        }
        write(ty.dtype, &values[result * chunk..][..length], &mut data);
    }
    Tensor::new(ty.clone(), data)
}

fn compile(exprs: &Exprs, id: ExprId, steps: &mut Vec<Step>, registers: &mut [Option<usize>]) -> usize {
    let index = id.0 as usize;
    if let Some(register) = registers[index] {
        return register;
    }
    let operands: Vec<usize> = exprs.operands(id).into_iter().map(|operand| compile(exprs, operand, steps, registers)).collect();
    let operand_dtype = |at: usize| exprs.dtype(exprs.operands(id)[at]);
    let step = match *exprs.get(id) {
        Expr::Const(_, bits) => Step::Const(bits),
        Expr::Param(param, _) => Step::Param(param as usize),
        Expr::Unary(op, _) => Step::Unary(primitive::unary(op, operand_dtype(0)), operands[0]),
        Expr::Binary(op, ..) => Step::Binary(primitive::binary(op, operand_dtype(0)), operands[0], operands[1]),
        Expr::Fma(..) => Step::Fma([operands[0], operands[1], operands[2]]),
        Expr::Select(..) => Step::Select(operands[0], operands[1], operands[2]),
        Expr::Cast(to, _) => Step::Unary(primitive::cast(operand_dtype(0), to), operands[0]),
        Expr::Bitcast(..) => Step::Copy(operands[0]),
        ref other @ (Expr::Axis(_) | Expr::Var(_) | Expr::Load { .. }) => panic!("{other:?} in a scalar function"),
    };
    steps.push(step);
    registers[index] = Some(steps.len() - 1);
    steps.len() - 1
}

fn run<'v>(step: &Step, value: &dyn Fn(usize) -> &'v [u64], out: &mut [u64], inputs: &[Input], start: usize) {
    match *step {
        Step::Const(bits) if start == 0 => out.fill(bits),
        // Filled in the first chunk, which is the longest.
        Step::Const(_) => {}
        Step::Param(param) => inputs[param].read(start, out),
        Step::Unary(function, a) => {
            for (out, &a) in out.iter_mut().zip(value(a)) {
                *out = function(a);
            }
        }
        Step::Binary(function, a, b) => {
            for ((out, &a), &b) in out.iter_mut().zip(value(a)).zip(value(b)) {
                *out = function(a, b);
            }
        }
        Step::Fma([a, b, c]) => {
            for (((out, &a), &b), &c) in out.iter_mut().zip(value(a)).zip(value(b)).zip(value(c)) {
                *out = primitive::fma(a, b, c);
            }
        }
        Step::Select(cond, a, b) => {
            for (((out, &cond), &a), &b) in out.iter_mut().zip(value(cond)).zip(value(a)).zip(value(b)) {
                *out = if cond != 0 { a } else { b };
            }
        }
        Step::Copy(a) => out.copy_from_slice(value(a)),
    }
}

/// An operand as bits, with its strides in the result's shape.
struct Input<'t> {
    tensor: &'t Tensor,
    /// Extents of the result.
    dims: Vec<usize>,
    /// Elements per step of each of the result's axes; 0 where the operand repeats. `None` where it is dense.
    strides: Option<Vec<usize>>,
}

impl<'t> Input<'t> {
    fn new(tensor: &'t Tensor, ty: &TensorType) -> Self {
        let dims = ty.shape.to_vec();
        if tensor.shape() == &ty.shape {
            return Self { tensor, dims, strides: None };
        }
        let missing = dims.len() - tensor.shape().rank();
        let own = tensor.shape().strides();
        let strides = (0..dims.len())
            .map(|axis| match axis.checked_sub(missing) {
                Some(at) if tensor.shape()[at] != 1 => own[at],
                _ => 0,
            })
            .collect();
        Self { tensor, dims, strides: Some(strides) }
    }

    fn read(&self, start: usize, out: &mut [u64]) {
        let Some(strides) = &self.strides else {
            return read(self.tensor, start, out);
        };
        if self.tensor.count() == 1 {
            let mut only = [0];
            read(self.tensor, 0, &mut only);
            return out.fill(only[0]);
        }
        let mut index = vec![0; self.dims.len()];
        let mut rest = start;
        for axis in (0..self.dims.len()).rev() {
            index[axis] = rest % self.dims[axis];
            rest /= self.dims[axis];
        }
        let mut offset: usize = index.iter().zip(strides).map(|(index, stride)| index * stride).sum();
        for out in out {
            read(self.tensor, offset, std::slice::from_mut(out));
            for axis in (0..self.dims.len()).rev() {
                index[axis] += 1;
                offset += strides[axis];
                if index[axis] < self.dims[axis] {
                    break;
                }
                offset -= strides[axis] * self.dims[axis];
                index[axis] = 0;
            }
        }
    }
}

/// The bits of a tensor's elements from `start` on.
pub fn read(tensor: &Tensor, start: usize, out: &mut [u64]) {
    let data = tensor.data();
    match tensor.dtype().size_bits() {
        2 | 4 => out.iter_mut().zip(start..).for_each(|(out, at)| *out = packed_code(tensor.dtype(), data, at).into()),
        8 => out.iter_mut().zip(&data[start..]).for_each(|(out, &byte)| *out = u64::from(byte)),
        16 => out.iter_mut().zip(data[start * 2..].chunks_exact(2)).for_each(|(out, bytes)| {
            *out = u64::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        }),
        32 => out.iter_mut().zip(data[start * 4..].chunks_exact(4)).for_each(|(out, bytes)| {
            *out = u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        }),
        _ => out.iter_mut().zip(data[start * 8..].chunks_exact(8)).for_each(|(out, bytes)| {
            *out = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        }),
    }
}

/// Appends the bits of elements; chunks of a packed dtype but the last fill whole bytes.
pub fn write(dtype: DType, values: &[u64], data: &mut Vec<u8>) {
    match dtype.size_bits() {
        bits @ (2 | 4) => {
            let byte = |values: &[u64]| values.iter().rev().fold(0, |byte, &value| byte << bits | value as u8);
            data.extend(values.chunks(8 / bits).map(byte));
        }
        8 => data.extend(values.iter().map(|&value| value as u8)),
        16 => values.iter().for_each(|&value| data.extend((value as u16).to_le_bytes())),
        32 => values.iter().for_each(|&value| data.extend((value as u32).to_le_bytes())),
        _ => values.iter().for_each(|&value| data.extend(value.to_le_bytes())),
    }
}
