/* Which rank of a job this process is, by its environment: a note of its part, for those who look
 * at the recordings of all ranks. The order and the marks are those of place.h, whose library the
 * recorder does not link. */
#include "recorder/private.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *mark; /* must be set, too; NULL: the other two are enough */
    const char *rank, *world[2];
} launchers[] = {
    {"TORCHELASTIC_RUN_ID", "RANK", {"WORLD_SIZE", "WORLD_SIZE"}},
    {NULL, "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"}},
    {NULL, "PMI_RANK", {"PMI_SIZE", "PMI_SIZE"}},
    {"SLURM_STEP_ID", "SLURM_PROCID", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}},
    {NULL, "RANK", {"WORLD_SIZE", "WORLD_SIZE"}},
};

/* -1: not set, or no number. */
static int64_t number_of(const char *name)
{
    const char *text = getenv(name);
    char *end = NULL;
    if (!text || !*text || text[strspn(text, "0123456789")] || strlen(text) > 9)
        return -1;
    return strtol(text, &end, 10);
}

void record_rank_find(int64_t *out_rank, int64_t *out_world)
{
    *out_rank = *out_world = -1;
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        const char *mark = launchers[i].mark ? getenv(launchers[i].mark) : "1";
        int64_t rank = number_of(launchers[i].rank), world = number_of(launchers[i].world[0]);
        if (world < 0)
            world = number_of(launchers[i].world[1]);
        if (!mark || !*mark || rank < 0 || world <= rank)
            continue;
        *out_rank = rank;
        *out_world = world;
        return;
    }
}
