/*
 * How many connections. By HTTP/1.1 a connection carries one request at a time, so each request has
 * one of its own, and the thread's limit bounds both. By HTTP/2 it carries several. libcurl opens a
 * new one for each request that comes while the first ones are still being made, hundreds at once,
 * and then fills some and leaves the others idle. So here requests begin as connections get ready:
 * each takes MR_HTTP_STREAMS, and one more, which opens another. Their number doubles with each
 * round until all requests have a place.
 *
 * Which of the two a server speaks is known by its first answer. Until then one request is under
 * way, to an https URL; plain http is never HTTP/2.
 */
#include "storage/http/job.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_tls(const struct mr_http_job *job)
{
    const char *url = job->target.url ? job->target.url : job->request->url;
    return strncmp(url, "https:", 6) == 0;
}

uint32_t mr_http_may_be_active(const struct mr_http_thread *t, const struct mr_http_job *first)
{
    int is = atomic_load_explicit(&t->client->multiplexes, memory_order_relaxed);
    if (is == MR_HTTP_SINGLE || !is_tls(first))
        return t->client->max_active;
    return MR_MIN(MR_MAX(t->n_up * (MR_HTTP_STREAMS + 1), 1u), t->client->max_active);
}

static void learn(struct mr_http_thread *t, enum mr_http_multiplexes is)
{
    atomic_store_explicit(&t->client->multiplexes, is, memory_order_relaxed);
}

void mr_http_answered(struct mr_http_job *job)
{
    struct mr_http_thread *t = job->thread;
    long version = 0, connects = 0;
    mr_curl.easy_getinfo(job->easy, CURLINFO_HTTP_VERSION, &version);
    mr_curl.easy_getinfo(job->easy, CURLINFO_NUM_CONNECTS, &connects);
    if (connects > 0)
        t->n_up = MR_MIN(t->n_up + 1, t->n_sockets);
    learn(t, version == CURL_HTTP_VERSION_2_0 ? MR_HTTP_MULTIPLEXES : MR_HTTP_SINGLE);
}

/* Requests to a server that is down are not to wait for each other. */
void mr_http_broke(struct mr_http_thread *t)
{
    learn(t, MR_HTTP_SINGLE);
}

curl_socket_t mr_http_socket_open(void *thread, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct mr_http_thread *t = thread;
    (void)purpose;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    t->n_sockets += fd >= 0;
    return fd >= 0 ? fd : CURL_SOCKET_BAD;
}

int mr_http_socket_close(void *thread, curl_socket_t fd)
{
    struct mr_http_thread *t = thread;
    t->n_sockets--;
    t->n_up = MR_MIN(t->n_up, t->n_sockets);
    return close(fd);
}
