/* Remote files as the table of files sees them: sizes, blocking reads, what is remembered of
 * each. */
#include "storage/http/curl.h"
#include "storage/http/http.h"

#include <errno.h>
#include <string.h>

struct mr_object *mr_remote_object(struct mr_file *f)
{
    return atomic_load_explicit(&f->own, memory_order_acquire);
}

/* If two first contacts race, the second is checked against the first. */
static int remember(struct mr_http *client, struct mr_file *f, const struct mr_http_head *head,
                    uint64_t total)
{
    void *none = NULL;
    uint64_t listed = f->lazy ? atomic_load_explicit(&f->ready, memory_order_relaxed) : MR_WHOLE;
    if (listed != MR_WHOLE && listed != total)
        return mr_error_set(MR_EFORMAT,
                            "%s: %llu bytes, its table says %llu: write the table again", f->name,
                            (unsigned long long)total, (unsigned long long)listed);
    struct mr_object *o = mr_object_create(total, head->etag, head->modified);
    if (!o)
        return mr_error_nomem(f->name, sizeof *o);
    if (atomic_compare_exchange_strong_explicit(&f->own, &none, o, memory_order_acq_rel,
                                                memory_order_acquire)) {
        o->client = mr_http_again(client);
        return 0;
    }
    mr_object_destroy(o);
    return mr_object_check(f->name, none, head, total);
}

int mr_remote_learn(struct mr_http *client, struct mr_file *f,
                    const struct mr_http_request *answered)
{
    uint64_t total = MR_WHOLE;
    bool known = mr_http_total(answered, &total);
    if (!known && answered->want == MR_WHOLE && !answered->head)
        total = answered->got;
    const struct mr_object *o = mr_remote_object(f);
    if (o || total == MR_WHOLE)
        return mr_object_check(f->name, o, &answered->answer, total);
    return remember(client, f, &answered->answer, total);
}

int mr_remote_fetch(struct mr_http *client, struct mr_file *f, uint64_t at, void *to,
                    uint64_t bytes, const _Atomic bool *stop)
{
    if (bytes == 0)
        return 0;
    struct mr_http_request request = {.url = mr_file_url(f),
                                      .at = at,
                                      .want = bytes,
                                      .to = to,
                                      .expect = mr_remote_object(f),
                                      .stop = stop};
    int rc = mr_http_run(client, &request);
    return rc ? rc : mr_remote_learn(client, f, &request);
}

/* Gets the size from the Content-Range of the first byte, for servers without HEAD or without a
 * length in it. */
static int look_by_range(struct mr_http *client, struct mr_file *f, const _Atomic bool *stop)
{
    char first[1];
    struct mr_http_request request = {.url = mr_file_url(f), .want = 1, .to = first, .stop = stop};
    int rc = mr_http_run(client, &request);
    const struct mr_http_head *h = &request.answer;
    if (h->status == 416 && h->has_total && h->total == 0)
        return remember(client, f, h, 0);
    if (rc < 0)
        return rc;
    rc = mr_remote_learn(client, f, &request);
    if (rc < 0)
        return rc;
    if (!mr_remote_object(f))
        return mr_error_set(
            MR_EUNSUPPORTED,
            "%s: the server does not tell how large it is: neither by HEAD nor by range", f->name);
    return 0;
}

int mr_remote_look(struct mr_http *client, struct mr_file *f, const _Atomic bool *stop)
{
    uint64_t total;
    struct mr_http_request request = {.url = mr_file_url(f), .head = true, .stop = stop};
    int rc = mr_http_run(client, &request), status = request.answer.status;
    if (rc >= 0 && mr_http_total(&request, &total))
        return mr_remote_learn(client, f, &request);
    bool other_way = rc >= 0 || status == 400 || status == 403 || status == 405 || status == 501;
    return other_way ? look_by_range(client, f, stop) : rc;
}

static int size(struct mr_file *f, uint64_t *out)
{
    struct mr_http *client;
    int rc = mr_http_open(&client);
    if (rc)
        return rc;
    rc = mr_remote_look(client, f, NULL);
    if (rc < 0)
        goto end;
    *out = mr_remote_object(f)->total;
end:
    mr_http_close(client);
    return rc;
}

static int read_range(struct mr_file *f, uint64_t at, void *to, uint64_t bytes)
{
    struct mr_http *client;
    int rc = mr_http_open(&client);
    if (rc)
        return rc;
    if (mr_http_disk_cache(client))
        rc = mr_cached_read(client, f, at, to, bytes, NULL);
    else
        rc = mr_remote_fetch(client, f, at, to, bytes, NULL);
    mr_http_close(client);
    return rc;
}

static int list(const char *place,
                int (*fn)(void *user, const char *name, bool folder, uint64_t bytes), void *user)
{
    if (strncmp(place, "s3://", 5) == 0)
        return mr_s3_list(place, fn, user);
    char url[512];
    return mr_error_set(MR_EUNSUPPORTED,
                        "%s: HTTP knows no listing of folders: name the files (list:), pack them "
                        "(tar:), or use s3://",
                        mr_url_show(place, url, sizeof url));
}

static void forget(struct mr_file *f)
{
    mr_object_destroy(atomic_exchange(&f->own, NULL));
}

static const char *const schemes[] = {"http://", "https://", "s3://", NULL};

const struct mr_remote_ops mr_remote_http = {
    .schemes = schemes,
    .why_not = mr_curl_why_not,
    .size = size,
    .read = read_range,
    .list = list,
    .forget = forget,
};
