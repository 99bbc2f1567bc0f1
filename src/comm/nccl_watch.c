/*
 * No rank waits for ever: a thread looks whether the work that sums were enqueued for has ended,
 * and asks NCCL for errors. After the time limit it aborts the communicator: NCCL's kernels end,
 * and with them whatever waits for the stream. If not even that ends in two seconds, the process
 * does.
 */
#include "comm/nccl.h"
#include "device/device.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS     20000000u
#define ABORT_NS    2000000000u
#define MISSING_NS  1500000000u
#define EXIT_STATUS 4

static void *run_abort(void *arg)
{
    struct mr_nccl *r = mr_nccl_of(arg);
    r->nccl.ncclCommAbort(r->comm);
    pthread_mutex_lock(&r->watch.lock);
    r->watch.aborted = true;
    pthread_cond_broadcast(&r->watch.changed);
    pthread_mutex_unlock(&r->watch.lock);
    return NULL;
}

/* With the lock. */
static void abort_locked(struct mr_comm *c)
{
    struct mr_nccl_watch *w = &mr_nccl_of(c)->watch;
    pthread_t thread;
    if (w->aborting || !mr_nccl_of(c)->comm)
        return;
    w->aborting = true;
    if (mr_thread_start(&thread, "nccl-abort", run_abort, c) < 0)
        return;
    const uint64_t until = mr_time_ns() + ABORT_NS;
    while (!w->aborted && mr_cond_wait_until(&w->changed, &w->lock, until))
        ;
    if (!w->aborted) {
        fprintf(stderr, "%s%sncclCommAbort did not end in 2 s: this process ends\n", w->named,
                w->named[0] ? "; " : "comm: ");
        _exit(EXIT_STATUS);
    }
    pthread_join(thread, NULL);
}

void mr_nccl_abort(struct mr_comm *c)
{
    struct mr_nccl_watch *w = &mr_nccl_of(c)->watch;
    pthread_mutex_lock(&w->lock);
    abort_locked(c);
    pthread_mutex_unlock(&w->lock);
}

static void say(struct mr_comm *c, const char *what, double seconds)
{
    struct mr_nccl *r = mr_nccl_of(c);
    if (seconds > 0)
        snprintf(r->watch.failure, sizeof r->watch.failure,
                 "comm: rank %u (%s): a sum by NCCL did not end in %.1f s", c->rank, r->node,
                 seconds);
    else
        snprintf(r->watch.failure, sizeof r->watch.failure, "comm: rank %u (%s): NCCL: %.300s",
                 c->rank, r->node, what);
}

/* With the lock. */
static void look(struct mr_comm *c)
{
    struct mr_nccl *r = mr_nccl_of(c);
    struct mr_nccl_watch *w = &r->watch;
    int error = NCCL_SUCCESS, result = r->nccl.ncclCommGetAsyncError(r->comm, &error);
    if (result == NCCL_SUCCESS)
        result = error;
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
        say(c, r->nccl.ncclGetErrorString(result), 0);
        return;
    }
    if (!w->due[0])
        return;
    if (mr_event_query(w->event[0]) != 0) { /* passed, or an error that the stream's owner gets */
        struct mr_event *was = w->event[0];
        w->event[0] = w->event[1];
        w->event[1] = was;
        w->due[0] = w->due[1];
        w->due[1] = false;
        w->since_ns = mr_time_ns();
        return;
    }
    double seconds = (double)(mr_time_ns() - w->since_ns) * 1e-9;
    if (seconds * 1e9 > (double)c->opts.timeout_ns)
        say(c, "", seconds);
}

/* By MPI, a rank that does not come has a name. All others look for it at about the same time,
 * before they abort, which takes each as long as it may. The program's thread has the lock while it
 * is in MPI: then it finds the missing ranks itself. With the watch's lock. */
static void name_missing(struct mr_comm *c)
{
    struct mr_nccl *r = mr_nccl_of(c);
    struct mr_nccl_watch *w = &r->watch;
    static double zero; /* after a failure MPI may still write it; one communicator uses MPI */
    w->speaker = c->rank;
    snprintf(w->named, sizeof w->named, "%.400s: not all ranks came to it", w->failure);
    if (!r->control || pthread_mutex_trylock(&r->control_lock))
        return;
    r->control->opts.timeout_ns = MISSING_NS;
    int rc = mr_comm_sum(r->control, &zero, &zero, 1, MR_F64, MR_F64, MR_SUM_FAST, NULL);
    w->speaker = r->control->speaker;
    if (rc == 0)
        snprintf(w->named, sizeof w->named, "%.400s, though all ranks came", w->failure);
    else
        snprintf(w->named, sizeof w->named, "%.400s; %.500s", w->failure, mr_last_error());
    pthread_mutex_unlock(&r->control_lock);
}

static void *run_watch(void *arg)
{
    struct mr_comm *c = arg;
    struct mr_nccl_watch *w = &mr_nccl_of(c)->watch;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        mr_cond_wait_until(&w->changed, &w->lock, mr_time_ns() + LOOK_NS);
        if (w->stop || w->failure[0])
            continue;
        look(c);
        if (!w->failure[0])
            continue;
        name_missing(c);
        abort_locked(c);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int mr_nccl_watch_start(struct mr_comm *c)
{
    struct mr_nccl *r = mr_nccl_of(c);
    for (int i = 0; i < 2; i++) {
        int rc = mr_event_create(r->device, 0, &r->watch.event[i]);
        if (rc < 0)
            return rc;
    }
    int rc = mr_thread_start(&r->watch.thread, "nccl-watch", run_watch, c);
    r->watch.started = rc == 0;
    return rc;
}

void mr_nccl_watch_stop(struct mr_comm *c)
{
    struct mr_nccl_watch *w = &mr_nccl_of(c)->watch;
    if (w->started) {
        pthread_mutex_lock(&w->lock);
        w->stop = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
    }
    w->started = false;
    for (int i = 0; i < 2; i++)
        mr_event_destroy(w->event[i]);
}

int mr_nccl_watch(struct mr_comm *c, struct mr_stream *stream)
{
    struct mr_nccl_watch *w = &mr_nccl_of(c)->watch;
    pthread_mutex_lock(&w->lock);
    int behind = w->due[0];
    if (!behind)
        w->since_ns = mr_time_ns();
    int rc = mr_event_record(w->event[behind], stream);
    if (rc == 0)
        w->due[behind] = true;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

int mr_nccl_check(struct mr_comm *c)
{
    struct mr_nccl_watch *w = &mr_nccl_of(c)->watch;
    pthread_mutex_lock(&w->lock); /* whoever has it may be naming ranks */
    bool failed = w->failure[0] != 0;
    pthread_mutex_unlock(&w->lock);
    if (!failed)
        return 0;
    c->speaker = w->speaker;
    return mr_error_set(MR_EPEER, "%.1000s", w->named);
}
