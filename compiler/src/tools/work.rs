//! What a kernel of the loop IR does: operations on floats, and bytes that it touches.

use std::collections::{BTreeMap, BTreeSet};

use crate::loops::{Binary, BufferId, Expr, ExprId, Kernel, Program, Role, Stmt};
use crate::plan::{MemoryPlan, size_bytes};

/// Counts of one call.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// Additions, products, maxima and the like of floats.
    pub operations: f64,
    /// Places that they take in the units that multiply and add: a product that is added at once takes one with its addition.
    pub slots: f64,
    /// Bytes of all buffers that are read, each once; weights apart.
    pub read_bytes: f64,
    pub weights_bytes: f64,
    pub written_bytes: f64,
}

impl Work {
    pub fn bytes(&self) -> f64 {
        self.read_bytes + self.weights_bytes + self.written_bytes
    }
}

/// What a kernel does where every condition holds and every loop runs in full; loops until a condition run one round.
pub fn work(program: &Program, plan: &MemoryPlan, kernel: &Kernel) -> Work {
    let mut counter = Counter { kernel, work: Work::default(), loads: BTreeMap::new(), stores: BTreeMap::new() };
    counter.block(&kernel.body, 1.0);
    let Counter { mut work, loads, stores, .. } = counter;
    for (touched, is_store) in [(loads, false), (stores, true)] {
        for (id, elements) in touched {
            let buffer = &program.buffers[id];
            let element_bytes = buffer.ty.dtype.size_bits() as f64 / 8.0;
            let bytes = (elements * element_bytes).min(size_bytes(buffer, &plan.layouts[id]) as f64);
            match buffer.role {
                // Rows and tiles stay near.
                Role::Local => {}
                Role::Constant(_) => work.weights_bytes += bytes,
                _ if is_store => work.written_bytes += bytes,
                _ => work.read_bytes += bytes,
            }
        }
    }
    work
}

struct Counter<'k> {
    kernel: &'k Kernel,
    work: Work,
    /// How many elements are loaded and stored, in all.
    loads: BTreeMap<BufferId, f64>,
    stores: BTreeMap<BufferId, f64>,
}

impl Counter<'_> {
    fn block(&mut self, stmts: &[Stmt], rounds: f64) {
        for stmt in stmts {
            let mut seen = BTreeSet::new();
            stmt.exprs().into_iter().for_each(|root| self.expr(root, rounds, &mut seen));
            match stmt {
                Stmt::Loop { axis, body } => self.block(body, rounds * self.kernel.axes[*axis].extent as f64),
                Stmt::While { body, .. } => self.block(body, rounds),
                Stmt::If { then, otherwise, .. } => {
                    self.block(then, rounds);
                    self.block(otherwise, rounds);
                }
                Stmt::Store { buffer, .. } => *self.stores.entry(*buffer).or_default() += rounds,
                Stmt::Set { .. } => {}
            }
        }
    }

    /// An expression and what it is made of, each once.
    fn expr(&mut self, id: ExprId, rounds: f64, seen: &mut BTreeSet<ExprId>) {
        if !seen.insert(id) {
            return;
        }
        let exprs = &self.kernel.exprs;
        let operands = exprs.operands(id);
        match exprs.get(id) {
            Expr::Load { buffer, .. } => *self.loads.entry(*buffer).or_default() += rounds,
            Expr::Unary(..) | Expr::Binary(..) if operands.iter().all(|&operand| exprs.dtype(operand).is_float()) => {
                let is_product = |&operand: &ExprId| matches!(exprs.get(operand), Expr::Binary(Binary::Mul, ..));
                let joins =
                    matches!(exprs.get(id), Expr::Binary(Binary::Add | Binary::Sub, ..)) && operands.iter().any(is_product);
                self.work.operations += rounds;
                self.work.slots += if joins { 0.0 } else { rounds };
            }
            Expr::Fma(..) => {
                self.work.operations += 2.0 * rounds;
                self.work.slots += rounds;
            }
            _ => {}
        }
        operands.into_iter().for_each(|operand| self.expr(operand, rounds, seen));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::driver::{Options, Silent, compile_graph};
    use crate::graph::text;

    /// The work of all kernels of a graph, as it is scheduled for this machine.
    fn of_graph(body: &str) -> Work {
        let graph = text::parse(&format!("graph \"g\" {{\n{body}}}\n")).unwrap();
        let options = Options { name: Some("g".into()), ..Options::new("g.onnx") };
        let compilation = compile_graph(graph, &options, &mut Silent).unwrap();
        let realized = compilation.realized();
        let mut all = Work::default();
        for kernel in &realized.program.kernels {
            let one = work(&realized.program, &realized.plan, kernel);
            all.operations += one.operations;
            all.slots += one.slots;
            all.read_bytes += one.read_bytes;
            all.weights_bytes += one.weights_bytes;
            all.written_bytes += one.written_bytes;
        }
        all
    }

    #[test]
    fn products_and_bytes_of_a_matrix_product_are_those_of_the_formula() {
        let work = of_graph(
            "  input %x \"x\" : f32[6,32]\n  input %w \"w\" : f32[32,16]\n  %y = contract %x, %w {labels \"mk,kn->mn\"} : f32[6,16]\n  output %y \"y\"\n",
        );
        assert_eq!(work.operations, 2.0 * 6.0 * 32.0 * 16.0);
        assert_eq!(work.slots, 6.0 * 32.0 * 16.0);
        assert_eq!((work.read_bytes, work.weights_bytes), (4.0 * (6.0 * 32.0 + 32.0 * 16.0), 0.0));
        assert_eq!(work.written_bytes, 4.0 * 6.0 * 16.0);
    }

    #[test]
    fn integers_are_no_work_of_floats_and_parts_of_buffers_count_as_parts() {
        let work = of_graph("  input %x \"x\" : i64[64]\n  %y = add %x, %x : i64[64]\n  output %y \"y\"\n");
        assert_eq!((work.operations, work.read_bytes, work.written_bytes), (0.0, 512.0, 512.0));
        let work = of_graph(
            "  input %x \"x\" : f32[64,8]\n  %s = slice %x {axes [8:1:4, 0:1:8]} : f32[4,8]\n  %y = mul %s, %s : f32[4,8]\n  output %y \"y\"\n",
        );
        assert_eq!((work.operations, work.read_bytes, work.written_bytes), (32.0, 128.0, 128.0));
    }
}
