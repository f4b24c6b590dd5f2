//! Scalar expressions, hash-consed: equal expressions have one id, so sharing is free and a table indexed by id is a memo.

use std::collections::{BTreeSet, HashMap};

use mcc_support::{DType, EntityMap, entity_id};

use super::{AxisId, BufferId, VarId};

entity_id!(ExprId, "e");

/// One operation of an expression. Indices are `i64`. Arithmetic has the meaning of the kernel IR's operations of the same name, in
/// the dtype's width and sign: integers wrap, what is not said to be rounded once is not contracted. f16 and bf16 are only loaded, stored and converted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expr {
    /// By its bits.
    Const(DType, u64),
    /// The round of a loop around it.
    Axis(AxisId),
    /// The present value of a variable.
    Var(VarId),
    /// Operand of a scalar function (see [`Exprs::substitute`]); none is left in a kernel.
    Param(u32, DType),
    /// The element at `index`, all inside the buffer; or, with `otherwise`, that value where one is outside.
    Load {
        buffer: BufferId,
        index: Vec<ExprId>,
        otherwise: Option<ExprId>,
        dtype: DType,
    },
    Unary(Unary, ExprId),
    Binary(Binary, ExprId, ExprId),
    /// `a · b + c` of three `f32`, rounded once.
    Fma(ExprId, ExprId, ExprId),
    /// Of a `bool` and two of one dtype; only the chosen one need be defined.
    Select(ExprId, ExprId, ExprId),
    /// As `graph::Op::Cast`.
    Cast(DType, ExprId),
    /// The same bits as a dtype of the same width.
    Bitcast(DType, ExprId),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unary {
    Neg,
    Abs,
    /// `bool` or bits.
    Not,
    Sqrt,
    Floor,
    Ceil,
    Trunc,
    /// Ties to even.
    Nearest,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// Truncates for integers; see the kernel IR for 0.
    Div,
    /// Sign of the dividend. Integers only.
    Rem,
    /// Integers: floor of the quotient, by a positive constant.
    DivFloor,
    /// Integers: `a - b · div_floor(a, b)`, by a positive constant.
    Mod,
    /// `a < b ? a : b`.
    Min,
    /// `a > b ? a : b`.
    Max,
    And,
    Or,
    Xor,
    /// Amount of the same dtype, less than the width.
    Shl,
    /// Copies the sign of signed types.
    Shr,
    /// These give `bool`.
    Eq,
    Ne,
    Lt,
    Le,
}

impl Binary {
    pub fn is_comparison(self) -> bool {
        matches!(self, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le)
    }
}

/// The expressions of one kernel.
#[derive(Clone, Debug, Default)]
pub struct Exprs {
    nodes: EntityMap<ExprId, Expr>,
    dtypes: EntityMap<ExprId, DType>,
    ids: HashMap<Expr, ExprId>,
}

impl PartialEq for Exprs {
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes
    }
}

impl Exprs {
    /// The id of an expression, whose operands are here already.
    pub fn add(&mut self, expr: Expr) -> ExprId {
        if let Some(&id) = self.ids.get(&expr) {
            return id;
        }
        let dtype = self.infer(&expr);
        self.ids.insert(expr.clone(), ExprId(self.nodes.len() as u32));
        self.dtypes.push(dtype);
        self.nodes.push(expr)
    }

    fn infer(&self, expr: &Expr) -> DType {
        match *expr {
            Expr::Const(dtype, _) | Expr::Param(_, dtype) | Expr::Load { dtype, .. } | Expr::Cast(dtype, _) => dtype,
            Expr::Bitcast(dtype, _) => dtype,
            Expr::Axis(_) => DType::I64,
            Expr::Var(_) => panic!("a variable is added by Exprs::var"),
            Expr::Unary(_, a) | Expr::Fma(a, ..) => self.dtypes[a],
            Expr::Binary(op, a, _) => {
                if op.is_comparison() {
                    DType::Bool
                } else {
                    self.dtypes[a]
                }
            }
            Expr::Select(_, a, _) => self.dtypes[a],
        }
    }

    pub fn var(&mut self, var: VarId, dtype: DType) -> ExprId {
        let expr = Expr::Var(var);
        if let Some(&id) = self.ids.get(&expr) {
            return id;
        }
        self.ids.insert(expr.clone(), ExprId(self.nodes.len() as u32));
        self.dtypes.push(dtype);
        self.nodes.push(expr)
    }

    pub fn get(&self, id: ExprId) -> &Expr {
        &self.nodes[id]
    }

    pub fn dtype(&self, id: ExprId) -> DType {
        self.dtypes[id]
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// An index constant.
    pub fn int(&mut self, value: i64) -> ExprId {
        self.add(Expr::Const(DType::I64, value as u64))
    }

    pub fn f32(&mut self, value: f32) -> ExprId {
        self.add(Expr::Const(DType::F32, u64::from(value.to_bits())))
    }

    pub fn axis(&mut self, axis: AxisId) -> ExprId {
        self.add(Expr::Axis(axis))
    }

    pub fn load(&mut self, buffer: BufferId, dtype: DType, index: Vec<ExprId>) -> ExprId {
        self.add(Expr::Load { buffer, index, otherwise: None, dtype })
    }

    pub fn unary(&mut self, op: Unary, a: ExprId) -> ExprId {
        self.add(Expr::Unary(op, a))
    }

    pub fn binary(&mut self, op: Binary, a: ExprId, b: ExprId) -> ExprId {
        self.add(Expr::Binary(op, a, b))
    }

    pub fn select(&mut self, cond: ExprId, a: ExprId, b: ExprId) -> ExprId {
        self.add(Expr::Select(cond, a, b))
    }

    pub fn cast(&mut self, dtype: DType, a: ExprId) -> ExprId {
        if self.dtype(a) == dtype { a } else { self.add(Expr::Cast(dtype, a)) }
    }

    /// The value of an index constant.
    pub fn as_int(&self, id: ExprId) -> Option<i64> {
        match self.nodes[id] {
            Expr::Const(DType::I64, bits) => Some(bits as i64),
            _ => None,
        }
    }

    /// The operands of an expression.
    pub fn operands(&self, id: ExprId) -> Vec<ExprId> {
        match &self.nodes[id] {
            Expr::Const(..) | Expr::Axis(_) | Expr::Var(_) | Expr::Param(..) => Vec::new(),
            Expr::Load { index, otherwise, .. } => index.iter().copied().chain(*otherwise).collect(),
            Expr::Unary(_, a) | Expr::Cast(_, a) | Expr::Bitcast(_, a) => vec![*a],
            Expr::Binary(_, a, b) => vec![*a, *b],
            Expr::Fma(a, b, c) | Expr::Select(a, b, c) => vec![*a, *b, *c],
        }
    }

    /// Whether an expression depends on the round of an axis by itself, not through variables.
    pub fn uses_axis(&self, root: ExprId, axis: AxisId) -> bool {
        let mut open = vec![root];
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if self.nodes[id] == Expr::Axis(axis) {
                return true;
            }
            if seen.insert(id) {
                open.extend(self.operands(id));
            }
        }
        false
    }

    /// Copies `root` from `from` (which may be a clone of these) bottom-up; `replace` is asked of every node first, with this pool
    /// to build in, and what it gives stands for the node. Nodes are visited once.
    pub fn copy(
        &mut self,
        from: &Exprs,
        root: ExprId,
        memo: &mut HashMap<ExprId, ExprId>,
        replace: &mut dyn FnMut(&mut Exprs, &Expr) -> Option<ExprId>,
    ) -> ExprId {
        if let Some(&done) = memo.get(&root) {
            return done;
        }
        let expr = from.get(root);
        let id = match replace(self, expr) {
            Some(id) => id,
            None => {
                let operands: Vec<ExprId> =
                    from.operands(root).into_iter().map(|operand| self.copy(from, operand, memo, replace)).collect();
                self.rebuild(expr, from.dtype(root), &operands)
            }
        };
        memo.insert(root, id);
        id
    }

    /// The same operation on these operands.
    pub fn rebuild(&mut self, expr: &Expr, dtype: DType, operands: &[ExprId]) -> ExprId {
        let expr = match expr.clone() {
            Expr::Var(var) => return self.var(var, dtype),
            leaf @ (Expr::Const(..) | Expr::Axis(_) | Expr::Param(..)) => leaf,
            Expr::Load { buffer, index, otherwise, .. } => {
                let count = index.len();
                Expr::Load { buffer, index: operands[..count].to_vec(), otherwise: otherwise.map(|_| operands[count]), dtype }
            }
            Expr::Unary(op, _) => Expr::Unary(op, operands[0]),
            Expr::Cast(dtype, _) => Expr::Cast(dtype, operands[0]),
            Expr::Bitcast(dtype, _) => Expr::Bitcast(dtype, operands[0]),
            Expr::Binary(op, ..) => Expr::Binary(op, operands[0], operands[1]),
            Expr::Fma(..) => Expr::Fma(operands[0], operands[1], operands[2]),
            Expr::Select(..) => Expr::Select(operands[0], operands[1], operands[2]),
        };
        self.add(expr)
    }

    /// An expression with its parameters replaced.
    pub fn substitute(&mut self, from: &Exprs, root: ExprId, arguments: &[ExprId]) -> ExprId {
        self.copy(from, root, &mut HashMap::new(), &mut |_, expr| match expr {
            Expr::Param(index, _) => Some(arguments[*index as usize]),
            _ => None,
        })
    }
}
