//! Random graphs over all ops, for tests that compare one stage with another.

use mcc::graph::{
    BinaryFn, Builder, Contraction, Conv, Graph, Op, PadMode, ReduceFn, Round, SliceAxis, UnaryFn, Window, Wire, infer,
};
use mcc_support::random::Random;
use mcc_support::tensor::Number;
use mcc_support::{DType, Shape, Tensor, TensorType};

/// What the graphs are made of.
#[derive(Clone, Debug)]
pub struct Config {
    pub nodes: usize,
    /// Element types of inputs, and of the results of casts.
    pub dtypes: Vec<DType>,
    /// No value has more elements.
    pub max_count: usize,
}

impl Default for Config {
    fn default() -> Self {
        let dtypes = DType::ALL.into_iter().filter(|dtype| !dtype.is_packed()).collect();
        Self { nodes: 12, dtypes, max_count: 4096 }
    }
}

#[derive(Clone, Debug)]
pub struct RandomGraph {
    pub graph: Graph,
    /// For each output, whether every correct implementation gives the same bits (but for NaNs): no float was summed or multiplied
    /// up on the way to it. The others depend on it continuously.
    pub exact: Vec<bool>,
}

/// A graph; the same for the same state of `random`.
pub fn random_graph(random: &mut Random, config: &Config) -> RandomGraph {
    let builder = Builder::new("random");
    let mut generator = Generator { builder: &builder, random, config, values: Vec::new(), depth: 0 };
    for at in 0..1 + generator.random.below(3) {
        let dtype = generator.dtype();
        let ty = TensorType::new(dtype, generator.shape(1, 5));
        let wire = builder.input(format!("x{at}"), ty);
        generator.values.push(Made { wire, exact: true, used: false });
    }
    let mut attempts = 0;
    while builder.node_count() < config.nodes && attempts < 100 * config.nodes {
        attempts += 1;
        generator.step();
    }
    let last = generator.values.len() - 1;
    let mut exact = Vec::new();
    for (at, made) in generator.values.iter().enumerate() {
        // Some values are of no use to anyone.
        if at == last || generator.random.chance(if made.used { 0.1 } else { 0.9 }) {
            builder.output(format!("y{at}"), made.wire);
            exact.push(made.exact);
        }
    }
    builder.check().expect("only well-typed nodes are added");
    RandomGraph { graph: builder.finish(), exact }
}

/// Inputs for a graph.
pub fn random_inputs(graph: &Graph, seed: u64) -> Vec<Tensor> {
    let mut random = Random::new(seed);
    graph.inputs.iter().map(|&(_, value)| random.tensor(graph.ty(value))).collect()
}

#[derive(Clone, Copy)]
struct Made<'b> {
    wire: Wire<'b>,
    exact: bool,
    used: bool,
}

struct Generator<'b, 'r> {
    builder: &'b Builder,
    random: &'r mut Random,
    config: &'r Config,
    values: Vec<Made<'b>>,
    /// Bodies around what is made.
    depth: usize,
}

type Step<'b> = Option<(Op, Vec<Wire<'b>>)>;

const UNARY: [UnaryFn; 27] = [
    UnaryFn::Neg,
    UnaryFn::Abs,
    UnaryFn::Sin,
    UnaryFn::Cos,
    UnaryFn::Atan,
    UnaryFn::Tanh,
    UnaryFn::Sigmoid,
    UnaryFn::Erf,
    UnaryFn::Asinh,
    UnaryFn::Exp,
    UnaryFn::Sign,
    UnaryFn::Not,
    UnaryFn::Sqrt,
    UnaryFn::Log,
    UnaryFn::Tan,
    UnaryFn::Asin,
    UnaryFn::Acos,
    UnaryFn::Sinh,
    UnaryFn::Cosh,
    UnaryFn::Acosh,
    UnaryFn::Atanh,
    UnaryFn::Floor,
    UnaryFn::Ceil,
    UnaryFn::Trunc,
    UnaryFn::Round,
    UnaryFn::IsNan,
    UnaryFn::IsInf,
];
/// The first so many do not amplify errors.
const SMOOTH_UNARY: usize = 8;

const BINARY: [BinaryFn; 17] = [
    BinaryFn::Add,
    BinaryFn::Sub,
    BinaryFn::Mul,
    BinaryFn::Min,
    BinaryFn::Max,
    BinaryFn::Div,
    BinaryFn::Rem,
    BinaryFn::Mod,
    BinaryFn::Pow,
    BinaryFn::And,
    BinaryFn::Or,
    BinaryFn::Xor,
    BinaryFn::Shl,
    BinaryFn::Shr,
    BinaryFn::Eq,
    BinaryFn::Lt,
    BinaryFn::Le,
];
const SMOOTH_BINARY: usize = 5;

const REDUCE: [ReduceFn; 5] = [ReduceFn::Sum, ReduceFn::Prod, ReduceFn::Max, ReduceFn::Min, ReduceFn::MaxNumber];

impl<'b> Generator<'b, '_> {
    fn step(&mut self) {
        if self.depth < 2 && self.random.chance(0.04) {
            return if self.random.chance(0.6) { self.repeat() } else { self.branch() };
        }
        // Often the newest, so that chains arise.
        let chained = self.random.chance(0.4);
        let x = self.values[if chained { self.values.len() - 1 } else { self.random.below(self.values.len()) }];
        let step = match self.random.below(23) {
            0 | 22 => {
                Some((Op::Unary(*self.random.pick(&UNARY[..if x.exact { UNARY.len() } else { SMOOTH_UNARY }])), vec![x.wire]))
            }
            1 | 2 => self.binary(x),
            3 => self.select(x),
            4 => self.cast(x),
            5 => self.contract(x.wire),
            6 => self.conv(x.wire),
            7 => self.reduce(x),
            8 => self.arg_reduce(x),
            9 | 10 => self.window(x),
            11 => self.scan(x.wire),
            12 => self.reshape(x.wire),
            13 => Some((Op::Transpose(self.permutation(x.wire.rank())), vec![x.wire])),
            14 => self.slice(x.wire),
            15 => self.pad(x.wire),
            16 => self.concat(x.wire),
            17 => self.broadcast(x.wire),
            18 => self.gather(x.wire),
            19 => self.gather_elements(x.wire),
            20 => self.iota(),
            _ => self.batch_norm(x.wire),
        };
        let Some((op, operands)) = step else { return };
        let types: Vec<TensorType> = operands.iter().map(|wire| wire.ty()).collect();
        match infer::infer(&op, &types.iter().collect::<Vec<_>>()) {
            Ok(ty) if ty.shape.checked_count().is_some_and(|count| count <= self.config.max_count) => {}
            _ => return,
        }
        let mut exact = !(is_rounding(&op) && types[0].dtype.is_float());
        for operand in &operands {
            for made in self.values.iter_mut().filter(|made| made.wire.value == operand.value) {
                made.used = true;
                exact &= made.exact;
            }
        }
        let wire = self.builder.add(op, &operands);
        self.values.push(Made { wire, exact, used: false });
    }

    /// A value of the same type that is as exact, the newest of those in the body.
    fn like(&mut self, x: Made<'b>, from: usize) -> Made<'b> {
        let fits = |made: &&Made<'b>| made.wire.ty() == x.wire.ty() && (made.exact || !x.exact);
        self.values[from..].iter().rev().find(fits).copied().unwrap_or(x)
    }

    /// An integer that depends on data, below a bound.
    fn number(&mut self, bound: usize) -> Option<Wire<'b>> {
        let is_integer = |made: &&Made<'b>| made.exact && made.wire.dtype().is_integer() && made.wire.shape().count() > 0;
        let integers: Vec<Wire<'b>> = self.values.iter().filter(is_integer).map(|made| made.wire).collect();
        if integers.is_empty() {
            return None;
        }
        let picked = *self.random.pick(&integers);
        let first = picked.slice(vec![SliceAxis { start: 0, step: 1, count: 1 }; picked.rank()]).reshape(Shape::scalar());
        Some(first.cast(DType::I64).binary(BinaryFn::Mod, self.builder.constant(Tensor::scalar(bound as i64))))
    }

    /// Steps inside of a body.
    fn inside(&mut self) {
        self.depth += 1;
        (0..2 + self.random.below(5)).for_each(|_| self.step());
        self.depth -= 1;
    }

    fn repeat(&mut self) {
        let builder = self.builder;
        let initial: Vec<Made<'b>> = (0..1 + self.random.below(3)).map(|_| *self.random.pick(&self.values)).collect();
        let wires: Vec<Wire<'b>> = initial.iter().map(|made| made.wire).collect();
        let rounds = self.number(7).filter(|rounds| rounds.constant().is_none());
        let go = self.number(4).map(|number| number.lt(builder.constant(Tensor::scalar(3i64))));
        let outside = self.values.len();
        let mut exact = Vec::new();
        let repeated = builder.repeat(5 + self.random.below(3), rounds, go, &wires, |round, carried| {
            self.values.push(Made { wire: round, exact: true, used: true });
            self.values.extend(carried.iter().zip(&initial).map(|(&wire, made)| Made { wire, ..*made }));
            self.inside();
            let next: Vec<Made<'b>> =
                carried.iter().zip(&initial).map(|(&wire, made)| self.like(Made { wire, ..*made }, outside)).collect();
            let elements: Vec<Made<'b>> =
                (0..self.random.below(3)).map(|_| self.values[self.values.len() - 1 - self.random.below(2)]).collect();
            let always = builder.constant(Tensor::scalar(true));
            let go = self.number(5).filter(|_| self.random.chance(0.5));
            let go = go.map_or(always, |number| number.lt(builder.constant(Tensor::scalar(4i64))));
            exact = elements.iter().map(|made| made.exact).collect();
            self.values.truncate(outside);
            let wires = |list: Vec<Made<'b>>| list.into_iter().map(|made| made.wire).collect();
            Ok(Round { go, next: wires(next), elements: wires(elements) })
        });
        let repeated = repeated.expect("bodies are well-typed");
        if repeated.rounds.constant().is_some() {
            // Written out: nothing new, and stacks may have no rows.
            return;
        }
        self.values.push(Made { wire: repeated.rounds, exact: true, used: false });
        self.values.extend(repeated.carried.iter().zip(&initial).map(|(&wire, made)| Made {
            wire,
            exact: made.exact,
            used: false,
        }));
        self.values.extend(repeated.stacks.iter().zip(exact).map(|(&wire, exact)| Made { wire, exact, used: false }));
    }

    fn branch(&mut self) {
        let builder = self.builder;
        let Some(number) = self.number(2) else { return };
        let cond = number.eq(builder.constant(Tensor::scalar(1i64)));
        let like: Vec<Made<'b>> = (0..1 + self.random.below(2)).map(|_| *self.random.pick(&self.values)).collect();
        let outside = self.values.len();
        let results = builder.branch(cond, |_| {
            self.inside();
            let results = like.iter().map(|&made| self.like(made, outside).wire).collect();
            self.values.truncate(outside);
            Ok(results)
        });
        let results = results.expect("branches are well-typed");
        self.values.extend(results.into_iter().zip(&like).map(|(wire, made)| Made { wire, exact: made.exact, used: false }));
    }

    /// f32 more often than others, those that only move less often.
    fn dtype(&mut self) -> DType {
        let is_usual = self.config.dtypes.contains(&DType::F32) && self.random.chance(0.3);
        let dtype = if is_usual { DType::F32 } else { *self.random.pick(&self.config.dtypes) };
        let is_again = !dtype.is_computed_with() && self.random.chance(0.6);
        if is_again { *self.random.pick(&self.config.dtypes) } else { dtype }
    }

    /// Extents, the product of which is bounded.
    fn shape(&mut self, least_rank: usize, most_rank: usize) -> Shape {
        let rank = least_rank + self.random.below(most_rank - least_rank + 1);
        let mut dims: Vec<usize> = (0..rank).map(|_| 1 + self.random.below(9)).collect();
        while dims.iter().product::<usize>() > self.config.max_count {
            dims.pop();
        }
        dims.into()
    }

    fn constant(&mut self, dtype: DType, shape: impl Into<Shape>) -> Wire<'b> {
        let tensor = self.random.tensor(&TensorType::new(dtype, shape));
        self.builder.constant(tensor)
    }

    fn axis(&mut self, x: Wire<'b>) -> Option<usize> {
        (x.rank() > 0).then(|| self.random.below(x.rank()))
    }

    fn permutation(&mut self, rank: usize) -> Vec<usize> {
        let mut permutation: Vec<usize> = (0..rank).collect();
        (1..rank).for_each(|at| permutation.swap(at, self.random.below(at + 1)));
        permutation
    }

    /// An operand to broadcast with `x`: another value, or a constant of a part of its axes.
    fn partner(&mut self, x: Wire<'b>, dtype: DType, exact: bool) -> Wire<'b> {
        let fits = |made: &&Made<'b>| {
            made.wire.dtype() == dtype && (made.exact || !exact) && made.wire.shape().broadcast(&x.shape()).is_some()
        };
        let others: Vec<Wire<'b>> = self.values.iter().filter(fits).map(|made| made.wire).collect();
        if !others.is_empty() && self.random.chance(0.6) {
            return *self.random.pick(&others);
        }
        let dropped = self.random.below(x.rank() + 1);
        let dims: Vec<usize> = x.shape()[dropped..].iter().map(|&dim| if self.random.chance(0.3) { 1 } else { dim }).collect();
        self.constant(dtype, dims)
    }

    fn binary(&mut self, x: Made<'b>) -> Step<'b> {
        let function = *self.random.pick(&BINARY[..if x.exact { BINARY.len() } else { SMOOTH_BINARY }]);
        let is_smooth = BINARY[..SMOOTH_BINARY].contains(&function);
        let y = self.partner(x.wire, x.wire.dtype(), !is_smooth);
        let operands = if self.random.chance(0.5) { vec![x.wire, y] } else { vec![y, x.wire] };
        Some((Op::Binary(function), operands))
    }

    fn select(&mut self, x: Made<'b>) -> Step<'b> {
        let condition = self.partner(x.wire, DType::Bool, true);
        let other = self.partner(x.wire, x.wire.dtype(), false);
        Some((Op::Select, vec![condition, x.wire, other]))
    }

    fn cast(&mut self, x: Made<'b>) -> Step<'b> {
        let dtype = self.dtype();
        // A small difference may become one of these types' steps.
        let is_continuous = dtype.is_float() && dtype.is_computed_with();
        if !x.exact && !is_continuous {
            return None;
        }
        let is_bitcast = x.exact && self.random.chance(0.3) && dtype != DType::Bool;
        Some((if is_bitcast { Op::Bitcast(dtype) } else { Op::Cast(dtype) }, vec![x.wire]))
    }

    fn contract(&mut self, x: Wire<'b>) -> Step<'b> {
        let lhs: Vec<u8> = (b'a'..).take(x.rank()).collect();
        let (mut rhs, mut dims, mut out) = (Vec::new(), Vec::new(), Vec::new());
        for (&label, &dim) in lhs.iter().zip(x.shape().iter()) {
            // Kept from lhs, batch, or summed.
            let role = self.random.below(3);
            if role > 0 {
                rhs.push(label);
                dims.push(dim);
            }
            if role < 2 {
                out.push(label);
            }
        }
        for label in (b'x'..).take(self.random.below(2)) {
            rhs.push(label);
            dims.push(1 + self.random.below(20));
            out.push(label);
        }
        let shuffle = |labels: &[u8], order: &[usize]| order.iter().map(|&at| labels[at]).collect::<Vec<u8>>();
        let order = self.permutation(rhs.len());
        let dims: Vec<usize> = order.iter().map(|&at| dims[at]).collect();
        let (rhs, out) = (shuffle(&rhs, &order), shuffle(&out, &self.permutation(out.len())));
        let same = |made: &&Made<'b>| made.wire.dtype() == x.dtype() && made.wire.shape().dims() == dims;
        let other = match self.values.iter().find(same) {
            Some(made) if self.random.chance(0.5) => made.wire,
            _ => self.constant(x.dtype(), dims),
        };
        let (contraction, operands) = match self.random.chance(0.5) {
            true => (Contraction { lhs, rhs, out }, vec![x, other]),
            false => (Contraction { lhs: rhs, rhs: lhs, out }, vec![other, x]),
        };
        Some((Op::Contract(contraction), operands))
    }

    fn conv(&mut self, x: Wire<'b>) -> Step<'b> {
        let shape = x.shape();
        let rank = shape.rank().checked_sub(2).filter(|&rank| rank > 0)?;
        if rank == 2 && self.random.chance(0.4) {
            // Of the kind that may be computed in tiles.
            let weights = vec![1 + self.random.below(9), shape[1], 3, 3];
            let pads = (0..rank).map(|_| (self.random.below(3) as i64, self.random.below(3) as i64)).collect();
            let conv = Conv { strides: vec![1; 2], dilations: vec![1; 2], pads, input_dilations: vec![1; 2], groups: 1 };
            let weights = self.constant(x.dtype(), weights);
            return Some((Op::Conv(conv), vec![x, weights]));
        }
        let divisors: Vec<usize> = (1..=shape[1]).filter(|&groups| shape[1].is_multiple_of(groups)).collect();
        let groups = *self.random.pick(&divisors);
        let mut weights = vec![groups * (1 + self.random.below(if groups > 4 { 2 } else { 9 })), shape[1] / groups];
        weights.extend((0..rank).map(|_| 1 + self.random.below(4)));
        let conv = Conv {
            strides: (0..rank).map(|_| 1 + self.random.below(3)).collect(),
            dilations: (0..rank).map(|_| 1 + self.random.below(2)).collect(),
            pads: (0..rank).map(|_| (self.random.below(4) as i64 - 1, self.random.below(4) as i64 - 1)).collect(),
            input_dilations: (0..rank).map(|_| if self.random.chance(0.2) { 2 } else { 1 }).collect(),
            groups,
        };
        let weights = self.constant(x.dtype(), weights);
        Some((Op::Conv(conv), vec![x, weights]))
    }

    fn reduce(&mut self, x: Made<'b>) -> Step<'b> {
        let axes = (0..x.wire.rank()).filter(|_| self.random.chance(0.5)).collect();
        Some((Op::Reduce { kind: *self.random.pick(&REDUCE), axes }, vec![x.wire]))
    }

    fn arg_reduce(&mut self, x: Made<'b>) -> Step<'b> {
        let axis = self.axis(x.wire).filter(|_| x.exact)?;
        Some((Op::ArgReduce { max: self.random.chance(0.5), axis, last: self.random.chance(0.5) }, vec![x.wire]))
    }

    fn window(&mut self, x: Made<'b>) -> Step<'b> {
        let rank = 1 + self.random.below(3);
        // Some cover most of what there is.
        let (least, stride, dilation, pad) = if self.random.chance(0.2) { (3, 1, 1, 4) } else { (1, 3, 2, 2) };
        let window = Window {
            kernel: (0..rank).map(|_| least + self.random.below(3)).collect(),
            strides: (0..rank).map(|_| 1 + self.random.below(stride)).collect(),
            dilations: (0..rank).map(|_| 1 + self.random.below(dilation)).collect(),
            pads: (0..rank).map(|_| (self.random.below(pad), self.random.below(pad))).collect(),
        };
        if x.exact && self.random.chance(0.3) {
            return Some((Op::WindowArgMax(window), vec![x.wire]));
        }
        Some((Op::Window { kind: *self.random.pick(&REDUCE), window }, vec![x.wire]))
    }

    fn scan(&mut self, x: Wire<'b>) -> Step<'b> {
        let axis = self.axis(x)?;
        let (exclusive, reverse) = (self.random.chance(0.5), self.random.chance(0.5));
        Some((Op::Scan { kind: *self.random.pick(&REDUCE), axis, exclusive, reverse }, vec![x]))
    }

    /// Splits an axis, joins two, or adds one of extent 1.
    fn reshape(&mut self, x: Wire<'b>) -> Step<'b> {
        let mut dims = x.shape().into_dims();
        let at = self.random.below(dims.len() + 1);
        match (self.random.below(3), dims.get(at).copied()) {
            (0, Some(dim)) if dim % 2 == 0 => drop(dims.splice(at..=at, [2, dim / 2])),
            (1, Some(dim)) if at > 0 => {
                dims[at - 1] *= dim;
                dims.remove(at);
            }
            _ if dims.len() < 5 => dims.insert(at, 1),
            _ => return None,
        }
        Some((Op::Reshape(dims.into()), vec![x]))
    }

    fn slice(&mut self, x: Wire<'b>) -> Step<'b> {
        let slice = |random: &mut Random, dim: usize| {
            let start = random.below(dim.max(1));
            let step = *random.pick(&[1i64, 1, 2, 3, -1, -2]);
            let left = if step > 0 { dim.saturating_sub(start + 1) } else { start };
            SliceAxis { start, step, count: if dim == 0 { 0 } else { 1 + random.below(left / step.unsigned_abs() as usize + 1) } }
        };
        let axes = x.shape().iter().map(|&dim| slice(self.random, dim)).collect();
        Some((Op::Slice(axes), vec![x]))
    }

    fn pad(&mut self, x: Wire<'b>) -> Step<'b> {
        let mode = *self.random.pick(&[PadMode::Constant, PadMode::Reflect, PadMode::Edge, PadMode::Wrap]);
        let amounts = (0..x.rank()).map(|_| (self.random.below(3), self.random.below(4))).collect();
        let mut operands = vec![x];
        if mode == PadMode::Constant {
            operands.push(self.constant(x.dtype(), Shape::scalar()));
        }
        Some((Op::Pad { mode, amounts }, operands))
    }

    fn concat(&mut self, x: Wire<'b>) -> Step<'b> {
        let axis = self.axis(x)?;
        let mut operands = vec![x];
        for _ in 0..self.random.below(3) {
            let fits = |made: &&Made<'b>| {
                let shape = made.wire.shape();
                made.wire.dtype() == x.dtype()
                    && shape.rank() == x.rank()
                    && (0..x.rank()).all(|at| at == axis || shape[at] == x.shape()[at])
            };
            let others: Vec<Wire<'b>> = self.values.iter().filter(fits).map(|made| made.wire).collect();
            operands.push(*self.random.pick(&others));
        }
        Some((Op::Concat { axis }, operands))
    }

    fn broadcast(&mut self, x: Wire<'b>) -> Step<'b> {
        let mut dims: Vec<usize> = x.shape().iter().map(|&dim| if dim == 1 { 1 + self.random.below(4) } else { dim }).collect();
        (0..self.random.below(2)).for_each(|_| dims.insert(0, 1 + self.random.below(4)));
        Some((Op::Broadcast(dims.into()), vec![x]))
    }

    /// Indices inside of an axis, some counted from its end: constants, or computed from a value.
    fn indices(&mut self, extent: usize, shape: Shape) -> Wire<'b> {
        let dtype = if self.random.chance(0.5) { DType::I64 } else { DType::I32 };
        let fits = |made: &&Made<'b>| made.wire.dtype() == dtype && made.exact && made.wire.shape() == shape;
        if let Some(made) = self.values.iter().find(fits).copied()
            && self.random.chance(0.5)
        {
            return made.wire.binary(BinaryFn::Rem, self.builder.scalar(dtype, extent as f64));
        }
        let numbers = (0..shape.count()).map(|_| Number::Int(self.random.below(2 * extent) as i64 - extent as i64));
        let tensor = Tensor::from_numbers(TensorType::new(dtype, shape.clone()), numbers.collect::<Vec<_>>());
        self.builder.constant(tensor)
    }

    fn gather(&mut self, x: Wire<'b>) -> Step<'b> {
        let axis = self.axis(x)?;
        let extent = x.shape()[axis];
        let shape = self.shape(0, 2);
        (extent > 0).then(|| (Op::Gather { axis }, vec![x, self.indices(extent, shape)]))
    }

    fn gather_elements(&mut self, x: Wire<'b>) -> Step<'b> {
        let axis = self.axis(x)?;
        let mut dims = x.shape().into_dims();
        let extent = dims[axis];
        dims[axis] = 1 + self.random.below(6);
        (extent > 0).then(|| (Op::GatherElements { axis }, vec![x, self.indices(extent, dims.into())]))
    }

    fn iota(&mut self) -> Step<'b> {
        let shape = self.shape(1, 3);
        let axis = self.random.below(shape.rank());
        Some((Op::Iota { dtype: *self.random.pick(&self.config.dtypes), shape, axis }, Vec::new()))
    }

    fn batch_norm(&mut self, x: Wire<'b>) -> Step<'b> {
        if x.rank() < 2 || !x.dtype().is_float() || !x.dtype().is_computed_with() {
            return None;
        }
        let mut statistics: Vec<Wire<'b>> = (0..4).map(|_| self.constant(x.dtype(), [x.shape()[1]])).collect();
        statistics[3] = statistics[3].abs() + 0.5;
        Some((Op::BatchNorm { epsilon: 1e-3 }, [&[x], &statistics[..]].concat()))
    }
}

/// Ops whose float results depend on the order of sums and products, or are computed otherwise at compile time.
fn is_rounding(op: &Op) -> bool {
    match op {
        Op::Contract(_) | Op::Conv(_) | Op::BatchNorm { .. } => true,
        Op::Reduce { kind, .. } | Op::Window { kind, .. } | Op::Scan { kind, .. } => {
            matches!(kind, ReduceFn::Sum | ReduceFn::Prod)
        }
        _ => false,
    }
}
