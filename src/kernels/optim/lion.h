/* Steps of one size, along the sign of an average. */
OPTIMIZER(lion)
UPDATE(lion, 1)

#ifdef MR_OPTIM_ARITHMETIC
SCALARS(lion)
{
    c[1] = h->beta1;
    c[2] = 1 - h->beta1;
    c[3] = h->beta2;
    c[4] = 1 - h->beta2;
}

/* The sign of NaN is NaN. */
ELEMENT(lion)
{
    REAL way = c[1] * *x + c[2] * g;
    *p = *p + c[0] * (way > 0 ? 1 : way < 0 ? -1 : way);
    *x = c[3] * *x + c[4] * g;
}
#endif

#ifdef MR_OPTIM_OPTIONS
static const struct mr_option lion_options[] = {
    LR("1e-4"),
    BETAS("0.9/0.99"),
    COMMON_OPTIONS("0", "1"),
};

static const struct mr_optim_ops optim_lion = {
    .name = "lion",
    .summary = "the sign of an average of gradients",
    .options = lion_options,
    .state = {"exp_avg"},
    .update = MR_OPTIM_lion,
};
#endif
