//! Copies statements and expressions from one kernel into another, with axes, variables and loads replaced on the way.

use std::collections::{BTreeSet, HashMap};

use mcc_support::{DType, EntityMap};

use crate::loops::sites;
use crate::loops::{
    Axis, AxisId, Buffer, BufferId, Expr, ExprId, Kernel, Program, Region, RegionKind, Role, Stmt, VarId, simplify,
};

/// What stands for a loop of the source: loops of the target, nested, and the value of the axis in terms of theirs.
#[derive(Clone, Debug)]
pub struct Loops {
    pub loops: Vec<AxisId>,
    pub value: ExprId,
}

/// A load of the source whose operands are in the target already.
#[derive(Debug)]
pub struct Load<'a> {
    pub buffer: BufferId,
    pub index: &'a [ExprId],
    pub otherwise: Option<ExprId>,
    pub dtype: DType,
}

/// Gives what stands for a load in the target, or `None` to keep it.
pub type OnLoad<'f> = dyn FnMut(&mut Kernel, &Load) -> Option<ExprId> + 'f;

/// Gives what stands for a store, or `None` to keep it.
pub type OnStore<'f> = dyn FnMut(&mut Kernel, &Stored) -> Option<Vec<Stmt>> + 'f;

/// A store of the source in terms of the target.
#[derive(Debug)]
pub struct Stored<'a> {
    pub buffer: BufferId,
    pub index: &'a [ExprId],
    pub value: ExprId,
    pub guard: Option<ExprId>,
}

/// Copies from one kernel. An axis or variable that nothing was said about gets a counterpart of its own.
pub struct Copier<'a> {
    from: &'a Kernel,
    pub axes: HashMap<AxisId, Loops>,
    vars: HashMap<VarId, VarId>,
    memo: HashMap<ExprId, ExprId>,
    on_load: &'a mut OnLoad<'a>,
}

impl<'a> Copier<'a> {
    pub fn new(from: &'a Kernel, on_load: &'a mut OnLoad<'a>) -> Self {
        Self { from, axes: HashMap::new(), vars: HashMap::new(), memo: HashMap::new(), on_load }
    }

    /// The loops of `axis` vanish; its value is this expression of the target.
    pub fn replace_axis(&mut self, axis: AxisId, value: ExprId) {
        self.axes.insert(axis, Loops { loops: Vec::new(), value });
    }

    /// Stands for a variable of the source.
    pub fn replace_var(&mut self, var: VarId, by: VarId) {
        self.vars.insert(var, by);
    }

    fn axis(&mut self, into: &mut Kernel, axis: AxisId) -> Loops {
        if let Some(loops) = self.axes.get(&axis) {
            return loops.clone();
        }
        let copy = fresh_axis(into, self.from.axes[axis].clone());
        let loops = Loops { loops: vec![copy], value: into.exprs.axis(copy) };
        self.axes.insert(axis, loops.clone());
        loops
    }

    fn var(&mut self, into: &mut Kernel, var: VarId) -> VarId {
        *self.vars.entry(var).or_insert_with(|| into.var(self.from.vars[var]))
    }

    pub fn expr(&mut self, into: &mut Kernel, id: ExprId) -> ExprId {
        if let Some(&done) = self.memo.get(&id) {
            return done;
        }
        let from = self.from;
        let copy = match from.exprs.get(id) {
            Expr::Axis(axis) => self.axis(into, *axis).value,
            Expr::Var(var) => {
                let var = self.var(into, *var);
                into.exprs.var(var, into.vars[var])
            }
            Expr::Load { buffer, index, otherwise, dtype } => {
                let index: Vec<ExprId> = index.iter().map(|&id| self.index(into, id)).collect();
                let otherwise = otherwise.map(|id| self.expr(into, id));
                let load = Load { buffer: *buffer, index: &index, otherwise, dtype: *dtype };
                (self.on_load)(into, &load).unwrap_or_else(|| {
                    into.exprs.add(Expr::Load { buffer: *buffer, index: index.clone(), otherwise, dtype: *dtype })
                })
            }
            expr => {
                let operands: Vec<ExprId> = from.exprs.operands(id).into_iter().map(|operand| self.expr(into, operand)).collect();
                into.exprs.rebuild(expr, from.exprs.dtype(id), &operands)
            }
        };
        self.memo.insert(id, copy);
        copy
    }

    /// An index, simplified.
    pub fn index(&mut self, into: &mut Kernel, id: ExprId) -> ExprId {
        let copy = self.expr(into, id);
        simplify(into, copy)
    }

    pub fn stmts(&mut self, into: &mut Kernel, body: &[Stmt], on_store: &mut OnStore) -> Vec<Stmt> {
        let mut copies = Vec::with_capacity(body.len());
        for stmt in body {
            match stmt {
                Stmt::Loop { axis, body } => {
                    let loops = self.axis(into, *axis).loops;
                    let body = self.stmts(into, body, on_store);
                    copies.extend(Stmt::loops(&loops, body));
                }
                Stmt::Set { var, value } => {
                    let value = self.expr(into, *value);
                    copies.push(Stmt::Set { var: self.var(into, *var), value });
                }
                Stmt::Store { buffer, index, value, guard } => {
                    let index: Vec<ExprId> = index.iter().map(|&id| self.index(into, id)).collect();
                    let value = self.expr(into, *value);
                    let guard = guard.map(|guard| self.expr(into, guard));
                    match on_store(into, &Stored { buffer: *buffer, index: &index, value, guard }) {
                        Some(stmts) => copies.extend(stmts),
                        None => copies.push(Stmt::Store { buffer: *buffer, index, value, guard }),
                    }
                }
                Stmt::If { cond, then, otherwise } => {
                    let cond = self.expr(into, *cond);
                    let then = self.stmts(into, then, on_store);
                    copies.push(Stmt::If { cond, then, otherwise: self.stmts(into, otherwise, on_store) });
                }
                Stmt::While { cond, body } => {
                    let cond = self.expr(into, *cond);
                    copies.push(Stmt::While { cond, body: self.stmts(into, body, on_store) });
                }
            }
        }
        copies
    }
}

/// An index in its simplest form.
pub fn simplify(kernel: &mut Kernel, id: ExprId) -> ExprId {
    simplify::simplify(&mut kernel.exprs, &kernel.axes, id)
}

/// Adds an axis, under another name where its own is taken.
pub fn fresh_axis(kernel: &mut Kernel, mut axis: Axis) -> AxisId {
    let taken = |name: &str| kernel.axes.values().any(|other| other.name == name);
    if taken(&axis.name) {
        let name = (2..).map(|number| format!("{}_{number}", axis.name)).find(|name| !taken(name));
        axis.name = name.expect("some number is free");
    }
    kernel.axes.push(axis)
}

/// An empty kernel with the name and origins of another.
pub fn shell(kernel: &Kernel) -> Kernel {
    let Kernel { name, region, latch, origins, .. } = kernel;
    Kernel { region: *region, latch: *latch, origins: origins.clone(), ..Kernel::new(name.clone()) }
}

/// The same kernel without unused expressions, axes and variables, and with the loads replaced.
pub fn rebuild(kernel: &Kernel, on_load: &mut OnLoad, on_store: &mut OnStore) -> Kernel {
    let mut copy = shell(kernel);
    copy.body = Copier::new(kernel, on_load).stmts(&mut copy, &kernel.body, on_store);
    copy
}

/// The kernel without loops of one round.
pub fn drop_unit_axes(kernel: &Kernel) -> Kernel {
    let mut copy = shell(kernel);
    let mut keep = |_: &mut Kernel, _: &Load| None;
    let mut copier = Copier::new(kernel, &mut keep);
    for (axis, Axis { extent, .. }) in kernel.axes.iter() {
        if *extent == 1 {
            let zero = copy.exprs.int(0);
            copier.replace_axis(axis, zero);
        }
    }
    copy.body = copier.stmts(&mut copy, &kernel.body, &mut |_, _| None);
    copy
}

/// The same program without unused buffers, but for the caller's.
pub fn compact(program: &Program) -> Program {
    let mut used = EntityMap::<BufferId, bool>::filled(program.buffers.len(), false);
    for kernel in &program.kernels {
        let (reads, writes) = sites::accesses(kernel);
        reads.iter().chain(&writes).for_each(|&buffer| used[buffer] = true);
    }
    for (id, buffer) in program.buffers.iter() {
        used[id] |= matches!(buffer.role, Role::Input(_) | Role::Output(_));
    }
    program.regions.values().for_each(|region| used[region.kind.condition()] = true);
    let mut buffers = EntityMap::new();
    let mut ids = EntityMap::<BufferId, Option<BufferId>>::filled(program.buffers.len(), None);
    for (id, buffer) in program.buffers.iter().filter(|&(id, _)| used[id]) {
        ids[id] = Some(buffers.push(buffer.clone()));
    }
    let id = |old: BufferId| ids[old].expect("used buffers are kept");
    let kept: BTreeSet<&str> = buffers.values().map(|buffer: &Buffer| buffer.name.as_str()).collect();
    let renumbered = |(name, buffer): &(String, BufferId)| (name.clone(), id(*buffer));
    let kind = |kind| match kind {
        RegionKind::Loop { go } => RegionKind::Loop { go: id(go) },
        RegionKind::Branch { cond, taken } => RegionKind::Branch { cond: id(cond), taken },
    };
    Program {
        name: program.name.clone(),
        regions: program.regions.values().map(|region| Region { kind: kind(region.kind), ..*region }).collect(),
        kernels: program.kernels.iter().map(|kernel| renumber(kernel, &id)).collect(),
        inputs: program.inputs.iter().map(renumbered).collect(),
        outputs: program.outputs.iter().map(renumbered).collect(),
        needed: program
            .needed
            .iter()
            .filter(|(name, _)| kept.contains(name.as_str()))
            .map(|(name, needed)| (name.clone(), needed.clone()))
            .collect(),
        buffers,
    }
}

fn renumber(kernel: &Kernel, id: &dyn Fn(BufferId) -> BufferId) -> Kernel {
    rebuild(
        kernel,
        &mut |into, load| {
            let Load { buffer, index, otherwise, dtype } = *load;
            Some(into.exprs.add(Expr::Load { buffer: id(buffer), index: index.to_vec(), otherwise, dtype }))
        },
        &mut |_, stored| {
            let Stored { buffer, index, value, guard } = *stored;
            Some(vec![Stmt::Store { buffer: id(buffer), index: index.to_vec(), value, guard }])
        },
    )
}
