/* The head of npy files, for tests that write some. */
#ifndef MR_TEST_NPY_WRITE_H
#define MR_TEST_NPY_WRITE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define NPY_HEAD_BYTES 192 /* room for a head of npy_put() */

/* A header of this version around this dict, padded with spaces to 64 bytes as numpy does. Returns
 * its bytes: at most 76 more than the dict's. */
static inline size_t npy_put_head(void *to, int version, const char *dict)
{
    uint8_t *out = to;
    size_t before = version == 1 ? 10 : 12, n = strlen(dict) + 1;
    size_t total = (before + n + 63) / 64 * 64, header = total - before;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)version;
    out[7] = 0;
    for (size_t i = 0; i < before - 8; i++)
        out[8 + i] = (uint8_t)(header >> 8 * i);
    memset(out + before, ' ', header);
    memcpy(out + before, dict, strlen(dict));
    out[total - 1] = '\n';
    return total;
}

/* The same for an array: descr "<f4", order "False" or "True" (Fortran's), shape "3, 4". */
static inline size_t npy_put(void *to, const char *descr, const char *order, const char *shape)
{
    char dict[NPY_HEAD_BYTES - 76];
    snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }", descr,
             order, shape);
    return npy_put_head(to, 1, dict);
}

#endif
