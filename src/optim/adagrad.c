/* Each parameter's rate falls with the sum of its squared gradients. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("0.01"),
    MR_OPTIM_REAL(lr_decay, "0", 0, MR_OPTIM_MOST, "how fast the rate itself falls"),
    MR_OPTIM_REAL(initial_accumulator_value, "0", 0, MR_OPTIM_MOST, "what the sums start at"),
    MR_OPTIM_EPS("1e-10"),
    MR_OPTIM_COMMON("0", "0"),
};

static enum mr_optim_kernel kernel(const struct mr_optim_opts *opts, uint8_t state_of[MR_OPTIM_STATES])
{
    (void)opts, (void)state_of;
    return MR_OPTIM_adagrad;
}

const struct mr_optim_ops mr_optim_adagrad = {
    .name = "adagrad",
    .summary = "rates that fall with the sum of squared gradients",
    .options = options,
    .state = {"sum"},
    .kernel = kernel,
};
