/* The client's I/O threads: requests come in, wait for their turn or their next try, are under way, and are done. */
#include "storage/http_job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_ACTIVE    256 /* requests under way in one thread: as many connections */
#define BUSY          64  /* requests of a thread, from which on the next thread is started */
#define MAX_EVENTS    256
#define NEVER         UINT64_MAX
#define FIRST_WAIT_NS 100000000ull
#define MOST_WAIT_NS  10000000000ull
#define MOST_TOLD_S   60 /* of Retry-After */

struct list {
    struct mr_http_job *first, *last;
};

struct mr_http_thread {
    struct mr_http *client;
    pthread_t thread;
    CURLM *multi;
    int epoll, wakeup;       /* an epoll of what libcurl waits for and of an eventfd */
    _Atomic uint32_t n_jobs; /* coming, ready, waiting, active */
    _Atomic bool kicked, closing;
    pthread_mutex_t lock; /* guards coming; taken alone */
    struct list coming;
    /* the thread's own */
    struct list ready, waiting; /* for a free connection, for the time of their next try */
    struct mr_http_job *active;
    uint64_t waiting_ns, curl_ns; /* when the first of the waiting is due, when libcurl wants to be called */
    uint32_t n_active;
    CURL *spare[MAX_ACTIVE];
    uint32_t n_spare;
};

struct mr_http {
    int refs; /* under the global lock */
    pid_t pid;
    struct mr_s3_account *account;
    struct mr_disk_cache *cache;
    char dir[4096];
    struct mr_remote_opts opts;
    uint32_t max_active; /* of a thread */
    _Atomic uint64_t next_id;
    pthread_mutex_t lock; /* guards starting of threads; a thread's lock may not be taken under it */
    _Atomic uint32_t n_threads;
    struct mr_http_thread thread[MR_HTTP_THREADS];
};

static pthread_mutex_t global_lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards the_client and its refs; client->lock inside */
static struct mr_http *the_client;

static void put(struct list *l, struct mr_http_job *job)
{
    job->next = NULL;
    if (l->first)
        l->last->next = job;
    else
        l->first = job;
    l->last = job;
}

/* All of them, in their order; the list is empty then. */
static struct mr_http_job *take_all(struct list *l)
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

static void keep_error(struct mr_http_request *request, int code)
{
    request->status = code;
    request->error = malloc(sizeof *request->error);
    if (request->error)
        mr_error_keep(code, request->error);
}

/* code: 0, or an error that is set. The request is the caller's again as soon as done() runs. */
static void job_end(struct mr_http_job *job, int code)
{
    struct mr_http_request *request = job->request;
    struct mr_http_thread *t = job->thread;
    request->got = job->got;
    request->status = 0;
    if (code) {
        keep_error(request, code);
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
    return mr_error_set(MR_ECANCELLED, "%s: cancelled", mr_url_show(job->request->url, url, sizeof url));
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

static void try_begin(struct mr_http_thread *t, struct mr_http_job *job)
{
    int rc = stopped(job) ? cancelled(job) : 0;
    if (rc == 0) {
        job->easy = take_easy(t);
        rc = job->easy ? mr_http_try(job, &t->client->opts) : mr_error_nomem("libcurl handle", 0);
    }
    if (rc == 0) {
        CURLMcode mc = mr_curl.multi_add_handle(t->multi, job->easy);
        rc = mc ? mr_error_set(-EIO, "libcurl: %s", mr_curl.multi_strerror(mc)) : 0;
    }
    if (rc) {
        give_easy(t, job);
        job_end(job, rc);
        return;
    }
    mr_remote_count(&mr_remote_counts.requests, 1);
    link_active(t, job);
}

/* Full jitter: anywhere from nothing to the doubled wait, so that those who failed together do not come back together. */
static uint64_t wait_of(const struct mr_http_job *job)
{
    uint32_t draw[4];
    uint64_t most = MR_MIN(FIRST_WAIT_NS << MR_MIN(job->tries - 1, 16u), MOST_WAIT_NS);
    mr_draw4((uint64_t)getpid(), MR_DRAW_RETRY, job->id, job->tries, 0, draw);
    uint64_t wait = (uint64_t)(mr_unit_f64(draw[0], draw[1]) * (double)most);
    const struct mr_http_head *h = &job->request->answer;
    uint64_t told = h->has_retry ? MR_MIN(h->retry_after_s, MOST_TOLD_S) * 1000000000ull : 0;
    return MR_MAX(wait, told);
}

/* What came stays only when the next try can make sure that the rest is of the same object. */
static void try_again(struct mr_http_thread *t, struct mr_http_job *job)
{
    const struct mr_object *o = job->request->expect;
    if (!o || !mr_http_strong(mr_object_etag(o)))
        job->got = 0;
    job->due_ns = mr_time_ns() + wait_of(job);
    mr_remote_count(&mr_remote_counts.retries, 1);
    put(&t->waiting, job);
    t->waiting_ns = MR_MIN(t->waiting_ns, job->due_ns);
}

static void try_end(struct mr_http_thread *t, struct mr_http_job *job, CURLcode curl)
{
    int code = 0;
    enum mr_http_verdict verdict = mr_http_verdict(job, curl, &code);
    mr_curl.multi_remove_handle(t->multi, job->easy);
    give_easy(t, job);
    unlink_active(t, job);
    bool complete = verdict == MR_HTTP_AGAIN && job->request->want != MR_WHOLE && job->got == job->request->want &&
                    !job->request->head && job->judged;
    if (complete) /* all bytes had come when the connection broke */
        job_end(job, 0);
    else if (verdict == MR_HTTP_AGAIN && job->tries <= t->client->opts.retries && !stopped(job))
        try_again(t, job);
    else
        job_end(job, code);
}

/* ---- the thread ---- */

static void take_coming(struct mr_http_thread *t)
{
    pthread_mutex_lock(&t->lock);
    struct mr_http_job *job = take_all(&t->coming);
    pthread_mutex_unlock(&t->lock);
    for (struct mr_http_job *next; job; job = next) {
        next = job->next;
        put(&t->ready, job);
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
        put(job->due_ns <= now ? &t->ready : &t->waiting, job);
        if (job->due_ns > now)
            t->waiting_ns = MR_MIN(t->waiting_ns, job->due_ns);
    }
}

static void begin_ready(struct mr_http_thread *t)
{
    while (t->ready.first && t->n_active < t->client->max_active) {
        struct mr_http_job *job = t->ready.first;
        t->ready.first = job->next;
        try_begin(t, job);
    }
}

static void end_stopped_in(struct list *l)
{
    for (struct mr_http_job *job = take_all(l), *next; job; job = next) {
        next = job->next;
        if (stopped(job))
            job_end(job, cancelled(job));
        else
            put(l, job);
    }
}

static void end_stopped(struct mr_http_thread *t)
{
    end_stopped_in(&t->ready);
    end_stopped_in(&t->waiting);
    for (struct mr_http_job *job = t->active, *next; job; job = next) {
        next = job->next;
        if (!stopped(job))
            continue;
        mr_curl.multi_remove_handle(t->multi, job->easy);
        give_easy(t, job);
        unlink_active(t, job);
        job_end(job, cancelled(job));
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

/* libcurl's word on what to wait for at a socket. known: not NULL once the epoll has it. */
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
    int first = known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, second = known ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
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

/* Waits until a socket, a due time or another thread calls, and lets libcurl do what is to be done. */
static void turn(struct mr_http_thread *t)
{
    struct epoll_event ev[MAX_EVENTS];
    int running, n = epoll_wait(t->epoll, ev, MAX_EVENTS, wait_ms(t));
    for (int i = 0; i < n; i++) {
        uint64_t calls;
        uint32_t is = ev[i].events;
        if (ev[i].data.fd == t->wakeup) {
            (void)!read(t->wakeup, &calls, sizeof calls); /* nothing to read: another turn took it */
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
    (void)!write(t->wakeup, &one, sizeof one); /* can only fail when it is awake 2^64 times already */
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

/* ---- a thread's begin and end ---- */

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

static int thread_open(struct mr_http *client, struct mr_http_thread *t)
{
    t->client = client;
    t->epoll = t->wakeup = -1;
    t->waiting_ns = t->curl_ns = NEVER;
    pthread_mutex_init(&t->lock, NULL);
    t->multi = mr_curl.multi_init();
    int rc = t->multi ? thread_open_fds(t) : mr_error_nomem("libcurl", 0);
    if (rc == 0) {
        mr_curl.multi_setopt(t->multi, CURLMOPT_MAXCONNECTS, (long)client->max_active);
        mr_curl.multi_setopt(t->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
        mr_curl.multi_setopt(t->multi, CURLMOPT_SOCKETDATA, (void *)t);
        mr_curl.multi_setopt(t->multi, CURLMOPT_TIMERFUNCTION, on_timer);
        mr_curl.multi_setopt(t->multi, CURLMOPT_TIMERDATA, (void *)t);
        rc = mr_thread_start(&t->thread, "mr-http", thread_main, t);
    }
    if (rc)
        thread_free(t);
    return rc;
}

static void thread_close(struct mr_http_thread *t)
{
    atomic_store(&t->closing, true);
    wake(t);
    pthread_join(t->thread, NULL);
    for (uint32_t i = 0; i < t->n_spare; i++)
        mr_curl.easy_cleanup(t->spare[i]);
    thread_free(t);
}

/* ---- the client ---- */

/* Connections of a thread: half of the descriptors that may be open are for files. */
static uint32_t most_active(void)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most) || most.rlim_cur == RLIM_INFINITY)
        return MAX_ACTIVE;
    uint64_t share = most.rlim_cur / 2 / MR_HTTP_THREADS;
    return (uint32_t)MR_MAX(MR_MIN(share, MAX_ACTIVE), 1u);
}

static int client_create(struct mr_http **out)
{
    int rc = mr_curl_load();
    if (rc)
        return rc;
    struct mr_http *client = calloc(1, sizeof *client);
    if (!client)
        return mr_error_nomem("HTTP client", sizeof *client);
    client->pid = getpid();
    client->max_active = most_active();
    pthread_mutex_init(&client->lock, NULL);
    rc = mr_remote_opts_now(&client->opts, client->dir, sizeof client->dir);
    client->account = rc ? NULL : mr_s3_account_create();
    if (rc == 0 && !client->account)
        rc = mr_error_nomem("S3 account", 0);
    if (rc == 0)
        rc = thread_open(client, &client->thread[0]);
    if (rc) {
        mr_s3_account_destroy(client->account);
        pthread_mutex_destroy(&client->lock);
        free(client);
        return rc;
    }
    client->n_threads = 1;
    if (client->opts.cache_dir && !(client->cache = mr_disk_cache_open(client->dir, client->opts.cache_limit))) {
        mr_log(MR_LOG_WARNING, "%s; reading goes on without the disk cache", mr_last_error());
        mr_remote_count(&mr_remote_counts.cache_errors, 1);
    }
    *out = client;
    return 0;
}

int mr_http_open(struct mr_http **out)
{
    int rc = 0;
    pthread_mutex_lock(&global_lock);
    if (the_client && the_client->pid != getpid())
        the_client = NULL; /* the parent's: its threads are not here */
    if (!the_client)
        rc = client_create(&the_client);
    if (rc == 0) {
        the_client->refs++;
        *out = the_client;
    }
    pthread_mutex_unlock(&global_lock);
    return rc;
}

void mr_http_close(struct mr_http *client)
{
    if (!client || client->pid != getpid())
        return;
    pthread_mutex_lock(&global_lock);
    bool last = --client->refs == 0;
    if (last && the_client == client)
        the_client = NULL;
    pthread_mutex_unlock(&global_lock);
    if (!last)
        return;
    for (uint32_t i = 0; i < client->n_threads; i++)
        thread_close(&client->thread[i]);
    mr_s3_account_destroy(client->account);
    mr_disk_cache_close(client->cache);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

struct mr_http *mr_http_again(struct mr_http *client)
{
    pthread_mutex_lock(&global_lock);
    client->refs++;
    pthread_mutex_unlock(&global_lock);
    return client;
}

struct mr_disk_cache *mr_http_disk_cache(const struct mr_http *client)
{
    return client->cache;
}

/* ---- requests ---- */

/* The least busy thread; one more when all are busy. */
static struct mr_http_thread *choose(struct mr_http *client)
{
    uint32_t n = atomic_load(&client->n_threads);
    struct mr_http_thread *best = &client->thread[0];
    for (uint32_t i = 1; i < n; i++)
        if (atomic_load(&client->thread[i].n_jobs) < atomic_load(&best->n_jobs))
            best = &client->thread[i];
    if (n == MR_HTTP_THREADS || atomic_load(&best->n_jobs) < BUSY)
        return best;
    pthread_mutex_lock(&client->lock);
    n = atomic_load(&client->n_threads);
    if (n < MR_HTTP_THREADS && thread_open(client, &client->thread[n]) == 0) {
        best = &client->thread[n];
        atomic_store(&client->n_threads, n + 1);
    }
    pthread_mutex_unlock(&client->lock);
    return best;
}

static int resolve(const struct mr_http *client, const struct mr_http_request *request, struct mr_http_job *job)
{
    char url[512];
    if (client->pid != getpid())
        return mr_error_set(MR_EMISUSE, "%s: opened before this process was forked: open the data set in the child",
                            mr_url_show(request->url, url, sizeof url));
    if (strncmp(request->url, "s3://", 5) == 0)
        return mr_s3_target(client->account, request->url, request->query, &job->target);
    return 0;
}

void mr_http_start(struct mr_http *client, struct mr_http_request *request)
{
    struct mr_http_job *job = calloc(1, sizeof *job);
    request->status = 0;
    request->error = NULL;
    request->got = 0;
    request->body = NULL;
    if (!job) {
        keep_error(request, mr_error_nomem("request", sizeof *job));
        request->done(request);
        return;
    }
    job->request = request;
    request->job = job;
    int rc = resolve(client, request, job);
    if (rc) {
        job_end(job, rc);
        return;
    }
    job->id = atomic_fetch_add(&client->next_id, 1);
    struct mr_http_thread *t = job->thread = choose(client);
    atomic_fetch_add(&t->n_jobs, 1);
    pthread_mutex_lock(&t->lock);
    bool first = !t->coming.first; /* else somebody has woken it, and it takes all */
    put(&t->coming, job);
    pthread_mutex_unlock(&t->lock);
    if (first)
        wake(t);
}

void mr_http_kick(struct mr_http *client)
{
    for (uint32_t i = 0, n = client->pid == getpid() ? atomic_load(&client->n_threads) : 0; i < n; i++) {
        atomic_store(&client->thread[i].kicked, true);
        wake(&client->thread[i]);
    }
}

struct waiter {
    pthread_mutex_t lock; /* guards done; taken alone */
    pthread_cond_t ended;
    bool done;
};

static void end_wait(struct mr_http_request *request)
{
    struct waiter *w = request->user;
    pthread_mutex_lock(&w->lock);
    w->done = true;
    pthread_cond_signal(&w->ended);
    pthread_mutex_unlock(&w->lock);
}

int mr_http_run(struct mr_http *client, struct mr_http_request *request)
{
    struct waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    request->user = &w;
    request->done = end_wait;
    mr_http_start(client, request);
    pthread_mutex_lock(&w.lock);
    while (!w.done)
        pthread_cond_wait(&w.ended, &w.lock);
    pthread_mutex_unlock(&w.lock);
    pthread_cond_destroy(&w.ended);
    pthread_mutex_destroy(&w.lock);
    if (request->error)
        mr_error_put(request->error);
    else if (request->status)
        mr_error_set(request->status, "out of memory while an error was kept");
    free(request->error);
    request->error = NULL;
    return request->status;
}
