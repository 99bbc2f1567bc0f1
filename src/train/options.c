/* Defaults of options, names of losses, sizes of nets. */
#include "train/trainer.h"

void mr_trainer_opts_fill(struct mr_trainer_opts *opts, size_t size)
{
    const struct mr_trainer_opts full = {
        .model = "mnist-cnn",
        .optimizer = "adam",
        .schedule = "constant",
        .lr = -1,
        .loss = MR_CROSS_ENTROPY,
        .precision = MR_PRECISION_TF32,
        .batch_size = 64,
        .epochs = 10,
        .shuffle = 1,
        .graph = 1,
        .wire = MR_F32,
        .split = "auto",
    };
    mr_opts_copy(opts, size, &full, sizeof full);
}

const char *mr_loss_name(enum mr_loss loss)
{
    return loss == MR_NLL ? "nll" : loss == MR_MSE ? "mse" : "cross-entropy";
}

const struct mr_net_layer *mr_train_last_layer(const struct mr_net *net)
{
    const struct mr_net_layer *l, *last = NULL;
    for (uint32_t i = 0; (l = mr_net_layer_get(net, i)); i++)
        last = l;
    return last;
}

uint32_t mr_train_outputs(const struct mr_net *net)
{
    if (!net)
        return 0;
    const struct mr_net_layer *last = mr_train_last_layer(net);
    return last ? last->out[0] * last->out[1] * last->out[2] : 0;
}
