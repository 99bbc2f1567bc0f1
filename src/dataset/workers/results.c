/* What workers left of a job: rows, errors, and why a worker ended. */
#include "dataset/workers/results.h"
#include "base/libc.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where in the shared memory a row's field is; 0: not there. */
uint64_t mr_job_direct(const struct mr_wanted *w, uint32_t at, uint32_t f)
{
    uint64_t in = (uint64_t)((uintptr_t)w->row[at][f] - (uintptr_t)w->slots.data);
    return w->slots.data && in < w->slots.bytes ? w->slots.offset + in : 0;
}

/* Where a job has memory of its own for it. */
uint64_t mr_job_staged(const struct mr_process_pool *p, const struct mr_job_piece *piece,
                       uint32_t i, uint32_t f)
{
    return p->rows_at + piece->job * p->job_rows_bytes + i * p->row_bytes + p->field_at[f];
}

/* ---- results ---- */

/* Sets the error of a sample; keeps it, too, as the loader asks for that sample again. */
int mr_job_keep_error(const struct mr_wanted *w, uint32_t i, int rc)
{
    if (w->thread) {
        struct mr_kept_error *k = &w->thread->kept[w->thread->n++ % MR_KEPT_ERRORS];
        k->index = w->context[i].index;
        k->epoch = w->context[i].epoch;
        k->position = w->context[i].position;
        mr_error_keep(rc, &k->error);
    }
    return rc;
}

/* The code and the text that a worker left. */
static int row_error(const struct mr_wanted *w, const struct mr_shared_job *job, uint32_t i,
                     uint64_t index)
{
    const struct mr_process_pool *p = mr_process_pool_of(w->ds);
    uint64_t errors = mr_error_count();
    int rc = job->result[i].rc;
    if (rc > 0)
        return mr_error_set(MR_ECALLBACK,
                            "%s: sample %llu: get_run did not set rc[%u] of %u samples",
                            p->user.name, (unsigned long long)index, i, job->n);
    if (job->result[i].has_text)
        mr_error_set(MR_ECALLBACK, "%.*s", MR_ERROR_BYTES - 1, job->text[i]);
    return mr_user_result(w->ds, index, "get_run", rc, 0, errors);
}

/* Of a field's bytes, those that its dimensions say. */
static uint64_t used_bytes(const struct mr_spec *spec, const uint64_t *dim)
{
    uint64_t bytes = mr_dtype_size(spec->dtype);
    for (int d = 0; d < spec->rank; d++)
        bytes *= dim[d]; /* at most the spec's: it was checked */
    return bytes;
}

int mr_job_take_row(const struct mr_wanted *w, const struct mr_job_piece *piece, uint32_t i)
{
    const struct mr_process_pool *p = mr_process_pool_of(w->ds);
    struct mr_shared_job *job = mr_process_pool_job(p, piece->job);
    uint32_t at = piece->from + i, n_fields = (uint32_t)w->ds->n_fields;
    uint64_t index = w->context[at].index;
    if (job->result[i].rc != 0)
        return row_error(w, job, i, index);
    bool has_dims = job->result[i].has_dims; /* read once: a worker can change it */
    if (!has_dims && !w->dim && w->in_slots)
        return 0;
    uint64_t own[MR_MAX_FIELDS][MR_MAX_RANK], (*dim)[MR_MAX_RANK] = w->dim ? w->dim[at] : own;
    for (uint32_t f = 0; f < n_fields; f++)
        memcpy(dim[f], w->ds->field[f].dim, sizeof dim[f]);
    if (has_dims)
        memcpy(dim, mr_shared_dims(job, n_fields, i), n_fields * sizeof dim[0]);
    int rc = has_dims ? mr_user_check_dims(w->ds, index, dim) : 0;
    if (rc < 0)
        return rc;
    for (uint32_t f = 0; f < n_fields; f++)
        if (!mr_job_direct(w, at, f))
            memcpy(w->row[at][f], (const unsigned char *)p->head + mr_job_staged(p, piece, i, f),
                   used_bytes(&w->ds->field[f], dim[f]));
    return 0;
}

/* ---- deaths ---- */

/* How a process ended, as a clause. Returns buf. */
static const char *death_text(const struct mr_process_pool *p, const struct mr_death *d, char *buf,
                              size_t cap)
{
    const char *name = mr_libc_signal_name(d->signal);
    if (d->timeout)
        snprintf(buf, cap, "took longer than the timeout of %.3g s and was killed",
                 (double)p->timeout_ns / 1e9);
    else if (d->signal)
        snprintf(buf, cap, "was killed by signal %d (SIG%s)%s", d->signal, name ? name : "?",
                 d->signal == SIGKILL ? ", perhaps out of memory" : "");
    else if (d->status >= 0)
        snprintf(buf, cap, "exited with status %d", d->status);
    else
        snprintf(buf, cap, "ended");
    return buf;
}

int mr_job_death_error(const struct mr_wanted *w, uint32_t at, const struct mr_death *d,
                       uint32_t deaths)
{
    const struct mr_process_pool *p = mr_process_pool_of(w->ds);
    char how[128];
    return mr_error_set(MR_ECALLBACK,
                        "%s: sample %llu: %u workers ended during it; the last one, process "
                        "%" PRId64 ", %s",
                        p->user.name, (unsigned long long)w->context[at].index, deaths, d->pid,
                        death_text(p, d, how, sizeof how));
}

/* ---- what a thread keeps ---- */

/* The error of a sample of this thread's latest run. */
const struct mr_kept_error *mr_job_find_error(const struct mr_kept_errors *t,
                                              const struct mr_sample *s, uint64_t index)
{
    for (uint32_t i = 0; t && i < MR_MIN(t->n, MR_KEPT_ERRORS); i++)
        if (t->kept[i].index == index && t->kept[i].epoch == s->epoch &&
            t->kept[i].position == s->position)
            return &t->kept[i];
    return NULL;
}

int mr_workers_enter(const struct mr_dataset *ds, uint32_t worker, void **state)
{
    (void)worker;
    *state = calloc(1, sizeof(struct mr_kept_errors));
    return *state
               ? 0
               : mr_error_nomem(mr_process_pool_of(ds)->user.name, sizeof(struct mr_kept_errors));
}

void mr_workers_leave(const struct mr_dataset *ds, uint32_t worker, void *state)
{
    (void)ds;
    (void)worker;
    free(state);
}
