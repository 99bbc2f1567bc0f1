/* What the two halves of bench transfer's measuring share: transfer_grid.c has the grid, transfer.c measures one series. */
#ifndef CLI_TRANSFER_LAB_H
#define CLI_TRANSFER_LAB_H

#include "gate.h"
#include "transfer_memory.h"

#define BATCH           64
#define BATCH_MAX_BYTES (1ull << 20)
#define CHECK_BYTES     (1ull << 20) /* more than a few of these are checked in places */

struct transfer_lab {
    struct mr_device *dev;
    const struct transfer_opts *o;
    struct gate gate;
    struct mr_stream *stream[2];
    struct mr_event *start[2], *end[2];
    struct transfer_block device[2], host[2]; /* [0]: host to device; [1]: device to host */
    unsigned char *check;                     /* page-locked, CHECK_BYTES */
};

/* All sizes of one series. Returns 0 or the library's error. */
int transfer_series_measure(struct transfer_lab *lab, const struct mr_device_info *info, struct transfer_series *s);

#endif
