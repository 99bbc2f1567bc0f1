/* The table of the module "optim": checks of arguments, grids, and what runs on the host. */
#include "kernels/optim/optim.h"

#include "base/base.h"

#if MILLRACE_HAVE_CUDA_KERNELS
extern const unsigned char mr_cuda_optim_image[]; /* made of optim.cu by nvcc */
#define IMAGE mr_cuda_optim_image
#else
#define IMAGE NULL
#endif

static const uint8_t n_states[] = {
#define UPDATE(name, n_state) n_state,
#include "kernels/optim/list.h"
};

int mr_optim_n_states(enum mr_optim_update update)
{
    return n_states[update];
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
static void run_norm(const struct mr_optim_norm_args *a, int f64)
{
    (void)f64; /* gradients say it */
    for (uint32_t i = 0; i < a->n_out; i++)
        a->out[i] = mr_optim_norm_part(a, i);
}

static void run_add(const struct mr_optim_add_args *a, int f64)
{
    mr_optim_add_range(a, f64, 0, a->n);
    for (uint32_t i = 0; i < a->n_records; i++)
        a->records[i].pending = mr_optim_pending(a, a->records[i].pending);
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
    if ((uint32_t)a->update >= MR_OPTIM_N_UPDATES || !grads_fit(a->grad_dtype, f64))
        return "update or grad_dtype";
    if (a->copy && (f64 || (a->copy_dtype != MR_F16 && a->copy_dtype != MR_BF16)))
        return "copy_dtype";
    uint64_t grad = bytes_of(a->grad_dtype);
    *out++ = (struct mr_kernel_range){(const char *)a->params + a->begin * size, n * size};
    *out++ = (struct mr_kernel_range){(const char *)a->grads + a->begin * grad, n * grad};
    for (int k = 0; k < mr_optim_n_states((enum mr_optim_update)a->update); k++)
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

static const char *check_norm(const struct mr_optim_norm_args *a, int f64,
                              struct mr_kernel_range *out)
{
    uint64_t grad = bytes_of(a->grad_dtype);
    if (a->end < a->begin || a->part < 1 || a->part % 4096 || !grads_fit(a->grad_dtype, f64) ||
        a->n_out != (a->end - a->begin + a->part - 1) / a->part)
        return "begin, end, part, n_out or grad_dtype";
    out[0] = (struct mr_kernel_range){(const char *)a->grads + a->begin * grad,
                                      (a->end - a->begin) * grad};
    out[1] = (struct mr_kernel_range){a->out, a->n_out * sizeof *a->out};
    return NULL;
}

static const char *check_add(const struct mr_optim_add_args *a, int f64,
                             struct mr_kernel_range *out)
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

static const char *check_set(const void *args, struct mr_kernel_range out[MR_KERNEL_RANGES])
{
    const struct mr_optim_set_args *a = args;
    if (a->n > MR_OPTIM_SET)
        return "n";
    out[0] = (struct mr_kernel_range){a->records, a->n * sizeof *a->records};
    return NULL;
}

/* The hooks of a kernel that exists for both dtypes. */
#define BOTH(what)                                                                                 \
    static void run_##what##_f32(const void *args)                                                 \
    {                                                                                              \
        run_##what(args, 0);                                                                       \
    }                                                                                              \
    static void run_##what##_f64(const void *args)                                                 \
    {                                                                                              \
        run_##what(args, 1);                                                                       \
    }                                                                                              \
    static const char *check_##what##_f32(const void *args,                                        \
                                          struct mr_kernel_range out[MR_KERNEL_RANGES])            \
    {                                                                                              \
        return check_##what(args, 0, out);                                                         \
    }                                                                                              \
    static const char *check_##what##_f64(const void *args,                                        \
                                          struct mr_kernel_range out[MR_KERNEL_RANGES])            \
    {                                                                                              \
        return check_##what(args, 1, out);                                                         \
    }
BOTH(step)
BOTH(norm)
BOTH(add)

#define STEP_GRID  4224 /* some waves of any GPU: each block computes the scalars first */
#define PER_THREAD 4    /* elements a turn */

static unsigned blocks_for(uint64_t elements)
{
    uint64_t blocks =
        (elements + PER_THREAD * MR_KERNEL_THREADS - 1) / (PER_THREAD * MR_KERNEL_THREADS);
    return (unsigned)MR_MIN(MR_MAX(blocks, 1), STEP_GRID);
}

static void grid_step(void *args, unsigned grid[2])
{
    const struct mr_optim_args *a = args;
    grid[0] =
        blocks_for(a->end - a->begin + PER_THREAD); /* the first four may begin in the middle */
    grid[1] = 1;
}

static void grid_norm(void *args, unsigned grid[2])
{
    grid[0] = ((const struct mr_optim_norm_args *)args)->n_out;
    grid[1] = grid[0] > 0;
}

static void grid_add(void *args, unsigned grid[2])
{
    grid[0] = blocks_for(((const struct mr_optim_add_args *)args)->n);
    grid[1] = 1;
}

static void grid_set(void *args, unsigned grid[2])
{
    (void)args;
    grid[0] = grid[1] = 1;
}

#define KERNEL(name, what, args, dtype)                                                            \
    {                                                                                              \
        "optim_" #name "_" #dtype, sizeof(struct args), &mr_optim_module, check_##what##_##dtype,  \
            run_##what##_##dtype, grid_##what                                                      \
    }

static const struct mr_kernel kernels[] = {
#define UPDATE(name, n_state)                                                                      \
    KERNEL(name, step, mr_optim_args, f32), KERNEL(name, step, mr_optim_args, f64),
#include "kernels/optim/list.h"
    KERNEL(norm, norm, mr_optim_norm_args, f32),
    KERNEL(norm, norm, mr_optim_norm_args, f64),
    KERNEL(add, add, mr_optim_add_args, f32),
    KERNEL(add, add, mr_optim_add_args, f64),
    {"optim_set", sizeof(struct mr_optim_set_args), &mr_optim_module, check_set, run_set, grid_set},
};

enum { NORM = 2 * MR_OPTIM_N_UPDATES, ADD = NORM + 2, SET = ADD + 2 };
const struct mr_kernel *const mr_optim_norm_kernel[] = {&kernels[NORM], &kernels[NORM + 1]};
const struct mr_kernel *const mr_optim_add_kernel[] = {&kernels[ADD], &kernels[ADD + 1]};
const struct mr_kernel *const mr_optim_set_kernel = &kernels[SET];

const struct mr_kernel *mr_optim_kernel(enum mr_optim_update update, int f64)
{
    return &kernels[2 * update + (f64 != 0)];
}

const struct mr_kernel_module mr_optim_module = {"optim", IMAGE, kernels, MR_COUNT(kernels)};
