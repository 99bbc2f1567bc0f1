/*
 * Steps of optimizers on the host. Blocks of parameters that stay in the first-level cache go
 * through one pass after another, each a loop that vectorises.
 */
#include "base/base.h"
#include "kernels/optim/optim.h"

#include <string.h>

#define BLOCK 1024 /* elements */
#define SUMS  16   /* kept apart, so that the loop vectorises and the order is fixed */

#define C_OF(REAL)                                                                                 \
    REAL c[MR_OPTIM_SCALARS];                                                                      \
    for (int k = 0; k < MR_OPTIM_SCALARS; k++)                                                     \
    c[k] = (REAL)scalars[k]
#define PASS_0(f, REAL)                                                                            \
    (void)state;                                                                                   \
    for (size_t i = 0; i < n; i++)                                                                 \
    f(c, g[i], &p[i], NULL, NULL, NULL)
#define PASS_1(f, REAL)                                                                            \
    REAL *restrict x = state[0];                                                                   \
    for (size_t i = 0; i < n; i++)                                                                 \
    f(c, g[i], &p[i], &x[i], NULL, NULL)
#define PASS_2(f, REAL)                                                                            \
    REAL *restrict x = state[0], *restrict y = state[1];                                           \
    for (size_t i = 0; i < n; i++)                                                                 \
    f(c, g[i], &p[i], &x[i], &y[i], NULL)
#define PASS_3(f, REAL)                                                                            \
    REAL *restrict x = state[0], *restrict y = state[1], *restrict z = state[2];                   \
    for (size_t i = 0; i < n; i++)                                                                 \
    f(c, g[i], &p[i], &x[i], &y[i], &z[i])

#define UPDATE(name, n_state)                                                                      \
    MR_CLONES static void pass_##name##_f32(const double *scalars, size_t n,                       \
                                            const float *restrict g, float *restrict p,            \
                                            float *const *state)                                   \
    {                                                                                              \
        C_OF(float);                                                                               \
        PASS_##n_state(mr_optim_##name##_f32, float);                                              \
    }                                                                                              \
    MR_CLONES static void pass_##name##_f64(const double *scalars, size_t n,                       \
                                            const double *restrict g, double *restrict p,          \
                                            double *const *state)                                  \
    {                                                                                              \
        C_OF(double);                                                                              \
        PASS_##n_state(mr_optim_##name##_f64, double);                                             \
    }
#include "kernels/optim/list.h"

static const struct {
    void (*scalars)(const struct mr_optim_hyper *h, const struct mr_optim_record *record, double t,
                    struct mr_optim_scalars *s, double *c);
    void (*pass_f32)(const double *scalars, size_t n, const float *restrict g, float *restrict p,
                     float *const *state);
    void (*pass_f64)(const double *scalars, size_t n, const double *restrict g, double *restrict p,
                     double *const *state);
} updates[] = {
#define UPDATE(name, n_state) {mr_optim_##name##_scalars_f64, pass_##name##_f32, pass_##name##_f64},
#include "kernels/optim/list.h"
};

/* Gradients of any dtype that they may have, as the parameters'. */
MR_CLONES static void load_f16(const uint16_t *restrict in, float *restrict out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = mr_f32_of_f16(in[i]);
}
MR_CLONES static void load_bf16(const uint16_t *restrict in, float *restrict out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = mr_f32_of_bf16(in[i]);
}
MR_CLONES static void store_f16(const float *restrict in, uint16_t *restrict out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = mr_f16_of_f32(in[i]);
}
MR_CLONES static void store_bf16(const float *restrict in, uint16_t *restrict out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = mr_bf16_of_f32(in[i]);
}

/* NaN is neither below nor above. */
#define GRADIENTS(REAL, suffix)                                                                    \
    MR_CLONES static void multiply_##suffix(REAL *restrict g, size_t n, REAL by)                   \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            g[i] *= by;                                                                            \
    }                                                                                              \
    MR_CLONES static void cut_##suffix(REAL *restrict g, size_t n, REAL most)                      \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            REAL low = g[i] < -most ? -most : g[i];                                                \
            g[i] = low > most ? most : low;                                                        \
        }                                                                                          \
    }                                                                                              \
    MR_CLONES static void decay_##suffix(REAL *restrict g, size_t n, const REAL *restrict p,       \
                                         REAL by)                                                  \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            g[i] = g[i] + by * p[i];                                                               \
    }                                                                                              \
    MR_CLONES static void add_##suffix(REAL *restrict sum, const REAL *restrict g, size_t n,       \
                                       REAL by)                                                    \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            sum[i] = sum[i] + g[i] * by;                                                           \
    }                                                                                              \
    MR_CLONES static void squares_##suffix(const REAL *restrict g, size_t n,                       \
                                           double *restrict sums)                                  \
    {                                                                                              \
        for (size_t i = 0; i < n; i += SUMS)                                                       \
            for (size_t k = 0; k < SUMS; k++)                                                      \
                sums[k] += (double)g[i + k] * (double)g[i + k];                                    \
    }
GRADIENTS(float, f32)
GRADIENTS(double, f64)

/* The gradients from at on, in `buffer` if they have to be converted. */
static const float *grads_f32(const void *grads, int32_t dtype, uint64_t at, size_t n,
                              float *buffer)
{
    if (dtype == MR_F16)
        load_f16((const uint16_t *)grads + at, buffer, n);
    else if (dtype == MR_BF16)
        load_bf16((const uint16_t *)grads + at, buffer, n);
    else
        return (const float *)grads + at;
    return buffer;
}

#define PREPARED(REAL, suffix)                                                                     \
    static const REAL *prepared_##suffix(const struct mr_optim_scalars *s, const REAL *g, REAL *p, \
                                         size_t n, REAL *buffer)                                   \
    {                                                                                              \
        if (s->keep != 1)                                                                          \
            multiply_##suffix(p, n, (REAL)s->keep);                                                \
        if (s->grad == 1 && s->clip == 0 && s->decay == 0)                                         \
            return g;                                                                              \
        if (g != buffer)                                                                           \
            memcpy(buffer, g, n * sizeof *g);                                                      \
        if (s->grad != 1)                                                                          \
            multiply_##suffix(buffer, n, (REAL)s->grad);                                           \
        if (s->clip != 0)                                                                          \
            cut_##suffix(buffer, n, (REAL)s->clip);                                                \
        if (s->decay != 0)                                                                         \
            decay_##suffix(buffer, n, p, (REAL)s->decay);                                          \
        return buffer;                                                                             \
    }
PREPARED(float, f32)
PREPARED(double, f64)

static void apply_f32(const struct mr_optim_args *a, const struct mr_optim_scalars *s, uint64_t at,
                      size_t n)
{
    float buffer[BLOCK], *p = (float *)a->params + at, *state[MR_OPTIM_STATES] = {0};
    for (int k = 0; k < mr_optim_n_states((enum mr_optim_update)a->update); k++)
        state[k] = (float *)a->state[k] + at;
    const float *g =
        prepared_f32(s, grads_f32(a->grads, a->grad_dtype, at, n, buffer), p, n, buffer);
    updates[a->update].pass_f32(s->c, n, g, p, state);
    if (a->copy && a->copy_dtype == MR_F16)
        store_f16(p, (uint16_t *)a->copy + at, n);
    else if (a->copy)
        store_bf16(p, (uint16_t *)a->copy + at, n);
}

static void apply_f64(const struct mr_optim_args *a, const struct mr_optim_scalars *s, uint64_t at,
                      size_t n)
{
    double buffer[BLOCK], *p = (double *)a->params + at, *state[MR_OPTIM_STATES] = {0};
    for (int k = 0; k < mr_optim_n_states((enum mr_optim_update)a->update); k++)
        state[k] = (double *)a->state[k] + at;
    const double *g = prepared_f64(s, (const double *)a->grads + at, p, n, buffer);
    updates[a->update].pass_f64(s->c, n, g, p, state);
}

void mr_optim_apply(const struct mr_optim_args *args, const struct mr_optim_scalars *s, int f64,
                    uint64_t begin, uint64_t end)
{
    for (uint64_t at = begin; at < end; at += BLOCK) {
        size_t n = (size_t)MR_MIN(end - at, (uint64_t)BLOCK);
        if (f64)
            apply_f64(args, s, at, n);
        else
            apply_f32(args, s, at, n);
    }
}

double mr_optim_sum(const double *v, uint64_t n)
{
    if (n <= 8) {
        double sum = 0;
        for (uint64_t i = 0; i < n; i++)
            sum += v[i];
        return sum;
    }
    return mr_optim_sum(v, n / 2) + mr_optim_sum(v + n / 2, n - n / 2);
}

int mr_optim_prepare(const struct mr_optim_args *args, double squares, struct mr_optim_scalars *out)
{
    if (mr_optim_is_skipped(args))
        return 0;
    mr_optim_begin_scalars(args, squares, out);
    updates[args->update].scalars(&args->hyper, args->record, out->step, out, out->c);
    return 1;
}

void mr_optim_finish(const struct mr_optim_args *args, const struct mr_optim_scalars *s)
{
    args->record->step = s->step;
    args->record->mu_product = s->mu_product;
    args->record->grad_norm = s->grad_norm;
}

/* What is left of less than SUMS is padded with zeros. */
static void squares_of(const struct mr_optim_norm_args *a, uint64_t at, size_t n, double *sums)
{
    float buffer[BLOCK + SUMS] = {0};
    double wide[SUMS] = {0};
    size_t whole = n / SUMS * SUMS;
    if (a->grad_dtype == MR_F64) {
        const double *g = (const double *)a->grads + at;
        squares_f64(g, whole, sums);
        memcpy(wide, g + whole, (n - whole) * sizeof *g);
        squares_f64(wide, SUMS, sums);
        return;
    }
    const float *g = grads_f32(a->grads, a->grad_dtype, at, n, buffer);
    float rest[SUMS] = {0};
    squares_f32(g, whole, sums);
    memcpy(rest, g + whole, (n - whole) * sizeof *g);
    squares_f32(rest, SUMS, sums);
}

double mr_optim_norm_part(const struct mr_optim_norm_args *args, uint32_t part)
{
    double sums[SUMS] = {0};
    uint64_t at = args->begin + part * args->part, end = MR_MIN(args->end, at + args->part);
    for (; at < end; at += BLOCK)
        squares_of(args, at, (size_t)MR_MIN(end - at, (uint64_t)BLOCK), sums);
    return mr_optim_sum(sums, SUMS);
}

static void add_part(const struct mr_optim_add_args *a, int f64, uint64_t at, size_t n)
{
    float buffer[BLOCK];
    double factor = mr_optim_add_factor(a);
    if (f64) {
        double *sum = (double *)a->sum + at;
        if (a->first)
            memset(sum, 0, n * sizeof *sum);
        add_f64(sum, (const double *)a->grads + at, n, factor);
    } else {
        float *sum = (float *)a->sum + at;
        if (a->first)
            memset(sum, 0, n * sizeof *sum);
        add_f32(sum, grads_f32(a->grads, a->grad_dtype, at, n, buffer), n, (float)factor);
    }
}

void mr_optim_add_range(const struct mr_optim_add_args *args, int f64, uint64_t begin, uint64_t end)
{
    for (uint64_t at = begin; at < end; at += BLOCK)
        add_part(args, f64, at, (size_t)MR_MIN(end - at, (uint64_t)BLOCK));
}
