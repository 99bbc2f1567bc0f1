/* The host backend's table, and what does not depend on a type. */

static int FN(open)(struct mr_device *device, const struct mr_net_opts *opts,
                    struct mr_nn_backend **out)
{
    if (opts->dtype != MR_F32 && opts->dtype != MR_F64)
        return mr_error_set(MR_EUNSUPPORTED,
                            "net: cpu computes in f32 (f64 for tests); %s needs a GPU",
                            mr_dtype_name(opts->dtype));
    return mr_nn_cpu_open(device, opts, out);
}

static void FN(use_stream)(struct mr_nn_backend *b, struct mr_stream *stream)
{
    (void)b, (void)stream; /* streams of "cpu" run at once */
}

static size_t FN(element_size)(struct mr_nn_backend *b, enum mr_layout *out_layout)
{
    (void)b;
    *out_layout = MR_NCHW;
    return sizeof(REAL);
}

static uint64_t FN(memory)(const struct mr_nn_backend *b)
{
    return b->n_threads * b->room_bytes + b->partial_bytes;
}

static const char *FN(runs_on)(struct mr_nn_backend *b, int product)
{
    (void)b;
    return product ? mr_nn_blas_name() : "own loops";
}

static int FN(step_done)(struct mr_nn_backend *b)
{
    b->step++;
    return 0;
}

static int FN(set_step)(struct mr_nn_backend *b, uint64_t step)
{
    b->step = step;
    return 0;
}

static int FN(zero_totals)(struct mr_nn_backend *b)
{
    *b->totals = (struct mr_net_totals){.first_not_finite = UINT64_MAX};
    return 0;
}

static int FN(get_totals)(struct mr_nn_backend *b, struct mr_net_totals *out)
{
    *out = *b->totals;
    return 0;
}

static const uint64_t *FN(n_not_finite)(const struct mr_nn_backend *b)
{
    return &b->totals->n_not_finite;
}

const struct mr_nn_ops TABLE = {
    .open = FN(open),
    .close = mr_nn_cpu_close,
    .use_stream = FN(use_stream),
    .element = FN(element_size),
    .memory = FN(memory),
    .runs_on = FN(runs_on),
    .plan_conv = FN(plan_conv),
    .linear_forward = FN(linear_forward),
    .linear_backward = FN(linear_backward),
    .conv_forward = FN(conv_forward),
    .conv_backward = FN(conv_backward),
    .pool_forward = FN(pool_forward),
    .pool_backward = FN(pool_backward),
    .norm_forward = FN(norm_forward),
    .norm_backward = FN(norm_backward),
    .act_forward = FN(act_forward),
    .act_backward = FN(act_backward),
    .dropout = FN(dropout),
    .add = FN(add),
    .softmax = FN(softmax),
    .softmax_backward = FN(softmax_backward),
    .loss = FN(loss),
    .input = FN(input),
    .step_done = FN(step_done),
    .set_step = FN(set_step),
    .zero_totals = FN(zero_totals),
    .get_totals = FN(get_totals),
    .n_not_finite = FN(n_not_finite),
};
