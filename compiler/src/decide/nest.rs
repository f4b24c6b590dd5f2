//! What decisions look at in a kernel: its nests, and how each access walks through memory along an axis.

use std::collections::BTreeMap;

use mcc_kernel::{Facts, Lane};

use crate::decisions::Layout;
use crate::loops::linear::{Atom, Linear};
use crate::loops::sites::spatial_loops;
use crate::loops::{AxisId, AxisKind, Binary, BufferId, Expr, ExprId, Exprs, Kernel, Program, Role, Stmt};

/// Loops nested perfectly around statements that are not one loop.
#[derive(Clone, Debug)]
pub struct Nest<'k> {
    /// Spatial axes, the first outermost.
    pub spatial: Vec<AxisId>,
    /// What stands in the innermost of them.
    pub body: &'k [Stmt],
}

/// The loops of a nest that reduces, with its statements.
#[derive(Clone, Debug)]
pub struct Reduction<'k> {
    /// Nested perfectly, the first outermost.
    pub axes: Vec<AxisId>,
    pub updates: &'k [Stmt],
    /// After the loops: what is stored.
    pub stores: Vec<&'k Stmt>,
}

impl<'k> Nest<'k> {
    pub fn of(kernel: &'k Kernel, body: &'k [Stmt]) -> Self {
        let (spatial, body) = spatial_loops(kernel, body);
        Self { spatial, body }
    }

    /// The nest as one reduction: settings, one tree of reducing loops nested perfectly, settings and stores.
    pub fn reduction(&self, kernel: &'k Kernel) -> Option<Reduction<'k>> {
        let mut loops = self.body.iter().filter(|stmt| matches!(stmt, Stmt::Loop { .. }));
        let (Some(Stmt::Loop { axis, body }), None) = (loops.next(), loops.next()) else { return None };
        let (mut axes, mut updates) = (vec![*axis], &body[..]);
        while let [Stmt::Loop { axis, body }] = updates {
            axes.push(*axis);
            updates = body;
        }
        let reduces = axes.iter().all(|&axis| kernel.axes[axis].kind == AxisKind::Reduce);
        let plain = updates.iter().all(|stmt| matches!(stmt, Stmt::Set { .. }));
        let others =
            self.body.iter().all(|stmt| matches!(stmt, Stmt::Loop { .. } | Stmt::Set { .. } | Stmt::Store { guard: None, .. }));
        let stores = self.body.iter().filter(|stmt| matches!(stmt, Stmt::Store { .. })).collect();
        (reduces && plain && others).then_some(Reduction { axes, updates, stores })
    }

    /// Whether it is statements without loops.
    pub fn is_elementwise(&self) -> bool {
        self.body.iter().all(|stmt| matches!(stmt, Stmt::Set { .. } | Stmt::Store { .. }))
    }
}

/// The nests of a kernel, and whether no loop stands around them: those that are scheduled by themselves, and each tree before what is
/// in it.
pub fn nests(kernel: &Kernel) -> Vec<(Nest<'_>, bool)> {
    fn add<'k>(kernel: &'k Kernel, body: &'k [Stmt], outermost: bool, found: &mut Vec<(Nest<'k>, bool)>) {
        let nest = Nest::of(kernel, body);
        let inside = if nest.is_elementwise() || nest.reduction(kernel).is_some() { &[] } else { nest.body };
        found.push((nest, outermost));
        for stmt in inside {
            match stmt {
                Stmt::Loop { axis, .. } if kernel.axes[*axis].kind == AxisKind::Sequential => {}
                Stmt::Loop { .. } => add(kernel, std::slice::from_ref(stmt), false, found),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    add(kernel, &kernel.body, true, &mut found);
    found
}

/// One load or store.
#[derive(Clone, Debug)]
pub struct Access {
    pub buffer: BufferId,
    pub index: Vec<ExprId>,
    pub is_store: bool,
    /// Whether elements outside the buffer stand for another value.
    pub padded: bool,
}

/// The loads of expressions, each once.
pub fn loads(exprs: &Exprs, roots: impl IntoIterator<Item = ExprId>) -> Vec<Access> {
    let mut seen = std::collections::BTreeSet::new();
    let mut open: Vec<ExprId> = roots.into_iter().collect();
    let mut accesses = Vec::new();
    while let Some(expr) = open.pop() {
        if !seen.insert(expr) {
            continue;
        }
        open.extend(exprs.operands(expr));
        if let Expr::Load { buffer, index, otherwise, .. } = exprs.get(expr) {
            accesses.push(Access { buffer: *buffer, index: index.clone(), is_store: false, padded: otherwise.is_some() });
        }
    }
    accesses
}

/// The accesses of statements that are not loops.
pub fn accesses<'s>(exprs: &Exprs, stmts: impl IntoIterator<Item = &'s Stmt>) -> Vec<Access> {
    let mut all = Vec::new();
    for stmt in stmts {
        match stmt {
            Stmt::Set { value, .. } => all.extend(loads(exprs, [*value])),
            Stmt::Store { buffer, index, value, guard } => {
                all.extend(loads(exprs, index.iter().copied().chain([*value]).chain(*guard)));
                all.push(Access { buffer: *buffer, index: index.clone(), is_store: true, padded: false });
            }
            _ => {}
        }
    }
    all
}

/// Distance in memory between the elements of neighbouring rounds of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stride {
    Zero,
    One,
    /// More than an element, or not the same everywhere.
    Other,
}

/// How an access walks along an axis, under layouts by buffer name.
pub fn stride(program: &Program, layouts: &BTreeMap<String, Layout>, kernel: &Kernel, access: &Access, axis: AxisId) -> Stride {
    match distance(program, layouts, kernel, access, axis) {
        Some(0) => Stride::Zero,
        Some(1) => Stride::One,
        _ => Stride::Other,
    }
}

/// Elements between neighbouring rounds of an axis, inside of a panel where the access goes through panels; `None` where that is not
/// the same everywhere.
pub fn distance(
    program: &Program,
    layouts: &BTreeMap<String, Layout>,
    kernel: &Kernel,
    access: &Access,
    axis: AxisId,
) -> Option<i64> {
    let buffer = &program.buffers[access.buffer];
    let row_major = Layout::row_major(buffer.ty.rank());
    let layout = layouts.get(&buffer.name).unwrap_or(&row_major);
    let shape = buffer.ty.shape.dims();
    let mut total = 0i64;
    for (coordinate, stride) in layout.coordinates.iter().zip(layout.strides(shape)) {
        let index = access.index[coordinate.dim];
        let form = Linear::of(&kernel.exprs, index);
        if form.terms.keys().any(|atom| matches!(atom, Atom::Expr(expr) if kernel.exprs.uses_axis(*expr, axis))) {
            return None;
        }
        let step = form.coefficient(Atom::Axis(axis));
        match (step, coordinate.modulo) {
            (0, _) => {}
            // Neighbours inside a panel; panels follow one another in whole.
            (1, Some(_)) if coordinate.divide == 1 => total += stride as i64,
            (_, None) if coordinate.divide == 1 => total += step * stride as i64,
            (1, None) => {}
            _ => return None,
        }
    }
    Some(total)
}

/// The dimension of an access that is an axis and nothing else.
pub fn plain_dim(kernel: &Kernel, access: &Access, axis: AxisId) -> Option<usize> {
    access.index.iter().position(|&index| *kernel.exprs.get(index) == Expr::Axis(axis))
}

/// The two loads of `acc + x · y`, where an update is one.
pub fn product(kernel: &Kernel, update: &Stmt) -> Option<[Access; 2]> {
    let Stmt::Set { var, value } = update else { return None };
    let Expr::Binary(Binary::Add, a, b) = *kernel.exprs.get(*value) else { return None };
    let product = if *kernel.exprs.get(a) == Expr::Var(*var) { b } else { a };
    let Expr::Binary(Binary::Mul, x, y) = *kernel.exprs.get(product) else { return None };
    let load = |expr| match kernel.exprs.get(expr) {
        Expr::Load { .. } => loads(&kernel.exprs, [expr]).into_iter().next(),
        _ => None,
    };
    Some([load(x)?, load(y)?])
}

pub fn is_constant(program: &Program, buffer: BufferId) -> bool {
    matches!(program.buffers[buffer].role, Role::Constant(_))
}

/// How wide the lanes are in which a nest may run: as its widest variable, or as what it stores and loads. `None` where its
/// variables have several widths, or none that vectors have.
pub fn lane_bits(program: &Program, kernel: &Kernel, stmts: &[&Stmt]) -> Option<usize> {
    let set = |stmt: &&Stmt| if let Stmt::Set { var, .. } = stmt { Some(kernel.vars[*var].size_bits()) } else { None };
    let vars: Vec<usize> = stmts.iter().filter_map(set).collect();
    let bits = match vars.first() {
        Some(&bits) if vars.iter().all(|&other| other == bits) => bits,
        Some(_) => return None,
        None => {
            let stored = |stmt: &&Stmt| match stmt {
                Stmt::Store { buffer, .. } => Some(program.buffers[*buffer].ty.dtype.size_bits()),
                _ => None,
            };
            stmts.iter().filter_map(stored).max()?.max(32)
        }
    };
    (bits >= 32).then_some(bits)
}

/// Lane counts of the vectors whose lanes have so many bits, the widest first.
pub fn lane_counts(facts: &Facts, bits: usize) -> Vec<usize> {
    facts.lane_counts(if bits == 64 { Lane::I64 } else { Lane::I32 })
}
