//! Loop IR to kernel IR: virtual registers, structured loops, no shapes.
//!
//! One walk over the statements. Unrolled spatial axes are *jammed*: a statement is done for every combination of their rounds
//! before the next, so accumulators of a register tile stay in registers over the loops inside. A vector axis gives its statements
//! lanes. Every expression is evaluated at the outermost loop in which it cannot change and at most once there: what does not
//! depend on an unrolled axis is shared by its rounds, which is what makes a tile of 6 × 2 vectors need 6 broadcasts and 2 loads.

mod address;
mod border;
mod convert;
mod eval;
mod reduce;
mod together;
mod window;

use std::collections::HashMap;
use std::rc::Rc;

use mcc_kernel::{Builder, Facts, If, Loop, Node, Op, OpKind, Operand, Type, VReg, While, ir};
use mcc_support::{DType, EntityMap, bug};

use crate::decisions::Layout;
use crate::loops::{self, AxisId, AxisKind, AxisMode, Binary, BufferId, Expr, ExprId, Program, Stmt, VarId};

/// A kernel as kernel IR: a function of `(args, begin, end)` (see [`ir::Kernel`]).
#[derive(Clone, Debug)]
pub struct Compiled {
    pub kernel: ir::Kernel,
    /// The buffers whose pointers `args` holds, in order.
    pub buffers: Vec<BufferId>,
    /// `begin..end` lies in `0..extent`: the rounds of the outermost axis where that is spatial, else 1.
    pub extent: usize,
}

/// Code for one kernel of a scheduled program, whose buffers lie as `layouts` say.
pub fn kernel(program: &Program, layouts: &EntityMap<BufferId, Layout>, kernel: &loops::Kernel, facts: &Facts) -> Compiled {
    let builder = Builder::new(kernel.name.clone(), &[Type::Ptr, Type::I64, Type::I64]);
    let mut codegen = Codegen {
        program,
        layouts,
        facts,
        kernel: kernel.clone(),
        b: builder,
        levels: vec![Level::default()],
        bindings: EntityMap::filled(kernel.axes.len(), Binding::Unbound),
        jam: Vec::new(),
        vector: None,
        lane: None,
        partial: None,
        apart: Vec::new(),
        vars: EntityMap::filled(kernel.vars.len(), VarState::default()),
        epochs: EntityMap::filled(program.buffers.len(), None),
        buffers: Vec::new(),
        deps: HashMap::new(),
        load_floor: 0,
        reduce_depth: 0,
        rows: None,
        pads: (0..kernel.exprs.len() as u32)
            .any(|id| matches!(kernel.exprs.get(ExprId(id)), Expr::Load { otherwise: Some(_), .. })),
        finite: HashMap::new(),
    };
    for stmt in &kernel.body {
        stmt.walk(&mut |stmt| {
            if let Stmt::Store { buffer, .. } = stmt {
                codegen.epochs[*buffer] = Some(0);
            }
        });
    }
    let extent = codegen.top(&kernel.body);
    let buffers = std::mem::take(&mut codegen.buffers);
    Compiled { kernel: codegen.b.finish(None), buffers, extent }
}

/// What an axis is while its loop is open.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Binding {
    Unbound,
    /// The index of the loop at this level.
    Level(usize),
    /// A round, known here.
    Fixed(i64),
    /// Differs by lane.
    Lane,
}

/// An open block: the function's (level 0), a loop's or a branch's.
#[derive(Default)]
struct Level {
    /// The index register, for loops.
    index: Option<VReg>,
    /// What was evaluated here.
    cache: HashMap<Key, VReg>,
    /// Pointers that move with this loop.
    running: Vec<Running>,
    /// What was last loaded from each buffer, and where.
    loaded: HashMap<BufferId, (ir::Address, VReg)>,
}

/// A pointer that starts as `init` and grows by `step_bytes` each round.
struct Running {
    init: VReg,
    step_bytes: i64,
    param: VReg,
}

/// What names a value at a level: an expression with the rounds of the unrolled axes, the registers of the variables and the state
/// of the written buffers that it depends on, or a pointer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    Expr {
        expr: ExprId,
        fixed: Vec<i64>,
        vars: Vec<VReg>,
        epochs: Vec<u32>,
        lane: Option<u8>,
        vector: bool,
    },
    Base(BufferId),
    /// A pointer moved by a register times a scale.
    Moved {
        from: VReg,
        by: VReg,
        scale: i64,
    },
    /// A scalar in this many lanes.
    Splat(VReg, u8),
    /// A constant in all lanes.
    Constant(Type, u64),
    /// Whether an index lies inside.
    Inside {
        index: VReg,
        extent: i64,
        below: bool,
        above: bool,
    },
    Both(VReg, VReg),
}

/// The open vector axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lanes {
    axis: AxisId,
    /// Of the vectors.
    count: u8,
    /// Rounds of the axis: the first so many lanes. What the others hold does not matter, but in accumulators.
    used: u8,
    /// Width of a lane: values of this width, and conditions, are in a vector; others are taken lane by lane.
    bits: usize,
}

/// The registers of a variable, one for each combination of rounds of the axes that were jammed when it was set.
#[derive(Clone, Default)]
struct VarState {
    axes: Vec<AxisId>,
    regs: HashMap<Vec<i64>, (VReg, usize)>,
    /// Whether the registers have a lane for each round of the vector axis.
    varying: bool,
}

/// What the value of an expression depends on.
#[derive(Debug, Default)]
struct Deps {
    axes: Vec<AxisId>,
    vars: Vec<VarId>,
    /// Those that the kernel itself writes.
    buffers: Vec<BufferId>,
    loads: bool,
}

struct Codegen<'a> {
    program: &'a Program,
    layouts: &'a EntityMap<BufferId, Layout>,
    facts: &'a Facts,
    /// With expressions that grow as indices are simplified.
    kernel: loops::Kernel,
    b: Builder,
    levels: Vec<Level>,
    bindings: EntityMap<AxisId, Binding>,
    jam: Vec<AxisId>,
    vector: Option<Lanes>,
    /// The lane that is being evaluated by itself.
    lane: Option<u8>,
    /// The lanes of accumulators that are split by them (see `reduce`).
    partial: Option<u8>,
    /// Unrolled axes of a reduction whose rounds have accumulators of their own.
    apart: Vec<AxisId>,
    vars: EntityMap<VarId, VarState>,
    /// Counts the stores to each buffer that the kernel writes.
    epochs: EntityMap<BufferId, Option<u32>>,
    buffers: Vec<BufferId>,
    deps: HashMap<ExprId, Rc<Deps>>,
    /// Loads are not taken out of the branch at this level.
    load_floor: usize,
    /// Reduction loops that are open.
    reduce_depth: usize,
    /// The loop over rows whose tree is open, where the rows of the next round are to be fetched.
    rows: Option<AxisId>,
    /// Whether the kernel has loads that may lie outside of their buffer.
    pads: bool,
    /// Whether constants hold no infinity and no NaN.
    finite: HashMap<BufferId, bool>,
}

impl Codegen<'_> {
    /// The whole body; returns the extent of what `begin` and `end` count.
    fn top(&mut self, body: &[Stmt]) -> usize {
        let (begin, end) = (Operand::Reg(self.b.param(1)), Operand::Reg(self.b.param(2)));
        if let [Stmt::Loop { axis, body }] = body
            && self.kernel.axes[*axis].kind == AxisKind::Spatial
            && self.kernel.axes[*axis].mode == AxisMode::Serial
        {
            let extent = self.kernel.axes[*axis].extent;
            if extent > 0 {
                let end = match self.limit(*axis) {
                    Some(limit) => Operand::Reg(self.b.binary(Op::Min, self.b.param(2), limit)),
                    None => end,
                };
                self.serial_loop(*axis, body, begin, end);
            }
            return extent;
        }
        self.stmts(body);
        1
    }

    fn stmts(&mut self, stmts: &[Stmt]) {
        let mut left = stmts;
        while let Some(stmt) = left.first() {
            let sums = self.sums_in_parts(left);
            left = &left[sums.len().max(1)..];
            match stmt {
                Stmt::Loop { .. } if !sums.is_empty() => self.sum_in_parts(&sums),
                Stmt::Loop { axis, body } => self.stmt_loop(*axis, body),
                Stmt::Set { var, value } => {
                    let order = self.jam_order(*value);
                    self.each_instance(&order, |codegen| codegen.set(*var, *value));
                }
                Stmt::Store { buffer, index, value, guard } => {
                    let store = |codegen: &mut Self| codegen.store(*buffer, index, *value, *guard);
                    match self.parts(*buffer, *value, *guard) {
                        // What takes long has its elements in time.
                        Some(parts) => {
                            let rows = self.rows.take();
                            self.side_by_side(&parts, store);
                            self.rows = rows;
                        }
                        None => self.each_instance(&self.jam.clone(), store),
                    }
                }
                Stmt::If { cond, then, otherwise } => self.stmt_if(*cond, then, otherwise),
                Stmt::While { cond, body } => self.stmt_while(*cond, body),
            }
        }
    }

    /// Calls `visit` for every combination of rounds of the jammed axes, the first of `axes` changing slowest.
    fn each_instance(&mut self, axes: &[AxisId], mut visit: impl FnMut(&mut Self)) {
        let extents: mcc_support::Shape = axes.iter().map(|&axis| self.kernel.axes[axis].extent).collect();
        extents.for_each_index(|index| {
            for (&axis, &round) in axes.iter().zip(index) {
                self.bindings[axis] = Binding::Fixed(round as i64);
            }
            visit(self);
        });
    }

    /// The jammed axes in the order in which instances of a sum of products need the fewest registers: a factor that is broadcast is
    /// used for all vectors before the next one is; where a multiply-add takes it out of a vector that has several, it is the vectors
    /// that come one after the other. Single elements are kept of the factor that has fewer.
    fn jam_order(&mut self, value: ExprId) -> Vec<AxisId> {
        let mut axes = self.jam.clone();
        if axes.len() < 2 {
            return axes;
        }
        let mut factors = Vec::new();
        for operand in self.kernel.exprs.operands(value) {
            if let Expr::Binary(Binary::Mul, x, y) = *self.kernel.exprs.get(operand) {
                factors.extend([x, y]);
            }
        }
        let broadcast: Vec<ExprId> = factors.iter().copied().filter(|&factor| !self.varying(factor)).collect();
        match (&factors[..], &broadcast[..]) {
            ([_, _], [broadcast]) => {
                let deps = self.deps(*broadcast);
                axes.sort_by_key(|axis| deps.axes.contains(axis) == self.facts.lane_operand);
            }
            (&[x, y], [_, _]) => {
                let [x, y] = [x, y].map(|factor| self.deps(factor));
                let count = |deps: &Deps| -> usize {
                    let rounds = |&axis: &AxisId| if deps.axes.contains(&axis) { self.kernel.axes[axis].extent } else { 1 };
                    axes.iter().map(rounds).product()
                };
                let more = if count(&x) > count(&y) { x } else { y };
                axes.sort_by_key(|axis| !more.axes.contains(axis));
            }
            _ => return axes,
        }
        // One step after the other, so that the vectors of one are needed at once.
        axes.sort_by_key(|axis| !self.apart.contains(axis));
        axes
    }

    fn stmt_loop(&mut self, axis: AxisId, body: &[Stmt]) {
        let loops::Axis { extent, kind, mode, .. } = self.kernel.axes[axis].clone();
        if extent == 0 {
            return;
        }
        self.reduce_depth += usize::from(kind == AxisKind::Reduce);
        let serial = mode == AxisMode::Serial && kind == AxisKind::Reduce;
        let mode = if serial && self.tells_at_border(axis, body) { AxisMode::Unroll } else { mode };
        match mode {
            AxisMode::Serial if extent == 1 => {
                self.bindings[axis] = Binding::Fixed(0);
                self.stmts(body);
            }
            AxisMode::Serial => {
                let end = self.limit(axis).map_or(Operand::Const(extent as i64), Operand::Reg);
                self.serial_loop(axis, body, Operand::Const(0), end);
            }
            AxisMode::Unroll | AxisMode::Apart if kind == AxisKind::Spatial || self.apart.contains(&axis) => {
                self.jam.push(axis);
                self.stmts(body);
                self.jam.pop();
            }
            AxisMode::Unroll if self.slide(axis, body) => {}
            AxisMode::Unroll | AxisMode::Apart => {
                for round in 0..extent {
                    self.bindings[axis] = Binding::Fixed(round as i64);
                    self.stmts(body);
                }
            }
            AxisMode::Vector => self.vector_loop(axis, extent, body),
        }
        self.reduce_depth -= usize::from(kind == AxisKind::Reduce);
        self.leave(axis, body);
    }

    /// The rounds of an axis that may not all be needed.
    fn limit(&mut self, axis: AxisId) -> Option<VReg> {
        let loops::Axis { extent, limit, .. } = self.kernel.axes[axis].clone();
        let limit = limit?;
        let base = self.base(self.program.inputs[limit.input].1);
        let at = |codegen: &mut Self, op: Op, args: &[VReg]| codegen.b.inst_at(0, Type::I64, op, args);
        let number = |codegen: &mut Self, value: i64| at(codegen, Op::Const(value as u64), &[]);
        let told = at(self, Op::Load { address: ir::Address::new(base, 0), align: 8 }, &[]);
        let mul = number(self, limit.mul);
        let product = at(self, Op::Mul, &[told, mul]);
        // Rounded up.
        let add = number(self, limit.add + limit.div - 1);
        let sum = at(self, Op::Add, &[product, add]);
        let zero = number(self, 0);
        let sum = at(self, Op::Max, &[sum, zero]);
        let div = number(self, limit.div);
        let rounds = at(self, Op::Div, &[sum, div]);
        let all = number(self, extent as i64);
        Some(at(self, Op::Min, &[rounds, all]))
    }

    fn vector_loop(&mut self, axis: AxisId, extent: usize, body: &[Stmt]) {
        assert!(self.vector.is_none(), "{}: one vector axis inside another", self.kernel.name);
        let bits = lane_bits(self.program, &self.kernel, body);
        let count = self.partial.or_else(|| self.facts.lanes_for(lane_of_bits(bits), extent)).expect("a lane count");
        self.vector = Some(Lanes { axis, count, used: extent as u8, bits });
        self.bindings[axis] = Binding::Lane;
        if self.partial.is_none() {
            for var in vars_set(body) {
                self.vars[var].varying = true;
            }
        }
        self.stmts(body);
        self.vector = None;
    }

    fn serial_loop(&mut self, axis: AxisId, body: &[Stmt], begin: Operand, end: Operand) {
        let index = self.b.fresh(Type::I64);
        // Rounds of a spatial axis hand nothing on.
        let spatial = self.kernel.axes[axis].kind == AxisKind::Spatial;
        let carried = if spatial { Vec::new() } else { self.carried_vars(body) };
        let params = self.enter(&carried, Some(index));
        self.bindings[axis] = Binding::Level(self.levels.len() - 1);
        let rows = self.rows;
        if spatial && self.is_tree(body) {
            self.rows = Some(axis);
        }
        self.stmts(body);
        self.rows = rows;
        let level = self.levels.pop().expect("the loop's level");
        let mut nexts = self.registers(&carried);
        let mut inits = params.inits;
        let mut regs = params.params;
        for running in level.running {
            nexts.push(self.b.lea(ir::Address::new(running.param, running.step_bytes)));
            inits.push(match begin {
                Operand::Const(0) => running.init,
                Operand::Const(_) => bug!("a loop that begins at another constant than 0"),
                Operand::Reg(begin) => {
                    let address = ir::Address { base: running.init, terms: vec![(begin, running.step_bytes)], displacement: 0 };
                    self.b.inst_at(self.levels.len() - 1, Type::Ptr, Op::Lea(address), &[])
                }
            });
            regs.push(running.param);
        }
        let block = self.b.close();
        let carried_nodes = self.carry(&inits, &regs, &nexts);
        let results: Vec<VReg> = carried_nodes.iter().map(|carried| carried.result).collect();
        self.b.push(Node::Loop(Loop { index, begin, end, step: 1, carried: carried_nodes, body: block }));
        self.set_registers(&carried, &results);
        self.forget(body, &carried);
        self.leave(axis, body);
    }

    /// Whether statements, of all rounds of unrolled loops, sum up elements and then go through elements again.
    fn is_tree(&self, body: &[Stmt]) -> bool {
        match body {
            [Stmt::Loop { axis, body }] => self.kernel.axes[*axis].mode == AxisMode::Unroll && self.is_tree(body),
            _ => {
                let kinds = body.iter().filter_map(|stmt| match stmt {
                    Stmt::Loop { axis, .. } => Some(self.kernel.axes[*axis].kind),
                    _ => None,
                });
                kinds.skip_while(|&kind| kind != AxisKind::Reduce).any(|kind| kind == AxisKind::Spatial)
            }
        }
    }

    /// Drops the registers of what a region set, but for these: they are not visible behind it.
    fn forget(&mut self, body: &[Stmt], kept: &[(VarId, Vec<i64>)]) {
        for var in vars_set(body) {
            self.vars[var].regs.retain(|rounds, _| kept.iter().any(|(other, kept)| *other == var && kept == rounds));
        }
    }

    /// What a spatial loop sets is its own.
    fn leave(&mut self, axis: AxisId, body: &[Stmt]) {
        self.bindings[axis] = Binding::Unbound;
        if self.kernel.axes[axis].kind == AxisKind::Spatial {
            for var in vars_set(body) {
                let varying = self.vars[var].varying && self.vector.is_some();
                self.vars[var] = VarState { varying, ..VarState::default() };
            }
        }
    }

    fn carry(&mut self, inits: &[VReg], params: &[VReg], nexts: &[VReg]) -> Vec<ir::Carried> {
        (0..inits.len())
            .map(|i| {
                let result = self.b.fresh(self.b.ty(inits[i]));
                ir::Carried { param: params[i], init: inits[i], next: nexts[i], result }
            })
            .collect()
    }

    /// The variables that a region sets and that exist before it, with the rounds for which they do.
    fn carried_vars(&self, body: &[Stmt]) -> Vec<(VarId, Vec<i64>)> {
        let mut carried = Vec::new();
        for var in vars_set(body) {
            let mut rounds: Vec<Vec<i64>> = self.vars[var].regs.keys().cloned().collect();
            rounds.sort_unstable();
            carried.extend(rounds.into_iter().map(|rounds| (var, rounds)));
        }
        carried
    }

    fn registers(&self, vars: &[(VarId, Vec<i64>)]) -> Vec<VReg> {
        vars.iter().map(|(var, rounds)| self.vars[*var].regs[rounds].0).collect()
    }

    /// Registers of variables after a region, defined in the block that is open now.
    fn set_registers(&mut self, vars: &[(VarId, Vec<i64>)], regs: &[VReg]) {
        let level = self.levels.len() - 1;
        for ((var, rounds), &reg) in vars.iter().zip(regs) {
            self.vars[*var].regs.insert(rounds.clone(), (reg, level));
        }
    }

    /// Opens a region in which the variables have fresh registers.
    fn enter(&mut self, carried: &[(VarId, Vec<i64>)], index: Option<VReg>) -> Entered {
        let inits = self.registers(carried);
        let params: Vec<VReg> = inits.iter().map(|&init| self.b.fresh(self.b.ty(init))).collect();
        self.b.open();
        self.levels.push(Level { index, ..Level::default() });
        self.set_registers(carried, &params);
        Entered { inits, params }
    }

    fn set(&mut self, var: VarId, value: ExprId) {
        let varying = self.vars[var].varying;
        let mut reg = match self.unchanged(var, value).or_else(|| self.contracted(var, value)) {
            Some(reg) => reg,
            None if varying => self.vector_value(value),
            None => self.value(value),
        };
        if self.partial.is_some()
            && varying
            && let Some(Lanes { count, used, .. }) = self.vector.filter(|lanes| lanes.used < lanes.count)
        {
            reg = self.spliced(reg, self.var(var).0, used, count);
        }
        let rounds: Vec<i64> = self.jam.iter().map(|&axis| self.round(axis)).collect();
        let level = self.levels.len() - 1;
        let state = &mut self.vars[var];
        if state.axes != self.jam {
            state.axes.clone_from(&self.jam);
            state.regs.clear();
        }
        state.regs.insert(rounds, (reg, level));
    }

    /// The first lanes of a value, and the others of another.
    fn spliced(&mut self, value: VReg, rest: VReg, used: u8, count: u8) -> VReg {
        let ty = self.b.ty(value);
        if let Type::Data { lane, .. } = ty
            && self.facts.supports(OpKind::First, lane, count)
        {
            return self.b.inst(ty, Op::Splice(used), &[value, rest]);
        }
        let lanes: Vec<VReg> = (0..count).map(|lane| self.b.extract(if lane < used { value } else { rest }, lane)).collect();
        self.b.inst(ty, Op::Pack, &lanes)
    }

    fn round(&self, axis: AxisId) -> i64 {
        match self.bindings[axis] {
            Binding::Fixed(round) => round,
            other => bug!("{}: axis {} is {other:?}", self.kernel.name, self.kernel.axes[axis].name),
        }
    }

    fn store(&mut self, buffer: BufferId, index: &[ExprId], value: ExprId, guard: Option<ExprId>) {
        match (guard, self.vector) {
            (Some(guard), _) if !self.varying(guard) => {
                let cond = self.value(guard);
                self.branch(cond, |codegen| codegen.store_unguarded(buffer, index, value));
            }
            (Some(guard), Some(Lanes { used, .. })) => {
                for lane in 0..used {
                    self.in_lane(lane, |codegen| {
                        let cond = codegen.value(guard);
                        codegen.branch(cond, |codegen| codegen.store_scalar(buffer, index, value));
                    });
                }
            }
            _ => self.store_unguarded(buffer, index, value),
        }
        self.epochs[buffer] = self.epochs[buffer].map(|epoch| epoch + 1);
    }

    fn store_unguarded(&mut self, buffer: BufferId, index: &[ExprId], value: ExprId) {
        let Some(Lanes { count, used, .. }) = self.vector.filter(|_| self.lane.is_none()) else {
            return self.store_scalar(buffer, index, value);
        };
        let dtype = self.program.buffers[buffer].ty.dtype;
        let place = self.place(buffer, index);
        if dtype != DType::Bool && self.is_whole(dtype) && self.contiguous(&place) {
            let value = self.vector_value(value);
            let (address, align) = self.address(&place);
            match used < count {
                true => self.b.store_first(value, used, address, align),
                false => self.b.store(value, address, align),
            }
        } else {
            for lane in 0..used {
                self.in_lane(lane, |codegen| codegen.store_scalar(buffer, index, value));
            }
        }
    }

    fn store_scalar(&mut self, buffer: BufferId, index: &[ExprId], value: ExprId) {
        let dtype = self.program.buffers[buffer].ty.dtype;
        let mut value = self.value(value);
        if dtype == DType::Bool {
            value = self.b.inst(Type::scalar(ir::Lane::I8), Op::MaskToInt, &[value]);
        }
        let place = self.place(buffer, index);
        if dtype.is_packed() {
            return self.store_packed(&place, dtype, value);
        }
        let (address, align) = self.address(&place);
        self.b.store(value, address, align);
    }

    /// Does `body` where `cond` holds. It sets no variable.
    fn branch(&mut self, cond: VReg, body: impl FnOnce(&mut Self)) {
        let then = self.region(|codegen| body(codegen));
        self.b.push(Node::If(If { cond, then, otherwise: Vec::new(), results: Vec::new() }));
    }

    /// A block of its own, out of which no load is taken.
    fn region(&mut self, body: impl FnOnce(&mut Self)) -> ir::Block {
        let floor = std::mem::replace(&mut self.load_floor, self.levels.len());
        self.b.open();
        self.levels.push(Level::default());
        body(self);
        self.levels.pop();
        self.load_floor = floor;
        self.b.close()
    }

    fn stmt_if(&mut self, cond: ExprId, then: &[Stmt], otherwise: &[Stmt]) {
        assert!(self.jam.is_empty() && self.vector.is_none(), "{}: a branch in a tile", self.kernel.name);
        let cond = self.value(cond);
        let both: Vec<Stmt> = then.iter().chain(otherwise).cloned().collect();
        let vars = self.carried_vars(&both);
        let before = self.registers(&vars);
        let mut values = Vec::new();
        let mut blocks = Vec::new();
        for stmts in [then, otherwise] {
            self.set_registers(&vars, &before);
            blocks.push(self.region(|codegen| {
                codegen.stmts(stmts);
                values.push(codegen.registers(&vars));
            }));
        }
        let results: Vec<VReg> = before.iter().map(|&reg| self.b.fresh(self.b.ty(reg))).collect();
        let merged = (0..vars.len()).map(|i| (results[i], values[0][i], values[1][i])).collect();
        let otherwise = blocks.pop().expect("two blocks");
        let then = blocks.pop().expect("two blocks");
        self.b.push(Node::If(If { cond, then, otherwise, results: merged }));
        self.set_registers(&vars, &results);
        self.forget(&both, &vars);
    }

    fn stmt_while(&mut self, cond: ExprId, body: &[Stmt]) {
        assert!(self.jam.is_empty() && self.vector.is_none(), "{}: a while loop in a tile", self.kernel.name);
        let vars = self.carried_vars(body);
        let floor = std::mem::replace(&mut self.load_floor, self.levels.len());
        let entered = self.enter(&vars, None);
        let cond = self.value(cond);
        self.levels.pop();
        let test = self.b.close();
        self.b.open();
        self.levels.push(Level::default());
        self.set_registers(&vars, &entered.params);
        self.stmts(body);
        let nexts = self.registers(&vars);
        self.levels.pop();
        let block = self.b.close();
        self.load_floor = floor;
        let carried = self.carry(&entered.inits, &entered.params, &nexts);
        let results: Vec<VReg> = carried.iter().map(|carried| carried.result).collect();
        self.b.push(Node::While(While { carried, test, cond, body: block }));
        self.set_registers(&vars, &results);
        self.forget(body, &vars);
    }
}

/// Width of the lanes in which statements run: that of the widest variable that they set, or of what they store, from 32 bits on.
pub fn lane_bits(program: &Program, kernel: &loops::Kernel, body: &[Stmt]) -> usize {
    let (mut set, mut stored) = (0, 0);
    for stmt in body {
        stmt.walk(&mut |stmt| match stmt {
            Stmt::Set { var, .. } => set = set.max(kernel.vars[*var].size_bits()),
            Stmt::Store { buffer, .. } => stored = stored.max(program.buffers[*buffer].ty.dtype.size_bits()),
            _ => {}
        });
    }
    (if set > 0 { set } else { stored }).max(32)
}

/// The integer lane of a width.
pub fn lane_of_bits(bits: usize) -> ir::Lane {
    if bits == 64 { ir::Lane::I64 } else { ir::Lane::I32 }
}

/// That vectors of the target have the lanes in which axes of a scheduled kernel run.
///
/// # Errors
///
/// Decisions given by hand may ask for others.
pub fn check_lanes(program: &Program, kernel: &loops::Kernel, facts: &Facts) -> mcc_support::Result<()> {
    let mut result = Ok(());
    for stmt in &kernel.body {
        stmt.walk(&mut |stmt| {
            let Stmt::Loop { axis, body } = stmt else { return };
            let loops::Axis { name, extent, mode, .. } = &kernel.axes[*axis];
            let lane = lane_of_bits(lane_bits(program, kernel, body));
            if *mode == AxisMode::Vector && facts.lanes_for(lane, *extent).is_none() {
                result = Err(mcc_support::Error::new(format!(
                    "axis {name} of kernel {} has {extent} rounds: vectors have no such number of lanes",
                    kernel.name
                )));
            }
        });
    }
    result
}

struct Entered {
    inits: Vec<VReg>,
    params: Vec<VReg>,
}

/// The variables that statements set, in order of their ids.
fn vars_set(stmts: &[Stmt]) -> Vec<VarId> {
    let mut vars = Vec::new();
    for stmt in stmts {
        stmt.walk(&mut |stmt| {
            if let Stmt::Set { var, .. } = stmt {
                vars.push(*var);
            }
        });
    }
    vars.sort_unstable();
    vars.dedup();
    vars
}
