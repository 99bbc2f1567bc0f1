/*
 * How many connections. By HTTP/1.1 a connection carries one request at a time, so each request has
 * one of its own, and the thread's limit bounds both. By HTTP/2 it carries several. libcurl opens a
 * new one for each request that comes while the first ones are still being made, hundreds at once,
 * and then fills some and leaves the others idle. So here requests begin as connections get ready:
 * each takes MR_HTTP_STREAMS, and one more, which opens another. Their number doubles with each
 * round until all requests have a place.
 *
 * Which of the two a server speaks is known by its first answer. Until then one request to it is
 * under way, to an https URL; plain http is never HTTP/2. All this is kept by server, so requests
 * to one that is down block no others.
 */
#include "storage/http/job.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *url_of(const struct mr_http_job *job)
{
    return job->target.url ? job->target.url : job->request->url;
}

static bool is_tls(const struct mr_http_job *job)
{
    return strncmp(url_of(job), "https:", 6) == 0;
}

uint32_t mr_http_server_of(const struct mr_http_job *job)
{
    const char *url = url_of(job), *host = strstr(url, "://");
    size_t n = host ? (size_t)(host + 3 - url) : 0;
    n += strcspn(url + n, "/?#");
    return (uint32_t)(mr_hash(MR_HASH_START, url, n) % MR_HTTP_SERVERS);
}

/* Connections that are made. One whose first request was cancelled may live on, by HTTP/2. */
static uint32_t n_up(const struct mr_http_server *s)
{
    return s->n_sockets - MR_MIN(s->n_opening, s->n_sockets);
}

uint32_t mr_http_may_be_active(const struct mr_http_server *s)
{
    int is = atomic_load_explicit(s->multiplexes, memory_order_relaxed);
    if (is == MR_HTTP_SINGLE || !is_tls(s->ready.first))
        return UINT32_MAX;
    return is == MR_HTTP_UNKNOWN ? 1 : MR_MAX(n_up(s) * (MR_HTTP_STREAMS + 1), 1u);
}

static void learn(struct mr_http_server *s, enum mr_http_multiplexes is)
{
    atomic_store_explicit(s->multiplexes, is, memory_order_relaxed);
}

static void opening_ends(struct mr_http_job *job)
{
    job->server->n_opening -= job->opening;
    job->opening = false;
}

void mr_http_answered(struct mr_http_job *job)
{
    long version = 0;
    mr_curl.easy_getinfo(job->easy, CURLINFO_HTTP_VERSION, &version);
    opening_ends(job);
    learn(job->server, version == CURL_HTTP_VERSION_2_0 ? MR_HTTP_MULTIPLEXES : MR_HTTP_SINGLE);
}

/* Requests to a server that is down are not to wait for each other. */
void mr_http_ended(struct mr_http_job *job, bool cancelled)
{
    if (!job->answered && !cancelled && n_up(job->server) == 0)
        learn(job->server, MR_HTTP_SINGLE);
    opening_ends(job);
}

curl_socket_t mr_http_socket_open(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct mr_http_job *job = user;
    (void)purpose;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    job->server->n_sockets++;
    job->server->n_opening += !job->opening; /* a host with two addresses may get two sockets */
    job->opening = true;
    return fd;
}

int mr_http_socket_close(void *server, curl_socket_t fd)
{
    struct mr_http_server *s = server;
    s->n_sockets--;
    return close(fd);
}
