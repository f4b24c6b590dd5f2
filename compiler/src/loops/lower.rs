//! From the graph to loops: each node becomes one kernel (a concatenation one for each operand), over logical tensors.
//!
//! What fusion and scheduling rely on:
//!
//! - *Elementwise and movement*: spatial loops over the axes of the result around one store at the plain axes; movement is in the
//!   indices of the loads.
//! - *Reductions* (contractions, convolutions, reductions, windows): spatial loops around `set acc = identity`, reduce loops around
//!   `set acc = acc ∘ term` (built by [`scalar::combine`]), and one store at the plain axes. Reduce axes of extent 1 are left out;
//!   where none is left, the kernel is of the elementwise form. Only a convolution with groups of several filters stores at
//!   `g · filters + m`.
//! - *Searches and scans* run a sequential axis innermost.
//! - *Concatenations* store at the axes with an offset.
//!
//! Floats of 16 bits are accumulated in f32. A value has one buffer, which its kernels write; where it is an output of the model it
//! is that output's buffer, and other kernels read it there. Inputs, constants and repeated values that are outputs are copied.
//! A constant of one element is a constant in the expressions. Values of packed dtypes lie in bytes ([`scalar::carrier`]): inputs and
//! constants are unpacked by a kernel, where the load of a packed buffer gives the element at the index, and outputs are packed by
//! one, in the order of memory: elements share a byte.
//!
//! Loops and branches are regions. What a region and kernels outside of it both touch is in shared buffers; a loop's values are
//! carried in such buffers, to which latches copy the next ones at the end of each round.
//!
//! Indices that are only known at run time are clamped where they are used, and checked by a kernel of their own, which sets the
//! status of the run.

mod control;
mod elementwise;
mod movement;
mod needed;
mod nest;
mod product;
mod reduce;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use mcc_support::{DType, EntityMap, TensorType};

use super::expr::{Expr, ExprId, Exprs};
use super::{Buffer, BufferId, Kernel, Needed, Program, RegionId, Role, scalar};
use crate::graph::{BinaryFn, Def, Graph, Node, Op, Origin, ValueId};
use nest::Nest;

/// The program of a graph.
pub fn lower(graph: &Graph) -> Program {
    lower_with_places(graph).0
}

/// The program of a graph, and the buffer that each value is stored in, if it is.
pub fn lower_with_places(graph: &Graph) -> (Program, EntityMap<ValueId, Option<BufferId>>) {
    let mut lowering = Lowering {
        graph,
        program: Program { name: graph.name.clone(), ..Program::default() },
        region: None,
        rounds: None,
        buffers: EntityMap::filled(graph.values.len(), None),
        names: BTreeSet::new(),
        status: None,
        checked: BTreeSet::new(),
    };
    lowering.inputs();
    lowering.outputs();
    for id in graph.order() {
        lowering.node(graph.node(id));
    }
    lowering.copies();
    lowering.needed();
    (lowering.program, lowering.buffers)
}

struct Lowering<'g> {
    /// The one being lowered: the model's, or a body in it.
    graph: &'g Graph,
    program: Program,
    /// Where kernels are appended.
    region: Option<RegionId>,
    /// Of the loop whose body is being lowered: the most that there can be.
    rounds: Option<usize>,
    /// Where each value lies, once that is known; never packed.
    buffers: EntityMap<ValueId, Option<BufferId>>,
    /// Names of buffers that are taken.
    names: BTreeSet<String>,
    status: Option<BufferId>,
    /// Indices that are checked to be inside of an axis of this extent.
    checked: BTreeSet<(ValueId, usize)>,
}

/// An operand of a kernel.
#[derive(Clone, Debug)]
enum Source {
    Const(DType, u64),
    Buffer { buffer: BufferId, ty: TensorType },
}

impl Source {
    fn dtype(&self) -> DType {
        match self {
            Source::Const(dtype, _) => *dtype,
            Source::Buffer { ty, .. } => ty.dtype,
        }
    }

    fn load(&self, exprs: &mut Exprs, index: Vec<ExprId>) -> ExprId {
        match self {
            Source::Const(dtype, bits) => exprs.add(Expr::Const(*dtype, *bits)),
            Source::Buffer { buffer, ty } => exprs.load(*buffer, ty.dtype, index),
        }
    }
}

/// The dtype in which values lie.
fn unpacked(dtype: DType) -> DType {
    if dtype.is_packed() { scalar::carrier(dtype) } else { dtype }
}

impl<'g> Lowering<'g> {
    fn inputs(&mut self) {
        for (place, (name, value)) in self.graph.inputs.iter().enumerate() {
            let ty = self.graph.ty(*value).clone();
            let buffer = self.buffer(name, ty, Role::Input(place));
            self.program.inputs.push((name.clone(), buffer));
            self.buffers[*value] = Some(self.unpack(buffer, &self.graph.values[*value].origin));
        }
    }

    /// Buffers of the outputs, which the kernels of their values write where that is possible; see [`copies`](Self::copies).
    fn outputs(&mut self) {
        for (place, (name, value)) in self.graph.outputs.iter().enumerate() {
            let ty = self.graph.ty(*value).clone();
            let computed = self.graph.definition(*value).is_some_and(|(_, node)| !node.op.has_body());
            let own = computed && !ty.dtype.is_packed() && self.buffers[*value].is_none();
            let buffer = self.buffer(name, ty, Role::Output(place));
            self.program.outputs.push((name.clone(), buffer));
            if own {
                self.buffers[*value] = Some(buffer);
            }
        }
    }

    /// Copies the values of outputs that lie elsewhere.
    fn copies(&mut self) {
        for place in 0..self.graph.outputs.len() {
            let (value, buffer) = (self.graph.outputs[place].1, self.program.outputs[place].1);
            if self.buffers[value] == Some(buffer) {
                continue;
            }
            let source = self.source(value);
            let ty = self.program.buffers[buffer].ty.clone();
            self.copy(source, buffer, &ty, "copy", &self.graph.values[value].origin);
        }
    }

    /// States which elements of buffers nobody needs.
    fn needed(&mut self) {
        let needed = needed::needed(self.graph);
        let outputs = self.graph.outputs.iter().zip(&self.program.outputs).map(|((_, value), (_, buffer))| (*value, *buffer));
        let values = self.buffers.iter().filter_map(|(value, buffer)| Some((value, (*buffer)?)));
        let mut list: Vec<(ValueId, BufferId)> = values.collect();
        // A value that is an output more than once has a buffer for each.
        list.extend(outputs);
        for (value, buffer) in list {
            let Buffer { name, ty, role } = &self.program.buffers[buffer];
            let limits = &needed[value];
            // What a loop carries is needed by its next round.
            if self.graph.definition(value).is_some_and(|(_, node)| node.op.has_body()) {
                continue;
            }
            if matches!(role, Role::Temporary | Role::Output(_)) && limits.iter().any(Option::is_some) {
                let needed = Needed { shape: ty.shape.to_vec(), limits: limits.clone() };
                self.program.needed.insert(name.clone(), needed);
            }
        }
    }

    /// A kernel that writes each element of a buffer as it is, converted to the buffer's dtype.
    fn copy(&mut self, source: Source, to: BufferId, ty: &TensorType, what: &str, origin: &Origin) {
        let mut nest = Nest::new(ty);
        if ty.dtype.is_packed() {
            nest.in_order();
        }
        let index = nest.spatial_indices();
        let value = source.load(&mut nest.kernel.exprs, index);
        let value = nest.kernel.exprs.cast(ty.dtype, value);
        nest.store(to, value);
        self.push(nest, what, origin);
    }

    /// The buffer itself, or one with its elements unpacked.
    fn unpack(&mut self, buffer: BufferId, origin: &Origin) -> BufferId {
        let ty = self.program.buffers[buffer].ty.clone();
        if !ty.dtype.is_packed() {
            return buffer;
        }
        let wide = TensorType::new(unpacked(ty.dtype), ty.shape.clone());
        let name = format!("{}_unpacked", self.program.buffers[buffer].name);
        let unpacked = self.buffer(&name, wide.clone(), Role::Temporary);
        self.copy(Source::Buffer { buffer, ty }, unpacked, &wide, "unpack", origin);
        unpacked
    }

    /// A new buffer; its name is made from `name`.
    fn buffer(&mut self, name: &str, ty: TensorType, role: Role) -> BufferId {
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let plain = if plain.is_empty() { "v".to_string() } else { plain };
        let mut name = plain.clone();
        let mut number = 1;
        while !self.names.insert(name.clone()) {
            number += 1;
            name = format!("{plain}_{number}");
        }
        self.program.buffers.push(Buffer { name, ty, role })
    }

    /// Where to read a value.
    fn source(&mut self, value: ValueId) -> Source {
        let ty = self.graph.ty(value);
        let dtype = unpacked(ty.dtype);
        if let Some(tensor) = self.graph.constant(value) {
            if ty.shape.count() == 1 {
                let mut bits = [0];
                scalar::read(tensor, 0, &mut bits);
                let extended = if ty.dtype.is_packed() { super::primitive::cast(ty.dtype, dtype)(bits[0]) } else { bits[0] };
                return Source::Const(dtype, extended);
            }
            if self.buffers[value].is_none() {
                let origin = &self.graph.values[value].origin;
                let buffer = self.buffer(&origin.output, ty.clone(), Role::Constant(tensor.clone()));
                self.buffers[value] = Some(self.unpack(buffer, origin));
            }
        }
        let buffer = self.buffers[value].expect("operands are defined before their use");
        Source::Buffer { buffer, ty: TensorType::new(dtype, ty.shape.clone()) }
    }

    /// The buffer of a node's result.
    fn result(&mut self, node: &Node) -> BufferId {
        let value = node.results[0];
        if let Some(buffer) = self.buffers[value] {
            return buffer;
        }
        let Def::Node { .. } = self.graph.values[value].def else { unreachable!("the result of a node") };
        let ty = self.graph.ty(value);
        let ty = TensorType::new(unpacked(ty.dtype), ty.shape.clone());
        let buffer = self.buffer(&self.graph.values[value].origin.output, ty, Role::Temporary);
        self.buffers[value] = Some(buffer);
        buffer
    }

    /// Appends a kernel, named after what it does.
    fn push(&mut self, nest: Nest, what: &str, origin: &Origin) {
        let mut kernel: Kernel = nest.finish();
        kernel.name = format!("k{:03}_{what}", self.program.kernels.len());
        kernel.region = self.region;
        let node = if origin.node.is_empty() { &origin.output } else { &origin.node };
        if !node.is_empty() {
            kernel.origins.push(node.clone());
        }
        self.program.kernels.push(kernel);
    }

    /// A kernel that sets the status where one of these indices is outside of an axis, unless none can be.
    fn check_indices(&mut self, indices: ValueId, extent: usize, origin: &Origin) {
        let ty = self.graph.ty(indices).clone();
        let (low, high) = self.range(indices, 0);
        let always_inside = low >= -(extent as i128) && high < extent as i128;
        if always_inside || self.graph.constant(indices).is_some() || !self.checked.insert((indices, extent)) {
            return;
        }
        let source = self.source(indices);
        let status = self.status.unwrap_or_else(|| self.buffer("status", TensorType::new(DType::I32, []), Role::Status));
        self.status = Some(status);
        let mut nest = Nest::new(&TensorType::new(DType::I32, []));
        movement::check_indices(&mut nest, &Operand { source: &source, shape: &ty.shape }, extent, status);
        self.push(nest, "check_indices", origin);
    }

    /// The least and the greatest integer that a value may hold, as far as a few ops around it tell.
    fn range(&self, value: ValueId, depth: usize) -> (i128, i128) {
        let dtype = self.graph.ty(value).dtype;
        let any = dtype.integer_range();
        if let Some(rounds) = self.rounds.filter(|_| self.graph.inputs.first().is_some_and(|&(_, input)| input == value)) {
            return (0, rounds.saturating_sub(1) as i128);
        }
        if let Some(tensor) = self.graph.constant(value).filter(|tensor| tensor.count() == 1) {
            let number = i128::from(tensor.number(0).as_i64());
            return (number, number);
        }
        let Some((_, node)) = self.graph.definition(value).filter(|_| depth < 8) else { return any };
        let of = |at: usize| self.range(node.operands[at], depth + 1);
        let (low, high) = match &node.op {
            Op::Binary(BinaryFn::Add) => (of(0).0 + of(1).0, of(0).1 + of(1).1),
            Op::Binary(BinaryFn::Sub) => (of(0).0 - of(1).1, of(0).1 - of(1).0),
            Op::Binary(BinaryFn::Min) => (of(0).0.min(of(1).0), of(0).1.min(of(1).1)),
            Op::Binary(BinaryFn::Max) => (of(0).0.max(of(1).0), of(0).1.max(of(1).1)),
            Op::Reshape(_) | Op::Broadcast(_) | Op::Slice(_) | Op::Transpose(_) => of(0),
            Op::Cast(_) if self.graph.ty(node.operands[0]).dtype.is_integer() => of(0),
            Op::Iota { shape, axis, .. } => (0, shape[*axis].saturating_sub(1) as i128),
            _ => any,
        };
        // What does not fit wraps.
        if any.0 <= low && high <= any.1 { (low, high) } else { any }
    }

    fn node(&mut self, node: &'g Node) {
        match &node.op {
            Op::Loop(inner) => return self.repeat(inner, node),
            Op::If(inner) => return self.branch(inner, node),
            _ => {}
        }
        if let Op::Gather { axis } | Op::GatherElements { axis } = node.op {
            let extent = self.graph.ty(node.operands[0]).shape[axis];
            self.check_indices(node.operands[1], extent, &self.graph.values[node.results[0]].origin);
        }
        let sources: Vec<Source> = node.operands.iter().map(|&operand| self.source(operand)).collect();
        let buffer = self.result(node);
        let origin = &self.graph.values[node.results[0]].origin;
        if let Op::Concat { axis } = node.op {
            let mut offset = 0;
            for (source, &operand) in sources.iter().zip(&node.operands) {
                let ty = self.graph.ty(operand);
                let nest = movement::concat(source, ty, axis, offset, buffer);
                self.push(nest, "concat", origin);
                offset += ty.shape[axis];
            }
            return;
        }
        let declared = self.graph.ty(node.results[0]).clone();
        let mut nest = Nest::new(&declared);
        let shapes: Vec<_> = node.operands.iter().map(|&operand| &self.graph.ty(operand).shape).collect();
        let operands: Vec<Operand<'_>> = sources.iter().zip(&shapes).map(|(source, shape)| Operand { source, shape }).collect();
        match &node.op {
            Op::Contract(contraction) => product::contract(&mut nest, contraction, &operands, buffer),
            Op::Conv(conv) => {
                let parts = product::conv(&nest, conv, &operands, buffer);
                return parts.into_iter().for_each(|nest| self.push(nest, "conv", origin));
            }
            Op::Reduce { kind, axes } => reduce::reduce(&mut nest, *kind, axes, &operands[0], buffer),
            Op::Window { kind, window } => reduce::window(&mut nest, *kind, window, &operands[0], buffer),
            Op::ArgReduce { max, axis, last } => reduce::arg_reduce(&mut nest, *max, *axis, *last, &operands[0], buffer),
            Op::WindowArgMax(window) => reduce::window_arg_max(&mut nest, window, &operands[0], buffer),
            Op::Scan { kind, axis, exclusive, reverse } => {
                reduce::scan(&mut nest, *kind, *axis, (*exclusive, *reverse), &operands[0], buffer);
            }
            op => {
                let dtype = |at: usize| self.graph.ty(node.operands[at]).dtype;
                let value = elementwise::value(&mut nest, op, &operands, &declared, &dtype)
                    .unwrap_or_else(|| movement::value(&mut nest, op, &operands));
                nest.store(buffer, value);
            }
        }
        self.push(nest, &name(&node.op), origin);
    }
}

/// An operand with its shape in the graph, which a constant of one element has as well.
#[derive(Clone, Copy)]
struct Operand<'a> {
    source: &'a Source,
    shape: &'a [usize],
}

/// What kernels of an op are called.
fn name(op: &Op) -> String {
    let name = match op {
        Op::Unary(function) => return format!("{function:?}").to_lowercase(),
        Op::Binary(function) => return format!("{function:?}").to_lowercase(),
        Op::Reduce { kind, .. } => return format!("reduce_{kind:?}").to_lowercase(),
        Op::Window { kind, .. } => return format!("window_{kind:?}").to_lowercase(),
        Op::Scan { kind, .. } => return format!("scan_{kind:?}").to_lowercase(),
        Op::Select => "select",
        Op::Cast(_) => "cast",
        Op::Bitcast(_) => "bitcast",
        Op::Contract(_) => "contract",
        Op::Conv(_) => "conv",
        Op::ArgReduce { .. } => "arg_reduce",
        Op::WindowArgMax(_) => "window_arg_max",
        Op::Reshape(_) => "reshape",
        Op::Transpose(_) => "transpose",
        Op::Slice(_) => "slice",
        Op::Pad { .. } => "pad",
        Op::Concat { .. } => "concat",
        Op::Broadcast(_) => "broadcast",
        Op::Gather { .. } => "gather",
        Op::GatherElements { .. } => "gather_elements",
        Op::Iota { .. } => "iota",
        Op::BatchNorm { .. } => "batch_norm",
        Op::Loop(_) => "loop",
        Op::If(_) => "if",
    };
    name.to_string()
}
