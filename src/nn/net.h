/*
 * A net as a list of nodes over tensors, in the order of the forward pass; the backward pass goes
 * the other way.
 *
 * A net may be a part of one (part.c): a range of its nodes, on a device of its own, with the flat
 * arrays of that range. Its input is then the output of the part before it, which arrives in the
 * backend's layout, and whose gradient goes back. Several passes at a time, as a pipeline has,
 * need an activation memory each: mr_net_share() makes another one over the same parameters.
 *
 * A tensor has one producer. Where it has several consumers (a residual's input) their gradients
 * are added up: the one whose backward comes first writes, the others add.
 */
#ifndef MR_NN_NET_H
#define MR_NN_NET_H

#include "nn/ops.h"

#include <stdatomic.h>

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
    /* part.c; of a whole net 0 */
    bool inner, sends;    /* tensor 0 is what another part made; its output goes to another */
    uint32_t first_param; /* the number in the whole net of param[0] */
    struct mr_net *owner; /* whose flat arrays these are; NULL: its own */
    bool queued;          /* queue.c: its passes are work of the device's queue */
    atomic_int failed;    /* what one of them returned */
};

/* A part: nodes first .. end - 1 of the whole net; end 0: up to the last. */
struct mr_net_part {
    uint32_t first, end;
};

/* net.c: mr_net_create() of a part. plan: only nodes and backend, no memory: for looking at. */
int mr_net_create_part(struct mr_device *device, const struct mr_net_opts *opts,
                       const struct mr_net_part *part, bool plan, struct mr_net **out);
/* net.c: other activations, running statistics, totals and count of passes over the same parameters
 * and gradients. owner must outlive it. */
int mr_net_share(struct mr_net *owner, struct mr_net **out);

/* part.c. May a part begin with this node of a whole net? */
bool mr_net_can_cut(const struct mr_net *net, uint32_t node);
/* Leaves only the part. Returns 0 or MR_EOPTION. */
int mr_net_cut(struct mr_net *net, const struct mr_net_part *part);
/* The halves of mr_net_train(). Between them the gradient of a part's output has to arrive. The
 * last part's batch has labels, the others' none. */
int mr_net_forward(struct mr_net *net, const struct mr_net_batch *batch, struct mr_stream *stream);
int mr_net_backward(struct mr_net *net, const struct mr_net_batch *batch, struct mr_stream *stream);
/* Where values and gradients of a part's input and output are; bytes of a sample. */
struct mr_net_edge {
    void *value, *grad;
    uint64_t bytes;
};
void mr_net_edges(const struct mr_net *net, struct mr_net_edge *in, struct mr_net_edge *out);
/* time.c: the time of each node's passes, forward and back, over a batch of max_batch samples.
 * [out] ns: of net->n_nodes. The net is of no more use. Blocks. */
int mr_net_time(struct mr_net *net, uint64_t *ns);

/* queue.c: what a call does, at once or as work of the queue of a device that computes by the host.
 */
enum mr_net_what {
    MR_NET_TRAIN,
    MR_NET_FORWARD,
    MR_NET_BACKWARD,
    MR_NET_EVAL,
    MR_NET_OUTPUTS, /* MR_NET_EVAL, and its outputs are wanted */
    MR_NET_SET_STEP,
    MR_NET_ZERO_TOTALS
};
struct mr_net_job {
    struct mr_net *net;
    enum mr_net_what what;
    uint64_t step;
    struct mr_net_batch batch;
};
int mr_net_enqueue(const struct mr_net_job *job, struct mr_stream *stream);
/* Waits until all queued passes are done. Returns the error of a failed one, once. */
int mr_net_wait(struct mr_net *net, struct mr_stream *stream);
/* net_run.c. marks: NULL, or events: 0 .. n_nodes around each node's forward pass, then as many
 * around those back, in the nodes' order. */
int mr_net_run(const struct mr_net_job *job, struct mr_event *const *marks);

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
/* grads.c. During a backward pass: fn(user, first) is called whenever the gradients from `first`
 * on, counted in the flat array, are enqueued; what it enqueues behind mr_net_fork_to() sees them.
 * An error of its ends the pass. fn NULL: no more. */
void mr_net_on_grads(struct mr_net *net, int (*fn)(void *user, uint64_t first), void *user);
/* net_run.c: the nodes from the i-th on are done. */
int mr_net_tell_grads(struct mr_net *net, uint32_t i);
/* Begins of parts of the flat gradients, last part first, as mr_net_on_grads() reports them, each
 * of at least `least` elements; 0 is the last. Returns their number, at most `most`. */
uint32_t mr_net_grad_parts(const struct mr_net *net, uint64_t least, uint64_t *parts,
                           uint32_t most);
/* On GPUs: `side` waits for what the net has enqueued to the stream; the stream waits for
 * `side`. */
int mr_net_fork_to(struct mr_net *net, struct mr_stream *stream, struct mr_stream *side);
int mr_net_join_from(struct mr_net *net, struct mr_stream *stream, struct mr_stream *side);
/* mr_net_rescale() for gradients that are somewhere else. */
int mr_net_rescale_by(struct mr_net *net, const void *grads, struct mr_stream *stream);

/* The halves of it, where a part of the gradients is elsewhere. find: [out] found, in the device's
 * memory: 1 if one of n is not finite, else 0. rescale: as if that was found if one of n_found is
 * not 0. Other dtypes than fp16: nothing. */
int mr_net_find_overflow(struct mr_net *net, const void *grads, uint64_t n, float *found,
                         struct mr_stream *stream);
int mr_net_rescale_found(struct mr_net *net, const float *found, uint32_t n_found,
                         struct mr_stream *stream);

/* net_run.c: makes it the one that calls of the backend use; MR_EMISUSE where it is none of the
 * device's. */
int mr_net_use_stream(const struct mr_net *net, struct mr_stream *stream, const char *call);

/* net_run.c: plans what the backend wants planned. */
int mr_net_prepare(struct mr_net *net);

/* model_nodes.c: the texts of shapes in errors: "32x26x26", "9216". */
const char *mr_shape_text(const struct mr_nn_tensor *t, char buf[32]);

#endif
