/* Objects: what is remembered about them. */
#include "storage/http/http.h"

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

bool mr_http_total(const struct mr_http_request *request, uint64_t *out)
{
    const struct mr_http_head *h = &request->answer;
    bool part = h->status == 206;
    if (part ? !h->has_total : h->status != 200 || !h->has_length)
        return false;
    *out = part ? h->total : h->length;
    return true;
}
