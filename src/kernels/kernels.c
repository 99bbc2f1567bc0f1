/* What all kernels share: finding them by name, and grids. */
#include "kernels/kernels.h"

#include "base/base.h"
#include "kernels/batch/batch.h"

#include <string.h>

#define MAX_GRID 65535

/* The modules whose kernels are found by name. */
static const struct mr_kernel_module *const modules[] = {&mr_batch_module};

const struct mr_kernel *mr_kernel_find(const char *name)
{
    for (size_t m = 0; m < MR_COUNT(modules); m++)
        for (size_t i = 0; i < modules[m]->n_kernels; i++)
            if (strcmp(modules[m]->kernels[i].name, name) == 0)
                return &modules[m]->kernels[i];
    return NULL;
}

void mr_kernel_grid(uint64_t threads_per_row, uint64_t rows, unsigned grid[2])
{
    uint64_t blocks = (threads_per_row + MR_KERNEL_THREADS - 1) / MR_KERNEL_THREADS;
    grid[0] = (unsigned)MR_MIN(MR_MAX(blocks, 1), MAX_GRID);
    grid[1] = (unsigned)MR_MIN(rows, MAX_GRID);
}
