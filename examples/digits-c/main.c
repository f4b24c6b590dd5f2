/* Classifies handwritten digits with a compiled model.
 *
 *     digits IMAGE.pgm ...        each 28 × 28 pixels of 8 bits, white on black
 */
#include <stdio.h>

#include "digits.h"

enum { SIDE = 28, PIXELS = SIDE * SIDE, DIGITS = 10 };

/* All the memory that the model works in. */
static _Alignas(MCC_ARENA_ALIGN) unsigned char arena[DIGITS_ARENA_BYTES];

/* Reads a binary PGM file as values from 0 to 1; returns whether it could. */
static int read_image(const char *path, float image[PIXELS]) {
    unsigned char pixels[PIXELS];
    int width = 0, height = 0, greatest = 0;
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    int good = fscanf(file, "P5 %d %d %d", &width, &height, &greatest) == 3 && fgetc(file) != EOF && width == SIDE &&
               height == SIDE && greatest == 255 && fread(pixels, 1, PIXELS, file) == PIXELS;
    fclose(file);
    for (int i = 0; good && i < PIXELS; i++)
        image[i] = pixels[i] / 255.0f;
    return good;
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
