/*
 * Lists the entries below s3://bucket/prefix/ in pages of up to 1,000. The server decides how long
 * the list is, and may be broken, so each page must make progress: its names must be greater than
 * those of earlier pages (in UTF-8's binary order, as S3 sorts them), and the number of empty pages
 * in a row is limited. Names end up in memory, so the memory for a list is limited too.
 */
#include "storage/http/http.h"
#include "storage/s3/xml.h"

#include <math.h>
#include <millrace/options.h>
#include <stdio.h>
#include <string.h>

#define PAGE_BYTES  (16u << 20)
#define MOST_EMPTY  1000 /* pages without a name, in a row */
#define ENTRY_BYTES 100  /* what the caller stores per entry, besides its name */
#define MOST_MEMORY (4ull << 30)
#define KEY_BYTES   8192 /* as of the parser's */

struct listing {
    const char *place, *prefix; /* prefix: of keys, "" or with '/' at its end */
    int (*fn)(void *user, const char *name, bool folder, uint64_t bytes);
    void *user;
    bool any;
    uint32_t n_empty;     /* pages, up to the last one */
    uint64_t bytes, most; /* of memory, by an estimate */
    bool page_any;        /* this page has a name */
    /* the greatest names, up to the last page and up to now */
    char before[KEY_BYTES], last[KEY_BYTES];
};

/* Reads $MILLRACE_LIST_LIMIT; the default is 4 GiB or half of the memory. 0 or the error. */
static int find_limit(uint64_t *out)
{
    static const struct mr_option table[] = {
        {.name = "MILLRACE_LIST_LIMIT", .type = MR_OPT_BYTES, .min = 1, .max = INFINITY}, {NULL}};
    struct mr_host_memory_info memory = {.size = sizeof memory};
    const char *text = getenv("MILLRACE_LIST_LIMIT");
    mr_host_memory_query(&memory);
    *out = MR_MIN(MOST_MEMORY, memory.total_bytes / 2);
    return text && text[0] ? mr_options_set(table, out, "", "MILLRACE_LIST_LIMIT", text) : 0;
}

/* Checks an entry's order and memory. 0 or the error. */
static int check_entry(struct listing *l, const char *key, size_t length)
{
    if (l->before[0] && strcmp(key, l->before) <= 0)
        return mr_error_set(
            MR_EFORMAT,
            "%s: the server's list does not go on: \"%.200s\" comes on a page behind "
            "\"%.200s\"; pages must be in the order of names",
            l->place, key, l->before);
    l->bytes += length + ENTRY_BYTES;
    if (l->bytes > l->most)
        return mr_error_set(
            MR_ELIMIT,
            "%s: the list of objects takes more than the %llu bytes of memory that "
            "are allowed: list a longer prefix, or set MILLRACE_LIST_LIMIT (as 16GiB)",
            l->place, (unsigned long long)l->most);
    l->page_any = true;
    if (length < sizeof l->last && strcmp(key, l->last) > 0)
        memcpy(l->last, key, length + 1);
    return 0;
}

static int end_page(struct listing *l)
{
    l->n_empty = l->page_any ? 0 : l->n_empty + 1;
    l->page_any = false;
    memcpy(l->before, l->last, strlen(l->last) + 1);
    if (l->n_empty < MOST_EMPTY)
        return 0;
    return mr_error_set(MR_EFORMAT,
                        "%s: the server's list does not go on: %u pages in a row are empty",
                        l->place, l->n_empty);
}

/* Keys are complete; a name is what follows the prefix. */
static int on_key(void *user, const char *key, bool folder, uint64_t bytes)
{
    struct listing *l = user;
    size_t n = strlen(l->prefix), length = strlen(key);
    int rc = check_entry(l, key, length);
    if (rc < 0)
        return rc;
    if (strncmp(key, l->prefix, n) != 0)
        return 0; /* an entry that was not requested */
    l->any = true;
    if (length == n) /* the "folder" as an object of its own, as consoles make it */
        return 0;
    if (!folder)
        return strchr(key + n, '/') ? 0 : l->fn(l->user, key + n, false, bytes);
    char name[8192];
    length -= n + (key[length - 1] == '/');
    if (length == 0 || length >= sizeof name)
        return 0;
    memcpy(name, key + n, length);
    name[length] = 0;
    return l->fn(l->user, name, true, UINT64_MAX);
}

/* Sorted by name: the signature requires it, and libcurl 7.88 does not sort. */
static char *query_text(const char *prefix, const char *token)
{
    char *text = NULL, *p = mr_url_encode(prefix, strlen(prefix), ""),
         *t = token ? mr_url_encode(token, strlen(token), "") : NULL;
    if (p && (t || !token) &&
        asprintf(&text, "%s%s%sdelimiter=%%2F&encoding-type=url&list-type=2&prefix=%s",
                 t ? "continuation-token=" : "", t ? t : "", t ? "&" : "", p) < 0)
        text = NULL;
    free(p);
    free(t);
    return text;
}

static int get_page(struct mr_http *client, struct listing *l, const char *bucket,
                    const char *token, struct mr_s3_page *page)
{
    char url[80];
    char *query = query_text(l->prefix, token);
    if (!query)
        return mr_error_nomem("list of objects", strlen(l->prefix));
    snprintf(url, sizeof url, "s3://%s/", bucket);
    struct mr_http_request request = {
        .url = url, .query = query, .want = MR_WHOLE, .limit = PAGE_BYTES};
    int rc = mr_http_run(client, &request);
    if (rc < 0)
        goto end;
    rc = mr_s3_page_parse(l->place, request.body, request.got, page);
end:
    free(request.body);
    free(query);
    return rc;
}

static int next_token(const struct listing *l, struct mr_s3_page *page, char **token)
{
    bool same = page->truncated && (!page->next || (*token && strcmp(*token, page->next) == 0));
    if (same)
        return mr_error_set(MR_EFORMAT,
                            "%s: the server's list does not go on: no new continuation token",
                            l->place);
    free(*token);
    *token = page->truncated ? page->next : NULL;
    if (page->truncated)
        page->next = NULL;
    return 0;
}

/* [in,out] token: of this page, then of the next one. [out] more: another page follows. Returns 0,
 * the error, or the nonzero value by which the caller's function stopped the list. */
static int list_page(struct mr_http *client, struct listing *l, const char *bucket, char **token,
                     bool *more)
{
    struct mr_s3_page page = {.fn = on_key, .user = l};
    int rc = get_page(client, l, bucket, *token, &page);
    if (rc < 0)
        goto end;
    rc = page.stopped;
    if (rc)
        goto end;
    rc = next_token(l, &page, token);
    if (rc < 0)
        goto end;
    *more = page.truncated;
    if (*more)
        rc = end_page(l);
end:
    free(page.next);
    return rc;
}

static int list_pages(struct mr_http *client, struct listing *l, const char *bucket)
{
    char *token = NULL;
    int rc;
    bool more = false;
    do {
        rc = list_page(client, l, bucket, &token, &more);
    } while (!rc && more);
    free(token);
    return rc;
}

int mr_s3_list(const char *place,
               int (*fn)(void *user, const char *name, bool folder, uint64_t bytes), void *user)
{
    char bucket[64], prefix[2048];
    const char *key;
    struct mr_http *client;
    int rc = mr_s3_split(place, bucket, &key);
    if (rc)
        return rc;
    size_t n = strlen(key);
    if (n + 2 > sizeof prefix)
        return mr_error_set(MR_EOPTION, "%.100s...: longer than any S3 key", place);
    snprintf(prefix, sizeof prefix, "%s%s", key, n && key[n - 1] != '/' ? "/" : "");
    struct listing *l = calloc(1, sizeof *l);
    if (!l)
        return mr_error_nomem(place, sizeof *l);
    *l = (struct listing){.place = place, .prefix = prefix, .fn = fn, .user = user};
    rc = find_limit(&l->most);
    if (rc < 0)
        goto end;
    rc = mr_http_open(&client);
    if (rc < 0)
        goto end;
    rc = list_pages(client, l, bucket);
    mr_http_close(client);
    if (rc)
        goto end;
    if (!l->any && prefix[0])
        rc = mr_error_set(MR_EOPTION, "%s: nothing is there: check bucket and prefix", place);
end:
    free(l);
    return rc;
}
