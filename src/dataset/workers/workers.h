/*
 * The parent's side of a data set whose samples other processes make (shared.h: what they share).
 *
 * - workers.c   the data set: opening, closing, its ops
 * - jobs.c      runs of samples become jobs
 * - results.c   jobs' results become rows and errors
 * - monitor.c   one thread that sees processes end, and starts others
 * - child.c     the other side
 *
 * A loader's thread that needs a run of samples posts it as one job, or as several if samples take
 * long, so that one thread keeps many processes busy, and posts others meanwhile.
 */
#ifndef MR_DATASET_WORKERS_WORKERS_H
#define MR_DATASET_WORKERS_WORKERS_H

#include "dataset/user.h"
#include "dataset/workers/shared.h"

/* How a process ended. */
struct mr_death {
    int64_t pid;
    int signal; /* that killed it; 0: none, or not known */
    int status; /* of exit; -1: not known */
    bool timeout;
};

/* A worker, by its number. The monitor's, once that runs. */
struct mr_worker_process {
    int pidfd; /* -1: it is not running */
    int64_t pid;
    uint32_t n_early;  /* ends in a row without a sample */
    uint32_t n_short;  /* starts in a row that failed for want of what may come back */
    uint64_t retry_ns; /* when it is started again; 0: it runs, or was given up */
    bool timeout;      /* it was killed for that */
};

struct mr_process_pool {
    struct mr_user user; /* first */
    struct mr_process process;
    int (*start)(void *user, uint32_t worker, int fd, int64_t *out_pid);
    uint32_t n, n_jobs, rows_a_job, max_deaths;
    uint64_t timeout_ns;

    /* The shared memory, and where things are in it: workers can write its head, too. */
    struct mr_shared_memory *memory;
    struct mr_shared_block block; /* the first */
    struct mr_shared_head *head;
    uint64_t bytes, jobs_at, job_bytes, rows_at, job_rows_bytes, row_bytes;
    uint64_t field_at[MR_MAX_FIELDS];

    pthread_mutex_t lock;
    pthread_cond_t freed;
    uint32_t free[MR_MAX_JOBS], n_free; /* [lock] */
    uint64_t n_queued;                  /* [lock] jobs ever */
    struct mr_death death[MR_MAX_JOBS]; /* of a LOST job's owner; before it has that state */
    _Atomic uint64_t row_ns;            /* what a worker takes for a sample, lately; 0: not known */

    struct mr_worker_process *worker; /* n */
    pthread_t monitor;
    bool has_lock, has_monitor;
    int wake; /* eventfd: closing */
    _Atomic bool closing;
    _Atomic bool broken; /* no worker is left, and none can be started: */
    struct mr_error_kept broken_by;
};

static inline struct mr_process_pool *mr_process_pool_of(const struct mr_dataset *ds)
{
    return ds->state;
}

static inline struct mr_shared_job *mr_process_pool_job(const struct mr_process_pool *p, uint32_t i)
{
    return mr_shared_job(p->head, p->jobs_at, p->job_bytes, i);
}

/* ---- jobs.c ---- */
int mr_workers_get_run(const struct mr_dataset *ds, uint32_t n,
                       const struct mr_sample_context context[], void *const (*row)[MR_MAX_FIELDS],
                       uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK], int rc[]);
int mr_workers_post_run(const struct mr_dataset *ds, uint32_t n,
                        const struct mr_sample_context context[], void *const (*row)[MR_MAX_FIELDS],
                        const struct mr_due *due, int rc[], void **run);
bool mr_workers_run_made(const struct mr_dataset *ds, const void *run);
void mr_workers_wait_runs(const struct mr_dataset *ds, uint32_t n, void *const run[]);
int mr_workers_finish_run(const struct mr_dataset *ds, void *run);
void mr_workers_drop_run(const struct mr_dataset *ds, void *run);
int mr_workers_get(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out);

/* ---- results.c ---- */
/* Begins and ends what a thread keeps of its latest run: the errors' texts. */
int mr_workers_enter(const struct mr_dataset *ds, uint32_t worker, void **state);
void mr_workers_leave(const struct mr_dataset *ds, uint32_t worker, void *state);

/* ---- monitor.c ---- */
/* Starts all processes, then the thread that watches them. Returns 0 or an error: none is left. */
int mr_monitor_open(struct mr_process_pool *p);
/* Ends them: those that do not end by themselves soon are killed. */
void mr_monitor_close(struct mr_process_pool *p);

#endif
