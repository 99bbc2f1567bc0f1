/*
 * No rank waits for ever: a thread looks whether the work that sums were enqueued for has ended,
 * and asks NCCL for errors. After the time limit it aborts the communicator: NCCL's kernels end,
 * and with them whatever waits for the stream. If not even that ends in five seconds, the process
 * does.
 */
#include "comm/nccl.h"
#include "device/device.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS     20000000u
#define ABORT_NS    5000000000u
#define MISSING_NS  3000000000u
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
        fprintf(stderr, "%s; ncclCommAbort did not end in 5 s: this process ends\n", w->failure);
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
        if (w->failure[0])
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

/* By MPI, a rank that does not come has a name. */
static int name_missing(struct mr_comm *c, const char *failure)
{
    struct mr_comm *control = mr_nccl_of(c)->control;
    double zero = 0;
    if (!control)
        return mr_error_set(MR_EPEER, "%.400s: not all ranks came to it", failure);
    control->opts.timeout_ns = MISSING_NS;
    int rc = mr_comm_sum(control, &zero, &zero, 1, MR_F64, MR_F64, MR_SUM_FAST, NULL);
    c->speaker = control->speaker;
    if (rc == 0)
        return mr_error_set(MR_EPEER, "%.400s, though all ranks came", failure);
    char why[512];
    snprintf(why, sizeof why, "%s", mr_last_error());
    return mr_error_set(MR_EPEER, "%.300s; %.500s", failure, why);
}

int mr_nccl_check(struct mr_comm *c)
{
    struct mr_nccl_watch *w = &mr_nccl_of(c)->watch;
    char failure[sizeof w->failure];
    pthread_mutex_lock(&w->lock);
    memcpy(failure, w->failure, sizeof failure);
    pthread_mutex_unlock(&w->lock);
    if (!failure[0])
        return 0;
    c->speaker = c->rank;
    return name_missing(c, failure);
}
