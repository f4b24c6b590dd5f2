/* Images in the binary PGM format, in memory. Needs no library. */
#ifndef PGM_H
#define PGM_H

#include <stddef.h>

/* Reads an image of `count` pixels of 8 bits as values from 0 to 1; returns whether it is one. */
static int pgm_read(const unsigned char *file, size_t size, size_t count, float *values) {
    size_t at = 2, header[3]; /* width, height, greatest value */
    if (size < 2 || file[0] != 'P' || file[1] != '5')
        return 0;
    for (int i = 0; i < 3; i++) {
        while (at < size && (file[at] == ' ' || (file[at] >= '\t' && file[at] <= '\r')))
            at++;
        size_t number = 0, start = at;
        while (at < size && at - start < 6 && file[at] >= '0' && file[at] <= '9')
            number = 10 * number + (size_t)(file[at++] - '0');
        header[i] = number;
    }
    at++; /* one character that separates header and pixels */
    if (header[0] * header[1] != count || header[2] != 255 || at > size || size - at < count)
        return 0;
    for (size_t i = 0; i < count; i++)
        values[i] = (float)file[at + i] / 255.0f;
    return 1;
}

#endif
