/* "pointwise" and "pointwise_mix" as plain C. */
#include "kernels/batch/pointwise.h"

#include <stdbool.h>

#define BLOCK 256 /* elements that are worked on together, so that loops vectorise */

#define LOAD(type)                                                                                 \
    do {                                                                                           \
        const type *p = (const type *)a->in + row * a->elements;                                   \
        if (linear)                                                                                \
            for (uint32_t i = 0; i < n; i++)                                                       \
                x[i] = (float)p[at + i];                                                           \
        else                                                                                       \
            for (uint32_t i = 0; i < n; i++)                                                       \
                x[i] = (float)p[mr_point_source(a, at + i, flipped)];                              \
    } while (0)

static void load(const struct mr_point_args *a, uint64_t row, uint32_t at, uint32_t n,
                 float *restrict x)
{
    int linear = mr_point_is_linear(a), flipped = a->flip && a->flip[row];
    switch (a->from) {
    case MR_I8:
        LOAD(int8_t);
        break;
    case MR_U16:
        LOAD(uint16_t);
        break;
    case MR_I16:
        LOAD(int16_t);
        break;
    default:
        LOAD(uint8_t);
        break;
    }
}

static void compute(const struct mr_point_args *a, uint32_t at, uint32_t n, float *restrict x)
{
    if (a->channels > 1)
        for (uint32_t i = 0; i < n; i++)
            x[i] = mr_point_compute(a, at + i, x[i]);
    else
        for (uint32_t k = 0; k < a->n_pairs; k++)
            for (uint32_t i = 0; i < n; i++)
                x[i] = mr_point_pair(x[i], a->pair[k]);
}

static void store(const struct mr_point_args *a, uint64_t first, uint32_t n,
                  const float *restrict x)
{
    uint16_t *half = (uint16_t *)a->out + first;
    if (a->to == MR_F32)
        memcpy((float *)a->out + first, x, n * sizeof *x);
    else if (a->to == MR_F16)
        for (uint32_t i = 0; i < n; i++)
            half[i] = mr_f16_of_f32(x[i]);
    else
        for (uint32_t i = 0; i < n; i++)
            half[i] = mr_bf16_of_f32(x[i]);
}

void mr_batch_point_run(const void *args)
{
    const struct mr_point_args *a = args;
    float x[BLOCK];
    for (uint64_t row = 0; row < a->rows; row++)
        for (uint32_t at = 0; at < a->elements; at += BLOCK) {
            uint32_t n = a->elements - at < BLOCK ? a->elements - at : BLOCK;
            load(a, row, at, n, x);
            compute(a, at, n, x);
            store(a, row * a->elements + at, n, x);
        }
}

const char *mr_batch_point_check(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_point_args *a = args;
    int small = a->from == MR_BOOL || a->from == MR_U8 || a->from == MR_I8 || a->from == MR_U16 ||
                a->from == MR_I16;
    if (!small || (a->to != MR_F32 && a->to != MR_F16 && a->to != MR_BF16))
        return "from and to: expected a small integer's dtype and f32, f16 or bf16";
    if (a->n_dims < 1 || a->n_dims > MR_POINT_DIMS)
        return "n_dims";
    uint64_t elements = 1, last = 0;
    for (uint32_t k = 0; k < a->n_dims; k++) {
        elements *= a->dim[k];
        if (elements == 0 || elements > INT32_MAX)
            return "dim";
        last += (uint64_t)(a->dim[k] - 1) * a->stride[k];
    }
    if (elements != a->elements || last >= elements)
        return "elements, dim and stride do not belong together";
    if (a->channels < 1 || (uint64_t)a->channels * a->n_pairs > MR_POINT_PAIRS ||
        a->channel_inner < 1)
        return "channels, channel_inner or n_pairs";
    out[0] = (struct mr_kernel_range){a->in, a->rows * elements *
                                                 (a->from == MR_U16 || a->from == MR_I16 ? 2 : 1)};
    out[1] = (struct mr_kernel_range){a->out, a->rows * elements * (a->to == MR_F32 ? 4 : 2)};
    out[2] = (struct mr_kernel_range){a->flip, a->flip ? a->rows : 0};
    return NULL;
}

/* As they would be read back from the output. */
static void round_to(int to, uint32_t n, float *restrict x)
{
    if (to == MR_F16)
        for (uint32_t i = 0; i < n; i++)
            x[i] = mr_f32_of_f16(mr_f16_of_f32(x[i]));
    else if (to == MR_BF16)
        for (uint32_t i = 0; i < n; i++)
            x[i] = mr_f32_of_bf16(mr_bf16_of_f32(x[i]));
}

static void mix(const struct mr_point_mix_args *m, uint32_t at, uint32_t n, float *restrict x,
                float *restrict other)
{
    if (m->mix.cuts) {
        for (uint32_t i = 0; i < n; i++)
            x[i] = mr_mix_cut(&m->mix, at + i) ? other[i] : x[i];
        return;
    }
    round_to(m->point.to, n, x);
    round_to(m->point.to, n, other);
    for (uint32_t i = 0; i < n; i++)
        x[i] = mr_mix_two(x[i], other[i], m->mix.part, m->mix.rest);
}

void mr_batch_point_mix_run(const void *args)
{
    const struct mr_point_mix_args *m = args;
    const struct mr_point_args *a = &m->point;
    float x[BLOCK], other[BLOCK];
    for (uint64_t row = 0; row < a->rows; row++) {
        uint64_t partner = mr_mix_partner(m->mix.partner, row, a->rows);
        for (uint32_t at = 0; at < a->elements; at += BLOCK) {
            uint32_t n = a->elements - at < BLOCK ? a->elements - at : BLOCK;
            load(a, row, at, n, x);
            compute(a, at, n, x);
            load(a, partner, at, n, other);
            compute(a, at, n, other);
            mix(m, at, n, x, other);
            store(a, row * a->elements + at, n, x);
        }
    }
}

const char *mr_batch_point_mix_check(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_point_mix_args *m = args;
    const struct mr_mix_how *h = &m->mix;
    const char *wrong = mr_batch_point_check(&m->point, out);
    if (wrong)
        return wrong;
    bool box =
        h->pixel >= 1 && h->width >= 1 && h->height >= 1 && h->x1 <= h->width && h->y1 <= h->height;
    if (!h->partner || (h->cuts && !box))
        return "partner or the rectangle";
    out[3] = (struct mr_kernel_range){h->partner, m->point.rows * sizeof *h->partner};
    return NULL;
}

static uint64_t threads_per_row(const struct mr_point_args *a)
{
    return mr_point_is_linear(a) ? (a->elements + 3) / 4 : a->elements;
}

/* Rows without gaps are one long row. */
void mr_batch_point_grid(void *args, unsigned grid[2])
{
    struct mr_point_args *a = args;
    if (mr_point_is_linear(a) && a->rows * a->elements <= INT32_MAX) {
        a->elements = a->dim[0] = (uint32_t)(a->rows * a->elements);
        a->rows = 1;
    }
    mr_kernel_grid(threads_per_row(a), a->rows, grid);
}

void mr_batch_point_mix_grid(void *args, unsigned grid[2])
{
    const struct mr_point_mix_args *m = args;
    mr_kernel_grid(threads_per_row(&m->point), m->point.rows, grid);
}
