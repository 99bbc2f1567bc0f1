/* Checks responses: is it the requested range of the expected object? Also maps other statuses to
 * errors. */
#include "storage/http/job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SHOWN 512

static const char *shown(const struct mr_http_job *job, char buf[SHOWN])
{
    return mr_url_show(job->request->url, buf, SHOWN);
}

/* ---- the object ---- */

static int changed(const char *url, const char *what, const char *was, const char *is)
{
    char buf[SHOWN];
    return mr_error_set(
        -ESTALE,
        "%s: the object changed while it was in use: %s was %.200s, is %.200s: start the run again",
        mr_url_show(url, buf, sizeof buf), what, was, is[0] ? is : "missing");
}

int mr_object_check(const char *url, const struct mr_object *was, const struct mr_http_head *is,
                    uint64_t total)
{
    char a[24], b[24];
    if (!was)
        return 0;
    snprintf(a, sizeof a, "%llu", (unsigned long long)was->total);
    snprintf(b, sizeof b, "%llu", (unsigned long long)total);
    if (total != MR_WHOLE && total != was->total)
        return changed(url, "its size", a, b);
    if (mr_object_etag(was)[0] && is->etag[0] && strcmp(mr_object_etag(was), is->etag) != 0)
        return changed(url, "its ETag", mr_object_etag(was), is->etag);
    if (!mr_object_etag(was)[0] && was->modified[0] && is->modified[0] &&
        strcmp(was->modified, is->modified) != 0)
        return changed(url, "Last-Modified", was->modified, is->modified);
    return 0;
}

/* ---- the range ---- */

static int lie(const struct mr_http_job *job, const char *what)
{
    char url[SHOWN];
    const struct mr_http_request *r = job->request;
    const struct mr_http_head *h = &r->answer;
    return mr_error_set(
        MR_EFORMAT,
        "%s: the server's answer makes no sense: %s (status %d, Content-Length %lld, Content-Range "
        "%llu-%llu/%llu; asked for %llu bytes at %llu)",
        shown(job, url), what, h->status, h->has_length ? (long long)h->length : -1,
        (unsigned long long)h->from, (unsigned long long)h->last, (unsigned long long)h->total,
        (unsigned long long)r->want, (unsigned long long)r->at);
}

static int past_end(const struct mr_http_job *job, uint64_t total)
{
    char url[SHOWN];
    return mr_error_set(MR_ETRUNCATED,
                        "%s: %llu bytes at offset %llu were asked for, the object has %llu",
                        shown(job, url), (unsigned long long)job->request->want,
                        (unsigned long long)job->request->at, (unsigned long long)total);
}

/* 206. [out] length: of this body. */
static int judge_part(struct mr_http_job *job, uint64_t *length)
{
    const struct mr_http_request *r = job->request;
    const struct mr_http_head *h = &r->answer;
    uint64_t first = r->at + job->got;
    if (!h->has_part)
        return lie(job, "206 without the range that it is");
    if (h->from != first)
        return lie(job, "another range than was asked for");
    *length = h->last - h->from + 1;
    if (h->has_length && h->length != *length)
        return lie(job, "Content-Length is not the length of Content-Range");
    if (r->want == MR_WHOLE)
        return h->has_total && h->last + 1 == h->total ? 0 : lie(job, "not the rest of the object");
    if (*length > r->want - job->got)
        return lie(job, "more bytes than were asked for");
    if (*length < r->want - job->got)
        return h->has_total && h->last + 1 == h->total
                   ? past_end(job, h->total)
                   : lie(job, "fewer bytes than were asked for");
    return 0;
}

/* 200: the whole object, whatever range was requested. */
static int judge_whole(struct mr_http_job *job, uint64_t *length)
{
    char url[SHOWN];
    const struct mr_http_request *r = job->request;
    const struct mr_http_head *h = &r->answer;
    job->got = 0;
    *length = h->has_length ? h->length : UINT64_MAX;
    if (r->want == MR_WHOLE)
        return 0;
    if (r->at == 0 && (!h->has_length || h->length == r->want))
        return 0;
    if (h->has_length && h->length < r->at + r->want)
        return past_end(job, h->length);
    return mr_error_set(MR_EUNSUPPORTED,
                        "%s: the server ignores Range: %llu bytes at offset %llu were asked for, "
                        "all %lld came: it must "
                        "serve ranges (206), or the data set must be one of whole files",
                        shown(job, url), (unsigned long long)r->want, (unsigned long long)r->at,
                        h->has_length ? (long long)h->length : -1);
}

/* ---- the buffer ---- */

static int grow(struct mr_http_job *job, uint64_t capacity)
{
    char url[SHOWN];
    const struct mr_http_request *r = job->request;
    if (capacity > r->limit)
        return mr_error_set(MR_ELIMIT, "%s: has more than the %llu bytes that are allowed here",
                            shown(job, url), (unsigned long long)r->limit);
    void *grown = realloc(job->buf, MR_MAX(capacity, 1u));
    if (!grown)
        return mr_error_nomem(shown(job, url), capacity);
    job->buf = grown;
    job->buf_owned = true;
    job->capacity = capacity;
    return 0;
}

/* The caller's buffer for the whole object. Bytes from earlier tries are kept: copied here from our
 * buffer, or by sized() from the caller's. */
static int take_buffer(struct mr_http_job *job)
{
    struct mr_http_request *r = job->request;
    void *buffer = NULL;
    r->got = job->got;
    int rc = r->sized(r, job->expected, &buffer);
    if (job->buf_owned) {
        if (rc >= 0 && job->got > 0)
            memcpy(buffer, job->buf, job->got);
        free(job->buf);
    }
    job->buf_owned = false;
    job->buf = buffer;
    job->capacity = rc < 0 ? 0 : job->expected;
    return rc;
}

/* A buffer for all that is expected, or for a first piece. */
static int make_buffer(struct mr_http_job *job)
{
    struct mr_http_request *r = job->request;
    if (r->to) {
        job->buf = r->to;
        job->capacity = r->want;
        return 0;
    }
    if (r->sized && job->expected != UINT64_MAX)
        return take_buffer(job);
    /* the buffer is sized()'s from an earlier try: it cannot grow, and a body of unknown length
     * starts from 0 */
    if (!job->buf_owned) {
        job->buf = NULL;
        job->capacity = 0;
    }
    uint64_t capacity = job->expected == UINT64_MAX ? MR_MIN(r->limit, 65536u) : job->expected;
    return capacity > job->capacity ? grow(job, capacity) : 0;
}

int mr_http_judge(struct mr_http_job *job)
{
    const struct mr_http_head *h = &job->request->answer;
    uint64_t length = 0, total = MR_WHOLE;
    job->judged = true;
    if (h->bad || h->twice)
        return lie(job, h->bad ? h->bad : "it says two different lengths");
    mr_http_total(job->request, &total);
    int rc = mr_object_check(job->request->url, job->request->expect, h, total);
    if (rc || job->request->head)
        return rc;
    rc = h->status == 206 ? judge_part(job, &length) : judge_whole(job, &length);
    if (rc)
        return rc;
    if (length == UINT64_MAX)
        job->expected = UINT64_MAX;
    else if (!mr_add(job->got, length, &job->expected))
        return lie(job, "a length past 2^64");
    return make_buffer(job);
}

int mr_http_complete(struct mr_http_job *job)
{
    const struct mr_http_request *r = job->request;
    if (r->head || r->answer.status == 304)
        return 0;
    uint64_t want = r->want != MR_WHOLE ? r->want : job->expected;
    if (want != UINT64_MAX && job->got < want)
        return past_end(job, r->at + job->got);
    return r->want == MR_WHOLE && r->expect && job->got != r->expect->total
               ? lie(job, "not as many bytes as the object has")
               : 0;
}

/* ---- other statuses ---- */

static const struct {
    int status, code;
    bool again;
    const char *name, *advice;
} statuses[] = {
    {400, -EIO, false, "Bad Request", "the server does not like the request"},
    {401, -EACCES, false, "Unauthorized",
     "it needs a user and password (https://user:password@host/), or keys"},
    {403, -EACCES, false, "Forbidden", "no right to read it, or no such object"},
    {404, -ENOENT, false, "Not Found", "no such object: check the name"},
    {405, MR_EUNSUPPORTED, false, "Method Not Allowed", "the server does not serve files this way"},
    {408, -ETIMEDOUT, true, "Request Timeout", "the server waited too long"},
    {410, -ENOENT, false, "Gone", "the object was removed"},
    {412, -ESTALE, false, "Precondition Failed",
     "the object changed while it was in use: start the run again"},
    {416, MR_ETRUNCATED, false, "Range Not Satisfiable",
     "the object is shorter than what was asked for"},
    {429, -EBUSY, true, "Too Many Requests", "ask for less at a time (queue depth) or later"},
    {500, -EIO, true, "Internal Server Error", "the server failed: try later"},
    {502, -EIO, true, "Bad Gateway", "a proxy before the server failed: try later"},
    {503, -EBUSY, true, "Service Unavailable",
     "the server is overloaded: try later, or with less queue depth"},
    {504, -ETIMEDOUT, true, "Gateway Timeout", "the server did not answer its proxy: try later"},
};

int mr_http_status_error(const struct mr_http_job *job, bool *again)
{
    const struct mr_http_request *r = job->request;
    int status = r->answer.status, code = -EIO;
    const char *name = "", *advice = "not an answer that this program understands";
    char url[SHOWN], detail[300], range[64] = "", region[128] = "";
    *again = status >= 500;
    for (size_t i = 0; i < MR_COUNT(statuses); i++)
        if (statuses[i].status == status) {
            code = statuses[i].code;
            name = statuses[i].name;
            advice = statuses[i].advice;
            *again = statuses[i].again;
        }
    mr_s3_error_text(job->excerpt, job->n_excerpt, detail, sizeof detail);
    if (!r->head && r->want != MR_WHOLE)
        snprintf(range, sizeof range, ": %llu bytes at offset %llu", (unsigned long long)r->want,
                 (unsigned long long)r->at);
    if (r->answer.region[0] && status / 100 != 2)
        snprintf(region, sizeof region, " (the bucket is in region %s: AWS_REGION)",
                 r->answer.region);
    const char *keys = job->target.url && (status == 403 || status == 401 || status == 400)
                           ? (job->target.signs ? " (the request was signed)"
                                                : " (no AWS keys were found: unsigned)")
                           : "";
    return mr_error_set(code, "%s%s: the server says %d %s%s%s: %s%s%s; tries: %u", shown(job, url),
                        range, status, name, detail[0] ? ": " : "", detail, advice, keys, region,
                        job->tries);
}
