/* What bench transfer measures: transfer.c does it, transfer_print.c shows it. */
#ifndef CLI_BENCH_TRANSFER_H
#define CLI_BENCH_TRANSFER_H

#include "cli.h"

struct transfer_opts {
    struct cli_common common;
    char *device, *peer, *plot, *directions;
    uint64_t min_bytes, max_bytes, repeats;
};

enum transfer_direction {
    TRANSFER_H2D,
    TRANSFER_D2H,
    TRANSFER_BOTH,
    TRANSFER_D2D,
    TRANSFER_PEER, /* from another device */
    TRANSFER_N_DIRECTIONS
};
enum transfer_memory {
    TRANSFER_PAGEABLE,
    TRANSFER_PINNED,
    TRANSFER_COMBINED,
    TRANSFER_REGISTERED,
    TRANSFER_HUGE,
    TRANSFER_N_MEMORY,
    TRANSFER_DEVICE = TRANSFER_N_MEMORY /* none of the host's */
};
enum transfer_way {
    TRANSFER_ASYNC,    /* back to back in a stream */
    TRANSFER_BLOCKING, /* the host waits for each */
    TRANSFER_BATCH,    /* 64 in one call */
    TRANSFER_GRAPH,    /* 64 recorded once, launched as one graph */
    TRANSFER_KERNEL,   /* the processors copy, from and to mapped memory */
    TRANSFER_N_WAYS
};

extern const char *const transfer_directions[], *const transfer_memories[],
                                                    *const transfer_ways[]; /* short names */

#define TRANSFER_MAX_SIZES 20
#define TRANSFER_REPEATS   100

struct transfer_point {
    uint64_t bytes, copies;  /* bytes of each of the copies that were timed together */
    double gb_per_s;         /* median; TRANSFER_BOTH: of both directions together */
    double each_gb_per_s[2]; /* TRANSFER_BOTH: H2D, D2H */
    double variation;
};

/* One line of a chart. */
struct transfer_series {
    enum transfer_direction direction;
    enum transfer_memory memory;
    enum transfer_way way;
    char name[48];   /* "pinned, batch of 64" */
    bool host_timed; /* no latch: calls of this kind block */
    int n;
    struct transfer_point points[TRANSFER_MAX_SIZES];
    bool fitted;
    double latency_ns, fit_gb_per_s; /* of one copy: latency + bytes / rate */
    double limit_gb_per_s;           /* 0: unknown */
};

#define TRANSFER_MAX_SERIES 32

struct transfer_result {
    struct mr_device_info before,
        after; /* after: right behind the fastest copies, when the link is awake */
    struct transfer_series series[TRANSFER_MAX_SERIES];
    int n_series;
    char peer[64];       /* the other device's name; "": none */
    int direct;          /* 1: its copies do not go through the host's memory */
    char left_out[1024]; /* which memory the device or the system does not give, and why */
    bool interrupted;    /* these are the series until then */
};

/* Returns 0 or the library's error. */
int transfer_measure(struct mr_device *dev, const struct transfer_opts *o,
                     struct transfer_result *out);

int transfer_print(const struct transfer_result *r, const struct transfer_opts *o);
int transfer_plot(const struct transfer_result *r, const char *path);

#endif
