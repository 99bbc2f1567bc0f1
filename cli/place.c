/* Which of how many ranks this run is: as the options say, else as the launcher does. */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <millrace/comm.h>
#include <millrace/place.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Other programs use these names, too: one alone does not make ranks. */
static void note_half(void)
{
    bool rank = getenv("RANK") != NULL, world = getenv("WORLD_SIZE") != NULL;
    if (rank != world)
        cli_say("%s is ignored, because %s is not set: this is rank 0 of 1",
                rank ? "RANK" : "WORLD_SIZE", rank ? "WORLD_SIZE" : "RANK");
}

int cli_place(const char *rank_text, const char *world_text, uint32_t *out_rank,
              uint32_t *out_world)
{
    struct mr_place place = {.size = sizeof place};
    uint64_t rank, world;
    int rc = parse("--rank", rank_text, 0, &rank);
    if (rc < 0)
        return rc;
    rc = parse("--world", world_text, 1, &world);
    if (rc < 0)
        return rc;
    bool rank_given = rank != UINT64_MAX, world_given = world != UINT64_MAX;
    bool asked = !(rank_given && world_given) && world != 1; /* --world 1: each process does all */
    rc = asked ? mr_place_query(&place) : 0;
    if (rc < 0)
        return rc;
    *out_world = world_given ? (uint32_t)world : asked ? place.world : 1;
    *out_rank = rank_given ? (uint32_t)rank : asked ? place.rank : 0;
    if (asked && place.launcher[0])
        cli_say("rank %" PRIu32 " of %" PRIu32 ", from %s; --rank and --world override that",
                *out_rank, *out_world, place.launcher);
    else if (asked && !rank_given && !world_given)
        note_half();
    return 0;
}

/* ---- blocks that belong to nodes ---- */

const char *const cli_affinities[] = {"none", "node", "rank", NULL};

/* The number of machines by the launcher; 0: it does not say. */
static uint64_t nodes_of(const struct mr_place *place)
{
    const char *name = strcmp(place->launcher, "torchrun") == 0  ? "GROUP_WORLD_SIZE"
                       : strcmp(place->launcher, "slurm") == 0   ? "SLURM_STEP_NUM_NODES"
                       : strcmp(place->launcher, "openmpi") == 0 ? "OMPI_MCA_orte_num_nodes"
                                                                 : NULL;
    const char *text = name ? getenv(name) : NULL;
    uint64_t n = text && strspn(text, "0123456789") ? strtoull(text, NULL, 10) : 0;
    return n <= MOST ? n : 0;
}

/*
 * How many machines the ranks are on. Each rank must get the same number, and sees only how many
 * ranks its own machine has: so all machines must have the same. A rank cannot always tell that
 * they do not (2 + 1 + 1 ranks) if its launcher does not give the number of machines; the ranks of
 * `train` compare their orders (train_ranks_agree()).
 */
static int count_nodes(uint32_t rank, uint32_t world, uint32_t *out)
{
    struct mr_place place = {.size = sizeof place};
    int rc = mr_place_query(&place);
    if (rc < 0)
        return rc;
    if (place.local_world == 0 || place.world != world || place.rank != rank)
        return mr_error_set(MR_EOPTION,
                            "--affinity node: no launcher says which ranks share a machine: give "
                            "--sampler random:block=N,nodes=N,ranks=%" PRIu32,
                            world);
    uint64_t nodes = nodes_of(&place);
    *out = world / place.local_world;
    if (world % place.local_world != 0 || (nodes > 0 && nodes != *out))
        return mr_error_set(MR_EOPTION,
                            "--affinity node: this machine has %" PRIu32 " of %" PRIu32
                            " ranks: expected the same number on each machine: give each rank "
                            "--sampler random:block=N,nodes=N,ranks=%" PRIu32,
                            place.local_world, world, world);
    if (rank % place.local_world != place.local_rank)
        cli_warn("--affinity node: ranks do not follow each other machine by machine: some read "
                 "blocks that another machine has cached (mpirun --map-by slot, srun "
                 "--distribution block)");
    return 0;
}

int cli_affinity(int affinity, const char *sampler, uint32_t rank, uint32_t world, char **out)
{
    uint32_t nodes = world;
    *out = NULL;
    if (affinity == CLI_AFFINITY_NONE)
        return 0;
    if (sampler && (strstr(sampler, "nodes=") || strstr(sampler, "ranks=")))
        return mr_error_set(MR_EOPTION,
                            "--affinity %s with --sampler %s: --affinity sets nodes= and ranks= "
                            "itself: give one of the two",
                            cli_affinities[affinity], sampler);
    if (!sampler || strncmp(sampler, "random:", 7) != 0 || !strstr(sampler, "block="))
        return mr_error_set(MR_EOPTION,
                            "--affinity %s: expected --sampler random:block=N[,window=N], whose "
                            "blocks then belong to a %s",
                            cli_affinities[affinity], cli_affinities[affinity]);
    if (world == 1)
        return 0;
    int rc = affinity == CLI_AFFINITY_NODE ? count_nodes(rank, world, &nodes) : 0;
    if (rc < 0)
        return rc;
    if (asprintf(out, "%s,nodes=%" PRIu32 ",ranks=%" PRIu32, sampler, nodes, world) < 0)
        return mr_error_set(-ENOMEM, "--affinity: no memory");
    return 0;
}

bool cli_starts_mpi(const struct mr_place *place)
{
    return strcmp(place->launcher, "torchrun") != 0 && strcmp(place->launcher, "env") != 0;
}

/* Options may not have been read to their end. */
static bool says_alone(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--comm=none") == 0 ||
            (strcmp(argv[i], "none") == 0 && strcmp(argv[i - 1], "--comm") == 0))
            return true;
    return false;
}

void cli_refuse_ranks(int code, int argc, char **argv)
{
    const uint64_t limit_ns = 30000000000u;
    struct mr_comm_opts opts;
    struct mr_comm *comm = NULL;
    mr_comm_opts_init(&opts);
    if (mr_place_query(&opts.place) < 0 || opts.place.world == 1 || says_alone(argc, argv))
        return;
    const char *launcher = opts.place.launcher; /* mpirun of Open MPI and torchrun end the others */
    if (strcmp(launcher, "pmi") != 0 && strcmp(launcher, "slurm") != 0)
        return;
    opts.engine = "mpi";
    opts.timeout_ns = limit_ns;
    opts.refusal = cli_first_error();
    cli_results_apart();
    if (mr_comm_open(&opts, &comm) != MR_EPEER)
        return;
    fflush(NULL);
    _exit(code);
}
