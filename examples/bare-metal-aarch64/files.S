/* Files in read-only data: of each where it starts and ends, and its name. The Makefile makes files.inc. */
    .macro file path, name
    .section .rodata.contents, "a"
1:  .incbin "\path"
2:
    .section .rodata.names, "a"
3:  .asciz  "\name"
    .section .rodata.files, "a"
    .quad   1b, 2b, 3b
    .endm

    .section .rodata.files, "a"
    .balign 8
    .global files_start
files_start:
    .include "files.inc"
    .section .rodata.files, "a"
    .global files_end
files_end:
    .section .note.GNU-stack, "", %progbits
