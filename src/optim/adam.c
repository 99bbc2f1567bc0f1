/* Averages of gradients and of their squares, corrected for their start at 0. */
#include "optim/optim.h"

static const struct mr_option options[] = {
    MR_OPTIM_LR("1e-3"),       MR_OPTIM_BETAS("0.9/0.999"),
    MR_OPTIM_EPS("1e-8"),      MR_OPTIM_FLAG(amsgrad, "0", "divide by the greatest average so far"),
    MR_OPTIM_COMMON("0", "0"),
};

enum mr_optim_kernel mr_optim_pick_adam(const struct mr_optim_opts *opts, uint8_t state_of[MR_OPTIM_STATES])
{
    (void)state_of;
    return opts->amsgrad ? MR_OPTIM_amsgrad : MR_OPTIM_adam;
}

const struct mr_optim_ops mr_optim_adam = {
    .name = "adam",
    .summary = "adaptive moments",
    .options = options,
    .state = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .pick = mr_optim_pick_adam,
};
