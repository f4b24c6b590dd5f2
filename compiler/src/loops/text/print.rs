//! Prints programs.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use mcc_support::text::quote;
use mcc_support::{DType, EntityMap};

use super::{BINARY, KINDS, MODES, UNARY, name_of};
use crate::graph::text::tensor_text;
use crate::loops::expr::{Binary, Expr, ExprId};
use crate::loops::regions::Item;
use crate::loops::{Buffer, BufferId, Kernel, Limit, Program, RegionKind, Role, Stmt};

/// The text with every constant in full.
pub fn to_text(program: &Program) -> String {
    let mut text = String::new();
    print(program, true, &mut text).expect("writing to a string does not fail");
    text
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self, false, f)
    }
}

fn print(program: &Program, full: bool, out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "program {} {{", quote(&program.name))?;
    for buffer in program.buffers.values() {
        write!(out, "  buffer @{} : {} ", buffer.name, buffer.ty)?;
        match &buffer.role {
            Role::Input(place) => writeln!(out, "input {place}")?,
            Role::Output(place) => writeln!(out, "output {place}")?,
            Role::Constant(tensor) => writeln!(out, "constant {}", tensor_text(tensor, full))?,
            Role::Status => writeln!(out, "status")?,
            Role::Temporary => writeln!(out, "temporary")?,
            Role::Shared => writeln!(out, "shared")?,
            Role::Local => writeln!(out, "local")?,
        }
    }
    for (what, list) in [("input", &program.inputs), ("output", &program.outputs)] {
        for (name, buffer) in list {
            writeln!(out, "  {what} {} @{}", quote(name), program.buffers[*buffer].name)?;
        }
    }
    for (name, needed) in &program.needed {
        let limits: Vec<String> = needed.limits.iter().map(|limit| limit.map_or_else(|| "-".to_string(), limit_text)).collect();
        writeln!(out, "  needed @{name} {:?} [{}]", needed.shape, limits.join(", "))?;
    }
    print_items(program, &program.items(), 1, out)?;
    out.write_str("}\n")
}

fn limit_text(limit: Limit) -> String {
    format!("(input {} * {} + {}) / {}", limit.input, limit.mul, limit.add, limit.div)
}

fn print_items(program: &Program, items: &[Item], depth: usize, out: &mut dyn Write) -> fmt::Result {
    for item in items {
        match item {
            Item::Kernel(place) => print_kernel(&program.buffers, &program.kernels[*place], depth, out)?,
            Item::Region(region, items) => {
                let kind = program.regions[*region].kind;
                let word = match kind {
                    RegionKind::Loop { .. } => "while",
                    RegionKind::Branch { taken: true, .. } => "if",
                    RegionKind::Branch { taken: false, .. } => "unless",
                };
                writeln!(out, "{:2$}{word} @{} {{", "", program.buffers[kind.condition()].name, 2 * depth)?;
                print_items(program, items, depth + 1, out)?;
                writeln!(out, "{:1$}}}", "", 2 * depth)?;
            }
        }
    }
    Ok(())
}

/// The text of one kernel of a program with these buffers.
pub fn kernel_text(buffers: &EntityMap<BufferId, Buffer>, kernel: &Kernel) -> String {
    let mut text = String::new();
    print_kernel(buffers, kernel, 0, &mut text).expect("writing to a string does not fail");
    text
}

/// The text of one expression of a kernel, without lets.
pub fn expr_text(buffers: &EntityMap<BufferId, Buffer>, kernel: &Kernel, id: ExprId) -> String {
    let printer = Printer { buffers, kernel, depth: 0, lets: 0, out: &mut String::new() };
    printer.expr(id, Tightness::Sum, &Lets::new())
}

fn print_kernel(buffers: &EntityMap<BufferId, Buffer>, kernel: &Kernel, depth: usize, out: &mut dyn Write) -> fmt::Result {
    let axes: Vec<String> = kernel
        .axes
        .values()
        .map(|axis| {
            let kind = name_of(&KINDS, axis.kind).expect("every kind has a name");
            let mode = name_of(&MODES, axis.mode).map_or_else(String::new, |mode| format!(" {mode}"));
            let limit = axis.limit.map_or_else(String::new, |limit| format!(" until {}", limit_text(limit)));
            format!("{}: {kind} {}{mode}{limit}", axis.name, axis.extent)
        })
        .collect();
    let origins: Vec<String> = kernel.origins.iter().map(|origin| quote(origin)).collect();
    let from = if origins.is_empty() { String::new() } else { format!(" from {}", origins.join(", ")) };
    let mut printer = Printer { buffers, kernel, depth: depth + 1, lets: 0, out };
    let latch = if kernel.latch { "latch " } else { "" };
    printer.line_at(depth, &format!("{latch}kernel @{} ({}){from} {{", kernel.name, axes.join(", ")))?;
    for (var, dtype) in kernel.vars.iter() {
        printer.line(&format!("var %{var} : {dtype}"))?;
    }
    printer.stmts(&kernel.body)?;
    printer.line_at(depth, "}")
}

struct Printer<'a> {
    buffers: &'a EntityMap<BufferId, Buffer>,
    kernel: &'a Kernel,
    depth: usize,
    /// How many lets were printed.
    lets: usize,
    out: &'a mut dyn Write,
}

/// How tightly an expression binds, from a sum to what stands by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tightness {
    Sum,
    Product,
    Atom,
}

type Lets = BTreeMap<ExprId, String>;

impl Printer<'_> {
    fn line_at(&mut self, depth: usize, text: &str) -> fmt::Result {
        writeln!(self.out, "{:1$}{text}", "", depth * 2)
    }

    fn line(&mut self, text: &str) -> fmt::Result {
        self.line_at(self.depth, text)
    }

    fn nested(&mut self, stmts: &[Stmt]) -> fmt::Result {
        self.depth += 1;
        let result = self.stmts(stmts);
        self.depth -= 1;
        result
    }

    fn stmts(&mut self, stmts: &[Stmt]) -> fmt::Result {
        stmts.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn stmt(&mut self, stmt: &Stmt) -> fmt::Result {
        let lets = self.lets(stmt)?;
        let text = |id: ExprId| self.expr(id, Tightness::Sum, &lets);
        match stmt {
            Stmt::Loop { axis, body } => {
                self.line(&format!("for {} {{", self.kernel.axes[*axis].name))?;
                self.nested(body)?;
                self.line("}")
            }
            Stmt::Set { var, value } => self.line(&format!("%{var} = {}", text(*value))),
            Stmt::Store { buffer, index, value, guard } => {
                let index: Vec<String> = index.iter().map(|&index| text(index)).collect();
                let guard = guard.map_or_else(String::new, |guard| format!(" if {}", text(guard)));
                let name = &self.buffers[*buffer].name;
                self.line(&format!("@{name}[{}] = {}{guard}", index.join(", "), text(*value)))
            }
            Stmt::If { cond, then, otherwise } => {
                self.line(&format!("if {} {{", text(*cond)))?;
                self.nested(then)?;
                if !otherwise.is_empty() {
                    self.line("} else {")?;
                    self.nested(otherwise)?;
                }
                self.line("}")
            }
            Stmt::While { cond, body } => {
                self.line(&format!("while {} {{", text(*cond)))?;
                self.nested(body)?;
                self.line("}")
            }
        }
    }

    /// Names what the statement uses several times.
    fn lets(&mut self, stmt: &Stmt) -> Result<Lets, fmt::Error> {
        let mut uses: BTreeMap<ExprId, usize> = BTreeMap::new();
        let mut order = Vec::new();
        stmt.exprs().into_iter().for_each(|root| self.count(root, &mut uses, &mut order));
        let mut lets = Lets::new();
        for id in order {
            let is_leaf = matches!(self.kernel.exprs.get(id), Expr::Const(..) | Expr::Axis(_) | Expr::Var(_));
            if uses[&id] > 1 && !is_leaf {
                let text = self.expr(id, Tightness::Sum, &lets);
                self.line(&format!("let %t{} = {text}", self.lets))?;
                lets.insert(id, format!("%t{}", self.lets));
                self.lets += 1;
            }
        }
        Ok(lets)
    }

    /// Counts uses; `order` lists operands before what they are used in.
    fn count(&self, id: ExprId, uses: &mut BTreeMap<ExprId, usize>, order: &mut Vec<ExprId>) {
        let count = uses.entry(id).or_insert(0);
        *count += 1;
        if *count == 1 {
            self.kernel.exprs.operands(id).into_iter().for_each(|operand| self.count(operand, uses, order));
            order.push(id);
        }
    }

    fn expr(&self, id: ExprId, around: Tightness, lets: &Lets) -> String {
        if let Some(name) = lets.get(&id) {
            return name.clone();
        }
        let inner = |id: ExprId| self.expr(id, Tightness::Sum, lets);
        let call = |name: &str, operands: &[ExprId]| {
            let operands: Vec<String> = operands.iter().map(|&operand| inner(operand)).collect();
            format!("{name}({})", operands.join(", "))
        };
        match self.kernel.exprs.get(id) {
            Expr::Const(dtype, bits) => constant(*dtype, *bits),
            Expr::Axis(axis) => self.kernel.axes[*axis].name.clone(),
            Expr::Var(var) => format!("%{var}"),
            Expr::Param(index, dtype) => format!("param.{dtype}({index})"),
            Expr::Load { buffer, index, otherwise, .. } => {
                let index: Vec<String> = index.iter().map(|&index| inner(index)).collect();
                let load = format!("@{}[{}]", self.buffers[*buffer].name, index.join(", "));
                match otherwise {
                    Some(otherwise) => format!("({load} or {})", self.expr(*otherwise, Tightness::Sum, lets)),
                    None => load,
                }
            }
            Expr::Unary(op, a) => call(name_of(&UNARY, *op).expect("every operation has a name"), &[*a]),
            Expr::Binary(op @ (Binary::Add | Binary::Sub | Binary::Mul), a, b) => {
                let (sign, tightness, right) = match op {
                    Binary::Add => ("+", Tightness::Sum, Tightness::Product),
                    Binary::Sub => ("-", Tightness::Sum, Tightness::Product),
                    _ => ("*", Tightness::Product, Tightness::Atom),
                };
                let text = format!("{} {sign} {}", self.expr(*a, tightness, lets), self.expr(*b, right, lets));
                if tightness < around { format!("({text})") } else { text }
            }
            Expr::Binary(op, a, b) => call(name_of(&BINARY, *op).expect("every operation has a name"), &[*a, *b]),
            Expr::Fma(a, b, c) => call("fma", &[*a, *b, *c]),
            Expr::Select(cond, a, b) => call("select", &[*cond, *a, *b]),
            Expr::Cast(dtype, a) => call(&format!("cast.{dtype}"), &[*a]),
            Expr::Bitcast(dtype, a) => call(&format!("bitcast.{dtype}"), &[*a]),
        }
    }
}

fn constant(dtype: DType, bits: u64) -> String {
    let decimal = match dtype {
        DType::Bool => return (bits != 0).to_string(),
        DType::F32 => {
            let value = f32::from_bits(bits as u32);
            let text = format!("{value:?}");
            let reads_back = text.parse::<f64>().is_ok_and(|read| (read as f32).to_bits() == value.to_bits());
            if value.is_finite() && reads_back { Some(text) } else { None }
        }
        DType::F64 => {
            let value = f64::from_bits(bits);
            if value.is_finite() { Some(format!("{value:?}")) } else { None }
        }
        float if float.is_float() => None,
        integer => Some(crate::loops::primitive::integer(integer, bits).to_string()),
    };
    match (dtype, decimal) {
        (DType::I64 | DType::F32, Some(text)) => text,
        (_, Some(text)) => format!("{dtype}({text})"),
        (_, None) => format!("{dtype}({bits:#x})"),
    }
}
