/* The table of the module "sum": checks of arguments, grids, and what runs on the host. */
#include "kernels/sum/sum.h"

#include "base/base.h"

#if MILLRACE_HAVE_CUDA_KERNELS
extern const unsigned char mr_cuda_sum_image[]; /* made of sum.cu by nvcc */
#define IMAGE mr_cuda_sum_image
#else
#define IMAGE NULL
#endif

#define MOST_BLOCKS 4224 /* some waves of any GPU */

#define RANGE(at, n)                                                                               \
    (struct mr_kernel_range)                                                                       \
    {                                                                                              \
        (at), (at) ? (n) : 0                                                                       \
    }

static uint64_t bytes_of(int32_t dtype)
{
    return dtype == MR_F64 ? 8 : dtype == MR_F32 ? 4 : 2;
}

static const char *check_add(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_sum_add *a = args;
    bool fits = a->dtype == MR_F64 ? a->from_dtype == MR_F64 && !a->round
                                   : a->from_dtype == MR_F32 || a->from_dtype == MR_BF16;
    if (!fits || (a->dtype != MR_F32 && a->dtype != MR_F64))
        return "dtype or from_dtype";
    out[0] = RANGE(a->from, a->count * bytes_of(a->from_dtype));
    out[1] = RANGE(a->to, a->count * bytes_of(a->dtype));
    return NULL;
}

static const char *check_cast(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_sum_cast *a = args;
    if (a->to_dtype != MR_F32 && a->to_dtype != MR_BF16)
        return "to_dtype";
    out[0] = RANGE(a->from, a->count * (6 - bytes_of(a->to_dtype)));
    out[1] = RANGE(a->to, a->count * bytes_of(a->to_dtype));
    return NULL;
}

static const char *check_rows(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_sum_rows *a = args;
    if (a->words < 1 || a->count % a->words || (a->word != 1 && a->word != 4))
        return "words, count or word";
    uint64_t rows = a->count / a->words, last = rows ? a->first + (rows - 1) * a->step + 1 : 0;
    out[0] = RANGE(a->from, last * a->words * a->word);
    out[1] = RANGE(a->to, a->count * a->word);
    return NULL;
}

static const char *check_begin(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_sum_begin *a = args;
    out[0] = RANGE(a->run, sizeof *a->run);
    out[1] = RANGE(a->net_step, sizeof *a->net_step);
    out[2] = RANGE(a->loss_scale, sizeof *a->loss_scale);
    return NULL;
}

static const char *check_stamp(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_sum_stamp *a = args;
    out[0] = RANGE(a->run, sizeof *a->run);
    return a->count == 1 && a->what <= MR_SUM_UPDATED ? NULL : "count or what";
}

static const char *check_take(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_sum_take *a = args;
    out[0] = RANGE(a->grads, a->n_params * 4);
    out[1] = RANGE(a->to, (a->n_params + a->n_buffers + MR_SUM_TOTALS) * 4);
    out[2] = RANGE(a->buffers, a->n_buffers * 4);
    out[3] = RANGE(a->totals, sizeof *a->totals);
    out[4] = RANGE(a->run, sizeof *a->run);
    out[5] = RANGE(a->clock, sizeof *a->clock);
    uint64_t all = a->n_params + a->n_buffers + 1;
    return a->begin <= all && a->count <= all - a->begin ? NULL : "begin or count";
}

static const char *check_give(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_sum_give *a = args;
    out[0] = RANGE(a->from, (a->n_params + a->n_buffers + MR_SUM_TOTALS) * 4);
    out[1] = RANGE(a->run, sizeof *a->run);
    out[2] = RANGE(a->before, a->n_buffers * 4);
    out[3] = RANGE(a->buffers, a->n_buffers * 4);
    return a->count == a->n_buffers + 1 ? NULL : "count";
}

static void grid_of(uint64_t count, unsigned grid[2])
{
    uint64_t blocks = (count + MR_KERNEL_THREADS - 1) / MR_KERNEL_THREADS;
    grid[0] = (unsigned)MR_MIN(MR_MAX(blocks, 1), MOST_BLOCKS);
    grid[1] = count > 0;
}

#define X(name)                                                                                    \
    static void run_##name(const void *args)                                                       \
    {                                                                                              \
        const struct mr_sum_##name *a = args;                                                      \
        for (uint64_t i = 0; i < a->count; i++)                                                    \
            mr_sum_##name##_at(a, i);                                                              \
    }                                                                                              \
    static void grid_##name(void *args, unsigned grid[2])                                          \
    {                                                                                              \
        grid_of(((const struct mr_sum_##name *)args)->count, grid);                                \
    }
MR_SUM_KERNELS(X)
#undef X

static const struct mr_kernel kernels[] = {
#define X(name)                                                                                    \
    {"sum_" #name, sizeof(struct mr_sum_##name), &mr_sum_module, check_##name, run_##name,         \
     grid_##name},
    MR_SUM_KERNELS(X)
#undef X
};

const struct mr_kernel *const mr_sum_kernel = kernels;
const struct mr_kernel_module mr_sum_module = {"sum", IMAGE, kernels, MR_COUNT(kernels)};
