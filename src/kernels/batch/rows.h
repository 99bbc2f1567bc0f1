/* "one_hot", "one_hot_mix" and "gather": rows made of labels, and rows fetched by index. */
#ifndef MR_KERNELS_BATCH_ROWS_H
#define MR_KERNELS_BATCH_ROWS_H

#include "kernels/batch/pointwise.h"

/* "one_hot": a row is one label in 0..classes-1; it becomes `classes` elements, one of them
 * `value`, the others 0. */
struct mr_one_hot_args {
    const void *in;
    void *out;
    uint64_t rows;
    uint32_t classes;
    uint32_t label_bytes, element_bytes; /* 1, 2, 4 or 8 */
    uint32_t value[2];                   /* little-endian */
};

/* "one_hot_mix": element c of a row is value[(c is the row's label) + 2 * (c is its partner's)];
 * hot.value is not used. */
struct mr_one_hot_mix_args {
    struct mr_one_hot_args hot;
    const uint32_t *partner;
    uint32_t value[4][2]; /* little-endian */
};

/* "gather": row r of the output is row index[r] of the input. */
struct mr_gather_args {
    const void *in;
    void *out;
    const uint64_t *index;
    uint64_t rows, in_rows,
        row_bytes; /* an index that is not below in_rows leaves its row as it is */
};

const char *mr_batch_one_hot_check(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES]);
void mr_batch_one_hot_run(const void *args);
void mr_batch_one_hot_grid(void *args, unsigned grid[2]);
const char *mr_batch_one_hot_mix_check(const void *args,
                                       struct mr_kernel_range out[MR_KERNEL_RANGES]);
void mr_batch_one_hot_mix_run(const void *args);
void mr_batch_one_hot_mix_grid(void *args, unsigned grid[2]);
const char *mr_batch_gather_check(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES]);
void mr_batch_gather_run(const void *args);
void mr_batch_gather_grid(void *args, unsigned grid[2]);

#endif
