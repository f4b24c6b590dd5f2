/* A model written by hand: y[i] = SCALE · x[i], by way of the arena. With FAULT it breaks one rule of mcc.h; the tests see to
 * it that the harness notices each. */
#include "mcc.h"

#ifndef SCALE
#define SCALE 2
#endif
#define PASTE(a, b) a##b
#define JOIN(a, b) PASTE(a, b)
#define LOCAL JOIN(NAME, _local)
#define CALL JOIN(NAME, _call)
#define QUOTE(a) #a
#define TEXT(a) QUOTE(a)

enum { COUNT = 6, ARENA_BYTES = 40, STACK_BYTES = 512 };

/* Descriptions refer to a hidden name: an exported one may not be referred to by distance in a shared library. */
__attribute__((visibility("hidden"))) int LOCAL(const mcc_call *call);
int CALL(const mcc_call *call) __attribute__((alias(TEXT(LOCAL))));

int LOCAL(const mcc_call *call) {
    const volatile float *x = call->inputs[0];
    volatile float *y = call->outputs[0], *arena = call->arena;
    if (call->size < sizeof(mcc_call))
        return MCC_ERROR_CALL_SIZE;
#if FAULT == UNWRITTEN_ARENA
    y[0] = arena[1];
    return MCC_OK;
#endif
    for (int i = 0; i < COUNT; i++)
        arena[i] = x[i];
    for (int i = 0; i < COUNT - (FAULT == UNWRITTEN_OUTPUT); i++)
        y[i] = SCALE * arena[i];
#if FAULT == BEHIND_OUTPUT
    y[COUNT] = 0;
#elif FAULT == BEFORE_OUTPUT
    y[-1] = 0;
#elif FAULT == BEHIND_INPUT
    (void)x[COUNT];
#elif FAULT == BEFORE_INPUT
    (void)x[-1];
#elif FAULT == INPUT_WRITTEN
    *(volatile float *)x = x[0];
#elif FAULT == BEHIND_ARENA
    ((volatile char *)arena)[ARENA_BYTES] = 1;
#elif FAULT == CALL_WRITTEN
    ((mcc_call *)call)->size = 0;
#elif FAULT == STATE
    static volatile float calls;
    y[0] += calls += 1;
#elif FAULT == STACK
    volatile char big[2 * STACK_BYTES];
    for (int i = 0; i < 2 * STACK_BYTES; i++)
        big[i] = (char)i;
    y[0] += 0 * big[STACK_BYTES];
#elif FAULT == REGISTER && defined(__x86_64__)
    __asm__ volatile("incq %r13");
#elif FAULT == REGISTER
    __asm__ volatile("fmov d11, xzr");
#elif FAULT == ROUNDING && defined(__x86_64__)
    uint32_t mxcsr = 0x9fc0;
    __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
#elif FAULT == ROUNDING
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)1 << 24));
#endif
    return MCC_OK;
}
