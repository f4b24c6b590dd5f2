//! What the CPU has.

/// The features of this CPU that models may require, as bits of [`abi::x86`](crate::abi::x86) or
/// [`abi::aarch64`](crate::abi::aarch64). With feature `std` the standard library asks the CPU once and keeps the answer; else these
/// are the features that the program itself is compiled for (`-C target-cpu`), which the CPU has for certain.
pub fn detect_cpu_features() -> u32 {
    let mut features = 0;
    #[cfg(feature = "std")]
    macro_rules! detect {
        ($detect:ident, $arch:ident { $($name:tt => $bit:ident),* }) => {
            $(if std::arch::$detect!($name) { features |= crate::abi::$arch::$bit; })*
        };
    }
    #[cfg(not(feature = "std"))]
    macro_rules! detect {
        ($detect:ident, $arch:ident { $($name:tt => $bit:ident),* }) => {
            $(if cfg!(target_feature = $name) { features |= crate::abi::$arch::$bit; })*
        };
    }
    #[cfg(target_arch = "x86_64")]
    detect!(is_x86_feature_detected, x86 {
        "sse3" => SSE3, "ssse3" => SSSE3, "sse4.1" => SSE4_1, "sse4.2" => SSE4_2, "popcnt" => POPCNT, "avx" => AVX,
        "avx2" => AVX2, "fma" => FMA, "f16c" => F16C, "bmi1" => BMI1, "bmi2" => BMI2, "lzcnt" => LZCNT, "movbe" => MOVBE,
        "avx512f" => AVX512F, "avx512cd" => AVX512CD, "avx512bw" => AVX512BW, "avx512dq" => AVX512DQ, "avx512vl" => AVX512VL,
        "avx512vnni" => AVX512VNNI, "avx512bf16" => AVX512BF16, "avx512fp16" => AVX512FP16, "avx512vbmi" => AVX512VBMI,
        "avxvnni" => AVXVNNI
    });
    #[cfg(target_arch = "aarch64")]
    detect!(is_aarch64_feature_detected, aarch64 {
        "rdm" => RDM, "fp16" => FP16, "fhm" => FHM, "dotprod" => DOTPROD, "fcma" => FCMA, "bf16" => BF16, "i8mm" => I8MM,
        "sve" => SVE, "sve2" => SVE2
    });
    features
}
