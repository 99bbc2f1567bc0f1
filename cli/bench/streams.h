/* What bench streams measures: streams.c does it, cmd_bench_streams.c shows it. */
#ifndef CLI_BENCH_STREAMS_H
#define CLI_BENCH_STREAMS_H

#include "cli.h"

struct streams_opts {
    struct cli_common common;
    char *device, *plot;
    uint64_t n, size, repeats, pieces;
};

enum streams_way { STREAMS_ONE, STREAMS_EACH, STREAMS_RING, STREAMS_N_WAYS };
enum streams_engine { STREAMS_H2D, STREAMS_COMPUTE, STREAMS_D2H, STREAMS_N_ENGINES };

#define STREAMS_RING_SLOTS 3
#define STREAMS_MAX_N      256
#define STREAMS_MAX_PIECES 8
#define STREAMS_MAX_STEPS  (STREAMS_MAX_N + 2 * STREAMS_MAX_PIECES)
#define STREAMS_REPEATS    100

struct streams_way_result {
    double wall_ms, variation; /* median, by the host's clock: from the first call until all is back */
    double traced_ms;          /* of the run in which events were recorded around everything: their first to last */
    double busy_ms[STREAMS_N_ENGINES]; /* union of the engine's intervals in that run */
    double under_compute_ms;           /* copies (either way) and compute at once */
    double both_copies_ms;             /* H2D and D2H at once */
    uint64_t device_bytes;             /* held for inputs, results and the weights */
};

struct streams_result {
    struct mr_device_info info;
    double alone_ms[STREAMS_N_ENGINES]; /* all n of each kind with nothing else under way */
    double bound_ms;                    /* the longest of them: no order can be faster */
    struct streams_way_result way[STREAMS_N_WAYS];
    bool checked; /* products were compared with the host's */
};

/* Returns 0 or the library's error. */
int streams_measure(struct mr_device *dev, const struct streams_opts *o, struct streams_result *out);

#endif
