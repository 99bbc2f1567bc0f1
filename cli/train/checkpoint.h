/*
 * Checkpoints: safetensors files. Tensors under names, and text under keys; safetensors.torch.load_file() reads the tensors.
 * The key "checksum" holds a hash of all else, so that a file that was cut off or changed is found.
 */
#ifndef CLI_TRAIN_CHECKPOINT_H
#define CLI_TRAIN_CHECKPOINT_H

#include "cli.h"

#define CHECKPOINT_MAX_TENSORS 1024
#define CHECKPOINT_MAX_KEYS    48

struct checkpoint_tensor {
    char name[64];
    enum mr_dtype dtype; /* MR_F32 or MR_F64 */
    int rank;
    uint64_t dim[4];
    const void *data;
    uint64_t bytes;
};

struct checkpoint_key {
    char name[32];
    char *value;
};

struct checkpoint {
    char *path;
    uint32_t n_tensors, n_keys;
    struct checkpoint_tensor tensor[CHECKPOINT_MAX_TENSORS];
    struct checkpoint_key key[CHECKPOINT_MAX_KEYS];
    void *file; /* of one that was read: the tensors' bytes; freed with it */
};

/* To be written. Fail by mr_error_set(). The tensor's data is borrowed until the checkpoint is written; texts are copied. */
int checkpoint_add(struct checkpoint *c, const char *name, enum mr_dtype dtype, int rank, const uint64_t *dim,
                   const void *data);
int checkpoint_set(struct checkpoint *c, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Replaces the file as a whole or leaves it as it was. Prints errors, returns an exit code. */
int checkpoint_write(struct checkpoint *c, const char *path);

/* [out] c: on success, and to be freed in any case. Returns 0, -errno, MR_EFORMAT, MR_ETRUNCATED, MR_ELIMIT, -ENOMEM. */
int checkpoint_read(struct checkpoint *c, const char *path);
void checkpoint_free(struct checkpoint *c);

/* NULL: no such. */
const struct checkpoint_tensor *checkpoint_find(const struct checkpoint *c, const char *name);
const char *checkpoint_get(const struct checkpoint *c, const char *key);
/* Is this what checkpoint_set() made of the text? (It replaces what is no UTF-8.) */
bool checkpoint_is(const struct checkpoint *c, const char *key, const char *text);

/* The key's number; an error names the file. Returns 0 or MR_EFORMAT. */
int checkpoint_get_uint(const struct checkpoint *c, const char *key, uint64_t *out);
int checkpoint_get_double(const struct checkpoint *c, const char *key, double *out);

#endif
