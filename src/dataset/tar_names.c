/* Shards by name: brace ranges and lists. */
#include "dataset/tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_SHARDS 1000000u
#define MAX_NAME   8192u /* of a shard, with what stands in braces written out */

void mr_tar_names_free(struct mr_tar_names *names)
{
    for (uint64_t i = 0; i < names->n; i++)
        free(names->name[i]);
    free(names->name);
    *names = (struct mr_tar_names){0};
}

static int add_name(struct mr_tar_names *names, const char *name)
{
    if (names->n == MAX_SHARDS)
        return mr_error_set(MR_ELIMIT, "tar:%.200s: more than %u shards", name, MAX_SHARDS);
    if (!name[0])
        return mr_error_set(MR_EOPTION, "tar: an empty name in the list of shards");
    if (names->n == names->room) {
        uint64_t room = names->room ? names->room * 2 : 16;
        char **grown = realloc(names->name, room * sizeof *grown);
        if (!grown)
            return mr_error_nomem("list of shards", room * sizeof *grown);
        names->name = grown;
        names->room = room;
    }
    names->name[names->n] = strdup(name);
    if (!names->name[names->n])
        return mr_error_nomem("list of shards", strlen(name) + 1);
    names->n++;
    return 0;
}

static int expand(const char *text, struct mr_tar_names *out);

/* front + middle + back, expanded further. */
static int expand_with(const char *front, size_t n_front, const char *middle, size_t n_middle, const char *back,
                       struct mr_tar_names *out)
{
    size_t n = n_front + n_middle + strlen(back);
    if (n >= MAX_NAME)
        return mr_error_set(MR_EOPTION, "tar:%.60s...: a name of %zu bytes: want fewer than %u", front, n, MAX_NAME);
    char *text = NULL;
    if (asprintf(&text, "%.*s%.*s%s", (int)n_front, front, (int)n_middle, middle, back) < 0)
        return mr_error_nomem("list of shards", n + 1);
    int rc = expand(text, out);
    free(text);
    return rc;
}

/* Digits of `from`; false when there are none or more than 18. */
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

/* {000..127}: as wide as the first number is written. */
static int expand_range(const char *text, const char *open, const char *dots, const char *close,
                        struct mr_tar_names *out)
{
    uint64_t first = 0, last = 0;
    if (!read_number(open + 1, dots, &first) || !read_number(dots + 2, close, &last))
        return mr_error_set(MR_EOPTION, "tar:%.200s: '%.*s': want {FIRST..LAST} with numbers, or {A,B,C}", text,
                            (int)MR_MIN(close - open + 1, 60), open);
    if (last < first || last - first >= MAX_SHARDS)
        return mr_error_set(MR_EOPTION, "tar:%.200s: '%.*s': want the first at most the last, and at most %u shards",
                            text, (int)MR_MIN(close - open + 1, 60), open, MAX_SHARDS);
    int rc = 0;
    for (uint64_t i = first; i <= last && rc == 0; i++) {
        char number[32];
        int n = snprintf(number, sizeof number, "%0*llu", (int)(dots - open - 1), (unsigned long long)i);
        rc = expand_with(text, (size_t)(open - text), number, (size_t)n, close + 1, out);
    }
    return rc;
}

static int expand_choice(const char *text, const char *open, const char *close, struct mr_tar_names *out)
{
    int rc = 0;
    for (const char *from = open + 1; from <= close && rc == 0;) {
        size_t n = strcspn(from, ",}");
        rc = expand_with(text, (size_t)(open - text), from, n, close + 1, out);
        from += n + 1;
    }
    return rc;
}

static int expand(const char *text, struct mr_tar_names *out)
{
    const char *open = strchr(text, '{');
    if (!open)
        return add_name(out, text);
    const char *close = strchr(open, '}');
    if (!close || memchr(open + 1, '{', (size_t)(close - open - 1)))
        return mr_error_set(MR_EOPTION, "tar:%.200s: want each '{' closed by a '}', and none within another", text);
    const char *dots = memmem(open, (size_t)(close - open), "..", 2);
    bool choice = memchr(open, ',', (size_t)(close - open)) || !dots;
    return choice ? expand_choice(text, open, close, out) : expand_range(text, open, dots, close, out);
}

int mr_tar_names_expand(const char *text, struct mr_tar_names *out)
{
    *out = (struct mr_tar_names){0};
    char *copy = strdup(text);
    if (!copy)
        return mr_error_nomem(text, strlen(text) + 1);
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
