/*
 * Finds and hides credentials in URLs and command lines. Depends only on the C library: it is also
 * built into the recorder that `millrace profile` injects into other programs.
 */
#ifndef MR_SECRET_H
#define MR_SECRET_H

#include <stdbool.h>
#include <stddef.h>

/* Offsets of a URL's parts: scheme, "user:password@", host and path, "?query#fragment". */
struct mr_url {
    size_t user; /* length of the scheme with its "://" */
    size_t host; /* equal to user if there is no userinfo */
    /* n if there is no query or fragment; always n for s3://, whose keys may contain '?' */
    size_t tail;
    size_t n; /* total length */
};

/* Splits a URL of n bytes. Returns false if its scheme is not http, https or s3. */
bool mr_url_cut(const char *text, size_t n, struct mr_url *out);
/* Returns whether it may contain credentials: any userinfo, query or fragment counts. */
bool mr_url_secret(const struct mr_url *url);

/* Writes a URL in the form that may be shown and stored: "***@host?...". nth: 2 and up number the
 * marks ("***2", "?...2"). Returns the full length, which may be cap or more: then the output is
 * cut. */
size_t mr_url_write(const char *url, unsigned nth, char *buf, size_t cap);
/* The same with nth 1; text that is not a URL is unchanged. Returns buf. */
const char *mr_url_show(const char *url, char *buf, size_t cap);

/* As mr_text_hide(), for n bytes in which a 0 ends an argument and is kept. Returns the number of
 * bytes written, less than cap. */
size_t mr_secret_mask(const char *text, size_t n, char *buf, size_t cap);

#endif
