/* Adam whose second average never falls. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("1e-3"),
    MR_OPTIM_BETAS("0.9/0.999"),
    MR_OPTIM_EPS("1e-8"),
    MR_OPTIM_COMMON("0", "0"),
};

const struct mr_optim_ops mr_optim_amsgrad = {
    .name = "amsgrad",
    .summary = "adam with the greatest second average so far",
    .options = options,
    .state = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .kernel = MR_OPTIM_amsgrad,
};
