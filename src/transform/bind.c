/* Binding: shapes inferred op by op along the tracks of all fields, and one plan a track. */
#include "transform/transform.h"

#include <string.h>

void mr_transform_unbind(struct mr_transform *chain)
{
    for (int t = 0; t < MR_MAX_TRACKS; t++) {
        mr_field_plan_destroy(chain->plan[t]);
        chain->plan[t] = NULL;
    }
    for (int f = 0; f < MR_MAX_FIELDS; f++) {
        mr_field_plan_destroy(chain->head[f]);
        chain->head[f] = NULL;
    }
    chain->bound = false;
    chain->n_fields = chain->n_tracks = 0;
    chain->points = chain->pointed = -1;
    chain->mix = NULL;
    chain->scratch_bytes = chain->begin_bytes = 0;
    chain->n_multi = 0;
    chain->checks_groups = false;
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
        if (!mr_spec_kind_fits(s))
            return mr_error_set(
                MR_ESHAPE,
                "transform: field %d: kind %u: expected 0, or that of a text, which "
                "is u8 of rank 1 and var_dims 1",
                f, s->kind);
        uint64_t bytes;
        int rc = mr_spec_bytes(s, &bytes);
        if (rc)
            return rc;
    }
    return 0;
}

static int start_tracks(struct mr_transform *chain, struct mr_now *now,
                        const struct mr_spec *fields, int n_fields)
{
    for (int f = 0; f < n_fields; f++) {
        int rc = mr_track_start(chain, now, &fields[f], f);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int infer_all(struct mr_transform *chain, struct mr_now *now)
{
    for (uint32_t i = 0, n; i < chain->n_ops; i += n) {
        struct mr_op *op = &chain->op[i];
        n = 1;
        while (i + n < chain->n_ops && op[n].place == op->place)
            n++;
        if (op->ops->arrange) {
            int rc = op->ops->arrange(op, n, chain, now);
            if (rc < 0)
                return rc;
            continue;
        }
        for (uint32_t k = 0; k < n; k++) {
            int f = 0, rc = mr_now_find(chain, now, &op[k], &f);
            if (rc == 0)
                rc = mr_track_add(chain, now->track[f], &op[k]);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static int swapped(int t, int a, int b)
{
    return t == a ? b : t == b ? a : t;
}

static void swap_tracks(struct mr_transform *chain, struct mr_now *now, int a, int b)
{
    if (a == b)
        return;
    struct mr_spec in = chain->in[a], out = chain->out[a];
    struct mr_field_plan *plan = chain->plan[a];
    int source = chain->source[a];
    chain->in[a] = chain->in[b];
    chain->out[a] = chain->out[b];
    chain->plan[a] = chain->plan[b];
    chain->source[a] = chain->source[b];
    chain->in[b] = in;
    chain->out[b] = out;
    chain->plan[b] = plan;
    chain->source[b] = source;
    for (int k = 0; k < now->n; k++)
        now->track[k] = swapped(now->track[k], a, b);
    for (uint32_t i = 0; i < chain->n_ops; i++) {
        struct mr_multi *m = chain->op[i].multi;
        chain->op[i].on = swapped(chain->op[i].on, a, b);
        for (int k = 0; m && k < m->n_in; k++)
            m->in[k] = swapped(m->in[k], a, b);
    }
}

/* Another track that runs the op, since copies share them; -1: none. */
static int other_track(const struct mr_transform *chain, const struct mr_op *op)
{
    for (int t = 0; t < chain->n_tracks; t++)
        for (uint32_t k = 0; k < chain->plan[t]->n_ops; k++)
            if (chain->plan[t]->op[k] == op)
                return t;
    return -1;
}

static void forget_last_track(struct mr_transform *chain)
{
    int t = --chain->n_tracks;
    mr_field_plan_destroy(chain->plan[t]);
    chain->plan[t] = NULL;
    for (uint32_t i = 0; i < chain->n_ops; i++)
        if (chain->op[i].on == t)
            chain->op[i].on = other_track(chain, &chain->op[i]);
}

/* Does it end in an op over several fields? */
static bool is_taken(const struct mr_transform *chain, int t)
{
    for (uint32_t i = 0; i < chain->n_ops; i++) {
        const struct mr_multi *m = chain->op[i].multi;
        for (int k = 0; m && k < m->n_in; k++)
            if (m->in[k] == t)
                return true;
    }
    return false;
}

/* Those that end in the output come first, in its order; those that lead nowhere go. */
static void number_tracks(struct mr_transform *chain, struct mr_now *now)
{
    for (int f = 0; f < now->n; f++)
        swap_tracks(chain, now, f, now->track[f]);
    for (int t = chain->n_tracks - 1; t >= now->n; t--) {
        if (is_taken(chain, t))
            continue;
        swap_tracks(chain, now, t, chain->n_tracks - 1);
        forget_last_track(chain);
    }
    chain->n_fields = now->n;
}

static int plan_track(struct mr_transform *chain, int t, bool plain)
{
    struct mr_field_plan *plan = chain->plan[t];
    int rc = mr_field_plan_make(plan, &chain->in[t], &chain->out[t], plain);
    if (rc)
        return rc;
    chain->scratch_bytes = MR_MAX(chain->scratch_bytes, mr_field_plan_scratch(plan));
    return 0;
}

/* Moved points, before their own ops. */
static void add_points_scratch(struct mr_transform *chain)
{
    struct mr_field_plan *plan = chain->plan[chain->points];
    uint64_t bytes = 0;
    mr_spec_bytes(&chain->in[chain->points], &bytes); /* checked before */
    bytes = mr_round_up(bytes, MR_CACHE_LINE) + mr_field_plan_scratch(plan);
    chain->scratch_bytes = MR_MAX(chain->scratch_bytes, bytes);
    plan->identity = false;
}

static int bind_fields(struct mr_transform *chain, const struct mr_spec *fields, int n_fields,
                       bool plain)
{
    struct mr_now now = {.n = 0};
    int rc = start_tracks(chain, &now, fields, n_fields);
    if (rc < 0)
        return rc;
    rc = infer_all(chain, &now);
    if (rc < 0)
        return rc;
    number_tracks(chain, &now);
    chain->n_given = n_fields;
    for (int t = 0; t < chain->n_tracks; t++) {
        rc = plan_track(chain, t, plain);
        if (rc < 0)
            return rc;
    }
    rc = mr_multi_bind(chain);
    if (rc < 0)
        return rc;
    rc = mr_mix_bind(chain);
    if (rc < 0)
        return rc;
    rc = mr_points_find(chain, &chain->points, &chain->pointed);
    if (rc > 0)
        add_points_scratch(chain);
    return MR_MIN(rc, 0);
}

int mr_transform_bind_as(struct mr_transform *chain, const struct mr_spec *fields, int n_fields,
                         bool plain)
{
    mr_transform_unbind(chain);
    int rc = check_fields(fields, n_fields);
    if (rc < 0)
        return rc;
    rc = bind_fields(chain, fields, n_fields, plain);
    if (rc < 0)
        mr_transform_unbind(chain);
    else
        chain->bound = true;
    return rc;
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
