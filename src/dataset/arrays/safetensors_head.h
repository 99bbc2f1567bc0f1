/* The header of a safetensors file: https://github.com/huggingface/safetensors, "Format". */
#ifndef MR_DATASET_ARRAYS_SAFETENSORS_HEAD_H
#define MR_DATASET_ARRAYS_SAFETENSORS_HEAD_H

#include "storage/storage.h"
#include <millrace/tensor.h>

struct mr_safetensor {
    char *name;
    enum mr_dtype dtype; /* 8-bit floats: u8, their raw bytes */
    /* the file's name of a dtype that has no mr_dtype ("F8_E4M3"), else NULL */
    const char *foreign;
    int rank;
    uint64_t dim[MR_MAX_RANK];
    uint64_t offset, bytes; /* in the file */
};

/* An entry of "__metadata__". */
struct mr_safetensors_text {
    char *key, *value; /* value NULL: not a string */
};

struct mr_safetensors {
    struct mr_safetensor *tensor; /* sorted by offset */
    int n, n_texts;
    struct mr_safetensors_text *text;
    uint64_t data_at; /* offset of the tensors' bytes in the file */
};

/*
 * Reads and checks the header of file `id`: each size is the product of shape and dtype, the ranges
 * follow each other without gaps and fill the file, and names are unique. path: for errors. [out]
 * out: free it with mr_safetensors_free(), even after an error. Returns 0, MR_EFORMAT,
 * MR_ETRUNCATED, MR_EUNSUPPORTED, -ENOMEM or a read error.
 */
MR_PRIVATE int mr_safetensors_read(struct mr_files *files, int id, const char *path,
                                   struct mr_safetensors *out);
MR_PRIVATE void mr_safetensors_free(struct mr_safetensors *st);

#endif
