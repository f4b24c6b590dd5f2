//! Loops around one result: a kernel under construction.

use mcc_support::{DType, TensorType};

use super::{Operand, Source};
use crate::graph::ReduceFn;
use crate::loops::expr::{Binary, Expr, ExprId, Exprs};
use crate::loops::linear::{Atom, KernelRanges, Linear};
use crate::loops::simplify::simplify;
use crate::loops::{AxisId, AxisKind, BufferId, Kernel, Stmt, VarId, scalar};

/// Spatial loops over the axes of a result, and what goes inside.
pub struct Nest {
    pub kernel: Kernel,
    pub spatial: Vec<AxisId>,
    body: Vec<Stmt>,
}

impl Nest {
    /// Loops `d0, d1, …` over the axes of a result of this type.
    pub fn new(ty: &TensorType) -> Self {
        let mut nest = Self::empty();
        for (axis, &extent) in ty.shape.iter().enumerate() {
            nest.spatial(format!("d{axis}"), extent);
        }
        nest
    }

    /// Without loops, for kernels that name their axes.
    pub fn empty() -> Self {
        Self { kernel: Kernel::new(""), spatial: Vec::new(), body: Vec::new() }
    }

    /// Drops the loops made so far.
    pub fn clear(&mut self) {
        *self = Self::empty();
    }

    pub fn spatial(&mut self, name: impl Into<String>, extent: usize) -> Linear {
        let axis = self.kernel.axis(name, extent, AxisKind::Spatial);
        self.spatial.push(axis);
        Linear::atom(Atom::Axis(axis))
    }

    /// Makes the loops run in order.
    pub fn in_order(&mut self) {
        self.spatial.iter().for_each(|&axis| self.kernel.axes[axis].kind = AxisKind::Sequential);
    }

    pub fn exprs(&mut self) -> &mut Exprs {
        &mut self.kernel.exprs
    }

    /// The spatial axes as linear forms.
    pub fn axes(&self) -> Vec<Linear> {
        self.spatial.iter().map(|&axis| Linear::atom(Atom::Axis(axis))).collect()
    }

    pub fn spatial_indices(&mut self) -> Vec<ExprId> {
        let axes = self.spatial.clone();
        axes.into_iter().map(|axis| self.exprs().axis(axis)).collect()
    }

    pub fn index(&mut self, index: &[Linear]) -> Vec<ExprId> {
        index.iter().map(|form| form.to_expr(&mut self.kernel.exprs)).collect()
    }

    /// The element at an index that is known to be inside.
    pub fn load(&mut self, operand: &Operand<'_>, index: &[Linear]) -> ExprId {
        let index = self.index(index);
        operand.source.load(self.exprs(), index)
    }

    /// The element at an index, or `otherwise` where that is outside.
    pub fn load_or(&mut self, operand: &Operand<'_>, index: &[Linear], otherwise: ExprId) -> ExprId {
        let inside = self.inside(index, operand.shape);
        match operand.source {
            Source::Buffer { buffer, ty } if !inside => {
                let index = self.index(index);
                self.exprs().add(Expr::Load { buffer: *buffer, index, otherwise: Some(otherwise), dtype: ty.dtype })
            }
            Source::Const(..) if !inside => {
                let inside = self.is_inside(index, operand.shape);
                let value = self.load(operand, index);
                match inside {
                    Some(inside) => scalar::select(self.exprs(), inside, value, otherwise),
                    None => value,
                }
            }
            _ => self.load(operand, index),
        }
    }

    /// Quotient (to below) and remainder of an index by a positive number.
    pub fn div_mod(&mut self, form: &Linear, divisor: i64) -> (Linear, Linear) {
        let Kernel { exprs, axes, .. } = &mut self.kernel;
        let (value, divisor) = (form.to_expr(exprs), exprs.int(divisor));
        let mut part = |op| {
            let whole = exprs.binary(op, value, divisor);
            let simple = simplify(exprs, axes, whole);
            Linear::of(exprs, simple)
        };
        (part(Binary::DivFloor), part(Binary::Mod))
    }

    /// Whether an index is inside a shape in every round.
    pub fn inside(&self, index: &[Linear], shape: &[usize]) -> bool {
        let ranges = KernelRanges { exprs: &self.kernel.exprs, axes: &self.kernel.axes };
        index.iter().zip(shape).all(|(form, &extent)| {
            let (low, high) = form.range(&ranges);
            low >= 0 && high < extent as i64
        })
    }

    /// The condition that an index is inside a shape; `None` where it always is.
    pub fn is_inside(&mut self, index: &[Linear], shape: &[usize]) -> Option<ExprId> {
        let mut all: Option<ExprId> = None;
        for (form, &extent) in index.iter().zip(shape) {
            if self.inside(std::slice::from_ref(form), &[extent]) {
                continue;
            }
            let exprs = &mut self.kernel.exprs;
            let (value, zero, extent) = (form.to_expr(exprs), exprs.int(0), exprs.int(extent as i64));
            let above = exprs.binary(Binary::Le, zero, value);
            let below = exprs.binary(Binary::Lt, value, extent);
            let both = exprs.binary(Binary::And, above, below);
            all = Some(all.map_or(both, |all| exprs.binary(Binary::And, all, both)));
        }
        all
    }

    /// Appends inside the spatial loops.
    pub fn statement(&mut self, stmt: Stmt) {
        self.body.push(stmt);
    }

    /// A variable that starts as `init`.
    pub fn var(&mut self, init: ExprId) -> (VarId, ExprId) {
        let dtype = self.kernel.exprs.dtype(init);
        let var = self.kernel.var(dtype);
        self.statement(Stmt::Set { var, value: init });
        (var, self.kernel.exprs.var(var, dtype))
    }

    /// Stores at the plain axes.
    pub fn store(&mut self, buffer: BufferId, value: ExprId) {
        let index = self.spatial_indices();
        self.store_at(buffer, index, value);
    }

    pub fn store_at(&mut self, buffer: BufferId, index: Vec<ExprId>, value: ExprId) {
        self.statement(Stmt::Store { buffer, index, value, guard: None });
    }

    /// Reduces `term` (of the dtype `dtype` or its accumulator's) over `axes` and gives the result in `dtype`.
    pub fn reduce(&mut self, kind: ReduceFn, axes: &[AxisId], term: ExprId, dtype: DType) -> ExprId {
        let wide = scalar::accumulator(dtype);
        let term = scalar::cast(self.exprs(), wide, term);
        let total = if axes.is_empty() {
            term
        } else {
            let identity = scalar::identity(self.exprs(), kind, wide);
            let (var, acc) = self.var(identity);
            let value = scalar::combine(self.exprs(), kind, acc, term);
            let loops = Stmt::loops(axes, vec![Stmt::Set { var, value }]);
            loops.into_iter().for_each(|stmt| self.statement(stmt));
            acc
        };
        scalar::cast(self.exprs(), dtype, total)
    }

    /// A loop axis that reduces, unless there is one round only.
    pub fn reduce_axis(&mut self, name: impl Into<String>, extent: usize, axes: &mut Vec<AxisId>) -> Linear {
        if extent == 1 {
            return Linear::default();
        }
        let axis = self.kernel.axis(name, extent, AxisKind::Reduce);
        axes.push(axis);
        Linear::atom(Atom::Axis(axis))
    }

    pub fn finish(mut self) -> Kernel {
        self.kernel.body = Stmt::loops(&self.spatial, self.body);
        self.kernel
    }
}
