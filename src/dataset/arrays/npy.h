/* npy files: where their samples are. */
#ifndef MR_DATASET_ARRAYS_NPY_H
#define MR_DATASET_ARRAYS_NPY_H

#include "codec/npy.h"
#include "dataset/dataset.h"

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
