//! `mcc inspect`: the kernels of a compiled model, and the loops in their machine code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use mcc_kernel::{Arch, Code, Cpu};
use mcc_support::{Error, Result};
use serde_json::{Value, json};

use crate::driver;
use crate::emit::CompiledKernel;
use crate::outputs;
use crate::targets::{self, Class, Instruction};

use super::args::InspectArgs;
use super::memory::Memory;
use super::print;
use super::report::Reporter;

/// A loop of machine code: the instructions between a jump back and where it goes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Loop {
    /// Places of the first and the last instruction.
    first: usize,
    last: usize,
    /// 1 for a loop in no other.
    depth: usize,
    is_innermost: bool,
}

/// The instructions of a kernel, with the loops that they form.
struct Listing {
    instructions: Vec<Instruction>,
    loops: Vec<Loop>,
}

impl Listing {
    fn new(arch: Arch, code: &Code) -> Self {
        let instructions = targets::instructions(arch, code);
        let loops = loops(&instructions);
        Self { instructions, loops }
    }

    /// How many instructions of a loop are of each class, and how many read memory.
    fn counts(&self, one: &Loop) -> (BTreeMap<Class, usize>, usize) {
        let body = &self.instructions[one.first..=one.last];
        let mut counts = BTreeMap::new();
        body.iter().for_each(|instruction| *counts.entry(instruction.class).or_default() += 1);
        (counts, body.iter().filter(|instruction| instruction.reads_memory).count())
    }

    fn innermost(&self) -> impl Iterator<Item = &Loop> {
        self.loops.iter().filter(|one| one.is_innermost)
    }

    /// How many loops an instruction is in.
    fn depth(&self, place: usize) -> usize {
        self.loops.iter().filter(|one| (one.first..=one.last).contains(&place)).count()
    }
}

/// The loops, by their first instruction; jumps back to one place are one loop.
fn loops(instructions: &[Instruction]) -> Vec<Loop> {
    let places: BTreeMap<usize, usize> = instructions.iter().enumerate().map(|(place, one)| (one.range.start, place)).collect();
    let mut ends: BTreeMap<usize, usize> = BTreeMap::new();
    for (place, instruction) in instructions.iter().enumerate() {
        let head = instruction.jumps_to.and_then(|offset| places.get(&offset));
        if let Some(&head) = head.filter(|&&head| head <= place) {
            ends.insert(head, place);
        }
    }
    let inside = |(first, last): (usize, usize), (a, b): (usize, usize)| (a, b) != (first, last) && a <= first && last <= b;
    let all: Vec<(usize, usize)> = ends.into_iter().collect();
    let one = |&(first, last): &(usize, usize)| Loop {
        first,
        last,
        depth: 1 + all.iter().filter(|&&other| inside((first, last), other)).count(),
        is_innermost: !all.iter().any(|&other| inside(other, (first, last))),
    };
    all.iter().map(one).collect()
}

pub fn inspect(args: &InspectArgs) -> Result<ExitCode> {
    let options = args.build.options(&args.model, &args.target)?;
    let mut reporter = Reporter::new(!args.json, Vec::new());
    let compilation = driver::compile(&options, &mut reporter)?;
    reporter.finish();
    let memory = Memory::of(&compilation);
    if let Some(limits) = &args.limit {
        memory.check(limits)?;
    }
    if let Some(path) = &args.svg {
        outputs::write(path, memory.svg().as_bytes())?;
    }
    if args.memory || args.svg.is_some() && args.asm.is_none() {
        print(&if args.json { pretty(&memory.to_json()) } else { memory.text() });
        return Ok(ExitCode::SUCCESS);
    }
    let model = &compilation.linked().model;
    let shown = |(level, kernel)| {
        let cpu: &Cpu = &model.cpus[level];
        Shown { cpu, kernel, listing: Listing::new(cpu.arch, &kernel.code) }
    };
    let chosen: Vec<Shown> = match &args.asm {
        None => model.kernels().map(shown).collect(),
        Some(name) => vec![shown(find(&model.kernels().collect::<Vec<_>>(), name)?)],
    };
    let text = match (args.json, &args.asm) {
        (true, _) => pretty(&to_json(&chosen)),
        (false, None) => {
            let levels = chosen.chunk_by(|one, next| one.cpu.name == next.cpu.name);
            let head = |one: &Shown| if model.cpus.len() > 1 { format!("on {}:\n", one.cpu.name) } else { String::new() };
            levels.map(|kernels| head(&kernels[0]) + &list(kernels)).collect::<Vec<_>>().join("\n")
        }
        (false, Some(_)) => assembly(chosen[0].kernel, &chosen[0].listing),
    };
    print(&text);
    Ok(ExitCode::SUCCESS)
}

/// A kernel for one CPU.
struct Shown<'k> {
    cpu: &'k Cpu,
    kernel: &'k CompiledKernel,
    listing: Listing,
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("numbers and texts") + "\n"
}

/// The kernel of this name, or the only one whose name or node has it as a part; for the best CPU.
fn find<'k>(kernels: &[(usize, &'k CompiledKernel)], name: &str) -> Result<(usize, &'k CompiledKernel)> {
    if let Some(&found) = kernels.iter().find(|(_, kernel)| kernel.name == name) {
        return Ok(found);
    }
    let has = |(level, kernel): &(usize, &CompiledKernel)| {
        *level == 0 && (kernel.name.contains(name) || kernel.origins.iter().any(|node| node.contains(name)))
    };
    let found: Vec<(usize, &CompiledKernel)> = kernels.iter().copied().filter(has).collect();
    let names = |kernels: &[(usize, &CompiledKernel)]| {
        kernels.iter().map(|(_, kernel)| kernel.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    match found[..] {
        [one] => Ok(one),
        [] => Err(Error::new(format!("no kernel is called '{name}'")).help("`mcc inspect` without --asm lists them")),
        _ => Err(Error::new(format!("several kernels are called '{name}'")).help(format!("choose one of {}", names(&found)))),
    }
}

fn list(kernels: &[Shown]) -> String {
    let width = kernels.iter().map(|Shown { kernel, .. }| kernel.name.len()).max().unwrap_or(0).max(6);
    let mut out =
        format!("{:<width$} {:>6} {:>6} {:>5}  {:<36}  nodes\n", "kernel", "bytes", "stack", "loops", "main inner loop");
    for Shown { kernel, listing, .. } in kernels {
        let fma = |one: &Loop| listing.counts(one).0.get(&Class::Fma).copied().unwrap_or(0);
        let main = listing.innermost().max_by_key(|one| (fma(one), one.last - one.first));
        let _ = writeln!(
            out,
            "{:<width$} {:>6} {:>6} {:>5}  {:<36}  {}",
            kernel.name,
            kernel.code.bytes.len(),
            kernel.code.stack_bytes,
            listing.loops.len(),
            main.map_or(String::new(), |one| counts_text(listing, one)),
            kernel.origins.join(", ")
        );
    }
    out
}

/// `45: 24 fma, 16 load, 2 move, 3 other`
fn counts_text(listing: &Listing, one: &Loop) -> String {
    let (counts, _) = listing.counts(one);
    let parts: Vec<String> = counts.iter().map(|(class, count)| format!("{count} {}", class.name())).collect();
    format!("{}: {}", one.last - one.first + 1, parts.join(", "))
}

/// A bar for each loop that an instruction is in: the first and the last show where loops begin and end.
fn assembly(kernel: &CompiledKernel, listing: &Listing) -> String {
    let deepest = listing.loops.iter().map(|one| one.depth).max().unwrap_or(0);
    let mut out = format!("{}: {} bytes, {} of stack\n", kernel.name, kernel.code.bytes.len(), kernel.code.stack_bytes);
    for (place, instruction) in listing.instructions.iter().enumerate() {
        for one in listing.loops.iter().filter(|one| one.first == place) {
            let kind = if one.is_innermost { "innermost loop" } else { "loop" };
            let bars = "| ".repeat(one.depth - 1);
            let _ = writeln!(out, "        {bars}+ {kind}, depth {}, {}", one.depth, counts_text(listing, one));
        }
        let bars = "| ".repeat(listing.depth(place));
        let symbols =
            if instruction.symbols.is_empty() { String::new() } else { format!(" ; {}", instruction.symbols.join(", ")) };
        let _ =
            writeln!(out, "{:6x}  {bars:<width$} {}{symbols}", instruction.range.start, instruction.text, width = 2 * deepest);
    }
    out
}

fn to_json(kernels: &[Shown]) -> Value {
    let kernel = |Shown { cpu, kernel, listing }: &Shown| {
        let one = |one: &Loop| {
            let (counts, reads) = listing.counts(one);
            let counts: BTreeMap<&str, usize> = counts.into_iter().map(|(class, count)| (class.name(), count)).collect();
            let body = &listing.instructions[one.first..=one.last];
            let bytes = |instruction: &Instruction| -> String {
                kernel.code.bytes[instruction.range.clone()].iter().map(|byte| format!("{byte:02x}")).collect()
            };
            json!({
                "begin": body[0].range.start,
                "end": body[body.len() - 1].range.end,
                "depth": one.depth,
                "innermost": one.is_innermost,
                "counts": counts,
                "reads_memory": reads,
                "instructions": body.iter().map(|one| one.text.as_str()).collect::<Vec<_>>(),
                "bytes": body.iter().map(bytes).collect::<Vec<_>>(),
            })
        };
        json!({
            "name": kernel.name,
            "cpu": cpu.name,
            "nodes": kernel.origins,
            "code_bytes": kernel.code.bytes.len(),
            "stack_bytes": kernel.code.stack_bytes,
            "loops": listing.loops.iter().map(one).collect::<Vec<_>>(),
        })
    };
    kernels.iter().map(kernel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instructions of one byte, some of which jump.
    fn instructions(count: usize, jumps: &[(usize, usize)]) -> Vec<Instruction> {
        let instruction = |place: usize| {
            let jumps_to = jumps.iter().find(|(from, _)| *from == place).map(|(_, to)| *to);
            let class = if jumps_to.is_some() { Class::Branch } else { Class::Fma };
            let (range, text) = (place..place + 1, String::new());
            Instruction { range, text, class, reads_memory: false, jumps_to, symbols: Vec::new() }
        };
        (0..count).map(instruction).collect()
    }

    #[test]
    fn loops_are_found_with_their_nesting() {
        // An outer loop over two others, one of which is left and repeated from two places; a jump forward is no loop.
        let listed = instructions(20, &[(18, 1), (5, 3), (9, 7), (11, 7), (8, 12), (2, 19)]);
        let found: Vec<(usize, usize, usize, bool)> =
            loops(&listed).iter().map(|one| (one.first, one.last, one.depth, one.is_innermost)).collect();
        assert_eq!(found, [(1, 18, 1, false), (3, 5, 2, true), (7, 11, 2, true)]);
        let listing = Listing { loops: loops(&listed), instructions: listed };
        assert_eq!([0, 1, 4, 6, 11, 19].map(|place| listing.depth(place)), [0, 1, 2, 1, 2, 0]);
        assert_eq!(counts_text(&listing, &listing.loops[2]), "5: 2 fma, 3 branch");
    }

    #[test]
    fn an_instruction_that_jumps_to_itself_is_a_loop() {
        assert_eq!(loops(&instructions(1, &[(0, 0)])), [Loop { first: 0, last: 0, depth: 1, is_innermost: true }]);
    }
}
