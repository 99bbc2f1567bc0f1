/*
 * Optimizers and schedules on flat arrays: what the files of this room share.
 *
 * An optimizer (struct mr_optim_ops) is a name, an option table, names for its arrays of state, and
 * the update that does its step. All of that, and the update's arithmetic, is one file per
 * optimizer in kernels/optim: see list.h there. This room has what they share:
 *
 *   kinds.c            makes the array of optimizers from that list
 *   parse.c            optimizers from text
 *   optim.c, step.c    groups, memory; steps by kernels on devices, by a thread pool on the host
 *   state.c            the state as named arrays, for checkpoints
 *   schedule*.c        learning rates by step or epoch; schedule_kinds.c has the array of kinds
 */
#ifndef MR_OPTIM_OPTIM_H
#define MR_OPTIM_OPTIM_H

#include "base/thread_pool.h"
#include "device/device.h"
#include "kernels/optim/optim.h"
#include <millrace/optim.h>

/* What option tables fill: the options, and texts that become numbers. */
struct mr_optim_values {
    struct mr_optim_opts opts;
    char *betas; /* "0.9/0.999" */
};

struct mr_optim_ops {
    const char *name;
    const char *summary;
    const struct mr_option *options; /* of struct mr_optim_values */
    /* Names of the arrays of state, as PyTorch's; NULL: no more. */
    const char *state[MR_OPTIM_STATES];
    enum mr_optim_update update; /* where there is no choose() */
    /*
     * Optional: which update does a step with these options. [in, out] state_of: which of the names
     * above the update's arrays have; 0, 1, 2 unless it is changed.
     */
    enum mr_optim_update (*choose)(const struct mr_optim_opts *opts,
                                   uint8_t state_of[MR_OPTIM_STATES]);
    /* Optional: MR_EOPTION when the options do not go together. */
    int (*check)(const struct mr_optim_opts *opts);
};

#define MR_OPTIM_MOST 1e30 /* of options without a bound of their own */

enum mr_optim_kind {
#define OPTIMIZER(name) MR_OPTIM_KIND_##name,
#include "kernels/optim/list.h"
    MR_OPTIM_N_KINDS
};
extern const struct mr_optim_ops *const mr_optim_kinds[MR_OPTIM_N_KINDS];

/* NULL: no such. */
const struct mr_optim_ops *mr_optim_ops_find(const char *name, size_t n);
/* Options of an optimizer, from those at `opts` on. who: for errors. Returns 0, MR_EOPTION,
 * -ENOMEM. */
int mr_optim_parse_more(const struct mr_optim_ops *ops, const char *who, const char *text,
                        struct mr_optim_opts *opts);
/* The whole of a spec. */
int mr_optim_parse_spec(const char *spec, const struct mr_optim_ops **out_ops,
                        struct mr_optim_opts *out);

struct mr_optim_part { /* one group */
    uint64_t begin, end;
    struct mr_optim_opts opts;
    enum mr_optim_update update;
    uint8_t state_of[MR_OPTIM_STATES];
    double lr; /* as set */
    uint32_t first_norm, n_norms;
    uint64_t norm_part;            /* elements each sums */
    uint64_t norm_begin, norm_end; /* elements that they sum */
};

struct mr_optim_array {
    const char *name;
    void *data;
};

/*
 * An optimizer of a range of parameters, as one of several that do a step together: on the ranks of
 * a run, or on the devices of a net. Its arrays have the range's elements alone, and calls get
 * pointers to these. Each computes the sums of squares that lie within its range; the others' have
 * to come into `norms` before mr_optim_end_step(). So the norm has the bits of one optimizer of
 * all.
 */
struct mr_optim_range {
    uint64_t n_all, first, n; /* n: 0: none */
};

struct mr_optim {
    struct mr_device *device; /* NULL: the host, or "cpu" with streams that are not recorded */
    bool host;                /* memory is the host's, and steps are ours to run */
    const struct mr_optim_ops *ops;
    struct mr_optim_opts opts;
    enum mr_dtype dtype;
    uint64_t n;
    uint32_t n_parts;
    struct mr_optim_part *parts;
    /* the last: "accumulated"; data NULL: not there */
    struct mr_optim_array array[MR_OPTIM_STATES + 1];
    struct mr_optim_record *records; /* n_parts */
    uint32_t *tickets;               /* n_parts */
    double *norms;                   /* n_norms, of all parameters */
    uint32_t n_norms;
    struct mr_optim_range range; /* n_all 0: it is alone */
    uint64_t pending;            /* accumulated calls */
    bool dirty;                  /* learning rates are not where records are */
    struct mr_optim_extra extra;
    struct mr_thread_pool *pool; /* NULL: one thread */
};

static inline uint64_t mr_optim_size(const struct mr_optim *o)
{
    return o->dtype == MR_F64 ? 8 : 4;
}

/* Returns 0, or MR_EMISUSE unless it is a stream of the optimizer's device, where that has any. */
int mr_optim_check_stream(const struct mr_optim *o, const struct mr_stream *stream,
                          const char *call);

/* As mr_optim_create_from(), with one group. */
int mr_optim_create_range(struct mr_device *device, const struct mr_optim_opts *opts,
                          enum mr_dtype dtype, const struct mr_optim_range *range,
                          struct mr_optim **out);
/* The elements of one sum of squares, of so many parameters: the last has less. */
uint64_t mr_optim_norm_unit(uint64_t n_all);

/*
 * The parts of mr_optim_step(). begin: [in, out] grads: those that the step is of: with accumulate
 * their mean. Returns 1, 0 (there is no step yet), or an error.
 * norms: computes those of the range. norm_one: the k-th, of n gradients that lie together.
 */
struct mr_optim_grads {
    const void *data;
    enum mr_dtype dtype;
};
int mr_optim_begin_step(struct mr_optim *o, struct mr_optim_grads *grads, struct mr_stream *stream);
int mr_optim_own_norms(struct mr_optim *o, const struct mr_optim_grads *grads,
                       struct mr_stream *stream);
int mr_optim_norm_one(struct mr_optim *o, uint32_t k, const struct mr_optim_grads *grads,
                      uint64_t n, struct mr_stream *stream);
int mr_optim_end_step(struct mr_optim *o, void *params, const struct mr_optim_grads *grads,
                      struct mr_stream *stream);

/* state.c. Has the i-th array of state an element for each parameter? */
bool mr_optim_state_is_per_param(const struct mr_optim *o, uint32_t i);
/* Bytes of all arrays. */
uint64_t mr_optim_state_bytes(const struct mr_optim *o);

/* step.c: how many threads may have something to do at once. */
uint64_t mr_optim_most_tasks(const struct mr_optim *o);

#endif
