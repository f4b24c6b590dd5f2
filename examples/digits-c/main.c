/* Classifies handwritten digits with a compiled model.
 *
 *     digits IMAGE.pgm ...        each 28 × 28 pixels of 8 bits, white on black
 */
#include <stdio.h>

#include "../pgm.h"
#include "digits.h"

enum { SIDE = 28, PIXELS = SIDE * SIDE, DIGITS = 10 };

/* All the memory that the model works in. */
static _Alignas(MCC_ARENA_ALIGN) unsigned char arena[DIGITS_ARENA_BYTES];

static int read_image(const char *path, float image[PIXELS]) {
    unsigned char bytes[PIXELS + 64];
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    return pgm_read(bytes, size, PIXELS, image);
}

int main(int count, char **paths) {
    for (int i = 1; i < count; i++) {
        float image[PIXELS], logits[DIGITS];
        if (!read_image(paths[i], image)) {
            fprintf(stderr, "%s: not a binary PGM of %d x %d pixels\n", paths[i], SIDE, SIDE);
            return 1;
        }
        const digits_inputs in = {.image = image};
        const digits_outputs out = {.logits = logits};
        int status = digits_run(&in, &out, arena);
        if (status != MCC_OK) {
            fprintf(stderr, "%s: %s\n", paths[i], mcc_status_message(status));
            return 1;
        }
        int digit = 0;
        for (int d = 1; d < DIGITS; d++)
            if (logits[d] > logits[digit])
                digit = d;
        printf("%s: %d\n", paths[i], digit);
    }
    return 0;
}
