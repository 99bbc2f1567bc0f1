/*
 * millrace plan: what one machine measured, and what many would do. inputs.c reads the JSON of
 * feed, train and bench comm, and the options' rates; cmd_plan.c puts both into the library's model
 * (millrace/cluster.h) for each number of ranks; show.c prints and draws what came of it.
 */
#ifndef CLI_PLAN_PLAN_H
#define CLI_PLAN_PLAN_H

#include "cli.h"

#define PLAN_MOST 24 /* rows: powers of two up to 2^20, and the number itself */

struct plan_opts {
    struct cli_common common;
    uint64_t ranks, per_node, prefetch, batch, samples;
    int sweep, wire, overlap, force;
    char *link, *store, *plot;
    uint64_t step_ns, make_ns, params;
    double step_sigma, make_sigma, batch_bytes, requests, hour, million;
};

/* What the files and the options say. */
struct plan_input {
    struct mr_cluster_opts model;
    double samples;  /* of a rank's step */
    double requests; /* of it, to the store */
    uint64_t epoch;  /* samples of an epoch; 0: unknown */
    /* The smallest sum that was measured between machines, and how many machines and ranks of each
     * had a part in it; 0: none was. */
    double net_sum_ns, net_nodes, net_local;
    const char *slow_feed; /* a file whose loader waited for its consumer; NULL: none */
};

struct plan_row {
    uint32_t ranks;
    struct mr_cluster_step step;
    double samples_per_s, epoch_s, rent, requests; /* of an epoch: money and requests; NaN */
    double request_cost;
};

struct plan {
    const struct plan_opts *opts;
    struct plan_input in;
    struct plan_row row[PLAN_MOST];
    int n;
};

extern const struct mr_option plan_options[];

/* inputs.c. Returns an exit code; prints errors. */
int plan_read(struct plan_input *in, const struct plan_opts *o, int n, char **files);

/* show.c */
int plan_print(const struct plan *p);
int plan_json(const struct plan *p);
int plan_draw(const struct plan *p);

#endif
