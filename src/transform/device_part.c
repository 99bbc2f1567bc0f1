/* Splits a chain into a host part and a part that the device finishes. */
#include "transform/device_part.h"
#include "transform/transform.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A device part while it is put together, op by op. */
struct build {
    struct mr_pointwise pass;
    uint32_t n_dims; /* as the output has them so far */
    struct {
        uint32_t dim, stride;
        bool flips, channels;
    } at[MR_MAX_RANK];
    bool flat; /* flattened: the dimensions above are no longer the ops' */
    const struct mr_op *flip;
    bool cuts, adds; /* rows are mixed at the end */
};

static uint64_t bytes_of(const struct mr_spec *spec)
{
    uint64_t bytes = 0;
    mr_spec_bytes(spec, &bytes); /* checked when the chain was bound */
    return bytes;
}

static bool start(struct build *b, const struct mr_spec *in)
{
    bool small = in->dtype == MR_BOOL || in->dtype == MR_U8 || in->dtype == MR_I8 ||
                 in->dtype == MR_U16 || in->dtype == MR_I16;
    uint64_t elements = mr_dims_after(in->dim, in->rank, -1);
    if (!small || in->var_dims || elements < 1 || elements > INT32_MAX)
        return false;
    mr_pointwise_start(&b->pass, in->dtype);
    b->n_dims = (uint32_t)in->rank;
    for (int d = 0; d < in->rank; d++) {
        b->at[d].dim = (uint32_t)in->dim[d];
        b->at[d].stride = (uint32_t)mr_dims_after(in->dim, in->rank, d);
    }
    return true;
}

/* cast, scale, normalize: all in one pass, so that there is one rounding where the host has one. */
static bool add_pointwise(struct build *b, const struct mr_op *op)
{
    uint32_t channels = b->pass.channels;
    if (!op->ops->fuse(op, &b->pass, 0))
        return false;
    if (op->ops != &mr_op_normalize || b->pass.channels == 1)
        return true;
    int axis = op->bound.axis;
    if (channels == 1 && mr_normalize_channels(op) > 1) {
        if (b->flat || b->at[axis].flips)
            return false;
        b->at[axis].channels = true;
    }
    return mr_normalize_channels(op) == 1 || (!b->flat && b->at[axis].channels);
}

static bool add_layout(struct build *b, const struct mr_op *op)
{
    struct build was = *b;
    for (int d = 0; d < 3; d++)
        b->at[d] = was.at[mr_layout_source(op, d)];
    return !b->flat;
}

static bool add_hflip(struct build *b, const struct mr_op *op)
{
    if (b->flip || b->flat || b->at[op->image.w].channels)
        return false;
    b->flip = op;
    b->at[op->image.w].flips = true;
    return true;
}

static bool is_mix(const struct mr_op *op)
{
    return op->ops == &mr_op_mixup || op->ops == &mr_op_cutmix;
}

static bool add_op(struct build *b, const struct mr_op *op)
{
    if (op->ops->fuse)
        return add_pointwise(b, op);
    if (op->ops == &mr_op_layout)
        return add_layout(b, op);
    if (op->ops == &mr_op_hflip)
        return add_hflip(b, op);
    if (op->ops == &mr_op_flatten)
        b->flat = true;
    return op->ops == &mr_op_flatten || is_mix(op);
}

/* Neighbouring dimensions that lie in the input as in the output become one. */
static void merge_dims(struct build *b)
{
    uint32_t n = 0;
    for (uint32_t d = 0; d < b->n_dims; d++) {
        bool joins = n > 0 && !b->at[n - 1].flips && !b->at[d].flips &&
                     b->at[n - 1].stride == (uint64_t)b->at[d].stride * b->at[d].dim;
        if (joins) {
            b->at[n - 1].dim *= b->at[d].dim;
            b->at[n - 1].stride = b->at[d].stride;
        } else {
            b->at[n++] = b->at[d];
        }
    }
    b->n_dims = n;
}

/* No step can overflow, so there are no infinities or NaNs, whose bits differ between processors.
 * Infinities of f16 don't come from arithmetic, unless rows are added. */
static bool stays_finite(const struct mr_pointwise *p, bool adds)
{
    for (uint32_t c = 0; c < p->channels; c++) {
        double most = p->from == MR_U16 || p->from == MR_I16 ? 65536 : 255;
        for (uint32_t k = 0; k < p->n_pairs; k++) {
            most = (most + fabs((double)p->c.f32[c][k][0])) * fabs((double)p->c.f32[c][k][1]);
            if (!(most < 1e38))
                return false;
        }
        if (adds && p->to == MR_F16 && most > 65504)
            return false;
    }
    return true;
}

static bool finish_point(struct build *b, struct mr_device_part *out)
{
    const struct mr_pointwise *p = &b->pass;
    struct mr_point_args *a = &out->args.point;
    bool good = p->compute == MR_F32 && (p->to == MR_F32 || p->to == MR_F16 || p->to == MR_BF16);
    if (!good || p->channels * p->n_pairs > MR_POINT_PAIRS || !stays_finite(p, b->adds))
        return false;
    *a =
        (struct mr_point_args){.from = p->from, .to = p->to, .flip_dim = -1, .n_pairs = p->n_pairs};
    a->channels = p->channels;
    a->elements = a->channel_inner = 1;
    bool behind = false; /* the channels' dimension */
    for (uint32_t d = 0; d < b->n_dims; d++) {
        a->elements *= b->at[d].dim;
        a->channel_inner *= behind ? b->at[d].dim : 1;
        behind = behind || b->at[d].channels;
    }
    merge_dims(b);
    if (b->n_dims > MR_POINT_DIMS)
        return false;
    a->n_dims = MR_MAX(b->n_dims, 1);
    a->dim[0] = a->stride[0] = 1; /* a scalar */
    for (uint32_t d = 0; d < b->n_dims; d++) {
        a->dim[d] = b->at[d].dim;
        a->stride[d] = b->at[d].stride;
        a->flip_dim = b->at[d].flips ? (int32_t)d : a->flip_dim;
    }
    for (uint32_t c = 0; c < p->channels; c++)
        memcpy(a->pair[c * p->n_pairs], p->c.f32[c], p->n_pairs * sizeof a->pair[0]);
    out->mixes = b->cuts || b->adds;
    out->kernel = out->mixes ? "pointwise_mix" : "pointwise";
    out->arg_bytes = out->mixes ? sizeof out->args.point_mix : sizeof *a;
    out->flip = b->flip;
    return true;
}

/* The ops from `first` on as one pointwise kernel. */
static bool try_point(const struct mr_transform *chain, int field, uint32_t first,
                      struct mr_device_part *out)
{
    const struct mr_field_plan *plan = chain->plan[field];
    struct build b = {.cuts = mr_mix_cuts(chain, field), .adds = mr_mix_adds(chain, field)};
    if (!start(&b, &plan->op[first]->in))
        return false;
    for (uint32_t i = first; i < plan->n_ops; i++)
        if (!add_op(&b, plan->op[i]))
            return false;
    return finish_point(&b, out);
}

static bool try_one_hot(const struct mr_transform *chain, int field, const struct mr_op *op,
                        struct mr_device_part *out)
{
    struct mr_one_hot_args *a = &out->args.one_hot;
    if (op->ops != &mr_op_one_hot || op->out.dim[0] > UINT32_MAX)
        return false;
    *a = (struct mr_one_hot_args){.classes = (uint32_t)op->out.dim[0],
                                  .label_bytes = (uint32_t)mr_dtype_size(op->in.dtype),
                                  .element_bytes = (uint32_t)mr_dtype_size(op->out.dtype)};
    memcpy(a->value, op->bound.value, sizeof a->value);
    out->hot = true;
    out->mixes = mr_mix_adds(chain, field);
    out->kernel = out->mixes ? "one_hot_mix" : "one_hot";
    out->arg_bytes = out->mixes ? sizeof out->args.one_hot_mix : sizeof *a;
    out->flip = NULL;
    return true;
}

static void describe(const struct mr_transform *chain, int field, uint32_t first,
                     struct mr_device_part *out)
{
    const struct mr_field_plan *plan = chain->plan[field];
    size_t at = 0;
    out->text[0] = '\0';
    for (uint32_t i = first; i < plan->n_ops && at < sizeof out->text; i++)
        at += (size_t)snprintf(out->text + at, sizeof out->text - at, "%s%s", i > first ? "," : "",
                               plan->op[i]->ops->name);
    if (out->mixes && field == chain->mix_label && at < sizeof out->text)
        snprintf(out->text + at, sizeof out->text - at, ",%s", chain->mix->ops->name);
}

/* Plans the ops before `first`; the result takes the place of an earlier head. */
static int plan_head(struct mr_transform *chain, int field, uint32_t first,
                     struct mr_device_part *out)
{
    const struct mr_field_plan *plan = chain->plan[field];
    struct mr_field_plan *head = calloc(1, sizeof *head);
    if (!head)
        return mr_error_nomem("transform", sizeof *head);
    head->n_ops = first;
    for (int i = 0; i < (int)first; i++)
        head->op[i] = plan->op[i];
    int rc = mr_field_plan_make(head, &chain->in[field], &out->in, false);
    if (rc < 0) {
        mr_field_plan_destroy(head);
        return rc;
    }
    head->one_hot = out->hot ? plan->op[first] : NULL;
    mr_field_plan_destroy(chain->head[field]);
    chain->head[field] = head;
    chain->scratch_bytes = MR_MAX(chain->scratch_bytes, mr_field_plan_scratch(head));
    out->whole = head->identity;
    out->as_decoded = head->identity && !head->one_hot;
    return 0;
}

int mr_device_part_find(struct mr_transform *chain, int field,
                        int (*has)(void *user, const char *kernel), void *user,
                        struct mr_device_part *out)
{
    const struct mr_field_plan *plan = chain->plan[field];
    uint64_t best = bytes_of(&chain->out[field]);
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < plan->n_ops; i++) {
        struct mr_device_part part = {.in = plan->op[i]->in,
                                      .out_bytes = bytes_of(&chain->out[field])};
        part.in_bytes = bytes_of(&part.in);
        bool last = i + 1 == plan->n_ops;
        if (part.in_bytes >= best || !(try_point(chain, field, i, &part) ||
                                       (last && try_one_hot(chain, field, plan->op[i], &part))))
            continue;
        int there = has(user, part.kernel);
        if (there < 0)
            return there;
        if (there == 0)
            continue;
        best = part.in_bytes;
        first = i;
        *out = part;
    }
    if (first == UINT32_MAX)
        return 0;
    describe(chain, field, first, out);
    int rc = plan_head(chain, field, first, out);
    return rc < 0 ? rc : 1;
}

bool mr_device_part_flips(const struct mr_device_part *part, uint64_t seed, uint64_t epoch,
                          uint64_t index)
{
    uint32_t random[4];
    mr_draw4(seed, MR_DRAW_TRANSFORM, index, epoch, part->flip->place, random);
    return mr_hflip_mirrors(part->flip, random);
}
