/* Files of numbers: indices and weights, as text or .npy. */
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

/* One number of a line: [text, end). */
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
        mr_error_set(MR_EFORMAT, "%s:%llu: '%.40s': want %s, one a line", to->path, (unsigned long long)line, text,
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

/* A one-dimensional .npy file. Format: numpy.lib.format, versions 1 to 3. */
struct npy {
    char byte_order, kind; /* '<' '>' '|' '='; 'b' 'i' 'u' 'f' */
    unsigned item_bytes;
    uint64_t n;
    const unsigned char *data;
};

static const char *skip(const char *p, const char *spaces_and)
{
    return p + strspn(p, spaces_and);
}

/* The value of a key in the header's dict, or NULL. */
static const char *npy_value(const char *header, const char *key)
{
    const char *p = strstr(header, key);
    if (!p)
        return NULL;
    p = skip(p + strlen(key), " ");
    return *p == ':' ? skip(p + 1, " ") : NULL;
}

static int npy_bad(const char *path, const char *header)
{
    return mr_error_set(MR_EFORMAT, "%s: npy header '%.200s': want one dimension of integers or floats", path, header);
}

static int npy_dict(const char *path, const char *header, struct npy *out)
{
    const char *descr = npy_value(header, "'descr'"), *shape = npy_value(header, "'shape'");
    if (!descr || !shape || *descr != '\'' || *shape != '(' || strlen(descr) < 5)
        return npy_bad(path, header);
    out->byte_order = descr[1];
    out->kind = descr[2];
    char *end;
    unsigned long item_bytes = strtoul(descr + 3, &end, 10);
    bool fits = strchr("<>|=", out->byte_order) && *end == '\'';
    if (out->kind == 'f')
        fits = fits && (item_bytes == 2 || item_bytes == 4 || item_bytes == 8);
    else if (out->kind == 'i' || out->kind == 'u')
        fits = fits && (item_bytes == 1 || item_bytes == 2 || item_bytes == 4 || item_bytes == 8);
    else
        fits = fits && out->kind == 'b' && item_bytes == 1;
    out->item_bytes = (unsigned)item_bytes;
    const char *digits = skip(shape + 1, " ");
    errno = 0;
    out->n = strtoull(digits, &end, 10);
    const char *close = skip(end, " ");
    if (!fits || *digits < '0' || *digits > '9' || errno || *close != ',' || *skip(close + 1, " ") != ')')
        return npy_bad(path, header);
    return 0;
}

static int npy_open(const char *path, struct bytes file, struct npy *out)
{
    const unsigned char *b = (const unsigned char *)file.p;
    size_t start = file.n >= 12 && b[6] >= 2 ? 12 : 10;
    if (file.n < start)
        return mr_error_set(MR_ETRUNCATED, "%s: %zu bytes: an npy header has at least %zu", path, file.n, start);
    uint64_t header_bytes = b[8] | (uint64_t)b[9] << 8;
    if (start == 12)
        header_bytes |= (uint64_t)b[10] << 16 | (uint64_t)b[11] << 24;
    if (b[6] < 1 || b[6] > 3)
        return mr_error_set(MR_EUNSUPPORTED, "%s: npy version %d: want 1, 2 or 3", path, b[6]);
    if (header_bytes > file.n - start || header_bytes > 65536)
        return mr_error_set(MR_ETRUNCATED, "%s: npy header of %llu bytes in a file of %zu", path,
                            (unsigned long long)header_bytes, file.n);
    char *header = strndup(file.p + start, header_bytes);
    if (!header)
        return mr_error_nomem(path, header_bytes);
    int rc = npy_dict(path, header, out);
    free(header);
    if (rc)
        return rc;
    uint64_t want, have = file.n - start - header_bytes;
    if (!mr_mul(out->n, out->item_bytes, &want) || want > have)
        return mr_error_set(MR_ETRUNCATED, "%s: npy header says %llu numbers of %u bytes; %llu bytes follow it", path,
                            (unsigned long long)out->n, out->item_bytes, (unsigned long long)have);
    out->data = b + start + header_bytes;
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

static double float_value(uint64_t bits, unsigned item_bytes)
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

static int add_item(struct numbers *to, const struct npy *npy, uint64_t bits)
{
    unsigned unused = 64 - 8 * npy->item_bytes;
    int64_t as_signed = (int64_t)(bits << unused) >> unused;
    bool negative = npy->kind == 'i' && as_signed < 0;
    double value = npy->kind == 'f' ? float_value(bits, npy->item_bytes) : negative ? (double)as_signed : (double)bits;
    if (!to->whole) {
        to->d[to->n++] = value;
        return 0;
    }
    if (!(value >= 0 && value < 0x1p64) || (npy->kind == 'f' && value != floor(value)))
        return mr_error_set(MR_EFORMAT, "%s: number %llu is %g: want an index (0, 1, 2, ...)", to->path,
                            (unsigned long long)(to->n + 1), value);
    to->u[to->n++] = npy->kind == 'f' ? (uint64_t)value : bits;
    return 0;
}

static int read_npy(struct numbers *to, struct bytes file)
{
    struct npy npy = {0};
    int rc = npy_open(to->path, file, &npy);
    if (rc)
        return rc;
    to->u = malloc(npy.n * 8 + 8); /* n * item_bytes fits the file, so n * 8 cannot overflow */
    if (!to->u)
        return mr_error_nomem(to->path, npy.n * 8);
    const unsigned char *p = npy.data;
    for (uint64_t i = 0; i < npy.n && !rc; i++, p += npy.item_bytes) {
        uint64_t bits = 0;
        for (unsigned k = 0; k < npy.item_bytes; k++)
            bits |= (uint64_t)p[npy.byte_order == '>' ? npy.item_bytes - 1 - k : k] << 8 * k;
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
