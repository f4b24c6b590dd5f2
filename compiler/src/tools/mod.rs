//! The command and what it is made of.

mod args;
mod bench;
pub mod bisect;
mod check;
pub mod compare;
mod compile;
pub mod diff;
pub mod exec;
mod inputs;
mod inspect;
mod install;
pub mod interpret;
mod lists;
mod memory;
mod opt;
mod rates;
mod report;
mod run;
mod table;
mod work;

use std::io::{ErrorKind, Write, stdout};
use std::process::ExitCode;

use mcc_support::Result;

use crate::outputs;

pub use args::Level;
use args::{Command, Invocation};

/// Deeply nested models recurse: the threads of some systems start with little stack.
const STACK_BYTES: usize = 256 << 20;
/// The command ended by a fault of its own, as Rust's own programs end.
const FAULT: u8 = 101;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let invocation = Invocation::parse();
    std::panic::set_hook(Box::new(report::fault));
    outputs::clean_up_on_signals();
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || run_command(&invocation));
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(code))) => code,
        Ok(Ok(Err(error))) => {
            report::error(&error);
            ExitCode::FAILURE
        }
        Ok(Err(_)) => ExitCode::from(FAULT),
        Err(error) => {
            report::error(&mcc_support::Error::new(format!("no thread can be started: {error}")));
            ExitCode::FAILURE
        }
    }
}

fn run_command(invocation: &Invocation) -> Result<ExitCode> {
    match invocation {
        Invocation::Compile(args) => compile::compile(args),
        Invocation::Print(what) => install::print_path(*what),
        Invocation::Command(Command::Run(args)) => run::run(args),
        Invocation::Command(Command::Bench(args)) => bench::bench(args),
        Invocation::Command(Command::Inspect(args)) => inspect::inspect(args),
        Invocation::Command(Command::Check(args)) => check::check(args),
        Invocation::Command(Command::Diff(args)) => diff::diff(args),
        Invocation::Command(Command::Bisect(args)) => bisect::bisect(args),
        Invocation::Command(Command::Opt(args)) => opt::opt(args),
        Invocation::Command(Command::Ops) => lists::ops(),
        Invocation::Command(Command::Targets) => lists::targets(),
        Invocation::Command(Command::InstallFiles(args)) => install::install_files(args),
    }
}

/// Writes to the standard output. A reader that leaves early, as `head` does, ends the command quietly.
fn print(text: &str) {
    let mut out = stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        let code = if error.kind() == ErrorKind::BrokenPipe { 0 } else { 1 };
        std::process::exit(code);
    }
}
