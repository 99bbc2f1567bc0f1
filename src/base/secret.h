/*
 * Credentials in URLs and command lines: where they are, and texts without them. Depends on the C library alone: the recorder
 * that `millrace profile` puts into other programs is built with it, too.
 */
#ifndef MR_SECRET_H
#define MR_SECRET_H

#include <stdbool.h>
#include <stddef.h>

/* Where the parts of a URL begin: scheme, "user:password@", host and path, "?query#fragment". */
struct mr_url {
    size_t user; /* bytes of the scheme with its "://" */
    size_t host; /* user when there is no userinfo */
    size_t
        tail; /* n when there is neither query nor fragment; of s3://, whose keys may hold a '?', always */
    size_t n; /* all bytes */
};

/* Cuts a URL of n bytes; false: its scheme is none of http, https and s3. */
bool mr_url_cut(const char *text, size_t n, struct mr_url *out);
/* Does it hold any credentials? Every userinfo, query and fragment is taken for one. */
bool mr_url_secret(const struct mr_url *url);

/* A URL as it may be shown and stored: "***@host?...". nth: 2 and up number the marks ("***2", "?...2").
 * Returns the bytes that it has, which may be cap and more: then it is cut. */
size_t mr_url_write(const char *url, unsigned nth, char *buf, size_t cap);
/* The same with nth 1; what is no URL stays as it is. Returns buf. */
const char *mr_url_show(const char *url, char *buf, size_t cap);

/* As mr_text_hide(), of n bytes in which a 0 ends an argument and is kept. Returns the bytes written, below cap. */
size_t mr_secret_mask(const char *text, size_t n, char *buf, size_t cap);

#endif
