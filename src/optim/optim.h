/*
 * The optimizer vtable, and what the files of this room share. Steps are done by the kernels of device/kernels_optim.h, on
 * the host in chunks by a team of threads.
 */
#ifndef MR_OPTIM_OPTIM_H
#define MR_OPTIM_OPTIM_H

#include "base/team.h"
#include "device/device.h"
#include "device/kernels_optim.h"
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
    const char *state
        [MR_OPTIM_STATES]; /* names of the kernel's arrays; NULL: no such. Kernels that have fewer leave out others:
                                           see state_of */
    enum mr_optim_kernel kernel; /* where there is no pick() */
    /* Optional: which kernel does a step with these options. state_of: which of the names above the kernel's arrays are. */
    enum mr_optim_kernel (*pick)(const struct mr_optim_opts *opts, uint8_t state_of[MR_OPTIM_STATES]);
    /* Optional: the options do not go together: MR_EOPTION. */
    int (*check)(const struct mr_optim_opts *opts);
};

#define MR_OPTIMIZERS(X)                                                                                               \
    X(sgd)                                                                                                             \
    X(momentum)                                                                                                        \
    X(nesterov)                                                                                                        \
    X(adagrad)                                                                                                         \
    X(adadelta)                                                                                                        \
    X(rmsprop)                                                                                                         \
    X(adam)                                                                                                            \
    X(adamw)                                                                                                           \
    X(amsgrad)                                                                                                         \
    X(adamax)                                                                                                          \
    X(nadam)                                                                                                           \
    X(radam)                                                                                                           \
    X(lion)
#define X(name) extern const struct mr_optim_ops mr_optim_##name;
MR_OPTIMIZERS(X)
#undef X

/* Of adam.c: adamw's, too. */
enum mr_optim_kernel mr_optim_pick_adam(const struct mr_optim_opts *opts, uint8_t state_of[MR_OPTIM_STATES]);

/* Entries of option tables. */
#define MR_OPTIM_REAL(member, text, low, high, about)                                                                  \
    {                                                                                                                  \
        .name = #member, .type = MR_OPT_DOUBLE, .offset = offsetof(struct mr_optim_values, opts.member),               \
        .initial = text, .min = low, .max = high, .help = about                                                        \
    }
#define MR_OPTIM_FLAG(member, text, about)                                                                             \
    {                                                                                                                  \
        .name = #member, .type = MR_OPT_FLAG, .offset = offsetof(struct mr_optim_values, opts.member),                 \
        .initial = text, .help = about                                                                                 \
    }
#define MR_OPTIM_COUNT(member, text, low, high, of, about)                                                             \
    {                                                                                                                  \
        .name = #member, .type = MR_OPT_UINT, .offset = offsetof(struct mr_optim_values, opts.member),                 \
        .initial = text, .min = low, .max = high, .unit = of, .help = about                                            \
    }
#define MR_OPTIM_MOST     1e30
#define MR_OPTIM_LR(text) MR_OPTIM_REAL(lr, text, 0, MR_OPTIM_MOST, "learning rate")
#define MR_OPTIM_EPS(text)                                                                                             \
    MR_OPTIM_REAL(eps, text, 0, MR_OPTIM_MOST, "added to what is divided by, so that it is not 0")
#define MR_OPTIM_BETAS(text)                                                                                           \
    {                                                                                                                  \
        .name = "betas", .type = MR_OPT_STRING, .offset = offsetof(struct mr_optim_values, betas), .initial = text,    \
        .meta = "B1/B2", .help = "decay of the averages, two numbers of 0 to 1"                                        \
    }
/* What all of them have, and the table's end. */
#define MR_OPTIM_COMMON(decay, is_decoupled)                                                                           \
    MR_OPTIM_REAL(weight_decay, decay, 0, MR_OPTIM_MOST, "pulls parameters towards 0"),                                \
        MR_OPTIM_FLAG(decoupled, is_decoupled, "weight decay apart from the gradient"),                                \
        MR_OPTIM_FLAG(maximize, "0", "go up, not down"),                                                               \
        MR_OPTIM_REAL(clip_norm, "0", 0, MR_OPTIM_MOST, "greatest norm of all gradients; 0: none"),                    \
        MR_OPTIM_REAL(clip_value, "0", 0, MR_OPTIM_MOST, "greatest size of a gradient; 0: none"),                      \
        MR_OPTIM_COUNT(accumulate, "1", 1, 1e6, "calls", "calls that make one step, with the mean gradient"),          \
        MR_OPTIM_COUNT(threads, "0", 0, 512, "threads", "on the host; 0: one a processor"),                            \
    {                                                                                                                  \
        0                                                                                                              \
    }

/* NULL: no such. */
const struct mr_optim_ops *mr_optim_ops_find(const char *name, size_t n);
/* Options of an optimizer, from those at `opts` on. who: for errors. Returns 0, MR_EOPTION, -ENOMEM. */
int mr_optim_parse_more(const struct mr_optim_ops *ops, const char *who, const char *text, struct mr_optim_opts *opts);
/* The whole of a spec. */
int mr_optim_parse_spec(const char *spec, const struct mr_optim_ops **out_ops, struct mr_optim_opts *out);

struct mr_optim_part { /* one group */
    uint64_t begin, end;
    struct mr_optim_opts opts;
    enum mr_optim_kernel kernel;
    uint8_t state_of[MR_OPTIM_STATES];
    double lr; /* as set */
    uint32_t first_norm, n_norms;
    uint64_t norm_part; /* elements each sums */
};

struct mr_optim_array {
    const char *name;
    void *data;
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
    struct mr_optim_array array[MR_OPTIM_STATES + 1]; /* the last: "accumulated"; data NULL: not there */
    struct mr_optim_record *records;                  /* n_parts */
    uint32_t *tickets;                                /* n_parts */
    double *norms;                                    /* n_norms */
    uint32_t n_norms;
    uint64_t pending; /* accumulated calls */
    bool dirty;       /* learning rates are not where records are */
    struct mr_optim_extra extra;
    struct mr_team *team; /* NULL: one thread */
};

static inline uint64_t mr_optim_size(const struct mr_optim *o)
{
    return o->dtype == MR_F64 ? 8 : 4;
}

/* Returns 0, or MR_EMISUSE when the optimizer's device wants a stream of its own and this is none. */
int mr_optim_check_stream(const struct mr_optim *o, const struct mr_stream *stream, const char *call);

/* step.c: how many threads may have something to do at once. */
uint64_t mr_optim_most_tasks(const struct mr_optim *o);

#endif
