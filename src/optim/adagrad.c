/* Each parameter's rate falls with the sum of its squared gradients. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("0.01"),
    MR_OPTIM_REAL(lr_decay, "0", 0, MR_OPTIM_MOST, "how fast the rate itself falls"),
    MR_OPTIM_REAL(initial_accumulator_value, "0", 0, MR_OPTIM_MOST, "what the sums start at"),
    MR_OPTIM_EPS("1e-10"),
    MR_OPTIM_COMMON("0", "0"),
};

const struct mr_optim_ops mr_optim_adagrad = {
    .name = "adagrad",
    .summary = "rates that fall with the sum of squared gradients",
    .options = options,
    .state = {"sum"},
    .kernel = MR_OPTIM_adagrad,
};
