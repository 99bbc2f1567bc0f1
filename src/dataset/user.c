/* What callback sets and located sets have in common: opening, workers, checks of returns. */
#include "dataset/user.h"

#include <string.h>

static struct mr_user *of(const struct mr_dataset *ds)
{
    return ds->state;
}

int mr_user_open(struct mr_dataset *ds, const struct mr_user *from, const char *name,
                 uint64_t version)
{
    if (!name || !name[0])
        name = ds->ops->name;
    if (from->exit && !from->init)
        return mr_error_set(MR_EMISUSE, "%s: exit without init: expected both, or init alone",
                            name);
    int rc = mr_dataset_check(ds, name);
    if (rc < 0)
        return rc;
    *of(ds) = *from;
    of(ds)->name = strdup(name);
    if (!of(ds)->name)
        return mr_error_nomem(name, strlen(name) + 1);
    ds->fingerprint = mr_hash(ds->fingerprint, name, strlen(name) + 1);
    ds->fingerprint = mr_hash(ds->fingerprint, &version, sizeof version);
    snprintf(ds->text, sizeof ds->text, "%s: %s", ds->ops->name, name);
    return 0;
}

int mr_user_make(const struct mr_dataset_ops *ops, const void *opts, struct mr_dataset **out)
{
    int rc = mr_dataset_make(ops, opts, out);
    if (rc < 0)
        return rc;
    of(*out)->opened = true;
    return 0;
}

void mr_user_close(struct mr_dataset *ds)
{
    struct mr_user *u = of(ds);
    if (u->opened && u->close)
        u->close(u->user);
    free(u->name);
}

int mr_user_result(const struct mr_dataset *ds, uint64_t index, const char *call, int rc, int most,
                   uint64_t errors)
{
    char who[128];
    if (rc >= 0 && rc <= most)
        return rc;
    snprintf(who, sizeof who, "%.80s: sample %llu", of(ds)->name, (unsigned long long)index);
    return mr_callback_error(who, call, rc, most, errors);
}

int mr_user_enter(const struct mr_dataset *ds, uint32_t worker, void **state)
{
    const struct mr_user *u = of(ds);
    char who[128];
    *state = NULL;
    if (!u->init)
        return 0;
    uint64_t errors = mr_error_count();
    int rc = u->init(u->user, worker, state);
    if (rc == 0)
        return 0;
    if (worker == MR_NO_WORKER)
        snprintf(who, sizeof who, "%.80s: init", u->name);
    else
        snprintf(who, sizeof who, "%.80s: init of worker %u", u->name, worker);
    return mr_callback_error(who, "init", rc, 0, errors);
}

void mr_user_leave(const struct mr_dataset *ds, uint32_t worker, void *state)
{
    const struct mr_user *u = of(ds);
    if (u->exit)
        u->exit(u->user, worker, state);
}

int mr_user_check_dims(const struct mr_dataset *ds, uint64_t index,
                       uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK])
{
    for (int f = 0; f < ds->n_fields; f++) {
        const struct mr_spec *spec = &ds->field[f];
        for (int d = 0; d < spec->rank; d++) {
            bool varies = spec->var_dims >> d & 1;
            if (varies ? dim[f][d] > spec->dim[d] : dim[f][d] != spec->dim[d])
                return mr_error_set(
                    MR_ECALLBACK,
                    "%s: sample %llu: field '%s': dimension %d is %llu: expected %s%llu",
                    of(ds)->name, (unsigned long long)index, spec->name, d,
                    (unsigned long long)dim[f][d], varies ? "at most " : "",
                    (unsigned long long)spec->dim[d]);
        }
    }
    return 0;
}

void mr_user_rows(const struct mr_dataset *ds, const struct mr_sample *sample,
                  void *row[MR_MAX_FIELDS], uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK])
{
    for (int f = 0; f < ds->n_fields; f++) {
        row[f] = sample->field[f].room;
        memcpy(dim[f], ds->field[f].dim, sizeof dim[f]);
    }
}

int mr_user_take_dims(const struct mr_dataset *ds, uint64_t index,
                      uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK], struct mr_sample *sample)
{
    int rc = mr_user_check_dims(ds, index, dim);
    if (rc < 0)
        return rc;
    for (int f = 0; f < ds->n_fields; f++)
        memcpy(sample->field[f].dim, dim[f], sizeof dim[f]);
    return 0;
}
