/*
 * Parses the header of an npy file as Python writes it, {'descr': '<f4', 'fortran_order': False,
 * 'shape': (3, 4), }, and accepts no other Python.
 */
#include "codec/npy.h"

#include <stdio.h>
#include <string.h>

int mr_npy_preamble(const char *name, const uint8_t *b, uint64_t have, uint64_t *out_at,
                    uint64_t *out_bytes)
{
    if (have < 10)
        return mr_error_set(MR_ETRUNCATED,
                            "%s: truncated: an npy file has at least 10 bytes, file has %llu", name,
                            (unsigned long long)have);
    if (memcmp(b, "\x93NUMPY", 6) != 0)
        return mr_error_set(MR_EFORMAT,
                            "%s: not an npy file: expected it to begin with 93 4e 55 4d 50 59, "
                            "found %02x %02x %02x "
                            "%02x %02x %02x",
                            name, b[0], b[1], b[2], b[3], b[4], b[5]);
    if (b[6] < 1 || b[6] > 3 || b[7] != 0)
        return mr_error_set(MR_EUNSUPPORTED, "%s: npy version %d.%d: expected 1.0, 2.0 or 3.0",
                            name, b[6], b[7]);
    uint64_t bytes = b[8] | (uint64_t)b[9] << 8;
    if (b[6] > 1) {
        if (have < 12)
            return mr_error_set(MR_ETRUNCATED,
                                "%s: truncated: expected 12 bytes before the header, file has %llu",
                                name, (unsigned long long)have);
        bytes |= (uint64_t)b[10] << 16 | (uint64_t)b[11] << 24;
    }
    if (bytes > MR_NPY_HEADER_BYTES)
        return mr_error_set(MR_ELIMIT, "%s: a header of %llu bytes: expected at most %u", name,
                            (unsigned long long)bytes, MR_NPY_HEADER_BYTES);
    *out_at = b[6] > 1 ? 12 : 10;
    *out_bytes = bytes;
    return 0;
}

struct parser {
    const char *name;            /* the file's name, for errors */
    const char *begin, *p, *end; /* the text; p: current position */
};

static int unexpected(const struct parser *s, const char *want)
{
    char found[24] = "its end";
    if (s->p < s->end)
        snprintf(found, sizeof found, *s->p >= ' ' && *s->p < 127 ? "'%c'" : "byte %02x",
                 (unsigned char)*s->p);
    return mr_error_set(MR_EFORMAT, "%s: header, byte %td: expected %s, found %s", s->name,
                        s->p - s->begin, want, found);
}

static void skip_space(struct parser *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r'))
        s->p++;
}

static bool accept(struct parser *s, char c)
{
    skip_space(s);
    if (s->p == s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

static bool accept_word(struct parser *s, const char *word)
{
    size_t n = strlen(word);
    skip_space(s);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
        return false;
    s->p += n;
    return true;
}

/* Parses a quoted string without escapes into out. */
static int parse_string(struct parser *s, const char *want, char *out, size_t cap)
{
    skip_space(s);
    if (s->p == s->end || (*s->p != '\'' && *s->p != '"'))
        return unexpected(s, want);
    char quote = *s->p;
    const char *from = ++s->p;
    while (s->p < s->end && *s->p != quote && *s->p != '\\' && *s->p >= ' ')
        s->p++;
    if (s->p == s->end || *s->p != quote)
        return unexpected(s, "a closing quote");
    size_t n = (size_t)(s->p++ - from);
    if (n >= cap)
        return mr_error_set(MR_EFORMAT, "%s: header: %s of %zu characters: expected fewer than %zu",
                            s->name, want, n, cap);
    memcpy(out, from, n);
    out[n] = 0;
    return 0;
}

/* Parses decimal digits at *text, at least one. Returns false if there are none or the number is
 * too large. */
static bool parse_digits(const char **text, const char *end, uint64_t *out)
{
    const char *p = *text;
    uint64_t x = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if (!mr_mul(x, 10, &x) || !mr_add(x, (uint64_t)(*p - '0'), &x))
            return false;
    if (p == *text)
        return false;
    *text = p;
    *out = x;
    return true;
}

/* (), (3,), (3, 4), or Python 2's (3L,). */
static int parse_shape(struct parser *s, struct mr_npy_head *out)
{
    bool comma = true;
    if (!accept(s, '('))
        return unexpected(s, "shape's '('");
    out->rank = 0;
    while (!accept(s, ')')) {
        uint64_t dim;
        skip_space(s);
        if (!comma)
            return unexpected(s, "',' or ')'");
        const char *at = s->p;
        if (!parse_digits(&s->p, s->end, &dim)) {
            s->p = at;
            return unexpected(s, "a dimension below 2^64");
        }
        if (out->rank == MR_MAX_RANK + 1)
            return mr_error_set(MR_EUNSUPPORTED, "%s: shape of more than %d dimensions", s->name,
                                MR_MAX_RANK + 1);
        out->dim[out->rank++] = dim;
        if (s->p < s->end && *s->p == 'L')
            s->p++;
        comma = accept(s, ',');
    }
    if (out->rank == 1 && !comma)
        return mr_error_set(MR_EFORMAT, "%s: header: shape is a number: expected a tuple", s->name);
    return 0;
}

static int refuse(const struct parser *s, const char *descr, const char *why)
{
    return mr_error_set(MR_EUNSUPPORTED, "%s: dtype '%s': %s: refused", s->name, descr, why);
}

/* Number types: NumPy's letter, size, our dtype. */
static const struct {
    char kind;
    uint8_t bytes;
    enum mr_dtype dtype;
} numbers[] = {
    {'b', 1, MR_BOOL}, {'i', 1, MR_I8},    {'i', 2, MR_I16}, {'i', 4, MR_I32},
    {'i', 8, MR_I64},  {'u', 1, MR_U8},    {'u', 2, MR_U16}, {'u', 4, MR_U32},
    {'u', 8, MR_U64},  {'f', 2, MR_F16},   {'f', 4, MR_F32}, {'f', 8, MR_F64},
    {'c', 8, MR_C64},  {'c', 16, MR_C128}, {'m', 8, MR_I64}, {'M', 8, MR_I64},
};

static int number_type(const struct parser *s, const char *descr, char kind, uint64_t size,
                       struct mr_npy_head *out)
{
    for (size_t i = 0; i < MR_COUNT(numbers); i++)
        if (numbers[i].kind == kind && numbers[i].bytes == size) {
            out->dtype = numbers[i].dtype;
            out->item_bytes = size;
            out->swap = kind == 'c' ? (uint32_t)size / 2 : (uint32_t)size;
            return 0;
        }
    if ((kind == 'f' || kind == 'c') && size > 8)
        return refuse(s, descr, "long double differs from machine to machine");
    return refuse(s, descr, "unknown type");
}

/* S<n>, U<n> and V<n>: bytes or code points, with a dimension of their own. */
static int string_type(const struct parser *s, const char *descr, char kind, uint64_t size,
                       struct mr_npy_head *out)
{
    if (size == 0 || size > INT32_MAX)
        return refuse(s, descr, "elements of no bytes, or of more than 2^31");
    out->dtype = kind == 'U' ? MR_U32 : MR_U8;
    out->length = size;
    out->item_bytes = kind == 'U' ? size * 4 : size;
    out->swap = kind == 'U' ? 4 : 1;
    return 0;
}

/* "<f4": order, kind, size; times have a unit appended: "<M8[ns]". */
static int parse_descr(const struct parser *s, const char *descr, struct mr_npy_head *out)
{
    const char *p = descr, *end = descr + strlen(descr);
    bool little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    bool other = *p == (little ? '>' : '<');
    uint64_t size;
    if (*p && strchr("<>|=", *p))
        p++;
    char kind = *p ? *p++ : 0;
    if (kind == 'O')
        return refuse(s, descr, "holds Python objects (pickles)");
    if (!kind || !parse_digits(&p, end, &size))
        return refuse(s, descr, "unknown type");
    bool unit =
        (kind == 'm' || kind == 'M') && *p == '[' && end[-1] == ']' && strchr(p, ']') == end - 1;
    if (*p && !unit)
        return refuse(s, descr, "unknown type");
    out->kind = kind;
    bool string = kind == 'S' || kind == 'a' || kind == 'U' || kind == 'V';
    int rc =
        string ? string_type(s, descr, kind, size, out) : number_type(s, descr, kind, size, out);
    if (!other || out->swap < 2)
        out->swap = 0;
    return rc;
}

static int parse_type(struct parser *s, struct mr_npy_head *out)
{
    char descr[64] = "";
    skip_space(s);
    if (s->p < s->end && *s->p == '[')
        return mr_error_set(
            MR_EUNSUPPORTED,
            "%s: structured dtype (records of named fields): refused: save each field as "
            "an array of its own",
            s->name);
    if (s->p < s->end && *s->p == '(')
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: subarray dtype: refused: save it as an array of more dimensions",
                            s->name);
    int rc = parse_string(s, "a dtype in quotes", descr, sizeof descr);
    return rc < 0 ? rc : parse_descr(s, descr, out);
}

static int parse_order(struct parser *s, struct mr_npy_head *out)
{
    out->fortran = accept_word(s, "True");
    return out->fortran || accept_word(s, "False") ? 0 : unexpected(s, "True or False");
}

/* Parses one key and its value. seen: one bit per key found so far. */
static int parse_entry(struct parser *s, unsigned *seen, struct mr_npy_head *out)
{
    static const struct {
        const char *key;
        int (*parse)(struct parser *s, struct mr_npy_head *out);
    } keys[] = {{"descr", parse_type}, {"fortran_order", parse_order}, {"shape", parse_shape}};
    char key[32] = "";
    int rc = parse_string(s, "a key in quotes", key, sizeof key);
    if (rc < 0)
        return rc;
    if (!accept(s, ':'))
        return unexpected(s, "':'");
    for (size_t i = 0; i < MR_COUNT(keys); i++)
        if (strcmp(keys[i].key, key) == 0) {
            if (*seen >> i & 1)
                return mr_error_set(MR_EFORMAT, "%s: header: '%s' appears twice", s->name, key);
            *seen |= 1u << i;
            return keys[i].parse(s, out);
        }
    return mr_error_set(MR_EFORMAT, "%s: header: key '%s': expected descr, fortran_order and shape",
                        s->name, key);
}

int mr_npy_parse(const char *name, const char *text, uint64_t bytes, struct mr_npy_head *out)
{
    struct parser s = {name, text, text, text + bytes};
    struct mr_npy_head head = {0};
    unsigned seen = 0;
    bool comma = true;
    if (!accept(&s, '{'))
        return unexpected(&s, "'{'");
    while (!accept(&s, '}')) {
        if (!comma)
            return unexpected(&s, "',' or '}'");
        int rc = parse_entry(&s, &seen, &head);
        if (rc < 0)
            return rc;
        comma = accept(&s, ',');
    }
    skip_space(&s);
    if (s.p != s.end)
        return unexpected(&s, "nothing after '}'");
    if (seen != 7)
        return mr_error_set(MR_EFORMAT, "%s: header without %s", name,
                            !(seen & 1)   ? "descr"
                            : !(seen & 2) ? "fortran_order"
                                          : "shape");
    *out = head;
    return 0;
}
