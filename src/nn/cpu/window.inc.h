/* Pools and batch norms of the host backend: a task is a plane, or a channel. */

struct FN(pool_job) {
    const struct mr_nn_pool *p;
    const REAL *x, *dy;
    REAL *out;
};

static void FN(pool_forward_task)(void *arg, uint32_t task, void *scratch)
{
    (void)scratch;
    const struct FN(pool_job) *j = arg;
    const struct mr_nn_pool *p = j->p;
    const REAL *x = j->x + (size_t)task * p->h * p->w;
    REAL *y = j->out + (size_t)task * p->out_h * p->out_w;
    for (uint32_t oy = 0; oy < p->out_h; oy++)
        for (uint32_t ox = 0; ox < p->out_w; ox++) {
            const REAL *at = x + (size_t)oy * p->stride * p->w + (size_t)ox * p->stride;
            REAL best = at[0], sum = 0;
            for (uint32_t ky = 0; ky < p->k; ky++)
                for (uint32_t kx = 0; kx < p->k; kx++) {
                    REAL v = at[(size_t)ky * p->w + kx];
                    best = v > best || v != v ? v : best;
                    sum += v;
                }
            *y++ = p->average ? sum / (REAL)(p->k * p->k) : best;
        }
}

/* A maximum's gradient goes to the first that has it. */
static void FN(pool_backward_task)(void *arg, uint32_t task, void *scratch)
{
    (void)scratch;
    const struct FN(pool_job) *j = arg;
    const struct mr_nn_pool *p = j->p;
    const REAL *x = j->x + (size_t)task * p->h * p->w,
               *dy = j->dy + (size_t)task * p->out_h * p->out_w;
    REAL *dx = j->out + (size_t)task * p->h * p->w, part = 1 / (REAL)(p->k * p->k);
    memset(dx, 0, (size_t)p->h * p->w * sizeof *dx);
    for (uint32_t oy = 0; oy < p->out_h; oy++)
        for (uint32_t ox = 0; ox < p->out_w; ox++, dy++) {
            size_t at = (size_t)oy * p->stride * p->w + (size_t)ox * p->stride, best = at;
            for (uint32_t ky = 0; ky < p->k; ky++)
                for (uint32_t kx = 0; kx < p->k; kx++) {
                    size_t i = at + (size_t)ky * p->w + kx;
                    if (p->average)
                        dx[i] += *dy * part;
                    else if (x[i] > x[best] || x[i] != x[i])
                        best = i;
                }
            if (!p->average)
                dx[best] += *dy;
        }
}

static int FN(pool_forward)(struct mr_nn_backend *b, const struct mr_nn_pool *p, const void *x,
                            void *y)
{
    struct FN(pool_job) j = {.p = p, .x = x, .out = y};
    mr_nn_cpu_run(b, p->n * p->c, FN(pool_forward_task), &j);
    return 0;
}

static int FN(pool_backward)(struct mr_nn_backend *b, const struct mr_nn_pool *p, const void *x,
                             const void *dy, void *dx)
{
    struct FN(pool_job) j = {.p = p, .x = x, .dy = dy, .out = dx};
    mr_nn_cpu_run(b, p->n * p->c, FN(pool_backward_task), &j);
    return 0;
}

/* Ioffe and Szegedy 2015. saved: the batch's mean and 1 / deviation of each channel. */
struct FN(norm_job) {
    const struct mr_nn_norm *m;
    const REAL *x, *gamma, *beta, *y;
    REAL *dy, *mean, *var, *saved, *out, *dgamma, *dbeta;
    int training, accumulate;
};

static void FN(norm_statistics)(const struct FN(norm_job) * j, uint32_t c)
{
    const struct mr_nn_norm *m = j->m;
    double sum = 0, square = 0, count = (double)m->n * m->hw;
    for (uint32_t s = 0; s < m->n; s++) {
        const REAL *x = j->x + ((size_t)s * m->c + c) * m->hw;
        for (uint32_t i = 0; i < m->hw; i++)
            sum += (double)x[i];
    }
    double mean = sum / count;
    for (uint32_t s = 0; s < m->n; s++) {
        const REAL *x = j->x + ((size_t)s * m->c + c) * m->hw;
        for (uint32_t i = 0; i < m->hw; i++)
            square += ((double)x[i] - mean) * ((double)x[i] - mean);
    }
    j->saved[c] = (REAL)mean;
    j->saved[m->c + c] = (REAL)(1 / sqrt(square / count + m->epsilon));
    double spread = count > 1 ? square / (count - 1) : 0;
    j->mean[c] = (REAL)((1 - m->momentum) * (double)j->mean[c] + m->momentum * mean);
    j->var[c] = (REAL)((1 - m->momentum) * (double)j->var[c] + m->momentum * spread);
}

static void FN(norm_forward_task)(void *arg, uint32_t c, void *scratch)
{
    (void)scratch;
    const struct FN(norm_job) *j = arg;
    const struct mr_nn_norm *m = j->m;
    REAL mean = j->mean[c], scale;
    if (j->training) {
        FN(norm_statistics)(j, c);
        mean = j->saved[c];
        scale = j->saved[m->c + c];
    } else
        scale = (REAL)(1 / sqrt((double)j->var[c] + m->epsilon));
    for (uint32_t s = 0; s < m->n; s++) {
        size_t at = ((size_t)s * m->c + c) * m->hw;
        for (uint32_t i = 0; i < m->hw; i++)
            j->out[at + i] = (j->x[at + i] - mean) * scale * j->gamma[c] + j->beta[c];
        FN(act_row)(m->act, m->hw, j->out + at, j->out + at);
    }
}

static void FN(norm_backward_task)(void *arg, uint32_t c, void *scratch)
{
    (void)scratch;
    const struct FN(norm_job) *j = arg;
    const struct mr_nn_norm *m = j->m;
    REAL mean = j->saved[c], scale = j->saved[m->c + c];
    double sum = 0, dot = 0, count = (double)m->n * m->hw;
    for (uint32_t s = 0; s < m->n; s++) {
        size_t at = ((size_t)s * m->c + c) * m->hw;
        if (m->act != MR_ACT_NONE)
            FN(unact_row)(m->act, m->hw, j->y + at, j->y + at, j->dy + at, j->dy + at);
        for (uint32_t i = 0; i < m->hw; i++) {
            sum += (double)j->dy[at + i];
            dot += (double)j->dy[at + i] * (double)((j->x[at + i] - mean) * scale);
        }
    }
    for (uint32_t s = 0; j->out && s < m->n; s++) {
        size_t at = ((size_t)s * m->c + c) * m->hw;
        for (uint32_t i = 0; i < m->hw; i++) {
            REAL normal = (j->x[at + i] - mean) * scale;
            j->out[at + i] = j->gamma[c] * scale *
                             (j->dy[at + i] - (REAL)(sum / count) - normal * (REAL)(dot / count));
        }
    }
    j->dgamma[c] = (j->accumulate ? j->dgamma[c] : 0) + (REAL)dot;
    j->dbeta[c] = (j->accumulate ? j->dbeta[c] : 0) + (REAL)sum;
}

static int FN(norm_forward)(struct mr_nn_backend *b, const struct mr_nn_norm *m, const void *x,
                            const void *gamma, const void *beta, void *mean, void *var, void *saved,
                            int training, void *y)
{
    struct FN(norm_job) j = {.m = m,
                             .x = x,
                             .gamma = gamma,
                             .beta = beta,
                             .mean = mean,
                             .var = var,
                             .saved = saved,
                             .training = training,
                             .out = y};
    mr_nn_cpu_run(b, m->c, FN(norm_forward_task), &j);
    return 0;
}

static int FN(norm_backward)(struct mr_nn_backend *b, const struct mr_nn_norm *m, const void *x,
                             const void *gamma, const void *saved, const void *y, void *dy,
                             void *dx, void *dgamma, void *dbeta, int accumulate)
{
    struct FN(norm_job) j = {.m = m,
                             .x = x,
                             .gamma = gamma,
                             .y = y,
                             .dy = dy,
                             .out = dx,
                             .dgamma = dgamma,
                             .dbeta = dbeta,
                             .accumulate = accumulate};
    j.saved = (REAL *)saved; /* read only here */
    mr_nn_cpu_run(b, m->c, FN(norm_backward_task), &j);
    return 0;
}
