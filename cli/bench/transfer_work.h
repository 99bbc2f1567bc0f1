/* What the two halves of bench transfer's measuring share: transfer_grid.c has the grid, transfer.c
 * measures one series. */
#ifndef CLI_BENCH_TRANSFER_WORK_H
#define CLI_BENCH_TRANSFER_WORK_H

#include "bench/latch.h"
#include "bench/transfer_memory.h"

#define BATCH           64
#define BATCH_MAX_BYTES (1ull << 20)
#define FILL_BYTES      (16ull << 20) /* between looks for an interrupt */
#define CHECK_BYTES     (1ull << 20)  /* more than a few of these are checked in places */

struct transfer {
    struct mr_device *dev;
    const struct transfer_opts *o;
    struct latch latch;
    struct mr_stream *stream[2];
    struct mr_event *start[2], *end[2];
    struct transfer_block device[2], host[2]; /* [0]: host to device; [1]: device to host */
    struct mr_device *peer_dev;               /* NULL: none */
    struct transfer_block peer;
    struct mr_graph *graph; /* of the point that is measured; NULL: none */
    double peer_gb_per_s;   /* limit; 0: unknown */
    unsigned char *check;   /* page-locked, CHECK_BYTES */
};

/* Opens the other device and fills memory there. If that fails, out->left_out says why,
 * and peer_dev is NULL. */
int transfer_peer_open(struct transfer *t, uint64_t bytes, struct transfer_result *out);
void transfer_peer_close(struct transfer *t);
/* Fills a block of device memory with the pattern of a seed. */
int transfer_fill(struct transfer *t, struct mr_stream *stream, const struct transfer_block *b,
                  uint32_t seed);
/* Adds to out->left_out. */
void transfer_leave_out(struct transfer_result *out, const char *what, const char *why);

/* All sizes of one series. Returns 0 or the library's error. */
int transfer_series_measure(struct transfer *t, const struct mr_device_info *info,
                            struct transfer_series *s);

#endif
