/* Option tables: accepted values, help, man page section, and values as JSON. */
#include "base/options.h"

#include <math.h>
#include <millrace/text.h>
#include <stdio.h>
#include <string.h>

/* Formats a bound as a user would write it. */
static const char *bound(const struct mr_option *option, double value, char buf[48])
{
    static const char *const bytes[] = {"", "KiB", "MiB", "GiB", "TiB", "PiB"};
    static const struct {
        const char *text;
        double ns;
    } units[] = {{"h", 3600e9}, {"min", 60e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}};
    int i = 0;
    switch (option->type) {
    case MR_OPT_BYTES:
        for (; i < 5 && value >= 1024 && fmod(value, 1024) == 0; i++)
            value /= 1024;
        snprintf(buf, 48, "%.0f%s", value, bytes[i]);
        return buf;
    case MR_OPT_DURATION:
        while (i < 5 && (value == 0 || fmod(value, units[i].ns) != 0))
            i++;
        snprintf(buf, 48, value == 0 ? "0" : "%.0f%s", value / units[i].ns, units[i].text);
        return buf;
    default:
        if (value >= 0x1p40 && frexp(value, &i) == 0.5)
            snprintf(buf, 48, "2^%d", i - 1);
        else if (fabs(value) < 1e15 && value == nearbyint(value))
            snprintf(buf, 48, "%.0f", value);
        else
            mr_f64_to_text(value, buf);
        return buf;
    }
}

const char *mr_option_range(const struct mr_option *option, char *buf, size_t cap)
{
    char low[48], high[48];
    bool named = option->unit && option->type != MR_OPT_DURATION && option->type != MR_OPT_BYTES;
    const char *blank = named ? " " : "", *unit = named ? option->unit : "";
    buf[0] = 0;
    if (option->min == 0 && option->max == 0)
        return buf;
    if (isinf(option->max))
        snprintf(buf, cap, "at least %s%s%s", bound(option, option->min, low), blank, unit);
    else if (isinf(option->min))
        snprintf(buf, cap, "at most %s%s%s", bound(option, option->max, high), blank, unit);
    else
        snprintf(buf, cap, "%s..%s%s%s", bound(option, option->min, low),
                 bound(option, option->max, high), blank, unit);
    return buf;
}

static void list_choices(const struct mr_option *option, const char *between, const char *last,
                         char *buf, size_t cap)
{
    size_t at = 0;
    buf[0] = 0;
    for (int i = 0; option->choices && option->choices[i] && at < cap; i++) {
        const char *joint = i == 0 ? "" : option->choices[i + 1] ? between : last;
        at += (size_t)snprintf(buf + at, cap - at, "%s%s", joint, option->choices[i]);
    }
}

const char *mr_option_want(const struct mr_option *option, char *buf, size_t cap)
{
    static const char *const text[] = {
        [MR_OPT_FLAG] = "no value, or one of 1 0 true false yes no on off",
        [MR_OPT_INT] = "a whole number",
        [MR_OPT_UINT] = "a whole number, not negative",
        [MR_OPT_DOUBLE] = "a number, like 0.5 or 1/255",
        [MR_OPT_BYTES] = "a size, like 4096, 64KiB or 2GB",
        [MR_OPT_DURATION] = "a time, like 300us, 2ms or 1.5s",
        [MR_OPT_PERCENT] = "a share, like 10% or 0.1",
        [MR_OPT_STRING] = "a text",
        [MR_OPT_DTYPE] = "one of bool u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64 c64 c128",
        [MR_OPT_DOUBLES] = "numbers, like 0.485:0.456:0.406",
        [MR_OPT_SHAPE] = "a shape, like 3x224x224",
        [MR_OPT_UINT32] = "a whole number, not negative",
        [MR_OPT_SHARE] = "off, on, auto or a fraction, 0..1",
        [MR_OPT_LIMIT] = "a number, a percentage such as 1%, or any",
    };
    char range[128];
    mr_option_range(option, range, sizeof range);
    if (option->type == MR_OPT_ENUM)
        list_choices(option, ", ", " or ", buf, cap);
    else if (range[0] && (option->type < MR_OPT_PERCENT || option->type == MR_OPT_UINT32))
        snprintf(buf, cap, "%s", range);
    else
        snprintf(buf, cap, "%s%s%s", text[option->type], range[0] ? ", each " : "", range);
    return buf;
}

static const char *meta_of(const struct mr_option *option, char *buf, size_t cap)
{
    static const char *const meta[] = {
        [MR_OPT_FLAG] = "",
        [MR_OPT_INT] = "N",
        [MR_OPT_UINT] = "N",
        [MR_OPT_DOUBLE] = "X",
        [MR_OPT_BYTES] = "BYTES",
        [MR_OPT_DURATION] = "TIME",
        [MR_OPT_PERCENT] = "SHARE",
        [MR_OPT_STRING] = "TEXT",
        [MR_OPT_DTYPE] = "DTYPE",
        [MR_OPT_DOUBLES] = "X:X...",
        [MR_OPT_SHAPE] = "HxW...",
        [MR_OPT_UINT32] = "N",
        [MR_OPT_SHARE] = "off|on|auto|FRACTION",
        [MR_OPT_LIMIT] = "N|P%",
    };
    if (option->meta)
        return option->meta;
    if (option->type != MR_OPT_ENUM)
        return meta[option->type];
    list_choices(option, "|", "|", buf, cap);
    return buf;
}

/* A flag that is on by default is shown in both forms, --[no-]NAME. */
static bool on_by_default(const struct mr_option *option)
{
    return option->type == MR_OPT_FLAG && option->initial && strcmp(option->initial, "0") != 0;
}

/* "Samples in a batch (1..65536 samples; default 64)",
 * "Its duration (1ms..1h; default 5s; a bare number is s)" */
static void describe(const struct mr_option *option, char *buf, size_t cap)
{
    char range[128], initial[256] = "", bare[64] = "";
    const char *between = "";
    mr_option_range(option, range, sizeof range);
    if (on_by_default(option))
        snprintf(initial, sizeof initial, "default on");
    else if (option->initial && option->initial[0] && option->type != MR_OPT_FLAG)
        snprintf(initial, sizeof initial, "default %s", option->initial);
    if (option->type == MR_OPT_DURATION)
        snprintf(bare, sizeof bare, "a bare number is %s", option->unit ? option->unit : "ms");
    const char *part[] = {range, initial, bare};
    int at = snprintf(buf, cap, "%s", option->help);
    for (int i = 0; i < 3; i++) {
        if (!part[i][0] || (size_t)at >= cap)
            continue;
        at += snprintf(buf + at, cap - (size_t)at, "%s%s", between[0] ? between : " (", part[i]);
        between = "; ";
    }
    if (between[0] && (size_t)at < cap)
        snprintf(buf + at, cap - (size_t)at, ")");
}

static const char *group_of(const struct mr_option *option)
{
    return option->group ? option->group : "Options";
}

/* The next group after `last` (NULL: the first), in order of first appearance; NULL at the end. */
static const char *next_group(const struct mr_option *table, const char *last)
{
    bool passed = last == NULL;
    for (const struct mr_option *o = table; o->name; o++) {
        bool seen = !o->help;
        for (const struct mr_option *earlier = table; !seen && earlier < o; earlier++)
            seen = earlier->help && strcmp(group_of(earlier), group_of(o)) == 0;
        if (seen)
            continue;
        if (passed)
            return group_of(o);
        passed = strcmp(group_of(o), last) == 0;
    }
    return NULL;
}

static void wrap(FILE *out, const char *text, int column, int indent, int width)
{
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column > indent && column + 1 + n > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", n, text);
        column += n;
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

static void help_option(FILE *out, const struct mr_option *option)
{
    enum { INDENT = 28, WIDTH = 100 };
    char meta[256], text[1024], head[400];
    const char *placeholder = meta_of(option, meta, sizeof meta);
    int n = snprintf(head, sizeof head, option->key ? "  -%c, " : "      ", option->key);
    n += snprintf(head + n, sizeof head - (size_t)n, "--%s%s%s%s",
                  on_by_default(option) ? "[no-]" : "", option->name, placeholder[0] ? " " : "",
                  placeholder);
    describe(option, text, sizeof text);
    fputs(head, out);
    if (n + 2 > INDENT)
        fputc('\n', out);
    fprintf(out, "%*s", n + 2 > INDENT ? INDENT : INDENT - n, "");
    wrap(out, text, INDENT, INDENT, WIDTH);
}

char *mr_options_help(const struct mr_option *table)
{
    if (!table)
        return NULL;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    for (const char *group = NULL; (group = next_group(table, group));) {
        fprintf(out, "%s%s:\n", ftell(out) > 0 ? "\n" : "", group);
        for (const struct mr_option *o = table; o->name; o++)
            if (o->help && strcmp(group_of(o), group) == 0)
                help_option(out, o);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* Escapes text for roff: backslashes, minus signs, and lines that would start with a request. */
static void roff(FILE *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
}

static void man_option(FILE *out, const struct mr_option *option)
{
    char meta[256], text[1024];
    const char *placeholder = meta_of(option, meta, sizeof meta);
    fputs(".TP\n", out);
    if (option->key)
        fprintf(out, "\\fB\\-%c\\fR, ", option->key);
    fprintf(out, "\\fB\\-\\-%s", on_by_default(option) ? "[no\\-]" : "");
    roff(out, option->name);
    fputs("\\fR", out);
    if (placeholder[0]) {
        fputs(" \\fI", out);
        roff(out, placeholder);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    describe(option, text, sizeof text);
    roff(out, text);
    fputs(".\n", out);
}

char *mr_options_man(const struct mr_option *table)
{
    if (!table)
        return NULL;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    for (const char *group = NULL; (group = next_group(table, group));) {
        fputs(".SS ", out);
        roff(out, group);
        fputc('\n', out);
        for (const struct mr_option *o = table; o->name; o++)
            if (o->help && strcmp(group_of(o), group) == 0)
                man_option(out, o);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* "max-memory" of bytes -> "max_memory_bytes". */
static void json_key(const struct mr_option *option, char *buf, size_t cap)
{
    const char *unit = option->type == MR_OPT_DURATION ? "_ns"
                       : option->type == MR_OPT_BYTES  ? "_bytes"
                                                       : "";
    snprintf(buf, cap, "%s", option->name);
    for (char *p = buf; *p; p++)
        *p = *p == '-' ? '_' : *p;
    size_t n = strlen(buf), m = strlen(unit);
    if (n < m || strcmp(buf + n - m, unit) != 0)
        snprintf(buf + n, cap - n, "%s", unit);
}

static void json_list(struct mr_json *json, const char *key, const struct mr_option *option,
                      const void *member)
{
    const struct mr_doubles *doubles = member;
    const struct mr_shape *shape = member;
    mr_json_array(json, key);
    for (int i = 0; option->type == MR_OPT_DOUBLES && i < doubles->n; i++)
        mr_json_double(json, NULL, doubles->v[i]);
    for (int i = 0; option->type == MR_OPT_SHAPE && i < shape->rank; i++)
        mr_json_uint(json, NULL, shape->dim[i]);
    mr_json_array_end(json);
}

/* As a user would write it, rounded, since 100 * 0.07 is not 7; "any" is null. */
static void json_limit(struct mr_json *json, const char *key, const struct mr_limit *limit)
{
    char text[48], number[48];
    if (limit->fraction > 0)
        snprintf(text, sizeof text, "%s%%",
                 mr_f64_to_text(nearbyint(limit->fraction * 1e12) / 1e10, number));
    else
        snprintf(text, sizeof text, "%llu", (unsigned long long)limit->n);
    mr_json_string(json, key, limit->fraction > 0 || limit->n != UINT64_MAX ? text : NULL);
}

static void json_share(struct mr_json *json, const char *key, double share)
{
    char number[48];
    mr_json_string(json, key,
                   share == 0    ? "off"
                   : share == 1  ? "on"
                   : share == -1 ? "auto"
                                 : mr_f64_to_text(share, number));
}

void mr_options_json(const struct mr_option *table, const void *values, struct mr_json *json)
{
    if (!table || !values)
        return;
    char key[128], shown[4096];
    for (const struct mr_option *o = table; o->name; o++) {
        const char *text;
        const void *member = (const char *)values + o->offset;
        json_key(o, key, sizeof key);
        switch (o->type) {
        case MR_OPT_FLAG:
            mr_json_bool(json, key, *(const int *)member);
            break;
        case MR_OPT_INT:
            mr_json_int(json, key, *(const int64_t *)member);
            break;
        case MR_OPT_UINT:
        case MR_OPT_BYTES:
        case MR_OPT_DURATION:
            mr_json_uint(json, key, *(const uint64_t *)member);
            break;
        case MR_OPT_DOUBLE:
        case MR_OPT_PERCENT:
            mr_json_double(json, key, *(const double *)member);
            break;
        case MR_OPT_ENUM:
            mr_json_string(json, key, o->choices[*(const int *)member]);
            break;
        case MR_OPT_STRING:
            text = *(char *const *)member; /* may be a URL */
            mr_json_string(json, key, text ? mr_text_hide(text, shown, sizeof shown) : NULL);
            break;
        case MR_OPT_DTYPE:
            mr_json_string(json, key, mr_dtype_name((enum mr_dtype) * (const int *)member));
            break;
        case MR_OPT_DOUBLES:
        case MR_OPT_SHAPE:
            json_list(json, key, o, member);
            break;
        case MR_OPT_UINT32:
            mr_json_uint(json, key, *(const uint32_t *)member);
            break;
        case MR_OPT_SHARE:
            json_share(json, key, *(const double *)member);
            break;
        case MR_OPT_LIMIT:
            json_limit(json, key, member);
            break;
        }
    }
}
