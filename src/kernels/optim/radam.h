/* Adam that starts as momentum until the variance of its second average is small. */
OPTIMIZER(radam)
UPDATE(radam, 2)

#ifdef MR_OPTIM_ARITHMETIC
/* c[6]: 1: with the adaptive term, whose factor is then in c[0]. */
SCALARS(radam)
{
    NAME(adam_scalars)(h, record, t, s, c);
    double power = pow(h->beta2, t), limit = 2 / (1 - h->beta2) - 1;
    double rho = limit - 2 * t * power / (1 - power);
    c[6] = rho > 5;
    if (rho > 5)
        c[0] *= sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)) *
                sqrt(1 - power);
}

ELEMENT(radam)
{
    *x = *x + c[1] * (g - *x);
    *y = c[2] * *y + c[3] * g * g;
    *p = *p + c[0] * *x / (c[6] != 0 ? ROOT(*y) + c[5] : 1);
}
#endif

#ifdef MR_OPTIM_OPTIONS
static const struct mr_option radam_options[] = {
    LR("1e-3"),
    BETAS("0.9/0.999"),
    EPS("1e-8"),
    COMMON_OPTIONS("0", "0"),
};

static const struct mr_optim_ops optim_radam = {
    .name = "radam",
    .summary = "adam, rectified at its start",
    .options = radam_options,
    .state = {"exp_avg", "exp_avg_sq"},
    .update = MR_OPTIM_radam,
};
#endif
