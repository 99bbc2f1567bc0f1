/* Linear layers, pools and norms of nets on GPUs. */
#include "kernels/nn/draw.h"
#include "nn/cuda/cuda.h"

uint32_t mr_nn_cuda_strips(uint32_t rows, uint32_t cols, uint32_t *out_strip)
{
    uint32_t strips =
        rows <= 64 ? 1 : MR_MIN(MR_NN_GPU_STRIPS, (rows - 1) / 32 + 1); /* 1: nothing to add up */
    strips = MR_MAX(MR_MIN(strips, MR_NN_MOST_SUMS / MR_MAX(cols, 1)), 1);
    *out_strip = (rows - 1) / strips + 1;
    return (rows - 1) / *out_strip + 1;
}

/* The same where a row is much work: a lane so many rows of a strip, and more where sums leave no
 * other way. */
static uint32_t narrow_strips(uint32_t rows, uint32_t cols, uint32_t rows_each, uint32_t *out_strip)
{
    uint32_t thread_rows = MR_NN_GPU_BLOCK / MR_NN_GPU_TILE,
             most = MR_MIN(1024, MR_NN_MOST_SUMS / MR_MAX(cols, 1));
    uint32_t strips = MR_MAX(MR_MIN((rows - 1) / (thread_rows * rows_each) + 1, most), 1);
    *out_strip = (uint32_t)mr_round_up((rows - 1) / strips + 1, thread_rows);
    return (rows - 1) / *out_strip + 1;
}

static int check_columns(uint32_t cols)
{
    if (cols <= MR_NN_MOST_SUMS)
        return 0;
    return mr_error_set(MR_ELIMIT, "net: a layer of %u channels: on cuda there are at most %u",
                        cols, MR_NN_MOST_SUMS);
}

static uint32_t tiles(uint32_t cols)
{
    return (cols - 1) / MR_NN_GPU_TILE + 1;
}

int mr_nn_cuda_undo(struct mr_nn_backend *b, enum mr_act act, const struct mr_nn_drop *drop,
                    uint32_t rows, uint32_t cols, const void *y, void *dy, void *db, int accumulate)
{
    struct mr_nn_gpu_rows a = {.y = y,
                               .dy = dy,
                               .db = {db, b->current.partial, b->current.ticket, accumulate},
                               .rows = rows,
                               .cols = cols,
                               .act = act};
    if (drop) {
        a.behind = drop->dy;
        a.step = &b->state->step;
        a.key = mr_nn_draw_key(drop->seed, drop->layer);
        a.threshold = mr_nn_threshold(drop->p);
        a.keep = (float)(1 / (1 - drop->p));
    }
    if (act == MR_ACT_NONE && !db && !drop)
        return 0;
    int rc = check_columns(cols);
    uint32_t strips = mr_nn_cuda_strips(rows, cols, &a.strip);
    return rc ? rc : mr_nn_cuda_launch(b, MR_NN_GPU_undo, strips, tiles(cols), &a);
}

int mr_nn_cuda_linear_forward(struct mr_nn_backend *b, const struct mr_nn_linear *l, const void *x,
                              const void *w, const void *bias, void *y)
{
    struct mr_nn_product p = {.tb = 1,
                              .m = l->n,
                              .n = l->out,
                              .k = l->in,
                              .lda = l->in,
                              .ldb = l->in,
                              .ldd = l->out,
                              .act = l->act,
                              .a = x,
                              .b = w,
                              .bias = bias,
                              .d = y};
    return mr_nn_cuda_product(b, &p);
}

int mr_nn_cuda_linear_backward(struct mr_nn_backend *b, const struct mr_nn_linear *l, const void *x,
                               const void *w, const void *y, void *dy, void *dx, void *dw, void *db,
                               int accumulate)
{
    struct mr_nn_product to_x = {.m = l->n,
                                 .n = l->in,
                                 .k = l->out,
                                 .lda = l->out,
                                 .ldb = l->in,
                                 .ldd = l->in,
                                 .a = dy,
                                 .b = w,
                                 .d = dx};
    struct mr_nn_product to_w = {.ta = 1,
                                 .m = l->out,
                                 .n = l->in,
                                 .k = l->n,
                                 .lda = l->out,
                                 .ldb = l->in,
                                 .ldd = l->in,
                                 .d_f32 = 1,
                                 .accumulate = accumulate,
                                 .a = dy,
                                 .b = x,
                                 .d = dw};
    bool late =
        dx && l->act == MR_ACT_NONE && !l->drop; /* then dx does not wait for the bias' sums */
    int rc = late ? 0 : mr_nn_cuda_undo(b, l->act, l->drop, l->n, l->out, y, dy, db, accumulate);
    if (!rc && dx)
        rc = mr_nn_cuda_aside(b);
    if (!rc && late)
        rc = mr_nn_cuda_undo(b, l->act, l->drop, l->n, l->out, y, dy, db, accumulate);
    if (!rc)
        rc = mr_nn_cuda_product(b, &to_w);
    mr_nn_cuda_back(b);
    return rc || !dx ? rc : mr_nn_cuda_product(b, &to_x);
}

static struct mr_nn_gpu_pool pool_of(const struct mr_nn_pool *p)
{
    return (struct mr_nn_gpu_pool){.c = p->c,
                                   .h = p->h,
                                   .w = p->w,
                                   .k = p->k,
                                   .stride = p->stride,
                                   .out_h = p->out_h,
                                   .out_w = p->out_w,
                                   .average = p->average};
}

int mr_nn_cuda_pool_forward(struct mr_nn_backend *b, const struct mr_nn_pool *p, const void *x,
                            void *y)
{
    struct mr_nn_gpu_pool a = pool_of(p);
    a.x = x;
    a.out = y;
    a.count = (uint64_t)p->n * p->c * p->out_h * p->out_w;
    return mr_nn_cuda_launch(b, MR_NN_GPU_pool_forward, mr_nn_cuda_blocks(a.count), 1, &a);
}

int mr_nn_cuda_pool_backward(struct mr_nn_backend *b, const struct mr_nn_pool *p, const void *x,
                             const void *dy, void *dx)
{
    struct mr_nn_gpu_pool a = pool_of(p);
    a.x = x;
    a.dy = dy;
    a.out = dx;
    uint64_t inputs = (uint64_t)p->n * p->c * p->h * p->w;
    bool apart = p->stride >= p->k;
    bool covers = p->stride == p->k && p->out_h * p->k == p->h && p->out_w * p->k == p->w;
    int rc = apart && !covers
                 ? mr_memset_async(b->current.stream, dx, MR_DEVICE, 0, inputs * b->element)
                 : 0;
    a.count = apart ? (uint64_t)p->n * p->c * p->out_h * p->out_w : inputs;
    enum mr_nn_gpu_kernel kernel = apart ? MR_NN_GPU_pool_scatter : MR_NN_GPU_pool_gather;
    return rc ? rc : mr_nn_cuda_launch(b, kernel, mr_nn_cuda_blocks(a.count), 1, &a);
}

/* Whole quads of draws; every input is in a window. */
int mr_nn_cuda_pool_drop_fits(const struct mr_nn_pool *p)
{
    uint64_t pixels = (uint64_t)p->out_h * p->out_w;
    return !p->average && p->k == 2 && p->stride == 2 && p->h % 2 == 0 && p->w % 2 == 0 &&
           p->c > 1 && pixels % 4 == 0 && p->n * (pixels / 4) <= INT32_MAX &&
           p->c <= MR_NN_MOST_SUMS;
}

static struct mr_nn_gpu_pool_drop pool_drop_of(struct mr_nn_backend *b,
                                               const struct mr_nn_pool_drop *d)
{
    const struct mr_nn_pool *p = &d->pool;
    uint32_t quads = p->out_h * p->out_w / 4;
    return (struct mr_nn_gpu_pool_drop){.step = &b->state->step,
                                        .key = mr_nn_draw_key(d->seed, d->layer),
                                        .rows = p->n * quads,
                                        .quads = quads,
                                        .c = p->c,
                                        .h = p->h,
                                        .w = p->w,
                                        .out_w = p->out_w,
                                        .threshold = mr_nn_threshold(d->p),
                                        .keep = (float)(1 / (1 - d->p)),
                                        .act = d->act};
}

int mr_nn_cuda_pool_drop_forward(struct mr_nn_backend *b, const struct mr_nn_pool_drop *d,
                                 const void *x, void *y)
{
    struct mr_nn_gpu_pool_drop a = pool_drop_of(b, d);
    a.x = x;
    a.out = y;
    uint32_t strips = narrow_strips(a.rows, a.c, 1, &a.strip);
    return mr_nn_cuda_launch(b, MR_NN_GPU_pool_drop, strips, tiles(a.c), &a);
}

int mr_nn_cuda_pool_drop_backward(struct mr_nn_backend *b, const struct mr_nn_pool_drop *d,
                                  const void *x, const void *dy, void *dx, void *db, int accumulate)
{
    struct mr_nn_gpu_pool_drop a = pool_drop_of(b, d);
    a.x = x;
    a.dy = dy;
    a.out = dx;
    a.db = (struct mr_nn_gpu_sums){db, b->current.partial, b->current.ticket, accumulate};
    uint32_t strips = narrow_strips(a.rows, a.c, 2, &a.strip);
    return mr_nn_cuda_launch(b, MR_NN_GPU_pool_drop_back, strips, tiles(a.c), &a);
}

static int norm_of(struct mr_nn_backend *b, const struct mr_nn_norm *m, struct mr_nn_gpu_norm *out)
{
    uint64_t rows = (uint64_t)m->n * m->hw;
    if (rows > INT32_MAX)
        return mr_error_set(MR_ELIMIT,
                            "net: a norm over %llu pixels: on cuda there are at most 2^31",
                            (unsigned long long)rows);
    *out = (struct mr_nn_gpu_norm){.partial = b->current.partial,
                                   .sums = b->sums,
                                   .ticket = b->current.ticket,
                                   .epsilon = m->epsilon,
                                   .momentum = m->momentum,
                                   .rows = (uint32_t)rows,
                                   .cols = m->c,
                                   .act = m->act};
    return check_columns(m->c);
}

int mr_nn_cuda_norm_forward(struct mr_nn_backend *b, const struct mr_nn_norm *m, const void *x,
                            const void *gamma, const void *beta, void *mean, void *var, void *saved,
                            int training, void *y)
{
    struct mr_nn_gpu_norm a;
    int rc = norm_of(b, m, &a);
    if (rc)
        return rc;
    a.x = x;
    a.gamma = gamma;
    a.beta = beta;
    a.mean = mean;
    a.var = var;
    a.saved = saved;
    a.training = training;
    a.out = y;
    if (training) {
        uint32_t strips = mr_nn_cuda_strips(a.rows, a.cols, &a.strip);
        rc = mr_nn_cuda_launch(b, MR_NN_GPU_norm_stats, strips, tiles(a.cols), &a);
    }
    uint64_t count = (uint64_t)a.rows * a.cols;
    return rc ? rc : mr_nn_cuda_launch(b, MR_NN_GPU_norm_apply, mr_nn_cuda_blocks(count), 1, &a);
}

int mr_nn_cuda_norm_backward(struct mr_nn_backend *b, const struct mr_nn_norm *m, const void *x,
                             const void *gamma, const void *saved, const void *y, void *dy,
                             void *dx, void *dgamma, void *dbeta, int accumulate)
{
    struct mr_nn_gpu_norm a;
    int rc = norm_of(b, m, &a);
    if (rc)
        return rc;
    a.x = x;
    a.y = y;
    a.dy = dy;
    a.gamma = gamma;
    a.saved = (float *)(uintptr_t)saved; /* read only here */
    a.dgamma = dgamma;
    a.dbeta = dbeta;
    a.accumulate = accumulate;
    a.out = dx;
    uint32_t strips = mr_nn_cuda_strips(a.rows, a.cols, &a.strip);
    rc = mr_nn_cuda_launch(b, MR_NN_GPU_norm_sums, strips, tiles(a.cols), &a);
    uint64_t count = (uint64_t)a.rows * a.cols;
    return rc || !dx ? rc
                     : mr_nn_cuda_launch(b, MR_NN_GPU_norm_dx, mr_nn_cuda_blocks(count), 1, &a);
}
