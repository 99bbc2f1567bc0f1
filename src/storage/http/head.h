/* Parses the header lines of an HTTP response as they arrive. The input is not trusted. */
#ifndef MR_STORAGE_HTTP_HEAD_H
#define MR_STORAGE_HTTP_HEAD_H

#include "base/base.h"

struct mr_http_head {
    int status;      /* 100..599; 0: no status line yet */
    bool over;       /* the empty line was read */
    bool has_length; /* Content-Length */
    /* Content-Range: bytes from-last/total; or bytes * /total, then has_part is false */
    bool has_range;
    bool has_part;   /* from and last are set */
    bool has_total;  /* the total is a number, not '*' */
    bool has_retry;  /* Retry-After in seconds */
    bool twice;      /* two different Content-Lengths or Content-Ranges */
    const char *bad; /* the name of an invalid header; NULL: none */
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

/* Parses one line of a head, with or without its end of line. A status line begins a new head and
 * clears the previous one. */
void mr_http_head_line(struct mr_http_head *head, const char *line, size_t bytes);

/* Seconds to wait before the next try, as requested by the server; 0: not requested. now_s: since
 * 1970, for a response without a date. */
uint64_t mr_http_retry_after(const struct mr_http_head *head, int64_t now_s);

/* Reads a date in any of HTTP's three forms. [out] seconds since 1970. false: it is none. */
bool mr_http_date(const char *text, size_t bytes, int64_t *out);

/* Is this a strong ETag (same bytes), not a weak one (W/)? */
bool mr_http_strong(const char *etag);

#endif
