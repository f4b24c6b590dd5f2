//! The CPUs that `--cpu` names, and what each has.
//!
//! A name may be followed by single features: `x86-64-v4+avx512vnni`, `armv8-a+dotprod`.

use std::collections::BTreeSet;

use mcc_kernel::{Arch, Cpu};
use mcc_support::{Error, Result};

/// The features of a micro-architecture level, without those of the levels before it.
type Level = (&'static str, &'static [&'static str]);

/// Each level has the features of those before it.
const X86_LEVELS: [Level; 4] = [
    ("x86-64", &["sse", "sse2"]),
    ("x86-64-v2", &["cmpxchg16b", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"]),
    ("x86-64-v3", &["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe"]),
    ("x86-64-v4", &["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"]),
];

/// Cores by name: the level that they reach, and what they have beside it.
const X86_CORES: [(&str, &str, &[&str]); 12] = [
    ("haswell", "x86-64-v3", &[]),
    ("broadwell", "x86-64-v3", &[]),
    ("skylake", "x86-64-v3", &[]),
    ("alderlake", "x86-64-v3", &["avxvnni"]),
    ("znver1", "x86-64-v3", &[]),
    ("znver2", "x86-64-v3", &[]),
    ("znver3", "x86-64-v3", &[]),
    ("skylake-avx512", "x86-64-v4", &[]),
    ("cascadelake", "x86-64-v4", &["avx512vnni"]),
    ("icelake-server", "x86-64-v4", &["avx512vbmi", "avx512vnni"]),
    (
        "sapphirerapids",
        "x86-64-v4",
        &["amx-bf16", "amx-int8", "amx-tile", "avx512bf16", "avx512fp16", "avx512vbmi", "avx512vnni", "avxvnni"],
    ),
    ("znver4", "x86-64-v4", &["avx512bf16", "avx512vbmi", "avx512vnni"]),
];

/// Features of x86-64 that no level has.
const X86_MORE: [&str; 8] =
    ["amx-bf16", "amx-int8", "amx-tile", "avx512bf16", "avx512fp16", "avx512vbmi", "avx512vnni", "avxvnni"];

/// Versions of the architecture, of which `armv8-a` is every 64-bit core, and cores by name.
const ARM_CORES: [(&str, &[&str]); 20] = [
    ("armv8-a", &["neon"]),
    ("armv8.1-a", &["lse", "neon"]),
    ("armv8.2-a", &["lse", "neon"]),
    ("armv8.4-a", &["dotprod", "lse", "neon"]),
    ("armv8.6-a", &["bf16", "dotprod", "i8mm", "lse", "neon"]),
    ("armv9-a", &["dotprod", "fp16", "lse", "neon", "sve", "sve2"]),
    ("cortex-a35", &["neon"]),
    ("cortex-a53", &["neon"]),
    ("cortex-a55", &["dotprod", "fp16", "lse", "neon"]),
    ("cortex-a57", &["neon"]),
    ("cortex-a72", &["neon"]),
    ("cortex-a73", &["neon"]),
    ("cortex-a75", &["dotprod", "fp16", "lse", "neon"]),
    ("cortex-a76", &["dotprod", "fp16", "lse", "neon"]),
    ("cortex-a77", &["dotprod", "fp16", "lse", "neon"]),
    ("cortex-a78", &["dotprod", "fp16", "lse", "neon"]),
    ("neoverse-n1", &["dotprod", "fp16", "lse", "neon"]),
    ("neoverse-n2", &["bf16", "dotprod", "fp16", "i8mm", "lse", "neon", "sve", "sve2"]),
    ("neoverse-v1", &["bf16", "dotprod", "fp16", "i8mm", "lse", "neon", "sve"]),
    ("neoverse-v2", &["bf16", "dotprod", "fp16", "i8mm", "lse", "neon", "sve", "sve2"]),
];

const ARM_MORE: [&str; 7] = ["bf16", "dotprod", "fp16", "i8mm", "lse", "sve", "sve2"];

/// The CPU that is compiled for where none is named.
pub fn default_cpu_name(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "x86-64-v3",
        Arch::Aarch64 => "armv8-a",
    }
}

/// The CPUs that can be named, but for `native`.
pub fn cpu_names(arch: Arch) -> Vec<&'static str> {
    match arch {
        Arch::X86_64 => X86_LEVELS.iter().map(|(name, _)| *name).chain(X86_CORES.iter().map(|(name, ..)| *name)).collect(),
        Arch::Aarch64 => ARM_CORES.iter().map(|(name, _)| *name).collect(),
    }
}

/// Every feature that a CPU of this architecture may have, in a fixed order.
pub fn feature_names(arch: Arch) -> Vec<&'static str> {
    let names: BTreeSet<_> = match arch {
        Arch::X86_64 => X86_LEVELS.iter().flat_map(|(_, features)| *features).chain(&X86_MORE).copied().collect(),
        Arch::Aarch64 => ARM_CORES.iter().flat_map(|(_, features)| *features).chain(&ARM_MORE).copied().collect(),
    };
    names.into_iter().collect()
}

/// The CPU with this name, which may be `native` for the one that runs this; alignment and ABI are left at their defaults.
pub fn cpu(arch: Arch, name: &str) -> Result<Cpu> {
    let mut parts = name.split('+');
    let base = parts.next().unwrap_or_default();
    let mut features = base_features(arch, base)?;
    let known = feature_names(arch);
    for part in parts {
        let feature = known.iter().find(|feature| **feature == part);
        let unknown = || Error::new(format!("unknown CPU feature '{part}'")).help(format!("features are {}", known.join(", ")));
        features.insert(feature.ok_or_else(unknown)?);
    }
    Ok(Cpu {
        arch,
        name: name.to_string(),
        features,
        protection: Default::default(),
        strict_alignment: false,
        windows_abi: false,
    })
}

fn base_features(arch: Arch, name: &str) -> Result<BTreeSet<&'static str>> {
    if name == "native" {
        let features = host_features(arch);
        return features.ok_or_else(|| Error::new("the CPU 'native' is not of the architecture that is compiled for"));
    }
    let found: Option<BTreeSet<_>> = match arch {
        Arch::X86_64 => {
            let core = X86_CORES.iter().find(|(core, ..)| *core == name);
            let (name, more) = core.map_or((name, &[][..]), |&(_, level, more)| (level, more));
            let level = X86_LEVELS.iter().position(|(level, _)| *level == name);
            let levels = level.map(|level| X86_LEVELS[..=level].iter().flat_map(|(_, features)| *features));
            levels.map(|features| features.chain(more).copied().collect())
        }
        Arch::Aarch64 => {
            let core = ARM_CORES.iter().find(|(core, _)| *core == name);
            core.map(|(_, features)| features.iter().copied().collect())
        }
    };
    found.ok_or_else(|| {
        let other = if arch == Arch::X86_64 { Arch::Aarch64 } else { Arch::X86_64 };
        let (here, there) = if arch == Arch::X86_64 { ("x86_64", "aarch64") } else { ("aarch64", "x86_64") };
        if cpu_names(other).contains(&name) {
            return Error::new(format!("the CPU '{name}' is one of {there}, but the target is {here}"))
                .help(format!("add `--target {there}`"));
        }
        let names = cpu_names(arch).join(", ");
        Error::new(format!("unknown CPU '{name}'")).help(format!(
            "CPUs of {here} are {names}, native; others are named by what they have, as {}",
            if arch == Arch::X86_64 { "x86-64-v3+avxvnni" } else { "armv8.2-a+dotprod" }
        ))
    })
}

#[cfg(target_arch = "x86_64")]
fn host_features(arch: Arch) -> Option<BTreeSet<&'static str>> {
    macro_rules! detect {
        ($($name:tt)*) => { [$(($name, std::arch::is_x86_feature_detected!($name))),*] };
    }
    let detected = detect![
        "sse" "sse2" "sse3" "ssse3" "sse4.1" "sse4.2" "cmpxchg16b" "popcnt" "avx" "avx2" "bmi1" "bmi2" "f16c" "fma" "lzcnt" "movbe"
        "avx512bw" "avx512cd" "avx512dq" "avx512f" "avx512vl" "avx512bf16" "avx512fp16" "avx512vbmi" "avx512vnni" "avxvnni"
    ];
    (arch == Arch::X86_64).then(|| detected.into_iter().filter(|(_, found)| *found).map(|(name, _)| name).collect())
}

#[cfg(target_arch = "aarch64")]
fn host_features(arch: Arch) -> Option<BTreeSet<&'static str>> {
    let detected = [
        ("neon", true),
        ("lse", std::arch::is_aarch64_feature_detected!("lse")),
        ("fp16", std::arch::is_aarch64_feature_detected!("fp16")),
        ("dotprod", std::arch::is_aarch64_feature_detected!("dotprod")),
        ("i8mm", std::arch::is_aarch64_feature_detected!("i8mm")),
        ("bf16", std::arch::is_aarch64_feature_detected!("bf16")),
        ("sve", std::arch::is_aarch64_feature_detected!("sve")),
        ("sve2", std::arch::is_aarch64_feature_detected!("sve2")),
    ];
    (arch == Arch::Aarch64).then(|| detected.into_iter().filter(|(_, found)| *found).map(|(name, _)| name).collect())
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn host_features(_arch: Arch) -> Option<BTreeSet<&'static str>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_grow_and_features_are_added() {
        let names = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"];
        let cpus: Vec<_> = names.iter().map(|name| cpu(Arch::X86_64, name).unwrap()).collect();
        assert!(
            cpus.windows(2).all(|pair| pair[0].features.is_subset(&pair[1].features) && pair[0].features != pair[1].features)
        );
        let vnni = cpu(Arch::X86_64, "x86-64-v4+avx512vnni").unwrap();
        assert!(vnni.features.contains("avx512vnni") && vnni.features.is_superset(&cpus[3].features));
        let core = cpu(Arch::X86_64, "icelake-server").unwrap();
        assert!(core.features.is_superset(&vnni.features) && core.features.contains("avx512vbmi"));
        assert!(cpu(Arch::Aarch64, "cortex-a76").unwrap().features.contains("dotprod"));
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        for (arch, name, listed) in [
            (Arch::X86_64, "armv8-a", "--target aarch64"),
            (Arch::X86_64, "pentium", "x86-64-v3"),
            (Arch::Aarch64, "cortex-m4", "cortex-a53"),
            (Arch::X86_64, "x86-64+neon", "avx2"),
        ] {
            let error = cpu(arch, name).unwrap_err();
            assert!(error.help.as_ref().is_some_and(|help| help.contains(listed)), "{error}");
        }
    }
}
