/*
 * The module "optim": steps of optimizers. All parameters are one flat array, and a group is a
 * range of it. millrace/optim.h has the formulas; list.h has the optimizers, each in a file of its
 * own.
 *
 * A group has a record in the memory where its parameters are: learning rate, steps done, and what
 * else goes on from step to step. A step first computes its scalars from the record (bias
 * corrections, clipping by norm, the sign), then updates every parameter, then writes the record
 * for the next step. So a launch is a whole step, and a recorded graph that repeats it counts on.
 * On the host src/optim does these three things by a thread pool; on a GPU every block computes the
 * scalars for itself, and the block that ends last, which a ticket tells, writes the record.
 *
 * Elements do not depend on each other, and the gradients' norm is a sum of parts whose borders and
 * order are fixed: the number of threads changes no bit. Host and GPU round alike but for pow(),
 * which only the scalars use.
 */
#ifndef MR_KERNELS_OPTIM_OPTIM_H
#define MR_KERNELS_OPTIM_OPTIM_H

#include "base/private.h"
#include "kernels/half.h"
#include "kernels/kernels.h"
#include <math.h>
#include <millrace/tensor.h>

#define MR_OPTIM_STATES  3 /* arrays of state of an update, at most */
#define MR_OPTIM_SCALARS 8

enum mr_optim_update {
#define UPDATE(name, n_state) MR_OPTIM_##name,
#include "kernels/optim/list.h"
    MR_OPTIM_N_UPDATES
};

/* A group's numbers, kept where the parameters are. The kernel writes step, mu_product, grad_norm
 * and pending. */
struct mr_optim_record {
    double lr;
    double step;       /* steps done */
    double mu_product; /* NAdam */
    double grad_norm;  /* of the last step that clipped by norm */
    double pending;    /* accumulated calls towards the next step; negative: one of them was to be
                          skipped */
};

/* The options of a group that its step reads: as in struct mr_optim_opts. */
#define MR_OPTIM_HYPER(X)                                                                          \
    X(weight_decay)                                                                                \
    X(beta1)                                                                                       \
    X(beta2)                                                                                       \
    X(eps)                                                                                         \
    X(momentum)                                                                                    \
    X(dampening)                                                                                   \
    X(rho)                                                                                         \
    X(alpha)                                                                                       \
    X(lr_decay)                                                                                    \
    X(momentum_decay)                                                                              \
    X(clip_norm)                                                                                   \
    X(clip_value)

struct mr_optim_hyper {
#define X(name) double name;
    MR_OPTIM_HYPER(X)
#undef X
};

/* "optim_<update>_<dtype>": one step of elements begin .. end. Pointers are the arrays' starts. */
struct mr_optim_args {
    void *params;
    const void *grads;
    void *state[MR_OPTIM_STATES];
    void *copy; /* of the parameters in copy_dtype; NULL: none */
    struct mr_optim_record *record;
    uint32_t *ticket;        /* 0 before and after: how many blocks are done */
    const double *norms;     /* n_norms sums of squares of the gradients */
    const float *grad_scale; /* NULL: 1 */
    const uint32_t *skip;    /* not 0 there: the step is left out; NULL: never */
    uint64_t begin, end;
    int32_t update;                 /* enum mr_optim_update */
    int32_t grad_dtype, copy_dtype; /* enum mr_dtype */
    uint32_t n_norms, decoupled, maximize;
    struct mr_optim_hyper hyper;
};

/* "optim_norm_<dtype>": out[i] becomes the sum of squares of the i-th of n_out equal parts (the
 * last is shorter). */
struct mr_optim_norm_args {
    const void *grads;
    double *out;
    uint64_t begin, end, part; /* part: elements, a multiple of 4,096 */
    uint32_t n_out;
    int32_t grad_dtype;
};

/* "optim_add_<dtype>": sum = (first ? 0 : sum) + grads * factor * *grad_scale. Every record's
 * pending becomes mr_optim_pending(). */
struct mr_optim_add_args {
    const void *grads;
    void *sum;
    struct mr_optim_record *records;
    const float *grad_scale; /* NULL: 1 */
    const uint32_t *skip; /* not 0 there: the step that this call is of is left out; NULL: never */
    uint64_t n;
    double factor, pending;
    int32_t grad_dtype;
    uint32_t n_records, first;
};

/* "optim_set": the learning rates of up to 64 groups. */
#define MR_OPTIM_SET 64
struct mr_optim_set_args {
    struct mr_optim_record *records;
    uint32_t n;
    double lr[MR_OPTIM_SET];
};

/* What one step computes once. */
struct mr_optim_scalars {
    double c[MR_OPTIM_SCALARS]; /* of the update: see its file */
    double grad;                /* gradients are multiplied by it: scale, clipping by norm, sign */
    double clip;                /* then limited to -clip .. clip; 0: not */
    double decay;               /* then decay * parameter is added */
    double keep;                /* the parameter is multiplied by it first */
    double step, mu_product, grad_norm; /* the record's, after the step */
};

MR_HOST_DEVICE double mr_optim_pending(const struct mr_optim_add_args *a, double before)
{
    return (a->skip && *a->skip) || (!a->first && before < 0) ? -a->pending : a->pending;
}

MR_HOST_DEVICE double mr_optim_add_factor(const struct mr_optim_add_args *a)
{
    return a->grad_scale ? a->factor * (double)*a->grad_scale : a->factor;
}

MR_HOST_DEVICE int mr_optim_is_skipped(const struct mr_optim_args *a)
{
    return (a->skip && *a->skip) || a->record->pending < 0;
}

/*
 * The scalars of any update, before its own. squares: the sum of args->norms. NaN and infinity
 * there go on into the gradients, as PyTorch's clip_grad_norm_ does.
 */
MR_HOST_DEVICE void mr_optim_begin_scalars(const struct mr_optim_args *a, double squares,
                                           struct mr_optim_scalars *s)
{
    const struct mr_optim_hyper *h = &a->hyper;
    double scale = a->grad_scale ? (double)*a->grad_scale : 1;
    s->step = a->record->step + 1;
    s->mu_product = a->record->mu_product;
    s->grad_norm = a->record->grad_norm;
    for (int i = 0; i < MR_OPTIM_SCALARS; i++)
        s->c[i] = 0;
    s->c[0] = -a->record->lr;
    if (a->n_norms > 0) {
        s->grad_norm = sqrt(squares) * fabs(scale);
        double part = h->clip_norm / (s->grad_norm + 1e-6);
        scale *= part > 1 ? 1 : part;
    }
    s->grad = a->maximize ? -scale : scale;
    s->clip = h->clip_value;
    s->decay = a->decoupled ? 0 : h->weight_decay;
    s->keep = a->decoupled ? 1 - a->record->lr * h->weight_decay : 1;
}

/* NaN if one of them is, as torch.maximum. */
MR_HOST_DEVICE float mr_optim_greater_f32(float a, float b)
{
    return a > b || a != a ? a : b;
}
MR_HOST_DEVICE double mr_optim_greater_f64(double a, double b)
{
    return a > b || a != a ? a : b;
}

/* mr_optim_<update>_<dtype>() and mr_optim_<update>_scalars_<dtype>() of all updates. */
#define SCALARS(name)                                                                              \
    MR_HOST_DEVICE void NAME(name##_scalars)(                                                      \
        const struct mr_optim_hyper *h MR_OPTIM_UNUSED,                                            \
        const struct mr_optim_record *record MR_OPTIM_UNUSED, double t MR_OPTIM_UNUSED,            \
        struct mr_optim_scalars *s MR_OPTIM_UNUSED, double *c MR_OPTIM_UNUSED)
#define SAME_SCALARS(name, of)                                                                     \
    SCALARS(name)                                                                                  \
    {                                                                                              \
        NAME(of##_scalars)(h, record, t, s, c);                                                    \
    }
#define ELEMENT(name)                                                                              \
    MR_HOST_DEVICE void NAME(name)(const REAL *c, REAL g, REAL *p, REAL *x MR_OPTIM_UNUSED,        \
                                   REAL *y MR_OPTIM_UNUSED, REAL *z MR_OPTIM_UNUSED)
#define MR_OPTIM_UNUSED __attribute__((unused))

#define MR_OPTIM_ARITHMETIC
#define REAL       float
#define NAME(name) mr_optim_##name##_f32
#define ROOT       sqrtf
#define SIZE       fabsf
#include "kernels/optim/list.h"
#undef REAL
#undef NAME
#undef ROOT
#undef SIZE

#define MR_OPTIM_ARITHMETIC
#define REAL       double
#define NAME(name) mr_optim_##name##_f64
#define ROOT       sqrt
#define SIZE       fabs
#include "kernels/optim/list.h"
#undef REAL
#undef NAME
#undef ROOT
#undef SIZE

#undef SCALARS
#undef SAME_SCALARS
#undef ELEMENT

/* Pairwise: the error grows with the logarithm of n. */
MR_PRIVATE double mr_optim_sum(const double *v, uint64_t n);
/* A step by the host's threads: what it computes once. squares: the sum of args->norms. Returns 0
 * when the step is left out. */
MR_PRIVATE int mr_optim_prepare(const struct mr_optim_args *args, double squares,
                                struct mr_optim_scalars *out);
/* Elements begin .. end, a part of args'. f64: the parameters' dtype. */
MR_PRIVATE void mr_optim_apply(const struct mr_optim_args *args, const struct mr_optim_scalars *s,
                               int f64, uint64_t begin, uint64_t end);
MR_PRIVATE void mr_optim_finish(const struct mr_optim_args *args, const struct mr_optim_scalars *s);
/* One of the parts of "optim_norm_<dtype>". */
MR_PRIVATE double mr_optim_norm_part(const struct mr_optim_norm_args *args, uint32_t part);
/* Elements begin .. end of "optim_add_...", but for the records. */
MR_PRIVATE void mr_optim_add_range(const struct mr_optim_add_args *args, int f64, uint64_t begin,
                                   uint64_t end);

extern MR_PRIVATE const struct mr_kernel_module mr_optim_module;

/* The kernel of an update. */
MR_PRIVATE const struct mr_kernel *mr_optim_kernel(enum mr_optim_update update, int f64);
/* Arrays of state that an update needs. */
MR_PRIVATE int mr_optim_n_states(enum mr_optim_update update);
/* Those that are not updates; by dtype, f32 first. */
extern MR_PRIVATE const struct mr_kernel *const mr_optim_norm_kernel[2];
extern MR_PRIVATE const struct mr_kernel *const mr_optim_add_kernel[2];
extern MR_PRIVATE const struct mr_kernel *const mr_optim_set_kernel;

#endif
