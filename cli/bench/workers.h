/* What bench workers measures: workers.c does it, cmd_bench_workers.c shows the grid, and
 * workers_dataset.c what it finds on one data set. */
#ifndef CLI_BENCH_WORKERS_H
#define CLI_BENCH_WORKERS_H

#include "pipeline.h"

struct workers_opts {
    struct cli_common common;
    char *device, *plot, *list, *transform, *delay;
    struct mr_loader_opts loader; /* its batch_size */
    uint64_t samples, step_ns, time_ns, repeats, work_ns;
    uint64_t delay_ns, max_delay_ns; /* of `delay` */
};

enum workers_set { WORKERS_MEMORY, WORKERS_DELAY, WORKERS_N_SETS };

#define WORKERS_MAX 16 /* numbers of workers */

struct workers_cell {
    enum workers_set set;
    uint32_t workers; /* 0: one, which loads only while the consumer waits for it */
    bool pinned, host_waits;
    bool one_read;      /* for each worker, not as many as hide the latency; 0 workers: always */
    double transfer_us; /* mean a batch, by the device's events; negative: could not be timed */
    double step_us;     /* mean a batch, from one handed out to the next */
    double samples_per_s;
    struct mr_loader_stats stats; /* at its end */
};

struct workers {
    const struct workers_opts *o;
    uint32_t list[WORKERS_MAX];
    int n_list;
    struct mr_device *dev;
    struct mr_dataset *set[WORKERS_N_SETS]; /* with a DATASET: the first is it */
    float *x;
    /* of the grid; NaN: unknown */
    double pinned_copy, pinned_goes_on, pageable_goes_on;
    double link_samples_per_s, step_samples_per_s; /* limits; 0: none or unknown */
};

/* The lower of the two limits; 0: unknown. */
double workers_limit(const struct workers *w);

/* Makes the data sets. Returns 0 or the library's error; close in either case. */
int workers_open(struct workers *w, struct mr_device *dev, const struct mr_device_info *info);
/* The same for one data set that is named. */
int workers_open_dataset(struct workers *w, struct mr_device *dev, const char *uri);
void workers_close(struct workers *w);

/* Runs one loader. Returns 0 or the library's error. */
int workers_measure(const struct workers *w, struct workers_cell *cell);

/* workers_dataset.c: the table of one data set. list: the numbers of workers. Returns an exit
 * code. */
int workers_dataset_run(struct workers_opts *o, const struct workers *list, const char *uri);

#endif
