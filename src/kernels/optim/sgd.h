/* Gradient descent: batch, mini-batch or stochastic, by the samples that the gradient is of. */
OPTIMIZER(sgd)
UPDATE(sgd, 0)

#ifdef MR_OPTIM_ARITHMETIC
SCALARS(sgd)
{
}

ELEMENT(sgd)
{
    *p = *p + c[0] * g;
}
#endif

#ifdef MR_OPTIM_OPTIONS
static const struct mr_option sgd_options[] = {
    LR("1e-3"),
    REAL_OPTION(momentum, "0", 0, MR_OPTIM_MOST, "how much of the last direction is kept"),
    REAL_OPTION(dampening, "0", -MR_OPTIM_MOST, MR_OPTIM_MOST,
                "how much of a gradient is left out of the direction"),
    FLAG_OPTION(nesterov, "0", "look ahead along the direction"),
    COMMON_OPTIONS("0", "0"),
};

static int sgd_check(const struct mr_optim_opts *opts)
{
    if (opts->nesterov && (opts->momentum <= 0 || opts->dampening != 0))
        return mr_error_set(MR_EOPTION, "%s: nesterov needs momentum > 0 and no dampening",
                            opts->name);
    return 0;
}

static enum mr_optim_update sgd_choose(const struct mr_optim_opts *opts,
                                       uint8_t state_of[MR_OPTIM_STATES])
{
    (void)state_of;
    return opts->nesterov        ? MR_OPTIM_nesterov
           : opts->momentum != 0 ? MR_OPTIM_momentum
                                 : MR_OPTIM_sgd;
}

static const struct mr_optim_ops optim_sgd = {
    .name = "sgd",
    .summary = "gradient descent, with or without momentum",
    .options = sgd_options,
    .state = {"momentum_buffer"},
    .choose = sgd_choose,
    .check = sgd_check,
};
#endif
