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
#include <stdbool.h>
#include <time.h>

/* name, and the struct mr_sum_<name> of its arguments; each has `count`: elements. */
#define MR_SUM_KERNELS(X)                                                                          \
    X(add)                                                                                         \
    X(cast)                                                                                        \
    X(rows)                                                                                        \
    X(begin)                                                                                       \
    X(stamp)                                                                                       \
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

/*
 * When the parts of every eighth step began, by the device's clock. A graph's kernels write it, so
 * nothing waits for the host, which reads it when it looks at the totals.
 *
 *     ... | begin: start | passes | take: ready | sum over the ranks | give | update | begin ...
 *
 * A step is timed on all ranks or on none: the host pairs their times by number.
 *
 * To read the clock takes about a microsecond, too long for each step. The host looks after steps
 * that end in 7 (of 8), so the timed ones are in the middle between two looks. A step does not
 * count if the trainer did something else before it (a test, a checkpoint): then given_ns is 0.
 */
#define MR_SUM_EVERY 8
#define MR_SUM_PHASE 4  /* timed: steps i with i % MR_SUM_EVERY == MR_SUM_PHASE */
#define MR_SUM_TIMED 64 /* kept */

struct mr_sum_times {
    uint32_t before_ns; /* from the step before: its update, and no work */
    uint32_t pass_ns;
    uint32_t sum_ns; /* waiting for other ranks included */
};

struct mr_sum_clock {
    uint64_t start_ns, ready_ns;            /* of this step; 0: not yet, or it is not timed */
    uint64_t given_ns;                      /* of an earlier step; 0: none, or not right before */
    uint64_t update_ns;                     /* how long one took */
    uint64_t n;                             /* timed steps */
    struct mr_sum_times last[MR_SUM_TIMED]; /* of the i-th at i % MR_SUM_TIMED */
};

/* In the device's memory. */
struct mr_sum_run {
    struct mr_sum_totals totals; /* of all ranks */
    uint64_t step;               /* done by the run: the host sets it, "give" counts on */
    float loss_scale;            /* of the leaf that runs */
    uint32_t stop;               /* this rank asks for the run's end */
    uint32_t stops;              /* ranks that did */
    uint32_t unused;
    struct mr_sum_clock clock;
};

/* Before a leaf's pass: the count that dropout reads, and the loss's scale. */
struct mr_sum_begin {
    struct mr_sum_run *run;
    uint64_t *net_step;      /* becomes the run's step * leaves + leaf */
    const float *loss_scale; /* fp16's; NULL: 1 */
    uint64_t count, leaves, leaf;
    float share;    /* of the batch */
    uint32_t first; /* of this rank's leaves: the step begins */
};

enum mr_sum_stamp_of { MR_SUM_READY, MR_SUM_UPDATED };

/* A time of the run's clock: there is nothing to take, or the update is done. */
struct mr_sum_stamp {
    struct mr_sum_run *run;
    uint64_t count;
    uint32_t what; /* enum mr_sum_stamp_of */
};

/* After it: elements of its vector from gradients, running statistics and, as the last one, all of
 * the net's totals, which become 0. */
struct mr_sum_take {
    float *to;
    const float *grads, *buffers;
    struct mr_sum_totals *totals;
    const struct mr_sum_run *run;
    struct mr_sum_clock *clock; /* the passes are done: stamped; NULL: they are not */
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

/* Not mr_time_ns(): the CUDA driver of the tests runs kernels without the library. */
MR_HOST_DEVICE uint64_t mr_sum_now_ns(void)
{
#ifdef __CUDA_ARCH__
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

MR_HOST_DEVICE uint32_t mr_sum_between(uint64_t from, uint64_t to)
{
    const uint64_t ns = from && to > from ? to - from : 0;
    return ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

MR_HOST_DEVICE bool mr_sum_is_timed(uint64_t step)
{
    return step % MR_SUM_EVERY == MR_SUM_PHASE;
}

MR_HOST_DEVICE void mr_sum_stamp_at(const struct mr_sum_stamp *a, uint64_t i)
{
    struct mr_sum_clock *c = &a->run->clock;
    (void)i;
    if (a->what == MR_SUM_READY)
        c->ready_ns = mr_sum_is_timed(a->run->step) ? mr_sum_now_ns() : 0;
    else
        c->update_ns = mr_sum_between(c->given_ns, mr_sum_now_ns());
}

/* The step before a timed one, and the one before a look, are given at a known time. A rank whose
 * part of the batch was empty has no pass. */
MR_HOST_DEVICE void mr_sum_end_step(struct mr_sum_clock *c, uint64_t step)
{
    const bool timed = mr_sum_is_timed(step);
    if (!timed && (step + 1) % MR_SUM_PHASE)
        return;
    const uint64_t now = mr_sum_now_ns();
    if (timed) {
        struct mr_sum_times *t = &c->last[c->n++ % MR_SUM_TIMED];
        t->before_ns = mr_sum_between(c->given_ns, c->start_ns ? c->start_ns : c->ready_ns);
        t->pass_ns = mr_sum_between(c->start_ns, c->ready_ns);
        t->sum_ns = mr_sum_between(c->ready_ns, now);
    }
    c->given_ns = now;
    c->start_ns = 0;
    c->ready_ns = 0;
}

MR_HOST_DEVICE void mr_sum_begin_at(const struct mr_sum_begin *a, uint64_t i)
{
    (void)i;
    *a->net_step = a->run->step * a->leaves + a->leaf;
    a->run->loss_scale = a->loss_scale ? *a->loss_scale * a->share : a->share;
    if (a->first && mr_sum_is_timed(a->run->step))
        a->run->clock.start_ns = mr_sum_now_ns();
}

MR_HOST_DEVICE void mr_sum_take_at(const struct mr_sum_take *a, uint64_t nth)
{
    const uint64_t i = a->begin + nth;
    if (nth == 0 && a->clock && mr_sum_is_timed(a->run->step))
        a->clock->ready_ns = mr_sum_now_ns();
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
    mr_sum_end_step(&a->run->clock, a->run->step);
    a->run->step++;
}

extern MR_PRIVATE const struct mr_kernel_module mr_sum_module;
extern MR_PRIVATE const struct mr_kernel *const mr_sum_kernel; /* [enum mr_sum_kernel] */

#endif
