/* Which of how many ranks this run is: as the options say, else as the launcher does. */
#include "feed/feed.h"

#include <inttypes.h>
#include <millrace/place.h>
#include <stdlib.h>
#include <string.h>

#define MOST (1 << 20)

/* [out] out: on success, UINT64_MAX: "auto". */
static int parse(const char *option, const char *text, uint64_t least, uint64_t *out)
{
    char *end = NULL;
    *out = UINT64_MAX;
    if (strcmp(text, "auto") == 0)
        return 0;
    *out = strspn(text, "0123456789") ? strtoull(text, &end, 10) : 0;
    if (end && !*end && *out >= least && *out <= MOST)
        return 0;
    return mr_error_set(MR_EOPTION, "%s %s: expected auto or a number, %" PRIu64 "..%d", option,
                        text, least, MOST);
}

int feed_place(struct feed_opts *opts)
{
    struct mr_place place = {.size = sizeof place};
    uint64_t rank, world;
    int rc = parse("--rank", opts->rank_text, 0, &rank);
    if (rc < 0)
        return rc;
    rc = parse("--world", opts->world_text, 1, &world);
    if (rc < 0)
        return rc;
    bool rank_given = rank != UINT64_MAX, world_given = world != UINT64_MAX;
    bool asked = !(rank_given && world_given) && world != 1; /* --world 1: each process reads all */
    rc = asked ? mr_place_query(&place) : 0;
    if (rc < 0)
        return rc;
    opts->loader.world = world_given ? (uint32_t)world : asked ? place.world : 1;
    opts->loader.rank = rank_given ? (uint32_t)rank : asked ? place.rank : 0;
    if (asked && place.launcher[0])
        cli_say("rank %" PRIu32 " of %" PRIu32 ", from %s; --rank and --world override that",
                opts->loader.rank, opts->loader.world, place.launcher);
    return 0;
}
