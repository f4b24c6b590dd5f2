/* int checked_call(mcc_call_function function, const mcc_call *call, void *stack_top, uint64_t *damage)
 *
 * Calls `function` on the stack below `stack_top` with a known value in each register that a callee keeps, and sets bit i of
 * *damage for what harness.c's `kept[i]` names when it came back changed. Uses 64 bytes from `stack_top` up. */

    .section .note.GNU-stack, "", %progbits

#if defined(__x86_64__)
    .intel_syntax noprefix
    .text
    .globl checked_call
    .type checked_call, %function

    .macro keep register, bit
    movabs rdx, 0x5a5a5a5a00000000 + \bit
    cmp \register, rdx
    je 1f
    or ecx, 1 << \bit
1:
    .endm

checked_call:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    push rcx
    mov [rdx], rsp
    mov rsp, rdx
    mov rax, rdi
    mov rdi, rsi
    movabs rbx, 0x5a5a5a5a00000000
    movabs rbp, 0x5a5a5a5a00000001
    movabs r12, 0x5a5a5a5a00000002
    movabs r13, 0x5a5a5a5a00000003
    movabs r14, 0x5a5a5a5a00000004
    movabs r15, 0x5a5a5a5a00000005
    call rax
    xor ecx, ecx
    keep rbx, 0
    keep rbp, 1
    keep r12, 2
    keep r13, 3
    keep r14, 4
    keep r15, 5
    /* MXCSR but for its exception flags: all masked, round to nearest, no flush to zero */
    stmxcsr [rsp + 8]
    mov edx, [rsp + 8]
    and edx, 0xffc0
    cmp edx, 0x1f80
    je 1f
    or ecx, 1 << 6
1:  fnstcw [rsp + 8]
    cmp word ptr [rsp + 8], 0x37f
    je 1f
    or ecx, 1 << 7
1:  pushfq
    pop rdx
    test edx, 0x400
    jz 1f
    or ecx, 1 << 8
1:  cld
    mov edx, ecx
    mov rsp, [rsp]
    pop rcx
    mov [rcx], rdx
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
    .size checked_call, . - checked_call

#elif defined(__aarch64__)
    .text
    .globl checked_call
    .type checked_call, %function

    .macro keep register, bit
    ldr x11, =0x5a5a5a5a00000000 + \bit
    cmp \register, x11
    b.eq 1f
    orr x10, x10, #1 << (\bit)
1:
    .endm
    .macro keep_vector register, bit
    fmov x12, \register
    keep x12, \bit
    .endm
    .macro fill register, bit
    ldr \register, =0x5a5a5a5a00000000 + \bit
    .endm

checked_call:
    stp x29, x30, [sp, #-176]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    stp x3, x18, [sp, #160]
    mov x9, sp
    str x9, [x2]
    mov sp, x2
    mov x9, x0
    mov x0, x1
    .irp number, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
    fill x\number, \number - 18
    .endr
    .irp number, 8, 9, 10, 11, 12, 13, 14, 15
    fill d\number, \number + 4
    .endr
    blr x9
    mov x10, #0
    .irp number, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
    keep x\number, \number - 18
    .endr
    .irp number, 8, 9, 10, 11, 12, 13, 14, 15
    keep_vector d\number, \number + 4
    .endr
    /* FPCR: round to nearest, no flush to zero, no trap */
    mrs x11, fpcr
    cbz x11, 1f
    orr x10, x10, #1 << 20
1:  ldr x9, [sp]
    mov sp, x9
    ldp x3, x18, [sp, #160]
    str x10, [x3]
    ldp d14, d15, [sp, #144]
    ldp d12, d13, [sp, #128]
    ldp d10, d11, [sp, #112]
    ldp d8, d9, [sp, #96]
    ldp x27, x28, [sp, #80]
    ldp x25, x26, [sp, #64]
    ldp x23, x24, [sp, #48]
    ldp x21, x22, [sp, #32]
    ldp x19, x20, [sp, #16]
    ldp x29, x30, [sp], #176
    ret
    .ltorg
    .size checked_call, . - checked_call
#else
#error "no checked_call for this architecture"
#endif
