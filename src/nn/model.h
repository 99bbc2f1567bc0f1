/* Making a net's nodes, a layer after the other. */
#ifndef MR_NN_MODEL_H
#define MR_NN_MODEL_H

#include "nn/net.h"

/* What a layer's arguments are; one struct for all. */
struct mr_model_args {
    uint64_t n, k, s, p;
    int bias, channels;
    double share, epsilon, momentum;
    const char *name; /* of the layer, as it is written */
    /* of those that are added alike: an average or a maximum, an activation, a logarithm or not */
    int which;
};

struct mr_model_builder {
    struct mr_net *net;
    uint32_t at;     /* the tensor that the next layer reads */
    uint32_t number; /* of the layer in the text, from 1 */
    uint32_t depth;
    /* the input of the latest residual: its producer is done, since the way around reads it, too */
    uint32_t fence;
};

/* model_nodes.c: the layer behind the last. Return 0, MR_EOPTION, MR_ESHAPE, MR_ELIMIT. */
int mr_model_add_linear(struct mr_model_builder *b, const struct mr_model_args *a);
int mr_model_add_conv(struct mr_model_builder *b, const struct mr_model_args *a);
int mr_model_add_pool(struct mr_model_builder *b, const struct mr_model_args *a);
int mr_model_add_norm(struct mr_model_builder *b, const struct mr_model_args *a);
int mr_model_add_act(struct mr_model_builder *b, const struct mr_model_args *a);
int mr_model_add_dropout(struct mr_model_builder *b, const struct mr_model_args *a);
int mr_model_add_flatten(struct mr_model_builder *b, const struct mr_model_args *a);
int mr_model_add_softmax(struct mr_model_builder *b, const struct mr_model_args *a);
/* The end of a residual whose body reads tensor `from` and has been added. */
int mr_model_add_sum(struct mr_model_builder *b, uint32_t from);

#endif
