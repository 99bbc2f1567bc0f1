/*
 * The fields at one place of a chain and their tracks; and the ops that change which fields there
 * are: drop, keep, copy, attention_mask.
 */
#include "transform/transform.h"

#include <stdio.h>
#include <string.h>

static int find(const struct mr_transform *chain, const struct mr_now *now, const char *name)
{
    for (int f = 0; f < now->n; f++)
        if (strncmp(chain->out[now->track[f]].name, name, MR_NAME_BYTES) == 0)
            return f;
    return -1;
}

int mr_now_find(const struct mr_transform *chain, const struct mr_now *now, const struct mr_op *op,
                int *out)
{
    const char *want = op->field ? op->field : op->ops->default_field;
    char list[MR_MAX_FIELDS * (MR_NAME_BYTES + 2) + 1] = "";
    size_t at = 0;
    *out = want ? find(chain, now, want) : 0;
    if (*out >= 0)
        return 0;
    for (int f = 0; f < now->n; f++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%.*s", f ? ", " : "", MR_NAME_BYTES,
                               chain->out[now->track[f]].name);
    return mr_op_error(op, MR_ESHAPE, "no field '%s'; there are: %s", want, list);
}

int mr_track_start(struct mr_transform *chain, struct mr_now *now, const struct mr_spec *spec,
                   int source)
{
    int t = chain->n_tracks;
    if (now->n == MR_MAX_FIELDS || t == MR_MAX_TRACKS)
        return mr_error_set(MR_ELIMIT, "transform: more than %d fields, or %d with those between",
                            MR_MAX_FIELDS, MR_MAX_TRACKS);
    struct mr_field_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return mr_error_nomem("transform", sizeof *plan);
    chain->plan[t] = plan;
    chain->in[t] = chain->out[t] = *spec;
    chain->source[t] = source;
    chain->n_tracks++;
    now->track[now->n++] = t;
    return 0;
}

int mr_track_add(struct mr_transform *chain, int track, struct mr_op *op)
{
    struct mr_field_plan *plan = chain->plan[track];
    uint64_t bytes;
    op->on = track;
    op->in = op->out = chain->out[track];
    int rc = op->ops->infer(op, &op->out);
    if (rc < 0)
        return rc;
    if (!mr_spec_kind_fits(&op->out)) /* no text any more */
        op->out.kind = MR_KIND_TENSOR;
    if (mr_spec_bytes(&op->out, &bytes) < 0)
        return mr_op_misfit(op, &op->in, "makes more than 2^62 bytes of");
    chain->out[track] = op->out;
    plan->op[plan->n_ops++] = op;
    return 0;
}

/* A second track of the field: it does the same ops, with the same draws, from the same bytes. */
static int copy_track(struct mr_transform *chain, struct mr_now *now, const struct mr_op *op, int f,
                      const char *name)
{
    int from = now->track[f], to = chain->n_tracks;
    const struct mr_field_plan *plan = chain->plan[from];
    for (uint32_t i = 0; i < plan->n_ops; i++)
        if (plan->op[i]->ops == &mr_op_mixup || plan->op[i]->ops == &mr_op_cutmix)
            return mr_op_error(op, MR_ESHAPE, "%s mixes whole batches: it must come last",
                               plan->op[i]->text);
    if (find(chain, now, name) >= 0)
        return mr_op_error(op, MR_ESHAPE, "there is a field '%s' already", name);
    int rc = mr_track_start(chain, now, &chain->in[from], chain->source[from]);
    if (rc < 0)
        return rc;
    memcpy(chain->plan[to]->op, plan->op, sizeof plan->op);
    chain->plan[to]->n_ops = plan->n_ops;
    chain->out[to] = chain->out[from];
    snprintf(chain->in[to].name, MR_NAME_BYTES, "%s", name);
    snprintf(chain->out[to].name, MR_NAME_BYTES, "%s", name);
    return 0;
}

static void drop(struct mr_now *now, int f)
{
    now->n--;
    memmove(&now->track[f], &now->track[f + 1], (size_t)(now->n - f) * sizeof now->track[0]);
}

/* The names to find a field by must be said: the first one is seldom meant. */
static int needs_field(const struct mr_op *op)
{
    if (op->field)
        return 0;
    return mr_op_error(op, MR_EOPTION, "expected the field in front, as in label.%s",
                       op->ops->name);
}

static int drop_arrange(struct mr_op *op, uint32_t n, struct mr_transform *chain,
                        struct mr_now *now)
{
    for (uint32_t i = 0; i < n; i++) {
        int f, rc = mr_now_find(chain, now, &op[i], &f);
        if (rc < 0)
            return rc;
        if (now->n == 1)
            return mr_op_error(op, MR_ESHAPE, "no field would be left");
        op[i].on = now->track[f];
        drop(now, f);
    }
    return 0;
}

static int keep_arrange(struct mr_op *op, uint32_t n, struct mr_transform *chain,
                        struct mr_now *now)
{
    struct mr_now kept = {.n = 0};
    for (uint32_t i = 0; i < n; i++) {
        int f, rc = mr_now_find(chain, now, &op[i], &f);
        if (rc < 0)
            return rc;
        op[i].on = now->track[f];
        kept.track[kept.n++] = now->track[f];
        for (int k = 0; k < kept.n - 1; k++)
            if (kept.track[k] == op[i].on)
                return mr_op_error(op, MR_ESHAPE, "'%s' is named twice", op[i].field);
    }
    *now = kept;
    return 0;
}

/* copy(name), attention_mask([name]) */
struct name_args {
    char *name;
};

static const struct mr_option no_options[] = {{0}};
static const struct mr_option copy_options[] = {
    {.name = "name",
     .type = MR_OPT_STRING,
     .offset = offsetof(struct name_args, name),
     .help = "of the new field"},
    {0},
};
static const struct mr_option mask_options[] = {
    {.name = "name",
     .type = MR_OPT_STRING,
     .offset = offsetof(struct name_args, name),
     .initial = "attention_mask",
     .help = "of the new field"},
    {0},
};

static int name_check(const struct mr_op *op)
{
    const struct name_args *a = op->args;
    if (a->name && a->name[0] && strlen(a->name) < MR_NAME_BYTES)
        return 0;
    return mr_op_error(op, MR_EOPTION, "expected a name of 1 to %d bytes for the new field",
                       MR_NAME_BYTES - 1);
}

static int copy_arrange(struct mr_op *op, uint32_t n, struct mr_transform *chain,
                        struct mr_now *now)
{
    const struct name_args *a = op->args;
    int f, rc = mr_now_find(chain, now, op, &f);
    (void)n; /* 1 */
    if (rc < 0)
        return rc;
    op->on = now->track[f];
    return copy_track(chain, now, op, f, a->name);
}

/* A copy of the field whose last op keeps nothing but its length. */
static int mask_arrange(struct mr_op *op, uint32_t n, struct mr_transform *chain,
                        struct mr_now *now)
{
    int rc = copy_arrange(op, n, chain, now);
    return rc < 0 ? rc : mr_track_add(chain, now->track[now->n - 1], op);
}

static int mask_infer(struct mr_op *op, struct mr_spec *spec)
{
    if (spec->rank == 0)
        return mr_op_misfit(op, spec, "needs a first dimension, not");
    memset(spec->dim + 1, 0, sizeof spec->dim - sizeof spec->dim[0]);
    spec->dtype = MR_U8;
    spec->kind = MR_KIND_TENSOR;
    spec->rank = 1;
    spec->var_dims &= 1;
    return 0;
}

static int mask_apply(const struct mr_op *op, struct mr_op_call *call)
{
    (void)op;
    call->out_dim[0] = call->in_dim[0];
    memset(call->out, 1, call->out_dim[0]);
    return 0;
}

const struct mr_op_ops mr_op_drop = {
    .name = "drop",
    .arguments = "",
    .summary = "leave the field out of the batch",
    .options = no_options,
    .positional = (const char *const[]){NULL},
    .several = MR_SEVERAL_ANY,
    .check = needs_field,
    .arrange = drop_arrange,
};

const struct mr_op_ops mr_op_keep = {
    .name = "keep",
    .arguments = "",
    .summary = "leave all other fields out of the batch: ids+labels.keep",
    .options = no_options,
    .positional = (const char *const[]){NULL},
    .several = MR_SEVERAL_ANY,
    .check = needs_field,
    .arrange = keep_arrange,
};

const struct mr_op_ops mr_op_copy = {
    .name = "copy",
    .arguments = "name",
    .summary = "another field with what this one is so far",
    .options = copy_options,
    .positional = (const char *const[]){"name", NULL},
    .args_bytes = sizeof(struct name_args),
    .check = name_check,
    .arrange = copy_arrange,
};

const struct mr_op_ops mr_op_attention_mask = {
    .name = "attention_mask",
    .arguments = "[name]",
    .summary = "another field, u8: 1 for each element of the first dimension",
    .options = mask_options,
    .positional = (const char *const[]){"name", NULL},
    .args_bytes = sizeof(struct name_args),
    .check = name_check,
    .arrange = mask_arrange,
    .infer = mask_infer,
    .apply = mask_apply,
};
