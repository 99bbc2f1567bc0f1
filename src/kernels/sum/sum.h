/*
 * The module "sum": what a training step over several ranks, or parts of a batch, does on a device
 * beside its passes: mr_comm_sum()'s additions, and what goes into a vector of sums and comes out.
 *
 * A kernel is a function of one element, which the host's loop and the GPU's threads call: the bits
 * are the same.
 */
#ifndef MR_KERNELS_SUM_SUM_H
#define MR_KERNELS_SUM_SUM_H

#include "base/private.h"
#include "kernels/half.h"
#include "kernels/kernels.h"
#include <millrace/tensor.h>

/* name, and the struct mr_sum_<name> of its arguments; each has `count`: elements. */
#define MR_SUM_KERNELS(X)                                                                          \
    X(add)                                                                                         \
    X(cast)                                                                                        \
    X(rows)                                                                                        \
    X(begin)                                                                                       \
    X(take)                                                                                        \
    X(give)

enum mr_sum_kernel {
#define X(name) MR_SUM_KERNEL_##name,
    MR_SUM_KERNELS(X)
#undef X
        MR_SUM_KERNEL_N
};

/* to += from. With `round` both are rounded to bf16 before, as they are for the wire. */
struct mr_sum_add {
    void *to;
    const void *from;
    uint64_t count;
    int32_t dtype, from_dtype; /* f32, f64; from also bf16 */
    uint32_t round;
};

/* f32 to bf16, or back. */
struct mr_sum_cast {
    void *to;
    const void *from;
    uint64_t count;
    int32_t to_dtype; /* MR_BF16, MR_F32 */
};

/* Every step-th row, from the first on, packed. Elements are words of `word` bytes: 1 or 4. */
struct mr_sum_rows {
    void *to;
    const void *from;
    uint64_t count, words; /* words: of a row */
    uint32_t first, step, word;
};

/* Behind the gradients and running statistics of a vector: the sums of a step, f32. */
enum mr_sum_total {
    MR_SUM_NOT_FINITE,
    MR_SUM_BAD_LABELS,
    MR_SUM_LOSS,
    MR_SUM_RIGHT,
    MR_SUM_SAMPLES,
    MR_SUM_STOP,
    MR_SUM_TOTALS
};

/* As struct mr_net_totals: of a net, and of steps since the host looked. */
struct mr_sum_totals {
    double loss;
    uint64_t n_right, n_samples, n_bad_labels, n_not_finite, first_not_finite;
};

/* In the device's memory. */
struct mr_sum_run {
    struct mr_sum_totals totals; /* of all ranks */
    uint64_t step;               /* done by the run: the host sets it, "give" counts on */
    float loss_scale;            /* of the leaf that runs */
    uint32_t stop;               /* this rank asks for the run's end */
    uint32_t stops;              /* ranks that did */
    uint32_t unused;
};

/* Before a leaf's pass: the count that dropout reads, and the loss's scale. */
struct mr_sum_begin {
    struct mr_sum_run *run;
    uint64_t *net_step;      /* becomes the run's step * leaves + leaf */
    const float *loss_scale; /* fp16's; NULL: 1 */
    uint64_t count, leaves, leaf;
    float share; /* of the batch */
};

/* After it: elements of its vector from gradients, running statistics and, as the last one, all of
 * the net's totals, which become 0. */
struct mr_sum_take {
    float *to;
    const float *grads, *buffers;
    struct mr_sum_totals *totals;
    const struct mr_sum_run *run;
    uint64_t count, begin, n_params, n_buffers; /* begin: the first element */
    float share;
    uint32_t first; /* of this rank's leaves: it says what the rank asks for */
};

/* After the sum: running statistics to the net, totals to the run's. */
struct mr_sum_give {
    const float *from, *before; /* before: the statistics as the step found them */
    float *buffers;
    struct mr_sum_run *run;
    uint64_t count, n_params, n_buffers;
};

MR_HOST_DEVICE float mr_sum_rounded(float x)
{
    return mr_f32_of_bf16(mr_bf16_of_f32(x));
}

MR_HOST_DEVICE void mr_sum_add_at(const struct mr_sum_add *a, uint64_t i)
{
    if (a->dtype == MR_F64) {
        ((double *)a->to)[i] += ((const double *)a->from)[i];
        return;
    }
    float *to = (float *)a->to;
    float x = to[i], y = a->from_dtype == MR_BF16 ? mr_f32_of_bf16(((const uint16_t *)a->from)[i])
                                                  : ((const float *)a->from)[i];
    to[i] = a->round ? mr_sum_rounded(x) + mr_sum_rounded(y) : x + y;
}

MR_HOST_DEVICE void mr_sum_cast_at(const struct mr_sum_cast *a, uint64_t i)
{
    if (a->to_dtype == MR_BF16)
        ((uint16_t *)a->to)[i] = mr_bf16_of_f32(((const float *)a->from)[i]);
    else
        ((float *)a->to)[i] = mr_f32_of_bf16(((const uint16_t *)a->from)[i]);
}

MR_HOST_DEVICE void mr_sum_rows_at(const struct mr_sum_rows *a, uint64_t i)
{
    uint64_t row = a->first + i / a->words * a->step, from = row * a->words + i % a->words;
    if (a->word == 4)
        ((uint32_t *)a->to)[i] = ((const uint32_t *)a->from)[from];
    else
        ((uint8_t *)a->to)[i] = ((const uint8_t *)a->from)[from];
}

MR_HOST_DEVICE void mr_sum_begin_at(const struct mr_sum_begin *a, uint64_t i)
{
    (void)i;
    *a->net_step = a->run->step * a->leaves + a->leaf;
    a->run->loss_scale = a->loss_scale ? *a->loss_scale * a->share : a->share;
}

MR_HOST_DEVICE void mr_sum_take_at(const struct mr_sum_take *a, uint64_t nth)
{
    const uint64_t i = a->begin + nth;
    if (i < a->n_params) {
        a->to[i] = a->grads[i];
    } else if (i < a->n_params + a->n_buffers) {
        a->to[i] = a->buffers[i - a->n_params] * a->share;
    } else {
        const struct mr_sum_totals none = {0, 0, 0, 0, 0, UINT64_MAX};
        float *to = a->to + i;
        to[MR_SUM_NOT_FINITE] = (float)a->totals->n_not_finite;
        to[MR_SUM_BAD_LABELS] = (float)a->totals->n_bad_labels;
        to[MR_SUM_LOSS] = a->totals->n_not_finite ? 0 : (float)a->totals->loss;
        to[MR_SUM_RIGHT] = (float)a->totals->n_right;
        to[MR_SUM_SAMPLES] = (float)a->totals->n_samples;
        to[MR_SUM_STOP] = a->first && a->run->stop ? 1.0f : 0.0f;
        *a->totals = none;
    }
}

MR_HOST_DEVICE void mr_sum_give_at(const struct mr_sum_give *a, uint64_t i)
{
    const float *sums = a->from + a->n_params + a->n_buffers;
    if (i < a->n_buffers) {
        a->buffers[i] = sums[MR_SUM_NOT_FINITE] > 0 ? a->before[i] : a->from[a->n_params + i];
        return;
    }
    struct mr_sum_totals *t = &a->run->totals;
    if (sums[MR_SUM_NOT_FINITE] > 0 && t->n_not_finite == 0)
        t->first_not_finite = a->run->step;
    t->n_not_finite += (uint64_t)sums[MR_SUM_NOT_FINITE];
    t->n_bad_labels += (uint64_t)sums[MR_SUM_BAD_LABELS];
    t->loss += (double)sums[MR_SUM_LOSS];
    t->n_right += (uint64_t)sums[MR_SUM_RIGHT];
    t->n_samples += (uint64_t)sums[MR_SUM_SAMPLES];
    a->run->stops += sums[MR_SUM_STOP] > 0;
    a->run->step++;
}

extern MR_PRIVATE const struct mr_kernel_module mr_sum_module;
extern MR_PRIVATE const struct mr_kernel *const mr_sum_kernel; /* [enum mr_sum_kernel] */

#endif
