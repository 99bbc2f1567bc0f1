/* Option tables: parses text to values. */
#include "base/options.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct suffix {
    const char *text;
    double factor;
};

static const struct suffix thousands[] = {{"", 1},    {"k", 1e3},  {"K", 1e3}, {"M", 1e6},
                                          {"G", 1e9}, {"T", 1e12}, {NULL, 0}};

static const struct suffix byte_units[] = {
    {"", 1},         {"B", 1},        {"k", 0x1p10},   {"K", 0x1p10},   {"M", 0x1p20},
    {"G", 0x1p30},   {"T", 0x1p40},   {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},
    {"GB", 1e9},     {"TB", 1e12},    {"PB", 1e15},    {"P", 0x1p50},   {"KiB", 0x1p10},
    {"kiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"PiB", 0x1p50},
    {NULL, 0}};

static const struct suffix times[] = {{"ns", 1},  {"us", 1e3},   {"\xC2\xB5s", 1e3}, {"ms", 1e6},
                                      {"s", 1e9}, {"min", 60e9}, {"h", 3600e9},      {NULL, 0}};

static double factor_of(const struct suffix *units, const char *text)
{
    for (; units->text; units++)
        if (strcmp(units->text, text) == 0)
            return units->factor;
    return 0;
}

double mr_option_time_factor(const char *unit)
{
    double factor = unit ? factor_of(times, unit) : 0;
    return factor > 0 ? factor : 1e6;
}

/* Parses a finite decimal number; no "inf", "nan", hex floats or leading spaces. Returns the rest
 * of the text, or NULL. */
static const char *read_decimal(const char *text, double *out)
{
    const char *p = text + (*text == '-' || *text == '+');
    if (!((*p >= '0' && *p <= '9') || (*p == '.' && p[1] >= '0' && p[1] <= '9')) ||
        (*p == '0' && (p[1] | 32) == 'x'))
        return NULL;
    char *end;
    *out = mr_text_to_f64(text, &end);
    return isfinite(*out) ? end : NULL;
}

/* "0.5" or "1/255": the quotient of two doubles, as a C program would compute it. */
static bool read_double(const char *text, double *out)
{
    double a, b = 1;
    const char *end = read_decimal(text, &a);
    if (end && *end == '/')
        end = read_decimal(end + 1, &b);
    if (!end || *end || b == 0 || !isfinite(a / b))
        return false;
    *out = b == 1 ? a : a / b;
    return true;
}

static bool read_percent(const char *text, double *out)
{
    const char *end = read_decimal(text, out);
    if (end && strcmp(end, "%") == 0) {
        *out /= 100;
        return true;
    }
    return read_double(text, out);
}

/* Parses plain digits or 0x..., exact for all 64 bits. Returns 1 if parsed, 0 if not of that form,
 * -1 if too large. */
static int read_digits(const char *text, uint64_t *out)
{
    bool hex = text[0] == '0' && (text[1] | 32) == 'x';
    const char *digits = hex ? text + 2 : text;
    size_t n = strspn(digits, hex ? "0123456789abcdefABCDEF" : "0123456789");
    if (n == 0 || digits[n])
        return 0;
    errno = 0;
    *out = strtoull(digits, NULL, hex ? 16 : 10);
    return errno == ERANGE ? -1 : 1;
}

/* Parses a non-negative integer with a unit. */
static bool read_whole(const char *text, const struct suffix *units, double bare_factor,
                       uint64_t *out)
{
    uint64_t exact;
    int digits = bare_factor == 1 ? read_digits(text, &exact) : 0;
    if (digits) {
        *out = exact;
        return digits > 0;
    }
    double number = 0;
    const char *end = read_decimal(text, &number);
    double factor = !end ? 0 : *end ? factor_of(units, end) : bare_factor;
    number *= factor;
    if (factor == 0 || number < 0 || number >= 0x1p64)
        return false;
    /* 0.1 us is 100 ns although 0.1 is not exact in binary: the difference to the nearest integer
     * must be rounding error */
    double whole = nearbyint(number);
    if (fabs(number - whole) > 4 * DBL_EPSILON * number)
        return false;
    *out = whole >= 0x1p64 ? UINT64_MAX : (uint64_t)whole;
    return true;
}

static bool read_int(const char *text, int64_t *out)
{
    bool negative = *text == '-';
    uint64_t size;
    if (!read_whole(text + (negative || *text == '+'), thousands, 1, &size))
        return false;
    if (size > (uint64_t)INT64_MAX + negative)
        return false;
    *out = negative ? (int64_t)(0 - size) : (int64_t)size;
    return true;
}

static bool read_flag(const char *text, int *out)
{
    static const char *const yes[] = {"1", "true", "yes", "on"}, *const no[] = {"0", "false", "no",
                                                                                "off"};
    if (!text) {
        *out = 1;
        return true;
    }
    for (int i = 0; i < 4; i++)
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *out = strcmp(text, yes[i]) == 0;
            return true;
        }
    return false;
}

static bool read_enum(const struct mr_option *option, const char *text, int *out)
{
    for (int i = 0; option->choices && option->choices[i]; i++)
        if (mr_option_same(option->choices[i], text)) {
            *out = i;
            return true;
        }
    return false;
}

/* Takes the next item off *text, a list whose brackets strip_list() has removed. */
static bool next_item(const char **text, const char *separators, char *item, size_t cap)
{
    size_t n = strcspn(*text, separators);
    if (n == 0 || n >= cap)
        return false;
    memcpy(item, *text, n);
    item[n] = 0;
    *text += n;
    if (**text && (*text)[1] == 0)
        return false; /* a separator at the end */
    *text += **text != 0;
    return true;
}

/* Copies text without blanks and without one pair of brackets around it. */
static bool strip_list(const char *text, char *out, size_t cap)
{
    size_t n = 0;
    for (; *text; text++)
        if (*text != ' ' && *text != '\t') {
            if (n + 1 >= cap)
                return false;
            out[n++] = *text;
        }
    out[n] = 0;
    if (n >= 2 && out[0] == '[' && out[n - 1] == ']') {
        memmove(out, out + 1, n - 2);
        out[n - 2] = 0;
    }
    return true;
}

static bool read_doubles(const char *text, struct mr_doubles *out)
{
    char list[2048], item[64];
    struct mr_doubles got = {0};
    if (!strip_list(text, list, sizeof list))
        return false;
    for (const char *p = list; *p; got.n++)
        if (got.n == MR_MAX_LIST || !next_item(&p, ":,", item, sizeof item) ||
            !read_double(item, &got.v[got.n]))
            return false;
    *out = got;
    return true;
}

static bool read_shape(const char *text, struct mr_shape *out)
{
    char list[512], item[64];
    struct mr_shape got = {0};
    if (!strip_list(text, list, sizeof list))
        return false;
    for (const char *p = list; *p; got.rank++)
        if (got.rank == MR_MAX_RANK || !next_item(&p, "x,*", item, sizeof item) ||
            !read_whole(item, thousands, 1, &got.dim[got.rank]))
            return false;
    *out = got;
    return true;
}

static bool in_range(const struct mr_option *option, double value)
{
    return (option->min == 0 && option->max == 0) || (value >= option->min && value <= option->max);
}

static bool all_in_range(const struct mr_option *option, const union mr_option_value *v)
{
    bool ok = true;
    switch (option->type) {
    case MR_OPT_INT:
        return in_range(option, (double)v->i64);
    case MR_OPT_UINT:
    case MR_OPT_BYTES:
    case MR_OPT_DURATION:
        return in_range(option, (double)v->u64);
    case MR_OPT_DOUBLE:
    case MR_OPT_PERCENT:
        return in_range(option, v->f64);
    case MR_OPT_DOUBLES:
        for (int i = 0; i < v->doubles.n; i++)
            ok = ok && in_range(option, v->doubles.v[i]);
        return ok;
    case MR_OPT_SHAPE:
        for (int i = 0; i < v->shape.rank; i++)
            ok = ok && in_range(option, (double)v->shape.dim[i]);
        return ok;
    default:
        return true;
    }
}

static bool read_value(const struct mr_option *option, const char *text, union mr_option_value *v)
{
    enum mr_dtype dtype;
    if (option->type == MR_OPT_FLAG)
        return read_flag(text, &v->i);
    if (!text)
        return false;
    switch (option->type) {
    case MR_OPT_INT:
        return read_int(text, &v->i64);
    case MR_OPT_UINT:
        return read_whole(text, thousands, 1, &v->u64);
    case MR_OPT_BYTES:
        return read_whole(text, byte_units, 1, &v->u64);
    case MR_OPT_DURATION:
        return read_whole(text, times, mr_option_time_factor(option->unit), &v->u64);
    case MR_OPT_DOUBLE:
        return read_double(text, &v->f64);
    case MR_OPT_PERCENT:
        return read_percent(text, &v->f64);
    case MR_OPT_ENUM:
        return read_enum(option, text, &v->i);
    case MR_OPT_DTYPE:
        if (mr_dtype_parse(text, &dtype) != 0)
            return false;
        v->i = (int)dtype;
        return true;
    case MR_OPT_DOUBLES:
        return read_doubles(text, &v->doubles);
    case MR_OPT_SHAPE:
        return read_shape(text, &v->shape);
    default:
        return false;
    }
}

int mr_duration_parse(const char *text, const char *unit, uint64_t *out_ns)
{
    uint64_t ns;
    if (!text || !out_ns)
        return mr_error_set(MR_EMISUSE, "mr_duration_parse: text or out_ns is NULL");
    if (!read_whole(text, times, mr_option_time_factor(unit), &ns))
        return mr_error_set(MR_EOPTION, "%s: expected a time, like 300us, 2ms or 1.5s", text);
    *out_ns = ns;
    return 0;
}

/* "--workers 0" or "synthetic:n=0". */
static const char *place(const char *who, const char *name, const char *text, char *buf, size_t cap)
{
    bool line = strcmp(who, "--") == 0;
    snprintf(buf, cap, "%s%s%s%s", who, name, text ? (line ? " " : "=") : "", text ? text : "");
    return buf;
}

int mr_option_assign(const struct mr_option *option, void *values, const char *who,
                     const char *text)
{
    void *member = (char *)values + option->offset;
    char buf[512], want[256];
    if (option->type == MR_OPT_STRING && text) {
        char *copy = strdup(text);
        if (!copy)
            return mr_error_nomem(option->name, strlen(text) + 1);
        free(*(char **)member);
        *(char **)member = copy;
        return 0;
    }
    union mr_option_value v = {0};
    const char *nearest =
        option->type == MR_OPT_ENUM && text ? mr_nearest(text, option->choices) : NULL;
    if (!text && option->type != MR_OPT_FLAG)
        return mr_error_set(MR_EOPTION, "%s: needs a value: %s",
                            place(who, option->name, NULL, buf, sizeof buf),
                            mr_option_want(option, want, sizeof want));
    if (!read_value(option, text, &v) || !all_in_range(option, &v))
        return mr_error_set(
            MR_EOPTION, "%s: expected %s%s%s%s", place(who, option->name, text, buf, sizeof buf),
            mr_option_want(option, want, sizeof want), nearest ? "; did you mean " : "",
            nearest ? nearest : "", nearest ? "?" : "");
    memcpy(member, &v, mr_option_bytes(option->type));
    return 0;
}
