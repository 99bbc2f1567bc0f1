/* Gradient descent with Nesterov's momentum, as PyTorch writes it. */
OPTIMIZER(nesterov)
UPDATE(nesterov, 1)

#ifdef MR_OPTIM_ARITHMETIC
SCALARS(nesterov)
{
    NAME(momentum_scalars)(h, record, t, s, c);
    c[3] = h->momentum;
}

ELEMENT(nesterov)
{
    *x = c[1] * *x + c[2] * g;
    *p = *p + c[0] * (g + c[3] * *x);
}
#endif

#ifdef MR_OPTIM_OPTIONS
static const struct mr_option nesterov_options[] = {
    LR("1e-3"),
    REAL_OPTION(momentum, "0.9", 1e-30, MR_OPTIM_MOST, "how much of the last direction is kept"),
    COMMON_OPTIONS("0", "0"),
};

static const struct mr_optim_ops optim_nesterov = {
    .name = "nesterov",
    .summary = "gradient descent with Nesterov's momentum",
    .options = nesterov_options,
    .state = {"momentum_buffer"},
    .update = MR_OPTIM_nesterov,
};
#endif
