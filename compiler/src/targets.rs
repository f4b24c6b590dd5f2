//! Which machines are compiled for, and by which target.

use std::cmp::Reverse;
use std::fmt::Write as _;

use mcc_kernel::{Arch, BranchProtection, Cpu, Target};
use mcc_support::{Error, Result, ensure};
use mcc_target_portable as portable;
use target_lexicon::{Architecture, BinaryFormat, Environment, OperatingSystem, PointerWidth, Triple};

use crate::emit::required_features;

pub use portable::{Class, Instruction, disassemble, instructions};

/// Every target, best first: the kernels of a model are compiled by the first that has code for the CPU.
pub static TARGETS: [&dyn Target; 3] = [&mcc_target_x86_64::TARGET, &mcc_target_aarch64::TARGET, &portable::TARGET];

/// Compiles the entry functions, which call and are called but compute nothing.
pub static ENTRY: &dyn Target = &portable::TARGET;

/// The target for a CPU, and why those before it were not taken, one reason each.
pub fn target_for(cpu: &Cpu) -> (&'static dyn Target, Vec<String>) {
    let mut refused = Vec::new();
    for target in TARGETS.iter().filter(|target| target.is_for(cpu.arch)) {
        match target.refuses(cpu) {
            None => return (*target, refused),
            Some(why) => refused.push(format!("{} {why}", target.name())),
        }
    }
    unreachable!("the portable target refuses no CPU")
}

/// Short names for triples.
const SHORT: [(&str, &str); 4] = [
    ("x86_64", "x86_64-unknown-linux-gnu"),
    ("x86_64-none", "x86_64-unknown-none"),
    ("aarch64", "aarch64-unknown-linux-gnu"),
    ("aarch64-none", "aarch64-unknown-none"),
];

/// Other names of the same, as toolchains have them.
const ALIASES: [(&str, &str); 7] = [
    ("amd64", "x86_64-unknown-linux-gnu"),
    ("x86-64", "x86_64-unknown-linux-gnu"),
    ("x86_64-w64-mingw32", "x86_64-pc-windows-gnu"),
    ("arm64", "aarch64-unknown-linux-gnu"),
    ("aarch64-none-linux-gnu", "aarch64-unknown-linux-gnu"),
    ("aarch64-none-elf", "aarch64-unknown-none"),
    ("aarch64-unknown-elf", "aarch64-unknown-none"),
];

/// Triples that are named where one is asked for; others of the same formats are taken as well.
const TRIPLES: [&str; 13] = [
    "x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl", "x86_64-unknown-freebsd", "x86_64-unknown-none",
    "x86_64-apple-darwin", "x86_64-pc-windows-msvc", "x86_64-pc-windows-gnu", "aarch64-unknown-linux-gnu",
    "aarch64-unknown-linux-musl", "aarch64-linux-android", "aarch64-unknown-none", "aarch64-apple-darwin", "aarch64-apple-ios",
];

/// What is compiled for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    pub triple: Triple,
    pub cpu: Cpu,
}

impl Machine {
    /// From `--target` and `--cpu`.
    ///
    /// # Errors
    ///
    /// A target that is unknown or cannot be compiled for, and a CPU that is not of its architecture.
    pub fn new(target: &str, cpu: Option<&str>) -> Result<Self> {
        let (triple, arch) = select(target).map_err(|error| error.help(format!("targets are {}", target_names().join(", "))))?;
        let mut cpu = portable::cpu(arch, cpu.unwrap_or(portable::default_cpu_name(arch)))?;
        cpu.windows_abi = triple.operating_system == OperatingSystem::Windows;
        // Without an operating system the memory management unit may be off, and then every access must be aligned.
        cpu.strict_alignment = arch == Arch::Aarch64 && is_bare(&triple);
        Ok(Self { triple, cpu })
    }

    /// From `--target` and a list of CPUs, the best first; `+FEATURE` in it is the CPU before with that feature.
    ///
    /// # Errors
    ///
    /// As for one, and CPUs of which none has all that the other has, or between which a run cannot choose.
    pub fn levels(target: &str, cpus: Option<&str>) -> Result<Vec<Self>> {
        let Some(cpus) = cpus else { return Ok(vec![Self::new(target, None)?]) };
        let mut machines: Vec<Self> = Vec::new();
        for name in cpus.split(',').map(str::trim) {
            let name = match machines.last() {
                Some(before) if name.starts_with('+') => format!("{}{name}", before.cpu.name),
                _ => name.to_string(),
            };
            machines.push(Self::new(target, Some(&name))?);
        }
        machines.sort_by_key(|machine| Reverse(machine.cpu.features.len()));
        machines.windows(2).try_for_each(|pair| expect_better(&pair[0].cpu, &pair[1].cpu))?;
        Ok(machines)
    }

    /// The same with code that makes unaligned accesses or makes none; as its operating system wants it where nothing is said.
    ///
    /// # Errors
    ///
    /// Aligned accesses alone on an architecture that has code for both only.
    pub fn align(mut self, strict: Option<bool>) -> Result<Self> {
        let fits = self.cpu.arch == Arch::Aarch64 || strict != Some(true);
        ensure!(fits, "code without unaligned accesses is made for aarch64 only, not for {}", self.triple);
        self.cpu.strict_alignment = strict.unwrap_or(self.cpu.strict_alignment);
        Ok(self)
    }

    /// The same with code that is protected.
    ///
    /// # Errors
    ///
    /// Protection that the architecture does not have.
    pub fn protect(mut self, protection: BranchProtection) -> Result<Self> {
        let fits = self.cpu.arch == Arch::Aarch64 || protection == BranchProtection::default();
        ensure!(fits, "branches are protected on aarch64 only, not for {}", self.triple);
        self.cpu.protection = protection;
        Ok(self)
    }
}

/// Wants all that the weaker CPU has in the better one, and something more that a run can test.
fn expect_better(better: &Cpu, weaker: &Cpu) -> Result<()> {
    let names = format!("'{}' and '{}'", better.name, weaker.name);
    if let Some(feature) = weaker.features.difference(&better.features).next() {
        let more = better.features.difference(&weaker.features).next().expect("it has no fewer features");
        return Err(Error::new(format!("of the CPUs {names}, the first alone has {more} and the second alone has {feature}"))
            .help(
                "of CPUs in one object, each must have all that the weaker ones have; compile an object for each, with --name",
            ));
    }
    ensure!(better.features != weaker.features, "the CPUs {names} have the same features: a run cannot choose between them");
    let tested = required_features(better) != required_features(weaker);
    ensure!(tested, "the CPUs {names} differ in no feature that mcc_call.cpu_features tells: a run cannot choose between them");
    Ok(())
}

fn select(target: &str) -> Result<(Triple, Arch)> {
    let triple: Triple = match SHORT.iter().chain(&ALIASES).find(|(short, _)| *short == target) {
        _ if target == "host" => Triple::host(),
        Some((_, triple)) => triple.parse().expect("the table holds triples"),
        None => target.parse().map_err(|error| Error::new(format!("unknown target '{target}': {error}")))?,
    };
    let unsupported = |why: &str| Error::new(format!("the target '{target}' is not supported: {why}"));
    let arch = match triple.architecture {
        Architecture::X86_64 => Arch::X86_64,
        Architecture::Aarch64(target_lexicon::Aarch64Architecture::Aarch64) => Arch::Aarch64,
        other => return Err(unsupported(&format!("its architecture is {other}"))),
    };
    if triple.environment == Environment::Softfloat {
        return Err(unsupported("a model needs the registers of floating point and vectors, which code for it must not use"));
    }
    if triple.environment == Environment::Gnux32 || triple.pointer_width() != Ok(PointerWidth::U64) {
        return Err(unsupported("its pointers do not have 64 bits"));
    }
    match (triple.binary_format, arch) {
        (BinaryFormat::Elf | BinaryFormat::Macho, _) | (BinaryFormat::Coff, Arch::X86_64) => Ok((triple, arch)),
        (BinaryFormat::Unknown, _) if is_bare(&triple) => Ok((triple, arch)),
        (format, _) => Err(unsupported(&format!("no object in the format {format} can be written for it"))),
    }
}

fn is_bare(triple: &Triple) -> bool {
    matches!(triple.operating_system, OperatingSystem::None_ | OperatingSystem::Unknown)
}

fn target_names() -> Vec<&'static str> {
    std::iter::once("host").chain(SHORT.iter().map(|(short, _)| *short)).chain(TRIPLES).collect()
}

/// The text of `mcc targets`.
pub fn list() -> String {
    let mut out = String::from("targets:\n");
    let _ = writeln!(out, "  {:<16}{}", "host", Triple::host());
    for (short, triple) in SHORT {
        let _ = writeln!(out, "  {short:<16}{triple}");
    }
    out.push_str("\ntriples:\n");
    for triple in TRIPLES {
        let _ = writeln!(out, "  {triple}");
    }
    for (arch, name) in [(Arch::X86_64, "x86_64"), (Arch::Aarch64, "aarch64")] {
        let _ = writeln!(out, "\nCPUs of {name} (the default is {}):", portable::default_cpu_name(arch));
        let _ = writeln!(out, "  {}, native", portable::cpu_names(arch).join(", "));
        let _ = writeln!(out, "  features to add, as in --cpu NAME+FEATURE: {}", portable::feature_names(arch).join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_target_that_has_code_for_a_cpu_is_taken() {
        for (triple, name, expected, reason) in [
            ("x86_64", "x86-64", "portable", "x86_64 needs AVX2"),
            ("x86_64", "x86-64-v2", "portable", "x86_64 needs AVX2"),
            ("x86_64", "x86-64-v3", "x86_64", ""),
            ("x86_64", "znver4", "x86_64", ""),
            ("aarch64", "cortex-a53", "aarch64", ""),
        ] {
            let machine = Machine::new(triple, Some(name)).unwrap();
            let (target, refused) = target_for(&machine.cpu);
            assert_eq!(target.name(), expected, "{name}");
            assert!(refused.first().map_or("", String::as_str).starts_with(reason) && refused.is_empty() == reason.is_empty());
        }
    }

    #[test]
    fn levels_are_ordered_and_told_apart() {
        for (target, cpus, expected) in [
            ("x86_64", "x86-64-v3", Ok(&["x86-64-v3"][..])),
            ("x86_64", "x86-64-v2,x86-64-v4,x86-64", Ok(&["x86-64-v4", "x86-64-v2", "x86-64"])),
            ("x86_64", "x86-64-v4, +avx512vnni", Ok(&["x86-64-v4+avx512vnni", "x86-64-v4"])),
            ("aarch64", "armv8-a,+dotprod,+fp16", Ok(&["armv8-a+dotprod+fp16", "armv8-a+dotprod", "armv8-a"])),
            ("aarch64", "+dotprod,armv8-a", Err("unknown CPU ''")),
            ("aarch64", "armv8-a,", Err("unknown CPU ''")),
            ("aarch64", "armv8-a+fp16,armv8-a+dotprod", Err("the first alone has fp16 and the second alone has dotprod")),
            ("aarch64", "armv8-a,cortex-a53", Err("have the same features")),
            ("aarch64", "armv8-a,armv8-a+lse", Err("differ in no feature that mcc_call.cpu_features tells")),
            ("x86_64", "x86-64-v2,armv8-a", Err("the CPU 'armv8-a' is one of aarch64")),
        ] {
            let found = Machine::levels(target, Some(cpus));
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    assert_eq!(found.iter().map(|machine| &*machine.cpu.name).collect::<Vec<_>>(), expected);
                }
                (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{cpus}: {error}"),
                (found, _) => panic!("{cpus}: {found:?}"),
            }
        }
    }

    #[test]
    fn every_listed_target_is_taken() {
        for name in target_names().into_iter().filter(|name| *name != "host") {
            let machine = Machine::new(name, None).unwrap();
            let is_x86 = name.starts_with("x86_64");
            assert_eq!(machine.cpu.arch == Arch::X86_64, is_x86, "{name}");
            assert_eq!(machine.cpu.windows_abi, name.contains("windows"), "{name}");
            assert_eq!(machine.cpu.strict_alignment, !is_x86 && name.ends_with("none"), "{name}");
        }
    }

    #[test]
    fn what_is_said_of_alignment_goes_before_the_operating_system() {
        for (target, strict, expected) in [
            ("aarch64", None, Some(false)),
            ("aarch64", Some(true), Some(true)),
            ("aarch64-none", None, Some(true)),
            ("aarch64-none", Some(false), Some(false)),
            ("x86_64-none", None, Some(false)),
            ("x86_64-none", Some(false), Some(false)),
            ("x86_64-none", Some(true), None),
        ] {
            let machine = Machine::new(target, None).unwrap().align(strict);
            assert_eq!(machine.ok().map(|machine| machine.cpu.strict_alignment), expected, "{target} {strict:?}");
        }
    }

    #[test]
    fn toolchains_names_are_taken() {
        for (name, triple) in ALIASES {
            assert_eq!(Machine::new(name, None).unwrap(), Machine::new(triple, None).unwrap(), "{name}");
        }
        for name in ["x86_64-linux-gnu", "aarch64-linux-gnu", "arm64-apple-darwin"] {
            assert!(Machine::new(name, None).is_ok(), "{name}");
        }
    }

    #[test]
    fn others_are_refused_with_the_list() {
        for name in [
            "riscv64gc-unknown-linux-gnu",
            "x86_64-unknown-linux-gnux32",
            "aarch64-pc-windows-msvc",
            "aarch64_be-unknown-linux-gnu",
            "aarch64-unknown-linux-gnu_ilp32",
            "aarch64-unknown-none-softfloat",
            "wasm32-unknown-unknown",
            "i686-unknown-linux-gnu",
            "thumbv7em-none-eabi",
            "",
            "vax",
        ] {
            let error = Machine::new(name, None).unwrap_err();
            assert!(error.help.as_ref().is_some_and(|help| help.contains("aarch64-unknown-none")), "{name}: {error}");
        }
        assert!(Machine::new("x86_64", Some("armv8-a")).is_err());
        assert!(Machine::new("aarch64", Some("cortex-a55")).is_ok());
    }
}
