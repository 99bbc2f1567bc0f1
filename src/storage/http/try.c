/* One try of a request: sets up libcurl, receives the response, and decides the result. */
#include "storage/http/job.h"
#include "storage/s3/sign.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_REDIRECTS 5
#define SLOW_BYTES    1024 /* a second: less for the stall timeout ends a try */
#define BUFFER_BYTES                                                                               \
    (100 * 1024) /* made for each request: below what malloc asks the kernel for and gives back */

/* ---- receiving ---- */

static size_t give_up(struct mr_http_job *job, int code)
{
    mr_error_keep(code, &job->failed);
    return 0;
}

static size_t on_header(char *line, size_t one, size_t n, void *user)
{
    struct mr_http_job *job = user;
    (void)one;
    if (!job->answered)
        mr_http_answered(job);
    job->answered = true;
    mr_http_head_line(&job->request->answer, line, n);
    return n;
}

static void keep_excerpt(struct mr_http_job *job, const char *data, size_t n)
{
    size_t fits = MR_MIN(n, sizeof job->excerpt - job->n_excerpt);
    memcpy(job->excerpt + job->n_excerpt, data, fits);
    job->n_excerpt += fits;
}

static int grow_for(struct mr_http_job *job, uint64_t need)
{
    const struct mr_http_request *r = job->request;
    if (need <= job->capacity)
        return 0;
    char url[512];
    uint64_t capacity = MR_MIN(MR_MAX(need, job->capacity * 2), r->limit);
    if (r->to || job->expected != UINT64_MAX || capacity < need)
        return mr_error_set(r->to || job->expected != UINT64_MAX ? MR_EFORMAT : MR_ELIMIT,
                            "%s: more bytes came than the %llu that were %s",
                            mr_url_show(r->url, url, sizeof url), (unsigned long long)job->capacity,
                            r->to ? "asked for" : "announced or are allowed");
    void *grown = realloc(job->buf, capacity);
    if (!grown)
        return mr_error_nomem("body", capacity);
    job->buf = grown;
    job->capacity = capacity;
    return 0;
}

static size_t on_body(char *data, size_t one, size_t n, void *user)
{
    struct mr_http_job *job = user;
    int status = job->request->answer.status;
    (void)one;
    if (status != 200 && status != 206) {
        keep_excerpt(job, data, n);
        return n;
    }
    int rc = job->judged ? 0 : mr_http_judge(job);
    if (rc < 0)
        return give_up(job, rc);
    rc = grow_for(job, job->got + n);
    if (rc < 0)
        return give_up(job, rc);
    memcpy(job->buf + job->got, data, n);
    job->got += n;
    mr_remote_count(&mr_remote_counts.bytes, n);
    return n;
}

/* ---- setting up ---- */

static bool add_header(struct mr_http_job *job, const char *line)
{
    struct curl_slist *grown = mr_curl.slist_append(job->headers, line);
    if (grown)
        job->headers = grown;
    return grown != NULL;
}

static bool add_line(void *user, const char *line)
{
    return add_header(user, line);
}

static bool add_headers(struct mr_http_job *job)
{
    const struct mr_http_request *r = job->request;
    const char *etag = r->expect ? mr_object_etag(r->expect) : "";
    char line[256];
    bool ok = true;
    if (mr_http_strong(etag)) {
        snprintf(line, sizeof line, "If-Match: %s", etag);
        ok = add_header(job, line);
    }
    if (r->if_none_match) {
        snprintf(line, sizeof line, "If-None-Match: %s", r->if_none_match);
        ok = ok && add_header(job, line);
    }
    if (ok && job->target.signs)
        ok = mr_s3_sign(job->target.signs, r->head ? "HEAD" : "GET", job->target.url, time(NULL),
                        add_line, job) == 0;
    return ok;
}

/* Requests the bytes that are still missing. */
static void set_range(const struct mr_http_job *job)
{
    const struct mr_http_request *r = job->request;
    char range[64];
    if (r->head || (r->want == MR_WHOLE && job->got == 0))
        return;
    unsigned long long first = r->at + job->got, last = r->at + r->want - 1;
    if (r->want == MR_WHOLE)
        snprintf(range, sizeof range, "%llu-", first);
    else
        snprintf(range, sizeof range, "%llu-%llu", first, last);
    mr_curl.easy_setopt(job->easy, CURLOPT_RANGE, range);
}

static void set_protocols(CURL *easy, const char *url)
{
    bool tls = strncmp(url, "https:", 6) == 0;
#if LIBCURL_VERSION_NUM >= 0x075500
    mr_curl.easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    mr_curl.easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https");
#else
    mr_curl.easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    mr_curl.easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS,
                        (long)(tls ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

static void set_limits(CURL *easy, const struct mr_remote_opts *opts)
{
    mr_curl.easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    mr_curl.easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)opts->connect_timeout_ms);
    mr_curl.easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, (long)SLOW_BYTES);
    mr_curl.easy_setopt(easy, CURLOPT_LOW_SPEED_TIME,
                        (long)((opts->stall_timeout_ms + 999) / 1000));
    mr_curl.easy_setopt(easy, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    mr_curl.easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    mr_curl.easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    mr_curl.easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    mr_curl.easy_setopt(easy, CURLOPT_USERAGENT, "millrace");
    /* A proxy's answer to CONNECT says nothing of the server. */
    mr_curl.easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
}

static void set_callbacks(struct mr_http_job *job)
{
    mr_curl.easy_setopt(job->easy, CURLOPT_PRIVATE, (char *)job);
    mr_curl.easy_setopt(job->easy, CURLOPT_ERRORBUFFER, job->curl_text);
    mr_curl.easy_setopt(job->easy, CURLOPT_HEADERFUNCTION, on_header);
    mr_curl.easy_setopt(job->easy, CURLOPT_HEADERDATA, (void *)job);
    mr_curl.easy_setopt(job->easy, CURLOPT_WRITEFUNCTION, on_body);
    mr_curl.easy_setopt(job->easy, CURLOPT_WRITEDATA, (void *)job);
    mr_curl.easy_setopt(job->easy, CURLOPT_OPENSOCKETFUNCTION, mr_http_socket_open);
    mr_curl.easy_setopt(job->easy, CURLOPT_OPENSOCKETDATA, (void *)job);
    mr_curl.easy_setopt(job->easy, CURLOPT_CLOSESOCKETFUNCTION, mr_http_socket_close);
    mr_curl.easy_setopt(job->easy, CURLOPT_CLOSESOCKETDATA, (void *)job->server);
}

/* Keys and the session's token must not follow a redirect to another host. */
static int set_target(struct mr_http_job *job)
{
    char shown[512];
    const char *url = job->target.url ? job->target.url : job->request->url;
    CURLcode rc = mr_curl.easy_setopt(job->easy, CURLOPT_URL, url);
    set_protocols(job->easy, url);
    /* A key may have a segment "..": libcurl would resolve it, and get another object. */
    mr_curl.easy_setopt(job->easy, CURLOPT_PATH_AS_IS, 1L);
    mr_curl.easy_setopt(job->easy, CURLOPT_FOLLOWLOCATION, job->target.url ? 0L : 1L);
    if (rc == CURLE_OK)
        return 0;
    return mr_error_set(rc == CURLE_OUT_OF_MEMORY ? -ENOMEM : MR_EUNSUPPORTED, "%s: libcurl: %s",
                        mr_url_show(job->request->url, shown, sizeof shown),
                        mr_curl.easy_strerror(rc));
}

int mr_http_try(struct mr_http_job *job, const struct mr_remote_opts *opts)
{
    job->tries++;
    job->judged = job->answered = false;
    job->n_excerpt = 0;
    job->curl_text[0] = 0;
    job->request->answer = (struct mr_http_head){0};
    mr_curl.slist_free_all(job->headers);
    job->headers = NULL;
    mr_curl.easy_reset(job->easy);
    set_limits(job->easy, opts);
    if (!job->thread->client->http2)
        mr_curl.easy_setopt(job->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    if (job->thread->client->ca_file)
        mr_curl.easy_setopt(job->easy, CURLOPT_CAINFO, job->thread->client->ca_file);
    set_callbacks(job);
    int rc = set_target(job);
    if (rc)
        return rc;
    if (job->request->head)
        mr_curl.easy_setopt(job->easy, CURLOPT_NOBODY, 1L);
    set_range(job);
    if (!add_headers(job))
        return mr_error_nomem("request headers", 256);
    mr_curl.easy_setopt(job->easy, CURLOPT_HTTPHEADER, job->headers);
    return 0;
}

/* ---- the result ---- */

static const struct {
    CURLcode code;
    int error;
    bool again;
    const char *advice;
} outcomes[] = {
    {CURLE_OPERATION_TIMEDOUT, -ETIMEDOUT, true, "the server is too slow or does not answer"},
    {CURLE_COULDNT_CONNECT, -ECONNREFUSED, true, "is the server up, and the port right?"},
    {CURLE_COULDNT_RESOLVE_HOST, -EHOSTUNREACH, true, "check the host's name"},
    {CURLE_COULDNT_RESOLVE_PROXY, -EHOSTUNREACH, true,
     "check the proxy's name (http_proxy, https_proxy)"},
    {CURLE_RECV_ERROR, -ECONNRESET, true, "the connection broke"},
    {CURLE_SEND_ERROR, -ECONNRESET, true, "the connection broke"},
    {CURLE_GOT_NOTHING, -ECONNRESET, true, "the server closed the connection without an answer"},
    {CURLE_PARTIAL_FILE, MR_ETRUNCATED, true, "the server sent fewer bytes than it had announced"},
    {CURLE_HTTP2, -EIO, true, "the server broke the HTTP/2 protocol"},
    {CURLE_HTTP2_STREAM, -EIO, true, "the server broke an HTTP/2 stream"},
    {CURLE_SSL_CONNECT_ERROR, -EIO, true, "no TLS connection"},
    {CURLE_PEER_FAILED_VERIFICATION, -EACCES, false,
     "the server's certificate is not to be trusted"},
    {CURLE_TOO_MANY_REDIRECTS, -ELOOP, false, "the server redirects in a circle"},
    {CURLE_UNSUPPORTED_PROTOCOL, MR_EUNSUPPORTED, false,
     "redirected to something that is not http or https"},
    {CURLE_URL_MALFORMAT, MR_EOPTION, false, "not a URL"},
    {CURLE_WEIRD_SERVER_REPLY, MR_EFORMAT, false, "the server does not speak HTTP"},
    {CURLE_OUT_OF_MEMORY, -ENOMEM, false, "out of memory"},
};

static enum mr_http_verdict transport_error(struct mr_http_job *job, CURLcode curl, int *code)
{
    const char *advice = "the transfer failed";
    char url[512];
    bool again = false;
    *code = -EIO;
    for (size_t i = 0; i < MR_COUNT(outcomes); i++)
        if (outcomes[i].code == curl) {
            *code = outcomes[i].error;
            advice = outcomes[i].advice;
            again = outcomes[i].again;
            break;
        }
    if (curl == CURLE_UNSUPPORTED_PROTOCOL &&
        job->request->answer.status / 100 != 3) { /* HTTP/0.9, or something similar */
        *code = MR_EFORMAT;
        advice = "the server does not speak HTTP";
    }
    mr_error_set(*code, "%s: %s: %s; tries: %u", mr_url_show(job->request->url, url, sizeof url),
                 advice, job->curl_text[0] ? job->curl_text : mr_curl.easy_strerror(curl),
                 job->tries);
    return again ? MR_HTTP_AGAIN : MR_HTTP_FAILED;
}

enum mr_http_verdict mr_http_verdict(struct mr_http_job *job, CURLcode curl, int *code)
{
    int status = job->request->answer.status;
    bool ok = status == 200 || status == 206 || (status == 304 && job->request->if_none_match),
         again = false;
    *code = job->failed.code;
    if (job->failed.code) {
        mr_error_put(&job->failed);
        return MR_HTTP_FAILED;
    }
    if (ok && !job->judged && status != 304 && (curl == CURLE_OK || curl == CURLE_PARTIAL_FILE))
        *code = mr_http_judge(job);
    if (*code)
        return MR_HTTP_FAILED;
    if (curl != CURLE_OK)
        return transport_error(job, curl, code);
    if (ok) {
        *code = mr_http_complete(job);
        return *code ? MR_HTTP_FAILED : MR_HTTP_DONE;
    }
    *code = mr_http_status_error(job, &again);
    return again ? MR_HTTP_AGAIN : MR_HTTP_FAILED;
}
