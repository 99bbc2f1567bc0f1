/* What the unit tests of the base room share: cmocka with its includes, and fixed pseudo-random
 * values. */
#ifndef MR_TEST_UNIT_H
#define MR_TEST_UNIT_H

/* cmocka.h needs these before it */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include <millrace/system.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The i-th of a fixed stream of 64-bit numbers. */
static inline uint64_t test_u64(uint32_t i)
{
    const uint32_t counter[4] = {i, 0, 0, 0}, key[2] = {0x7465, 0x7374};
    uint32_t out[4];
    mr_philox(counter, key, out);
    return (uint64_t)out[0] << 32 | out[1];
}

/* The i-th of doubles with any bits: any exponent, subnormals, sometimes infinity or NaN. */
static inline double test_double(uint32_t i)
{
    uint64_t bits = test_u64(i);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
