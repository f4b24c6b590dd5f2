//! Values of expressions: where each is evaluated, and in how many lanes.

use std::rc::Rc;

use mcc_kernel::{Cond, Lane, Op, OpKind, Type, VReg};
use mcc_support::{DType, bug};

use super::reduce::identity_bits;
use super::{Binding, Codegen, Deps, Key, Lanes};
use crate::loops::{AxisId, Binary, BufferId, Expr, ExprId, Unary, VarId};

impl Codegen<'_> {
    pub(super) fn deps(&mut self, expr: ExprId) -> Rc<Deps> {
        if let Some(deps) = self.deps.get(&expr) {
            return Rc::clone(deps);
        }
        let mut deps = Deps::default();
        match self.kernel.exprs.get(expr) {
            Expr::Axis(axis) => deps.axes.push(*axis),
            Expr::Var(var) => deps.vars.push(*var),
            Expr::Load { buffer, .. } => {
                deps.loads = true;
                if self.epochs[*buffer].is_some() {
                    deps.buffers.push(*buffer);
                }
            }
            _ => {}
        }
        for operand in self.kernel.exprs.operands(expr) {
            let operand = self.deps(operand);
            deps.axes.extend_from_slice(&operand.axes);
            deps.vars.extend_from_slice(&operand.vars);
            deps.buffers.extend_from_slice(&operand.buffers);
            deps.loads |= operand.loads;
        }
        deps.axes.sort_unstable();
        deps.axes.dedup();
        deps.vars.sort_unstable();
        deps.vars.dedup();
        deps.buffers.sort_unstable();
        deps.buffers.dedup();
        let deps = Rc::new(deps);
        self.deps.insert(expr, Rc::clone(&deps));
        deps
    }

    /// Whether the value differs between the lanes of the open vector axis.
    pub(super) fn varying(&mut self, expr: ExprId) -> bool {
        let Some(Lanes { axis, .. }) = self.vector else { return false };
        let deps = self.deps(expr);
        deps.axes.contains(&axis) || deps.vars.iter().any(|&var| self.vars[var].varying)
    }

    /// The outermost level at which the value is known.
    pub(super) fn level_of(&self, deps: &Deps) -> usize {
        let mut level = if deps.loads { self.load_floor } else { 0 };
        if !deps.buffers.is_empty() {
            level = self.levels.len() - 1;
        }
        for &axis in &deps.axes {
            match self.bindings[axis] {
                Binding::Level(open) => level = level.max(open),
                Binding::Fixed(_) | Binding::Lane => {}
                Binding::Unbound => {
                    bug!("{}: axis {} is used outside of its loop", self.kernel.name, self.kernel.axes[axis].name)
                }
            }
        }
        for &var in &deps.vars {
            level = level.max(self.var(var).1);
        }
        level
    }

    /// The register of a variable for the present rounds, and the level that defines it.
    pub(super) fn var(&self, var: VarId) -> (VReg, usize) {
        let state = &self.vars[var];
        let rounds: Vec<i64> = state.axes.iter().map(|&axis| self.round(axis)).collect();
        match state.regs.get(&rounds) {
            Some(&found) => found,
            None => bug!("{}: variable {var} is read before it is set", self.kernel.name),
        }
    }

    /// `lane`: the one that the value is of, where it differs by lane and is not of all of them.
    fn key(&self, expr: ExprId, deps: &Deps, lane: Option<u8>, vector: bool) -> Key {
        let fixed = |axis: &AxisId| match self.bindings[*axis] {
            Binding::Fixed(round) => Some(round),
            _ => None,
        };
        Key::Expr {
            expr,
            fixed: deps.axes.iter().filter_map(fixed).collect(),
            vars: deps.vars.iter().map(|&var| self.var(var).0).collect(),
            epochs: deps.buffers.iter().map(|&buffer: &BufferId| self.epochs[buffer].unwrap_or(0)).collect(),
            lane,
            vector,
        }
    }

    pub(super) fn cached(&mut self, level: usize, key: Key, make: impl FnOnce(&mut Self) -> VReg) -> VReg {
        if let Some(&reg) = self.levels[level].cache.get(&key) {
            return reg;
        }
        let reg = make(self);
        self.levels[level].cache.insert(key, reg);
        reg
    }

    pub(super) fn in_lane<R>(&mut self, lane: u8, body: impl FnOnce(&mut Self) -> R) -> R {
        let Lanes { axis, .. } = self.open_lanes();
        let outer = (self.lane.replace(lane), self.bindings[axis]);
        self.bindings[axis] = Binding::Fixed(i64::from(lane));
        let result = body(self);
        (self.lane, self.bindings[axis]) = outer;
        result
    }

    /// Out of a lane: back to all of them.
    fn in_all_lanes<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        let Lanes { axis, .. } = self.open_lanes();
        let outer = (self.lane.take(), self.bindings[axis]);
        self.bindings[axis] = Binding::Lane;
        let result = body(self);
        (self.lane, self.bindings[axis]) = outer;
        result
    }

    pub(super) fn open_lanes(&self) -> Lanes {
        self.vector.expect("a vector axis is open")
    }

    /// Whether values of this dtype fill a vector register lane by lane with the open vector axis.
    pub(super) fn is_whole(&self, dtype: DType) -> bool {
        self.vector.is_some_and(|lanes| dtype == DType::Bool || dtype.size_bits() == lanes.bits)
    }

    /// The value with a lane for each round of the vector axis.
    pub(super) fn vector_value(&mut self, expr: ExprId) -> VReg {
        let lanes = self.open_lanes().count;
        if !self.varying(expr) {
            if let Expr::Const(dtype, bits) = *self.kernel.exprs.get(expr)
                && dtype != DType::Bool
            {
                let ty = Type::vector(lane_of(dtype), lanes);
                return self.cached(0, Key::Constant(ty, bits), |codegen| codegen.b.inst_at(0, ty, Op::Const(bits), &[]));
            }
            let scalar = self.value(expr);
            let level = self.level_of(&self.deps[&expr]);
            return self.splat(scalar, lanes, level);
        }
        self.value(expr)
    }

    pub(super) fn splat(&mut self, scalar: VReg, lanes: u8, level: usize) -> VReg {
        self.cached(level, Key::Splat(scalar, lanes), |codegen| {
            let ty = codegen.b.ty(scalar);
            match ty {
                Type::Mask { .. } => {
                    let lane = codegen.mask_lane();
                    let int = codegen.b.inst_at(level, Type::scalar(lane), Op::MaskToInt, &[scalar]);
                    let vector = codegen.b.inst_at(level, Type::vector(lane, lanes), Op::Splat, &[int]);
                    codegen.b.inst_at(level, Type::vector(lane, lanes).mask(), Op::IntToMask, &[vector])
                }
                _ => codegen.b.inst_at(level, ty.with_lanes(lanes), Op::Splat, &[scalar]),
            }
        })
    }

    /// The integer as wide as the open lanes.
    pub(super) fn mask_lane(&self) -> Lane {
        super::lane_of_bits(self.open_lanes().bits)
    }

    /// The value: of all lanes where it varies and no lane is chosen, else a scalar.
    pub(super) fn value(&mut self, expr: ExprId) -> VReg {
        let varying = self.varying(expr);
        let vector = varying && self.lane.is_none();
        let deps = self.deps(expr);
        let level = self.level_of(&deps);
        let key = self.key(expr, &deps, self.lane.filter(|_| varying), vector);
        if let Some(&reg) = self.levels[level].cache.get(&key) {
            return reg;
        }
        let reg = if vector {
            if self.has_lanes(expr) { self.compute(expr, level, true) } else { self.packed(expr, level) }
        } else if varying && !self.is_taken_by_lane(expr) && self.has_lanes(expr) {
            let lane = self.lane.expect("a lane is chosen");
            let whole = self.in_all_lanes(|codegen| codegen.value(expr));
            let ty = self.b.ty(whole).with_lanes(1);
            self.b.inst_at(level, ty, Op::Extract(lane), &[whole])
        } else {
            self.compute(expr, level, false)
        };
        self.levels[level].cache.insert(key, reg);
        reg
    }

    /// Whether one lane comes more cheaply by itself than out of a vector.
    fn is_taken_by_lane(&self, expr: ExprId) -> bool {
        matches!(self.kernel.exprs.get(expr), Expr::Axis(_) | Expr::Const(..) | Expr::Load { .. })
    }

    /// Whether the operation of a varying expression exists on all lanes at once.
    pub(super) fn has_lanes(&mut self, expr: ExprId) -> bool {
        let lanes = self.open_lanes().count;
        let node = self.kernel.exprs.get(expr).clone();
        let dtype = self.kernel.exprs.dtype(expr);
        let operands = self.kernel.exprs.operands(expr);
        if let Expr::Load { buffer, index, otherwise, .. } = &node {
            return self.is_whole(dtype) && dtype != DType::Bool && self.loads_lanes(*buffer, index, *otherwise);
        }
        if let Expr::Var(_) = node {
            return true;
        }
        if let Expr::Binary(Binary::Shl | Binary::Shr, _, amount) = node
            && self.varying(amount)
        {
            return false;
        }
        if matches!(node, Expr::Axis(_))
            || !self.is_whole(dtype)
            || operands.iter().any(|&operand| !self.is_whole(self.kernel.exprs.dtype(operand)))
        {
            return false;
        }
        let of = operands.first().map_or(dtype, |&operand| self.kernel.exprs.dtype(operand));
        let Some(kind) = op_kind(&node, of) else { return false };
        if of == DType::Bool {
            return true;
        }
        self.facts.supports(kind, lane_of(of), lanes)
            && (dtype == DType::Bool || self.facts.supports(kind, lane_of(dtype), lanes))
    }

    /// Each lane by itself, then all of them in a vector.
    fn packed(&mut self, expr: ExprId, level: usize) -> VReg {
        let Lanes { count: lanes, used, .. } = self.open_lanes();
        let mut scalars: Vec<VReg> = (0..used).map(|lane| self.in_lane(lane, |codegen| codegen.value(expr))).collect();
        scalars.resize(usize::from(lanes), scalars[0]);
        if self.kernel.exprs.dtype(expr) == DType::Bool {
            let lane = self.mask_lane();
            for scalar in &mut scalars {
                *scalar = self.b.inst_at(level, Type::scalar(lane), Op::MaskToInt, &[*scalar]);
            }
            let vector = self.b.inst_at(level, Type::vector(lane, lanes), Op::Pack, &scalars);
            return self.b.inst_at(level, Type::vector(lane, lanes).mask(), Op::IntToMask, &[vector]);
        }
        let ty = self.b.ty(scalars[0]).with_lanes(lanes);
        self.b.inst_at(level, ty, Op::Pack, &scalars)
    }

    fn compute(&mut self, expr: ExprId, level: usize, vector: bool) -> VReg {
        let lanes = if vector { self.open_lanes().count } else { 1 };
        let dtype = self.kernel.exprs.dtype(expr);
        match self.kernel.exprs.get(expr).clone() {
            Expr::Const(DType::Bool, bits) => {
                let int = self.b.inst_at(level, Type::scalar(Lane::I8), Op::Const(bits), &[]);
                self.b.inst_at(level, Type::Mask { bits: 8, lanes: 1 }, Op::IntToMask, &[int])
            }
            Expr::Const(_, bits) => self.b.inst_at(level, Type::scalar(lane_of(dtype)), Op::Const(bits), &[]),
            Expr::Axis(axis) => match self.bindings[axis] {
                Binding::Level(open) => self.levels[open].index.expect("a loop's level"),
                Binding::Fixed(round) => self.b.inst_at(level, Type::I64, Op::Const(round as u64), &[]),
                other => bug!("axis {axis} is {other:?}"),
            },
            Expr::Var(var) => self.var(var).0,
            Expr::Param(..) => bug!("a parameter in a kernel"),
            Expr::Load { buffer, index, otherwise, .. } => self.load(buffer, &index, otherwise, level, vector),
            Expr::Unary(op, a) => {
                let a = self.operand(a, vector);
                let (ty, op) = match (op, self.b.ty(a)) {
                    (Unary::Not, ty @ Type::Mask { .. }) => (ty, Op::MaskNot),
                    (op, ty) => (ty, unary_op(op)),
                };
                self.b.inst_at(level, ty, op, &[a])
            }
            Expr::Binary(op, a, b) => self.binary(op, a, b, level, vector),
            Expr::Fma(a, b, c) => {
                let operands = [a, b, c].map(|operand| self.operand(operand, vector));
                self.b.inst_at(level, self.b.ty(operands[0]), Op::Fma, &operands)
            }
            Expr::Select(cond, a, b) => {
                let (cond, a, b) = (self.operand(cond, vector), self.operand(a, vector), self.operand(b, vector));
                if dtype == DType::Bool {
                    let chosen = self.masks(level, Op::MaskAnd, cond, a);
                    let not = self.b.inst_at(level, self.b.ty(cond), Op::MaskNot, &[cond]);
                    let other = self.masks(level, Op::MaskAnd, not, b);
                    return self.masks(level, Op::MaskOr, chosen, other);
                }
                self.b.inst_at(level, self.b.ty(a), Op::Select, &[cond, a, b])
            }
            Expr::Cast(to, a) => self.cast(to, a, level, vector),
            Expr::Bitcast(to, a) => {
                let a = self.operand(a, vector);
                let (from, ty) = (self.b.ty(a), Type::vector(lane_of(to), lanes));
                match (from, to) {
                    (Type::Mask { .. }, DType::Bool) => a,
                    (Type::Mask { .. }, _) => self.b.inst_at(level, ty, Op::MaskToInt, &[a]),
                    (_, DType::Bool) => self.b.inst_at(level, from.mask(), Op::IntToMask, &[a]),
                    _ if from == ty => a,
                    _ => self.b.inst_at(level, ty, Op::Bitcast, &[a]),
                }
            }
        }
    }

    /// An operand of an operation on all lanes, or on one.
    pub(super) fn operand(&mut self, expr: ExprId, vector: bool) -> VReg {
        if vector { self.vector_value(expr) } else { self.value(expr) }
    }

    /// A mask operation, whose operands are brought to one width.
    pub(super) fn masks(&mut self, level: usize, op: Op, a: VReg, b: VReg) -> VReg {
        let ty = self.b.ty(a);
        let b = if self.b.ty(b) == ty { b } else { self.b.inst_at(level, ty, Op::MaskResize, &[b]) };
        self.b.inst_at(level, ty, op, &[a, b])
    }

    /// The bits of a constant, and of a load that is outside of its buffer in all rounds.
    fn known(&self, expr: ExprId) -> Option<u64> {
        match *self.kernel.exprs.get(expr) {
            Expr::Const(_, bits) => Some(bits),
            Expr::Load { buffer, ref index, otherwise: Some(otherwise), .. } if self.is_outside(buffer, index) => {
                self.known(otherwise)
            }
            _ => None,
        }
    }

    fn binary(&mut self, op: Binary, a: ExprId, b: ExprId, level: usize, vector: bool) -> VReg {
        let dtype = self.kernel.exprs.dtype(a);
        match op {
            Binary::DivFloor | Binary::Mod => return self.floored(op, a, b, level),
            Binary::Shl | Binary::Shr => return self.shift(op, a, b, level, vector),
            // The second operand is the result where neither is beyond the other.
            Binary::Min | Binary::Max if self.known(a).is_some_and(|bits| identity_bits(op, dtype) == Some(bits)) => {
                return self.operand(b, vector);
            }
            _ => {}
        }
        let (a, b) = (self.operand(a, vector), self.operand(b, vector));
        if dtype == DType::Bool {
            return self.binary_masks(op, a, b, level);
        }
        let ty = self.b.ty(a);
        let signed = dtype.is_signed();
        let compare = |cond| if signed { Op::Cmp(cond) } else { Op::CmpU(cond) };
        let (result, op) = match op {
            Binary::Add => (ty, Op::Add),
            Binary::Sub => (ty, Op::Sub),
            Binary::Mul => (ty, Op::Mul),
            Binary::Div => (ty, if signed { Op::Div } else { Op::DivU }),
            Binary::Rem => (ty, if signed { Op::Rem } else { Op::RemU }),
            Binary::Min => (ty, if signed { Op::Min } else { Op::MinU }),
            Binary::Max => (ty, if signed { Op::Max } else { Op::MaxU }),
            Binary::And => (ty, Op::And),
            Binary::Or => (ty, Op::Or),
            Binary::Xor => (ty, Op::Xor),
            Binary::Eq => (ty.mask(), Op::Cmp(Cond::Eq)),
            Binary::Ne => (ty.mask(), Op::Cmp(Cond::Ne)),
            Binary::Lt => (ty.mask(), compare(Cond::Lt)),
            Binary::Le => (ty.mask(), compare(Cond::Le)),
            Binary::Shl | Binary::Shr | Binary::DivFloor | Binary::Mod => unreachable!("done above"),
        };
        self.b.inst_at(level, result, op, &[a, b])
    }

    /// Shifts by an amount that is the same in all lanes, which the kernel IR takes as an i32 scalar.
    fn shift(&mut self, op: Binary, a: ExprId, amount: ExprId, level: usize, vector: bool) -> VReg {
        let signed = self.kernel.exprs.dtype(a).is_signed();
        let (a, amount) = (self.operand(a, vector), self.value(amount));
        let amount = self.resize_int(amount, Lane::I32, false, level);
        let op = match op {
            Binary::Shl => Op::Shl,
            _ if signed => Op::ShrS,
            _ => Op::ShrU,
        };
        self.b.inst_at(level, self.b.ty(a), op, &[a, amount])
    }

    fn binary_masks(&mut self, op: Binary, a: VReg, b: VReg, level: usize) -> VReg {
        let not = |codegen: &mut Self, mask| codegen.b.inst_at(level, codegen.b.ty(mask), Op::MaskNot, &[mask]);
        match op {
            Binary::And | Binary::Mul | Binary::Min => self.masks(level, Op::MaskAnd, a, b),
            Binary::Or | Binary::Max => self.masks(level, Op::MaskOr, a, b),
            Binary::Xor | Binary::Ne => self.masks(level, Op::MaskXor, a, b),
            Binary::Eq => {
                let differ = self.masks(level, Op::MaskXor, a, b);
                not(self, differ)
            }
            Binary::Lt => {
                let not_a = not(self, a);
                self.masks(level, Op::MaskAnd, not_a, b)
            }
            Binary::Le => {
                let not_a = not(self, a);
                self.masks(level, Op::MaskOr, not_a, b)
            }
            other => bug!("{}: {other:?} of booleans", self.kernel.name),
        }
    }

    /// Division of an integer by a positive constant, rounded down, or its remainder.
    fn floored(&mut self, op: Binary, a: ExprId, b: ExprId, level: usize) -> VReg {
        let dtype = self.kernel.exprs.dtype(a);
        let signed = dtype.is_signed();
        let (a, b) = (self.value(a), self.value(b));
        let ty = self.b.ty(a);
        let zero = self.b.inst_at(level, ty, Op::Const(0), &[]);
        let (div, rem) = if signed { (Op::Div, Op::Rem) } else { (Op::DivU, Op::RemU) };
        let remainder = self.b.inst_at(level, ty, rem, &[a, b]);
        let negative =
            self.b.inst_at(level, ty.mask(), if signed { Op::Cmp(Cond::Lt) } else { Op::CmpU(Cond::Lt) }, &[remainder, zero]);
        if op == Binary::Mod {
            let raised = self.b.inst_at(level, ty, Op::Add, &[remainder, b]);
            return self.b.inst_at(level, ty, Op::Select, &[negative, raised, remainder]);
        }
        let quotient = self.b.inst_at(level, ty, div, &[a, b]);
        let one = self.b.inst_at(level, ty, Op::Const(1), &[]);
        let lowered = self.b.inst_at(level, ty, Op::Sub, &[quotient, one]);
        self.b.inst_at(level, ty, Op::Select, &[negative, lowered, quotient])
    }
}

/// The kernel IR's lane for a dtype; elements of packed types are widened when they are loaded.
pub(super) fn lane_of(dtype: DType) -> Lane {
    match dtype {
        DType::Bool | DType::I8 | DType::U8 => Lane::I8,
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => Lane::I16,
        DType::I32 | DType::U32 => Lane::I32,
        DType::I64 | DType::U64 => Lane::I64,
        DType::F32 => Lane::F32,
        DType::F64 => Lane::F64,
        // The small floats, by their bits, and the packed types.
        _ => Lane::I8,
    }
}

fn unary_op(op: Unary) -> Op {
    match op {
        Unary::Neg => Op::Neg,
        Unary::Abs => Op::Abs,
        Unary::Not => Op::Not,
        Unary::Sqrt => Op::Sqrt,
        Unary::Floor => Op::Floor,
        Unary::Ceil => Op::Ceil,
        Unary::Trunc => Op::Trunc,
        Unary::Nearest => Op::Nearest,
    }
}

/// What facts call an operation on operands of dtype `of`; `None` where it never runs on several lanes.
fn op_kind(expr: &Expr, of: DType) -> Option<OpKind> {
    Some(match expr {
        Expr::Const(..) | Expr::Select(..) | Expr::Bitcast(..) | Expr::Load { .. } | Expr::Var(_) => OpKind::Move,
        Expr::Axis(_) | Expr::Param(..) => return None,
        Expr::Unary(op, _) => match op {
            Unary::Neg | Unary::Abs => OpKind::AddSub,
            Unary::Not => OpKind::Bits,
            Unary::Sqrt => OpKind::Sqrt,
            Unary::Floor | Unary::Ceil | Unary::Trunc | Unary::Nearest => OpKind::Round,
        },
        Expr::Binary(op, ..) => match op {
            Binary::Add | Binary::Sub => OpKind::AddSub,
            Binary::Mul => OpKind::Mul,
            Binary::Div if of.is_float() => OpKind::Div,
            Binary::Min | Binary::Max => OpKind::MinMax,
            Binary::And | Binary::Or | Binary::Xor => OpKind::Bits,
            Binary::Shl | Binary::Shr => OpKind::Shift,
            Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le => OpKind::Move,
            Binary::Div | Binary::Rem | Binary::DivFloor | Binary::Mod => return None,
        },
        Expr::Fma(..) => OpKind::Fma,
        Expr::Cast(to, _) => match (of, to) {
            (DType::I32, DType::F32) | (DType::F32, DType::I32) | (DType::I64, DType::F64) | (DType::F64, DType::I64) => {
                OpKind::IntFloat
            }
            (DType::Bool, _) => OpKind::Move,
            (_, DType::Bool) => OpKind::Move,
            (from, to) if !from.is_float() && !to.is_float() && from.size_bits() == to.size_bits() => OpKind::Move,
            _ => return None,
        },
    })
}
