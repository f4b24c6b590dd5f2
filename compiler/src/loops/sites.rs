//! What a kernel looks like: its perfect outer loops, where it stores, what it loads.

use std::collections::BTreeSet;

use crate::loops::{AxisId, AxisKind, Binary, BufferId, Expr, ExprId, Exprs, Kernel, Stmt, VarId};

/// Buffers that a kernel loads from, and those that it stores to.
pub fn accesses(kernel: &Kernel) -> (BTreeSet<BufferId>, BTreeSet<BufferId>) {
    let mut writes = BTreeSet::new();
    for stmt in &kernel.body {
        stmt.walk(&mut |stmt| {
            if let Stmt::Store { buffer, .. } = stmt {
                writes.insert(*buffer);
            }
        });
    }
    let mut reads = BTreeSet::new();
    for load in loads(kernel) {
        if let Expr::Load { buffer, .. } = kernel.exprs.get(load) {
            reads.insert(*buffer);
        }
    }
    (reads, writes)
}

/// Buffers and indices of all stores, and of the loads that have no value for outside.
pub fn sure_accesses(kernel: &Kernel) -> Vec<(BufferId, &[ExprId])> {
    let mut found = Vec::new();
    for load in loads(kernel) {
        if let Expr::Load { buffer, index, otherwise: None, .. } = kernel.exprs.get(load) {
            found.push((*buffer, index.as_slice()));
        }
    }
    for stmt in &kernel.body {
        stmt.walk(&mut |stmt| {
            if let Stmt::Store { buffer, index, .. } = stmt {
                found.push((*buffer, index.as_slice()));
            }
        });
    }
    found
}

/// The sum and the factors of a value `var + x · y`.
pub fn added_product(exprs: &Exprs, var: VarId, value: ExprId) -> Option<[ExprId; 3]> {
    let Expr::Binary(Binary::Add, a, b) = *exprs.get(value) else { return None };
    let is_var = |expr| *exprs.get(expr) == Expr::Var(var);
    let (sum, product) = if is_var(a) { (a, b) } else { Some((b, a)).filter(|_| is_var(b))? };
    let Expr::Binary(Binary::Mul, x, y) = *exprs.get(product) else { return None };
    Some([sum, x, y])
}

/// Every load that the kernel evaluates, in the order of their ids.
pub fn loads(kernel: &Kernel) -> Vec<ExprId> {
    reachable(kernel, roots(kernel)).into_iter().filter(|&id| matches!(kernel.exprs.get(id), Expr::Load { .. })).collect()
}

/// The expressions that statements evaluate.
pub fn roots(kernel: &Kernel) -> Vec<ExprId> {
    let mut roots = Vec::new();
    kernel.body.iter().for_each(|stmt| stmt.walk(&mut |stmt| roots.extend(stmt.exprs())));
    roots
}

/// These expressions and all their operands, in the order of their ids.
pub fn reachable(kernel: &Kernel, roots: Vec<ExprId>) -> Vec<ExprId> {
    let mut seen = vec![false; kernel.exprs.len()];
    let mut pending = roots;
    while let Some(id) = pending.pop() {
        if !std::mem::replace(&mut seen[id.0 as usize], true) {
            pending.extend(kernel.exprs.operands(id));
        }
    }
    (0..kernel.exprs.len()).filter(|&id| seen[id]).map(|id| ExprId(id as u32)).collect()
}

/// The axes of the perfectly nested spatial loops that the kernel consists of, and the statements inside the innermost.
pub fn outer_loops(kernel: &Kernel) -> (Vec<AxisId>, &[Stmt]) {
    spatial_loops(kernel, &kernel.body)
}

/// The same of a part of a kernel.
pub fn spatial_loops<'k>(kernel: &Kernel, mut body: &'k [Stmt]) -> (Vec<AxisId>, &'k [Stmt]) {
    let mut axes = Vec::new();
    while let [Stmt::Loop { axis, body: inner }] = body {
        if kernel.axes[*axis].kind != AxisKind::Spatial {
            break;
        }
        axes.push(*axis);
        body = inner;
    }
    (axes, body)
}

/// A store without a guard, in loops only.
#[derive(Clone, Debug)]
pub struct Site {
    pub buffer: BufferId,
    /// The loops around it, the outermost first.
    pub path: Vec<AxisId>,
    pub index: Vec<ExprId>,
    pub value: ExprId,
}

/// A kernel that consists of spatial loops around stores: each element is computed on its own.
pub fn elementwise(kernel: &Kernel) -> Option<Vec<Site>> {
    let (path, body) = outer_loops(kernel);
    body.iter()
        .map(|stmt| match stmt {
            Stmt::Store { buffer, index, value, guard: None } => {
                Some(Site { buffer: *buffer, path: path.clone(), index: index.clone(), value: *value })
            }
            _ => None,
        })
        .collect()
}

/// The only store to a buffer, where it has no guard and stands in loops alone.
pub fn only_store(kernel: &Kernel, buffer: BufferId) -> Option<Site> {
    fn find(body: &[Stmt], path: &mut Vec<AxisId>, in_loops: bool, buffer: BufferId, found: &mut Vec<Option<Site>>) {
        for stmt in body {
            match stmt {
                Stmt::Loop { axis, body } => {
                    path.push(*axis);
                    find(body, path, in_loops, buffer, found);
                    path.pop();
                }
                Stmt::While { body, .. } => find(body, path, false, buffer, found),
                Stmt::If { then, otherwise, .. } => {
                    find(then, path, false, buffer, found);
                    find(otherwise, path, false, buffer, found);
                }
                Stmt::Store { buffer: to, index, value, guard } if *to == buffer => {
                    found.push((in_loops && guard.is_none()).then(|| Site {
                        buffer,
                        path: path.clone(),
                        index: index.clone(),
                        value: *value,
                    }))
                }
                Stmt::Store { .. } | Stmt::Set { .. } => {}
            }
        }
    }
    let mut found = Vec::new();
    find(&kernel.body, &mut Vec::new(), true, buffer, &mut found);
    if found.len() == 1 { found.remove(0) } else { None }
}

/// Rounds of loops nested over these axes.
pub fn rounds(kernel: &Kernel, path: &[AxisId]) -> usize {
    path.iter().map(|&axis| kernel.axes[axis].extent).fold(1, usize::saturating_mul)
}
