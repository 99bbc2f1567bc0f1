/* The header of a safetensors file: https://github.com/huggingface/safetensors, "Format". */
#ifndef MR_DATASET_ARRAYS_SAFETENSORS_HEAD_H
#define MR_DATASET_ARRAYS_SAFETENSORS_HEAD_H

#include "storage/storage.h"
#include <millrace/tensor.h>

struct mr_safetensor {
    char *name;
    enum mr_dtype dtype; /* of 8-bit floats u8: their bytes */
    const char *
        foreign; /* what the file calls a dtype that there is none of here ("F8_E4M3"); NULL: there is */
    int rank;
    uint64_t dim[MR_MAX_RANK];
    uint64_t offset, bytes; /* in the file */
};

/* What "__metadata__" holds. */
struct mr_safetensors_text {
    char *key, *value; /* value NULL: not a string */
};

struct mr_safetensors {
    struct mr_safetensor *tensor; /* in the order of their bytes */
    int n, n_texts;
    struct mr_safetensors_text *text;
    uint64_t data_at; /* where the tensors' bytes begin in the file */
};

/*
 * Reads and checks the header of file `id`: sizes that are the product of shape and dtype, ranges that lie one after the
 * other and fill the file, no name twice. path: for errors. [out] out: to be freed with mr_safetensors_free(), also after an error.
 * Returns 0, MR_EFORMAT, MR_ETRUNCATED, MR_EUNSUPPORTED, -ENOMEM, the error of a read.
 */
MR_PRIVATE int mr_safetensors_read(struct mr_files *files, int id, const char *path,
                                   struct mr_safetensors *out);
MR_PRIVATE void mr_safetensors_free(struct mr_safetensors *st);

#endif
