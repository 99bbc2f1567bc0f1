/* Adam with Nesterov's momentum. */
OPTIMIZER(nadam)
UPDATE(nadam, 2)

#ifdef MR_OPTIM_ARITHMETIC
MR_HOST_DEVICE double NAME(nadam_mu)(const struct mr_optim_hyper *h, double t)
{
    return h->beta1 * (1 - 0.5 * pow(0.96, t * h->momentum_decay));
}

SCALARS(nadam)
{
    double lr = record->lr, mu = NAME(nadam_mu)(h, t), next = NAME(nadam_mu)(h, t + 1);
    NAME(adam_scalars)(h, record, t, s, c);
    s->mu_product = record->mu_product * mu;
    c[6] = -lr * (1 - mu) / (1 - s->mu_product);
    c[0] = -lr * next / (1 - s->mu_product * next);
}

ELEMENT(nadam)
{
    *x = *x + c[1] * (g - *x);
    *y = c[2] * *y + c[3] * g * g;
    REAL down = ROOT(*y) * c[4] + c[5];
    *p = *p + c[6] * g / down;
    *p = *p + c[0] * *x / down;
}
#endif

#ifdef MR_OPTIM_OPTIONS
static const struct mr_option nadam_options[] = {
    LR("2e-3"),
    BETAS("0.9/0.999"),
    EPS("1e-8"),
    REAL_OPTION(momentum_decay, "4e-3", 0, MR_OPTIM_MOST,
                "how fast the first beta reaches its value"),
    COMMON_OPTIONS("0", "0"),
};

static const struct mr_optim_ops optim_nadam = {
    .name = "nadam",
    .summary = "adam with Nesterov's momentum",
    .options = nadam_options,
    .state = {"exp_avg", "exp_avg_sq"},
    .update = MR_OPTIM_nadam,
};
#endif
