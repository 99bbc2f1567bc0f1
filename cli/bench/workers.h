/* What bench workers measures: workers.c does it, cmd_bench_workers.c shows it. */
#ifndef CLI_BENCH_WORKERS_H
#define CLI_BENCH_WORKERS_H

#include "cli.h"

struct workers_opts {
    struct cli_common common;
    char *device, *plot, *list;
    uint64_t samples, batch_size, step_ns, time_ns;
};

enum workers_set { WORKERS_MEMORY, WORKERS_DELAY, WORKERS_N_SETS };

#define WORKERS_MAX   16 /* numbers of workers */
#define WORKERS_CELLS (WORKERS_N_SETS * WORKERS_MAX * 4)

struct workers_cell {
    enum workers_set set;
    uint32_t workers;
    bool pinned, blocking;
    double transfer_us; /* mean a batch, by the device's events; negative: could not be timed */
    double step_us;     /* mean a batch, from one handed out to the next */
    double samples_per_s;
};

struct workers_result {
    struct mr_device_info info;
    double link_samples_per_s, step_samples_per_s; /* limits; 0: none or unknown */
    struct workers_cell cell[WORKERS_CELLS];
    int n;
};

/* The lower of the two limits; 0: unknown. */
double workers_limit(const struct workers_result *r);

/* Returns 0 or the library's error. */
int workers_measure(struct mr_device *dev, const struct workers_opts *o, const uint32_t *list, int n_list,
                    struct workers_result *out);

#endif
