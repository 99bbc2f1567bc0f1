/* Data sets whose samples other processes make: opening and closing. */
#include "dataset/workers/workers.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define JOBS_A_WORKER 8 /* some being made, some posted, some whose rows are being taken */
#define MIN_JOBS      32
#define JOB_BYTES     (512u << 10) /* of rows; one sample may have more */
#define PAGE          4096

/* ---- shared memory ---- */

/* Where everything is. */
static int lay_out(struct mr_process_pool *p, const struct mr_dataset *ds)
{
    uint64_t at = 0;
    for (int f = 0; f < ds->n_fields; f++) {
        uint64_t bytes = 0;
        int rc = mr_spec_bytes(&ds->field[f], &bytes);
        if (rc < 0)
            return rc;
        p->field_at[f] = at;
        at += mr_round_up(MR_MAX(bytes, 1), MR_CACHE_LINE);
    }
    p->row_bytes = at;
    p->rows_a_job = (uint32_t)MR_MIN(MR_MAX(JOB_BYTES / MR_MAX(at, 1), 1), MR_JOB_ROWS);
    p->n_jobs = MR_MIN(MR_MAX(JOBS_A_WORKER * p->n, MIN_JOBS), MR_MAX_JOBS);
    p->jobs_at =
        mr_round_up(sizeof(struct mr_shared_head) + p->n * sizeof(struct mr_shared_worker), PAGE);
    p->job_bytes = mr_round_up(mr_shared_job_bytes((uint64_t)ds->n_fields), PAGE);
    p->rows_at = p->jobs_at + p->n_jobs * p->job_bytes;
    p->job_rows_bytes = mr_round_up(p->rows_a_job * at, PAGE);
    if (!mr_mul(p->n_jobs, p->job_rows_bytes, &p->bytes) ||
        !mr_add(p->bytes, p->rows_at, &p->bytes))
        return mr_error_set(MR_ELIMIT, "%s: a sample of %llu bytes", p->user.name,
                            (unsigned long long)at);
    return 0;
}

static void fill_head(struct mr_process_pool *p, const struct mr_dataset *ds)
{
    struct mr_shared_head *h = p->head;
    h->bytes = p->bytes;
    h->jobs_at = p->jobs_at;
    h->job_bytes = p->job_bytes;
    h->rows_at = p->rows_at;
    h->job_rows_bytes = p->job_rows_bytes;
    h->row_bytes = p->row_bytes;
    h->rows_a_job = p->rows_a_job;
    h->n_jobs = p->n_jobs;
    h->n_workers = p->n;
    h->parent = getpid();
    h->n_fields = ds->n_fields;
    memcpy(h->field_at, p->field_at, sizeof h->field_at);
    memcpy(h->field, ds->field, sizeof h->field);
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        atomic_store(&mr_process_pool_job(p, i)->owner, MR_JOB_IDLE);
        p->free[p->n_free++] = p->n_jobs - 1 - i;
    }
    for (uint32_t i = 0; i < p->n; i++)
        atomic_store(&h->worker[i].blocked, mr_signals_blocked());
    h->mark = MR_WORKERS_MARK;
}

static int create_memory(struct mr_process_pool *p, struct mr_dataset *ds)
{
    int rc = lay_out(p, ds);
    if (rc < 0)
        return rc;
    rc = mr_shared_memory_create(p->user.name, p->bytes, &p->block, &p->memory);
    if (rc < 0)
        return rc;
    p->head = (struct mr_shared_head *)p->block.data;
    fill_head(p, ds);
    ds->shared = p->memory;
    return 0;
}

/* ---- the data set ---- */

static int check(const struct mr_workers_opts *o, const char *name)
{
    if (!o->start)
        return mr_error_set(MR_EMISUSE, "%s: no start function", name);
    if (o->workers > MR_MAX_WORKER_PROCESSES)
        return mr_error_set(MR_EOPTION, "%s: workers: %u: expected 0..%d processes", name,
                            o->workers, MR_MAX_WORKER_PROCESSES);
    return 0;
}

static int create_parts(struct mr_process_pool *p)
{
    p->worker = calloc(p->n, sizeof *p->worker);
    if (!p->worker)
        return mr_error_nomem(p->user.name, p->n * sizeof *p->worker);
    for (uint32_t i = 0; i < p->n; i++)
        p->worker[i].pidfd = -1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->freed, NULL);
    p->has_lock = true;
    return 0;
}

static int open_workers(struct mr_dataset *ds, const void *options)
{
    const struct mr_workers_opts *o = options;
    struct mr_process_pool *p = ds->state;
    p->wake = -1;
    int rc = check(o, o->name && o->name[0] ? o->name : ds->ops->name);
    if (rc < 0)
        return rc;
    ds->n = o->n;
    ds->n_fields = o->n_fields;
    memcpy(ds->field, o->field, sizeof ds->field);
    ds->draws = o->changes != 0;
    struct mr_user user = {.user = o->user, .close = o->close};
    rc = mr_user_open(ds, &user, o->name, o->version);
    if (rc < 0)
        return rc;
    p->start = o->start;
    p->n = o->workers ? o->workers
                      : (uint32_t)MR_MIN(MR_MAX(mr_cpu_count(), 1), MR_MAX_WORKER_PROCESSES);
    p->timeout_ns = o->timeout_ns;
    p->max_deaths = MR_MAX(o->max_deaths, 2);
    ds->makers = p->n;
    mr_process_note(&p->process);
    rc = create_parts(p);
    if (rc < 0)
        return rc;
    rc = create_memory(p, ds);
    return rc < 0 ? rc : mr_monitor_open(p);
}

static void close_workers(struct mr_dataset *ds)
{
    struct mr_process_pool *p = ds->state;
    bool ours = p->process.pid != 0 && mr_process_is(&p->process);
    if (ours && p->has_monitor)
        mr_monitor_close(p);
    if (p->memory)
        mr_shared_block_destroy(p->memory, &p->block);
    mr_shared_memory_release(p->memory);
    if (ours && p->has_lock) {
        pthread_cond_destroy(&p->freed);
        pthread_mutex_destroy(&p->lock);
    }
    free(p->worker);
    if (!ours)
        p->user.close = NULL; /* the workers are those of another process */
    mr_user_close(ds);
}

const struct mr_dataset_ops mr_dataset_workers = {
    .name = "workers",
    .summary = "samples that other processes make",
    .opts_size = sizeof(struct mr_workers_opts),
    .state_size = sizeof(struct mr_process_pool),
    .open = open_workers,
    .close = close_workers,
    .get = mr_workers_get,
    .get_run = mr_workers_get_run,
    .post_run = mr_workers_post_run,
    .run_made = mr_workers_run_made,
    .wait_runs = mr_workers_wait_runs,
    .finish_run = mr_workers_finish_run,
    .drop_run = mr_workers_drop_run,
    .enter = mr_workers_enter,
    .leave = mr_workers_leave,
};

void mr_workers_opts_fill(struct mr_workers_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_workers, opts, size);
}

int mr_dataset_open_workers(const struct mr_workers_opts *opts, struct mr_dataset **out)
{
    return mr_user_make(&mr_dataset_workers, opts, out);
}
