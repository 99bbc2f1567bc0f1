/* Optimizer steps as plain C: what hosts, "cpu", "sim" and the tests' driver run. Blocks that stay in the first cache go through
 * one pass after another, each a loop that vectorises. */
#include "device/kernels_optim.h"
#include "base/base.h"

#define BLOCK 1024 /* elements */
#define LANES 16   /* sums kept apart, so that the loop vectorises and the order is fixed */

#define C_OF(REAL)                                                                                                     \
    REAL c[MR_OPTIM_SCALARS];                                                                                          \
    for (int k = 0; k < MR_OPTIM_SCALARS; k++)                                                                         \
    c[k] = (REAL)scalars[k]
#define PASS_0(f, REAL)                                                                                                \
    (void)state;                                                                                                       \
    for (size_t i = 0; i < n; i++)                                                                                     \
    f(c, g[i], &p[i], NULL, NULL, NULL)
#define PASS_1(f, REAL)                                                                                                \
    REAL *restrict x = state[0];                                                                                       \
    for (size_t i = 0; i < n; i++)                                                                                     \
    f(c, g[i], &p[i], &x[i], NULL, NULL)
#define PASS_2(f, REAL)                                                                                                \
    REAL *restrict x = state[0], *restrict y = state[1];                                                               \
    for (size_t i = 0; i < n; i++)                                                                                     \
    f(c, g[i], &p[i], &x[i], &y[i], NULL)
#define PASS_3(f, REAL)                                                                                                \
    REAL *restrict x = state[0], *restrict y = state[1], *restrict z = state[2];                                       \
    for (size_t i = 0; i < n; i++)                                                                                     \
    f(c, g[i], &p[i], &x[i], &y[i], &z[i])

#define X(name, n_state)                                                                                               \
    MR_CLONES static void pass_##name##_f32(const double *scalars, size_t n, const float *restrict g,                  \
                                            float *restrict p, float *const *state)                                    \
    {                                                                                                                  \
        C_OF(float);                                                                                                   \
        PASS_##n_state(mr_optim_##name##_f32, float);                                                                  \
    }                                                                                                                  \
    MR_CLONES static void pass_##name##_f64(const double *scalars, size_t n, const double *restrict g,                 \
                                            double *restrict p, double *const *state)                                  \
    {                                                                                                                  \
        C_OF(double);                                                                                                  \
        PASS_##n_state(mr_optim_##name##_f64, double);                                                                 \
    }
MR_OPTIM_KERNELS(X)
#undef X

typedef void pass_f32(const double *scalars, size_t n, const float *restrict g, float *restrict p, float *const *state);
typedef void pass_f64(const double *scalars, size_t n, const double *restrict g, double *restrict p,
                      double *const *state);

static pass_f32 *const passes_f32[] = {
#define X(name, n_state) pass_##name##_f32,
    MR_OPTIM_KERNELS(X)
#undef X
};
static pass_f64 *const passes_f64[] = {
#define X(name, n_state) pass_##name##_f64,
    MR_OPTIM_KERNELS(X)
#undef X
};
static const uint8_t n_states[] = {
#define X(name, n_state) n_state,
    MR_OPTIM_KERNELS(X)
#undef X
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
#define GRADIENTS(REAL, suffix)                                                                                        \
    MR_CLONES static void multiply_##suffix(REAL *restrict g, size_t n, REAL by)                                       \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                                 \
            g[i] *= by;                                                                                                \
    }                                                                                                                  \
    MR_CLONES static void cut_##suffix(REAL *restrict g, size_t n, REAL most)                                          \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++) {                                                                               \
            REAL low = g[i] < -most ? -most : g[i];                                                                    \
            g[i] = low > most ? most : low;                                                                            \
        }                                                                                                              \
    }                                                                                                                  \
    MR_CLONES static void decay_##suffix(REAL *restrict g, size_t n, const REAL *restrict p, REAL by)                  \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                                 \
            g[i] = g[i] + by * p[i];                                                                                   \
    }                                                                                                                  \
    MR_CLONES static void add_##suffix(REAL *restrict sum, const REAL *restrict g, size_t n, REAL by)                  \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                                 \
            sum[i] = sum[i] + g[i] * by;                                                                               \
    }                                                                                                                  \
    MR_CLONES static void squares_##suffix(const REAL *restrict g, size_t n, double *restrict lane)                    \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i += LANES)                                                                          \
            for (size_t k = 0; k < LANES; k++)                                                                         \
                lane[k] += (double)g[i + k] * (double)g[i + k];                                                        \
    }
GRADIENTS(float, f32)
GRADIENTS(double, f64)

/* The gradients from at on, in `room` if they have to be converted. */
static const float *grads_f32(const void *grads, int32_t dtype, uint64_t at, size_t n, float *room)
{
    if (dtype == MR_F16)
        load_f16((const uint16_t *)grads + at, room, n);
    else if (dtype == MR_BF16)
        load_bf16((const uint16_t *)grads + at, room, n);
    else
        return (const float *)grads + at;
    return room;
}

#define PREPARED(REAL, suffix)                                                                                         \
    static const REAL *prepared_##suffix(const struct mr_optim_scalars *s, const REAL *g, REAL *p, size_t n,           \
                                         REAL *room)                                                                   \
    {                                                                                                                  \
        if (s->keep != 1)                                                                                              \
            multiply_##suffix(p, n, (REAL)s->keep);                                                                    \
        if (s->grad == 1 && s->clip == 0 && s->decay == 0)                                                             \
            return g;                                                                                                  \
        if (g != room)                                                                                                 \
            memcpy(room, g, n * sizeof *g);                                                                            \
        if (s->grad != 1)                                                                                              \
            multiply_##suffix(room, n, (REAL)s->grad);                                                                 \
        if (s->clip != 0)                                                                                              \
            cut_##suffix(room, n, (REAL)s->clip);                                                                      \
        if (s->decay != 0)                                                                                             \
            decay_##suffix(room, n, p, (REAL)s->decay);                                                                \
        return room;                                                                                                   \
    }
PREPARED(float, f32)
PREPARED(double, f64)

static void apply_f32(const struct mr_optim_args *a, const struct mr_optim_scalars *s, uint64_t at, size_t n)
{
    float room[BLOCK], *p = (float *)a->params + at, *state[MR_OPTIM_STATES] = {0};
    for (int k = 0; k < n_states[a->kernel]; k++)
        state[k] = (float *)a->state[k] + at;
    const float *g = prepared_f32(s, grads_f32(a->grads, a->grad_dtype, at, n, room), p, n, room);
    passes_f32[a->kernel](s->c, n, g, p, state);
    if (a->copy && a->copy_dtype == MR_F16)
        store_f16(p, (uint16_t *)a->copy + at, n);
    else if (a->copy)
        store_bf16(p, (uint16_t *)a->copy + at, n);
}

static void apply_f64(const struct mr_optim_args *a, const struct mr_optim_scalars *s, uint64_t at, size_t n)
{
    double room[BLOCK], *p = (double *)a->params + at, *state[MR_OPTIM_STATES] = {0};
    for (int k = 0; k < n_states[a->kernel]; k++)
        state[k] = (double *)a->state[k] + at;
    const double *g = prepared_f64(s, (const double *)a->grads + at, p, n, room);
    passes_f64[a->kernel](s->c, n, g, p, state);
}

void mr_optim_apply(const struct mr_optim_args *args, const struct mr_optim_scalars *s, int f64, uint64_t begin,
                    uint64_t end)
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
    mr_optim_make_scalars(args, squares, out);
    return 1;
}

void mr_optim_finish(const struct mr_optim_args *args, const struct mr_optim_scalars *s)
{
    args->record->step = s->step;
    args->record->mu_product = s->mu_product;
    args->record->grad_norm = s->grad_norm;
}

static void run_step(const struct mr_optim_args *a, int f64)
{
    struct mr_optim_scalars s;
    if (mr_optim_prepare(a, mr_optim_sum(a->norms, a->n_norms), &s)) {
        mr_optim_apply(a, &s, f64, a->begin, a->end);
        mr_optim_finish(a, &s);
    }
    a->record->pending = 0;
}
static void run_step_f32(const void *args)
{
    run_step(args, 0);
}
static void run_step_f64(const void *args)
{
    run_step(args, 1);
}

/* What is left of less than LANES is padded with zeros. */
static void squares_of(const struct mr_optim_norm_args *a, uint64_t at, size_t n, double *lane)
{
    float room[BLOCK + LANES] = {0};
    double wide[LANES] = {0};
    size_t whole = n / LANES * LANES;
    if (a->grad_dtype == MR_F64) {
        const double *g = (const double *)a->grads + at;
        squares_f64(g, whole, lane);
        memcpy(wide, g + whole, (n - whole) * sizeof *g);
        squares_f64(wide, LANES, lane);
        return;
    }
    const float *g = grads_f32(a->grads, a->grad_dtype, at, n, room);
    float rest[LANES] = {0};
    squares_f32(g, whole, lane);
    memcpy(rest, g + whole, (n - whole) * sizeof *g);
    squares_f32(rest, LANES, lane);
}

double mr_optim_norm_part(const struct mr_optim_norm_args *args, uint32_t part)
{
    double lane[LANES] = {0};
    uint64_t at = args->begin + part * args->part, end = MR_MIN(args->end, at + args->part);
    for (; at < end; at += BLOCK)
        squares_of(args, at, (size_t)MR_MIN(end - at, (uint64_t)BLOCK), lane);
    return mr_optim_sum(lane, LANES);
}

static void run_norm(const void *args)
{
    const struct mr_optim_norm_args *a = args;
    for (uint32_t i = 0; i < a->n_out; i++)
        a->out[i] = mr_optim_norm_part(a, i);
}

static void add_part(const struct mr_optim_add_args *a, int f64, uint64_t at, size_t n)
{
    float room[BLOCK];
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
        add_f32(sum, grads_f32(a->grads, a->grad_dtype, at, n, room), n, (float)factor);
    }
}

void mr_optim_add_range(const struct mr_optim_add_args *args, int f64, uint64_t begin, uint64_t end)
{
    for (uint64_t at = begin; at < end; at += BLOCK)
        add_part(args, f64, at, (size_t)MR_MIN(end - at, (uint64_t)BLOCK));
}

static void run_add(const struct mr_optim_add_args *a, int f64)
{
    mr_optim_add_range(a, f64, 0, a->n);
    for (uint32_t i = 0; i < a->n_records; i++)
        a->records[i].pending = mr_optim_pending(a, a->records[i].pending);
}
static void run_add_f32(const void *args)
{
    run_add(args, 0);
}
static void run_add_f64(const void *args)
{
    run_add(args, 1);
}

static void run_set(const void *args)
{
    const struct mr_optim_set_args *a = args;
    for (uint32_t i = 0; i < a->n; i++)
        a->records[i].lr = a->lr[i];
}

static uint64_t bytes_of(int32_t dtype)
{
    return dtype == MR_F64 ? 8 : dtype == MR_F32 ? 4 : 2;
}

static bool grads_fit(int32_t dtype, int f64)
{
    return f64 ? dtype == MR_F64 : dtype == MR_F32 || dtype == MR_F16 || dtype == MR_BF16;
}

static const char *check_step(const struct mr_optim_args *a, int f64, struct mr_kernel_range *out)
{
    uint64_t size = f64 ? 8 : 4, n = a->end - a->begin;
    if (a->end < a->begin || a->end > INT64_MAX / 8)
        return "begin and end";
    if ((uint32_t)a->kernel >= MR_OPTIM_N_KERNELS || !grads_fit(a->grad_dtype, f64))
        return "kernel or grad_dtype";
    if (a->copy && (f64 || (a->copy_dtype != MR_F16 && a->copy_dtype != MR_BF16)))
        return "copy_dtype";
    uint64_t grad = bytes_of(a->grad_dtype);
    *out++ = (struct mr_kernel_range){(const char *)a->params + a->begin * size, n * size};
    *out++ = (struct mr_kernel_range){(const char *)a->grads + a->begin * grad, n * grad};
    for (int k = 0; k < n_states[a->kernel]; k++)
        *out++ = (struct mr_kernel_range){(const char *)a->state[k] + a->begin * size, n * size};
    if (a->copy)
        *out++ = (struct mr_kernel_range){(const char *)a->copy + a->begin * 2, n * 2};
    *out++ = (struct mr_kernel_range){a->record, sizeof *a->record};
    *out++ = (struct mr_kernel_range){a->ticket, sizeof *a->ticket};
    *out++ = (struct mr_kernel_range){a->norms, a->n_norms * sizeof *a->norms};
    *out++ = (struct mr_kernel_range){a->grad_scale, a->grad_scale ? sizeof *a->grad_scale : 0};
    *out = (struct mr_kernel_range){a->skip, a->skip ? sizeof *a->skip : 0};
    return NULL;
}

static const char *check_norm(const struct mr_optim_norm_args *a, int f64, struct mr_kernel_range *out)
{
    uint64_t grad = bytes_of(a->grad_dtype);
    if (a->end < a->begin || a->part < 1 || a->part % 4096 || !grads_fit(a->grad_dtype, f64) ||
        a->n_out != (a->end - a->begin + a->part - 1) / a->part)
        return "begin, end, part, n_out or grad_dtype";
    out[0] = (struct mr_kernel_range){(const char *)a->grads + a->begin * grad, (a->end - a->begin) * grad};
    out[1] = (struct mr_kernel_range){a->out, a->n_out * sizeof *a->out};
    return NULL;
}

static const char *check_add(const struct mr_optim_add_args *a, int f64, struct mr_kernel_range *out)
{
    if (!grads_fit(a->grad_dtype, f64))
        return "grad_dtype";
    out[0] = (struct mr_kernel_range){a->grads, a->n * bytes_of(a->grad_dtype)};
    out[1] = (struct mr_kernel_range){a->sum, a->n * (f64 ? 8 : 4)};
    out[2] = (struct mr_kernel_range){a->records, a->n_records * sizeof *a->records};
    out[3] = (struct mr_kernel_range){a->grad_scale, a->grad_scale ? sizeof *a->grad_scale : 0};
    out[4] = (struct mr_kernel_range){a->skip, a->skip ? sizeof *a->skip : 0};
    return NULL;
}

static const char *check_step_f32(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    return check_step(args, 0, out);
}
static const char *check_step_f64(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    return check_step(args, 1, out);
}
static const char *check_norm_f32(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    return check_norm(args, 0, out);
}
static const char *check_norm_f64(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    return check_norm(args, 1, out);
}
static const char *check_add_f32(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    return check_add(args, 0, out);
}
static const char *check_add_f64(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    return check_add(args, 1, out);
}

static const char *check_set(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_optim_set_args *a = args;
    if (a->n > MR_OPTIM_SET)
        return "n";
    out[0] = (struct mr_kernel_range){a->records, a->n * sizeof *a->records};
    return NULL;
}

#define THREADS    256
#define STEP_GRID  4224 /* some waves of every GPU there is: each block first computes the step's constants */
#define PER_THREAD 4    /* elements a turn */

static unsigned blocks_for(uint64_t elements)
{
    uint64_t blocks = (elements + PER_THREAD * THREADS - 1) / (PER_THREAD * THREADS);
    return (unsigned)MR_MIN(MR_MAX(blocks, 1), STEP_GRID);
}

static void shape_step(const void *args, unsigned grid[2])
{
    const struct mr_optim_args *a = args;
    grid[0] = blocks_for(a->end - a->begin + PER_THREAD); /* the first four may begin in the middle */
    grid[1] = 1;
}

static void shape_norm(const void *args, unsigned grid[2])
{
    grid[0] = ((const struct mr_optim_norm_args *)args)->n_out;
    grid[1] = grid[0] > 0;
}

static void shape_add(const void *args, unsigned grid[2])
{
    grid[0] = blocks_for(((const struct mr_optim_add_args *)args)->n);
    grid[1] = 1;
}

static void shape_set(const void *args, unsigned grid[2])
{
    (void)args;
    grid[0] = grid[1] = 1;
}

const struct mr_kernel mr_optim_kernel_table[] = {
#define X(name, n_state)                                                                                               \
    {"optim_" #name "_f32", sizeof(struct mr_optim_args), check_step_f32, run_step_f32, MR_IMAGE_OPTIM, shape_step},   \
        {"optim_" #name "_f64", sizeof(struct mr_optim_args), check_step_f64, run_step_f64, MR_IMAGE_OPTIM, shape_step},
    MR_OPTIM_KERNELS(X)
#undef X
        {"optim_norm_f32", sizeof(struct mr_optim_norm_args), check_norm_f32, run_norm, MR_IMAGE_OPTIM, shape_norm},
    {"optim_norm_f64", sizeof(struct mr_optim_norm_args), check_norm_f64, run_norm, MR_IMAGE_OPTIM, shape_norm},
    {"optim_add_f32", sizeof(struct mr_optim_add_args), check_add_f32, run_add_f32, MR_IMAGE_OPTIM, shape_add},
    {"optim_add_f64", sizeof(struct mr_optim_add_args), check_add_f64, run_add_f64, MR_IMAGE_OPTIM, shape_add},
    {"optim_set", sizeof(struct mr_optim_set_args), check_set, run_set, MR_IMAGE_OPTIM, shape_set},
};
const size_t mr_optim_n_kernels = MR_COUNT(mr_optim_kernel_table);
