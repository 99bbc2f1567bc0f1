/* Gradient descent with Nesterov's momentum, as PyTorch writes it. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("1e-3"),
    MR_OPTIM_REAL(momentum, "0.9", 1e-30, MR_OPTIM_MOST, "how much of the last direction is kept"),
    MR_OPTIM_COMMON("0", "0"),
};

const struct mr_optim_ops mr_optim_nesterov = {
    .name = "nesterov",
    .summary = "gradient descent with Nesterov's momentum",
    .options = options,
    .state = {"momentum_buffer"},
    .kernel = MR_OPTIM_nesterov,
};
