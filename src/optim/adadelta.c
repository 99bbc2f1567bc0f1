/* Steps in the parameters' own units: no rate to choose. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("1"),
    MR_OPTIM_REAL(rho, "0.9", 0, 1, "decay of both averages"),
    MR_OPTIM_EPS("1e-6"),
    MR_OPTIM_COMMON("0", "0"),
};

const struct mr_optim_ops mr_optim_adadelta = {
    .name = "adadelta",
    .summary = "steps scaled by the average of the last ones",
    .options = options,
    .state = {"square_avg", "acc_delta"},
    .kernel = MR_OPTIM_adadelta,
};
