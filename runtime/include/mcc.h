/* mcc.h: what every model compiled by mcc shares. C11 and C++17; needs no library.
 *
 * A compiled model NAME is an object file and a header NAME.h. The object exports two symbols:
 *
 *     int NAME_call(const mcc_call *call);      runs the model once
 *     extern const mcc_model NAME_model;        describes it
 *
 * NAME.h adds NAME_ARENA_BYTES, NAME_STACK_BYTES and NAME_run, which takes its tensors by name. Programs that know the model
 * use NAME.h; programs that run any model use mcc_model.
 *
 * Memory. A run reads the inputs, writes the outputs and the arena, and nothing else; there is no heap and no global state.
 *   alignment  The arena at 64 bytes (MCC_ARENA_ALIGN), each input and output at least at the size of its element.
 *   contents   The arena's are undefined before and after. Elements of 4 and 2 bits lie two or four to a byte, the first in the lowest bits. A bool is a
 *              byte that holds 0 or 1; inputs that hold another value give undefined results. All else is the machine's.
 *   aliasing   Inputs, outputs and arena must not overlap, but inputs may overlap each other. Inputs are never written.
 *   sizes      Tensors are dense, the last dimension innermost. A tensor without elements may be a null pointer. Where extents
 *              are known only at run time, tensors have those of the run; buffers of outputs must hold what mcc_model states,
 *              but for extents that the caller passes.
 *   stack      NAME_STACK_BYTES is the most that a call takes of the stack of the thread that makes it.
 * Threads. Calls of one model may run at once, each with its own arena and outputs.
 * Floating point. The caller's environment must round to nearest, not flush subnormals to zero or read them as zero, and not
 *   trap (the state in which a C program starts). A call may raise exception flags. On x86 the direction flag is clear.
 * Extents. A model may be compiled for several extents of its inputs: mcc_call.dims passes those of the run, one for each
 *   extent that is not fixed, in the order in which the inputs first have them. Others than the model was compiled for are
 *   refused with MCC_ERROR_DIMS. Extents of outputs that follow from these in no simple way, or depend on data, are stored to
 *   mcc_call.counts, in the order in which the outputs first have them.
 * Results. The returned status is one of mcc_status. After an error of the MCC_ERROR_ kind the outputs are undefined, but
 *   untouched after MCC_ERROR_DIMS; see MCC_CLAMPED for the one status that leaves results.
 *
 * Weights. They lie in the object's read-only data, in a section that was named (--weights-section), or in a file that each run is
 *   passed (--weights-file): mapped, or in flash. A run refuses, with MCC_ERROR_WEIGHTS, one that was not written for its code, as
 *   its head says; one of the same network with other numbers fits. A run is not told how long it is: the caller tests that
 *   it has NAME_WEIGHTS_BYTES. mcc_weights_intact looks at every byte.
 *
 * Versions. Structures begin with their size, so that fields can be added at their ends: the caller states what it knows,
 * and a reader looks only at the fields within. MCC_ABI_VERSION changes when that does not suffice.
 */
#ifndef MCC_H
#define MCC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MCC_ABI_VERSION 1u
#define MCC_ARENA_ALIGN 64u

/* What a call returns. */
enum mcc_status {
    MCC_OK = 0,
    /* A loaded index (of Gather and the like) was out of range and was clamped into it; the outputs are complete. */
    MCC_CLAMPED = 1,
    /* mcc_call.size is smaller than the model needs. */
    MCC_ERROR_CALL_SIZE = 2,
    /* mcc_call.cpu_features lacks a feature that the model's code uses. */
    MCC_ERROR_CPU = 3,
    /* The arena is null or not aligned at MCC_ARENA_ALIGN. */
    MCC_ERROR_ARENA = 4,
    /* mcc_call.dims holds an extent that the model was not compiled for. */
    MCC_ERROR_DIMS = 5,
    /* A result whose size depends on data outgrew its bound. */
    MCC_ERROR_COUNT = 6,
    /* The weights were left out of the object, and mcc_call.weights is null, not aligned at MCC_ARENA_ALIGN, or of other code. */
    MCC_ERROR_WEIGHTS = 7
};

static inline const char *mcc_status_message(int status) {
    switch (status) {
    case MCC_OK: return "ok";
    case MCC_CLAMPED: return "an index was out of range and was clamped";
    case MCC_ERROR_CALL_SIZE: return "mcc_call is older than the model";
    case MCC_ERROR_CPU: return "the CPU lacks a feature that the model was compiled for";
    case MCC_ERROR_ARENA: return "the arena is null or not aligned at 64 bytes";
    case MCC_ERROR_DIMS: return "an extent that the model was not compiled for";
    case MCC_ERROR_COUNT: return "a result outgrew the size planned for it";
    case MCC_ERROR_WEIGHTS: return "the file of weights is null, not aligned at 64 bytes, or of another model";
    default: return "unknown status";
    }
}

/* Element types, with the numbers of ONNX's TensorProto.DataType. */
enum mcc_dtype {
    MCC_F32 = 1,
    MCC_U8 = 2,
    MCC_I8 = 3,
    MCC_U16 = 4,
    MCC_I16 = 5,
    MCC_I32 = 6,
    MCC_I64 = 7,
    MCC_BOOL = 9,
    MCC_F16 = 10,
    MCC_F64 = 11,
    MCC_U32 = 12,
    MCC_U64 = 13,
    MCC_BF16 = 16,
    MCC_F8E4M3FN = 17,
    MCC_F8E4M3FNUZ = 18,
    MCC_F8E5M2 = 19,
    MCC_F8E5M2FNUZ = 20,
    MCC_U4 = 21,
    MCC_I4 = 22,
    MCC_F4E2M1 = 23,
    MCC_F8E8M0 = 24,
    MCC_U2 = 25,
    MCC_I2 = 26
};

/* Element types that C has no type for. */
typedef struct mcc_f16 { uint16_t bits; } mcc_f16;   /* IEEE binary16 */
typedef struct mcc_bf16 { uint16_t bits; } mcc_bf16; /* the upper half of an f32 */
/* Floats of 8 bits: so many of exponent and mantissa; FN without infinity, UZ without negative zero. */
typedef struct mcc_f8e4m3fn { uint8_t bits; } mcc_f8e4m3fn;
typedef struct mcc_f8e4m3fnuz { uint8_t bits; } mcc_f8e4m3fnuz;
typedef struct mcc_f8e5m2 { uint8_t bits; } mcc_f8e5m2;
typedef struct mcc_f8e5m2fnuz { uint8_t bits; } mcc_f8e5m2fnuz;
typedef struct mcc_f8e8m0 { uint8_t bits; } mcc_f8e8m0; /* an exponent plus 127; 255 is NaN */
typedef struct mcc_f4e2m1x2 { uint8_t bits; } mcc_f4e2m1x2; /* two elements, the first in the low half */
typedef struct mcc_i4x2 { uint8_t bits; } mcc_i4x2;
typedef struct mcc_u4x2 { uint8_t bits; } mcc_u4x2;
typedef struct mcc_i2x4 { uint8_t bits; } mcc_i2x4; /* four elements, the first in the lowest bits */
typedef struct mcc_u2x4 { uint8_t bits; } mcc_u2x4;

/* CPU features, one bit each; the meaning depends on the architecture. A model runs where
 * (mcc_model.cpu_features & ~mcc_call.cpu_features) == 0. */
enum mcc_arch { MCC_ARCH_X86_64 = 1, MCC_ARCH_AARCH64 = 2 };

#define MCC_X86_SSE3 (1u << 0)
#define MCC_X86_SSSE3 (1u << 1)
#define MCC_X86_SSE4_1 (1u << 2)
#define MCC_X86_SSE4_2 (1u << 3)
#define MCC_X86_POPCNT (1u << 4)
#define MCC_X86_AVX (1u << 5)
#define MCC_X86_AVX2 (1u << 6)
#define MCC_X86_FMA (1u << 7)
#define MCC_X86_F16C (1u << 8)
#define MCC_X86_BMI1 (1u << 9)
#define MCC_X86_BMI2 (1u << 10)
#define MCC_X86_LZCNT (1u << 11)
#define MCC_X86_MOVBE (1u << 12)
#define MCC_X86_AVX512F (1u << 13)
#define MCC_X86_AVX512CD (1u << 14)
#define MCC_X86_AVX512BW (1u << 15)
#define MCC_X86_AVX512DQ (1u << 16)
#define MCC_X86_AVX512VL (1u << 17)
#define MCC_X86_AVX512VNNI (1u << 18)
#define MCC_X86_AVX512BF16 (1u << 19)
#define MCC_X86_AVX512FP16 (1u << 20)
#define MCC_X86_AVX512VBMI (1u << 21)
#define MCC_X86_AVXVNNI (1u << 22)
/* The levels of the x86-64 psABI, as far as compiled models depend on them. */
#define MCC_X86_64_V1 0u
#define MCC_X86_64_V2 (MCC_X86_SSE3 | MCC_X86_SSSE3 | MCC_X86_SSE4_1 | MCC_X86_SSE4_2 | MCC_X86_POPCNT)
#define MCC_X86_64_V3                                                                                                  \
    (MCC_X86_64_V2 | MCC_X86_AVX | MCC_X86_AVX2 | MCC_X86_FMA | MCC_X86_F16C | MCC_X86_BMI1 | MCC_X86_BMI2 |            \
     MCC_X86_LZCNT | MCC_X86_MOVBE)
#define MCC_X86_64_V4                                                                                                  \
    (MCC_X86_64_V3 | MCC_X86_AVX512F | MCC_X86_AVX512CD | MCC_X86_AVX512BW | MCC_X86_AVX512DQ | MCC_X86_AVX512VL)

#define MCC_AARCH64_RDM (1u << 0)
#define MCC_AARCH64_FP16 (1u << 1)
#define MCC_AARCH64_FHM (1u << 2)
#define MCC_AARCH64_DOTPROD (1u << 3)
#define MCC_AARCH64_FCMA (1u << 4)
#define MCC_AARCH64_BF16 (1u << 5)
#define MCC_AARCH64_I8MM (1u << 6)
#define MCC_AARCH64_SVE (1u << 7)
#define MCC_AARCH64_SVE2 (1u << 8)
#define MCC_AARCH64_V8_A 0u

/* Work over [begin, end), to be called from any thread; `worker` tells the calls that run at once apart. */
typedef void (*mcc_task)(void *data, int64_t begin, int64_t end, uint32_t worker);

/* Splits [begin, end) into ranges, calls `task` on each, with `worker` less than mcc_model.max_workers and the same for no two
 * calls at once, and returns when all have returned. */
typedef void (*mcc_parallel_for)(void *context, mcc_task task, void *data, int64_t begin, int64_t end);

/* Told of each kernel before it runs, with `end` 0, and after, with `end` 1, by models compiled with --profile; others do not
 * touch it. Kernels have the numbers of their places in the manifest; one in a loop is told of in each round. The stack that
 * `stamp` takes is not in NAME_STACK_BYTES. */
typedef struct mcc_profile {
    uint32_t size; /* sizeof(mcc_profile) */
    uint32_t reserved;
    void (*stamp)(void *context, uint32_t kernel, uint32_t end);
    void *context; /* passed to stamp */
} mcc_profile;

typedef struct mcc_call {
    uint32_t size;               /* sizeof(mcc_call) */
    uint32_t cpu_features;       /* what the CPU has: mcc_cpu_features(), or what is known of it */
    const void *const *inputs;   /* mcc_model.input_count of them, in its order */
    void *const *outputs;        /* mcc_model.output_count of them, in its order */
    const int64_t *dims;         /* mcc_model.dim_count extents; null for the first set compiled for, if it has no range */
    int64_t *counts;             /* mcc_model.count_count extents, written by the run; null where they are not wanted */
    void *arena;                 /* mcc_model.arena_bytes at MCC_ARENA_ALIGN */
    const void *weights;         /* the file of weights, mcc_model.weights_bytes at MCC_ARENA_ALIGN, if they were left out of the
                                  * object; else null, and not looked at */
    mcc_parallel_for parallel_for; /* null: the calling thread does all the work */
    void *parallel_context;        /* passed to parallel_for */
    const mcc_profile *profile;    /* null: nobody is told of kernels */
} mcc_call;

typedef int (*mcc_call_function)(const mcc_call *call);

/* The address of something else, as its distance in bytes from this field's own address; 0 where there is nothing. So a
 * description needs no relocation when it is loaded. mcc_at follows it. */
typedef int32_t mcc_offset;

static inline const void *mcc_at(const mcc_offset *field) {
    return *field == 0 ? NULL : (const void *)((uintptr_t)field + (uintptr_t)(intptr_t)*field);
}

/* Descriptions have the same layout on every target, little-endian, without padding:
 *
 *   mcc_quantization          mcc_symbol            mcc_tensor_info
 *    0 i32    axis             0 i64    min          0 offset name → char[]
 *    4 u32    count            8 i64    max          4 u32    dtype
 *    8 offset scales          16 offset name         8 u32    rank
 *   12 offset zero_points     20 u32    reserved    12 offset dims → i64[rank]
 *   16 bytes, align 4         24 bytes, align 8     16 u64    size_bytes
 *                                                   24 offset symbols → i32[rank]
 *                                                   28 offset quantization → mcc_quantization
 *                                                   32 bytes, align 8
 *   mcc_model
 *    0 u32    size            56 u32    dim_count
 *    4 u32    abi_version     60 u32    count_count
 *    8 u32    arch            64 offset symbols → mcc_symbol[dim_count + count_count]
 *   12 u32    cpu_features    68 u32    symbol_bytes
 *   16 offset name            72 u64    arena_bytes
 *   20 offset compiler        80 u64    weights_bytes
 *   24 offset target          88 u32    arena_align
 *   28 offset cpu             92 u32    stack_bytes
 *   32 offset call            96 u32    max_workers
 *   36 offset weights        100 u32    tensor_info_bytes
 *   40 u32    input_count    104 u8[32] model_sha256
 *   44 u32    output_count   136 u8[32] options_sha256
 *   48 offset inputs         168 u32    shape_set_count
 *   52 offset outputs        172 offset shape_sets → i64[shape_set_count · (dim_count + count_count)]
 *                            176 bytes, align 8
 *
 * Texts are UTF-8 and end in a zero byte.
 */

/* What the integers of a tensor stand for: scale · (value - zero point). */
typedef struct mcc_quantization {
    int32_t axis;           /* dimension along which scale and zero point vary; -1: one for the whole tensor */
    uint32_t count;         /* 1, or the extent of `axis` */
    mcc_offset scales;      /* float[count] */
    mcc_offset zero_points; /* int32_t[count] */
} mcc_quantization;

/* An extent that is known only at run time. */
typedef struct mcc_symbol {
    int64_t min;
    int64_t max;
    mcc_offset name;
    uint32_t reserved;
} mcc_symbol;

typedef struct mcc_tensor_info {
    mcc_offset name; /* as in the ONNX model */
    uint32_t dtype;  /* mcc_dtype */
    uint32_t rank;
    mcc_offset dims;     /* int64_t[rank], the maximum where the extent is known only at run time; 0 if rank is 0 */
    uint64_t size_bytes; /* of the whole tensor with these extents */
    /* int32_t[rank]: for each dimension -1, or the index of its symbol: s < dim_count is mcc_call.dims[s], others are
     * mcc_call.counts[s - dim_count]. 0 where all extents are fixed. */
    mcc_offset symbols;
    mcc_offset quantization; /* mcc_quantization, or 0 */
} mcc_tensor_info;

typedef struct mcc_model {
    uint32_t size;        /* sizeof(mcc_model) as the compiler knew it */
    uint32_t abi_version; /* MCC_ABI_VERSION */
    uint32_t arch;        /* mcc_arch */
    uint32_t cpu_features; /* required, by the weakest of the CPUs */
    mcc_offset name;      /* the NAME of the symbols */
    mcc_offset compiler;  /* "mcc 0.1.0" */
    mcc_offset target;    /* triple, "x86_64-unknown-linux-gnu" */
    mcc_offset cpu;       /* "x86-64-v3"; several, the best first, "x86-64-v4,x86-64-v2": a run takes the best that is allowed */
    mcc_offset call;      /* the function NAME_call */
    mcc_offset weights;   /* packed weights; 0 if there are none or they were left out */
    uint32_t input_count;
    uint32_t output_count;
    mcc_offset inputs;  /* mcc_tensor_info[input_count], tensor_info_bytes apart */
    mcc_offset outputs; /* mcc_tensor_info[output_count], tensor_info_bytes apart */
    uint32_t dim_count;   /* extents that the caller passes */
    uint32_t count_count; /* extents that the run finds */
    mcc_offset symbols;   /* mcc_symbol[dim_count + count_count], symbol_bytes apart */
    uint32_t symbol_bytes;
    uint64_t arena_bytes;
    uint64_t weights_bytes;
    uint32_t arena_align; /* MCC_ARENA_ALIGN */
    uint32_t stack_bytes;
    uint32_t max_workers; /* 1: the model does not use mcc_call.parallel_for */
    uint32_t tensor_info_bytes;
    uint8_t model_sha256[32];   /* of the ONNX file */
    uint8_t options_sha256[32]; /* of the options that the result depends on */
    uint32_t shape_set_count; /* 0: any extents from min to max of their symbols */
    mcc_offset shape_sets;    /* the extents that may be passed: int64_t[dim_count + count_count] for each set */
} mcc_model;

/* Whether a file of weights is as it was written, by its CRC-32. `weights` is at MCC_ARENA_ALIGN, `size_bytes` what is there: the
 * file may be followed by other bytes. A few cycles for each byte. */
static inline int mcc_weights_intact(const void *weights, uint64_t size_bytes) {
    const uint8_t *bytes = (const uint8_t *)weights;
    if (weights == NULL || size_bytes < 64) return 0;
    const uint64_t count = ((const uint64_t *)weights)[1];
    if (count > size_bytes - 64) return 0;
    uint32_t crc = 0xffffffffu;
    for (uint64_t index = 0; index < count; index++) {
        crc ^= bytes[64 + index];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1u ? 0xedb88320u : 0u);
    }
    return ~crc == ((const uint32_t *)weights)[12];
}

static inline const char *mcc_model_name(const mcc_model *model) { return (const char *)mcc_at(&model->name); }

static inline mcc_call_function mcc_model_call(const mcc_model *model) {
    return (mcc_call_function)((uintptr_t)&model->call + (uintptr_t)(intptr_t)model->call);
}

static inline const mcc_tensor_info *mcc_model_input(const mcc_model *model, uint32_t index) {
    return (const mcc_tensor_info *)((uintptr_t)mcc_at(&model->inputs) + (uintptr_t)index * model->tensor_info_bytes);
}

static inline const mcc_tensor_info *mcc_model_output(const mcc_model *model, uint32_t index) {
    return (const mcc_tensor_info *)((uintptr_t)mcc_at(&model->outputs) + (uintptr_t)index * model->tensor_info_bytes);
}

static inline const mcc_symbol *mcc_model_symbol(const mcc_model *model, uint32_t index) {
    return (const mcc_symbol *)((uintptr_t)mcc_at(&model->symbols) + (uintptr_t)index * model->symbol_bytes);
}

static inline const char *mcc_tensor_name(const mcc_tensor_info *tensor) { return (const char *)mcc_at(&tensor->name); }

static inline const int64_t *mcc_tensor_dims(const mcc_tensor_info *tensor) {
    return (const int64_t *)mcc_at(&tensor->dims);
}

#ifdef __cplusplus
}
#endif

/* What the CPU has, for mcc_call.cpu_features. A program that knows better (firmware, or one that detects on its own) defines
 * MCC_CPU_FEATURES as an expression before it includes this header. Without an operating system to ask, nothing is assumed. */
#if defined(MCC_CPU_FEATURES)
static inline uint32_t mcc_cpu_features(void) { return MCC_CPU_FEATURES; }
#elif __STDC_HOSTED__ && defined(__x86_64__) && defined(__GNUC__)
static inline uint32_t mcc_cpu_features(void) {
    uint32_t features = 0;
#define MCC_DETECT(name, bits) features |= __builtin_cpu_supports(name) ? (bits) : 0u
    MCC_DETECT("sse3", MCC_X86_SSE3);
    MCC_DETECT("ssse3", MCC_X86_SSSE3);
    MCC_DETECT("sse4.1", MCC_X86_SSE4_1);
    MCC_DETECT("sse4.2", MCC_X86_SSE4_2);
    MCC_DETECT("popcnt", MCC_X86_POPCNT);
    MCC_DETECT("avx", MCC_X86_AVX);
    MCC_DETECT("avx2", MCC_X86_AVX2);
    MCC_DETECT("fma", MCC_X86_FMA);
    MCC_DETECT("bmi", MCC_X86_BMI1);
    MCC_DETECT("bmi2", MCC_X86_BMI2);
    MCC_DETECT("avx512f", MCC_X86_AVX512F);
    MCC_DETECT("avx512cd", MCC_X86_AVX512CD);
    MCC_DETECT("avx512bw", MCC_X86_AVX512BW);
    MCC_DETECT("avx512dq", MCC_X86_AVX512DQ);
    MCC_DETECT("avx512vl", MCC_X86_AVX512VL);
    MCC_DETECT("avx512vnni", MCC_X86_AVX512VNNI);
    MCC_DETECT("avx512vbmi", MCC_X86_AVX512VBMI);
#if defined(__clang__) ? __clang_major__ >= 18 : __GNUC__ >= 12
    MCC_DETECT("f16c", MCC_X86_F16C);
    MCC_DETECT("lzcnt", MCC_X86_LZCNT);
    MCC_DETECT("movbe", MCC_X86_MOVBE);
    MCC_DETECT("avx512bf16", MCC_X86_AVX512BF16);
    MCC_DETECT("avx512fp16", MCC_X86_AVX512FP16);
    MCC_DETECT("avxvnni", MCC_X86_AVXVNNI);
#else
    /* These compilers cannot ask for f16c, lzcnt and movbe; every CPU with the other three has them. */
    if ((features & (MCC_X86_AVX2 | MCC_X86_FMA | MCC_X86_BMI2)) == (MCC_X86_AVX2 | MCC_X86_FMA | MCC_X86_BMI2))
        features |= MCC_X86_F16C | MCC_X86_LZCNT | MCC_X86_MOVBE;
#endif
#undef MCC_DETECT
    return features;
}
#elif __STDC_HOSTED__ && defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
static inline uint32_t mcc_cpu_features(void) {
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    uint32_t features = 0;
    /* The bits are those of the kernel's <asm/hwcap.h>; FP16 is scalar and vector half precision together. */
    features |= (first >> 12) & 1u ? MCC_AARCH64_RDM : 0u;
    features |= (first >> 9) & (first >> 10) & 1u ? MCC_AARCH64_FP16 : 0u;
    features |= (first >> 23) & 1u ? MCC_AARCH64_FHM : 0u;
    features |= (first >> 20) & 1u ? MCC_AARCH64_DOTPROD : 0u;
    features |= (first >> 14) & 1u ? MCC_AARCH64_FCMA : 0u;
    features |= (second >> 14) & 1u ? MCC_AARCH64_BF16 : 0u;
    features |= (second >> 13) & 1u ? MCC_AARCH64_I8MM : 0u;
    features |= (first >> 22) & 1u ? MCC_AARCH64_SVE : 0u;
    features |= (second >> 1) & 1u ? MCC_AARCH64_SVE2 : 0u;
    return features;
}
#else
static inline uint32_t mcc_cpu_features(void) { return 0; }
#endif

#endif
