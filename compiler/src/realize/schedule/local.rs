//! Rounds of an axis that run together get a part of their own of each local buffer that they shared.
//!
//! ```text
//! for y { for x { row[x] = … }  for x { … row[x] … } }   →   for y { for x { row[y, x] = … }  for x { … row[y, x] … } }
//! ```

use std::collections::{BTreeSet, HashMap};

use mcc_support::{EntityMap, Result, TensorType, ensure};

use crate::loops::{AxisId, Buffer, BufferId, Expr, ExprId, Kernel, Role, Stmt};

/// Of the caches of all machines, about.
const LINE_BYTES: usize = 64;

/// Gives each round of `axis` its part of the local buffers that all rounds store to.
pub fn divide(kernel: &mut Kernel, buffers: &mut EntityMap<BufferId, Buffer>, axis: AxisId) -> Result<()> {
    let mut found = Vec::new();
    places(kernel, buffers, axis, &kernel.body, false, &mut found);
    let shares = |place: &&Place| place.inside && place.is_store && !place.apart;
    let shared: BTreeSet<BufferId> = found.iter().filter(shares).map(|place| place.buffer).collect();
    let mut dims = HashMap::new();
    for buffer in shared {
        let places: Vec<&Place> = found.iter().filter(|place| place.buffer == buffer).collect();
        let mut inside = !places[0].inside;
        for place in &places {
            ensure!(
                place.inside == inside || place.is_store,
                "rounds of axis {} share @{} with what is around them",
                kernel.axes[axis].name,
                buffers[buffer].name
            );
            inside = place.inside;
        }
        let (extent, ty) = (kernel.axes[axis].extent, &buffers[buffer].ty);
        // Where rounds of another axis have parts already, which these do not use.
        let free = |&dim: &usize| {
            let unused = |place: &&Place| !place.inside || kernel.exprs.as_int(place.index[dim]) == Some(0);
            ty.shape[dim] >= extent && places.iter().all(unused)
        };
        let dim = (0..ty.rank()).find(free);
        if dim.is_none() {
            let mut shape: Vec<usize> = [extent].into_iter().chain(ty.shape.iter().copied()).collect();
            // Parts that fill lines of the cache begin at lines.
            let (bytes, size) = (ty.shape.count() * ty.dtype.size_bytes(), ty.dtype.size_bytes());
            if let Some(row) = shape.last_mut()
                && ty.rank() > 0
                && bytes > LINE_BYTES
                && LINE_BYTES.is_multiple_of(size)
            {
                *row = row.next_multiple_of(LINE_BYTES / size);
            }
            buffers[buffer].ty = TensorType::new(ty.dtype, shape);
        }
        dims.insert(buffer, dim);
    }
    if !dims.is_empty() {
        let body = std::mem::take(&mut kernel.body);
        kernel.body = Divide { axis, dims, memo: [HashMap::new(), HashMap::new()] }.stmts(kernel, body, false);
    }
    Ok(())
}

/// Where a local buffer is loaded or stored.
struct Place {
    buffer: BufferId,
    index: Vec<ExprId>,
    is_store: bool,
    /// Whether that is in the loop over the axis.
    inside: bool,
    /// Whether its rounds do not have it in common.
    apart: bool,
}

/// All of them, in the order in which they run.
fn places(
    kernel: &Kernel,
    buffers: &EntityMap<BufferId, Buffer>,
    axis: AxisId,
    stmts: &[Stmt],
    inside: bool,
    found: &mut Vec<Place>,
) {
    let place = |buffer: BufferId, index: &[ExprId], is_store: bool| {
        let apart = index.iter().any(|&index| kernel.exprs.uses_axis(index, axis));
        (buffers[buffer].role == Role::Local).then(|| Place { buffer, index: index.to_vec(), is_store, inside, apart })
    };
    for stmt in stmts {
        for load in crate::loops::sites::reachable(kernel, stmt.exprs()) {
            if let Expr::Load { buffer, index, .. } = kernel.exprs.get(load) {
                found.extend(place(*buffer, index, false));
            }
        }
        match stmt {
            Stmt::Store { buffer, index, .. } => found.extend(place(*buffer, index, true)),
            Stmt::Loop { axis: other, body } => places(kernel, buffers, axis, body, inside || *other == axis, found),
            Stmt::If { then, otherwise, .. } => {
                places(kernel, buffers, axis, then, inside, found);
                places(kernel, buffers, axis, otherwise, inside, found);
            }
            Stmt::While { body, .. } => places(kernel, buffers, axis, body, inside, found),
            Stmt::Set { .. } => {}
        }
    }
}

struct Divide {
    axis: AxisId,
    /// The dimension for the rounds, where the buffer has one that they may use; else it is put before the others.
    dims: HashMap<BufferId, Option<usize>>,
    /// Outside of the loop over the axis and inside.
    memo: [HashMap<ExprId, ExprId>; 2],
}

impl Divide {
    fn index(&self, kernel: &mut Kernel, buffer: BufferId, mut index: Vec<ExprId>, inside: bool) -> Vec<ExprId> {
        let Some(&dim) = self.dims.get(&buffer) else { return index };
        let round = if inside { kernel.exprs.axis(self.axis) } else { kernel.exprs.int(0) };
        match dim {
            Some(dim) if inside => index[dim] = round,
            Some(_) => {}
            None => index.insert(0, round),
        }
        index
    }

    fn expr(&mut self, kernel: &mut Kernel, id: ExprId, inside: bool) -> ExprId {
        if let Some(&done) = self.memo[usize::from(inside)].get(&id) {
            return done;
        }
        let operands: Vec<ExprId> =
            kernel.exprs.operands(id).into_iter().map(|operand| self.expr(kernel, operand, inside)).collect();
        let expr = kernel.exprs.get(id).clone();
        let copy = match expr {
            Expr::Load { buffer, index, otherwise, dtype } => {
                let (index, rest) = operands.split_at(index.len());
                let index = self.index(kernel, buffer, index.to_vec(), inside);
                kernel.exprs.add(Expr::Load { buffer, index, otherwise: otherwise.map(|_| rest[0]), dtype })
            }
            _ => kernel.exprs.rebuild(&expr, kernel.exprs.dtype(id), &operands),
        };
        self.memo[usize::from(inside)].insert(id, copy);
        copy
    }

    fn stmts(&mut self, kernel: &mut Kernel, stmts: Vec<Stmt>, inside: bool) -> Vec<Stmt> {
        let mut copy = |stmt| match stmt {
            Stmt::Loop { axis, body } => Stmt::Loop { axis, body: self.stmts(kernel, body, inside || axis == self.axis) },
            Stmt::Set { var, value } => Stmt::Set { var, value: self.expr(kernel, value, inside) },
            Stmt::Store { buffer, index, value, guard } => {
                let index = index.into_iter().map(|index| self.expr(kernel, index, inside)).collect();
                let (value, guard) = (self.expr(kernel, value, inside), guard.map(|guard| self.expr(kernel, guard, inside)));
                Stmt::Store { buffer, index: self.index(kernel, buffer, index, inside), value, guard }
            }
            Stmt::If { cond, then, otherwise } => Stmt::If {
                cond: self.expr(kernel, cond, inside),
                then: self.stmts(kernel, then, inside),
                otherwise: self.stmts(kernel, otherwise, inside),
            },
            Stmt::While { cond, body } => {
                Stmt::While { cond: self.expr(kernel, cond, inside), body: self.stmts(kernel, body, inside) }
            }
        };
        stmts.into_iter().map(&mut copy).collect()
    }
}

#[cfg(test)]
mod tests {
    use mcc_support::Tensor;

    use crate::decisions::Step;
    use crate::loops::{interp, text};
    use crate::realize::schedule::apply;

    const ROWS: &str = r#"program "rows" {
  buffer @x : f32[7,3] input 0
  buffer @y : f32[7,3] output 0
  buffer @row : f32[3] local
  input "x" @x
  output "y" @y
  kernel @k (i: spatial 7, j: spatial 3, k: spatial 3) {
    for i {
      for j {
        @row[j] = @x[i, j] * 2.0
      }
      for k {
        @y[i, k] = @row[2 - k] + @row[k]
      }
    }
  }
}
"#;

    #[test]
    fn rounds_that_run_together_have_rows_of_their_own() {
        let program = text::parse(ROWS).expect("a program");
        let x = [Tensor::from_elements([7, 3], &(0..21).map(|at| at as f32).collect::<Vec<_>>())];
        let want = interp::run(&program, &x).expect("it runs");
        let split = || Step::Split { axis: "i".into(), factor: 4 };
        let unroll = |axis: &str| Step::Unroll { axis: axis.into() };
        for (steps, shape) in [
            (vec![split(), unroll("i.i")], &[4, 3][..]),
            // The rest uses the parts that are there, if they are enough.
            (vec![split(), unroll("i.i"), unroll("i.t")], &[4, 3]),
            (vec![split(), unroll("i.t"), unroll("i.i")], &[4, 3, 3]),
            (vec![split(), unroll("i.t"), unroll("j")], &[3, 3]),
        ] {
            let mut changed = program.clone();
            apply(&mut changed.kernels[0], &mut changed.buffers, &steps).expect("steps that fit");
            let row = changed.buffers.values().find(|buffer| buffer.name == "row").expect("it is still there");
            assert_eq!(row.ty.shape.dims(), shape, "{steps:?}");
            crate::loops::verify::verify(&changed).expect("still a program");
            assert_eq!(interp::run(&changed, &x).expect("it runs"), want, "{steps:?}");
        }
        // Parts that fill lines of the cache begin at lines.
        let wide =
            ROWS.replace(",3]", ",20]").replace("f32[3]", "f32[20]").replace("spatial 3", "spatial 20").replace("[2 -", "[19 -");
        let program = text::parse(&wide).expect("a program");
        let x = [Tensor::from_elements([7, 20], &(0..140).map(|at| at as f32).collect::<Vec<_>>())];
        let mut changed = program.clone();
        apply(&mut changed.kernels[0], &mut changed.buffers, &[split(), unroll("i.i")]).expect("steps that fit");
        let row = changed.buffers.values().find(|buffer| buffer.name == "row").expect("it is still there");
        assert_eq!(row.ty.shape.dims(), &[4, 32]);
        assert_eq!(interp::run(&changed, &x), interp::run(&program, &x));
        // What a round finds there is of the round before.
        let carried = ROWS.replace("@row[j] = @x[i, j] * 2.0", "@row[j] = @row[j] + @x[i, j]");
        let mut program = text::parse(&carried).expect("a program");
        let error = apply(&mut program.kernels[0], &mut program.buffers, &[unroll("i")]).expect_err("must be refused");
        assert!(error.to_string().contains("share @row"), "{error}");
    }
}
