/* ort_run MODEL RUNS INPUT f32|i64 D0,D1,…: loads a model with ONNX Runtime and runs it so many times on one made-up input, on one thread.
 * The functions of ONNX Runtime's C API are taken by their places in its table, so no header of it is needed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *any;
typedef struct {
    const void **(*get_api)(uint32_t version);
    const char *(*version)(void);
} api_base;
extern const api_base *OrtGetApiBase(void);

/* Places in the table. */
enum {
    GET_ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_SESSION = 7,
    RUN = 9,
    CREATE_SESSION_OPTIONS = 10,
    SET_INTRA_OP_NUM_THREADS = 24,
    SESSION_GET_OUTPUT_NAME = 37,
    CREATE_TENSOR_WITH_DATA = 49,
    GET_TENSOR_DATA = 51,
    CREATE_CPU_MEMORY_INFO = 69,
    GET_DEFAULT_ALLOCATOR = 78,
};

static const void **api;
#define API(place, ...) ((any(*)(__VA_ARGS__))(uintptr_t)api[place])

static void check(any status) {
    if (!status)
        return;
    fprintf(stderr, "%s\n", ((const char *(*)(any))(uintptr_t)api[GET_ERROR_MESSAGE])(status));
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 6)
        return 2;
    const char *model = argv[1], *input_name = argv[3];
    int runs = atoi(argv[2]), is_i64 = !strcmp(argv[4], "i64");
    int64_t dims[8];
    size_t rank = 0, count = 1;
    for (char *word = strtok(argv[5], ","); word; word = strtok(NULL, ","))
        count *= (size_t)(dims[rank++] = atoll(word));
    api = OrtGetApiBase()->get_api(17);
    any env, options, session, memory, allocator, input, output = NULL;
    char *name;
    check(API(CREATE_ENV, int, const char *, any *)(3, "x", &env));
    check(API(CREATE_SESSION_OPTIONS, any *)(&options));
    check(API(SET_INTRA_OP_NUM_THREADS, any, int)(options, 1));
    check(API(CREATE_SESSION, any, const char *, any, any *)(env, model, options, &session));
    void *data = calloc(count, 8);
    for (size_t i = 0; i < count; i++) {
        if (is_i64)
            ((int64_t *)data)[i] = (int64_t)(i % 1000);
        else
            ((float *)data)[i] = (float)((i * 2654435761u >> 8) % 2000) / 1000 - 1;
    }
    check(API(CREATE_CPU_MEMORY_INFO, int, int, any *)(0, 0, &memory));
    check(API(CREATE_TENSOR_WITH_DATA, any, void *, size_t, const int64_t *, size_t, int, any *)(
        memory, data, count * (is_i64 ? 8 : 4), dims, rank, is_i64 ? 7 : 1, &input));
    check(API(GET_DEFAULT_ALLOCATOR, any *)(&allocator));
    check(API(SESSION_GET_OUTPUT_NAME, any, size_t, any, char **)(session, 0, allocator, &name));
    const char *output_name = name;
    const any inputs[1] = {input};
    for (int run = 0; run < runs; run++) {
        output = NULL;
        check(API(RUN, any, any, const char *const *, const any *, size_t, const char *const *, size_t, any *)(
            session, NULL, &input_name, inputs, 1, &output_name, 1, &output));
    }
    float *values;
    check(API(GET_TENSOR_DATA, any, any *)(output, (any *)&values));
    printf("%g\n", values[0]);
}
