/* Steps in the parameters' own units: no rate to choose. */
OPTIMIZER(adadelta)
UPDATE(adadelta, 2)

#ifdef MR_OPTIM_ARITHMETIC
SCALARS(adadelta)
{
    c[1] = h->rho;
    c[2] = 1 - h->rho;
    c[3] = h->eps;
}

ELEMENT(adadelta)
{
    *x = c[1] * *x + c[2] * g * g;
    REAL delta = ROOT(*y + c[3]) / ROOT(*x + c[3]) * g;
    *y = c[1] * *y + c[2] * delta * delta;
    *p = *p + c[0] * delta;
}
#endif

#ifdef MR_OPTIM_OPTIONS
static const struct mr_option adadelta_options[] = {
    LR("1"),
    REAL_OPTION(rho, "0.9", 0, 1, "decay of both averages"),
    EPS("1e-6"),
    COMMON_OPTIONS("0", "0"),
};

static const struct mr_optim_ops optim_adadelta = {
    .name = "adadelta",
    .summary = "steps scaled by the average of the last ones",
    .options = adadelta_options,
    .state = {"square_avg", "acc_delta"},
    .update = MR_OPTIM_adadelta,
};
#endif
