//! Machines that tests build and run C programs for: the host, and the other one under qemu; the levels of each.

use std::fmt;
use std::path::Path;
use std::process::Command;

use mcc::driver::Options;
use mcc::targets;

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

    /// The levels that can be run here. Prints which cannot.
    pub fn levels(self) -> Vec<Level> {
        Level::ALL.into_iter().filter(|level| level.machine == self && level.can_run()).collect()
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
        if self.is_host() { Command::new(path) } else { self.emulated(path, "max") }
    }

    /// Runs a program on a CPU that qemu knows by this name.
    pub fn emulated(self, path: &Path, cpu: &str) -> Command {
        let mut command = Command::new(format!("qemu-{}", self.target()));
        if !self.is_host() {
            command.arg("-L").arg(format!("/usr/{}-linux-gnu", self.target()));
        }
        command.args(["-cpu", cpu]).arg(path);
        command
    }
}

/// CPUs of a machine that are compiled for in one way: by the same target, with the same vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    pub machine: Machine,
    /// As `--cpu` takes it.
    pub cpu: &'static str,
    /// There is no operating system, and every access must be aligned.
    pub bare: bool,
}

impl Level {
    pub const ALL: [Level; 6] = [
        Level { machine: Machine::X86_64, cpu: "x86-64", bare: false },
        Level { machine: Machine::X86_64, cpu: "x86-64-v3", bare: false },
        Level { machine: Machine::X86_64, cpu: "x86-64-v4", bare: false },
        Level { machine: Machine::Aarch64, cpu: "armv8-a", bare: false },
        Level { machine: Machine::Aarch64, cpu: "armv8-a+fp16", bare: false },
        Level { machine: Machine::Aarch64, cpu: "armv8-a", bare: true },
    ];

    /// The levels that can be run in this process. Prints which cannot.
    pub fn here() -> Vec<Level> {
        Machine::host().levels().into_iter().filter(|level| !level.bare).collect()
    }

    /// Options to compile for this level; what can be run in this process is compiled for the host's system.
    pub fn options(self, options: Options) -> Options {
        let target = match (self.machine, self.bare) {
            (machine, false) if machine.is_host() => "host",
            (machine, false) => machine.target(),
            (Machine::X86_64, true) => "x86_64-none",
            (Machine::Aarch64, true) => "aarch64-none",
        };
        Options { target: target.into(), cpu: Some(self.cpu.into()), ..options }
    }

    /// The emulator of aarch64 has every feature; that of x86-64 has no AVX-512.
    fn can_run(self) -> bool {
        let features = |cpu| targets::Machine::new(self.machine.target(), Some(cpu)).expect("a CPU of the machine").cpu.features;
        let can_run = match (self.machine.is_host(), self.machine) {
            (true, _) => features(self.cpu).is_subset(&features("native")),
            (false, Machine::Aarch64) => true,
            (false, Machine::X86_64) => !features(self.cpu).contains("avx512f"),
        };
        if !can_run {
            println!("not run: this machine cannot run code for {self}");
        }
        can_run
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.cpu, if self.bare { ", bare" } else { "" })
    }
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
