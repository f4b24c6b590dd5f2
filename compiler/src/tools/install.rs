//! What build systems need beside the command: the CMake package, `mcc.h`, the runtime's sources and their like. They are part
//! of the command, which `cargo install` installs alone, and are written out as a folder in the layout of an installed prefix.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcc_support::{Error, Result};
use sha2::{Digest, Sha256};

use crate::emit::manifest::hex;
use crate::outputs;

use super::args::{InstallArgs, Printed};
use super::{print, report};

/// A file of `compiler/install`, which lies there as it is installed.
macro_rules! own {
    ($path:literal) => {
        ($path, include_str!(concat!("../../install/", $path)))
    };
}

/// A file of the runtime.
macro_rules! runtime {
    ($path:literal) => {
        (concat!("share/mcc/runtime/", $path), include_str!(concat!("../../../runtime/", $path)))
    };
}

/// Every file, by its path in the prefix. `@VERSION@` is the version of mcc, `@COMMAND@` where it is.
const FILES: &[(&str, &str)] = &[
    ("include/mcc.h", mcc_runtime::HEADER),
    own!("lib/cmake/mcc/mccConfig.cmake"),
    own!("lib/cmake/mcc/mccConfigVersion.cmake"),
    own!("share/mcc/zephyr/CMakeLists.txt"),
    own!("share/mcc/zephyr/Kconfig"),
    own!("share/mcc/zephyr/zephyr/module.yml"),
    own!("share/pkgconfig/mcc.pc"),
    runtime!("include/mcc.h"),
    runtime!("src/abi.rs"),
    runtime!("src/arena.rs"),
    runtime!("src/detect.rs"),
    runtime!("src/error.rs"),
    runtime!("src/lib.rs"),
    runtime!("src/model.rs"),
    runtime!("src/tensor.rs"),
    ("share/mcc/runtime/Cargo.toml", include_str!("../../install/runtime.toml")),
];

/// The command, in a prefix.
const COMMAND: &str = "bin/mcc";
/// The same as pkg-config has it.
const COMMAND_IN_PREFIX: &str = "${prefix}/bin/mcc";

impl Printed {
    /// Where in a prefix it is.
    fn path(self) -> &'static str {
        match self {
            Printed::Prefix => "",
            Printed::CmakeDir => "lib/cmake/mcc",
            Printed::IncludeDir => "include",
            Printed::PkgConfigDir => "share/pkgconfig",
            Printed::RuntimeSource => "share/mcc/runtime",
            Printed::ZephyrModule => "share/mcc/zephyr",
        }
    }
}

/// `mcc --print WHAT`: a path below a prefix in the user's cache, which is written where it is not there. The prefix is named by
/// what is in it and never changes: another version of mcc, or one in another place, has another.
pub fn print_path(what: Printed) -> Result<ExitCode> {
    let command = this_command()?;
    let prefix = cache_folder()?.join(key(&command));
    write_files(&prefix, COMMAND_IN_PREFIX)
        .and_then(|()| link(&command, &prefix.join(COMMAND)))
        .map_err(|error| error.help("choose a place with `mcc install-files DIR`, or another cache with XDG_CACHE_HOME"))?;
    print(&format!("{}\n", prefix.join(what.path()).display()));
    Ok(ExitCode::SUCCESS)
}

/// `mcc install-files DIR`.
pub fn install_files(args: &InstallArgs) -> Result<ExitCode> {
    let command = this_command()?;
    let command = if args.folder.join(COMMAND).exists() { COMMAND_IN_PREFIX.to_string() } else { command.display().to_string() };
    write_files(&args.folder, &command)?;
    report::note(&format!("{} files are in '{}'", FILES.len(), args.folder.display()));
    Ok(ExitCode::SUCCESS)
}

fn this_command() -> Result<PathBuf> {
    env::current_exe().map_err(|error| Error::new(format!("the place of this command is not known: {error}")))
}

/// The files, in which the command is at a path.
fn contents(command: &str) -> impl Iterator<Item = (&'static str, String)> {
    FILES
        .iter()
        .map(move |(path, text)| (*path, text.replace("@VERSION@", env!("CARGO_PKG_VERSION")).replace("@COMMAND@", command)))
}

/// Name of the prefix for this command.
fn key(command: &Path) -> String {
    let mut hash = Sha256::new();
    hash.update(command.as_os_str().as_encoded_bytes());
    for (path, text) in contents(COMMAND_IN_PREFIX) {
        hash.update(format!("\0{path}\0{text}"));
    }
    format!("{}-{}", env!("CARGO_PKG_VERSION"), &hex(&hash.finalize())[..16])
}

fn cache_folder() -> Result<PathBuf> {
    let variable = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = variable("XDG_CACHE_HOME").or_else(|| variable("LOCALAPPDATA"));
    let folder = folder.or_else(|| variable("HOME").map(|home| home.join(".cache")));
    let missing = || {
        Error::new("there is no folder for the user's cache: neither XDG_CACHE_HOME nor HOME is set")
            .help("set one, or choose a place with `mcc install-files DIR`")
    };
    Ok(folder.ok_or_else(missing)?.join("mcc").join("prefix"))
}

/// Writes the files that are not there or differ, each whole or not at all: processes that do so at once write the same, and none
/// is told of the prefix before all files are in it.
fn write_files(prefix: &Path, command: &str) -> Result<()> {
    for (path, text) in contents(command) {
        let path = prefix.join(path);
        if fs::read(&path).is_ok_and(|bytes| bytes == text.as_bytes()) {
            continue;
        }
        make_folder_of(&path)?;
        outputs::write(&path, text.as_bytes())?;
    }
    Ok(())
}

fn make_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().expect("a path in a prefix");
    fs::create_dir_all(folder).map_err(|error| {
        Error::new(format!("cannot make the folder: {error}")).context(format!("in folder '{}'", folder.display()))
    })
}

/// Makes `path` lead to the command, so that the prefix is as an installed one.
fn link(command: &Path, path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    make_folder_of(path)?;
    let made = make_link(command, path);
    // Another process may have been first.
    if path.exists() {
        return Ok(());
    }
    made.map_err(|error| Error::new(format!("cannot make the link: {error}")).context(format!("in file '{}'", path.display())))
}

#[cfg(unix)]
fn make_link(command: &Path, path: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(command, path)
}

#[cfg(not(unix))]
fn make_link(command: &Path, path: &Path) -> std::io::Result<()> {
    fs::hard_link(command, path)
}
