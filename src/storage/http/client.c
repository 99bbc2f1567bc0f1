/* The process's client, with reference counting, and the choice of the thread for a request. */
#include "storage/http/job.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define BUSY 64 /* requests of a thread, from which on the next thread is started */

static pthread_mutex_t global_lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards the_client and its refs; client->lock inside */
static struct mr_http *the_client;

/* ---- the client ---- */

/* Connections of a thread: half of the descriptors that may be open are for files. */
static uint32_t most_active(void)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most) || most.rlim_cur == RLIM_INFINITY)
        return MR_HTTP_ACTIVE;
    uint64_t share = most.rlim_cur / 2 / MR_HTTP_THREADS;
    return (uint32_t)MR_MAX(MR_MIN(share, MR_HTTP_ACTIVE), 1u);
}

/* Without the disk cache reading continues, only slower. */
static void open_disk_cache(struct mr_http *client)
{
    if (!client->opts.cache_dir)
        return;
    client->cache = mr_disk_cache_open(client->dir, client->opts.cache_limit);
    if (client->cache)
        return;
    mr_log(MR_LOG_WARNING, "%s; reading continues without the disk cache", mr_last_error());
    mr_remote_count(&mr_remote_counts.cache_errors, 1);
}

/* The variables that curl, OpenSSL and Python's requests know. 0 or -ENOMEM. */
static int find_certificates(struct mr_http *client)
{
    static const char *const names[] = {"CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        const char *path = getenv(names[i]);
        if (!path || !path[0])
            continue;
        client->ca_file = strdup(path);
        return client->ca_file ? 0 : mr_error_nomem(names[i], strlen(path));
    }
    return 0;
}

/* By HTTP/2, libcurl 7.87 and 7.88 send on connections that a proxy has not made yet, and fail:
 * "no filter connected". */
static bool may_use_http2(void)
{
    static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    unsigned version = mr_curl.version_info(CURLVERSION_NOW)->version_num;
    bool proxy = false;
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        const char *text = getenv(names[i]);
        proxy |= text && text[0];
    }
    return !proxy || version < 0x075700 || version >= 0x080000;
}

static int client_create(struct mr_http **out)
{
    int rc = mr_curl_load();
    if (rc < 0)
        return rc;
    struct mr_http *client = calloc(1, sizeof *client);
    if (!client)
        return mr_error_nomem("HTTP client", sizeof *client);
    client->pid = getpid();
    client->max_active = most_active();
    client->http2 = may_use_http2();
    pthread_mutex_init(&client->lock, NULL);
    rc = mr_remote_opts_now(&client->opts, client->dir, sizeof client->dir);
    if (rc < 0)
        goto fail;
    rc = find_certificates(client);
    if (rc < 0)
        goto fail;
    client->account = mr_s3_account_create();
    if (!client->account) {
        rc = mr_error_nomem("S3 account", 0);
        goto fail;
    }
    rc = mr_http_thread_open(client, &client->thread[0]);
    if (rc < 0)
        goto fail;
    client->n_threads = 1;
    open_disk_cache(client);
    *out = client;
    return 0;
fail:
    mr_s3_account_destroy(client->account);
    pthread_mutex_destroy(&client->lock);
    free(client->ca_file);
    free(client);
    return rc;
}

int mr_http_open(struct mr_http **out)
{
    int rc = 0;
    pthread_mutex_lock(&global_lock);
    if (the_client && the_client->pid != getpid())
        the_client = NULL; /* the parent's: its threads do not exist in this process */
    if (!the_client)
        rc = client_create(&the_client);
    if (rc < 0)
        goto end;
    the_client->refs++;
    *out = the_client;
end:
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
        mr_http_thread_close(&client->thread[i]);
    mr_s3_account_destroy(client->account);
    mr_disk_cache_close(client->cache);
    pthread_mutex_destroy(&client->lock);
    free(client->ca_file);
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
    if (n < MR_HTTP_THREADS && mr_http_thread_open(client, &client->thread[n]) == 0) {
        best = &client->thread[n];
        atomic_store(&client->n_threads, n + 1);
    }
    pthread_mutex_unlock(&client->lock);
    return best;
}

static int resolve(const struct mr_http *client, const struct mr_http_request *request,
                   struct mr_http_job *job)
{
    char url[512];
    if (client->pid != getpid())
        return mr_error_set(
            MR_EMISUSE, "%s: opened before this process was forked: open the data set in the child",
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
        mr_http_keep_error(request, mr_error_nomem("request", sizeof *job));
        request->done(request);
        return;
    }
    job->request = request;
    request->job = job;
    int rc = resolve(client, request, job);
    if (rc) {
        mr_http_job_end(job, rc);
        return;
    }
    job->id = atomic_fetch_add(&client->next_id, 1);
    mr_http_thread_add(choose(client), job);
}

void mr_http_kick(struct mr_http *client)
{
    for (uint32_t i = 0, n = client->pid == getpid() ? atomic_load(&client->n_threads) : 0; i < n;
         i++)
        mr_http_thread_kick(&client->thread[i]);
    if (client->cache && client->pid == getpid())
        mr_disk_cache_kick(client->cache);
}

struct waiter {
    pthread_mutex_t lock; /* guards done; taken alone */
    pthread_cond_t ended;
    bool done;
    _Atomic bool stop; /* of a request that has no other flag */
};

#define LOOK_NS 50000000u /* between two looks for an interrupt */

static void end_wait(struct mr_http_request *request)
{
    struct waiter *w = request->user;
    pthread_mutex_lock(&w->lock);
    w->done = true;
    pthread_cond_signal(&w->ended);
    pthread_mutex_unlock(&w->lock);
}

/* A request of a loader's reader has a flag of its own; others end by mr_interrupt() or by their
 * thread's flag. */
static void wait_for(struct mr_http *client, struct waiter *w, bool own_stop)
{
    pthread_mutex_lock(&w->lock);
    while (!w->done) {
        if (!own_stop || atomic_load(&w->stop)) {
            pthread_cond_wait(&w->ended, &w->lock);
            continue;
        }
        if (mr_cond_wait_until(&w->ended, &w->lock, mr_time_ns() + LOOK_NS) || !mr_interrupted())
            continue;
        atomic_store(&w->stop, true);
        pthread_mutex_unlock(&w->lock);
        mr_http_kick(client);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
}

int mr_http_run(struct mr_http *client, struct mr_http_request *request)
{
    struct waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER};
    char url[512];
    bool own_stop = !request->stop;
    int rc = own_stop ? mr_interrupt_check(mr_url_show(request->url, url, sizeof url)) : 0;
    if (rc < 0)
        return rc;
    rc = mr_cond_init(&w.ended);
    if (rc < 0)
        return rc;
    if (own_stop)
        request->stop = &w.stop;
    request->user = &w;
    request->done = end_wait;
    mr_http_start(client, request);
    wait_for(client, &w, own_stop);
    if (own_stop)
        request->stop = NULL;
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

void mr_object_destroy(struct mr_object *o)
{
    if (o && o->client)
        mr_http_close(o->client);
    free(o);
}
