#include "board.h"

/* PL011 */
#define UART_DATA (*(volatile uint32_t *)0x09000000)
#define UART_FLAGS (*(volatile uint32_t *)0x09000018)
enum { UART_FULL = 1 << 5 };

static void print_char(char c) {
    while (UART_FLAGS & UART_FULL)
        ;
    UART_DATA = (unsigned char)c;
}

void print(const char *text) {
    for (; *text; text++) {
        if (*text == '\n')
            print_char('\r');
        print_char(*text);
    }
}

void print_number(uint64_t number) {
    char text[21], *at = text + sizeof text - 1;
    *at = 0;
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    print(at);
}

static void print_hex(const char *name, uint64_t value) {
    print(name);
    for (int shift = 60; shift >= 0; shift -= 4)
        print_char("0123456789abcdef"[value >> shift & 15]);
}

uint64_t stack_used_bytes(const unsigned char *start, const unsigned char *end) {
    while (start < end && *start == STACK_PAINT)
        start++;
    return (uint64_t)(end - start);
}

_Noreturn void fault(uint64_t syndrome, uint64_t code, uint64_t data);

/* Where every exception ends. */
_Noreturn void fault(uint64_t syndrome, uint64_t code, uint64_t data) {
    print_hex("fault: syndrome ", syndrome);
    print_hex(", code at ", code);
    print_hex(", data at ", data);
    print("\n");
    leave(3);
}
