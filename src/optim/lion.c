/* Steps of one size, along the sign of an average. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("1e-4"),
    MR_OPTIM_BETAS("0.9/0.99"),
    MR_OPTIM_COMMON("0", "1"),
};

const struct mr_optim_ops mr_optim_lion = {
    .name = "lion",
    .summary = "the sign of an average of gradients",
    .options = options,
    .state = {"exp_avg"},
    .kernel = MR_OPTIM_lion,
};
