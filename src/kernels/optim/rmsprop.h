/* Gradients divided by the root of their mean square; also by their standard deviation. */
OPTIMIZER(rmsprop)
UPDATE(rmsprop, 1)
UPDATE(rmsprop_momentum, 2)
UPDATE(rmsprop_centered, 2)
UPDATE(rmsprop_centered_momentum, 3)

#ifdef MR_OPTIM_ARITHMETIC
SCALARS(rmsprop)
{
    c[1] = h->alpha;
    c[2] = 1 - h->alpha;
    c[3] = h->eps;
    c[4] = h->momentum;
}

SAME_SCALARS(rmsprop_momentum, rmsprop)
SAME_SCALARS(rmsprop_centered, rmsprop)
SAME_SCALARS(rmsprop_centered_momentum, rmsprop)

ELEMENT(rmsprop)
{
    *x = c[1] * *x + c[2] * g * g;
    *p = *p + c[0] * g / (ROOT(*x) + c[3]);
}

ELEMENT(rmsprop_momentum)
{
    *x = c[1] * *x + c[2] * g * g;
    *y = c[4] * *y + g / (ROOT(*x) + c[3]);
    *p = *p + c[0] * *y;
}

ELEMENT(rmsprop_centered)
{
    *x = c[1] * *x + c[2] * g * g;
    *y = *y + c[2] * (g - *y);
    *p = *p + c[0] * g / (ROOT(*x - *y * *y) + c[3]);
}

ELEMENT(rmsprop_centered_momentum)
{
    *x = c[1] * *x + c[2] * g * g;
    *y = *y + c[2] * (g - *y);
    *z = c[4] * *z + g / (ROOT(*x - *y * *y) + c[3]);
    *p = *p + c[0] * *z;
}
#endif

#ifdef MR_OPTIM_OPTIONS
static const struct mr_option rmsprop_options[] = {
    LR("0.01"),
    REAL_OPTION(alpha, "0.99", 0, 1, "decay of the average"),
    EPS("1e-8"),
    REAL_OPTION(momentum, "0", 0, MR_OPTIM_MOST, "how much of the last direction is kept"),
    FLAG_OPTION(centered, "0", "divide by the standard deviation instead"),
    COMMON_OPTIONS("0", "0"),
};

static enum mr_optim_update rmsprop_choose(const struct mr_optim_opts *opts,
                                           uint8_t state_of[MR_OPTIM_STATES])
{
    if (opts->centered)
        return opts->momentum > 0 ? MR_OPTIM_rmsprop_centered_momentum : MR_OPTIM_rmsprop_centered;
    state_of[1] = 2;
    return opts->momentum > 0 ? MR_OPTIM_rmsprop_momentum : MR_OPTIM_rmsprop;
}

static const struct mr_optim_ops optim_rmsprop = {
    .name = "rmsprop",
    .summary = "gradients divided by the root of their mean square",
    .options = rmsprop_options,
    .state = {"square_avg", "grad_avg", "momentum_buffer"},
    .choose = rmsprop_choose,
};
#endif
