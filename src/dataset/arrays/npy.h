/*
 * The header of an npy file, as a parser over a buffer.
 */
#ifndef MR_DATASET_ARRAYS_NPY_H
#define MR_DATASET_ARRAYS_NPY_H

#include "dataset/dataset.h"

#define MR_NPY_PREAMBLE_BYTES 12 /* magic, version and the header's length; 10 in version 1 */

struct mr_npy_head {
    enum mr_dtype dtype;
    uint32_t swap;       /* width of what is in the other byte order; 0: nothing */
    uint64_t length;     /* characters or bytes of a string or void element; 0: no such type */
    uint64_t item_bytes; /* of one element, strings whole */
    bool fortran;
    int rank;
    uint64_t dim[MR_MAX_RANK + 1]; /* of npy data sets dim[0] counts samples */
};

/* Reads what stands before the header: [out] at, bytes: where the header lies. have: how many bytes are in b, of the
 * file's first MR_NPY_PREAMBLE_BYTES. Errors name the file: MR_EFORMAT, MR_ETRUNCATED, MR_EUNSUPPORTED, MR_ELIMIT. */
int mr_npy_preamble(const char *name, const uint8_t *b, uint64_t have, uint64_t *out_at, uint64_t *out_bytes);

/* Reads the header, a Python dict in text. The sizes that dim and item_bytes make are not checked for overflow here. */
int mr_npy_parse(const char *name, const char *text, uint64_t bytes, struct mr_npy_head *out);

/* An npy file: its header, and where its samples lie. */
struct mr_npy_file {
    const char *path; /* for errors */
    struct mr_npy_head head;
    uint64_t data_at, data_bytes, file_bytes;
    uint64_t n, record_bytes;
};

/* Reads and checks the header of files' file id; path is set, the rest zeroed. *hash: grows by the file's size and header.
 * Returns 0, MR_EFORMAT, MR_ETRUNCATED, MR_EUNSUPPORTED, MR_ELIMIT, the error of a read. */
int mr_npy_look(struct mr_files *files, int id, struct mr_npy_file *s, uint64_t *hash);
/* Sets dtype and shape of a sample. Returns 0, MR_EUNSUPPORTED. */
int mr_npy_spec(const struct mr_npy_file *s, struct mr_spec *spec);
/* Is it stored with the first dimension the fastest, so that samples do not lie in one piece? */
bool mr_npy_scattered(const struct mr_npy_file *s);
/* Reads such a file into memory in C order and this machine's byte order. Returns the new file's id in `to`. */
int mr_npy_gather(struct mr_files *to, struct mr_files *files, int id, const struct mr_npy_file *s);

#endif
