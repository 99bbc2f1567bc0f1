/* Adam with Nesterov's momentum. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("2e-3"),
    MR_OPTIM_BETAS("0.9/0.999"),
    MR_OPTIM_EPS("1e-8"),
    MR_OPTIM_REAL(momentum_decay, "4e-3", 0, MR_OPTIM_MOST, "how fast the first beta reaches its value"),
    MR_OPTIM_COMMON("0", "0"),
};

const struct mr_optim_ops mr_optim_nadam = {
    .name = "nadam",
    .summary = "adam with Nesterov's momentum",
    .options = options,
    .state = {"exp_avg", "exp_avg_sq"},
    .kernel = MR_OPTIM_nadam,
};
