/* A step of bench story on a simulated device, which computes nothing: the loader is real, a step
 * of training is a time. */
#ifndef CLI_BENCH_STORY_SIM_H
#define CLI_BENCH_STORY_SIM_H

#include "pipeline.h"

struct story_sim {
    const char *device, *dataset, *transform;
    const struct mr_loader_opts *loader;
    uint64_t step_ns, time_ns, seed;
    /* result */
    struct mr_device_info info;
    char data[256]; /* what the data set is */
    uint64_t steps, samples, ns;
    double waited; /* share of the time in which the device had no step to do */
    struct mr_loader_stats stats;
};

enum { STORY_WARM_STEPS = 20 };
/* Runs it, after STORY_WARM_STEPS steps. Returns 0 or the error. */
int story_simulate(struct story_sim *s);

#endif
