//! Accumulators: contraction of `a + x · y`, and reductions whose axis runs in lanes, where each lane accumulates by itself and the
//! lanes are combined at the end.

use std::collections::HashMap;

use mcc_kernel::{Op, VReg};
use mcc_support::{DType, bug};

use super::{Codegen, Lanes, lane_bits, vars_set};
use crate::loops::{AxisId, AxisKind, AxisMode, Binary, Expr, ExprId, Stmt, VarId, sites};

/// An accumulator that a loop in lanes updates.
pub(super) struct Accumulator {
    var: VarId,
    /// The update: an expression of the variable and of one term.
    update: ExprId,
}

/// Accumulators in parts.
pub(super) struct Partials {
    accumulators: Vec<Accumulator>,
    lanes: Lanes,
    /// Unrolled axes that reduce, each of whose rounds has parts of its own.
    apart: Vec<AxisId>,
}

impl Codegen<'_> {
    /// `acc + x · y` as one operation, where the kind of the loop allows sums to be rounded in any way.
    pub(super) fn contracted(&mut self, var: VarId, value: ExprId) -> Option<VReg> {
        let dtype = self.kernel.exprs.dtype(value);
        if self.reduce_depth == 0 || !self.facts.fma || !matches!(dtype, DType::F32 | DType::F64) {
            return None;
        }
        let [acc, x, y] = sites::added_product(&self.kernel.exprs, var, value)?;
        if [x, y].iter().any(|&factor| self.deps(factor).vars.contains(&var)) {
            return None;
        }
        let vector = self.vars[var].varying && self.lane.is_none();
        let (acc, x, y) = (self.operand(acc, vector), self.operand(x, vector), self.operand(y, vector));
        Some(self.b.fma(x, y, acc))
    }

    /// The accumulators of the vector axis that reduces inside this loop, if there is one that does all the updates in the loop, and
    /// its lane count.
    pub(super) fn split_accumulators(&self, axis: AxisId, body: &[Stmt]) -> Option<Partials> {
        fn find<'s>(codegen: &Codegen, axis: AxisId, body: &'s [Stmt], path: &mut Vec<AxisId>) -> Option<&'s [Stmt]> {
            let described = &codegen.kernel.axes[axis];
            path.push(axis);
            if described.kind == AxisKind::Reduce && described.mode == AxisMode::Vector {
                return Some(body);
            }
            let found = body.iter().find_map(|stmt| match stmt {
                Stmt::Loop { axis, body } => find(codegen, *axis, body, path),
                _ => None,
            });
            if found.is_none() {
                path.pop();
            }
            found
        }
        let all = body;
        let mut path = Vec::new();
        let body = find(self, axis, all, &mut path)?;
        let axis = path.pop().expect("the axis in lanes");
        if count_sets(all) != count_sets(body) {
            return None;
        }
        // Several updates of one combine in one way: a loop inside has a rest of its own.
        let update = |var| {
            let mut first = None;
            body.iter().for_each(|stmt| {
                stmt.walk(&mut |stmt| {
                    if let Stmt::Set { var: found, value } = stmt
                        && *found == var
                    {
                        first.get_or_insert(*value);
                    }
                });
            });
            Accumulator { var, update: first.expect("a variable that is set") }
        };
        let count = u8::try_from(self.kernel.axes[axis].extent).expect("a lane count");
        let lanes = Lanes { axis, count, bits: lane_bits(self.program, &self.kernel, body) };
        let accumulators: Vec<Accumulator> = vars_set(body).into_iter().map(update).collect();
        let is_apart = |axis: &AxisId| {
            let found = &self.kernel.axes[*axis];
            found.kind == AxisKind::Reduce && found.mode == AxisMode::Unroll && found.extent > 0
        };
        // Where rounds of the accumulators are those of the jammed axes.
        let plain = accumulators.iter().all(|accumulator| self.vars[accumulator.var].axes == self.jam);
        let apart = path.into_iter().filter(|axis| plain && is_apart(axis)).collect();
        Some(Partials { accumulators, lanes, apart })
    }

    /// Runs loops with accumulators that have a part in each lane, for each round of unrolled loops: these do not wait for each other.
    pub(super) fn with_partials(&mut self, partials: &Partials, run: impl FnOnce(&mut Self)) {
        let &Partials { ref accumulators, lanes, ref apart } = partials;
        let extents: mcc_support::Shape = apart.iter().map(|&axis| self.kernel.axes[axis].extent).collect();
        let mut wholes = Vec::new();
        for accumulator in accumulators {
            let state = &self.vars[accumulator.var];
            let mut rounds: Vec<Vec<i64>> = state.regs.keys().cloned().collect();
            rounds.sort_unstable();
            let identity = self.identity(accumulator);
            let wholes_of: Vec<_> = rounds.into_iter().map(|rounds| (accumulator.var, rounds)).collect();
            let regs = self.registers(&wholes_of);
            let ty = self.b.ty(regs[0]).with_lanes(lanes.count);
            let mut parts_of = Vec::new();
            for (var, rounds) in &wholes_of {
                extents.for_each_index(|index| {
                    parts_of.push((*var, rounds.iter().copied().chain(index.iter().map(|&round| round as i64)).collect()));
                });
            }
            let parts: Vec<VReg> = parts_of.iter().map(|_| self.b.inst(ty, Op::Const(identity), &[])).collect();
            let state = &mut self.vars[accumulator.var];
            state.regs.clear();
            state.axes.extend(apart);
            state.varying = true;
            self.set_registers(&parts_of, &parts);
            wholes.push((wholes_of, regs, parts_of));
        }
        self.partial = true;
        self.apart.clone_from(apart);
        run(self);
        self.partial = false;
        self.apart.clear();
        for (accumulator, (wholes_of, regs, parts_of)) in accumulators.iter().zip(wholes) {
            let parts = self.registers(&parts_of);
            let state = &mut self.vars[accumulator.var];
            state.regs.clear();
            state.axes.truncate(state.axes.len() - apart.len());
            state.varying = false;
            let parts = parts.chunks(parts.len() / regs.len());
            let combined: Vec<VReg> =
                regs.iter().zip(parts).map(|(&whole, parts)| self.combine(accumulator, whole, parts, lanes)).collect();
            self.set_registers(&wholes_of, &combined);
        }
    }

    /// The part of an update that does not depend on the accumulator, from which all such parts are made.
    fn term(&mut self, accumulator: &Accumulator) -> ExprId {
        let mut terms = Vec::new();
        let mut open = vec![accumulator.update];
        while let Some(expr) = open.pop() {
            if self.deps(expr).vars.contains(&accumulator.var) {
                open.extend(self.kernel.exprs.operands(expr));
            } else if !matches!(self.kernel.exprs.get(expr), Expr::Const(..)) && !terms.contains(&expr) {
                terms.push(expr);
            }
        }
        let made_of = |of: ExprId, expr: ExprId| {
            let mut open = vec![expr];
            while let Some(expr) = open.pop() {
                let operands = self.kernel.exprs.operands(expr);
                if expr != of && operands.is_empty() && !matches!(self.kernel.exprs.get(expr), Expr::Const(..)) {
                    return false;
                }
                if expr != of {
                    open.extend(operands);
                }
            }
            true
        };
        match terms.iter().find(|&&term| terms.iter().all(|&other| made_of(term, other))) {
            Some(&term) => term,
            None => bug!("{}: the update of {} combines {} terms", self.kernel.name, accumulator.var, terms.len()),
        }
    }

    /// The bits of what an update leaves as it is.
    fn identity(&mut self, accumulator: &Accumulator) -> u64 {
        let mut open = vec![accumulator.update];
        while let Some(expr) = open.pop() {
            if !self.deps(expr).vars.contains(&accumulator.var) {
                continue;
            }
            if let Expr::Binary(op, ..) = *self.kernel.exprs.get(expr)
                && let Some(bits) = identity_bits(op, self.kernel.exprs.dtype(expr))
            {
                return bits;
            }
            open.extend(self.kernel.exprs.operands(expr));
        }
        bug!("{}: the update of {} has no identity", self.kernel.name, accumulator.var)
    }

    /// The update applied to the parts of all rounds, to half of the lanes with the other half while vectors have so few, and then to what
    /// is left and the whole.
    fn combine(&mut self, accumulator: &Accumulator, whole: VReg, parts: &[VReg], mut lanes: Lanes) -> VReg {
        let term = self.term(accumulator);
        let mut parts = parts.to_vec();
        self.vector = Some(lanes);
        while parts.len() > 1 {
            let pairs = parts.chunks(2);
            parts = pairs.map(|pair| if let [a, b] = *pair { self.updated(accumulator, term, a, b) } else { pair[0] }).collect();
        }
        self.vector = None;
        let mut parts = parts[0];
        let lane = self.b.ty(parts).lane();
        while self.facts.lane_counts(lane).contains(&usize::from(lanes.count / 2)) {
            lanes.count /= 2;
            let ty = self.b.ty(parts).with_lanes(lanes.count);
            let [low, high] = [0, lanes.count].map(|lane| self.b.inst(ty, Op::Extract(lane), &[parts]));
            self.vector = Some(lanes);
            parts = self.updated(accumulator, term, low, high);
            self.vector = None;
        }
        // Neighbours first, so that few wait for each other.
        let mut parts: Vec<VReg> = (0..lanes.count).map(|lane| self.b.extract(parts, lane)).collect();
        while parts.len() > 1 {
            parts = parts.chunks(2).map(|pair| self.updated(accumulator, term, pair[0], pair[1])).collect();
        }
        self.updated(accumulator, term, whole, parts[0])
    }

    /// The update of an accumulator that is `left` by a term that is `right`; of all lanes where a vector axis is open.
    fn updated(&mut self, accumulator: &Accumulator, term: ExprId, left: VReg, right: VReg) -> VReg {
        let dtype = self.kernel.exprs.dtype(accumulator.update);
        let from = self.kernel.exprs.clone();
        let level = self.levels.len() - 1;
        let [left, right] = [left, right].map(|reg| {
            let var = self.kernel.vars.push(dtype);
            let mut state = super::VarState { varying: self.vector.is_some(), ..super::VarState::default() };
            state.regs.insert(Vec::new(), (reg, level));
            self.vars.push(state);
            self.kernel.exprs.var(var, dtype)
        });
        let mut memo = HashMap::from([(term, right)]);
        let update = self.kernel.exprs.copy(&from, accumulator.update, &mut memo, &mut |_, expr| match expr {
            Expr::Var(found) if *found == accumulator.var => Some(left),
            _ => None,
        });
        self.value(update)
    }
}

fn count_sets(stmts: &[Stmt]) -> usize {
    let mut count = 0;
    stmts.iter().for_each(|stmt| stmt.walk(&mut |stmt| count += usize::from(matches!(stmt, Stmt::Set { .. }))));
    count
}

/// The bits of what changes no other operand.
pub(super) fn identity_bits(op: Binary, dtype: DType) -> Option<u64> {
    let float = |f32: f32, f64: f64| match dtype {
        DType::F32 => Some(u64::from(f32.to_bits())),
        DType::F64 => Some(f64.to_bits()),
        _ => None,
    };
    let extreme = |high: bool| {
        let (least, greatest) = dtype.integer_range();
        Some(if high { greatest as u64 } else { least as u64 })
    };
    match op {
        Binary::Add if dtype.is_float() => float(0.0, 0.0),
        Binary::Add => Some(0),
        Binary::Mul if dtype.is_float() => float(1.0, 1.0),
        Binary::Mul => Some(1),
        Binary::Min if dtype.is_float() => float(f32::INFINITY, f64::INFINITY),
        Binary::Min => extreme(true),
        Binary::Max if dtype.is_float() => float(f32::NEG_INFINITY, f64::NEG_INFINITY),
        Binary::Max => extreme(false),
        _ => None,
    }
}
