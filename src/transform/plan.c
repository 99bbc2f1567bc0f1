/* Binding: shapes inferred op by op, and one plan a field. */
#include "transform/transform.h"

#include <stdio.h>
#include <string.h>

/* The field that an op names, or works on by default. */
static int find_field(const struct mr_op *op, const struct mr_spec *fields, int n_fields, int *out)
{
    const char *want = op->field ? op->field : op->ops->default_field;
    char list[MR_MAX_FIELDS * (MR_NAME_BYTES + 2) + 1] = "";
    size_t at = 0;
    if (!want) {
        *out = 0;
        return 0;
    }
    for (int f = 0; f < n_fields; f++) {
        if (strncmp(fields[f].name, want, MR_NAME_BYTES) == 0) {
            *out = f;
            return 0;
        }
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%.*s", f ? ", " : "", MR_NAME_BYTES,
                               fields[f].name);
    }
    return mr_op_error(op, MR_ESHAPE, "no field '%s'; there are: %s", want, list);
}

static int infer_all(struct mr_transform *chain, struct mr_spec *specs, int n_fields)
{
    for (uint32_t i = 0; i < chain->n_ops; i++) {
        struct mr_op *op = &chain->op[i];
        int rc = find_field(op, specs, n_fields, &op->on);
        if (rc)
            return rc;
        op->in = op->out = specs[op->on];
        rc = op->ops->infer(op, &op->out);
        if (rc)
            return rc;
        uint64_t bytes;
        rc = mr_spec_bytes(&op->out, &bytes);
        if (rc)
            return mr_op_misfit(op, &op->in, "makes more than 2^62 bytes of");
        specs[op->on] = op->out;
    }
    return 0;
}

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

void mr_transform_unbind(struct mr_transform *chain)
{
    for (int f = 0; f < MR_MAX_FIELDS; f++) {
        mr_field_plan_destroy(chain->plan[f]);
        mr_field_plan_destroy(chain->head[f]);
        chain->plan[f] = chain->head[f] = NULL;
    }
    chain->bound = false;
    chain->n_fields = 0;
    chain->points = chain->pointed = -1;
    chain->mix = NULL;
    chain->scratch_bytes = 0;
}

static int plan_field(struct mr_transform *chain, int f, bool plain)
{
    struct mr_field_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return mr_error_nomem("transform", sizeof *plan);
    chain->plan[f] = plan;
    for (uint32_t i = 0; i < chain->n_ops; i++)
        if (chain->op[i].on == f)
            plan->op[plan->n_ops++] = &chain->op[i];
    int rc = mr_field_plan_make(plan, &chain->in[f], &chain->out[f], plain);
    if (rc)
        return rc;
    chain->scratch_bytes = MR_MAX(chain->scratch_bytes, mr_field_plan_scratch(plan));
    return 0;
}

static int check_fields(const struct mr_spec *fields, int n_fields)
{
    if (n_fields < 1 || n_fields > MR_MAX_FIELDS)
        return mr_error_set(MR_ESHAPE, "transform: %d fields: expected 1..%d", n_fields,
                            MR_MAX_FIELDS);
    for (int f = 0; f < n_fields; f++) {
        const struct mr_spec *s = &fields[f];
        if (s->rank < 0 || s->rank > MR_MAX_RANK || mr_dtype_size(s->dtype) == 0 ||
            (s->rank < 32 && s->var_dims >> s->rank))
            return mr_error_set(
                MR_ESHAPE, "transform: field %d: rank %d, dtype %d, var_dims 0x%x: no good spec", f,
                s->rank, (int)s->dtype, s->var_dims);
        uint64_t bytes;
        int rc = mr_spec_bytes(s, &bytes);
        if (rc)
            return rc;
    }
    return 0;
}

/* Moved points, before their own ops. */
static uint64_t points_room(const struct mr_transform *chain)
{
    return mr_round_up(bytes_of(&chain->in[chain->points]), MR_CACHE_LINE);
}

int mr_transform_bind_as(struct mr_transform *chain, const struct mr_spec *fields, int n_fields,
                         bool plain)
{
    mr_transform_unbind(chain);
    int rc = check_fields(fields, n_fields);
    if (rc)
        return rc;
    memcpy(chain->in, fields, (size_t)n_fields * sizeof *fields);
    memcpy(chain->out, fields, (size_t)n_fields * sizeof *fields);
    rc = infer_all(chain, chain->out, n_fields);
    for (int f = 0; f < n_fields && !rc; f++)
        rc = plan_field(chain, f, plain);
    chain->n_fields = n_fields;
    if (!rc)
        rc = mr_mix_bind(chain);
    if (rc) {
        mr_transform_unbind(chain);
        return rc;
    }
    chain->bound = true;
    if (mr_points_find(chain, &chain->points, &chain->pointed)) {
        struct mr_field_plan *plan = chain->plan[chain->points];
        plan->identity = false;
        chain->scratch_bytes =
            MR_MAX(chain->scratch_bytes, mr_field_plan_scratch(plan) + points_room(chain));
    }
    return 0;
}

int mr_transform_bind(struct mr_transform *chain, const struct mr_spec *fields, int n_fields)
{
    if (!chain || !fields)
        return mr_error_null("mr_transform_bind", "a chain and fields");
    if (atomic_load(&chain->users) > 0)
        return mr_error_set(
            MR_EMISUSE,
            "transform: the chain \"%s\" is in use by a loader: make another for each loader",
            mr_transform_text(chain));
    return mr_transform_bind_as(chain, fields, n_fields, false);
}

int mr_transform_acquire(struct mr_transform *chain, const struct mr_spec *fields, int n_fields)
{
    int rc = mr_transform_bind(chain, fields, n_fields);
    if (rc < 0)
        return rc;
    atomic_fetch_add(&chain->users, 1);
    return 0;
}

void mr_transform_release(struct mr_transform *chain)
{
    atomic_fetch_sub(&chain->users, 1);
}
