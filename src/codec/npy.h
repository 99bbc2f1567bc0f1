/*
 * A parser for the header of npy files, on a buffer. Data sets, tar members and the samplers' files
 * of numbers all use it, so they accept the same files.
 */
#ifndef MR_CODEC_NPY_H
#define MR_CODEC_NPY_H

#include "base/base.h"

#define MR_NPY_PREAMBLE_BYTES 12     /* magic, version and header length; only 10 in version 1 */
#define MR_NPY_HEADER_BYTES   65536u /* limit; version 1 can't exceed 65,535 */

struct mr_npy_head {
    enum mr_dtype dtype;
    char kind;     /* NumPy's letter: b i u f c m M, S a U V */
    uint32_t swap; /* element width if the byte order is not native, else 0 */
    /* length of a string or void element in characters or bytes; 0 for other types */
    uint64_t length;
    uint64_t item_bytes; /* of one element; strings count as one */
    bool fortran;
    int rank;
    uint64_t dim[MR_MAX_RANK + 1]; /* in npy data sets, dim[0] counts samples */
};

/* Parses what precedes the header. have: number of bytes in b, from the start of the file, at most
 * MR_NPY_PREAMBLE_BYTES. [out] at, bytes: position and length of the header. Errors name the file:
 * MR_EFORMAT, MR_ETRUNCATED, MR_EUNSUPPORTED, or MR_ELIMIT for a header above
 * MR_NPY_HEADER_BYTES. */
int mr_npy_preamble(const char *name, const uint8_t *b, uint64_t have, uint64_t *out_at,
                    uint64_t *out_bytes);

/* Parses the header, a Python dict in text. The caller must check the sizes that result from dim
 * and item_bytes for overflow. Errors: MR_EFORMAT, MR_EUNSUPPORTED. */
int mr_npy_parse(const char *name, const char *text, uint64_t bytes, struct mr_npy_head *out);

#endif
