/*
 * Collation of your own: a callback gets the samples of a batch and makes the batch's fields.
 *
 *     struct mr_collate_fn fn;
 *     mr_collate_fn_init(&fn);
 *     fn.name = "pairs";
 *     fn.n_fields = 1;
 *     fn.field[0] = (struct mr_spec){.name = "pairs", .dtype = MR_I32, .rank = 2, .var_dims = 1,
 *                                    .dim = {4096, 2}};
 *     fn.collate = make_pairs;
 *     opts.collate_fn = &fn;
 *
 * Samples are read, decoded and transformed as usual. A batch then has the fields that the callback
 * makes instead of the data set's, in host memory and, copied by the loader, on the device. Order,
 * bad samples (left out before), states and prefetching stay the loader's.
 *
 * Threads: the callback runs on workers, for several batches at once. It must not use the loader.
 * C++ exceptions must not leave it (callback.h has millrace::guard). fork: see loader.h.
 */
#ifndef MILLRACE_COLLATE_H
#define MILLRACE_COLLATE_H

#include <millrace/error.h>
#include <millrace/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_batch_item;

/* The context in which a batch is made. Random choices keyed by seed, epoch and batch (random.h)
 * are the same whatever the number of workers, and after a resume. They are also the same on all
 * ranks, whose batches have the same numbers: key by positions[0] for different ones. */
struct mr_collate_context {
    size_t size;                       /* of this struct */
    uint64_t n;                        /* samples; 0 if all were bad: then outputs may be empty */
    uint64_t epoch, batch;             /* from 0; the batch's number in its epoch */
    uint64_t seed;                     /* mr_loader_opts.seed */
    const uint64_t *indices;           /* of each sample in the data set */
    const uint64_t *positions;         /* in the epoch's order */
    const struct mr_batch_item *items; /* of each sample, from a batch sampler; else NULL */
    uint32_t worker;                   /* whose thread it is */
    uint64_t reserved[7];              /* 0; the struct has 128 bytes for good */
};

/* A field of all samples of a batch. Passed in arrays, so its layout is fixed. */
struct mr_collate_in {
    const struct mr_spec *spec;         /* of one sample, as the chain leaves it */
    const void *const *row;             /* of each sample: its elements, dense */
    const uint64_t (*dim)[MR_MAX_RANK]; /* of each sample: its shape */
};

/* A field that the callback makes. Passed in arrays, so its layout is fixed. */
struct mr_collate_out {
    void *data;                /* space for the declared shape; aligned to 256 bytes */
    uint64_t dim[MR_MAX_RANK]; /* preset to the declared shape: lower those that vary */
};

/* A callback, and the fields that it makes. */
struct mr_collate_fn {
    size_t size;      /* of this struct, set by mr_collate_fn_init() */
    const char *name; /* in errors and states: 1 to 63 printable ASCII characters without " and \ */
    uint64_t version; /* in states if not 0: change it when the results change */
    int n_fields;     /* that it makes */
    /* Of a whole batch, the batch dimension included. dim has the largest shape: a slot has memory
     * for that. var_dims marks the dimensions that the callback may lower. */
    struct mr_spec field[MR_MAX_FIELDS];
    /*
     * Makes a batch. in: n_in fields, in the data set's order. out: n_fields of them.
     * Returns 0. A negative error ends the run: mr_error_set() for its text.
     */
    int (*collate)(void *user, const struct mr_collate_context *context, int n_in,
                   const struct mr_collate_in in[], struct mr_collate_out out[]);
    void *user;
};

/* Sets fn to zeros and its size. C and C++ call mr_collate_fn_init(); see millrace.h. */
MR_API void mr_collate_fn_fill(struct mr_collate_fn *fn, size_t size);
static inline void mr_collate_fn_init(struct mr_collate_fn *fn)
{
    mr_collate_fn_fill(fn, sizeof *fn);
}

#ifdef __cplusplus
}
#endif
#endif
