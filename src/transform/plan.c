/* The plan of one field: its ops fused into stages. */
#include "transform/transform.h"

#include <string.h>

static bool moves(const struct mr_op *op)
{
    return op->ops->fuse || op->ops->apply || op->ops->window;
}

/* A window stage takes one more window: of the same axes, and at most one of them resamples. */
static bool join_windows(const struct mr_field_plan *plan, struct mr_pass *stage,
                         const struct mr_op *op)
{
    const struct mr_op *first = plan->op[stage->first];
    if (!op->ops->window || stage->n_windows != stage->n_ops ||
        (stage->resamples && op->ops->resamples) || op->image.h != first->image.h ||
        op->image.w != first->image.w)
        return false;
    stage->n_windows++;
    stage->resamples |= op->ops->resamples;
    stage->moves = true;
    return true;
}

/* Puts op i into the stage, or says that it needs a new one. */
static int join_stage(const struct mr_field_plan *plan, struct mr_pass *stage,
                      const struct mr_op *op, uint32_t i, bool *joined)
{
    *joined = true;
    if (!moves(op))
        return 0;
    if (op->ops->window || stage->n_windows > 0) {
        *joined = join_windows(plan, stage, op);
        return 0;
    }
    uint32_t in_stage = i - stage->first;
    if (!stage->moves && op->ops->apply) {
        stage->mover = in_stage;
    } else if (!stage->moves) {
        stage->point = malloc(sizeof *stage->point);
        if (!stage->point)
            return mr_error_nomem("transform", sizeof *stage->point);
        mr_pointwise_start(stage->point, op->in.dtype);
        op->ops->fuse(op, stage->point, in_stage); /* an empty pass takes any op */
    } else {
        *joined = stage->point && op->ops->fuse && op->ops->fuse(op, stage->point, in_stage);
    }
    stage->moves = true;
    return 0;
}

static int make_stages(struct mr_field_plan *plan, bool plain)
{
    for (uint32_t i = 0; i < plan->n_ops; i++) {
        bool joined = false;
        int rc = 0;
        if (plan->n_stages > 0 && !plain)
            rc = join_stage(plan, &plan->stage[plan->n_stages - 1], plan->op[i], i, &joined);
        if (!rc && !joined) {
            plan->stage[plan->n_stages++] = (struct mr_pass){.first = i};
            rc = join_stage(plan, &plan->stage[plan->n_stages - 1], plan->op[i], i, &joined);
        }
        if (rc)
            return rc;
        plan->stage[plan->n_stages - 1].n_ops++;
    }
    if (!plain)
        mr_planar_join(plan);
    for (uint32_t k = 0; k < plan->n_stages; k++) {
        int rc = plan->stage[k].point ? mr_pointwise_finish(plan->stage[k].point) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

static bool same_spec(const struct mr_spec *a, const struct mr_spec *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank && a->var_dims == b->var_dims;
    for (int d = 0; d < a->rank && same; d++)
        same = a->dim[d] == b->dim[d];
    return same;
}

/* Specs at stage ends were checked by infer_all: mr_spec_bytes() cannot fail. */
static uint64_t bytes_of(const struct mr_spec *spec)
{
    uint64_t bytes = 0;
    mr_spec_bytes(spec, &bytes);
    return bytes;
}

int mr_field_plan_make(struct mr_field_plan *plan, const struct mr_spec *in,
                       const struct mr_spec *out, bool plain)
{
    int rc = make_stages(plan, plain);
    if (rc)
        return rc;
    plan->fixed = in->var_dims == 0;
    plan->identity = same_spec(in, out);
    for (uint32_t i = 0; i < plan->n_ops; i++)
        plan->fixed = plan->fixed && plan->op[i]->out.var_dims == 0;
    for (uint32_t k = 0; k < plan->n_stages; k++) {
        const struct mr_pass *stage = &plan->stage[k];
        const struct mr_op *mover = plan->op[stage->first + stage->mover];
        plan->identity = plan->identity && !stage->moves;
        if (stage->n_windows > 0)
            plan->work_bytes = MR_MAX(plan->work_bytes,
                                      mr_window_work(plan->op[stage->first],
                                                     plan->op[stage->first + stage->n_windows - 1],
                                                     stage->resamples));
        else if (stage->moves && !stage->point && mover->ops->work)
            plan->work_bytes = MR_MAX(plan->work_bytes, mover->ops->work(mover));
        if (k + 1 < plan->n_stages)
            plan->half_bytes =
                MR_MAX(plan->half_bytes, bytes_of(&plan->op[stage->first + stage->n_ops - 1]->out));
    }
    plan->half_bytes = mr_round_up(plan->half_bytes, MR_CACHE_LINE);
    plan->in_elements = plan->fixed ? mr_dims_after(in->dim, in->rank, -1) : 0;
    plan->out_bytes = bytes_of(out);
    return 0;
}

uint64_t mr_field_plan_scratch(const struct mr_field_plan *plan)
{
    uint64_t halves = plan->n_stages > 2 ? 2 : plan->n_stages > 1 ? 1 : 0;
    return halves * plan->half_bytes + plan->work_bytes;
}

void mr_field_plan_destroy(struct mr_field_plan *plan)
{
    for (uint32_t k = 0; plan && k < plan->n_stages; k++) {
        if (plan->stage[k].point)
            free(plan->stage[k].point->cycle);
        free(plan->stage[k].point);
    }
    free(plan);
}
