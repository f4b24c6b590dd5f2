/* run RUNS: runs the model `net` so many times on made-up inputs and prints the sum of its f32 outputs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcc.h"

extern const mcc_model net_model;

static void *tensor(const mcc_tensor_info *info) {
    unsigned char *data = aligned_alloc(64, (info->size_bytes + 64) / 64 * 64);
    memset(data, 0, info->size_bytes);
    size_t count = info->dtype == MCC_F32 ? info->size_bytes / 4 : info->size_bytes / 8;
    for (size_t i = 0; i < count; i++) {
        float real = (float)((i * 2654435761u >> 8) % 2000) / 1000 - 1;
        int64_t integer = info->dtype == MCC_I64 ? (int64_t)(i % 1000) : 0;
        if (info->dtype == MCC_F32)
            memcpy(data + 4 * i, &real, 4);
        else
            memcpy(data + 8 * i, &integer, 8);
    }
    return data;
}

int main(int argc, char **argv) {
    const mcc_model *model = &net_model;
    const void **inputs = malloc((model->input_count + 1) * sizeof *inputs);
    void **outputs = malloc((model->output_count + 1) * sizeof *outputs);
    for (uint32_t i = 0; i < model->input_count; i++)
        inputs[i] = tensor(mcc_model_input(model, i));
    for (uint32_t i = 0; i < model->output_count; i++)
        outputs[i] = tensor(mcc_model_output(model, i));
    mcc_call call = {.size = sizeof call, .cpu_features = mcc_cpu_features(), .inputs = inputs, .outputs = outputs};
    call.arena = aligned_alloc(64, model->arena_bytes + 64 - model->arena_bytes % 64);
    for (int run = 0, runs = argc > 1 ? atoi(argv[1]) : 1; run < runs; run++) {
        int status = ((mcc_call_function)(uintptr_t)mcc_at(&model->call))(&call);
        if (status > MCC_CLAMPED) {
            fprintf(stderr, "%s\n", mcc_status_message(status));
            return 1;
        }
    }
    double sum = 0;
    for (uint32_t i = 0; i < model->output_count; i++) {
        const mcc_tensor_info *info = mcc_model_output(model, i);
        for (size_t k = 0; info->dtype == MCC_F32 && k < info->size_bytes / 4; k++)
            sum += ((const float *)outputs[i])[k];
    }
    printf("%g\n", sum);
}
