/*
 * Who this process is among those that a launcher started.
 *
 * Launchers nest: mpirun in a Slurm job gives every rank the batch script's SLURM_PROCID=0, and
 * torchrun may run under srun. So the innermost kind comes first.
 */
#include "base/base.h"

#include <millrace/place.h>
#include <stdio.h>
#include <string.h>

#define MOST 1048576u /* ranks */

static const struct launcher {
    const char *name;
    const char *mark; /* set: it is this one. NULL: rank or world is */
    bool both;        /* instead of mark: rank and world are */
    const char *rank, *world[2];
    const char *local_rank[2], *local_world[2], *restart, *job; /* NULL: it has none */
} launchers[] = {
    {.name = "torchrun",
     .mark = "TORCHELASTIC_RUN_ID",
     .rank = "RANK",
     .world = {"WORLD_SIZE"},
     .local_rank = {"LOCAL_RANK"},
     .local_world = {"LOCAL_WORLD_SIZE"},
     .restart = "TORCHELASTIC_RESTART_COUNT",
     .job = "TORCHELASTIC_RUN_ID"},
    {.name = "openmpi",
     .rank = "OMPI_COMM_WORLD_RANK",
     .world = {"OMPI_COMM_WORLD_SIZE"},
     .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
     .local_world = {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
    {.name = "pmi",
     .rank = "PMI_RANK",
     .world = {"PMI_SIZE"},
     .local_rank = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
     .local_world = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}},
    {.name = "slurm",
     .mark = "SLURM_STEP_ID", /* a batch script has the other two alone, and is no rank */
     .rank = "SLURM_PROCID",
     .world = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     .local_rank = {"SLURM_LOCALID"},
     .restart = "SLURM_RESTART_COUNT",
     .job = "SLURM_JOB_ID"},
    {.name = "env",
     .both = true,
     .rank = "RANK",
     .world = {"WORLD_SIZE"},
     .local_rank = {"LOCAL_RANK"},
     .local_world = {"LOCAL_WORLD_SIZE"}},
};

/* NULL: not set, or empty. */
static const char *get(const char *name)
{
    const char *value = name ? getenv(name) : NULL;
    return value && *value ? value : NULL;
}

/* The first of the two that is set, else the first. */
static const char *either(const char *const names[2])
{
    return !get(names[0]) && get(names[1]) ? names[1] : names[0];
}

static bool is_used(const struct launcher *l)
{
    bool rank = get(l->rank) != NULL, world = get(either(l->world)) != NULL;
    if (l->both)
        return rank && world;
    return l->mark ? get(l->mark) != NULL : rank || world;
}

/* [out] out: on success; unchanged where the variable is not set and optional. */
static int read_number(const struct launcher *l, const char *name, bool required, uint32_t *out)
{
    const char *text = get(name);
    char *end = NULL;
    if (!text && !required)
        return 0;
    if (!text)
        return mr_error_set(MR_EOPTION,
                            "environment: %s is not set, though %s seems to have started this "
                            "process: set it, or unset %s",
                            name, l->name, l->mark ? l->mark : "the launcher's other variables");
    unsigned long long value = strspn(text, "0123456789") ? strtoull(text, &end, 10) : 0;
    if (!end || *end || value > MOST)
        return mr_error_set(MR_EOPTION,
                            "environment: %s is \"%.64s\": expected a number from 0 to %u", name,
                            text, MOST);
    *out = (uint32_t)value;
    return 0;
}

static int check_below(const char *rank_name, uint32_t rank, const char *world_name, uint32_t world)
{
    if (rank < world)
        return 0;
    return mr_error_set(MR_EOPTION,
                        "environment: %s is %u and %s is %u: expected a rank below the number of "
                        "processes; unset those that another launcher left",
                        rank_name, rank, world_name, world);
}

/* Slurm's list of tasks per node, "2(x3),1": the node-th. 0: not in it. */
static uint32_t tasks_of_node(const char *list, uint64_t node)
{
    while (list && *list) {
        char *end = NULL;
        unsigned long long tasks = strtoull(list, &end, 10), times = 1;
        if (end == list)
            return 0;
        if (!strncmp(end, "(x", 2)) {
            times = strtoull(end + 2, &end, 10);
            end += *end == ')';
        }
        if (node < times)
            return tasks <= MOST ? (uint32_t)tasks : 0;
        node -= times;
        list = *end == ',' ? end + 1 : NULL;
    }
    return 0;
}

/* Of Slurm, which has no variable for the number itself. */
static void read_slurm_node(struct mr_place *out)
{
    const char *node = get("SLURM_NODEID");
    out->local_world =
        node ? tasks_of_node(get("SLURM_STEP_TASKS_PER_NODE"), strtoull(node, NULL, 10)) : 0;
}

static int read_local(const struct launcher *l, struct mr_place *out)
{
    const char *rank = either(l->local_rank), *world = either(l->local_world);
    int rc = read_number(l, rank, false, &out->local_rank);
    if (rc < 0)
        return rc;
    if (world)
        rc = read_number(l, world, false, &out->local_world);
    else
        read_slurm_node(out);
    if (rc < 0)
        return rc;
    if (!get(rank) || out->local_world == 0) {
        out->local_rank = out->local_world = 0; /* one without the other says nothing */
        return 0;
    }
    rc = check_below(rank, out->local_rank, world ? world : "the node's part of the step",
                     out->local_world);
    if (rc < 0)
        return rc;
    if (out->local_world <= out->world)
        return 0;
    return mr_error_set(MR_EOPTION,
                        "environment: %s: %u processes on this machine, of %u in all: expected no "
                        "more than all; unset those that another launcher left",
                        world ? world : "SLURM_STEP_TASKS_PER_NODE", out->local_world, out->world);
}

static int read_place(const struct launcher *l, struct mr_place *out)
{
    const char *world = either(l->world);
    int rc = read_number(l, l->rank, true, &out->rank);
    if (rc < 0)
        return rc;
    rc = read_number(l, world, true, &out->world);
    if (rc < 0)
        return rc;
    rc = check_below(l->rank, out->rank, world, out->world);
    if (rc < 0)
        return rc;
    rc = read_number(l, l->restart, false, &out->restart_count);
    if (rc < 0)
        return rc;
    snprintf(out->launcher, sizeof out->launcher, "%s", l->name);
    return read_local(l, out);
}

/* NULL: none. */
static const struct launcher *find_launcher(void)
{
    for (size_t i = 0; i < MR_COUNT(launchers); i++)
        if (is_used(&launchers[i]))
            return &launchers[i];
    return NULL;
}

int mr_place_query(struct mr_place *out)
{
    struct mr_place place = {.world = 1};
    int rc = mr_info_check("place", out, sizeof place);
    if (rc < 0)
        return rc;
    const struct launcher *l = find_launcher();
    rc = l ? read_place(l, &place) : 0;
    return rc < 0 ? rc : mr_info_give("place", out, &place, sizeof place);
}

/* torchrun's file of errors is DIR/ID_RANDOM/attempt_N/RANK/error.json. Its agent, the process that
 * restarts a machine's ranks, makes ID_RANDOM once. Returns its length; 0: no such path. */
static size_t agent_name(const char *id, const char **out)
{
    const char *path = get("TORCHELASTIC_ERROR_FILE"), *end = NULL;
    size_t id_bytes = strlen(id);
    for (const char *at = path; at && (at = strstr(at, "/attempt_")); at++)
        end = at;
    if (!end)
        return 0;
    const char *start = end;
    while (start > path && start[-1] != '/')
        start--;
    if (strncmp(start, id, id_bytes) != 0 || start[id_bytes] != '_')
        return 0;
    *out = start;
    return (size_t)(end - start);
}

/* torchrun's ID is "none" unless the user gives one. Then only the agent tells jobs apart. A given
 * ID counts without the agent: if a machine is lost, rank 0 restarts under another one. */
static const char *find_job(const struct launcher *l, size_t *bytes)
{
    const char *id = get(l->job), *agent = NULL;
    if (id && strcmp(id, "none") == 0) {
        *bytes = agent_name(id, &agent);
        return agent;
    }
    *bytes = id ? strlen(id) : 0;
    return id;
}

int mr_place_job(char *out, size_t cap)
{
    struct mr_place place = {.size = sizeof place};
    size_t bytes = 0;
    if (!out || cap == 0)
        return mr_error_set(MR_EMISUSE, "mr_place_job: out is NULL, or cap is 0");
    int rc = mr_place_query(&place);
    if (rc < 0)
        return rc;
    const struct launcher *l = find_launcher();
    const char *job = l ? find_job(l, &bytes) : NULL;
    if (job && strlen(l->name) + 1 + bytes >= cap)
        return mr_error_set(MR_ELIMIT, "mr_place_job: %zu bytes: expected room for %zu", cap,
                            strlen(l->name) + bytes + 2);
    snprintf(out, cap, "%s%s%.*s", job ? l->name : "", job ? " " : "", (int)bytes, job ? job : "");
    return 0;
}
