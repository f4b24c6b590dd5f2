//! `mcc MODEL.onnx`: compiles a model and writes the files.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcc_support::{Error, Result, ensure};

use crate::driver::{self, Compilation, Stage};
use crate::emit::WeightsPlace;
use crate::outputs;
use crate::targets;

use super::args::{CompileArgs, EmitKind};
use super::memory::Memory;
use super::report::{self, Reporter};

pub fn compile(args: &CompileArgs) -> Result<ExitCode> {
    let mut options = args.build.options(&args.model, &args.target)?;
    options.name.clone_from(&args.name);
    options.stop_after = args.stop_after;
    options.profile = args.profile;
    options.branch_protection = args.branch_protection.protection();
    options.weights = match (&args.weights_section, &args.weights_file) {
        (Some(name), _) => WeightsPlace::Section(name.clone()),
        (None, Some(_)) => WeightsPlace::File,
        (None, None) => WeightsPlace::Object,
    };
    let mut reporter = Reporter::new(!args.quiet, args.print_after.clone());
    let result = driver::compile(&options, &mut reporter);
    let times = reporter.finish();
    let compilation = result?;
    if !args.quiet {
        compilation.warnings.iter().for_each(|warning| report::warning(warning));
    }
    if let Some(limits) = args.limit.as_ref().filter(|_| args.stop_after.is_none()) {
        Memory::of(&compilation).check(limits)?;
    }
    if args.stop_after.is_none() {
        write(args, &compilation)?;
    }
    if args.stop_after.is_none() && !args.quiet {
        summary(&compilation);
    }
    if args.build.time {
        report::times(&times);
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes what is asked for. Everything is made before the first file is written.
fn write(args: &CompileArgs, compilation: &Compilation) -> Result<()> {
    let object = object_path(args.output.as_deref(), &compilation.name)?;
    let kinds: BTreeSet<EmitKind> = args.emit.iter().copied().collect();
    let mut files = Vec::new();
    for kind in kinds {
        let linked = compilation.linked();
        let (extension, bytes) = match kind {
            EmitKind::Object => {
                files.push((object.clone(), linked.object()));
                continue;
            }
            EmitKind::Staticlib => {
                files.push((library_path(&object), linked.static_library()));
                continue;
            }
            EmitKind::Header => {
                files.push((object.with_file_name("mcc.h"), mcc_runtime::HEADER.as_bytes().to_vec()));
                ("h", linked.header().into_bytes())
            }
            EmitKind::Manifest => ("json", linked.manifest().into_bytes()),
            EmitKind::Rust => ("rs", linked.rust().into_bytes()),
            EmitKind::Graph => ("graph", compilation.text(Stage::Passes).into_bytes()),
            EmitKind::Loops => ("loops", compilation.text(Stage::Realize).into_bytes()),
            EmitKind::Decisions => ("decisions.json", compilation.text(Stage::Decide).into_bytes()),
            EmitKind::Plan => ("plan", compilation.plan_text().into_bytes()),
            EmitKind::Asm => ("asm", compilation.text(Stage::Emit).into_bytes()),
            EmitKind::Kernel => ("kernel", compilation.text(Stage::Codegen).into_bytes()),
        };
        files.push((object.with_extension(extension), bytes));
    }
    if let (Some(path), Some(bytes)) = (&args.weights_file, compilation.linked().weights_file()) {
        files.push((path.clone(), bytes));
    }
    if let Some(path) = &args.depfile {
        let targets: Vec<&Path> = files.iter().map(|(path, _)| path.as_path()).collect();
        let text = depfile(&targets, &compilation.dependencies());
        files.push((path.clone(), text.into_bytes()));
    }
    let mut paths = BTreeSet::new();
    let read: Vec<PathBuf> = compilation.dependencies().iter().filter_map(|path| path.canonicalize().ok()).collect();
    for (path, _) in &files {
        let place = || format!("in file '{}'", path.display());
        if path.canonicalize().is_ok_and(|path| read.contains(&path)) {
            return Err(Error::new("an output would replace what the compile reads")
                .context(place())
                .help("choose another place with -o"));
        }
        ensure!(paths.insert(path), "two outputs are written to '{}'", path.display());
        if path.exists() && !path.is_file() {
            return Err(Error::new("this is not a file that can be replaced").context(place()));
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|error| Error::new(format!("cannot make its folder: {error}")).context(place()))?;
        }
    }
    files.sort_by_key(|(path, _)| *path != object);
    outputs::write_all(&files)
}

fn summary(compilation: &Compilation) {
    let linked = compilation.linked();
    let sizes = linked.sizes;
    let of_bound =
        if sizes.arena_lower_bound_bytes == 0 { 1.0 } else { sizes.arena_bytes as f64 / sizes.arena_lower_bound_bytes as f64 };
    report::note(&format!("{} for {}, CPU {}", compilation.name, compilation.triple, compilation.cpu_names()));
    for level in &compilation.levels {
        let (target, refused) = targets::target_for(&level.cpu);
        let reasons = if refused.is_empty() { String::new() } else { format!(", for {}", refused.join("; ")) };
        let cpu = if compilation.levels.len() > 1 { format!(" on {}", level.cpu.name) } else { String::new() };
        report::note(&format!("  target   {}{cpu}{reasons}", target.name()));
    }
    report::note(&format!("  arena    {} bytes ({of_bound:.2} of the least possible)", sizes.arena_bytes));
    report::note(&format!("  weights  {} bytes", sizes.weights_bytes));
    report::note(&format!("  code     {} bytes in {} functions", sizes.code_bytes, linked.functions.len()));
    report::note(&format!("  stack    {} bytes", sizes.stack_bytes));
    let transformed = linked.model.kernels().filter(|(_, kernel)| kernel.winograd.is_some()).count();
    if transformed > 0 {
        report::note(&format!("  winograd {transformed} convolutions"));
    }
}

/// Where the object goes; the other files lie beside it.
fn object_path(output: Option<&Path>, name: &str) -> Result<PathBuf> {
    let file = format!("{name}.o");
    let Some(path) = output else { return Ok(PathBuf::from(file)) };
    let no_file = |why: &str, help: &str| Err(Error::new(format!("--output {}: {why}", path.display())).help(help));
    if path.as_os_str() == "-" {
        return no_file("several files are written, none to the standard output", "give a path or a folder");
    }
    if path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Ok(path.join(file));
    }
    if path.exists() && !path.is_file() {
        return no_file(
            "files are written beside it, and it is no file",
            "to write nothing, use `mcc check` or --stop-after emit",
        );
    }
    Ok(if path.extension().is_none() { path.with_extension("o") } else { path.to_path_buf() })
}

/// Where the static library goes: where linkers look for it, unless the object's path is that of a library.
fn library_path(object: &Path) -> PathBuf {
    if object.extension().is_some_and(|extension| extension == "a" || extension == "lib") {
        return object.to_path_buf();
    }
    object.with_file_name(format!("lib{}.a", object.file_stem().unwrap_or_default().to_string_lossy()))
}

/// One rule in the syntax of make, and a rule without a recipe for each file that the user's own rule does not name: that one of them
/// is gone is then no error of make's, but a reason to run mcc.
fn depfile(targets: &[&Path], dependencies: &[PathBuf]) -> String {
    let escape = |path: &Path| -> String {
        let mut out = String::new();
        for c in OsStr::to_string_lossy(path.as_os_str()).chars() {
            match c {
                ' ' | '#' => out.extend(['\\', c]),
                '$' => out.push_str("$$"),
                other => out.push(other),
            }
        }
        out
    };
    let targets: Vec<String> = targets.iter().map(|path| escape(path)).collect();
    let further: String = dependencies.iter().skip(1).map(|path| format!("\n{}:\n", escape(path))).collect();
    let dependencies: String = dependencies.iter().map(|path| format!(" \\\n  {}", escape(path))).collect();
    format!("{}:{dependencies}\n{further}", targets.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_lie_beside_the_object() {
        for (output, expected) in
            [(None, "net.o"), (Some("a.obj"), "a.obj"), (Some("build/"), "build/net.o"), (Some("b/a"), "b/a.o")]
        {
            assert_eq!(object_path(output.map(Path::new), "net").unwrap(), Path::new(expected));
        }
        assert!(object_path(Some(Path::new("-")), "net").is_err() && object_path(Some(Path::new("/dev/null")), "net").is_err());
        for (object, expected) in [("a.o", "liba.a"), ("build/net.o", "build/libnet.a"), ("b/a.lib", "b/a.lib"), ("a.a", "a.a")] {
            assert_eq!(library_path(Path::new(object)), Path::new(expected));
        }
    }

    #[test]
    fn names_in_rules_are_escaped() {
        let text = depfile(&[Path::new("a b.o"), Path::new("c.h")], &[PathBuf::from("m#1.onnx"), PathBuf::from("w$.bin")]);
        assert_eq!(text, "a\\ b.o c.h: \\\n  m\\#1.onnx \\\n  w$$.bin\n\nw$$.bin:\n");
    }
}
