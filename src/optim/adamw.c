/* Adam whose weight decay does not go through the averages. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("1e-3"),          MR_OPTIM_BETAS("0.9/0.999"),
    MR_OPTIM_EPS("1e-8"),         MR_OPTIM_FLAG(amsgrad, "0", "divide by the greatest average so far"),
    MR_OPTIM_COMMON("1e-2", "1"),
};

static enum mr_optim_kernel kernel(const struct mr_optim_opts *opts, uint8_t state_of[MR_OPTIM_STATES])
{
    (void)state_of;
    return opts->amsgrad ? MR_OPTIM_amsgrad : MR_OPTIM_adam;
}

const struct mr_optim_ops mr_optim_adamw = {
    .name = "adamw",
    .summary = "adam with decoupled weight decay",
    .options = options,
    .state = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .kernel = kernel,
};
