/*
 * Checkpoints of training runs: reading them and creating nets from them. mr_trainer_save()
 * (train.h) writes them.
 *
 * A checkpoint is a safetensors file. Tensors have PyTorch's names, so
 * safetensors.torch.load_file() reads them. The file's metadata contain the model, the shape of its
 * samples, and the state of the run. A checksum covers tensors and metadata.
 *
 * Threads: a checkpoint does not change once it is open, so any thread may read it. fork: a child
 * may read and close those that it inherits.
 * This is part of libmillrace-train.
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
 * Returns 0, MR_EFORMAT (not a checkpoint of millrace, or damaged), MR_ETRUNCATED, MR_EUNSUPPORTED,
 * MR_ELIMIT, MR_EMISUSE (NULL), -ENOMEM, -errno.
 */
MR_API int mr_checkpoint_open(const char *path, struct mr_checkpoint **out);

/* Frees a checkpoint and its tensors. NULL is allowed. */
MR_API void mr_checkpoint_close(struct mr_checkpoint *c);

/* A text in the metadata ("model", "optimizer", "config", ...). NULL: no such key. Owned by the
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

/* The i-th tensor in the file's order; NULL after the last. Owned by the checkpoint. */
MR_API const struct mr_checkpoint_tensor *mr_checkpoint_tensor_get(const struct mr_checkpoint *c,
                                                                   uint32_t i);

/* The tensor with this name; NULL: no such tensor. Owned by the checkpoint. */
MR_API const struct mr_checkpoint_tensor *mr_checkpoint_tensor_find(const struct mr_checkpoint *c,
                                                                    const char *name);

/* The model and the state of the run. Texts are owned by the checkpoint. */
struct mr_checkpoint_info {
    size_t size; /* set it to sizeof; no more is written */
    const char *model;
    const char *sample;               /* "1x28x28 nchw" */
    uint32_t channels, height, width; /* of a sample */
    enum mr_layout layout;
    enum mr_loss loss;
    uint32_t classes;
    const char *test_transform; /* the transform of test samples; "": none */
    uint64_t step, epoch;       /* done */
};

/* Describes a checkpoint. [out] out: on success, all but size. Returns 0, MR_EFORMAT (missing from
 * the file), MR_EMISUSE (a wrong size). */
MR_API int mr_checkpoint_query(const struct mr_checkpoint *c, struct mr_checkpoint_info *out);

/*
 * Creates the checkpoint's net and loads its parameters and running statistics. Blocks.
 * device: "cpu" or "cuda"; it must outlive the net. max_batch: samples of the largest batch,
 * 1..2^20. threads: on "cpu"; 0: all that this process may use.
 * [out] out: on success; free it with mr_net_destroy().
 * Returns 0, MR_EFORMAT, MR_ESTATE (a tensor is missing or has another shape), or an error of
 * mr_net_create().
 */
MR_API int mr_checkpoint_net_create(const struct mr_checkpoint *c, struct mr_device *device,
                                    uint32_t max_batch, uint32_t threads, struct mr_net **out);

/* Loads parameters and running statistics into a net with the same layers. Blocks. Returns 0,
 * MR_ESTATE, MR_EDEVICE, -ENOMEM. */
MR_API int mr_checkpoint_net_load(const struct mr_checkpoint *c, struct mr_net *net);

/*
 * Copies the names of the net's classes: the checkpoint's, else the data set's.
 * ds: used if the checkpoint has no names; may be NULL.
 * [out] names: n entries, NULL for a class without a name; free them with mr_class_names_destroy(),
 * also after an error.
 * Returns 0, MR_EFORMAT, -ENOMEM.
 */
MR_API int mr_checkpoint_class_names(const struct mr_checkpoint *c, const struct mr_dataset *ds,
                                     char ***names, uint32_t *n);
MR_API void mr_class_names_destroy(char **names, uint32_t n);

/*
 * Checks that the data set gives each class the same name. Classes that have no name on one side
 * are not compared.
 * of: where `names` come from, for the error ("the training set").
 * Returns 0, MR_ESTATE (names the class that differs), -ENOMEM.
 */
MR_API int mr_class_names_check(const struct mr_dataset *ds, char *const *names, uint32_t n,
                                const char *of);

#ifdef __cplusplus
}
#endif
#endif
