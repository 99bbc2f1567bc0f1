/* Callback sets: whole samples made by a user's code. */
#include "dataset/user.h"

#include <string.h>

struct state {
    struct mr_user user; /* first */
    int (*get)(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK]);
    int (*get_ctx)(void *user, const struct mr_sample_context *context, void *const row[],
                   uint64_t (*dim)[MR_MAX_RANK]);
    int (*get_run)(void *user, uint64_t n, const struct mr_sample_context context[],
                   void *const (*row)[MR_MAX_FIELDS], uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK],
                   int rc[]);
};

#define NOT_MADE 1 /* what rc[] is preset to */

static const struct mr_dataset_ops run_ops;

static int open_callback(struct mr_dataset *ds, const void *options)
{
    const struct mr_callback_opts *o = options;
    struct state *st = ds->state;
    const char *name = o->name && o->name[0] ? o->name : "callback";
    int n = (o->get != NULL) + (o->get_ctx != NULL) + (o->get_run != NULL);
    if (n != 1)
        return mr_error_set(MR_EMISUSE,
                            "%s: %s get function: expected one of get, get_ctx, get_run", name,
                            n == 0 ? "no" : "more than one");
    ds->n = o->n;
    ds->n_fields = o->n_fields;
    memcpy(ds->field, o->field, sizeof ds->field);
    ds->draws = o->changes != 0;
    struct mr_user user = {.user = o->user, .init = o->init, .exit = o->exit, .close = o->close};
    int rc = mr_user_open(ds, &user, o->name, o->version);
    if (rc < 0)
        return rc;
    st->get = o->get;
    st->get_ctx = o->get_ctx;
    st->get_run = o->get_run;
    if (o->get_run)
        ds->ops = &run_ops;
    return 0;
}

static int get(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out)
{
    const struct state *st = ds->state;
    void *row[MR_MAX_FIELDS];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK], errors = mr_error_count();
    mr_user_rows(ds, out, row, dim);
    struct mr_sample_context context = mr_user_context(out, index);
    int rc = st->get ? st->get(st->user.user, index, row, dim)
                     : st->get_ctx(st->user.user, &context, row, dim);
    rc = mr_user_result(ds, index, st->get ? "get" : "get_ctx", rc, 0, errors);
    if (rc < 0)
        return rc;
    return mr_user_take_dims(ds, index, dim, out);
}

static int get_run(const struct mr_dataset *ds, uint32_t n,
                   const struct mr_sample_context context[], void *const (*row)[MR_MAX_FIELDS],
                   uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK], int rc[])
{
    const struct state *st = ds->state;
    for (uint32_t i = 0; i < n; i++) {
        rc[i] = NOT_MADE;
        for (int f = 0; f < ds->n_fields; f++)
            memcpy(dim[i][f], ds->field[f].dim, sizeof dim[i][f]);
    }
    uint64_t errors = mr_error_count();
    int all = st->get_run(st->user.user, n, context, row, dim, rc);
    all = mr_user_result(ds, context[0].index, "get_run", all, 0, errors);
    if (all < 0)
        return all;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t index = context[i].index;
        if (rc[i] == NOT_MADE)
            rc[i] = mr_error_set(MR_ECALLBACK,
                                 "%s: sample %llu: get_run did not set rc[%u] of %u samples",
                                 st->user.name, (unsigned long long)index, i, n);
        else if (rc[i] != 0)
            rc[i] = mr_user_result(ds, index, "get_run", rc[i], 0, errors);
        else
            rc[i] = mr_user_check_dims(ds, index, dim[i]);
    }
    return 0;
}

/* One alone. */
static int get_one(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out)
{
    void *row[1][MR_MAX_FIELDS];
    uint64_t dim[1][MR_MAX_FIELDS][MR_MAX_RANK];
    int one = 0;
    for (int f = 0; f < ds->n_fields; f++)
        row[0][f] = out->field[f].room;
    struct mr_sample_context context = mr_user_context(out, index);
    int rc = get_run(ds, 1, &context, row, dim, &one);
    if (rc < 0)
        return rc;
    if (one < 0)
        return one;
    for (int f = 0; f < ds->n_fields; f++)
        memcpy(out->field[f].dim, dim[0][f], sizeof dim[0][f]);
    return 0;
}

#define CALLBACK                                                                                   \
    .name = "callback", .summary = "a user's own source of samples",                               \
    .opts_size = sizeof(struct mr_callback_opts), .state_size = sizeof(struct state),              \
    .open = open_callback, .close = mr_user_close, .enter = mr_user_enter, .leave = mr_user_leave

const struct mr_dataset_ops mr_dataset_callback = {CALLBACK, .get = get};

static const struct mr_dataset_ops run_ops = {CALLBACK, .get = get_one, .get_run = get_run};

void mr_callback_opts_fill(struct mr_callback_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_callback, opts, size);
}

int mr_dataset_open_callback(const struct mr_callback_opts *opts, struct mr_dataset **out)
{
    return mr_user_make(&mr_dataset_callback, opts, out);
}
