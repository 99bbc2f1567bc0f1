/*
 * An I/O thread. Jobs arrive, wait for a free connection or for their next try, are active, and
 * end. libcurl tells which sockets it waits for and until when; epoll does the waiting, so the cost
 * of an iteration depends on what happened, not on how many connections are open.
 */
#include "storage/http/job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MAX_EVENTS    256
#define NEVER         UINT64_MAX
#define FIRST_WAIT_NS 100000000ull
#define MOST_WAIT_NS  10000000000ull

static void put(struct mr_http_list *l, struct mr_http_job *job)
{
    job->next = NULL;
    if (l->first)
        l->last->next = job;
    else
        l->first = job;
    l->last = job;
}

/* Empties the list; returns its jobs in order. */
static struct mr_http_job *take_all(struct mr_http_list *l)
{
    struct mr_http_job *first = l->first;
    l->first = NULL;
    return first;
}

static void link_active(struct mr_http_thread *t, struct mr_http_job *job)
{
    job->before = NULL;
    job->next = t->active;
    if (t->active)
        t->active->before = job;
    t->active = job;
    t->n_active++;
    job->server->n_active++;
}

static void unlink_active(struct mr_http_thread *t, struct mr_http_job *job)
{
    if (job->before)
        job->before->next = job->next;
    else
        t->active = job->next;
    if (job->next)
        job->next->before = job->before;
    t->n_active--;
    job->server->n_active--;
}

/* ---- the end of a job ---- */

static void job_free(struct mr_http_job *job)
{
    mr_s3_target_free(&job->target);
    if (job->headers)
        mr_curl.slist_free_all(job->headers);
    if (job->buf_owned)
        free(job->buf);
    free(job);
}

void mr_http_keep_error(struct mr_http_request *request, int code)
{
    request->status = code;
    request->error = malloc(sizeof *request->error);
    if (request->error)
        mr_error_keep(code, request->error);
}

void mr_http_job_end(struct mr_http_job *job, int code)
{
    struct mr_http_request *request = job->request;
    struct mr_http_thread *t = job->thread;
    request->got = job->got;
    request->status = 0;
    if (code) {
        mr_http_keep_error(request, code);
    } else {
        request->body = job->buf;
        job->buf_owned = false;
    }
    job_free(job);
    request->job = NULL;
    if (t)
        atomic_fetch_sub(&t->n_jobs, 1);
    request->done(request);
}

static int cancelled(const struct mr_http_job *job)
{
    char url[512];
    return mr_error_set(MR_ECANCELLED, "%s: cancelled",
                        mr_url_show(job->request->url, url, sizeof url));
}

static bool stopped(const struct mr_http_job *job)
{
    return job->request->stop && atomic_load_explicit(job->request->stop, memory_order_acquire);
}

/* ---- tries ---- */

static CURL *take_easy(struct mr_http_thread *t)
{
    return t->n_spare ? t->spare[--t->n_spare] : mr_curl.easy_init();
}

static void give_easy(struct mr_http_thread *t, struct mr_http_job *job)
{
    if (job->easy)
        t->spare[t->n_spare++] = job->easy;
    job->easy = NULL;
}

static int submit_try(struct mr_http_thread *t, struct mr_http_job *job)
{
    if (stopped(job))
        return cancelled(job);
    job->easy = take_easy(t);
    if (!job->easy)
        return mr_error_nomem("libcurl handle", 0);
    int rc = mr_http_try(job, &t->client->opts);
    if (rc < 0)
        return rc;
    CURLMcode mc = mr_curl.multi_add_handle(t->multi, job->easy);
    return mc ? mr_error_set(-EIO, "libcurl: %s", mr_curl.multi_strerror(mc)) : 0;
}

static void try_begin(struct mr_http_thread *t, struct mr_http_job *job)
{
    int rc = submit_try(t, job);
    if (rc < 0) {
        give_easy(t, job);
        mr_http_job_end(job, rc);
        return;
    }
    mr_remote_count(&mr_remote_counts.requests, 1);
    link_active(t, job);
}

/* Full jitter: a random wait between 0 and the doubled limit, so that requests that failed together
 * do not retry together. */
static uint64_t wait_of(const struct mr_http_job *job, uint64_t told_ns)
{
    uint32_t draw[4];
    uint64_t most = MR_MIN(FIRST_WAIT_NS << MR_MIN(job->tries - 1, 16u), MOST_WAIT_NS);
    mr_draw4((uint64_t)getpid(), MR_DRAW_RETRY, job->id, job->tries, 0, draw);
    uint64_t wait = (uint64_t)(mr_unit_f64(draw[0], draw[1]) * (double)most);
    return MR_MAX(wait, told_ns);
}

/*
 * Retry-After. A server that asks to wait is a stall like one that sends no bytes, and counts in
 * the same timeout: what would exceed it fails now, not after the wait. 0, or code, whose text says
 * so.
 */
static int may_wait(struct mr_http_job *job, uint32_t stall_ms, int code, uint64_t *told_ns)
{
    char why[1024];
    uint64_t told_s = mr_http_retry_after(&job->request->answer, time(NULL));
    uint64_t left_ns = stall_ms * 1000000ull;
    if (job->judged)
        job->told_ns = 0;
    left_ns -= job->told_ns;
    if (mr_mul(told_s, 1000000000ull, told_ns) && *told_ns <= left_ns) {
        job->told_ns += *told_ns;
        return 0;
    }
    snprintf(why, sizeof why, "%s", mr_last_error());
    return mr_error_set(code,
                        "%s; the server asks to wait %llu s, but only %g s are left of the stall "
                        "timeout of %g s: try later, or with a longer stall timeout",
                        why, (unsigned long long)told_s, (double)left_ns / 1e9, stall_ms / 1e3);
}

/* Keeps received bytes only if the next try can verify that the rest is from the same version. */
static void try_again(struct mr_http_thread *t, struct mr_http_job *job, uint64_t told_ns)
{
    const struct mr_object *o = job->request->expect;
    if (!o || !mr_http_strong(mr_object_etag(o)))
        job->got = 0;
    job->due_ns = mr_time_ns() + wait_of(job, told_ns);
    mr_remote_count(&mr_remote_counts.retries, 1);
    put(&t->waiting, job);
    t->waiting_ns = MR_MIN(t->waiting_ns, job->due_ns);
}

/* Were all bytes received when the connection broke? Requesting bytes behind the last is an
 * error. */
static bool complete(const struct mr_http_job *job)
{
    const struct mr_http_request *r = job->request;
    uint64_t all = r->want == MR_WHOLE && r->expect ? r->expect->total : r->want;
    return job->judged && !r->head && job->got == all;
}

static void try_end(struct mr_http_thread *t, struct mr_http_job *job, CURLcode curl)
{
    int code = 0;
    mr_http_ended(job, false);
    enum mr_http_verdict verdict = mr_http_verdict(job, curl, &code);
    mr_curl.multi_remove_handle(t->multi, job->easy);
    give_easy(t, job);
    unlink_active(t, job);
    if (verdict == MR_HTTP_AGAIN && complete(job)) {
        mr_http_job_end(job, 0);
        return;
    }
    uint64_t told_ns;
    const struct mr_remote_opts *opts = &t->client->opts;
    if (verdict == MR_HTTP_AGAIN && job->tries <= opts->retries && !stopped(job) &&
        may_wait(job, opts->stall_timeout_ms, code, &told_ns) == 0)
        try_again(t, job, told_ns);
    else
        mr_http_job_end(job, code);
}

/* ---- the thread ---- */

static void take_coming(struct mr_http_thread *t)
{
    pthread_mutex_lock(&t->lock);
    struct mr_http_job *job = take_all(&t->coming);
    pthread_mutex_unlock(&t->lock);
    for (struct mr_http_job *next; job; job = next) {
        next = job->next;
        put(&job->server->ready, job);
    }
}

/* Those whose next try is due become ready. */
static void take_waiting(struct mr_http_thread *t)
{
    uint64_t now = mr_time_ns();
    if (t->waiting_ns > now)
        return;
    t->waiting_ns = NEVER;
    for (struct mr_http_job *job = take_all(&t->waiting), *next; job; job = next) {
        next = job->next;
        put(job->due_ns <= now ? &job->server->ready : &t->waiting, job);
        if (job->due_ns > now)
            t->waiting_ns = MR_MIN(t->waiting_ns, job->due_ns);
    }
}

static bool begin_one(struct mr_http_thread *t, struct mr_http_server *s)
{
    struct mr_http_job *job = s->ready.first;
    if (!job || s->n_active >= mr_http_may_be_active(s))
        return false;
    s->ready.first = job->next;
    try_begin(t, job);
    return true;
}

/* Servers take turns. */
static void begin_ready(struct mr_http_thread *t)
{
    for (uint32_t idle = 0; idle < MR_HTTP_SERVERS && t->n_active < t->client->max_active;) {
        idle = begin_one(t, &t->server[t->next_server]) ? 0 : idle + 1;
        t->next_server = (t->next_server + 1) % MR_HTTP_SERVERS;
    }
}

static void end_stopped_in(struct mr_http_list *l)
{
    for (struct mr_http_job *job = take_all(l), *next; job; job = next) {
        next = job->next;
        if (stopped(job))
            mr_http_job_end(job, cancelled(job));
        else
            put(l, job);
    }
}

static void end_stopped(struct mr_http_thread *t)
{
    for (uint32_t i = 0; i < MR_HTTP_SERVERS; i++)
        end_stopped_in(&t->server[i].ready);
    end_stopped_in(&t->waiting);
    for (struct mr_http_job *job = t->active, *next; job; job = next) {
        next = job->next;
        if (!stopped(job))
            continue;
        mr_http_ended(job, true);
        mr_curl.multi_remove_handle(t->multi, job->easy);
        give_easy(t, job);
        unlink_active(t, job);
        mr_http_job_end(job, cancelled(job));
    }
}

static void end_finished(struct mr_http_thread *t)
{
    int left;
    CURLMsg *msg;
    while ((msg = mr_curl.multi_info_read(t->multi, &left))) {
        struct mr_http_job *job = NULL;
        CURLcode curl = msg->data.result;
        mr_curl.easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&job);
        try_end(t, job, curl);
    }
}

/* ---- waiting ---- */

/* libcurl's callback: what to wait for on a socket. known: not NULL once the socket is in the epoll
 * set. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *known)
{
    struct mr_http_thread *t = user;
    struct epoll_event ev = {.data.fd = fd};
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(t->epoll, EPOLL_CTL_DEL, fd,
                  &ev); /* fails when it is closed already: then the epoll has forgotten it */
        mr_curl.multi_assign(t->multi, fd, NULL);
        return 0;
    }
    ev.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    if (!known)
        mr_curl.multi_assign(t->multi, fd, t);
    int first = known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
        second = known ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (epoll_ctl(t->epoll, first, fd, &ev) && (errno == ENOENT || errno == EEXIST))
        return epoll_ctl(t->epoll, second, fd, &ev);
    return 0;
}

static int on_timer(CURLM *multi, long wait_ms, void *user)
{
    struct mr_http_thread *t = user;
    (void)multi;
    t->curl_ns = wait_ms < 0 ? NEVER : mr_time_ns() + (uint64_t)wait_ms * 1000000;
    return 0;
}

static int wait_ms(const struct mr_http_thread *t)
{
    uint64_t now = mr_time_ns(), due = MR_MIN(t->waiting_ns, t->curl_ns);
    if (due == NEVER)
        return -1;
    return due <= now ? 0 : (int)MR_MIN((due - now) / 1000000 + 1, 1000u);
}

/* Waits for a socket, a timeout or another thread, and lets libcurl act. */
static void turn(struct mr_http_thread *t)
{
    struct epoll_event ev[MAX_EVENTS];
    int running, n = epoll_wait(t->epoll, ev, MAX_EVENTS, wait_ms(t));
    for (int i = 0; i < n; i++) {
        uint64_t calls;
        uint32_t is = ev[i].events;
        if (ev[i].data.fd == t->wakeup) {
            (void)!read(t->wakeup, &calls,
                        sizeof calls); /* nothing to read: another turn took it */
            continue;
        }
        int what = (is & EPOLLIN ? CURL_CSELECT_IN : 0) | (is & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (is & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        mr_curl.multi_socket_action(t->multi, ev[i].data.fd, what, &running);
    }
    if (t->curl_ns <= mr_time_ns()) {
        t->curl_ns = NEVER;
        mr_curl.multi_socket_action(t->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
}

static void wake(struct mr_http_thread *t)
{
    uint64_t one = 1;
    (void)!write(t->wakeup, &one,
                 sizeof one); /* can only fail when it is awake 2^64 times already */
}

static void *thread_main(void *arg)
{
    struct mr_http_thread *t = arg;
    while (!atomic_load(&t->closing) || atomic_load(&t->n_jobs)) {
        take_coming(t);
        if (atomic_exchange(&t->kicked, false))
            end_stopped(t);
        take_waiting(t);
        begin_ready(t);
        turn(t);
        end_finished(t);
    }
    return NULL;
}

/* ---- starting and ending a thread ---- */

static int thread_open_fds(struct mr_http_thread *t)
{
    struct epoll_event ev = {.events = EPOLLIN};
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    t->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ev.data.fd = t->wakeup;
    if (t->epoll < 0 || t->wakeup < 0 || epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->wakeup, &ev))
        return mr_error_errno(errno, "HTTP client: no descriptors to wait by (ulimit -n)");
    return 0;
}

static void thread_free(struct mr_http_thread *t)
{
    if (t->multi)
        mr_curl.multi_cleanup(t->multi);
    if (t->epoll >= 0)
        close(t->epoll);
    if (t->wakeup >= 0)
        close(t->wakeup);
    pthread_mutex_destroy(&t->lock);
}

int mr_http_thread_open(struct mr_http *client, struct mr_http_thread *t)
{
    t->client = client;
    t->epoll = t->wakeup = -1;
    t->waiting_ns = t->curl_ns = NEVER;
    for (uint32_t i = 0; i < MR_HTTP_SERVERS; i++)
        t->server[i].multiplexes = &client->multiplexes[i];
    pthread_mutex_init(&t->lock, NULL);
    t->multi = mr_curl.multi_init();
    int rc = t->multi ? thread_open_fds(t) : mr_error_nomem("libcurl", 0);
    if (rc < 0)
        goto fail;
    mr_curl.multi_setopt(t->multi, CURLMOPT_MAXCONNECTS, (long)client->max_active);
    mr_curl.multi_setopt(t->multi, CURLMOPT_MAX_CONCURRENT_STREAMS, (long)MR_HTTP_STREAMS);
    mr_curl.multi_setopt(t->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    mr_curl.multi_setopt(t->multi, CURLMOPT_SOCKETDATA, (void *)t);
    mr_curl.multi_setopt(t->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    mr_curl.multi_setopt(t->multi, CURLMOPT_TIMERDATA, (void *)t);
    rc = mr_thread_start(&t->thread, "mr-http", thread_main, t);
    if (rc < 0)
        goto fail;
    return 0;
fail:
    thread_free(t);
    return rc;
}

void mr_http_thread_close(struct mr_http_thread *t)
{
    atomic_store(&t->closing, true);
    wake(t);
    pthread_join(t->thread, NULL);
    for (uint32_t i = 0; i < t->n_spare; i++)
        mr_curl.easy_cleanup(t->spare[i]);
    thread_free(t);
}

void mr_http_thread_add(struct mr_http_thread *t, struct mr_http_job *job)
{
    job->thread = t;
    job->server = &t->server[mr_http_server_of(job)];
    atomic_fetch_add(&t->n_jobs, 1);
    pthread_mutex_lock(&t->lock);
    bool first = !t->coming.first; /* else it was already woken and takes all jobs */
    put(&t->coming, job);
    pthread_mutex_unlock(&t->lock);
    if (first)
        wake(t);
}

void mr_http_thread_kick(struct mr_http_thread *t)
{
    atomic_store(&t->kicked, true);
    wake(t);
}
