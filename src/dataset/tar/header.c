/* The fields of a tar header block, and pax records. */
#include "dataset/tar/tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define AT_NAME   0
#define AT_SIZE   124
#define AT_SUM    148
#define AT_TYPE   156
#define AT_MAGIC  257
#define AT_PREFIX 345
#define SUM_BYTES 8

/* Parses octal digits between blanks, or base 256 if the first bit is set. Returns false if it is
 * neither, negative or too large. */
static bool parse_number(const unsigned char *p, int n, uint64_t *out)
{
    uint64_t x = 0;
    int i = 0;
    if (p[0] & 0x80) {
        if (p[0] & 0x40) /* negative */
            return false;
        x = p[0] & 0x3f;
        for (i = 1; i < n; i++) {
            if (x >> 56)
                return false;
            x = x << 8 | p[i];
        }
        *out = x;
        return true;
    }
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
        x = x << 3 | (uint64_t)(p[i] - '0');
    for (; i < n; i++)
        if (p[i] != ' ' && p[i] != 0)
            return false;
    *out = x;
    return true;
}

/* POSIX sums unsigned bytes; some old programs summed signed ones. */
static bool sum_fits(const unsigned char *block, uint64_t want, uint64_t *found)
{
    uint64_t plain = 0;
    int64_t with_sign = 0;
    for (int i = 0; i < (int)MR_TAR_BLOCK; i++) {
        unsigned char c = i >= AT_SUM && i < AT_SUM + SUM_BYTES ? ' ' : block[i];
        plain += c;
        with_sign += (signed char)c;
    }
    *found = plain;
    return plain == want || with_sign == (int64_t)want;
}

static int no_header(const char *archive, uint64_t at, const unsigned char *b, uint64_t want,
                     uint64_t found)
{
    if (at == 0 && memcmp(b + AT_MAGIC, "ustar", 5) != 0)
        return mr_error_set(MR_EFORMAT,
                            "%s: not a tar archive: its first block is not a tar "
                            "header",
                            archive);
    return mr_error_set(
        MR_EFORMAT,
        "%s: damaged at byte %llu: expected a tar header, whose checksum would be %llu; found %llu",
        archive, (unsigned long long)at, (unsigned long long)found, (unsigned long long)want);
}

int mr_tar_header_parse(const char *archive, uint64_t at, const unsigned char b[MR_TAR_BLOCK],
                        struct mr_tar_header *out)
{
    uint64_t want = 0, found = 0;
    bool number = parse_number(b + AT_SUM, SUM_BYTES, &want);
    if (!sum_fits(b, want, &found) || !number)
        return no_header(archive, at, b, want, found);
    if (!parse_number(b + AT_SIZE, 12, &out->bytes) || out->bytes > INT64_MAX)
        return mr_error_set(MR_EFORMAT,
                            "%s: header at byte %llu: a size that is not a number "
                            "below 2^63",
                            archive, (unsigned long long)at);
    out->type = (char)b[AT_TYPE];
    /* GNU's magic is "ustar  ": its prefix field has other contents. */
    bool posix = memcmp(b + AT_MAGIC, "ustar", 6) == 0 && b[AT_PREFIX];
    snprintf(out->name, sizeof out->name, "%.*s%s%.*s", posix ? 155 : 0,
             (const char *)b + AT_PREFIX, posix ? "/" : "", 100, (const char *)b + AT_NAME);
    return 0;
}

static int bad_pax(const char *archive, uint64_t at, const char *what)
{
    return mr_error_set(MR_EFORMAT, "%s: pax header at byte %llu: %s", archive,
                        (unsigned long long)at, what);
}

static int take_record(const char *archive, uint64_t at, const char *key, size_t n_key,
                       const char *value, size_t n_value, struct mr_tar_pax *out)
{
    if (n_key >= 10 && memcmp(key, "GNU.sparse", 10) == 0)
        return mr_error_set(
            MR_EUNSUPPORTED,
            "%s: header at byte %llu: a sparse file: pack it again without tar's --sparse", archive,
            (unsigned long long)at);
    if (n_key == 4 && memcmp(key, "path", 4) == 0) {
        if (memchr(value, 0, n_value))
            return bad_pax(archive, at, "a path with a byte 0 in it");
        free(out->path);
        out->path = strndup(value, n_value);
        return out->path ? 0 : mr_error_nomem(archive, n_value + 1);
    }
    if (n_key == 4 && memcmp(key, "size", 4) == 0) {
        uint64_t x = 0;
        for (size_t i = 0; i < n_value; i++)
            if (value[i] < '0' || value[i] > '9' || !mr_mul(x, 10, &x) ||
                !mr_add(x, (uint64_t)(value[i] - '0'), &x))
                return bad_pax(archive, at, "a size that is not a number below 2^64");
        out->bytes = x;
        out->has_bytes = n_value > 0;
    }
    return 0;
}

/* A record is "LENGTH KEY=VALUE\n"; LENGTH counts itself and the newline. */
int mr_tar_pax_parse(const char *archive, uint64_t at, const char *text, uint64_t n,
                     struct mr_tar_pax *out)
{
    for (uint64_t from = 0; from < n && text[from];) {
        uint64_t length = 0, p = from;
        while (p < n && text[p] >= '0' && text[p] <= '9' && length <= n)
            length = length * 10 + (uint64_t)(text[p++] - '0');
        if (p >= n || text[p] != ' ' || length > n - from || length < p - from + 4 ||
            text[from + length - 1] != '\n')
            return bad_pax(archive, at, "a record whose length does not fit");
        const char *key = text + p + 1, *end = text + from + length - 1;
        const char *equals = memchr(key, '=', (size_t)(end - key));
        if (!equals)
            return bad_pax(archive, at, "a record without '='");
        int rc = take_record(archive, at, key, (size_t)(equals - key), equals + 1,
                             (size_t)(end - equals - 1), out);
        if (rc < 0)
            return rc;
        from += length;
    }
    return 0;
}
