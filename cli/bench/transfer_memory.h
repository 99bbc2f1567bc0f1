/* The host memory of bench transfer, and the pattern that shows whether bytes arrived. */
#ifndef CLI_BENCH_TRANSFER_MEMORY_H
#define CLI_BENCH_TRANSFER_MEMORY_H

#include "bench/transfer.h"

struct transfer_block {
    struct mr_device *dev;
    enum transfer_memory how;
    enum mr_memory kind; /* what copies call it */
    unsigned char *ptr;
    uint64_t bytes;
};

/* Returns 0 or the library's error: MR_EUNSUPPORTED and MR_ELIMIT when there is no such memory
 * here. */
int transfer_block_make(struct transfer_block *block, struct mr_device *dev,
                        enum transfer_memory how, uint64_t bytes);
void transfer_block_drop(struct transfer_block *block); /* of a zeroed one, too */

/* The byte at each place follows from the place and the seed. */
void transfer_pattern(unsigned char *ptr, uint64_t from, uint64_t bytes, uint32_t seed);
/* Returns the first place that differs, or bytes. */
uint64_t transfer_differs(const unsigned char *ptr, uint64_t from, uint64_t bytes, uint32_t seed);

#endif
