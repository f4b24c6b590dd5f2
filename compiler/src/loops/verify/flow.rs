//! Variables and what rounds of loops may do.

use std::collections::BTreeSet;

use mcc_support::{Result, bail, ensure};

use crate::loops::{AxisId, AxisKind, Expr, ExprId, Kernel, Program, Role, Stmt, VarId, scalar};

pub fn check(program: &Program, kernel: &Kernel) -> Result<()> {
    let flow = Flow { program, kernel };
    flow.assigned(&kernel.body, &mut BTreeSet::new())?;
    flow.rounds(&kernel.body)
}

struct Flow<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
}

impl Flow<'_> {
    /// Variables that an expression reads.
    fn reads(&self, root: ExprId) -> BTreeSet<VarId> {
        let mut found = BTreeSet::new();
        super::visit(self.kernel, root, &mut BTreeSet::new(), &mut |id| {
            if let Expr::Var(var) = self.kernel.exprs.get(id) {
                found.insert(*var);
            }
        });
        found
    }

    /// Every variable is set before it is read; `set` gains what these statements set for sure.
    fn assigned(&self, stmts: &[Stmt], set: &mut BTreeSet<VarId>) -> Result<()> {
        for stmt in stmts {
            for root in stmt.exprs() {
                if let Some(var) = self.reads(root).difference(set).next() {
                    bail!("%{var} is read before it is set");
                }
            }
            match stmt {
                Stmt::Set { var, .. } => {
                    set.insert(*var);
                }
                Stmt::Store { .. } => {}
                Stmt::Loop { axis, body } => {
                    let mut inside = set.clone();
                    self.assigned(body, &mut inside)?;
                    if self.kernel.axes[*axis].extent > 0 {
                        *set = inside;
                    }
                }
                Stmt::If { then, otherwise, .. } => {
                    let mut sets = [set.clone(), set.clone()];
                    self.assigned(then, &mut sets[0])?;
                    self.assigned(otherwise, &mut sets[1])?;
                    *set = sets[0].intersection(&sets[1]).copied().collect();
                }
                Stmt::While { body, .. } => self.assigned(body, &mut set.clone())?,
            }
        }
        Ok(())
    }

    fn rounds(&self, stmts: &[Stmt]) -> Result<()> {
        for stmt in stmts {
            match stmt {
                Stmt::Loop { axis, body } => {
                    self.packed(*axis, body)?;
                    match self.kernel.axes[*axis].kind {
                        _ if self.kernel.axes[*axis].extent <= 1 => {}
                        AxisKind::Spatial => self.spatial(*axis, body)?,
                        AxisKind::Reduce => self.reduce(*axis, body)?,
                        AxisKind::Sequential => {}
                    }
                    self.rounds(body)?;
                }
                Stmt::If { then, otherwise, .. } => {
                    self.rounds(then)?;
                    self.rounds(otherwise)?;
                }
                Stmt::While { body, .. } => self.rounds(body)?,
                Stmt::Set { .. } | Stmt::Store { .. } => {}
            }
        }
        Ok(())
    }

    /// Stores to packed buffers go in order: two elements share a byte.
    fn packed(&self, axis: AxisId, body: &[Stmt]) -> Result<()> {
        if self.kernel.axes[axis].kind == AxisKind::Sequential || self.kernel.axes[axis].extent <= 1 {
            return Ok(());
        }
        let mut packed = None;
        let mut visit = |stmt: &Stmt| {
            if let Stmt::Store { buffer, .. } = stmt
                && self.program.buffers[*buffer].ty.dtype.is_packed()
            {
                packed = Some(*buffer);
            }
        };
        body.iter().for_each(|stmt| stmt.walk(&mut visit));
        let Some(buffer) = packed else { return Ok(()) };
        let (buffer, axis) = (&self.program.buffers[buffer].name, &self.kernel.axes[axis].name);
        bail!("@{buffer} is packed, but axis {axis} around a store to it does not run in order")
    }

    /// Variables that a round takes from the round before: set in it, but read before that.
    fn carried(&self, body: &[Stmt]) -> BTreeSet<VarId> {
        let mut set = BTreeSet::new();
        let mut early = BTreeSet::new();
        self.early_reads(body, &mut set, &mut early);
        let mut updated = BTreeSet::new();
        body.iter().for_each(|stmt| {
            stmt.walk(&mut |stmt| {
                if let Stmt::Set { var, .. } = stmt {
                    updated.insert(*var);
                }
            });
        });
        early.intersection(&updated).copied().collect()
    }

    /// Reads of variables that may not have been set in these statements.
    fn early_reads(&self, stmts: &[Stmt], set: &mut BTreeSet<VarId>, early: &mut BTreeSet<VarId>) {
        for stmt in stmts {
            for root in stmt.exprs() {
                early.extend(self.reads(root).difference(set));
            }
            match stmt {
                Stmt::Set { var, .. } => {
                    set.insert(*var);
                }
                Stmt::Store { .. } => {}
                Stmt::Loop { axis, body } => {
                    let mut inside = set.clone();
                    self.early_reads(body, &mut inside, early);
                    if self.kernel.axes[*axis].extent > 0 {
                        *set = inside;
                    }
                }
                Stmt::If { then, otherwise, .. } => {
                    let mut sets = [set.clone(), set.clone()];
                    self.early_reads(then, &mut sets[0], early);
                    self.early_reads(otherwise, &mut sets[1], early);
                    *set = sets[0].intersection(&sets[1]).copied().collect();
                }
                Stmt::While { body, .. } => self.early_reads(body, &mut set.clone(), early),
            }
        }
    }

    fn spatial(&self, axis: AxisId, body: &[Stmt]) -> Result<()> {
        let name = &self.kernel.axes[axis].name;
        if let Some(var) = self.carried(body).first() {
            bail!("rounds of the spatial axis {name} carry %{var}");
        }
        let mut stores = Vec::new();
        body.iter().for_each(|stmt| {
            stmt.walk(&mut |stmt| {
                if let Stmt::Store { buffer, index, .. } = stmt {
                    stores.push((*buffer, index));
                }
            });
        });
        for (buffer, index) in stores {
            let described = &self.program.buffers[buffer];
            let moves = |part: &ExprId| self.kernel.exprs.uses_axis(*part, axis);
            let apart = described.role == Role::Local || index.iter().any(moves);
            ensure!(apart, "all rounds of the spatial axis {name} store to the same elements of @{}", described.name);
        }
        Ok(())
    }

    fn reduce(&self, axis: AxisId, body: &[Stmt]) -> Result<()> {
        let name = &self.kernel.axes[axis].name;
        let carried = self.carried(body);
        let mut result = Ok(());
        let mut kinds = std::collections::BTreeMap::new();
        let mut check = |stmt: &Stmt| -> Result<()> {
            match stmt {
                Stmt::Store { buffer, .. } => {
                    let described = &self.program.buffers[*buffer];
                    ensure!(described.role == Role::Local, "rounds of the reduce axis {name} store to @{}", described.name);
                }
                Stmt::Set { var, value } if carried.contains(var) => {
                    let combined = scalar::as_combine(&self.kernel.exprs, *var, *value);
                    let Some((kind, term)) = combined else {
                        bail!("rounds of the reduce axis {name} do not combine into %{var}")
                    };
                    let other = self.reads(term).intersection(&carried).next().copied();
                    ensure!(other.is_none(), "the term combined into %{var} reads %{}, which is carried", other.unwrap_or(*var));
                    ensure!(*kinds.entry(*var).or_insert(kind) == kind, "%{var} is combined in two ways");
                    return Ok(());
                }
                _ => {}
            }
            for root in stmt.exprs() {
                if let Some(var) = self.reads(root).intersection(&carried).next() {
                    bail!("rounds of the reduce axis {name} read %{var}, which they carry");
                }
            }
            Ok(())
        };
        body.iter().for_each(|stmt| {
            stmt.walk(&mut |stmt| {
                if result.is_ok() {
                    result = check(stmt);
                }
            });
        });
        result
    }
}
