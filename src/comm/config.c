/* Configurations of ranks, compared: lines "name=value". */
#include "comm/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 3 /* whose differences are listed */

struct line {
    const char *name, *value;
    int name_bytes, value_bytes;
};

/* The next line. [out] at: behind it. False: there is none. */
static bool next_line(const char **at, struct line *out)
{
    if (!**at)
        return false;
    size_t bytes = strcspn(*at, "\n"), name = strcspn(*at, "=\n");
    *out = (struct line){*at, *at + name, (int)name, 0};
    if (name < bytes) {
        out->value++;
        out->value_bytes = (int)(bytes - name - 1);
    }
    *at += bytes + ((*at)[bytes] == '\n');
    return true;
}

static bool find(const char *text, const struct line *like, struct line *out)
{
    while (next_line(&text, out))
        if (out->name_bytes == like->name_bytes &&
            memcmp(out->name, like->name, (size_t)like->name_bytes) == 0)
            return true;
    *out = (struct line){.value = "(none)", .value_bytes = 6};
    return false;
}

static void say(FILE *to, int *n, uint32_t rank, const struct line *name, const struct line *there,
                const struct line *here)
{
    if (*n == 0)
        fprintf(to, "rank %u has ", rank);
    fprintf(to, "%s%.*s %.*s where rank 0 has %.*s", (*n)++ ? ", " : "", name->name_bytes,
            name->name, there->value_bytes, there->value, here->value_bytes, here->value);
}

/* Returns how many lines differ. */
static int compare(FILE *to, uint32_t rank, const char *zero, const char *other)
{
    int n = 0;
    struct line a, b;
    for (const char *at = zero; next_line(&at, &a);)
        if (!find(other, &a, &b) || a.value_bytes != b.value_bytes ||
            memcmp(a.value, b.value, (size_t)a.value_bytes) != 0)
            say(to, &n, rank, &a, &b, &a);
    for (const char *at = other; next_line(&at, &b);)
        if (!find(zero, &b, &a))
            say(to, &n, rank, &b, &b, &a);
    return n;
}

char *mr_comm_differences(char *const *texts, uint32_t world)
{
    char *text = NULL;
    size_t bytes;
    uint32_t told = 0, more = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return NULL;
    for (uint32_t r = 1; r < world; r++) {
        if (strcmp(texts[r], texts[0]) == 0)
            continue;
        if (told == MOST_RANKS) {
            more++;
            continue;
        }
        if (told)
            fputs("; ", to);
        told += compare(to, r, texts[0], texts[r]) > 0;
    }
    if (more)
        fprintf(to, "; and %u more ranks differ", more);
    return fclose(to) == 0 ? text : NULL;
}

char *mr_comm_refusals(char *const *texts, uint32_t world)
{
    char *text = NULL;
    size_t bytes;
    uint32_t n = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return NULL;
    for (uint32_t r = 0; r < world; r++)
        if (texts[r][0] == '=' && n++ < MOST_RANKS)
            fprintf(to, "%srank %u cannot take part: %s", n > 1 ? "; " : "", r, texts[r] + 1);
    if (n > MOST_RANKS)
        fprintf(to, "; and %u more ranks", n - MOST_RANKS);
    return fclose(to) == 0 ? text : NULL;
}

int mr_comm_check_config(const char *text)
{
    struct line line;
    for (const char *at = text; next_line(&at, &line);)
        if (line.name_bytes == 0 || line.name[line.name_bytes] != '=')
            return mr_error_set(MR_EOPTION, "comm: config: \"%.*s\": expected lines \"name=value\"",
                                line.name_bytes, line.name);
    return 0;
}
