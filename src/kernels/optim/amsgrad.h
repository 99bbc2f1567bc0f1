/* Adam whose second average never falls. */
OPTIMIZER(amsgrad)
UPDATE(amsgrad, 3)

#ifdef MR_OPTIM_ARITHMETIC
SAME_SCALARS(amsgrad, adam)

ELEMENT(amsgrad)
{
    *x = *x + c[1] * (g - *x);
    *y = c[2] * *y + c[3] * g * g;
    *z = NAME(greater)(*z, *y);
    *p = *p + c[0] * *x / (ROOT(*z) * c[4] + c[5]);
}
#endif

#ifdef MR_OPTIM_OPTIONS
static const struct mr_option amsgrad_options[] = {
    LR("1e-3"),
    BETAS("0.9/0.999"),
    EPS("1e-8"),
    COMMON_OPTIONS("0", "0"),
};

static const struct mr_optim_ops optim_amsgrad = {
    .name = "amsgrad",
    .summary = "adam with the greatest second average so far",
    .options = amsgrad_options,
    .state = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .update = MR_OPTIM_amsgrad,
};
#endif
