/* Element by element, and by rows: activations, dropout, input, softmax and losses of the host
 * backend. */

#define PIECE 16384 /* elements of a task */

MR_CLONES static REAL FN(sum)(uint32_t count, const REAL *restrict x)
{
    REAL lane[16] = {0}, sum = 0;
    uint32_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (int k = 0; k < 16; k++)
            lane[k] += x[i + (uint32_t)k];
    for (; i < count; i++)
        lane[0] += x[i];
    for (int k = 0; k < 16; k++)
        sum += lane[k];
    return sum;
}

/* GELU as PyTorch's default: x times the normal distribution function (Hendrycks and Gimpel
 * 2016). */
static REAL FN(gelu)(REAL x)
{
    return x * (REAL)0.5 * (1 + ERF(x * (REAL)0.70710678118654752440));
}

static REAL FN(gelu_slope)(REAL x)
{
    REAL cdf = (REAL)0.5 * (1 + ERF(x * (REAL)0.70710678118654752440));
    return cdf + x * EXP(-x * x / 2) * (REAL)0.39894228040143267794;
}

/* y = act(x); y may be x. */
static void FN(act_row)(enum mr_act act, uint64_t count, const REAL *x, REAL *y)
{
    switch (act) {
    case MR_ACT_NONE:
        if (y != x)
            memmove(y, x, count * sizeof *y);
        break;
    case MR_ACT_RELU:
        for (uint64_t i = 0; i < count; i++)
            y[i] = x[i] > 0 ? x[i] : x[i] != x[i] ? x[i] : 0;
        break;
    case MR_ACT_SIGMOID:
        for (uint64_t i = 0; i < count; i++)
            y[i] = 1 / (1 + EXP(-x[i]));
        break;
    case MR_ACT_TANH:
        for (uint64_t i = 0; i < count; i++)
            y[i] = TANH(x[i]);
        break;
    case MR_ACT_GELU:
        for (uint64_t i = 0; i < count; i++)
            y[i] = FN(gelu)(x[i]);
        break;
    }
}

/* dx = dy act'(x), from y where that does; dx may be dy. x is read for GELU alone. */
static void FN(unact_row)(enum mr_act act, uint64_t count, const REAL *x, const REAL *y,
                          const REAL *dy, REAL *dx)
{
    switch (act) {
    case MR_ACT_NONE:
        FN(act_row)(act, count, dy, dx);
        break;
    case MR_ACT_RELU:
        for (uint64_t i = 0; i < count; i++)
            dx[i] = y[i] > 0 ? dy[i] : 0;
        break;
    case MR_ACT_SIGMOID:
        for (uint64_t i = 0; i < count; i++)
            dx[i] = dy[i] * y[i] * (1 - y[i]);
        break;
    case MR_ACT_TANH:
        for (uint64_t i = 0; i < count; i++)
            dx[i] = dy[i] * (1 - y[i] * y[i]);
        break;
    case MR_ACT_GELU:
        for (uint64_t i = 0; i < count; i++)
            dx[i] = dy[i] * FN(gelu_slope)(x[i]);
        break;
    }
}

struct FN(point_job) {
    enum mr_act act;
    uint64_t count;
    const REAL *x, *y, *dy;
    REAL *out;
    uint64_t key, step;
    uint32_t threshold, per;
    REAL keep;
    const void *in;
    enum mr_dtype dtype;
};

static uint32_t FN(pieces)(uint64_t count)
{
    return (uint32_t)((count + PIECE - 1) / PIECE);
}

static uint64_t FN(piece)(const struct FN(point_job) * j, uint32_t task, uint64_t *out_count)
{
    uint64_t at = (uint64_t)task * PIECE;
    *out_count = MR_MIN(PIECE, j->count - at);
    return at;
}

static void FN(act_forward_task)(void *arg, uint32_t task, void *scratch)
{
    (void)scratch;
    const struct FN(point_job) *j = arg;
    uint64_t n, at = FN(piece)(j, task, &n);
    FN(act_row)(j->act, n, j->x + at, j->out + at);
}

static void FN(act_backward_task)(void *arg, uint32_t task, void *scratch)
{
    (void)scratch;
    const struct FN(point_job) *j = arg;
    uint64_t n, at = FN(piece)(j, task, &n);
    FN(unact_row)(j->act, n, j->x + at, j->y + at, j->dy + at, j->out + at);
}

static int FN(act_forward)(struct mr_nn_backend *b, enum mr_act act, uint64_t count, const void *x,
                           void *y)
{
    struct FN(point_job) j = {.act = act, .count = count, .x = x, .out = y};
    mr_nn_cpu_run(b, FN(pieces)(count), FN(act_forward_task), &j);
    return 0;
}

static int FN(act_backward)(struct mr_nn_backend *b, enum mr_act act, uint64_t count, const void *x,
                            const void *y, const void *dy, void *dx)
{
    struct FN(point_job) j = {.act = act, .count = count, .x = x, .y = y, .dy = dy, .out = dx};
    mr_nn_cpu_run(b, FN(pieces)(count), FN(act_backward_task), &j);
    return 0;
}

static void FN(add_task)(void *arg, uint32_t task, void *scratch)
{
    (void)scratch;
    const struct FN(point_job) *j = arg;
    uint64_t n, at = FN(piece)(j, task, &n);
    const REAL *restrict x = j->x + at;
    REAL *restrict y = j->out + at;
    for (uint64_t i = 0; i < n; i++)
        y[i] += x[i];
}

static int FN(add)(struct mr_nn_backend *b, uint64_t count, const void *x, void *y)
{
    struct FN(point_job) j = {.count = count, .x = x, .out = y};
    mr_nn_cpu_run(b, FN(pieces)(count), FN(add_task), &j);
    return 0;
}

static void FN(dropout_task)(void *arg, uint32_t task, void *scratch)
{
    (void)scratch;
    const struct FN(point_job) *j = arg;
    uint64_t n, at = FN(piece)(j, task, &n), have = UINT64_MAX;
    uint32_t r[4];
    for (uint64_t i = at; i < at + n; i++) {
        uint64_t draw = i / j->per;
        if (draw / 4 != have)
            mr_nn_draw(j->key, j->step, have = draw / 4, r);
        j->out[i] = r[draw % 4] < j->threshold ? 0 : j->x[i] * j->keep;
    }
}

static int FN(dropout)(struct mr_nn_backend *b, uint64_t seed, uint32_t layer, double p,
                       uint64_t count, uint32_t c, uint32_t hw, uint32_t per, const void *x,
                       void *y)
{
    (void)c, (void)hw; /* NCHW as it lies */
    struct FN(point_job) j = {.count = count,
                              .x = x,
                              .out = y,
                              .key = mr_nn_draw_key(seed, layer),
                              .step = b->step,
                              .threshold = mr_nn_threshold(p),
                              .per = per,
                              .keep = (REAL)(1 / (1 - p))};
    mr_nn_cpu_run(b, FN(pieces)(count), FN(dropout_task), &j);
    return 0;
}

static REAL FN(element)(const void *in, enum mr_dtype dtype, uint64_t i)
{
    switch (dtype) {
    case MR_U8:
        return (REAL)((const uint8_t *)in)[i] * (REAL)(1.0 / 255);
    case MR_F32:
        return (REAL)((const float *)in)[i];
    case MR_F64:
        return (REAL)((const double *)in)[i];
    default:
        return (REAL)mr_nn_half(((const uint16_t *)in)[i], dtype);
    }
}

static void FN(input_task)(void *arg, uint32_t task, void *scratch)
{
    (void)scratch;
    const struct FN(point_job) *j = arg;
    uint64_t n, at = FN(piece)(j, task, &n);
    for (uint64_t i = at; i < at + n; i++)
        j->out[i] = FN(element)(j->in, j->dtype, i);
}

static void FN(to_nchw)(uint32_t n, uint32_t c, uint32_t hw, const REAL *x, REAL *y)
{
    for (uint32_t s = 0; s < n; s++, x += (size_t)c * hw, y += (size_t)c * hw)
        for (uint32_t k = 0; k < c; k++)
            for (uint32_t i = 0; i < hw; i++)
                y[(size_t)k * hw + i] = x[(size_t)i * c + k];
}

static int FN(input)(struct mr_nn_backend *b, uint32_t n, uint32_t c, uint32_t hw,
                     enum mr_layout from, const void *in, enum mr_dtype dtype, void *x)
{
    uint64_t count = (uint64_t)n * c * hw;
    struct FN(point_job) j = {.count = count, .in = in, .dtype = dtype, .out = x};
    if (from == MR_NCHW || c == 1 || hw == 1) {
        mr_nn_cpu_run(b, FN(pieces)(count), FN(input_task), &j);
        return 0;
    }
    int rc = mr_nn_cpu_partial(b, count * sizeof(REAL));
    if (rc)
        return rc;
    j.out = b->partial;
    mr_nn_cpu_run(b, FN(pieces)(count), FN(input_task), &j);
    FN(to_nchw)(n, c, hw, b->partial, x);
    return 0;
}

/* One row's softmax or its logarithm; returns log of the sum of exponentials. */
static REAL FN(softmax_row)(uint32_t classes, int logs, const REAL *x, REAL *y)
{
    REAL top = x[0];
    for (uint32_t i = 1; i < classes; i++)
        top = x[i] > top ? x[i] : top;
    REAL sum = EXP(x[0] - top);
    for (uint32_t i = 1; i < classes; i++)
        sum += EXP(x[i] - top);
    REAL whole = top + LOG(sum);
    for (uint32_t i = 0; y && i < classes; i++)
        y[i] = logs ? x[i] - whole : EXP(x[i] - whole);
    return whole;
}

static int FN(softmax)(struct mr_nn_backend *b, uint32_t n, uint32_t classes, int logs,
                       const void *x, void *y)
{
    (void)b;
    for (size_t r = 0; r < n; r++)
        FN(softmax_row)(classes, logs, (const REAL *)x + r * classes, (REAL *)y + r * classes);
    return 0;
}

static int FN(softmax_backward)(struct mr_nn_backend *b, uint32_t n, uint32_t classes, int logs,
                                const void *y_in, const void *dy_in, void *dx_in)
{
    (void)b;
    for (size_t r = 0; r < n; r++) {
        const REAL *y = (const REAL *)y_in + r * classes, *dy = (const REAL *)dy_in + r * classes;
        REAL *dx = (REAL *)dx_in + r * classes, sum = 0;
        for (uint32_t i = 0; i < classes; i++)
            sum += logs ? dy[i] : dy[i] * y[i];
        for (uint32_t i = 0; i < classes; i++)
            dx[i] = logs ? dy[i] - EXP(y[i]) * sum : y[i] * (dy[i] - sum);
    }
    return 0;
}

static int64_t FN(label)(const void *labels, enum mr_dtype dtype, uint64_t r)
{
    return dtype == MR_U8    ? ((const uint8_t *)labels)[r]
           : dtype == MR_I32 ? ((const int32_t *)labels)[r]
                             : ((const int64_t *)labels)[r];
}

struct FN(loss_call) {
    struct mr_nn_backend *b;
    enum mr_loss loss;
    uint32_t n, classes;
    const void *labels;
    enum mr_dtype label_dtype;
    REAL scale; /* of gradients: loss scale / n */
};

static double FN(mse_row)(const struct FN(loss_call) * l, size_t r, const REAL *x, REAL *dx)
{
    double sum = 0;
    for (uint32_t i = 0; i < l->classes; i++) {
        REAL d = x[i] - FN(element)(l->labels, l->label_dtype, r * l->classes + i);
        sum += (double)d * d / l->classes;
        if (dx)
            dx[i] = 2 * d / l->classes * l->scale;
    }
    return sum;
}

/* Cross-entropy of logits, or NLL of log-probabilities. */
static double FN(class_row)(const struct FN(loss_call) * l, size_t r, const REAL *x, REAL *dx)
{
    int64_t label = FN(label)(l->labels, l->label_dtype, r);
    bool good = label >= 0 && label < l->classes;
    uint32_t top = 0;
    for (uint32_t i = 1; i < l->classes; i++)
        top = x[i] > x[top] ? i : top;
    l->b->totals->n_bad_labels += !good;
    l->b->totals->n_right += good && top == (uint64_t)label;
    REAL whole = l->loss == MR_NLL ? 0 : FN(softmax_row)(l->classes, 0, x, NULL);
    for (uint32_t i = 0; dx && i < l->classes; i++) {
        REAL p = l->loss == MR_NLL ? 0 : EXP(x[i] - whole);
        dx[i] = good ? (p - (i == (uint64_t)label)) * l->scale : 0;
    }
    return good ? (double)(whole - x[label]) : 0;
}

static int FN(loss)(struct mr_nn_backend *b, enum mr_loss loss, uint32_t n, uint32_t classes,
                    const void *x_in, const void *labels, enum mr_dtype label_dtype,
                    const float *loss_scale, void *dx, void *out)
{
    struct FN(loss_call) l = {.b = b,
                              .loss = loss,
                              .n = n,
                              .classes = classes,
                              .labels = labels,
                              .label_dtype = label_dtype,
                              .scale = (loss_scale ? (REAL)*loss_scale : 1) / (REAL)n};
    uint64_t bad = b->totals->n_bad_labels;
    double sum = 0;
    if (out)
        memcpy(out, x_in, (size_t)n * classes * sizeof(REAL));
    if (!labels)
        return 0;
    for (size_t r = 0; r < n; r++) {
        const REAL *x = (const REAL *)x_in + r * classes;
        REAL *row = dx ? (REAL *)dx + r * classes : NULL;
        sum += loss == MR_MSE ? FN(mse_row)(&l, r, x, row) : FN(class_row)(&l, r, x, row);
    }
    b->totals->loss += sum;
    b->totals->n_samples += n - (b->totals->n_bad_labels - bad);
    if (!isfinite(sum) && b->totals->n_not_finite++ == 0)
        b->totals->first_not_finite = b->step;
    return 0;
}

#undef PIECE
