//! The layout of what a compiled model and its caller share: `include/mcc.h` in Rust. The header says what each field means;
//! a test compares every size, offset and constant of the two.

use core::ffi::{c_int, c_void};

pub const ABI_VERSION: u32 = 1;
pub const ARENA_ALIGN: usize = 64;

/// The distance in bytes from this field's own address to something else; 0 where there is nothing.
pub type Offset = i32;

pub type CallFunction = unsafe extern "C" fn(*const Call) -> c_int;
pub type Task = unsafe extern "C" fn(data: *mut c_void, begin: i64, end: i64, worker: u32);
pub type Stamp = unsafe extern "C" fn(context: *mut c_void, kernel: u32, end: u32);
pub type ParallelFor = unsafe extern "C" fn(context: *mut c_void, task: Task, data: *mut c_void, begin: i64, end: i64);

#[repr(C)]
#[derive(Debug)]
pub struct Profile {
    pub size: u32,
    pub reserved: u32,
    pub stamp: Option<Stamp>,
    pub context: *mut c_void,
}

#[repr(C)]
#[derive(Debug)]
pub struct Call {
    pub size: u32,
    pub cpu_features: u32,
    pub inputs: *const *const c_void,
    pub outputs: *const *mut c_void,
    pub dims: *const i64,
    pub counts: *mut i64,
    pub arena: *mut c_void,
    pub weights: *const c_void,
    pub parallel_for: Option<ParallelFor>,
    pub parallel_context: *mut c_void,
    pub profile: *const Profile,
}

#[repr(C)]
#[derive(Debug)]
pub struct Quantization {
    pub axis: i32,
    pub count: u32,
    pub scales: Offset,
    pub zero_points: Offset,
}

#[repr(C)]
#[derive(Debug)]
pub struct Symbol {
    pub min: i64,
    pub max: i64,
    pub name: Offset,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct TensorInfo {
    pub name: Offset,
    pub dtype: u32,
    pub rank: u32,
    pub dims: Offset,
    pub size_bytes: u64,
    pub symbols: Offset,
    pub quantization: Offset,
}

#[repr(C)]
#[derive(Debug)]
pub struct Model {
    pub size: u32,
    pub abi_version: u32,
    pub arch: u32,
    pub cpu_features: u32,
    pub name: Offset,
    pub compiler: Offset,
    pub target: Offset,
    pub cpu: Offset,
    pub call: Offset,
    pub weights: Offset,
    pub input_count: u32,
    pub output_count: u32,
    pub inputs: Offset,
    pub outputs: Offset,
    pub dim_count: u32,
    pub count_count: u32,
    pub symbols: Offset,
    pub symbol_bytes: u32,
    pub arena_bytes: u64,
    pub weights_bytes: u64,
    pub arena_align: u32,
    pub stack_bytes: u32,
    pub max_workers: u32,
    pub tensor_info_bytes: u32,
    pub model_sha256: [u8; 32],
    pub options_sha256: [u8; 32],
    pub shape_set_count: u32,
    pub shape_sets: Offset,
}

/// Constants, with the name of the header's.
macro_rules! constants {
    ($(#[$doc:meta])* $module:ident: $ty:ty, $table:ident { $($name:ident = $value:expr, $c_name:literal;)* }) => {
        $(#[$doc])*
        pub mod $module {
            $(pub const $name: $ty = $value;)*
            /// Each constant with its name in `mcc.h`.
            pub const $table: &[(&str, $ty)] = &[$(($c_name, $name)),*];
        }
    };
}

constants! {
    /// What a call returns.
    status: i32, ALL {
        OK = 0, "MCC_OK";
        CLAMPED = 1, "MCC_CLAMPED";
        ERROR_CALL_SIZE = 2, "MCC_ERROR_CALL_SIZE";
        ERROR_CPU = 3, "MCC_ERROR_CPU";
        ERROR_ARENA = 4, "MCC_ERROR_ARENA";
        ERROR_DIMS = 5, "MCC_ERROR_DIMS";
        ERROR_COUNT = 6, "MCC_ERROR_COUNT";
        ERROR_WEIGHTS = 7, "MCC_ERROR_WEIGHTS";
    }
}

constants! {
    /// Element types, numbered as ONNX does.
    dtype: u32, ALL {
        F32 = 1, "MCC_F32";
        U8 = 2, "MCC_U8";
        I8 = 3, "MCC_I8";
        U16 = 4, "MCC_U16";
        I16 = 5, "MCC_I16";
        I32 = 6, "MCC_I32";
        I64 = 7, "MCC_I64";
        BOOL = 9, "MCC_BOOL";
        F16 = 10, "MCC_F16";
        F64 = 11, "MCC_F64";
        U32 = 12, "MCC_U32";
        U64 = 13, "MCC_U64";
        BF16 = 16, "MCC_BF16";
        F8E4M3FN = 17, "MCC_F8E4M3FN";
        F8E4M3FNUZ = 18, "MCC_F8E4M3FNUZ";
        F8E5M2 = 19, "MCC_F8E5M2";
        F8E5M2FNUZ = 20, "MCC_F8E5M2FNUZ";
        U4 = 21, "MCC_U4";
        I4 = 22, "MCC_I4";
        F4E2M1 = 23, "MCC_F4E2M1";
        F8E8M0 = 24, "MCC_F8E8M0";
        U2 = 25, "MCC_U2";
        I2 = 26, "MCC_I2";
    }
}

constants! {
    arch: u32, ALL {
        X86_64 = 1, "MCC_ARCH_X86_64";
        AARCH64 = 2, "MCC_ARCH_AARCH64";
    }
}

constants! {
    /// Features of x86-64 CPUs and the levels made of them.
    x86: u32, ALL {
        SSE3 = 1 << 0, "MCC_X86_SSE3";
        SSSE3 = 1 << 1, "MCC_X86_SSSE3";
        SSE4_1 = 1 << 2, "MCC_X86_SSE4_1";
        SSE4_2 = 1 << 3, "MCC_X86_SSE4_2";
        POPCNT = 1 << 4, "MCC_X86_POPCNT";
        AVX = 1 << 5, "MCC_X86_AVX";
        AVX2 = 1 << 6, "MCC_X86_AVX2";
        FMA = 1 << 7, "MCC_X86_FMA";
        F16C = 1 << 8, "MCC_X86_F16C";
        BMI1 = 1 << 9, "MCC_X86_BMI1";
        BMI2 = 1 << 10, "MCC_X86_BMI2";
        LZCNT = 1 << 11, "MCC_X86_LZCNT";
        MOVBE = 1 << 12, "MCC_X86_MOVBE";
        AVX512F = 1 << 13, "MCC_X86_AVX512F";
        AVX512CD = 1 << 14, "MCC_X86_AVX512CD";
        AVX512BW = 1 << 15, "MCC_X86_AVX512BW";
        AVX512DQ = 1 << 16, "MCC_X86_AVX512DQ";
        AVX512VL = 1 << 17, "MCC_X86_AVX512VL";
        AVX512VNNI = 1 << 18, "MCC_X86_AVX512VNNI";
        AVX512BF16 = 1 << 19, "MCC_X86_AVX512BF16";
        AVX512FP16 = 1 << 20, "MCC_X86_AVX512FP16";
        AVX512VBMI = 1 << 21, "MCC_X86_AVX512VBMI";
        AVXVNNI = 1 << 22, "MCC_X86_AVXVNNI";
        V1 = 0, "MCC_X86_64_V1";
        V2 = V1 | SSE3 | SSSE3 | SSE4_1 | SSE4_2 | POPCNT, "MCC_X86_64_V2";
        V3 = V2 | AVX | AVX2 | FMA | F16C | BMI1 | BMI2 | LZCNT | MOVBE, "MCC_X86_64_V3";
        V4 = V3 | AVX512F | AVX512CD | AVX512BW | AVX512DQ | AVX512VL, "MCC_X86_64_V4";
    }
}

constants! {
    /// Features of aarch64 CPUs beyond armv8-a.
    aarch64: u32, ALL {
        RDM = 1 << 0, "MCC_AARCH64_RDM";
        FP16 = 1 << 1, "MCC_AARCH64_FP16";
        FHM = 1 << 2, "MCC_AARCH64_FHM";
        DOTPROD = 1 << 3, "MCC_AARCH64_DOTPROD";
        FCMA = 1 << 4, "MCC_AARCH64_FCMA";
        BF16 = 1 << 5, "MCC_AARCH64_BF16";
        I8MM = 1 << 6, "MCC_AARCH64_I8MM";
        SVE = 1 << 7, "MCC_AARCH64_SVE";
        SVE2 = 1 << 8, "MCC_AARCH64_SVE2";
        V8_A = 0, "MCC_AARCH64_V8_A";
    }
}

/// The bit of a feature as compilers spell it, lower case (`sse4.1`, `avx512vnni`, `dotprod`); `None` for a feature of the
/// baseline or one that models never use.
pub fn feature_bit(arch: u32, name: &str) -> Option<u32> {
    let (table, prefix) = match arch {
        arch::X86_64 => (x86::ALL, "MCC_X86_"),
        arch::AARCH64 => (aarch64::ALL, "MCC_AARCH64_"),
        _ => return None,
    };
    let same = |c_name: &str| {
        c_name.strip_prefix(prefix).is_some_and(|rest| {
            rest.len() == name.len()
                && rest.bytes().zip(name.bytes()).all(|(a, b)| a.to_ascii_lowercase() == b || (a == b'_' && b == b'.'))
        })
    };
    table.iter().find(|(c_name, bit)| bit.is_power_of_two() && same(c_name)).map(|&(_, bit)| bit)
}
