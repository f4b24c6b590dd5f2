/* Runs models without an operating system's libraries: reads records as harness.c does from standard input, writes results to
 * standard output. Linked by `ld` alone; a firmware has its own input and output in place of the three system calls. With BOARD
 * it is one, for the board of examples/bare-metal-aarch64: `records` and `results` are files of the emulator's host. */
#include "mcc.h"

extern const mcc_model *const models[];
extern const uint32_t model_count;

enum { BUFFER_BYTES = 1 << 24, TENSORS_MAX = 64 };
static _Alignas(64) unsigned char records[BUFFER_BYTES], results[BUFFER_BYTES], arena[BUFFER_BYTES];
/* Tensors are copied to places that are aligned enough for any element. */
static _Alignas(64) unsigned char tensors[BUFFER_BYTES];

#if defined(BOARD)
enum { READ, WRITE };
int main(void);
_Noreturn void leave(int status);
static long semihost(long operation, const void *block) {
    register long x0 __asm__("x0") = operation;
    register const void *x1 __asm__("x1") = block;
    __asm__ volatile("hlt 0xf000" : "+r"(x0) : "r"(x1) : "memory");
    return x0;
}
/* Reads or writes the one file of each, which is opened at the first call; returns how many bytes it could. */
static long system_call(long number, long stream, long buffer, long bytes) {
    static const struct { const char *name; long mode, length; } names[] = {{"records", 1, 7}, {"results", 5, 7}};
    static long files[2];
    (void)stream;
    if (!files[number])
        files[number] = semihost(1, &names[number]);
    const long block[] = {files[number], buffer, bytes};
    return bytes - semihost(number == READ ? 6 : 5, block);
}
#elif defined(__x86_64__)
enum { READ = 0, WRITE = 1, EXIT = 231 };
static long system_call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
enum { READ = 63, WRITE = 64, EXIT = 94 };
static long system_call(long number, long a, long b, long c) {
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}
#endif

#if !defined(BOARD)
static _Noreturn void leave(int status) {
    for (;;)
        system_call(EXIT, status, 0, 0);
}
#endif

static void copy(unsigned char *to, const unsigned char *from, uint64_t bytes) {
    while (bytes--)
        *to++ = *from++;
}

static uint64_t room(uint64_t at, uint64_t bytes) {
    at = (at + 63) / 64 * 64;
    if (at + bytes > BUFFER_BYTES)
        leave(2);
    return at;
}

/* Runs the record at `record`; returns where the next one starts and adds to the results. */
static uint64_t run(uint64_t record, uint64_t *result) {
    static const void *inputs[TENSORS_MAX];
    static void *outputs[TENSORS_MAX];
    uint32_t number;
    copy((unsigned char *)&number, records + record, sizeof number);
    record += sizeof number;
    if (number >= model_count)
        leave(3);
    const mcc_model *model = models[number];
    if (model->input_count > TENSORS_MAX || model->output_count > TENSORS_MAX || model->dim_count || model->count_count ||
        model->arena_bytes > BUFFER_BYTES)
        leave(4);
    uint64_t at = 0;
    for (uint32_t i = 0; i < model->input_count; i++) {
        uint64_t bytes = mcc_model_input(model, i)->size_bytes;
        at = room(at, bytes);
        copy(tensors + at, records + record, bytes);
        inputs[i] = tensors + at;
        at += bytes;
        record += bytes;
    }
    for (uint32_t i = 0; i < model->output_count; i++) {
        uint64_t bytes = mcc_model_output(model, i)->size_bytes;
        at = room(at, bytes);
        outputs[i] = tensors + at;
        at += bytes;
    }
    /* Static, because some compilers clear one on the stack by stores that are not aligned, whatever they are told. */
    static mcc_call call = {.size = sizeof(mcc_call), .inputs = inputs, .outputs = outputs, .arena = arena};
    call.cpu_features = model->cpu_features;
    int32_t status = mcc_model_call(model)(&call);
    copy(results + *result, (const unsigned char *)&status, sizeof status);
    *result += sizeof status;
    for (uint32_t i = 0; i < model->output_count; i++) {
        uint64_t bytes = mcc_model_output(model, i)->size_bytes;
        if (*result + bytes > BUFFER_BYTES)
            leave(5);
        copy(results + *result, outputs[i], bytes);
        *result += bytes;
    }
    return record;
}

static void run_all(void) {
    uint64_t read = 0, result = 0, written = 0;
    for (;;) {
        long more = system_call(READ, 0, (long)(records + read), (long)(BUFFER_BYTES - read));
        if (more < 0)
            leave(6);
        if (more == 0)
            break;
        read += (uint64_t)more;
    }
    for (uint64_t at = 0; at < read;)
        at = run(at, &result);
    while (written < result) {
        long more = system_call(WRITE, 1, (long)(results + written), (long)(result - written));
        if (more <= 0)
            leave(7);
        written += (uint64_t)more;
    }
    leave(0);
}

#if defined(BOARD)
int main(void) {
    run_all();
    return 0;
}
#else
#if defined(__x86_64__)
__attribute__((force_align_arg_pointer))
#endif
_Noreturn void _start(void) {
    run_all();
    leave(0);
}
#endif
