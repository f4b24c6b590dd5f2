//! Expressions and indices.

use std::collections::BTreeSet;

use mcc_support::{DType, Error, Result, bail, ensure};

use crate::loops::expr::{Binary, Expr, ExprId, Unary};
use crate::loops::linear::{KernelRanges, Linear};
use crate::loops::{AxisId, BufferId, Kernel, Program, Role, Stmt, primitive, text};

/// Walks the statements of a kernel.
pub struct Checker<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    /// The loops around.
    open: Vec<AxisId>,
    /// Expressions that were found right inside of these loops, with how many there were.
    checked: Vec<BTreeSet<ExprId>>,
}

impl<'a> Checker<'a> {
    pub fn new(program: &'a Program, kernel: &'a Kernel) -> Self {
        Self { program, kernel, open: Vec::new(), checked: vec![BTreeSet::new()] }
    }

    pub fn stmts(&mut self, stmts: &[Stmt]) -> Result<()> {
        stmts.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<()> {
        stmt.exprs().into_iter().try_for_each(|root| self.expr(root))?;
        let is_bool = |id: ExprId| self.dtype(id) == DType::Bool;
        match stmt {
            Stmt::Loop { axis, body } => {
                let Some(described) = self.kernel.axes.get(*axis) else { bail!("a loop over {axis}, which does not exist") };
                ensure!(!self.open.contains(axis), "a loop over {} inside of one", described.name);
                self.open.push(*axis);
                self.checked.push(BTreeSet::new());
                self.stmts(body)?;
                self.checked.pop();
                self.open.pop();
            }
            Stmt::Set { var, value } => {
                let Some(&dtype) = self.kernel.vars.get(*var) else { bail!("%{var} is set but does not exist") };
                ensure!(dtype == self.dtype(*value), "%{var} is a {dtype} set to a {}", self.dtype(*value));
            }
            Stmt::Store { buffer, index, value, guard } => {
                let Some(described) = self.program.buffers.get(*buffer) else {
                    bail!("a store to {buffer}, which does not exist")
                };
                let (name, dtype) = (&described.name, described.ty.dtype);
                let given = matches!(described.role, Role::Input(_) | Role::Constant(_));
                ensure!(!given, "a store to @{name}, which is given");
                ensure!(dtype == self.dtype(*value), "a {} is stored to @{name}, which is of {dtype}", self.dtype(*value));
                self.index(*buffer, index, guard.is_some())?;
                ensure!(guard.is_none_or(is_bool), "a guard is not a bool");
            }
            Stmt::If { cond, then, otherwise } => {
                ensure!(is_bool(*cond), "a condition is not a bool");
                self.stmts(then)?;
                self.stmts(otherwise)?;
            }
            Stmt::While { cond, body } => {
                ensure!(is_bool(*cond), "a condition is not a bool");
                self.stmts(body)?;
            }
        }
        Ok(())
    }

    fn dtype(&self, id: ExprId) -> DType {
        self.kernel.exprs.dtype(id)
    }

    /// Checks an expression unless that was done in one of the loops around.
    fn expr(&mut self, id: ExprId) -> Result<()> {
        if self.checked.iter().any(|checked| checked.contains(&id)) {
            return Ok(());
        }
        self.kernel.exprs.operands(id).into_iter().try_for_each(|operand| self.expr(operand))?;
        self.node(id)?;
        self.checked.last_mut().expect("the kernel itself is open").insert(id);
        Ok(())
    }

    fn node(&self, id: ExprId) -> Result<()> {
        let dtypes: Vec<DType> = self.kernel.exprs.operands(id).into_iter().map(|operand| self.dtype(operand)).collect();
        match *self.kernel.exprs.get(id) {
            Expr::Const(dtype, bits) => ensure!(bits & !primitive::mask(dtype) == 0, "a constant {dtype} of bits {bits:#x}"),
            Expr::Axis(axis) => ensure!(self.open.contains(&axis), "axis {} is used outside of its loop", self.axis_name(axis)),
            Expr::Var(var) => {
                let known = self.kernel.vars.get(var).is_some_and(|&dtype| dtype == self.dtype(id));
                ensure!(known, "%{var} does not exist as a {}", self.dtype(id));
            }
            Expr::Param(..) => bail!("a parameter of a scalar function is left"),
            Expr::Load { buffer, ref index, otherwise, dtype } => {
                let Some(described) = self.program.buffers.get(buffer) else { bail!("a load of {buffer}, which does not exist") };
                ensure!(
                    described.ty.dtype == dtype,
                    "a {dtype} is loaded from @{}, which is of {}",
                    described.name,
                    described.ty.dtype
                );
                self.index(buffer, index, otherwise.is_some())?;
                let fits = otherwise.is_none_or(|otherwise| self.dtype(otherwise) == dtype);
                ensure!(fits, "a load of @{} has an alternative of another dtype", described.name);
            }
            Expr::Unary(op, _) => unary(op, dtypes[0])?,
            Expr::Binary(op, _, b) => {
                ensure!(dtypes[0] == dtypes[1], "{op:?} of {} and {}", dtypes[0], dtypes[1]);
                self.binary(op, dtypes[0], b)?;
            }
            Expr::Fma(..) => {
                let single = dtypes.iter().all(|&dtype| dtype == DType::F32);
                ensure!(single, "a multiply-add of {}, {} and {}", dtypes[0], dtypes[1], dtypes[2]);
            }
            Expr::Select(..) => {
                ensure!(dtypes[0] == DType::Bool, "a select by a {}", dtypes[0]);
                ensure!(dtypes[1] == dtypes[2], "a select of {} and {}", dtypes[1], dtypes[2]);
            }
            Expr::Cast(to, _) => ensure!(primitive::is_cast(dtypes[0], to), "a cast from {} to {to} is composed", dtypes[0]),
            Expr::Bitcast(to, _) => {
                ensure!(to.size_bits() == dtypes[0].size_bits(), "the bits of a {} as a {to}", dtypes[0]);
            }
        }
        Ok(())
    }

    fn axis_name(&self, axis: AxisId) -> &str {
        self.kernel.axes.get(axis).map_or("?", |axis| axis.name.as_str())
    }

    fn binary(&self, op: Binary, dtype: DType, b: ExprId) -> Result<()> {
        let constant = match *self.kernel.exprs.get(b) {
            Expr::Const(dtype, bits) if dtype.is_integer() => Some(primitive::integer(dtype, bits)),
            _ => None,
        };
        let integer = dtype.is_integer() && !dtype.is_packed();
        let float = matches!(dtype, DType::F32 | DType::F64);
        let defined = match op {
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Min | Binary::Max => integer || float,
            Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le => integer || float,
            Binary::Rem => integer,
            Binary::DivFloor | Binary::Mod => integer && constant.is_some_and(|value| value > 0),
            Binary::And | Binary::Or | Binary::Xor => integer || dtype == DType::Bool,
            Binary::Shl | Binary::Shr => integer && constant.is_none_or(|value| (0..dtype.size_bits() as i128).contains(&value)),
        };
        ensure!(defined, "{op:?} is not defined for these operands of {dtype}");
        Ok(())
    }

    /// An index has one number for each dimension, inside of the buffer.
    fn index(&self, buffer: BufferId, index: &[ExprId], may_be_outside: bool) -> Result<()> {
        let described = &self.program.buffers[buffer];
        let shape = &described.ty.shape;
        let name = &described.name;
        ensure!(index.len() == shape.rank(), "@{name} of rank {} is accessed by {} indices", shape.rank(), index.len());
        for &part in index {
            ensure!(self.dtype(part) == DType::I64, "an index of @{name} is a {}", self.dtype(part));
        }
        // Loops without a round do nothing.
        if may_be_outside || self.open.iter().any(|&axis| self.kernel.axes[axis].extent == 0) {
            return Ok(());
        }
        let ranges = KernelRanges { exprs: &self.kernel.exprs, axes: &self.kernel.axes };
        for (dim, (&part, &extent)) in index.iter().zip(shape.iter()).enumerate() {
            let (low, high) = Linear::of(&self.kernel.exprs, part).range(&ranges);
            if low < 0 || high >= extent as i64 {
                return Err(self.outside(name, dim, extent, part, (low, high)));
            }
        }
        Ok(())
    }

    fn outside(&self, name: &str, dim: usize, extent: usize, part: ExprId, (low, high): (i64, i64)) -> Error {
        let range = if low == i64::MIN { "not known".to_string() } else { format!("{low}..={high}") };
        let index = text::expr_text(&self.program.buffers, self.kernel, part);
        Error::new(format!("index {index} of dimension {dim} of @{name} may be outside of 0..{extent}: its range is {range}"))
    }
}

fn unary(op: Unary, dtype: DType) -> Result<()> {
    let integer = dtype.is_integer() && !dtype.is_packed();
    let float = matches!(dtype, DType::F32 | DType::F64);
    let defined = match op {
        Unary::Neg | Unary::Abs => integer || float,
        Unary::Not => integer || dtype == DType::Bool,
        Unary::Sqrt | Unary::Floor | Unary::Ceil | Unary::Trunc | Unary::Nearest => float,
    };
    ensure!(defined, "{op:?} is not defined for {dtype}");
    Ok(())
}
