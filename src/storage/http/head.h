/*
 * What the head of an HTTP response says, read from its lines as they come. Bytes of a stranger: nothing here trusts them.
 */
#ifndef MR_STORAGE_HTTP_HEAD_H
#define MR_STORAGE_HTTP_HEAD_H

#include "base/base.h"

struct mr_http_head {
    int status;      /* 100..599; 0: no status line yet */
    bool over;       /* the empty line has come */
    bool has_length; /* Content-Length */
    bool
        has_range; /* Content-Range: bytes from-last/total; or bytes * /total, then has_part is false */
    bool has_part;   /* from and last are there */
    bool has_total;  /* the total is a number, not '*' */
    bool has_retry;  /* Retry-After in seconds */
    bool twice;      /* two different Content-Lengths or Content-Ranges */
    const char *bad; /* the name of a header that made no sense; NULL: none */
    uint64_t length, from, last, total;
    uint64_t retry_after_s;
    char etag
        [200]; /* as it came, quotes and W/ included; "": none, or longer than any that is in use */
    char modified[64]; /* Last-Modified, as it came */
    char region[40];   /* x-amz-bucket-region */

    /* Retry-After as a date, and the date of the answer, in seconds since 1970 */
    bool has_retry_at, has_date;
    int64_t retry_at_s, date_s;
};

/* One line of a head, with or without its end of line. A status line begins a new head and forgets the last. */
void mr_http_head_line(struct mr_http_head *head, const char *line, size_t bytes);

/* Seconds that the server asks to wait before the next try, 0: it does not ask. now_s: since 1970,
 * for an answer without a date of its own. */
uint64_t mr_http_retry_after(const struct mr_http_head *head, int64_t now_s);

/* Reads a date in any of HTTP's three forms. [out] seconds since 1970. false: it is none. */
bool mr_http_date(const char *text, size_t bytes, int64_t *out);

/* Does the tag stand for the same bytes, not only for the same meaning (W/)? */
bool mr_http_strong(const char *etag);

#endif
