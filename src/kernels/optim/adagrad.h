/* Each parameter's rate falls with the sum of its squared gradients. */
OPTIMIZER(adagrad)
UPDATE(adagrad, 1)

#ifdef MR_OPTIM_ARITHMETIC
SCALARS(adagrad)
{
    c[0] /= 1 + (t - 1) * h->lr_decay;
    c[1] = h->eps;
}

ELEMENT(adagrad)
{
    *x = *x + g * g;
    *p = *p + c[0] * g / (ROOT(*x) + c[1]);
}
#endif

#ifdef MR_OPTIM_OPTIONS
static const struct mr_option adagrad_options[] = {
    LR("0.01"),
    REAL_OPTION(lr_decay, "0", 0, MR_OPTIM_MOST, "how fast the rate itself falls"),
    REAL_OPTION(initial_accumulator_value, "0", 0, MR_OPTIM_MOST, "what the sums start at"),
    EPS("1e-10"),
    COMMON_OPTIONS("0", "0"),
};

static const struct mr_optim_ops optim_adagrad = {
    .name = "adagrad",
    .summary = "rates that fall with the sum of squared gradients",
    .options = adagrad_options,
    .state = {"sum"},
    .update = MR_OPTIM_adagrad,
};
#endif
