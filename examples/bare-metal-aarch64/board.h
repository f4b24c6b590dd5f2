/* The virt board of qemu-system-aarch64: what another board has in its place is here, in start.S and in link.ld. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

#include "mcc.h"

enum { STACK_PAINT = 0xa5 };

/* Of link.ld. */
extern const unsigned char __code_start[], __code_end[], __rodata_start[], __rodata_end[];
extern unsigned char __stack_start[], __stack_end[], __free_start[], __free_end[];

/* Of start.S. */
int call_on_stack(const mcc_call *call, mcc_call_function function, void *stack_end);
_Noreturn void leave(int status);

/* Writes to the serial port. */
void print(const char *text);
void print_number(uint64_t number);

/* How much of a painted stack was used. */
uint64_t stack_used_bytes(const unsigned char *start, const unsigned char *end);

/* Of the virtual counter. */
static inline uint64_t counter(void) {
    uint64_t ticks;
    __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(ticks)::"memory");
    return ticks;
}

static inline uint64_t counter_hertz(void) {
    uint64_t hertz;
    __asm__("mrs %0, cntfrq_el0" : "=r"(hertz));
    return hertz;
}

#endif
