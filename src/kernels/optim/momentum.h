/* Gradient descent with Polyak's heavy ball. */
OPTIMIZER(momentum)
UPDATE(momentum, 1)

#ifdef MR_OPTIM_ARITHMETIC
/* The first gradient is taken whole. */
SCALARS(momentum)
{
    c[1] = t == 1 ? 0 : h->momentum;
    c[2] = t == 1 ? 1 : 1 - h->dampening;
}

ELEMENT(momentum)
{
    *x = c[1] * *x + c[2] * g;
    *p = *p + c[0] * *x;
}
#endif

#ifdef MR_OPTIM_OPTIONS
static const struct mr_option momentum_options[] = {
    LR("1e-3"),
    REAL_OPTION(momentum, "0.9", 0, MR_OPTIM_MOST, "how much of the last direction is kept"),
    REAL_OPTION(dampening, "0", -MR_OPTIM_MOST, MR_OPTIM_MOST,
                "how much of a gradient is left out of the direction"),
    COMMON_OPTIONS("0", "0"),
};

static const struct mr_optim_ops optim_momentum = {
    .name = "momentum",
    .summary = "gradient descent with momentum",
    .options = momentum_options,
    .state = {"momentum_buffer"},
    .update = MR_OPTIM_momentum,
};
#endif
