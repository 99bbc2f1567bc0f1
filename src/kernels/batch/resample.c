/* "resample" as plain C. */
#include "kernels/batch/resample.h"

#define COLUMNS 64 /* whose weights are kept together */

static void resample_columns(const struct mr_resample_args *a, const struct mr_resample_row *r,
                             uint8_t *out, uint32_t x0, uint32_t n)
{
    int32_t across[COLUMNS][MR_RESAMPLE_TAPS], n_across[COLUMNS], x_first[COLUMNS];
    for (uint32_t x = 0; x < n; x++)
        n_across[x] = mr_resample_taps(&r->across, (int32_t)(x0 + x), across[x], 1, &x_first[x]);
    for (uint32_t y = 0; y < a->out_h; y++) {
        int32_t down[MR_RESAMPLE_TAPS], y_first,
            n_down = mr_resample_taps(&r->down, (int32_t)y, down, 1, &y_first);
        const uint8_t *line = (const uint8_t *)a->in + r->at + y_first * r->step_y;
        for (uint32_t x = 0; x < n; x++)
            mr_resample_pixel(r, line + x_first[x] * r->step_x, across[x], n_across[x], 1, down,
                              n_down, 1, out + ((uint64_t)y * a->out_w + x0 + x) * 3);
    }
}

void mr_batch_resample_run(const void *args)
{
    const struct mr_resample_args *a = args;
    for (uint64_t row = 0; row < a->n; row++)
        for (uint32_t x = 0; x < a->out_w; x += COLUMNS)
            resample_columns(a, &a->rows[row], (uint8_t *)a->out + row * a->out_w * a->out_h * 3, x,
                             a->out_w - x < COLUMNS ? a->out_w - x : COLUMNS);
}

const char *mr_batch_resample_check(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_resample_args *a = args;
    if (a->out_w < 1 || a->out_h < 1 || a->out_w > 65536 || a->out_h > 65536)
        return "out_w or out_h";
    out[0] = (struct mr_kernel_range){a->rows, a->n * sizeof *a->rows};
    out[1] = (struct mr_kernel_range){a->out, a->n * a->out_w * a->out_h * 3};
    out[2] = (struct mr_kernel_range){a->in, a->in_bytes};
    return NULL;
}

/* Tiles of 32 x 8 pixels. */
void mr_batch_resample_grid(void *args, unsigned grid[2])
{
    const struct mr_resample_args *a = args;
    uint64_t tiles = ((uint64_t)a->out_w + 31) / 32 * ((a->out_h + 7) / 8);
    mr_kernel_grid(tiles * MR_KERNEL_THREADS, a->n, grid);
}
