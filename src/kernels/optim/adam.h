/* Averages of gradients and of their squares, corrected for their start at 0. */
OPTIMIZER(adam)
UPDATE(adam, 2)

#ifdef MR_OPTIM_ARITHMETIC
/* Its variants in the files below it in the list begin with these. */
SCALARS(adam)
{
    double rest1 = 1 - pow(h->beta1, t), rest2 = 1 - pow(h->beta2, t);
    c[0] = -record->lr / rest1;
    c[1] = 1 - h->beta1;
    c[2] = h->beta2;
    c[3] = 1 - h->beta2;
    c[4] = 1 / sqrt(rest2);
    c[5] = h->eps;
}

ELEMENT(adam)
{
    *x = *x + c[1] * (g - *x);
    *y = c[2] * *y + c[3] * g * g;
    *p = *p + c[0] * *x / (ROOT(*y) * c[4] + c[5]);
}
#endif

#ifdef MR_OPTIM_OPTIONS
static const struct mr_option adam_options[] = {
    LR("1e-3"),
    BETAS("0.9/0.999"),
    EPS("1e-8"),
    FLAG_OPTION(amsgrad, "0", "divide by the greatest average so far"),
    COMMON_OPTIONS("0", "0"),
};

/* adamw's, too */
static enum mr_optim_update adam_choose(const struct mr_optim_opts *opts,
                                        uint8_t state_of[MR_OPTIM_STATES])
{
    (void)state_of;
    return opts->amsgrad ? MR_OPTIM_amsgrad : MR_OPTIM_adam;
}

static const struct mr_optim_ops optim_adam = {
    .name = "adam",
    .summary = "adaptive moments",
    .options = adam_options,
    .state = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .choose = adam_choose,
};
#endif
