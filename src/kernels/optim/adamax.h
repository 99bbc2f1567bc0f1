/* Adam with the infinity norm in the place of the second average. */
OPTIMIZER(adamax)
UPDATE(adamax, 2)

#ifdef MR_OPTIM_ARITHMETIC
SAME_SCALARS(adamax, adam)

ELEMENT(adamax)
{
    *x = *x + c[1] * (g - *x);
    *y = NAME(greater)(c[2] * *y, SIZE(g) + c[5]);
    *p = *p + c[0] * *x / *y;
}
#endif

#ifdef MR_OPTIM_OPTIONS
static const struct mr_option adamax_options[] = {
    LR("2e-3"),
    BETAS("0.9/0.999"),
    EPS("1e-8"),
    COMMON_OPTIONS("0", "0"),
};

static const struct mr_optim_ops optim_adamax = {
    .name = "adamax",
    .summary = "adam with the infinity norm",
    .options = adamax_options,
    .state = {"exp_avg", "exp_inf"},
    .update = MR_OPTIM_adamax,
};
#endif
