/* "one_hot", "one_hot_mix" and "gather" as plain C. */
#include "kernels/batch/rows.h"

static uint64_t label_at(const struct mr_one_hot_args *a, uint64_t row)
{
    uint64_t label = 0; /* little-endian */
    memcpy(&label, (const char *)a->in + row * a->label_bytes, a->label_bytes);
    return label;
}

void mr_batch_one_hot_run(const void *args)
{
    const struct mr_one_hot_args *a = args;
    uint64_t row_bytes = (uint64_t)a->classes * a->element_bytes;
    memset(a->out, 0, a->rows * row_bytes);
    for (uint64_t row = 0; row < a->rows; row++) {
        uint64_t label = label_at(a, row);
        if (label < a->classes)
            memcpy((char *)a->out + row * row_bytes + label * a->element_bytes, a->value,
                   a->element_bytes);
    }
}

static int is_size(uint32_t bytes)
{
    return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}

const char *mr_batch_one_hot_check(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_one_hot_args *a = args;
    if (!is_size(a->label_bytes) || !is_size(a->element_bytes) || a->classes < 1)
        return "label_bytes, element_bytes or classes";
    out[0] = (struct mr_kernel_range){a->in, a->rows * a->label_bytes};
    out[1] = (struct mr_kernel_range){a->out, a->rows * a->classes * a->element_bytes};
    out[2] = (struct mr_kernel_range){NULL, 0};
    return NULL;
}

void mr_batch_one_hot_mix_run(const void *args)
{
    const struct mr_one_hot_mix_args *m = args;
    const struct mr_one_hot_args *a = &m->hot;
    for (uint64_t row = 0; row < a->rows; row++) {
        uint64_t own = label_at(a, row),
                 other = label_at(a, mr_mix_partner(m->partner, row, a->rows));
        char *out = (char *)a->out + row * a->classes * a->element_bytes;
        for (uint32_t c = 0; c < a->classes; c++)
            memcpy(out + (uint64_t)c * a->element_bytes, m->value[(c == own) + 2 * (c == other)],
                   a->element_bytes);
    }
}

const char *mr_batch_one_hot_mix_check(const void *args,
                                       struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_one_hot_mix_args *m = args;
    const char *wrong = mr_batch_one_hot_check(&m->hot, out);
    if (wrong || !m->partner)
        return wrong ? wrong : "partner";
    out[3] = (struct mr_kernel_range){m->partner, m->hot.rows * sizeof *m->partner};
    return NULL;
}

void mr_batch_gather_run(const void *args)
{
    const struct mr_gather_args *a = args;
    for (uint64_t row = 0; row < a->rows; row++)
        if (a->index[row] < a->in_rows)
            memcpy((char *)a->out + row * a->row_bytes,
                   (const char *)a->in + a->index[row] * a->row_bytes, a->row_bytes);
}

const char *mr_batch_gather_check(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_gather_args *a = args;
    if (!a->index || a->row_bytes < 1)
        return "index or row_bytes";
    out[0] = (struct mr_kernel_range){a->in, a->in_rows * a->row_bytes};
    out[1] = (struct mr_kernel_range){a->out, a->rows * a->row_bytes};
    out[2] = (struct mr_kernel_range){a->index, a->rows * sizeof *a->index};
    return NULL;
}

void mr_batch_one_hot_grid(void *args, unsigned grid[2])
{
    const struct mr_one_hot_args *a = args;
    mr_kernel_grid(a->rows * a->classes, 1, grid);
}

void mr_batch_one_hot_mix_grid(void *args, unsigned grid[2])
{
    mr_batch_one_hot_grid(&((struct mr_one_hot_mix_args *)args)->hot, grid);
}

void mr_batch_gather_grid(void *args, unsigned grid[2])
{
    const struct mr_gather_args *a = args;
    mr_kernel_grid((a->row_bytes + 15) / 16, a->rows, grid);
}
