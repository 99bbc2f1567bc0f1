/* Creates, queries and applies chains. */
#include "transform/transform.h"
#include "transform/device_part.h"

#include <stdio.h>
#include <string.h>

int mr_transform_create(struct mr_transform **out)
{
    if (!out)
        return mr_error_null("mr_transform_create", "a place for the result");
    struct mr_transform *chain = calloc(1, sizeof *chain);
    if (chain)
        chain->op = calloc(MR_MAX_OPS, sizeof *chain->op);
    if (chain)
        chain->points = chain->pointed = -1;
    if (chain && chain->op)
        chain->text = strdup("");
    if (!chain || !chain->op || !chain->text) {
        mr_transform_destroy(chain);
        return mr_error_nomem("transform", sizeof *chain + MR_MAX_OPS * sizeof *chain->op);
    }
    *out = chain;
    return 0;
}

void mr_transform_destroy(struct mr_transform *chain)
{
    if (!chain)
        return;
    mr_transform_unbind(chain);
    for (uint32_t i = 0; i < chain->n_ops; i++)
        mr_op_destroy(&chain->op[i]);
    free(chain->op);
    free(chain->text);
    free(chain);
}

/* The chain's text with n_ops ops; NULL without memory. */
static char *make_text(const struct mr_transform *chain, uint32_t n_ops)
{
    size_t bytes = 1;
    for (uint32_t i = 0; i < n_ops; i++)
        bytes +=
            strlen(chain->op[i].text) + (chain->op[i].prefix ? strlen(chain->op[i].prefix) : 0) + 2;
    char *text = malloc(bytes), *p = text;
    if (!text)
        return NULL;
    *p = '\0';
    for (uint32_t i = 0; i < n_ops; i++) {
        const struct mr_op *op = &chain->op[i];
        if (op->follows)
            continue;
        p += snprintf(p, bytes - (size_t)(p - text), "%s%s%s%s", i ? "," : "",
                      op->prefix ? op->prefix : "", op->prefix ? "." : "", op->text);
    }
    return text;
}

/* Takes over n ops parsed behind the chain's, or destroys them. */
static int commit(struct mr_transform *chain, uint32_t n, int rc)
{
    char *text = rc ? NULL : make_text(chain, chain->n_ops + n);
    if (!rc && !text)
        rc = mr_error_nomem("transform", 0);
    if (rc) {
        for (uint32_t i = 0; i < n; i++) {
            struct mr_op *op = &chain->op[chain->n_ops + i];
            op->fn.close = NULL; /* what was not taken over is not closed */
            if (op->multi)
                op->multi->fn.close = NULL;
            mr_op_destroy(op);
        }
        return rc;
    }
    free(chain->text);
    chain->text = text;
    chain->n_ops += n;
    mr_transform_unbind(chain);
    return 0;
}

/* The place of the next op, from 1: ops on several fields count once. */
static uint32_t next_place(const struct mr_transform *chain)
{
    return chain->n_ops ? chain->op[chain->n_ops - 1].place + 1 : 1;
}

int mr_transform_add(struct mr_transform *chain, const char *text)
{
    if (!chain || !text)
        return mr_error_null("mr_transform_add", "a chain and a text");
    if (atomic_load(&chain->users) > 0)
        return mr_error_set(MR_EMISUSE,
                            "transform: the chain is in use by a loader: it cannot change");
    uint32_t n;
    int rc = mr_ops_parse(text, next_place(chain), chain->op + chain->n_ops,
                          MR_MAX_OPS - chain->n_ops, &n);
    return commit(chain, n, rc);
}

/* name, or "name(version=2)"; NULL without memory. */
static char *op_text(const char *name, uint64_t version)
{
    char *text = NULL;
    int n = version ? asprintf(&text, "%s(version=%llu)", name, (unsigned long long)version)
                    : asprintf(&text, "%s", name);
    return n < 0 ? NULL : text;
}

/* Older callers' structs end before the version, or behind it. */
static int take_fn(struct mr_op *op, uint32_t place, const struct mr_transform_fn *fn)
{
    *op = (struct mr_op){.ops = &mr_op_custom, .place = place};
    memcpy(&op->fn, fn, MR_MIN(fn->size, sizeof *fn));
    op->text = op_text(fn->name, op->fn.version);
    op->field = fn->field ? strdup(fn->field) : NULL;
    op->prefix = fn->field ? strdup(fn->field) : NULL;
    if (!op->text || (fn->field && (!op->field || !op->prefix)))
        return mr_error_nomem("transform", strlen(fn->name));
    return 0;
}

/* Copies what names the op and its fields. */
static int take_multi(struct mr_op *op, uint32_t place, const struct mr_transform_multi_fn *fn)
{
    *op = (struct mr_op){.ops = &mr_op_multi, .place = place, .on = -1};
    struct mr_multi *m = op->multi = calloc(1, sizeof *m);
    if (!m)
        return mr_error_nomem("transform", sizeof *m);
    memcpy(&m->fn, fn, MR_MIN(fn->size, sizeof *fn));
    op->text = op_text(fn->name, m->fn.version);
    int n = 0;
    while (fn->fields && fn->fields[n])
        n++;
    m->names = fn->fields ? calloc((size_t)n + 1, sizeof *m->names) : NULL;
    if (!op->text || (fn->fields && !m->names))
        return mr_error_nomem("transform", strlen(fn->name));
    if (n > MR_MAX_FIELDS)
        return mr_op_error(op, MR_ELIMIT, "takes %d fields: expected at most %d", n, MR_MAX_FIELDS);
    for (; m->n_names < n; m->n_names++) {
        m->names[m->n_names] = strdup(fn->fields[m->n_names]);
        if (!m->names[m->n_names])
            return mr_error_nomem("transform", strlen(fn->fields[m->n_names]));
    }
    return 0;
}

static int check_space(const struct mr_transform *chain)
{
    if (atomic_load(&chain->users) > 0)
        return mr_error_set(MR_EMISUSE,
                            "transform: the chain is in use by a loader: it cannot change");
    if (chain->n_ops == MR_MAX_OPS)
        return mr_error_set(MR_ELIMIT, "transform %u: a chain has at most %d ops",
                            next_place(chain), MR_MAX_OPS);
    return 0;
}

int mr_transform_add_multi(struct mr_transform *chain, const struct mr_transform_multi_fn *fn)
{
    if (!chain || !fn)
        return mr_error_null("mr_transform_add_multi", "a chain and an op");
    int rc = check_space(chain);
    if (rc < 0)
        return rc;
    if (fn->size < sizeof *fn || !fn->name || !fn->apply)
        return mr_error_set(MR_EOPTION,
                            "transform %u: a struct mr_transform_multi_fn needs its size, a name "
                            "and apply",
                            next_place(chain));
    return commit(chain, 1, take_multi(&chain->op[chain->n_ops], next_place(chain), fn));
}

int mr_transform_add_fn(struct mr_transform *chain, const struct mr_transform_fn *fn)
{
    if (!chain || !fn)
        return mr_error_null("mr_transform_add_fn", "a chain and an op");
    int rc = check_space(chain);
    if (rc < 0)
        return rc;
    if (fn->size < offsetof(struct mr_transform_fn, version) || !fn->name || !fn->apply)
        return mr_error_set(MR_EOPTION,
                            "transform %u: a struct mr_transform_fn needs its size, "
                            "a name and apply",
                            next_place(chain));
    struct mr_op *op = &chain->op[chain->n_ops];
    return commit(chain, 1, take_fn(op, next_place(chain), fn));
}

const struct mr_spec *mr_transform_specs(const struct mr_transform *chain)
{
    if (!chain)
        return NULL;
    return chain->out;
}

int mr_transform_fields(const struct mr_transform *chain)
{
    return chain ? chain->n_fields : 0;
}

int mr_transform_source(const struct mr_transform *chain, int field)
{
    if (!chain || field < 0 || field >= chain->n_fields)
        return -1;
    return MR_MAX(chain->source[field], -1);
}

int mr_transform_tracks(const struct mr_transform *chain, int source, int *first)
{
    int n = 0;
    for (int t = chain->n_tracks - 1; t >= 0; t--)
        if (chain->source[t] == source) {
            *first = t;
            n++;
        }
    return n;
}

int mr_transform_is_identity(const struct mr_transform *chain, int field)
{
    if (!chain)
        return 0;
    return chain->bound && field >= 0 && field < chain->n_fields && chain->plan[field]->identity;
}

uint64_t mr_transform_scratch_bytes(const struct mr_transform *chain)
{
    if (!chain)
        return 0;
    return chain->begin_bytes + chain->scratch_bytes;
}

const char *mr_transform_text(const struct mr_transform *chain)
{
    if (!chain)
        return NULL;
    return chain->text;
}

int mr_transform_each(int (*fn)(void *user, const char *name, const char *arguments,
                                const char *summary),
                      void *user)
{
    if (!fn)
        return mr_error_null("mr_transform_each", "a function");
    for (const struct mr_op_ops *const *p = mr_ops_known(); *p; p++) {
        int rc = fn(user, (*p)->name, (*p)->arguments, (*p)->summary);
        if (rc)
            return rc;
    }
    return 0;
}

static int apply_mover(const struct mr_op *op, const struct mr_at *at, const void *in,
                       const uint64_t *in_dim, void *out, uint64_t *out_dim, void *work)
{
    struct mr_op_call call = {
        .in = in, .in_dim = in_dim, .out = out, .out_dim = out_dim, .at = at, .work = work};
    if (op->ops->random)
        mr_op_draw(op, at, 0, call.random);
    memcpy(out_dim, op->out.dim, sizeof op->out.dim);
    return op->ops->apply(op, &call);
}

/* Updates dim through the shapes of the stage's ops, and moves the bytes at the mover. */
static int run_stage(const struct mr_field_plan *plan, const struct mr_pass *stage,
                     const struct mr_at *at, const void *in, void *out, uint64_t *dim, void *work)
{
    if (stage->n_windows > 0)
        return mr_window_run(plan, stage, at, stage == plan->stage ? at->picture : NULL, in, out,
                             dim, work);
    uint64_t n = mr_dims_after(dim, plan->op[stage->first]->in.rank, -1), inner = 0;
    if (stage->planar)
        mr_planar_run(stage, at, dim, in, out);
    for (uint32_t i = 0; i < stage->n_ops; i++) {
        const struct mr_op *op = plan->op[stage->first + i];
        uint64_t next[MR_MAX_RANK];
        if (stage->point && stage->point->channels > 1 && i == stage->point->axis_op)
            inner = mr_dims_after(dim, op->in.rank, stage->point->axis);
        memcpy(next, dim, sizeof next);
        if (!stage->point && stage->moves && i == stage->mover) {
            int rc = apply_mover(op, at, in, dim, out, next, work);
            if (rc)
                return rc;
        } else if (op->ops->shape) {
            op->ops->shape(op, dim, next);
        }
        memcpy(dim, next, sizeof next);
    }
    if (stage->point && !stage->planar)
        mr_pointwise_run(stage->point, inner, in, out, n);
    else if (!stage->point && !stage->moves)
        memcpy(out, in, n * mr_dtype_size(plan->op[stage->first]->in.dtype));
    return 0;
}

static int run_stages(const struct mr_field_plan *plan, const struct mr_at *at, const void *in,
                      uint64_t *dim, void *out, void *scratch)
{
    void *work = (char *)scratch + (mr_field_plan_scratch(plan) - plan->work_bytes);
    for (uint32_t k = 0; k < plan->n_stages; k++) {
        bool last = k + 1 == plan->n_stages;
        void *to = last ? out : (char *)scratch + k % 2 * plan->half_bytes;
        int rc = run_stage(plan, &plan->stage[k], at, in, to, dim, work);
        if (rc)
            return rc;
        in = to;
    }
    return 0;
}

/* For samples of varying shape: the decoder's dimensions must fit the spec. */
static int take_dims(const struct mr_spec *spec, const uint64_t *in_dim, uint64_t *out)
{
    memcpy(out, spec->dim, sizeof spec->dim);
    for (int d = 0; d < spec->rank; d++) {
        if (!(spec->var_dims >> d & 1))
            continue;
        if (in_dim[d] > spec->dim[d])
            return mr_error_set(
                MR_ESHAPE,
                "transform: %s: dimension %d of the sample is %llu: expected at most %llu",
                spec->name, d, (unsigned long long)in_dim[d], (unsigned long long)spec->dim[d]);
        out[d] = in_dim[d];
    }
    return 0;
}

/* Applies a plan of the field. out_spec: of what comes out of it. */
static int apply_plan(const struct mr_transform *chain, int field, const struct mr_field_plan *plan,
                      const struct mr_spec *out_spec, const struct mr_at *at, const void *in,
                      const uint64_t *in_dim, void *out, uint64_t *out_dim, void *scratch)
{
    const struct mr_pointwise *only =
        plan->n_stages == 1 && plan->fixed && !plan->stage[0].planar ? plan->stage[0].point : NULL;
    if (only) {
        mr_pointwise_run(only, only->inner, in, out, plan->in_elements);
        memcpy(out_dim, out_spec->dim, sizeof out_spec->dim);
        return 0;
    }
    uint64_t dim[MR_MAX_RANK];
    int rc = 0;
    if (at->picture && plan->n_stages > 0 && plan->stage[0].n_windows > 0)
        memcpy(
            dim, in_dim,
            sizeof dim); /* the window's stage reads the picture; the spec's size may be a guess */
    else
        rc = take_dims(&chain->in[field], in_dim, dim);
    if (!rc && plan->n_stages > 0)
        rc = run_stages(plan, at, in, dim, out, scratch);
    else if (!rc)
        memcpy(out, in, mr_dims_after(dim, out_spec->rank, -1) * mr_dtype_size(out_spec->dtype));
    if (!rc)
        memcpy(out_dim, dim, sizeof dim);
    return rc;
}

/* The field of points: moved with the picture first, then its own ops. */
static int apply_points(const struct mr_transform *chain, const struct mr_at *at, const void *in,
                        const uint64_t *in_dim, void *out, uint64_t *out_dim, void *scratch)
{
    int f = chain->points;
    const struct mr_field_plan *plan = chain->plan[f];
    uint64_t dim[MR_MAX_RANK], bytes = 0;
    int rc = take_dims(&chain->in[f], in_dim, dim);
    void *moved = plan->n_stages > 0 ? scratch : out;
    if (!rc)
        rc = mr_points_move(chain, at, in, mr_dims_after(dim, chain->in[f].rank, -1), moved);
    if (rc)
        return rc;
    memcpy(out_dim, dim, sizeof dim);
    if (plan->n_stages == 0)
        return 0;
    mr_spec_bytes(&chain->in[f], &bytes); /* checked when the chain was bound */
    void *rest = (char *)scratch + mr_round_up(bytes, MR_CACHE_LINE);
    return apply_plan(chain, f, plan, &chain->out[f], at, moved, dim, out, out_dim, rest);
}

int mr_transform_apply_track(const struct mr_transform *chain, int track, const struct mr_at *at,
                             const void *in, const uint64_t *in_dim, void *out, uint64_t *out_dim,
                             void *scratch)
{
    char *behind = scratch ? (char *)scratch + chain->begin_bytes : NULL;
    if (track == chain->points)
        return apply_points(chain, at, in, in_dim, out, out_dim, behind);
    return apply_plan(chain, track, chain->plan[track], &chain->out[track], at, in, in_dim, out,
                      out_dim, behind);
}

static int check_field(const struct mr_transform *chain, int field)
{
    if (chain->bound && field >= 0 && field < chain->n_fields)
        return 0;
    return mr_error_set(MR_EMISUSE, "transform: field %d of %d: the chain is not bound to it",
                        field, chain->n_fields);
}

int mr_transform_apply_at(const struct mr_transform *chain, int field, const struct mr_at *at,
                          const void *in, const uint64_t *in_dim, void *out, uint64_t *out_dim,
                          void *scratch)
{
    int rc = check_field(chain, field);
    return rc < 0 ? rc
                  : mr_transform_apply_track(chain, field, at, in, in_dim, out, out_dim, scratch);
}

int mr_transform_apply(const struct mr_transform *chain, int field, uint64_t seed, uint64_t epoch,
                       uint64_t index, const void *in, const uint64_t *in_dim, void *out,
                       uint64_t *out_dim, void *scratch)
{
    if (!chain || !in || !in_dim || !out || !out_dim)
        return mr_error_null("mr_transform_apply", "a chain, a sample and a place for the result");
    struct mr_at at = {.seed = seed, .epoch = epoch, .index = index};
    int rc = check_field(chain, field);
    if (rc < 0)
        return rc;
    if (chain->source[field] < 0)
        return mr_error_set(MR_EMISUSE,
                            "transform: '%s' is made by an op over several fields: use "
                            "mr_transform_apply_all()",
                            chain->out[field].name);
    return mr_transform_apply_at(chain, field, &at, in, in_dim, out, out_dim, scratch);
}

int mr_transform_apply_all(const struct mr_transform *chain, uint64_t seed, uint64_t epoch,
                           uint64_t index, const void *const in[],
                           const uint64_t in_dim[][MR_MAX_RANK], void *const out[],
                           uint64_t out_dim[][MR_MAX_RANK], void *scratch)
{
    if (!chain || !in || !in_dim || !out || !out_dim)
        return mr_error_null("mr_transform_apply_all",
                             "a chain, a sample and places for the results");
    struct mr_at at = {.seed = seed, .epoch = epoch, .index = index};
    struct mr_given given[MR_MAX_FIELDS];
    int rc = check_field(chain, 0);
    if (rc < 0)
        return rc;
    for (int f = 0; f < chain->n_given; f++)
        given[f] = (struct mr_given){in[f], in_dim[f]};
    if (chain->pointed >= 0)
        at.dim = in_dim[chain->source[chain->pointed]];
    rc = mr_transform_begin(chain, &at, -1, given, scratch);
    for (int f = 0; f < chain->n_fields && rc == 0; f++) {
        struct mr_given from = mr_transform_given(chain, f, given, scratch);
        rc = mr_transform_apply_at(chain, f, &at, from.data, from.dim, out[f], out_dim[f], scratch);
    }
    return rc;
}

int mr_transform_apply_head(const struct mr_transform *chain, int field, const struct mr_at *at,
                            const void *in, const uint64_t *in_dim, void *out, void *scratch)
{
    const struct mr_field_plan *head = chain->head[field];
    const struct mr_spec *spec = &chain->plan[field]->op[head->n_ops]->in;
    uint64_t dim[MR_MAX_RANK], label;
    char *behind = scratch ? (char *)scratch + chain->begin_bytes : NULL;
    int rc = apply_plan(chain, field, head, spec, at, in, in_dim, out, dim, behind);
    if (rc < 0)
        return rc;
    return head->one_hot ? mr_one_hot_check(head->one_hot, out, &label) : 0;
}
