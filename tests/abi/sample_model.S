/* The description of NAME_call in sample.c, laid out as the compiler lays one out: x f32[6] → y f32[6]. */

#define PASTE(a, b) a##b
#define JOIN(a, b) PASTE(a, b)
#define MODEL JOIN(NAME, _model)
#define LOCAL JOIN(NAME, _local)
#define QUOTE(a) #a
#define TEXT(a) QUOTE(a)

    .section .note.GNU-stack, "", %progbits

    .macro offset to
    .long \to - .
    .endm

    .section .rodata.model, "a"
    .balign 8
    .globl MODEL
    .type MODEL, %object
MODEL:
    .long 176, 1
#if defined(__x86_64__)
    .long 1
#else
    .long 2
#endif
    .long 0
    offset name
    offset text
    offset text
    offset text
    offset LOCAL
    .long 0, 1, 1
    offset input
    offset output
    .long 0, 0, 0, 24
    .quad 40, 0
    .long 64, 512, 1, 32
    .fill 64, 1, 0
    .long 0, 0
    .size MODEL, . - MODEL
input:
    offset x
    .long 1, 1
    offset dims
    .quad 24
    .long 0, 0
output:
    offset y
    .long 1, 1
    offset dims
    .quad 24
    .long 0, 0
dims:
    .quad 6
name: .asciz TEXT(NAME)
text: .asciz "sample"
x: .asciz "x"
y: .asciz "y"
