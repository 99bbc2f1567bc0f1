/* Runs of samples become jobs for workers. */
#include "dataset/workers/results.h"

#include <stdlib.h>
#include <string.h>

#define JOB_NS      400000u   /* a job is to take so long: handing one over takes some 10 us */
#define LONG_JOB    3         /* so many times that if all workers have enough to do */
#define WAIT_NS     100000000 /* then a look whether there are workers left */
#define SMOOTHING   8
#define MOST_PIECES 128    /* jobs of a run at once */
#define LATE_PART   8      /* of the jobs, one of so many is for runs that were due earlier */
#define BURST_NS    200000 /* a thread may wake so much later, for several runs at once */

/* ---- jobs ---- */

/* Takes a free job. block: waits for one; else false: there is none. */
static bool take_job(struct mr_process_pool *p, bool block, uint32_t *out)
{
    pthread_mutex_lock(&p->lock);
    while (p->n_free == 0 && block)
        pthread_cond_wait(&p->freed, &p->lock);
    bool found = p->n_free > 0;
    if (found)
        *out = p->free[--p->n_free];
    pthread_mutex_unlock(&p->lock);
    return found;
}

/* Takes n jobs, of which some stay free for late runs; for such a run, as many as there are, but at
 * least n_least. Returns how many: 0: too few. */
static uint32_t take_jobs(struct mr_process_pool *p, uint32_t n, uint32_t n_least, bool late,
                          struct mr_job_piece piece[])
{
    pthread_mutex_lock(&p->lock);
    uint32_t n_kept = late ? 0 : p->n_jobs / LATE_PART;
    uint32_t n_free = p->n_free - MR_MIN(p->n_free, n_kept);
    uint32_t n_taken = MR_MIN(n, n_free);
    if (n_taken < (late ? n_least : n))
        n_taken = 0;
    for (uint32_t i = 0; i < n_taken; i++)
        piece[i].job = p->free[--p->n_free];
    pthread_mutex_unlock(&p->lock);
    return n_taken;
}

static void free_job(struct mr_process_pool *p, uint32_t i)
{
    struct mr_shared_job *job = mr_process_pool_job(p, i);
    atomic_store(&job->owner, MR_JOB_IDLE);
    atomic_store(&job->state, MR_JOB_FREE);
    pthread_mutex_lock(&p->lock);
    p->free[p->n_free++] = i;
    pthread_cond_signal(&p->freed);
    pthread_mutex_unlock(&p->lock);
}

/* Wakes one worker, if one sleeps. */
static void wake_worker(struct mr_process_pool *p)
{
    uint64_t asleep = 0;
    atomic_fetch_add(&p->head->work, 1);
    for (uint32_t w = 0; w < (p->n + 63) / 64; w++)
        asleep |= atomic_load(&p->head->asleep[w]);
    if (asleep)
        mr_futex_wake(&p->head->work, 1);
}

static bool is_late(const struct mr_due *due)
{
    return due->newest && due->number < atomic_load_explicit(due->newest, memory_order_relaxed);
}

/* Behind all others; in order: no place in the queue is empty while one behind it is not. false:
 * it was due before one of them. */
static bool enqueue(struct mr_process_pool *p, const struct mr_due *due, uint32_t i)
{
    struct mr_shared_head *h = p->head;
    struct mr_shared_job *job = mr_process_pool_job(p, i);
    pthread_mutex_lock(&p->lock);
    bool late = is_late(due);
    if (due->newest && !late)
        atomic_store_explicit(due->newest, due->number, memory_order_relaxed);
    if (!late) {
        uint64_t at = p->n_queued++;
        atomic_store(&job->order, at);
        atomic_store(&h->queue[at % MR_JOB_QUEUE], (uint16_t)i);
        atomic_store(&job->owner, MR_JOB_NO_OWNER);
        atomic_store(&h->n_queued, at + 1);
    }
    pthread_mutex_unlock(&p->lock);
    return !late;
}

/* urgent: workers take it before all others that wait. */
static void post(struct mr_process_pool *p, const struct mr_wanted *w,
                 const struct mr_job_piece *piece, bool urgent)
{
    struct mr_shared_job *job = mr_process_pool_job(p, piece->job);
    atomic_store(&job->owner, MR_JOB_IDLE); /* of a lost job it is still the worker that died */
    for (uint32_t i = 0; i < piece->n; i++) {
        const struct mr_sample_context *c = &w->context[piece->from + i];
        job->row[i] = (struct mr_shared_row){
            .index = c->index, .epoch = c->epoch, .seed = c->seed, .position = c->position};
        uint64_t *place = mr_shared_places(job, (uint64_t)w->ds->n_fields, i);
        for (uint32_t f = 0; f < (uint32_t)w->ds->n_fields; f++) {
            uint64_t at = mr_job_direct(w, piece->from + i, f);
            place[f] = at ? at : mr_job_staged(p, piece, i, f);
        }
    }
    job->n = piece->n;
    atomic_store(&job->start_ns, 0);
    atomic_store(&job->waiting, 0);
    atomic_store(&job->state, MR_JOB_POSTED);
    atomic_store(&job->due, urgent ? 0 : w->due.number);
    if (urgent || !enqueue(p, &w->due, piece->job)) {
        atomic_store(&job->order, MR_URGENT);
        atomic_store(&job->owner, MR_JOB_NO_OWNER);
        atomic_fetch_or(&p->head->urgent[piece->job / 64], 1ull << piece->job % 64);
    }
    wake_worker(p);
}

/* Waits until a job is made or lost. Returns whether it was made. */
static bool wait_for(struct mr_process_pool *p, uint32_t i)
{
    struct mr_shared_job *job = mr_process_pool_job(p, i);
    uint32_t state;
    while ((state = atomic_load(&job->state)) == MR_JOB_POSTED) {
        if (atomic_load(&p->broken))
            return false;
        atomic_store(&job->waiting, 1);
        mr_futex_wait(&job->state, MR_JOB_POSTED, WAIT_NS);
    }
    return state == MR_JOB_DONE;
}

/* ---- results ---- */

static void note_pace(struct mr_process_pool *p, const struct mr_shared_job *job, uint32_t n)
{
    uint64_t each = MR_MAX(MR_MIN(job->took_ns, UINT32_MAX) / n, 1);
    uint64_t before = atomic_load_explicit(&p->row_ns, memory_order_relaxed);
    uint64_t next = before ? (before * (SMOOTHING - 1) + each) / SMOOTHING : each;
    atomic_store_explicit(&p->row_ns, MR_MAX(next, 1), memory_order_relaxed);
}

static void take_rows(const struct mr_wanted *w, const struct mr_job_piece *piece)
{
    struct mr_process_pool *p = mr_process_pool_of(w->ds);
    note_pace(p, mr_process_pool_job(p, piece->job), piece->n);
    for (uint32_t i = 0; i < piece->n; i++) {
        int rc = mr_job_take_row(w, piece, i);
        w->rc[piece->from + i] = rc < 0 ? mr_job_keep_error(w, piece->from + i, rc) : 0;
    }
}

/* ---- deaths ---- */

static int broken(const struct mr_process_pool *p)
{
    return mr_error_put(&p->broken_by);
}

/* Makes a sample alone. deaths: of workers that did so before. It was due before all that wait
 * now. */
static void make_alone(const struct mr_wanted *w, uint32_t job, uint32_t at, uint32_t deaths)
{
    struct mr_process_pool *p = mr_process_pool_of(w->ds);
    struct mr_job_piece piece = {.job = job, .from = at, .n = 1};
    for (;;) {
        post(p, w, &piece, true);
        if (wait_for(p, job)) {
            take_rows(w, &piece);
            return;
        }
        if (atomic_load(&p->broken)) {
            w->rc[at] = mr_job_keep_error(w, at, broken(p));
            return;
        }
        if (++deaths >= p->max_deaths) {
            w->rc[at] = mr_job_keep_error(w, at, mr_job_death_error(w, at, &p->death[job], deaths));
            return;
        }
    }
}

/* A death during a run of several samples counts against none of them: it is one sample's fault at
 * most, and perhaps nothing in this process caused it. */
static void finish(const struct mr_wanted *w, struct mr_job_piece *piece)
{
    struct mr_process_pool *p = mr_process_pool_of(w->ds);
    uint32_t deaths = piece->n == 1;
    if (piece->over)
        return;
    if (wait_for(p, piece->job))
        take_rows(w, piece);
    else
        for (uint32_t i = 0; i < piece->n; i++)
            make_alone(w, piece->job, piece->from + i, deaths);
    free_job(p, piece->job);
    piece->over = true;
}

/* ---- the ops ---- */

/* So many that a job takes some time, and no more: others could make them meanwhile. */
static uint32_t rows_of_a_job(struct mr_process_pool *p, bool in_slots)
{
    uint64_t each = atomic_load_explicit(&p->row_ns, memory_order_relaxed);
    uint64_t front = atomic_load_explicit(&p->head->front, memory_order_relaxed);
    uint64_t queued = atomic_load_explicit(&p->head->n_queued, memory_order_relaxed) - front;
    uint64_t ns = queued >= p->n && queued <= p->n_jobs ? LONG_JOB * JOB_NS : JOB_NS;
    uint32_t most = in_slots ? MR_JOB_ROWS : p->rows_a_job;
    return each == 0 ? 1 : (uint32_t)MR_MIN(MR_MAX(ns / each, 1), most);
}

/* Jobs of one size, rather than a short one at the end. */
static uint32_t even(uint32_t n, uint32_t most)
{
    uint32_t n_jobs = (n + most - 1) / most;
    return (n + n_jobs - 1) / n_jobs;
}

/* What the samples of a dead worker need is done at once. */
static void finish_lost(const struct mr_wanted *w, struct mr_job_piece *piece, uint32_t n)
{
    struct mr_process_pool *p = mr_process_pool_of(w->ds);
    for (uint32_t i = 0; i < n; i++)
        if (!piece[i].over &&
            atomic_load(&mr_process_pool_job(p, piece[i].job)->state) == MR_JOB_LOST)
            finish(w, &piece[i]);
}

/* Waits for the last job first: when that is made, the others are, but for a few, so that this
 * thread is woken once. It is also woken when a worker has died. */
static void finish_all(const struct mr_wanted *w, struct mr_job_piece *piece, uint32_t n)
{
    struct mr_process_pool *p = mr_process_pool_of(w->ds);
    for (uint32_t last = n; last-- > 0;) {
        struct mr_shared_job *job = mr_process_pool_job(p, piece[last].job);
        while (!piece[last].over && atomic_load(&job->state) == MR_JOB_POSTED &&
               !atomic_load(&p->broken)) {
            atomic_store(&job->waiting, 1);
            finish_lost(w, piece, n);
            if (!piece[last].over)
                mr_futex_wait(&job->state, MR_JOB_POSTED, WAIT_NS);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        finish(w, &piece[i]);
}

static bool all_in_slots(const struct mr_wanted *w, uint32_t n)
{
    if (!w->slots.data)
        return false;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t f = 0; f < (uint32_t)w->ds->n_fields; f++)
            if (!mr_job_direct(w, i, f))
                return false;
    return true;
}

static void make_all(const struct mr_wanted *w, uint32_t n)
{
    struct mr_process_pool *p = mr_process_pool_of(w->ds);
    struct mr_job_piece piece[MOST_PIECES];
    uint32_t from = 0, posted = 0;
    while (from < n) {
        struct mr_job_piece *next = &piece[posted];
        if (posted == MOST_PIECES || !take_job(p, posted == 0, &next->job)) {
            finish_all(w, piece, posted);
            posted = 0;
            continue;
        }
        /* other threads change it: asked for once */
        uint32_t worth = rows_of_a_job(p, w->in_slots);
        next->from = from;
        next->n = even(n - from, worth);
        next->over = false;
        post(p, w, next, false);
        from += next->n;
        posted++;
    }
    finish_all(w, piece, posted);
}

int mr_workers_get_run(const struct mr_dataset *ds, uint32_t n,
                       const struct mr_sample_context context[], void *const (*row)[MR_MAX_FIELDS],
                       uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK], int rc[])
{
    struct mr_process_pool *p = mr_process_pool_of(ds);
    struct mr_wanted w = {.ds = ds,
                          .context = context,
                          .row = row,
                          .dim = dim,
                          .rc = rc,
                          .thread = context[0].worker_state};
    int here = mr_process_check(&p->process, p->user.name);
    if (here < 0)
        return here;
    if (atomic_load(&p->broken))
        return broken(p);
    if (w.thread)
        w.thread->n = 0;
    for (int f = 0; f < ds->n_fields && !w.slots.data; f++)
        w.slots = mr_shared_block_find(p->memory, row[0][f]);
    w.in_slots = all_in_slots(&w, n);
    make_all(&w, n);
    return 0;
}

/* ---- runs in two steps ---- */

struct posted {
    struct mr_wanted w;
    uint32_t n_rows, n;
    struct mr_job_piece piece[MOST_PIECES];
};

/* Into jobs of up to `each` samples, or of a few more if there are not so many jobs. Not with a
 * timeout, which counts for each job. Returns whether there were enough. */
static bool split(struct mr_process_pool *p, struct posted *r, uint32_t each)
{
    uint32_t n = (r->n_rows + each - 1) / each, least = (r->n_rows + MR_JOB_ROWS - 1) / MR_JOB_ROWS;
    uint32_t most = MR_MIN(p->n_jobs - p->n_jobs / LATE_PART, MOST_PIECES);
    if (p->timeout_ns > 0)
        least = n;
    else
        n = MR_MIN(n, MR_MAX(most, least));
    r->n = n <= most ? take_jobs(p, n, least, is_late(&r->w.due), r->piece) : 0;
    for (uint32_t i = 0, from = 0; i < r->n; i++) {
        r->piece[i].from = from;
        r->piece[i].n = (r->n_rows - from + r->n - i - 1) / (r->n - i);
        r->piece[i].over = false;
        from += r->piece[i].n;
    }
    return r->n > 0;
}

int mr_workers_post_run(const struct mr_dataset *ds, uint32_t n,
                        const struct mr_sample_context context[], void *const (*row)[MR_MAX_FIELDS],
                        const struct mr_due *due, int rc[], void **run)
{
    struct mr_process_pool *p = mr_process_pool_of(ds);
    struct posted *r = *run ? *run : malloc(sizeof *r);
    *run = r;
    if (!r || n == 0 || !mr_process_is(&p->process) || atomic_load(&p->broken))
        return 0;
    r->w = (struct mr_wanted){.ds = ds,
                              .context = context,
                              .row = row,
                              .rc = rc,
                              .thread = context[0].worker_state,
                              .due = *due,
                              .slots = mr_shared_block_find(p->memory, row[0][0])};
    r->w.in_slots = all_in_slots(&r->w, n);
    r->n_rows = n;
    if (!r->w.in_slots || !split(p, r, rows_of_a_job(p, true)))
        return 0;
    for (uint32_t i = 0; i < r->n; i++)
        post(p, &r->w, &r->piece[i], false);
    return 1;
}

bool mr_workers_run_made(const struct mr_dataset *ds, const void *run)
{
    const struct mr_process_pool *p = mr_process_pool_of(ds);
    const struct posted *r = run;
    bool made = true;
    for (uint32_t i = r->n; i-- > 0;) {
        uint32_t state = atomic_load(&mr_process_pool_job(p, r->piece[i].job)->state);
        if (state == MR_JOB_LOST)
            return true;
        made &= state != MR_JOB_POSTED;
    }
    return made || atomic_load(&p->broken);
}

/* Which of n runs to wait for: a later one if they are made faster than it pays to wake. */
static uint32_t choose_run(struct mr_process_pool *p, uint32_t n, const struct posted *first)
{
    uint64_t row_ns = atomic_load_explicit(&p->row_ns, memory_order_relaxed);
    uint64_t interval_ns = MR_MAX(row_ns * first->n_rows / p->n, 1);
    return (uint32_t)MR_MIN(n / 4, BURST_NS / interval_ns);
}

static bool any_lost(const struct mr_process_pool *p, uint32_t n, void *const run[])
{
    for (uint32_t i = 0; i < n; i++) {
        const struct posted *r = run[i];
        for (uint32_t k = 0; k < r->n; k++)
            if (atomic_load(&mr_process_pool_job(p, r->piece[k].job)->state) == MR_JOB_LOST)
                return true;
    }
    return false;
}

void mr_workers_wait_runs(const struct mr_dataset *ds, uint32_t n, void *const run[])
{
    struct mr_process_pool *p = mr_process_pool_of(ds);
    uint32_t chosen = choose_run(p, n, run[0]);
    const struct posted *r = run[chosen];
    for (uint32_t k = r->n; k-- > 0;) {
        struct mr_shared_job *job = mr_process_pool_job(p, r->piece[k].job);
        while (atomic_load(&job->state) == MR_JOB_POSTED) {
            atomic_store(&job->waiting, 1);
            if (any_lost(p, n, run) || atomic_load(&p->broken) || mr_interrupted())
                return;
            mr_futex_wait(&job->state, MR_JOB_POSTED, chosen > 0 ? BURST_NS : WAIT_NS);
            if (chosen > 0 && mr_workers_run_made(ds, run[0]))
                return; /* a later run may hold a slow sample */
        }
    }
}

int mr_workers_finish_run(const struct mr_dataset *ds, void *run)
{
    struct posted *r = run;
    (void)ds;
    if (r->w.thread)
        r->w.thread->n = 0;
    finish_all(&r->w, r->piece, r->n);
    return 0;
}

/* Jobs that no worker has taken are taken back. */
void mr_workers_drop_run(const struct mr_dataset *ds, void *run)
{
    struct mr_process_pool *p = mr_process_pool_of(ds);
    struct posted *r = run;
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t none = MR_JOB_NO_OWNER;
        struct mr_shared_job *job = mr_process_pool_job(p, r->piece[i].job);
        if (atomic_compare_exchange_strong(&job->owner, &none, MR_JOB_IDLE))
            atomic_store(&job->state, MR_JOB_FREE);
    }
    for (uint32_t i = 0; i < r->n; i++) {
        wait_for(p, r->piece[i].job);
        free_job(p, r->piece[i].job);
    }
}

int mr_workers_get(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out)
{
    void *row[1][MR_MAX_FIELDS] = {{NULL}};
    uint64_t dim[1][MR_MAX_FIELDS][MR_MAX_RANK];
    int one = 0;
    const struct mr_kept_error *kept = mr_job_find_error(out->worker_state, out, index);
    if (kept)
        return mr_error_put(&kept->error);
    for (int f = 0; f < ds->n_fields; f++)
        row[0][f] = out->field[f].room;
    struct mr_sample_context context = mr_user_context(out, index);
    int rc = mr_workers_get_run(ds, 1, &context, (void *const(*)[MR_MAX_FIELDS])row, dim, &one);
    rc = rc < 0 ? rc : one;
    for (int f = 0; rc == 0 && f < ds->n_fields; f++)
        memcpy(out->field[f].dim, dim[0][f], sizeof dim[0][f]);
    return rc;
}
