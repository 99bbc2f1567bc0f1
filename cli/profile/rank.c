/* A job's ranks each write a recording of their own: which rank this is, and what its file is
 * called. */
#include "profile/profile.h"

#include <millrace/place.h>
#include <string.h>
#include <unistd.h>

void profile_find_rank(struct profile_run *run)
{
    struct mr_place place = {.size = sizeof place};
    if (run->options->merge)
        return;
    if (mr_place_query(&place) < 0)
        cli_warn("this process is taken for one alone: %s", mr_last_error());
    else if (place.launcher[0] && place.world > 1)
        run->world = place.world;
    run->rank = place.rank;
}

/* The text of %r and its kin; NULL: it stands for itself. */
static const char *field_of(const struct profile_run *run, char c, char text[256])
{
    text[0] = 0;
    switch (c) {
    case 'r':
        snprintf(text, 256, "%u", run->rank);
        return text;
    case 'p':
        snprintf(text, 256, "%d", (int)getpid());
        return text;
    case 'h':
        if (gethostname(text, 255) != 0)
            return NULL;
        text[255] = 0;
        return text;
    case '%':
        return "%";
    default:
        return NULL;
    }
}

/* ".rank0" before the last ending. */
static bool add_rank(struct profile_run *run)
{
    char ending[256] = "", *slash = strrchr(run->output, '/');
    char *dot = strrchr(slash ? slash : run->output, '.');
    if (dot && strlen(dot) < sizeof ending) {
        snprintf(ending, sizeof ending, "%s", dot);
        *dot = 0;
    }
    size_t used = strlen(run->output), left = sizeof run->output - used;
    int n = snprintf(run->output + used, left, ".rank%u%s", run->rank, ending);
    return n > 0 && (size_t)n < left;
}

bool profile_name_rank(struct profile_run *run, const char *named)
{
    char text[256];
    size_t n = 0;
    bool tells = false;
    for (const char *at = named; *at; at++) {
        const char *field = *at == '%' ? field_of(run, at[1], text) : NULL;
        size_t bytes = field ? strlen(field) : 1;
        if (n + bytes >= sizeof run->output)
            return false;
        memcpy(run->output + n, field ? field : at, bytes);
        n += bytes;
        tells = tells || (field && (at[1] == 'r' || at[1] == 'p'));
        at += field ? 1 : 0;
    }
    run->output[n] = 0;
    return tells || run->world == 0 || add_rank(run);
}
