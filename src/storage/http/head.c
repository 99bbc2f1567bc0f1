/* Reading the lines of a response's head: status, lengths, ranges, validators. */
#include "storage/http/head.h"

#include <string.h>
#include <strings.h>

struct text {
    const char *at, *end;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static struct text trim(const char *at, const char *end)
{
    while (at < end && is_space(*at))
        at++;
    while (at < end && is_space(end[-1]))
        end--;
    return (struct text){at, end};
}

/* Digits only: no sign, no space, no overflow. Moves t past them. */
static bool take_number(struct text *t, uint64_t *out)
{
    uint64_t value = 0;
    const char *first = t->at;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
        if (!mr_mul(value, 10, &value) || !mr_add(value, (uint64_t)(*t->at - '0'), &value))
            return false;
    *out = value;
    return t->at > first;
}

static bool take_char(struct text *t, char c)
{
    bool found = t->at < t->end && *t->at == c;
    t->at += found;
    return found;
}

static bool take_word(struct text *t, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(t->end - t->at) < n || strncasecmp(t->at, word, n) != 0)
        return false;
    t->at += n;
    return true;
}

static bool set_length(struct mr_http_head *head, struct text t)
{
    uint64_t n;
    if (!take_number(&t, &n) || t.at != t.end)
        return false;
    head->twice |= head->has_length && head->length != n;
    head->has_length = true;
    head->length = n;
    return true;
}

/* "bytes 0-9/10", "bytes 0-9/" and a star, "bytes", a star and "/10". */
static bool set_range(struct mr_http_head *head, struct text t)
{
    struct mr_http_head h = {0};
    if (!take_word(&t, "bytes") || t.at == t.end || !is_space(*t.at))
        return false;
    t = trim(t.at, t.end);
    if (!take_char(&t, '*')) {
        if (!take_number(&t, &h.from) || !take_char(&t, '-') || !take_number(&t, &h.last) ||
            h.last < h.from || h.last == UINT64_MAX)
            return false;
        h.has_part = true;
    }
    if (!take_char(&t, '/'))
        return false;
    if (!take_char(&t, '*')) {
        if (!take_number(&t, &h.total) || (h.has_part && h.last >= h.total))
            return false;
        h.has_total = true;
    }
    if (t.at != t.end || (!h.has_part && !h.has_total))
        return false;
    head->twice |=
        head->has_range && (head->from != h.from || head->last != h.last || head->total != h.total);
    head->has_range = true;
    head->has_part = h.has_part;
    head->has_total = h.has_total;
    head->from = h.from;
    head->last = h.last;
    head->total = h.total;
    return true;
}

static bool set_date(struct mr_http_head *head, struct text t)
{
    head->has_date = mr_http_date(t.at, (size_t)(t.end - t.at), &head->date_s);
    return true;
}

/* A number that overflows is valid: a wait that is too long. */
static bool set_retry(struct mr_http_head *head, struct text t)
{
    struct text digits = t;
    bool fits = take_number(&digits, &head->retry_after_s);
    head->has_retry = digits.at > t.at && (!fits || digits.at == t.end);
    if (!fits)
        head->retry_after_s = UINT64_MAX;
    head->has_retry_at = mr_http_date(t.at, (size_t)(t.end - t.at), &head->retry_at_s);
    return true;
}

uint64_t mr_http_retry_after(const struct mr_http_head *head, int64_t now_s)
{
    int64_t from = head->has_date ? head->date_s : now_s;
    if (head->has_retry)
        return head->retry_after_s;
    return head->has_retry_at && head->retry_at_s > from ? (uint64_t)(head->retry_at_s - from) : 0;
}

/* Copies what fits whole and has no control characters; else leaves "". */
static bool copy(char *to, size_t capacity, struct text t)
{
    size_t n = (size_t)(t.end - t.at);
    to[0] = 0;
    if (n >= capacity)
        return true;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)t.at[i] < 0x20 || t.at[i] == 0x7f)
            return true;
    memcpy(to, t.at, n);
    to[n] = 0;
    return true;
}

static bool set_etag(struct mr_http_head *head, struct text t)
{
    return copy(head->etag, sizeof head->etag, t);
}

static bool set_modified(struct mr_http_head *head, struct text t)
{
    return copy(head->modified, sizeof head->modified, t);
}

static bool set_region(struct mr_http_head *head, struct text t)
{
    return copy(head->region, sizeof head->region, t);
}

static const struct {
    const char *name;
    bool (*set)(struct mr_http_head *head, struct text value);
} headers[] = {
    {"Content-Length", set_length},      {"Content-Range", set_range},    {"ETag", set_etag},
    {"Retry-After", set_retry},          {"Last-Modified", set_modified}, {"Date", set_date},
    {"x-amz-bucket-region", set_region},
};

static bool set_status(struct mr_http_head *head, struct text t)
{
    uint64_t status;
    *head = (struct mr_http_head){0};
    while (t.at < t.end && !is_space(*t.at))
        t.at++;
    t = trim(t.at, t.end);
    if (!take_number(&t, &status) || status < 100 || status > 599)
        return false;
    head->status = (int)status;
    return true;
}

void mr_http_head_line(struct mr_http_head *head, const char *line, size_t bytes)
{
    struct text t = trim(line, line + bytes);
    if (take_word(&t, "HTTP/")) {
        if (!set_status(head, t))
            head->bad = "status line";
        return;
    }
    const char *colon = memchr(t.at, ':', (size_t)(t.end - t.at));
    head->over |= t.at == t.end;
    if (!colon)
        return;
    struct text name = trim(t.at, colon), value = trim(colon + 1, t.end);
    for (size_t i = 0; i < MR_COUNT(headers); i++)
        if (strlen(headers[i].name) == (size_t)(name.end - name.at) &&
            take_word(&name, headers[i].name)) {
            if (!headers[i].set(head, value))
                head->bad = headers[i].name;
            return;
        }
}

bool mr_http_strong(const char *etag)
{
    return etag[0] == '"';
}
