/* npy files: the location of their samples. */
#ifndef MR_DATASET_ARRAYS_NPY_H
#define MR_DATASET_ARRAYS_NPY_H

#include "codec/npy.h"
#include "dataset/dataset.h"

/* An npy file: its header and the location of its samples. */
struct mr_npy_file {
    const char *path; /* for errors */
    struct mr_npy_head head;
    uint64_t data_at, data_bytes, file_bytes;
    uint64_t n, record_bytes;
};

/* Reads and checks the header of file id of `files`. The caller sets s->path and zeroes the rest.
 * *hash is updated with the file's size and header. Returns 0, MR_EFORMAT, MR_ETRUNCATED,
 * MR_EUNSUPPORTED, MR_ELIMIT or a read error. */
int mr_npy_look(struct mr_files *files, int id, struct mr_npy_file *s, uint64_t *hash);
/* Sets dtype and shape of a sample. Returns 0 or MR_EUNSUPPORTED. */
int mr_npy_spec(const struct mr_npy_file *s, struct mr_spec *spec);
/* Returns whether the first dimension varies fastest (Fortran order): then samples are not
 * contiguous. */
bool mr_npy_scattered(const struct mr_npy_file *s);
/* Reads a file in Fortran order into memory, in C order and native byte order. Returns the new
 * file's id in `to`. */
int mr_npy_gather(struct mr_files *to, struct mr_files *files, int id, const struct mr_npy_file *s);

#endif
