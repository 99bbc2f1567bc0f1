/*
 * Kernels of optimizer steps, launched by name ("optim_adam_f32"): their arguments, what is computed once a step, and (from
 * optim_element.h) the arithmetic of one element. The C implementation (kernels_optim.c: hosts, "cpu", "sim") and the CUDA one
 * (kernels/optim.cu) compile the same; all but the powers of one step's constants is rounded alike. millrace/optim.h has
 * the formulas.
 */
#ifndef MR_DEVICE_KERNELS_OPTIM_H
#define MR_DEVICE_KERNELS_OPTIM_H

#include "base/private.h"
#include "device/kernels.h"

/* name, arrays of state */
#define MR_OPTIM_KERNELS(X)                                                                                            \
    X(sgd, 0)                                                                                                          \
    X(momentum, 1)                                                                                                     \
    X(nesterov, 1)                                                                                                     \
    X(adagrad, 1)                                                                                                      \
    X(adadelta, 2)                                                                                                     \
    X(rmsprop, 1)                                                                                                      \
    X(rmsprop_momentum, 2)                                                                                             \
    X(rmsprop_centered, 2)                                                                                             \
    X(rmsprop_centered_momentum, 3)                                                                                    \
    X(adam, 2)                                                                                                         \
    X(amsgrad, 3)                                                                                                      \
    X(adamax, 2)                                                                                                       \
    X(nadam, 2)                                                                                                        \
    X(radam, 2)                                                                                                        \
    X(lion, 1)

enum mr_optim_kernel {
#define X(name, n_state) MR_OPTIM_##name,
    MR_OPTIM_KERNELS(X)
#undef X
        MR_OPTIM_N_KERNELS
};

#define MR_OPTIM_STATES  3
#define MR_OPTIM_SCALARS 8

/* A group's numbers, kept where the parameters are. The kernel writes step, mu_product, grad_norm and pending. */
struct mr_optim_record {
    double lr;
    double step;       /* steps done */
    double mu_product; /* NAdam */
    double grad_norm;  /* of the last step that clipped by norm */
    double pending;    /* accumulated calls towards the next step; negative: one of them was to be skipped */
};

struct mr_optim_hyper {
    double weight_decay, beta1, beta2; /* beta2: also Adadelta's rho and RMSprop's alpha */
    double eps, momentum, dampening, lr_decay, momentum_decay;
    double clip_norm, clip_value; /* 0: none */
};

/* "optim_<kernel>_<dtype>": one step of elements begin .. end. Pointers are the arrays' starts. */
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
    int32_t kernel, grad_dtype, copy_dtype; /* enum mr_dtype */
    uint32_t n_norms, decoupled, maximize;
    struct mr_optim_hyper hyper;
};

/* "optim_norm_<dtype>": out[i] becomes the sum of squares of the i-th of n_out equal parts (the last is shorter). */
struct mr_optim_norm_args {
    const void *grads;
    double *out;
    uint64_t begin, end, part; /* part: elements, a multiple of 4,096 */
    uint32_t n_out;
    int32_t grad_dtype;
};

/* "optim_add_<dtype>": sum = (first ? 0 : sum) + grads * factor * *grad_scale. Every record's pending becomes mr_optim_pending(). */
struct mr_optim_add_args {
    const void *grads;
    void *sum;
    struct mr_optim_record *records;
    const float *grad_scale; /* NULL: 1 */
    const uint32_t *skip;    /* not 0 there: the step that this call is of is left out; NULL: never */
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
    double c[MR_OPTIM_SCALARS]; /* see optim_element.h */
    double grad;                /* every gradient is multiplied by it: scale, clipping by norm, sign */
    double clip;                /* then cut to -clip .. clip; 0: not */
    double decay;               /* then decay * parameter is added to it */
    double keep;                /* the parameter is multiplied by it first */
    double step, mu_product, grad_norm;
};

MR_ELEMENT double mr_optim_pending(const struct mr_optim_add_args *a, double before)
{
    return (a->skip && *a->skip) || (!a->first && before < 0) ? -a->pending : a->pending;
}

MR_ELEMENT double mr_optim_add_factor(const struct mr_optim_add_args *a)
{
    return a->grad_scale ? a->factor * (double)*a->grad_scale : a->factor;
}

MR_ELEMENT int mr_optim_is_skipped(const struct mr_optim_args *a)
{
    return (a->skip && *a->skip) || a->record->pending < 0;
}

MR_ELEMENT double mr_optim_nadam_mu(const struct mr_optim_hyper *h, double t)
{
    return h->beta1 * (1 - 0.5 * pow(0.96, t * h->momentum_decay));
}

/* c[6]: 1: with the adaptive term, whose factor is then in c[0]. */
MR_ELEMENT void mr_optim_radam_scalars(const struct mr_optim_hyper *h, double t, double *c)
{
    double power = pow(h->beta2, t), limit = 2 / (1 - h->beta2) - 1, rho = limit - 2 * t * power / (1 - power);
    c[6] = rho > 5;
    if (rho > 5)
        c[0] *= sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)) * sqrt(1 - power);
}

MR_ELEMENT void mr_optim_adam_scalars(const struct mr_optim_args *a, double t, struct mr_optim_scalars *s)
{
    const struct mr_optim_hyper *h = &a->hyper;
    double lr = a->record->lr, rest1 = 1 - pow(h->beta1, t), rest2 = 1 - pow(h->beta2, t), *c = s->c;
    c[0] = -lr / rest1;
    c[1] = 1 - h->beta1;
    c[2] = h->beta2;
    c[3] = 1 - h->beta2;
    c[4] = 1 / sqrt(rest2);
    c[5] = h->eps;
    if (a->kernel == MR_OPTIM_radam)
        mr_optim_radam_scalars(h, t, c);
    if (a->kernel == MR_OPTIM_nadam) {
        double mu = mr_optim_nadam_mu(h, t), next = mr_optim_nadam_mu(h, t + 1);
        s->mu_product = a->record->mu_product * mu;
        c[6] = -lr * (1 - mu) / (1 - s->mu_product);
        c[0] = -lr * next / (1 - s->mu_product * next);
    }
}

MR_ELEMENT void mr_optim_kernel_scalars(const struct mr_optim_args *a, double t, struct mr_optim_scalars *s)
{
    const struct mr_optim_hyper *h = &a->hyper;
    double *c = s->c;
    c[0] = -a->record->lr;
    switch (a->kernel) {
    case MR_OPTIM_sgd:
        break;
    case MR_OPTIM_momentum:
    case MR_OPTIM_nesterov: /* the first gradient is taken whole */
        c[1] = t == 1 ? 0 : h->momentum;
        c[2] = t == 1 ? 1 : 1 - h->dampening;
        c[3] = h->momentum;
        break;
    case MR_OPTIM_adagrad:
        c[0] /= 1 + (t - 1) * h->lr_decay;
        c[1] = h->eps;
        break;
    case MR_OPTIM_lion:
        c[1] = h->beta1;
        c[2] = 1 - h->beta1;
        c[3] = h->beta2;
        c[4] = 1 - h->beta2;
        break;
    case MR_OPTIM_adam:
    case MR_OPTIM_amsgrad:
    case MR_OPTIM_adamax:
    case MR_OPTIM_nadam:
    case MR_OPTIM_radam:
        mr_optim_adam_scalars(a, t, s);
        break;
    default: /* Adadelta and all of RMSprop */
        c[1] = h->beta2;
        c[2] = 1 - h->beta2;
        c[3] = h->eps;
        c[4] = h->momentum;
        break;
    }
}

/* squares: the sum of args->norms. NaN and infinity there go on into the gradients, as PyTorch's clip_grad_norm_ does. */
MR_ELEMENT void mr_optim_make_scalars(const struct mr_optim_args *a, double squares, struct mr_optim_scalars *s)
{
    const struct mr_optim_hyper *h = &a->hyper;
    double scale = a->grad_scale ? (double)*a->grad_scale : 1, t = a->record->step + 1;
    s->step = t;
    s->mu_product = a->record->mu_product;
    s->grad_norm = a->record->grad_norm;
    for (int i = 0; i < MR_OPTIM_SCALARS; i++)
        s->c[i] = 0;
    if (a->n_norms > 0) {
        s->grad_norm = sqrt(squares) * fabs(scale);
        double part = h->clip_norm / (s->grad_norm + 1e-6);
        scale *= part > 1 ? 1 : part;
    }
    s->grad = a->maximize ? -scale : scale;
    s->clip = h->clip_value;
    s->decay = a->decoupled ? 0 : h->weight_decay;
    s->keep = a->decoupled ? 1 - a->record->lr * h->weight_decay : 1;
    mr_optim_kernel_scalars(a, t, s);
}

/* Pairwise: the error grows with the logarithm of n. */
MR_PRIVATE double mr_optim_sum(const double *v, uint64_t n);
/* For the host's threads: what one group's step computes once; squares: the sum of args->norms. false: the step is left out. */
MR_PRIVATE int mr_optim_prepare(const struct mr_optim_args *args, double squares, struct mr_optim_scalars *out);
/* Elements begin .. end, which lie within args'. f64: the parameters' dtype. */
MR_PRIVATE void mr_optim_apply(const struct mr_optim_args *args, const struct mr_optim_scalars *s, int f64,
                               uint64_t begin, uint64_t end);
MR_PRIVATE void mr_optim_finish(const struct mr_optim_args *args, const struct mr_optim_scalars *s);
/* One of the parts of "optim_norm_..."; f64: the dtype of gradients given as the parameters' own. */
MR_PRIVATE double mr_optim_norm_part(const struct mr_optim_norm_args *args, uint32_t part);
/* Elements begin .. end of "optim_add_...", but for the records. */
MR_PRIVATE void mr_optim_add_range(const struct mr_optim_add_args *args, int f64, uint64_t begin, uint64_t end);

extern const struct mr_kernel mr_optim_kernel_table[];
extern const size_t mr_optim_n_kernels;

#define REAL       float
#define NAME(name) mr_optim_##name##_f32
#define ROOT       sqrtf
#define SIZE       fabsf
#include "device/optim_element.h"
#undef REAL
#undef NAME
#undef ROOT
#undef SIZE
#define REAL       double
#define NAME(name) mr_optim_##name##_f64
#define ROOT       sqrt
#define SIZE       fabs
#include "device/optim_element.h"
#undef REAL
#undef NAME
#undef ROOT
#undef SIZE

#endif
