/* Runs the model `profiled` and prints what its profile is told, a line for each run: `status: kernel+ kernel- …`, with + at the begin
 * and - at the end of a kernel. The first run has a profile, the second none, and the third a call that is too short to hold one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcc.h"

extern const mcc_model profiled_model;

typedef struct told {
    uint32_t count, kernels[1024], ends[1024];
} told;

static void stamp(void *context, uint32_t kernel, uint32_t end) {
    told *t = context;
    if (t->count < 1024) {
        t->kernels[t->count] = kernel;
        t->ends[t->count++] = end;
    }
}

static void *tensor(const mcc_tensor_info *info) {
    void *data = aligned_alloc(64, (info->size_bytes + 64) / 64 * 64);
    memset(data, 0, info->size_bytes);
    return data;
}

int main(void) {
    const mcc_model *model = &profiled_model;
    const void **inputs = malloc((model->input_count + 1) * sizeof *inputs);
    void **outputs = malloc((model->output_count + 1) * sizeof *outputs);
    for (uint32_t i = 0; i < model->input_count; i++)
        inputs[i] = tensor(mcc_model_input(model, i));
    for (uint32_t i = 0; i < model->output_count; i++)
        outputs[i] = tensor(mcc_model_output(model, i));
    told t = {0};
    const mcc_profile profile = {.size = sizeof profile, .stamp = stamp, .context = &t};
    mcc_call call = {.size = sizeof call, .cpu_features = mcc_cpu_features(), .inputs = inputs, .outputs = outputs};
    call.arena = aligned_alloc(64, model->arena_bytes + 64 - model->arena_bytes % 64);
    for (int run = 0; run < 3; run++) {
        call.profile = run == 1 ? NULL : &profile;
        call.size = run == 2 ? (uint32_t)offsetof(mcc_call, profile) : (uint32_t)sizeof call;
        t.count = 0;
        printf("%d:", ((mcc_call_function)(uintptr_t)mcc_at(&model->call))(&call));
        for (uint32_t i = 0; i < t.count; i++)
            printf(" %u%c", t.kernels[i], t.ends[i] ? '-' : '+');
        printf("\n");
    }
}
