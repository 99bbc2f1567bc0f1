/*
 * Ranks made by fork: the data set is opened once, before the processes are made, and each of them
 * opens a loader of its own for its part. A loader cannot be inherited: it has threads. Each rank
 * prints what limits it.
 *
 *   cc fork_ranks.c $(pkg-config --cflags --libs millrace) -o fork_ranks && ./fork_ranks mnist/
 */
#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORLD 3

/* A .gz file is unpacked in the background, by a thread that the children do not have: reading the
 * last sample waits for it. */
static int finish_unpacking(struct mr_dataset *ds)
{
    struct mr_stored stored[MR_MAX_FIELDS];
    int rc = mr_dataset_read_stored(ds, mr_dataset_length(ds) - 1, stored);
    if (rc == 0)
        mr_stored_free(stored);
    return rc;
}

static int feed(struct mr_loader *loader, uint64_t *n)
{
    struct mr_batch b = {.size = sizeof b};
    int rc;
    while ((rc = mr_loader_next(loader, NULL, &b)) > 0) {
        *n += b.n; /* train here */
        mr_loader_release(loader, &b, NULL);
    }
    return rc;
}

/* One rank. Returns its exit status. */
static int run_rank(struct mr_dataset *ds, uint32_t rank)
{
    struct mr_sampler *order = NULL;
    struct mr_loader *loader = NULL;
    struct mr_loader_opts opts;
    struct mr_loader_stats stats = {.size = sizeof stats};
    uint64_t n = 0;
    int rc = mr_sampler_open("random", mr_dataset_length(ds), 1, &order); /* one seed for all */
    if (rc < 0)
        goto done;
    mr_loader_opts_init(&opts);
    opts.rank = rank;
    opts.world = WORLD;
    opts.workers = 1; /* 0 would be all processors for each rank */
    rc = mr_loader_open(ds, order, NULL, NULL, &opts, &loader);
    if (rc < 0)
        goto done;
    rc = feed(loader, &n);
    if (rc < 0)
        goto done;
    rc = mr_loader_stats(loader, &stats);
    if (rc == 0)
        printf("rank %u: %llu samples; bottleneck %s: %s\n", rank, (unsigned long long)n,
               stats.bottleneck, stats.reason);
done:
    if (rc < 0)
        fprintf(stderr, "rank %u: %s\n", rank, mr_last_error());
    mr_loader_close(loader);
    mr_sampler_destroy(order);
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Waits for the ranks. Returns 0, or -1 if one failed. */
static int wait_for(const pid_t rank[], int n)
{
    int failed = 0;
    for (int i = 0; i < n; i++) {
        int status;
        if (waitpid(rank[i], &status, 0) < 0 || status != 0)
            failed = -1;
    }
    return failed;
}

int main(int argc, char **argv)
{
    struct mr_dataset *ds = NULL;
    pid_t rank[WORLD];
    int n = 0;
    if (mr_dataset_open(argc > 1 ? argv[1] : "mnist/", &ds) < 0 || finish_unpacking(ds) < 0) {
        fprintf(stderr, "fork_ranks: %s\n", mr_last_error());
        mr_dataset_close(ds);
        return EXIT_FAILURE;
    }
    for (; n < WORLD; n++) {
        rank[n] = fork();
        if (rank[n] < 0)
            break;
        if (rank[n] == 0) {
            int status = run_rank(ds, (uint32_t)n);
            mr_dataset_close(ds);
            return status;
        }
    }
    int failed = wait_for(rank, n);
    mr_dataset_close(ds);
    return failed || n < WORLD ? EXIT_FAILURE : EXIT_SUCCESS;
}
