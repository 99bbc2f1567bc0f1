/* Gradient descent: batch, mini-batch or stochastic, by the samples that the gradient is of. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("1e-3"),
    MR_OPTIM_REAL(momentum, "0", 0, MR_OPTIM_MOST, "how much of the last direction is kept"),
    MR_OPTIM_REAL(dampening, "0", -MR_OPTIM_MOST, MR_OPTIM_MOST, "how much of a gradient is left out of the direction"),
    MR_OPTIM_FLAG(nesterov, "0", "look ahead along the direction"),
    MR_OPTIM_COMMON("0", "0"),
};

static int check(const struct mr_optim_opts *opts)
{
    if (opts->nesterov && (opts->momentum <= 0 || opts->dampening != 0))
        return mr_error_set(MR_EOPTION, "%s: nesterov wants momentum > 0 and no dampening", opts->name);
    return 0;
}

static enum mr_optim_kernel pick(const struct mr_optim_opts *opts, uint8_t state_of[MR_OPTIM_STATES])
{
    (void)state_of;
    return opts->nesterov ? MR_OPTIM_nesterov : opts->momentum != 0 ? MR_OPTIM_momentum : MR_OPTIM_sgd;
}

const struct mr_optim_ops mr_optim_sgd = {
    .name = "sgd",
    .summary = "gradient descent, with or without momentum",
    .options = options,
    .state = {"momentum_buffer"},
    .pick = pick,
    .check = check,
};
