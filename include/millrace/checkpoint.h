/*
 * Checkpoints of training: safetensors files. Tensors have PyTorch's names, so
 * safetensors.torch.load_file() reads them; the file's metadata hold the model, the samples it
 * takes, and the state of the run; a checksum covers both.
 *
 * mr_trainer_save() (train.h) writes one. Here they are read, and nets are made of them.
 * Threads: a checkpoint does not change once it is open; any thread may read it. Part of
 * libmillrace-train.
 */
#ifndef MILLRACE_CHECKPOINT_H
#define MILLRACE_CHECKPOINT_H

#include <millrace/dataset.h>
#include <millrace/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_checkpoint;

/*
 * Reads a checkpoint into memory and checks it.
 * [out] out: on success; close it with mr_checkpoint_close(). Blocks.
 * Returns 0; MR_EFORMAT: no checkpoint of ours, or a damaged one; MR_ETRUNCATED; MR_EUNSUPPORTED;
 * MR_ELIMIT; MR_EMISUSE for NULL; -ENOMEM, -errno.
 */
MR_API int mr_checkpoint_open(const char *path, struct mr_checkpoint **out);
MR_API void mr_checkpoint_close(struct mr_checkpoint *c); /* NULL is allowed */

/* A text of the metadata ("model", "optimizer", "config", ...). NULL: no such key. Owned by the
 * checkpoint. */
MR_API const char *mr_checkpoint_get(const struct mr_checkpoint *c, const char *key);

struct mr_checkpoint_tensor {
    char name[64];
    enum mr_dtype dtype; /* MR_F32 or MR_F64 */
    int rank;            /* 0..4 */
    uint64_t dim[4];
    const void *data; /* aligned to 8 bytes or better */
    uint64_t bytes;
};
/* The i-th in the file's order, NULL after the last. Owned by the checkpoint. */
MR_API const struct mr_checkpoint_tensor *mr_checkpoint_tensor_get(const struct mr_checkpoint *c,
                                                                   uint32_t i);
/* The one of this name; NULL: none. */
MR_API const struct mr_checkpoint_tensor *mr_checkpoint_tensor_find(const struct mr_checkpoint *c,
                                                                    const char *name);

/* What it is of. Texts are owned by the checkpoint. */
struct mr_checkpoint_info {
    size_t size; /* set by the caller to sizeof: no more is written */
    const char *model;
    const char *sample;               /* "1x28x28 nchw" */
    uint32_t channels, height, width; /* of a sample */
    enum mr_layout layout;
    enum mr_loss loss;
    uint32_t classes;
    const char *test_transform; /* the chain that test samples went through; "": none */
    uint64_t step, epoch;       /* done */
};
/* [out] out: on success, all but size. Returns 0, MR_EFORMAT: the file does not say it; MR_EMISUSE
 * for a wrong size. */
MR_API int mr_checkpoint_query(const struct mr_checkpoint *c, struct mr_checkpoint_info *out);

/*
 * Makes the checkpoint's net and loads its parameters and running statistics.
 * device: of kind "cpu" or "cuda"; stays open longer than the net. max_batch: samples of a batch at
 * most, 1..2^20. threads: on "cpu", 0: all this process may use.
 * [out] out: on success; mr_net_destroy() frees it. Blocks.
 * Returns 0, MR_EFORMAT, MR_ESTATE (a tensor is missing or has another shape), what mr_net_create()
 * returns.
 */
MR_API int mr_checkpoint_net_create(const struct mr_checkpoint *c, struct mr_device *device,
                                    uint32_t max_batch, uint32_t threads, struct mr_net **out);
/* Loads parameters and running statistics into a net of the same layers. Blocks. Returns 0,
 * MR_ESTATE, MR_EDEVICE, -ENOMEM. */
MR_API int mr_checkpoint_net_load(const struct mr_checkpoint *c, struct mr_net *net);

/*
 * The names of the net's classes: the checkpoint's, or the data set's where it has none. ds: may be
 * NULL.
 * [out] names: n entries, NULL where a class has no name; freed by mr_class_names_destroy(), also
 * after an error.
 * Returns 0, MR_EFORMAT, -ENOMEM.
 */
MR_API int mr_checkpoint_class_names(const struct mr_checkpoint *c, const struct mr_dataset *ds,
                                     char ***names, uint32_t *n);
MR_API void mr_class_names_destroy(char **names, uint32_t n);
/*
 * Does the data set give each class the name that `names` give it? A class that either leaves
 * unnamed is no difference.
 * of: whose names they are, for the error ("the training").
 * Returns 0, MR_ESTATE (says which class differs), -ENOMEM.
 */
MR_API int mr_class_names_check(const struct mr_dataset *ds, char *const *names, uint32_t n,
                                const char *of);

#ifdef __cplusplus
}
#endif
#endif
