/* Linear layers and convolutions of the host backend; REAL, GEMM and FN(name) are set by who
 * includes it. */

#define ROWS 64 /* of a batch in one task */
#define SUMS 16 /* tasks of a batch whose partial sums are added up in order */
#define COLS 128

/* y = act(y + bias), rows of `out`; bias may be NULL. */
MR_CLONES static void FN(finish)(enum mr_act act, uint32_t rows, uint32_t cols,
                                 const REAL *restrict bias, REAL *restrict y, size_t ld)
{
    for (uint32_t r = 0; r < rows; r++) {
        REAL *restrict row = y + r * ld;
        for (uint32_t j = 0; bias && j < cols; j++)
            row[j] += bias[j];
        FN(act_row)(act, cols, row, row);
    }
}

/* dy *= act'(y), in place. */
static void FN(undo)(enum mr_act act, uint64_t count, const REAL *y, REAL *dy)
{
    if (act != MR_ACT_NONE)
        FN(unact_row)(act, count, y, y, dy, dy);
}

struct FN(linear_job) {
    const struct mr_nn_linear *l;
    const REAL *x, *w, *bias, *y;
    REAL *dy, *dx, *dw, *db, *out;
    uint32_t n_cols; /* tasks across */
    int accumulate;
};

static void FN(linear_forward_task)(void *arg, uint32_t task, void *scratch)
{
    (void)scratch;
    const struct FN(linear_job) *j = arg;
    const struct mr_nn_linear *l = j->l;
    uint32_t r = task / j->n_cols * ROWS, c = task % j->n_cols * COLS;
    uint32_t rows = MR_MIN(ROWS, l->n - r), cols = MR_MIN(COLS, l->out - c);
    REAL *y = j->out + (size_t)r * l->out + c;
    GEMM(0, 1, rows, cols, l->in, j->x + (size_t)r * l->in, l->in, j->w + (size_t)c * l->in, l->in,
         0, y, l->out);
    FN(finish)(l->act, rows, cols, j->bias ? j->bias + c : NULL, y, l->out);
}

static uint32_t FN(tiles)(uint32_t n, uint32_t per)
{
    return (n + per - 1) / per;
}

static int FN(linear_forward)(struct mr_nn_backend *b, const struct mr_nn_linear *l, const void *x,
                              const void *w, const void *bias, void *y)
{
    struct FN(linear_job)
        j = {.l = l, .x = x, .w = w, .bias = bias, .out = y, .n_cols = FN(tiles)(l->out, COLS)};
    mr_nn_cpu_run(b, FN(tiles)(l->n, ROWS) * j.n_cols, FN(linear_forward_task), &j);
    return 0;
}

/* The activation's gradient, rows in tasks. */
static void FN(linear_undo_task)(void *arg, uint32_t task, void *scratch)
{
    (void)scratch;
    const struct FN(linear_job) *j = arg;
    uint32_t r = task * ROWS, rows = MR_MIN(ROWS, j->l->n - r);
    size_t at = (size_t)r * j->l->out;
    FN(undo)(j->l->act, (uint64_t)rows * j->l->out, j->y + at, j->dy + at);
}

static void FN(linear_dx_task)(void *arg, uint32_t task, void *scratch)
{
    (void)scratch;
    const struct FN(linear_job) *j = arg;
    const struct mr_nn_linear *l = j->l;
    uint32_t r = task / j->n_cols * ROWS, c = task % j->n_cols * COLS;
    GEMM(0, 0, MR_MIN(ROWS, l->n - r), MR_MIN(COLS, l->in - c), l->out, j->dy + (size_t)r * l->out,
         l->out, j->w + c, l->in, 0, j->dx + (size_t)r * l->in + c, l->in);
}

static void FN(linear_dw_task)(void *arg, uint32_t task, void *scratch)
{
    (void)scratch;
    const struct FN(linear_job) *j = arg;
    const struct mr_nn_linear *l = j->l;
    uint32_t r = task / j->n_cols * ROWS, c = task % j->n_cols * COLS,
             rows = MR_MIN(ROWS, l->out - r);
    GEMM(1, 0, rows, MR_MIN(COLS, l->in - c), l->n, j->dy + r, l->out, j->x + c, l->in,
         j->accumulate, j->dw + (size_t)r * l->in + c, l->in);
    if (c > 0 || !j->db)
        return;
    for (uint32_t o = r; o < r + rows; o++) {
        REAL sum = 0;
        for (uint32_t i = 0; i < l->n; i++)
            sum += j->dy[(size_t)i * l->out + o];
        j->db[o] = j->accumulate ? j->db[o] + sum : sum;
    }
}

static int FN(linear_backward)(struct mr_nn_backend *b, const struct mr_nn_linear *l, const void *x,
                               const void *w, const void *y, void *dy, void *dx, void *dw, void *db,
                               int accumulate)
{
    struct FN(linear_job) j = {.l = l,
                               .x = x,
                               .w = w,
                               .y = y,
                               .dy = dy,
                               .dx = dx,
                               .dw = dw,
                               .db = db,
                               .accumulate = accumulate};
    if (l->act != MR_ACT_NONE)
        mr_nn_cpu_run(b, FN(tiles)(l->n, ROWS), FN(linear_undo_task), &j);
    j.n_cols = FN(tiles)(l->in, COLS);
    if (dx)
        mr_nn_cpu_run(b, FN(tiles)(l->n, ROWS) * j.n_cols, FN(linear_dx_task), &j);
    mr_nn_cpu_run(b, FN(tiles)(l->out, ROWS) * j.n_cols, FN(linear_dw_task), &j);
    return 0;
}

struct FN(conv_job) {
    const struct mr_nn_conv *c;
    const REAL *x, *w, *bias, *y;
    REAL *dy, *dx, *dw, *db, *out, *partial;
    uint32_t patch, pixels; /* in * k * k; out_h * out_w */
};

/* cols[patch][pixels]: for each weight of a filter the pixels that it meets. */
static void FN(im2col)(const struct mr_nn_conv *c, const REAL *restrict x, REAL *restrict cols)
{
    for (uint32_t i = 0; i < c->in * c->k * c->k; i++) {
        uint32_t channel = i / (c->k * c->k), ky = i / c->k % c->k, kx = i % c->k;
        for (uint32_t oy = 0; oy < c->out_h; oy++, cols += c->out_w) {
            int64_t iy = (int64_t)oy * c->stride + ky - c->pad;
            const REAL *row = x + ((size_t)channel * c->h + (size_t)(iy < 0 ? 0 : iy)) * c->w;
            if (iy < 0 || iy >= (int64_t)c->h) {
                memset(cols, 0, c->out_w * sizeof *cols);
                continue;
            }
            if (c->stride == 1 && c->pad == 0) {
                memcpy(cols, row + kx, c->out_w * sizeof *cols);
                continue;
            }
            for (uint32_t ox = 0; ox < c->out_w; ox++) {
                int64_t ix = (int64_t)ox * c->stride + kx - c->pad;
                cols[ox] = ix < 0 || ix >= (int64_t)c->w ? 0 : row[ix];
            }
        }
    }
}

/* The other way: each pixel's sum over the weights that met it. x is overwritten. */
static void FN(col2im)(const struct mr_nn_conv *c, const REAL *restrict cols, REAL *restrict x)
{
    memset(x, 0, (size_t)c->in * c->h * c->w * sizeof *x);
    for (uint32_t i = 0; i < c->in * c->k * c->k; i++) {
        uint32_t channel = i / (c->k * c->k), ky = i / c->k % c->k, kx = i % c->k;
        for (uint32_t oy = 0; oy < c->out_h; oy++, cols += c->out_w) {
            int64_t iy = (int64_t)oy * c->stride + ky - c->pad;
            if (iy < 0 || iy >= (int64_t)c->h)
                continue;
            REAL *restrict row = x + ((size_t)channel * c->h + (size_t)iy) * c->w;
            if (c->stride == 1 && c->pad == 0) {
                for (uint32_t ox = 0; ox < c->out_w; ox++)
                    row[ox + kx] += cols[ox];
                continue;
            }
            for (uint32_t ox = 0; ox < c->out_w; ox++) {
                int64_t ix = (int64_t)ox * c->stride + kx - c->pad;
                if (ix >= 0 && ix < (int64_t)c->w)
                    row[ix] += cols[ox];
            }
        }
    }
}

static void FN(conv_forward_task)(void *arg, uint32_t task, void *scratch)
{
    const struct FN(conv_job) *j = arg;
    const struct mr_nn_conv *c = j->c;
    const REAL *x = j->x + (size_t)task * c->in * c->h * c->w;
    REAL *y = j->out + (size_t)task * c->out * j->pixels;
    FN(im2col)(c, x, scratch);
    GEMM(0, 0, c->out, j->pixels, j->patch, j->w, j->patch, scratch, j->pixels, 0, y, j->pixels);
    for (uint32_t o = 0; o < c->out; o++) {
        REAL *restrict row = y + (size_t)o * j->pixels;
        REAL add = j->bias ? j->bias[o] : 0;
        for (uint32_t i = 0; i < j->pixels; i++)
            row[i] += add;
        FN(act_row)(c->act, j->pixels, row, row);
    }
}

static struct FN(conv_job) FN(conv_job_of)(const struct mr_nn_conv *c)
{
    return (struct FN(conv_job)){
        .c = c, .patch = c->in * c->k * c->k, .pixels = c->out_h * c->out_w};
}

static int FN(plan_conv)(struct mr_nn_backend *b, const struct mr_nn_conv *c)
{
    struct FN(conv_job) j = FN(conv_job_of)(c);
    int rc = mr_nn_cpu_room(b, (uint64_t)j.patch * j.pixels * sizeof(REAL));
    return rc ? rc
              : mr_nn_cpu_partial(b, SUMS * ((uint64_t)c->out * j.patch + c->out) * sizeof(REAL));
}

static int FN(conv_forward)(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                            const void *w, const void *bias, void *y)
{
    struct FN(conv_job) j = FN(conv_job_of)(c);
    j.x = x;
    j.w = w;
    j.bias = bias;
    j.out = y;
    mr_nn_cpu_run(b, c->n, FN(conv_forward_task), &j);
    return 0;
}

/* One of SUMS shares of the batch: its part of dw and db, and its rows of dx. */
static void FN(conv_backward_task)(void *arg, uint32_t task, void *scratch)
{
    const struct FN(conv_job) *j = arg;
    const struct mr_nn_conv *c = j->c;
    size_t x_count = (size_t)c->in * c->h * c->w, y_count = (size_t)c->out * j->pixels;
    uint32_t first = (uint32_t)((uint64_t)c->n * task / SUMS),
             end = (uint32_t)((uint64_t)c->n * (task + 1) / SUMS);
    REAL *dw = j->partial + task * ((size_t)c->out * j->patch + c->out),
         *db = dw + (size_t)c->out * j->patch;
    memset(dw, 0, ((size_t)c->out * j->patch + c->out) * sizeof(REAL));
    for (uint32_t i = first; i < end; i++) {
        REAL *dy = j->dy + i * y_count;
        FN(undo)(c->act, y_count, j->y + i * y_count, dy);
        for (uint32_t o = 0; j->db && o < c->out; o++)
            db[o] += FN(sum)(j->pixels, dy + (size_t)o * j->pixels);
        FN(im2col)(c, j->x + i * x_count, scratch);
        GEMM(0, 1, c->out, j->patch, j->pixels, dy, j->pixels, scratch, j->pixels, 1, dw, j->patch);
        if (!j->dx)
            continue;
        GEMM(1, 0, j->patch, j->pixels, c->out, j->w, j->patch, dy, j->pixels, 0, scratch,
             j->pixels);
        FN(col2im)(c, scratch, j->dx + i * x_count);
    }
}

static void FN(add_parts)(const struct FN(conv_job) * j, int accumulate)
{
    size_t count = (size_t)j->c->out * j->patch, stride = count + j->c->out;
    for (size_t i = 0; i < stride; i++) {
        REAL *to = i < count ? &j->dw[i] : j->db ? &j->db[i - count] : NULL, sum = 0;
        if (!to)
            return;
        for (uint32_t s = 0; s < SUMS; s++)
            sum += j->partial[s * stride + i];
        *to = accumulate ? *to + sum : sum;
    }
}

static int FN(conv_backward)(struct mr_nn_backend *b, const struct mr_nn_conv *c, const void *x,
                             const void *w, const void *y, void *dy, void *dx, void *dw, void *db,
                             int accumulate)
{
    struct FN(conv_job) j = FN(conv_job_of)(c);
    j.x = x;
    j.w = w;
    j.y = y;
    j.dy = dy;
    j.dx = dx;
    j.dw = dw;
    j.db = db;
    j.partial = b->partial;
    mr_nn_cpu_run(b, SUMS, FN(conv_backward_task), &j);
    FN(add_parts)(&j, accumulate);
    return 0;
}

#undef ROWS
#undef SUMS
#undef COLS
