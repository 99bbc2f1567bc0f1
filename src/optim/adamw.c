/* Adam whose weight decay does not go through the averages. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("1e-3"),          MR_OPTIM_BETAS("0.9/0.999"),
    MR_OPTIM_EPS("1e-8"),         MR_OPTIM_FLAG(amsgrad, "0", "divide by the greatest average so far"),
    MR_OPTIM_COMMON("1e-2", "1"),
};

const struct mr_optim_ops mr_optim_adamw = {
    .name = "adamw",
    .summary = "adam with decoupled weight decay",
    .options = options,
    .state = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .pick = mr_optim_pick_adam,
};
