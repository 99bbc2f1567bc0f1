/* A row backend for tests: makes rows of u8 data sets from a pattern, and counts its calls. */
#ifndef TEST_ROW_BACKEND_H
#define TEST_ROW_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Byte k of sample i. */
static inline uint8_t pattern_byte(uint64_t i, uint64_t k)
{
    return (uint8_t)(i * 31 + (i >> 8) * 7 + k * 13);
}

enum pattern_mode {
    PATTERN_OFF,
    PATTERN_SOME, /* takes samples with index % 3 < 2, declines those with index % 5 == 1 */
    PATTERN_ALL   /* takes every sample: no other backend is used, and nothing is read */
};

extern struct pattern {
    enum pattern_mode mode;
    uint64_t bad_every; /* samples with index % bad_every == 4 are bad; 0: none */
    _Atomic uint64_t taken, made, declined, completed, moved, enqueued, closed;
} pattern;

/* What the backend answers. */
static inline bool pattern_takes(uint64_t index)
{
    return index % 3 < 2;
}

static inline bool pattern_declines(uint64_t index)
{
    return index % 5 == 1;
}

#endif
