/*
 * The header of an npy file, as a parser over a buffer. Data sets, tar members and the samplers'
 * files of numbers are all read by it, so they refuse the same files.
 */
#ifndef MR_CODEC_NPY_H
#define MR_CODEC_NPY_H

#include "base/base.h"

#define MR_NPY_PREAMBLE_BYTES 12     /* magic, version and the header's length; 10 in version 1 */
#define MR_NPY_HEADER_BYTES   65536u /* at most; version 1 cannot say more than 65,535 */

struct mr_npy_head {
    enum mr_dtype dtype;
    char kind;           /* numpy's letter: b i u f c m M, S a U V */
    uint32_t swap;       /* width of what is in the other byte order; 0: nothing */
    uint64_t length;     /* characters or bytes of a string or void element; 0: no such type */
    uint64_t item_bytes; /* of one element, strings whole */
    bool fortran;
    int rank;
    uint64_t dim[MR_MAX_RANK + 1]; /* of npy data sets dim[0] counts samples */
};

/* Reads what precedes the header: [out] at, bytes: where the header is. have: how many bytes are in
 * b, of the file's first MR_NPY_PREAMBLE_BYTES; more may follow. Errors name the file: MR_EFORMAT,
 * MR_ETRUNCATED, MR_EUNSUPPORTED, MR_ELIMIT: a header above MR_NPY_HEADER_BYTES. */
int mr_npy_preamble(const char *name, const uint8_t *b, uint64_t have, uint64_t *out_at,
                    uint64_t *out_bytes);

/* Reads the header, a Python dict in text. The caller checks the sizes that dim and item_bytes make
 * for overflow. MR_EFORMAT, MR_EUNSUPPORTED. */
int mr_npy_parse(const char *name, const char *text, uint64_t bytes, struct mr_npy_head *out);

#endif
