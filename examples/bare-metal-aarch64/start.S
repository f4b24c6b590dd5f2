/* Start of an aarch64 core without an operating system: from reset at EL3, EL2 or EL1 to main at EL1. */

#define STACK_PAINT 0xa5a5a5a5

    .section .text.start, "ax"
    .global _start
_start:
    mrs     x0, mpidr_el1
    tst     x0, #0xff
    b.ne    park                        // cores but the first
    mrs     x19, CurrentEL
    lsr     x19, x19, #2
    adr     x1, at_el1
    mov     x2, #0x3c5                  // EL1 with its own stack pointer, all interrupts masked
    cmp     x19, #2
    b.lo    at_el1
    b.eq    from_el2
    mov     x0, #0x430                  // EL3: what is below is AArch64, and secure as this is
    msr     scr_el3, x0
    msr     cptr_el3, xzr               // no trap of floating point
    msr     elr_el3, x1
    msr     spsr_el3, x2
    b       settle_el2
from_el2:
    msr     elr_el2, x1
    msr     spsr_el2, x2
settle_el2:
    mov     x0, #1 << 31                // EL1 is AArch64
    msr     hcr_el2, x0
    mov     x0, #0x33ff                 // no trap of floating point
    msr     cptr_el2, x0
    mov     x0, #3                      // no trap of the counters
    msr     cnthctl_el2, x0
    msr     cntvoff_el2, xzr
    eret

at_el1:
    adrp    x0, vectors
    add     x0, x0, :lo12:vectors
    msr     vbar_el1, x0
    mov     x0, #3 << 20                // floating point and vectors
    msr     cpacr_el1, x0
#ifdef MMU
    adrp    x0, level_1
    add     x0, x0, :lo12:level_1
    msr     ttbr0_el1, x0
    mov     x0, #0xff00                 // attribute 0: device; 1: memory, cached for reads and writes
    msr     mair_el1, x0
    ldr     x0, =1 << 23 | 3 << 12 | 1 << 10 | 1 << 8 | 32  // 4 GiB by pages of 4 KiB; tables are cached
    msr     tcr_el1, x0
    tlbi    vmalle1
    dsb     nsh
    isb
    ldr     x0, =0x30d00800 | 1 << 12 | 1 << 2 | 1          // caches and MMU on
#else
    ldr     x0, =0x30d00800 | 1 << 12 | 1 << 1              // MMU off; unaligned accesses fault
#endif
    msr     sctlr_el1, x0
    isb

    ldr     x0, =__stack_start          // paint the stack
    ldr     x1, =__stack_end
    mov     sp, x1
    ldr     w2, =STACK_PAINT
0:  str     w2, [x0], #4
    cmp     x0, x1
    b.lo    0b
    ldr     x0, =__data_start           // initialize data
    ldr     x1, =__data_end
    ldr     x2, =__data_load
1:  cmp     x0, x1
    b.hs    2f
    ldr     x3, [x2], #8
    str     x3, [x0], #8
    b       1b
2:  ldr     x0, =__bss_start
    ldr     x1, =__bss_end
3:  cmp     x0, x1
    b.hs    4f
    str     xzr, [x0], #8
    b       3b
4:  mov     x0, x19
    bl      main
    b       leave

park:
    wfe
    b       park

/* int call_on_stack(const mcc_call *call, mcc_call_function function, void *stack_end): function(call) on another stack. */
    .section .text.call_on_stack, "ax"
    .global call_on_stack
call_on_stack:
    stp     x29, x30, [sp, #-16]!
    mov     x29, sp
    mov     sp, x2
    blr     x1
    mov     sp, x29
    ldp     x29, x30, [sp], #16
    ret

/* void leave(int status): ends the emulator, or asks the debugger to; a board without one stays here. */
    .section .text.leave, "ax"
    .global leave
leave:
    uxtw    x0, w0
    mov     x1, #0x26
    movk    x1, #2, lsl #16             // the application ends
    stp     x1, x0, [sp, #-16]!
    mov     x1, sp
    mov     w0, #0x18
    hlt     #0xf000
    b       park

/* Every exception is a fault. */
    .section .text.vectors, "ax"
    .balign 2048
vectors:
    .rept 16
    .balign 128
    mrs     x0, esr_el1
    mrs     x1, elr_el1
    mrs     x2, far_el1
    ldr     x3, =__stack_end
    mov     sp, x3
    bl      fault
    .endr

#ifdef MMU
/* The identity map. Flash: read-only, executable; devices: not cached; RAM: not executable. */
#define BLOCK (1 | 1 << 10)             /* valid, accessed */
#define MEMORY (3 << 8 | 1 << 2)        /* shared with other cores, cached */
#define READ_ONLY (1 << 7)
#define NO_CODE (3 << 53)
    .section .rodata.tables, "a"
    .balign 4096
level_2:                                /* the first GiB in blocks of 2 MiB */
    .set    address, 0
    .rept 64
    .quad   address | BLOCK | MEMORY | READ_ONLY
    .set    address, address + 0x200000
    .endr
    .rept 512 - 64
    .quad   address | BLOCK | NO_CODE
    .set    address, address + 0x200000
    .endr
level_1:
    .quad   level_2 + 3
    .quad   0x40000000 | BLOCK | MEMORY | NO_CODE
    .quad   0, 0
#endif
    .section .note.GNU-stack, "", %progbits
