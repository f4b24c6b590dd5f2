//! Windows that overlap: neighbouring results read the same inputs in different steps of their sums. Their steps are done in the order
//! of what they read, so that an input is loaded once and used for all results before the next one comes:
//!
//! ```text
//! for x in 0..2 { for k in 0..3 { a[x] = a[x] + p[x + k] * w[k] } }
//!     → p[0]: a[0]; p[1]: a[1], a[0]; p[2]: a[1], a[0]; p[3]: a[1]
//! ```

use super::{Binding, Codegen};
use crate::loops::linear::{Atom, Linear};
use crate::loops::{AxisId, AxisKind, AxisMode, Expr, ExprId, Stmt, sites};

/// A step of one result: the rounds of the reducing axes, then those of the jammed ones.
type Step = Vec<i64>;

impl Codegen<'_> {
    /// Does the rounds of unrolled loops, nested perfectly around one update, in the order of what it loads; false, and nothing is done,
    /// where that is not shared, or where the other factors do not stay in registers meanwhile.
    pub(super) fn slide(&mut self, axis: AxisId, body: &[Stmt]) -> bool {
        let (mut reduced, mut body) = (vec![axis], body);
        let is_unrolled = |axis: AxisId| {
            let found = &self.kernel.axes[axis];
            (found.kind, found.mode) == (AxisKind::Reduce, AxisMode::Unroll) && !self.apart.contains(&axis)
        };
        while let [Stmt::Loop { axis, body: inner }] = body
            && is_unrolled(*axis)
        {
            reduced.push(*axis);
            body = inner;
        }
        let &[Stmt::Set { var, value }] = body else { return false };
        if self.jam.is_empty() {
            return false;
        }
        let Some(steps) = self.in_order_of_loads(&reduced, value) else { return false };
        let axes: Vec<AxisId> = reduced.iter().chain(&self.jam).copied().collect();
        for step in steps {
            self.bind(&axes, &step);
            self.set(var, value);
        }
        reduced.iter().for_each(|&axis| self.bindings[axis] = Binding::Unbound);
        true
    }

    /// Gives axes their rounds.
    pub(super) fn bind(&mut self, axes: &[AxisId], step: &[i64]) {
        axes.iter().zip(step).for_each(|(&axis, &round)| self.bindings[axis] = Binding::Fixed(round));
    }

    fn in_order_of_loads(&mut self, reduced: &[AxisId], value: ExprId) -> Option<Vec<Step>> {
        let loads: Vec<ExprId> = sites::reachable(&self.kernel, vec![value]);
        let (mut sliding, mut others) = (Vec::new(), 0);
        let axes: Vec<AxisId> = reduced.iter().chain(&self.jam).copied().collect();
        let extents: mcc_support::Shape = axes.iter().map(|&axis| self.kernel.axes[axis].extent).collect();
        for load in loads {
            let Expr::Load { buffer, index, .. } = self.kernel.exprs.get(load).clone() else { continue };
            if index.iter().any(|&index| self.slides_along(index, reduced)) {
                sliding.push((buffer, index));
            } else {
                let deps = self.deps(load);
                let rounds = |axis: &&AxisId| deps.axes.contains(axis);
                others += axes.iter().filter(rounds).map(|&axis| self.kernel.axes[axis].extent).product::<usize>();
            }
        }
        let [(buffer, index)] = &sliding[..] else { return None };
        let results: usize = self.jam.iter().map(|&axis| self.kernel.axes[axis].extent).product();
        if results + others >= self.facts.vector_registers as usize {
            return None;
        }
        let mut steps: Vec<(i64, Step)> = Vec::new();
        let mut walk: Option<Linear> = None;
        let mut alike = true;
        extents.for_each_index(|step| {
            let step: Step = step.iter().map(|&round| round as i64).collect();
            self.bind(&axes, &step);
            let offset = self.place(*buffer, index).offset;
            let moving = offset.plus(&Linear::constant(-offset.constant));
            alike &= *walk.get_or_insert_with(|| moving.clone()) == moving;
            steps.push((offset.constant, step));
        });
        steps.sort();
        let places = steps.chunk_by(|a, b| a.0 == b.0).count();
        (alike && places < steps.len()).then(|| steps.into_iter().map(|step| step.1).collect())
    }

    /// Whether an index moves with a jammed axis and with a reducing one.
    fn slides_along(&self, index: ExprId, reduced: &[AxisId]) -> bool {
        let form = Linear::of(&self.kernel.exprs, index);
        let moves = |axes: &[AxisId]| axes.iter().any(|&axis| form.coefficient(Atom::Axis(axis)) != 0);
        moves(reduced) && moves(&self.jam)
    }
}

#[cfg(test)]
mod tests {
    use mcc_kernel::{Facts, Lane, OpKind};
    use mcc_support::EntityMap;

    use crate::codegen;
    use crate::decisions::Layout;
    use crate::loops::text::parse;

    /// Vectors of inputs that are loaded for three sums over `taps`, at every `step`-th place, on a machine with so many registers.
    fn loads(step: usize, taps: usize, vector_registers: u32) -> usize {
        let program = format!(
            r#"program "p" {{
  buffer @x : f32[16,4] input 0
  buffer @w : f32[{taps},4] input 1
  buffer @y : f32[3,4] output 0
  input "x" @x
  input "w" @w
  output "y" @y
  kernel @k (m: spatial 4 vector, x: spatial 3 unroll, k: reduce {taps} unroll) {{
    var %a0 : f32
    for m {{
      for x {{
        %a0 = 0.0
        for k {{
          %a0 = %a0 + @x[x * {step} + k, m] * @w[k, m]
        }}
        @y[x, m] = %a0
      }}
    }}
  }}
}}
"#
        );
        let program = parse(&program).unwrap();
        let kinds = [OpKind::Move, OpKind::Fma, OpKind::AddSub, OpKind::Mul];
        let facts = Facts {
            supported: kinds.into_iter().flat_map(|kind| [Lane::F32, Lane::I32].map(|lane| (kind, lane, 4))).collect(),
            vector_bytes: 16,
            vector_registers,
            fma: true,
            ..Facts::default()
        };
        let ranks = program.buffers.values().map(|buffer| Layout::row_major(buffer.ty.rank()));
        let layouts: EntityMap<_, _> = ranks.collect();
        let compiled = codegen::kernel(&program, &layouts, &program.kernels[0], &facts);
        let text = mcc_kernel::text::print(&compiled.kernel);
        assert_eq!(text.matches("fma.f32x4").count(), 3 * taps);
        text.matches("load.f32x4").count() - taps
    }

    #[test]
    fn what_windows_share_is_loaded_once_where_the_factors_fit() {
        assert_eq!(loads(1, 3, 16), 5);
        assert_eq!(loads(2, 3, 16), 7);
        // Nothing is shared, or nine factors do not stay beside three sums.
        assert_eq!(loads(3, 3, 16), 9);
        assert_eq!(loads(1, 9, 12), 27);
    }
}
