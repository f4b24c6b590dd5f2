//! A plan as a table, for people.

use std::fmt::Write;

use super::{MemoryPlan, Place};
use crate::decisions::Layout;
use crate::loops::Program;

/// One line for each buffer that is used, in the order of their first kernels; totals at the end.
pub fn print(program: &Program, plan: &MemoryPlan) -> String {
    let mut rows: Vec<(usize, [String; 5])> = Vec::new();
    for (id, buffer) in program.buffers.iter() {
        let (place, size_bytes) = match plan.places[id] {
            Place::Unused => continue,
            Place::Input(at) => (format!("input {at}"), buffer.ty.size_bytes()),
            Place::Output(at) => (format!("output {at}"), buffer.ty.size_bytes()),
            Place::Weights { offset, size_bytes } => (format!("weights {offset}"), size_bytes),
            Place::Arena { offset, size_bytes } => (format!("arena {offset}"), size_bytes),
        };
        let live = plan.lives[id].map_or(String::new(), |live| format!("{}..{}", live.first, live.last));
        let layout = layout_text(&plan.layouts[id], buffer.ty.rank());
        let first = plan.lives[id].map_or(0, |live| live.first);
        rows.push((first, [format!("@{}", buffer.name), format!("{}{layout}", buffer.ty), place, size_bytes.to_string(), live]));
    }
    rows.sort_by_key(|&(first, _)| first);
    let mut text = format!("plan @{}\n", program.name);
    let width = |column: usize| rows.iter().map(|(_, row)| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    for (_, row) in &rows {
        let line = format!(
            "  {:a$}  {:b$}  {:c$}  {:>d$}  {}",
            row[0],
            row[1],
            row[2],
            row[3],
            row[4],
            a = widths[0],
            b = widths[1],
            c = widths[2],
            d = widths[3]
        );
        writeln!(text, "{}", line.trim_end()).expect("a string takes all text");
    }
    let ratio = plan.arena_bytes as f64 / plan.lower_bound_bytes.max(1) as f64;
    writeln!(
        text,
        "arena {} bytes, lower bound {} ({ratio:.3}), weights {} bytes",
        plan.arena_bytes,
        plan.lower_bound_bytes,
        plan.weights.len()
    )
    .expect("a string takes all text");
    text
}

/// Empty for row-major layouts; `{0/8, 1, 0%8}` lists the coordinates, the outermost first.
fn layout_text(layout: &Layout, rank: usize) -> String {
    if *layout == Layout::row_major(rank) {
        return String::new();
    }
    format!("{{{layout}}}")
}
