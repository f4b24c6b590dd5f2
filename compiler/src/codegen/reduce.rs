//! Accumulators: contraction of `a + x · y`, and reductions whose axis runs in lanes, where each lane accumulates by itself and the
//! lanes are combined at the end.

use std::collections::HashMap;

use mcc_kernel::{Op, OpKind, VReg};
use mcc_support::{DType, bug};

use super::{Codegen, Lanes, lane_bits, vars_set};
use crate::loops::{AxisId, AxisKind, AxisMode, Binary, Expr, ExprId, Stmt, VarId, sites};

/// An accumulator that a loop in lanes updates.
pub(super) struct Accumulator {
    var: VarId,
    /// The update: an expression of the variable and of one term.
    update: ExprId,
}

/// A loop in which accumulators are in parts.
pub(super) struct Sums<'s> {
    outer: AxisId,
    body: &'s [Stmt],
    accumulators: Vec<Accumulator>,
    /// The lanes each of which has a part of its own.
    lanes: Option<Lanes>,
    /// Axes each of whose rounds has parts of its own.
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

    /// The loops at the start of statements that sum up in parts, one after the other, the same accumulators: the later ones are rests.
    pub(super) fn sums_in_parts<'s>(&self, stmts: &'s [Stmt]) -> Vec<Sums<'s>> {
        let mut found: Vec<Sums> = Vec::new();
        for stmt in stmts {
            let Some(sums) = self.split_accumulators(stmt) else { break };
            let joins = |first: &Sums| {
                let vars = |sums: &Sums| sums.accumulators.iter().map(|accumulator| accumulator.var).collect::<Vec<_>>();
                let joins = |first: Lanes, lanes: Lanes| {
                    let lane = super::lane_of_bits(lanes.bits);
                    let fits = lanes.used < first.count && self.facts.supports(OpKind::First, lane, first.count);
                    first.bits == lanes.bits && (lanes.used == first.count || fits)
                };
                let both = first.lanes.zip(sums.lanes).is_some_and(|(first, lanes)| joins(first, lanes));
                vars(first) == vars(&sums) && (both || first.lanes.is_none() && sums.lanes.is_none())
            };
            if !found.first().is_none_or(joins) {
                break;
            }
            found.push(sums);
        }
        found
    }

    /// The accumulators that are in parts in this loop, if all its updates are done by one axis in lanes that reduces, or by rounds apart.
    fn split_accumulators<'s>(&self, stmt: &'s Stmt) -> Option<Sums<'s>> {
        fn find<'s>(codegen: &Codegen, axis: AxisId, body: &'s [Stmt], path: &mut Vec<AxisId>) -> Option<&'s [Stmt]> {
            path.push(axis);
            if codegen.in_lanes(axis) {
                return Some(body);
            }
            let inside = body.iter().find_map(|stmt| match stmt {
                Stmt::Loop { axis, body } => find(codegen, *axis, body, path),
                _ => None,
            });
            let innermost = !body.iter().any(|stmt| matches!(stmt, Stmt::Loop { .. }));
            let ends = innermost && path.iter().any(|&axis| codegen.is_apart(axis));
            let found = inside.or_else(|| ends.then_some(body));
            if found.is_none() {
                path.pop();
            }
            found
        }
        let Stmt::Loop { axis: outer, body: all } = stmt else { return None };
        if self.kernel.axes[*outer].kind != AxisKind::Reduce || self.partial.is_some() || !self.apart.is_empty() {
            return None;
        }
        let mut path = Vec::new();
        let body = find(self, *outer, all, &mut path)?;
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
        let bits = lane_bits(self.program, &self.kernel, body);
        let lanes = path.last().copied().filter(|&axis| self.in_lanes(axis)).map(|axis| {
            let used = self.kernel.axes[axis].extent;
            let count = self.facts.lanes_for(super::lane_of_bits(bits), used).expect("a lane count");
            Lanes { axis, count, used: used as u8, bits }
        });
        let accumulators: Vec<Accumulator> = vars_set(body).into_iter().map(update).collect();
        // Where rounds of the accumulators are those of the jammed axes.
        let plain = accumulators.iter().all(|accumulator| self.vars[accumulator.var].axes == self.jam);
        let apart: Vec<AxisId> = path.into_iter().filter(|&axis| plain && self.is_apart(axis)).collect();
        (lanes.is_some() || !apart.is_empty()).then_some(Sums { outer: *outer, body: all, accumulators, lanes, apart })
    }

    /// Whether each lane of an axis has a part of its own.
    fn in_lanes(&self, axis: AxisId) -> bool {
        let axis = &self.kernel.axes[axis];
        axis.kind == AxisKind::Reduce && axis.mode == AxisMode::Vector && axis.extent > 0
    }

    fn is_apart(&self, axis: AxisId) -> bool {
        let axis = &self.kernel.axes[axis];
        axis.mode == AxisMode::Apart && axis.extent > 0
    }

    /// Runs loops with accumulators that have parts in lanes and for each round of unrolled loops: these do not wait for each other.
    pub(super) fn sum_in_parts(&mut self, loops: &[Sums]) {
        let Sums { accumulators, lanes, .. } = &loops[0];
        let lanes = lanes.map(|lanes| Lanes { used: lanes.count, ..lanes });
        // For each accumulator its registers, with the rounds that they are of, and what each goes on with: all lanes, where these are parts.
        let mut sums = Vec::new();
        for accumulator in accumulators {
            let mut rounds: Vec<Vec<i64>> = self.vars[accumulator.var].regs.keys().cloned().collect();
            rounds.sort_unstable();
            let identity = self.identity(accumulator);
            let of: Vec<_> = rounds.into_iter().map(|rounds| (accumulator.var, rounds)).collect();
            let regs = self.registers(&of);
            let whole: Vec<VReg> = match lanes {
                Some(lanes) => {
                    let ty = self.b.ty(regs[0]).with_lanes(lanes.count);
                    of.iter().map(|_| self.b.inst(ty, Op::Const(identity), &[])).collect()
                }
                None => regs.clone(),
            };
            sums.push((of, regs, whole, identity));
        }
        for Sums { outer, body, apart, .. } in loops {
            let extents: mcc_support::Shape = apart.iter().map(|&axis| self.kernel.axes[axis].extent).collect();
            let mut parts_of: Vec<Vec<(VarId, Vec<i64>)>> = Vec::new();
            for (accumulator, (of, _, whole, identity)) in accumulators.iter().zip(&sums) {
                let (mut rounds_of, mut parts) = (Vec::new(), Vec::new());
                for ((var, rounds), &whole) in of.iter().zip(whole) {
                    extents.for_each_index(|index| {
                        rounds_of.push((*var, rounds.iter().copied().chain(index.iter().map(|&round| round as i64)).collect()));
                        // The first goes on with what there is.
                        let is_first = index.iter().all(|&round| round == 0);
                        let ty = self.b.ty(whole);
                        parts.push(if is_first { whole } else { self.b.inst(ty, Op::Const(*identity), &[]) });
                    });
                }
                let state = &mut self.vars[accumulator.var];
                state.regs.clear();
                state.axes.extend(apart);
                state.varying |= lanes.is_some();
                self.set_registers(&rounds_of, &parts);
                parts_of.push(rounds_of);
            }
            self.partial = lanes.map(|lanes| lanes.count);
            self.apart.clone_from(apart);
            self.stmt_loop(*outer, body);
            self.partial = None;
            self.apart.clear();
            for ((accumulator, (of, _, whole, _)), parts_of) in accumulators.iter().zip(&mut sums).zip(parts_of) {
                let parts = self.registers(&parts_of);
                let state = &mut self.vars[accumulator.var];
                state.regs.clear();
                state.axes.truncate(state.axes.len() - apart.len());
                let each = parts.len() / of.len();
                *whole = parts.chunks(each).map(|parts| self.together(accumulator, parts, lanes)).collect();
            }
        }
        for (accumulator, (of, regs, mut whole, identity)) in accumulators.iter().zip(sums) {
            if let Some(lanes) = lanes {
                self.vars[accumulator.var].varying = false;
                let identity = self.kernel.exprs.add(Expr::Const(self.kernel.exprs.dtype(accumulator.update), identity));
                let identity = self.value(identity);
                let combine = |(&reg, parts)| self.combine(accumulator, (reg != identity).then_some(reg), parts, lanes);
                whole = regs.iter().zip(whole).map(combine).collect();
            }
            self.set_registers(&of, &whole);
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

    /// The update applied to the parts of all rounds.
    fn together(&mut self, accumulator: &Accumulator, parts: &[VReg], lanes: Option<Lanes>) -> VReg {
        let mut parts = parts.to_vec();
        let around = self.vector;
        self.vector = lanes.or(around);
        while parts.len() > 1 {
            let term = self.term(accumulator);
            let pairs = parts.chunks(2);
            parts = pairs.map(|pair| if let [a, b] = *pair { self.updated(accumulator, term, a, b) } else { pair[0] }).collect();
        }
        self.vector = around;
        parts[0]
    }

    /// The update applied to half of the lanes with the other half while vectors have so few, and then to what is left and the whole, if
    /// there was something before these parts.
    fn combine(&mut self, accumulator: &Accumulator, whole: Option<VReg>, mut parts: VReg, mut lanes: Lanes) -> VReg {
        let term = self.term(accumulator);
        let lane = self.b.ty(parts).lane();
        while self.facts.lane_counts(lane).contains(&usize::from(lanes.count / 2)) {
            lanes = Lanes { count: lanes.count / 2, used: lanes.count / 2, ..lanes };
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
        whole.map_or(parts[0], |whole| self.updated(accumulator, term, whole, parts[0]))
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
