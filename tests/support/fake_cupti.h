/* What the stand-in for CUPTI offers to test programs in place of CUDA. */
#ifndef FAKE_CUPTI_H
#define FAKE_CUPTI_H

#include <stdint.h>

#define FAKE_DEVICE_AHEAD 5000000000000ull /* ns of the device's clock before CLOCK_MONOTONIC */

enum {
    FAKE_GET_DEVICE = 17,
    FAKE_MEMCPY_ASYNC = 41,
    FAKE_STREAM_SYNCHRONIZE = 131,
    FAKE_LAUNCH = 211,
    FAKE_CU_LAUNCH = 307,
    FAKE_CU_MEMCPY = 279
};

/* A call that ends at once; correlation 0: the next. Returns its correlation. */
uint32_t fake_call(int driver, uint32_t cbid, uint32_t correlation);
void fake_kernel(uint32_t correlation, const char *name, int lost);
void fake_memcpy(uint32_t correlation, uint64_t bytes, uint8_t src_kind);
void fake_others(uint32_t correlation); /* one record of each other kind */
uint32_t fake_errors(void);             /* rules of CUPTI's that the recorder broke */

#endif
