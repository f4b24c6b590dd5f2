//! Golden tests: files under `tests/golden` whose header says what to run, with the expected text as comments at their end.
//!
//! ```text
//! ;! run: pass fold-batch-norm
//! ; What the file is for, in a sentence.
//! graph "g" { … }
//! ; ---
//! ; the expected output
//! ```
//!
//! With `MCC_BLESS=1` in the environment the expected output is written anew. Adding a kind of test is one arm in [`run`].

use std::path::{Path, PathBuf};

use mcc::decide;
use mcc::decisions::Decisions;
use mcc::graph::edit::Edit;
use mcc::graph::{Graph, interp, text, verify};
use mcc::loops;
use mcc::realize::{Realized, realize};
use mcc::{passes, plan};
use mcc_tests::compare::same_bits;
use mcc_tests::judge::Judge;
use mcc_tests::random_graph;

const SEPARATOR: &str = "; ---\n";

#[test]
fn golden_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    assert!(files.len() > 20, "the golden files were not found in {}", root.display());
    let bless = std::env::var_os("MCC_BLESS").is_some();
    let failure = |file: &PathBuf| {
        let error = check(file, bless).err()?;
        Some(format!("{}: {error}", file.strip_prefix(&root).expect("a file of the folder").display()))
    };
    let failures: Vec<String> = files.iter().filter_map(failure).collect();
    assert!(
        failures.is_empty(),
        "{} of {} golden files differ (MCC_BLESS=1 rewrites them):\n\n{}",
        failures.len(),
        files.len(),
        failures.join("\n\n")
    );
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder of golden files") {
        let path = entry.expect("a golden file").path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}

fn check(file: &Path, bless: bool) -> Result<(), String> {
    let content = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let (input, expected) = content.split_once(SEPARATOR).unwrap_or((&content, ""));
    let mut lines = input.lines();
    let header = lines.next().and_then(|line| line.strip_prefix(";! run: ")).ok_or("the first line is not ';! run: …'")?;
    let is_comment = |line: &str| line.starts_with("; ") && line.len() > 10;
    if !lines.next().is_some_and(is_comment) {
        return Err("the second line does not say what the file is for".into());
    }
    let words: Vec<&str> = header.split_whitespace().collect();
    let output = match std::panic::catch_unwind(|| run(&words, input)) {
        Ok(output) => output?,
        Err(panic) => return Err(panic.downcast_ref::<String>().cloned().unwrap_or("a panic".into())),
    };
    let Some(output) = output else { return Ok(()) };
    let comments: String = output.lines().map(|line| format!("; {line}").trim_end().to_string() + "\n").collect();
    if comments == expected {
        return Ok(());
    }
    if bless {
        return std::fs::write(file, format!("{input}{SEPARATOR}{comments}")).map_err(|error| error.to_string());
    }
    Err(difference(expected, &comments))
}

/// What the header asks for: the output to compare, or nothing where `input` itself holds the expectations.
fn run(words: &[&str], input: &str) -> Result<Option<String>, String> {
    match words {
        ["parse", "graph"] => Ok(Some(graph(input)?.to_string())),
        ["verify", "graph"] => verify_graph(input).map(|()| None),
        ["eval", "graph"] => eval_graph(input).map(Some),
        ["lower"] => lower(input).map(Some),
        ["pass", names @ ..] => run_passes(names, input).map(Some),
        ["fuse"] => fuse_graph(input).map(Some),
        ["plan"] => plan_graph(input).map(Some),
        _ => Err(format!("there is no test of kind '{}'", words.join(" "))),
    }
}

/// A verified graph whose ids are in the order of its text, which reads back as the same.
fn graph(input: &str) -> Result<Graph, String> {
    let graph = text::parse(input).map_err(|error| error.to_string())?;
    verify::verify(&graph).map_err(|error| error.to_string())?;
    let graph = Edit::new(graph, "none", None).finish().graph;
    let again = text::parse(&text::to_text(&graph)).map_err(|error| format!("the printed graph: {error}"))?;
    if again != graph {
        return Err(format!("what is printed reads back as\n{again}"));
    }
    Ok(graph)
}

/// `; error: …` at the end of a line: the verifier (or the parser) refuses what this line defines with this message.
fn verify_graph(input: &str) -> Result<(), String> {
    let expected = input.lines().enumerate().find_map(|(at, line)| Some((at, line.split_once("; error: ")?)));
    let found = text::parse(input).and_then(|graph| verify::verify(&graph)).map_err(|error| error.message);
    match (expected, found) {
        (None, Ok(())) => Ok(()),
        (None, Err(error)) => Err(format!("unexpected: {error}")),
        (Some(_), Ok(())) => Err("the graph was accepted".into()),
        (Some((at, (code, expected))), Err(found)) => {
            let value = code.split_whitespace().find(|word| word.starts_with('%')).unwrap_or_default();
            let is_named = found.starts_with(&format!("{value}: ")) || found.starts_with(&format!("line {}: ", at + 1));
            if is_named && found.ends_with(expected) { Ok(()) } else { Err(format!("the message is: {found}")) }
        }
    }
}

/// The outputs, as constants, of a graph without inputs.
fn eval_graph(input: &str) -> Result<String, String> {
    let mut graph = graph(input)?;
    let outputs = interp::run(&graph, &[]).map_err(|error| error.to_string())?;
    let names: Vec<String> = graph.outputs.drain(..).map(|(name, _)| name).collect();
    let builder = mcc::graph::Builder::new(graph.name);
    names.into_iter().zip(outputs).for_each(|(name, tensor)| builder.output(name, builder.constant(tensor)));
    Ok(builder.finish().to_string())
}

/// The program, which is verified and computes for random inputs what the graph does.
fn lower(input: &str) -> Result<String, String> {
    let graph = graph(input)?;
    let program = loops::lower::lower(&graph);
    loops::verify::verify(&program).map_err(|error| format!("{error}\n{program}"))?;
    let inputs = random_graph::random_inputs(&graph, 1);
    let want = interp::run(&graph, &inputs).map_err(|error| error.to_string())?;
    let got = loops::interp::run(&program, &inputs).map_err(|error| error.to_string())?;
    let judge = Judge::new(&graph, &inputs);
    for (at, ((name, _), (got, want))) in graph.outputs.iter().zip(got.iter().zip(&want)).enumerate() {
        judge.close(at, got, want).map_err(|error| format!("output '{name}': {error}"))?;
    }
    Ok(program.to_string())
}

/// The change log and the graph. The outputs for random inputs have the same bits as before; with the word `approximately` they are
/// close. `fuel=3` allows three rewrites.
fn run_passes(mut names: &[&str], input: &str) -> Result<String, String> {
    let graph = graph(input)?;
    let (mut fuel, mut approximately) = (None, false);
    while let [word, rest @ ..] = names {
        if *word == "approximately" {
            approximately = true;
        } else if let Some(amount) = word.strip_prefix("fuel=") {
            fuel = Some(amount.parse().map_err(|_| "fuel is a number")?);
        } else {
            break;
        }
        names = rest;
    }
    let list = match names {
        ["canonical"] => passes::CANONICAL.to_vec(),
        ["deployment"] => passes::DEPLOYMENT.to_vec(),
        _ => names.iter().map(|name| passes::find(name).ok_or(format!("there is no pass '{name}'"))).collect::<Result<_, _>>()?,
    };
    let mut options = passes::Options { fuel, verify: true, ..passes::Options::default() };
    let changed = passes::run(graph.clone(), &list, &mut options);
    let inputs = random_graph::random_inputs(&graph, 1);
    let before = interp::run(&graph, &inputs).map_err(|error| error.to_string())?;
    let after = interp::run(&changed, &inputs).map_err(|error| error.to_string())?;
    let judge = Judge::new(&graph, &inputs);
    for (at, ((name, _), (before, after))) in graph.outputs.iter().zip(before.iter().zip(&after)).enumerate() {
        let same = if approximately { judge.close(at, after, before) } else { same_bits(after, before) };
        same.map_err(|error| format!("output '{name}' changed: {error}"))?;
    }
    Ok(options.log.join("\n") + "\n" + &changed.to_string())
}

/// What is fused and the program that is left, which computes the same.
fn fuse_graph(input: &str) -> Result<String, String> {
    let graph = graph(input)?;
    let lowered = loops::lower::lower(&graph);
    let (fusions, fused) = decide::fuse::choose(&lowered, true);
    loops::verify::verify(&fused).map_err(|error| error.to_string())?;
    let inputs = random_graph::random_inputs(&graph, 1);
    let [before, after] =
        [&lowered, &fused].map(|program| loops::interp::run(program, &inputs).map_err(|error| error.to_string()));
    for ((name, _), (before, after)) in graph.outputs.iter().zip(before?.iter().zip(&after?)) {
        same_bits(after, before).map_err(|error| format!("output '{name}' changed: {error}"))?;
    }
    let log: Vec<String> = fusions.iter().map(|fusion| format!("{fusion}\n")).collect();
    Ok(log.concat() + &fused.to_string())
}

/// Where the buffers of the fused program live, when its kernels are not scheduled.
fn plan_graph(input: &str) -> Result<String, String> {
    let lowered = loops::lower::lower(&graph(input)?);
    let (fusions, fused) = decide::fuse::choose(&lowered, true);
    let decisions = Decisions { fusions, order: decide::order::choose(&fused), ..Decisions::default() };
    let Realized { program, plan } = realize(&lowered, &decisions).map_err(|error| error.to_string())?;
    let problems = plan::check::check(&program, &plan);
    if problems.is_empty() { Ok(plan::text::print(&program, &plan)) } else { Err(problems.join("\n")) }
}

fn difference(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    let same = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
    let show = |lines: &[&str]| lines[same.min(lines.len())..].join("\n");
    format!("line {} of the output\n--- expected\n{}\n--- found\n{}", same + 1, show(&expected), show(&found))
}
