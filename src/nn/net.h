/*
 * A net as a list of nodes over tensors, in the order of the forward pass; the backward pass goes
 * the other way.
 *
 * A tensor has one producer. Where it has several consumers (a residual's input) their gradients
 * are added up: the one whose backward comes first writes, the others add.
 */
#ifndef MR_NN_NET_H
#define MR_NN_NET_H

#include "nn/ops.h"

#define MR_NN_MAX_NODES  256
#define MR_NN_MAX_PARAMS 512

enum mr_node_kind {
    MR_NODE_LINEAR,
    MR_NODE_CONV,
    MR_NODE_POOL,
    MR_NODE_NORM,
    MR_NODE_ACT, /* MR_ACT_NONE copies */
    MR_NODE_DROPOUT,
    MR_NODE_SOFTMAX,
    MR_NODE_FLATTEN, /* from the backend's NHWC */
    MR_NODE_ADD,     /* out += in: out is a tensor that another node made */
};

struct mr_nn_tensor {
    uint32_t c, h, w;
    uint64_t count; /* elements of a sample */
    void *value, *grad;
};

struct mr_node {
    enum mr_node_kind kind;
    uint32_t in, out;      /* tensors */
    uint32_t weight, bias; /* parameters; MR_NN_NONE. Norms: gamma and beta */
    uint32_t mean;         /* buffers: running mean, and variance behind it */
    enum mr_act act;
    uint32_t k, stride, pad;
    int average;
    double p; /* dropout's; a norm's momentum */
    double epsilon;
    int per_channel, log;
    uint32_t number; /* dropouts: which, keys its draws */
    uint32_t fused;  /* of a pool: nodes from here that run as one; 0: alone */
    bool inside;     /* one of those, not the first */
    /* Part of its backward pass runs in another layer. A convolution: the pool behind it undoes its
     * activation and sums its bias' gradient. Dropout: the linear layer before it does all of
     * it. */
    bool undone;
    void *saved; /* norms: the batch's mean and 1/deviation */
};

#define MR_NN_NONE UINT32_MAX

struct mr_net {
    struct mr_device *device;
    struct mr_stream *stream; /* its own, for opening */
    struct mr_net_opts opts;
    char *model;
    const struct mr_nn_ops *ops;
    struct mr_nn_backend *backend;
    size_t element;        /* of activations */
    size_t param_element;  /* of parameters: 4 or 8 */
    enum mr_layout layout; /* the backend's */

    struct mr_node node[MR_NN_MAX_NODES];
    struct mr_nn_tensor tensor[MR_NN_MAX_NODES + 1]; /* 0 is the input */
    struct mr_net_layer layer[MR_NN_MAX_NODES];      /* for people: one a node */
    struct mr_net_param param[MR_NN_MAX_PARAMS], buffer[MR_NN_MAX_PARAMS];
    uint32_t last_n; /* samples of the last batch */
    uint32_t n_nodes, n_tensors, n_params, n_buffers, n_dropouts;
    uint32_t n_named[3]; /* conv, fc, bn so far */
    uint64_t n_flat, n_flat_buffers;
    bool pending_flat; /* while building: the tensor is seen as a vector */

    void *params, *grads, *low, *buffers, *arena;
    void *scratch; /* room for the largest tensor */
    void *outputs; /* of mr_net_eval(): f32, or f64 */
    uint64_t arena_bytes;

    /* mr_net_on_grads() */
    int (*on_grads)(void *user, uint64_t first);
    void *on_grads_user;
};

/* model.c: text to layers, and by model_nodes.c to nodes. */
int mr_model_build(struct mr_net *net);

/* init.c: PyTorch's initial values, and into the device's memory. */
int mr_net_init(struct mr_net *net);

/* fuse.c: marks what runs as one. */
void mr_net_fuse(struct mr_net *net);

/* net_run.c: the pool of a node, for batches of n. */
struct mr_nn_pool mr_net_pool_of(const struct mr_net *net, const struct mr_node *node, uint32_t n);

/* net_run.c. On a GPU: what it keeps in its memory. */
struct mr_nn_gpu_state *mr_net_gpu_state(const struct mr_net *net);
/* During a backward pass: fn(user, first) is called whenever the gradients from `first` on, counted
 * in the flat array, are enqueued; what it enqueues behind mr_net_fork_to() sees them. An error of
 * its ends the pass. fn NULL: no more. */
void mr_net_on_grads(struct mr_net *net, int (*fn)(void *user, uint64_t first), void *user);
/* Begins of parts of the flat gradients, last part first, as mr_net_on_grads() reports them, each of
 * at least `least` elements; 0 is the last. Returns their number, at most `most`. */
uint32_t mr_net_grad_parts(const struct mr_net *net, uint64_t least, uint64_t *parts,
                           uint32_t most);
/* On GPUs: `side` waits for what the net has enqueued to the stream; the stream waits for `side`. */
int mr_net_fork_to(struct mr_net *net, struct mr_stream *stream, struct mr_stream *side);
int mr_net_join_from(struct mr_net *net, struct mr_stream *stream, struct mr_stream *side);
/* mr_net_rescale() for gradients that are somewhere else. */
int mr_net_rescale_by(struct mr_net *net, const void *grads, struct mr_stream *stream);

/* net_run.c: makes it the one that calls of the backend use; MR_EMISUSE where it is none of the
 * device's. */
int mr_net_use_stream(const struct mr_net *net, struct mr_stream *stream, const char *call);

/* net_run.c: plans what the backend wants planned. */
int mr_net_prepare(struct mr_net *net);

/* model_nodes.c: the texts of shapes in errors: "32x26x26", "9216". */
const char *mr_shape_text(const struct mr_nn_tensor *t, char buf[32]);

#endif
