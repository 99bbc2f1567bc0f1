/* What servers send: heads of responses, line by line; pages of S3's lists and its errors. */
#include "storage/http/http.h"
#include "storage/s3/xml.h"
#include <stdlib.h>
#include <string.h>

static void check_head(const struct mr_http_head *h)
{
    bool fine = h->status == 0 || (h->status >= 100 && h->status <= 599);
    fine = fine && (!h->has_part || (h->has_range && h->from <= h->last));
    fine = fine && (!h->has_part || !h->has_total || h->last < h->total);
    fine = fine && memchr(h->etag, 0, sizeof h->etag) && memchr(h->modified, 0, sizeof h->modified);
    if (!fine || strchr(h->etag, '\n') || strchr(h->etag, '\r'))
        abort();
}

static int on_key(void *user, const char *key, bool folder, uint64_t bytes)
{
    size_t *n = user;
    *n += strlen(key) + (size_t)folder + (bytes == 0);
    return *n > 10000;
}

static void check_xml(const char *text, size_t size)
{
    size_t n = 0;
    char error[300];
    struct mr_s3_page page = {.fn = on_key, .user = &n};
    mr_s3_page_parse("s3://fuzz/", text, size, &page);
    free(page.next);
    mr_s3_error_text(text, size, error, sizeof error);
    if (!memchr(error, 0, sizeof error))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_http_head head = {0};
    const char *at = (const char *)data, *end = at + size;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t n = line_end ? (size_t)(line_end - at) + 1 : (size_t)(end - at);
        mr_http_head_line(&head, at, n);
        check_head(&head);
        at += n;
    }
    check_xml((const char *)data, size);
    return 0;
}
