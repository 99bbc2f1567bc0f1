/* Gradients divided by the root of their mean square. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("0.01"),
    MR_OPTIM_REAL(alpha, "0.99", 0, 1, "decay of the average"),
    MR_OPTIM_EPS("1e-8"),
    MR_OPTIM_REAL(momentum, "0", 0, MR_OPTIM_MOST, "how much of the last direction is kept"),
    MR_OPTIM_FLAG(centered, "0", "divide by the standard deviation instead"),
    MR_OPTIM_COMMON("0", "0"),
};

static enum mr_optim_kernel pick(const struct mr_optim_opts *opts, uint8_t state_of[MR_OPTIM_STATES])
{
    if (opts->centered)
        return opts->momentum > 0 ? MR_OPTIM_rmsprop_centered_momentum : MR_OPTIM_rmsprop_centered;
    state_of[1] = 2;
    return opts->momentum > 0 ? MR_OPTIM_rmsprop_momentum : MR_OPTIM_rmsprop;
}

const struct mr_optim_ops mr_optim_rmsprop = {
    .name = "rmsprop",
    .summary = "gradients divided by the root of their mean square",
    .options = options,
    .state = {"square_avg", "grad_avg", "momentum_buffer"},
    .pick = pick,
};
