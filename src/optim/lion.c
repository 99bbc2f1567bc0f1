/* Steps of one size, along the sign of an average. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("1e-4"),
    MR_OPTIM_BETAS("0.9/0.99"),
    MR_OPTIM_COMMON("0", "1"),
};

static enum mr_optim_kernel kernel(const struct mr_optim_opts *opts, uint8_t state_of[MR_OPTIM_STATES])
{
    (void)opts, (void)state_of;
    return MR_OPTIM_lion;
}

const struct mr_optim_ops mr_optim_lion = {
    .name = "lion",
    .summary = "the sign of an average of gradients",
    .options = options,
    .state = {"exp_avg"},
    .kernel = kernel,
};
