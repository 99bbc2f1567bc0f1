/*
 * URLs with credentials, and the names that replace them.
 *
 * Before a data set is opened, each URL with credentials in its options is replaced by a name such
 * as "***@host/x.npy?...", so that texts, errors and names of files made from the options contain
 * no secret. A file that is added under such a name is read from its URL. A name is valid until the
 * last data set releases it.
 */
#include "storage/private.h"

#include "base/secret.h"
#include <errno.h>
#include <string.h>
#include <strings.h>

struct hidden {
    struct hidden *next;
    uint64_t holders;
    char *url; /* in full, behind the name */
    char name[];
};

static struct hidden *hidden; /* under mr_storage_lock() */

/* The length of a URL up to the end of its host, such as "***@host", which URLs built below it
 * share. 0: it has no userinfo. */
static size_t origin(const char *url)
{
    struct mr_url cut;
    if (!mr_url_cut(url, strlen(url), &cut) || cut.host == cut.user)
        return 0;
    return cut.host + strcspn(url + cut.host, "/?#");
}

static bool same(const char *a, size_t n_a, const char *b, size_t n_b)
{
    return n_a == n_b && memcmp(a, b, n_a) == 0;
}

/* Could the name of one be taken for the other? */
static bool clash(const struct hidden *a, const struct hidden *b)
{
    size_t n = origin(a->name);
    bool known = n > 0 && same(a->name, n, b->name, origin(b->name));
    return strcmp(a->name, b->name) == 0 ||
           (known && !same(a->url, origin(a->url), b->url, origin(b->url)));
}

static struct hidden *create(const char *url, unsigned nth)
{
    size_t bytes = mr_url_write(url, nth, NULL, 0) + 1, url_bytes = strlen(url) + 1;
    struct hidden *h = malloc(sizeof *h + bytes + url_bytes);
    if (!h)
        return NULL;
    *h = (struct hidden){.holders = 1, .url = h->name + bytes};
    mr_url_write(url, nth, h->name, bytes);
    memcpy(h->url, url, url_bytes);
    return h;
}

static void destroy(struct hidden *h)
{
    explicit_bzero(h->url, strlen(h->url));
    free(h);
}

static struct hidden *find(const char *url)
{
    struct hidden *h = hidden;
    while (h && strcmp(h->url, url) != 0)
        h = h->next;
    return h;
}

/* Adds a URL under its first name that is not in use. NULL without memory. */
static struct hidden *add(const char *url)
{
    for (unsigned nth = 1;; nth++) {
        struct hidden *made = create(url, nth), *other = hidden;
        while (made && other && !clash(made, other))
            other = other->next;
        if (!made)
            return NULL;
        if (!other) {
            made->next = hidden;
            return hidden = made;
        }
        destroy(made);
    }
}

int mr_url_acquire(const char *text, const char **name)
{
    struct mr_url cut;
    if (!mr_url_cut(text, strlen(text), &cut) || !mr_url_secret(&cut))
        return 0;
    mr_storage_lock();
    struct hidden *h = find(text);
    if (h)
        h->holders++;
    else
        h = add(text);
    mr_storage_unlock();
    if (!h)
        return mr_error_nomem("name of a URL", strlen(text));
    *name = h->name;
    return 1;
}

void mr_url_release(const char *name)
{
    struct hidden *done = NULL;
    mr_storage_lock();
    for (struct hidden **at = &hidden; *at; at = &(*at)->next) {
        if ((*at)->name != name)
            continue;
        if (--(*at)->holders == 0) {
            done = *at;
            *at = done->next;
        }
        break;
    }
    mr_storage_unlock();
    if (done)
        destroy(done);
}

/* The URL of a name, or of the name that it begins with. */
static char *reveal_locked(const char *name)
{
    size_t n = origin(name);
    const struct hidden *from = NULL;
    for (const struct hidden *h = hidden; h; h = h->next) {
        if (strcmp(h->name, name) == 0)
            return strdup(h->url);
        if (n > 0 && same(h->name, origin(h->name), name, n))
            from = h;
    }
    char *url = NULL;
    if (!from)
        return strdup(name);
    return asprintf(&url, "%.*s%s", (int)origin(from->url), from->url, name + n) < 0 ? NULL : url;
}

char *mr_url_reveal(const char *name)
{
    mr_storage_lock();
    char *url = reveal_locked(name);
    mr_storage_unlock();
    if (!url)
        mr_error_nomem("URL", strlen(name));
    return url;
}

int mr_url_pack(const char *name, char **out, size_t *bytes)
{
    struct mr_url cut;
    if (!mr_url_cut(name, strlen(name), &cut) || !mr_url_secret(&cut))
        return 0;
    char *url = mr_url_reveal(name);
    if (!url)
        return -ENOMEM;
    size_t shown = mr_url_write(name, 1, NULL, 0) + 1, url_bytes = strlen(url) + 1;
    *bytes = MR_MAX(shown, strlen(name) + 1) + url_bytes;
    *out = malloc(*bytes);
    if (*out) {
        bool held =
            strcmp(url, name) != 0 && (!name[cut.tail] || strncmp(name + cut.tail, "?...", 4) == 0);
        if (held)
            shown = strlen(strcpy(*out, name)) + 1; /* keeps the numbers in the name */
        else
            mr_url_write(name, 1, *out, shown);
        memcpy(*out + shown, url, url_bytes);
        *bytes = shown + url_bytes;
    }
    free(url);
    return *out ? 1 : mr_error_nomem("name of a URL", *bytes);
}

/* ---- hashing URLs ---- */

/* Parameters of signed URLs (S3, Google, Azure, CloudFront) that say who may read and until when,
 * but not what. */
static bool signs(const char *text, size_t n)
{
    static const char *const names[] = {"Signature",
                                        "Expires",
                                        "Key-Pair-Id",
                                        "Policy",
                                        "AWSAccessKeyId",
                                        "GoogleAccessId",
                                        "token",
                                        "access_token",
                                        "sig",
                                        "se",
                                        "sp",
                                        "sv",
                                        "sr",
                                        "st",
                                        "spr",
                                        "sip",
                                        "ss",
                                        "srt",
                                        "skoid",
                                        "sktid",
                                        "skt",
                                        "ske",
                                        "sks",
                                        "skv"};
    const char *equals = memchr(text, '=', n);
    size_t length = equals ? (size_t)(equals - text) : n;
    if (length > 6 && (strncasecmp(text, "X-Amz-", 6) == 0 || strncasecmp(text, "X-Goog-", 7) == 0))
        return true;
    for (size_t i = 0; i < MR_COUNT(names); i++)
        if (strlen(names[i]) == length && strncasecmp(names[i], text, length) == 0)
            return true;
    return false;
}

uint64_t mr_url_hash(uint64_t h, const char *text, size_t n)
{
    struct mr_url cut;
    bool url = mr_url_cut(text, n, &cut), first = true;
    const char *query = url && cut.tail == n ? NULL : memchr(text, '?', n);
    size_t path = query ? (size_t)(query - text) : n;
    h = mr_hash(h, text, cut.user);
    h = mr_hash(h, text + cut.host, path - cut.host);
    for (size_t at = path + 1; query && at < n;) {
        const char *end = memchr(text + at, '&', n - at);
        size_t bytes = end ? (size_t)(end - text) - at : n - at;
        if (!signs(text + at, bytes)) {
            h = mr_hash(h, first ? "?" : "&", 1);
            h = mr_hash(h, text + at, bytes);
            first = false;
        }
        at += bytes + 1;
    }
    return h;
}
