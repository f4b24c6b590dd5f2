//! What a compiled model takes, kernel by kernel: for `mcc inspect --memory`, its picture, and limits.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use mcc_support::{Error, Result};
use serde_json::{Value, json};

use crate::driver::Compilation;
use crate::emit::Sizes;
use crate::loops::{BufferId, sites};
use crate::plan::{ALIGN_BYTES, Place};
use crate::realize::Realized;

/// A buffer in the arena.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Block {
    /// Name and type of the tensor.
    tensor: String,
    offset: usize,
    size_bytes: usize,
    /// The first and the last kernel that needs it, by place.
    first: usize,
    last: usize,
}

/// A kernel, in the order in which they run.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    name: String,
    nodes: Vec<String>,
    /// Of the arena, while it runs.
    live_bytes: usize,
    /// 0 where it is the code of another one.
    code_bytes: usize,
    code_of: Option<String>,
    stack_bytes: u32,
    /// Of the weights, those that it reads; other kernels may read them too.
    weights_bytes: usize,
}

/// Where a compiled model takes what it takes.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The model's name, target and CPU.
    title: String,
    sizes: Sizes,
    /// Of the entry function, on top of which is the stack of one kernel.
    entry_stack_bytes: u32,
    entry_code_bytes: usize,
    blocks: Vec<Block>,
    rows: Vec<Row>,
}

impl Memory {
    /// For the set of shapes and the CPU that takes the largest arena.
    pub fn of(compilation: &Compilation) -> Self {
        let linked = compilation.linked();
        let sets = compilation.specializations().iter().zip(&linked.model.specializations);
        let (set, compiled) = sets.max_by_key(|(_, set)| set.arena_bytes).expect("a model is for one set of shapes at least");
        let Realized { program, plan } = set.realized();
        let block = |id: BufferId| {
            let Place::Arena { offset, size_bytes } = plan.places[id] else { return None };
            let (live, buffer) = (plan.lives[id]?, &program.buffers[id]);
            let tensor = format!("{} {}", buffer.name, buffer.ty);
            Some(Block { tensor, offset, size_bytes, first: live.first, last: live.last })
        };
        let blocks: Vec<Block> = program.buffers.keys().filter_map(block).collect();
        let weights_bytes = |buffers: BTreeSet<BufferId>| -> usize {
            let size = |id| if let Place::Weights { size_bytes, .. } = plan.places[id] { size_bytes } else { 0 };
            buffers.into_iter().map(size).sum()
        };
        let (mut rows, mut codes) = (Vec::new(), HashMap::new());
        for (place, kernel) in program.kernels.iter().enumerate() {
            let code = &compiled.kernels.iter().find(|other| other.name == kernel.name).expect("every kernel is compiled").code;
            rows.push(Row {
                name: kernel.name.clone(),
                nodes: kernel.origins.clone(),
                live_bytes: live_bytes(&blocks, place),
                code_bytes: if codes.contains_key(code) { 0 } else { code.bytes.len() },
                code_of: codes.get(code).cloned(),
                stack_bytes: code.stack_bytes,
                weights_bytes: weights_bytes(sites::accesses(kernel).0),
            });
            codes.entry(code).or_insert_with(|| kernel.name.clone());
        }
        let title = format!("{} for {}, CPU {}", compilation.name, compilation.triple, compilation.cpu_names());
        let entry = &linked.functions[0].1;
        Self {
            title,
            sizes: linked.sizes,
            entry_stack_bytes: entry.stack_bytes,
            entry_code_bytes: entry.bytes.len(),
            blocks,
            rows,
        }
    }

    /// The kernel while which most of the arena is in use.
    fn peak(&self) -> Option<usize> {
        (0..self.rows.len()).max_by_key(|&place| (self.rows[place].live_bytes, std::cmp::Reverse(place)))
    }

    /// Blocks in use while a kernel runs, the largest first.
    fn live_at(&self, place: usize) -> Vec<&Block> {
        let mut live: Vec<&Block> = self.blocks.iter().filter(|block| block.is_live(place)).collect();
        live.sort_by_key(|block| (std::cmp::Reverse(block.size_bytes), block.offset));
        live
    }

    /// Tables for people.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.title);
        let deepest = self.rows.iter().max_by_key(|row| row.stack_bytes).map_or("no kernel", |row| &row.name);
        let sizes = &self.sizes;
        let _ = writeln!(
            out,
            "  arena    {} bytes, of which at most {} are in use at once",
            sizes.arena_bytes, sizes.arena_lower_bound_bytes
        );
        let entry = self.entry_stack_bytes;
        let _ = writeln!(
            out,
            "  stack    {} bytes: {entry} of the entry function, {} of {deepest}",
            sizes.stack_bytes,
            sizes.stack_bytes - entry
        );
        let _ = writeln!(out, "  code     {} bytes, {} of them of the entry function", sizes.code_bytes, self.entry_code_bytes);
        let _ = writeln!(out, "  weights  {} bytes", sizes.weights_bytes);
        if let Some(peak) = self.peak().filter(|_| !self.blocks.is_empty()) {
            let _ = writeln!(out, "\nThe peak is in {}. In use there:\n", self.rows[peak].name);
            out.push_str(&self.blocks_text(&self.live_at(peak)));
        }
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(6);
        let most = self.rows.iter().map(|row| row.live_bytes).max().unwrap_or(0).max(1);
        let _ = writeln!(
            out,
            "\n{:<width$} {:>10}  {:<20} {:>7} {:>6} {:>10}  nodes",
            "kernel", "in use", "of the arena", "code", "stack", "weights"
        );
        for row in &self.rows {
            let bar = "#".repeat((20 * row.live_bytes).div_ceil(most));
            let Row { name, live_bytes, stack_bytes, weights_bytes, .. } = row;
            let code = row.code_of.as_ref().map_or_else(|| row.code_bytes.to_string(), |of| format!("= {}", number(of)));
            let _ = writeln!(
                out,
                "{name:<width$} {live_bytes:>10}  {bar:<20} {code:>7} {stack_bytes:>6} {weights_bytes:>10}  {}",
                row.nodes.join(", ")
            );
        }
        out
    }

    fn blocks_text(&self, blocks: &[&Block]) -> String {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(5);
        let mut out = format!("  {:>10} {:>10}  {:<width$} {:<width$} tensor\n", "bytes", "offset", "from", "to");
        for Block { tensor, offset, size_bytes, first, last } in blocks {
            let name = |place: usize| self.rows.get(place).map_or("the end", |row| &row.name);
            let _ = writeln!(out, "  {size_bytes:>10} {offset:>10}  {:<width$} {:<width$} {tensor}", name(*first), name(*last));
        }
        out
    }

    pub fn to_json(&self) -> Value {
        let block = |block: &Block| json!({ "tensor": block.tensor, "offset": block.offset, "bytes": block.size_bytes, "first": block.first, "last": block.last });
        let row = |row: &Row| {
            json!({
                "name": row.name,
                "nodes": row.nodes,
                "live_bytes": row.live_bytes,
                "code_bytes": row.code_bytes,
                "code_of": row.code_of,
                "stack_bytes": row.stack_bytes,
                "weights_bytes": row.weights_bytes,
            })
        };
        json!({
            "arena_bytes": self.sizes.arena_bytes,
            "arena_lower_bound_bytes": self.sizes.arena_lower_bound_bytes,
            "stack_bytes": self.sizes.stack_bytes,
            "entry_stack_bytes": self.entry_stack_bytes,
            "entry_code_bytes": self.entry_code_bytes,
            "code_bytes": self.sizes.code_bytes,
            "weights_bytes": self.sizes.weights_bytes,
            "peak": self.peak(),
            "blocks": self.blocks.iter().map(block).collect::<Vec<_>>(),
            "kernels": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }

    /// A picture of the arena: kernels from left to right, addresses from bottom to top, a box for each tensor.
    pub fn svg(&self) -> String {
        let (width, height, margin) = (1200.0, 600.0, 40.0);
        let (columns, bytes) = (self.rows.len().max(1) as f64, self.sizes.arena_bytes.max(1) as f64);
        let x = |place: usize| margin + (width - 2.0 * margin) * place as f64 / columns;
        let y = |offset: usize| height - margin - (height - 2.0 * margin) * offset as f64 / bytes;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{margin}\" y=\"20\" font-size=\"14\">{}: arena of {} bytes</text>\n",
            escaped(&self.title),
            self.sizes.arena_bytes
        );
        for (index, block) in self.blocks.iter().enumerate() {
            let end = (block.last + 1).min(self.rows.len());
            let (left, top) = (x(block.first), y(block.offset + block.size_bytes));
            let (wide, high) = (x(end) - left, y(block.offset) - top);
            // Neighbours differ by the golden angle.
            let hue = (index as f64 * 137.5) % 360.0;
            let name = |place: usize| self.rows.get(place).map_or("the end", |row| &row.name);
            let _ = writeln!(
                out,
                "<g><rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" fill=\"hsl({hue:.0},60%,75%)\" \
                 stroke=\"black\" stroke-width=\"0.5\"/><title>{}: {} bytes at {}, from {} to {}</title>",
                escaped(&block.tensor),
                block.size_bytes,
                block.offset,
                escaped(name(block.first)),
                escaped(name(block.last))
            );
            let fits = wide > 7.0 * block.tensor.len() as f64 && high > 12.0;
            let label = if fits { escaped(&block.tensor) } else { String::new() };
            let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{label}</text></g>", left + 3.0, top + 11.0);
        }
        for (place, row) in self.rows.iter().enumerate() {
            let (left, wide) = (x(place), x(place + 1) - x(place));
            let _ = writeln!(
                out,
                "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"16\" fill=\"white\" stroke=\"gray\" stroke-width=\"0.5\">\
                 <title>{}: {} bytes in use; {}</title></rect>",
                height - margin + 4.0,
                escaped(&row.name),
                row.live_bytes,
                escaped(&row.nodes.join(", "))
            );
        }
        out + "</svg>\n"
    }

    /// Compares with limits.
    ///
    /// # Errors
    ///
    /// What takes more than it may, with what dominates it.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        let mut wrong = Vec::new();
        for (kind, limit) in &limits.0 {
            let (taken, dominated) = match kind {
                Kind::Arena => (self.sizes.arena_bytes, self.arena_dominated()),
                Kind::Stack => (u64::from(self.sizes.stack_bytes), self.largest("bytes", |row| row.stack_bytes as usize)),
                Kind::Code => (self.sizes.code_bytes, self.largest("bytes", |row| row.code_bytes)),
                Kind::Weights => (self.sizes.weights_bytes, self.largest("bytes read", |row| row.weights_bytes)),
            };
            if taken > *limit {
                wrong.push(format!(
                    "{} takes {taken} bytes, {} more than the limit of {limit}{dominated}",
                    kind.name(),
                    taken - limit
                ));
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        Err(Error::new(wrong.join("\n")).help("`mcc inspect --memory` shows all of it, kernel by kernel"))
    }

    fn arena_dominated(&self) -> String {
        let Some(peak) = self.peak() else { return String::new() };
        let row = &self.rows[peak];
        let nodes = if row.nodes.is_empty() { String::new() } else { format!(" ({})", row.nodes.join(", ")) };
        let largest: Vec<String> =
            self.live_at(peak).iter().take(4).map(|block| format!("\n  {} bytes: {}", block.size_bytes, block.tensor)).collect();
        format!("; in use at the peak, in {}{nodes}:{}", row.name, largest.concat())
    }

    fn largest(&self, unit: &str, of: impl Fn(&Row) -> usize) -> String {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(of(row)));
        let largest: Vec<String> =
            rows.iter().take(4).map(|row| format!("\n  {} {unit}: {} ({})", of(row), row.name, row.nodes.join(", "))).collect();
        format!("; the largest:{}", largest.concat())
    }
}

impl Block {
    fn is_live(&self, place: usize) -> bool {
        (self.first..=self.last).contains(&place)
    }
}

/// Bytes of the arena that blocks take while a kernel runs, each to where the next may begin; those that are in place of one another once.
fn live_bytes(blocks: &[Block], place: usize) -> usize {
    let live = blocks.iter().filter(|block| block.is_live(place));
    let mut spans: Vec<(usize, usize)> =
        live.map(|block| (block.offset, (block.offset + block.size_bytes).next_multiple_of(ALIGN_BYTES))).collect();
    spans.sort_unstable();
    let (mut bytes, mut covered) = (0, 0);
    for (begin, end) in spans {
        bytes += end.saturating_sub(begin.max(covered));
        covered = covered.max(end);
    }
    bytes
}

/// `k012` of `k012_conv_add`.
fn number(kernel: &str) -> &str {
    kernel.split('_').next().unwrap_or(kernel)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// What a model may take, each once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits(Vec<(Kind, u64)>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Arena,
    Stack,
    Code,
    Weights,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Arena, Kind::Stack, Kind::Code, Kind::Weights];

    fn name(self) -> &'static str {
        match self {
            Kind::Arena => "arena",
            Kind::Stack => "stack",
            Kind::Code => "code",
            Kind::Weights => "weights",
        }
    }
}

impl std::str::FromStr for Limits {
    type Err = String;

    /// `arena=64KiB,code=100kB`: bytes, or with KiB, MiB, GiB or K, M, G (of 1024) or kB, MB, GB (of 1000).
    fn from_str(text: &str) -> Result<Self, String> {
        let mut limits = Vec::new();
        for part in text.split(',') {
            let (name, size) = part.split_once('=').ok_or_else(|| format!("'{part}' has no equals sign, as arena=64KiB"))?;
            let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
            let kind = kind
                .ok_or_else(|| format!("'{name}' has no limit: those that have are {}", Kind::ALL.map(Kind::name).join(", ")))?;
            if limits.iter().any(|(other, _)| *other == kind) {
                return Err(format!("'{name}' is given twice"));
            }
            limits.push((
                kind,
                bytes(size)
                    .ok_or_else(|| format!("'{size}' is no size: a whole number of bytes, or of KiB, MiB, GiB, kB, MB or GB"))?,
            ));
        }
        Ok(Self(limits))
    }
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(offset: usize, size_bytes: usize, first: usize, last: usize) -> Block {
        Block { tensor: format!("t{offset}"), offset, size_bytes, first, last }
    }

    #[test]
    fn what_is_in_place_of_another_counts_once() {
        let blocks = [block(0, 128, 0, 2), block(64, 120, 1, 1), block(0, 50, 2, 3), block(256, 8, 0, 9)];
        assert_eq!([0, 1, 2, 3, 4].map(|place| live_bytes(&blocks, place)), [192, 256, 192, 128, 64]);
    }

    #[test]
    fn limits_are_read() {
        let limits: Limits = "arena=64KiB,code=3kB,stack=7".parse().unwrap();
        assert_eq!(limits.0, [(Kind::Arena, 65536), (Kind::Code, 3000), (Kind::Stack, 7)]);
        for wrong in
            ["", "arena", "arena=", "arena=x", "arena=1,arena=2", "heap=1", "arena=64kib", "code=99999999999GiB", "code=-1"]
        {
            assert!(wrong.parse::<Limits>().is_err(), "{wrong}");
        }
    }
}
