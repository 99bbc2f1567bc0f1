/* The kernels as plain C: what "cpu", "sim" and the tests' driver run, which links
 * this file and kernels_optim.c alone. */
#include "device/kernels.h"
#include "device/kernels_optim.h"

#include <stdbool.h>

#define BLOCK 256 /* elements that are worked on together, so that loops vectorise */

#define LOAD(type)                                                                                                     \
    do {                                                                                                               \
        const type *p = (const type *)a->in + row * a->elements;                                                       \
        if (linear)                                                                                                    \
            for (uint32_t i = 0; i < n; i++)                                                                           \
                x[i] = (float)p[at + i];                                                                               \
        else                                                                                                           \
            for (uint32_t i = 0; i < n; i++)                                                                           \
                x[i] = (float)p[mr_point_source(a, at + i, flipped)];                                                  \
    } while (0)

static void load(const struct mr_point_args *a, uint64_t row, uint32_t at, uint32_t n, float *restrict x)
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

static void store(const struct mr_point_args *a, uint64_t first, uint32_t n, const float *restrict x)
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

static void run_point(const void *args)
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

static const char *check_point(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_point_args *a = args;
    int small = a->from == MR_BOOL || a->from == MR_U8 || a->from == MR_I8 || a->from == MR_U16 || a->from == MR_I16;
    if (!small || (a->to != MR_F32 && a->to != MR_F16 && a->to != MR_BF16))
        return "from and to: want a small integer's dtype and f32, f16 or bf16";
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
    if (a->channels < 1 || (uint64_t)a->channels * a->n_pairs > MR_POINT_PAIRS || a->channel_inner < 1)
        return "channels, channel_inner or n_pairs";
    out[0] = (struct mr_kernel_range){a->in, a->rows * elements * (a->from == MR_U16 || a->from == MR_I16 ? 2 : 1)};
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

static void mix(const struct mr_point_mix_args *m, uint32_t at, uint32_t n, float *restrict x, float *restrict other)
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

static void run_point_mix(const void *args)
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

static const char *check_point_mix(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_point_mix_args *m = args;
    const struct mr_mix_how *h = &m->mix;
    const char *wrong = check_point(&m->point, out);
    if (wrong)
        return wrong;
    bool box = h->pixel >= 1 && h->width >= 1 && h->height >= 1 && h->x1 <= h->width && h->y1 <= h->height;
    if (!h->partner || (h->cuts && !box))
        return "partner or the rectangle";
    out[3] = (struct mr_kernel_range){h->partner, m->point.rows * sizeof *h->partner};
    return NULL;
}

static uint64_t label_at(const struct mr_one_hot_args *a, uint64_t row)
{
    uint64_t label = 0; /* little-endian */
    memcpy(&label, (const char *)a->in + row * a->label_bytes, a->label_bytes);
    return label;
}

static void run_one_hot(const void *args)
{
    const struct mr_one_hot_args *a = args;
    uint64_t row_bytes = (uint64_t)a->classes * a->element_bytes;
    memset(a->out, 0, a->rows * row_bytes);
    for (uint64_t row = 0; row < a->rows; row++) {
        uint64_t label = label_at(a, row);
        if (label < a->classes)
            memcpy((char *)a->out + row * row_bytes + label * a->element_bytes, a->value, a->element_bytes);
    }
}

static int is_size(uint32_t bytes)
{
    return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}

static const char *check_one_hot(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_one_hot_args *a = args;
    if (!is_size(a->label_bytes) || !is_size(a->element_bytes) || a->classes < 1)
        return "label_bytes, element_bytes or classes";
    out[0] = (struct mr_kernel_range){a->in, a->rows * a->label_bytes};
    out[1] = (struct mr_kernel_range){a->out, a->rows * a->classes * a->element_bytes};
    out[2] = (struct mr_kernel_range){NULL, 0};
    return NULL;
}

static void run_one_hot_mix(const void *args)
{
    const struct mr_one_hot_mix_args *m = args;
    const struct mr_one_hot_args *a = &m->hot;
    for (uint64_t row = 0; row < a->rows; row++) {
        uint64_t own = label_at(a, row), other = label_at(a, mr_mix_partner(m->partner, row, a->rows));
        char *out = (char *)a->out + row * a->classes * a->element_bytes;
        for (uint32_t c = 0; c < a->classes; c++)
            memcpy(out + (uint64_t)c * a->element_bytes, m->value[(c == own) + 2 * (c == other)], a->element_bytes);
    }
}

static const char *check_one_hot_mix(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_one_hot_mix_args *m = args;
    const char *wrong = check_one_hot(&m->hot, out);
    if (wrong || !m->partner)
        return wrong ? wrong : "partner";
    out[3] = (struct mr_kernel_range){m->partner, m->hot.rows * sizeof *m->partner};
    return NULL;
}

static void run_gather(const void *args)
{
    const struct mr_gather_args *a = args;
    for (uint64_t row = 0; row < a->rows; row++)
        if (a->index[row] < a->in_rows)
            memcpy((char *)a->out + row * a->row_bytes, (const char *)a->in + a->index[row] * a->row_bytes,
                   a->row_bytes);
}

static const char *check_gather(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_gather_args *a = args;
    if (!a->index || a->row_bytes < 1)
        return "index or row_bytes";
    out[0] = (struct mr_kernel_range){a->in, a->in_rows * a->row_bytes};
    out[1] = (struct mr_kernel_range){a->out, a->rows * a->row_bytes};
    out[2] = (struct mr_kernel_range){a->index, a->rows * sizeof *a->index};
    return NULL;
}

#define COLUMNS 64 /* whose weights are kept together */

static void resample_columns(const struct mr_resample_args *a, const struct mr_resample_row *r, uint8_t *out,
                             uint32_t x0, uint32_t n)
{
    int32_t across[COLUMNS][MR_RESAMPLE_TAPS], n_across[COLUMNS], x_first[COLUMNS];
    for (uint32_t x = 0; x < n; x++)
        n_across[x] = mr_resample_taps(&r->across, (int32_t)(x0 + x), across[x], 1, &x_first[x]);
    for (uint32_t y = 0; y < a->out_h; y++) {
        int32_t down[MR_RESAMPLE_TAPS], y_first, n_down = mr_resample_taps(&r->down, (int32_t)y, down, 1, &y_first);
        const uint8_t *line = (const uint8_t *)a->in + r->at + y_first * r->step_y;
        for (uint32_t x = 0; x < n; x++)
            mr_resample_pixel(r, line + x_first[x] * r->step_x, across[x], n_across[x], 1, down, n_down, 1,
                              out + ((uint64_t)y * a->out_w + x0 + x) * 3);
    }
}

static void run_resample(const void *args)
{
    const struct mr_resample_args *a = args;
    for (uint64_t row = 0; row < a->n; row++)
        for (uint32_t x = 0; x < a->out_w; x += COLUMNS)
            resample_columns(a, &a->rows[row], (uint8_t *)a->out + row * a->out_w * a->out_h * 3, x,
                             a->out_w - x < COLUMNS ? a->out_w - x : COLUMNS);
}

static const char *check_resample(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_resample_args *a = args;
    if (a->out_w < 1 || a->out_h < 1 || a->out_w > 65536 || a->out_h > 65536)
        return "out_w or out_h";
    out[0] = (struct mr_kernel_range){a->rows, a->n * sizeof *a->rows};
    out[1] = (struct mr_kernel_range){a->out, a->n * a->out_w * a->out_h * 3};
    out[2] = (struct mr_kernel_range){a->in, a->in_bytes};
    return NULL;
}

static const struct mr_kernel kernels[] = {
    {"pointwise", sizeof(struct mr_point_args), check_point, run_point, MR_IMAGE_BATCH, NULL},
    {"one_hot", sizeof(struct mr_one_hot_args), check_one_hot, run_one_hot, MR_IMAGE_BATCH, NULL},
    {"gather", sizeof(struct mr_gather_args), check_gather, run_gather, MR_IMAGE_BATCH, NULL},
    {"resample", sizeof(struct mr_resample_args), check_resample, run_resample, MR_IMAGE_BATCH, NULL},
    {"pointwise_mix", sizeof(struct mr_point_mix_args), check_point_mix, run_point_mix, MR_IMAGE_BATCH, NULL},
    {"one_hot_mix", sizeof(struct mr_one_hot_mix_args), check_one_hot_mix, run_one_hot_mix, MR_IMAGE_BATCH, NULL},
};

const struct mr_kernel *mr_kernel_at(size_t i)
{
    size_t n = sizeof kernels / sizeof kernels[0];
    if (i < n)
        return &kernels[i];
    return i - n < mr_optim_n_kernels ? &mr_optim_kernel_table[i - n] : NULL;
}

const struct mr_kernel *mr_kernel_find(const char *name)
{
    const struct mr_kernel *k;
    for (size_t i = 0; (k = mr_kernel_at(i)); i++)
        if (strcmp(k->name, name) == 0)
            return k;
    return NULL;
}
