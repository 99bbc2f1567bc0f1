/* Expands shard names: brace ranges and lists, folders and wildcards. */
#include "dataset/tar/tar.h"

#include "base/secret.h"
#include "storage/storage.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_SHARDS 1000000u
#define MAX_NAME   8192u /* length of a shard's name after expansion */
#define SHOWN      320   /* bytes of a name shown in errors */

void mr_tar_names_free(struct mr_tar_names *names)
{
    for (uint64_t i = 0; i < names->n; i++)
        free(names->name[i]);
    free(names->name);
    *names = (struct mr_tar_names){.of = names->of};
}

static int add_name(struct mr_tar_names *names, const char *name)
{
    char shown[SHOWN];
    if (names->n == MAX_SHARDS)
        return mr_error_set(MR_ELIMIT, "%s:%s: more than %u shards", names->of->format,
                            mr_url_show(name, shown, sizeof shown), MAX_SHARDS);
    if (!name[0])
        return mr_error_set(MR_EOPTION, "%s: an empty name in the list of shards",
                            names->of->format);
    if (mr_grow("list of shards", &names->name, &names->room, names->n + 1, sizeof(char *)) < 0)
        return -ENOMEM;
    names->name[names->n] = strdup(name);
    if (!names->name[names->n])
        return mr_error_nomem("list of shards", strlen(name) + 1);
    names->n++;
    return 0;
}

int mr_tar_names_one(const char *text, struct mr_tar_names *out)
{
    *out = (struct mr_tar_names){.of = &mr_tar_naming};
    int rc = add_name(out, text);
    if (rc < 0)
        mr_tar_names_free(out);
    return rc;
}

/* ---- folders and wildcards ---- */

bool mr_tar_named(const char *name)
{
    static const char *const ends[] = {".tar", ".tar.gz", ".tgz", ".tar.zst"};
    size_t n = strlen(name);
    for (size_t i = 0; i < MR_COUNT(ends); i++)
        if (n > strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

const struct mr_tar_naming mr_tar_naming = {
    .format = "tar", .what = "archive (.tar, .tar.gz, .tgz, .tar.zst)", .named = mr_tar_named};

/* '*' matches any bytes, '?' any one. On a mismatch the last '*' takes one more byte. */
static bool matches(const char *pattern, const char *name)
{
    const char *star = NULL, *from = name;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == 0;
}

struct looking {
    struct mr_tar_names *out;
    const char *place; /* the folder to list */
    size_t n_place;    /* its length, without a trailing '/' */
    const char *pattern;
};

static int on_entry(void *user, const char *name, bool folder, uint64_t bytes)
{
    const struct looking *k = user;
    char *path = NULL;
    (void)bytes;
    if (folder || name[0] == '.' || !k->out->of->named(name) || !matches(k->pattern, name))
        return 0;
    if (asprintf(&path, "%.*s%s%s", (int)k->n_place, k->place,
                 k->n_place || k->place[0] == '/' ? "/" : "", name) < 0)
        return mr_error_nomem("list of shards", strlen(name));
    int rc = add_name(k->out, path);
    free(path);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the archives in a folder whose names match. text: for errors. */
static int add_listed(const char *text, const char *place, const char *pattern,
                      struct mr_tar_names *out)
{
    char shown[SHOWN];
    struct looking k = {out, place, strlen(place), pattern};
    uint64_t before = out->n;
    while (k.n_place > 0 && place[k.n_place - 1] == '/')
        k.n_place--;
    int rc = mr_store_list(place[0] ? place : ".", on_entry, &k);
    if (rc < 0)
        return rc;
    if (out->n == before)
        return mr_error_set(MR_EFORMAT, "%s:%s: no %s %s", out->of->format,
                            mr_url_show(text, shown, sizeof shown), out->of->what,
                            strcmp(pattern, "*") == 0 ? "in that folder"
                                                      : "has a name that matches");
    qsort(out->name + before, out->n - before, sizeof *out->name, by_name);
    return 0;
}

static int add_matching(const char *text, struct mr_tar_names *out)
{
    const char *slash = strrchr(text, '/');
    size_t front = slash ? (size_t)(slash - text) + 1 : 0;
    char *place = strndup(text, front);
    if (!place)
        return mr_error_nomem("list of shards", front);
    int rc =
        strpbrk(place, "*?")
            ? mr_error_set(MR_EOPTION,
                           "%s:%.300s: expected '*' and '?' in the last part of a path only: list "
                           "folders with {A,B} or '::'",
                           out->of->format, text)
            : add_listed(text, place, text + front, out);
    free(place);
    return rc;
}

/* s3://BUCKET/SHARDS without a trailing '/': treated as a folder, unless it is empty (MR_EOPTION)
 * or has no archives. */
static int add_unnamed(const char *text, struct mr_tar_names *out)
{
    int rc = add_listed(text, text, "*", out);
    return rc == MR_EFORMAT || rc == MR_EOPTION ? add_name(out, text) : rc;
}

/* Adds a name without braces. In http URLs, '?' and '*' are literal. */
static int add_place(const char *text, struct mr_tar_names *out)
{
    struct stat st;
    bool url = mr_store_is_remote(text), http = strncmp(text, "http", 4) == 0 && url;
    size_t n = strlen(text);
    if (url ? n > 0 && text[n - 1] == '/'
            : !out->of->named(text) && stat(text, &st) == 0 && S_ISDIR(st.st_mode))
        return add_listed(text, text, "*", out);
    bool wild = strpbrk(text, "*?") && !http && (url || stat(text, &st) != 0);
    if (wild)
        return add_matching(text, out);
    return strncmp(text, "s3://", 5) == 0 && !out->of->named(text) ? add_unnamed(text, out)
                                                                   : add_name(out, text);
}

/* ---- braces ---- */

static int expand(const char *text, struct mr_tar_names *out);

/* Expands front + middle + back. */
static int expand_with(const char *front, size_t n_front, const char *middle, size_t n_middle,
                       const char *back, struct mr_tar_names *out)
{
    char shown[SHOWN];
    size_t n = n_front + n_middle + strlen(back);
    if (n >= MAX_NAME)
        return mr_error_set(MR_EOPTION, "%s:%.60s...: a name of %zu bytes: expected fewer than %u",
                            out->of->format, mr_url_show(front, shown, sizeof shown), n, MAX_NAME);
    char *text = NULL;
    if (asprintf(&text, "%.*s%.*s%s", (int)n_front, front, (int)n_middle, middle, back) < 0)
        return mr_error_nomem("list of shards", n + 1);
    int rc = expand(text, out);
    free(text);
    return rc;
}

/* Parses digits; false if there are none or more than 18. */
static bool read_number(const char *from, const char *to, uint64_t *out)
{
    uint64_t x = 0;
    if (from == to || to - from > 18)
        return false;
    for (const char *p = from; p < to; p++) {
        if (*p < '0' || *p > '9')
            return false;
        x = x * 10 + (uint64_t)(*p - '0');
    }
    *out = x;
    return true;
}

/* {000..127}: numbers get as many digits as the first one. */
static int expand_range(const char *text, const char *open, const char *dots, const char *close,
                        struct mr_tar_names *out)
{
    char shown[SHOWN];
    uint64_t first = 0, last = 0;
    mr_url_show(text, shown, sizeof shown);
    if (!read_number(open + 1, dots, &first) || !read_number(dots + 2, close, &last))
        return mr_error_set(MR_EOPTION,
                            "%s:%s: '%.*s': expected {FIRST..LAST} with numbers, or {A,B,C}",
                            out->of->format, shown, (int)MR_MIN(close - open + 1, 60), open);
    if (last < first || last - first >= MAX_SHARDS)
        return mr_error_set(
            MR_EOPTION, "%s:%s: '%.*s': expected the first at most the last, and at most %u shards",
            out->of->format, shown, (int)MR_MIN(close - open + 1, 60), open, MAX_SHARDS);
    for (uint64_t i = first; i <= last; i++) {
        char number[32];
        int n = snprintf(number, sizeof number, "%0*llu", (int)(dots - open - 1),
                         (unsigned long long)i);
        int rc = expand_with(text, (size_t)(open - text), number, (size_t)n, close + 1, out);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int expand_choice(const char *text, const char *open, const char *close,
                         struct mr_tar_names *out)
{
    for (const char *from = open + 1; from <= close;) {
        size_t n = strcspn(from, ",}");
        int rc = expand_with(text, (size_t)(open - text), from, n, close + 1, out);
        if (rc < 0)
            return rc;
        from += n + 1;
    }
    return 0;
}

static int expand(const char *text, struct mr_tar_names *out)
{
    char shown[SHOWN];
    const char *open = strchr(text, '{');
    if (!open)
        return add_place(text, out);
    const char *close = strchr(open, '}');
    if (!close || memchr(open + 1, '{', (size_t)(close - open - 1)))
        return mr_error_set(MR_EOPTION,
                            "%s:%s: expected each '{' closed by a '}', and none within another",
                            out->of->format, mr_url_show(text, shown, sizeof shown));
    const char *dots = memmem(open, (size_t)(close - open), "..", 2);
    bool choice = memchr(open, ',', (size_t)(close - open)) || !dots;
    return choice ? expand_choice(text, open, close, out)
                  : expand_range(text, open, dots, close, out);
}

int mr_tar_names_expand(const struct mr_tar_naming *of, const char *text, struct mr_tar_names *out)
{
    *out = (struct mr_tar_names){.of = of};
    char *copy = strdup(text);
    if (!copy)
        return mr_error_nomem("list of shards", strlen(text) + 1);
    int rc = 0;
    for (char *part = copy; part && rc == 0;) {
        char *end = strstr(part, "::");
        if (end)
            *end = 0;
        rc = expand(part, out);
        part = end ? end + 2 : NULL;
    }
    free(copy);
    if (rc < 0)
        mr_tar_names_free(out);
    return rc;
}
