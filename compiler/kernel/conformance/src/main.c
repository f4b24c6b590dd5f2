// Runs every case of the input file and writes to the output file what it returned, how much stack it took, and what its buffers
// hold.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef KERNEL_ABI
#define KERNEL_ABI
#endif
typedef int32_t (KERNEL_ABI *kernel)(void *table, int64_t begin, int64_t end);
extern kernel const case_table[];

enum { GUARD_BYTES = 64, GUARD = 0xa5, PAGE_BYTES = 1 << 16, MAX_BUFFERS = 65, STACK_BYTES = 1 << 16 };

static uint64_t number(FILE *file) {
    uint64_t value;
    if (fread(&value, 8, 1, file) != 1) exit(3);
    return value;
}

static void check_guard(const unsigned char *guard, uint64_t bytes, uint64_t index, uint64_t buffer) {
    for (uint64_t i = 0; i < bytes; i++) {
        if (guard[i] == GUARD) continue;
        fprintf(stderr, "case %llu wrote outside of buffer %llu\n", (unsigned long long)index, (unsigned long long)buffer);
        exit(4);
    }
}

// The stack below the caller is painted before a kernel runs; afterwards, the lowest place without paint tells how much it took.
static __attribute__((noinline)) void paint_stack(void) {
    volatile unsigned char stack[STACK_BYTES];
    for (int i = 0; i < STACK_BYTES; i++) stack[i] = GUARD;
}

static __attribute__((noinline)) uint32_t used_stack(void) {
    volatile unsigned char stack[STACK_BYTES];
    int i = 0;
    while (i < STACK_BYTES && stack[i] == GUARD) i++;
    return STACK_BYTES - i;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    FILE *input = fopen(argv[1], "rb"), *output = fopen(argv[2], "wb");
    if (!input || !output) return 2;
    uint64_t cases = number(input);
    for (uint64_t index = 0; index < cases; index++) {
        uint64_t count = number(input);
        int64_t begin = (int64_t)number(input), end = (int64_t)number(input);
        unsigned char *memory[MAX_BUFFERS], *buffers[MAX_BUFFERS];
        uint64_t sizes[MAX_BUFFERS], mapped[MAX_BUFFERS];
        if (count > MAX_BUFFERS) return 2;
        for (uint64_t i = 0; i < count; i++) {
            sizes[i] = number(input);
            uint64_t align = number(input);
            // An odd multiple of the alignment, with a guard before it, and at once or soon after it a page that cannot be touched.
            mapped[i] = (sizes[i] + 4 * align + GUARD_BYTES + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
            memory[i] = mmap(NULL, mapped[i] + PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (memory[i] == MAP_FAILED || mprotect(memory[i] + mapped[i], PAGE_BYTES, PROT_NONE)) return 2;
            uintptr_t last = ((uintptr_t)memory[i] + mapped[i] - sizes[i]) / align;
            buffers[i] = (unsigned char *)((last - 1) / 2 * 2 * align + align);
            memset(memory[i], GUARD, mapped[i]);
            if (sizes[i] && fread(buffers[i], sizes[i], 1, input) != 1) return 3;
        }
        paint_stack();
        int32_t status = case_table[index](buffers, begin, end);
        uint32_t stack = used_stack();
        fwrite(&status, 4, 1, output);
        fwrite(&stack, 4, 1, output);
        for (uint64_t i = 0; i < count; i++) {
            const unsigned char *after = buffers[i] + sizes[i];
            check_guard(buffers[i] - GUARD_BYTES, GUARD_BYTES, index, i);
            check_guard(after, memory[i] + mapped[i] - after, index, i);
            fwrite(buffers[i], 1, sizes[i], output);
            munmap(memory[i], mapped[i] + PAGE_BYTES);
        }
        fflush(output);
    }
    return 0;
}
