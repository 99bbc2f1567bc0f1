/*
 * Ops over several fields that a user wrote, and groups: one op on several fields with the same
 * draws.
 *
 * An op over several fields ends the tracks of the fields that it takes, and begins one for each
 * field that it makes. Before a sample's last tracks run, mr_transform_begin() applies those ops,
 * in the chain's order, in scratch memory.
 */
#include "transform/transform.h"

#include <string.h>

/* A spec that the callback changed may be of no text any more. */
static int check_out(const struct mr_op *op, struct mr_spec *spec, int k)
{
    uint64_t bytes;
    int n = (int)strnlen(spec->name, MR_NAME_BYTES);
    if (n == 0 || n == MR_NAME_BYTES)
        return mr_op_error(op, MR_ESHAPE, "infer gave field %d no name of 1 to %d bytes", k,
                           MR_NAME_BYTES - 1);
    if (spec->rank < 0 || spec->rank > MR_MAX_RANK || mr_dtype_size(spec->dtype) == 0 ||
        spec->var_dims >> spec->rank)
        return mr_op_error(op, MR_ESHAPE,
                           "infer gave '%s' rank %d, dtype %d and var_dims 0x%x: no good spec",
                           spec->name, spec->rank, (int)spec->dtype, spec->var_dims);
    if (!mr_spec_kind_fits(spec))
        spec->kind = MR_KIND_TENSOR;
    if (mr_spec_bytes(spec, &bytes) < 0)
        return mr_op_error(op, MR_ESHAPE, "infer gave '%s' more than 2^62 bytes", spec->name);
    return 0;
}

static int infer(const struct mr_op *op, struct mr_multi *m)
{
    m->n_out = m->n_in;
    memcpy(m->out_spec, m->in_spec, sizeof m->in_spec);
    int rc = m->fn.infer ? m->fn.infer(m->fn.user, m->in_spec, m->n_in, m->out_spec, &m->n_out) : 0;
    if (rc > 0)
        return mr_op_error(op, MR_ECALLBACK, "infer returned %d: expected 0 or a negative error",
                           rc);
    if (rc == 0 && (m->n_out < 0 || m->n_out > MR_MAX_FIELDS))
        return mr_op_error(op, MR_ECALLBACK, "infer gave %d fields: expected 0..%d", m->n_out,
                           MR_MAX_FIELDS);
    for (int k = 0; k < m->n_out && rc == 0; k++)
        rc = check_out(op, &m->out_spec[k], k);
    return rc;
}

static int take_inputs(struct mr_op *op, const struct mr_transform *chain, const struct mr_now *now,
                       struct mr_multi *m)
{
    m->n_in = 0;
    for (int i = 0; i < (m->names ? m->n_names : now->n); i++) {
        int f = i;
        struct mr_op named = *op;
        named.field = m->names ? m->names[i] : NULL;
        int rc = m->names ? mr_now_find(chain, now, &named, &f) : 0;
        if (rc < 0)
            return rc;
        for (int k = 0; k < m->n_in; k++)
            if (m->in[k] == now->track[f])
                return mr_op_error(op, MR_ESHAPE, "field '%s' is named twice",
                                   chain->out[now->track[f]].name);
        m->in[m->n_in] = now->track[f];
        m->in_spec[m->n_in++] = chain->out[now->track[f]];
    }
    return 0;
}

static int input_of(const struct mr_multi *m, int track)
{
    for (int k = 0; k < m->n_in; k++)
        if (m->in[k] == track)
            return k;
    return -1;
}

static int output_named(const struct mr_multi *m, const char *name)
{
    for (int k = 0; k < m->n_out; k++)
        if (strcmp(m->out_spec[k].name, name) == 0)
            return k;
    return -1;
}

/* Of all names there is one. */
static int check_names(const struct mr_op *op, const struct mr_multi *m,
                       const struct mr_transform *chain, const struct mr_now *was)
{
    for (int k = 0; k < m->n_out; k++)
        if (output_named(m, m->out_spec[k].name) != k)
            return mr_op_error(op, MR_ESHAPE, "infer gave two fields the name '%s'",
                               m->out_spec[k].name);
    for (int f = 0; f < was->n; f++)
        if (input_of(m, was->track[f]) < 0 && output_named(m, chain->out[was->track[f]].name) >= 0)
            return mr_op_error(op, MR_ESHAPE, "infer gave a field the name '%s': another has it",
                               chain->out[was->track[f]].name);
    return 0;
}

static int start_output(struct mr_transform *chain, struct mr_now *now, const struct mr_op *op,
                        int k)
{
    int number = (int)(op - chain->op) * MR_MAX_FIELDS + k;
    return mr_track_start(chain, now, &op->multi->out_spec[k], -1 - number);
}

/* Fields keep their places; new ones come behind them. */
static int replace_fields(struct mr_transform *chain, struct mr_now *now, const struct mr_op *op)
{
    const struct mr_multi *m = op->multi;
    struct mr_now was = *now;
    bool placed[MR_MAX_FIELDS] = {false};
    int rc = 0;
    now->n = 0;
    for (int f = 0; f < was.n && rc == 0; f++) {
        int t = was.track[f], k = output_named(m, chain->out[t].name);
        if (input_of(m, t) < 0) {
            now->track[now->n++] = t;
        } else if (k >= 0) {
            placed[k] = true;
            rc = start_output(chain, now, op, k);
        }
    }
    for (int k = 0; k < m->n_out && rc == 0; k++)
        if (!placed[k])
            rc = start_output(chain, now, op, k);
    if (rc == 0 && now->n == 0)
        return mr_op_error(op, MR_ESHAPE, "no field would be left");
    return rc;
}

static int multi_arrange(struct mr_op *op, uint32_t n, struct mr_transform *chain,
                         struct mr_now *now)
{
    (void)n; /* 1 */
    int rc = take_inputs(op, chain, now, op->multi);
    if (rc == 0)
        rc = infer(op, op->multi);
    if (rc == 0)
        rc = check_names(op, op->multi, chain, now);
    return rc < 0 ? rc : replace_fields(chain, now, op);
}

const struct mr_op_ops mr_op_multi = {.name = "multi", .arrange = multi_arrange};

static uint64_t reserve(struct mr_transform *chain, uint64_t bytes)
{
    uint64_t at = chain->begin_bytes;
    chain->begin_bytes += mr_round_up(bytes, MR_CACHE_LINE);
    return at;
}

static uint64_t bytes_of(const struct mr_spec *spec)
{
    uint64_t bytes = 0;
    mr_spec_bytes(spec, &bytes); /* checked */
    return bytes;
}

/* Sizes that differ from sample to sample are compared for each. */
static int bind_group(struct mr_transform *chain, const struct mr_op *op)
{
    const struct mr_op *first = op;
    while (first->follows)
        first--;
    int n = op->ops->several == MR_SEVERAL_IMAGES ? 2 : op->ops->several == MR_SEVERAL_LENGTHS;
    for (int i = 0; i < n; i++) {
        int a = n == 1 ? 0 : i ? first->image.w : first->image.h;
        int b = n == 1 ? 0 : i ? op->image.w : op->image.h;
        bool varies = (first->in.var_dims >> a & 1) || (op->in.var_dims >> b & 1);
        if (varies && op->on >= 0 && first->on >= 0)
            chain->checks_groups = true;
        if (!varies && first->in.dim[a] != op->in.dim[b])
            return mr_op_error(op, MR_ESHAPE, "'%.23s' has %llu %s, '%.23s' has %llu",
                               first->in.name, (unsigned long long)first->in.dim[a],
                               n == 1 ? "elements"
                               : i    ? "columns"
                                      : "rows",
                               op->in.name, (unsigned long long)op->in.dim[b]);
    }
    return 0;
}

int mr_multi_bind(struct mr_transform *chain)
{
    for (uint32_t i = 0; i < chain->n_ops; i++) {
        struct mr_multi *m = chain->op[i].multi;
        int rc = chain->op[i].follows ? bind_group(chain, &chain->op[i]) : 0;
        if (rc < 0)
            return rc;
        if (!m)
            continue;
        chain->n_multi++;
        for (int k = 0; k < m->n_in; k++)
            m->in_at[k] = reserve(chain, bytes_of(&m->in_spec[k]));
        for (int k = 0; k < m->n_out; k++)
            m->out_at[k] = reserve(chain, bytes_of(&m->out_spec[k]));
        m->dim_at = reserve(chain, sizeof(uint64_t[MR_MAX_FIELDS][MR_MAX_RANK]));
    }
    return 0;
}

struct mr_given mr_transform_given(const struct mr_transform *chain, int track,
                                   const struct mr_given in[], void *scratch)
{
    int source = chain->source[track];
    if (source >= 0)
        return in[source];
    int number = -1 - source, k = number % MR_MAX_FIELDS;
    const struct mr_multi *m = chain->op[number / MR_MAX_FIELDS].multi;
    char *memory = scratch;
    uint64_t(*dim)[MR_MAX_RANK] = (void *)(memory + m->dim_at);
    return (struct mr_given){memory + m->out_at[k], dim[k]};
}

/* The shape of a sample before an op of its track. Returns 0, or MR_ESHAPE if only the op before it
 * knows. */
static int dims_before(const struct mr_transform *chain, const struct mr_op *op,
                       const uint64_t *begin, uint64_t *dim)
{
    const struct mr_field_plan *plan = chain->plan[op->on];
    memcpy(dim, begin, sizeof(uint64_t[MR_MAX_RANK]));
    for (uint32_t i = 0; i < plan->n_ops && plan->op[i] != op; i++) {
        const struct mr_op *step = plan->op[i];
        uint64_t next[MR_MAX_RANK];
        memcpy(next, dim, sizeof next);
        if (step->ops == &mr_op_custom && step->out.var_dims)
            return mr_op_error(op, MR_ESHAPE,
                               "sizes after %s are not known: put it behind the op on several "
                               "fields",
                               step->text);
        if (step->ops->shape)
            step->ops->shape(step, dim, next);
        for (int d = 0; d < step->out.rank; d++)
            dim[d] = step->out.var_dims >> d & 1 ? next[d] : step->out.dim[d];
    }
    return 0;
}

static int check_group(const struct mr_transform *chain, const struct mr_op *op,
                       const struct mr_given in[], void *scratch)
{
    const struct mr_op *first = op;
    uint64_t one[MR_MAX_RANK] = {0}, two[MR_MAX_RANK] = {0};
    while (first->follows)
        first--;
    if (op->on < 0 || first->on < 0)
        return 0;
    int rc = dims_before(chain, first, mr_transform_given(chain, first->on, in, scratch).dim, one);
    if (rc == 0)
        rc = dims_before(chain, op, mr_transform_given(chain, op->on, in, scratch).dim, two);
    if (rc < 0)
        return rc;
    if (op->ops->several == MR_SEVERAL_LENGTHS && one[0] != two[0])
        return mr_op_error(op, MR_ESHAPE, "'%.23s' has %llu elements, '%.23s' has %llu",
                           first->in.name, (unsigned long long)one[0], op->in.name,
                           (unsigned long long)two[0]);
    if (op->ops->several == MR_SEVERAL_IMAGES &&
        (one[first->image.h] != two[op->image.h] || one[first->image.w] != two[op->image.w]))
        return mr_op_error(
            op, MR_ESHAPE, "'%.23s' is %llu x %llu, '%.23s' is %llu x %llu (height x width)",
            first->in.name, (unsigned long long)one[first->image.h],
            (unsigned long long)one[first->image.w], op->in.name,
            (unsigned long long)two[op->image.h], (unsigned long long)two[op->image.w]);
    return 0;
}

static int check_dims(const struct mr_op *op, uint64_t (*dim)[MR_MAX_RANK])
{
    const struct mr_multi *m = op->multi;
    for (int k = 0; k < m->n_out; k++)
        for (int d = 0; d < m->out_spec[k].rank; d++) {
            uint64_t most = m->out_spec[k].dim[d];
            bool varies = m->out_spec[k].var_dims >> d & 1;
            if (varies ? dim[k][d] > most : dim[k][d] != most)
                return mr_op_error(op, MR_ECALLBACK,
                                   "apply gave '%s' in dimension %d the length %llu: inferred was "
                                   "%s%llu",
                                   m->out_spec[k].name, d, (unsigned long long)dim[k][d],
                                   varies ? "at most " : "", (unsigned long long)most);
        }
    return 0;
}

static int call(const struct mr_op *op, const struct mr_at *at, const void *const in[],
                uint64_t (*in_dim)[MR_MAX_RANK], char *scratch)
{
    const struct mr_multi *m = op->multi;
    uint64_t(*out_dim)[MR_MAX_RANK] = (void *)(scratch + m->dim_at);
    void *out[MR_MAX_FIELDS] = {NULL};
    struct mr_transform_context context = {.size = sizeof context,
                                           .seed = at->seed,
                                           .epoch = at->epoch,
                                           .index = at->index,
                                           .n_in = m->n_in,
                                           .n_out = m->n_out,
                                           .in = m->in_spec,
                                           .out = m->out_spec};
    mr_op_draw(op, at, 0, context.random);
    for (int k = 0; k < m->n_out; k++) {
        out[k] = scratch + m->out_at[k];
        memcpy(out_dim[k], m->out_spec[k].dim, sizeof out_dim[k]);
    }
    uint64_t errors = mr_error_count();
    int rc =
        m->fn.apply(m->fn.user, &context, in, (const uint64_t(*)[MR_MAX_RANK])in_dim, out, out_dim);
    return rc != 0 ? mr_op_callback_error(op, at, rc, errors) : check_dims(op, out_dim);
}

static int run(const struct mr_transform *chain, const struct mr_op *op, const struct mr_at *at,
               const struct mr_given given[], int picture, char *scratch)
{
    const struct mr_multi *m = op->multi;
    const void *in[MR_MAX_FIELDS] = {NULL};
    uint64_t in_dim[MR_MAX_FIELDS][MR_MAX_RANK];
    for (int k = 0; k < m->n_in; k++) {
        int t = m->in[k];
        struct mr_given from = mr_transform_given(chain, t, given, scratch);
        struct mr_at here = *at;
        here.picture = chain->source[t] == picture ? at->picture : NULL;
        in[k] = scratch + m->in_at[k];
        int rc = mr_transform_apply_track(chain, t, &here, from.data, from.dim,
                                          scratch + m->in_at[k], in_dim[k], scratch);
        if (rc < 0)
            return rc;
    }
    return call(op, at, in, in_dim, scratch);
}

int mr_transform_begin(const struct mr_transform *chain, const struct mr_at *at, int picture,
                       const struct mr_given in[], void *scratch)
{
    for (uint32_t i = 0; i < chain->n_ops; i++) {
        const struct mr_op *op = &chain->op[i];
        int rc = 0;
        if (op->follows && chain->checks_groups)
            rc = check_group(chain, op, in, scratch);
        if (op->multi)
            rc = run(chain, op, at, in, picture, scratch);
        if (rc < 0)
            return rc;
    }
    return 0;
}
