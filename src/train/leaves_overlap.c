/*
 * Sums of gradients beside the backward pass: see leaves.h. The parts are whole layers, from the
 * last one on, whose gradients come first; what lies behind the gradients (running statistics and
 * totals, which the forward pass makes) goes with the first part. All ranks cut the same parts and
 * enqueue their sums in the same order, also a rank whose leaf is empty. Each element is added in
 * the same order as without parts.
 */
#include "device/device.h"
#include "nn/net.h"
#include "train/leaves.h"

#include <stdlib.h>

#define PART_LEAST 131072 /* elements: a smaller sum takes about as long */
#define PARTS_MOST 32

struct mr_train_overlap {
    struct mr_stream *side;
    struct mr_train_last last;
    uint64_t first[PARTS_MOST]; /* of each part */
    uint32_t n, next;           /* next: the part that is summed next */
    bool forked;                /* the step's stream has to wait for `side` */
    bool ending;                /* the passes are done */
};

int mr_train_overlap_open(struct mr_trainer *t)
{
    struct mr_train_leaves *l = t->leaves;
    if (!l->comm || !l->graphs || l->world == 1)
        return 0;
    struct mr_train_overlap *o = l->overlap = calloc(1, sizeof *o);
    if (!o)
        return mr_error_nomem("trainer", sizeof *o);
    o->n = mr_net_grad_parts(t->net, PART_LEAST, o->first, PARTS_MOST);
    return mr_stream_create(t->dev, "sums of gradients", &o->side);
}

void mr_train_overlap_close(struct mr_trainer *t)
{
    struct mr_train_overlap *o = t->leaves->overlap;
    if (!o)
        return;
    mr_stream_destroy(o->side);
    free(o);
    t->leaves->overlap = NULL;
}

static int take(struct mr_trainer *t, struct mr_train_range part, struct mr_stream *stream)
{
    const struct mr_train_leaves *l = t->leaves;
    struct mr_sum_take args = l->overlap->last.take;
    const bool last = part.first == 0;
    if (!args.to)
        return last ? mr_train_stamp(t, MR_SUM_READY) : 0;
    args.begin = part.first;
    args.count = (part.end == l->length ? args.count : part.end) - part.first;
    args.clock = last ? args.clock : NULL;
    return mr_launch_kernel(stream, &mr_sum_kernel[MR_SUM_KERNEL_take], &args, NULL);
}

/* The last part is taken in the step's stream: `side` may still be in the sum before, and what is
 * taken last says when the passes ended. */
static int sum_part(struct mr_trainer *t, struct mr_train_range part)
{
    struct mr_train_leaves *l = t->leaves;
    struct mr_train_overlap *o = l->overlap;
    const bool last = part.first == 0;
    uint32_t height = o->last.height + 1;
    int rc = last ? take(t, part, t->stream) : 0;
    if (rc < 0)
        return rc;
    o->forked = true; /* also if only half of it succeeds */
    rc = mr_net_fork_to(t->net, t->stream, o->side);
    if (rc < 0)
        return rc;
    rc = last ? 0 : take(t, part, o->side);
    for (uint32_t carry = o->last.i; rc >= 0 && (carry & 1); carry /= 2, height--)
        rc = mr_train_add_range(l, l->vector + (height - 2) * l->length,
                                l->vector + (height - 1) * l->length, part, o->side);
    return rc < 0 ? rc : mr_train_sum_range(t, part, o->side);
}

/* The gradients from `first` on are there. */
static int on_grads(void *user, uint64_t first)
{
    struct mr_trainer *t = user;
    struct mr_train_overlap *o = t->leaves->overlap;
    int rc = 0;
    for (; rc >= 0 && o->next < o->n && first <= o->first[o->next]; o->next++) {
        if (o->first[o->next] == 0 && !o->ending)
            break;
        uint64_t end = o->next ? o->first[o->next - 1] : t->leaves->length;
        rc = sum_part(t, (struct mr_train_range){o->first[o->next], end});
    }
    return rc;
}

void mr_train_overlap_begin(struct mr_trainer *t, const struct mr_train_last *last)
{
    struct mr_train_overlap *o = t->leaves->overlap;
    o->last = *last;
    o->next = 0;
    o->forked = o->ending = false;
    mr_net_on_grads(t->net, on_grads, t);
}

int mr_train_overlap_end(struct mr_trainer *t, int rc)
{
    struct mr_train_overlap *o = t->leaves->overlap;
    mr_net_on_grads(t->net, NULL, NULL);
    o->ending = true;
    if (rc >= 0)
        rc = on_grads(t, 0);
    int joined = o->forked ? mr_net_join_from(t->net, t->stream, o->side) : 0;
    return rc < 0 ? rc : joined;
}
