/* Gradient descent with Polyak's heavy ball. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("1e-3"),
    MR_OPTIM_REAL(momentum, "0.9", 0, MR_OPTIM_MOST, "how much of the last direction is kept"),
    MR_OPTIM_REAL(dampening, "0", -MR_OPTIM_MOST, MR_OPTIM_MOST, "how much of a gradient is left out of the direction"),
    MR_OPTIM_COMMON("0", "0"),
};

const struct mr_optim_ops mr_optim_momentum = {
    .name = "momentum",
    .summary = "gradient descent with momentum",
    .options = options,
    .state = {"momentum_buffer"},
    .kernel = MR_OPTIM_momentum,
};
