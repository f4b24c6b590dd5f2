/* Files in read-only data: of each where it starts and ends, and its name. images.inc is made by the Makefile. */
    .macro image path, name
    .section .rodata.files, "a"
1:  .incbin "\path"
2:
    .section .rodata.names, "a"
3:  .asciz  "\name"
    .section .rodata.images, "a"
    .quad   1b, 2b, 3b
    .endm

    .section .rodata.images, "a"
    .balign 8
    .global images_start
images_start:
    .include "images.inc"
    .section .rodata.images, "a"
    .global images_end
images_end:
    .section .note.GNU-stack, "", %progbits
