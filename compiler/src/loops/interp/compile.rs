//! Expressions as instructions over registers. An instruction stands in the outermost loop in which its axes are known; what
//! depends on variables or on buffers that the kernel writes is evaluated by each statement.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mcc_support::EntityMap;

use crate::loops::primitive::{self, Function1, Function2};
use crate::loops::{AxisId, BufferId, Expr, ExprId, Kernel, Program, Role, Stmt, VarId};

/// A kernel that can be run.
pub struct Code {
    pub registers: usize,
    pub constants: Vec<(usize, u64)>,
    /// Registers of variables.
    pub vars: Vec<usize>,
    pub loads: Vec<Load>,
    pub body: Block,
}

pub struct Load {
    pub place: Place,
    pub otherwise: Option<usize>,
}

/// An element of a buffer: for each dimension the register of the index, the extent and the stride.
pub struct Place {
    pub buffer: BufferId,
    pub index: Vec<(usize, u64, usize)>,
}

pub enum Inst {
    Unary { function: Function1, to: usize, a: usize },
    Binary { function: Function2, to: usize, a: usize, b: usize },
    Fma { to: usize, operands: [usize; 3] },
    Select { to: usize, cond: usize, a: usize, b: usize },
    Copy { to: usize, a: usize },
    Load { to: usize, load: usize },
}

#[derive(Default)]
pub struct Block {
    /// Local buffers whose contents are undefined from here on.
    pub fresh: Vec<BufferId>,
    pub prelude: Vec<Inst>,
    pub nodes: Vec<Node>,
}

/// Statements, with the instructions that each runs first.
pub enum Node {
    Loop { register: usize, extent: u64, body: Block },
    Set { code: Vec<Inst>, register: usize, value: usize },
    Store { code: Vec<Inst>, place: Place, value: usize, guard: Option<usize> },
    If { code: Vec<Inst>, cond: usize, then: Block, otherwise: Block },
    While { code: Vec<Inst>, cond: usize, body: Block },
}

pub fn compile(program: &Program, kernel: &Kernel) -> Code {
    let mut written = BTreeSet::new();
    kernel.body.iter().for_each(|stmt| {
        stmt.walk(&mut |stmt| {
            if let Stmt::Store { buffer, .. } = stmt {
                written.insert(*buffer);
            }
        });
    });
    let mut compiler = Compiler {
        program,
        kernel,
        written,
        depends: HashMap::new(),
        registers: 0,
        constants: BTreeMap::new(),
        vars: EntityMap::new(),
        loads: Vec::new(),
        open: Vec::new(),
    };
    for _ in kernel.vars.keys() {
        let register = compiler.register();
        compiler.vars.push(register);
    }
    let (body, _) = compiler.block(None, &kernel.body);
    Code {
        registers: compiler.registers,
        constants: compiler.constants.into_iter().map(|(bits, register)| (register, bits)).collect(),
        vars: compiler.vars.values().copied().collect(),
        loads: compiler.loads,
        body,
    }
}

struct Compiler<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    /// Buffers that the kernel stores to.
    written: BTreeSet<BufferId>,
    depends: HashMap<ExprId, Depends>,
    registers: usize,
    constants: BTreeMap<u64, usize>,
    vars: EntityMap<VarId, usize>,
    loads: Vec<Load>,
    /// The loops around, the kernel itself first.
    open: Vec<Open>,
}

struct Open {
    axis: Option<AxisId>,
    register: usize,
    prelude: Vec<Inst>,
    known: HashMap<ExprId, usize>,
}

/// What an expression depends on.
#[derive(Clone, Default)]
struct Depends {
    axes: BTreeSet<AxisId>,
    /// On variables or on memory that the kernel writes.
    volatile: bool,
}

/// Instructions of one statement, and the registers of what they computed.
#[derive(Default)]
struct Local {
    code: Vec<Inst>,
    known: HashMap<ExprId, usize>,
}

impl Compiler<'_> {
    fn register(&mut self) -> usize {
        self.registers += 1;
        self.registers - 1
    }

    /// A block and the register of its axis.
    fn block(&mut self, axis: Option<AxisId>, stmts: &[Stmt]) -> (Block, usize) {
        let register = self.register();
        self.open.push(Open { axis, register, prelude: Vec::new(), known: HashMap::new() });
        let nodes = stmts.iter().map(|stmt| self.stmt(stmt)).collect();
        let open = self.open.pop().expect("was opened");
        (Block { fresh: self.fresh(stmts), prelude: open.prelude, nodes }, register)
    }

    /// Local buffers that are used by several of these statements, or by one that is not a loop: their scope is this block.
    fn fresh(&self, stmts: &[Stmt]) -> Vec<BufferId> {
        let uses: Vec<BTreeSet<BufferId>> = stmts.iter().map(|stmt| self.uses(stmt)).collect();
        let all: BTreeSet<BufferId> = uses.iter().flatten().copied().collect();
        let here = |buffer: &BufferId| {
            let users: Vec<usize> = (0..stmts.len()).filter(|&at| uses[at].contains(buffer)).collect();
            let total = self.kernel.body.iter().map(|stmt| self.count(stmt, *buffer)).sum::<usize>();
            let inside = stmts.iter().map(|stmt| self.count(stmt, *buffer)).sum::<usize>();
            inside == total && (users.len() > 1 || !matches!(stmts[users[0]], Stmt::Loop { .. }))
        };
        all.into_iter().filter(here).collect()
    }

    /// Local buffers that a statement and those in it use.
    fn uses(&self, stmt: &Stmt) -> BTreeSet<BufferId> {
        let mut found = BTreeSet::new();
        stmt.walk(&mut |stmt| found.extend(self.own_uses(stmt)));
        found
    }

    fn count(&self, stmt: &Stmt, buffer: BufferId) -> usize {
        let mut count = 0;
        stmt.walk(&mut |stmt| count += usize::from(self.own_uses(stmt).contains(&buffer)));
        count
    }

    fn own_uses(&self, stmt: &Stmt) -> BTreeSet<BufferId> {
        let mut found = BTreeSet::new();
        let is_local = |buffer: BufferId| self.program.buffers[buffer].role == Role::Local;
        if let Stmt::Store { buffer, .. } = stmt
            && is_local(*buffer)
        {
            found.insert(*buffer);
        }
        let mut waiting = stmt.exprs();
        let mut seen = BTreeSet::new();
        while let Some(expr) = waiting.pop() {
            if !seen.insert(expr) {
                continue;
            }
            if let Expr::Load { buffer, .. } = self.kernel.exprs.get(expr)
                && is_local(*buffer)
            {
                found.insert(*buffer);
            }
            waiting.extend(self.kernel.exprs.operands(expr));
        }
        found
    }

    fn stmt(&mut self, stmt: &Stmt) -> Node {
        let mut local = Local::default();
        match stmt {
            Stmt::Loop { axis, body } => {
                let (body, register) = self.block(Some(*axis), body);
                Node::Loop { register, extent: self.kernel.axes[*axis].extent as u64, body }
            }
            Stmt::Set { var, value } => {
                let value = self.value(*value, &mut local);
                Node::Set { code: local.code, register: self.vars[*var], value }
            }
            Stmt::Store { buffer, index, value, guard } => {
                let place = self.place(*buffer, index, &mut local);
                let value = self.value(*value, &mut local);
                let guard = guard.map(|guard| self.value(guard, &mut local));
                Node::Store { code: local.code, place, value, guard }
            }
            Stmt::If { cond, then, otherwise } => {
                let cond = self.value(*cond, &mut local);
                let [then, otherwise] = [then, otherwise].map(|stmts| self.block(None, stmts).0);
                Node::If { code: local.code, cond, then, otherwise }
            }
            Stmt::While { cond, body } => {
                let cond = self.value(*cond, &mut local);
                let body = self.block(None, body).0;
                Node::While { code: local.code, cond, body }
            }
        }
    }

    fn place(&mut self, buffer: BufferId, index: &[ExprId], local: &mut Local) -> Place {
        let shape = self.program.buffers[buffer].ty.shape.clone();
        let strides = shape.strides();
        let index = index.iter().zip(shape.iter().zip(strides));
        Place {
            buffer,
            index: index.map(|(&index, (&extent, stride))| (self.value(index, local), extent as u64, stride)).collect(),
        }
    }

    fn depends(&mut self, id: ExprId) -> Depends {
        if let Some(depends) = self.depends.get(&id) {
            return depends.clone();
        }
        let mut depends = Depends::default();
        match self.kernel.exprs.get(id) {
            Expr::Axis(axis) => {
                depends.axes.insert(*axis);
            }
            Expr::Var(_) => depends.volatile = true,
            Expr::Load { buffer, .. } => depends.volatile = self.written.contains(buffer),
            _ => {}
        }
        for operand in self.kernel.exprs.operands(id) {
            let operand = self.depends(operand);
            depends.axes.extend(operand.axes);
            depends.volatile |= operand.volatile;
        }
        self.depends.insert(id, depends.clone());
        depends
    }

    /// The register of an expression, with the code that fills it.
    fn value(&mut self, id: ExprId, local: &mut Local) -> usize {
        match *self.kernel.exprs.get(id) {
            Expr::Const(_, bits) => {
                if let Some(&register) = self.constants.get(&bits) {
                    return register;
                }
                let register = self.register();
                self.constants.insert(bits, register);
                return register;
            }
            Expr::Var(var) => return self.vars[var],
            Expr::Axis(axis) => {
                let open = self.open.iter().rev().find(|open| open.axis == Some(axis));
                return open.unwrap_or_else(|| panic!("axis {axis} is used outside of its loop")).register;
            }
            _ => {}
        }
        let depends = self.depends(id);
        if depends.volatile {
            if let Some(&register) = local.known.get(&id) {
                return register;
            }
            let (register, inst) = self.instruction(id, local);
            local.code.push(inst);
            local.known.insert(id, register);
            return register;
        }
        let level = self.open.iter().rposition(|open| open.axis.is_some_and(|axis| depends.axes.contains(&axis))).unwrap_or(0);
        if let Some(&register) = self.open[level].known.get(&id) {
            return register;
        }
        let (register, inst) = self.instruction(id, local);
        self.open[level].prelude.push(inst);
        self.open[level].known.insert(id, register);
        register
    }

    fn instruction(&mut self, id: ExprId, local: &mut Local) -> (usize, Inst) {
        let expr = self.kernel.exprs.get(id).clone();
        if let Expr::Load { buffer, index, otherwise, .. } = &expr {
            let place = self.place(*buffer, index, local);
            let otherwise = otherwise.map(|otherwise| self.value(otherwise, local));
            self.loads.push(Load { place, otherwise });
            let to = self.register();
            return (to, Inst::Load { to, load: self.loads.len() - 1 });
        }
        let operands = self.kernel.exprs.operands(id);
        let dtype = self.kernel.exprs.dtype(operands[0]);
        let registers: Vec<usize> = operands.iter().map(|&operand| self.value(operand, local)).collect();
        let to = self.register();
        let a = registers[0];
        let inst = match expr {
            Expr::Unary(op, _) => Inst::Unary { function: primitive::unary(op, dtype), to, a },
            Expr::Cast(dtype_to, _) => Inst::Unary { function: primitive::cast(dtype, dtype_to), to, a },
            Expr::Bitcast(..) => Inst::Copy { to, a },
            Expr::Binary(op, ..) => Inst::Binary { function: primitive::binary(op, dtype), to, a, b: registers[1] },
            Expr::Fma(..) => Inst::Fma { to, operands: [a, registers[1], registers[2]] },
            Expr::Select(..) => Inst::Select { to, cond: a, a: registers[1], b: registers[2] },
            other => unreachable!("{other:?} was handled before"),
        };
        (to, inst)
    }
}
