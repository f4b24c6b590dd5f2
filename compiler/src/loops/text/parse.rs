//! Reads programs. What is read is not verified.

use std::collections::BTreeMap;

use mcc_support::text::{Lexer, Token};
use mcc_support::{DType, EntityId, EntityMap, Error, Result, Shape, TensorType};

use super::{BINARY, KINDS, MODES, UNARY};
use crate::graph::text::read_tensor;
use crate::loops::expr::{Binary, Expr, ExprId};
use crate::loops::{
    Axis, AxisId, AxisMode, Buffer, BufferId, Kernel, Limit, Needed, Program, Region, RegionId, RegionKind, Role, Stmt, VarId,
    primitive,
};

/// Largest buffer that a text may have, in bytes.
const MAX_BUFFER_BYTES: usize = 1 << 31;
/// How deep expressions and statements may be nested.
const MAX_DEPTH: usize = 200;

/// Reads one program.
pub fn parse(text: &str) -> Result<Program> {
    let mut lexer = Lexer::new(text)?;
    let mut program = Program::default();
    lexer.expect_word("program")?;
    program.name = lexer.string()?;
    lexer.expect("{")?;
    while !lexer.eat("}")? {
        if lexer.eat_word("buffer")? {
            let buffer = buffer(&mut lexer)?;
            if program.buffers.values().any(|other| other.name == buffer.name) {
                return Err(lexer.error(format!("@{} is defined twice", buffer.name)));
            }
            program.buffers.push(buffer);
        } else if lexer.eat_word("needed")? {
            let buffer = find_buffer(&mut lexer, &program.buffers)?;
            let needed = needed(&mut lexer)?;
            program.needed.insert(program.buffers[buffer].name.clone(), needed);
        } else if ["kernel", "latch", "while", "if", "unless"].iter().any(|word| lexer.is_word(word)) {
            item(&mut lexer, &mut program, None, 0)?;
        } else {
            let is_input = lexer.eat_word("input")?;
            if !is_input {
                lexer.expect_word("output")?;
            }
            let entry = (lexer.string()?, find_buffer(&mut lexer, &program.buffers)?);
            if is_input { program.inputs.push(entry) } else { program.outputs.push(entry) }
        }
    }
    if lexer.at_end() { Ok(program) } else { Err(lexer.error("text after the end of the program")) }
}

/// Reads a kernel or a region, inside of another.
fn item(lexer: &mut Lexer<'_>, program: &mut Program, parent: Option<RegionId>, depth: usize) -> Result<()> {
    if lexer.is_word("kernel") || lexer.is_word("latch") {
        let latch = lexer.eat_word("latch")?;
        let kernel = kernel(lexer, &program.buffers)?;
        program.kernels.push(Kernel { region: parent, latch, ..kernel });
        return Ok(());
    }
    if depth == MAX_DEPTH {
        return Err(lexer.error("regions are nested too deep"));
    }
    let word = lexer.word()?;
    let condition = find_buffer(lexer, &program.buffers)?;
    let kind = match word.as_str() {
        "while" => RegionKind::Loop { go: condition },
        "if" | "unless" => RegionKind::Branch { cond: condition, taken: word == "if" },
        other => return Err(lexer.error(format!("a region is not '{other}'"))),
    };
    let region = program.regions.push(Region { parent, kind });
    lexer.expect("{")?;
    while !lexer.eat("}")? {
        item(lexer, program, Some(region), depth + 1)?;
    }
    Ok(())
}

/// Reads one kernel over these buffers.
pub fn parse_kernel(text: &str, buffers: &EntityMap<BufferId, Buffer>) -> Result<Kernel> {
    let mut lexer = Lexer::new(text)?;
    let kernel = kernel(&mut lexer, buffers)?;
    if lexer.at_end() { Ok(kernel) } else { Err(lexer.error("text after the kernel")) }
}

fn dtype(lexer: &Lexer<'_>, name: &str) -> Result<DType> {
    DType::from_name(name).ok_or_else(|| lexer.error(format!("there is no element type '{name}'")))
}

fn buffer(lexer: &mut Lexer<'_>) -> Result<Buffer> {
    let name = lexer.name()?;
    lexer.expect(":")?;
    let word = lexer.word()?;
    let dtype = dtype(lexer, &word)?;
    lexer.expect("[")?;
    let mut dims: Vec<usize> = Vec::new();
    while !lexer.eat("]")? {
        dims.push(lexer.int()?);
        if !lexer.eat(",")? {
            lexer.expect("]")?;
            break;
        }
    }
    let ty = TensorType::new(dtype, Shape::new(dims));
    if ty.checked_size_bytes().is_none_or(|size| size > MAX_BUFFER_BYTES) {
        return Err(lexer.error(format!("a {ty} is too large")));
    }
    let role = match lexer.word()?.as_str() {
        "input" => Role::Input(lexer.int()?),
        "output" => Role::Output(lexer.int()?),
        "constant" => Role::Constant(read_tensor(lexer, &ty)?),
        "status" => Role::Status,
        "temporary" => Role::Temporary,
        "shared" => Role::Shared,
        "local" => Role::Local,
        other => return Err(lexer.error(format!("a buffer is not '{other}'"))),
    };
    Ok(Buffer { name, ty, role })
}

fn find_buffer(lexer: &mut Lexer<'_>, buffers: &EntityMap<BufferId, Buffer>) -> Result<BufferId> {
    let name = lexer.name()?;
    let found = buffers.iter().find(|(_, buffer)| buffer.name == name);
    found.map(|(id, _)| id).ok_or_else(|| lexer.error(format!("there is no buffer @{name}")))
}

fn kernel(lexer: &mut Lexer<'_>, buffers: &EntityMap<BufferId, Buffer>) -> Result<Kernel> {
    lexer.expect_word("kernel")?;
    let mut kernel = Kernel::new(lexer.name()?);
    lexer.expect("(")?;
    while !lexer.eat(")")? {
        let axis = axis(lexer)?;
        kernel.axes.push(axis);
        if !lexer.eat(",")? {
            lexer.expect(")")?;
            break;
        }
    }
    if lexer.eat_word("from")? {
        kernel.origins.push(lexer.string()?);
        while lexer.eat(",")? {
            kernel.origins.push(lexer.string()?);
        }
    }
    let mut parser = Parser { lexer, buffers, kernel, lets: BTreeMap::new(), depth: 0 };
    parser.lexer.expect("{")?;
    while parser.lexer.eat_word("var")? {
        let var = parser.kernel.vars.len();
        let name = parser.lexer.value()?;
        if name != VarId::new(var).to_string() {
            return Err(parser.lexer.error(format!("variables are named in order: expected %{}", VarId::new(var))));
        }
        parser.lexer.expect(":")?;
        let word = parser.lexer.word()?;
        let dtype = dtype(parser.lexer, &word)?;
        parser.kernel.vars.push(dtype);
    }
    parser.kernel.body = parser.stmts()?;
    Ok(parser.kernel)
}

fn axis(lexer: &mut Lexer<'_>) -> Result<Axis> {
    let name = lexer.word()?;
    lexer.expect(":")?;
    let kind = lexer.word()?;
    let Some(&(_, kind)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        return Err(lexer.error(format!("an axis is not '{kind}'")));
    };
    let extent = lexer.int()?;
    let mut mode = AxisMode::Serial;
    for (word, other) in MODES {
        if lexer.eat_word(word)? {
            mode = other;
        }
    }
    let limit = if lexer.eat_word("until")? { Some(limit(lexer)?) } else { None };
    Ok(Axis { name, extent, kind, mode, limit })
}

/// `[1, 128] [-, (input 2 * 1 + 0) / 1]`
fn needed(lexer: &mut Lexer<'_>) -> Result<Needed> {
    let mut list = |entry: &mut dyn FnMut(&mut Lexer<'_>) -> Result<()>| {
        lexer.expect("[")?;
        while !lexer.eat("]")? {
            entry(lexer)?;
            if !lexer.eat(",")? {
                lexer.expect("]")?;
                break;
            }
        }
        Ok::<(), Error>(())
    };
    let (mut shape, mut limits) = (Vec::new(), Vec::new());
    list(&mut |lexer| {
        shape.push(lexer.int()?);
        Ok(())
    })?;
    list(&mut |lexer| {
        limits.push(if lexer.eat("-")? { None } else { Some(limit(lexer)?) });
        Ok(())
    })?;
    Ok(Needed { shape, limits })
}

/// `(input 2 * 1 + 0) / 4`
fn limit(lexer: &mut Lexer<'_>) -> Result<Limit> {
    lexer.expect("(")?;
    lexer.expect_word("input")?;
    let input = lexer.int()?;
    lexer.expect("*")?;
    let mul = signed(lexer)?;
    lexer.expect("+")?;
    let add = signed(lexer)?;
    lexer.expect(")")?;
    lexer.expect("/")?;
    Ok(Limit { input, mul, add, div: signed(lexer)? })
}

fn signed(lexer: &mut Lexer<'_>) -> Result<i64> {
    let negative = lexer.eat("-")?;
    let value: i64 = lexer.int()?;
    Ok(if negative { -value } else { value })
}

struct Parser<'a, 'b> {
    lexer: &'a mut Lexer<'b>,
    buffers: &'a EntityMap<BufferId, Buffer>,
    kernel: Kernel,
    lets: BTreeMap<String, ExprId>,
    depth: usize,
}

impl Parser<'_, '_> {
    fn error(&self, message: impl std::fmt::Display) -> Error {
        self.lexer.error(message)
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.error("nested too deep"));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Up to the closing brace.
    fn stmts(&mut self) -> Result<Vec<Stmt>> {
        let mut stmts = Vec::new();
        while !self.lexer.eat("}")? {
            if self.lexer.eat_word("let")? {
                let name = self.lexer.value()?;
                self.lexer.expect("=")?;
                let value = self.expr()?;
                self.lets.insert(name, value);
            } else {
                stmts.push(self.stmt()?);
            }
        }
        Ok(stmts)
    }

    fn block(&mut self) -> Result<Vec<Stmt>> {
        self.lexer.expect("{")?;
        self.deeper(Self::stmts)
    }

    fn stmt(&mut self) -> Result<Stmt> {
        match self.lexer.next()? {
            Token::Word(word) if word == "for" => {
                let name = self.lexer.word()?;
                let axis = self.axis(&name)?;
                Ok(Stmt::Loop { axis, body: self.block()? })
            }
            Token::Word(word) if word == "if" => {
                let (cond, then) = (self.expr()?, self.block()?);
                let otherwise = if self.lexer.eat_word("else")? { self.block()? } else { Vec::new() };
                Ok(Stmt::If { cond, then, otherwise })
            }
            Token::Word(word) if word == "while" => Ok(Stmt::While { cond: self.expr()?, body: self.block()? }),
            Token::Value(name) => {
                let var = self.var(&name)?;
                self.lexer.expect("=")?;
                Ok(Stmt::Set { var, value: self.expr()? })
            }
            Token::Name(name) => {
                let buffer = self.buffer(&name)?;
                let index = self.list("[", "]")?;
                self.lexer.expect("=")?;
                let value = self.expr()?;
                let guard = if self.lexer.eat_word("if")? { Some(self.expr()?) } else { None };
                Ok(Stmt::Store { buffer, index, value, guard })
            }
            other => Err(self.error(format!("expected a statement, found {other:?}"))),
        }
    }

    fn axis(&self, name: &str) -> Result<AxisId> {
        let found = self.kernel.axes.iter().find(|(_, axis)| axis.name == name);
        found.map(|(id, _)| id).ok_or_else(|| self.error(format!("there is no axis {name}")))
    }

    fn var(&self, name: &str) -> Result<VarId> {
        let found = self.kernel.vars.keys().find(|var| var.to_string() == name);
        found.ok_or_else(|| self.error(format!("there is no variable %{name}")))
    }

    fn buffer(&self, name: &str) -> Result<BufferId> {
        let found = self.buffers.iter().find(|(_, buffer)| buffer.name == name);
        found.map(|(id, _)| id).ok_or_else(|| self.error(format!("there is no buffer @{name}")))
    }

    fn list(&mut self, open: &str, close: &str) -> Result<Vec<ExprId>> {
        self.lexer.expect(open)?;
        let mut list = Vec::new();
        while !self.lexer.eat(close)? {
            list.push(self.expr()?);
            if !self.lexer.eat(",")? {
                self.lexer.expect(close)?;
                break;
            }
        }
        Ok(list)
    }

    /// A sum.
    fn expr(&mut self) -> Result<ExprId> {
        self.deeper(|parser| {
            let mut sum = parser.product()?;
            loop {
                let op = if parser.lexer.eat("+")? {
                    Binary::Add
                } else if parser.lexer.eat("-")? {
                    Binary::Sub
                } else {
                    return Ok(sum);
                };
                let term = parser.product()?;
                sum = parser.binary(op, sum, term)?;
            }
        })
    }

    fn product(&mut self) -> Result<ExprId> {
        let mut product = self.atom()?;
        while self.lexer.eat("*")? {
            let factor = self.atom()?;
            product = self.binary(Binary::Mul, product, factor)?;
        }
        Ok(product)
    }

    fn binary(&mut self, op: Binary, a: ExprId, b: ExprId) -> Result<ExprId> {
        let (left, right) = (self.kernel.exprs.dtype(a), self.kernel.exprs.dtype(b));
        if left != right {
            return Err(self.error(format!("{op:?} of {left} and {right}")));
        }
        Ok(self.kernel.exprs.binary(op, a, b))
    }

    fn atom(&mut self) -> Result<ExprId> {
        match self.lexer.next()? {
            Token::Punct("-") => match self.lexer.next()? {
                Token::Int(value) => self.constant(DType::I64, &Token::Int(-value)),
                Token::Float(value) => self.constant(DType::F32, &Token::Float(-value)),
                other => Err(self.error(format!("expected a number, found {other:?}"))),
            },
            token @ Token::Int(_) => self.constant(DType::I64, &token),
            token @ Token::Float(_) => self.constant(DType::F32, &token),
            Token::Punct("(") => {
                let value = self.expr()?;
                let value = if self.lexer.eat_word("or")? { self.otherwise(value)? } else { value };
                self.lexer.expect(")")?;
                Ok(value)
            }
            Token::Value(name) => match self.lets.get(&name) {
                Some(&value) => Ok(value),
                None => {
                    let var = self.var(&name)?;
                    let dtype = self.kernel.vars[var];
                    Ok(self.kernel.exprs.var(var, dtype))
                }
            },
            Token::Name(name) => {
                let buffer = self.buffer(&name)?;
                let index = self.list("[", "]")?;
                Ok(self.kernel.exprs.load(buffer, self.buffers[buffer].ty.dtype, index))
            }
            Token::Word(word) if self.lexer.is_punct("(") => self.call(&word),
            Token::Word(word) if word == "true" || word == "false" => {
                Ok(self.kernel.exprs.add(Expr::Const(DType::Bool, u64::from(word == "true"))))
            }
            Token::Word(word) => {
                let axis = self.axis(&word)?;
                Ok(self.kernel.exprs.axis(axis))
            }
            other => Err(self.error(format!("expected an expression, found {other:?}"))),
        }
    }

    /// A load with what it gives outside of the buffer.
    fn otherwise(&mut self, load: ExprId) -> Result<ExprId> {
        let Expr::Load { buffer, index, otherwise: None, dtype } = self.kernel.exprs.get(load).clone() else {
            return Err(self.error("only a load has an 'or'"));
        };
        let otherwise = self.expr()?;
        if self.kernel.exprs.dtype(otherwise) != dtype {
            return Err(self.error(format!("a load of {dtype} or {}", self.kernel.exprs.dtype(otherwise))));
        }
        Ok(self.kernel.exprs.add(Expr::Load { buffer, index, otherwise: Some(otherwise), dtype }))
    }

    fn constant(&mut self, dtype: DType, token: &Token) -> Result<ExprId> {
        let bits = match (dtype, token) {
            (DType::F32, Token::Float(value)) => u64::from((*value as f32).to_bits()),
            (DType::F64, Token::Float(value)) => value.to_bits(),
            // By its bits.
            (_, Token::Int(value)) if dtype.is_float() => u64::try_from(*value).unwrap_or(0) & primitive::mask(dtype),
            (_, Token::Int(value)) if dtype.is_integer() => {
                let (low, high) = dtype.integer_range();
                if !(low..=high).contains(value) {
                    return Err(self.error(format!("{value} is not a {dtype}")));
                }
                *value as u64 & primitive::mask(dtype)
            }
            (_, other) => return Err(self.error(format!("expected a {dtype}, found {other:?}"))),
        };
        Ok(self.kernel.exprs.add(Expr::Const(dtype, bits)))
    }

    /// What stands before an opening parenthesis.
    fn call(&mut self, word: &str) -> Result<ExprId> {
        if let Some(dtype) = DType::from_name(word) {
            self.lexer.expect("(")?;
            let negative = self.lexer.eat("-")?;
            let token = match self.lexer.next()? {
                Token::Int(value) if negative => Token::Int(-value),
                Token::Float(value) if negative => Token::Float(-value),
                token => token,
            };
            self.lexer.expect(")")?;
            return self.constant(dtype, &token);
        }
        let operands = self.list("(", ")")?;
        if let Some((op, name)) = word.split_once('.') {
            let to = dtype(self.lexer, name)?;
            let &[a] = &operands[..] else { return Err(self.error(format!("{word} has one operand"))) };
            return match op {
                "cast" => Ok(self.kernel.exprs.add(Expr::Cast(to, a))),
                "bitcast" => Ok(self.kernel.exprs.add(Expr::Bitcast(to, a))),
                _ => Err(self.error(format!("there is no operation '{word}'"))),
            };
        }
        let unary = UNARY.iter().find(|(name, _)| *name == word);
        let binary = BINARY.iter().find(|(name, _)| *name == word);
        match (unary, binary, &operands[..]) {
            (Some(&(_, op)), _, &[a]) => Ok(self.kernel.exprs.unary(op, a)),
            (_, Some(&(_, op)), &[a, b]) => self.binary(op, a, b),
            (None, None, &[cond, a, b]) if word == "select" => Ok(self.kernel.exprs.select(cond, a, b)),
            (None, None, &[a, b, c]) if word == "fma" => Ok(self.kernel.exprs.add(Expr::Fma(a, b, c))),
            (None, None, _) if !["fma", "select"].contains(&word) => Err(self.error(format!("there is no operation '{word}'"))),
            _ => Err(self.error(format!("{word} has another number of operands than {}", operands.len()))),
        }
    }
}
