//! What holds for the text of the whole repository. Most of it is an absence: `ARCHITECTURE.md` and `STYLE.md` say why.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

const MAX_FILE_LINES: usize = 800;

const MAX_FUNCTION_LINES: usize = 70;

/// Functions that are longer. This count may only go down.
const LONG_FUNCTIONS: usize = 0;

/// Folders of what is built or fetched.
const SKIPPED: [&str; 5] = [".git", "target", ".cache", ".venv", "__pycache__"];

/// Files of which the name says that they are text for people, or code.
const TEXT: [&str; 14] = ["rs", "c", "h", "S", "py", "sh", "md", "toml", "json", "txt", "graph", "kernel", "lock", "cmake"];

/// The only files that speak to Cranelift.
const CRANELIFT: [(&str, &str); 2] = [
    ("targets/portable/", "makes machine code with it"),
    ("compiler/src/tools/exec.rs", "loads a compiled module into this process"),
];

/// Words that name an instruction set. The one of 32-bit ARM is a word of Rust's too.
const INSTRUCTION_SETS: [&str; 11] = ["x86", "aarch64", "arm64", "amd64", "neon", "avx", "sse2", "sse3", "sse4", "vnni", "amx"];

/// The only files between the targets and the user that name one.
const NAME_INSTRUCTION_SETS: [(&str, &str); 6] = [
    ("compiler/kernel/src/target.rs", "the architectures and relocations that a target can state"),
    ("compiler/src/targets.rs", "the list of targets and triples"),
    ("compiler/src/emit/cpus.rs", "the architecture in the descriptor of a model"),
    ("compiler/src/emit/object.rs", "the relocations of each object format"),
    ("compiler/src/tools/args.rs", "examples in the help"),
    ("compiler/src/tools/exec.rs", "the relocations of a loaded module"),
];

/// What each folder of `compiler/src` may use of the others: a stage sees what the stage before it made, nothing earlier.
const STAGES: [(&str, &[&str]); 10] = [
    ("onnx", &[]),
    ("ops", &["graph", "onnx"]),
    ("import", &["graph", "onnx", "ops"]),
    // The meaning of scalar operations is shared: what is folded has the bits of what runs.
    ("graph", &["loops"]),
    ("passes", &["graph"]),
    ("loops", &["graph"]),
    ("decide", &["decisions", "loops", "realize"]),
    ("realize", &["decisions", "loops", "plan"]),
    ("plan", &["decisions", "loops"]),
    ("codegen", &["decisions", "loops"]),
];

/// What each crate may depend on of the others when it is built, and when it is tested.
const CRATES: [(&str, &[&str], &[&str]); 11] = [
    ("compiler/support", &[], &[]),
    ("compiler/kernel", &["mcc-support"], &["mcc-conformance"]),
    ("compiler/kernel/conformance", &["mcc-kernel", "mcc-support"], &[]),
    ("targets/aarch64", &["mcc-kernel", "mcc-support"], &["mcc-conformance"]),
    ("targets/portable", &["mcc-kernel", "mcc-support"], &["mcc-conformance"]),
    ("targets/x86_64", &["mcc-kernel", "mcc-support"], &["mcc-conformance"]),
    (
        "compiler",
        &["mcc-kernel", "mcc-runtime", "mcc-support", "mcc-target-aarch64", "mcc-target-portable", "mcc-target-x86_64"],
        &[],
    ),
    ("compiler/build", &["mcc"], &[]),
    ("runtime", &[], &[]),
    ("tests", &["mcc", "mcc-runtime", "mcc-support"], &[]),
    ("examples/digits-rust", &["mcc-runtime"], &["mcc-build"]),
];

struct File {
    /// From the root, with `/`.
    path: String,
    text: String,
}

impl File {
    fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    /// This file holds the words that it looks for.
    fn is_this(&self) -> bool {
        self.path == "tests/tidy.rs"
    }

    /// Number and text of each line, before the unit tests.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_test = self.path.contains("/tests/") || self.path.ends_with("/tests.rs");
        let end = if is_test { Some(0) } else { self.text.find("#[cfg(test)]\nmod tests {") };
        numbered(&self.text[..end.unwrap_or(self.text.len())])
    }
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests have a folder of their own")
}

fn collect(folder: &Path, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry of a folder").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
            continue;
        }
        let is_text = path.extension().map_or(!name.starts_with('.'), |extension| TEXT.iter().any(|known| extension == *known));
        if is_text && let Ok(text) = fs::read_to_string(&path) {
            let path = path.strip_prefix(root()).expect("a path below the root").to_string_lossy().replace('\\', "/");
            files.push(File { path, text });
        }
    }
}

/// Every text file of the repository, sorted by path.
static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    let mut files = Vec::new();
    collect(root(), &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(files.iter().filter(|file| file.is_rust()).count() > 100, "the sources were not found in {}", root().display());
    files
});

fn file(path: &str) -> &'static File {
    FILES.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("there is no file {path}"))
}

/// Names of the folders in a folder.
fn folders(path: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let paths = entries.map(|entry| entry.expect("an entry of a folder").path()).filter(|path| path.is_dir());
    paths.map(|path| path.file_name().expect("a name").to_string_lossy().into_owned()).collect()
}

fn assert_none(what: &str, faults: impl IntoIterator<Item = String>) {
    let faults: Vec<String> = faults.into_iter().collect();
    assert!(faults.is_empty(), "{what}:\n{}", faults.join("\n"));
}

/// A word that is in a file though no entry of the list allows it, and entries that are not needed.
fn check_words(files: &[&File], words: &[&str], allowed: &[(&str, &str)]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files {
        let is_allowed = allowed.iter().any(|(path, _)| file.path.starts_with(path));
        for (number, line) in file.code().filter(|_| !is_allowed) {
            let lower = line.to_ascii_lowercase();
            faults
                .extend(words.iter().filter(|word| lower.contains(*word)).map(|word| format!("{}:{number}: {word}", file.path)));
        }
    }
    for (path, _) in allowed {
        let is_used =
            |file: &File| file.path.starts_with(path) && words.iter().any(|word| file.text.to_ascii_lowercase().contains(word));
        if !FILES.iter().any(is_used) {
            faults.push(format!("{path} is an exception that nothing needs"));
        }
    }
    faults
}

#[test]
fn files_are_short() {
    let is_written = |file: &&File| ["rs", "c", "h", "S", "py", "md", "sh", "toml"].contains(&file.extension());
    let mut lines: Vec<(usize, &str)> =
        FILES.iter().filter(is_written).map(|file| (file.text.lines().count(), &*file.path)).collect();
    lines.sort_unstable();
    let rust: Vec<usize> = lines.iter().filter(|(_, path)| path.ends_with(".rs")).map(|(count, _)| *count).collect();
    println!("{} files of Rust, {} lines, median {}", rust.len(), rust.iter().sum::<usize>(), rust[rust.len() / 2]);
    println!("{} lines written in all", lines.iter().map(|(count, _)| count).sum::<usize>());
    let long = lines.iter().filter(|(count, _)| *count > MAX_FILE_LINES);
    assert_none(&format!("files over {MAX_FILE_LINES} lines"), long.map(|(count, path)| format!("{path}: {count}")));
}

/// First line and length of each function that is longer than allowed. The closing brace is in the column of the `fn`.
fn long_functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let qualifiers = ["pub", "pub(crate)", "pub(super)", "const", "unsafe", "extern", "\"C\""];
    let starts = |line: &str| line.split_whitespace().find(|word| !qualifiers.contains(word)) == Some("fn");
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate().filter(|(_, line)| starts(line)) {
        let indent = &line[..line.len() - line.trim_start().len()];
        let ends = |line: &&str| {
            line.strip_prefix(indent).is_some_and(|rest| rest == "}" || rest.starts_with(')') && rest.ends_with(';'))
        };
        let is_one_line = line.ends_with('}') || line.ends_with(';');
        let count = if is_one_line { 1 } else { 2 + lines[start + 1..].iter().position(ends).unwrap_or(0) };
        if count > MAX_FUNCTION_LINES {
            found.push((start + 1, count));
        }
    }
    found
}

#[test]
fn functions_are_short() {
    let long: Vec<String> = FILES
        .iter()
        .filter(|file| file.is_rust())
        .flat_map(|file| {
            long_functions(&file.text).into_iter().map(|(line, count)| format!("{}:{line}: {count} lines", file.path))
        })
        .collect();
    assert_eq!(
        long.len(),
        LONG_FUNCTIONS,
        "functions over {MAX_FUNCTION_LINES} lines (lower the constant where there are fewer):\n{}",
        long.join("\n")
    );
}

#[test]
fn long_functions_are_seen() {
    let function = |lines: usize| {
        format!("impl X {{\n    pub fn f(\n        &self,\n    ) -> i32 {{\n{}    }}\n}}\n", "        1;\n".repeat(lines))
    };
    assert_eq!(long_functions(&function(66)), []);
    assert_eq!(long_functions(&function(67)), [(2, 71)]);
    assert_eq!(long_functions("fn f() {}\nfn g(\n) -> i32;\n"), []);
}

#[test]
fn nothing_is_left_undone() {
    let words = ["todo!", "unimplemented!", "FIXME", "XXX", "#[ignore", "dbg!"];
    let faults = FILES.iter().filter(|file| file.is_rust() && !file.is_this()).flat_map(|file| {
        let of_line = move |(number, line): (usize, &str)| {
            words
                .iter()
                .filter(|word| line.contains(**word))
                .map(|word| format!("{}:{number}: {word}", file.path))
                .collect::<Vec<_>>()
        };
        numbered(&file.text).flat_map(of_line)
    });
    assert_none("marks of unfinished work", faults);
}

#[test]
fn no_path_of_a_machine_is_written_down() {
    let faults = FILES.iter().filter(|file| !file.is_this()).flat_map(|file| {
        let names_one = |line: &str| ["work", "root", "home", "Users"].iter().any(|folder| line.contains(&format!("/{folder}/")));
        numbered(&file.text).filter(move |(_, line)| names_one(line)).map(|(number, _)| format!("{}:{number}", file.path))
    });
    assert_none("paths of one machine", faults);
}

#[test]
fn the_compiler_reads_no_environment() {
    let is_compiler =
        |file: &&File| file.is_rust() && ["compiler/", "targets/"].iter().any(|folder| file.path.starts_with(folder));
    let files: Vec<&File> = FILES.iter().filter(is_compiler).filter(|file| file.path.contains("/src/")).collect();
    let allowed = [
        ("compiler/src/tools/install.rs", "where the user's cache is"),
        ("compiler/build/src/", "cargo tells build scripts so where and for what to build"),
    ];
    let faults = check_words(&files, &["env::var", "option_env!", "use std::env"], &allowed);
    assert_none("what is made must depend on model and options alone", faults);
}

#[test]
fn unsafe_code_is_in_few_files() {
    let files: Vec<&File> = FILES.iter().filter(|file| file.is_rust() && file.path.contains("/src/")).collect();
    let allowed = [
        ("compiler/src/onnx/file.rs", "maps a model file"),
        ("compiler/src/tools/exec.rs", "calls a compiled model"),
        ("runtime/src/", "the border to compiled code"),
        ("compiler/src/emit/rust.rs", "writes a module that names a linked model"),
    ];
    assert_none("unsafe code", check_words(&files, &["unsafe"], &allowed));
}

#[test]
fn cranelift_is_named_in_few_files() {
    let files: Vec<&File> = FILES.iter().filter(|file| file.is_rust() && !file.is_this()).collect();
    assert_none("Cranelift is named", check_words(&files, &["cranelift"], &CRANELIFT));
}

#[test]
fn instruction_sets_are_named_in_few_files() {
    let is_inside =
        |file: &&File| file.path.starts_with("compiler/") && file.path.contains("/src/") && !file.path.contains("/conformance/");
    let files: Vec<&File> = FILES.iter().filter(|file| file.is_rust()).filter(is_inside).collect();
    assert_none("an instruction set is named", check_words(&files, &INSTRUCTION_SETS, &NAME_INSTRUCTION_SETS));
}

#[test]
fn stages_do_not_look_back() {
    let known: Vec<&str> =
        STAGES.iter().map(|(stage, _)| *stage).chain(["decisions", "emit", "driver", "targets", "tools"]).collect();
    let mut faults = Vec::new();
    for (stage, allowed) in STAGES.iter().chain(&[("emit", &[][..])]) {
        let folder = format!("compiler/src/{stage}");
        let files: Vec<&File> = FILES.iter().filter(|file| file.path.starts_with(&format!("{folder}/"))).collect();
        assert!(!files.is_empty(), "there is no folder {folder}");
        for file in files {
            for (number, line) in file.code() {
                let names =
                    |other: &str| line.contains(&format!("crate::{other}::")) || line.contains(&format!("crate::{other};"));
                let used = known.iter().filter(|other| *other != stage && !allowed.contains(other) && names(other));
                faults.extend(used.map(|other| format!("{}:{number}: {other}", file.path)));
                if line.contains("use crate::{") {
                    faults.push(format!("{}:{number}: one line for each module is what is checked", file.path));
                }
            }
        }
    }
    assert_none("a stage uses what it may not", faults);
}

/// Names in the sections of a `Cargo.toml` that end so.
fn dependencies(path: &str, section: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut is_inside = false;
    for line in file(path).text.lines() {
        match line.strip_prefix('[') {
            Some(header) => is_inside = header.starts_with(section) || header.ends_with(&format!(".{section}]")),
            None if is_inside && line.starts_with(|first: char| first.is_ascii_alphabetic()) => {
                names.insert(line.split(['.', ' ', '=']).next().unwrap_or_default().to_string());
            }
            None => {}
        }
    }
    names
}

#[test]
fn crates_depend_in_one_direction() {
    let is_ours = |name: &String| *name == "mcc" || name.starts_with("mcc-");
    let mut faults = Vec::new();
    for (folder, allowed, allowed_in_tests) in CRATES {
        let path = format!("{folder}/Cargo.toml");
        for (section, allowed) in
            [("dependencies", allowed), ("dev-dependencies", allowed_in_tests), ("build-dependencies", allowed_in_tests)]
        {
            let found = dependencies(&path, section).into_iter().filter(is_ours);
            faults.extend(
                found.filter(|name| !allowed.contains(&name.as_str())).map(|name| format!("{folder}: {section}: {name}")),
            );
        }
    }
    let listed: BTreeSet<String> = CRATES.iter().map(|(folder, ..)| format!("{folder}/Cargo.toml")).collect();
    let found = FILES.iter().filter(|file| file.path.ends_with("/Cargo.toml") && !listed.contains(&file.path));
    faults.extend(found.map(|file| format!("{} is not in the list of crates", file.path)));
    assert_none("a crate depends on what it may not", faults);
}

#[test]
fn dependencies_have_a_reason_and_a_use() {
    let mut faults = Vec::new();
    let mut has_reason = false;
    let manifest = &file("Cargo.toml").text;
    let (_, listed) = manifest.split_once("[workspace.dependencies]\n").expect("the list of dependencies");
    // A comment after it, or above it and those that share it.
    for line in listed.lines().take_while(|line| !line.starts_with('[')) {
        match line {
            "" => has_reason = false,
            _ if line.starts_with('#') => has_reason = true,
            _ if line.contains("path = ") => {}
            _ if line.contains(" # ") => has_reason = false,
            _ if !has_reason => faults.push(format!("no reason: {line}")),
            _ => {}
        }
    }
    for (folder, ..) in CRATES {
        for name in ["dependencies", "dev-dependencies", "build-dependencies"]
            .iter()
            .flat_map(|section| dependencies(&format!("{folder}/Cargo.toml"), section))
        {
            let word = name.replace('-', "_");
            let is_use = |file: &&File| file.is_rust() && file.path.starts_with(&format!("{folder}/"));
            if !FILES.iter().filter(is_use).any(|file| file.text.contains(&format!("{word}::"))) {
                faults.push(format!("{folder} does not use {name}"));
            }
        }
    }
    assert_none("dependencies", faults);
}

#[test]
fn every_pass_has_its_golden_folder() {
    let source = &file("compiler/src/passes/mod.rs").text;
    let modules = source.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let passes: BTreeSet<String> = modules.map(|name| name.replace('_', "-")).collect();
    assert!(passes.len() > 5, "the passes were not found");
    let found = folders("tests/golden/passes");
    // Beside those of single passes, the lists may have one.
    let extra: Vec<&String> =
        found.difference(&passes).filter(|name| !["canonical", "deployment"].contains(&name.as_str())).collect();
    let missing: Vec<&String> = passes.difference(&found).collect();
    assert!(extra.is_empty() && missing.is_empty(), "golden folders without a pass: {extra:?}; passes without one: {missing:?}");
}

#[test]
fn every_source_file_is_a_module() {
    let mut faults = Vec::new();
    for File { path, .. } in FILES.iter().filter(|file| file.is_rust() && file.path.contains("/src/")) {
        let path = Path::new(path);
        let (folder, stem) = (path.parent().expect("a folder"), path.file_stem().expect("a name").to_string_lossy());
        if ["lib", "main"].contains(&&*stem) {
            continue;
        }
        let (folder, name) = if stem == "mod" {
            (folder.parent().expect("a folder"), folder.file_name().expect("a name").to_string_lossy())
        } else {
            (folder, stem)
        };
        let parents: [PathBuf; 4] =
            [folder.join("lib.rs"), folder.join("main.rs"), folder.join("mod.rs"), folder.with_extension("rs")];
        let is_declared = |file: &File| file.text.lines().any(|line| line.trim_end().ends_with(&format!("mod {name};")));
        if !FILES.iter().any(|file| parents.contains(&PathBuf::from(&file.path)) && is_declared(file)) {
            faults.push(path.display().to_string());
        }
    }
    assert_none("files that no module declares", faults);
}

/// `[text](path)` in the documents: files and folders that are there.
#[test]
fn links_lead_somewhere() {
    let mut faults = Vec::new();
    for document in FILES.iter().filter(|file| file.extension() == "md" && !file.path.contains("/data/")) {
        let folder = root().join(&document.path).parent().expect("a folder").to_path_buf();
        for (number, line) in numbered(&document.text) {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
            let missing = targets.filter(|target| !target.is_empty() && !target.contains("://") && !folder.join(target).exists());
            faults.extend(missing.map(|target| format!("{}:{number}: {target}", document.path)));
        }
    }
    assert_none("links to what is not there", faults);
}

/// The code map of `ARCHITECTURE.md` names every folder of the compiler and every crate.
#[test]
fn the_code_map_is_whole() {
    let map = &file("ARCHITECTURE.md").text;
    let crates: BTreeMap<String, &str> = CRATES.iter().map(|(folder, ..)| (format!("`{folder}`"), "crate")).collect();
    let stages = folders("compiler/src").into_iter().map(|name| (format!("`{name}/`"), "folder"));
    let missing = crates.into_iter().chain(stages).filter(|(name, _)| !map.contains(name));
    assert_none("the code map does not name", missing.map(|(name, what)| format!("{what} {name}")));
}
