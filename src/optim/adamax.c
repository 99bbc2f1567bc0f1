/* Adam with the infinity norm in the place of the second average. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("2e-3"),
    MR_OPTIM_BETAS("0.9/0.999"),
    MR_OPTIM_EPS("1e-8"),
    MR_OPTIM_COMMON("0", "0"),
};

const struct mr_optim_ops mr_optim_adamax = {
    .name = "adamax",
    .summary = "adam with the infinity norm",
    .options = options,
    .state = {"exp_avg", "exp_inf"},
    .kernel = MR_OPTIM_adamax,
};
