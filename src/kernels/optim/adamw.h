/* Adam whose weight decay does not go through the averages. Its update is adam's. */
OPTIMIZER(adamw)

#ifdef MR_OPTIM_OPTIONS
static const struct mr_option adamw_options[] = {
    LR("1e-3"),
    BETAS("0.9/0.999"),
    EPS("1e-8"),
    FLAG_OPTION(amsgrad, "0", "divide by the greatest average so far"),
    COMMON_OPTIONS("1e-2", "1"),
};

static const struct mr_optim_ops optim_adamw = {
    .name = "adamw",
    .summary = "adam with decoupled weight decay",
    .options = adamw_options,
    .state = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .choose = adam_choose,
};
#endif
