/*
 * Transforms: ops on a sample between decoding and its row of the batch.
 *
 *     struct mr_transform *chain;
 *     mr_transform_create(&chain);
 *     mr_transform_add(chain, "cast(f32),scale(1/255),normalize(0.1307,0.3081)");
 *     mr_loader_open(dataset, NULL, chain, device, &opts, &loader);
 *
 * A chain is a list of ops. An op works on one field: by default the first, for one_hot "label"; a
 * prefix selects another, as in "label.cast(i64)", or several: "image+mask.hflip" does the same to
 * both, with the same random numbers. Some ops drop fields or add new ones, so the output has its
 * own list of fields (mr_transform_fields(), mr_transform_specs()). docs/data.md lists all ops,
 * their arguments and their exact arithmetic; mr_transform_each() lists them at run time.
 *
 * Binding a chain to a data set's fields infers and checks all shapes and element types; a loader
 * does that. Random ops draw from Philox keyed by seed, epoch, sample and op, so a sample's result
 * does not depend on the worker. Results are bit-identical on every machine and device.
 *
 * Threads: a bound chain is constant. Several threads may apply it, each with scratch of its own.
 * fork: a child may apply the chains that it inherits. A chain that a loader used at the fork stays
 * in use there, since that loader cannot be closed: make another one for a loader of the child's
 * own.
 */
#ifndef MILLRACE_TRANSFORM_H
#define MILLRACE_TRANSFORM_H

#include <millrace/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_transform;

/* Creates an empty chain. [out] out: on success; free it with mr_transform_destroy().
 * Returns 0, -ENOMEM. */
MR_API int mr_transform_create(struct mr_transform **out);

/* Frees a chain. No loader may still use it. NULL is allowed. */
MR_API void mr_transform_destroy(struct mr_transform *chain);

/*
 * Appends ops to a chain, all of them or none. The chain must be bound again afterwards.
 * text: ops with commas between them; a chain has at most 64 ops.
 * Returns 0, MR_EOPTION (the text names the op, its place and the argument), MR_ELIMIT, MR_EMISUSE
 * while a loader uses the chain, -ENOMEM.
 */
MR_API int mr_transform_add(struct mr_transform *chain, const char *text);

/* An op of the caller's own. It runs on the host. */
struct mr_transform_fn {
    size_t size;       /* of this struct */
    const char *name;  /* in errors and in the chain's text; copied */
    const char *field; /* the field that it works on; NULL: the first; copied */
    /* Changes the spec from the input's to the output's. NULL: the spec stays. Returns 0, or
     * mr_error_set(MR_ESHAPE, ...). */
    int (*infer)(void *user, struct mr_spec *spec);
    /* Computes one sample. Several threads call it at once. out_dim: preset to the output spec's
     * shape; lower what varies. random: four numbers keyed to this sample and op; for more,
     * mr_rng_init_op() (random.h). Returns 0, or a negative error: the sample is then bad. */
    int (*apply)(void *user, const struct mr_spec *in_spec, const void *in, const uint64_t *in_dim,
                 const struct mr_spec *out_spec, void *out, uint64_t *out_dim,
                 const uint32_t random[4]);
    void *user;
    /* In the chain's text, "noise(version=2)", if not 0. Saved states have that text: change
     * name or version when parameters or results change. */
    uint64_t version;
    /* Called once, by mr_transform_destroy(); not if the op was refused. NULL: nothing to do. */
    void (*close)(void *user);
};

/* Appends an op of the caller's own. Returns 0, MR_EOPTION, MR_ELIMIT, MR_EMISUSE while a loader
 * uses the chain, -ENOMEM. */
MR_API int mr_transform_add_fn(struct mr_transform *chain, const struct mr_transform_fn *fn);

/* The sample that an op over several fields works on. */
struct mr_transform_context {
    size_t size; /* of this struct */
    uint64_t seed, epoch, index;
    uint32_t random[4]; /* keyed to this sample and op; for more, mr_rng_init_op() (random.h) */
    int n_in, n_out;    /* fields */
    const struct mr_spec *in, *out; /* their specs */
};

/* An op of the caller's own over several fields. It runs on the host. */
struct mr_transform_multi_fn {
    size_t size;               /* of this struct */
    const char *name;          /* in errors and in the chain's text; copied */
    const char *const *fields; /* those that it takes, up to a NULL; NULL: all; copied */
    /* Says which fields come out of those that it takes. out, n_out: preset to in, n_in; out has
     * space for MR_MAX_FIELDS. A field that is in `in` alone is dropped; one that is in `out` alone
     * is added at the end. NULL: fields and specs stay. Returns 0, or mr_error_set(MR_ESHAPE, ...).
     */
    int (*infer)(void *user, const struct mr_spec in[], int n_in, struct mr_spec out[], int *n_out);
    /* Computes one sample: all fields of out, also those that stay as they are. Several threads
     * call it at once. out[f] is aligned to 64. out_dim: preset to the output specs' shapes; lower
     * what varies. Returns 0, or a negative error: the sample is then bad. */
    int (*apply)(void *user, const struct mr_transform_context *context, const void *const in[],
                 const uint64_t in_dim[][MR_MAX_RANK], void *const out[],
                 uint64_t out_dim[][MR_MAX_RANK]);
    void *user;
    uint64_t version;          /* as in struct mr_transform_fn */
    void (*close)(void *user); /* as in struct mr_transform_fn */
};

/* Appends an op over several fields. Returns 0, MR_EOPTION, MR_ELIMIT, MR_EMISUSE while a loader
 * uses the chain, -ENOMEM. */
MR_API int mr_transform_add_multi(struct mr_transform *chain,
                                  const struct mr_transform_multi_fn *fn);

/*
 * Infers and checks all shapes for samples with these fields, and plans the work. A loader calls it
 * for its data set. It may be called again for other fields.
 * Returns 0, MR_ESHAPE (the text names the op and both shapes), MR_EMISUSE while a loader uses the
 * chain, -ENOMEM.
 */
MR_API int mr_transform_bind(struct mr_transform *chain, const struct mr_spec *fields,
                             int n_fields);

/* The number of fields of a bound chain's output; 0 if it is not bound. */
MR_API int mr_transform_fields(const struct mr_transform *chain);

/* The specs of a bound chain's output, mr_transform_fields() of them. Owned by the chain. */
MR_API const struct mr_spec *mr_transform_specs(const struct mr_transform *chain);

/* The field that an output field is made from, by its number among those the chain is bound to; -1
 * if there is no such output field, or an op over several fields made it. */
MR_API int mr_transform_source(const struct mr_transform *chain, int field);

/* 1 if the bound chain leaves this output field as its source is, else 0. */
MR_API int mr_transform_is_identity(const struct mr_transform *chain, int field);

/* The bytes of scratch memory that one thread needs to apply a bound chain; may be 0. */
MR_API uint64_t mr_transform_scratch_bytes(const struct mr_transform *chain);

/*
 * Makes one output field of one sample.
 * field: of the output. index: the sample's index in the data set. in, in_dim: the field's source
 * (mr_transform_source()) as decoded, and its shape.
 * [out] out: the output spec's bytes, not overlapping in; neither must be aligned.
 * [out] out_dim: the result's shape. scratch: mr_transform_scratch_bytes(), aligned to 64; NULL
 * when that is 0.
 * Returns 0, or a negative error: the sample is bad.
 */
MR_API int mr_transform_apply(const struct mr_transform *chain, int field, uint64_t seed,
                              uint64_t epoch, uint64_t index, const void *in,
                              const uint64_t *in_dim, void *out, uint64_t *out_dim, void *scratch);

/*
 * Makes all output fields of one sample, ops over several fields included.
 * in, in_dim: the fields that the chain is bound to. [out] out, out_dim: mr_transform_fields() of
 * them. Else as mr_transform_apply().
 */
MR_API int mr_transform_apply_all(const struct mr_transform *chain, uint64_t seed, uint64_t epoch,
                                  uint64_t index, const void *const in[],
                                  const uint64_t in_dim[][MR_MAX_RANK], void *const out[],
                                  uint64_t out_dim[][MR_MAX_RANK], void *scratch);

/* The chain as text that mr_transform_add() reads. An op of the caller's own appears by its name
 * and version, which cannot be read back. Owned by the chain, valid until it changes. */
MR_API const char *mr_transform_text(const struct mr_transform *chain);

/* Calls fn for each op with its name, its arguments and one line about it. Stops when fn returns
 * nonzero, and returns that. */
MR_API int mr_transform_each(int (*fn)(void *user, const char *name, const char *arguments,
                                       const char *summary),
                             void *user);

#ifdef __cplusplus
}
#endif
#endif
