/* Reads files of numbers, indices or weights, as text or .npy. */
#include "codec/npy.h"
#include "sampler/sampler.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct bytes {
    char *p; /* a NUL follows the last byte */
    size_t n;
};

static int read_open_file(int fd, const char *path, struct bytes *out)
{
    struct stat st;
    if (fstat(fd, &st))
        return mr_error_errno(errno, "%s", path);
    size_t cap = S_ISREG(st.st_mode) && st.st_size > 0 ? (size_t)st.st_size + 1 : 1 << 16;
    char *p = malloc(cap + 1);
    if (!p)
        return mr_error_nomem(path, cap);
    size_t n = 0;
    for (;;) {
        ssize_t got = read(fd, p + n, cap - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            free(p);
            return mr_error_errno(errno, "%s", path);
        }
        if (got == 0)
            break;
        n += (size_t)got;
        if (n < cap)
            continue;
        char *bigger = realloc(p, cap * 2 + 1);
        if (!bigger) {
            free(p);
            return mr_error_nomem(path, cap * 2);
        }
        p = bigger;
        cap *= 2;
    }
    p[n] = '\0';
    *out = (struct bytes){p, n};
    return 0;
}

static int read_file(const char *path, struct bytes *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return mr_error_errno(errno, "%s", path);
    int rc = read_open_file(fd, path, out);
    close(fd);
    return rc;
}

/* The numbers read so far; 8 bytes each, uint64_t or double. */
struct numbers {
    const char *path;
    bool whole;
    union {
        uint64_t *u;
        double *d;
    };
    uint64_t n;
};

/* Adds one number of a line: [text, end). */
static int add_text(struct numbers *to, char *text, char *end, uint64_t line)
{
    char *stop = text, keep = *end;
    *end = '\0';
    errno = 0;
    if (to->whole && *text != '-')
        to->u[to->n] = strtoull(text, &stop, 10);
    else if (!to->whole)
        to->d[to->n] = mr_text_to_f64(text, &stop);
    bool good = stop == end && stop != text && !(to->whole && errno == ERANGE);
    if (!good)
        mr_error_set(MR_EFORMAT, "%s:%llu: '%.40s': expected %s, one a line", to->path,
                     (unsigned long long)line, text,
                     to->whole ? "an index (0, 1, 2, ...)" : "a number");
    *end = keep;
    to->n += good;
    return good ? 0 : MR_EFORMAT;
}

static int read_text(struct numbers *to, struct bytes file)
{
    uint64_t lines = 1;
    for (size_t i = 0; i < file.n; i++)
        lines += file.p[i] == '\n';
    uint64_t room = lines * 8; /* lines <= file.n + 1: far from overflow */
    to->u = malloc(room);
    if (!to->u)
        return mr_error_nomem(to->path, room);
    int rc = 0;
    char *p = file.p, *all_end = file.p + file.n;
    for (uint64_t line = 1; p < all_end && !rc; line++) {
        char *line_end = memchr(p, '\n', (size_t)(all_end - p));
        line_end = line_end ? line_end : all_end;
        char *comment = memchr(p, '#', (size_t)(line_end - p));
        char *end = comment ? comment : line_end;
        while (p < end && strchr(" \t\r", *p) && *p)
            p++;
        while (end > p && strchr(" \t\r", end[-1]) && end[-1])
            end--;
        if (p < end)
            rc = add_text(to, p, end, line);
        p = line_end + 1;
    }
    return rc;
}

/* A one-dimensional .npy file. [out] head, and the start of its numbers. */
static int npy_open(const char *path, struct bytes file, struct mr_npy_head *out, uint64_t *out_at)
{
    uint64_t at, bytes, want, dict_at;
    int rc = mr_npy_preamble(path, (const uint8_t *)file.p, file.n, &dict_at, &bytes);
    if (rc < 0)
        return rc;
    at = dict_at + bytes;
    if (at > file.n)
        return mr_error_set(MR_ETRUNCATED, "%s: npy header of %llu bytes in a file of %zu", path,
                            (unsigned long long)bytes, file.n);
    rc = mr_npy_parse(path, file.p + dict_at, bytes, out);
    if (rc < 0)
        return rc;
    if (out->rank != 1 || !strchr("biuf", out->kind))
        return mr_error_set(MR_EFORMAT, "%s: npy header '%.*s': expected %s", path,
                            (int)MR_MIN(bytes, 200), file.p + dict_at,
                            "one dimension of integers or floats");
    if (!mr_mul(out->dim[0], out->item_bytes, &want) || want > file.n - at)
        return mr_error_set(MR_ETRUNCATED,
                            "%s: npy header says %llu numbers of %u bytes; %llu bytes follow it",
                            path, (unsigned long long)out->dim[0], (unsigned)out->item_bytes,
                            (unsigned long long)(file.n - at));
    *out_at = at;
    return 0;
}

static double half_value(uint64_t bits)
{
    int exponent = (int)(bits >> 10 & 31), mantissa = (int)(bits & 1023);
    double v = exponent == 31  ? (mantissa ? (double)NAN : (double)INFINITY)
               : exponent == 0 ? ldexp(mantissa, -24)
                               : ldexp(mantissa + 1024, exponent - 25);
    return bits >> 15 ? -v : v;
}

static double float_value(uint64_t bits, uint64_t item_bytes)
{
    float f;
    double d;
    uint32_t low = (uint32_t)bits;
    if (item_bytes == 2)
        return half_value(bits);
    memcpy(&f, &low, sizeof f);
    memcpy(&d, &bits, sizeof d);
    return item_bytes == 4 ? (double)f : d;
}

static int add_item(struct numbers *to, const struct mr_npy_head *npy, uint64_t bits)
{
    unsigned unused = 64 - 8 * (unsigned)MR_MAX(npy->item_bytes, 1);
    int64_t as_signed = (int64_t)(bits << unused) >> unused;
    bool negative = npy->kind == 'i' && as_signed < 0;
    double value = npy->kind == 'f' ? float_value(bits, npy->item_bytes)
                   : negative       ? (double)as_signed
                                    : (double)bits;
    if (!to->whole) {
        to->d[to->n++] = value;
        return 0;
    }
    if (!(value >= 0 && value < 0x1p64) || (npy->kind == 'f' && value != floor(value)))
        return mr_error_set(MR_EFORMAT, "%s: number %llu is %g: expected an index (0, 1, 2, ...)",
                            to->path, (unsigned long long)(to->n + 1), value);
    to->u[to->n++] = npy->kind == 'f' ? (uint64_t)value : bits;
    return 0;
}

static int read_npy(struct numbers *to, struct bytes file)
{
    struct mr_npy_head npy = {0};
    uint64_t at = 0;
    int rc = npy_open(to->path, file, &npy, &at);
    if (rc)
        return rc;
    uint64_t n = npy.dim[0], width = npy.item_bytes;
    bool little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    bool big = little == (npy.swap != 0);
    to->u = malloc(n * 8 + 8); /* n * width fits the file, so n * 8 cannot overflow */
    if (!to->u)
        return mr_error_nomem(to->path, n * 8);
    const unsigned char *p = (const unsigned char *)file.p + at;
    for (uint64_t i = 0; i < n && !rc; i++, p += width) {
        uint64_t bits = 0;
        for (unsigned k = 0; k < width; k++)
            bits |= (uint64_t)p[big ? width - 1 - k : k] << 8 * k;
        rc = add_item(to, &npy, bits);
    }
    return rc;
}

int mr_numbers_read(const char *path, bool whole, void **out, uint64_t *out_n)
{
    struct bytes file;
    int rc = read_file(path, &file);
    if (rc)
        return rc;
    struct numbers numbers = {.path = path, .whole = whole};
    if (file.n >= 6 && memcmp(file.p, "\x93NUMPY", 6) == 0)
        rc = read_npy(&numbers, file);
    else
        rc = read_text(&numbers, file);
    free(file.p);
    if (rc) {
        free(numbers.u);
        return rc;
    }
    *out = numbers.u;
    *out_n = numbers.n;
    return 0;
}
