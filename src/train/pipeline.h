/*
 * A step of a pipeline, on its way through the files that make it:
 *
 * pipeline.c          the step from its batch to its update, tests, and what is read of them
 * pipeline_order.c    which pass comes next
 * pipeline_pass.c     a micro-batch's pass through a stage, and what goes on to the next one
 * pipeline_rows.c     the samples and labels of a micro-batch
 *
 * The host only enqueues, stage by stage in an order in which everything that a piece of work waits
 * for has been enqueued before; events carry what one device waits for on another. On "cpu", where
 * work runs as it is enqueued, that order alone does.
 *
 * Memory of a slot is used again without further waits: a stage's next forward pass there comes
 * after its backward pass, which came after the next stage's, and so on up to the last.
 */
#ifndef MR_TRAIN_PIPELINE_H
#define MR_TRAIN_PIPELINE_H

#include "device/device.h"
#include "train/stages.h"

struct mr_train_passes {
    struct mr_trainer *t;
    struct mr_train_pipeline *p;
    const struct mr_train_part *part;
    struct mr_net_batch batch;        /* the whole one */
    uint32_t n[MR_TRAIN_STAGES][2];   /* passes that were enqueued: forward, backward */
    uint32_t height[MR_TRAIN_STAGES]; /* of the tree's stack of vectors */
    struct mr_train_hop hop;          /* over ranks: what goes before the next pass */
};

static inline int mr_train_launch(struct mr_stream *stream, enum mr_sum_kernel which,
                                  const void *args)
{
    return mr_launch_kernel(stream, &mr_sum_kernel[which], args, NULL);
}

/* pipeline_rows.c: labels go to the last stage, and the micro-batches' shares of the loss, if they
 * changed. */
int mr_train_send_labels(struct mr_trainer *t, const struct mr_train_part *part);
int mr_train_set_shares(struct mr_trainer *t, const struct mr_train_part *part);
/* [out] out: what stage s reads of the n samples of micro-batch a: on the first the input, if it is
 * wanted, on the last the labels. */
int mr_train_make_batch(const struct mr_train_passes *ps, uint32_t s, uint32_t a, uint32_t n,
                        bool input, struct mr_net_batch *out);

/* pipeline_pass.c: the i-th micro-batch of stage s, forward or backward. */
int mr_train_forward(struct mr_train_passes *ps, uint32_t s, uint32_t i);
int mr_train_backward(struct mr_train_passes *ps, uint32_t s, uint32_t i);
/* The output of slot k, n samples, goes to the next stage; over ranks with the next hop. */
int mr_train_send_value(struct mr_train_passes *ps, uint32_t s, uint32_t k, uint32_t n);
/* Over ranks: what the last pass made goes, and what this one needs comes: of n samples, in slot k.
 * is_forward NULL: it was the last. */
int mr_train_hop_before(struct mr_train_passes *ps, const bool *is_forward, uint32_t k, uint32_t n);
/* The running statistics of a stage. */
int mr_train_copy_buffers(const struct mr_train_pipe *p, void *to, const void *from,
                          struct mr_stream *stream);

/* pipeline_order.c: all passes of a step. */
int mr_train_run_passes(struct mr_train_passes *ps);

#endif
