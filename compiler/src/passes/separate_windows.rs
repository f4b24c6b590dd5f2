//! Takes the extreme of a large window along one axis after the other: of a window of 5 × 5 elements, five along the rows, then five of
//! those along the columns.
//!
//! ```text
//! %2 = window_max %0 {kernel [5, 5], pads [2:2, 2:2], …}   →   %3 = window_max %0 {kernel [1, 5], pads [0:0, 2:2], …}
//!                                                                %2 = window_max %3 {kernel [5, 1], pads [2:2, 0:0], …}
//! ```
//!
//! An extreme is one of the elements, the first of equals in the order of the window: it stays the same one. Sums would be rounded
//! otherwise.

use super::Pass;
use crate::graph::edit::Edit;
use crate::graph::{Op, ReduceFn, Window};
use mcc_support::Shape;

pub static PASS: Pass =
    Pass { name: "separate-windows", doc: "take extremes of large windows along one axis after the other", required: false, run };

/// What it costs to store an element between the two and to load it again, in elements compared.
const BETWEEN: usize = 3;

fn run(edit: &mut Edit) {
    for id in edit.order() {
        if !edit.is_live(id) {
            continue;
        }
        let node = edit.graph().node(id);
        let &Op::Window { kind, ref window } = &node.op else { continue };
        let (x, result) = (node.operands[0], node.results[0]);
        let extreme = matches!(kind, ReduceFn::Max | ReduceFn::Min | ReduceFn::MaxNumber);
        let shape = &edit.graph().ty(result).shape;
        let Some(axis) = extreme.then(|| last_axis(window, &edit.graph().ty(x).shape, shape)).flatten() else { continue };
        let parts = [false, true].map(|rest| part(window, |other| (other == axis) != rest));
        edit.replace(result, &[], |edit| {
            let [first, rest] = parts;
            let along = edit.add(Op::Window { kind, window: first }, &[x]);
            edit.add(Op::Window { kind, window: rest }, &[along])
        });
    }
}

/// The last axis along which a window reaches, where it is worth while to go along that one first.
fn last_axis(window: &Window, x: &Shape, result: &Shape) -> Option<usize> {
    let axis = window.kernel.iter().rposition(|&extent| extent > 1)?;
    let outer = x.rank() - window.kernel.len();
    let cells = window.kernel.iter().product::<usize>();
    let between = x.count() / x[outer + axis].max(1) * result[outer + axis];
    let apart = between * (window.kernel[axis] + BETWEEN) + result.count() * (cells / window.kernel[axis]);
    (2 * result.count() * cells > 3 * apart).then_some(axis)
}

/// The window along some axes.
fn part(window: &Window, along: impl Fn(usize) -> bool) -> Window {
    let choose = |numbers: &[usize]| numbers.iter().enumerate().map(|(axis, &n)| if along(axis) { n } else { 1 }).collect();
    Window {
        kernel: choose(&window.kernel),
        strides: choose(&window.strides),
        dilations: choose(&window.dilations),
        pads: window.pads.iter().enumerate().map(|(axis, &pads)| if along(axis) { pads } else { (0, 0) }).collect(),
    }
}
