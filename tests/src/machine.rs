//! Machines that tests build and run C programs for: the host, and the other one under qemu.

use std::path::Path;
use std::process::Command;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    X86_64,
    Aarch64,
}

impl Machine {
    pub const ALL: [Machine; 2] = [Machine::X86_64, Machine::Aarch64];

    pub fn host() -> Machine {
        if cfg!(target_arch = "aarch64") { Machine::Aarch64 } else { Machine::X86_64 }
    }

    /// As `mcc --target` spells it.
    pub fn target(self) -> &'static str {
        match self {
            Machine::X86_64 => "x86_64",
            Machine::Aarch64 => "aarch64",
        }
    }

    /// The CPUs, as `mcc --cpu` spells them, for which code runs on this machine and is not what another of them gives. What cannot run here
    /// is left out with a message.
    pub fn levels(self) -> Vec<&'static str> {
        match self {
            Machine::Aarch64 => vec!["armv8-a"],
            Machine::X86_64 => {
                let mut levels = vec!["x86-64", "x86-64-v3", "x86-64-v4"];
                if self.is_host() && !has_512_bits() {
                    eprintln!("not run: this machine cannot run code for x86-64-v4");
                    levels.pop();
                }
                levels
            }
        }
    }

    fn is_host(self) -> bool {
        self == Machine::host()
    }

    /// A tool of the GNU toolchain, `gcc` or `ld`.
    pub fn tool(self, name: &str) -> Command {
        Command::new(if self.is_host() { name.to_string() } else { format!("{}-linux-gnu-{name}", self.target()) })
    }

    /// Runs a program for this machine.
    pub fn program(self, path: &Path) -> Command {
        if self.is_host() {
            return Command::new(path);
        }
        let mut command = Command::new(format!("qemu-{}", self.target()));
        command.arg("-L").arg(format!("/usr/{}-linux-gnu", self.target())).arg(path);
        command
    }
}

#[cfg(target_arch = "x86_64")]
fn has_512_bits() -> bool {
    std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512bw")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_512_bits() -> bool {
    false
}

/// Runs a command; panics with what it wrote unless it succeeds.
pub fn run(command: &mut Command) -> Vec<u8> {
    match try_run(command) {
        Ok(output) => output,
        Err(text) => panic!("{text}"),
    }
}

/// Runs a command; its standard output, or what it was, its status and its standard error.
pub fn try_run(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.output().map_err(|error| {
        format!("{}: {error}: run tests/tools/setup.py, as ./test does", command.get_program().to_string_lossy())
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}
