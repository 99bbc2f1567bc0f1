/* A user's own source of samples. */
#include "dataset/dataset.h"

#include <stdio.h>
#include <string.h>

struct state {
    char *name;
    int (*get)(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK]);
    void (*close)(void *user);
    void *user;
};

static int open_callback(struct mr_dataset *ds, const void *options)
{
    const struct mr_callback_opts *opts = options;
    struct state *st = ds->state;
    const char *name = opts->name && opts->name[0] ? opts->name : "callback";
    if (!opts->get)
        return mr_error_set(MR_EMISUSE, "%s: no get function", name);
    ds->n = opts->n;
    ds->n_fields = opts->n_fields;
    memcpy(ds->field, opts->field, sizeof ds->field);
    int rc = mr_dataset_check(ds, name);
    if (rc < 0)
        return rc;
    st->name = strdup(name);
    if (!st->name)
        return mr_error_nomem(name, strlen(name) + 1);
    st->get = opts->get;
    st->user = opts->user;
    /* Nothing fails from here on: a failed open leaves the user's object to the user. */
    st->close = opts->close;
    ds->fingerprint = mr_hash(ds->fingerprint, name, strlen(name) + 1);
    ds->fingerprint = mr_hash(ds->fingerprint, &opts->version, sizeof opts->version);
    snprintf(ds->text, sizeof ds->text, "callback: %s", name);
    return 0;
}

static void close_callback(struct mr_dataset *ds)
{
    struct state *st = ds->state;
    if (st->close)
        st->close(st->user);
    free(st->name);
}

static int check_dims(const struct mr_dataset *ds, uint64_t index,
                      uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK])
{
    const struct state *st = ds->state;
    for (int f = 0; f < ds->n_fields; f++) {
        const struct mr_spec *spec = &ds->field[f];
        for (int d = 0; d < spec->rank; d++)
            if (spec->var_dims >> d & 1 ? dim[f][d] > spec->dim[d] : dim[f][d] != spec->dim[d])
                return mr_error_set(
                    MR_ECALLBACK,
                    "%s: sample %llu: field '%s': dimension %d is %llu: expected %s%llu", st->name,
                    (unsigned long long)index, spec->name, d, (unsigned long long)dim[f][d],
                    spec->var_dims >> d & 1 ? "at most " : "", (unsigned long long)spec->dim[d]);
    }
    return 0;
}

static int get(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out)
{
    const struct state *st = ds->state;
    void *row[MR_MAX_FIELDS];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    for (int f = 0; f < ds->n_fields; f++) {
        row[f] = out->field[f].room;
        memcpy(dim[f], ds->field[f].dim, sizeof dim[f]);
    }
    mr_error_set(0, "%s", ""); /* so that a text of an older error does not pass for this one's */
    int rc = st->get(st->user, index, row, dim);
    if (rc > 0)
        return mr_error_set(MR_ECALLBACK,
                            "%s: sample %llu: get returned %d: expected 0 or a negative error",
                            st->name, (unsigned long long)index, rc);
    if (rc < 0)
        return mr_last_error()[0] ? rc
                                  : mr_error_set(rc, "%s: sample %llu: %s", st->name,
                                                 (unsigned long long)index, mr_strerror(rc));
    rc = check_dims(ds, index, dim);
    for (int f = 0; rc >= 0 && f < ds->n_fields; f++)
        memcpy(out->field[f].dim, dim[f], sizeof dim[f]);
    return rc;
}

const struct mr_dataset_ops mr_dataset_callback = {
    .name = "callback",
    .summary = "a user's own source of samples",
    .opts_size = sizeof(struct mr_callback_opts),
    .state_size = sizeof(struct state),
    .open = open_callback,
    .close = close_callback,
    .get = get,
};

void mr_callback_opts_fill(struct mr_callback_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_callback, opts, size);
}

int mr_dataset_open_callback(const struct mr_callback_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_callback, opts, out);
}
