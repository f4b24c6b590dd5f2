/* Runs compiled models as hostilely as the interface allows and fails where they break it.
 *
 *     harness [-t THREADS] RECORDS RESULTS
 *
 * The program links any number of models, listed by a generated `models.c`: the array `models` of `model_count` descriptions.
 * RECORDS is a sequence of: u32 number of the model, its i64 dims, its inputs' bytes for these dims. RESULTS gets for each record:
 * i32 status, i64 counts, outputs' bytes for dims and counts. Where the run refuses the dims, nothing may have been written, and
 * RESULTS gets zero counts and no outputs.
 *
 * Every record runs twice, in each of THREADS threads (default 1) at once. Inputs, outputs, arena and stack lie in mappings of
 * their own between inaccessible pages: against those behind in the first run, against those before in the second.
 * Inputs are read-only; the stack has the stated size, not a byte more; arena and outputs hold NaN before, other ones in each
 * run. Registers that a callee keeps are checked (checked_call.S). All runs must give the same bytes.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mcc.h"

extern const mcc_model *const models[];
extern const uint32_t model_count;

/* Calls `call` on another stack; sets a bit of *damage for each register or flag that was not kept. */
int checked_call(mcc_call_function function, const mcc_call *call, void *stack_top, uint64_t *damage);

/* What the bits of *damage stand for. */
static const char *const kept[] = {
#if defined(__x86_64__)
    "rbx", "rbp", "r12", "r13", "r14", "r15", "mxcsr", "the x87 control word", "the direction flag",
#else
    "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29",
    "d8", "d9", "d10", "d11", "d12", "d13", "d14", "d15", "fpcr",
#endif
};

#define STACK_ABOVE 64 /* bytes at and above stack_top that checked_call uses itself */
#define REGIONS_MAX 4096

/* A buffer between inaccessible pages. */
typedef struct region {
    const char *what;
    uint32_t index;
    unsigned char *map; /* the inaccessible pages before */
    size_t map_bytes;
    unsigned char *data;
    size_t bytes;
} region;

typedef struct worker {
    pthread_t thread;
    unsigned char *results;
    size_t results_bytes;
} worker;

static unsigned char *records;
static size_t records_bytes, page, guard; /* guard: bytes of the inaccessible pages on each side */
static __thread region regions[REGIONS_MAX];
static __thread uint32_t region_count;
static __thread const char *running = "none";

static _Noreturn void fail(const char *format, ...) {
    char text[512];
    int used = snprintf(text, sizeof text, "model %s: ", running);
    va_list arguments;
    va_start(arguments, format);
    used += vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s\n", text);
    _exit(1);
}

/* Names the buffer beside which a stray access fell. */
static void on_fault(int number, siginfo_t *info, void *context) {
    unsigned char *address = info->si_addr;
    (void)context;
    for (uint32_t i = 0; i < region_count; i++) {
        const region *r = &regions[i];
        if (address >= r->map && address < r->map + r->map_bytes)
            fail("signal %d: access at byte %td of %s %u, which has %zu", number, address - r->data, r->what, r->index, r->bytes);
    }
    fail("signal %d: access at %p", number, (void *)address);
}

static void catch_faults(void) {
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    for (int i = 0; i < 4; i++)
        sigaction((const int[]){SIGSEGV, SIGBUS, SIGILL, SIGFPE}[i], &action, NULL);
}

static size_t round_up(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

/* Maps a buffer whose bytes, and those around it in its pages, are `fill`. */
static region *place(const char *what, uint32_t index, size_t bytes, size_t align, int at_end, int fill) {
    size_t inner = round_up(bytes + (bytes == 0), page);
    if (region_count == REGIONS_MAX)
        fail("more than %d buffers", REGIONS_MAX);
    region *r = &regions[region_count++];
    *r = (region){what, index, NULL, inner + 2 * guard, NULL, bytes};
    r->map = mmap(NULL, r->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->map == MAP_FAILED || mprotect(r->map + guard, inner, PROT_READ | PROT_WRITE) != 0)
        fail("no memory for %s %u of %zu bytes", what, index, bytes);
    memset(r->map + guard, fill, inner);
    r->data = r->map + guard + (at_end ? inner - round_up(bytes, align) : 0);
    return r;
}

static void check_surroundings(const region *r, int fill) {
    const unsigned char *from = r->map + guard, *to = r->map + r->map_bytes - guard;
    for (const unsigned char *p = from; p < to; p++) {
        if (p == r->data)
            p += r->bytes;
        if (p < to && *p != fill)
            fail("wrote byte %td of %s %u, which has %zu", p - r->data, r->what, r->index, r->bytes);
    }
}

static void release(void) {
    for (uint32_t i = 0; i < region_count; i++)
        munmap(regions[i].map, regions[i].map_bytes);
    region_count = 0;
}

static size_t element_align(const mcc_tensor_info *tensor) {
    switch (tensor->dtype) {
    case MCC_F64: case MCC_I64: case MCC_U64: return 8;
    case MCC_F32: case MCC_I32: case MCC_U32: return 4;
    case MCC_F16: case MCC_BF16: case MCC_I16: case MCC_U16: return 2;
    default: return 1;
    }
}

static size_t element_bits(const mcc_tensor_info *tensor) {
    switch (tensor->dtype) {
    case MCC_F64: case MCC_I64: case MCC_U64: return 64;
    case MCC_F32: case MCC_I32: case MCC_U32: return 32;
    case MCC_F16: case MCC_BF16: case MCC_I16: case MCC_U16: return 16;
    case MCC_I4: case MCC_U4: case MCC_F4E2M1: return 4;
    case MCC_I2: case MCC_U2: return 2;
    default: return 8;
    }
}

/* Bytes of a tensor; the largest extents where `dims` or `counts` is null. */
static size_t tensor_bytes(const mcc_model *model, const mcc_tensor_info *tensor, const int64_t *dims, const int64_t *counts) {
    const int32_t *symbols = mcc_at(&tensor->symbols);
    size_t elements = 1;
    for (uint32_t axis = 0; axis < tensor->rank; axis++) {
        int32_t symbol = symbols ? symbols[axis] : -1;
        int64_t extent = mcc_tensor_dims(tensor)[axis];
        if (symbol >= 0 && (uint32_t)symbol < model->dim_count)
            extent = dims ? dims[symbol] : extent;
        else if (symbol >= 0)
            extent = counts ? counts[(uint32_t)symbol - model->dim_count] : extent;
        if (extent < 0 || extent > mcc_tensor_dims(tensor)[axis])
            fail("%s has extent %lld of at most %lld", mcc_tensor_name(tensor), (long long)extent, (long long)mcc_tensor_dims(tensor)[axis]);
        elements *= (size_t)extent;
    }
    return (elements * element_bits(tensor) + 7) / 8;
}

/* Fails where a byte of the buffer from `from` on was written. */
static void check_rest(const region *r, size_t from, int fill) {
    for (size_t i = from; i < r->bytes; i++)
        if (r->data[i] != fill)
            fail("wrote byte %zu of %s %u, which has %zu", i, r->what, r->index, from);
}

/* Runs `model` on the dims and inputs at `record` and writes status, counts and outputs to `result`; returns its bytes. */
static size_t run(const mcc_model *model, const unsigned char *record, unsigned char *result, int second) {
    const void *inputs[model->input_count + 1];
    void *outputs[model->output_count + 1];
    region *written[model->output_count + 1];
    int64_t dims[model->dim_count + 1], counts[model->count_count + 1];
    const int at_end = !second, fill = second ? 0xfe : 0xff;
    memcpy(dims, record, sizeof(int64_t) * model->dim_count);
    record += sizeof(int64_t) * model->dim_count;
    memset(counts, fill, sizeof counts);
    for (uint32_t i = 0; i < model->input_count; i++) {
        const mcc_tensor_info *tensor = mcc_model_input(model, i);
        size_t bytes = tensor_bytes(model, tensor, dims, counts);
        region *r = place("input", i, bytes, element_align(tensor), at_end, fill);
        memcpy(r->data, record, bytes);
        record += bytes;
        mprotect(r->map + guard, r->map_bytes - 2 * guard, PROT_READ);
        inputs[i] = r->data;
    }
    for (uint32_t i = 0; i < model->output_count; i++) {
        const mcc_tensor_info *tensor = mcc_model_output(model, i);
        written[i] = place("output", i, tensor_bytes(model, tensor, dims, NULL), element_align(tensor), at_end, fill);
        outputs[i] = written[i]->data;
    }
    region *arena = place("arena", 0, model->arena_bytes, MCC_ARENA_ALIGN, at_end, fill);
    size_t stack_bytes = round_up(model->stack_bytes, 16);
    region *stack = place("stack", 0, stack_bytes + STACK_ABOVE, 16, 0, 0);
    mcc_call call = {.size = sizeof(mcc_call), .cpu_features = mcc_cpu_features(), .inputs = inputs, .outputs = outputs,
                     .dims = dims, .counts = counts, .arena = arena->data};
    const mcc_call before = call;
    uint64_t damage = 0;
    int32_t status = checked_call(mcc_model_call(model), &call, stack->data + stack_bytes, &damage);
    for (size_t bit = 0; bit < sizeof kept / sizeof kept[0]; bit++)
        if (damage >> bit & 1)
            fail("did not keep %s", kept[bit]);
    if (memcmp(&before, &call, sizeof call) != 0)
        fail("changed its mcc_call");
    check_surroundings(arena, fill);
    unsigned char *at = result;
    memcpy(at, &status, sizeof status);
    at += sizeof status;
    int refused = status == MCC_ERROR_DIMS;
    for (uint32_t i = 0; refused && i < model->count_count; i++) {
        if (counts[i] != (fill == 0xff ? -1 : (int64_t)0xfefefefefefefefe))
            fail("wrote count %u of a run that it refused", i);
        counts[i] = 0;
    }
    memcpy(at, counts, sizeof(int64_t) * model->count_count);
    at += sizeof(int64_t) * model->count_count;
    for (uint32_t i = 0; i < model->output_count; i++) {
        check_surroundings(written[i], fill);
        size_t bytes = refused ? 0 : tensor_bytes(model, mcc_model_output(model, i), dims, counts);
        check_rest(written[i], bytes, fill);
        memcpy(at, outputs[i], bytes);
        at += bytes;
    }
    release();
    return (size_t)(at - result);
}

/* Bytes of a record behind its number, whose dims these are. */
static size_t record_bytes(const mcc_model *model, const int64_t *dims) {
    size_t bytes = sizeof(int64_t) * model->dim_count;
    for (uint32_t i = 0; i < model->input_count; i++)
        bytes += tensor_bytes(model, mcc_model_input(model, i), dims, NULL);
    return bytes;
}

/* The most bytes of a result. */
static size_t result_bytes_max(const mcc_model *model) {
    size_t bytes = sizeof(int32_t) + sizeof(int64_t) * model->count_count;
    for (uint32_t i = 0; i < model->output_count; i++)
        bytes += mcc_model_output(model, i)->size_bytes;
    return bytes;
}

static void *work(void *argument) {
    worker *self = argument;
    catch_faults();
    for (size_t at = 0; at < records_bytes;) {
        uint32_t number;
        if (records_bytes - at < sizeof number)
            fail("RECORDS end within a record");
        memcpy(&number, records + at, sizeof number);
        at += sizeof number;
        if (number >= model_count)
            fail("record for model %u of %u", number, model_count);
        const mcc_model *model = models[number];
        running = mcc_model_name(model);
        if (model->abi_version != MCC_ABI_VERSION || model->size < sizeof(mcc_model) || model->arena_align != MCC_ARENA_ALIGN)
            fail("description of version %u and %u bytes", model->abi_version, model->size);
        int64_t dims[model->dim_count + 1];
        if (records_bytes - at < sizeof(int64_t) * model->dim_count)
            fail("RECORDS end within a record");
        memcpy(dims, records + at, sizeof(int64_t) * model->dim_count);
        size_t bytes = record_bytes(model, dims), most = result_bytes_max(model);
        if (records_bytes - at < bytes)
            fail("RECORDS end within a record");
        self->results = realloc(self->results, self->results_bytes + most);
        unsigned char *first = self->results + self->results_bytes, *second = malloc(most);
        size_t result_bytes = run(model, records + at, first, 0);
        if (run(model, records + at, second, 1) != result_bytes)
            fail("results of another size in the second run");
        for (size_t i = 0; i < result_bytes; i++)
            if (first[i] != second[i])
                fail("byte %zu of the results differs between two runs: read memory that it had not written, or left some out", i);
        free(second);
        self->results_bytes += result_bytes;
        at += bytes;
    }
    return NULL;
}

static void read_records(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        fail("cannot read %s", path);
    records_bytes = (size_t)ftell(file);
    rewind(file);
    records = malloc(records_bytes + 1);
    if (fread(records, 1, records_bytes, file) != records_bytes)
        fail("cannot read %s", path);
    fclose(file);
}

int main(int count, char **arguments) {
    int threads = 1, first = 1;
    if (count > 2 && strcmp(arguments[1], "-t") == 0) {
        threads = atoi(arguments[2]);
        first = 3;
    }
    if (count != first + 2 || threads < 1 || threads > 64)
        fail("usage: harness [-t THREADS] RECORDS RESULTS");
    page = (size_t)sysconf(_SC_PAGESIZE);
    guard = 16 * page;
    read_records(arguments[first]);
    worker workers[64] = {0};
    for (int i = 0; i < threads; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            fail("no thread");
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 1; i < threads; i++)
        if (workers[i].results_bytes != workers[0].results_bytes || memcmp(workers[i].results, workers[0].results, workers[0].results_bytes) != 0)
            fail("thread %d has other results than the first", i);
    FILE *file = fopen(arguments[first + 1], "wb");
    if (!file || fwrite(workers[0].results, 1, workers[0].results_bytes, file) != workers[0].results_bytes || fclose(file) != 0)
        fail("cannot write %s", arguments[first + 1]);
    return 0;
}
