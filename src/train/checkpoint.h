/*
 * Checkpoints: safetensors files. Tensors under names, and text under keys. The key "checksum"
 * holds a hash of all else, so that a file that was cut off or changed is found.
 */
#ifndef MR_TRAIN_CHECKPOINT_H
#define MR_TRAIN_CHECKPOINT_H

#include "base/base.h"
#include <millrace/checkpoint.h>

#define MR_CHECKPOINT_TENSORS 1024
#define MR_CHECKPOINT_KEYS    48

struct mr_checkpoint_key {
    char name[32];
    char *value;
};

struct mr_checkpoint {
    char *path;
    uint32_t n_tensors, n_keys;
    struct mr_checkpoint_tensor tensor[MR_CHECKPOINT_TENSORS];
    struct mr_checkpoint_key key[MR_CHECKPOINT_KEYS];
    void *data; /* of one that was read: the tensors' bytes */
};

/* To be written. The tensor's data is borrowed until the checkpoint is written; texts are copied.
 * Return 0, MR_ELIMIT, -ENOMEM. */
int mr_checkpoint_add(struct mr_checkpoint *c, const char *name, enum mr_dtype dtype, int rank,
                      const uint64_t *dim, const void *data);
int mr_checkpoint_set(struct mr_checkpoint *c, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Writes it, with its checksum. Returns 0, an errno, or a negative code with the error set. */
int mr_checkpoint_put(struct mr_checkpoint *c, FILE *file);
/* Replaces the file as a whole or leaves it as it was. Returns 0, -errno, MR_ELIMIT, -ENOMEM. */
int mr_checkpoint_write(struct mr_checkpoint *c, const char *path);

/* Fills a zeroed checkpoint; mr_checkpoint_free() is due also after an error. As
 * mr_checkpoint_open(). */
int mr_checkpoint_read(struct mr_checkpoint *c, const char *path);
void mr_checkpoint_free(struct mr_checkpoint *c); /* what it holds */

/* The checksum of keys and tensors, in their order; the key "checksum" is not yet, or no longer,
 * among them. [out] out: 16 hex digits. Returns 0 or -ENOMEM. */
int mr_checkpoint_hash(const struct mr_checkpoint *c, char out[17]);

/* Is this what mr_checkpoint_set() made of the text? (It replaces what is not UTF-8.) */
bool mr_checkpoint_is(const struct mr_checkpoint *c, const char *key, const char *text);
/* The key's number; an error names the file. Return 0 or MR_EFORMAT. */
int mr_checkpoint_get_uint(const struct mr_checkpoint *c, const char *key, uint64_t *out);
int mr_checkpoint_get_double(const struct mr_checkpoint *c, const char *key, double *out);

/* The names of a data set's classes as a JSON array, entry k is label k's; to be freed. NULL: it
 * names none. Returns 0 or -ENOMEM. */
int mr_class_names_text(const struct mr_dataset *ds, char **text);
/* text: such an array, or NULL: no names. of: whose, for the error. As
 * mr_checkpoint_class_names(). */
int mr_class_names_parse(const char *text, const char *of, char ***names, uint32_t *n);

#endif
