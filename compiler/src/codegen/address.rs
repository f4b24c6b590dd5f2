//! Where elements lie: index expressions through layouts to pointers that move with the loops, and displacements.

use mcc_kernel::{Address, Cond, Lane, Op, Type, VReg};
use mcc_support::DType;

use super::eval::lane_of;
use super::{Binding, Codegen, Key, Lanes, Running};
use crate::loops::linear::{Atom, KernelRanges, Linear};
use crate::loops::scalar::carrier;
use crate::loops::{AxisId, Binary, BufferId, ExprId};

/// An element of a buffer: how far from its start, in elements.
#[derive(Clone, Debug)]
pub(super) struct Place {
    buffer: BufferId,
    pub(super) offset: Linear,
}

impl Codegen<'_> {
    /// The linear form of an index, with the rounds that are known put in.
    pub(super) fn linear(&self, index: ExprId) -> Linear {
        let mut form = self.with_rounds(Linear::of(&self.kernel.exprs, index));
        // Where rounds are known, quotients and remainders may come out even.
        for atom in form.terms.keys().copied().collect::<Vec<_>>() {
            if let Atom::Expr(expr) = atom
                && let Some(even) = self.divided_evenly(expr)
            {
                form = form.replace(atom, &even);
            }
        }
        form
    }

    /// The linear form of a quotient or remainder by a constant, where there is one.
    fn divided_evenly(&self, expr: ExprId) -> Option<Linear> {
        let crate::loops::Expr::Binary(op @ (Binary::DivFloor | Binary::Mod), dividend, divisor) = *self.kernel.exprs.get(expr)
        else {
            return None;
        };
        let divisor = self.kernel.exprs.as_int(divisor).filter(|&divisor| divisor > 0)?;
        let (quotient, rest) = self.linear(dividend).divide(divisor, &self.ranges())?;
        Some(if op == Binary::Mod { rest } else { quotient })
    }

    fn with_rounds(&self, form: Linear) -> Linear {
        let axes: Vec<AxisId> =
            form.terms.keys().filter_map(|atom| if let Atom::Axis(axis) = atom { Some(*axis) } else { None }).collect();
        axes.into_iter().fold(form, |form, axis| match self.bindings[axis] {
            Binding::Fixed(round) => form.replace(Atom::Axis(axis), &Linear::constant(round)),
            _ => form,
        })
    }

    pub(super) fn ranges(&self) -> KernelRanges<'_> {
        KernelRanges { exprs: &self.kernel.exprs, axes: &self.kernel.axes }
    }

    /// Where the element at `index` of a buffer lies, through its layout.
    pub(super) fn place(&mut self, buffer: BufferId, index: &[ExprId]) -> Place {
        let layout = &self.layouts[buffer];
        let shape = self.program.buffers[buffer].ty.shape.dims();
        let strides = layout.strides(shape);
        let mut offset = Linear::default();
        for (coordinate, stride) in layout.coordinates.iter().zip(strides) {
            if shape[coordinate.dim] == 1 {
                continue;
            }
            let form = self.linear(index[coordinate.dim]);
            let form = self.divided(form, coordinate.divide, coordinate.modulo);
            offset = offset.plus(&form.times(stride as i64));
        }
        Place { buffer, offset: self.folded(offset) }
    }

    fn divided(&mut self, form: Linear, divide: usize, modulo: Option<usize>) -> Linear {
        let form = if divide == 1 { form } else { self.divide(form, divide as i64, Binary::DivFloor) };
        match modulo {
            Some(modulo) => self.divide(form, modulo as i64, Binary::Mod),
            None => form,
        }
    }

    fn divide(&mut self, form: Linear, divisor: i64, op: Binary) -> Linear {
        if let Some((quotient, rest)) = form.divide(divisor, &self.ranges()) {
            return if op == Binary::Mod { rest } else { quotient };
        }
        let exprs = &mut self.kernel.exprs;
        let (a, b) = (form.to_expr(exprs), exprs.int(divisor));
        let expr = exprs.binary(op, a, b);
        Linear::atom(Atom::Expr(expr))
    }

    /// Takes quotients and remainders by one divisor together again where they make up their dividend: `d · (x div d) + x mod d`.
    fn folded(&self, mut form: Linear) -> Linear {
        loop {
            let found = form.terms.iter().find_map(|(&atom, &coefficient)| {
                let Atom::Expr(rest) = atom else { return None };
                let crate::loops::Expr::Binary(Binary::Mod, dividend, divisor) = *self.kernel.exprs.get(rest) else {
                    return None;
                };
                let scale = coefficient.checked_mul(self.kernel.exprs.as_int(divisor)?)?;
                let quotient = form.terms.keys().copied().find(|&atom| match atom {
                    Atom::Expr(quotient) => {
                        *self.kernel.exprs.get(quotient) == crate::loops::Expr::Binary(Binary::DivFloor, dividend, divisor)
                            && form.coefficient(atom) == scale
                    }
                    Atom::Axis(_) => false,
                })?;
                Some((atom, quotient, dividend, coefficient))
            });
            let Some((rest, quotient, dividend, coefficient)) = found else { return form };
            form.terms.remove(&rest);
            form.terms.remove(&quotient);
            form = form.plus(&self.linear(dividend).times(coefficient));
        }
    }

    /// Whether the lanes of the vector axis are neighbours in memory.
    pub(super) fn contiguous(&mut self, place: &Place) -> bool {
        let axis = self.open_lanes().axis;
        let atoms: Vec<Atom> = place.offset.terms.keys().copied().collect();
        let varying_atom = atoms.iter().any(|atom| matches!(atom, Atom::Expr(expr) if self.varying(*expr)));
        place.offset.coefficient(Atom::Axis(axis)) == 1
            && !varying_atom
            && (!self.facts.strict_alignment || self.alignment(place) >= self.vector_bytes())
    }

    /// Bytes of a vector of the open lanes.
    fn vector_bytes(&self) -> u32 {
        let lanes = self.open_lanes();
        u32::from(lanes.count) * lanes.bits as u32 / 8
    }

    /// The largest power of two up to a vector that divides every address of the place, given that buffers are aligned to 64 bytes
    /// (inputs and outputs of the caller to their elements only).
    fn alignment(&self, place: &Place) -> u32 {
        let size = self.program.buffers[place.buffer].ty.dtype.size_bytes() as i64;
        let own = match self.program.buffers[place.buffer].role {
            crate::loops::Role::Input(_) | crate::loops::Role::Output(_) => size,
            _ => 64,
        };
        let lane = self.vector.filter(|_| self.lane.is_none()).map(|lanes| Atom::Axis(lanes.axis));
        let steps = place.offset.terms.iter().filter(|(atom, _)| Some(**atom) != lane).map(|(_, &coefficient)| coefficient);
        let steps = steps.chain([place.offset.constant]).map(|step| step.wrapping_mul(size));
        let align = steps.filter(|&step| step != 0).fold(own, |align, step| align.min(1 << step.trailing_zeros().min(6)));
        (align as u32).min(self.facts.vector_bytes)
    }

    /// The address of a place; of its first lane where lanes are open.
    pub(super) fn address(&mut self, place: &Place) -> (Address, u32) {
        let align = self.alignment(place);
        let size = self.program.buffers[place.buffer].ty.dtype.size_bytes() as i64;
        let mut moving = place.offset.clone();
        if let Some(Lanes { axis, .. }) = self.vector.filter(|_| self.lane.is_none()) {
            moving.terms.remove(&Atom::Axis(axis));
        }
        let displacement = moving.constant * size;
        // Large displacements do not fit an instruction.
        let (far, near) = if displacement.unsigned_abs() < 1 << 30 { (0, displacement) } else { (displacement, 0) };
        let mut pointer = self.base(place.buffer);
        if far != 0 {
            let far = self.b.inst_at(0, Type::I64, Op::Const(far as u64), &[]);
            pointer = self.moved(pointer, far, 1, 0);
        }
        (Address::new(self.pointer(pointer, &moving, size), near), align)
    }

    pub(super) fn base(&mut self, buffer: BufferId) -> VReg {
        self.cached(0, Key::Base(buffer), |codegen| {
            codegen.buffers.push(buffer);
            let slot = codegen.buffers.len() as i64 - 1;
            let address = Address::new(codegen.b.param(0), slot * 8);
            codegen.b.inst_at(0, Type::Ptr, Op::LoadPtr(address), &[])
        })
    }

    /// Moves a pointer by the terms of a form, those of outer loops first.
    fn pointer(&mut self, base: VReg, form: &Linear, size: i64) -> VReg {
        let mut moves: Vec<(usize, Atom, i64)> = Vec::new();
        for (&atom, &coefficient) in &form.terms {
            let level = match atom {
                Atom::Axis(axis) => match self.bindings[axis] {
                    Binding::Level(level) => level,
                    other => mcc_support::bug!("axis {axis} is {other:?} in an address"),
                },
                Atom::Expr(expr) => {
                    self.value(expr);
                    let deps = self.deps(expr);
                    self.level_of(&deps)
                }
            };
            moves.push((level, atom, coefficient * size));
        }
        moves.sort_unstable();
        let mut pointer = base;
        for (level, atom, scale) in moves {
            pointer = match atom {
                Atom::Axis(_) => self.running(pointer, scale, level),
                Atom::Expr(expr) => {
                    let by = self.value(expr);
                    self.moved(pointer, by, scale, level)
                }
            };
        }
        pointer
    }

    fn moved(&mut self, from: VReg, by: VReg, scale: i64, level: usize) -> VReg {
        self.cached(level, Key::Moved { from, by, scale }, |codegen| {
            let address = Address { base: from, terms: vec![(by, scale)], displacement: 0 };
            codegen.b.inst_at(level, Type::Ptr, Op::Lea(address), &[])
        })
    }

    /// A pointer that grows by `step_bytes` with each round of the loop at this level.
    fn running(&mut self, init: VReg, step_bytes: i64, level: usize) -> VReg {
        let found = self.levels[level].running.iter().find(|running| running.init == init && running.step_bytes == step_bytes);
        if let Some(found) = found {
            return found.param;
        }
        let param = self.b.fresh(Type::Ptr);
        self.levels[level].running.push(Running { init, step_bytes, param });
        param
    }

    /// Whether the lanes of a load come with one instruction.
    pub(super) fn loads_lanes(&mut self, buffer: BufferId, index: &[ExprId], otherwise: Option<ExprId>) -> bool {
        let place = self.place(buffer, index);
        self.contiguous(&place)
            && (otherwise.is_none() || self.bounds(buffer, index).iter().all(|bound| !self.differs(&bound.form)))
    }

    /// Whether a form differs between lanes.
    fn differs(&mut self, form: &Linear) -> bool {
        let axis = self.open_lanes().axis;
        let atoms: Vec<Atom> = form.terms.keys().copied().collect();
        atoms.into_iter().any(|atom| match atom {
            Atom::Axis(found) => found == axis,
            Atom::Expr(expr) => self.varying(expr),
        })
    }

    /// What must be tested at run time for an index to lie inside the buffer.
    fn bounds(&self, buffer: BufferId, index: &[ExprId]) -> Vec<Bound> {
        let shape = &self.program.buffers[buffer].ty.shape;
        let bound = |(&index, &extent): (&ExprId, &usize)| {
            let form = self.linear(index);
            let (low, high) = form.range(&self.ranges());
            let bound = Bound { form, extent: extent as i64, below: low < 0, above: high >= extent as i64 };
            (bound.below || bound.above).then_some(bound)
        };
        index.iter().zip(shape.iter()).filter_map(bound).collect()
    }

    /// Loads an element, or a vector of them, at `level`.
    pub(super) fn load(
        &mut self,
        buffer: BufferId,
        index: &[ExprId],
        otherwise: Option<ExprId>,
        level: usize,
        vector: bool,
    ) -> VReg {
        let Some(otherwise) = otherwise else { return self.load_inside(buffer, index, level, vector) };
        if self.is_outside(buffer, index) {
            return self.operand(otherwise, vector);
        }
        let bounds = self.bounds(buffer, index);
        let mut inside: Option<VReg> = None;
        for bound in bounds {
            let test = self.inside(&bound, level);
            inside = Some(match inside {
                Some(inside) => {
                    self.cached(level, Key::Both(inside, test), |codegen| codegen.masks(level, Op::MaskAnd, inside, test))
                }
                None => test,
            });
        }
        let Some(inside) = inside else { return self.load_inside(buffer, index, level, vector) };
        self.load_guarded(buffer, index, otherwise, inside, level, vector)
    }

    /// The load reads the buffer's start where the element is outside.
    fn load_guarded(
        &mut self,
        buffer: BufferId,
        index: &[ExprId],
        otherwise: ExprId,
        inside: VReg,
        level: usize,
        vector: bool,
    ) -> VReg {
        let dtype = self.program.buffers[buffer].ty.dtype;
        let place = self.place(buffer, index);
        let loaded = if dtype.is_packed() {
            self.load_packed(&place, dtype, Some(inside), level)
        } else {
            let (address, align) = self.address(&place);
            let pointer = self.b.inst_at(level, Type::Ptr, Op::Lea(address), &[]);
            let base = self.base(buffer);
            let safe = self.b.inst_at(level, Type::Ptr, Op::Select, &[inside, pointer, base]);
            self.load_at(dtype, Address::new(safe, 0), align, level, vector)
        };
        let otherwise = self.operand(otherwise, vector);
        if dtype == DType::Bool {
            let chosen = self.masks(level, Op::MaskAnd, inside, loaded);
            let not = self.b.inst_at(level, self.b.ty(inside), Op::MaskNot, &[inside]);
            let other = self.masks(level, Op::MaskAnd, not, otherwise);
            return self.masks(level, Op::MaskOr, chosen, other);
        }
        self.b.inst_at(level, self.b.ty(loaded), Op::Select, &[inside, loaded, otherwise])
    }

    fn load_inside(&mut self, buffer: BufferId, index: &[ExprId], level: usize, vector: bool) -> VReg {
        let dtype = self.program.buffers[buffer].ty.dtype;
        let place = self.place(buffer, index);
        if dtype.is_packed() {
            return self.load_packed(&place, dtype, None, level);
        }
        let lanes = if vector { usize::from(self.open_lanes().count) } else { 1 };
        let (address, align) = self.address(&place);
        // Once for each line.
        let begins_line = address.displacement.rem_euclid(self.facts.line_bytes.max(1) as i64) == 0;
        let ahead_bytes = match self.reduce_depth {
            0 => self.next_rows(&place),
            _ => self.streams(buffer).then_some(self.facts.ahead_bytes as i64),
        };
        if let (true, Some(ahead_bytes)) = (vector && begins_line, ahead_bytes) {
            let displacement = address.displacement + ahead_bytes;
            self.b.effect(Op::Prefetch(Address { displacement, ..address.clone() }), &[]);
        }
        // Neighbouring windows read the same one after the other.
        let again = |(at, reg): &&(Address, VReg)| *at == address && usize::from(self.b.ty(*reg).lanes()) == lanes;
        if let Some(&(_, reg)) = self.levels[level].loaded.get(&buffer).filter(again) {
            return reg;
        }
        let loaded = self.load_at(dtype, address.clone(), align, level, vector);
        if self.epochs[buffer].is_none() {
            self.levels[level].loaded.insert(buffer, (address, loaded));
        }
        loaded
    }

    /// Whether a buffer comes from memory or a far cache, panel after panel, and should be fetched ahead of its use.
    fn streams(&self, buffer: BufferId) -> bool {
        let buffer = &self.program.buffers[buffer];
        self.facts.ahead_bytes > 0
            && matches!(buffer.role, crate::loops::Role::Constant(_))
            && buffer.ty.size_bytes() > self.facts.l2_bytes / 2
    }

    /// How far from an element of a row that is gone through for the last time that of the next round is, which is summed up first: that
    /// would wait for the second cache. Rows that do not fill lines begin anywhere in them.
    fn next_rows(&self, place: &Place) -> Option<i64> {
        let buffer = &self.program.buffers[place.buffer];
        let coefficient = place.offset.coefficient(Atom::Axis(self.rows?));
        let bytes = coefficient * buffer.ty.dtype.size_bytes() as i64;
        let fills_lines = bytes.rem_euclid(self.facts.line_bytes.max(1) as i64) == 0;
        let comes_again = !matches!(buffer.role, crate::loops::Role::Local | crate::loops::Role::Constant(_));
        (self.facts.ahead_bytes > 0 && comes_again && bytes > 0 && fills_lines).then_some(bytes)
    }

    fn load_at(&mut self, dtype: DType, address: Address, align: u32, level: usize, vector: bool) -> VReg {
        let (lanes, used) = if vector { (self.open_lanes().count, self.open_lanes().used) } else { (1, 1) };
        let ty = Type::vector(lane_of(dtype), lanes);
        let op = if used < lanes { Op::LoadFirst { lanes: used, address, align } } else { Op::Load { address, align } };
        let loaded = self.b.inst_at(level, ty, op, &[]);
        if dtype == DType::Bool { self.b.inst_at(level, ty.mask(), Op::IntToMask, &[loaded]) } else { loaded }
    }

    /// The byte that holds an element of a packed type, and at which of its bits the element begins, as an i32. Where `inside`
    /// does not hold, the buffer's first element.
    fn packed_place(&mut self, place: &Place, dtype: DType, inside: Option<VReg>, level: usize) -> (Address, VReg) {
        let offset = place.offset.to_expr(&mut self.kernel.exprs);
        let mut offset = self.value(offset);
        if let Some(inside) = inside {
            let first = self.b.inst_at(level, Type::I64, Op::Const(0), &[]);
            offset = self.b.inst_at(level, Type::I64, Op::Select, &[inside, offset, first]);
        }
        let bits = dtype.size_bits() as u64;
        let mut constant = |value: u64| self.b.inst_at(level, Type::I32, Op::Const(value), &[]);
        // Elements of a byte and bits of an element are powers of two.
        let (elements, width) = (constant((8 / bits).ilog2().into()), constant(bits.ilog2().into()));
        let last = constant(8 / bits - 1);
        let byte = self.b.inst_at(level, Type::I64, Op::ShrU, &[offset, elements]);
        let low = self.b.inst_at(level, Type::I32, Op::Wrap, &[offset]);
        let element = self.b.inst_at(level, Type::I32, Op::And, &[low, last]);
        let first = self.b.inst_at(level, Type::I32, Op::Shl, &[element, width]);
        (Address { base: self.base(place.buffer), terms: vec![(byte, 1)], displacement: 0 }, first)
    }

    /// An element of a packed type, widened to a byte.
    fn load_packed(&mut self, place: &Place, dtype: DType, inside: Option<VReg>, level: usize) -> VReg {
        let (address, first) = self.packed_place(place, dtype, inside, level);
        let byte_ty = Type::scalar(Lane::I8);
        let byte = self.b.inst_at(level, byte_ty, Op::Load { address, align: 1 }, &[]);
        // The element goes to the upper bits, then back down, with its sign or without.
        let rest = self.b.inst_at(level, Type::I32, Op::Const(8 - dtype.size_bits() as u64), &[]);
        let up = self.b.inst_at(level, Type::I32, Op::Sub, &[rest, first]);
        let byte = self.b.inst_at(level, byte_ty, Op::Shl, &[byte, up]);
        let down = if carrier(dtype).is_signed() { Op::ShrS } else { Op::ShrU };
        self.b.inst_at(level, byte_ty, down, &[byte, rest])
    }

    /// Stores the low bits of a byte. Elements are stored in the order of memory: the first one of a byte clears the others.
    pub(super) fn store_packed(&mut self, place: &Place, dtype: DType, value: VReg) {
        let level = self.levels.len() - 1;
        let (address, first) = self.packed_place(place, dtype, None, level);
        let byte_ty = Type::scalar(Lane::I8);
        let low = self.b.inst(byte_ty, Op::Const((1 << dtype.size_bits()) - 1), &[]);
        let value = self.b.binary(Op::And, value, low);
        let is_later = self.b.inst(Type::I32.mask(), Op::IntToMask, &[first]);
        self.branch(is_later, |codegen| {
            let value = codegen.b.binary(Op::Shl, value, first);
            let other = codegen.b.load(byte_ty, address.clone(), 1);
            let byte = codegen.b.binary(Op::Or, other, value);
            codegen.b.store(byte, address.clone(), 1);
        });
        let is_first = self.b.unary(Op::MaskNot, is_later);
        self.branch(is_first, |codegen| codegen.b.store(value, address.clone(), 1));
    }

    fn inside(&mut self, bound: &Bound, level: usize) -> VReg {
        let expr = bound.form.to_expr(&mut self.kernel.exprs);
        let index = self.value(expr);
        let &Bound { extent, below, above, .. } = bound;
        self.cached(level, Key::Inside { index, extent, below, above }, |codegen| {
            let mut number = |value: i64| codegen.b.inst_at(level, Type::I64, Op::Const(value as u64), &[]);
            let limit = number(if above { extent } else { 0 });
            let op = match (below, above) {
                // Both at once: a negative index is a large unsigned one.
                (true, true) => Op::CmpU(Cond::Lt),
                (false, _) => Op::Cmp(Cond::Lt),
                (true, false) => Op::Cmp(Cond::Ge),
            };
            codegen.b.inst_at(level, Type::I64.mask(), op, &[index, limit])
        })
    }
}

/// An index of one dimension that may lie outside.
struct Bound {
    form: Linear,
    extent: i64,
    below: bool,
    above: bool,
}
