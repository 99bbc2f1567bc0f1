/*
 * One report of all ranks: what each did in its steps, and who holds the others up.
 *
 * own.c keeps what this process did, as a text that rank 0 collects or that --report-dir writes to
 * a file of each rank; all.c reads the texts of all ranks, adds them to a step log
 * (millrace/straggler.h), and says what came of it; metrics.c writes it for dashboards.
 */
#ifndef CLI_RANKS_RANKS_H
#define CLI_RANKS_RANKS_H

#include "cli.h"

#define RANKS_KEPT 1024 /* latest steps of a rank's file */
#define RANKS_HOST 64

struct ranks_own {
    const char *command; /* "train", "feed" */
    uint32_t rank, world;
    bool sums;                 /* its sums over the ranks are timed */
    bool lockstep;             /* ranks wait for each other */
    struct mr_rank_step *step; /* a ring of RANKS_KEPT */
    uint64_t n, sent;          /* steps added; of these, in an earlier text */
};

/* Returns 0 or -ENOMEM. */
int ranks_own_open(struct ranks_own *own);
void ranks_own_close(struct ranks_own *own);
void ranks_own_add(struct ranks_own *own, const struct mr_rank_step *step);
/* The steps that are still kept, or of these, what was not sent before. stats: of the loader. To be
 * freed; NULL: no memory. */
char *ranks_own_text(struct ranks_own *own, const struct mr_loader_stats *stats, bool fresh);
/* --report-dir. check: before the run; makes the folder. Print errors, return an exit code. */
int ranks_dir_check(const char *dir, const struct ranks_own *own, int force);
int ranks_dir_write(const char *dir, struct ranks_own *own, const struct mr_loader_stats *stats,
                    int force);

/* What a rank's latest text says of it. */
struct ranks_fact {
    char host[RANKS_HOST], bottleneck[16];
    double share[MR_N_STAGES]; /* of its workers' time */
    double read_bytes_per_s;
};

struct ranks_all {
    uint32_t world;
    bool sums, lockstep;
    char command[16];
    struct mr_step_log *log; /* NULL: nothing was added yet */
    struct ranks_fact *rank;
};

/* Adds the texts of all ranks, in any order: the steps that all have. world: how many. names: of
 * files, for errors; NULL: collected. Returns 0 or an error (mr_last_error()). */
int ranks_all_add(struct ranks_all *all, char *const *texts, char *const *names, uint32_t world);
/* As mr_step_log_query(); of ranks whose waits are not timed none is named. */
int ranks_all_find(const struct ranks_all *all, struct mr_straggler *out);
void ranks_all_free(struct ranks_all *all);
/* The sentence. To be freed; NULL: no memory. */
char *ranks_all_sentence(const struct ranks_all *all);
void ranks_all_print(const struct ranks_all *all, FILE *out); /* a table and the sentence */
void ranks_all_json(const struct ranks_all *all, struct mr_json *json); /* members of an object */

/* OpenMetrics text, written whole. Returns 0 or an error (mr_last_error()). */
int ranks_metrics_write(const struct ranks_all *all, const char *path);

/* report --ranks DIR: an exit code. metrics: a file, or NULL. */
int ranks_report(const char *dir, const char *metrics, int force);

#endif
