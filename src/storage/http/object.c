/* Objects: what is remembered of them, and URLs as they may be shown. */
#include "storage/http/http.h"

#include <stdio.h>
#include <string.h>

struct mr_object *mr_object_create(uint64_t total, const char *etag, const char *modified)
{
    size_t n = strlen(etag) + 1, m = strlen(modified) + 1;
    struct mr_object *o = malloc(sizeof *o + n + m);
    if (!o)
        return NULL;
    *o = (struct mr_object){.total = total, .modified = o->text + n};
    memcpy(o->text, etag, n);
    memcpy(o->text + n, modified, m);
    return o;
}

void mr_object_destroy(struct mr_object *o)
{
    if (o && o->client)
        mr_http_close(o->client);
    free(o);
}

bool mr_http_total(const struct mr_http_request *request, uint64_t *out)
{
    const struct mr_http_head *h = &request->answer;
    bool part = h->status == 206;
    if (part ? !h->has_total : h->status != 200 || !h->has_length)
        return false;
    *out = part ? h->total : h->length;
    return true;
}

const char *mr_url_show(const char *url, char *buf, size_t cap)
{
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    size_t n = strcspn(host, "/?#");
    const char *at = memrchr(host, '@', n);
    bool s3 = strncmp(url, "s3://", 5) == 0; /* its keys may hold a '?' */
    const char *from = at && !s3 ? at + 1 : host;
    size_t length = s3 ? strlen(from) : strcspn(from, "?#");
    snprintf(buf, cap, "%.*s%.*s%s", (int)(host - url), url, (int)MR_MIN(length, 4096u), from,
             from[length] ? "?..." : "");
    return buf;
}
