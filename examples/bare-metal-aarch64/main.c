/* Firmware that runs a compiled model of one input on files and says what that takes. A file is a gray image or holds the bytes of
 * the input; of the first output, scores, the largest is told. A name that begins with digits tells which it should be. */
#include "board.h"
#include "net.h"

/* All the memory that the model works in. */
static _Alignas(MCC_ARENA_ALIGN) unsigned char arena[NET_ARENA_BYTES];

/* The stack that a run may take; below it a guard, so that it would be seen if a run took more. */
enum { GUARD_BYTES = 1024 };
static _Alignas(16) unsigned char stack[GUARD_BYTES + NET_STACK_BYTES];

/* Of files.S. */
typedef struct {
    const unsigned char *start, *end;
    const char *name;
} file;
extern const file files_start[], files_end[];

/* The pixels of a binary PGM file of `count` pixels of 8 bits; NULL if it is none. */
static const unsigned char *pixels_of(const unsigned char *file, uint64_t size, uint64_t count) {
    uint64_t at = 2, header[3]; /* width, height, greatest value */
    if (size < 2 || file[0] != 'P' || file[1] != '5')
        return NULL;
    for (int i = 0; i < 3; i++) {
        while (at < size && (file[at] == ' ' || (file[at] >= '\t' && file[at] <= '\r')))
            at++;
        header[i] = 0;
        for (uint64_t start = at; at < size && at - start < 6 && file[at] >= '0' && file[at] <= '9'; at++)
            header[i] = 10 * header[i] + (uint64_t)(file[at] - '0');
    }
    at++; /* one character that separates header and pixels */
    return header[0] * header[1] == count && header[2] == 255 && at <= size && size - at >= count ? file + at : NULL;
}

/* Fills an input: with an image as values from 0 to 1, or with the bytes of the file; returns whether it could. */
static int read_input(const file *file, const mcc_tensor_info *in, void *input) {
    uint64_t size = (uint64_t)(file->end - file->start), count = in->size_bytes / sizeof(float);
    const unsigned char *pixels = in->dtype == MCC_F32 ? pixels_of(file->start, size, count) : NULL;
    if (pixels)
        for (uint64_t i = 0; i < count; i++)
            ((float *)input)[i] = (float)pixels[i] / 255.0f;
    else if (size == in->size_bytes)
        for (uint64_t i = 0; i < size; i++)
            ((unsigned char *)input)[i] = file->start[i];
    else
        return 0;
    return 1;
}

static _Noreturn void fail(const char *name, const char *why) {
    print(name);
    print(": ");
    print(why);
    print("\n");
    leave(2);
}

/* Memory for a tensor, from what is free. */
static void *take(const mcc_tensor_info *tensor) {
    static unsigned char *next = __free_start;
    unsigned char *taken = next;
    if (tensor->size_bytes > (uint64_t)(__free_end - taken))
        fail(mcc_tensor_name(tensor), "too large");
    next += (tensor->size_bytes + 15) / 16 * 16;
    return taken;
}

static void print_size(const char *name, uint64_t bytes) {
    print(name);
    print_number(bytes);
    print(" bytes\n");
}

/* Runs the model on one file; returns the place of the largest score, and adds to what the counter counted. */
static uint64_t run(const file *file, const mcc_call *call, uint64_t *ticks) {
    const mcc_tensor_info *in = mcc_model_input(&net_model, 0), *out = mcc_model_output(&net_model, 0);
    if (!read_input(file, in, (void *)call->inputs[0]))
        fail(file->name, "not an input of the model");
    uint64_t begin = counter();
    int status = call_on_stack(call, net_call, stack + sizeof stack);
    *ticks += counter() - begin;
    if (status != MCC_OK)
        fail(file->name, mcc_status_message(status));
    const float *scores = call->outputs[0];
    uint64_t best = 0;
    for (uint64_t i = 1; i < out->size_bytes / sizeof *scores; i++)
        best = scores[i] > scores[best] ? i : best;
    return best;
}

/* Whether the name begins with digits; the number is theirs. */
static int label_of(const char *name, uint64_t *label) {
    *label = 0;
    const char *at = name;
    for (; *at >= '0' && *at <= '9'; at++)
        *label = 10 * *label + (uint64_t)(*at - '0');
    return at != name;
}

static void print_sizes(void) {
    print_size("arena: ", sizeof arena);
    print_size("stack of a run: ", stack_used_bytes(stack, stack + sizeof stack));
    print_size("stack planned: ", NET_STACK_BYTES);
    print_size("stack of the rest: ", stack_used_bytes(__stack_start, __stack_end));
    print_size("code: ", (uint64_t)(__code_end - __code_start));
    print_size("rodata: ", (uint64_t)(__rodata_end - __rodata_start));
    print_size("weights: ", net_model.weights_bytes);
}

int main(int level) {
    print("started at EL");
    print_number((uint64_t)level);
    print("\n");
    if (NET_INPUT_COUNT != 1 || mcc_model_output(&net_model, 0)->dtype != MCC_F32)
        fail(mcc_model_name(&net_model), "not a model of one input and of scores");
    /* Static: to clear structures on the stack, GCC 12 makes stores that are not aligned, with -mstrict-align as well. */
    static const void *inputs[NET_INPUT_COUNT];
    static void *outputs[NET_OUTPUT_COUNT];
    static mcc_call call = {.size = sizeof call, .inputs = inputs, .outputs = outputs, .arena = arena};
    call.cpu_features = mcc_cpu_features();
    inputs[0] = take(mcc_model_input(&net_model, 0));
    for (uint32_t i = 0; i < NET_OUTPUT_COUNT; i++)
        outputs[i] = take(mcc_model_output(&net_model, i));
    for (uint64_t i = 0; i < sizeof stack; i++)
        stack[i] = STACK_PAINT;

    uint64_t count = 0, labelled = 0, right = 0, ticks = 0;
    for (const file *file = files_start; file < files_end; file++, count++) {
        uint64_t label, best = run(file, &call, &ticks);
        print(file->name);
        print(": ");
        print_number(best);
        if (label_of(file->name, &label)) {
            print(best == label ? ", right" : ", wrong");
            labelled++;
            right += best == label;
        }
        print("\n");
    }
    print_number(right);
    print(" of ");
    print_number(labelled);
    print(" right\n");
    print_sizes();
    /* Under -icount shift=0 an instruction takes a nanosecond. */
    print("a run: ");
    print_number(count ? ticks * (1000000000 / counter_hertz()) / count : 0);
    print(" ns\n");
    return right == labelled ? 0 : 1;
}
