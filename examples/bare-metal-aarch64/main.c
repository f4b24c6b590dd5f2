/* Firmware that classifies images with a compiled model and says what that takes. The model has one input, a gray image, and one
 * output, a score for each class; the name of an image begins with the number of its class. */
#include "board.h"
#include "net.h"

/* All the memory that the model works in. */
static _Alignas(MCC_ARENA_ALIGN) unsigned char arena[NET_ARENA_BYTES];

/* The stack that a run may take; below it a guard, so that it would be seen if a run took more. */
enum { GUARD_BYTES = 1024 };
static _Alignas(16) unsigned char stack[GUARD_BYTES + NET_STACK_BYTES];

/* Of images.S. */
typedef struct {
    const unsigned char *start, *end;
    const char *name;
} image;
extern const image images_start[], images_end[];

/* Reads a binary PGM file of `count` pixels of 8 bits as values from 0 to 1; returns whether it is one. */
static int read_image(const unsigned char *file, uint64_t size, uint64_t count, float *values) {
    uint64_t at = 2, header[3]; /* width, height, greatest value */
    if (size < 2 || file[0] != 'P' || file[1] != '5')
        return 0;
    for (int i = 0; i < 3; i++) {
        while (at < size && (file[at] == ' ' || (file[at] >= '\t' && file[at] <= '\r')))
            at++;
        uint64_t number = 0, start = at;
        while (at < size && at - start < 6 && file[at] >= '0' && file[at] <= '9')
            number = 10 * number + (uint64_t)(file[at++] - '0');
        header[i] = number;
    }
    at++; /* one character that separates header and pixels */
    if (header[0] * header[1] != count || header[2] != 255 || at > size || size - at < count)
        return 0;
    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)file[at + i] / 255.0f;
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

int main(int level) {
    print("started at EL");
    print_number((uint64_t)level);
    print("\n");
    const mcc_tensor_info *in = mcc_model_input(&net_model, 0), *out = mcc_model_output(&net_model, 0);
    if (net_model.input_count != 1 || net_model.output_count != 1 || in->dtype != MCC_F32 || out->dtype != MCC_F32)
        fail(mcc_model_name(&net_model), "not a model of one image and its scores");
    float *pixels = take(in), *scores = take(out);
    const void *const inputs[] = {pixels};
    void *const outputs[] = {scores};
    static mcc_call call = {.size = sizeof call, .arena = arena};
    call.cpu_features = mcc_cpu_features();
    call.inputs = inputs;
    call.outputs = outputs;
    for (uint64_t i = 0; i < sizeof stack; i++)
        stack[i] = STACK_PAINT;

    uint64_t count = 0, right = 0, ticks = 0;
    for (const image *image = images_start; image < images_end; image++) {
        if (!read_image(image->start, (uint64_t)(image->end - image->start), in->size_bytes / sizeof *pixels, pixels))
            fail(image->name, "not an image that the model takes");
        uint64_t begin = counter();
        int status = call_on_stack(&call, net_call, stack + sizeof stack);
        ticks += counter() - begin;
        if (status != MCC_OK)
            fail(image->name, mcc_status_message(status));
        uint64_t best = 0, label = 0;
        for (uint64_t i = 1; i < out->size_bytes / sizeof *scores; i++)
            best = scores[i] > scores[best] ? i : best;
        for (const char *c = image->name; *c >= '0' && *c <= '9'; c++)
            label = 10 * label + (uint64_t)(*c - '0');
        print(image->name);
        print(": ");
        print_number(best);
        print(best == label ? ", right\n" : ", wrong\n");
        count++;
        right += best == label;
    }
    print_number(right);
    print(" of ");
    print_number(count);
    print(" right\n");
    print_size("arena: ", sizeof arena);
    print_size("stack of a run: ", stack_used_bytes(stack, stack + sizeof stack));
    print_size("stack planned: ", NET_STACK_BYTES);
    print_size("stack of the rest: ", stack_used_bytes(__stack_start, __stack_end));
    print_size("code: ", (uint64_t)(__code_end - __code_start));
    print_size("rodata: ", (uint64_t)(__rodata_end - __rodata_start));
    print_size("weights: ", net_model.weights_bytes);
    /* Under -icount shift=0 an instruction takes a nanosecond. */
    print("a run: ");
    print_number(count ? ticks * (1000000000 / counter_hertz()) / count : 0);
    print(" ns\n");
    return right == count ? 0 : 1;
}
