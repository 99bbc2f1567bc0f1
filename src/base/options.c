/* Option tables: finding options by name, argument lists, command lines, JSON. */
#include "base/options.h"
#include "base/options_foreign.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

size_t mr_option_bytes(enum mr_option_type type)
{
    static const size_t bytes[] = {
        [MR_OPT_FLAG] = sizeof(int),
        [MR_OPT_INT] = sizeof(int64_t),
        [MR_OPT_UINT] = sizeof(uint64_t),
        [MR_OPT_DOUBLE] = sizeof(double),
        [MR_OPT_BYTES] = sizeof(uint64_t),
        [MR_OPT_DURATION] = sizeof(uint64_t),
        [MR_OPT_PERCENT] = sizeof(double),
        [MR_OPT_ENUM] = sizeof(int),
        [MR_OPT_STRING] = sizeof(char *),
        [MR_OPT_DTYPE] = sizeof(int),
        [MR_OPT_DOUBLES] = sizeof(struct mr_doubles),
        [MR_OPT_SHAPE] = sizeof(struct mr_shape),
        [MR_OPT_UINT32] = sizeof(uint32_t),
        [MR_OPT_SHARE] = sizeof(double),
        [MR_OPT_LIMIT] = sizeof(struct mr_limit),
    };
    return bytes[type];
}

static char fold(char c)
{
    return c == '_' ? '-' : c;
}

bool mr_option_same(const char *a, const char *b)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.*): a key of one letter ends behind it */
    for (; *a && fold(*a) == fold(*b); a++, b++)
        ;
    return *a == 0 && *b == 0; /* NOLINT(clang-analyzer-core.*) */
}

/* Edit distance with transpositions of neighbours (optimal string alignment), for words of up to
 * 40 bytes. */
static int distance(const char *a, const char *b)
{
    enum { MAX = 40 };
    int row[3][MAX + 1], n = (int)strlen(a), m = (int)strlen(b);
    if (n > MAX || m > MAX)
        return MAX;
    for (int i = 0; i <= n; i++) {
        int *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            if (i == 0) {
                now[j] = j;
                continue;
            }
            int change = last[j - 1] + (fold(a[i - 1]) != fold(b[j - 1]));
            now[j] = MR_MIN(change, MR_MIN(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = MR_MIN(now[j], before[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

const char *mr_nearest(const char *word, const char *const *words)
{
    if (!word || !words)
        return NULL;
    const char *best = NULL;
    int n = (int)strlen(word),
        /* a larger distance means another word, not a typo */
        least = MR_MIN(MR_MAX(n / 3, 1) + 1, n);
    for (; *words; words++) {
        int d = distance(word, *words);
        if (d < least) {
            least = d;
            best = *words;
        }
    }
    return best;
}

int mr_error_no_such(const char *word, const char *const *names, const char *mark, const char *fmt,
                     ...)
{
    char text[MR_ERROR_BYTES], list[MR_ERROR_BYTES] = "";
    size_t at = 0;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (size_t i = 0; names[i] && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    const char *near = mr_nearest(word, names);
    if (near)
        return mr_error_set(MR_EOPTION, "%s; did you mean %s%s%s? there are %s", text, mark, near,
                            mark, list);
    return mr_error_set(MR_EOPTION, "%s; there are %s", text, list);
}

static const struct mr_option *find(const struct mr_option *table, const char *name)
{
    for (; table->name; table++)
        if (mr_option_same(table->name, name))
            return table;
    return NULL;
}

static const struct mr_option *find_key(const struct mr_option *table, char key)
{
    for (; table->name; table++)
        if (table->key == key)
            return table;
    return NULL;
}

/* "no-x" of a flag x. */
static const struct mr_option *find_negated(const struct mr_option *table, const char *name)
{
    if (strlen(name) < 4 || strncmp(name, "no", 2) != 0 || fold(name[2]) != '-')
        return NULL;
    const struct mr_option *option = find(table, name + 3);
    return option && option->type == MR_OPT_FLAG ? option : NULL;
}

/* The names of a table, or only of its flags, for mr_nearest() and for lists. NULL if out of
 * memory. */
static const char **names_of(const struct mr_option *table, bool flags)
{
    size_t n = 0, at = 0;
    while (table[n].name)
        n++;
    const char **names = calloc(n + 1, sizeof *names);
    for (size_t i = 0; names && i < n; i++)
        if (!flags || table[i].type == MR_OPT_FLAG)
            names[at++] = table[i].name;
    return names;
}

static const char *nearest_of(const char *const *names, const char *name)
{
    const char *nearest = mr_nearest(name, names);
    for (size_t i = 0; !nearest && names[i] && strlen(name) > 2; i++)
        if (strncmp(names[i], name, strlen(name)) == 0) /* --batch: an abbreviation */
            nearest = names[i];
    return nearest;
}

/* Advice for a name that another program uses; NULL if there is none. */
static const char *foreign(const struct mr_option *table, const char *name)
{
    for (const struct mr_option_foreign *f = mr_options_foreign; f->name; f++)
        if (mr_option_same(f->name, name) && find(table, f->ours))
            return f->text;
    return NULL;
}

/* Returns the x of "no-x", "non-x", and of "nox" if x is similar to one of the flags; NULL for
 * other names. */
static const char *negated(const char *const *flags, const char *name)
{
    static const char *const words[] = {"non", "not", "no", "without", "disable", "un"};
    for (size_t i = 0; i < MR_COUNT(words); i++) {
        size_t n = strlen(words[i]);
        if (strncmp(name, words[i], n) != 0 || !name[n] || !name[n + 1])
            continue;
        if (fold(name[n]) == '-')
            return name + n + 1;
        const char *near = mr_nearest(name + n, flags);
        if (near && near == mr_nearest(name, flags))
            return name + n;
    }
    return NULL;
}

/* For --no-x only another --no-y is suggested, and for --x only --y: never the opposite. */
static int unknown_of(const char *const *names, const char *const *flags, const char *who,
                      const char *name)
{
    bool line = strcmp(who, "--") == 0;
    const char *stem = negated(flags, name);
    const char *nearest = stem ? nearest_of(flags, stem) : nearest_of(names, name);
    char list[512] = "";
    if (nearest)
        return mr_error_set(MR_EOPTION, "%s%s: no such option; did you mean %s%s%s?", who, name,
                            line ? "--" : "", stem ? "no-" : "", nearest);
    if (line)
        return mr_error_set(MR_EOPTION, "--%s: no such option; --help lists them", name);
    for (size_t i = 0, at = 0; names[i] && at < sizeof list - 1; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    return mr_error_set(MR_EOPTION, "%s%s: no such option; there %s %s", who, name,
                        list[0] ? "are" : "are none", list);
}

static int unknown(const struct mr_option *table, const char *who, const char *name)
{
    const char *text = strcmp(who, "--") == 0 ? foreign(table, name) : NULL;
    if (text)
        return mr_error_set(MR_EOPTION, "--%s: no such option; %s", name, text);
    const char **names = names_of(table, false), **flags = names_of(table, true);
    int rc =
        names && flags ? unknown_of(names, flags, who, name) : mr_error_nomem("option names", 0);
    free(names);
    free(flags);
    return rc;
}

void mr_opts_copy(void *opts, size_t size, const void *full, size_t full_size)
{
    if (!opts)
        return;
    memset(opts, 0, size);
    memcpy(opts, full, MR_MIN(size, full_size));
    if (size >= sizeof size)
        memcpy(opts, &size, sizeof size);
}

/* A struct that is longer than the library's has a size that was not set, or is a later one's. */
static const char *newer_text(size_t size, size_t full_size)
{
    return size > full_size ? "; or this library is older than the program's headers" : "";
}

int mr_opts_take(const char *what, const void *opts, void *full, size_t full_size)
{
    size_t size = full_size;
    if (opts)
        memcpy(&size, opts, sizeof size);
    if (size < sizeof size || size > full_size)
        return mr_error_set(
            MR_EMISUSE, "struct mr_%s: size is %zu, expected %zu to %zu: call mr_%s_init() first%s",
            what, size, sizeof size, full_size, what, newer_text(size, full_size));
    if (opts)
        memcpy(full, opts, size);
    memcpy(full, &full_size, sizeof full_size);
    return 0;
}

int mr_info_check_least(const char *what, const void *out, size_t least, size_t full_size)
{
    size_t size = 0;
    if (!out)
        return mr_error_set(MR_EMISUSE, "struct mr_%s: NULL, expected a struct to fill", what);
    memcpy(&size, out, sizeof size);
    if (size >= least && size <= full_size)
        return 0;
    return mr_error_set(MR_EMISUSE,
                        "struct mr_%s: size is %zu, expected %zu to %zu: initialize it, as in "
                        "struct mr_%s x = {.size = sizeof x}%s",
                        what, size, least, full_size, what, newer_text(size, full_size));
}

int mr_info_check(const char *what, const void *out, size_t full_size)
{
    return mr_info_check_least(what, out, sizeof full_size, full_size);
}

int mr_info_give(const char *what, void *out, const void *full, size_t full_size)
{
    size_t size;
    int rc = mr_info_check(what, out, full_size);
    if (rc < 0)
        return rc;
    memcpy(&size, out, sizeof size);
    memcpy((char *)out + sizeof size, (const char *)full + sizeof size, size - sizeof size);
    return 0;
}

int mr_options_init(const struct mr_option *table, void *values)
{
    if (!table || !values)
        return mr_error_null("mr_options_init", "a table and a struct");
    for (const struct mr_option *o = table; o->name; o++)
        memset((char *)values + o->offset, 0, mr_option_bytes(o->type));
    for (const struct mr_option *o = table; o->name; o++) {
        int rc = o->initial ? mr_option_assign(o, values, "default of ", o->initial) : 0;
        if (rc) {
            mr_options_free(table, values);
            return rc;
        }
    }
    return 0;
}

void mr_options_free(const struct mr_option *table, void *values)
{
    if (!table || !values)
        return;
    for (; table->name; table++)
        if (table->type == MR_OPT_STRING) {
            char **member = (char **)((char *)values + table->offset);
            free(*member);
            *member = NULL;
        }
}

int mr_options_set(const struct mr_option *table, void *values, const char *who, const char *name,
                   const char *text)
{
    if (!table || !values || !who || !name)
        return mr_error_null("mr_options_set", "a table, a struct and names");
    const struct mr_option *option = find(table, name);
    if (option)
        return mr_option_assign(option, values, who, text);
    option = text ? NULL : find_negated(table, name);
    if (option)
        return mr_option_assign(option, values, who, "0");
    return unknown(table, who, name);
}

static void trim(char *text)
{
    size_t lead = strspn(text, " \t"), n = strlen(text);
    while (n > lead && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    memmove(text, text + lead, n - lead);
    text[n - lead] = 0;
}

/* The end of the argument at p: a comma outside of all brackets, or the end of the text. */
static char *argument_end(char *p)
{
    for (int depth = 0; *p; p++) {
        depth += *p == '(' || *p == '[';
        depth -= (*p == ')' || *p == ']') && depth > 0;
        if (*p == ',' && depth == 0)
            break;
    }
    return p;
}

static int parse_argument(const struct mr_option *table, void *values, const char *who,
                          char *argument, const char *const **positional)
{
    trim(argument);
    if (!*argument)
        return mr_error_set(MR_EOPTION, "%s an argument is missing between two commas", who);
    char *equals = strchr(argument, '=');
    if (equals) {
        *equals = 0;
        trim(argument);
        trim(equals + 1);
        return mr_options_set(table, values, who, argument, equals + 1);
    }
    const struct mr_option *flag = find(table, argument);
    if (*positional && **positional && !(flag && flag->type == MR_OPT_FLAG))
        return mr_options_set(table, values, who, *(*positional)++, argument);
    if (*positional && !flag && !find_negated(table, argument))
        return mr_error_set(MR_EOPTION, "%s%s: one argument too many", who, argument);
    return mr_options_set(table, values, who, argument, NULL);
}

int mr_options_parse(const struct mr_option *table, void *values, const char *who, const char *text,
                     const char *const *positional)
{
    if (!table || !values || !who || !text)
        return mr_error_null("mr_options_parse", "a table, a struct and texts");
    char *copy = strdup(text);
    if (!copy)
        return mr_error_nomem("options", strlen(text) + 1);
    trim(copy);
    int rc = 0;
    bool more = *copy != 0;
    for (char *p = copy; rc == 0 && more;) {
        char *end = argument_end(p);
        more = *end == ',';
        *end = 0;
        rc = parse_argument(table, values, who, p, &positional);
        p = end + 1;
    }
    free(copy);
    return rc;
}

/* --name, --name=value, --name value. *at: index of the argument; set to the last one used. */
static int parse_long(const struct mr_option *table, void *values, int argc, char **argv, int *at)
{
    char name[64];
    const char *arg = argv[*at] + 2, *text = strchr(arg, '=');
    size_t n = text ? (size_t)(text - arg) : strlen(arg);
    if (n >= sizeof name)
        return mr_error_set(MR_EOPTION, "--%s: no such option; --help lists them", arg);
    memcpy(name, arg, n);
    name[n] = 0;
    text = text ? text + 1 : NULL;
    const struct mr_option *option = find(table, name);
    if (option && option->type != MR_OPT_FLAG && !text && *at + 1 < argc)
        text = argv[++*at];
    return mr_options_set(table, values, "--", name, text);
}

static int unknown_key(const struct mr_option *table, const char *arg)
{
    const char name[] = {arg[1], 0}, *text = foreign(table, name);
    return mr_error_set(MR_EOPTION, "%s: no such option; %s", arg,
                        text ? text : "--help lists them");
}

/* -k value, -kvalue, -f. */
static int parse_short(const struct mr_option *table, void *values, int argc, char **argv, int *at)
{
    const char *arg = argv[*at];
    const struct mr_option *option = find_key(table, arg[1]);
    if (!option)
        return unknown_key(table, arg);
    if (option->type == MR_OPT_FLAG && arg[2])
        return mr_error_set(MR_EOPTION, "%s: -%c takes no value; write one-letter options apart",
                            arg, arg[1]);
    const char *text = arg[2] ? arg + 2 : NULL;
    if (option->type != MR_OPT_FLAG && !text && *at + 1 < argc)
        text = argv[++*at];
    return mr_options_set(table, values, "--", option->name, text);
}

int mr_options_parse_args(const struct mr_option *table, void *values, int argc, char **argv)
{
    if (!table || !values || (argc > 0 && !argv))
        return mr_error_null("mr_options_parse_args", "a table, a struct and arguments");
    int kept = 0, rc = 0;
    bool ended = false;
    for (int i = 0; i < argc && rc == 0; i++) {
        const char *arg = argv[i];
        bool number = arg[0] == '-' && ((arg[1] >= '0' && arg[1] <= '9') || arg[1] == '.');
        if (ended || arg[0] != '-' || arg[1] == 0 || number)
            argv[kept++] = argv[i];
        else if (strcmp(arg, "--") == 0)
            ended = true;
        else if (arg[1] == '-')
            rc = parse_long(table, values, argc, argv, &i);
        else
            rc = parse_short(table, values, argc, argv, &i);
    }
    return rc < 0 ? rc : kept;
}
